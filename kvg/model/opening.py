"""Opening a session: load the model, prove that this machine is exact, name the engine."""

from __future__ import annotations

import time
from pathlib import Path

import torch

from kvg.errors import Incompatible
from kvg.model.ambient import check_no_autocast
from kvg.model.invariant import ATTENTION_NAME, TileMenu
from kvg.model.loader import LoadedModel, load_model
from kvg.model.probe import STOCK_FUSED, probe
from kvg.model.proofs import ProofCache, SelfCheck
from kvg.model.selfcheck import prove_splits
from kvg.model.session import Session
from kvg.model.tiling import is_still_true, prove_tiles
from kvg.objects.manifest import Engine, Reference, Schedule, engine_fingerprint
from kvg.report import Report, SilentReport


def open_session(
    folder: Path,
    *,
    dtype: str,
    device: str,
    reference: Reference,
    schedule: Schedule | None = None,
    report: Report | None = None,
    adapter: Path | None = None,
    proofs: ProofCache | None = None,
) -> Session:
    """A session of the model in ``folder``, its engine proved and named.

    ``adapter`` is the folder of a PEFT adapter that joins the model; ``proofs`` remembers what the
    self-check found.
    ``schedule`` None with the scheduled reference takes this machine's threads and stock sdpa.
    Raises ``Incompatible`` when the model cannot be loaded or the machine cannot be exact.
    """
    if reference == "scheduled" and schedule is None:
        schedule = default_schedule()
    attention = schedule.attention if schedule else ATTENTION_NAME
    where = session_device(device, reference, report or SilentReport())
    model = load_model(folder, dtype=dtype, device=where, attention=attention, adapter=adapter)
    return session_of(model, schedule=schedule, report=report, proofs=proofs)


def session_device(name: str, reference: Reference, report: Report) -> str:
    """The device called ``name``; ``auto`` is a GPU where there is one and ``reference`` has a
    session on it, else the CPU. A GPU that is passed over is reported."""
    if name != "auto":
        return name
    if not torch.cuda.is_available():
        return "cpu"
    if reference == "scheduled":
        return "cuda"
    report.notice(
        "device auto: there is no invariant session on a GPU yet, the CPU computes; "
        "--reference scheduled uses the GPU"
    )
    return "cpu"


def session_of(
    model: LoadedModel,
    *,
    schedule: Schedule | None,
    report: Report | None = None,
    proofs: ProofCache | None = None,
) -> Session:
    """A session of a model that is in memory; ``schedule`` None is the invariant reference."""
    if schedule is None and model.device.type != "cpu":
        raise Incompatible(
            f"device {model.device}: no invariant kernels for it yet",
            hint="use --device cpu, or --reference scheduled",
        )
    check_no_autocast()
    reference: Reference = "scheduled" if schedule else "invariant"
    fingerprint = engine_fingerprint(reference, schedule, probe(model, schedule))
    engine = Engine(fingerprint, reference, schedule)
    if schedule:
        return Session(model, engine, TileMenu(), report=report)
    return _proved(model, engine, report or SilentReport(), proofs)


def _proved(
    model: LoadedModel, engine: Engine, report: Report, proofs: ProofCache | None
) -> Session:
    """An invariant session, its self-check passed now, or passed before and sampled now."""
    began = time.process_time()
    menu = proofs.recall(model, engine) if proofs else None
    if menu is not None and not is_still_true(model, menu):
        report.warning("the self-check that was remembered does not hold here; proving all anew")
        menu = None
    is_remembered = menu is not None
    if menu is None:
        try:
            menu = prove_tiles(model)
            prove_splits(Session(model, engine, menu))
        except Incompatible:
            if proofs:
                proofs.forget(model, engine)
            raise
        if proofs:
            proofs.remember(model, engine, menu)
    found = SelfCheck(menu, time.process_time() - began, is_remembered)
    return Session(model, engine, menu, report=report, self_check=found, proofs=proofs)


def default_schedule(page_tokens: int = 256, *, attention: str = STOCK_FUSED) -> Schedule:
    """The schedule of a machine that was told none; ``attention`` is ``sdpa`` or ``eager``."""
    return Schedule(page_tokens=page_tokens, attention=attention, threads=torch.get_num_threads())
