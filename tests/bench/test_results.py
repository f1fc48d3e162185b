"""Published results: sums follow from the samples beside them, inputs from their numbers."""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any

import pytest

from kvg.digest import sha256
from kvg.flow.bench.select import drawn
from kvg.flow.bench.twins import stored_forms
from kvg.model.exactness import made_ids
from kvg.objects.tokens import encode_ids
from kvg.problem.family import parse_problem
from tests.fuzzing import NAMES
from tests.models import REPO

RESULTS = REPO / "bench" / "results"
SMOLLM2_VOCABULARY = 49_152


def records(name: str) -> list[dict[str, Any]]:
    lines = (RESULTS / f"{name}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def input_of(sample: int, length: int) -> str:
    return sha256(encode_ids(made_ids(sample, length, SMOLLM2_VOCABULARY)))


@pytest.mark.parametrize(
    ("file", "threads", "batches", "n_runs"),
    [("exactness", {1}, {10}, 500), ("exactness-threads", {1, 2}, {1, 3}, 120)],
)
def test_exactness(file: str, threads: set[int], batches: set[int], n_runs: int) -> None:
    setup, *rest = records(file)
    summary = rest.pop()
    runs = [r for r in rest if r["type"] == "exactness-run"]
    for run in runs:
        same = (run["logits"], run["state"]) == (run["expected_logits"], run["expected_state"])
        assert run["equal"] is same
        assert run["input"] == input_of(run["sample"], run["length"])
    assert len({(r["sample"], r["length"]) for r in runs}) == len({r["logits"] for r in runs})
    assert ({r["threads"] for r in runs}, {r["batch"] for r in runs}) == (threads, batches)
    assert summary["runs"] == len(runs) == n_runs
    assert summary["equal"] == sum(run["equal"] for run in runs) == len(runs)
    assert setup["dtype"] == "BF16"


@pytest.mark.parametrize(
    ("file", "dtype", "arithmetics"),
    [("own-position", "BF16", {"F32", "BF16"}), ("own-position-fp32", "F32", {"F32"})],
)
def test_own_position(file: str, dtype: str, arithmetics: set[str]) -> None:
    setup, own, *rest = records(file)
    assert setup["dtype"] == dtype
    assert {r["arithmetic"] for r in rest if r["type"] == "own-position-summary"} == arithmetics
    assert own["offset"] == 0 and own["fresh"] == own["grafted"] and own["kl"] == 0
    assert own["input"] == input_of(0, 216)
    for summary in (r for r in rest if r["type"] == "own-position-summary"):
        mine = [r for r in rest if r.get("arithmetic") == summary["arithmetic"]]
        keys = [r for r in mine if r["type"] == "keys-moved"]
        logits = [r for r in mine if r["type"] == "logits-moved"]
        assert summary["key_offsets"] == len(keys) == 512
        assert summary["logits_offsets"] == len(logits) == 13
        assert not [r for r in keys if r["fresh"] == r["moved"]] and summary["keys_equal"] == []
        assert not [r for r in logits if r["fresh"] == r["grafted"]]
        assert summary["kl_max"] == max(r["kl"] for r in logits)


def test_accuracy() -> None:
    """Every ratio follows from its texts; none lies above 1 beyond chance."""
    found = records("accuracy")
    rows = [r for r in found if r["type"] == "accuracy-row"]
    assert len({(row["model"], row["dtype"]) for row in rows}) == len(rows) == 6
    for row in rows:
        mine = [r for r in found if r["type"] == "accuracy" and r["model"] == row["model"]]
        mine = [r for r in mine if r["dtype"] == row["dtype"]]
        stock = [r["rms"] for r in mine if r["execution"] == "sdpa"]
        ours = [r["rms"] for r in mine if r["execution"] == "invariant"]
        assert len(stock) == len(ours) == row["texts"] == 128
        logs = [math.log(b / a) for a, b in zip(stock, ours, strict=True)]
        reach = 1.96 * statistics.stdev(logs) / math.sqrt(len(logs))
        low = math.exp(statistics.fmean(logs) - reach)
        assert row["ratio"] == pytest.approx(math.exp(statistics.fmean(logs)))
        assert row["ratio_low"] == pytest.approx(low) and low <= 1
        assert {r["tokens"] for r in mine} == {512}


def test_preregistered_replays_in_two_classes() -> None:
    found = records("prereg-classes")
    classes = {r["class"]: r for r in found if r["type"] == "class"}
    assert {r["capability"] for r in classes.values()} == {"AVX2", "AVX512"}
    for name, record in classes.items():
        (artifact,) = record["prereg"]["artifacts"]
        own = [r for r in found if r["type"] == "prereg-sample" and r["class"] == name]
        own = [r for r in own if r["manifest"] == artifact["manifest"]]
        assert len(own) == 5 and [r["expected"] for r in own] == artifact["logits"]
        assert all(r["grafted"] == r["fresh"] == r["expected"] and r["equal"] for r in own)
    engines = {r["prereg"]["artifacts"][0]["engine"] for r in classes.values()}
    foreign = [r["exit"] for r in found if r["type"] == "foreign"]
    assert len(engines) == 2 and foreign == [7, 7]
    assert [r["exit"] for r in found if r["type"] == "own"] == [0, 0]


def test_speed() -> None:
    for row in records("speed")[1:]:
        if row["type"] == "speed-row":
            ratios = [invariant / stock for stock, invariant in row["pairs_ms"]]
            assert row["ratio"] == pytest.approx(statistics.median(ratios))
            assert row["input"] == input_of(0, row["tokens"])


def test_no_path_of_a_machine_is_published() -> None:
    for path in RESULTS.iterdir():
        text = path.read_text(errors="replace")
        assert "/home/" not in text and "/root" not in text and "/tmp/" not in text, path.name


def test_select() -> None:
    machine, *rest = records("select")
    summary = rest.pop()
    batches = [r for r in rest if r["type"] == "select-batch"]
    assert machine["cpu"] and summary["families"] == 4_500
    assert summary["lookups"] == sum(batch["count"] for batch in batches) == 100_000
    assert summary["present"] == sum(batch["present"] for batch in batches)
    assert summary["wrong"] == sum(batch["wrong"] for batch in batches) == 0
    forms = stored_forms(4_500)
    asked = [f"{text}\t{constraint}\n" for text, constraint, _ in drawn(forms, 2_000)]
    for batch in batches[:2]:
        mine = asked[batch["first"] : batch["first"] + batch["count"]]
        assert batch["input"] == sha256("".join(mine).encode())


def test_similarity() -> None:
    rows = [r for r in records("similarity") if r["type"] == "select-row"]
    exact, *others = rows
    assert exact["selector"] == "exact" and exact["wrong"] == exact["missed"] == 0
    assert {row["selector"] for row in others} == {
        "TF-IDF, words",
        "TF-IDF, letters",
        "all-MiniLM-L6-v2",
    }
    assert all(row["wrong_rate"] == row["wrong"] / row["lookups"] for row in rows)
    assert all(row["wrong"] > 0 for row in others if row["threshold"] is None)


def test_acceptance() -> None:
    setup, *rest = records("acceptance")
    summary = rest.pop()
    accepted = [r for r in rest if r["accepted"]]
    assert setup["dtype"] == "BF16" and summary["seeds"] == 88
    assert summary["asked"] == len(rest) and summary["accepted"] == len(accepted)
    assert summary["matching"] == sum(r["matches"] for r in accepted)
    assert all(r["artifact"] and r["reason"] is None for r in accepted)
    assert all("dissents" in r["reason"] for r in rest if not r["accepted"])


def test_capability() -> None:
    setup, *rest = records("capability")
    summary = rest.pop()
    assert setup["dtype"] == "BF16" and summary["weights_before"] == summary["weights_after"]
    for way in ("alone", "grafted"):
        mine = [r for r in rest if r["way"] == way]
        assert [r["task"] for r in mine] == list(range(summary["tasks"]))
        assert summary[f"right_{way}"] == sum(r["right"] for r in mine)
        assert summary[f"tokens_{way}"] == sum(r["tokens"] for r in mine)
        assert all(r["output"] == sha256(r["said"].encode()) for r in mine)
    assert all(r["block"] for r in rest if r["way"] == "grafted")


def test_every_decoder_was_run_a_million_times() -> None:
    runs = Counter[str]()
    for row in records("fuzz") + records("fuzz-guided"):
        runs[row.get("decoder", "")] += row.get("executions", 0)
    assert set(runs) - {""} == set(NAMES)
    assert min(runs[name] for name in NAMES) >= 1_000_000


def test_families() -> None:
    """Every problem is of the family that stands beside it, and the oracle says the same."""
    *rows, summary = records("families")
    assert summary["right"] == summary["instances"] == len(rows) == 180
    assert summary["tokens_generated"] == summary["hits_of_empty_store"] == 0
    spec = spec_from_file_location("families_oracles", REPO / "examples" / "families.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    for row in rows:
        problem = parse_problem(row["text"])
        assert problem.family.digest == row["family"]
        assert module.ORACLES[row["name"]](*(s.value for s in problem.slots)) == row["answer"]
    for name in module.ORACLES:
        mine = [row["text"] for row in rows if row["name"] == name]
        assert mine == [text.strip() for text, _ in module.fresh_instances(name, 20)]
