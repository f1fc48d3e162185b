"""A log's key replaced by another: a ``rekey`` entry under a checkpoint that both keys signed.

Each such checkpoint is kept as ``rekey/<size>``, and the line of the key that the log was made with
as ``rekey/first``, so that what that key signed can still be checked. So who pinned the first key
can follow to the present one: every step is the word of the key before it, about a log that this
one extends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from kvg import durable
from kvg.errors import Corrupt, Incompatible, Untrusted
from kvg.frozen import frozen
from kvg.log.checkpoint import (
    MAX_CHECKPOINT_SIZE,
    Checkpoint,
    open_checkpoint,
    parse_checkpoint,
)
from kvg.log.entry import RekeyEntry, parse_entry
from kvg.signing.note import encode_verifier, is_note_signed, parse_note, parse_verifier

if TYPE_CHECKING:
    from kvg.log.log import Log
    from kvg.log.tiles import Tiles, TileSource
    from kvg.signing.keys import PublicKey

FOLDER: Final = "rekey"
FIRST: Final = f"{FOLDER}/first"
MAX_LINE_SIZE: Final = 1024
MARK: Final = b'"type":"rekey"'
"""What the bytes of a ``rekey`` entry hold, and no other's: a quote in a value is escaped."""
MAX_STEPS: Final = 10_000


def file_name(size: int) -> str:
    """The name, in the log's folder, of the checkpoint of ``size`` that two keys signed."""
    return f"{FOLDER}/{size}"


def first_line(log: Log) -> bytes | None:
    """What to write as ``FIRST`` before ``log`` gets another key; None when it is there."""
    known = log.source.read(FIRST, MAX_LINE_SIZE)
    return None if known is not None or _sizes(log) else _line_of(log.origin, log.verifier)


def _line_of(origin: str, key: PublicKey) -> bytes:
    return f"{encode_verifier(origin, key)}\n".encode()


def key_at(log: Log, size: int) -> PublicKey:
    """The key that signs checkpoints of ``log`` of ``size``, which may be another than today's.

    Raises ``Untrusted`` when it is not known here: of a log that got its second key from a kvg that
    did not keep the first.
    """
    known = first_key(log)
    for checkpoint, _ in _steps(log):
        if checkpoint.size <= size:
            known = _new_key(log, checkpoint)
    if known is None:
        raise Untrusted(
            f"log {log.folder}: the key that signed at size {size} is not kept here",
            hint="give the verifier line that it had then: --verifier LINE",
        )
    return known


def open_then(log: Log, note: bytes, *, what: str) -> Checkpoint:
    """The checkpoint ``note``, signed by the key of ``log`` that was in force at its size.

    Whether ``log`` extends it is another question. Raises ``Corrupt``, ``Untrusted``.
    """
    size = parse_checkpoint(note, what=what).size
    return open_checkpoint(note, origin=log.origin, verifier=key_at(log, size), what=what)


def first_key(log: Log) -> PublicKey | None:
    """The key that the log was made with; None where it had another since and that one is not
    kept. Raises ``Corrupt``."""
    line = log.source.read(FIRST, MAX_LINE_SIZE)
    if line is None:
        return None if _sizes(log) else log.verifier
    what = f"log {log.folder}: {FIRST}"
    origin, key = parse_verifier(line.decode("utf-8", "replace").rstrip("\n"), what=what)
    if origin != log.origin or line != _line_of(origin, key):
        raise Corrupt(f"{what}: not the line of a key of this log", hint="kvg fsck")
    return key


def sizes_of(log: Log) -> list[int]:
    """The sizes at which the key of ``log`` changed, by its entries. Raises ``Corrupt``."""
    return [size for size, entry in enumerate(log.read(), 1) if MARK in entry]


def faults(log: Log, sizes: Iterable[int]) -> Iterator[Corrupt | Untrusted]:
    """What is wrong with the record of the changes of key, which are at ``sizes``."""
    known: PublicKey | None = None
    try:
        known = first_key(log)
    except Corrupt as error:
        yield error
    for size in sizes:
        try:
            note = log.source.read(file_name(size), MAX_CHECKPOINT_SIZE)
            known = check_step(log, size, note, known)
        except (Corrupt, Untrusted) as error:
            known = None
            yield error


def check_step(log: Log, size: int, note: bytes | None, known: PublicKey | None) -> PublicKey:
    """The key from ``size`` on, where ``note`` is the word on it of the key before, ``known``.

    One that is not known is not asked. Raises ``Corrupt``, ``Untrusted``.
    """
    what = f"log {log.folder}: {file_name(size)}"
    if note is None:
        raise Corrupt(f"{what}: missing", hint="kvg fsck")
    found, parsed = parse_checkpoint(note, what=what), parse_note(note, what=what)
    if found != Checkpoint(log.origin, size, log.root_at(size)):
        raise Corrupt(f"{what}: not the checkpoint of that size", hint="kvg fsck")
    new = _new_key(log, found)
    for key in (known, new):
        if key is not None and not is_note_signed(parsed, log.origin, key):
            raise Untrusted(f"{what}: not signed by {key.keyid[:12]}", hint="kvg fsck")
    return new


@frozen
class Step:
    """One change of key: the checkpoint that both keys signed, and the new key's verifier line."""

    size: int
    note: bytes
    line: str


def steps(log: Log, old_size: int) -> Iterator[Step]:
    """Every change of the key of ``log`` past ``old_size``, in order."""
    for checkpoint, note in _steps(log):
        if checkpoint.size > old_size:
            yield Step(
                checkpoint.size, note, encode_verifier(log.origin, _new_key(log, checkpoint))
            )


def steps_there(
    tiles: Tiles, source: TileSource, origin: str, known: PublicKey, old_size: int
) -> Iterator[Step]:
    """As ``steps``, for a log read from ``source`` by who knows its key at ``old_size``.

    Each is by the word of the key before it. Raises ``Untrusted`` where one is not, ``Corrupt``.
    """
    what = f"log {origin}"
    for index, raw in enumerate(tiles.entries(old_size, tiles.size), old_size):
        entry = parse_entry(raw, what=f"{what}: entry {index}")
        if not isinstance(entry, RekeyEntry):
            continue
        size = index + 1
        note = source.read(file_name(size), MAX_CHECKPOINT_SIZE)
        if note is None:
            raise Corrupt(f"{what}: {file_name(size)} is missing", hint="its owner must push again")
        found = parse_checkpoint(note, what=f"{what}: {file_name(size)}")
        name, new = parse_verifier(entry.public, what=f"{what}: entry {index}")
        parsed = parse_note(note, what=f"{what}: {file_name(size)}")
        is_same = (found.origin, found.size, found.root) == (origin, size, tiles.root_at(size))
        is_signed = all(is_note_signed(parsed, origin, key) for key in (known, new))
        if name != origin or not is_same or not is_signed:
            raise Untrusted(
                f"{what}: its change of key at entry {index} is not by the key before it",
                hint="ask its publisher; nothing of it was taken",
            )
        known = new
        yield Step(size, note, entry.public)


def follow(log: Log, start: PublicKey) -> None:
    """Raise ``Untrusted`` unless the key of ``log`` is ``start`` or follows from it."""
    known = start
    for checkpoint, note in _steps(log):
        new = _new_key(log, checkpoint)
        parsed = parse_note(note, what=f"log {log.folder}: {file_name(checkpoint.size)}")
        if all(is_note_signed(parsed, log.origin, key) for key in (known, new)):
            known = new
    if known != log.verifier:
        raise Untrusted(
            f"log {log.folder}: its key is {log.verifier.keyid}, expected {start.keyid}",
            hint="the log was swapped, or was given a new key without the word of the old one",
        )


def pending_key(log: Log) -> PublicKey | None:
    """The key that a rekey cut short has still to bring into force; None when there is none."""
    data = log.source.read(file_name(log.size), MAX_CHECKPOINT_SIZE)
    if data is None:
        return None
    what = f"log {log.folder}: {file_name(log.size)}"
    checkpoint = parse_checkpoint(data, what=what)
    if (checkpoint.origin, checkpoint.root) != (log.origin, log.root):
        return None
    new = _new_key(log, checkpoint)
    return None if new == log.verifier else new


def _steps(log: Log) -> Iterator[tuple[Checkpoint, bytes]]:
    """Every kept checkpoint of this very log, in order; what a crash left is passed over."""
    for size in _sizes(log):
        what = f"log {log.folder}: {file_name(size)}"
        data = log.source.read(file_name(size), MAX_CHECKPOINT_SIZE)
        if data is None:
            raise Corrupt(f"{what}: missing", hint="kvg fsck")
        found = parse_checkpoint(data, what=what)
        is_ours = found.origin == log.origin and found.size == size
        if is_ours and log.is_extension_of(found.size, found.root):
            yield found, data


def _sizes(log: Log) -> list[int]:
    names = durable.names_in(log.folder / FOLDER)
    found = sorted(int(name) for name in names if name.isascii() and name.isdigit())
    if len(found) > MAX_STEPS:
        raise Corrupt(f"log {log.folder}: {len(found)} changes of its key")
    return [size for size in found if 0 < size <= log.size]


def _new_key(log: Log, checkpoint: Checkpoint) -> PublicKey:
    """The key that the last entry under ``checkpoint`` names."""
    what = f"log {log.folder}: entry {checkpoint.size - 1}"
    raw = next(iter(log.read(checkpoint.size - 1, checkpoint.size)))
    entry = parse_entry(raw, what=what)
    if not isinstance(entry, RekeyEntry):
        raise Corrupt(f"{what}: not a change of key")
    origin, public = parse_verifier(entry.public, what=what)
    if origin != log.origin:
        raise Incompatible(f"{what}: a key of the log {origin}")
    return public
