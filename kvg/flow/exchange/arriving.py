"""One object on its way into quarantine: bounded by what is signed, checked, written once.

A body's own header tells its length and its form. A page in the very form that the quarantine keeps
is hashed and written as it comes, and never held whole. Anything else is held, decoded at its end
and written in the form that is kept; of what is long the stored form is written meanwhile too. So
a kill costs no more than a frame of what is long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvg import codec as kvz
from kvg import durable
from kvg.digest import Digest, blake3_bytes, blake3_hex, short
from kvg.errors import AGAIN, Corrupt, KvgError
from kvg.frozen import frozen
from kvg.store.object_files import HEADER_SLACK_BYTES, LIMIT_BYTES
from kvg.store.part import Part

if TYPE_CHECKING:
    from pathlib import Path

    from kvg.store.objects import ObjectFolder

SAVED_FROM_BYTES = kvz.FRAME_SIZE
"""Of what is held at least so much is written at once: what is shorter is not written as it comes.
"""


@frozen
class Wanted:
    """One object: what to call it, its raw size where something signed states it, its form."""

    digest: Digest
    what: str
    size: int | None = None
    limit: int = LIMIT_BYTES
    data_start: int = 0
    element: int = 1
    is_page: bool = False

    @property
    def name(self) -> str:
        """What a failure calls it."""
        return f"{self.what}: object {short(self.digest)}"

    @property
    def stored_limit(self) -> int:
        """The most bytes that its stored form may have."""
        size = self.limit if self.size is None else self.size
        return size + size // 32 + HEADER_SLACK_BYTES


@frozen
class Had:
    """What is looked at of an object whose every byte was checked.

    ``raw`` is all of it; of a page what comes before its data, with the BLAKE3 of all.
    """

    raw: memoryview
    blake3: str | None = None


class Arrival:
    """The stored form of one object as it comes; what came is kept where the block fails.

    Nothing past the length that its header gives is taken: a body without an end is refused.
    """

    def __init__(self, folder: ObjectFolder, wanted: Wanted, *, join: kvz.Join | None) -> None:
        """``join`` puts planes together."""
        self._folder = folder
        self._wanted = wanted
        self._join = join
        self._first = bytearray()
        self._keeping: _Held | _Streamed | None = None
        self._most = wanted.stored_limit
        self.size = 0
        """How many bytes are there."""
        path = folder.part_path(wanted.digest)
        begun = _good_prefix(path, wanted)
        self._part = Part(path, len(begun))
        self._take(begun, is_new=False)

    @property
    def most_left(self) -> int:
        """How many bytes to ask for: one more than may come."""
        return self._most - self.size + 1

    def add(self, piece: bytes) -> None:
        """Take in more. Raises ``Corrupt`` as soon as it can't be the object, ``NoSpace``."""
        self._take(piece, is_new=True)

    def end(self) -> Had:
        """The object, checked, and in quarantine once that is settled.

        Raises ``Corrupt`` unless it came whole.
        """
        if self._keeping is None or self.size != self._most:
            raise Corrupt(
                f"{self._wanted.name} cut short at {self.size} bytes",
                hint=AGAIN,
            )
        try:
            return self._keeping.end()
        except Corrupt:
            self._folder.remove_part(self._part)
            raise

    def __enter__(self) -> Arrival:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and self._keeping is not None:
            self._keeping.leave()
        self._part.close()

    def _take(self, piece: bytes, *, is_new: bool) -> None:
        self.size += len(piece)
        if self._keeping is None:
            self._first += piece
            header = self._header()
            if header is not None:
                self._most = header.stored_size
                piece = bytes(self._first)
        if self.size > self._most:
            raise Corrupt(f"{self._wanted.name}: longer than it can be")
        if self._keeping is None and header is not None:
            self._keeping = self._kept_as(header)
        if self._keeping is not None:
            self._keeping.add(piece, is_new=is_new)

    def _header(self) -> kvz.Header | None:
        """The header, once it is there with the padding after it; None before."""
        wanted, head = self._wanted, self._first
        if len(head) < kvz.PREFIX_SIZE:
            return None
        needed = kvz.parse_header_size(head, what=wanted.name)
        if needed > wanted.stored_limit:
            raise Corrupt(f"{wanted.name}: its header is larger than the object can be")
        if len(head) < needed:
            return None
        header = kvz.parse_header(head[:needed], what=wanted.name)
        is_right = header.raw_size <= (wanted.limit if wanted.size is None else wanted.size)
        if header.digest != wanted.digest or not is_right:
            raise Corrupt(f"{wanted.name}: another object lies under its name")
        return header if len(head) >= header.data_offset else None

    def _kept_as(self, header: kvz.Header) -> _Held | _Streamed:
        wanted = self._wanted
        is_kept = self._folder.keeps(header, data_start=wanted.data_start, element=wanted.element)
        if wanted.is_page and is_kept and header.codec == kvz.RAW:
            return _Streamed(self._folder, wanted, header, self._part)
        return _Held(self._folder, wanted, self._part, self._join)


class _Streamed:
    """A page whose stored form goes to its file as it comes, and is that of the object then."""

    def __init__(
        self, folder: ObjectFolder, wanted: Wanted, header: kvz.Header, part: Part
    ) -> None:
        self._folder = folder
        self._wanted = wanted
        self._header = header
        self._part = part
        self._n_before = header.data_offset
        self._check = kvz.RawCheck(header, what=wanted.name, head_bytes=wanted.data_start)
        if header.raw_size != wanted.size:
            raise Corrupt(f"{wanted.name}: {header.raw_size} bytes, not {wanted.size}")
        try:
            folder.reserve_part(part, header.stored_size)
        except BaseException:
            self.leave()
            raise

    def add(self, piece: bytes, *, is_new: bool) -> None:
        view = memoryview(piece)
        if self._n_before:
            padding = view[self._header.size : self._n_before]
            kvz.check_padding(padding, what=self._wanted.name)
        if is_new:
            self._part.add([view])
        self._check.add(view[self._n_before :])
        self._n_before = 0

    def end(self) -> Had:
        found = self._check.end()
        self._folder.put_part(self._part, self._wanted.digest)
        return Had(memoryview(found.head), found.blake3)

    def leave(self) -> None:
        """Keep what came where that is a frame at least."""
        least = self._header.data_offset + self._header.frame_raw_size
        if self._part.size < least:
            self._folder.remove_part(self._part)
        else:
            self._folder.keep_part(self._part)


class _Held:
    """An object that is held until it is whole; what is long is written meanwhile, too."""

    def __init__(
        self, folder: ObjectFolder, wanted: Wanted, part: Part, join: kvz.Join | None
    ) -> None:
        self._folder = folder
        self._wanted = wanted
        self._part = part
        self._join = join
        self._pieces: list[bytes] = []
        self._n_written = 0
        self._n_waiting = 0

    def add(self, piece: bytes, *, is_new: bool) -> None:
        self._pieces.append(piece)
        if not is_new:
            self._n_written += 1
            return
        self._n_waiting += len(piece)
        if self._n_waiting >= SAVED_FROM_BYTES:
            self._save()

    def end(self) -> Had:
        wanted, stored = self._wanted, self._joined()
        raw = kvz.decode(
            stored,
            digest=wanted.digest,
            size=wanted.size,
            what=wanted.name,
            limit=wanted.limit if wanted.size is None else max(wanted.size, 1),
            join=self._join,
        )
        blake3 = _whole_blake3(stored) or (blake3_hex(raw) if wanted.is_page else None)
        self._folder.put_received(
            raw,
            stored,
            digest=wanted.digest,
            data_start=wanted.data_start,
            element=wanted.element,
            blake3=None if blake3 is None else bytes.fromhex(blake3),
        )
        if self._n_written:
            self._folder.settle(wanted.digest)  # a kill until then finds the part
        self._folder.remove_part(self._part)
        return Had(raw, blake3)

    def leave(self) -> None:
        """Keep what came where some of it was written before."""
        if self._n_written:
            self._save()
            self._folder.keep_part(self._part)

    def _joined(self) -> bytes:
        pieces, self._pieces = self._pieces, []
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _save(self) -> None:
        self._part.add(self._pieces[self._n_written :])
        self._n_written, self._n_waiting = len(self._pieces), 0


def _whole_blake3(stored: bytes) -> str | None:
    """The BLAKE3 of all raw bytes of what was decoded, where its header has that: one raw frame."""
    header = kvz.parse_header(stored, what="object")
    if header.codec != kvz.RAW or len(header.frames) != 1:
        return None
    return header.frames[0].blake3.hex()


def _good_prefix(part: Path, wanted: Wanted) -> bytes:
    """What is kept of a body that was cut: up to the last frame that is whole and checks out."""
    try:
        with open(part, "rb", opener=durable.plain) as file:
            data = file.read(wanted.stored_limit)
    except (OSError, Corrupt):
        return b""
    try:
        header = kvz.parse_header(data, what=wanted.what)
    except KvgError:
        return b""
    if header.digest != wanted.digest or header.data_offset > len(data):
        return b""
    end = header.data_offset
    for frame in header.frames:
        stop = end + frame.stored_size
        if stop > len(data) or blake3_bytes(data[end:stop]) != frame.blake3:
            break
        end = stop
    return data[:end]
