"""Logs of other publishers: a copy of each, as last seen, under ``peers/<origin>/``.

The copy has the layout of a log, and beside it ``publisher`` (who vouches for the log's key),
``receipts/<envelope>`` (the proof that an attestation has a position in it) and ``seen/<remote>``
(the checkpoint that a remote showed last). It only ever grows: a checkpoint that does not extend
the one kept is a rollback or a fork, and is refused. A remote that never showed a newer one than an
earlier checkpoint of the copy is behind, and did not go back.

What was last seen is remembered a second time, with the user's keys: should the copy be lost, the
log is still held against that, and ``lost`` tells of it.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from kvg import durable
from kvg.digest import Digest, hex_of
from kvg.errors import Corrupt, NotFound, Untrusted
from kvg.frozen import frozen
from kvg.parallel import in_order

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Set
    from pathlib import Path

    from kvg.log.log import Log
    from kvg.log.tiles import Tiles, TileSource
    from kvg.signing.keys import PublicKey
    from kvg.store.store import Store
    from kvg.trust import Keyring

FOLDER: Final = "peers"
PUBLISHER: Final = "publisher"
RECEIPTS: Final = "receipts"
SEEN: Final = "seen"
MAX_NOTE_BYTES: Final = 1 << 16
_REF_MARK = b'"type":"ref"'
_ORIGIN = r"[a-z0-9_-][a-z0-9._-]*"


class Peers:
    """The logs of others that a store has seen. Call ``take`` under the store's lock."""

    def __init__(
        self, root: Path, *, staging: Path, own: str = "", keyring: Keyring | None = None
    ) -> None:
        """``root`` is the folder of the store, ``own`` its log, as ``keyring`` knows it."""
        self._folder = root / FOLDER
        self._staging = staging
        self._own = own
        self._keyring = keyring if own else None

    def log(self, origin: str) -> Log | None:
        """The log as last seen; None when it never was. Raises ``Corrupt``, ``Untrusted``."""
        from kvg.log.log import CHECKPOINT, Log

        folder = self._of(origin)
        if not (folder / CHECKPOINT).exists():
            return None
        with reading_copy():
            return Log.open(folder, staging=self._staging)

    def origins(self) -> tuple[str, ...]:
        """The logs that were seen, ascending."""
        found = durable.names_in(self._folder)
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
        for known in (kept, self.remembered(origin, kept)):
            if known is not None:
                _check_key(known, public, tiles, source)
                _check_extends(what, known, tiles)
        return tiles

    def older(self, origin: str, verifier: bytes, note: bytes, *, remote: str) -> Older | None:
        """The log kept here, where ``note``, shown by ``remote``, is an earlier checkpoint of it.

        None where it is none: that is for ``check``. Raises ``Untrusted`` where ``remote`` itself
        showed more before, on another key, a bad signature and a fork.
        """
        from kvg.log.checkpoint import open_checkpoint

        what = f"log {origin}"
        public = parse_verifier_line(verifier, origin=origin)
        shown = open_checkpoint(note, origin=origin, verifier=public, what=f"{what}: checkpoint")
        kept = self.log(origin)
        if kept is None or shown.size >= kept.size or self.remembered(origin, kept) is not None:
            return None
        before = self._seen_size(origin, remote)
        if shown.size < before:
            raise _rolled_back(what, before, shown.size)
        with reading_copy():
            is_its_key = _is_key_of(kept, public)
            is_earlier = kept.is_extension_of(shown.size, shown.root)
        if not is_its_key:
            raise _another_key(kept, public)
        if not is_earlier:
            raise _forked(what, shown.size)
        return Older(kept, shown.size)

    def note_seen(self, origin: str, note: bytes, *, remote: str) -> None:
        """Remember that ``remote`` showed the checkpoint ``note``, which was checked.

        What strangers cosigned of it is not: nobody here could tell that it is still what came.
        """
        from kvg.log.checkpoint import without_witnesses

        path = self._seen(origin, remote)
        note = without_witnesses(note, origin, what=str(path))
        try:
            known = _read(path)
        except NotFound:
            durable.make_dir(path.parent)
        else:
            if known == note:
                return
        durable.replace(path, [note], staging=self._staging)

    def drop_seen(self, remote: str) -> None:
        """Forget what ``remote`` showed: it is no more, or another place."""
        for origin in self.origins():
            path = self._seen(origin, remote)
            if path.exists():
                durable.remove(path)

    def _seen_size(self, origin: str, remote: str) -> int:
        from kvg.log.checkpoint import parse_checkpoint

        path = self._seen(origin, remote)
        try:
            return parse_checkpoint(_read(path), what=str(path)).size
        except NotFound:
            return 0

    def _seen(self, origin: str, remote: str) -> Path:
        return self._of(origin) / SEEN / remote

    def remembered(self, origin: str, kept: Log | None) -> Remembered | None:
        """What the user saw of the log when that is more than ``kept`` is; else None.

        Raises ``Corrupt`` when it can't be read.
        """
        if self._keyring is None:
            return None
        data = self._keyring.seen_peer(self._own, origin)
        if data is None:
            return None
        found = _parse_remembered(
            data, origin, what=str(self._keyring.peer_path(self._own, origin))
        )
        return found if kept is None or kept.size < found.size else None

    def lost(self) -> Iterator[tuple[str, int]]:
        """(origin, size) of each log that was seen and of which no copy is kept."""
        kept = self.origins()
        for origin in () if self._keyring is None else self._keyring.seen_peers(self._own):
            if origin not in kept:
                found = self.remembered(origin, None)
                yield origin, 0 if found is None else found.size

    def _remember(self, log: Log) -> None:
        from kvg.trust.keyring import is_key_name

        if self._keyring is None or not is_key_name(log.origin):
            return
        from kvg.signing.note import encode_verifier

        data = f"{encode_verifier(log.origin, log.verifier)}\n".encode() + log.note
        if self._keyring.seen_peer(self._own, log.origin) != data:
            self._keyring.keep_peer(self._own, log.origin, data)

    def take(
        self, origin: str, verifier: bytes, note: bytes, source: TileSource, *, publisher: bytes
    ) -> Log:
        """As ``check``, and keep the copy: every byte checked, the checkpoint last.

        ``publisher`` is the note that vouches for its key; there is no copy without one.
        """
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
        if kept is None:
            self.keep_publisher(origin, publisher)
        if kept is None or kept.note != note:
            durable.replace(folder / CHECKPOINT, [note], staging=self._staging)
        taken = self.log(origin)
        if taken is None:
            raise Corrupt(f"log {origin}: gone as it was taken", hint="kvg fsck")
        self.keep_publisher(origin, publisher)
        self._remember(taken)
        self._keep_cosigned(taken, source)
        return taken

    def _keep_cosigned(self, taken: Log, source: TileSource) -> None:
        """Keep the newest checkpoint of ``taken`` that witnesses cosigned: of what ``source``
        shows, what is kept, and what the user saw. What is none of its own is passed over."""
        from kvg.log.checkpoint import MAX_CHECKPOINT_SIZE
        from kvg.log.log import COSIGNED
        from kvg.store.witnesses import with_sum

        kept = taken.source.read(COSIGNED, MAX_CHECKPOINT_SIZE)
        seen = self.seen_cosigned(taken.origin)
        given = (source.read(COSIGNED, MAX_CHECKPOINT_SIZE), kept, seen)
        sizes = {with_sum(note): _cosigned_size(taken, note) for note in given if note}
        newest = max(sizes, key=sizes.__getitem__, default=b"")
        if sizes.get(newest, -1) < 0:
            return
        if newest != kept:
            durable.replace(taken.folder / COSIGNED, [newest], staging=self._staging)
        if newest != seen and self._keyring is not None:
            self._keyring.keep_cosigned(self._own, taken.origin, newest)

    def seen_cosigned(self, origin: str) -> bytes | None:
        """What the user saw witnesses cosign of the log; None when nothing."""
        if self._keyring is None:
            return None
        return self._keyring.seen_cosigned(self._own, origin)

    def publisher(self, origin: str) -> bytes | None:
        """The note that vouches for the log's key, as last accepted."""
        try:
            return _read(self._of(origin) / PUBLISHER)
        except NotFound:
            return None

    def keep_publisher(self, origin: str, note: bytes) -> None:
        """Keep the note that vouches for the log's key."""
        if self.publisher(origin) != note:
            durable.replace(self._of(origin) / PUBLISHER, [note], staging=self._staging)

    def keep_receipts(self, origin: str, receipts: Iterable[tuple[Digest, bytes]]) -> None:
        """Keep receipts of attestations, by the digest of the envelope."""
        folder = self._of(origin) / RECEIPTS
        named = ((folder / hex_of(envelope), receipt) for envelope, receipt in receipts)
        new = {path: receipt for path, receipt in named if not path.exists()}
        if not new:
            return
        durable.make_dir(folder)

        def keep(path: Path) -> None:
            durable.write_new(
                path, [new[path]], staging=self._staging, mode=0o644, is_named_for_good=False
            )

        for _ in in_order(keep, new, threads=durable.SYNCERS):
            pass
        durable.sync_dir(folder)

    def _of(self, origin: str) -> Path:
        if re.fullmatch(_ORIGIN, origin) is None or ".." in origin or len(origin) > 200:
            raise Corrupt(f"log {origin[:80]!r}: not the name of a log that can be kept")
        return self._folder / origin


@contextmanager
def reading_copy() -> Iterator[None]:
    """What is damaged inside is the copy here, whatever the remote is like."""
    try:
        yield
    except (Corrupt, Untrusted) as error:
        error.hint = "the copy here is damaged: kvg fsck --repair moves it away, then take it anew"
        raise


def _read(path: Path) -> bytes:
    with durable.translated(path), open(path, "rb", opener=durable.plain) as file:
        return file.read(MAX_NOTE_BYTES)


def _cosigned_size(log: Log, note: bytes) -> int:
    """The size of the checkpoint ``note`` of ``log``, by its key of then; -1 if it is none."""
    from kvg.log.rekey import open_then

    try:
        said = open_then(log, note, what=log.origin)
    except (Corrupt, Untrusted):
        return -1
    return said.size if log.is_extension_of(said.size, said.root) else -1


def unexplained(store: Store) -> tuple[str, ...]:
    """The refs, as ``origin/handbook``, whose value is in no log that is kept here: nothing is left
    of the log that they came from. Logs that can't be read explain nothing."""
    wanted = {
        (name.partition("/")[2], move.digest): (name, move.index)
        for name, move in store.newest_moves().items()
        if move.digest is not None and store.is_tracking(name)
    }
    if wanted:
        for place, index in _values(store.log, wanted.keys()):
            if index < wanted[place][1]:  # pushed from here: what is pulled comes after
                del wanted[place]
    for log in _readable(store.peers) if wanted else ():
        for place, _ in _values(log, wanted.keys()):
            del wanted[place]
    return tuple(sorted(name for name, _ in wanted.values()))


def _values(log: Log, wanted: Set[tuple[str, Digest]]) -> Iterator[tuple[tuple[str, Digest], int]]:
    """(name, value) and index of each move of a ref in ``log`` that is among ``wanted``."""
    from kvg.log.entry import RefEntry, parse_entry

    for index, raw in enumerate(log.read()):
        if _REF_MARK in raw:
            entry = parse_entry(raw, what=f"log {log.origin}: entry {index}")
            if isinstance(entry, RefEntry) and entry.digest is not None:
                place = (entry.name, entry.digest)
                if place in wanted:
                    yield place, index


def _readable(peers: Peers) -> Iterator[Log]:
    for origin in peers.origins():
        try:
            log = peers.log(origin)
        except (Corrupt, Untrusted):
            continue
        if log is not None and not any(True for _ in log.faults()):
            yield log


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


@frozen
class Older:
    """A log that is kept here, and of which a remote has only its first ``size`` entries."""

    log: Log
    size: int


@frozen
class Remembered:
    """A log as the user last saw it: the key it had, and how far it went."""

    origin: str
    verifier: PublicKey
    size: int
    root: bytes


def _parse_remembered(data: bytes, origin: str, *, what: str) -> Remembered:
    from kvg.log.checkpoint import open_checkpoint

    line, _, note = data.partition(b"\n")
    try:
        public = parse_verifier_line(line + b"\n", origin=origin)
        found = open_checkpoint(note, origin=origin, verifier=public, what=what)
    except (Corrupt, Untrusted) as error:
        raise Corrupt(
            f"{what}: {error.message}", hint=f"if it is of no use, remove {what}"
        ) from None
    return Remembered(origin, public, found.size, found.root)


def _followed(kept: Log | Remembered) -> int:
    """Up to where changes of key are in force here: not the last entry's, if its taking was cut."""
    return max(kept.size - 1, 0)


def _check_key(kept: Log | Remembered, public: PublicKey, tiles: Tiles, source: TileSource) -> None:
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
        raise _another_key(kept, public)


def _is_key_of(kept: Log, public: PublicKey) -> bool:
    """Whether ``public`` is the key of ``kept``, or one before it that its key follows from."""
    from kvg.log.rekey import follow

    try:
        follow(kept, public)
    except Untrusted:
        return False
    return True


def _another_key(kept: Log | Remembered, public: PublicKey) -> Untrusted:
    return Untrusted(
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


def _check_extends(what: str, kept: Log | Remembered, new: Tiles) -> None:
    if new.size < kept.size:
        raise _rolled_back(what, kept.size, new.size)
    if (new.root if new.size == kept.size else new.root_at(kept.size)) != kept.root:
        raise _forked(what, kept.size)


def _rolled_back(what: str, before: int, now: int) -> Untrusted:
    return Untrusted(
        f"{what}: rolled back from size {before}, seen before, to {now}",
        hint="the remote, or who writes to it, shows an older log: nothing was taken",
    )


def _forked(what: str, size: int) -> Untrusted:
    return Untrusted(
        f"{what}: forked at or before size {size}, seen before",
        hint="its owner told two stories: nothing was taken",
    )
