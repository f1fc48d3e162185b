"""``kvg prereg``: expected digests, committed to before a run, and the run against them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kvg import durable
from kvg.digest import Digest, sha256, short
from kvg.errors import Corrupt, Inexact, NotFound, UsageError
from kvg.flow.records.prereg import ExpectedArtifact, Prereg, PreregSample, PreregSummary
from kvg.flow.records.record import Record
from kvg.flow.registered import check_torch, identified, model_of, open_engine
from kvg.flow.replay import compare_prompt, count_equal_pages, made_prompts
from kvg.flow.settings import Settings
from kvg.objects.preregistration import (
    ExpectedLogits,
    ExpectedRun,
    Preregistration,
    encode_preregistration,
    parse_preregistration,
)
from kvg.objects.tokens import encode_ids

if TYPE_CHECKING:
    from kvg.model.session import Session, Slot
    from kvg.objects.verified import Verified
    from kvg.store import Store

SAMPLES = 5
MAX_FILE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class PreregRequest:
    """Commit to what ``samples`` prompts after each of ``refs`` will give; ``out`` gets a copy."""

    refs: tuple[str, ...]
    samples: int = SAMPLES
    out: Path | None = None

    def __post_init__(self) -> None:
        if not self.refs:
            raise UsageError("prereg create: no ref", hint="kvg prereg create REF")
        if self.samples < 1:
            raise UsageError(f"--samples {self.samples}: less than 1")


def create_prereg(store: Store, settings: Settings, request: PreregRequest) -> Prereg:
    """Compute the digests of a run afresh, store them as an object, and log it.

    Every page is read and compared with what the text gives here. Raises ``Inexact`` when a page or
    a graft differs from fresh already here; ``Corrupt`` for damage; as ``replay`` besides.
    """
    from kvg.log.entry import PreregEntry

    check_torch()
    digests = dict.fromkeys(store.resolve(ref).digest for ref in request.refs)
    runs = tuple(_expected(store, settings, digest, request.samples) for digest in digests)
    data = encode_preregistration(Preregistration(runs))
    now = int(time.time())
    with store.pending() as pending:
        digest = pending.put(data).digest
        published = store.publish([PreregEntry(now, digest)], now=now)
    if request.out is not None:
        path = settings.cwd / request.out
        with durable.translated(path):
            durable.replace(path, [data], staging=path.parent)
    index = published.entries[0][0]
    return _entry(digest, Preregistration(runs), (index, now))


def show_prereg(store: Store, settings: Settings, target: str) -> Prereg:
    """What the preregistration ``target``, a digest or a file, expects.

    Raises ``NotFound``, ``Corrupt``.
    """
    digest, found = _read(store, settings, target)
    return _entry(digest, found, _logged(store, digest))


def run_prereg(store: Store, settings: Settings, target: str) -> Iterator[Record]:
    """Run what ``target`` expects, grafted and afresh: a ``PreregSample`` each, then a summary.

    A difference is reported, not raised: the summary's exit code says it. Raises ``NotFound``
    without an artifact, ``Corrupt``, ``Untrusted``, and ``Incompatible`` on another engine.
    """
    check_torch()
    digest, found = _read(store, settings, target)
    logged = _logged(store, digest)
    if logged is None:
        settings.report.notice(
            f"{short(digest)}: not in this store's log: it does not show when it was written"
        )
    samples = equal = pages = pages_equal = 0
    for run in found.runs:
        work = _Work.open(store, settings, run.manifest)
        _check_inputs(work, run)
        prompts = _prompts(work, run)
        pages += len(run.pages)
        pages_equal += count_equal_pages(work.session, work.fresh, work.verified)
        for expected, prompt in zip(run.samples, prompts, strict=True):
            sample = _sample(work, expected, prompt)
            samples, equal = samples + 1, equal + sample.equal
            yield sample
    index = logged[0] if logged else None
    yield PreregSummary(digest, index, samples, equal, pages, pages_equal)


@dataclass(frozen=True, slots=True)
class _Work:
    """One artifact, its text computed afresh in one slot and grafted in another."""

    verified: Verified
    session: Session
    fresh: Slot
    grafted: Slot

    @classmethod
    def open(cls, store: Store, settings: Settings, digest: Digest) -> _Work:
        from kvg.verify import verify_artifact

        _check_there(store, digest)
        verified = verify_artifact(store, digest)
        model = model_of(store, verified.manifest)
        identified(store, settings, model)
        session = open_engine(settings, model, verified.manifest.engine)
        session.check_engine(verified)
        fresh, grafted = session.slot(), session.slot()
        session.prefill(fresh, verified.ids)
        session.restore(grafted, verified)
        return cls(verified, session, fresh, grafted)


def _expected(store: Store, settings: Settings, digest: Digest, n: int) -> ExpectedRun:
    work = _Work.open(store, settings, digest)
    manifest = work.verified.manifest
    n_pages = len(manifest.pages)
    other = n_pages - count_equal_pages(work.session, work.fresh, work.verified)
    if other:
        raise Inexact(
            f"{digest}: {other} of its {n_pages} pages are not what its text gives here",
            hint="nothing was committed to; kvg replay shows what differs",
        )
    samples = []
    for prompt in made_prompts(work.verified.ids, n, work.session.model.window):
        found = compare_prompt(
            work.session, digest, work.verified.ids, work.grafted, work.fresh, prompt
        )
        if not found.equal:
            raise Inexact(
                f"{digest}: a graft gives {found.grafted}, fresh {found.fresh}",
                hint="kvg replay shows where they differ",
            )
        samples.append(ExpectedLogits(found.prompt_digest, len(prompt), found.fresh))
    return ExpectedRun(
        manifest=digest,
        model=manifest.model,
        engine=manifest.engine,
        tokens=manifest.tokens.digest,
        count=manifest.count,
        pages=tuple(page.digest for page in manifest.pages),
        samples=tuple(samples),
    )


def _check_there(store: Store, digest: Digest) -> None:
    if not store.objects.has(digest):
        raise NotFound(f"{digest}: this artifact is not in the store", hint="kvg pull")


def _check_inputs(work: _Work, run: ExpectedRun) -> None:
    """Raise ``Corrupt`` when a preregistration contradicts the artifact that it names."""
    manifest = work.verified.manifest
    same = (
        manifest.model == run.model
        and manifest.engine == run.engine
        and manifest.tokens.digest == run.tokens
        and manifest.count == run.count
        and tuple(page.digest for page in manifest.pages) == run.pages
    )
    if not same:
        raise Corrupt(f"{run.manifest}: the preregistration says other things than its manifest")


def _prompts(work: _Work, run: ExpectedRun) -> list[tuple[int, ...]]:
    """The prompts that were preregistered: they follow from the text and their number."""
    prompts = made_prompts(work.verified.ids, len(run.samples), work.session.model.window)
    for expected, prompt in zip(run.samples, prompts, strict=True):
        if sha256(encode_ids(prompt)) != expected.prompt:
            raise Corrupt(f"{run.manifest}: prompt {expected.prompt} does not follow from its text")
    return prompts


def _sample(work: _Work, expected: ExpectedLogits, prompt: tuple[int, ...]) -> PreregSample:
    digest = work.verified.digest
    ids = work.verified.ids
    found = compare_prompt(work.session, digest, ids, work.grafted, work.fresh, prompt)
    return PreregSample(
        manifest=digest,
        prompt_digest=expected.prompt,
        expected=expected.logits,
        grafted=found.grafted,
        fresh=found.fresh,
        equal=found.grafted == found.fresh == expected.logits,
    )


def _read(store: Store, settings: Settings, target: str) -> tuple[Digest, Preregistration]:
    """A file's bytes where there is such a file, else the object of that digest."""
    path = settings.cwd / target
    if path.is_file():
        with durable.translated(path), open(path, "rb") as file:
            data = file.read(MAX_FILE_BYTES)
        return sha256(data), parse_preregistration(data, what=target)
    digest = store.resolve(target).digest
    raw = store.objects.read(digest, what=target)
    return digest, parse_preregistration(raw, what=target)


def _logged(store: Store, digest: Digest) -> tuple[int, int] | None:
    """The first place of ``digest`` in the log, and the time written there."""
    from kvg.log.entry import PreregEntry, parse_entry

    if digest not in store.preregistered():
        return None
    log = store.log
    for index, raw in enumerate(log.read(0, log.size)):
        entry = parse_entry(raw, what=f"log entry {index}")
        if isinstance(entry, PreregEntry) and entry.digest == digest:
            return index, entry.time
    return None


def _entry(digest: Digest, found: Preregistration, logged: tuple[int, int] | None) -> Prereg:
    return Prereg(
        digest=digest,
        artifacts=tuple(_artifact(run) for run in found.runs),
        samples=sum(len(run.samples) for run in found.runs),
        log_index=logged[0] if logged else None,
        time=logged[1] if logged else None,
    )


def _artifact(run: ExpectedRun) -> ExpectedArtifact:
    return ExpectedArtifact(
        manifest=run.manifest,
        model=run.model.fingerprint,
        architecture=run.model.architecture,
        dtype=run.model.dtype,
        engine=run.engine.fingerprint,
        reference=run.engine.reference,
        tokens=run.tokens,
        count=run.count,
        pages=run.pages,
        prompts=tuple(sample.prompt for sample in run.samples),
        logits=tuple(sample.logits for sample in run.samples),
    )
