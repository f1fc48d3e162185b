"""ssh: what the far side may say, and what it may not be asked."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from kvg.digest import Buffer, sha256, shake256
from kvg.errors import Corrupt, Incompatible, NoSpace, RemoteFailed, UsageError
from kvg.remote import Access, open_remote, wire
from kvg.remote.directory import DirectoryFiles
from kvg.remote.layout import object_name
from kvg.remote.serving import Server
from kvg.remote.ssh import SshFiles, command
from tests.remote.programs import Ssh


def test_addresses_become_commands() -> None:
    _, argv = command("ssh://me@host:2222/srv/kv", Access())
    assert argv[0] == "ssh" and argv[-5:] == ("-p", "2222", "--", "me@host", "kvg __serve /srv/kv")
    assert command("ssh://host/~/kv", Access())[1][-1] == "kvg __serve '~/kv'"
    assert command("ssh://host/a'; rm -rf x", Access())[1][-1] == (
        "kvg __serve '/a'\"'\"'; rm -rf x'"
    )
    own = Access({"KVG_SSH_COMMAND": "ssh -F 'my config'"})
    assert command("ssh://host/x", own)[1][:3] == ("ssh", "-F", "my config")


@pytest.mark.parametrize(
    "url",
    [
        "ssh://-oProxyCommand=x/y",
        "ssh://-l@host/y",
        "ssh://me:secret@host/x",
        "ssh://host",
        "ssh://host/",
        "ssh://host:99999/x",
        "ssh:///x",
    ],
)
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(UsageError) as told:
        open_remote(url, cwd=Path())
    assert "secret" not in told.value.message


def test_who_cannot_be_reached_or_has_no_kvg(ssh_server: Ssh, tmp_path: Path) -> None:
    away = open_remote("ssh://127.0.0.1:9/x", cwd=tmp_path, access=ssh_server.access)
    with pytest.raises(RemoteFailed, match="refused"):
        away.check()
    own = ssh_server.access.variables["KVG_SSH_COMMAND"]
    other = Access({"KVG_SSH_COMMAND": f"{own} -o User=nobody-of-this-name"})
    stranger = open_remote(ssh_server.url(tmp_path), cwd=tmp_path, access=other)
    with pytest.raises(RemoteFailed, match="denied") as told:
        stranger.check()
    assert told.value.hint is not None and "a key that it takes" in told.value.hint


def fake(tmp_path: Path, program: str) -> SshFiles:
    """A far side that is a Python program."""
    path = tmp_path / "far.py"
    path.write_text(program)
    access = Access({"KVG_SSH_COMMAND": f"{sys.executable} {path}"})
    return SshFiles("ssh://host/x", access)


GREETED = "import sys, struct\nout = sys.stdout.buffer\nout.write(b'kvg-exchange 1\\n')\n"
SAY = (
    "def say(data): out.write(struct.pack('<I', len(data)) + data); out.flush()\n"
    "out.flush(); sys.stdin.buffer.read(4)\n"
)


@pytest.mark.parametrize(
    "program",
    [
        "print('Welcome to this machine')",
        "import sys; sys.exit(3)",
        GREETED,
        GREETED + SAY + "say(b'{}  ')",
        GREETED + SAY + "say(b'[]')",
        GREETED + SAY + "say(b'{\"data\":7}')",
        GREETED + SAY + 'say(b\'{"data":"?"}\')',
        GREETED + SAY + "say(b'{\"error\":7}')",
        GREETED + SAY + "out.write(b'\\xff' * 8)",
        GREETED + SAY + "say(b'{}' * 40)",
    ],
)
def test_a_far_side_that_lies(tmp_path: Path, program: str) -> None:
    with pytest.raises((RemoteFailed, Corrupt)):
        fake(tmp_path, program).read("format", 100)


def test_a_body_without_an_end_is_cut(tmp_path: Path) -> None:
    endless = GREETED + SAY + "say(b'{\"body\":true}')\n"
    endless += "while True: out.write(struct.pack('<I', 1 << 20) + bytes(1 << 20))"
    files = fake(tmp_path, endless)
    with pytest.raises(Corrupt):
        list(files.stream("objects/ab/cd", start=0, limit=5_000_000))
    files.close()


def test_an_answer_that_tells_of_a_failure(tmp_path: Path) -> None:
    say = '{"error":{"code":10,"hint":null,"message":"full"}}'
    files = fake(tmp_path, GREETED + SAY + f"say({say.encode()!r})")
    with pytest.raises(Exception) as told:
        files.read("format", 100)
    assert getattr(told.value, "code", None) == 10


def test_many_at_once_over_one_connection(ssh_server: Ssh, tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    files = SshFiles(ssh_server.url(tmp_path / "remote"), ssh_server.access)
    objects = {sha256(data): data for n in range(24) if (data := shake256(b"%d" % n, 700_000))}

    def round_trip(data: bytes) -> bytes:
        name = object_name(sha256(data))
        files.write(name, [data])
        return b"".join(files.stream(name, start=3, limit=len(data)))

    with ThreadPoolExecutor(8) as pool:
        back = list(pool.map(round_trip, objects.values()))
    assert back == [data[3:] for data in objects.values()]
    abandoned = files.stream(object_name(next(iter(objects))), start=0, limit=700_000)
    next(abandoned)
    abandoned.close()
    assert files.read("format", 10) is None
    files.close()


def served(folder: Path, *requests: dict[str, object], read_only: bool = False) -> list[object]:
    source, sink = io.BytesIO(), io.BytesIO()
    for fields in requests:
        wire.write_message(source, fields)
        if fields.get("body"):
            wire.write_chunk(source, b"data")
            wire.end_body(source)
    source.seek(0)
    Server(DirectoryFiles(folder), source, sink, is_read_only=read_only).run()
    sink.seek(len(wire.GREETING))
    answers: list[object] = []
    while (message := wire.read_message(sink, what="answer")) is not None:
        answers.append(message.fields)
    return answers


@pytest.mark.parametrize(
    "name", ["config.toml", "trust.json", "../x", "/etc/passwd", "index.lmdb/data.mdb", "refs/../x"]
)
def test_what_is_no_part_of_a_remote_is_not_served(tmp_path: Path, name: str) -> None:
    (tmp_path / "config.toml").write_text("secret")
    asked = [
        {"op": "read", "name": name, "limit": 10},
        {"op": "write", "name": name, "body": True},
        {"op": "swap", "name": name, "data": "AAAA", "expect": None},
        {"op": "remove", "name": name},
        {"op": "head", "name": name, "limit": 10},
    ]
    answers = served(tmp_path, *asked)
    assert len(answers) == len(asked)
    assert all(answer["error"]["code"] == 5 for answer in answers)
    assert (tmp_path / "config.toml").read_text() == "secret"


def test_a_place_served_to_be_read_only(tmp_path: Path) -> None:
    written = {"op": "write", "name": "keys/a.pub", "body": True}
    read = {"op": "read", "name": "keys/a.pub", "limit": 10}
    first, second = served(tmp_path, written, read, read_only=True)
    assert first["error"]["code"] == 9 and second == {"data": None}
    first, second = served(tmp_path, written, read)
    assert (first, second) == ({}, {"data": "ZGF0YQ=="})


@pytest.mark.parametrize("fields", [{}, {"op": "none"}, {"op": "read", "name": "format"}])
def test_requests_that_are_none(tmp_path: Path, fields: dict[str, object]) -> None:
    if fields.get("op") == "read":
        (answer,) = served(tmp_path, fields)
        assert answer["error"]["code"] == 5
    else:
        with pytest.raises(Corrupt):
            served(tmp_path, fields)


def test_an_object_waits_for_the_disk_while_the_next_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers keep their order, and what is no object waits for all objects before it."""
    real = DirectoryFiles.begin
    begun = {name: threading.Event() for name in "ab"}
    ended: list[str] = []

    def begin(files: DirectoryFiles, name: str, parts: Iterable[Buffer]) -> Callable[[], None]:
        end = real(files, name, parts)
        last = name[-1]

        def late() -> None:
            if last == "a":
                assert begun["b"].wait(20)
            if last == "b":
                raise NoSpace("b: no space left", hint="free some")
            end()
            ended.append(last)

        if last in begun:
            begun[last].set()
        else:
            assert last != "c" or ended == ["a"]
        return late

    monkeypatch.setattr(DirectoryFiles, "begin", begin)
    names = [f"objects/00/{'0' * 61}{last}" for last in "ab"]
    asked = [{"op": "write", "name": name, "body": True} for name in (*names, "keys/c")]
    first, second, third = served(tmp_path, *asked)
    assert (first, third) == ({}, {}) and second["error"]["code"] == NoSpace.code
    assert ended == ["a", "c"]


def test_who_hangs_up_meanwhile_ends_the_far_side(tmp_path: Path) -> None:
    class Gone(io.BytesIO):
        def flush(self) -> None:
            if len(self.getvalue()) > len(wire.GREETING):
                raise BrokenPipeError

    source = io.BytesIO()
    for last in "abcdefghij":
        name = f"objects/00/{'0' * 61}{last}"
        wire.write_message(source, {"op": "write", "name": name, "body": True})
        wire.write_chunk(source, b"data")
        wire.end_body(source)
    wire.write_message(source, {"op": "names", "folder": "refs"})
    source.seek(0)
    server = Server(DirectoryFiles(tmp_path), source, Gone(), is_read_only=False)
    with pytest.raises(BrokenPipeError):
        server.run()


def test_a_far_side_that_says_more_than_kvg(tmp_path: Path) -> None:
    with pytest.raises(RemoteFailed, match='says "Welcome to Ubuntu 24') as told:
        fake(tmp_path, "print('Welcome to Ubuntu 24.04 LTS')").read("format", 100)
    assert told.value.hint and "run it again" not in told.value.hint


@pytest.mark.parametrize("number", ["2", "10"])
def test_a_far_side_of_another_version(tmp_path: Path, number: str) -> None:
    with pytest.raises(Incompatible, match=f"kvg-exchange {number}, this kvg") as told:
        fake(tmp_path, f"print('kvg-exchange {number}')").read("format", 100)
    assert told.value.hint and "update kvg" in told.value.hint


def test_what_the_far_side_says_keeps_its_letters(tmp_path: Path) -> None:
    program = "import sys; sys.exit('Denied: /Srv/KV\\x1b[2J')"
    with pytest.raises(RemoteFailed, match=r"denied: /Srv/KV") as told:
        fake(tmp_path, program).read("format", 100)
    assert told.value.message.isprintable()


def test_an_answer_of_more_values_than_can_be_is_not_taken_apart(tmp_path: Path) -> None:
    program = GREETED + SAY + "say(b'{\"names\":[' + b'{},' * (6 << 20) + b'{}]}')"
    with pytest.raises(Corrupt, match="values") as told:
        fake(tmp_path, program).names("refs")
    assert told.value.hint is not None and "far side" in told.value.hint
