"""Which operators pass: what changes its argument is not lost, what mixes tokens is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch.nn import functional
from transformers import AutoModelForCausalLM

from kvg.errors import Incompatible
from kvg.flow.deposit import deposit
from kvg.flow.requests import DepositRequest
from kvg.flow.settings import signing_key
from kvg.model import opening
from kvg.model.loader import adopt_model, load_model
from tests import models

Change = Callable[[torch.Tensor], torch.Tensor]
N_TOKENS = 37


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    with models.threads(1):
        yield


def hooked(module: torch.nn.Module, change: Change) -> torch.nn.Module:
    layer = module.model.layers[0].mlp  # type: ignore[union-attr, index]
    layer.register_forward_hook(lambda _module, _args, out: change(out))
    return module


def logits_with(folder: Path, change: Change) -> tuple[torch.Tensor, torch.Tensor]:
    """Those of a session and those of the stock model, the same change in both."""
    ids = list(range(3, 3 + N_TOKENS))
    stock = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.inference_mode():
        expected = hooked(stock, change)(input_ids=torch.tensor([ids])).logits[0]
    model = load_model(folder, dtype="F32", device="cpu", attention="kvg_invariant")
    hooked(model.module, change)
    session = opening.session_of(model, schedule=None)
    return session.run(session.slot(), ids, range(N_TOKENS)), expected


def returned(call: Callable[[torch.Tensor], object]) -> Change:
    """What stays in the tensor after ``call``, whatever that gives back."""

    def change(x: torch.Tensor) -> torch.Tensor:
        call(x)
        return x

    return change


IN_PLACE: dict[str, Change] = {
    "tanh_": returned(lambda x: x.tanh_()),
    "sigmoid_": returned(lambda x: x.sigmoid_()),
    "exp_ of a part": returned(lambda x: x[..., :5].clamp_(-1, 1).exp_()),
    "silu in place": returned(lambda x: functional.silu(x, inplace=True)),
    "silu in place by position": returned(lambda x: functional.silu(x, True)),
    "by keyword": lambda x: torch.sigmoid(input=x),
    "not in place": lambda x: functional.silu(x),
    "softplus": lambda x: x + functional.softplus(x, 1),
    "softplus module": lambda x: x + torch.nn.Softplus()(x),
    "elu": lambda x: x + functional.elu(x, 1.0),
    "elu in place by position": returned(lambda x: functional.elu(x, 1.0, True)),
    "elu in place by keyword": returned(lambda x: functional.elu(x, inplace=True)),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_what_changes_its_argument_is_not_lost(tiny: dict[str, Path], name: str) -> None:
    found, expected = logits_with(tiny["llama"], IN_PLACE[name])
    plain, _ = logits_with(tiny["llama"], lambda x: x)
    assert (found - expected).abs().max() < 1e-4 < (found - plain).abs().max()


MIXING: dict[str, Change] = {
    "mean over tokens": lambda x: x - x.mean(1, keepdim=True),
    "sum over tokens": lambda x: x - torch.sum(x, dim=1, keepdim=True),
    "sum of all": lambda x: x - x.sum(),
    "softmax over tokens": lambda x: functional.softmax(x, dim=1),
    "softmax method": lambda x: x.softmax(1),
    "largest of all": lambda x: x / x.abs().amax(),
    "largest over tokens": lambda x: x - x.max(dim=-2, keepdim=True).values,
    "two dimensions": lambda x: x - x.mean((1, 2), keepdim=True),
    "topk over tokens": lambda x: x - x.topk(1, 1).values,
    "variance over tokens": lambda x: x - x.var(dim=1, keepdim=True),
    "mean over tokens in the last place": lambda x: x - x.transpose(1, 2).mean(-1).unsqueeze(1),
    "softmax in the last place": lambda x: torch.softmax(x.mT, -1).mT,
    "mean of a column": lambda x: x - x[0, :, 0].mean(),
    "sum of sums": lambda x: x - x.sum(-1)[0].sum(),
    "dropout in training": lambda x: functional.dropout(x, 0.5, True),
    "dropout by default": lambda x: functional.dropout(x),
    "truth of every token": lambda x: x * (x > 9).any(1, keepdim=True),
    "a count of all": lambda x: x + (x > 9).sum(),
    "whole numbers over tokens": lambda x: x + (x * 9).long().amax(dim=1, keepdim=True),
    "a norm in the last place": lambda x: functional.layer_norm(x.mT, x.shape[1:2]).mT,
    "norm over tokens": lambda x: functional.layer_norm(x, x.shape[1:]),
    "mean square over tokens": lambda x: functional.rms_norm(x, normalized_shape=x.shape[1:]),
    "power by itself": lambda x: torch.pow(x.abs() + 1, x),
    "power into a tensor": lambda x: torch.pow(x, 2.5, out=torch.empty_like(x)),
    "into a tensor": lambda x: torch.exp(x, out=torch.empty_like(x)),
}


@pytest.mark.parametrize("name", MIXING)
def test_what_mixes_tokens_is_refused_by_name(tiny: dict[str, Path], name: str) -> None:
    with pytest.raises(Incompatible, match=r"operator torch\.\S+, called by LlamaMLP"):
        logits_with(tiny["llama"], MIXING[name])


def test_a_product_of_what_follows_from_tokens_is_refused_by_name(tiny: dict[str, Path]) -> None:
    for change in (
        lambda x: x @ x.mT @ x,
        lambda x: torch.bmm(x, x.mT) @ x,
        lambda x: torch.baddbmm(x, torch.bmm(x, x.mT), x),
        lambda x: torch.matmul(x, x.new_zeros(64, 64)),
        lambda x: functional.linear(x.mT, FLAT[: x.shape[1], : x.shape[1]]).mT,
        lambda x: torch.matmul(x.mT, FLAT[: x.shape[1], : x.shape[1]]).mT,
    ):
        with pytest.raises(Incompatible, match=r"operator torch\.\S+ of .*, called by LlamaMLP"):
            logits_with(tiny["llama"], change)


def made(*shape: int) -> torch.nn.Parameter:
    generator = torch.Generator().manual_seed(4)
    return torch.nn.Parameter(torch.randn(*shape, generator=generator) / 8, requires_grad=False)


FLAT, EXPERTS, TURNED = made(64, 64), made(2, 64, 64), made(2, 64, 64)


def routed(x: torch.Tensor) -> torch.Tensor:
    """Every token through two experts at once, as models do that call ``bmm`` themselves."""
    both = x.reshape(1, -1, 64).expand(2, -1, -1)
    out = torch.baddbmm(both, torch.bmm(both, EXPERTS), TURNED.mT, beta=0.5)
    return (out[0] + out[1]).view(x.shape)


WEIGHTED: dict[str, Change] = {
    "matmul": lambda x: torch.matmul(x, FLAT),
    "matmul of a view": lambda x: x @ EXPERTS[1].mT,
    "experts in a batch": routed,
    "linear by keyword": lambda x: functional.linear(input=x, weight=FLAT),
    "linear with a bias by keyword": lambda x: functional.linear(x, bias=FLAT[0], weight=FLAT),
    "matmul by keyword": lambda x: torch.matmul(input=x, other=FLAT),
    "matmul method by keyword": lambda x: x.matmul(other=FLAT),
    "bmm by keyword": lambda x: torch.bmm(input=x.reshape(1, -1, 64), mat2=TURNED[:1].mT).view(
        x.shape
    ),
    "power by keyword": lambda x: torch.pow(input=x.abs(), exponent=2.5),
    "power of the method": lambda x: x.pow(exponent=3),
    "power of a number": lambda x: torch.pow(2.0, x),
}


@pytest.mark.parametrize("name", WEIGHTED)
def test_a_product_with_a_weight_is_computed_in_tiles(tiny: dict[str, Path], name: str) -> None:
    """Near the stock one, and the same bits however the text is split."""
    found, expected = logits_with(tiny["llama"], WEIGHTED[name])
    assert (found - expected).abs().max() < 1e-3
    model = load_model(tiny["llama"], dtype="F32", device="cpu", attention="kvg_invariant")
    hooked(model.module, WEIGHTED[name])
    session = opening.session_of(model, schedule=None)
    ids, slot = list(range(3, 3 + N_TOKENS)), session.slot()
    parts = [session.run(slot, ids[a:b], range(b - a)) for a, b in ((0, 1), (1, 20), (20, 37))]
    assert torch.equal(torch.cat(parts), found)


ROWS: dict[str, Change] = {
    "dropout when it does nothing": lambda x: functional.dropout(x, 0.5, training=False),
    "dropout of none": lambda x: functional.dropout(x, p=0.0),
    "sum of a weight": lambda x: x * FLAT[0].sum(),
    "mean": lambda x: x - x.mean(-1, keepdim=True),
    "last by its number": lambda x: x - x.sum(2, keepdim=True),
    "softmax": lambda x: functional.softmax(x, dim=-1),
    "topk": lambda x: x - x.topk(2).values[..., :1],
    "topk by its dimension": lambda x: x - torch.topk(x, 2, -1).values[..., :1],
    "largest of two": lambda x: torch.max(x, -x),
    "whole numbers": lambda x: x + (x > 9).sum(-1, keepdim=True),
    "whole numbers of a table": lambda x: x + (x[0, :, :1] > 99).sum(),
}


@pytest.mark.parametrize("name", ROWS)
def test_what_stays_in_its_row_passes(tiny: dict[str, Path], name: str) -> None:
    found, expected = logits_with(tiny["llama"], ROWS[name])
    assert (found - expected).abs().max() < 1e-3


HIDDEN = "matmul of compiled code"


@torch.jit.script
def _compiled(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.matmul(x, weight)


globals()[HIDDEN] = _compiled


def compiled(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Found as it runs, so that no look at the code shows what is called."""
    found: torch.Tensor = globals()[HIDDEN](x, weight)
    return found


COMPILED: dict[str, Change] = {
    "always": lambda x: compiled(x, FLAT),
    "one token": lambda x: compiled(x, FLAT) if x.shape[1] == 1 else x,
    "more tokens": lambda x: compiled(x, FLAT) if x.shape[1] > 1 else x,
}


@pytest.mark.parametrize("when", COMPILED)
def test_an_operator_of_compiled_code_is_refused_by_name(tiny: dict[str, Path], when: str) -> None:
    """Nothing that is called from Python shows it. Scheduled takes it."""
    module = AutoModelForCausalLM.from_pretrained(tiny["llama"], dtype=torch.float32)
    hooked(module, COMPILED[when])
    with pytest.raises(Incompatible, match=r"operator aten\.\S+, called by LlamaMLP"):
        adopt_model(module, device="cpu", attention="kvg_invariant", what="m")
    model = adopt_model(module, device="cpu", attention="sdpa", what="m")
    session = opening.session_of(model, schedule=opening.default_schedule(16))
    assert session.run(session.slot(), [5, 6], [1]).isfinite().all()


@torch.library.custom_op("kvg_tests::mixed", mutates_args=())
def mixed(x: torch.Tensor) -> torch.Tensor:
    return x - x.mean(1, keepdim=True)


LONG = 64
"""Tokens from which a model here takes another way: more than any check runs."""
BRANCHES: dict[str, tuple[Change, str]] = {
    "an operator over tokens": (MIXING["mean over tokens"], r"torch\.Tensor\.mean"),
    "a product of what follows from tokens": (lambda x: x @ x.mT @ x, r"torch\.Tensor\.\S+ of .*"),
    "an operator of one's own": (lambda x: mixed(x), r"kvg_tests\.mixed\.default"),
    "an operator by its name": (lambda x: torch.ops.aten.tanh(x), r"aten\.tanh"),
}


@pytest.mark.parametrize("what", BRANCHES)
def test_a_branch_that_only_long_texts_take_is_refused_where_it_is_taken(
    tiny: dict[str, Path], what: str
) -> None:
    """Nothing is given out, and the slot goes on from where it was."""
    change, name = BRANCHES[what]
    module = AutoModelForCausalLM.from_pretrained(tiny["llama"], dtype=torch.float32)
    hooked(module, lambda x: change(x) if x.shape[1] > LONG else x)
    model = adopt_model(module, device="cpu", attention="kvg_invariant", what="m")
    session = opening.session_of(model, schedule=None)
    ids, slot, fresh = [*range(200)], session.slot(), session.slot()
    session.run(slot, ids[:10], [])
    with pytest.raises(Incompatible, match=rf"operator {name}, called by LlamaMLP") as caught:
        session.prefill(slot, ids[10:], [199])
    assert caught.value.code == 7
    assert slot.length == 10 and slot.ids == ids[:10]
    after = session.run(slot, ids[10:40], range(30))
    assert torch.equal(after, session.run(fresh, ids[:40], range(10, 40)))


def test_a_deposit_that_comes_to_an_unknown_operator_stores_nothing(
    tiny: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_model(tiny["llama"], dtype="BF16", device="cpu", attention="kvg_invariant")
    change = MIXING["mean over tokens"]
    hooked(model.module, lambda x: change(x) if x.shape[1] > LONG else x)
    session = opening.session_of(model, schedule=None)
    monkeypatch.setattr("kvg.model.opening.open_session", lambda *_, **__: session)
    user = models.User.make(tmp_path / "user")
    user.add("tiny", tiny["llama"])
    signing_key(user.settings, user.store)
    objects = user.store.root / "objects"
    before = sorted(objects.rglob("*"))
    request = DepositRequest("t", text=models.text_of(tiny["llama"], 300))
    with pytest.raises(Incompatible, match=r"operator torch\.Tensor\.mean, called by LlamaMLP"):
        deposit(user.store, user.settings, request)
    assert sorted(objects.rglob("*")) == before
    assert user.store.ref("t") is None
