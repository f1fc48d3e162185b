"""What a client makes of a session that answers well, badly, half, or not at all."""

from __future__ import annotations

import json
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kvg.client.channel import call, error_line, parse_error
from kvg.client.place import Place
from kvg.errors import KINDS, Bug, KvgError, NotFound, RemoteFailed

OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/jsonl\r\n\r\n"
END = b'{"type": "end"}\n'
Serve = Callable[[bytes], Place]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """A session that gives one answer, whatever it is asked, and goes away."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        place = Place("s", Path(folder))

        def start(answer: bytes) -> Place:
            link = socket.socket(socket.AF_UNIX)
            link.bind(str(place.socket))
            link.listen()

            def run() -> None:
                peer, _ = link.accept()
                with peer, link:
                    peer.recv(1 << 16)
                    peer.sendall(answer)

            threading.Thread(target=run, daemon=True).start()
            return place

        yield start


def test_lines_come_back(serve: Serve) -> None:
    place = serve(OK + b'{"type": "a", "x": 1}\n{"type": "b"}\n' + END)
    assert list(call(place, "GET", "/")) == [{"type": "a", "x": 1}, {"type": "b"}]


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n",
        OK,
        OK + b'{"type": "a"}\n',
        OK + b'{"type": "a"}\n{"type": "en',
        OK + b"<html>\n" + END,
        OK + b"[]\n" + END,
        OK + b"[" * 9999 + b"\n" + END,
        b"HTTP/1.1 400 Bad Request\r\n\r\nInvalid HTTP request received.",
        b"\0" * 5000,
    ],
    ids=lambda value: repr(value[-30:]),
)
def test_an_answer_that_is_not_whole_is_a_failure(serve: Serve, answer: bytes) -> None:
    with pytest.raises(RemoteFailed):
        list(call(serve(answer), "GET", "/"))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_an_error_crosses_as_what_it_was(serve: Serve, kind: type[KvgError]) -> None:
    for hint in (None, "do this"):
        error = kind("ref: it went wrong", hint=hint)
        told = json.loads(json.dumps(error_line(error)))
        found = parse_error(told)
        assert (type(found), found.message, found.hint) == (kind, error.message, hint)
    place = serve(OK + b'{"type": "a"}\n' + json.dumps(error_line(error)).encode() + b"\n")
    lines = call(place, "GET", "/")
    assert next(lines) == {"type": "a"}
    with pytest.raises(kind, match="it went wrong"):
        next(lines)


def test_an_error_of_no_known_kind() -> None:
    assert isinstance(parse_error({"kind": "new", "message": "x"}), Bug)


def test_a_socket_that_nobody_listens_on() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        place = Place("s", Path(folder))
        link = socket.socket(socket.AF_UNIX)
        link.bind(str(place.socket))
        with pytest.raises(NotFound, match="not running"):
            list(call(place, "GET", "/"))
