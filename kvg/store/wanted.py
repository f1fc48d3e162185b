"""What ``forget`` still has to look for, kept without the content itself.

The stretches by which content is known again go with it; a later run knows them by these marks: the
SHA-256 of each, and two bytes of it where a search finds them quickly. A file beside the note of
the removal holds them from before the removal until a search finds nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from kvg import canon, durable
from kvg.digest import PREFIX, hex_of, is_digest, sha256_bytes
from kvg.errors import Corrupt, Incompatible, NoSpace
from kvg.frozen import frozen
from kvg.store.layout import FORGOTTEN

if TYPE_CHECKING:
    from pathlib import Path

    from kvg.digest import Digest
    from kvg.store.store import Store

SCHEMA = "kvg.wanted/1"
DIGEST_BYTES = 32
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

    def __post_init__(self) -> None:
        is_whole = len(self.sha256) == DIGEST_BYTES and len(self.anchor) == ANCHOR_BYTES
        if not is_whole or not 0 <= self.place <= self.size - ANCHOR_BYTES:
            raise ValueError("a mark that is none")

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


def wanted_of(store: Store) -> Iterator[Digest]:
    """Each artifact of which something is to be looked for: forgetting it was begun, and has not
    come to its end."""
    for name in _names(store):
        digest = f"{PREFIX}{name.removesuffix(_SUFFIX)}"
        if is_digest(digest):
            yield digest


def wanted_faults(store: Store) -> Iterator[Corrupt]:
    """Why what is to be looked for can't be read, of each artifact of which it can't."""
    for name in _names(store):
        try:
            _read(store.root / FORGOTTEN / name)
        except Corrupt as error:
            yield error


def _names(store: Store) -> list[str]:
    return [name for name in durable.names_in(store.root / FORGOTTEN) if name.endswith(_SUFFIX)]


def _read(path: Path) -> tuple[Mark, ...]:
    with durable.translated(path):
        try:
            with open(path, "rb", opener=durable.plain) as file:
                data = file.read(_LIMIT_BYTES)
        except FileNotFoundError:
            return ()
    try:
        return decode_wanted(data, of=path.name.removesuffix(_SUFFIX), what=str(path))
    except (Corrupt, Incompatible) as error:
        raise Corrupt(
            f"what is to be looked for can't be read: {error}",
            hint="once no file here holds what was forgotten, remove this one, and forget again",
        ) from None


def keep_wanted(store: Store, digest: Digest, marks: Iterable[Mark]) -> None:
    """Keep that ``marks`` are to be looked for, or with none that nothing is any more.

    On a full disk nothing is kept: room is what a removal makes. Raises ``KvgError`` otherwise.
    """
    path, rows = _path(store, digest), tuple(dict.fromkeys(marks))
    if not rows:
        durable.remove(path)
        return
    try:
        durable.replace(path, [encode_wanted(rows, of=hex_of(digest))], staging=store.staging)
    except NoSpace:
        return


def _path(store: Store, digest: Digest) -> Path:
    return store.root / FORGOTTEN / f"{hex_of(digest)}{_SUFFIX}"


def encode_wanted(marks: Iterable[Mark], *, of: str) -> bytes:
    """The file of ``marks``, which are of the artifact with the hex digits ``of``."""
    rows = tuple((m.size, m.sha256.hex(), m.place, m.anchor.hex()) for m in marks)
    said: dict[str, canon.Json] = {"schema": SCHEMA, "artifact": of, "marks": rows}
    return canon.encode({**said, "sha256": sha256_bytes(canon.encode(said)).hex()})


def decode_wanted(data: bytes, *, of: str, what: str) -> tuple[Mark, ...]:
    """The marks in a file that ``encode_wanted`` made of that artifact.

    Raises ``Corrupt``, ``Incompatible``.
    """
    value = canon.decode(data, what=what)
    canon.check_schema(value, SCHEMA, what=what)
    value = canon.take(value, ("schema", "artifact", "marks", "sha256"), what=what)
    try:
        rows = (canon.as_list(row, what=what) for row in canon.as_list(value["marks"], what=what))
        marks = tuple(_mark(row, what=what) for row in rows)
    except ValueError as error:
        raise Corrupt(f"{what}: {error}") from None
    if not marks or encode_wanted(dict.fromkeys(marks), of=of) != data:
        raise Corrupt(f"{what}: does not match its checksum, or is of another artifact")
    return marks


def _mark(row: Sequence[canon.Json], *, what: str) -> Mark:
    size, sha256, place, anchor = row
    return Mark(
        canon.as_int(size, what=what),
        bytes.fromhex(canon.as_str(sha256, what=what)),
        canon.as_int(place, what=what),
        bytes.fromhex(canon.as_str(anchor, what=what)),
    )
