"""Keys turned by the model's own rotary module, whatever part of a head it turns, and however."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM

from kvg.model.invariant import ATTENTION_NAME
from kvg.model.loader import adopt_model
from kvg.model.opening import session_of
from kvg.model.rotation import Rotation, fresh_keys
from tests.model.test_architectures import EXACT


@pytest.mark.parametrize("name", ["Llama", "Qwen3", "Phi-3", "gpt-oss", "Gemma 3", "Gemma 4"])
def test_keys_at_their_own_position_turned_to_none(name: str) -> None:
    """``Rotation`` itself compares with the model's keys at a few positions when it is made."""
    torch.manual_seed(1)
    module = AutoModelForCausalLM.from_config(EXACT[name]())
    model = adopt_model(module, device="cpu", attention=ATTENTION_NAME, what=name)
    session = session_of(model, schedule=None)
    rotation = Rotation(session)
    keys = fresh_keys(session, [1, 2, 3], [0])
    for group in model.groups:
        own = keys[group.name][0]
        moved = rotation.moved(own, group, [0, 5], torch.float32)
        torch.testing.assert_close(moved[0], own)
        assert not torch.equal(moved[1], own)
