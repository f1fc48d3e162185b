"""Every architecture computes what the stock model computes: near in fp32, and no rule left out."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from kvg.errors import Incompatible
from kvg.model import invariant
from kvg.model.exactness import made_ids
from kvg.model.invariant import ATTENTION_NAME
from kvg.model.loader import adopt_model
from kvg.model.opening import session_of
from kvg_kernels.attention import AttentionSpec, attention
from tests import models
from tests.model.test_architectures import EXACT

N_TOKENS = 300
LARGEST_DIFFERENCE = 1e-3
"""In logits whose standard deviation is about 1.2; the architectures differ by 4e-6 to 2e-4."""

REACHED_CAP = 1.0
"""A soft cap that the scores of such small models come near to."""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    with models.threads(1):
        yield


@cache
def stock(name: str) -> tuple[PreTrainedModel, torch.Tensor]:
    """A random model in fp32 whose norms, biases and sinks vary too, and its stock logits."""
    config = EXACT[name]()
    if getattr(config, "attn_logit_softcapping", None):
        config.attn_logit_softcapping = REACHED_CAP
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(3)
        module = AutoModelForCausalLM.from_config(
            config, dtype=torch.float32, attn_implementation="eager"
        ).eval()
        for parameter in module.parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=0.15)
            else:
                parameter.add_(torch.randn_like(parameter) * 0.3)
        ids = torch.tensor([made_ids(1, N_TOKENS, module.config.vocab_size)])
        return module, module(input_ids=ids, use_cache=False).logits[0]


def difference(name: str) -> float:
    """The largest between the logits of an invariant session and the stock ones."""
    module, expected = stock(name)
    model = adopt_model(copy.deepcopy(module), device="cpu", attention=ATTENTION_NAME, what=name)
    session = session_of(model, schedule=None)
    ids = made_ids(1, N_TOKENS, model.vocabulary)
    found = session.run(session.slot(), ids, range(N_TOKENS))
    assert 0.5 < expected.std() < 2
    return (found - expected).abs().max().item()


@pytest.mark.parametrize("name", EXACT)
def test_logits_are_near_the_stock_models(name: str) -> None:
    assert difference(name) <= LARGEST_DIFFERENCE


WRONG: dict[str, Callable[[AttentionSpec], AttentionSpec]] = {
    "a key too many": lambda spec: replace(spec, window=spec.window and spec.window + 1),
    "a key too few": lambda spec: replace(spec, window=spec.window and spec.window - 1),
    "no window": lambda spec: replace(spec, window=None),
    "no cap": lambda spec: replace(spec, softcap=None),
    "another scale": lambda spec: replace(spec, scale=spec.scale * 1.01),
}
WINDOWED = ("Mistral", "Gemma 2", "Gemma 3", "Gemma 4", "Gemma 4 MoE", "gpt-oss")
BROKEN = [(name, how) for how in list(WRONG)[:3] for name in WINDOWED]
BROKEN += [("Gemma 2", "no cap"), *((name, "another scale") for name in EXACT)]


@pytest.mark.parametrize(("name", "how"), BROKEN)
def test_a_rule_of_attention_that_is_broken_shows(
    name: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(query, keys, values, start, spec, **more):  # type: ignore[no-untyped-def]
        return attention(query, keys, values, start, WRONG[how](spec), **more)

    monkeypatch.setattr(invariant, "attention", wrong)
    assert difference(name) > LARGEST_DIFFERENCE


def test_sinks_left_out_show(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*given, sinks, **more):  # type: ignore[no-untyped-def]
        assert sinks is not None
        return attention(*given, **more)

    monkeypatch.setattr(invariant, "attention", wrong)
    with pytest.raises(Incompatible, match=r"self-check: .* are not those of the stock model"):
        difference("gpt-oss")
