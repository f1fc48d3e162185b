"""A sandbox to run a piece of Python in; skipped by name where bubblewrap can't run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kvg.errors import GateFailed
from kvg.sandbox import Enclosure, Job, Limits, Outcome, find_enclosure, run
from kvg.sandbox.enclosure import python_folders
from kvg.sandbox.process import python_argv

RunPython = Callable[..., Outcome]


@pytest.fixture(scope="session")
def enclosure() -> Enclosure:
    try:
        found = find_enclosure()
        run(Job(("/usr/bin/true",)), found)
    except GateFailed as error:
        pytest.skip(f"needs bubblewrap: {error.message}")
    return found


@pytest.fixture
def run_python(enclosure: Enclosure) -> RunPython:
    def run_it(
        code: str, *, limits: Limits | None = None, hidden: tuple[Path, ...] = ()
    ) -> Outcome:
        job = Job(
            python_argv("main.py"),
            files={"main.py": code.encode(), "input.txt": b"given"},
            stdin=b"typed",
            readable=python_folders(),
            hidden=hidden,
            limits=limits or Limits(wall_s=20),
        )
        return run(job, enclosure)

    return run_it
