"""Frozen vectors, a log key and an empty log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvg import durable
from kvg.log.log import Log
from kvg.signing.keys import PrivateKey, from_seed

VECTORS = Path(__file__).parents[1] / "vectors"


@pytest.fixture(scope="session")
def vectors() -> dict[str, Any]:
    return json.loads((VECTORS / "vectors.json").read_text())


@pytest.fixture(scope="session")
def entry_vectors() -> list[dict[str, str]]:
    return json.loads((VECTORS / "manifest.json").read_text())["log_entries"]


@pytest.fixture(scope="session")
def key(vectors: dict[str, Any]) -> PrivateKey:
    return from_seed(bytes.fromhex(vectors["checkpoint"]["seed_hex"]))


@pytest.fixture(scope="session")
def other_key() -> PrivateKey:
    return from_seed(bytes(range(32)))


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing here loses power: skip the waits, keep the steps that the hook sees."""
    monkeypatch.setattr("os.fsync", lambda fd: None)
    yield
    durable.set_hook(None)


@pytest.fixture
def staging(tmp_path: Path) -> Path:
    path = tmp_path / "tmp"
    path.mkdir()
    return path


@pytest.fixture
def log(tmp_path: Path, staging: Path, key: PrivateKey) -> Log:
    return Log.create(tmp_path / "log", origin="store.example/kvg", key=key, staging=staging)
