"""The example of gated answers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")
def test_gates(tmp_path: Path) -> None:
    scripts = Path(sys.executable).parent
    if not (scripts / "kvg").exists():
        pytest.skip("needs kvg installed beside this Python")
    path = os.pathsep.join((str(scripts), os.environ["PATH"]))
    done = subprocess.run(
        ["bash", str(ROOT / "examples" / "gates.sh")],
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [line.split("  ")[1] for line in done.stdout.splitlines()] == [
        *["PASSED"] * 3,
        *["FAILED"] * 2,
    ]
