"""The full check: goes on after each fault, names each object, and counts what it looked at."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, ClassVar

from kvg.digest import Digest, short
from kvg.errors import Corrupt, Incompatible, Untrusted
from kvg.frozen import frozen
from kvg.store.layout import CONFIG_FILE
from kvg.verify.artifact_check import ArtifactBegun, ArtifactCheck, ArtifactRequest, PageUse
from kvg.verify.findings import UNREADABLE, Finding, Notes, finding_of

if TYPE_CHECKING:
    from kvg.errors import KvgError
    from kvg.log.log import Log
    from kvg.store import Store

TRUST = "trust.json"


@frozen
class VerifySummary:
    """Everything that was checked. ``recomputed`` counts pages recomputed from tokens: none here.

    ``objects`` and ``bytes`` (raw) count an object once however many artifacts share it.
    """

    type: ClassVar[str] = "verify-summary"
    artifacts: int
    objects: int
    bytes: int
    bytes_ok: bool
    signatures_ok: bool
    policy_ok: bool
    recomputed: int = 0
    absent: int = 0
    methods: int = 0


def check_store(
    store: Store,
    digests: Iterable[tuple[str | None, Digest]] | None = None,
    *,
    require: Sequence[str] = (),
    with_blake3: bool = True,
    threads: int = 1,
) -> Iterator[Finding | VerifySummary]:
    """Check the log, the trust file and each artifact or method: (name, digest) of every ref, and
    every method, by default.

    Yields each fault as it is found and, last, the summary. Never stops at a fault.
    ``with_blake3`` as ``ArtifactRequest``.
    """
    from kvg.store.vouching import vouch_all

    asked = ArtifactRequest(store, require, with_blake3, threads)
    if digests is not None:
        yield from _check_named(asked, list(digests))
        return
    with _foreseen(asked) as foreseen:
        with suppress(*UNREADABLE):  # which the check of the log tells
            vouch_all(store)
        named = list(_standing(store))
        if foreseen is not None and foreseen.target not in named[:1]:
            foreseen.close()  # the log says otherwise
            foreseen = None
        yield from _check_named(asked, named, foreseen)


def _check_named(
    asked: ArtifactRequest,
    named: Sequence[tuple[str | None, Digest]],
    foreseen: ArtifactBegun | None = None,
) -> Iterator[Finding | VerifySummary]:
    """As ``check_store``; the first of ``named`` may be ``foreseen``."""
    store = asked.store
    methods = methods_among(store, (digest for _, digest in named))
    good: dict[Digest, int] = {}
    pages: set[PageUse] = set()
    checks: list[ArtifactCheck] = []
    with closing(_begun(asked, named, methods, pages, foreseen)) as begun:
        first = next(begun, None)  # whose pages are read while the log is looked at
        log = [*_check_entries(store)]
        words = [] if log else [*_check_words(store)]
        trust, config = [*check_trust(store)], [*check_config(store)]
        yield from (*log, *words, *trust, *config)
        for end in () if first is None else chain([first], begun):
            check = end()
            yield from check.findings
            good.update(check.objects)
            pages.update(check.pages)
            checks.append(check)
    yield VerifySummary(
        len(checks) - len(methods),
        len(good),
        sum(good.values()),
        not any(finding.kind == Corrupt.kind for finding in (*log, *trust))
        and all(check.bytes_ok for check in checks),
        not (log or words or trust) and all(check.signatures_ok for check in checks),
        not (log or trust or config) and all(check.policy_ok for check in checks),
        absent=len(frozenset().union(*(check.absent for check in checks))),
        methods=len(methods),
    )


def _foreseen(asked: ArtifactRequest) -> AbstractContextManager[ArtifactBegun | None]:
    """The check of what the first ref stands for by the index as it lies: its pages are read while
    the log is opened, which may say otherwise."""
    from kvg.store.refs import first_ref

    found = asked.store.index.glimpse(first_ref)
    return nullcontext() if found is None else ArtifactBegun(asked, found[1], ref=found[0])


def _begun(
    asked: ArtifactRequest,
    named: Sequence[tuple[str | None, Digest]],
    methods: Container[Digest],
    checked: Container[PageUse],
    foreseen: ArtifactBegun | None,
) -> Generator[Callable[[], ArtifactCheck]]:
    """What ends the check of each artifact and method, once, begun when it is asked for."""
    seen: set[Digest] = set()
    if foreseen is not None:
        seen.add(foreseen.digest)
        yield foreseen.end
    for name, digest in named:
        if digest in seen:
            continue
        seen.add(digest)
        if digest in methods:
            from kvg.verify.method_check import check_method

            yield partial(check_method, asked, digest)
            continue
        with ArtifactBegun(asked, digest, ref=name, checked=checked) as begun:
            yield begun.end


def methods_among(store: Store, digests: Iterable[Digest]) -> frozenset[Digest]:
    """Those of ``digests`` that are methods; what a ref stands for is an artifact."""
    unnamed = frozenset(digests).difference(digest for _, digest in _refs(store))
    return unnamed & store.methods() if unnamed else unnamed


def artifacts_there(store: Store) -> frozenset[Digest]:
    """Every artifact that a ref or a pin keeps, and each of which all is there; no methods.

    Raises ``Corrupt``, ``Untrusted`` when the log can't be read.
    """
    from kvg.store.closure import idle_pins

    whole = (digest for digest in store.artifacts() if store.is_complete(digest))
    there = frozenset((*store.refs().values(), *store.pins(), *whole))
    return there - methods_among(store, store.methods()) - idle_pins(store)


def _standing(store: Store) -> Iterator[tuple[str | None, Digest]]:
    """Every ref, every other artifact that is pinned, then every method; none when the log can't be
    read, a finding of its own."""
    refs = _refs(store)
    yield from refs
    with suppress(Corrupt, Incompatible, Untrusted):
        yield from ((None, digest) for digest in sorted(_pinned(store)))
        yield from ((None, digest) for digest in sorted(store.methods()))


def _pinned(store: Store) -> frozenset[Digest]:
    """The artifacts that are pinned."""
    if not store.pins():
        return frozenset()
    from kvg.store.closure import idle_pins

    return store.pins() - store.methods() - idle_pins(store)


def _refs(store: Store) -> Sequence[tuple[str, Digest]]:
    try:
        return sorted(store.refs().items())
    except (Corrupt, Incompatible, Untrusted):
        return ()


def check_log(store: Store) -> Iterator[Finding]:
    """Recompute the whole log from its entries; yield what is wrong, of the words of witnesses
    too."""
    found = [*_check_entries(store)]
    yield from found
    if not found:  # what witnesses cosigned is judged by the log
        yield from _check_words(store)


def _check_entries(store: Store) -> Iterator[Finding]:
    try:
        yield from dict.fromkeys(map(_of_log, store.log.faults()))
    except UNREADABLE as error:
        yield _of_log(error)


def _check_words(store: Store) -> Iterator[Finding]:
    """What is wrong with what witnesses said of a log that is as it should be."""
    try:
        from kvg.store.witnesses import faults, remember

        for name, fault in (unwitnessed := [*faults(store)]):
            yield finding_of(fault, name)
        if not unwitnessed:
            remember(store)
    except UNREADABLE as error:
        yield _of_log(error)


def _of_log(error: KvgError) -> Finding:
    return Finding(error.code, error.kind, "log", error.message, error.hint or "kvg fsck")


def check_trust(store: Store) -> Iterator[Finding]:
    """Check every version of the trust file against the one before; yield what is wrong."""
    from kvg.store.trusted import check_versions

    try:
        store.trust_versions()
    except UNREADABLE:
        return  # which the check of the log, or of the configuration, tells
    notes = Notes()
    with notes.noting("trust.json"):
        check_versions(store)
        _ = store.trust
    yield from notes.findings
    yield from _stale_trust(store)


def _stale_trust(store: Store) -> Iterator[Finding]:
    """The trust file, if it is gone, or an older one: what counts is what the log has, so that
    nothing else would tell.

    A version that the log ends with may be one whose writing was cut.
    """
    from kvg.store.trusted import stale_version

    try:
        versions, log, stale = store.trust_versions(), store.log, stale_version(store)
        is_there = os.path.lexists(store.root / TRUST)
        is_last = bool(versions) and _ends_with_trust(log)
    except UNREADABLE:
        return  # which the check of the log, or of the file, tells
    if not versions or (stale is None and is_there):
        return
    before = versions[-2][0] if len(versions) > 1 else None
    if is_last and stale == before:
        return
    what = "missing" if stale is None else f"is version {stale}"
    text = f"{TRUST}: {what}; the log knows version {versions[-1][0]}"
    yield Finding(Corrupt.code, Corrupt.kind, TRUST, text, "kvg fsck --repair")


def _ends_with_trust(log: Log) -> bool:
    """Whether the last change was one of trust: its file's version, and what that revokes."""
    from kvg.log.entry import RevokeEntry, TrustEntry, parse_entry

    for index in range(log.size - 1, -1, -1):
        entry = parse_entry(next(iter(log.read(index))), what="log")
        if not isinstance(entry, RevokeEntry):
            return isinstance(entry, TrustEntry)
    return False


def check_config(store: Store) -> Iterator[Finding]:
    """Name what can't be read of the configuration, and what is set to a value of another kind.

    Then every key that means nothing: a misspelt policy is none.
    """
    faults = (store.config.fault,) if store.config.fault else store.config.misfits()
    for fault in faults:
        yield finding_of(fault, CONFIG_FILE)
    for key, near in store.config.unknown():
        hint = f"did you mean {near}?" if near else f"take it out of {store.config.path}"
        text = f"{CONFIG_FILE}: {key}: no such setting"
        yield Finding(Corrupt.code, Corrupt.kind, CONFIG_FILE, text, hint)


def check_objects(store: Store, *, threads: int = 1) -> Iterator[Finding]:
    """Check every object that is there by its own checksums and its digest; yield each fault."""
    for digest in store.objects.all():
        notes = Notes()
        with notes.noting(digest):
            store.objects.read(digest, what=short(digest), threads=threads)
        yield from notes.findings
