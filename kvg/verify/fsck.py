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
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from kvg import durable
from kvg.digest import Digest, hex_of, raw_of, sha256, short
from kvg.errors import Corrupt, Incompatible, KvgError, NotFound, Unreadable, Untrusted
from kvg.frozen import frozen
from kvg.store.closure import idle_pins
from kvg.store.layout import FORGOTTEN, LOST_FOUND
from kvg.store.scratch import Seen, scratch
from kvg.store.sweep import Reach
from kvg.trust.keyring import is_key_name
from kvg.verify.artifact_check import PageCheck, check_ids, check_manifest
from kvg.verify.check import (
    TRUST,
    artifacts_there,
    check_config,
    check_log,
    check_trust,
    methods_among,
)
from kvg.verify.findings import Finding, Notes, finding_of
from kvg.verify.peers import peer_findings
from kvg.verify.published import Published

if TYPE_CHECKING:
    from pathlib import Path

    from kvg.store import Store

INDEX = "index.lmdb"
LOCK = "lock"
FOLDERS = ("objects", "tmp")
"""Folders that a store has even when there is nothing in them."""

PENDING = "tmp/pending"
"""Where running writers say what they need."""

_LINK_HINT = "remove the link by hand, or put what it leads to in its place"
_KEY_HINT = (
    "put it back from a backup of your keys; without it kvg clone makes a store that you can add to"
)
_UNREADABLE = (Corrupt, Incompatible, NotFound, Unreadable, Untrusted)


@frozen
class Repaired:
    """What was done about a fault; ``moved_to`` is under the store's folder."""

    type: ClassVar[str] = "repaired"
    object: str
    action: str
    moved_to: str | None = None


@frozen
class FsckSummary:
    """Everything that was looked at. ``bytes`` are raw bytes of good objects.

    ``unreachable`` counts objects that gc would remove, None where that can't be told;
    ``unfinished`` artifacts that are to be forgotten and of which something is left.
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


class _Tally:
    """What has been seen so far; an object is looked at once."""

    def __init__(self, seen: Seen) -> None:
        self.good = 0
        self.size_bytes = 0
        self.artifacts = 0
        self.methods = 0
        self.faults = 0
        self.repaired = 0
        self._seen = seen
        self.bad: list[Digest] = []

    def is_new(self, digest: Digest) -> bool:
        return self._seen.add(raw_of(digest))

    def saw(self, size_bytes: int) -> None:
        self.good += 1
        self.size_bytes += size_bytes

    def told(self, notes: Notes) -> Iterator[Finding]:
        """Count what ``notes`` hold; its faults, each of an object."""
        for size_bytes in notes.objects.values():
            self.saw(size_bytes)
        self.faults += len(notes.findings)
        for finding in notes.findings:
            self.bad.append(Digest(finding.object))
            yield finding


def fsck(
    store: Store,
    *,
    repair: bool = False,
    refetch: Callable[[Digest], str | None] = lambda _: None,
    threads: int = 1,
    advance: Callable[[int], None] = lambda _: None,
) -> Iterator[Finding | Repaired | FsckSummary]:
    """Yield every fault as it is found, what was done about it, and last the summary.

    ``refetch`` tries to put a lost object back and says from where. ``advance`` is told of each
    object that was looked at. Raises ``Conflict`` when the lock that a repair needs is not had.
    Memory grows with what the log names, by a few bytes for each other object.
    """
    stopping = [name for name in (*FOLDERS, PENDING) if _is_no_folder(store, name)]
    for name in stopping:
        yield _no_folder(name)
        if repair:
            yield Repaired(name, "moved", _replace_by_folder(store, name))
    if stopping and not repair:
        yield FsckSummary(0, 0, 0, 0, None, 0, len(stopping), 0)
        return
    with scratch(store.staging) as room:
        tally = _Tally(Seen(room))
        tally.faults = tally.repaired = len(stopping)
        yield from _fsck(store, tally, repair, refetch, threads, advance)


def _is_no_folder(store: Store, name: str) -> bool:
    """Whether something that is no folder lies where one belongs; a link is told as such."""
    path = store.root / name
    return os.path.lexists(path) and not path.is_symlink() and not path.is_dir()


def _no_folder(name: str) -> Finding:
    text = f"{name}: no folder, which belongs there"
    return Finding(Corrupt.code, Corrupt.kind, name, text, "kvg fsck --repair")


def _replace_by_folder(store: Store, name: str) -> str:
    """Move away what lies there, and make the folder; returns where it lies now."""
    path = store.root / name
    moved = set_aside(store, path)
    durable.make_dir(path)
    return moved


def _fsck(
    store: Store,
    tally: _Tally,
    repair: bool,
    refetch: Callable[[Digest], str | None],
    threads: int,
    advance: Callable[[int], None],
) -> Iterator[Finding | Repaired | FsckSummary]:
    repaired = tally.repaired
    folders = [name for name in FOLDERS if not (store.root / name).exists()]
    index = [*_index_structure(store)]
    if index:
        store.index.distrust()
    log = [*([] if index else _rolled_back(store)), *check_log(store)]
    trust = [*check_trust(store)]
    other = [*map(_missing_folder, folders), *check_config(store), *_log_key(store)]
    other += _wanted(store)
    peers, pushed = [*peer_findings(store)], Published(store)
    lost = [*_lost_peers(store, is_whole=not peers)] if _is_readable(store) else []
    sent = [*pushed.findings()]
    yield from (*index, *log, *trust, *other, *peers, *lost, *sent)
    is_readable = not log or _is_readable(store)
    differing = [*_index_findings(store)] if is_readable and not index else []
    if differing:
        store.index.distrust()
    yield from differing
    tally.faults += sum(map(len, (index, log, trust, other, peers, lost, sent, differing)))
    if is_readable:
        yield from _artifacts(store, tally, threads, advance)
    for name, digest in pushed.named.items():
        tally.artifacts += 1
        yield from _artifact(store, digest, name, tally, threads, advance)
    yield from _objects(store, tally, threads, advance)
    strays = [*_strays(store)]
    yield from (_stray_finding(store, path) for path in strays)
    tally.faults += len(strays)
    if repair:
        for done in (*_repair_folders(store, folders), *_repair_lock(store)):
            repaired += 1
            yield done
        for name in dict.fromkeys(fault.object for fault in (*peers, *sent)):
            if os.path.lexists(store.root / name):
                repaired += 1
                yield Repaired(name, "moved", set_aside(store, store.root / name))
        needs_index = is_readable and bool(index or differing)
        for done in _repairs(store, tally, strays, refetch, rebuild=needs_index, trust=trust):
            repaired += 1
            yield done
    yield FsckSummary(
        objects=tally.good,
        bytes=tally.size_bytes,
        artifacts=tally.artifacts,
        log_entries=store.log.size if is_readable else 0,
        unreachable=_unreachable(store) if is_readable and not pushed.is_there else None,
        unfinished=_unfinished(store) if is_readable else 0,
        faults=tally.faults,
        repaired=repaired,
        methods=tally.methods,
    )


def _is_readable(store: Store) -> bool:
    """Whether the log, whatever is wrong with it, still says what it said."""
    try:
        store.index.query(lambda tables: None)
        for _ in store.log.read():
            pass
    except _UNREADABLE:
        return False
    return True


def _unfinished(store: Store) -> int:
    return sum(1 for digest in store.forgotten() if store.objects.has(digest))


def _log_key(store: Store) -> Iterator[Finding]:
    """The private key of a log that was made here: without it nothing can be added any more."""
    keyring = store.keyring
    try:
        log = store.log
    except _UNREADABLE:
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
    except _UNREADABLE as error:
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
    except _UNREADABLE as error:
        yield finding_of(error, "peers")
        return
    if refs:
        more = f" and {len(refs) - 1} more" if len(refs) > 1 else ""
        yield told("peers", f"nothing is kept of the log that {refs[0]}{more} came from")


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
    except _UNREADABLE:
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


def _index_findings(store: Store) -> Iterator[Finding]:
    try:
        differing = [*store.index.differences()]
        if differing:  # objects may have come or gone between the looks at them
            with _at_rest(store):
                differing = [*store.index.differences()]
        yield from map(_index_finding, differing)
    except _UNREADABLE as error:
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
        yield from _artifact(store, digest, named.get(digest), tally, threads, advance)
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
) -> Iterator[Finding]:
    if not tally.is_new(digest):
        return
    what, notes, is_partial = ref or short(digest), Notes(), store.is_partial
    manifest = check_manifest(store, digest, what, notes)
    if manifest is not None:
        check_ids(store, manifest, what, notes)
        tally.is_new(manifest.tokens.digest)
        how = PageCheck(store, manifest, what, with_blake3=True)
        for page in manifest.pages:
            if is_partial and not store.objects.has(page.digest):
                continue
            if tally.is_new(page.digest):
                with notes.noting(page.digest):
                    how.check(page, threads=threads)
                    notes.saw(page.digest, page.size)
                advance(1)
    if notes.findings:
        _pass_over_what_was_taken(store, digest, notes)
    yield from tally.told(notes)


def _pass_over_what_was_taken(store: Store, digest: Digest, notes: Notes) -> None:
    """Of an artifact that no name and no pin keeps any more, what is gone is no fault: ``gc`` or
    ``forget`` took it meanwhile."""
    with _at_rest(store):
        if digest in store.refs().values() or digest in store.pins():
            return
        notes.findings = [
            item
            for item in notes.findings
            if os.path.lexists(store.objects.stored_path(Digest(item.object)))
        ]


@contextmanager
def _at_rest(store: Store) -> Iterator[None]:
    """Run the body while nobody else changes the store, where that can be had."""
    with ExitStack() as stack:
        with suppress(KvgError):
            stack.enter_context(store.lock.exclusive())
        yield


def _method(store: Store, digest: Digest, tally: _Tally, threads: int) -> Iterator[Finding]:
    from kvg.verify.method_check import check_document, method_name, needed_by

    if not tally.is_new(digest):
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
    if not tally.is_new(digest):
        return
    notes = Notes()
    with notes.noting(digest):
        notes.saw(digest, store.objects.read(digest, what=what, threads=threads).nbytes)
    if notes.findings and not os.path.lexists(store.objects.stored_path(digest)):
        with _at_rest(store):
            if not is_needed():
                return
    yield from tally.told(notes)


def _strays(store: Store) -> Iterator[Path]:
    """What is no part of a store: names in ``objects`` that are no digests, any link in the root,
    and elsewhere what is neither a file nor a folder."""
    yield from store.objects.strays()
    folders = ("forgotten", "peers", "reserve", LOST_FOUND)
    yield from (store.root / name for name in folders if _is_no_folder(store, name))
    yield from (path for path in [store.root / "usage"] if path.is_dir())
    yield from _not_plain(store.root, (store.objects.folder, store.root / LOST_FOUND))
    for entry in sorted(os.scandir(store.root), key=lambda entry: entry.name):
        if entry.is_symlink():
            yield store.root / entry.name


def _not_plain(folder: Path, apart: tuple[Path, ...]) -> Iterator[Path]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return  # gone meanwhile, or what reads it says so
    for entry in entries:
        path = folder / entry.name
        if entry.is_dir(follow_symlinks=False):
            if path not in apart:
                yield from _not_plain(path, apart)
        elif not entry.is_symlink() and not entry.is_file():
            yield path


def _stray_finding(store: Store, path: Path) -> Finding:
    name = str(path.relative_to(store.root))
    kind = "a link" if path.is_symlink() else "not a plain file"
    if path.is_file() and not path.is_symlink():
        kind = "no folder, which belongs there"
    if path.is_relative_to(store.objects.folder) and kind != "a link":
        kind = "no object"
    hint = "kvg fsck --repair" if _is_movable(store, path) else _LINK_HINT
    return Finding(Corrupt.code, Corrupt.kind, name, f"{name}: {kind}", hint)


def _is_movable(store: Store, path: Path) -> bool:
    return path.parent != store.root or not path.is_symlink()


def _unreachable(store: Store) -> int | None:
    try:
        reach = Reach(store)
        reach.look()
        return sum(1 for digest in store.objects.all() if digest not in reach)
    except _UNREADABLE:
        return None


def _repairs(
    store: Store,
    tally: _Tally,
    strays: list[Path],
    refetch: Callable[[Digest], str | None],
    *,
    rebuild: bool,
    trust: list[Finding],
) -> Iterator[Repaired]:
    for digest in dict.fromkeys(tally.bad):
        yield from _set_aside_object(store, digest)
        if not store.objects.has(digest):
            source = refetch(digest)
            if source is not None:
                yield Repaired(digest, f"fetched from {source}")
    for path in strays:
        if _is_movable(store, path) and os.path.lexists(path):
            moved = set_aside(store, path)
            yield Repaired(str(path.relative_to(store.root)), "moved", moved)
    if trust:
        yield from _repair_trust(store)
    if rebuild:
        store.index.rebuild(anew=True)
        yield Repaired(INDEX, "rebuilt from the log")


def _missing_folder(name: str) -> Finding:
    return Finding(Corrupt.code, Corrupt.kind, name, f"{name}: missing", "kvg fsck --repair")


def _repair_folders(store: Store, names: Sequence[str]) -> Iterator[Repaired]:
    for name in names:
        durable.make_dir(store.root / name)
        yield Repaired(name, "made again")


def _repair_lock(store: Store) -> Iterator[Repaired]:
    """Move away what is no file in place of the lock: no writer can hold it."""
    path = store.root / LOCK
    if os.path.lexists(path) and not path.is_file():
        yield Repaired(LOCK, "moved", _moved_aside(store, path, LOCK))


def _set_aside_object(store: Store, digest: Digest) -> Iterator[Repaired]:
    """Move the object away unless a writer has put a good one in its place meanwhile."""
    with store.lock.exclusive():
        path = store.objects.stored_path(digest)
        if not os.path.lexists(path):
            return
        try:
            store.objects.read(digest, what=short(digest))
        except _UNREADABLE:
            yield Repaired(digest, "moved", set_aside(store, path, name=hex_of(digest)))


def set_aside(store: Store, path: Path, *, name: str | None = None) -> str:
    """Move ``path`` into ``lost-found``; returns where it lies now, under the store's folder."""
    with store.lock.exclusive():
        return _moved_aside(store, path, name or path.name)


def _moved_aside(store: Store, path: Path, label: str) -> str:
    folder, number = store.root / LOST_FOUND, 0
    if path == folder:
        path = store.root / f"{LOST_FOUND}.moving"
        durable.move(folder, path)
    durable.make_dir(folder)
    while os.path.lexists(folder / f"{label}.{number}"):
        number += 1
    durable.move(path, folder / f"{label}.{number}")
    return f"{LOST_FOUND}/{label}.{number}"


def _repair_trust(store: Store) -> Iterator[Repaired]:
    """Put back the signed trust file that the log names, where that one is sound."""
    from kvg.store.trusted import read_file

    path = store.root / TRUST
    with store.lock.exclusive():
        try:
            versions = store.trust_versions()
            data = (
                bytes(store.objects.read(versions[-1][1], what="trust file")) if versions else b""
            )
            found = read_file(store) or b""
        except _UNREADABLE:
            return
        if path.exists() and sha256(found) != (versions[-1][1] if versions else None):
            yield Repaired(TRUST, "moved", set_aside(store, path))
        if data and not path.exists():
            durable.replace(path, [data], staging=store.staging)
            yield Repaired(TRUST, "restored from the log")
