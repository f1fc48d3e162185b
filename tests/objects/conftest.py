"""Frozen vectors and a manifest to take apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvg.objects.manifest import Manifest, parse_manifest

VECTORS = Path(__file__).parents[1] / "vectors"


@pytest.fixture(scope="session")
def vectors() -> dict[str, Any]:
    return json.loads((VECTORS / "vectors.json").read_text())


@pytest.fixture(scope="session")
def manifest_vectors() -> dict[str, Any]:
    return json.loads((VECTORS / "manifest.json").read_text())


@pytest.fixture(scope="session")
def manifest(manifest_vectors: dict[str, Any]) -> Manifest:
    return parse_manifest(manifest_vectors["manifest"]["canonical"].encode(), what="vector")
