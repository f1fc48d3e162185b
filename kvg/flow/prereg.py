"""``kvg prereg``: expected digests, committed to before a run, and the run against them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kvg import durable
from kvg.digest import Digest, sha256, short
from kvg.errors import Incompatible, Inexact, NotFound, Untrusted, UsageError
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
    from kvg.objects.manifest import Engine, Manifest, Model
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
    a graft differs from fresh already here; ``Corrupt`` for damage; ``UsageError`` and ``NotFound``
    where ``out`` cannot be written; as ``replay`` besides.
    """
    from kvg.log.entry import PreregEntry

    check_torch()
    path = None if request.out is None else settings.cwd / request.out
    if path is not None:
        durable.check_target(path, option="--out")
    digests = dict.fromkeys(store.resolve(ref).digest for ref in request.refs)
    runs = tuple(_expected(store, settings, digest, request.samples) for digest in digests)
    data = encode_preregistration(Preregistration(runs))
    now = int(time.time())
    with store.pending() as pending:
        digest = pending.put(data).digest
        published = store.publish([PreregEntry(now, digest)], now=now)
    if path is not None:
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


def run_prereg(
    store: Store, settings: Settings, target: str, *, logged: bool = False
) -> Iterator[Record]:
    """Run what ``target`` expects, grafted and afresh: a ``PreregSample`` each, then a summary.

    Logits and pages that differ are reported, not raised: the summary's exit code says it. Every
    other field is compared with the artifact first: raises ``Inexact`` for inputs or pages that
    are not the artifact's, ``Incompatible`` for another model or engine, also this machine's.
    Raises ``NotFound`` without an artifact, ``Corrupt``, and ``Untrusted``, with ``logged`` also
    for one that is not in this store's log.
    """
    check_torch()
    digest, found = _read(store, settings, target)
    place = _logged(store, digest)
    if place is None:
        _tell_unlogged(settings, digest, refused=logged)
    for run in found.runs:
        _check_there(store, run.manifest)
        _check_said(run, store.manifest(run.manifest))
    samples = equal = pages = pages_equal = 0
    for run in found.runs:
        work = _Work.open(store, settings, run.manifest)
        prompts = _prompts(work, run)
        pages += len(run.pages)
        pages_equal += count_equal_pages(work.session, work.fresh, work.verified)
        for expected, prompt in zip(run.samples, prompts, strict=True):
            sample = _sample(work, expected, prompt)
            samples, equal = samples + 1, equal + sample.equal
            yield sample
    index = place[0] if place else None
    yield PreregSummary(digest, index, samples, equal, pages, pages_equal)


def _tell_unlogged(settings: Settings, digest: Digest, *, refused: bool) -> None:
    text = f"{short(digest)}: not in this store's log"
    if refused:
        raise Untrusted(
            f"{text}: nothing shows that it was written before the run",
            hint="kvg log of the store that made it shows its entry; or leave out --logged",
        )
    settings.report.warning(f"{text}: it does not show when it was written")


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
        files = identified(store, settings, model)
        session = open_engine(settings, model, files, verified.manifest.engine)
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


def _check_said(run: ExpectedRun, manifest: Manifest) -> None:
    """Raise when a preregistration says something else than ``manifest``, which it names.

    ``Incompatible`` for the model or the engine, ``Inexact`` for the text and the pages.
    """
    for kind, said, found in (
        ("model", _words_of_model(run.model), _words_of_model(manifest.model)),
        ("engine", _words_of_engine(run.engine), _words_of_engine(manifest.engine)),
    ):
        if said != found:
            raise Incompatible(
                f"{run.manifest}: another {kind}: {said} was preregistered, {found} computed it",
                hint=f"preregister what that {kind} computed: kvg prereg create",
            )
    pages = tuple(page.digest for page in manifest.pages)
    _check_equal(run, "token ids", run.tokens, manifest.tokens.digest)
    _check_equal(run, "number of tokens", run.count, manifest.count)
    _check_equal(run, "number of pages", len(run.pages), len(pages))
    for number, (wanted, held) in enumerate(zip(run.pages, pages, strict=True), 1):
        _check_equal(run, f"page {number} of {len(pages)}", wanted, held)


def _check_equal(run: ExpectedRun, what: str, said: Digest | int, found: Digest | int) -> None:
    if said != found:
        raise Inexact(
            f"{run.manifest}: {what}: {said} was preregistered, {found} is what it has",
            hint="the preregistration was changed, or made of something else: kvg prereg show",
        )


def _words_of_model(model: Model) -> str:
    return f"{model.architecture} {model.dtype} {model.fingerprint}"


def _words_of_engine(engine: Engine) -> str:
    schedule = engine.schedule
    if schedule is None:
        return f"{engine.reference} {engine.fingerprint}"
    parts = f"{schedule.page_tokens} tokens, {schedule.attention}, {schedule.threads} threads"
    return f"{engine.reference} ({parts}) {engine.fingerprint}"


def _prompts(work: _Work, run: ExpectedRun) -> list[tuple[int, ...]]:
    """The prompts that were preregistered: they follow from the text and their number."""
    prompts = made_prompts(work.verified.ids, len(run.samples), work.session.model.window)
    for number, (expected, prompt) in enumerate(zip(run.samples, prompts, strict=True), 1):
        what = f"prompt {number} of {len(prompts)}"
        _check_equal(run, what, expected.prompt, sha256(encode_ids(prompt)))
        _check_equal(run, f"{what}, number of tokens", expected.count, len(prompt))
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
