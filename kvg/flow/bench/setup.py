"""What a measurement is made on: a registered model and this machine, in general words."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import TYPE_CHECKING

from kvg.errors import UsageError
from kvg.flow.records.bench import BenchSetup
from kvg.flow.registered import (
    RegisteredModel,
    identified,
    open_registered,
    registered_model,
)
from kvg.flow.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvg.model.session import Session
    from kvg.store import Store

CPU_FILE = Path("/proc/cpuinfo")


def open_measured(
    store: Store, settings: Settings, name: str | None, n_tokens: int
) -> tuple[RegisteredModel, Session]:
    """An invariant session of the model called ``name``, whose files are those registered.

    Raises ``NotFound``, ``Incompatible``, the latter also when ``n_tokens`` are past its window.
    """
    model = registered_model(store, name)
    check_declared(model, n_tokens)
    files = identified(store, settings, model)
    return model, open_registered(settings, model, files, reference="invariant")


def check_declared(model: RegisteredModel, n_tokens: int) -> None:
    """Raise ``Incompatible`` when ``n_tokens`` are past the window that the config declares."""
    from kvg.model.window import check_fits, declared_window

    window = declared_window(model.path)
    if window is not None:
        check_fits(n_tokens, window)


def check_listed(option: str, values: Sequence[int]) -> None:
    """Raise ``UsageError`` unless ``values`` are 1 or more, and each is there once."""
    for value in values:
        check_least(option, value, 1)
    check_once(option, values)


def check_least(option: str, value: int, least: int) -> None:
    """Raise ``UsageError`` unless ``value`` is ``least`` or more."""
    if value < least:
        raise UsageError(
            f"{option} {value}: less than {least}", hint=f"give {option} {least} or more"
        )


def check_once(option: str, values: Sequence[object]) -> None:
    """Raise ``UsageError`` when one of ``values`` is there twice: it would be counted twice."""
    for value in values:
        if values.count(value) > 1:
            raise UsageError(
                f"{option}: {value} twice: it would be counted twice", hint="name each once"
            )


def most_threads() -> int:
    """Compute threads beyond which they only wait for each other: a few for each processor."""
    return max(8, 4 * n_processors())


def n_processors() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
