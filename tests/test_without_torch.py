"""``pip install .`` without the model extra: everything that needs no model works without torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.artifacts import deposit, make_store
from tests.models import REPO

HAS_NO_TORCH = """
import importlib.util, sys
found = [name for name in ("torch", "transformers", "numpy") if importlib.util.find_spec(name)]
sys.exit(f"found {found}" if found else 0)
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh virtual environment with kvg and what it needs, and nothing else."""
    folder = tmp_path_factory.mktemp("plain")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    program = folder / "bin" / "python"
    pip = [program, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "-c", REPO / "constraints.txt", REPO], check=True, cwd=folder)
    subprocess.run([program, "-c", HAS_NO_TORCH], check=True)
    return program


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    store, key = make_store(tmp_path)
    deposit(store, key, ref="demo")
    store.close()
    return tmp_path


def kvg(python: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {
        "PATH": str(python.parent),
        "HOME": str(folder),
        "XDG_DATA_HOME": str(folder / "data"),
        "XDG_CONFIG_HOME": str(folder / "config"),
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    return subprocess.run(
        [python.parent / "kvg", *words],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_a_store_is_verified_read_and_kept_without_torch(python: Path, folder: Path) -> None:
    for words in (
        ["verify"],
        ["log"],
        ["show", "demo"],
        ["ls"],
        ["status"],
        ["diff", "demo", "demo"],
        ["rev-parse", "demo"],
        ["reindex"],
        ["key", "list"],
        ["trust", "list"],
        ["model", "list"],
        ["config", "list"],
        ["session", "list"],
        ["version"],
    ):
        done = kvg(python, folder, *words)
        assert done.returncode == 0, f"{words}: {done.stderr}"
    summary = json.loads(kvg(python, folder, "verify", "--json").stdout.splitlines()[-1])
    assert summary["artifacts"] == 1
    assert summary["bytes_ok"] and summary["signatures_ok"] and summary["policy_ok"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["deposit", "x", "--text", "some text"],
        ["graft", "demo", "--prompt", "x"],
        ["ask", "demo", "what?"],
        ["logits", "demo"],
        ["replay", "demo"],
    ],
)
def test_what_needs_a_model_says_what_to_install(
    python: Path, folder: Path, words: list[str]
) -> None:
    done = kvg(python, folder, *words)
    assert done.returncode == 7, done.stderr
    assert "kvg[model]" in done.stderr
    assert done.stdout == ""


@pytest.mark.slow
def test_a_session_says_what_to_install(python: Path, folder: Path) -> None:
    done = kvg(python, folder, "session", "start", "desk")
    assert done.returncode == 7, done.stderr
    assert "kvg[model,serve]" in done.stderr
