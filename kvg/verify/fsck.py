"""The check of a whole store: every file against every other, without a model.

In this order, never stopping at a fault:

- the index's file as such, looked at before anything maps it;
- the log, recomputed from its entries, and every version of the trust file;
- the copies of other publishers' logs; in a store that is a remote, too, the logs, pointers and
  keys that others pushed, and what those pointers stand for;
- the index's tables against the log and the objects;
- what each ref, pin, method and attestation needs: that it is there, and by SHA-256 and BLAKE3 what
  it was (an artifact without a name may be half gone: gc takes the rest);
- every other object, whether something needs it or not, and what in the folder is no object.

What it does **not** say: whether signatures suffice (``kvg verify``), and whether pages are true
(``kvg replay``). With ``repair``, bad objects are moved into ``lost-found`` and the index is
rebuilt; nothing is deleted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from kvg.digest import Digest, raw_of, sha256_bytes, short
from kvg.errors import Corrupt, KvgError, NotFound, Untrusted
from kvg.frozen import frozen
from kvg.store.closure import idle_pins
from kvg.store.layout import FORGOTTEN, LOST_FOUND
from kvg.store.scratch import Seen, scratch
from kvg.store.sweep import Reach
from kvg.trust.keyring import is_key_name
from kvg.verify.artifact_check import (
    PageCheck,
    check_ids,
    check_manifest,
    noting_part,
    use_of,
)
from kvg.verify.check import (
    artifacts_there,
    check_config,
    check_log,
    check_trust,
    methods_among,
)
from kvg.verify.findings import UNREADABLE, Finding, Notes, finding_of
from kvg.verify.peers import peer_findings
from kvg.verify.published import Published
from kvg.verify.strays import REPAIR, leads_out, stray_finding, strays

if TYPE_CHECKING:
    from kvg.log.mending import Copy
    from kvg.store import Store
    from kvg.verify.artifact_check import PageUse
    from kvg.verify.receipts import LostReceipt

INDEX = "index.lmdb"
LOCK = "lock"

FOLDERS = ("objects", "tmp")
"""Folders that a store has even when there is nothing in them."""

PENDING = "tmp/pending"
"""Where running writers say what they need."""

_KEY_HINT = (
    "put it back from a backup of your keys; without it kvg clone makes a store that you can add to"
)


@frozen
class Repaired:
    """What was done about a fault; ``moved_to`` is under the store's folder."""

    type: ClassVar[str] = "repaired"
    object: str
    action: str
    moved_to: str | None = None


@frozen
class FsckSummary:
    """Everything that was looked at. ``objects`` are the good ones, ``damaged`` the others that are
    there; ``bytes`` are raw bytes, before a codec, of the good ones.

    ``artifacts`` are the store's own, ``pushed`` those that only pointers of others name.
    ``unreachable`` counts objects that gc would remove, None where that can't be told;
    ``unfinished`` artifacts that are to be forgotten and of which something is left; ``to_forget``
    those whose forgetting was begun and has not come to its end: done again, it does.
    """

    type: ClassVar[str] = "fsck-summary"
    objects: int
    bytes: int
    artifacts: int
    log_entries: int
    unreachable: int | None
    unfinished: int
    faults: int
    repaired: int
    methods: int = 0
    damaged: int = 0
    pushed: int = 0
    to_forget: tuple[Digest, ...] = ()


class _Tally:
    """What has been seen so far; an object is looked at once."""

    def __init__(self, seen: Seen) -> None:
        self.good = 0
        self.size_bytes = 0
        self.artifacts = 0
        self.pushed = 0
        self.methods = 0
        self.faults = 0
        self.repaired = 0
        self._seen = seen
        self.bad: list[Digest] = []

    def is_new(self, digest: Digest) -> bool:
        return self._seen.add(raw_of(digest))

    def is_known(self, digest: Digest) -> bool:
        """Whether it has been looked at."""
        return raw_of(digest) in self._seen

    def is_new_use(self, use: PageUse) -> bool:
        """Whether it is looked at for the first time as just that page."""
        return self._seen.add(use.key)

    def is_new_whole(self, digest: Digest) -> bool:
        """Whether the artifact or method is looked at for the first time with all it needs. That
        something else calls its document a part of its own says nothing about it."""
        return self._seen.add(sha256_bytes(raw_of(digest)))

    def saw(self, size_bytes: int) -> None:
        self.good += 1
        self.size_bytes += size_bytes

    def told(self, notes: Notes) -> Iterator[Finding]:
        """Count what ``notes`` hold, an object once; its faults, each of an object, or of an
        artifact that is sound and names what does not belong to it."""
        for digest, size_bytes in notes.objects.items():
            if self.is_new(digest):
                self.saw(size_bytes)
        self.faults += len(notes.findings)
        for finding in notes.findings:
            digest = Digest(finding.object)
            if digest not in notes.objects:
                self.is_new(digest)
                self.bad.append(digest)
            yield finding


def fsck(
    store: Store,
    *,
    repair: bool = False,
    refetch: Callable[[Digest], str | None] = lambda _: None,
    copies: Callable[[str], Sequence[Copy]] = lambda _: (),
    threads: int = 1,
    advance: Callable[[int], None] = lambda _: None,
) -> Iterator[Finding | Repaired | FsckSummary]:
    """Yield every fault as it is found, what was done about it, and last the summary.

    ``refetch`` tries to put a lost object back and says from where; ``copies`` gives those that
    there are of the log of an origin. ``advance`` is told of each object that was looked at. Raises
    ``Conflict`` when the lock that a repair needs is not had. Memory grows with what the log names,
    by a few bytes for each other object.
    """
    stopping = [name for name in (*FOLDERS, PENDING) if _is_no_folder(store, name)]
    for name in stopping:
        yield _no_folder(name)
        if repair:
            from kvg.verify.repairs import replace_by_folder

            yield Repaired(name, "moved", replace_by_folder(store, name))
    if stopping and not repair:
        yield FsckSummary(0, 0, 0, 0, None, 0, len(stopping), 0)
        return
    with scratch(store.staging) as room:
        tally = _Tally(Seen(room))
        tally.faults = tally.repaired = len(stopping)
        yield from _fsck(store, tally, repair, refetch, copies, threads, advance)


def _is_no_folder(store: Store, name: str) -> bool:
    """Whether something that is no folder lies where one belongs; a link is told as such."""
    path = store.root / name
    return os.path.lexists(path) and not path.is_symlink() and not path.is_dir()


def _no_folder(name: str) -> Finding:
    text = f"{name}: no folder, which belongs there"
    return Finding(Corrupt.code, Corrupt.kind, name, text, "kvg fsck --repair")


def _log(
    store: Store, tally: _Tally, repair: bool, copies: Callable[[str], Sequence[Copy]]
) -> Generator[Finding | Repaired, None, bool]:
    """What is wrong with the log, and what was done about it: all else is judged by it.

    Returns whether nothing is wrong with it any more.
    """
    faults = [*check_log(store)]
    yield from faults
    tally.faults += len(faults)
    if not repair or not faults:
        return not faults
    from kvg.verify.log_repairs import repair_log

    for done in repair_log(store, copies):
        tally.faults += isinstance(done, Finding)
        tally.repaired += isinstance(done, Repaired)
        yield done
    left = [*check_log(store)]
    new = [fault for fault in left if fault not in faults]
    yield from new
    tally.faults += len(new)
    return not left


def _mended_lost_found(store: Store, tally: _Tally) -> Iterator[Finding | Repaired]:
    """Make the folder that all else is moved to, where something else lies in its place."""
    from kvg.verify.repairs import is_lost_found_whole, set_aside

    if not is_lost_found_whole(store):
        path = store.root / LOST_FOUND
        yield stray_finding(store, path)
        tally.faults += 1
        tally.repaired += 1
        yield Repaired(LOST_FOUND, "moved", set_aside(store, path))


def _fsck(
    store: Store,
    tally: _Tally,
    repair: bool,
    refetch: Callable[[Digest], str | None],
    copies: Callable[[str], Sequence[Copy]],
    threads: int,
    advance: Callable[[int], None],
) -> Iterator[Finding | Repaired | FsckSummary]:
    folders = [name for name in FOLDERS if not (store.root / name).exists()]
    index = [*_index_structure(store)]
    if index:
        store.index.distrust()
    yield from index
    if repair:
        yield from _mended_lost_found(store, tally)
    is_sound = yield from _log(store, tally, repair, copies)
    log = [] if index else [*_rolled_back(store)]
    trust = [*check_trust(store)]
    other = [*map(_missing_folder, folders), *check_config(store), *_log_key(store)]
    other += _wanted(store)
    removed = [*_removed(store)]
    peers, pushed = [*peer_findings(store)], Published(store)
    lost = [*_lost_peers(store, is_whole=not peers)] if _is_readable(store) else []
    unproved = _lost_receipts(store) if is_sound and not peers else ()
    lost += [item.finding for item in unproved]
    sent = [*pushed.findings()]
    yield from (*log, *trust, *other, *removed, *peers, *lost, *sent)
    is_readable = (is_sound and not log) or _is_readable(store)
    differing = [*_index_findings(store)] if is_readable and not index else []
    if differing:
        store.index.distrust()
    elif is_readable and not index:
        store.index.vouched_for(store.log)
    yield from differing
    tally.faults += sum(map(len, (index, log, trust, other, removed, peers, lost, sent, differing)))
    if is_readable:
        yield from _artifacts(store, tally, threads, advance)
    own = artifacts_there(store) if is_readable else frozenset()
    tally.pushed = len(frozenset(pushed.named.values()) - own)
    for name, digest in pushed.named.items():
        yield from _artifact(store, digest, name, tally, threads, advance, lambda: True)
    yield from _objects(store, tally, threads, advance)
    damaged = sum(map(store.objects.has, frozenset(tally.bad)))
    stray = [*strays(store)]
    yield from (stray_finding(store, path) for path in stray)
    tally.faults += len(stray)
    if repair:
        from kvg.verify.repairs import repair_folders, repair_lock, repairs, set_aside

        for done in (*repair_folders(store, folders), *repair_lock(store)):
            tally.repaired += 1
            yield done
        for name in _restored(store, unproved):
            tally.repaired += 1
            yield Repaired(name, "made anew")
        for name in dict.fromkeys(fault.object for fault in (*removed, *peers, *sent)):
            path = store.root / name
            if os.path.lexists(path) and not leads_out(store, path):
                tally.repaired += 1
                yield Repaired(name, "moved", set_aside(store, path))
        needs_index = is_readable and bool(index or differing)
        for done in repairs(
            store, tally.bad, stray, refetch, rebuild=needs_index, trust=bool(trust)
        ):
            tally.repaired += 1
            yield done
    yield FsckSummary(
        objects=tally.good,
        bytes=tally.size_bytes,
        artifacts=tally.artifacts,
        log_entries=store.log.size if is_readable else 0,
        unreachable=_unreachable(store) if is_readable and not pushed.is_there else None,
        unfinished=_unfinished(store) if is_readable else 0,
        to_forget=tuple(_to_forget(store)),
        faults=tally.faults,
        repaired=tally.repaired,
        methods=tally.methods,
        damaged=damaged,
        pushed=tally.pushed,
    )


def _is_readable(store: Store) -> bool:
    """Whether the log, whatever is wrong with it, still says what it said."""
    try:
        store.index.query(lambda tables: None)
        for _ in store.log.read():
            pass
    except UNREADABLE:
        return False
    return True


def _to_forget(store: Store) -> Iterator[Digest]:
    if (store.root / FORGOTTEN).is_dir():
        from kvg.store.wanted import wanted_of

        yield from wanted_of(store)


def _unfinished(store: Store) -> int:
    return sum(1 for digest in store.forgotten() if store.objects.has(digest))


def _log_key(store: Store) -> Iterator[Finding]:
    """The private key of a log that was made here: without it nothing can be added any more."""
    keyring = store.keyring
    try:
        log = store.log
    except UNREADABLE:
        return  # which the check of the log tells
    if keyring is None or not is_key_name(log.origin):
        return
    path = keyring.log_path(log.origin)
    if not path.exists() and not path.with_suffix(".pub").exists():
        return
    try:
        if keyring.log_key(log.origin, log.verifier).public == log.verifier:
            return
        text = f"{path}: not the key of log {log.origin}"
    except UNREADABLE as error:
        text = error.message
    yield Finding(Corrupt.code, Corrupt.kind, str(path), text, _KEY_HINT)


def _lost_peers(store: Store, *, is_whole: bool) -> Iterator[Finding]:
    """Logs of others that were seen and of which nothing is left to hold them against.

    ``is_whole``: what is left is sound; a damaged one may be where a ref came from.
    """
    from kvg.store.peers import unexplained

    def told(name: str, text: str) -> Finding:
        return Finding(Corrupt.code, Corrupt.kind, name, f"{name}: {text}", "kvg fetch REMOTE")

    try:
        seen = tuple(store.peers.lost())
        for origin, size in seen:
            yield told(f"peers/{origin}", f"missing; it was seen here at size {size}")
        refs = unexplained(store) if is_whole and not seen else ()
    except UNREADABLE as error:
        yield finding_of(error, "peers")
        return
    if refs:
        more = f" and {len(refs) - 1} more" if len(refs) > 1 else ""
        yield told("peers", f"nothing is kept of the log that {refs[0]}{more} came from")


def _lost_receipts(store: Store) -> tuple[LostReceipt, ...]:
    from kvg.verify.receipts import lost_receipts

    try:
        return lost_receipts(store)
    except UNREADABLE:
        return ()  # which the check of that log tells


def _restored(store: Store, lost: tuple[LostReceipt, ...]) -> Iterator[str]:
    if lost:
        from kvg.verify.receipts import restore_receipts

        yield from restore_receipts(store, lost)


def _index_finding(text: str) -> Finding:
    return Finding(Corrupt.code, Corrupt.kind, INDEX, f"{INDEX}: {text}", "kvg reindex")


def _index_structure(store: Store) -> Iterator[Finding]:
    try:
        yield from (_index_finding(text) for text in store.index.structure_faults())
    except Corrupt as error:
        yield finding_of(error, LOCK)


def _rolled_back(store: Store) -> Iterator[Finding]:
    """The index is never ahead of its log, unless the log went back."""
    state = store.index.recorded()
    try:
        log = store.log
    except UNREADABLE:
        return  # which the check of the log tells
    if state is not None and state.origin == log.origin and state.size > log.size:
        yield Finding(
            Untrusted.code,
            Untrusted.kind,
            "log",
            f"log {log.folder}: rolled back from size {state.size} to {log.size}",
            "restore the newer log from a copy of the store or a peer",
        )


def _wanted(store: Store) -> Iterator[Finding]:
    """What is to be looked for of what was forgotten, where it can't be read."""
    if (store.root / FORGOTTEN).is_dir():
        from kvg.store.wanted import wanted_faults

        yield from (finding_of(error, FORGOTTEN) for error in wanted_faults(store))


def _removed(store: Store) -> Iterator[Finding]:
    """Notes that all of an artifact was removed, where the log says nothing of the kind."""
    if (store.root / FORGOTTEN).is_dir():
        from kvg.store.forget import removal_faults

        try:
            for name, error in removal_faults(store):
                yield Finding(error.code, error.kind, name, error.message, REPAIR)
        except UNREADABLE:
            return  # which the check of the log tells


def _index_findings(store: Store) -> Iterator[Finding]:
    try:
        differing = [*store.index.differences()]
        if differing:  # objects may have come or gone between the looks at them
            with _at_rest(store):
                differing = [*store.index.differences()]
        yield from map(_index_finding, differing)
    except UNREADABLE as error:
        yield finding_of(error, INDEX)


def _artifacts(
    store: Store, tally: _Tally, threads: int, advance: Callable[[int], None]
) -> Iterator[Finding]:
    """What the log names: each artifact with its pages, each method with its parts, then trust
    files and attestations."""
    named = {digest: name for name, digest in sorted(store.refs().items(), reverse=True)}
    methods = methods_among(store, store.methods())
    for digest in sorted(idle_pins(store)):
        tally.faults += 1
        yield _idle_pin(digest)
    for digest in sorted(artifacts_there(store)):
        tally.artifacts += 1
        kept = partial(_is_kept, store, digest)
        yield from _artifact(store, digest, named.get(digest), tally, threads, advance, kept)
    for digest in sorted(methods):
        tally.methods += 1
        yield from _method(store, digest, tally, threads)
    for logged in store.logged_envelopes():
        what, needed = f"attestation of {short(logged[0])}", partial(_is_logged, store, logged)
        yield from _object(store, logged[1], what, tally, threads, needed)
    for version, digest in store.trust_versions():
        what = f"trust file, version {version}"
        yield from _object(store, digest, what, tally, threads, lambda: True)


def _is_logged(store: Store, logged: tuple[Digest, Digest]) -> bool:
    return logged in store.logged_envelopes()


def _idle_pin(digest: Digest) -> Finding:
    text = f"pin {short(digest)}: keeps what is no artifact"
    return Finding(NotFound.code, NotFound.kind, digest, text, f"kvg unpin {short(digest)}")


def _artifact(
    store: Store,
    digest: Digest,
    ref: str | None,
    tally: _Tally,
    threads: int,
    advance: Callable[[int], None],
    is_kept: Callable[[], bool],
) -> Iterator[Finding]:
    if not tally.is_new_whole(digest):
        return
    what, notes, is_partial = ref or short(digest), Notes(), store.is_partial
    manifest = check_manifest(store, digest, what, notes)
    if manifest is not None:
        check_ids(store, digest, manifest, what, notes)
        how = PageCheck(store, manifest, what, with_blake3=True)
        for page in manifest.pages:
            if is_partial and not store.objects.has(page.digest):
                continue
            if tally.is_new_use(use_of(manifest, page)):
                with noting_part(notes, store, page.digest, digest):
                    how.check(page, threads=threads)
                    notes.saw(page.digest, page.size)
                advance(1)
    _check_sources(store, digest, what, notes, tally)
    if notes.findings:
        _pass_over_what_was_taken(store, notes, is_kept)
    yield from tally.told(notes)


def _check_sources(store: Store, digest: Digest, what: str, notes: Notes, tally: _Tally) -> None:
    """Note the sources that are gone of a deposit that names them, as ``kvg verify`` does. What of
    them is there is read with all other objects."""
    from kvg.verify.judgement import judge

    try:
        said = judge(store, digest, what=what).provenance
    except UNREADABLE:
        return  # which the log's check or the object's tells
    for part in (said.source or ()) if said is not None else ():
        if part.digest is None or store.objects.has(part.digest):
            continue
        if not tally.is_known(part.digest):
            with notes.noting(part.digest):
                store.objects.read(part.digest, what=f"{what}: {part.name}")


def _pass_over_what_was_taken(store: Store, notes: Notes, is_kept: Callable[[], bool]) -> None:
    """Of an artifact that nothing keeps any more, what is gone is no fault: ``gc`` or ``forget``
    took it meanwhile."""
    with _at_rest(store):
        if is_kept():
            return
        notes.findings = [
            item
            for item in notes.findings
            if os.path.lexists(store.objects.stored_path(Digest(item.object)))
        ]


def _is_kept(store: Store, digest: Digest) -> bool:
    """Whether a name or a pin keeps the artifact."""
    return digest in store.refs().values() or digest in store.pins()


@contextmanager
def _at_rest(store: Store) -> Iterator[None]:
    """Run the body while nobody else changes the store, where that can be had."""
    with ExitStack() as stack:
        with suppress(KvgError):
            stack.enter_context(store.lock.exclusive())
        yield


def _method(store: Store, digest: Digest, tally: _Tally, threads: int) -> Iterator[Finding]:
    from kvg.verify.method_check import check_document, method_name, needed_by

    if not tally.is_new_whole(digest):
        return
    what, notes = method_name(digest), Notes()
    method = check_document(store, digest, what, notes)
    if notes.findings:
        with _at_rest(store):
            if digest not in store.methods():
                return  # it was forgotten meanwhile
    yield from tally.told(notes)
    for name, part in needed_by(store, digest, method):
        needed = partial(_is_method, store, digest)
        yield from _object(store, part, f"{what}: {name}", tally, threads, needed)


def _is_method(store: Store, digest: Digest) -> bool:
    return digest in store.methods()


def _objects(
    store: Store, tally: _Tally, threads: int, advance: Callable[[int], None]
) -> Iterator[Finding]:
    for digest in store.objects.all():
        yield from _object(store, digest, short(digest), tally, threads, lambda: False)
        advance(1)


def _object(
    store: Store,
    digest: Digest,
    what: str,
    tally: _Tally,
    threads: int,
    is_needed: Callable[[], bool],
) -> Iterator[Finding]:
    """Its fault, if it has one; that it is gone is none unless it ``is_needed`` then: gc takes it,
    or forget."""
    if tally.is_known(digest):
        return
    notes = Notes()
    with notes.noting(digest):
        notes.saw(digest, store.objects.read(digest, what=what, threads=threads).nbytes)
    if notes.findings and not os.path.lexists(store.objects.stored_path(digest)):
        with _at_rest(store):
            if not is_needed():
                return
    yield from tally.told(notes)


def _unreachable(store: Store) -> int | None:
    try:
        reach = Reach(store)
        reach.look()
        return sum(1 for digest in store.objects.all() if digest not in reach)
    except UNREADABLE:
        return None


def _missing_folder(name: str) -> Finding:
    return Finding(Corrupt.code, Corrupt.kind, name, f"{name}: missing", "kvg fsck --repair")
