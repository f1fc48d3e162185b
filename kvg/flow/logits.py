"""``kvg logits``: raw logits of the last position and their digest, grafted or fresh."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from kvg import durable
from kvg.errors import Incompatible
from kvg.flow.freshness import check_fresh
from kvg.flow.records.computed import Logits
from kvg.flow.registered import (
    RegisteredModel,
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
from kvg.flow.requests import LogitsRequest
from kvg.flow.settings import Settings

if TYPE_CHECKING:
    import torch

    from kvg.model.session import Session, Slot
    from kvg.objects.verified import Verified
    from kvg.store import Store


def logits(store: Store, settings: Settings, request: LogitsRequest) -> Logits:
    """The logits after ids(ref) + ids(prompt). Grafted ones are proved by the witness first.

    Raises ``NotFound``, ``Corrupt``, ``Untrusted``, ``Incompatible``, ``UsageError``.
    """
    check_torch()
    if request.out is not None:
        durable.check_target(settings.cwd / request.out, option="--out")
    if request.ref is None:
        session, found, compute_ms = _of_prompt(store, settings, request)
    else:
        session, found, compute_ms = _of_ref(store, settings, request, request.ref)
    from kvg.model.session import check_numbers

    check_numbers(found)
    if request.out is not None:
        _write(settings.cwd / request.out, found)
    from kvg.model.dtypes import tensor_digest

    return Logits(
        digest=tensor_digest(found),
        dtype=session.model.dtype,
        shape=tuple(found.shape),
        reference=session.engine.reference,
        source="fresh" if request.fresh or request.ref is None else "grafted",
        compute_ms=compute_ms,
    )


def _of_prompt(
    store: Store, settings: Settings, request: LogitsRequest
) -> tuple[Session, torch.Tensor, float]:
    model = registered_model(store, request.model)
    files = identified(store, settings, model)
    ids = tokenizer_of(settings, model, files).encode(request.prompt or "")
    session = open_registered(settings, model, files, reference=request.reference or "invariant")
    session.check_window(len(ids))
    last = len(ids) - 1
    slot = empty_slot(settings, session, len(ids))
    began = time.perf_counter()
    found = session.prefill(slot, ids, [last]).logits[last]
    return session, found, (time.perf_counter() - began) * 1e3


def _of_ref(
    store: Store, settings: Settings, request: LogitsRequest, ref: str
) -> tuple[Session, torch.Tensor, float]:
    from kvg.verify import verify_artifact

    verified = verify_artifact(store, store.resolve(ref).digest, ref=ref)
    check_fresh(store, settings.cwd, verified.provenance, what=ref)
    model = _model(store, request, verified, ref)
    files = identified(store, settings, model)
    prompt: list[int] = []
    if request.prompt:
        check_tokenizer(verified, files, model)
        prompt = tokenizer_of(settings, model, files).encode_more(request.prompt)
    session = open_engine(settings, model, files, verified.manifest.engine)
    session.check_window(verified.manifest.count + len(prompt))
    began = time.perf_counter()
    if request.fresh:
        slot = empty_slot(settings, session, verified.manifest.count + len(prompt))
        found = fresh_logits(session, verified, prompt, slot)
    else:
        found = _grafted_logits(settings, session, verified, prompt, ref)
    return session, found, (time.perf_counter() - began) * 1e3


def _grafted_logits(
    settings: Settings, session: Session, verified: Verified, prompt: list[int], ref: str
) -> torch.Tensor:
    session.check_engine(verified)
    count = verified.manifest.count
    slot, _ = grafted_slot(settings, session, verified, count, len(prompt))
    witness, last = session.resume(slot, verified.ids[-1], prompt)
    session.check_witness(verified, verified.manifest.witnesses[-1], witness)
    if settings.seat is not None:
        settings.seat.keep(ref, verified, count, slot)
    return last


def fresh_logits(
    session: Session, verified: Verified, prompt: list[int], slot: Slot
) -> torch.Tensor:
    """The logits after ids(deposit) + ids(prompt), computed in the empty ``slot`` from the first
    token on."""
    if session.engine.reference == "invariant":
        ids = (*verified.ids, *prompt)
        last = len(ids) - 1
        return session.prefill(slot, ids, [last]).logits[last]
    session.prefill(slot, verified.ids)
    return session.resume(slot, verified.ids[-1], prompt)[1]


def _model(store: Store, request: LogitsRequest, verified: Verified, ref: str) -> RegisteredModel:
    """The model of the artifact; one that is named must be it."""
    manifest = verified.manifest
    if request.reference not in (None, manifest.engine.reference):
        raise Incompatible(
            f"{ref}: computed by the {manifest.engine.reference} reference, not "
            f"{request.reference}",
            hint=f"kvg deposit … --reference {request.reference}",
        )
    if request.model is None:
        return model_of(store, manifest)
    model = registered_model(store, request.model)
    if model.fingerprint != manifest.model.fingerprint:
        raise Incompatible(
            f"{ref}: computed by model {manifest.model.fingerprint}, {model.name} is "
            f"{model.fingerprint}",
            hint="leave out --model, or deposit the text with it",
        )
    return model


def _write(path: Path, found: torch.Tensor) -> None:
    from safetensors.torch import save

    durable.replace(path, [save({"logits": found.contiguous()})], staging=path.parent)
