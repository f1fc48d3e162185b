"""A folder that can't be listed, as one of another user or on a failing disk; root lists all."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest


def make_unlistable(
    monkeypatch: pytest.MonkeyPatch, folder: Path, code: int = errno.EACCES
) -> None:
    """From here on ``os.scandir`` and ``os.listdir`` of ``folder`` fail with ``code``."""
    for name in ("scandir", "listdir"):
        monkeypatch.setattr(os, name, _refusing(getattr(os, name), folder, code))


def _refusing(real: Any, folder: Path, code: int) -> Any:
    def listed(path: Any = ".") -> Any:
        is_it = os.path.exists(path) and os.path.samefile(path, folder)
        if is_it:
            raise OSError(code, os.strerror(code), path if isinstance(path, str) else str(path))
        return real(path)

    return listed
