"""``kvg bench restore`` and ``context``, small: exact, complete, and drawn."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rechecking.files import check_rows

from kvg.flow.bench import everything
from kvg.flow.bench.context import slope_of
from kvg.flow.bench.counters import counted
from kvg.flow.bench.select import SelectRequest
from tests import models


def records(done: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.out.splitlines()]


def test_restore(kvg: Callable[..., Any], user: models.User) -> None:
    pytest.importorskip("matplotlib")
    done = kvg(
        "bench", "restore", "--lengths", "64,300", "--repeats", "2", "--plot", "r.svg", "--json"
    )
    assert done.code == 0, done.err
    check_rows(records(done), "restore")
    setup, *rest = records(done)
    rows = [r for r in rest if r["type"] == "restore-row"]
    assert setup["bench"] == "restore" and len(rows) == 12
    assert {(r["form"], r["cache"]) for r in rows} == {
        (form, cache) for form in ("raw", "planes") for cache in ("warm", "kept", "cold")
    }
    for row in rows:
        assert row["exact"] is True
        assert row["factor"] == pytest.approx(row["prefill_ms"] / row["first_token_ms"])
        parts = row["verify_ms"] + row["restore_ms"] + row["token_ms"]
        assert parts == pytest.approx(row["first_token_ms"])
    stages = {(r["form"], r["stage"]) for r in rest if r["type"] == "restore-stage"}
    assert {stage for form, stage in stages if form == "raw"} == {
        "read", "hash", "copy", "unverified", "restore"
    }  # fmt: skip
    assert ("planes", "decode") in stages
    assert rest[-1]["type"] == "restore-summary"
    assert {(r["form"], r["threads"]) for r in rest if r["type"] == "restore-verified"} == {
        (r["form"], r["threads"]) for r in rest if r["type"] == "restore-stage"
    }
    for form, names in (("raw", []), ("planes", ["inflate", "join planes"])):
        parts = [r for r in rest if r["type"] == "restore-part" and r["form"] == form]
        assert [r["part"] for r in parts] == ["read", *names, "hash", "place", "rest", "total"]
        assert sum(r["share"] for r in parts[:-1]) == pytest.approx(1)
    others = [r for r in rest if r["type"] == "restore-other"]
    assert [r["way"] for r in others] == [
        "kvg, raw", "kvg, planes", "transformers, safetensors", "transformers, torch.save"
    ]  # fmt: skip
    assert all(r["bytes_stored"] > 0 and r["first_token_ms"] > r["load_ms"] > 0 for r in others)
    # safetensors has no checksum
    assert [r["notices_damage"] for r in others[:3]] == [True, True, False]
    assert others[0]["exact"] and others[1]["exact"]
    shown = kvg("bench", "restore", "--lengths", "64", "--repeats", "1")
    assert shown.code == 0 and "unverified" in shown.out and "not measured" in shown.out
    (skipped,) = [r for r in rest if r["type"] == "restore-skipped"]
    assert skipped["way"] == "llama.cpp" and "--gguf" in skipped["reason"]
    assert (user.folder / "r.png").read_bytes()[:4] == b"\x89PNG"
    assert "<svg" in (user.folder / "r.svg").read_text()[:2000]


def test_context(kvg: Callable[..., Any], user: models.User) -> None:
    text = models.real_text()[:6000]
    (user.folder / "corpus.txt").write_text(text)
    made = kvg("context", "create", "c", "corpus.txt", "--block-tokens", "400", "--json")
    n_blocks = records(made)[-1]["blocks"]
    assert n_blocks >= 6
    done = kvg("bench", "context", "c", "--accesses", "25", "--json")
    assert done.code == 0, done.err
    check_rows(records(done), "context")
    accesses = [r for r in records(done) if r["type"] == "context-access"]
    summary = records(done)[-1]
    assert len(accesses) == 25 and summary["blocks"] == n_blocks
    assert (summary["replayed"], summary["equal"]) == (3, 3)
    assert all((r["replayed"] is not None) == (r["number"] % 10 == 0) for r in accesses)
    assert len({r["block"] for r in accesses}) > 3
    assert summary["slope_low"] <= summary["slope_ms"] <= summary["slope_high"]


def test_the_script_of_many_windows(tmp_path: Path, tiny: dict[str, Path]) -> None:
    """Six small blocks of the standard library, deposited and moved over."""
    given = [str(tiny["llama"]), "--tokens", "2200", "--block-tokens", "400", "--accesses", "10"]
    script = [sys.executable, str(models.REPO / "bench/context.py"), *given]
    done = subprocess.run(script, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    check_rows(found, "context")
    made, summary = found[1], found[-1]
    assert made["blocks"] >= 6 and made["tokens"] >= 2200 and made["bytes_stored"] > 0
    assert (summary["replayed"], summary["equal"]) == (1, 1)


def test_the_published_geometry(tmp_path: Path) -> None:
    """88 files of bytes, each the whole of one block: two never fit into one."""
    path = models.REPO / "bench/context.py"
    spec = importlib.util.spec_from_file_location("bench_context", path)
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    lengths = script.lengths_of(script.BLOCKS)
    script.write_bytes(tmp_path / "corpus", lengths)
    sizes = [file.stat().st_size for file in sorted((tmp_path / "corpus").iterdir())]
    assert sizes == lengths and (len(sizes), sum(sizes)) == (88, 2_854_766)
    assert max(sizes) < script.WINDOW < 2 * min(sizes)


def test_store(kvg: Callable[..., Any]) -> None:
    done = kvg("bench", "store", "--length", "300", "--repeats", "2", "--json")
    assert done.code == 0, done.err
    check_rows(records(done), "store")
    _, deposit, raw, planes = records(done)
    assert deposit["store_ms"] > 0 and len({tuple(run) for run in deposit["runs_ms"]}) == 2
    assert (raw["form"], planes["form"]) == ("raw", "planes")
    assert planes["bytes_stored"] < raw["bytes_stored"] and raw["bytes_raw"] < raw["bytes_stored"]
    shown = kvg("bench", "store", "--length", "64", "--repeats", "1")
    assert "deposited: prefill" in shown.out and "SHA-256 alone" in shown.out


def test_all_of_them(
    kvg: Callable[..., Any], user: models.User, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(everything, "SELECT", SelectRequest(81, 1000, 0, 0, 0))
    done = kvg("bench", "all", "--tokens", "64", "--repeats", "1", "--plot", "all.png", "--json")
    assert done.code == 0, done.err
    found = records(done)
    named = [r["bench"] for r in found if r["type"] in ("bench-setup", "bench-machine")]
    assert named == ["exactness", "restore", "store", "context", "select", "energy", "speed"]
    starts = [n for n, r in enumerate(found) if r["type"] in ("bench-setup", "bench-machine")]
    for name, start, end in zip(named, starts, [*starts[1:], None], strict=True):
        check_rows(found[start:end], name)
    for kind in ("restore", "context", "select", "store", "energy"):
        assert (user.folder / f"all-{kind}.png").stat().st_size > 1000
        assert (user.folder / f"all-{kind}.svg").stat().st_size > 1000


def test_energy_is_counted_or_null(kvg: Callable[..., Any]) -> None:
    done = kvg("bench", "energy", "--length", "64", "--runs", "2", "--json")
    assert done.code == 0, done.err
    check_rows(records(done), "energy")
    prefill, graft = records(done)[1:]
    assert (prefill["tokens_computed"], graft["tokens_computed"]) == (prefill["tokens"], 1)
    for row in (prefill, graft):
        assert row["cpu_seconds"] > 0 and (row["joules"] is None) == (row["counter"] is None)


def test_counters_of_packages_are_added_and_may_begin_anew(tmp_path: Path) -> None:
    for name, value in (("intel-rapl:0", 900), ("intel-rapl:1", 50), ("intel-rapl:0:0", 1)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "energy_uj").write_text(f"{value * 10**6}\n")
        (tmp_path / name / "max_energy_range_uj").write_text(f"{1000 * 10**6}\n")
    with counted(tmp_path) as energy:
        (tmp_path / "intel-rapl:0" / "energy_uj").write_text(f"{20 * 10**6}\n")
        (tmp_path / "intel-rapl:1" / "energy_uj").write_text(f"{57 * 10**6}\n")
        (tmp_path / "intel-rapl:0:0" / "energy_uj").write_text(f"{99 * 10**6}\n")
    if energy.counter == "rapl":
        assert energy.joules == 127.0
    else:  # a machine that has a card as well
        assert energy.counter == "rapl+nvml" and (energy.joules or 0) >= 127.0
    with counted(tmp_path / "none") as energy:
        pass
    assert energy.counter in (None, "nvml")


def test_slope() -> None:
    assert slope_of([0, 1, 2, 3], [1, 3, 5, 7]) == (2.0, 0.0)
    slope, error = slope_of([1, 2, 3, 4], [1, 2, 2, 4])
    assert slope == pytest.approx(0.9) and error == pytest.approx(0.2645751)
    assert slope_of([1, 1, 1], [1, 2, 3]) == (0.0, 0.0)


def test_another_ending_is_refused_before_anything_is_measured(
    kvg: Callable[..., Any], tmp_path: Path
) -> None:
    assert kvg("bench", "restore", "--plot", "r.pdf").code == 2
