"""``kvg graft`` and ``kvg ask``: verify, restore, prove by the witness, then continue."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvg.digest import Digest
from kvg.errors import Incompatible, NotFound, UsageError
from kvg.flow.freshness import check_fresh
from kvg.flow.prompts import has_messages, prompts_of
from kvg.flow.records.computed import Graft, TextPiece
from kvg.flow.records.record import Record
from kvg.flow.registered import (
    RegisteredModel,
    check_template,
    check_tokenizer,
    check_torch,
    empty_slot,
    grafted_slot,
    identified,
    model_of,
    open_engine,
    open_registered,
    registered_model,
    tokenizer_of,
)
from kvg.flow.requests import AskRequest, GraftRequest, Sampling
from kvg.flow.settings import Settings
from kvg.objects.manifest import Witness

if TYPE_CHECKING:
    import torch

    from kvg.flow.resident import Held, Seat
    from kvg.model.generation import Choice
    from kvg.model.session import Session, Slot
    from kvg.model.text import Tokenizer
    from kvg.objects.verified import Verified
    from kvg.store import Store


@dataclass(frozen=True, slots=True)
class Times:
    """What one graft took, in milliseconds, up to the first forward pass."""

    verify_ms: float
    restore_ms: float
    restored_bytes: int


def graft(store: Store, settings: Settings, request: GraftRequest | AskRequest) -> Iterator[Record]:
    """Yield one ``Graft`` for each prompt, after its pieces of text when streaming.

    Nothing is yielded before the witness has proved the graft. Raises ``NotFound`` on a miss,
    ``Corrupt``, ``Untrusted``, ``Incompatible``.
    """
    or_fresh = request.or_fresh if isinstance(request, GraftRequest) else None
    try:
        yield from _grafts(store, settings, request)
    except NotFound:
        if or_fresh is None:
            raise
        yield from _fresh(store, settings, request, or_fresh)


def _grafts(
    store: Store, settings: Settings, request: GraftRequest | AskRequest
) -> Iterator[Record]:
    from kvg.verify import verify_artifact

    digest = store.resolve(request.ref).digest
    began = time.perf_counter()
    verified = verify_artifact(store, digest, require=request.require, ref=request.ref)
    verify_ms = (time.perf_counter() - began) * 1e3
    check_fresh(store, settings.cwd, verified.provenance, what=request.ref)
    check_torch()
    witness = _target(settings, verified, request)
    model = model_of(store, verified.manifest, verified.provenance)
    files = identified(store, settings, model)
    tokenizer = tokenizer_of(settings, model, files)
    prompts = prompts_of(settings, request, tokenizer)
    if any(prompts):
        check_tokenizer(verified, files, model)
    if has_messages(request):
        check_template(verified, files, model)
    session = open_engine(settings, model, files, verified.manifest.engine)
    session.check_engine(verified)
    if request.at and settings.seat is not None:
        times = Times(verify_ms, 0.0, 0)
        yield from _go_on(
            settings, settings.seat, request, session, tokenizer, verified, witness, prompts, times
        )
        return
    end = witness.position + 1
    for prompt in prompts:
        session.check_window(end + len(prompt))
    n_more = max(len(prompt) for prompt in prompts) + request.sampling.max_tokens
    n_more = min(n_more, session.model.window - end)
    began = time.perf_counter()
    slot, restored_bytes = grafted_slot(settings, session, verified, end, n_more)
    restore_ms = (time.perf_counter() - began) * 1e3
    times = Times(verify_ms, restore_ms, restored_bytes)
    for prompt in prompts:
        slot.truncate(end)
        yield from _continue(
            settings, request, session, slot, tokenizer, verified, witness, prompt, times
        )


def _target(settings: Settings, verified: Verified, request: GraftRequest | AskRequest) -> Witness:
    """The witness at the position that is asked for. Raises ``Incompatible`` for any other."""
    manifest = verified.manifest
    has_slot = settings.seat is not None and settings.seat.index is not None
    if request.at not in (None, 0) and not has_slot:
        raise Incompatible(
            f"{request.ref}: its own position is 0, asked for at {request.at}: rotary angles "
            "differ by rounding at any other place, so the graft would not be exact",
            hint="leave out --at; kvg bench own-position measures the loss",
        )
    if isinstance(request, AskRequest):
        return manifest.witnesses[-1]
    end = request.cut or manifest.count
    for witness in manifest.witnesses:
        if witness.position + 1 == end:
            return witness
    known = ", ".join(str(cut) for cut in (*manifest.cuts, manifest.count))
    raise Incompatible(
        f"{request.ref}: no cut point at {end}: only {known} have a witness that proves them",
        hint=f"kvg deposit … --cut-points {end}"
        if end < manifest.count
        else "give one of those, or leave out --cut",
    )


def _continue(
    settings: Settings,
    request: GraftRequest | AskRequest,
    session: Session,
    slot: Slot,
    tokenizer: Tokenizer,
    verified: Verified,
    witness: Witness,
    prompt: tuple[int, ...],
    times: Times,
) -> Iterator[Record]:
    """Prove this graft by its witness, then generate."""
    began = time.perf_counter()
    proof, logits = session.resume(slot, verified.ids[witness.position], prompt)
    session.check_witness(verified, witness, proof)
    if settings.seat is not None:
        settings.seat.keep(request.ref, verified, witness.position + 1, slot)
    n_skipped = slot.restored - 1
    yield from generated(
        settings,
        request,
        session,
        slot,
        tokenizer,
        logits,
        prompt,
        began,
        status="GRAFT_HIT",
        digest=verified.digest,
        saved_tokens=n_skipped,
        times=times,
    )


def _go_on(
    settings: Settings,
    seat: Seat,
    request: GraftRequest | AskRequest,
    session: Session,
    tokenizer: Tokenizer,
    verified: Verified,
    witness: Witness,
    prompts: tuple[tuple[int, ...], ...],
    times: Times,
) -> Iterator[Record]:
    """Go on in a slot that began as this graft, which proves itself again first."""
    if len(prompts) != 1:
        raise UsageError(f"{request.ref}: --at {request.at}: one prompt goes on, not several")
    end, at = witness.position + 1, request.at or 0
    held = seat.continued(request.ref, verified, end, at)
    slot, unread = held.slot, held.unread
    prompt = (*_turn_end(request, session, tokenizer, held), *prompts[0])
    session.check_window(at + len(prompt))
    n_tokens = len(unread) + len(prompt) + request.sampling.max_tokens
    seat.extend(held, min(n_tokens, session.model.window - len(slot.ids)))
    began = time.perf_counter()
    proof = session.logits_at(slot, witness.position, verified.ids[witness.position])
    session.check_witness(verified, witness, proof)
    given = (*unread, *prompt)
    if given:
        logits = session.run(slot, given, [len(given) - 1])[0]
        held.unread = ()
    else:
        logits = session.logits_at(slot, slot.length - 1, slot.ids[-1])
    yield from generated(
        settings,
        request,
        session,
        slot,
        tokenizer,
        logits,
        prompt,
        began,
        status="GRAFT_HIT",
        digest=verified.digest,
        saved_tokens=at - len(unread) - 1,
        times=times,
    )


def _turn_end(
    request: GraftRequest | AskRequest, session: Session, tokenizer: Tokenizer, held: Held
) -> tuple[int, ...]:
    """What the chat template writes between the answer in ``held`` and the next turn."""
    if not has_messages(request) or held.position == held.end:
        return ()
    ids = tuple(tokenizer.encode_more(tokenizer.turn_end()))
    last = held.ids[-1]
    return ids[1:] if last in session.model.eos_ids and ids[:1] == (last,) else ids


def generated(
    settings: Settings,
    request: GraftRequest | AskRequest,
    session: Session,
    slot: Slot,
    tokenizer: Tokenizer,
    logits: torch.Tensor,
    prompt: tuple[int, ...],
    began: float,
    *,
    status: str,
    digest: Digest | None,
    saved_tokens: int,
    times: Times,
) -> Iterator[Record]:
    from kvg.model.dtypes import tensor_digest
    from kvg.model.generation import Generated, generate

    moments = [time.perf_counter()]
    progress = Generated([], "")
    n_before = len(slot.ids)
    pieces = generate(
        session,
        slot,
        logits,
        tokenizer,
        _choice(request.sampling),
        progress,
        first=lambda: moments.insert(0, time.perf_counter()),
    )
    try:
        for piece in pieces:
            if request.stream:
                yield TextPiece(piece)
    finally:
        if settings.seat is not None:
            settings.seat.leave(slot, tuple(progress.ids[len(slot.ids) - n_before :]))
    passed_ms = (moments[0] - began) * 1e3
    yield Graft(
        status="GRAFT_HIT" if status == "GRAFT_HIT" else "CACHE_MISS",
        ref=request.ref,
        digest=digest,
        saved_tokens=saved_tokens,
        restored_bytes=times.restored_bytes,
        latency_ms=times.verify_ms + times.restore_ms,
        verify_ms=times.verify_ms,
        restore_ms=times.restore_ms,
        first_token_ms=times.verify_ms + times.restore_ms + passed_ms,
        prompt_tokens=len(prompt),
        new_tokens=len(progress.ids),
        text=progress.text,
        finish="stop" if progress.ended else "length",
        exact=status == "GRAFT_HIT",
        reference=session.engine.reference,
        logits_digest=tensor_digest(logits),
        device=str(session.model.device),
        sampling=_recorded(request.sampling),
    )


def _recorded(sampling: Sampling) -> dict[str, object]:
    """What anyone needs to choose the same tokens again."""
    from kvg.model.sampling import STREAM

    if sampling.temperature == 0:
        return {"stream": None, "seed": None, "temperature": 0.0, "top_p": 1.0}
    return {
        "stream": STREAM,
        "seed": sampling.seed or 0,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
    }


def _fresh(
    store: Store, settings: Settings, request: GraftRequest | AskRequest, name: str
) -> Iterator[Record]:
    """A miss, answered by computing the prompt alone with the model called ``name``."""
    model: RegisteredModel = registered_model(store, name)
    files = identified(store, settings, model)
    tokenizer = tokenizer_of(settings, model, files)
    prompts = prompts_of(settings, request, tokenizer)
    if not all(prompts):
        raise NotFound(
            f"{request.ref}: no such ref, and no prompt to compute", hint="give --prompt"
        )
    session = open_registered(settings, model, files, reference="invariant")
    yield from computed(settings, request, session, tokenizer, prompts)


def computed(
    settings: Settings,
    request: GraftRequest | AskRequest,
    session: Session,
    tokenizer: Tokenizer,
    prompts: tuple[tuple[int, ...], ...],
) -> Iterator[Record]:
    """Compute each of ``prompts`` from its first token on, and generate."""
    for prompt in prompts:
        session.check_window(len(prompt))
        n_tokens = min(len(prompt) + request.sampling.max_tokens, session.model.window)
        slot = empty_slot(settings, session, n_tokens)
        began = time.perf_counter()
        last = len(prompt) - 1
        logits = session.prefill(slot, prompt, [last]).logits[last]
        yield from generated(
            settings,
            request,
            session,
            slot,
            tokenizer,
            logits,
            prompt,
            began,
            status="CACHE_MISS",
            digest=None,
            saved_tokens=0,
            times=Times(0.0, 0.0, 0),
        )


def _choice(sampling: Sampling) -> Choice:
    from kvg.model.generation import Choice

    return Choice(
        max_tokens=sampling.max_tokens,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        seed=0 if sampling.seed is None else sampling.seed,
        stop=sampling.stop,
    )
