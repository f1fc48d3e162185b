"""What every test may use. Nothing heavy is imported before a test asks for it."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

# Before torch is loaded: threads that wait in a loop starve whatever else runs on the machine.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# Put in the background by a shell, the tests and all their children would ignore Ctrl-C.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


WITH_MODELS = {"bench", "examples", "field", "flow", "kernels", "kernels_triton", "model", "serve"}
"""The folders whose tests fill a process with models."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs no model comes first: a process that holds models takes long to fork."""
    top = Path(__file__).parent
    items.sort(key=lambda item: item.path.relative_to(top).parts[0] in WITH_MODELS)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folder of a tiny random model of each family."""
    from tests import models

    base = tmp_path_factory.getbasetemp() / "tiny"
    return {family: models.make_model(base / family, family) for family in models.FAMILIES}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What tests that go through a matrix have gone through, counted: (row, its size, points).

    ``KVG_RECORDS`` names a file for the same as records, a JSON line each (``bench/matrices.py``).
    """
    rows: dict[str, list[tuple[str, str, int]]] = {}
    records: list[dict[str, object]] = []
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name.endswith(" matrix"):
                rows.setdefault(name, []).append(value)
            elif name == "record":
                records.append(value)
    for name, found in rows.items():
        points = sum(value[2] for value in found)
        terminalreporter.write_line(f"{name}: {len(found)} rows, {points} points, none failed")
        for row, size, count in found:
            terminalreporter.write_line(f"  {row}: {size}, {count} points")
    if place := os.environ.get("KVG_RECORDS"):
        Path(place).write_text("".join(json.dumps(record) + "\n" for record in records))
