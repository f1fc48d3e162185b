"""One contract, every kind of remote."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from kvg import codec as kvz
from kvg.digest import Digest, sha256, shake256
from kvg.errors import Conflict, Corrupt, Incompatible, NotFound, RemoteFailed, UsageError
from kvg.remote import Pointer, Remote, open_remote
from kvg.remote.file_remote import FileRemote
from kvg.remote.layout import MalformedPointer, encode_pointer, object_name, parse_pointer
from tests.remote.conftest import Kind


def stored(label: str, size: int = 1000) -> tuple[Digest, bytes]:
    raw = shake256(label.encode(), size)
    digest = sha256(raw)
    return digest, b"".join(kvz.encode(raw, digest=digest, codec=kvz.ZSTD).parts())


def test_object_comes_back_as_it_was_put(kind: Kind) -> None:
    digest, data = stored("one", 3_000_000)
    kind.writer.put(digest, [data[:10], data[10:]])
    kind.writer.put(digest, [data])
    pieces = list(kind.remote.get(digest, limit=len(data) + 1))
    assert b"".join(pieces) == data
    assert max(map(len, pieces)) <= 1 << 20


def test_object_from_any_byte_and_no_further_than_asked(kind: Kind) -> None:
    digest, data = stored("one")
    kind.writer.put(digest, [data])
    past = () if kind.name == "http without ranges" else (len(data) + 5,)
    for start in (0, 1, 63, len(data) - 1, len(data), *past):
        got = b"".join(kind.remote.get(digest, start=start, limit=100))
        assert got == data[start : start + 100]
    assert b"".join(kind.remote.get(digest, start=7, limit=0)) == b""


def test_object_that_is_not_there(kind: Kind) -> None:
    with pytest.raises(NotFound):
        list(kind.remote.get(sha256(b"nothing"), limit=10))


def test_missing_tells_what_is_not_whole(kind: Kind) -> None:
    good = [stored(f"good {n}") for n in range(20)]
    for digest, data in good:
        kind.writer.put(digest, [data])
    absent = [sha256(f"absent {n}".encode()) for n in range(3)]
    short, data = stored("short")
    kind.writer.put(short, [data[:-1]])
    empty = sha256(b"empty")
    kind.writer.put(empty, [])
    swapped = sha256(b"swapped")
    kind.writer.put(swapped, [good[0][1]])
    asked = [*(digest for digest, _ in good), *absent, short, empty, swapped, absent[0]]
    assert kind.remote.missing(asked) == {*absent, short, empty, swapped}
    assert kind.remote.missing([]) == frozenset()


def test_pointers_and_their_listing(kind: Kind) -> None:
    assert kind.remote.pointer("docs/a") is None
    kind.writer.move("docs/a", Pointer("kvg-1", 3), expect=None)
    kind.writer.move("b", Pointer("kvg-1", 4), expect=None)
    kind.writer.publish_listing()
    assert kind.remote.pointer("docs/a") == Pointer("kvg-1", 3)
    assert kind.remote.refs() == ("b", "docs/a")


def test_logs_and_their_listing(kind: Kind) -> None:
    log = kind.writer.log("kvg-1")
    log.swap("checkpoint", b"one", expect=None)
    log.write("tile/0/x001/234.p/7", b"tile")
    kind.writer.publish_listing()
    assert kind.remote.origins() == ("kvg-1",)
    there = kind.remote.log("kvg-1")
    assert there.read("checkpoint", 100) == b"one"
    assert there.read("checkpoint", 1) == b"on"
    assert there.read("tile/0/x001/234", 100) is None
    assert there.read("tile/0/x001/234.p/7", 100) == b"tile"
    assert tuple(there.widths("tile/0/x001/234")) in ((7,), ())


def test_keys_on_offer(kind: Kind) -> None:
    assert kind.remote.offers() == {}
    kind.writer.offer("ab12", "ssh-ed25519 AAAA me\n")
    kind.writer.offer("ab12", "ssh-ed25519 AAAA me\n")
    kind.writer.publish_listing()
    assert kind.remote.offers() == {"ab12": "ssh-ed25519 AAAA me\n"}


def test_format_is_looked_at(kind: Kind) -> None:
    kind.remote.check()
    kind.writer.make()
    kind.write("format", b"kvg-remote 2\n")
    with pytest.raises(Incompatible):
        kind.remote.check()
    kind.write("format", b"<html>")
    with pytest.raises(Corrupt):
        kind.remote.check()
    kind.write("format", None)
    with pytest.raises(NotFound):
        kind.remote.check()


@pytest.mark.parametrize(
    "name", ["../x", "a/../b", "/etc/passwd", ".hidden", "a//b", "A", "a/.b", ""]
)
def test_names_that_lead_out_are_refused(kind: Kind, name: str) -> None:
    with pytest.raises(Corrupt):
        kind.remote.pointer(name)
    with pytest.raises(Corrupt):
        kind.remote.log("kvg-1").read(name, 10)
    if name:
        with pytest.raises(Corrupt):
            kind.remote.log(name).read("checkpoint", 10)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"x" * 70_000,
        b'{"index":0,"origin":"../x","schema":"kvg.pointer/1"}',
        b'{"index":-1,"origin":"x","schema":"kvg.pointer/1"}',
        b'{"index": 1,"origin":"x","schema":"kvg.pointer/1"}',
    ],
)
def test_malformed_pointers_are_refused(kind: Kind, data: bytes) -> None:
    kind.write("refs/a", data)
    kind.writer.move("b", Pointer("kvg-1", 4), expect=None)
    with pytest.raises(Corrupt):
        kind.remote.pointer("a")
    found = kind.remote.pointers(["a", "b", "c"])
    assert isinstance(found["a"], Corrupt)
    assert (found["b"], found["c"]) == (Pointer("kvg-1", 4), None)
    malformed = found["a"]
    if isinstance(malformed, MalformedPointer):
        with pytest.raises(Conflict):
            kind.writer.move("a", None, expect=MalformedPointer("other", data + b"x"))
        kind.writer.move("a", Pointer("kvg-1", 5), expect=malformed)
        assert kind.remote.pointer("a") == Pointer("kvg-1", 5)


def test_pointer_moves_only_from_what_is_expected(writable: Remote) -> None:
    one, two = Pointer("kvg-1", 1), Pointer("kvg-1", 2)
    with pytest.raises(Conflict):
        writable.move("a", two, expect=one)
    writable.move("a", one, expect=None)
    for wrong in (None, two):
        with pytest.raises(Conflict):
            writable.move("a", two, expect=wrong)
    writable.move("a", two, expect=one)
    with pytest.raises(Conflict):
        writable.move("a", None, expect=one)
    writable.move("a", None, expect=two)
    assert writable.pointer("a") is None and writable.refs() == ()


def test_of_many_movers_at_once_one_wins(writable: Remote) -> None:
    won: list[int] = []
    start = threading.Barrier(8)

    def move(number: int) -> None:
        start.wait()
        try:
            writable.move("a", Pointer("kvg-1", number), expect=None)
        except Conflict:
            return
        won.append(number)

    threads = [threading.Thread(target=move, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert writable.pointer("a") == Pointer("kvg-1", won[0])


def test_log_checkpoint_swaps(writable: Remote) -> None:
    log = writable.log("kvg-1")
    log.swap("checkpoint", b"one", expect=None)
    with pytest.raises(Conflict):
        log.swap("checkpoint", b"two", expect=b"on")
    log.swap("checkpoint", b"two", expect=b"one")
    assert log.read("checkpoint", 10) == b"two"


def test_read_only_kinds_say_so(kind: Kind) -> None:
    if kind.remote.is_writable:
        return
    for attempt in (
        lambda: kind.remote.put(sha256(b"x"), [b"x"]),
        lambda: kind.remote.move("a", None, expect=None),
        lambda: kind.remote.offer("ab", "x"),
    ):
        with pytest.raises(RemoteFailed):
            attempt()


def test_links_are_not_followed(tmp_path: Path) -> None:
    remote = open_remote(str(tmp_path / "remote"), cwd=tmp_path)
    remote.make()
    (tmp_path / "secret").write_bytes(b"secret")
    digest = sha256(b"linked")
    path = tmp_path / "remote" / object_name(digest)
    path.parent.mkdir(parents=True)
    path.symlink_to(tmp_path / "secret")
    with pytest.raises(Corrupt):
        list(remote.get(digest, limit=10))


@pytest.mark.parametrize(
    "url", ["ftp://host/x", "http://", "https:///x", "s4://bucket", "", "http://h/x?y"]
)
def test_addresses_of_no_kind(url: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        open_remote(url, cwd=tmp_path)


@pytest.mark.parametrize("index", [0, 7, 10**14, 10**15, 2**53 - 1])
@pytest.mark.parametrize("origin", ["kvg-1", "a.b", "x" * 300])
def test_pointers_come_back(index: int, origin: str) -> None:
    made = Pointer(origin, index)
    assert parse_pointer(encode_pointer(made), what="it") == made


def test_a_push_shows_that_it_lives(kind: Kind) -> None:
    remote = kind.writer
    remote.make()
    remote.announce("kvg-1")
    remote.renew("kvg-1")
    if isinstance(remote, FileRemote):
        first = remote.pushes(besides="kvg-2")
        assert remote.pushes(besides="kvg-1") == {}
        remote.renew("kvg-1")
        second = remote.pushes(besides="kvg-2")
        assert first.keys() == second.keys() == {"kvg-1"} and first != second
        with pytest.raises(Conflict):
            remote.end_push("kvg-1", first["kvg-1"])
        remote.end_push("kvg-1", second["kvg-1"])
        with pytest.raises(Conflict, match="taken for dead"):
            remote.renew("kvg-1")
    remote.withdraw("kvg-1")
    remote.renew("kvg-1")
    remote.withdraw("kvg-1")
    assert not isinstance(remote, FileRemote) or remote.pushes(besides="") == {}
