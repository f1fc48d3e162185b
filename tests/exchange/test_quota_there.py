"""A remote that is a store with a quota: whoever pushes there keeps within it, or is refused."""

from __future__ import annotations

import itertools
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from kvg import codec as kvz
from kvg import durable
from kvg.digest import sha256, shake256
from kvg.errors import Conflict, Corrupt, NoSpace, RemoteFailed
from kvg.flow.remote_gc import remote_gc
from kvg.remote import Access
from kvg.remote.directory import DirectoryFiles
from kvg.remote.layout import object_name
from kvg.store import Store
from kvg.store.quota import QUOTA_KEY, size_of
from tests.exchange.conftest import Person

REPO = Path(__file__).parents[2]
FAR_SIDE = f"""
import sys
sys.path[:0] = [{str(REPO)!r}, {str(REPO / "kernels")!r}]
from pathlib import Path
from kvg.flow.serve import serve
from kvg.flow.settings import Settings

none = Path("none")
settings = Settings(cwd=Path(), keys=none, cache=none, user_config=none)
folder = Path(sys.argv[-1].split()[-1])
serve(settings, folder, sys.stdin.buffer, sys.stdout.buffer, is_read_only=False)
"""


@pytest.fixture
def there(share: Path, tmp_path: Path) -> Store:
    keeper = Person.make(tmp_path / "keeper")
    return Store.init(share, bare=True, keyring=keeper.keyring)


@pytest.fixture(params=["folder", "ssh"])
def pusher(request: pytest.FixtureRequest, share: Path, tmp_path: Path) -> Person:
    """Whose remote ``there`` is, with a first ref pushed to it."""
    program = tmp_path / "far.py"
    program.write_text(FAR_SIDE)
    access = Access({"KVG_SSH_COMMAND": f"{sys.executable} {program}"})
    person = Person.make(tmp_path / "pusher", access).init()
    person.add(share if request.param == "folder" else f"ssh://host{share}")
    person.deposit("demo", range(5, 20))
    return person


def allow(there: Store, more: int) -> None:
    """Let ``there`` take ``more`` bytes than it has."""
    there.config.set(QUOTA_KEY, there.quota.used() + more)


def test_field_k13_a_push_past_the_quota_is_refused(
    pusher: Person, there: Store, share: Path
) -> None:
    first = pusher.deposit("demo", range(5, 20))
    allow(there, 1 << 20)
    assert not pusher.push().findings
    allow(there, 5_000)
    before = there.quota.used()
    pusher.deposit("more", range(100, 150))
    with pytest.raises(NoSpace, match="quota of") as error:
        pusher.push()
    assert error.value.code == 10 and "kvg quota" in (error.value.hint or "")
    assert there.quota.used() <= (there.quota.limit or 0) and size_of(share / "tmp") == 0
    assert there.quota.used() >= before
    assert not (share / "refs" / "more").exists() and (share / "refs" / "demo").exists()
    reader = Person.make(share.parent / "reader")
    assert not reader.clone(share, pusher).findings
    assert reader.store.ref("origin/demo") == first and reader.store.ref("origin/more") is None
    allow(there, 1 << 20)
    assert pusher.push().states == {"demo": "unchanged", "more": "new"}
    assert there.quota.used() <= (there.quota.limit or 0)


def test_nothing_is_written_that_has_no_room(there: Store, pusher: Person, share: Path) -> None:
    there.config.set(QUOTA_KEY, 50)
    with pytest.raises(NoSpace):
        pusher.push()
    assert there.quota.used() == 0 == size_of(share / "objects")
    assert not (share / "refs").exists() or not any((share / "refs").iterdir())


def test_what_is_counted_there_is_what_lies_there(there: Store, pusher: Person) -> None:
    allow(there, 1 << 20)
    pusher.push()
    assert int((there.root / "usage").read_bytes()[37:57]) == there.quota.used()


def test_a_quota_that_nobody_can_read_is_not_passed(there: Store, pusher: Person) -> None:
    allow(there, 1000)
    there.config.path.write_bytes(b"no TOML")
    with pytest.raises(Corrupt, match=r"config\.toml"):
        pusher.push()
    assert there.quota.used() == 0


@pytest.mark.parametrize("kind", ["a folder", "a store without"])
def test_elsewhere_nothing_is_counted(kind: str, share: Path, tmp_path: Path) -> None:
    person = Person.make(tmp_path / "person").init().add(share)
    if kind != "a folder":
        Store.init(share, bare=True, keyring=Person.make(tmp_path / "keeper").keyring)
    person.deposit("demo")
    assert not person.push().findings
    assert not (share / "usage").exists()


def test_room_that_was_made_there_is_taken(there: Store, pusher: Person, share: Path) -> None:
    allow(there, 8_000)
    pusher.push()
    pusher.deposit("more", range(100, 130))
    with pytest.raises(NoSpace, match="quota of") as told:
        pusher.push()
    assert "kvg remote gc" in (told.value.hint or "")
    pusher.push("demo", delete=True)
    with pytest.raises(NoSpace):
        pusher.push("more")
    tuple(remote_gc(pusher.store, pusher.settings, "origin"))
    assert not pusher.push("more").findings
    assert there.quota.used() <= 8_000


@pytest.mark.parametrize("name", ["usage", "lock"])
def test_a_link_there_is_not_followed(
    there: Store, pusher: Person, share: Path, tmp_path: Path, name: str
) -> None:
    """It would be written to, with the rights of who pushes."""
    allow(there, 1 << 20)
    other = tmp_path / "of nobody"
    other.write_text("as it was")
    (share / name).unlink(missing_ok=True)
    (share / name).symlink_to(other)
    with pytest.raises(Corrupt, match=f"{name}: a link"):
        pusher.push()
    assert other.read_text() == "as it was"


def stored(n: int, size: int = 50_000) -> tuple[str, list[bytes]]:
    """The name of an object, and its stored form in parts: the header, then some at a time."""
    raw = shake256(str(n).encode(), size)
    made = kvz.encode(raw, digest=sha256(raw), codec=kvz.RAW, planes=1, data_start=0)
    whole = b"".join(map(bytes, made.parts()))
    cuts = [*range(0, len(whole), 8192), len(whole)]
    return object_name(sha256(raw)), [whole[a:b] for a, b in itertools.pairwise(cuts)]


def test_what_its_header_says_has_no_room_is_not_begun(there: Store, share: Path) -> None:
    allow(there, 40_000)
    name, parts = stored(1)
    with closing(there.objects.counted(iter(parts))) as counted, pytest.raises(NoSpace):
        next(counted)
    files = DirectoryFiles(share, keeper=lambda _: there.objects.counted)
    with pytest.raises(NoSpace):
        files.write(name, parts[1:])  # without a header
    assert there.quota.used() == 0


def test_nobody_takes_the_sum_before_a_part_is_written(there: Store, share: Path) -> None:
    allow(there, 1 << 20)
    other = Store.open(share, lock_wait=0.0)
    counted = there.objects.counted(iter(stored(1)[1]))
    for _ in zip(counted, range(2), strict=False):
        with pytest.raises(Conflict), other.lock.exclusive():
            pass
    counted.close()
    with other.lock.exclusive():
        assert other.quota.recount() == 0


@pytest.mark.parametrize("when", ["write", "fsync"])
def test_a_write_there_that_fails_holds_nobody_up(there: Store, share: Path, when: str) -> None:
    allow(there, 1 << 20)
    files = DirectoryFiles(share, keeper=lambda _: there.objects.counted)
    name, parts = stored(1)

    def fail(step: str, path: str) -> None:
        if step == when and ("objects" in path or "partial" in path):
            raise OSError(5, "Input/output error")

    durable.set_hook(fail)
    try:
        with pytest.raises(RemoteFailed) as told:
            files.write(name, parts)
    finally:
        durable.set_hook(None)
    with Store.open(share, lock_wait=0.0).lock.exclusive():
        assert size_of(share / "tmp") == 0
    assert told.value.code != NoSpace.code  # it lives, and so does what it came through
    files.write(name, parts)
    assert (share / name).read_bytes() == b"".join(parts)


def test_writers_of_both_kinds_do_not_get_past_it(there: Store, share: Path) -> None:
    """At no step: what a writer has not written yet is seen by who takes the sum meanwhile."""
    allow(there, 300_000)
    limit = there.quota.limit or 0
    most, refused = [0], []

    def write(me: int) -> None:
        own = Store.open(share)
        files = DirectoryFiles(share, keeper=lambda _: own.objects.counted)
        for n in range(4):
            name, parts = stored(10 * me + n)
            try:
                if me % 2:
                    own.objects.put(shake256(str(10 * me + n).encode(), 50_000))
                else:
                    files.write(name, parts)
            except NoSpace as error:
                refused.append(error)
            with own.lock.exclusive():
                own.quota.recount()

    def look(step: str, path: str) -> None:
        if step == "write" and "usage" not in path:
            most[0] = max(most[0], size_of(share / "objects") + size_of(share / "tmp"))

    durable.set_hook(look)
    try:
        threads = [threading.Thread(target=write, args=(me,)) for me in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        durable.set_hook(None)
    assert 200_000 < most[0] <= limit and there.quota.used() <= limit
    assert len(refused) >= 10 and size_of(share / "tmp") == 0
