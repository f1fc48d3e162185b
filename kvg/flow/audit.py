"""``kvg audit``: everything at once for a person, and what was not checked."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from kvg.digest import Digest, short
from kvg.errors import Corrupt, Incompatible, NotFound, Untrusted
from kvg.flow.attested import attested
from kvg.flow.checkpoint import checkpoint
from kvg.flow.freshness import stale_now
from kvg.flow.log import log
from kvg.flow.records.audit import Audit, AuditedArtifact, PublishedFigure, Saying
from kvg.flow.records.findings import Finding, VerifySummary
from kvg.flow.records.keys import Revoked, TrustEntry
from kvg.flow.trust import trust_list
from kvg.flow.verify import verify
from kvg.trust.policy import VERIFIER
from kvg.verify.check import methods_among
from kvg.verify.judgement import required_gates

if TYPE_CHECKING:
    from pathlib import Path

    from kvg.flow.settings import Settings
    from kvg.objects.manifest import Manifest
    from kvg.objects.statement import Provenance
    from kvg.store import Store
    from kvg.verify.judgement import Judgement, Opened

TIMELINE = 1000
"""Entries of the log that are listed; every one is counted and checked."""

POINTS = 400
"""Points at most of the log's growth."""


def audit(store: Store, settings: Settings, results: Sequence[Path] = ()) -> Audit:
    """Check everything that needs no model, and gather who says what of which artifact.

    ``results`` are files of published figures, or folders of them. Faults are findings, not
    errors, as long as the log can be read. Raises ``Corrupt`` and ``Untrusted`` where it can't, and
    ``NotFound`` and ``Corrupt`` for results.
    """
    *findings, summary = verify(store, settings)
    faults = tuple(item for item in findings if isinstance(item, Finding))
    checked = summary if isinstance(summary, VerifySummary) else None
    trusted = list(trust_list(store, settings))
    head, trust = checkpoint(store), store.trust
    artifacts = tuple(_artifacts(store, settings.cwd, faults))
    return Audit(
        store=str(store.root),
        origin=head.origin,
        verifier=head.verifier,
        log_size=head.size,
        root=head.root,
        audited=int(time.time()),
        objects=checked.objects if checked else 0,
        bytes=checked.bytes if checked else 0,
        bytes_ok=checked is not None and checked.bytes_ok,
        signatures_ok=checked is not None and checked.signatures_ok,
        policy_ok=checked is not None and checked.policy_ok,
        required=required_gates(store),
        findings=faults,
        artifacts=artifacts,
        keys=tuple(item for item in trusted if isinstance(item, TrustEntry)),
        revoked=tuple(item for item in trusted if isinstance(item, Revoked)),
        thresholds={role: trust.threshold(role) for role in ("depositor", VERIFIER, "publisher")},
        trust_version=trust.version,
        witnesses=head.witnesses,
        timeline=tuple(itertools.islice(log(store, None), TIMELINE)),
        growth=_growth(store),
        unchecked=tuple(_unchecked(store, artifacts, bool(head.witnesses), bool(results))),
        results=_published(settings, results),
    )


def _published(settings: Settings, results: Sequence[Path]) -> tuple[PublishedFigure, ...]:
    if not results:
        return ()
    from kvg.flow.published import published

    return tuple(published(settings.cwd, results))


def _artifacts(store: Store, cwd: Path, faults: Sequence[Finding]) -> Iterator[AuditedArtifact]:
    """Every artifact with a ref, by its first name; then what only the log remembers."""
    names: dict[Digest, list[str]] = {}
    for name, digest in sorted(store.refs().items()):
        names.setdefault(digest, []).append(name)
    forgotten = store.forgotten()
    for digest in store.artifacts():
        if digest not in forgotten:
            names.setdefault(digest, [])
    methods = methods_among(store, names)
    for digest, refs in names.items():
        yield _artifact(store, cwd, digest, tuple(refs), faults, is_method=digest in methods)


def _artifact(
    store: Store,
    cwd: Path,
    digest: Digest,
    refs: tuple[str, ...],
    faults: Sequence[Finding],
    *,
    is_method: bool,
) -> AuditedArtifact:
    manifest = None if is_method else _manifest(store, digest)
    found = attested(store, digest)
    if is_method:
        blamed = _is_blamed(set(_named_in(store, digest)), digest, refs, found, faults)
    else:
        blamed = _blamed(digest, refs, manifest, found, faults)
    return AuditedArtifact(
        digest=digest,
        refs=refs,
        stands=(is_method or bool(refs)) and not blamed,
        tokens=manifest.count if manifest else None,
        pages=len(manifest.pages) if manifest else None,
        bytes=sum(page.size for page in manifest.pages) if manifest else None,
        model=f"{manifest.model.architecture} {manifest.model.dtype}" if manifest else None,
        reference=manifest.engine.reference if manifest else None,
        depositors=_provers(store, found, digest) if is_method else found.depositors,
        verifiers=found.verifiers,
        gates=found.gates,
        unenclosed=found.unenclosed,
        is_method=is_method,
        failed=found.failed,
        said=tuple(_saying(item) for item in found.opened),
        deposited=_moment(found.provenance),
        stale=stale_now(store, cwd, found),
    )


def _provers(store: Store, found: Judgement, digest: Digest) -> tuple[str, ...]:
    """The trusted depositors whose word it is that a method was proved."""
    from kvg.verify.method import proved_by

    try:
        return proved_by(found, store.trust, what=digest)[2]
    except Untrusted:
        return ()


def _manifest(store: Store, digest: Digest) -> Manifest | None:
    try:
        return store.manifest(digest)
    except (Corrupt, Incompatible, NotFound, Untrusted):
        return None


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

    said = item.statement.predicate if item.statement else None
    if said is None:
        return Saying(item.index, item.envelope, (), "not counted", None, {})
    if isinstance(said, Provenance):
        sources = {part.name: part.digest for part in (*(said.source or ()), *said.depends)}
        return Saying(item.index, item.envelope, item.signers, "deposit", None, sources)
    points = {part.name: part.digest for part in (*said.configuration, *said.evidence)}
    return Saying(item.index, item.envelope, item.signers, said.gate, said.result, points)


def _moment(said: Provenance | None) -> int | None:
    from datetime import datetime

    if said is None:
        return None
    try:
        return int(datetime.fromisoformat(said.finished).timestamp())
    except ValueError:
        return None


def _growth(store: Store) -> tuple[tuple[int, int], ...]:
    """(time, entries) at evenly spaced entries, with both ends."""
    from kvg.log.entry import parse_entry

    size = store.log.size
    wanted = sorted({size * n // POINTS for n in range(POINTS)} | {size - 1}) if size else []
    points = []
    for index in wanted:
        raw = next(iter(store.log.read(index, index + 1)))
        points.append((parse_entry(raw, what=f"log entry {index}").time, index + 1))
    return tuple(points)


def _unchecked(
    store: Store, artifacts: Sequence[AuditedArtifact], is_witnessed: bool, has_results: bool
) -> Iterator[str]:
    """What no reader may conclude from this audit, each with the command that would tell."""
    n_artifacts = sum(not item.is_method for item in artifacts)
    unreplayed = [item for item in artifacts if not item.verifiers and not item.is_method]
    yield (
        "Truth: no page was computed again from its tokens. Signatures say who vouches for a page, "
        "not that it is right. kvg verify --recompute 5% draws pages by chance and computes them."
    )
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
    unnamed = [item for item in artifacts if not item.refs and not item.is_method]
    if unnamed:
        yield (
            f"{len(unnamed)} artifacts have no name; their bytes were not read here, and gc may "
            "remove them: kvg fsck."
        )
    if not is_witnessed:
        yield (
            "The log is kept by its own owner and nobody cosigned it: it proves nothing against "
            "that owner. kvg log --cosigned takes up a witness's word."
        )
    if has_results:
        yield "Published figures are shown as they were written; nothing was measured again."
    yield "Times are what the writers' clocks said; only the order of the log is proved."
    yield "Other stores, remotes and copies of this one were not looked at."


def _missing_evidence(store: Store, artifacts: Sequence[AuditedArtifact]) -> Iterator[Digest]:
    from kvg.digest import is_digest, parse_digest

    for item in artifacts:
        for said in item.said:
            for digest in said.evidence.values():
                if is_digest(digest):
                    known = parse_digest(digest, what="evidence")
                    if not store.objects.has(known):
                        yield known
