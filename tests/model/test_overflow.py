"""Keys or values that overflow end the pass: none of them lies in a slot, to be read later."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from kvg.errors import Incompatible
from kvg.model.loader import adopt_model
from kvg.model.opening import session_of
from kvg.model.sampling import Weights
from kvg.model.session import Session, lowest_maximum
from tests import models

OVERFLOWS = 9
"""The token whose key or value is infinite."""


@pytest.fixture(params=["k_proj", "v_proj"])
def session(request: pytest.FixtureRequest) -> Session:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=512,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        initializer_range=0.15,
    )
    module = LlamaForCausalLM(config).to(torch.float16).eval()
    with torch.no_grad():
        table = module.model.embed_tokens.weight
        table[:, 0] = 0
        table[OVERFLOWS] = 0
        table[OVERFLOWS, 0] = 8
        getattr(module.model.layers[0].self_attn, request.param).weight[:, 0] = 60_000
    model = adopt_model(module, device="cpu", attention="kvg_invariant", what="own")
    return session_of(model, schedule=None)


def test_the_pass_is_refused_and_leaves_nothing(session: Session) -> None:
    with models.threads(1):
        ids = list(range(10, 70))
        slot, fresh = session.slot(), session.slot()
        expected = session.run(fresh, ids[:22], [21])[0]
        session.run(slot, ids[:20], [])
        with pytest.raises(Incompatible, match=r"^layer 0: a key or value of positions \[20, 53\)"):
            session.run(slot, [OVERFLOWS] * 3 + ids[:30], [0])
        assert slot.length == 20
        assert torch.equal(session.run(slot, ids[20:22], [1])[0], expected)
        assert torch.isfinite(expected).all()


def test_a_prompt_that_is_refused_leaves_the_whole_text(session: Session) -> None:
    with models.threads(1):
        slot = session.slot()
        session.run(slot, range(10, 30), [])
        expected = session.resume(session.fork(slot), 29, [40])[1]
        with pytest.raises(Incompatible, match="not finite"):
            session.resume(slot, 29, [40, OVERFLOWS])
        assert (slot.length, slot.ids) == (20, list(range(10, 30)))
        assert torch.equal(session.resume(slot, 29, [40])[1], expected)


def test_nor_is_a_token_before_it_computed_with_it(session: Session) -> None:
    """In one pass with it, what it is weighed with would be nought times infinity."""
    with models.threads(1), pytest.raises(Incompatible, match="not finite"):
        session.run(session.slot(), [10, 11, OVERFLOWS], [0])


@pytest.mark.parametrize("choose", [lowest_maximum, lambda x: Weights(x, temperature=1, top_p=1)])
def test_a_logit_that_is_no_number_chooses_nothing(
    choose: Callable[[torch.Tensor], object],
) -> None:
    logits = torch.zeros(9)
    choose(logits)
    logits[4] = float("nan")
    with pytest.raises(Incompatible, match="not a number"):
        choose(logits)
