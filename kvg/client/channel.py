"""One request to a session: HTTP over its private socket, the answer a stream of JSON lines.

HTTP/1.0, so that the answer ends where the stream does: ``http.client`` would add a third to the
time that a command takes to start. What ends without its last line was cut off.
"""

from __future__ import annotations

import _socket  # what ``socket`` is made of; that one names each of its constants at every start
import json
import os
import struct
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, BinaryIO

from kvg.errors import KINDS, Bug, KvgError, RemoteFailed, Untrusted, UsageError

if TYPE_CHECKING:
    from kvg.client.place import Place

MAX_BODY_BYTES = 8 << 20
"""The largest request that a session reads."""
MAX_LINE_BYTES = 64 << 20
END = "end"
ERROR = "error"
_CREDENTIALS = struct.Struct("3i")


def call(
    place: Place, method: str, path: str, body: Mapping[str, object] | None = None
) -> Iterator[dict[str, object]]:
    """Ask now; what the session answers, one object for each line, comes as it is read.

    Raises the error that the session answers with, as the class that it was; ``NotFound`` when it
    is not running, ``RemoteFailed`` when it goes away before it is done, ``Untrusted`` when another
    user is listening.
    """
    data = b"" if body is None else json.dumps(body).encode()
    if len(data) > MAX_BODY_BYTES:
        raise UsageError(
            f"session {place.name}: a request of {len(data):,} bytes, it reads {MAX_BODY_BYTES:,}",
            hint="a prompt must fit the model's window",
        )
    head = (
        f"{method} {path} HTTP/1.0\r\nHost: kvg\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\n\r\n"
    )
    link = connect(place)
    try:
        link.sendall(head.encode("ascii") + data)
    except OSError:  # it may have answered before it read everything
        pass
    except BaseException:
        link.close()
        raise
    return _answer(link, place)


def _answer(link: _socket.socket, place: Place) -> Iterator[dict[str, object]]:
    with open(link.detach(), "rb") as answer:
        yield from _lines(answer, place)


def connect(place: Place) -> _socket.socket:
    """A connection to the session of this very user. Raises ``NotFound``, ``Untrusted``."""
    link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        link.connect(os.fspath(place.socket))
    except OSError:
        link.close()
        from kvg.client.place import not_running

        raise not_running(place.name) from None
    owner = peer_uid(link)
    if owner != os.geteuid():
        link.close()
        raise Untrusted(
            f"session {place.name}: user {owner} is listening on {place.socket}, not you",
            hint="set XDG_RUNTIME_DIR to a folder of yours",
        )
    return link


def peer_uid(link: _socket.socket) -> int:
    """The user at the other end, as the kernel knows it."""
    raw = link.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(raw)[1])


def error_line(error: KvgError) -> dict[str, object]:
    """``error`` as a line of an answer."""
    return {
        "type": ERROR,
        "code": error.code,
        "kind": error.kind,
        "message": error.message,
        "hint": error.hint,
    }


def parse_error(line: Mapping[str, object]) -> KvgError:
    """The error that ``error_line`` wrote."""
    hint = line.get("hint")
    for kind in KINDS:
        if kind.kind == line.get("kind"):
            return kind(str(line.get("message")), hint=None if hint is None else str(hint))
    return Bug(f"session: an error of unknown kind: {str(line)[:200]}")


def _lines(answer: BinaryIO, place: Place) -> Iterator[dict[str, object]]:
    gone = RemoteFailed(
        f"session {place.name}: went away before it was done",
        hint=f"kvg session list, or start it again: kvg session start {place.name}",
    )
    try:
        while answer.readline(MAX_LINE_BYTES).strip():
            pass
        for raw in iter(lambda: answer.readline(MAX_LINE_BYTES), b""):
            line = _parse(raw, place)
            if line.get("type") == END:
                return
            if line.get("type") == ERROR:
                raise parse_error(line)
            yield line
    except OSError:
        raise gone from None
    raise gone


def _parse(raw: bytes, place: Place) -> dict[str, object]:
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise RemoteFailed(
            f"session {place.name}: answered something else than JSON: {raw[:80]!r}",
            hint="is it another version of kvg? kvg session stop, then start",
        )
    return value
