"""Logs of other publishers: a copy of each, as last seen, under ``peers/<origin>/``.

The copy has the layout of a log, and beside it ``publisher`` (who vouches for the log's key) and
``receipts/<envelope>`` (the proof that an attestation has a position in it). It only ever grows:
a checkpoint that does not extend the one kept is a rollback or a fork, and is refused.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from kvg import durable
from kvg.digest import Digest, hex_of
from kvg.errors import Corrupt, NotFound, Untrusted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from kvg.log.log import Log
    from kvg.log.tiles import Tiles, TileSource
    from kvg.signing.keys import PublicKey

FOLDER: Final = "peers"
PUBLISHER: Final = "publisher"
RECEIPTS: Final = "receipts"
MAX_PUBLISHER_BYTES: Final = 1 << 16
_ORIGIN = r"[a-z0-9_-][a-z0-9._-]*"


class Peers:
    """The logs of others that a store has seen. Call ``take`` under the store's lock."""

    def __init__(self, root: Path, *, staging: Path) -> None:
        """``root`` is the store's folder."""
        self._folder = root / FOLDER
        self._staging = staging

    def log(self, origin: str) -> Log | None:
        """The log as last seen; None when it never was. Raises ``Corrupt``, ``Untrusted``."""
        from kvg.log.log import CHECKPOINT, Log

        folder = self._of(origin)
        if not (folder / CHECKPOINT).exists():
            return None
        return Log.open(folder, staging=self._staging)

    def origins(self) -> tuple[str, ...]:
        """The logs that were seen, ascending."""
        try:
            found = sorted(path.name for path in self._folder.iterdir())
        except FileNotFoundError:
            return ()
        return tuple(name for name in found if (self._folder / name / "checkpoint").exists())

    def check(self, origin: str, verifier: bytes, note: bytes, source: TileSource) -> Tiles:
        """The log ``origin`` under the checkpoint ``note``, read from ``source``; takes nothing.

        ``verifier`` is its key's line, which must be the one seen first, or follow from it by
        changes that the key before signed, too. Raises ``Untrusted`` on
        another key, a bad signature, a rollback and a fork; ``Corrupt`` on damaged files.
        """
        from kvg.log.checkpoint import open_checkpoint
        from kvg.log.tiles import Tiles

        what = f"log {origin}"
        public = parse_verifier_line(verifier, origin=origin)
        new = open_checkpoint(note, origin=origin, verifier=public, what=f"{what}: checkpoint")
        kept = self.log(origin)
        tiles = Tiles(source, new.size, new.root)
        if kept is not None:
            _check_key(kept, public, tiles, source)
            _check_extends(what, kept, tiles)
        return tiles

    def take(self, origin: str, verifier: bytes, note: bytes, source: TileSource) -> Log:
        """As ``check``, and keep the copy: every byte checked, the checkpoint last."""
        from kvg.log.growth import log_files
        from kvg.log.log import CHECKPOINT, VERIFIER

        tiles = self.check(origin, verifier, note, source)
        folder, kept = self._of(origin), self.log(origin)
        if kept is None:
            durable.replace(folder / VERIFIER, [verifier], staging=self._staging)
        for name, data in log_files(tiles, 0 if kept is None else kept.size):
            durable.replace(folder / name, [data], staging=self._staging)
        for name, data in () if kept is None else _rekeyed(kept, tiles, source):
            durable.replace(folder / name, [data], staging=self._staging)
        if kept is None or kept.note != note:
            durable.replace(folder / CHECKPOINT, [note], staging=self._staging)
        taken = self.log(origin)
        if taken is None:
            raise Corrupt(f"log {origin}: gone as it was taken", hint="kvg fsck")
        return taken

    def publisher(self, origin: str) -> bytes | None:
        """The note that vouches for the log's key, as last accepted."""
        try:
            with (
                durable.translated(self._of(origin) / PUBLISHER),
                open(self._of(origin) / PUBLISHER, "rb") as file,
            ):
                return file.read(MAX_PUBLISHER_BYTES)
        except NotFound:
            return None

    def keep_publisher(self, origin: str, note: bytes) -> None:
        """Keep the note that vouches for the log's key."""
        if self.publisher(origin) != note:
            durable.replace(self._of(origin) / PUBLISHER, [note], staging=self._staging)

    def keep_receipts(self, origin: str, receipts: Iterable[tuple[Digest, bytes]]) -> None:
        """Keep receipts of attestations, by the digest of the envelope."""
        for envelope, receipt in receipts:
            path = self._of(origin) / RECEIPTS / hex_of(envelope)
            if not path.exists():
                durable.replace(path, [receipt], staging=self._staging)

    def _of(self, origin: str) -> Path:
        if re.fullmatch(_ORIGIN, origin) is None or ".." in origin or len(origin) > 200:
            raise Corrupt(f"log {origin[:80]!r}: not the name of a log that can be kept")
        return self._folder / origin


def parse_verifier_line(line: bytes, *, origin: str) -> PublicKey:
    """The key of a log from its ``verifier`` file. Raises ``Corrupt``, ``Untrusted``."""
    from kvg.signing.note import parse_verifier

    what = f"log {origin}: verifier"
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        raise Corrupt(f"{what}: not UTF-8") from None
    if not text.endswith("\n"):
        raise Corrupt(f"{what}: cut short")
    name, public = parse_verifier(text[:-1], what=what)
    if name != origin:
        raise Untrusted(f"{what}: is the key of the log {name}")
    return public


def _followed(kept: Log) -> int:
    """Up to where changes of key are in force here: not the last entry's, if its taking was cut."""
    return max(kept.size - 1, 0)


def _check_key(kept: Log, public: PublicKey, tiles: Tiles, source: TileSource) -> None:
    """Raise ``Untrusted`` unless ``public`` is the key of ``kept`` or follows from it."""
    from kvg.log.rekey import steps_there
    from kvg.signing.note import parse_verifier

    known = kept.verifier
    if known == public:
        return
    if tiles.size >= kept.size:
        for step in steps_there(tiles, source, kept.origin, known, _followed(kept)):
            known = parse_verifier(step.line, what=f"log {kept.origin}")[1]
    if known != public:
        raise Untrusted(
            f"log {kept.origin}: its key is {public.keyid[:12]}, "
            f"it was {kept.verifier.keyid[:12]} before",
            hint="ask its publisher; nothing of it was taken",
        )


def _rekeyed(kept: Log, tiles: Tiles, source: TileSource) -> Iterator[tuple[str, bytes]]:
    """What to write for each change of key, in order: at every point key and checkpoint agree."""
    from kvg.log import rekey
    from kvg.log.log import CHECKPOINT, VERIFIER

    for step in rekey.steps_there(tiles, source, kept.origin, kept.verifier, _followed(kept)):
        yield rekey.file_name(step.size), step.note
        yield CHECKPOINT, step.note
        yield VERIFIER, f"{step.line}\n".encode()


def _check_extends(what: str, kept: Log, new: Tiles) -> None:
    if new.size < kept.size:
        raise Untrusted(
            f"{what}: rolled back from size {kept.size}, seen before, to {new.size}",
            hint="the remote, or who writes to it, shows an older log: nothing was taken",
        )
    if (new.root if new.size == kept.size else new.root_at(kept.size)) != kept.root:
        raise Untrusted(
            f"{what}: forked at or before size {kept.size}, seen before",
            hint="its owner told two stories: nothing was taken",
        )
