"""A model that computes some layers in another dtype than its own."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

from kvg.model.loader import adopt_model
from kvg.model.opening import session_of
from tests import models

LAYERS = ("gate_proj", "up_proj", "down_proj")


class Wide(torch.nn.Linear):
    """A layer whose weight is fp32, between others that are not."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.linear(x.float(), self.weight).to(x.dtype)


def mixed(dtype: torch.dtype) -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=512,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        initializer_range=0.06,
    )
    module = LlamaForCausalLM(config).to(dtype).eval()
    for layer in module.model.layers:
        for name in LAYERS:
            old = getattr(layer.mlp, name)
            new = Wide(old.in_features, old.out_features, bias=False)
            new.weight = torch.nn.Parameter(old.weight.float(), requires_grad=False)
            setattr(layer.mlp, name, new)
    return module


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_tiles_proved_in_one_dtype_are_not_used_in_another(dtype: torch.dtype) -> None:
    with models.threads(2):
        model = adopt_model(mixed(dtype), device="cpu", attention="kvg_invariant", what="own")
        session = session_of(model, schedule=None)
        ids = [n * 37 % 512 for n in range(60)]
        whole = session.run(session.slot(), ids, range(60))
        slot = session.slot()
        single = torch.stack([session.run(slot, [token], [0])[0] for token in ids])
        assert torch.equal(single, whole)
