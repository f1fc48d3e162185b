"""``kvg verify``: bytes, signatures, policy and log; with a model also the truth of pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from kvg.digest import Digest, parse_prefix, short
from kvg.errors import Conflict, UsageError
from kvg.flow.records.findings import Finding, VerifySummary
from kvg.verify import check as checks
from kvg.verify.findings import Finding as Fault

if TYPE_CHECKING:
    from pathlib import Path

    from kvg.flow.recompute import Recomputation
    from kvg.flow.settings import Settings
    from kvg.store import Store


def verify(
    store: Store,
    settings: Settings,
    targets: Sequence[str] = (),
    *,
    require: Sequence[str] = (),
    expect_digest: str | None = None,
    recompute: float | None = None,
    lock: Path | None = None,
) -> Iterator[Finding | VerifySummary]:
    """Every problem found, then a summary. ``targets`` empty means all refs and all methods.

    ``lock`` is a lock file: without targets its refs are checked, and each has to stand for what it
    says; a target that it does not name is a problem. ``expect_digest`` is what the one target must
    stand for. ``recompute`` is how many percent of each artifact's pages are computed again from
    its tokens; without it no model is needed.
    Raises ``NotFound`` for a target that is not there, ``Incompatible`` to recompute without torch.
    """
    again = _recomputation(store, settings, recompute) if recompute is not None else None
    if lock is not None:
        from kvg.flow.lock import read_locked, unlocked, unnamed

        locked = read_locked(settings, lock)
        missing = [name for name in targets if not _is_named(store, locked, name)]
        yield from unnamed(store, missing, lock)
        if targets:
            locked = {name: locked[name] for name in locked if name in targets}
        yield from unlocked(store, locked, lock)
        targets = targets or [name for name in locked if store.ref(name) is not None]
    named = [(target, store.resolve(target).digest) for target in targets]
    if expect_digest is not None:
        yield from _unexpected(named, expect_digest)
    everything = checks.check_store(
        store,
        named if targets or lock is not None else None,
        require=require,
        with_blake3=False,
        threads=settings.jobs,
    )
    for found in everything:
        if isinstance(found, Fault):
            yield Finding(found.code, found.kind, found.object, found.message, found.hint)
            continue
        if again is not None:
            computed = named if targets or lock is not None else sorted(store.refs().items())
            methods = checks.methods_among(store, (digest for _, digest in computed))
            for name, digest in _once(computed):
                if digest not in methods:
                    yield from again.check(name, digest)
        yield VerifySummary(
            found.artifacts,
            found.objects,
            found.bytes,
            found.bytes_ok,
            found.signatures_ok,
            found.policy_ok,
            recomputed=0 if again is None else again.pages,
            differing=0 if again is None else again.differing,
            absent=found.absent,
            methods=found.methods,
        )


def _is_named(store: Store, locked: Mapping[str, Digest], target: str) -> bool:
    """Whether the lock file says what ``target`` has to be: by its name, or by a digest it has."""
    is_ref = target in locked or store.ref(target) is not None
    return target in locked if is_ref else store.resolve(target).digest in locked.values()


def _recomputation(store: Store, settings: Settings, percent: float) -> Recomputation:
    from kvg.flow.recompute import start_recomputation

    return start_recomputation(store, settings, percent)


def _once(named: Sequence[tuple[str, Digest]]) -> Iterator[tuple[str, Digest]]:
    """Each artifact under the first of its names."""
    seen: set[Digest] = set()
    for name, digest in named:
        if digest not in seen:
            seen.add(digest)
            yield name, digest


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
