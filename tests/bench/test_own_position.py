"""``kvg bench own-position``: correct re-rotation, and what it can't bring back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rechecking.files import check_rows

from kvg.errors import Incompatible, UsageError
from kvg.flow.bench.own_position import OwnPositionRequest, bench_own_position
from kvg.flow.records.bench import KeysMoved, LogitsMoved, OwnPositionSummary
from kvg.model.own_position import ulps
from kvg.model.rotation import Rotation, fresh_keys
from kvg_kernels.pointwise import pointwise
from tests import models


@pytest.mark.parametrize("family", models.FAMILIES)
@pytest.mark.parametrize("dtype", ["BF16", "F32"])
def test_turned_keys_are_right_to_rounding(tiny: dict[str, Path], family: str, dtype: str) -> None:
    session = models.session(tiny[family], dtype)
    rotation = Rotation(session)
    own, fresh = (fresh_keys(session, [5, 9, 200, 31], [at]) for at in (0, 700))
    first = session.model.groups[0]
    moved = rotation.moved(own[first.name][0], first, [700], torch.float32)
    a, b = moved[0, 0].double(), fresh[first.name][0, 0].double()
    assert (a - b).abs().max() <= (2e-2 if dtype == "BF16" else 2e-4) * b.abs().max()
    assert not torch.equal(a, b)


def test_unturned_keys_turn_to_the_models_own_bits(tiny: dict[str, Path]) -> None:
    session = models.session(tiny["gemma3"])
    rotation = Rotation(session)
    zero, there = (fresh_keys(session, [7], [at]) for at in (0, 1999))
    for group in session.model.groups:
        turned = rotation.turned(zero[group.name][0], group, [1999])
        assert torch.equal(turned, there[group.name])


def test_angles_are_computed_by_the_operators_of_an_invariant_pass(
    tiny: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = models.session(tiny["llama"])
    rotation, group = Rotation(session), session.model.groups[0]
    found: list[torch.Size] = []

    def seen(op: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        found.append(x.shape)
        return pointwise(op, x)

    monkeypatch.setattr("kvg.model.invariant.pointwise", seen)
    rotation.turned(torch.ones(1, group.kv_heads, 3, group.k_dim), group, [5])
    assert len(found) == 2  # cosines and sines


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_no_offset_but_its_own_is_exact(tmp_path: Path, tiny: dict[str, Path], family: str) -> None:
    user = models.User.make(tmp_path / family)
    user.add("tiny", tiny[family])
    request = OwnPositionRequest(tokens=120, step=37)
    _, own, *found = bench_own_position(user.store, user.settings, request)
    assert isinstance(own, LogitsMoved)
    assert (own.offset, own.equal, own.kl, own.max_ulp) == (0, True, 0.0, 0)
    logits = [r for r in found if isinstance(r, LogitsMoved)]
    assert {r.offset for r in logits} == {1 << k for k in range(11)}
    assert all(r.kl > 0 and not r.equal and r.max_ulp > 0 for r in logits)
    keys = [r for r in found if isinstance(r, KeysMoved)]
    assert {r.arithmetic for r in keys} == {"F32", "BF16"}
    summaries = [r for r in found if isinstance(r, OwnPositionSummary)]
    assert [r.key_offsets for r in summaries] == [len(range(1, 2045, 37))] * 2
    assert all(r.own_exact and not r.keys_equal and not r.logits_equal for r in summaries)
    assert all(0.2 < r.elements_equal < 1 for r in summaries)


def test_a_model_without_the_known_turn_is_refused(
    tiny: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = models.session(tiny["llama"])
    with monkeypatch.context() as patch:
        patch.setattr("kvg.model.rotation.turn", lambda x, cos, sin: x * cos + x * sin)
        with pytest.raises(Incompatible, match="keys of group full are not turned by halves"):
            Rotation(session)
    monkeypatch.setitem(session.model.module.base_model._modules, "rotary_emb", None)
    with pytest.raises(Incompatible, match="no rotary module"):
        Rotation(session)


def test_ulps_count_steps_of_the_format() -> None:
    one = torch.tensor([1.0, -1.0, 0.0], dtype=torch.bfloat16)
    next_up = torch.tensor([1.0078125, -1.0, -0.0], dtype=torch.bfloat16)
    assert ulps(one, next_up) == 1
    assert ulps(torch.tensor([1e-45]), torch.tensor([-1e-45])) == 2
    assert ulps(one, one) == 0


def test_records_and_table(kvg: Callable[..., Any]) -> None:
    args = ("bench", "own-position", "--tokens", "20", "--step", "500")
    lines = [json.loads(line) for line in kvg(*args, "--json").out.splitlines()]
    check_rows(lines, "own-position")
    assert [line["type"] for line in lines][:2] == ["bench-setup", "logits-moved"]
    assert lines[-1]["keys_equal"] == [] and lines[-1]["own_exact"] is True
    text = kvg(*args).out
    assert "own position, as stored  equal  KL 0" in text
    assert "turned in BF16: own position exact; elsewhere 0 of 5 offsets with equal keys" in text


def test_one_token_has_nothing_to_turn() -> None:
    with pytest.raises(UsageError, match="less than 2"):
        OwnPositionRequest(key_tokens=1)
