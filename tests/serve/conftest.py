"""A home with a session that runs for all tests of a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sessions import Home, make_home


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, tiny: dict[str, Path]) -> Iterator[Home]:
    """A home of this file's own, its sessions ended with it."""
    made = make_home(tmp_path_factory.mktemp("home"), tiny["llama"])
    yield made
    made.close()


@pytest.fixture(scope="module")
def desk(home: Home) -> Home:
    """The home with a session ``desk`` that runs, on loopback too."""
    home.start("desk", "--tcp", "0")
    return home
