"""The shell scripts in ``examples/`` run as they stand, on a tiny model."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvg.signing.keys import encode_private, generate
from tests.models import REPO, make_model, program_env, real_text


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "llama", "llama")


def run(script: str, folder: Path, *words: str, **env: str) -> list[str]:
    """The lines that ``script`` prints, run in ``folder`` with ``kvg`` on its path."""
    programs = folder / "bin"
    programs.mkdir()
    kvg = programs / "kvg"
    kvg.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m kvg "$@"\n')
    kvg.chmod(0o755)
    given = program_env(folder, **env)
    given["PATH"] = f"{programs}{os.pathsep}{given['PATH']}"
    done = subprocess.run(
        [str(REPO / "examples" / script), *words],
        cwd=folder,
        env=given,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def text_file(folder: Path) -> Path:
    path = folder / "notes.txt"
    path.write_text(real_text()[:1500])
    return path


def test_deposit_and_graft(tmp_path: Path, model: Path) -> None:
    lines = run("deposit-and-graft.sh", tmp_path, str(model), str(text_file(tmp_path)))
    assert lines[-1] == "exact: yes"


def test_verify_in_a_ci_job_with_a_key_from_a_secret(tmp_path: Path, model: Path) -> None:
    secret = encode_private(generate(), None).decode()
    lines = run("verify-in-ci.sh", tmp_path, str(model), str(text_file(tmp_path)), KVG_KEY=secret)
    assert lines[-1].startswith("a changed byte was found: exit 5")
    keys = [path.name for path in (tmp_path / "data" / "kvg" / "keys").glob("*.pem")]
    assert keys == [], "the secret was copied into the keyring"


def test_a_chat_and_questions_about_it(tmp_path: Path, model: Path) -> None:
    lines = run("chat.sh", tmp_path, str(model))
    assert any(line.startswith("sha256:") for line in lines)
