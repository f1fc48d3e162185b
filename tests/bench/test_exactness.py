"""``kvg bench exactness``: every way to compute a text, each with its digests."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from kvg.digest import sha256
from kvg.errors import UsageError
from kvg.flow.bench.exactness import ExactnessRequest, bench_exactness
from kvg.flow.records.bench import ExactnessRow, ExactnessRun, ExactnessSummary
from kvg.model.dtypes import tensor_digest
from kvg.model.exactness import SPLITS, cut_points, made_ids
from kvg.objects.tokens import encode_ids
from tests import models

SMALL = ("--samples", "2", "--lengths", "1,9,258", "--threads", "1", "--batch", "1,2")


def test_every_run_is_equal_and_recomputable(user: models.User, tiny: dict[str, Path]) -> None:
    request = ExactnessRequest(samples=2, lengths=(1, 9, 258), threads=(1, 2), batches=(1, 3))
    setup, *runs = bench_exactness(user.store, user.settings, request)
    rows = [record for record in runs if isinstance(record, ExactnessRow)]
    summary = runs.pop()
    assert isinstance(summary, ExactnessSummary)
    assert (summary.runs, summary.equal, summary.exit_code) == (120, 120, 0)
    assert [(row.length, row.split, row.equal) for row in rows] == [
        (length, split, 8) for length in (1, 9, 258) for split in SPLITS
    ]
    session = models.session(tiny["llama"])
    assert setup.engine == session.engine.fingerprint  # type: ignore[attr-defined]
    for run in runs:
        if isinstance(run, ExactnessRun) and run.split == "pieces":
            ids = made_ids(run.sample, run.length, models.VOCABULARY)
            assert run.input == sha256(encode_ids(ids))
            last = session.run(session.slot(), ids, [run.length - 1])[0]
            assert run.logits == run.expected_logits == tensor_digest(last)


def test_cut_points_lie_inside_and_differ_by_split() -> None:
    for n in (1, 2, 9, 300):
        for split in SPLITS:
            cuts = cut_points(split, n)
            assert all(0 < cut < n for cut in cuts) and list(cuts) == sorted(set(cuts))
    assert len({cut_points(split, 300) for split in SPLITS}) == 4


def test_a_mismatch_is_exit_code_11(
    kvg: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from kvg.model import exactness

    real, calls = exactness.place_page, []

    def place(state: Any, group: Any, start: int, end: int, raw: bytearray) -> None:
        real(state, group, start, end, raw)
        if end == 9 and 9 not in calls:
            state.values[0][0, 0, 0] += 1.0
        calls.append(end)

    monkeypatch.setattr(exactness, "place_page", place)
    found = kvg("bench", "exactness", *SMALL, "--json")
    records = [json.loads(line) for line in found.out.splitlines()]
    wrong = [r for r in records if r["type"] == "exactness-run" and not r["equal"]]
    assert found.code == 11
    assert [(r["split"], r["batch"]) for r in wrong] == [("graft", 1)]
    assert records[-1]["equal"] == records[-1]["runs"] - 1


def test_a_table_for_people(kvg: Callable[..., Any]) -> None:
    found = kvg("bench", "exactness", *SMALL)
    assert found.code == 0, found.err
    assert "    258 tokens  graft     4 of 4 equal" in found.out
    assert "60 of 60 equal  0 mismatches" in found.out


def test_bad_sizes_are_usage_errors(kvg: Callable[..., Any]) -> None:
    for option, value in (("--lengths", "0"), ("--batch", "x"), ("--splits", "thirds")):
        assert kvg("bench", "exactness", option, value).code == 2
    with pytest.raises(UsageError):
        ExactnessRequest(samples=0)


def test_a_batch_of_more_than_all_texts_is_called_what_it_is(user: models.User) -> None:
    request = ExactnessRequest(samples=2, lengths=(5,), threads=(1,), batches=(1, 3, 10))
    records = list(bench_exactness(user.store, user.settings, request))
    runs = [record for record in records if isinstance(record, ExactnessRun)]
    assert {run.batch for run in runs} == {1, 2}
    assert len(runs) == 2 * 2 * 5


def test_threads_are_as_before(user: models.User) -> None:
    before = torch.get_num_threads()
    request = ExactnessRequest(samples=1, lengths=(5,), threads=(before + 1,))
    list(bench_exactness(user.store, user.settings, request))
    assert torch.get_num_threads() == before
