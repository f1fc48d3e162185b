"""What every flow needs to know beside its request: where things lie, and how far it may go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kvg.errors import NotFound, UsageError
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
    report: Report = field(default_factory=SilentReport)
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


STORE_FOLDER = ".kvg"


def find_root(store_path: Path | None, cwd: Path) -> Path:
    """The folder of the store: ``store_path``, else the nearest ``.kvg`` (or bare store) upward.

    A named path may be the store itself or the folder that holds its ``.kvg``. Nothing is opened.
    Raises ``NotFound``.
    """
    if store_path is not None:
        root = cwd / store_path
        for candidate in (root, root / STORE_FOLDER):
            if (candidate / "format").is_file():
                return candidate
        raise NotFound(f"{store_path}: no store there", hint=f"kvg init {store_path}")
    for folder in (cwd, *cwd.parents):
        if (folder / STORE_FOLDER / "format").is_file():
            return folder / STORE_FOLDER
        if _is_bare(folder):
            return folder
    raise NotFound(f"{cwd}: no store here or above", hint="kvg init")


def _is_bare(folder: Path) -> bool:
    try:
        with open(folder / "format", "rb") as file:
            return file.read(10) == b"kvg-store "
    except OSError:
        return False
