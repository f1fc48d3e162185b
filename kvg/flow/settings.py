"""What every flow needs to know beside its request: where things lie, and how far it may go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kvg.errors import UsageError
from kvg.report import Report, SilentReport

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings in force, whatever layer they came from.

    ``store_path`` None means the nearest ``.kvg`` from ``cwd`` upward. ``keys`` is the folder of
    the user's private keys, ``key_file`` a private key that takes their place. ``passphrase`` is
    called when a key is encrypted. ``lock_wait`` is in seconds, None waits for as long as it takes.
    ``jobs`` counts threads.
    """

    cwd: Path
    keys: Path
    cache: Path
    user_config: Path
    store_path: Path | None = None
    key_file: Path | None = None
    passphrase: Callable[[], bytes] | None = None
    device: str = "auto"
    lock_wait: float | None = None
    jobs: int = 1
    report: Report = SilentReport()
    dry_run: bool = False
    assume_yes: bool = False

    def __post_init__(self) -> None:
        if self.jobs < 1:
            raise UsageError(f"jobs {self.jobs}: less than 1")
        if self.lock_wait is not None and not self.lock_wait >= 0:
            raise UsageError(f"lock wait {self.lock_wait}: not a number of seconds")
        kind, _, number = self.device.partition(":")
        if not (self.device in ("auto", "cpu", "cuda") or (kind == "cuda" and number.isdecimal())):
            raise UsageError(f"device {self.device}: not auto, cpu or cuda:N", hint="--device cpu")
