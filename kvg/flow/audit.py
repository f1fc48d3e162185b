"""``kvg audit``: everything at once for a person, and what was not checked."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kvg.digest import Digest, is_digest, parse_digest, short
from kvg.errors import Untrusted
from kvg.flow.attested import attested
from kvg.flow.checkpoint import unheard
from kvg.flow.freshness import stale_now
from kvg.flow.ground import Ground, ground_of, told
from kvg.flow.records.audit import Audit, AuditedArtifact, PublishedFigure, Saying
from kvg.flow.records.findings import Finding, VerifySummary
from kvg.flow.records.keys import Revoked, TrustEntry
from kvg.flow.trust import trust_records
from kvg.flow.verify import verify
from kvg.signing.note import encode_verifier
from kvg.store.witnesses import configured, is_about_words
from kvg.trust.policy import ROLES
from kvg.verify.check import methods_among
from kvg.verify.judgement import required_gates

if TYPE_CHECKING:
    from pathlib import Path

    from kvg.flow.records.stores import Cosignature
    from kvg.flow.remains import Remains
    from kvg.flow.settings import Settings
    from kvg.objects.manifest import Manifest
    from kvg.objects.statement import Provenance
    from kvg.store import Store
    from kvg.trust import TrustFile
    from kvg.verify.judgement import Judgement, Opened


TRUTH = (
    "Truth: no page was computed again from its tokens. Signatures say who vouches for a page, "
    "not that it is right. kvg verify --recompute 5% draws pages by chance and computes them."
)
LOGLESS = (
    "The log can't be read: artifacts are what the objects say by themselves, under the names that "
    "the index remembers. Whose keys count, who signed and cosigned what, which gates passed, and "
    "what was removed or revoked is not told, and methods are not listed."
)
UNLISTED = "Entries of the log that can't be read are not listed, and do not count for anything."
UNWITNESSED = (
    "The log is kept by its own owner and nobody cosigned it: it proves nothing against "
    "that owner. kvg log --cosigned takes up a witness's word."
)
NONE_SEEN = "none was given, or it was removed before one was seen here."
MEASURED = "Published figures are shown as they were written; nothing was measured again."
ELSEWHERE = (
    "Times are what the writers' clocks said; only the order of the log is proved.",
    "Other stores, remotes and copies of this one were not looked at.",
)


def audit(
    store: Store,
    settings: Settings,
    results: Sequence[Path] = (),
    *,
    faults: Sequence[Finding] = (),
) -> Audit:
    """Check everything that needs no model, and gather who says what of which artifact.

    ``results`` are files of published figures, or folders of them. ``faults`` are those with which
    the store was opened. Faults are findings, not errors, and what is sound beside them is told: a
    file of results that can't be read is one, too. Raises ``NotFound`` for results.
    """
    *findings, summary = verify(store, settings)
    found = (*faults, *(item for item in findings if isinstance(item, Finding)))
    checked = summary if isinstance(summary, VerifySummary) else None
    ground = ground_of(store)
    remains = None if ground.refs is not None else _remains(store, settings)
    if remains is None:
        artifacts = tuple(_artifacts(store, settings.cwd, ground, found))
    else:
        told_of = itertools.starmap(_described, remains.artifacts())
        artifacts = tuple(sorted(told_of, key=lambda item: (not item.refs, item.refs)))
        found = (*found, *remains.findings)
    read = remains or checked
    figures = _published(settings, results)
    unread = tuple(item for item in figures if isinstance(item, Finding))
    trusted = list(trust_records(ground.trust, settings))
    log, trust = ground.log, ground.trust
    return Audit(
        store=str(store.root),
        origin=store.origin if log is None else log.origin,
        verifier=None if log is None else encode_verifier(log.origin, log.verifier),
        log_size=None if log is None else log.size,
        root=None if log is None else log.root.hex(),
        audited=int(time.time()),
        objects=read.objects if read else 0,
        bytes=read.bytes if read else 0,
        bytes_ok=checked is not None and checked.bytes_ok and not (remains and remains.findings),
        signatures_ok=checked is not None and checked.signatures_ok,
        policy_ok=checked is not None and checked.policy_ok,
        required=told(lambda: required_gates(store), ()),
        findings=(*found, *unread),
        artifacts=artifacts,
        keys=tuple(item for item in trusted if isinstance(item, TrustEntry)),
        revoked=tuple(item for item in trusted if isinstance(item, Revoked)),
        thresholds={role: trust.threshold(role) for role in ROLES if ground.is_trust_known},
        trust_version=trust.version if ground.is_trust_known else None,
        witnesses=ground.witnesses,
        timeline=ground.timeline,
        growth=ground.growth,
        unchecked=tuple(_unchecked(store, ground, artifacts, found, has_results=bool(results))),
        results=tuple(item for item in figures if isinstance(item, PublishedFigure)),
    )


def _remains(store: Store, settings: Settings) -> Remains:
    from kvg.flow.remains import Remains

    return Remains(store, threads=settings.jobs)


def _published(
    settings: Settings, results: Sequence[Path]
) -> tuple[PublishedFigure | Finding, ...]:
    if not results:
        return ()
    from kvg.flow.published import published

    return tuple(published(settings.cwd, results))


def _artifacts(
    store: Store, cwd: Path, ground: Ground, faults: Sequence[Finding]
) -> Iterator[AuditedArtifact]:
    """Every artifact with a ref, by its first name; then what only the log remembers."""
    names: dict[Digest, list[str]] = {}
    for name, digest in sorted((ground.refs or {}).items()):
        names.setdefault(digest, []).append(name)
    forgotten = store.forgotten()
    for digest in store.artifacts():
        if digest not in forgotten:
            names.setdefault(digest, [])
    methods = methods_among(store, names)
    for digest, refs in names.items():
        found = attested(store, digest, ground.trust)
        if digest in methods:
            yield _method(store, cwd, digest, tuple(refs), found, ground.trust, faults)
        else:
            yield _artifact(store, cwd, digest, tuple(refs), found, faults)


def _described(digest: Digest, refs: tuple[str, ...], manifest: Manifest | None) -> AuditedArtifact:
    """An artifact or method as far as its manifest tells, and no statement."""
    return AuditedArtifact(
        digest=digest,
        refs=refs,
        stands=False,
        tokens=manifest.count if manifest else None,
        pages=len(manifest.pages) if manifest else None,
        bytes=sum(page.size for page in manifest.pages) if manifest else None,
        model=f"{manifest.model.architecture} {manifest.model.dtype}" if manifest else None,
        reference=manifest.engine.reference if manifest else None,
        depositors=(),
        verifiers=(),
        gates=(),
        failed=(),
        said=(),
        deposited=None,
    )


def _artifact(
    store: Store,
    cwd: Path,
    digest: Digest,
    refs: tuple[str, ...],
    found: Judgement,
    faults: Sequence[Finding],
) -> AuditedArtifact:
    manifest = told(lambda: store.manifest(digest), None)
    stands = bool(refs) and not _blamed(digest, refs, manifest, found, faults)
    described = _attested(_described(digest, refs, manifest), store, cwd, found)
    return replace(described, stands=stands, depositors=found.depositors)


def _method(
    store: Store,
    cwd: Path,
    digest: Digest,
    refs: tuple[str, ...],
    found: Judgement,
    trust: TrustFile,
    faults: Sequence[Finding],
) -> AuditedArtifact:
    from kvg.problem.method import as_required

    stands = not _is_blamed(set(_named_in(store, digest)), digest, refs, found, faults)
    described = _attested(_described(digest, refs, None), store, cwd, found)
    return replace(
        described,
        stands=stands,
        depositors=_provers(trust, found, digest),
        gates=tuple(map(as_required, found.gates)),
        unenclosed=tuple(map(as_required, found.unenclosed)),
        is_method=True,
    )


def _attested(item: AuditedArtifact, store: Store, cwd: Path, found: Judgement) -> AuditedArtifact:
    """``item`` with what the statements about it say."""
    return replace(
        item,
        verifiers=found.verifiers,
        gates=found.gates,
        unenclosed=found.unenclosed,
        failed=found.failed,
        said=tuple(map(_saying, found.opened)),
        deposited=_moment(found.provenance),
        stale=stale_now(store, cwd, found),
        revoked=found.revoked,
        untrusted=found.others,
    )


def _provers(trust: TrustFile, found: Judgement, digest: Digest) -> tuple[str, ...]:
    """The trusted depositors whose word it is that a method was proved."""
    from kvg.verify.method import proved_by

    try:
        return proved_by(found, trust, what=digest)[2]
    except Untrusted:
        return ()


def _blamed(
    digest: Digest,
    refs: tuple[str, ...],
    manifest: Manifest | None,
    found: Judgement,
    faults: Sequence[Finding],
) -> bool:
    """Whether a finding is about this artifact, or about the log or the trust that it rests on."""
    if manifest is None:
        return True
    parts = {manifest.tokens.digest, *(page.digest for page in manifest.pages)}
    return _is_blamed(parts, digest, refs, found, faults)


def _is_blamed(
    parts: Iterable[str],
    digest: Digest,
    refs: Iterable[str],
    found: Judgement,
    faults: Sequence[Finding],
) -> bool:
    envelopes = (item.envelope for item in found.opened)
    mine = {digest, *parts, *refs, *envelopes, "log", "trust.json"}
    return any(fault.object in mine for fault in faults)


def _named_in(store: Store, method: Digest) -> Iterator[str]:
    """What a method is called, and what it is made of, as its statements say."""
    from kvg.store.closure import named_by
    from kvg.verify.method_check import method_name

    yield method_name(method)
    for item in store.attestations(method):
        yield from named_by(store, item.envelope)


def _saying(item: Opened) -> Saying:
    from kvg.objects.statement import Provenance

    kind, result, points = "not counted", None, dict[str, str | None]()
    said = item.statement.predicate if item.statement else None
    if isinstance(said, Provenance):
        kind = "deposit"
        points = {part.name: part.digest for part in (*(said.source or ()), *said.depends)}
    elif said is not None:
        kind, result = said.gate, said.result
        points = {part.name: part.digest for part in (*said.configuration, *said.evidence)}
    return Saying(
        item.index,
        item.envelope,
        item.signers,
        kind,
        result,
        points,
        revoked=item.revoked,
        untrusted=item.others,
    )


def _moment(said: Provenance | None) -> int | None:
    from datetime import datetime

    if said is None:
        return None
    try:
        return int(datetime.fromisoformat(said.finished).timestamp())
    except ValueError:
        return None


def _unchecked(
    store: Store,
    ground: Ground,
    artifacts: Sequence[AuditedArtifact],
    faults: Sequence[Finding],
    *,
    has_results: bool,
) -> Iterator[str]:
    """What no reader may conclude from this audit, each with the command that would tell."""
    yield TRUTH
    if ground.refs is None:
        yield LOGLESS
    else:
        yield from _unsaid(store, artifacts)
        if not ground.is_listed:
            yield UNLISTED
        if ground.is_trust_known and not ground.is_trust_sound:
            yield (
                "trust.json can't be relied on: keys are shown as of version "
                f"{ground.trust.version}, the newest that the log names."
            )
        if not any(is_about_words(fault.object) for fault in faults):
            yield from _unwitnessed(store, ground.witnesses)
    if has_results:
        yield MEASURED
    yield from ELSEWHERE


def _unwitnessed(store: Store, said: Sequence[Cosignature]) -> Iterator[str]:
    if not said:
        yield UNWITNESSED
    silent = unheard(told(lambda: configured(store), ()), said)
    if silent:
        names = ", ".join(silent)
        yield f"store.witnesses names {names}, and there is no word of theirs: {NONE_SEEN}"


def _unsaid(store: Store, artifacts: Sequence[AuditedArtifact]) -> Iterator[str]:
    """What the statements about ``artifacts`` leave open."""
    n_artifacts = sum(not item.is_method for item in artifacts)
    unreplayed = [item for item in artifacts if not item.verifiers and not item.is_method]
    if unreplayed:
        yield (
            f"{len(unreplayed)} of {n_artifacts} artifacts have no replay by a trusted "
            "verifier: kvg replay REF --sign."
        )
    bare = [item for item in artifacts if not item.gates and not item.is_method]
    if bare:
        yield f"{len(bare)} of {n_artifacts} artifacts passed no gate: their text is unchecked."
    loose = [item for item in artifacts if item.unenclosed]
    if loose:
        yield (
            f"{len(loose)} of {len(artifacts)} artifacts and methods passed gates that ran without "
            "a sandbox: what was checked there could have written what they said."
        )
    if len(bare) < len(artifacts):
        yield "No gate was run again: that one passed is the word of who signed it."
    missing = sorted(set(_missing_evidence(store, artifacts)))
    if missing:
        names = ", ".join(short(digest) for digest in missing[:5])
        yield f"Statements point at {len(missing)} that this store does not have: {names}."
    pinned = store.pins()
    nameless = [item for item in artifacts if not item.refs and not item.is_method]
    unnamed = [item for item in nameless if item.digest not in pinned]
    if unnamed:
        yield (
            f"{len(unnamed)} artifacts have no name; their bytes were not read here, and gc may "
            "remove them: kvg fsck."
        )


def _missing_evidence(store: Store, artifacts: Sequence[AuditedArtifact]) -> Iterator[Digest]:
    for item in artifacts:
        for said in item.said:
            for digest in said.evidence.values():
                if is_digest(digest):
                    known = parse_digest(digest, what="evidence")
                    if not store.objects.has(known):
                        yield known
