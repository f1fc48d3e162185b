"""What every test may use. Nothing heavy is imported before a test asks for it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Before torch is loaded: threads that wait in a loop starve whatever else runs on the machine.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folder of a tiny random model of each family."""
    from tests import models

    base = tmp_path_factory.getbasetemp() / "tiny"
    return {family: models.make_model(base / family, family) for family in models.FAMILIES}
