"""A runner for the command line, in this process: output as bytes, errors apart."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from kvg.cli.main import main
from kvg.digest import Digest
from kvg.store import Store
from kvg.trust import Keyring
from tests.artifacts import deposit


@dataclass(frozen=True)
class Result:
    """What one command line did."""

    code: int
    raw: bytes
    err: str

    @property
    def out(self) -> str:
        return self.raw.decode("utf-8")

    @property
    def records(self) -> list[dict]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def record(self) -> dict:
        (only,) = self.records
        return only

    @property
    def error(self) -> dict:
        return json.loads(self.err)


class Terminal(io.TextIOWrapper):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


Run = Callable[..., Result]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home and a working folder of one's own; no variable of kvg's is set."""
    folder = tmp_path / "home"
    work = tmp_path / "work"
    folder.mkdir()
    work.mkdir()
    for name in (
        "KVG_STORE",
        "KVG_DEVICE",
        "KVG_KEY_FILE",
        "KVG_PASSPHRASE_FD",
        "KVG_PASSPHRASE_FILE",
        "KVG_PASSPHRASE_COMMAND",
        "XDG_CONFIG_HOME",
        "XDG_DATA_HOME",
        "XDG_CACHE_HOME",
        "NO_COLOR",
        "FORCE_COLOR",
        "CI",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(work)
    return folder


@pytest.fixture
def kvg(home: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """``kvg("show", "demo", tty=True, stdin=b"…")``."""

    def run(*argv: str, tty: bool = False, stdin: bytes = b"") -> Result:
        kind = Terminal if tty else io.TextIOWrapper
        out, err = io.BytesIO(), io.BytesIO()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", kind(out, encoding="utf-8", write_through=True))
            patch.setattr(sys, "stderr", kind(err, encoding="utf-8", write_through=True))
            patch.setattr(sys, "stdin", kind(io.BytesIO(stdin), encoding="utf-8"))
            code = main(argv)
            return Result(code, out.getvalue(), err.getvalue().decode("utf-8"))

    return run


@dataclass(frozen=True)
class Stored:
    """A store in the working folder with one artifact, ``demo``."""

    store: Store
    digest: Digest


@pytest.fixture
def stored(kvg: Run, home: Path) -> Stored:
    assert kvg("init").code == 0
    assert kvg("key", "new", "first").code == 0
    keyring = Keyring(home / ".local/share/kvg/keys")
    store = Store.open(Path(".kvg").absolute(), keyring=keyring)
    made = deposit(store, keyring.load("first"), ref="demo")
    return Stored(store, made.digest)
