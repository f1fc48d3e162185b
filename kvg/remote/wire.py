"""Messages between ``kvg`` and the ``kvg`` on the far side of an ssh connection.

    greeting   the line ``kvg-exchange 1``, from the far side, before anything else
    message    u32 size | that many bytes of canonical JSON | where it says ``body``: chunks
    chunk      u32 size | that many bytes; size 0 ends the body, 2^32 - 1 breaks it off

All integers are little-endian. Requests are answered in their order; several may be under way.
Whatever comes in is bounded before it is read, and is as untrusted as any other remote's word.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import BinaryIO, Final

from kvg import canon
from kvg.canon import Json
from kvg.digest import Buffer
from kvg.errors import AGAIN, Corrupt, RemoteFailed
from kvg.frozen import frozen

GREETING_WORD: Final = b"kvg-exchange "
GREETING: Final = GREETING_WORD + b"1\n"
MAX_HEADER_BYTES: Final = 256 << 20
MAX_CHUNK_BYTES: Final = 1 << 20
BROKEN_OFF: Final = 0xFFFF_FFFF
_U32: Final = struct.Struct("<I")


@frozen
class Message:
    """One request or answer, without its body."""

    fields: Mapping[str, Json]

    @property
    def has_body(self) -> bool:
        """Whether chunks follow."""
        return self.fields.get("body") is True


def write_message(stream: BinaryIO, fields: Mapping[str, Json]) -> None:
    """Write one message; not flushed."""
    data = canon.encode(dict(fields))
    stream.write(_U32.pack(len(data)) + data)


def write_chunk(stream: BinaryIO, part: Buffer) -> None:
    """Write bytes of a body, cut as chunks have to be."""
    view = memoryview(part).cast("B")
    for at in range(0, len(view), MAX_CHUNK_BYTES):
        piece = view[at : at + MAX_CHUNK_BYTES]
        stream.write(_U32.pack(len(piece)))
        stream.write(piece)


def end_body(stream: BinaryIO, *, is_whole: bool = True) -> None:
    """Write the end of a body."""
    stream.write(_U32.pack(0 if is_whole else BROKEN_OFF))


def read_message(stream: BinaryIO, *, what: str) -> Message | None:
    """The next message; None where the stream ends between two. Raises ``Corrupt``."""
    first = stream.read(_U32.size)
    if not first:
        return None
    size = _U32.unpack(first)[0] if len(first) == _U32.size else MAX_HEADER_BYTES + 1
    if size > MAX_HEADER_BYTES:
        raise Corrupt(f"{what}: no message of kvg")
    data = stream.read(size)
    if len(data) != size:
        raise RemoteFailed(f"{what}: connection lost", hint=AGAIN)
    try:
        value = canon.decode(data, what=what)
    except Corrupt as error:
        raise Corrupt(error.message, hint="see to the kvg on the far side") from None
    if not isinstance(value, Mapping):
        raise Corrupt(f"{what}: no message of kvg")
    return Message(value)


def read_body(stream: BinaryIO, *, what: str) -> Iterator[bytes]:
    """The chunks of a body. Raises ``RemoteFailed`` where it is broken off."""
    while True:
        first = stream.read(_U32.size)
        size = _U32.unpack(first)[0] if len(first) == _U32.size else BROKEN_OFF
        if size == 0:
            return
        if BROKEN_OFF > size > MAX_CHUNK_BYTES:
            raise Corrupt(f"{what}: no message of kvg")
        data = b"" if size == BROKEN_OFF else stream.read(size)
        if size == BROKEN_OFF or len(data) != size:
            raise RemoteFailed(f"{what}: connection lost", hint=AGAIN)
        yield data
