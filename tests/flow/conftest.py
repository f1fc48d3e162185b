"""A user with a store and a tiny model; sessions that are opened once for the whole run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from kvg.objects.manifest import Reference, Schedule
from tests import models


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Load and prove each model once; skip the waits for a disk that loses no power here."""

    def open_session(
        folder: Path,
        *,
        dtype: str,
        device: str,
        reference: Reference,
        schedule: Schedule | None = None,
        report: object = None,
        adapter: Path | None = None,
        proofs: object = None,
    ) -> object:
        from kvg.model.opening import default_schedule

        assert adapter is None, "not for models with an adapter"
        if reference == "scheduled" and schedule is None:
            schedule = default_schedule()
        return models.session(folder, dtype, schedule)

    monkeypatch.setattr("kvg.model.opening.open_session", open_session)
    monkeypatch.setattr("os.fsync", lambda fd: None)


@pytest.fixture
def user(tmp_path: Path, tiny: dict[str, Path]) -> models.User:
    """A user whose model is the tiny Llama."""
    made = models.User.make(tmp_path / "user")
    made.add("tiny", tiny["llama"])
    return made


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


@pytest.fixture
def kvg(
    user: models.User, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Ran]:
    """Run one command line in this process, in the user's folder, with the user's keys."""
    from kvg.cli.main import main

    for name, part in (("DATA", "data"), ("CONFIG", "config"), ("CACHE", "cache")):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(user.folder / part))
    link = user.folder / "data" / "kvg"
    link.mkdir(parents=True)
    user.settings.keys.mkdir(mode=0o700, exist_ok=True)
    (link / "keys").symlink_to(user.settings.keys)
    monkeypatch.chdir(user.folder)

    def run(*args: str) -> Ran:
        capsys.readouterr()
        code = main(list(args))
        return Ran(code, *capsys.readouterr())

    return run
