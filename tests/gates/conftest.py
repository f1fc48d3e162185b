"""Gates in a folder of their own; skipped by name where there is no sandbox."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kvg.errors import GateFailed
from kvg.gates import GateInput, GateOutcome, parse_spec, run_gate
from kvg.gates.place import Place
from kvg.sandbox import Job, Limits, find_enclosure, run

Gate = Callable[..., GateOutcome]
LIMITS = Limits(wall_s=60, cpu_s=60)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    try:
        enclosure = find_enclosure()
        run(Job(("/usr/bin/true",)), enclosure)
    except GateFailed as error:
        pytest.skip(f"needs bubblewrap: {error.message}")
    keys = tmp_path / "keys"
    keys.mkdir()
    (keys / "a.pem").write_text("secret")
    return Place(enclosure, tmp_path, hidden=(keys,), limits=LIMITS)


@pytest.fixture
def gate(place: Place) -> Gate:
    """``gate("cmd:sh check.sh", "text", "answer", **{"check.sh": "…"})``."""

    def run_it(spec: str, text: str, answer: str | None = None, **files: str) -> GateOutcome:
        for name, content in files.items():
            (place.folder / name).write_text(content)
        given = GateInput(text.encode(), None if answer is None else answer.encode())
        return run_gate(parse_spec(spec), given, place)

    return run_it
