"""A place that gives next to nothing for long holds nobody for ever."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from kvg.digest import sha256
from kvg.errors import RemoteFailed
from kvg.remote import Access, open_remote, pace
from kvg.remote.distribution import Registry
from kvg.remote.ssh import SshFiles

Say = Callable[[socket.socket, bytes], None]
HEAD = b"HTTP/1.1 200 OK\r\n"
BLOB = sha256(b"x")


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "WINDOW_S", 0.1)
    monkeypatch.setattr(pace, "BODY_WINDOW_S", 0.3)
    monkeypatch.setattr(pace, "MIN_BYTES_PER_S", 4096)


@contextmanager
def saying(say: Say) -> Iterator[str]:
    """A server that reads a request and says anything; yields its host and port."""
    server = socket.create_server(("127.0.0.1", 0))

    def answer(one: socket.socket) -> None:
        with one, suppress(OSError):
            while asked := one.recv(1 << 16):
                say(one, asked)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=answer, args=(server.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.getsockname()[1]}"
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()


def drops(one: socket.socket, first: bytes, then: bytes) -> None:
    one.sendall(first)
    while True:
        time.sleep(0.02)
        one.sendall(then)


def floods(one: socket.socket, first: bytes, then: bytes) -> None:
    one.sendall(first)
    while True:
        one.sendall(then * 100)


CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
SLOW: dict[str, Say] = {
    "a body by the byte": lambda one, _: drops(
        one, HEAD + b"Content-Length: 5000000\r\n\r\n", b"x"
    ),
    "a head by the byte": lambda one, _: drops(one, HEAD + b"X-Long: ", b"x"),
    "chunks of a byte": lambda one, _: drops(one, CHUNKED, b"1\r\nx\r\n"),
    "interim answers": lambda one, _: drops(one, b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
}
ENDLESS: dict[str, Say] = {
    "interim answers": lambda one, _: floods(one, b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "trailers": lambda one, _: floods(one, CHUNKED + b"1\r\nx\r\n0\r\n", b"X: y\r\n"),
    "header lines": lambda one, _: floods(one, HEAD, b"X-Long: " + b"y" * 60_000 + b"\r\n"),
    "words of chunks": lambda one, _: floods(one, CHUNKED, b"1;" + b"y" * 60_000 + b"\r\nx\r\n"),
}


def web_reads(host: str) -> None:
    remote = open_remote(f"http://{host}", cwd=Path())
    with pytest.raises(RemoteFailed, match=r"slow|goes on") as told:
        b"".join(remote.get(BLOB, limit=1 << 22))
    assert told.value.hint is not None
    assert host in told.value.message
    with pytest.raises(RemoteFailed, match=r"slow|goes on"):
        remote.check()


def registry_reads(host: str) -> None:
    place = Registry(f"oci://{host}/team/kv", Access())
    with pytest.raises(RemoteFailed, match=r"slow|goes on") as told:
        b"".join(place.blob(BLOB, start=0, limit=1 << 22))
    assert host in told.value.message
    with pytest.raises(RemoteFailed, match=r"slow|goes on"):
        place.manifest("demo")


READERS = {"web": web_reads, "registry": registry_reads}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", SLOW)
def test_what_trickles_is_given_up(name: str, reader: str) -> None:
    with saying(SLOW[name]) as host:
        READERS[reader](host)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", ENDLESS)
def test_what_never_comes_to_the_point_is_given_up(name: str, reader: str) -> None:
    with saying(ENDLESS[name]) as host:
        READERS[reader](host)


def test_an_object_store_that_trickles_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvg.remote.s3.REQUEST_TIMEOUT", "400ms")
    monkeypatch.setattr("kvg.remote.s3.MAX_RETRIES", 1)
    head = b"Content-Length: 5000000\r\nLast-Modified: Mon, 30 Nov 2026 09:00:00 GMT\r\n"
    head += b'ETag: "a"\r\n\r\n'
    said = {
        "AWS_ENDPOINT_URL_S3": "",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "me",
        "AWS_SECRET_ACCESS_KEY": "secret",
    }
    with saying(lambda one, _: drops(one, HEAD + head, b"x")) as host:
        said["AWS_ENDPOINT_URL_S3"] = f"http://{host}"
        remote = open_remote("s3://bucket/x", cwd=Path(), access=Access(said))
        began = time.monotonic()
        with pytest.raises(RemoteFailed):
            list(remote.get(BLOB, limit=5000))
        assert time.monotonic() - began < 5


def test_a_byte_for_each_connection_is_no_progress_for_ever() -> None:
    def say(one: socket.socket, asked: bytes) -> None:
        first = int(asked.partition(b"bytes=")[2].partition(b"-")[0])
        part = b"bytes %d-5000/5001" % first
        time.sleep(0.02)
        one.sendall(b"HTTP/1.1 206 OK\r\nContent-Range: " + part + b"\r\n")
        one.sendall(b"Content-Length: %d\r\n\r\nx" % (5001 - first))
        one.shutdown(socket.SHUT_RDWR)

    with saying(say) as host:
        with pytest.raises(RemoteFailed, match="slow"):
            list(Registry(f"oci://{host}/team/kv", Access()).blob(BLOB, start=0, limit=5000))
        with pytest.raises(RemoteFailed, match="slow"):
            list(open_remote(f"http://{host}", cwd=Path()).get(BLOB, limit=5000))


def test_who_was_stopped_has_not_waited() -> None:
    """The time of Ctrl-Z looks like one long wait."""
    one = pace.Pace(30.0)
    one.add(1, 3600.0)
    one.add(1, 3600.0)
    with pytest.raises(pace.TooSlow):
        one.add(1, 3600.0)


def test_a_place_may_think_and_a_reader_may_take_its_time() -> None:
    """Only waiting for the place counts, and not that for its first byte."""

    def say(one: socket.socket, _: bytes) -> None:
        time.sleep(0.2)
        one.sendall(HEAD + b"Content-Length: 3\r\n\r\nabc")

    with saying(say) as host:
        found = open_remote(f"http://{host}", cwd=Path()).get(BLOB, limit=9)
        assert b"".join(found) == b"abc"
    slow_reader = pace.watched(iter([b"a"] * 5))
    for _ in slow_reader:
        time.sleep(0.1)


GREETED = (
    "import sys, struct, time\nout = sys.stdout.buffer\n"
    "out.write(b'kvg-exchange 1\\n'); out.flush(); sys.stdin.buffer.read(4)\n"
    "def say(data): out.write(data); out.flush()\n"
    "def head(data): say(struct.pack('<I', len(data)) + data)\n"
)
MUTE: dict[str, tuple[str, str]] = {
    "says nothing": ("time.sleep(60)", "silent"),
    "a body by the byte": (
        "head(b'{\"body\":true}')\nsay(struct.pack('<I', 1 << 20))\n"
        "while True: say(b'x'); time.sleep(0.02)",
        "slow",
    ),
    "a head by the byte": (
        "say(struct.pack('<I', 1 << 20))\nwhile True: say(b'x'); time.sleep(0.02)",
        "slow",
    ),
}


@pytest.mark.parametrize("name", MUTE)
def test_a_far_side_that_trickles_is_given_up(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvg.remote.ssh.SILENCE_S", 0.2)
    monkeypatch.setattr("kvg.remote.ssh.LOOK_S", 0.05)
    program, word = MUTE[name]
    (tmp_path / "far.py").write_text(GREETED + program)
    said = Access({"KVG_SSH_COMMAND": f"{sys.executable} {tmp_path / 'far.py'}"})
    files = SshFiles("ssh://host/x", said)
    with pytest.raises(RemoteFailed, match=word) as told:
        b"".join(files.stream("objects/ab/cd", start=0, limit=5_000_000))
    assert told.value.message.startswith("ssh://host/x: ") and told.value.hint is not None
    files.close()


def test_a_far_side_that_never_says_what_it_is_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvg.remote.ssh.GREETING_S", 0.2)
    monkeypatch.setattr("kvg.remote.ssh.LOOK_S", 0.05)
    (tmp_path / "far.py").write_text("import time; time.sleep(60)")
    said = Access({"KVG_SSH_COMMAND": f"{sys.executable} {tmp_path / 'far.py'}"})
    with pytest.raises(RemoteFailed, match=r"^ssh://host/x: silent .*no kvg answers") as told:
        SshFiles("ssh://host/x", said).read("format", 100)
    assert "ssh -v" in (told.value.hint or "")


def test_a_far_side_that_takes_nothing_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvg.remote.ssh.SILENCE_S", 0.2)
    monkeypatch.setattr("kvg.remote.ssh.LOOK_S", 0.05)
    (tmp_path / "far.py").write_text(GREETED + "time.sleep(60)")
    said = Access({"KVG_SSH_COMMAND": f"{sys.executable} {tmp_path / 'far.py'}"})
    files = SshFiles("ssh://host/x", said)
    with pytest.raises(RemoteFailed, match="silent"):
        files.write("objects/ab/cd", [bytes(1 << 22)])
    files.close()
