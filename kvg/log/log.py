"""The log in a folder: made, opened, read, appended to and checked.

    checkpoint                      the signed note: origin, size, root
    rekey/<size>                    a checkpoint under which the key changed, signed by both
    cosigned                        the newest checkpoint that witnesses cosigned
    witnessed/<witness>             the newest that each of them did, with its word alone
    verifier                        the note verifier line of the log's key
    tile/<L>/<N>[.p/<W>]            hashes
    tile/entries/<N>[.p/<W>]        entries

The checkpoint is replaced last: until then an append has not happened, and what it wrote is
cleared away or written over by the next one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kvg import durable
from kvg.digest import Buffer, sha256_bytes
from kvg.errors import Conflict, Corrupt, KvgError, NotFound, Untrusted, UsageError
from kvg.log import merkle, tiles
from kvg.log import rekey as rekeys
from kvg.log.checkpoint import (
    MAX_CHECKPOINT_SIZE,
    Checkpoint,
    check_origin,
    open_checkpoint,
    parse_checkpoint,
    sign_checkpoint,
    without_witnesses,
)
from kvg.log.merkle import HASH_SIZE
from kvg.log.tiles import WIDTH, FolderSource, Tiles
from kvg.signing.note import (
    NoteSignature,
    encode_signature,
    encode_verifier,
    parse_note,
    parse_verifier,
)

if TYPE_CHECKING:
    from kvg.signing.keys import PrivateKey, PublicKey

CHECKPOINT: Final = "checkpoint"
COSIGNED: Final = "cosigned"
WITNESSED: Final = "witnessed"
VERIFIER: Final = "verifier"

KEPT_PARTIALS: Final = 4
"""How many partial tiles of a name are kept: readers of the last few checkpoints use them."""
_TIDY_AT = 16
_MAX_VERIFIER_SIZE = 1024


class Log:
    """One log as of its newest checkpoint, whose signature is checked whenever it is read.

    Readers need no lock. A writer holds the store's lock: ``append`` starts from the checkpoint
    on disk, whoever wrote it. Files that do not fit the checkpoint are ``Corrupt``, naming the
    file; a checkpoint that the log's key did not sign, or that does not extend the one seen
    before, is ``Untrusted``.
    """

    def __init__(
        self, folder: Path, *, staging: Path, origin: str, verifier: PublicKey, note: bytes
    ) -> None:
        """Use ``Log.open`` or ``Log.create``."""
        self.folder = folder
        self.origin = origin
        self.verifier = verifier
        self._staging = staging
        self._source = FolderSource(folder)
        self._set(note, self._open(note))

    @classmethod
    def create(cls, folder: Path, *, origin: str, key: PrivateKey, staging: Path) -> Log:
        """An empty log named ``origin`` in ``folder``, signed by ``key``.

        Raises ``Conflict`` when a log is there; what a creation that was cut short left is no
        log yet.
        """
        check_origin(origin)
        if (folder / CHECKPOINT).exists():
            raise Conflict(f"{folder}: a log is already there")
        durable.make_dir(folder)
        line = encode_verifier(origin, key.public) + "\n"
        durable.replace(folder / VERIFIER, [line.encode("utf-8")], staging=staging)
        note = sign_checkpoint(Checkpoint(origin, 0, merkle.EMPTY_ROOT), key)
        durable.replace(folder / CHECKPOINT, [note], staging=staging)
        return cls.open(folder, verifier=key.public, staging=staging)

    @classmethod
    def open(cls, folder: Path, *, staging: Path, verifier: PublicKey | None = None) -> Log:
        """The log in ``folder``; its key must be ``verifier`` when given, or follow from it.

        Raises ``NotFound`` when there is no folder, ``Corrupt`` when it holds no whole log.
        """
        if not folder.is_dir():
            raise NotFound(f"{folder}: no log there")
        source = FolderSource(folder)
        line = _read(source, VERIFIER, _MAX_VERIFIER_SIZE)
        what = f"log {folder}: {VERIFIER}"
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError:
            raise Corrupt(f"{what}: not UTF-8") from None
        if not text.endswith("\n"):
            raise Corrupt(f"{what}: cut short")
        origin, public = parse_verifier(text[:-1], what=what)
        note = _read(source, CHECKPOINT, MAX_CHECKPOINT_SIZE)
        try:
            log = cls(folder, staging=staging, origin=origin, verifier=public, note=note)
            if verifier is not None and public != verifier:
                rekeys.follow(log, verifier)
        except Untrusted:
            if _read(source, VERIFIER, _MAX_VERIFIER_SIZE) == line:
                raise
            return cls.open(folder, staging=staging, verifier=verifier)  # a rekey came between
        return log

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint that everything is read under."""
        return self._checkpoint

    @property
    def note(self) -> bytes:
        """The checkpoint's signed bytes."""
        return self._note

    @property
    def size(self) -> int:
        """How many entries."""
        return self._checkpoint.size

    @property
    def root(self) -> bytes:
        """The RFC 6962 root over all entries."""
        return self._checkpoint.root

    @property
    def tiles(self) -> Tiles:
        """The authenticated tiles under the checkpoint."""
        return self._tiles

    def is_newest(self) -> bool:
        """Whether the checkpoint on disk is this one. Bytes tell: a file system may use an inode
        again, and its clock is coarse."""
        return self._source.read(CHECKPOINT, MAX_CHECKPOINT_SIZE) == self._note

    def refresh(self) -> None:
        """Take up the checkpoint on disk. Raises ``Untrusted`` unless it extends this one."""
        note = _read(self._source, CHECKPOINT, MAX_CHECKPOINT_SIZE)
        if note == self._note:
            return
        old, new = self._checkpoint, self._open(note)
        if new.size < old.size:
            raise Untrusted(
                f"log {self.folder}: rolled back from size {old.size} to {new.size}",
                hint="restore the newer log from a backup or a peer",
            )
        if Tiles(self._source, new.size, new.root).root_at(old.size) != old.root:
            raise Untrusted(f"log {self.folder}: forked at or before size {old.size}")
        self._set(note, new)

    def read(self, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        """Entries [``start``, ``stop``), to the end without ``stop``, each checked, in order.

        Raises ``UsageError`` on a range that is not in the log.
        """
        end = self.size if stop is None else stop
        if not 0 <= start <= end <= self.size:
            raise UsageError(f"log {self.folder}: entries {start} to {end} of {self.size}")
        return self._tiles.entries(start, end)

    def naming(self, needles: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
        """Each entry in which one of ``needles`` stands, with its number, ascending. Every entry of
        the log is checked, these or not."""
        return self._tiles.naming(needles)

    def root_at(self, size: int) -> bytes:
        """The root this log had at ``size``. Raises ``UsageError`` past the end."""
        if not 0 <= size <= self.size:
            raise UsageError(f"log {self.folder}: no size {size}, it has {self.size} entries")
        return self._tiles.root_at(size)

    def is_extension_of(self, size: int, root: bytes) -> bool:
        """Whether the tree (``size``, ``root``) is a prefix of this log."""
        return 0 <= size <= self.size and self._tiles.root_at(size) == root

    def inclusion_proof(self, index: int) -> tuple[bytes, ...]:
        """The proof of entry ``index`` under the checkpoint. Raises ``UsageError`` past the end."""
        if not 0 <= index < self.size:
            raise UsageError(f"log {self.folder}: no entry {index}, it has {self.size}")
        return merkle.inclusion_proof(index, self.size, self._tiles.subtree)

    def consistency_proof(self, old: int) -> tuple[bytes, ...]:
        """The proof that the checkpoint extends size ``old``, 0 < ``old`` <= ``size``."""
        if not 0 < old <= self.size:
            raise UsageError(f"log {self.folder}: no size {old}, it has {self.size} entries")
        return merkle.consistency_proof(old, self.size, self._tiles.subtree)

    def receipt(self, index: int) -> bytes:
        """The receipt of entry ``index`` under the checkpoint. Raises ``UsageError``."""
        from kvg.log.receipts import Receipt, encode_receipt

        proof = self.inclusion_proof(index)
        return encode_receipt(Receipt(index, proof, self._checkpoint, self._note))

    @property
    def cosigned(self) -> bytes:
        """The newest checkpoint that witnesses cosigned; empty when none did.

        It is signed by the key that the log had at its size, and this log extends it. Raises
        ``Corrupt``, ``Untrusted``.
        """
        return self.open_word(COSIGNED)

    def word_of(self, name: str, key_hash: bytes) -> bytes:
        """As ``cosigned``, the newest checkpoint that one witness cosigned, with its line alone."""
        return self.open_word(word_name(name, key_hash))

    def word_names(self) -> tuple[str, ...]:
        """The files of the words that are kept, ascending; what has no name of one is none."""
        names = durable.names_in(self.folder / WITNESSED)
        return tuple(f"{WITNESSED}/{name}" for name in names if _is_word(name))

    def open_word(self, name: str) -> bytes:
        """As ``cosigned``, by the name of the file. Raises ``Corrupt``, ``Untrusted``."""
        data = self._source.read(name, MAX_CHECKPOINT_SIZE)
        if data is None:
            return b""
        what = f"log {self.folder}/{name}"
        found = rekeys.open_then(self, data, what=what)
        if not self.is_extension_of(found.size, found.root):
            raise Untrusted(f"{what}: not a checkpoint of this log", hint="kvg fsck")
        return data

    def add_cosignatures(self, note: bytes, signatures: Sequence[NoteSignature]) -> None:
        """Keep the witnesses' ``signatures``, checked by the caller, on the checkpoint ``note``.

        ``note`` is this log's present checkpoint or an older one. Call it under the store's lock.
        Raises ``Untrusted`` when this log does not extend it.
        """
        self.refresh()
        what = f"log {self.folder}: cosigned checkpoint"
        found = rekeys.open_then(self, note, what=what)
        if not self.is_extension_of(found.size, found.root):
            raise Untrusted(f"{what}: size {found.size} is not of this log")
        is_present = found == self._checkpoint
        base = self._note if is_present else note
        kept = _with_signatures(base, signatures)
        known = self.cosigned
        for said, lines in ((known, self._words_in(known)), (base, signatures)):
            for line in lines:
                self._keep_word(said, line)
        if known and parse_checkpoint(known, what=what).size > found.size:
            return
        durable.replace(self.folder / COSIGNED, [kept], staging=self._staging)
        if is_present:
            durable.replace(self.folder / CHECKPOINT, [kept], staging=self._staging)
            self._set(kept, found)

    def _words_in(self, note: bytes) -> Sequence[NoteSignature]:
        """The lines of witnesses on ``note``; none on an empty one."""
        lines = parse_note(note, what=COSIGNED).signatures if note else ()
        return [line for line in lines if line.name != self.origin]

    def _keep_word(self, note: bytes, line: NoteSignature) -> None:
        """Keep the witness's ``line`` on ``note``, unless there is one on a later checkpoint."""
        name = word_name(line.name, line.key_hash)
        said = parse_checkpoint(note, what=name)
        with suppress(Corrupt, Untrusted):
            if parse_checkpoint(self.open_word(name), what=name).size > said.size:
                return
        word = without_witnesses(note, self.origin, what=name) + encode_signature(line)
        durable.replace(self.folder / name, [word], staging=self._staging)

    @property
    def source(self) -> FolderSource:
        """The log's files."""
        return self._source

    def rekey(self, entry: bytes, old: PrivateKey, new: PrivateKey) -> int:
        """Append ``entry``, a ``rekey`` that names ``new``, signed by both; ``new`` signs from now.

        Returns its index. Cut short at any point, ``finish_rekey`` completes it, or it never was.
        """
        self._check_key(old)
        self.refresh()
        first = self.size
        self._write_bundles([entry])
        edge = self._write_tiles([merkle.leaf_hash(entry)])
        checkpoint = Checkpoint(self.origin, first + 1, tiles.edge_root(edge))
        note = sign_checkpoint(checkpoint, old, new)
        durable.make_dir(self.folder / rekeys.FOLDER)
        line = rekeys.first_line(self)
        if line is not None:
            durable.replace(self.folder / rekeys.FIRST, [line], staging=self._staging)
        path = self.folder / rekeys.file_name(checkpoint.size)
        durable.replace(path, [note], staging=self._staging)
        durable.replace(self.folder / CHECKPOINT, [note], staging=self._staging)
        self._set(note, checkpoint)
        self.finish_rekey()
        return first

    def finish_rekey(self) -> None:
        """Bring the key of a ``rekey`` that is the log's last entry into force."""
        new = rekeys.pending_key(self)
        if new is None:
            return
        line = encode_verifier(self.origin, new) + "\n"
        durable.replace(self.folder / VERIFIER, [line.encode("utf-8")], staging=self._staging)
        self.verifier = new

    def _check_key(self, key: PrivateKey) -> None:
        if key.public != self.verifier:
            raise Untrusted(
                f"log {self.folder}: key {key.public.keyid} is not its key",
                hint=f"the log of {self.origin} is signed by {self.verifier.keyid}",
            )

    def append(self, entries: Sequence[Buffer], key: PrivateKey) -> int:
        """Append ``entries``, signed by the log's ``key``; returns the index of the first.

        All of them or none: after a crash at any point the log is what it was before or what
        it is after. Raises ``Untrusted`` on another key, ``UsageError`` on an entry of 64 KiB
        or more.
        """
        self._check_key(key)
        from kvg.log.entry import MAX_ENTRY_SIZE

        self.refresh()
        new = [bytes(entry) for entry in entries]
        for entry in new:
            if len(entry) > MAX_ENTRY_SIZE:
                raise UsageError(f"log entry of {len(entry)} bytes: at most {MAX_ENTRY_SIZE}")
        first = self.size
        if new:
            self._write_bundles(new)
            edge = self._write_tiles([merkle.leaf_hash(entry) for entry in new])
            self._publish(Checkpoint(self.origin, first + len(new), tiles.edge_root(edge)), key)
            self._tidy(first)
        return first

    def check(self) -> None:
        """Recompute the whole log from its entries and compare every file with it.

        Raises ``Corrupt`` naming the first file that is wrong. Constant memory.
        """
        for fault in self.faults():
            raise fault

    def faults(self) -> Iterator[Corrupt | Untrusted]:
        """As ``check``, but goes on: every file that is wrong, named, in the order of the log."""
        frontier, view = merkle.Frontier(), self._tiles
        try:
            view.edge()
        except Corrupt as error:
            yield error
            return
        is_whole, rekeyed = True, list[int]()
        for bundle in range(-(-self.size // WIDTH)):
            try:
                entries = view.bundle(bundle)
            except Corrupt as error:
                is_whole = False
                yield error
                continue
            for size, entry in enumerate(entries, bundle * WIDTH + 1):
                frontier.append(merkle.leaf_hash(entry))
                if rekeys.MARK in entry:
                    rekeyed.append(size)
            yield from view.partial_bundle_faults(bundle, entries)
        if is_whole and frontier.root() != self.root:
            yield Corrupt(f"log {self.folder}: {CHECKPOINT}: not the root of its entries")
        for level, index in _all_tiles(self.size):
            yield from view.partial_faults(level, index)
        if is_whole:
            yield from rekeys.faults(self, rekeyed)

    def _open(self, note: bytes) -> Checkpoint:
        what = f"log {self.folder}: {CHECKPOINT}"
        return open_checkpoint(note, origin=self.origin, verifier=self.verifier, what=what)

    def _set(self, note: bytes, checkpoint: Checkpoint) -> None:
        self._note = note
        self._checkpoint = checkpoint
        self._tiles = Tiles(self._source, checkpoint.size, checkpoint.root)

    def _write_bundles(self, new: Sequence[bytes]) -> None:
        index, width = divmod(self.size, WIDTH)
        pending = [*(self._tiles.bundle(index) if width else ()), *new]
        for start in range(0, len(pending), WIDTH):
            chunk = pending[start : start + WIDTH]
            self._write(tiles.bundle_name(index), tiles.encode_bundle(chunk), len(chunk), width)
            index, width = index + 1, 0

    def _write_tiles(self, leaves: Sequence[bytes]) -> list[bytes]:
        """Write every tile that ``leaves`` fill or widen; returns the new right edge."""
        edge = list(self._tiles.edge())
        hashes, level = leaves, 0
        while hashes:
            if level == len(edge):
                edge.append(b"")
            index, width = divmod(self.size >> (tiles.HEIGHT * level), WIDTH)
            data = b"".join((edge[level], *hashes))
            hashes, edge[level] = [], b""
            for start in range(0, len(data), WIDTH * HASH_SIZE):
                chunk = data[start : start + WIDTH * HASH_SIZE]
                n_hashes = len(chunk) // HASH_SIZE
                self._write(tiles.tile_name(level, index), chunk, n_hashes, width)
                if n_hashes == WIDTH:
                    hashes.append(tiles.tile_root(chunk))
                else:
                    edge[level] = chunk
                index, width = index + 1, 0
            level += 1
        return edge

    def _write(self, name: str, data: bytes, width: int, committed: int) -> None:
        """Write ``name`` at ``width``, once nothing of a crashed append is left beside it.

        ``committed`` is its width under the checkpoint: whatever is wider never happened.
        """
        for stale in self._source.widths(name):
            if stale > committed:
                durable.remove(self.folder / tiles.file_name(name, stale))
        if width < WIDTH and (self.folder / name).exists():
            durable.remove(self.folder / name)
        path = self.folder / tiles.file_name(name, width)
        durable.replace(path, [data], staging=self._staging, mode=0o444)

    def _publish(self, checkpoint: Checkpoint, key: PrivateKey) -> None:
        note = sign_checkpoint(checkpoint, key)
        durable.replace(self.folder / CHECKPOINT, [note], staging=self._staging)
        self._set(note, checkpoint)

    def _tidy(self, old_size: int) -> None:
        """Remove partial tiles that no recent reader needs; what fails is left for next time."""
        try:
            index = old_size // WIDTH
            self._tidy_name(tiles.bundle_name(index), tiles.width_of(0, index, self.size))
            for level in range(len(self._tiles.edge())):
                index = (old_size >> (tiles.HEIGHT * level)) // WIDTH
                width = tiles.width_of(level, index, self.size)
                self._tidy_name(tiles.tile_name(level, index), width)
        except KvgError:
            return

    def _tidy_name(self, name: str, width: int) -> None:
        widths = self._source.widths(name)
        if width < WIDTH and len(widths) < _TIDY_AT:
            return
        for old in widths if width == WIDTH else widths[:-KEPT_PARTIALS]:
            durable.remove(self.folder / tiles.file_name(name, old))


def word_name(name: str, key_hash: bytes) -> str:
    """The file for the word of the witness ``name`` with that key."""
    return f"{WITNESSED}/{sha256_bytes(name.encode('utf-8') + key_hash).hex()[:32]}"


def _is_word(name: str) -> bool:
    return len(name) == 32 and not set(name) - set("0123456789abcdef")


def _with_signatures(note: bytes, signatures: Sequence[NoteSignature]) -> bytes:
    """``note`` with ``signatures`` in place of earlier ones by the same keys."""
    parsed = parse_note(note, what=COSIGNED)
    new = {(item.name, item.key_hash) for item in signatures}
    kept = [item for item in parsed.signatures if (item.name, item.key_hash) not in new]
    lines = b"".join(map(encode_signature, (*kept, *signatures)))
    return parsed.text.encode("utf-8") + b"\n" + lines


def _all_tiles(size: int) -> Iterator[tuple[int, int]]:
    """(level, index) of every hash tile of a tree of ``size``."""
    level = 0
    while size:
        for index in range(-(-size // WIDTH)):
            yield level, index
        size, level = size // WIDTH, level + 1


def _read(source: FolderSource, name: str, limit: int) -> bytes:
    data = source.read(name, limit)
    if data is None:
        raise Corrupt(f"log {source}: {name}: missing", hint="kvg fsck")
    if len(data) > limit:
        raise Corrupt(f"log {source}: {name}: too large", hint="kvg fsck")
    return data
