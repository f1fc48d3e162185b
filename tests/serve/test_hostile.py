"""What comes over the socket and the port is not believed: it is refused, the session goes on."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kvg.client.channel import MAX_BODY_BYTES, call
from kvg.client.place import Place
from kvg.errors import KvgError, Untrusted
from kvg.serve.http import MOST_OWN, MOST_STRANGERS
from tests.sessions import Home, opened

NOBODY = 65534
HOSTILE_NAMES = (
    "../../etc/passwd",
    "/etc/passwd",
    "a\0b",
    "one\n",
    "-rf",
    "..",
    ".",
    "%2e%2e",
    "one;rm -rf /",
    "x" * 100_000,
    "ONE",
    "one@{999999999999999999999999}",
    "one@{-1}",
    "sha256:" + "0" * 64,
    "sha256:../..",
    "\u202eeno",
    "\ud800",
    "",
)
MALFORMED = (
    b"",
    b"{",
    b"[]",
    b"null",
    b"[" * 100_000,
    b'{"request": ' * 50_000,
    b"\xff\xfe",
    b'{"request": {"ref": "one"}, "request": {"ref": "two"}}',
    b'{"request": {"ref": 3}}',
    b'{"request": {"ref": "one", "sampling": {"max_tokens": 1e999}}}',
    b'{"request": {"ref": "one", "sampling": {"max_tokens": -1}}}',
    b'{"request": {"ref": "one", "sampling": {"temperature": NaN}}}',
    b'{"request": {"ref": "one", "sampling": {"top_p": 7}}}',
    b'{"request": {"ref": "one", "__class__": "x"}}',
    b'{"request": {"ref": "one", "prompt_file": "/etc/passwd"}}',
    b'{"request": {"ref": "one", "texts": "abc"}}',
    b'{"request": {"ref": "one", "messages": [{"role": "user"}]}}',
    b'{"request": {"prompt": "x"}}',
    b'{"request": {"ref": "one"}, "slot": "0"}',
    b'{"request": {"ref": "one"}, "slot": true}',
)
RAW = (
    b"\0\0\0\0",
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"POST /kvg/graft HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
    b"POST /kvg/graft HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcde",
    b"POST /kvg/graft HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 50_000 + b"\r\n",
)


def answers(home: Home) -> bool:
    """Whether the session still grafts exactly."""
    (record,) = home.ask("desk", "graft", {"ref": "one", "sampling": {"max_tokens": 1}})
    return record["exact"] is True


def memory_bytes(home: Home) -> int:
    text = Path(f"/proc/{home.state('desk')['pid']}/statm").read_text()
    return int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE")


def post(home: Home, body: bytes, path: str = "/kvg/graft") -> tuple[int, bytes]:
    link = opened(home.place("desk"))
    with link:
        head = f"POST {path} HTTP/1.0\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        link.sendall(head.encode() + body)
        return parse(link)


def parse(link: socket.socket) -> tuple[int, bytes]:
    link.settimeout(30)
    with link.makefile("rb") as file:
        try:
            head, _, body = file.read().partition(b"\r\n\r\n")
        except ConnectionResetError:
            return 0, b""
    return (int(head.split()[1]) if head else 0), body


@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=lambda name: ascii(name)[:30])
@pytest.mark.parametrize(
    "verb", ["graft", "logits", "replay", "deposit", "context-at", "context-ask", "openai"]
)
def test_hostile_names(desk: Home, verb: str, name: str) -> None:
    if verb == "openai":
        body = {"model": "tiny", "prompt": "x", "kvg_ref": name, "max_tokens": 1}
        status, raw = post(desk, json.dumps(body).encode(), "/v1/completions")
        if name == "":
            assert status == 200  # no ref: computed fresh
            return
        assert status in (400, 404, 422), raw
        assert json.loads(raw)["error"]["type"] in ("usage", "not-found", "corrupt")
        return
    request = {"refs": [name]} if verb == "replay" else {"ref": name}
    if verb == "deposit":
        request["slot"] = True  # type: ignore[assignment]
    if verb.startswith("context"):
        request = {"name": name, "place": "0"} if verb == "context-at" else {"name": name}
        request |= {"question": "What?"} if verb == "context-ask" else {}
    with pytest.raises(KvgError) as caught:
        desk.ask("desk", verb, request, slot=7 if verb == "deposit" else None)
    assert caught.value.code in (2, 3, 5), caught.value
    assert caught.value.code != 70


@pytest.mark.parametrize("body", MALFORMED, ids=lambda body: repr(body[:40]))
def test_malformed_json(desk: Home, body: bytes) -> None:
    for path in ("/kvg/graft", "/v1/chat/completions", "/v1/completions"):
        status, raw = post(desk, body, path)
        assert status == 400, raw
        told = json.loads(raw)
        told = told.get("error", told)
        assert (told.get("kind") or told["type"]) == "usage"


@pytest.mark.parametrize("raw", RAW, ids=lambda raw: repr(raw[:40]))
def test_malformed_http(desk: Home, raw: bytes) -> None:
    for link in (opened(desk.place("desk")), tcp(desk)):
        with link:
            try:
                link.sendall(raw)
                link.shutdown(socket.SHUT_WR)
            except OSError:
                pass
            status, _ = parse(link)
            assert status in (0, 400, 401, 404, 405, 421, 431, 505)
    assert answers(desk)


@pytest.mark.parametrize("place", [*HOSTILE_NAMES, "9" * 400, "-1", "a:" + "9" * 400, "a:-1", "٣"])
def test_hostile_places(desk: Home, place: str) -> None:
    with pytest.raises(KvgError) as caught:
        desk.ask("desk", "context-at", {"name": "nosuch", "place": place})
    assert caught.value.code in (2, 3)
    assert answers(desk)


def test_what_is_not_there(desk: Home) -> None:
    for path in ("/", "/kvg/nosuch", "/kvg/../etc", "/v1/nosuch", "/kvg/slots/x/clear"):
        status, _ = post(desk, b"{}", path)
        assert status in (400, 404, 405), path
    assert answers(desk)


def test_a_prompt_of_a_gigabyte(desk: Home) -> None:
    """Said to be so large, or sent piece by piece: refused long before it is in memory."""
    before = memory_bytes(desk)
    with opened(desk.place("desk")) as link:
        link.sendall(b"POST /kvg/graft HTTP/1.1\r\nHost: x\r\nContent-Length: 1073741824\r\n\r\n")
        assert parse(link)[0] == 413
    piece = b"x" * (1 << 20)
    for path in (b"/kvg/graft", b"/v1/completions"):
        with opened(desk.place("desk")) as link:
            chunked = b"Transfer-Encoding: chunked"
            link.sendall(b"POST " + path + b" HTTP/1.1\r\nHost: x\r\n" + chunked + b"\r\n\r\n")
            sent = 0
            try:
                while sent < 1 << 30:
                    link.sendall(b"%x\r\n" % len(piece) + piece + b"\r\n")
                    sent += len(piece)
            except OSError:
                pass
            assert sent < 4 * MAX_BODY_BYTES
            assert parse(link)[0] in (0, 413)
    assert memory_bytes(desk) - before < 8 * MAX_BODY_BYTES
    with pytest.raises(KvgError, match="it reads"):
        list(call(desk.place("desk"), "POST", "/kvg/graft", {"x": "y" * (MAX_BODY_BYTES + 1)}))
    assert answers(desk)


def test_a_client_that_dies_in_the_middle_of_its_body_is_no_fault(desk: Home) -> None:
    for path in (b"/kvg/graft", b"/v1/completions"):
        with opened(desk.place("desk")) as link:
            link.sendall(b"POST " + path + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
        desk.wait("desk", f"{path.decode()}: the client left")
    assert answers(desk)
    assert "Traceback" not in desk.log("desk")


def test_the_largest_prompt_that_is_read_is_past_the_window(desk: Home) -> None:
    with pytest.raises(KvgError, match="window"):
        desk.ask("desk", "graft", {"ref": "one", "prompt": "so " * (MAX_BODY_BYTES // 8)})


# ------------------------------------------------------------------------------- another user

AS_NOBODY = """
import os, socket, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
link = socket.socket(socket.AF_UNIX)
try:
    link.connect(sys.argv[1])
    link.sendall(b"GET /kvg/state HTTP/1.0\\r\\n\\r\\n")
    print(repr(link.recv(1000)))
except OSError as error:
    print(type(error).__name__)
"""
LISTEN_AS_NOBODY = """
import os, socket, sys
link = socket.socket(socket.AF_UNIX)
os.setgroups([]); os.setgid(65534); os.setuid(65534)
link.bind(sys.argv[1])
link.listen()
print("ready", flush=True)
peer, _ = link.accept()
print(repr(peer.recv(1000)), flush=True)
"""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@needs_root
def test_another_user_is_not_heard(desk: Home, tmp_path: Path) -> None:
    """First the folder keeps it out; were the folder open, the kernel's word on who it is does."""
    place = desk.place("desk")
    ask = [sys.executable, "-c", AS_NOBODY, str(place.socket)]
    assert subprocess.run(ask, capture_output=True, text=True).stdout.strip() == "PermissionError"
    opened = [path for path in (place.socket, *place.socket.parents) if path.owner() == "root"]
    modes = [(path, path.stat().st_mode) for path in opened]
    try:
        for path in opened:
            path.chmod(0o777)
        told = subprocess.run(ask, capture_output=True, text=True).stdout.strip()
    finally:
        for path, mode in reversed(modes):
            path.chmod(mode & 0o7777)
    assert told in ("b''", "ConnectionResetError", "BrokenPipeError")
    assert f"user {NOBODY} was refused" in desk.log("desk")
    assert answers(desk)


@needs_root
def test_another_user_is_not_spoken_to(tmp_path: Path) -> None:
    """A socket that someone else listens on gets not one byte of a prompt."""
    folder = Path("/tmp") / f"kvg-test-{os.getpid()}"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    try:
        path = folder / "desk.sock"
        child = subprocess.Popen(
            [sys.executable, "-c", LISTEN_AS_NOBODY, str(path)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        with pytest.raises(Untrusted, match=f"user {NOBODY}"):
            list(call(Place("desk", folder), "GET", "/kvg/state"))
        assert child.stdout.readline() == "b''\n"
        child.wait(10)
    finally:
        for left in folder.iterdir():
            left.unlink()
        folder.rmdir()


# ------------------------------------------------------------------------------- the port


def address(home: Home) -> tuple[str, int, str]:
    state = home.state("desk")
    port = int(state["tcp"].rpartition(":")[2].removesuffix("/v1"))
    return "127.0.0.1", port, Path(state["token_file"]).read_text().strip()


def tcp(home: Home) -> socket.socket:
    return socket.create_connection(address(home)[:2], timeout=30)


def over_tcp(home: Home, headers: dict[str, str], path: str = "/v1/models") -> int:
    host, port, token = address(home)
    link = http.client.HTTPConnection(host, port, timeout=30)
    given = {"Authorization": f"Bearer {token}", **headers}
    link.request("GET", path, headers={key: value for key, value in given.items() if value})
    return link.getresponse().status


def test_the_port_takes_a_token_and_nothing_from_a_web_page(desk: Home) -> None:
    _, port, token = address(desk)
    assert over_tcp(desk, {}) == 200
    assert over_tcp(desk, {"Authorization": ""}) == 401
    assert over_tcp(desk, {"Authorization": "Bearer "}) == 401
    assert over_tcp(desk, {"Authorization": f"Bearer {token[:-1]}"}) == 401
    assert over_tcp(desk, {"Authorization": f"Bearer {token}x"}) == 401
    assert over_tcp(desk, {"Authorization": f"Bearer {token.swapcase()}"}) == 401
    assert over_tcp(desk, {"Authorization": f"Basic {token}"}) == 401
    assert over_tcp(desk, {"Host": f"evil.example:{port}"}) == 421
    assert over_tcp(desk, {"Host": "127.0.0.1"}) == 421
    assert over_tcp(desk, {"Host": f"localhost:{port}"}) == 200
    for origin in ("null", "http://evil.example", f"http://localhost:{port}"):
        assert over_tcp(desk, {"Origin": origin}) == 403


def open_sockets(pid: int) -> int:
    """The sockets that a process has open; what it closes while they are counted is not one."""
    n_open = 0
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            n_open += str(fd.readlink()).startswith("socket:")
        except FileNotFoundError:
            continue
    return n_open


def test_connections_that_say_nothing_keep_nobody_out(desk: Home) -> None:
    """Anyone on the machine can connect to the port: the longest silent ones make room."""
    first = tcp(desk)
    silent = [tcp(desk) for _ in range(MOST_STRANGERS + 20)]
    try:
        assert over_tcp(desk, {}) == 200
        assert first.recv(1) == b"" and silent[0].recv(1) == b""
        assert open_sockets(desk.state("desk")["pid"]) <= MOST_STRANGERS + 10
        assert answers(desk)
    finally:
        for link in (first, *silent):
            link.close()


def test_ones_own_connections_that_say_nothing_keep_nobody_out(desk: Home) -> None:
    """Past a number the server answered in words that no client of it understands."""
    silent = []
    try:
        for _ in range(MOST_OWN + 100):
            link = socket.socket(socket.AF_UNIX)
            link.connect(os.fspath(desk.place("desk").socket))
            silent.append(link)
        assert answers(desk)
        assert open_sockets(desk.state("desk")["pid"]) <= MOST_OWN + 20
    finally:
        for link in silent:
            link.close()


def test_the_port_has_the_api_and_nothing_else(desk: Home) -> None:
    for path in ("/kvg/state", "/kvg/slots", "/kvg/stop", "/kvg/graft"):
        assert over_tcp(desk, {}, path) == 404


def test_the_port_is_on_loopback_alone_and_the_token_is_private(desk: Home) -> None:
    state = desk.state("desk")
    token = Path(state["token_file"])
    assert token.stat().st_mode & 0o777 == 0o600
    assert len(token.read_text().strip()) >= 40
    port = address(desk)[1]
    rows = Path("/proc/net/tcp").read_text().splitlines()
    local = [row.split()[1] for row in rows if f":{port:04X} " in row and " 0A " in row]
    assert local == [f"0100007F:{port:04X}"]


def test_the_folder_and_the_socket_are_private(desk: Home) -> None:
    place = desk.place("desk")
    assert place.folder.stat().st_mode & 0o777 == 0o700
    assert place.socket.stat().st_mode & 0o777 == 0o600
    place.folder.chmod(0o755)
    try:
        ran = desk.kvg("graft", "one", "--session", "desk")
        assert ran.code == 6 and "chmod 700" in ran.err
    finally:
        place.folder.chmod(0o700)
