"""A store: where it lies, how it is opened, and what can be asked of it and done with it.

Layout: ``format``, ``config.toml``, ``objects/``, ``log/``, ``peers/``, ``trust.json``,
``index.lmdb/``, ``tmp/``, ``reserve/``, ``lock``. Files are the truth; the index is a cache. Order
of a writer, each durable before the next: pages and tokens, manifest, envelopes, log, index.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from kvg import durable
from kvg.digest import Digest, raw_of, sha256_bytes, short
from kvg.errors import (
    Corrupt,
    Incompatible,
    NotFound,
    Unreadable,
    Untrusted,
    UsageError,
)
from kvg.frozen import frozen
from kvg.locking import Lock
from kvg.store import refs as folded
from kvg.store import tables as t
from kvg.store.config import Config
from kvg.store.expectation import ANY
from kvg.store.index import Index, check_not_back
from kvg.store.layout import (
    CONFIG_FILE,
    EXCHANGE_LOCK,
    FOLDER,
    GROUP,
    LOG_KEY,
    QUARANTINE,
    REMOTES,
    SHARED_KEY,
    check_not_bereft,
    has_format,
    make,
    share,
)
from kvg.store.names import check_ref_name
from kvg.store.objects import ObjectFolder
from kvg.store.quota import QUOTA_KEY, Quota

if TYPE_CHECKING:
    from pathlib import Path

    from kvg.log.entry import Entry
    from kvg.log.log import Log
    from kvg.objects.manifest import Manifest
    from kvg.report import Report
    from kvg.signing.keys import PrivateKey, PublicKey
    from kvg.store.expectation import Expectation
    from kvg.store.fold import FamilyClaim, Rejection
    from kvg.store.outline import Outline
    from kvg.store.peers import Peers
    from kvg.store.pending import Pending
    from kvg.store.publish import Published, RefMove
    from kvg.store.refs import LoggedAttestation, Member, Move
    from kvg.store.reserve import Reserve
    from kvg.store.tables import Tables
    from kvg.trust import Keyring, TrustFile

CODEC_KEY = "store.codec"
MANIFEST_LIMIT_BYTES = 64 << 20
TOKENS_LIMIT_BYTES = 256 << 20
LATE_BYTES = 1 << 20
"""Received objects up to this long are synced together, before they are part of the store."""


@frozen
class Resolved:
    """What a person meant: a digest, and the name by which it was found, if it was one."""

    ref: str | None
    digest: Digest


class Store:
    """One store. Made by ``init``, ``open`` and ``find``; cheap until something is asked of it."""

    def __init__(
        self,
        root: Path,
        *,
        lock_wait: float | None = None,
        keyring: Keyring | None = None,
        report: Report | None = None,
        is_damaged: bool = False,
    ) -> None:
        """Use ``open``: this does not look whether there is a store.

        ``is_damaged``: a configuration that can't be read is taken as an empty one with a fault.
        """
        self.root = root
        self.keyring = keyring
        self.staging = root / "tmp"
        self.lock = Lock(root / "lock", wait_s=lock_wait, report=report)
        self.config = Config(
            root / CONFIG_FILE, staging=self.staging, lock=self.lock, is_damaged=is_damaged
        )
        if self.is_shared:
            durable.share(root)
        self.quota = Quota(root, limit=self._quota, origin=lambda: self.origin)
        self.objects = ObjectFolder(
            root / "objects",
            staging=self.staging,
            lock=self.lock,
            codec=self._codec,
            quota=self.quota,
        )
        self.index = Index(
            root / "index.lmdb",
            staging=self.staging,
            lock=self.lock,
            log=lambda: self.log,
            read=self._read_artifact,
            claim=self._read_claim,
        )
        self.exchange = Lock(root / EXCHANGE_LOCK, wait_s=lock_wait, report=report)
        """Held by one fetch or push at a time."""
        self.supply: Callable[[Manifest, str], None] = lambda *_: None
        """Brings the pages of an artifact that are not here, where ``is_partial``."""
        self._log: Log | None = None
        self._seen: tuple[int, bytes] = (0, b"")

    # ------------------------------------------------------------------ making and finding one

    @staticmethod
    def init(
        path: Path,
        *,
        keyring: Keyring,
        bare: bool = False,
        shared: bool = False,
        lock_wait: float | None = None,
        report: Report | None = None,
    ) -> Store:
        """Make a store in ``path/.kvg``, or in ``path`` itself when ``bare``; again is harmless.

        Makes the log's key in ``keyring``. An interrupted one is finished by the next. ``shared``
        lets the group of the folder read and write it, also one that is there already.
        """
        root = path if bare else path / FOLDER
        is_new = not has_format(root)
        if is_new:
            make(root, keyring, shared=shared)
        store = Store.open(root, lock_wait=lock_wait, keyring=keyring, report=report)
        if shared and not is_new:
            share(root, store.config)
        return store

    @staticmethod
    def open(
        root: Path,
        *,
        lock_wait: float | None = None,
        keyring: Keyring | None = None,
        report: Report | None = None,
    ) -> Store:
        """The store whose folder is ``root`` (or ``root/.kvg``).

        Raises ``NotFound`` where there is none, ``Incompatible`` for another format version,
        ``Corrupt`` for one without its format line.
        """
        if not has_format(root):
            if not has_format(root / FOLDER):
                check_not_bereft(root)
                check_not_bereft(root / FOLDER)
                raise NotFound(f"{root}: not a store", hint=f"kvg init {root}")
            root = root / FOLDER
        return Store(root, lock_wait=lock_wait, keyring=keyring, report=report)

    @staticmethod
    def find(
        start: Path,
        *,
        lock_wait: float | None = None,
        keyring: Keyring | None = None,
        report: Report | None = None,
    ) -> Store:
        """The nearest store from ``start`` upward: a folder ``.kvg``, or a bare store.

        Raises ``NotFound``, ``Corrupt`` where that has lost its format line.
        """
        absolute = start.absolute()
        for folder in (absolute, *absolute.parents):
            for root in (folder / FOLDER, folder):
                if has_format(root):
                    return Store(root, lock_wait=lock_wait, keyring=keyring, report=report)
                check_not_bereft(root)
        raise NotFound(f"no store in {start} or above it", hint="kvg init")

    # ------------------------------------------------------------------------------- what it has

    @property
    def is_shared(self) -> bool:
        """Whether the group may read and write the store's files."""
        return self.config.get(SHARED_KEY) == GROUP

    @property
    def reserve(self) -> Reserve:
        """Room that is held back for what lets something go."""
        from kvg.store.reserve import Reserve

        return Reserve(self.root)

    @property
    def log(self) -> Log:
        """The log as its newest checkpoint says it is.

        Raises ``Corrupt``, and ``Untrusted`` when it is not the log that this store was made with.
        """
        from kvg.log.log import Log

        folder = self.root / "log"
        if self._log is not None and self._log.size == self._seen[0] and self._log.is_newest():
            return self._log
        if not folder.is_dir():
            raise Corrupt(
                f"log {folder}: missing",
                hint="put it back from a copy of the store; kvg clone takes anew what was pushed",
            )
        verifier = self.pinned_key()
        seen, folded = None, None
        if self._log is None:  # before the log, which grows
            seen, folded = self._read_seen(), self.index.recorded()
        log = Log.open(folder, verifier=verifier, staging=self.staging)
        if self._log is not None and not log.is_extension_of(*self._seen):
            raise Untrusted(
                f"log {folder}: rolled back or forked while it was in use",
                hint="restore the newer log from a copy of the store",
            )
        if self._log is None:
            self._check_seen(log, seen)
            if folded is not None:
                check_not_back(log, folded)
        elif log.size > self._seen[0]:
            self._keep_seen(log)
        self._log = log
        self._seen = (log.size, log.root)
        return log

    def _read_seen(self) -> bytes | None:
        """The newest checkpoint of this log that this user saw in earlier runs."""
        origin = self.origin
        return None if self.keyring is None or not origin else self.keyring.seen_checkpoint(origin)

    @property
    def origin(self) -> str | None:
        """The name of this store's log as it is pinned, if the keyring can know it."""
        from kvg.signing.note import parse_verifier
        from kvg.trust.keyring import is_key_name

        try:
            origin = parse_verifier(self.config.text(LOG_KEY) or "", what=LOG_KEY)[0]
        except Corrupt:
            return None  # which whoever needs the log is told
        return origin if is_key_name(origin) else None

    def _check_seen(self, log: Log, note: bytes | None) -> None:
        """Raise ``Untrusted`` unless ``log`` extends the checkpoint ``note`` seen earlier."""
        from kvg.log.checkpoint import parse_checkpoint

        if self.keyring is None or note is None:
            if log.size:
                self._keep_seen(log)
            return
        path = self.keyring.seen_path(log.origin)
        seen = parse_checkpoint(note, what=str(path))
        if seen.size > log.size:
            raise Untrusted(
                f"log {log.folder}: rolled back from size {seen.size}, which was seen here, "
                f"to {log.size}",
                hint=f"restore the newer log; if an older copy is what you want, remove {path}",
            )
        if not log.is_extension_of(seen.size, seen.root):
            raise Untrusted(
                f"log {log.folder}: forked at or before size {seen.size}, which was seen here",
                hint="restore the log that was seen from a copy of the store",
            )
        if log.size > seen.size:
            self._keep_seen(log)

    def _keep_seen(self, log: Log) -> None:
        from kvg.trust.keyring import is_key_name

        if self.keyring is not None and is_key_name(log.origin):
            self.keyring.keep_checkpoint(log.origin, log.note)

    @property
    def trust(self) -> TrustFile:
        """Whose keys count: the newest version that the log names; version 0 when there is none.

        Raises ``Untrusted`` when ``trust.json`` was changed by anything but a signed version.
        """
        from kvg.store import trusted

        return trusted.read_trust(self)

    @property
    def peers(self) -> Peers:
        """The logs of other publishers, as last seen."""
        from kvg.store.peers import Peers

        return Peers(self.root, staging=self.staging, own=self.origin or "", keyring=self.keyring)

    @property
    def quarantine(self) -> ObjectFolder:
        """Objects that were received and checked one by one, and are not part of the store yet."""
        return ObjectFolder(
            self.staging / QUARANTINE,
            staging=self.staging,
            lock=self.lock,
            codec=self._codec,
            quota=self.quota,
            is_named_for_good=False,
            late_bytes=LATE_BYTES,
        )

    def is_tracking(self, name: str) -> bool:
        """Whether ``name`` says what a remote had, as ``origin/handbook``, and is not one's own."""
        remote, slash, _ = name.partition("/")
        return bool(slash) and remote in self.config.names("remote")

    def check_own_name(self, name: str) -> None:
        """Raise ``UsageError`` unless ``name`` may be that of a ref of one's own: what goes under a
        remote's name says what that had, and goes once it has it no more."""
        check_ref_name(name)
        if self.is_tracking(name):
            remote = name.partition("/")[0]
            raise UsageError(
                f"{name}: would say what the remote {remote} had",
                hint=f"give it a name that does not begin with {remote}/",
            )

    def own_refs(self) -> Mapping[str, Digest]:
        """The refs that stand, by name, without those that tell what remotes had."""
        refs = self.refs()
        return {name: refs[name] for name in self.own_names(refs)}

    def own_names(self, names: Iterable[str]) -> Iterator[str]:
        """Those of ``names`` that are one's own: see ``is_tracking``."""
        remotes = frozenset(self.config.names("remote"))
        return (name for name in names if "/" not in name or name.partition("/")[0] not in remotes)

    def log_key(self) -> PrivateKey:
        """The key that signs this store's log. Raises ``NotFound`` when it was not made here."""
        origin = self.log.origin
        if self.keyring is None:
            raise NotFound(f"no keys at hand for the log {origin}")
        return self.keyring.log_key(origin, self.log.verifier)

    def refs(self) -> Mapping[str, Digest]:
        """Every ref that stands, by name."""
        values = self.index.query(lambda tables: tuple(folded.all_refs(tables)))
        return {value.name: value.digest for value in values if value.digest is not None}

    def moves(self) -> Mapping[str, int]:
        """How often every ref that ever was has moved, by name."""
        values = self.index.query(lambda tables: tuple(folded.all_refs(tables)))
        return {value.name: value.moves for value in values}

    def ref(self, name: str) -> Digest | None:
        """What ``name`` is now, None when it is no ref."""
        value = self.index.query(lambda tables: folded.ref_value(tables, name))
        return value.digest if value else None

    def refs_of(self, digest: Digest) -> tuple[str, ...]:
        """The refs that stand for ``digest``, by name."""
        return tuple(name for name, value in self.refs().items() if value == digest)

    def newest_moves(self) -> Mapping[str, Move]:
        """The newest move of every ref that ever was, by name."""
        return self.index.query(lambda tables: dict(folded.newest_moves(tables)))

    def history(self, name: str) -> tuple[Move, ...]:
        """Every move of a ref, the newest first. Raises ``NotFound``."""
        moves = self.index.query(lambda tables: folded.history(tables, name))
        if not moves:
            raise self._no_ref(name)
        return moves

    def resolve(self, text: str) -> Resolved:
        """What ``REF``, ``REF@{n}``, ``sha256:…`` or 6 or more hex digits mean. A ref goes first.

        Raises ``NotFound``, and ``UsageError`` when it can't be a name or means several objects.
        """
        from kvg.store.names import is_ref_name, parse_digest_prefix, parse_ref_at

        is_past = "@{" in text
        if is_past or is_ref_name(text):
            at = parse_ref_at(text)
            move = self.index.query(lambda tables: folded.past_move(tables, at.name, at.back))
            if move is not None and move.digest is not None:
                return Resolved(str(at), move.digest)
        digits = None if is_past else parse_digest_prefix(text)
        if digits is None:
            parse_ref_at(text)
            raise self._no_ref(text)
        return Resolved(None, self._resolve_digest(digits))

    def _resolve_digest(self, digits: str) -> Digest:
        """Artifacts go before other objects that begin alike."""
        even = bytes.fromhex(digits[: len(digits) // 2 * 2])

        def ask(tables: Tables) -> tuple[Digest, ...]:
            wanted = f"sha256:{digits}"
            return tuple(d for d in folded.subjects(tables, even) if d.startswith(wanted))

        found = self.index.query(ask)
        return found[0] if len(found) == 1 else self.objects.resolve(digits)

    def _no_ref(self, name: str) -> NotFound:
        import difflib

        near = difflib.get_close_matches(name, list(self.refs()), n=1)
        hint = f"did you mean {near[0]}?" if near else "kvg ls"
        return NotFound(f"{name}: no such ref", hint=hint)

    def outlines(self, wanted: Mapping[str, Digest]) -> Iterator[tuple[str, Outline]]:
        """(name, outline) of each artifact, by its name in ``wanted``, in that order.

        A hint: the index tells it where the object is there. Raises as ``manifest`` does.
        """
        from kvg.store.outline import decode_outline, outline_of

        rows = self.index.query(
            lambda tables: {
                digest: tables.get(t.OUTLINES, raw_of(digest)) for digest in set(wanted.values())
            }
        )
        for name, digest in wanted.items():
            row = rows[digest] if self.objects.has(digest) else None
            if row is None:
                yield name, outline_of(self.manifest(digest, what=name))
            else:
                yield name, decode_outline(row)

    def manifest(self, digest: Digest, *, what: str | None = None) -> Manifest:
        """The manifest ``digest``, its bytes checked. Raises ``Corrupt``, ``Incompatible``."""
        return self.sized_manifest(digest, what=what or short(digest))[0]

    def sized_manifest(self, digest: Digest, *, what: str) -> tuple[Manifest, int]:
        """As ``manifest``, and how many bytes it has."""
        from kvg.objects.manifest import parse_manifest

        raw = self.objects.read(digest, what=what, limit=MANIFEST_LIMIT_BYTES)
        return parse_manifest(bytes(raw), what=what), raw.nbytes

    def check_artifact(self, digest: Digest, *, what: str) -> None:
        """Raise ``NotFound`` when the object ``digest``, though sound, is no artifact's manifest.

        ``Corrupt`` when it is missing or damaged, ``Incompatible`` when its format is another.
        """
        try:
            self.manifest(digest, what=what)
        except Corrupt:
            self.objects.read(digest, what=what)
            raise NotFound(
                f"{what}: the object {short(digest)} is no artifact's manifest",
                hint="kvg ls --all lists refs, kvg log every artifact",
            ) from None

    def ids(self, manifest: Manifest, *, what: str) -> Sequence[int]:
        """The token ids of an artifact, their bytes checked. Raises ``Corrupt``."""
        from kvg.objects.tokens import decode_ids

        count = manifest.tokens.count
        raw = self.objects.read(manifest.tokens.digest, size=4 * count, what=f"{what}: token ids")
        return decode_ids(raw, what=f"{what}: token ids", count=count)

    def attestations(self, subject: Digest) -> tuple[LoggedAttestation, ...]:
        """The envelopes that the log lists for ``subject``, in the order of the log."""
        return self.index.query(lambda tables: folded.attestations(tables, subject))

    def family_members(self, family: Digest) -> tuple[Member, ...]:
        """The methods and artifacts that the log lists for ``family``. Exact, but only a hint:
        verify one before relying on it."""
        return self.index.query(lambda tables: folded.family_members(tables, family))

    def may_answer(self, family: Digest) -> bool:
        """Whether the index, as it lies, lists a method for ``family``: before the log is read, so
        only as a reason to prepare for one."""
        listed = self.index.glimpse(lambda tables: folded.family_members(tables, family))
        return any(member.is_method for member in listed or ())

    def families(self) -> tuple[Digest, ...]:
        """Every family that has a method or an artifact, ascending."""
        return self.index.query(lambda tables: tuple(folded.all_families(tables)))

    def artifacts(self) -> tuple[Digest, ...]:
        """All that has an attestation, ascending, with a ref or without: methods too, rejected
        deposits not."""
        rejected = self.rejections()
        found = self.index.query(lambda tables: tuple(folded.subjects(tables)))
        return tuple(digest for digest in found if digest not in rejected)

    def pins(self) -> frozenset[Digest]:
        """The digests that gc keeps without a ref."""
        return self._digests(t.PINS)

    def forgotten(self) -> frozenset[Digest]:
        """The artifacts whose content was removed for good."""
        return self._digests(t.FORGOTTEN)

    def preregistered(self) -> frozenset[Digest]:
        """The digests that were committed to before a run."""
        return self._digests(t.PREREGISTERED)

    def _digests(self, table: str) -> frozenset[Digest]:
        return self.index.query(
            lambda tables: frozenset(digest for digest, _ in folded.digests(tables, table))
        )

    def trust_versions(self) -> tuple[tuple[int, Digest], ...]:
        """Every version of the trust file with the digest of the object that holds it."""
        return self.index.query(folded.trust_versions)

    def logged_envelopes(self) -> tuple[tuple[Digest, Digest], ...]:
        """(subject, envelope) of every attestation that counts."""
        return self.index.query(lambda tables: tuple(folded.envelopes(tables)))

    def once_named(self) -> frozenset[Digest]:
        """Every digest that some ref stands for or once stood for."""
        return self.index.query(lambda tables: frozenset(folded.once_named(tables)))

    def methods(self) -> frozenset[Digest]:
        """Every method that the log lists for a family."""
        return self.index.query(lambda tables: frozenset(folded.all_methods(tables)))

    def rejections(self) -> frozenset[Digest]:
        """What is left of each rejected deposit: a document that names the evidence."""
        found = self.index.query(lambda tables: tuple(folded.digests(tables, t.REJECTED)))
        return frozenset(digest for digest, _ in found)

    def logged_roots(self) -> frozenset[Digest]:
        """What the log keeps: refs, pins, methods, rejections, what was preregistered, every trust
        file."""
        kept = {*self.refs().values(), *self.pins(), *self.methods(), *self.preregistered()}
        kept |= self.rejections()
        kept.update(digest for _, digest in self.trust_versions())
        return frozenset(kept)

    def live_roots(self) -> frozenset[Digest]:
        """What writers at work rely on. Call it under the exclusive lock before removing."""
        from kvg.store.pending import live_roots

        return live_roots(self.staging)

    def roots(self) -> frozenset[Digest]:
        """What gc marks from, beside the closure of it: what the log keeps, and live writers.

        Call it under the exclusive lock when something is removed after it.
        """
        return self.logged_roots() | self.live_roots()

    def find_tokens(
        self,
        model: Digest,
        engine: Digest,
        page_tokens: int,
        tokens: Digest,
        cuts: Sequence[int] = (),
    ) -> tuple[Digest, ...]:
        """Artifacts of the same computation on the same ids. A hint: verify before relying on it.

        ``tokens`` is the digest of the encoded ids; ``cuts`` are the cut points, ascending.
        """
        from kvg.store.fold import find_key

        key = find_key(model, engine, page_tokens, tokens, cuts)
        found = self.index.query(lambda tables: folded.listed(tables, t.TOKENS, key))
        return tuple(digest for digest in found if self.is_complete(digest))

    @property
    def is_partial(self) -> bool:
        """Whether pages may be absent because a remote keeps them until they are read."""
        tables = (self.config.table(REMOTES, name) for name in self.config.names(REMOTES))
        return any(table.get("pages") is False for table in tables)

    def is_complete(self, digest: Digest) -> bool:
        """Whether the artifact and all that its manifest names is there; nothing is said of bytes
        but the manifest's."""
        try:
            manifest = self.manifest(digest)
        except (Corrupt, Incompatible, Unreadable):
            return False
        needed = {manifest.tokens.digest}
        if not self.is_partial:
            needed.update(page.digest for page in manifest.pages)
        return all(map(self.objects.has, needed))

    def find_prefix(
        self, model: Digest, engine: Digest, page_tokens: int, ids: Sequence[int]
    ) -> tuple[tuple[int, Digest], ...]:
        """(tokens, artifact) of each that has whole pages for the beginning of ``ids``.

        The longest first. A hint: verify, and compare the ids, before relying on it.
        """
        from kvg.store.fold import find_prefix_keys

        keys = list(find_prefix_keys(model, engine, page_tokens, ids))

        def ask(tables: Tables) -> tuple[tuple[int, Digest], ...]:
            return tuple(
                (n, digest)
                for n, key in reversed(keys)
                for digest in folded.listed(tables, t.PREFIXES, key)
            )

        return tuple(row for row in self.index.query(ask) if self.objects.has(row[1]))

    def recall(self, key: Sequence[str | int]) -> bytes | None:
        """What was remembered under ``key``; None when nothing was, or the index was lost."""
        return self.index.recall(_cache_key(key))

    def remember(self, key: Sequence[str | int], value: bytes) -> None:
        """Cache ``value`` under ``key``, e.g. a fingerprint under path, inode, size and times."""
        self.index.remember(_cache_key(key), value)

    # ---------------------------------------------------------------------------- what is done

    def pending(self) -> AbstractContextManager[Pending]:
        """Pending roots for one piece of work: put and keep objects through it, and publish inside.

        Without it gc may take what is not yet named by the log.
        """
        from kvg.store.pending import open_pending

        return open_pending(self.objects, self.staging)

    def publish(
        self,
        entries: Sequence[Entry | RefMove],
        *,
        now: int | None = None,
        key: PrivateKey | None = None,
    ) -> Published:
        """Append to the log in one step and bring the index up to date.

        Ref moves are compare-and-swap: a ``RefEntry`` needs its ``previous``, a ``RefMove`` its
        ``expect``. What is so already (the same attestation, ref or pin) adds nothing. ``now``:
        seconds since 1970, for information only. ``key``: the log's, by default from the keyring.
        Raises ``Conflict``, ``Corrupt`` when an object named is missing, ``NotFound`` without the
        log's key, ``NoSpace``; then nothing was appended.
        """
        from kvg.store.publish import publish

        return publish(self, entries, now=_seconds(now), key=key)

    def record(
        self,
        subject: Digest,
        envelopes: Sequence[Digest],
        *,
        refs: Sequence[RefMove] = (),
        now: int | None = None,
    ) -> Published:
        """Publish ``envelopes`` (stored objects) as attestations of ``subject``, and move refs."""
        from kvg.log.entry import AttestationEntry

        at = _seconds(now)
        entries = [AttestationEntry(at, subject, envelope) for envelope in envelopes]
        return self.publish([*entries, *refs], now=at)

    def set_ref(
        self,
        name: str,
        digest: Digest | None,
        *,
        expect: Expectation = ANY,
        now: int | None = None,
    ) -> Published:
        """Move one ref, or remove it (``digest`` None). Raises ``Conflict``."""
        from kvg.store.publish import RefMove

        return self.publish([RefMove(name, digest, expect)], now=now)

    def set_pin(self, digest: Digest, on: bool, *, now: int | None = None) -> Published:
        """Keep ``digest`` from gc without a ref, or no longer."""
        from kvg.log.entry import PinEntry

        return self.publish([PinEntry(_seconds(now), digest, on)])

    def set_trust(self, trust: TrustFile, *, now: int | None = None) -> Published:
        """Make ``trust``, signed, the store's trust file. Raises ``Untrusted``, ``Conflict``."""
        from kvg.store import trusted

        return trusted.write_trust(self, trust, now=_seconds(now))

    def trust_first(self, key: PrivateKey, *, now: int | None = None) -> bool:
        """Trust ``key`` as depositor and publisher if nobody is trusted yet; whether it was so."""
        from kvg.store import trusted

        return trusted.trust_first(self, key, now=_seconds(now))

    @contextmanager
    def by_log(self) -> Iterator[Store]:
        """This store, answering from its log for the time of the block, whatever its index says."""
        from copy import copy

        from kvg.store.apart import Apart
        from kvg.store.scratch import scratch

        with scratch(self.staging) as room:
            store = copy(self)
            store.index = Apart(
                self.index, room, lock=self.lock, log=lambda: store.log, claim=self._read_claim
            )
            yield store

    def reindex(self) -> int:
        """Rebuild the index from files; returns the number of log entries folded."""
        return self.index.rebuild().size

    def close(self) -> None:
        """Close what is open. The store may be used again."""
        self.index.close()
        self._log = None

    def _codec(self) -> int:
        codec = self.config.number(CODEC_KEY, 0)
        if codec not in (0, 1, 2):
            hint = f"kvg config set {CODEC_KEY} 0, 1 or 2"
            raise UsageError(f"{CODEC_KEY} is {codec}", hint=hint)
        return codec

    def _quota(self) -> int | None:
        limit = self.config.number(QUOTA_KEY, -1)
        return None if limit < 0 else limit

    def pinned_key(self) -> PublicKey:
        """The log's key as pinned: in the configuration, and by the user's own keys.

        Raises ``Corrupt``, ``Untrusted``.

        The two are written one after the other when the key is changed, perhaps by another process
        since this one read the configuration: that they differ counts when neither moves.
        """
        seen, found = None, self._pins()
        while found != seen:
            public, own = found
            if not own or public in own:
                return public
            self.config.reread()
            seen, found = found, self._pins()
        raise Untrusted(
            f"{self.config.path}: {LOG_KEY} is not the key that {self.origin} was made with",
            hint="the log or its configuration was swapped; restore the store from a copy",
        )

    def _pins(self) -> tuple[PublicKey, tuple[PublicKey, ...]]:
        """The log's key in the configuration, and those among the user's own."""
        from kvg.signing.note import parse_verifier

        what = f"{self.config.path}: {LOG_KEY}"
        if self.config.fault is not None:
            raise Corrupt(f"{what} cannot be read", hint=f"edit {self.config.path}")
        line = self.config.text(LOG_KEY)
        if line is None:
            raise Corrupt(f"{what} is missing", hint=f"it is the line in {self.root}/log/verifier")
        origin, public = parse_verifier(line, what=what)
        return public, self.keyring.log_publics(origin) if self.keyring is not None else ()

    def _read_artifact(self, digest: Digest) -> tuple[Manifest, Sequence[int]] | None:
        try:
            manifest = self.manifest(digest)
            return manifest, self.ids(manifest, what=short(digest))
        except (Corrupt, Incompatible, Unreadable):
            return None

    def _read_claim(self, envelope: Digest) -> FamilyClaim | Rejection | None:
        """What an envelope says that is listed, before its signature is looked at."""
        from kvg.objects.statement import REJECTION_GATE, Provenance, parse_statement
        from kvg.signing.dsse import parse_envelope
        from kvg.store.fold import FamilyClaim, Rejection

        what = f"attestation {short(envelope)}"
        try:
            raw = self.objects.read(envelope, what=what, limit=MANIFEST_LIMIT_BYTES)
            payload = parse_envelope(bytes(raw), what=what).payload
            said = parse_statement(payload, what=what).predicate
        except (Corrupt, Incompatible, Unreadable):
            return None
        if isinstance(said, Provenance):
            return None if said.family is None else FamilyClaim(said.family, is_method=False)
        from kvg.problem.method import METHOD_GATE

        if said.gate == REJECTION_GATE:
            return Rejection()
        if said.gate != METHOD_GATE:
            return None
        named = (item.digest for item in said.configuration if item.name == "family")
        family = next(named, None)
        return None if family is None else FamilyClaim(family, is_method=True)


def _cache_key(key: Sequence[str | int]) -> bytes:
    from kvg import canon

    return sha256_bytes(canon.encode([str(part) for part in key]))


def _seconds(now: int | None) -> int:
    return int(time.time()) if now is None else now
