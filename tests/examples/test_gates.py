"""The example of gated answers."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.examples.test_scripts import run
from tests.models import make_model


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")
def test_gates(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model", "llama")
    lines = run("gates.sh", tmp_path, str(model))
    assert [line.split("  ")[1] for line in lines[:5]] == [*["PASSED"] * 3, *["FAILED"] * 2]
    digests = [line for line in lines if line.startswith("sha256:")]
    assert len(set(digests)) == 3
    assert any(line.startswith("3 artifacts: bytes ok, signature ok, policy ok") for line in lines)
