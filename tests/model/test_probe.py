"""The probe covers all that the layers of a model compute: what changes one of them, changes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import pytest
import torch

from kvg.model import probe
from kvg.model.loader import LoadedModel
from kvg.model.opening import default_schedule
from kvg_kernels.attention import attention
from kvg_kernels.bmm import baddbmm, bmm
from tests import models
from tests.model.test_architectures import EXACT, load
from tests.model.test_stock import BROKEN, WRONG

Patch = pytest.MonkeyPatch


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    with models.threads(1):
        yield


@cache
def model(name: str) -> LoadedModel:
    return load(EXACT[name](), "BF16", name)


@pytest.mark.parametrize(("name", "how"), BROKEN)
def test_attention_that_computes_otherwise_is_another_engine(
    name: str, how: str, monkeypatch: Patch
) -> None:
    before = probe.probe(model(name), None)
    assert probe.probe(model(name), None) == before

    def other(query, keys, values, start, spec, **more):  # type: ignore[no-untyped-def]
        return attention(query, keys, values, start, WRONG[how](spec), **more)

    monkeypatch.setattr(probe, "attention", other)
    assert probe.probe(model(name), None) != before


@pytest.mark.parametrize("window", [255, 256, 257, 600, 1024])
def test_a_window_of_any_size_is_reached(window: int, monkeypatch: Patch) -> None:
    config = EXACT["Mistral"]()
    config.sliding_window = window
    mistral = load(config, "BF16", "Mistral")
    before = probe.probe(mistral, None)

    def wider(query, keys, values, start, spec, **more):  # type: ignore[no-untyped-def]
        spec = replace(spec, window=spec.window + 1)
        return attention(query, keys, values, start, spec, **more)

    monkeypatch.setattr(probe, "attention", wider)
    assert probe.probe(mistral, None) != before


def test_sinks_left_out_are_another_engine(monkeypatch: Patch) -> None:
    before = probe.probe(model("gpt-oss"), None)

    def other(*given, sinks, **more):  # type: ignore[no-untyped-def]
        assert sinks is not None
        return attention(*given, **more)

    monkeypatch.setattr(probe, "attention", other)
    assert probe.probe(model("gpt-oss"), None) != before


def halves(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """``a @ b`` in fp32, the depth summed in two halves."""
    half = a.shape[-1] // 2
    wide, other = a.float(), b.float()
    left, right = wide[..., :half] @ other[..., :half, :], wide[..., half:] @ other[..., half:, :]
    return (left + right).to(a.dtype)


@pytest.mark.parametrize("name", ["Qwen3-MoE", "Mixtral", "Gemma 4 MoE", "gpt-oss"])
def test_experts_summed_in_another_order_are_another_engine(name: str, monkeypatch: Patch) -> None:
    before = probe.probe(model(name), None)
    used: list[str] = []

    def other_bmm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        used.append("bmm")
        return halves(a, b) + (bmm(a, b) * 0)

    def other_baddbmm(bias: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        used.append("baddbmm")
        return halves(a, b) + bias + (baddbmm(bias, a, b) * 0)

    monkeypatch.setattr(probe, "bmm", other_bmm)
    monkeypatch.setattr(probe, "baddbmm", other_baddbmm)
    assert probe.probe(model(name), None) != before
    assert set(used) == ({"baddbmm"} if name == "gpt-oss" else {"bmm"})


@pytest.mark.parametrize("name", EXACT)
def test_the_scheduled_probe_computes_where_the_model_is(name: str) -> None:
    """On the model's device, with its caps, sinks, windows and experts; meta stands for a GPU."""
    schedule = default_schedule(16, attention="eager")
    there = replace(model(name), device=torch.device("meta"))
    outputs = dict(probe.scheduled_outputs(there, schedule))
    assert {out.device.type for out in outputs.values()} == {"meta"}
    n_experts = len(probe.expert_shapes(there))
    assert sum("experts" in what for what in outputs) == n_experts * 3
    assert (n_experts > 0) == (name in ("Qwen3-MoE", "Mixtral", "Gemma 4 MoE", "gpt-oss"))


@pytest.mark.parametrize(
    ("name", "part"), [("Gemma 2", "tanh"), ("gpt-oss", "cat"), ("gpt-oss", "matmul")]
)
def test_stock_caps_and_sinks_are_in_the_scheduled_probe(
    name: str, part: str, monkeypatch: Patch
) -> None:
    schedule = default_schedule(16, attention="eager")
    before = dict(probe.scheduled_outputs(model(name), schedule))
    stock = getattr(torch, part)

    def other(x, *more, **named):  # type: ignore[no-untyped-def]
        return stock(x, *more, **named) * 1.25

    monkeypatch.setattr(probe.torch, part, other)
    after = dict(probe.scheduled_outputs(model(name), schedule))
    changed = [what for what in before if not probe.same_bits(before[what], after[what])]
    assert any("attention" in what for what in changed)


def test_a_bias_is_part_of_a_linear_shape() -> None:
    assert any(shape.has_bias for shape in probe.linear_shapes(model("Qwen2")))
    assert not any(shape.has_bias for shape in probe.linear_shapes(model("Llama")))
