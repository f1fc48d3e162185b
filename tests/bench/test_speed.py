"""``kvg bench speed``: pairs of times, their ratios, and what they were taken on."""

from __future__ import annotations

import json
from collections.abc import Callable
from statistics import median
from typing import Any

import pytest
from rechecking.files import check_rows

from kvg.errors import Incompatible, UsageError
from kvg.flow.bench.speed import SpeedRequest, bench_speed
from kvg.flow.records.bench import SpeedRow
from tests import models


def test_ratios_follow_from_the_pairs(user: models.User) -> None:
    request = SpeedRequest(lengths=(20, 300), repeats=3, steps=5)
    setup, *rows = bench_speed(user.store, user.settings, request)
    assert setup.bench == "speed"  # type: ignore[attr-defined]
    assert [(row.work, row.tokens, row.repeats) for row in rows] == [  # type: ignore[attr-defined]
        ("prefill", 20, 3),
        ("decode", 20, 5),
        ("prefill", 300, 3),
        ("decode", 300, 5),
    ]
    for row in rows:
        assert isinstance(row, SpeedRow)
        ratios = sorted(invariant / stock for stock, invariant in row.pairs_ms)
        assert len(ratios) == row.repeats and min(min(pair) for pair in row.pairs_ms) > 0
        assert row.ratio == pytest.approx(median(ratios))
        assert ratios[0] <= row.ratio_low <= row.ratio <= row.ratio_high <= ratios[-1]
        assert row.stock_ms == pytest.approx(median(stock for stock, _ in row.pairs_ms))


def test_the_command(user: models.User, kvg: Callable[..., Any]) -> None:
    args = ("bench", "speed", "--lengths", "9", "--repeats", "1", "--steps", "2")
    shown = kvg(*args)
    assert shown.code == 0, shown.err
    assert "prefill       9 tokens" in shown.out and "ratio" in shown.out
    told = [json.loads(line) for line in kvg(*args, "--json").out.splitlines()]
    check_rows(told, "speed")
    assert [record["type"] for record in told] == ["bench-setup", "speed-row", "speed-row"]


def test_what_cannot_be_timed(user: models.User) -> None:
    for wrong in ({"lengths": ()}, {"lengths": (0,)}, {"repeats": 0}, {"steps": 0}):
        with pytest.raises(UsageError):
            SpeedRequest(**wrong)  # type: ignore[arg-type]
    too_long = SpeedRequest(lengths=(models.POSITIONS,))
    with pytest.raises(Incompatible, match="window"):
        list(bench_speed(user.store, user.settings, too_long))
