from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kvg import durable
from kvg.digest import shake256
from kvg.errors import NoSpace
from kvg.store import Store
from kvg.store.quota import QUOTA_KEY, Quota, size_of
from kvg.store.sweep import sweep
from tests import artifacts as a

SIZE = 100_000


def raw(n: int) -> bytes:
    return shake256(str(n).encode(), SIZE)


def limited(tmp_path: Path, room: int) -> Store:
    store, _ = a.make_store(tmp_path)
    store.config.set(QUOTA_KEY, store.quota.used() + room)
    return store


def counted(store: Store) -> int:
    return int((store.root / "usage").read_bytes()[37:57])


def test_no_quota_keeps_no_file(tmp_path: Path) -> None:
    store, _ = a.make_store(tmp_path)
    store.objects.put(raw(1))
    assert store.quota.limit is None and not (store.root / "usage").exists()


def test_field_k13_the_quota_is_hard_and_refuses_before_writing(tmp_path: Path) -> None:
    store = limited(tmp_path, 3 * SIZE)
    written = 0
    with pytest.raises(NoSpace, match="quota of") as error:
        for n in range(10):
            store.objects.put(raw(n))
            written += 1
    assert written == 2  # a third takes a little more than its bytes
    assert error.value.hint and "kvg gc" in error.value.hint
    steps: list[str] = []
    durable.set_hook(lambda name, path: steps.append(f"{name} {path}"))
    try:
        with pytest.raises(NoSpace):
            store.objects.put(raw(11))
    finally:
        durable.set_hook(None)
    assert [step for step in steps if "usage" not in step] == []
    assert store.quota.used() <= (store.quota.limit or 0) and counted(store) == store.quota.used()
    assert not store.objects.put(raw(0)).new


def test_field_k13_temporary_files_count(tmp_path: Path) -> None:
    store = limited(tmp_path, 2 * SIZE)
    (store.staging / "partial.1.1.dead").write_bytes(bytes(SIZE))
    with pytest.raises(NoSpace):
        store.objects.put(raw(1))
    assert sweep(store).temporaries == 1
    assert store.objects.put(raw(1)).new


def test_what_gc_frees_can_be_used(tmp_path: Path) -> None:
    store = limited(tmp_path, 2 * SIZE)
    store.objects.put(raw(1))
    with pytest.raises(NoSpace):
        store.objects.put(raw(2))
    assert sweep(store).objects == 1
    assert store.objects.put(raw(2)).new and counted(store) == store.quota.used()


def test_a_failed_write_is_not_counted(tmp_path: Path) -> None:
    store = limited(tmp_path, 10 * SIZE)
    store.objects.put(raw(1))
    before = counted(store)

    def full(name: str, path: str) -> None:
        if name == "write" and "usage" not in path:
            raise OSError(28, "No space left on device")

    durable.set_hook(full)
    try:
        with pytest.raises(NoSpace, match="no space left"):
            store.objects.put(raw(2))
    finally:
        durable.set_hook(None)
    assert counted(store) == before == store.quota.used()


@pytest.mark.parametrize(
    "edit",
    [
        lambda _: b"",
        lambda _: b"junk",
        lambda _: b"x" * 36 + b" 00000000000000000001\n",
        lambda line: line[:57] + b"\n",
        lambda line: line[:-1],
        lambda line: line + b"\n",
        lambda line: line + line,
        lambda line: b"x" * 36 + line[36:],
        lambda line: line[:37] + b"0" * 20 + line[57:],
    ],
)
def test_a_sum_that_cannot_be_relied_on_is_taken_anew(
    tmp_path: Path, edit: Callable[[bytes], bytes]
) -> None:
    """Nor is anything refused for it: one without a checksum is of an older kvg."""
    store = limited(tmp_path, 10 * SIZE)
    store.objects.put(raw(1))
    path = store.root / "usage"
    path.write_bytes(edit(path.read_bytes()))
    for n in (2, 3):
        store.objects.put(raw(n))
        assert counted(store) == store.quota.used()
    assert len(path.read_bytes().splitlines()) == 1


def test_a_flipped_bit_of_the_sum_does_not_pass_the_quota(tmp_path: Path) -> None:
    store = limited(tmp_path, int(1.5 * SIZE))
    store.objects.put(raw(1))
    path = store.root / "usage"
    whole = path.read_bytes()
    for place, bit in itertools.product(range(len(whole)), range(8)):
        flipped = bytes([whole[place] ^ 1 << bit])
        path.write_bytes(whole[:place] + flipped + whole[place + 1 :])
        with pytest.raises(NoSpace):
            store.objects.put(raw(2))
        assert path.read_bytes() == whole, (place, bit)


def test_the_sum_of_another_store_is_not_believed(tmp_path: Path) -> None:
    full, other = limited(tmp_path / "full", 2 * SIZE), limited(tmp_path / "other", 9 * SIZE)
    for store in (full, other):
        store.objects.put(raw(1))
    full.objects.put(b"a little more")
    (full.root / "usage").write_bytes((other.root / "usage").read_bytes())
    full.objects.put(b"and more")
    assert counted(full) == full.quota.used()


def test_a_killed_writer_is_counted_until_it_matters(tmp_path: Path) -> None:
    store = limited(tmp_path, int(2.5 * SIZE))
    store.objects.put(raw(1))
    pid = os.fork()
    if pid == 0:

        def die(name: str, path: str) -> None:
            if name == "write" and "usage" not in path:
                os._exit(1)

        durable.set_hook(die)
        Store.open(tmp_path).objects.put(raw(2))
        os._exit(0)
    os.waitpid(pid, 0)
    assert counted(store) > store.quota.used()
    assert store.objects.put(raw(3)).new
    assert counted(store) == store.quota.used()


def test_writers_at_once_do_not_get_past_it(tmp_path: Path) -> None:
    limited(tmp_path, 5 * SIZE)
    refused = []

    def write(me: int) -> None:
        store = Store.open(tmp_path)
        for n in range(4):
            try:
                store.objects.put(raw(10 * me + n))
            except NoSpace as error:
                refused.append(error)

    threads = [threading.Thread(target=write, args=(me,)) for me in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store = Store.open(tmp_path)
    assert store.quota.used() <= (store.quota.limit or 0)
    assert len(refused) == 8 and counted(store) == store.quota.used()


def test_a_deposit_past_the_quota_leaves_what_was_there(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    first = a.deposit(store, key, ids=range(9))
    store.config.set(QUOTA_KEY, store.quota.used() + 20_000)
    with pytest.raises(NoSpace):
        a.deposit(store, key, ids=range(100, 127))
    assert store.refs() == {"demo": first.digest}
    sweep(store)
    a.deposit(store, key, ids=range(9), ref="again")


def test_sizes_follow_no_link(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "f").write_bytes(bytes(10))
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    assert 10 <= size_of(tmp_path) < 4096 and size_of(tmp_path / "none") == 0
    assert Quota(tmp_path, limit=lambda: None).used() == 0
