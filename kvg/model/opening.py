"""Opening a session: load the model, prove that this machine is exact, name the engine."""

from __future__ import annotations

from pathlib import Path

import torch

from kvg.digest import shake256
from kvg.errors import Incompatible
from kvg.model.invariant import ATTENTION_NAME
from kvg.model.loader import LoadedModel, load_model
from kvg.model.probe import one_thread, probe, prove_attention, prove_tiles, same_bits
from kvg.model.session import Session
from kvg.objects.manifest import Engine, Reference, Schedule, engine_fingerprint
from kvg.report import Report

STOCK_ATTENTION = "sdpa"
CHECK_TOKENS = 45


def open_session(
    folder: Path,
    *,
    dtype: str,
    device: str,
    reference: Reference,
    schedule: Schedule | None = None,
    report: Report | None = None,
) -> Session:
    """A session of the model in ``folder``, its engine proved and named.

    ``schedule`` None with the scheduled reference takes this machine's threads and stock sdpa.
    Raises ``Incompatible`` when the model cannot be loaded or the machine cannot be exact.
    """
    if reference == "scheduled" and schedule is None:
        schedule = default_schedule()
    attention = schedule.attention if schedule else ATTENTION_NAME
    model = load_model(folder, dtype=dtype, device=device, attention=attention)
    return session_of(model, schedule=schedule, report=report)


def session_of(
    model: LoadedModel, *, schedule: Schedule | None, report: Report | None = None
) -> Session:
    """A session of a model that is in memory; ``schedule`` None is the invariant reference."""
    if schedule is None and model.device.type != "cpu":
        raise Incompatible(
            f"device {model.device}: no invariant kernels for it yet",
            hint="use --device cpu, or --reference scheduled",
        )
    menu = {}
    if schedule is None:
        menu = dict(prove_tiles(model))
        prove_attention(model)
    reference: Reference = "scheduled" if schedule else "invariant"
    fingerprint = engine_fingerprint(reference, schedule, probe(model, schedule))
    session = Session(model, Engine(fingerprint, reference, schedule), menu, report=report)
    if schedule is None:
        prove_splits(session)
    return session


def default_schedule(page_tokens: int = 256, *, attention: str = STOCK_ATTENTION) -> Schedule:
    """The schedule of a machine that was told none; ``attention`` is ``sdpa`` or ``eager``."""
    return Schedule(page_tokens=page_tokens, attention=attention, threads=torch.get_num_threads())


def prove_splits(session: Session) -> None:
    """Raise ``Incompatible`` unless the whole model ignores splits, batches and threads.

    Runs a few tokens in one pass, in pieces, token by token, beside another text, and with one
    thread.
    """
    noise = shake256(b"kvg.self-check/1", 8 * CHECK_TOKENS)
    words = [int.from_bytes(noise[i : i + 4], "little") for i in range(0, len(noise), 4)]
    ids = [word % session.model.vocabulary for word in words[:CHECK_TOKENS]]
    others = [word % session.model.vocabulary for word in words[CHECK_TOKENS:]]
    last = CHECK_TOKENS - 1
    whole = session.run(session.slot(), ids, [last])[0]
    pieces = session.slot()
    session.run(pieces, ids[:17], [])
    session.run(pieces, ids[17:-1], [])
    first, second = session.slot(), session.slot()
    batch = session.run_batch([first, second], [ids, others[:30]], [last])[0, 0]
    with one_thread():
        alone = session.run(session.slot(), ids, [last])[0]
    found = {
        "how a text is split": session.run(pieces, ids[-1:], [0])[0],
        "what else is in the batch": batch,
        "the number of threads": alone,
    }
    for what, logits in found.items():
        if not same_bits(whole, logits):
            raise Incompatible(
                f"self-check: the logits of {type(session.model.module).__name__} depend on {what}",
                hint="use --reference scheduled for this model",
            )
