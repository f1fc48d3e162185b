"""A layer's window is that of the mask which the stock model gives it, or the model is refused."""

from __future__ import annotations

import pytest
import transformers
from transformers import AutoModelForCausalLM

from kvg.errors import Incompatible
from kvg.model.invariant import ATTENTION_NAME
from kvg.model.loader import adopt_model
from tests import models

EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2}
SHARED = {"moe_intermediate_size": 32, "shared_expert_intermediate_size": 32}
TURNED_ON = {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 2}
DIFFER = {
    "Qwen2Moe": {**EXPERTS, **SHARED, **TURNED_ON, "max_window_layers": 3},
    "Olmoe": {**EXPERTS, "sliding_window": 32},
}
AGREE = {
    "Mistral": ({"sliding_window": 32}, [32, 32, 32]),
    "Qwen2": (TURNED_ON, [None, None, 64]),
    "Gemma2": ({"sliding_window": 32, "head_dim": 16}, [32, None, 32]),
    "Olmoe": (EXPERTS, [None] * 3),
    "Qwen2Moe": ({**EXPERTS, **SHARED}, [None] * 3),
}


def made(name: str, **more: object) -> transformers.PreTrainedModel:
    config = getattr(transformers, f"{name}Config")(**models._common(**more))
    return AutoModelForCausalLM.from_config(config)


@pytest.mark.parametrize("attention", [ATTENTION_NAME, "sdpa"])
@pytest.mark.parametrize("name", DIFFER)
def test_a_window_that_only_one_of_the_two_knows(name: str, attention: str) -> None:
    with pytest.raises(Incompatible, match=r"layer 0 .* masked to .*: the two are different"):
        adopt_model(made(name, **DIFFER[name]), device="cpu", attention=attention, what="m")


@pytest.mark.parametrize("name", AGREE)
def test_a_window_that_both_know(name: str) -> None:
    more, windows = AGREE[name]
    loaded = adopt_model(made(name, **more), device="cpu", attention=ATTENTION_NAME, what="m")
    assert [layer.window for layer in loaded.layers] == windows
    assert loaded.module.config._attn_implementation == ATTENTION_NAME
