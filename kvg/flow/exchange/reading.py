"""Reading a remote: logs that extend what was seen before, and pointers that these logs prove.

A pointer counts if

- the log that it names is vouched for by enough publishers that this store trusts;
- that log's checkpoint is signed by its key and extends the one seen before: no rollback, no fork.
  One that the log kept here extends, on a remote that never showed a newer, is behind: then the
  longer log is what decides, and only what both hold counts;
- the entry it points at moves this very ref, and no later entry of that log does, or the log's
  owner signed, for this very size of it, that the ref stays there (of this store's own log, that it
  moves this ref is enough: a push that was cut is gone on with).

What is wrong with one log is told for each ref that it names; the others go on.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from kvg.digest import Digest, short
from kvg.errors import Conflict, Corrupt, Incompatible, NotFound, Untrusted
from kvg.flow.exchange.going_back import is_known, values
from kvg.flow.exchange.publishers import check_publisher, counts_at, vouching
from kvg.flow.records.findings import Finding
from kvg.frozen import frozen
from kvg.log.entry import AttestationEntry, RefEntry, parse_entry
from kvg.log.held import MAX_HELD_BYTES, held_name, open_held
from kvg.remote.layout import CHECKPOINT, MAX_REFS, PUBLISHER, VERIFIER, MalformedPointer
from kvg.report import SilentReport
from kvg.store.names import is_ref_name
from kvg.store.peers import Older, reading_copy, unexplained

if TYPE_CHECKING:
    from kvg.errors import KvgError
    from kvg.flow.exchange.places import Place
    from kvg.log.log import Log
    from kvg.log.tiles import Tiles
    from kvg.remote import Pointer, Remote
    from kvg.report import Report
    from kvg.signing.keys import PublicKey
    from kvg.store import Store
    from kvg.store.refs import Move
    from kvg.trust import TrustFile

MAX_LINE_BYTES = 1 << 16
BETWEEN_LOG_AND_POINTER_S = 0.2
"""How long to wait for a pointer that its publisher may be moving: the log goes before it."""

LOCAL_HINT = "kvg fsck"
"""What decoders say; it helps against damage in a store, not in what came from elsewhere."""

E = TypeVar("E", bound="KvgError")

REFUSED = (Conflict, Corrupt, Incompatible, NotFound, Untrusted)
"""What is told of one ref or artifact while the others go on."""


class NoValue(Untrusted):
    """A pointer that nobody can ever believe: at an entry that does not move this ref, or one that
    goes back."""

    def __init__(self, message: str, pointer: Pointer, *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.pointer = pointer


@frozen
class RemoteRef:
    """What a remote's pointer stands for, proved: its value, at ``pointer``."""

    name: str
    digest: Digest
    pointer: Pointer
    is_newest: bool = True
    """False for an earlier value that a lock file asks for."""


class ReadLog:
    """One log of a remote, read once from its beginning to its checkpoint."""

    def __init__(
        self,
        origin: str,
        tiles: Tiles,
        log: Log | None,
        *,
        size: int | None = None,
        n_there: int | None = None,
    ) -> None:
        """``size``: how much of it is read, where ``tiles`` go on (None: all of them).

        ``n_there``: how many entries the remote has, where it is behind.
        """
        self.origin = origin
        self.log = log
        """The copy that is kept; None in a dry run."""
        self.size = tiles.size if size is None else size
        self.n_there = self.size if n_there is None else n_there
        self._tiles = tiles
        self.newest: dict[str, tuple[int, Digest | None]] = {}
        self.past: dict[str, set[Digest]] = {}
        """Every value that a ref ever had in this log."""
        self.attestations: dict[Digest, list[tuple[int, Digest]]] = {}
        self.held: Mapping[str, int] | None = None
        """Where refs stay whose newest entry was not pushed, once that was read."""
        for index, raw in enumerate(tiles.entries(0, self.size)):
            self._fold(index, raw)

    @property
    def root(self) -> bytes:
        """The root over its entries."""
        return self._tiles.root

    @property
    def is_behind(self) -> bool:
        """Whether the remote has less of it than is known here."""
        return self.n_there < self.size

    def value_at(self, name: str, index: int) -> Digest | None:
        """What entry ``index`` moves ``name`` to; None where it does not, or removes it."""
        if not 0 <= index < self.size:
            return None
        (raw,) = self._tiles.entries(index, index + 1)
        entry = parse_entry(raw, what=f"log {self.origin}: entry {index}")
        return entry.digest if isinstance(entry, RefEntry) and entry.name == name else None

    def values(self, name: str, size: int | None = None) -> tuple[Digest, ...]:
        """As ``going_back.values``, of the first ``size`` entries; None: of all."""
        return values(self._tiles, self.origin, name, self.size if size is None else size)

    def _fold(self, index: int, raw: bytes) -> None:
        entry = parse_entry(raw, what=f"log {self.origin}: entry {index}")
        if isinstance(entry, AttestationEntry):
            self.attestations.setdefault(entry.subject, []).append((index, entry.envelope))
        elif isinstance(entry, RefEntry):
            self.newest[entry.name] = (index, entry.digest)
            if entry.digest is not None:
                self.past.setdefault(entry.name, set()).add(entry.digest)


class Reader:
    """What a remote holds, as far as this store has reason to believe it.

    Make it, and use it, while holding ``store.exchange``. ``keep``: take up the logs that are read;
    a dry run does not. ``trust``: whom to go by, where that is not the store's own file.
    """

    def __init__(
        self,
        store: Store,
        place: Place,
        remote: Remote,
        *,
        keep: bool,
        report: Report | None = None,
        trust: TrustFile | None = None,
    ) -> None:
        self._trust = trust or store.trust
        self._report: Report = report or SilentReport()
        self.store = store
        self.place = place
        self.remote = remote
        self._keep = keep
        self._logs: dict[str, ReadLog | KvgError] = {}
        self._origins: tuple[str, ...] | None = None
        self._vouched: dict[str, tuple[bytes, PublicKey]] = {}
        self._known: dict[str, int] = {store.log.origin: store.log.size}
        """How much of each log was known here before it was read."""
        self._seen: dict[str, Pointer | Corrupt | None] = {}
        self._own = store.log.origin
        self._own_note: bytes | None = None
        self._log_read_s = -BETWEEN_LOG_AND_POINTER_S
        """When a log was read last, by ``time.monotonic``."""

    def look(self, names: Iterable[str]) -> None:
        """Read the pointers of ``names`` in few round trips; each serves the next ``ref`` of it."""
        self._seen = dict(self.remote.pointers([name for name in names if is_ref_name(name)]))

    def _pointer(self, name: str) -> Pointer | None:
        found = self._seen.pop(name) if name in self._seen else self.remote.pointer(name)
        if isinstance(found, MalformedPointer):
            raise MalformedPointer(found.message, found.data, hint=self._way_out(name))
        if isinstance(found, Corrupt):
            raise found
        return found

    def _way_out(self, name: str) -> str:
        """What helps against a pointer that is worth nothing."""
        if self.place.is_tracked:
            return (
                f"whoever may push there puts in what it is: kvg push {self.place.name} {name}, or "
                f"takes it off: kvg push {self.place.name} --delete {name}"
            )
        return self.place.again

    def log(self, origin: str) -> ReadLog:
        """The log ``origin``, checked and read once. Raises ``Untrusted``, ``Corrupt``."""
        if origin not in self._logs:
            try:
                self._logs[origin] = self._read(origin)
            except REFUSED as error:
                self._logs[origin] = error if origin == self._own else self.blamed(error)
            if origin != self._own:
                self._log_read_s = time.monotonic()
        found = self._logs[origin]
        if isinstance(found, ReadLog):
            return found
        raise found

    def blamed(self, error: E) -> E:
        """``error``, about what was read there: what helps is not to be done here."""
        if error.hint in (None, LOCAL_HINT):
            error.hint = self.place.repair
        return error

    def _read(self, origin: str) -> ReadLog:
        own = self.store.log
        files = self.remote.log(origin)
        note = self._note(files.read(CHECKPOINT, MAX_LINE_BYTES), origin)
        if origin == own.origin:
            return ReadLog(origin, own.tiles, own, size=self.check_own(note))
        from kvg.store.peers import parse_verifier_line

        line = files.read(VERIFIER, MAX_LINE_BYTES) or b""
        key = parse_verifier_line(line, origin=origin)
        vouched = check_publisher(
            self._trust,
            files.read(PUBLISHER, MAX_LINE_BYTES),
            origin,
            key,
            where=self.place.name,
            hint=lambda note: self._first_contact(note, origin, key),
        )
        self._vouched[origin] = (vouched, key)
        peers = self.store.peers
        kept = peers.log(origin)
        self._known.setdefault(origin, 0 if kept is None else kept.size)
        self._tell_of_loss(origin)
        older = self._older(origin, line, note)
        if older is not None:
            with reading_copy():
                found = ReadLog(origin, older.log.tiles, older.log, n_there=older.size)
        elif not self._keep:
            return ReadLog(origin, peers.check(origin, line, note, files), None)
        else:
            is_new = peers.log(origin) is None
            log = peers.take(origin, line, note, files, publisher=vouched)
            if is_new:
                self._restore_receipts()
            found = ReadLog(origin, log.tiles, log)
        if self._keep and self.place.is_tracked:
            peers.note_seen(origin, note, remote=self.place.name)
        return found

    def _restore_receipts(self) -> None:
        """Those of a copy that was lost went with it."""
        from kvg.verify.receipts import lost_receipts, restore_receipts

        for _ in restore_receipts(self.store, lost_receipts(self.store)):
            pass

    def _older(self, origin: str, line: bytes, note: bytes) -> Older | None:
        if not self.place.is_tracked:
            return None  # a bundle stands for itself
        return self.store.peers.older(origin, line, note, remote=self.place.name)

    def _first_contact(self, note: bytes, origin: str, log_key: PublicKey) -> str:
        """What to do where nobody who is trusted vouches for a log: the keys that do, on offer."""
        from kvg.flow.exchange.contact import offers

        found = vouching(note, origin, log_key, offers(self.remote).values())
        if not found:
            return "get the publisher's key from its owner, then kvg trust add FILE"
        names = ", ".join(key.keyid[:12] for key in found)
        return (
            f"published by {names}: compare that with what its owner says, then "
            f"{self.place.again} --trust {found[0].keyid[:12]}"
        )

    def _tell_of_loss(self, origin: str) -> None:
        """Say so when what is kept of a log, to hold it against, is gone or has gone back."""
        kept = self.store.peers.log(origin)
        seen = self.store.peers.remembered(origin, kept)
        if seen is not None:
            self._report.warning(
                f"log {origin}: {'nothing' if kept is None else f'size {kept.size}'} of it is left "
                f"in peers, where it had size {seen.size}: held against what you saw then"
            )
        elif kept is None and any(
            ref.startswith(f"{self.place.name}/") for ref in unexplained(self.store)
        ):
            self._report.warning(
                f"log {origin}: refs of {self.place.name} came from a log of which nothing is left "
                "in peers: whether it went back cannot be told this time"
            )

    def _has_lost(self) -> bool:
        start = f"{self.place.name}/"
        return any(ref.startswith(start) for ref in unexplained(self.store))

    def _note(self, note: bytes | None, origin: str) -> bytes:
        if note is None:
            raise Corrupt(f"log {origin} on {self.place.name}: no checkpoint", hint="push again")
        return note

    def check_own(self, note: bytes) -> int:
        """The size of this store's own log there, which has to be a part of the log here.

        Raises ``Untrusted`` when this store's log went back or forked.
        """
        from kvg.log.checkpoint import open_checkpoint

        log = self.store.log
        what = f"log {log.origin} on {self.place.name}"
        there = open_checkpoint(note, origin=log.origin, verifier=self._own_key(note), what=what)
        if not log.is_extension_of(there.size, there.root):
            raise Untrusted(
                f"{what}: has {there.size} entries that this store's log, of {log.size}, does not "
                "begin with: the one here was rolled back or forked",
                hint="bring back the newer log from a copy of the store",
            )
        return there.size

    def _own_key(self, note: bytes) -> PublicKey:
        """The key that signed ``note``: this log's, or the one there that it follows from."""
        from kvg.log.rekey import follow
        from kvg.signing.note import is_note_signed, parse_note
        from kvg.store.peers import parse_verifier_line

        log = self.store.log
        parsed = parse_note(note, what=f"log {log.origin} on {self.place.name}")
        if is_note_signed(parsed, log.origin, log.verifier):
            return log.verifier
        line = self.remote.log(log.origin).read(VERIFIER, MAX_LINE_BYTES) or b""
        key = parse_verifier_line(line, origin=log.origin)
        follow(log, key)
        return key

    def ref(self, name: str) -> RemoteRef | None:
        """The ref ``name`` there, proved. Raises ``Untrusted``, ``Corrupt``."""
        pointer = self._pointer(name)
        if pointer is None:
            return None
        try:
            return self._prove(name, pointer)
        except Untrusted:
            self._let_pointers_follow()
            moved = self.remote.pointer(name)
            if moved is None or moved == pointer:
                raise
            return self._prove_moved(name, moved)

    def _let_pointers_follow(self) -> None:
        """Wait until pointers have had their time to follow the logs that were read."""
        left_s = self._log_read_s + BETWEEN_LOG_AND_POINTER_S - time.monotonic()
        if left_s > 0:
            time.sleep(left_s)

    def _prove_moved(self, name: str, pointer: Pointer) -> RemoteRef:
        """As ``_prove`` of a pointer that moved since: its log may have gone on, too."""
        try:
            return self._prove(name, pointer)
        except Untrusted:
            self._logs.pop(pointer.origin, None)
            self._own_note = None
            return self._prove(name, pointer)

    def _prove(self, name: str, pointer: Pointer) -> RemoteRef:
        found = self._prove_in_its_log(name, pointer)
        self._check_not_back(found)
        return found

    @cached_property
    def seen(self) -> Mapping[str, Digest]:
        """What each ref there was when it was last looked at."""
        return self.store.refs()

    def _check_not_back(self, found: RemoteRef) -> None:
        """Raise ``NoValue`` where the pointer is an old one again; see ``going_back``."""
        pointer, tracked = found.pointer, self.place.tracking(found.name)
        seen = self.seen.get(tracked) if self.place.is_tracked else None
        if seen in (None, found.digest) or pointer.index >= self._known.get(pointer.origin, 0):
            return
        by = self.log(pointer.origin).values(found.name, pointer.index + 1)
        others = [log.values(found.name) for log in self.counting()]
        if seen is None or is_known(seen, by, others):
            return
        raise NoValue(
            f"{tracked}: was moved back to entry {pointer.index} of log {pointer.origin}, of "
            f"{short(found.digest)}: it was {short(seen)}, of which that log knew nothing then",
            pointer,
            hint="whoever may push there puts back what it was: "
            f"kvg tag -f {found.name} {tracked}, then kvg push {self.place.name} {found.name}",
        )

    def counting(self) -> Iterator[ReadLog]:
        """Every log there that is vouched for, and sound."""
        if self._origins is None:
            self._origins = self.remote.origins()
        for origin in sorted({*self._origins, *self._logs}):
            try:
                yield self.log(origin)
            except REFUSED:
                continue  # it is told of where a pointer needs it

    def _prove_in_its_log(self, name: str, pointer: Pointer) -> RemoteRef:
        what = f"{self.place.tracking(name)}"
        if pointer.origin == self._own:
            return RemoteRef(name, self._own_value(name, pointer), pointer)
        read = self.log(pointer.origin)
        index, digest = read.newest.get(name, (-1, None))
        if index > pointer.index == self._held(read).get(name):
            index, digest = pointer.index, read.value_at(name, pointer.index)
        if index != pointer.index or digest is None or index >= read.n_there:
            is_value = pointer.index >= read.size or read.value_at(name, pointer.index) is not None
            if not is_value:
                raise NoValue(
                    f"{what}: points at entry {pointer.index} of log {pointer.origin}, which is no "
                    "value of it",
                    pointer,
                    hint=self._way_out(name),
                )
            if read.is_behind:
                raise self._behind(what, pointer, read, index)
            raise Untrusted(
                f"{what}: points at entry {pointer.index} of log {pointer.origin}, whose newest of "
                f"this name is {index if index >= 0 else 'none'}",
                hint="if its publisher's push was cut short, its next kvg push mends this; nothing "
                "here changed. Else the pointer was moved by another hand: ask the publisher",
            )
        vouched = self._vouched.get(pointer.origin)
        if vouched is not None and not counts_at(
            self._trust, vouched[0], pointer.origin, vouched[1], index
        ):
            raise Untrusted(
                f"{what}: its publisher's key is revoked since before entry {index}",
                hint="kvg trust list",
            )
        return RemoteRef(name, digest, pointer)

    def _behind(self, what: str, pointer: Pointer, read: ReadLog, newest: int) -> Untrusted:
        name = self.place.name
        return Untrusted(
            f"{what}: {name} is behind: it has {read.n_there} entries of log {read.origin}, and "
            f"{read.size} are known here; it points at entry {pointer.index}, and the newest of "
            f"this name is {newest}",
            hint=f"its publisher brings {name} up to date with kvg push; nothing here changed",
        )

    def _held(self, read: ReadLog) -> Mapping[str, int]:
        """Which refs the owner of a log has moved in it and not pushed, and where they stay.

        None where the remote is behind: its owner signed that for another size.
        """
        if read.is_behind:
            return {}
        if read.held is None:
            files = self.remote.log(read.origin)
            note = files.read(held_name(read.size), MAX_HELD_BYTES)
            what = f"log {read.origin} on {self.place.name}: {held_name(read.size)}"
            key = self._vouched[read.origin][1]
            read.held = (
                {}
                if note is None
                else open_held(note, read.origin, read.size, read.root, key, what=what)
            )
        return read.held

    def _own_value(self, name: str, pointer: Pointer) -> Digest:
        """What this store's own log says at ``pointer``: behind the newest where a push was cut."""
        self._check_own_there()
        move: Move | None = self.newest.get(name)
        if move is not None and move.index != pointer.index:
            moves = self.store.history(name)
            move = next((item for item in moves if item.index == pointer.index), None)
        if move is None or move.digest is None:
            raise NoValue(
                f"{self.place.tracking(name)}: points at entry {pointer.index} of this store's "
                "log, which is no value of it: it was moved by another hand",
                pointer,
                hint=self._way_out(name),
            )
        return move.digest

    def _check_own_there(self) -> None:
        """This store's log there is a part of the one here; looked at once."""
        if self._own_note is None:
            note = self.remote.log(self.store.log.origin).read(CHECKPOINT, MAX_LINE_BYTES)
            self.check_own(self._note(note, self.store.log.origin))
            self._own_note = note
            self._log_read_s = time.monotonic()

    @cached_property
    def newest(self) -> Mapping[str, Move]:
        """The newest moves of this store's own refs, read once."""
        return self.store.newest_moves()

    def refs(self, names: Iterable[str] | None = None) -> Iterator[RemoteRef | Finding]:
        """Each ref of ``names`` (None: all there), proved, or what is wrong with it.

        All are proved before the first is given, so that the wait for pointers that may be moving
        is one for all of them.
        """
        chosen = tuple(self.remote.refs() if names is None else names)
        if len(chosen) > MAX_REFS:
            raise Corrupt(f"{self.place.name}: {len(chosen):,} refs, more than {MAX_REFS:,}")
        self.look(chosen)
        found: dict[str, RemoteRef | KvgError] = {}
        doubted: dict[str, Pointer] = {}
        for name in chosen:
            try:
                found[name] = self._first_look(name, doubted)
            except REFUSED as error:
                found[name] = error
        found.update(self._looked_at_again(doubted))
        for name in chosen:
            item = found[name]
            yield item if isinstance(item, RemoteRef) else told(item, name[:80])

    def _first_look(self, name: str, doubted: dict[str, Pointer]) -> RemoteRef:
        """``name``, proved; its pointer is noted among the ``doubted`` where it can't be yet."""
        if not is_ref_name(name):
            raise Corrupt(f"{self.place.name}: {name[:80]!r} is no ref")
        pointer = self._pointer(name)
        if pointer is None:
            raise NotFound(f"{name}: not on {self.place.name}", hint=self.place.look)
        try:
            return self._prove(name, pointer)
        except Untrusted:
            doubted[name] = pointer
            raise

    def _looked_at_again(
        self, doubted: Mapping[str, Pointer]
    ) -> Iterator[tuple[str, RemoteRef | KvgError]]:
        """Those of the pointers ``doubted`` that have moved since, once they had the time to."""
        if not doubted:
            return
        self._let_pointers_follow()
        for name, moved in self.remote.pointers(tuple(doubted)).items():
            if moved is None or isinstance(moved, Corrupt) or moved == doubted[name]:
                continue
            try:
                yield name, self._prove_moved(name, moved)
            except REFUSED as error:
                yield name, error

    def at(self, ref: RemoteRef, digest: Digest) -> RemoteRef:
        """The value ``digest`` of ``ref``, which its log must know. Raises ``Conflict``."""
        if ref.digest == digest:
            return ref
        if digest not in self.log(ref.pointer.origin).past.get(ref.name, ()):
            raise Conflict(
                f"{ref.name}: the lock file says {short(digest)}, {self.place.name} never did",
                hint=f"if {short(ref.digest)} is meant: kvg pull, then kvg lock {ref.name}",
            )
        return RemoteRef(ref.name, digest, ref.pointer, is_newest=False)

    def attestations(self, digest: Digest) -> tuple[tuple[str, int, Digest], ...]:
        """(log, position, envelope) of what every log there that counts says of an artifact.

        Which logs are there is asked once; one that came since counts once a pointer led to it.
        """
        return tuple(
            (log.origin, index, envelope)
            for log in self.counting()
            for index, envelope in log.attestations.get(digest, ())
        )


def told(error: KvgError, name: str) -> Finding:
    """``error`` as a finding about ``name``."""
    return Finding(error.code, error.kind, name, error.message, error.hint)
