"""The far side of an ssh remote: one place with files, served over two streams.

It gives and takes what ``Files`` promises and nothing else: every name is checked to be a file of a
remote, so that a key which may run this command, and no other, reaches nothing beside it.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO, Final

from kvg import canon
from kvg.digest import is_digest
from kvg.errors import Corrupt, KvgError, RemoteFailed
from kvg.remote import layout, wire
from kvg.signing import base64

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

    from kvg.canon import Json
    from kvg.digest import Digest
    from kvg.remote.directory import DirectoryFiles

Answer = dict[str, "Json"]
MAX_NAMES: Final = 1_000_000
MOST_LATE: Final = 4
"""How many files may wait for the disk; each holds nothing in memory."""


class Server:
    """Serves ``files`` from ``source`` to ``sink`` until ``source`` ends."""

    def __init__(
        self, files: DirectoryFiles, source: BinaryIO, sink: BinaryIO, *, is_read_only: bool
    ) -> None:
        self._files = files
        self._source = source
        self._sink = sink
        self._is_read_only = is_read_only
        self._late = Late(sink)
        self._quick: dict[str, Callable[[wire.Message], Answer]] = {
            "read": self._read,
            "read_all": self._read_all,
            "head": self._head,
            "missing": self._missing,
            "names": self._names,
            "swap": self._swap,
            "remove": self._remove,
            "remove_abandoned": self._remove_abandoned,
        }

    def run(self) -> None:
        """Answer every request, in order. Raises ``Corrupt`` on what is none."""
        self._sink.write(wire.GREETING)
        self._sink.flush()
        with self._late:
            self._serve()

    def _serve(self) -> None:
        while (message := wire.read_message(self._source, what="request")) is not None:
            operation = _text(message, "op")
            if operation == "write":
                self._write(message)
                continue
            self._late.settle()
            if operation == "stream":
                self._stream(message)
            elif operation in self._quick:
                self._answer(self._quick[operation], message)
            else:
                raise Corrupt(f"request: {operation[:40]!r} is none")
            self._sink.flush()

    def _answer(self, work: Callable[[wire.Message], Answer], message: wire.Message) -> None:
        try:
            answer = work(message)
        except KvgError as error:
            answer = failure(error)
        wire.write_message(self._sink, answer)

    def _stream(self, message: wire.Message) -> None:
        start, limit = _number(message, "start"), _number(message, "limit")
        try:
            pieces = self._files.stream(_name(message), start=start, limit=limit)
            first = next(iter(pieces), b"")
        except KvgError as error:
            wire.write_message(self._sink, failure(error))
            return
        wire.write_message(self._sink, {"body": True})
        try:
            wire.write_chunk(self._sink, first)
            for piece in pieces:
                wire.write_chunk(self._sink, piece)
        except KvgError:
            wire.end_body(self._sink, is_whole=False)
        else:
            wire.end_body(self._sink)

    def _write(self, message: wire.Message) -> None:
        """Take a file in; an object waits for the disk while the next request is read."""
        body = wire.read_body(self._source, what="request")
        try:
            name = self._to_write(message)
            if not name.startswith(f"{layout.OBJECTS}/"):
                self._late.settle()
            end = self._files.begin(name, body)
        except KvgError as error:
            for _ in body:  # what is not taken is read over, so that the next request is found
                pass
            self._late.settle()
            wire.write_message(self._sink, failure(error))
            self._sink.flush()
            return
        self._late.add(end)

    def _read(self, message: wire.Message) -> Answer:
        name = _text(message, "name")
        if name != layout.STORE_CHECKPOINT:
            layout.check_served(name, what="request")
        data = self._files.read(name, _number(message, "limit"))
        return {"data": _encoded(data)}

    def _read_all(self, message: wire.Message) -> Answer:
        names = [_checked(name) for name in _list(message, "names")]
        found = self._files.read_all(names, _number(message, "limit"))
        return {"data": [_encoded(found.get(name)) for name in names]}

    def _head(self, message: wire.Message) -> Answer:
        head = self._files.head(_name(message), _number(message, "limit"))
        if head is None:
            return {"data": None, "size": None}
        return {"data": _encoded(head.data), "size": head.size}

    def _missing(self, message: wire.Message) -> Answer:
        digests: list[Digest] = []
        for text in _list(message, "digests"):
            if not is_digest(text):
                raise Corrupt("request: no digest")
            digests.append(text)
        return {"digests": sorted(self._files.missing(digests))}

    def _names(self, message: wire.Message) -> Answer:
        folder = _text(message, "folder")
        layout.check_served(f"{folder}/x", what="request")
        found = self._files.names(folder)
        return {"names": None if found is None else list(found)}

    def _swap(self, message: wire.Message) -> Answer:
        data, expect = (_decoded(message, key) for key in ("data", "expect"))
        self._files.swap(self._to_write(message), data, expect=expect)
        return {}

    def _remove(self, message: wire.Message) -> Answer:
        return {"size": self._files.remove(self._to_write(message))}

    def _remove_abandoned(self, message: wire.Message) -> Answer:
        is_dry = message.fields.get("dry_run") is True
        if self._is_read_only and not is_dry:
            raise _read_only()
        count, size = self._files.remove_abandoned(dry_run=is_dry)
        return {"count": count, "size": size}

    def _to_write(self, message: wire.Message) -> str:
        if self._is_read_only:
            raise _read_only()
        return _name(message)


def _read_only() -> RemoteFailed:
    return RemoteFailed(
        "served to be read only", hint="who runs that host says who may write; fetch and pull work"
    )


class Late:
    """Ends of writes: several wait for the disk at once, and each is answered in its order.

    Nobody else writes to ``sink`` between ``add`` and ``settle``.
    """

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink
        self._pool: Executor | None = None
        self._ends: queue.Queue[Future[None] | None] = queue.Queue(MOST_LATE)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._failure: OSError | ValueError | None = None

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ends.put(None)
        self._thread.join()
        if self._pool is not None:
            self._pool.shutdown()

    def add(self, end: Callable[[], None]) -> None:
        """Call ``end`` after those before it, and answer with what becomes of it."""
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor

            self._pool = ThreadPoolExecutor(MOST_LATE)
        self._ends.put(self._pool.submit(end))

    def settle(self) -> None:
        """Wait until everything is answered. Raises what kept an answer from being written."""
        self._ends.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        while (end := self._ends.get()) is not None:
            answer: Answer = {}
            try:
                end.result()
            except KvgError as error:
                answer = failure(error)
            try:
                wire.write_message(self._sink, answer)
                self._sink.flush()
            except (OSError, ValueError) as error:
                self._failure = error
            self._ends.task_done()


def failure(error: KvgError) -> Answer:
    """``error`` as an answer. A lock that was not had there is no word of what lies there."""
    code = RemoteFailed.code if isinstance(error, layout.HeldUp) else error.code
    return {"error": {"code": code, "message": error.message, "hint": error.hint}}


def _name(message: wire.Message) -> str:
    return _checked(_text(message, "name"))


def _checked(name: Json) -> str:
    text = canon.as_str(name, what="request: name")
    layout.check_served(text, what="request")
    return text


def _text(message: wire.Message, key: str) -> str:
    return canon.as_str(message.fields.get(key), what=f"request: {key}")


def _number(message: wire.Message, key: str) -> int:
    return canon.as_int(message.fields.get(key), what=f"request: {key}")


def _list(message: wire.Message, key: str) -> list[Json]:
    found = canon.as_list(message.fields.get(key), what=f"request: {key}")
    if len(found) > MAX_NAMES:
        raise Corrupt(f"request: too many {key}")
    return list(found)


def _encoded(data: bytes | None) -> str | None:
    return None if data is None else base64.encode(data)


def _decoded(message: wire.Message, key: str) -> bytes | None:
    if message.fields.get(key) is None:
        return None
    return base64.decode(_text(message, key), what=f"request: {key}")
