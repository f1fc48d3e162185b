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


def test_a_session_and_a_conversation(tmp_path: Path, model: Path) -> None:
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    lines = run(
        "session.sh",
        tmp_path,
        str(model),
        str(text_file(tmp_path)),
        XDG_RUNTIME_DIR=str(runtime),
        XDG_STATE_HOME=str(tmp_path / "state"),
    )
    assert lines[-2].startswith("2 of 2 equal")
    assert lines[-1].startswith("deposited sha256:")
    assert list(runtime.glob("**/*.sock")) == []


def test_the_openai_client(tmp_path: Path, model: Path) -> None:
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    given = {"XDG_RUNTIME_DIR": str(runtime), "XDG_STATE_HOME": str(tmp_path / "state")}
    env = program_env(tmp_path, **given)
    programs = tmp_path / "bin"
    programs.mkdir()
    kvg = programs / "kvg"
    kvg.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m kvg "$@"\n')
    kvg.chmod(0o755)
    env["PATH"] = f"{programs}{os.pathsep}{env['PATH']}"

    def call(*words: str) -> str:
        done = subprocess.run(
            words, cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    call("kvg", "init")
    call("kvg", "model", "add", "tiny", str(model))
    call("kvg", "deposit", "notes", str(text_file(tmp_path)))
    call("kvg", "session", "start", "open", "--tcp", "0")
    try:
        script = str(REPO / "examples" / "openai_client.py")
        out = call(sys.executable, script, "open", "notes", "What is it?")
        assert out.splitlines()[-1].endswith("tokens restored, exact")
    finally:
        call("kvg", "session", "stop", "open")
