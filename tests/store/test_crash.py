"""Whatever stops a writer, and wherever: the store opens, and what it names is whole."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kvg import durable
from kvg.errors import KvgError, NoSpace
from kvg.store import Store
from kvg.store.pending import live_roots
from kvg.verify import VerifySummary, check_objects, check_store, verify_artifact
from tests import artifacts as a

KILLED = 77


@contextmanager
def hooked(hook: durable.Hook) -> Iterator[None]:
    durable.set_hook(hook)
    try:
        yield
    finally:
        durable.set_hook(None)


class Steps:
    """Counts the steps, and does ``act`` at number ``at``."""

    def __init__(self, at: int, act: Callable[[], None]) -> None:
        self.at, self.act, self.count = at, act, 0

    def __call__(self, _name: str, _path: str) -> None:
        self.count += 1
        if self.count == self.at:
            self.act()


def nothing() -> None:
    return None


def die() -> None:
    os._exit(KILLED)


def full() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


class Stopped(BaseException):
    """As Ctrl-C, at a step of our choice."""


def stop() -> None:
    raise Stopped


def open_store(folder: Path) -> Store:
    return Store.open(folder, lock_wait=5, keyring=a.make_keyring(folder))


def second(store: Store) -> None:
    """The work that is stopped: a new artifact that shares a page, and two moves of refs."""
    a.deposit(store, a.key_of("alice"), ref="second", ids=range(5, 30))
    store.set_ref("demo", store.refs()["second"])


def check_whole(folder: Path, first: str) -> None:
    """The earlier artifact verifies, the interrupted one is absent or whole, nothing is torn."""
    store = open_store(folder)
    refs = store.refs()
    assert first in refs.values() or refs["demo"] == refs["second"]
    assert set(refs) <= {"demo", "second"}
    for digest in {*refs.values(), first}:
        artifact = verify_artifact(store, digest)  # type: ignore[arg-type]
        for page in artifact.manifest.pages:
            artifact.read_page(page)
    assert [type(found) for found in check_store(store)] == [VerifySummary]
    assert list(check_objects(store)) == []
    second(store)
    refs = store.refs()
    assert refs["demo"] == refs["second"]
    assert [type(found) for found in check_store(store)] == [VerifySummary]


@contextmanager
def quick_folder() -> Iterator[Path]:
    """In memory where that can be had: these tests wait for the disk thousands of times."""
    memory = Path("/dev/shm")
    place = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="kvg-test-", dir=place) as name:
        yield Path(name)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with quick_folder() as folder:
        yield folder


@pytest.fixture(scope="module")
def base() -> Iterator[tuple[Path, str, int]]:
    """A store with one artifact, its digest, and how many steps the second deposit takes."""
    with quick_folder() as folder:
        yield make_base(folder / "base" / "s")


def make_base(folder: Path) -> tuple[Path, str, int]:
    store, key = a.make_store(folder)
    first = a.deposit(store, key).digest
    store.close()
    copy = folder.parent / "count"
    shutil.copytree(folder, copy)
    steps = Steps(0, nothing)
    counted = open_store(copy)
    with hooked(steps):
        second(counted)
    counted.close()
    return folder, first, steps.count


def copied(base: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "s"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(base, folder)
    return folder


def test_killed_at_every_step(base: tuple[Path, str, int], tmp_path: Path) -> None:
    source, first, n_steps = base
    assert n_steps > 60
    for at in range(1, n_steps + 1):
        folder = copied(source, tmp_path)
        pid = os.fork()
        if pid == 0:
            durable.set_hook(Steps(at, die))
            second(open_store(folder))
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == KILLED, at
        check_whole(folder, first)


def test_a_full_disk_at_every_step(base: tuple[Path, str, int], tmp_path: Path) -> None:
    source, first, n_steps = base
    refused = 0
    for at in range(1, n_steps + 1):
        folder = copied(source, tmp_path)
        store = open_store(folder)
        with hooked(Steps(at, full)):
            try:
                second(store)
            except NoSpace as error:
                refused += 1
                assert "no space left" in error.message
        assert live_roots(store.staging) == frozenset()
        store.close()
        check_whole(folder, first)
    assert refused > 30


def test_interrupted_at_every_step(base: tuple[Path, str, int], tmp_path: Path) -> None:
    source, first, n_steps = base
    for at in range(1, n_steps + 1):
        folder = copied(source, tmp_path)
        store = open_store(folder)
        with hooked(Steps(at, stop)), pytest.raises(Stopped):
            second(store)
        assert not [n for n in os.listdir(store.staging) if n.startswith("partial")]
        store.close()
        check_whole(folder, first)


def test_init_killed_at_every_step(tmp_path: Path) -> None:
    at = 0
    while True:
        at += 1
        folder = tmp_path / str(at)
        folder.mkdir()
        pid = os.fork()
        if pid == 0:
            durable.set_hook(Steps(at, die))
            a.make_store(folder)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        store, key = a.make_store(folder)
        assert store.trust.version == 1
        made = a.deposit(store, key)
        assert verify_artifact(store, made.digest).signers == (key.public.keyid,)
        store.close()
        if code == 0:
            break
    assert at > 30


def test_a_trust_change_killed_at_every_step(tmp_path: Path) -> None:
    from kvg.trust import sign_trust

    source = tmp_path / "source"
    store, key = a.make_store(source)
    first = a.deposit(store, key).digest
    store.close()
    at, seen = 0, set()
    while True:
        at += 1
        folder = copied(source, tmp_path)
        pid = os.fork()
        if pid == 0:
            durable.set_hook(Steps(at, die))
            child = open_store(folder)
            new = child.trust.with_key(a.key_of("bob").public, ["depositor"])
            child.set_trust(sign_trust(new, [key]))
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        store = open_store(folder)
        seen.add(store.trust.version)
        verify_artifact(store, first)
        if store.trust.version == 1:
            new = store.trust.with_key(a.key_of("bob").public, ["depositor"])
            store.set_trust(sign_trust(new, [key]))
        assert store.trust.find(a.key_of("bob").public.keyid) is not None
        assert [type(found) for found in check_store(store)] == [VerifySummary]
        store.close()
        if code == 0:
            break
    assert seen == {1, 2}


def test_field_s03_a_killed_writer_leaves_others_alone(
    base: tuple[Path, str, int], tmp_path: Path
) -> None:
    folder = copied(base[0], tmp_path)
    store = open_store(folder)
    with store.pending() as pending:
        kept = pending.put(b"still at work").digest
        pid = os.fork()
        if pid == 0:
            durable.set_hook(Steps(20, die))
            second(open_store(folder))
            os._exit(0)
        os.waitpid(pid, 0)
        assert kept in store.roots()
    assert store.objects.has(kept)


def test_an_error_says_what_to_do(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    with hooked(Steps(3, full)), pytest.raises(KvgError) as error:
        a.deposit(store, key)
    assert error.value.code == NoSpace.code and error.value.hint
