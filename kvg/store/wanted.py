"""What ``forget`` still has to look for, kept without the content itself.

The stretches by which content is known again go with it; a later run knows them by these marks: the
SHA-256 of each, and two bytes of it where a search finds them quickly. A file beside the note of
the removal holds them from before the removal until a search finds nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from kvg import canon, durable
from kvg.digest import hex_of, sha256_bytes
from kvg.errors import Corrupt, Incompatible, NoSpace
from kvg.frozen import frozen
from kvg.store.layout import FORGOTTEN

if TYPE_CHECKING:
    from pathlib import Path

    from kvg.digest import Digest
    from kvg.store.store import Store

SCHEMA = "kvg.wanted/1"
ANCHOR_BYTES = 2
_SUFFIX = ".wanted"
_LIMIT_BYTES = 1 << 20


@frozen
class Mark:
    """A stretch of ``size`` bytes by its ``sha256`` and those ``ANCHOR_BYTES`` at ``place``."""

    size: int
    sha256: bytes
    place: int
    anchor: bytes

    def is_in(self, data: bytes) -> bool:
        """Whether ``data`` holds the stretch."""
        found = data.find(self.anchor, self.place)
        while found >= 0:
            start = found - self.place
            if sha256_bytes(data[start : start + self.size]) == self.sha256:
                return True
            found = data.find(self.anchor, found + 1)
        return False


def mark_of(stretch: bytes) -> Mark:
    """The mark of ``stretch``; its anchor is where its bytes are the least frequent in it."""
    places = range(len(stretch) - ANCHOR_BYTES + 1)
    place = min(places, key=lambda i: stretch.count(stretch[i]) + stretch.count(stretch[i + 1]))
    anchor = stretch[place : place + ANCHOR_BYTES]
    return Mark(len(stretch), sha256_bytes(stretch), place, anchor)


def read_wanted(store: Store, digest: Digest) -> tuple[Mark, ...]:
    """What is still to be looked for of a forgotten artifact. Raises ``Corrupt``."""
    return _read(_path(store, digest))


def wanted_faults(store: Store) -> Iterator[Corrupt]:
    """Why what is to be looked for can't be read, of each artifact of which it can't."""
    for path in sorted((store.root / FORGOTTEN).glob(f"*{_SUFFIX}")):
        try:
            _read(path)
        except Corrupt as error:
            yield error


def _read(path: Path) -> tuple[Mark, ...]:
    with durable.translated(path):
        try:
            with open(path, "rb", opener=durable.plain) as file:
                data = file.read(_LIMIT_BYTES)
        except FileNotFoundError:
            return ()
    try:
        return tuple(_decoded(data, str(path)))
    except (Corrupt, Incompatible, ValueError) as error:
        raise Corrupt(
            f"what is to be looked for can't be read: {error}",
            hint="once no file here holds what was forgotten, remove this one, and forget again",
        ) from None


def keep_wanted(store: Store, digest: Digest, marks: Iterable[Mark]) -> None:
    """Keep that ``marks`` are to be looked for, or with none that nothing is any more.

    On a full disk nothing is kept: room is what a removal makes. Raises ``KvgError`` otherwise.
    """
    path, data = _path(store, digest), _encoded(marks)
    if data is None:
        durable.remove(path)
        return
    try:
        durable.replace(path, [data], staging=store.staging)
    except NoSpace:
        return


def _path(store: Store, digest: Digest) -> Path:
    return store.root / FORGOTTEN / f"{hex_of(digest)}{_SUFFIX}"


def _encoded(marks: Iterable[Mark]) -> bytes | None:
    rows = tuple(
        (mark.size, mark.sha256.hex(), mark.place, mark.anchor.hex())
        for mark in dict.fromkeys(marks)
    )
    return canon.encode({"schema": SCHEMA, "marks": rows, "sha256": _sum(rows)}) if rows else None


def _sum(rows: canon.Json) -> str:
    return sha256_bytes(canon.encode(rows)).hex()


def _decoded(data: bytes, what: str) -> Iterator[Mark]:
    value = canon.decode(data, what=what)
    canon.check_schema(value, SCHEMA, what=what)
    value = canon.take(value, ("schema", "marks", "sha256"), what=what)
    rows = canon.as_list(value["marks"], what=what)
    if value["sha256"] != _sum(rows):
        raise Corrupt(f"{what}: does not match its checksum")
    for row in rows:
        size, sha256, place, anchor = canon.as_list(row, what=what)
        yield Mark(
            canon.as_int(size, what=what, least=ANCHOR_BYTES),
            bytes.fromhex(canon.as_str(sha256, what=what)),
            canon.as_int(place, what=what),
            bytes.fromhex(canon.as_str(anchor, what=what)),
        )
