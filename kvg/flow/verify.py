"""``kvg verify``: bytes, signatures, policy and log, without a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

from kvg.digest import Digest, parse_prefix, short
from kvg.errors import Conflict, UsageError
from kvg.flow.records.findings import Finding, VerifySummary
from kvg.verify import check as checks

if TYPE_CHECKING:
    from kvg.flow.settings import Settings
    from kvg.store import Store


def verify(
    store: Store,
    settings: Settings,
    targets: Sequence[str] = (),
    *,
    require: Sequence[str] = (),
    expect_digest: str | None = None,
) -> Iterator[Finding | VerifySummary]:
    """Every problem found, then a summary. ``targets`` empty means all refs.

    ``expect_digest`` is what the one target must stand for. Truth is not recomputed here. Raises
    ``NotFound`` for a target that is not there.
    """
    named = [(target, store.resolve(target).digest) for target in targets]
    if expect_digest is not None:
        yield from _unexpected(named, expect_digest)
    everything = checks.check_store(
        store, named if targets else None, require=require, threads=settings.jobs
    )
    for found in everything:
        if isinstance(found, checks.Finding):
            yield Finding(found.code, found.kind, found.object, found.message, found.hint)
        else:
            yield VerifySummary(*(getattr(found, field.name) for field in fields(VerifySummary)))


def _unexpected(named: Sequence[tuple[str, Digest]], expected: str) -> Iterator[Finding]:
    if len(named) != 1:
        raise UsageError("--expect-digest: needs exactly one ref", hint="kvg verify REF …")
    digits = parse_prefix(expected)
    target, digest = named[0]
    if not digest.removeprefix("sha256:").startswith(digits):
        yield Finding(
            Conflict.code,
            Conflict.kind,
            target,
            f"{target}: stands for {short(digest)}, expected {expected}",
            f"kvg log {target}",
        )
