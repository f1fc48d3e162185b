"""The check of whole models on a GPU, rehearsed on a CPU: what it says, and what makes it fail."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kvg.errors import Incompatible
from kvg.model.exactness import SPLITS
from tests import models

SCRIPT = models.REPO / "bench" / "gpu_model.py"
Patch = pytest.MonkeyPatch


@pytest.fixture
def script(monkeypatch: Patch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpu_model", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "gpu_model", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "REPEATS", 1)
    return module


def ran(script: ModuleType, out: Path, monkeypatch: Patch, *more: str) -> tuple[int, Any]:
    args = ["gpu_model.py", "--device", "cpu", "--tiny", "--only", "12B", "--out", str(out), *more]
    monkeypatch.setattr(sys, "argv", args)
    with models.threads(1):
        code = script.main()
    return code, json.loads(out.read_text())


def test_every_way_is_equal_and_every_time_is_taken(tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--device", "cpu", "--tiny", "--out", str(out)],
        env=models.program_env(tmp_path, OMP_NUM_THREADS="1"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(out.read_text())
    assert found["passed"] is True and len(found["models"]) == 2
    for model in found["models"]:
        assert (model["reference"], model["why_not_invariant"]) == ("invariant", None)
        ways = [finding["what"] for finding in model["findings"]]
        for split in SPLITS:
            assert f"{split}, alone" in ways and f"{split}, two texts in a batch" in ways
        assert all(finding["promised"] and finding["equal"] for finding in model["findings"])
        for name in ("prefill", "restore_host", "restore_disk", "first_token", "stock_prefill"):
            assert model[f"{name}_ms"] > 0
        for source in ("host", "disk"):
            took = model[f"restore_{source}_ms"] + model["first_token_ms"]
            ratio = model[f"prefill_over_graft_from_{source}"]
            assert ratio == pytest.approx(model["prefill_ms"] / took)
        assert model["papers_ratio"] == 85.6 and model["page_bytes"] > 0


def test_shapes_are_those_of_the_large_models(script: ModuleType) -> None:
    for shape in (*script.LARGE, *script.TINY):
        config = shape.config(500)
        kinds = config.layer_types
        assert len(kinds) == shape.layers and kinds.count("full_attention") * 6 == shape.layers
    tiny = script.adopted(script.made_model(script.TINY[1], "cpu", 500), "cpu", "kvg_invariant")
    assert [(g.name, g.kv_heads, g.k_dim) for g in tiny.groups] == [
        ("sliding-100", 4, 16),
        ("full", 2, 32),
    ]


def test_without_an_invariant_session_it_says_so_and_claims_less(
    script: ModuleType, tmp_path: Path, monkeypatch: Patch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = script.session_of

    def session_of(model: object, *, schedule: object) -> object:
        if schedule is None:
            raise Incompatible("device cuda:0: no invariant kernels for it yet")
        return real(model, schedule=schedule)

    monkeypatch.setattr(script, "session_of", session_of)
    code, found = ran(script, tmp_path / "found.json", monkeypatch)
    (model,) = found["models"]
    assert (code, model["reference"]) == (0, "scheduled")
    assert "no invariant kernels" in model["why_not_invariant"]
    assert model["invariant_over_stock_prefill"] is None
    said = capsys.readouterr().out
    assert "NOT invariant: device cuda:0: no invariant kernels for it yet" in said
    assert "scheduled reference alone" in said
    promised = [finding["what"] for finding in model["findings"] if finding["promised"]]
    assert len(promised) == 2 and not any("alone" in what for what in promised)


@pytest.mark.parametrize("is_scheduled", [False, True])
def test_a_graft_that_is_not_exact_fails(
    is_scheduled: bool,
    script: ModuleType,
    tmp_path: Path,
    monkeypatch: Patch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from kvg.model import exactness

    real = exactness.place_page

    def spoilt(state: Any, group: Any, start: int, end: int, raw: Any) -> None:
        real(state, group, start, end, raw)
        for layer in group.layers:
            state.values[layer][:, start] += 1

    monkeypatch.setattr(exactness, "place_page", spoilt)
    monkeypatch.setattr(script, "place_page", spoilt)
    if is_scheduled:
        stock = script.session_of

        def session_of(model: object, *, schedule: object) -> object:
            if schedule is None:
                raise Incompatible("none here")
            return stock(model, schedule=schedule)

        monkeypatch.setattr(script, "session_of", session_of)
    code, found = ran(script, tmp_path / "found.json", monkeypatch)
    assert code == 1 and found["passed"] is False
    assert "FAIL graft" in capsys.readouterr().out


def test_without_a_card_it_says_that_nothing_was_looked_at(
    script: ModuleType, monkeypatch: Patch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(script.torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["gpu_model.py"])
    assert script.main() == Incompatible.code
    assert "no CUDA device" in capsys.readouterr().err
