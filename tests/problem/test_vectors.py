"""Every frozen vector of the structural address."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvg.problem.family import parse_family, parse_problem, seed_hash

VECTORS = Path(__file__).parents[1] / "vectors"
FAMILIES = json.loads((VECTORS / "family.json").read_text())["family"]
SEEDS = json.loads((VECTORS / "vectors.json").read_text())["seed_structural_hash"]


@pytest.mark.parametrize(
    "vector", FAMILIES, ids=lambda v: f"{v['input']} {v.get('constraint_input')}"
)
def test_family(vector: dict[str, Any]) -> None:
    found = parse_problem(
        vector["input"], vector.get("constraint_input"), vector.get("slot_names", ())
    )
    assert found.family.text == vector["text"]
    assert [{"type": s.type, "raw": s.raw} for s in found.slots] == vector["slots"]
    assert found.family.constraint == vector["constraint"]
    assert found.family.digest == vector["family"]
    assert parse_family(found.family.document, what="family") == found.family


@pytest.mark.parametrize("vector", SEEDS)
def test_seed_form(vector: dict[str, str]) -> None:
    assert seed_hash(vector["promptCanonical"], vector["constraintAst"]) == vector["hash"]
