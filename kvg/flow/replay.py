"""``kvg replay``: graft against fresh, bit for bit: logits of many prompts, and every page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvg.digest import Digest, sha256, shake256
from kvg.errors import Incompatible, UsageError
from kvg.flow.prompts import read_prompts
from kvg.flow.records.computed import Replay, ReplaySummary
from kvg.flow.records.record import Record
from kvg.flow.registered import (
    check_tokenizer,
    check_torch,
    empty_slot,
    identified,
    model_of,
    open_engine,
    tokenizer_of,
)
from kvg.flow.requests import PAGE_TOKENS, ReplayRequest
from kvg.flow.resident import Seat, check_decodes_as_prefill, read_on
from kvg.flow.settings import Settings, signing_key
from kvg.objects.manifest import Group, needed_pages
from kvg.objects.statement import Resource, TestResult, encode_test_result
from kvg.objects.tokens import encode_ids
from kvg.trust.policy import VERIFIER

if TYPE_CHECKING:
    from kvg.model.session import Session, Slot
    from kvg.objects.verified import Verified
    from kvg.signing.keys import PublicKey
    from kvg.store import Store

MAX_PROMPT_TOKENS = 600


@dataclass(slots=True)
class Tally:
    """What was counted so far."""

    samples: int = 0
    equal: int = 0
    kl_max: float = 0.0
    argmax_equal: int = 0
    pages: int = 0
    pages_equal: int = 0

    def add(self, record: Replay) -> None:
        self.samples += 1
        self.equal += record.equal
        self.kl_max = max(self.kl_max, record.kl)
        self.argmax_equal += record.argmax_equal

    def summary(self) -> ReplaySummary:
        return ReplaySummary(
            samples=self.samples,
            equal=self.equal,
            kl_max=self.kl_max,
            argmax_rate=self.argmax_equal / self.samples if self.samples else 1.0,
            pages=self.pages,
            pages_equal=self.pages_equal,
        )


def replay(store: Store, settings: Settings, request: ReplayRequest) -> Iterator[Record]:
    """Yield one ``Replay`` for each prompt of each ref, then a ``ReplaySummary``.

    The fresh side computes the text from its first token on and never sees a stored page. A
    difference is reported, not raised: the summary's exit code says it. Raises ``NotFound``,
    ``Corrupt``, ``Untrusted``, and ``Incompatible`` when this machine computes otherwise.
    """
    from kvg.verify import verify_to_replay

    check_torch()
    total = Tally()
    if settings.seat is not None and settings.seat.index is not None:
        for record in _replay_slot(store, settings, settings.seat, request, total):
            yield record
        yield total.summary()
        return
    for ref in request.refs:
        verified = verify_to_replay(store, store.resolve(ref).digest, ref=ref)
        tally = Tally()
        for record in _replay_one(store, settings, request, ref, verified, tally):
            total.add(record)
            yield record
        total.pages += tally.pages
        total.pages_equal += tally.pages_equal
        if request.sign:
            _sign(store, settings, request, verified, tally, ref)
    yield total.summary()


def _replay_one(
    store: Store,
    settings: Settings,
    request: ReplayRequest,
    ref: str,
    verified: Verified,
    tally: Tally,
) -> Iterator[Replay]:
    manifest = verified.manifest
    if request.reference not in (None, manifest.engine.reference):
        raise Incompatible(
            f"{ref}: computed by the {manifest.engine.reference} reference, not "
            f"{request.reference}",
            hint=f"kvg deposit … --reference {request.reference}",
        )
    model = model_of(store, manifest, verified.provenance)
    files = identified(store, settings, model)
    session = open_engine(settings, model, files, manifest.engine)
    session.check_engine(verified)
    if request.prompts is not None or request.texts is not None:
        check_tokenizer(verified, files, model)
        tokenizer = tokenizer_of(settings, model, files)
        texts = request.texts
        if request.prompts is not None:
            texts = read_prompts(settings, request.prompts)
        prompts = [tuple(tokenizer.encode_more(text)) for text in texts or ()]
    else:
        prompts = made_prompts(verified.ids, request.samples, session.model.window)
    for prompt in prompts:
        session.check_window(manifest.count + len(prompt))
    n_tokens = manifest.count + max(len(prompt) for prompt in prompts)
    fresh = empty_slot(settings, session, n_tokens)
    session.prefill(fresh, verified.ids)
    tally.pages = len(manifest.pages)
    tally.pages_equal = count_equal_pages(session, fresh, verified)
    grafted = empty_slot(settings, session, n_tokens)
    session.restore(grafted, verified)
    with settings.report.task(f"replay {ref}", len(prompts), "prompts") as task:
        for prompt in prompts:
            record = compare_prompt(session, ref, verified.ids, grafted, fresh, prompt)
            tally.add(record)
            yield record
            task.advance(1)


def _replay_slot(
    store: Store, settings: Settings, seat: Seat, request: ReplayRequest, tally: Tally
) -> Iterator[Replay]:
    """Compare the conversation in a numbered slot with a fresh computation of its tokens.

    The slot stays as it is. Raises ``Incompatible`` where a named ref is not what it begins with.
    """
    held, session = seat.conversation(), seat.resident.session
    for ref in request.refs:
        if store.resolve(ref).digest != held.digest:
            raise Incompatible(
                f"{ref}: slot {seat.index} begins with {held.ref} ({held.digest})",
                hint="leave out the ref, or --slot",
            )
    if request.sign:
        raise UsageError("--sign: a conversation is no artifact yet", hint="kvg deposit --slot I")
    check_decodes_as_prefill(session.engine)
    read_on(session, held)
    ids = held.ids
    prompts = _prompts_behind(settings, seat, request, ids)
    n_tokens = len(ids) + max(len(prompt) for prompt in prompts)
    session.check_window(n_tokens)
    fresh, copy = empty_slot(settings, session, n_tokens), empty_slot(settings, session, n_tokens)
    copy.state.take(held.slot.state)
    copy.ids[:] = ids
    session.prefill(fresh, ids)
    for group in session.model.groups:
        for start, end in needed_pages(group, PAGE_TOKENS, len(ids)):
            tally.pages += 1
            tally.pages_equal += _page(copy, group, start, end) == _page(fresh, group, start, end)
    for prompt in prompts:
        record = compare_prompt(session, held.ref, ids, copy, fresh, prompt)
        tally.add(record)
        yield record


def _prompts_behind(
    settings: Settings, seat: Seat, request: ReplayRequest, ids: tuple[int, ...]
) -> list[tuple[int, ...]]:
    texts = request.texts
    if request.prompts is not None:
        texts = read_prompts(settings, request.prompts)
    if texts is None:
        return made_prompts(ids, request.samples, seat.resident.session.model.window)
    return [tuple(seat.resident.tokenizer.encode_more(text)) for text in texts]


def _page(slot: Slot, group: Group, start: int, end: int) -> Digest:
    from kvg.model.state import capture_page

    return sha256(capture_page(slot.state, group, start, end, what=group.name))


def made_prompts(ids: tuple[int, ...], n: int, window: int) -> list[tuple[int, ...]]:
    """``n`` prompts of 1 to 600 tokens cut from the text itself, the same on every machine.

    The first has one token and the last as many as fit, up to 600.
    """
    room = min(MAX_PROMPT_TOKENS, window - len(ids))
    if room < 1:
        raise UsageError(
            "replay: the text fills the model's window, no prompt fits behind it",
            hint="deposit a shorter text",
        )
    prompts = []
    for number in range(n):
        noise = shake256(f"kvg.replay/1 {number}".encode(), 8)
        length = 1 + int.from_bytes(noise[:4], "little") % room
        if number in (0, n - 1):
            length = 1 if number == 0 else room
        start = int.from_bytes(noise[4:], "little") % len(ids)
        prompts.append(tuple(ids[(start + i) % len(ids)] for i in range(length)))
    return prompts


def count_equal_pages(session: Session, fresh: Slot, verified: Verified) -> int:
    """How many pages of ``verified`` have the digest that ``fresh``, computed here, gives."""
    from kvg.model.state import capture_page

    manifest = verified.manifest
    return sum(
        sha256(
            capture_page(
                fresh.state, manifest.group(page.group), page.start, page.end, what=page.digest
            )
        )
        == page.digest
        for page in manifest.pages
    )


def compare_prompt(
    session: Session,
    ref: str,
    ids: tuple[int, ...],
    grafted: Slot,
    fresh: Slot,
    prompt: tuple[int, ...],
) -> Replay:
    """Both slots hold ``ids``; what ``prompt`` behind them gives is compared."""
    from kvg.model.comparison import compare_logits

    count, last = len(ids), ids[-1]
    grafted.truncate(count)
    a = session.resume(grafted, last, prompt)[1]
    fresh.truncate(count)
    if prompt and session.engine.reference == "invariant":
        b = session.run(fresh, prompt, [len(prompt) - 1])[0]
    else:
        b = session.resume(fresh, last, prompt)[1]
    found = compare_logits(a, b)
    return Replay(
        ref=ref,
        prompt_digest=sha256(encode_ids(prompt)),
        grafted=found.grafted,
        fresh=found.fresh,
        equal=found.equal,
        kl=found.kl,
        argmax_equal=found.argmax_equal,
        max_abs_diff=found.max_abs_diff,
        top2_gap=found.top2_gap,
    )


def _sign(
    store: Store,
    settings: Settings,
    request: ReplayRequest,
    verified: Verified,
    tally: Tally,
    ref: str,
) -> None:
    """Attest what this replay of ``verified`` found, good or bad."""
    from kvg.signing.dsse import sign_envelope
    from kvg.verify.judgement import said_pages

    passed = tally.equal == tally.samples and tally.pages_equal == tally.pages
    outcome = TestResult(
        result="PASSED" if passed else "FAILED",
        gate="replay",
        configuration=(
            Resource(f"samples {tally.equal} of {tally.samples}"),
            Resource(said_pages(tally.pages_equal, tally.pages)),
            Resource("engine", verified.manifest.engine.fingerprint),
        ),
    )
    key = signing_key(settings, store, request.key)
    with store.pending() as pending:
        payload = encode_test_result(verified.digest, outcome)
        envelope = pending.put(sign_envelope(payload, [key])).digest
        store.record(verified.digest, [envelope])
    _warn_of_signer(store, settings, key.public, ref)


def _warn_of_signer(store: Store, settings: Settings, signer: PublicKey, ref: str) -> None:
    """Say so where what ``signer`` signed of a replay does not count, and what would."""
    keyid, trust = signer.keyid[:12], store.trust
    if trust.revocations(signer.keyid):
        settings.report.warning(
            f"{ref}: key {keyid} is revoked, so that what it signed of this replay does not count: "
            f"kvg replay {ref} --sign --key KEY, by another key that is a verifier"
        )
    elif signer not in trust.standing_keys(VERIFIER):
        settings.report.warning(
            f"{ref}: key {keyid} is no verifier here, so that what it signed of this replay does "
            f"not count until it is: kvg trust add {keyid} --role verifier"
        )
