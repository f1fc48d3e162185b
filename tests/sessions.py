"""A user with a store, a tiny model and sessions in processes of their own."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kvg.cli.main import main
from kvg.client.channel import call, connect
from kvg.client.place import Place, find_place, folder_for
from kvg.flow.deposit import deposit
from kvg.flow.requests import DepositRequest
from kvg.objects.manifest import Reference, Schedule
from tests import models

TOKENS = 300
TIMES = (
    "latency_ms",
    "verify_ms",
    "restore_ms",
    "first_token_ms",
    "compute_ms",
    "prefill_ms",
    "store_ms",
)


def opened(place: Place) -> socket.socket:
    """A connection to a session, to say anything on."""
    return socket.socket(fileno=connect(place).detach())


@dataclass(frozen=True)
class Ran:
    """What one command line did."""

    code: int
    out: str
    err: str

    @property
    def records(self) -> list[dict]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def timeless(self) -> list[dict]:
        """The records without what a clock said."""
        return [{k: v for k, v in record.items() if k not in TIMES} for record in self.records]


@dataclass
class Home:
    """A user's folders, and the sessions that were started there."""

    folder: Path
    env: dict[str, str]
    user: models.User
    started: list[str] = field(default_factory=list)

    def kvg(self, *words: str, stdin: bytes = b"") -> Ran:
        """One command line in this process; a model is loaded once for all of them."""
        out, err = io.BytesIO(), io.BytesIO()
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.env.items():
                patch.setenv(name, value)
            patch.chdir(self.user.folder)
            patch.setattr("kvg.model.opening.open_session", _open_session)
            for name, stream in (("stdout", out), ("stderr", err)):
                text = io.TextIOWrapper(stream, encoding="utf-8", write_through=True)
                patch.setattr(sys, name, text)
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
            code = main(list(words))
            return Ran(code, out.getvalue().decode(), err.getvalue().decode())

    def popen(self, *words: str, **more: object) -> subprocess.Popen[bytes]:
        """One command line in a process of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "kvg", *words],
            cwd=self.user.folder,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **more,  # type: ignore[call-overload]
        )

    def start(self, name: str, *options: str) -> dict:
        """Start a session; it is ended with the test run."""
        self.started.append(name)
        ran = self.kvg("session", "start", name, "--json", *options)
        assert ran.code == 0, ran.err
        return ran.records[0]

    def place(self, name: str) -> Place:
        return find_place(folder_for(Path(self.env["XDG_RUNTIME_DIR"])), name)

    def ask(self, name: str, verb: str, request: dict, slot: int | None = None) -> list[dict]:
        """One verb over the socket, by a client in this thread."""
        body = {"request": request, "slot": slot}
        return list(call(self.place(name), "POST", f"/kvg/{verb}", body))

    def state(self, name: str) -> dict:
        (state,) = call(self.place(name), "GET", "/kvg/state")
        return state

    def log(self, name: str) -> str:
        return (Path(self.env["XDG_STATE_HOME"]) / "kvg/sessions" / f"{name}.log").read_text()

    def wait(self, name: str, what: str, seconds: float = 30) -> None:
        """Until the session's log says ``what``."""
        end = time.monotonic() + seconds
        while what not in self.log(name):
            assert time.monotonic() < end, self.log(name)
            time.sleep(0.02)

    def close(self) -> None:
        for name in self.started:
            try:
                os.kill(int(self.state(name)["pid"]), signal.SIGKILL)
            except Exception:  # noqa: BLE001  it has ended
                continue


def _open_session(
    folder: Path,
    *,
    dtype: str,
    device: str,
    reference: Reference,
    schedule: Schedule | None = None,
    **_: object,
) -> object:
    from kvg.model.opening import default_schedule

    if reference == "scheduled" and schedule is None:
        schedule = default_schedule()
    return models.session(folder, dtype, schedule)


def make_home(folder: Path, model: Path) -> Home:
    """A home with a store that holds ``one`` and ``two``, and the tiny Llama as ``tiny``."""
    run = folder / "run"
    run.mkdir(mode=0o700, parents=True)
    env = models.program_env(
        folder, XDG_RUNTIME_DIR=str(run), XDG_STATE_HOME=str(folder / "state"), KVG_DEVICE="cpu"
    )
    user = models.User.make(folder / "work")
    keys = folder / "data" / "kvg" / "keys"
    keys.parent.mkdir(parents=True)
    user.settings.keys.mkdir(mode=0o700, exist_ok=True)
    keys.symlink_to(user.settings.keys)
    user.add("tiny", model)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kvg.model.opening.open_session", _open_session)
        patch.setattr("os.fsync", lambda fd: None)
        text = models.text_of(model, TOKENS + 40)
        for ref, part in (("one", text), ("two", text[17:])):
            deposit(user.store, user.settings, DepositRequest(ref, text=part))
    return Home(folder, env, user)
