"""What a measurement is made on: a registered model and this machine, in general words."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import TYPE_CHECKING

from kvg.flow.records.bench import BenchSetup
from kvg.flow.registered import (
    RegisteredModel,
    identified,
    open_registered,
    registered_model,
)
from kvg.flow.settings import Settings

if TYPE_CHECKING:
    from kvg.model.session import Session
    from kvg.store import Store

CPU_FILE = Path("/proc/cpuinfo")


def open_measured(
    store: Store, settings: Settings, name: str | None
) -> tuple[RegisteredModel, Session]:
    """An invariant session of the model called ``name``, whose files are those registered.

    Raises ``NotFound``, ``Incompatible``.
    """
    model = registered_model(store, name)
    identified(store, settings, model)
    return model, open_registered(settings, model, reference="invariant")


def setup_of(bench: str, model: RegisteredModel, session: Session) -> BenchSetup:
    """What ``bench`` is measured on."""
    from kvg.model.versions import compute_threads, library_versions

    return BenchSetup(
        bench=bench,
        model=model.name,
        architecture=model.architecture,
        fingerprint=model.fingerprint,
        dtype=session.model.dtype,
        engine=session.engine.fingerprint,
        cpu=cpu_name(),
        cores=os.cpu_count() or 1,
        threads=compute_threads(),
        device=str(session.model.device),
        versions={"python": platform.python_version(), **library_versions()},
    )


def cpu_name() -> str:
    """What the processor calls itself."""
    try:
        with open(CPU_FILE, encoding="utf-8", errors="replace") as file:
            found = re.search(r"^model name\s*:\s*(.+)$", file.read(), re.MULTILINE)
    except OSError:
        found = None
    return found[1].strip() if found else platform.machine()
