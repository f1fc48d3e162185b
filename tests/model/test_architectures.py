"""Every architecture that caches keys and values is exact; every other one is refused by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM, PreTrainedConfig, XmodConfig

from kvg.errors import Incompatible, UsageError
from kvg.model.binding import BoundCache, ShapeProbe
from kvg.model.dtypes import TORCH_DTYPES
from kvg.model.exactness import SPLITS, made_ids, reference_run, varied_run
from kvg.model.loader import LoadedModel, adopt_model
from kvg.model.opening import default_schedule, session_of
from tests import models

LENGTHS = (258, 530)
WINDOW = 100
TINY = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "pad_token_id": 0,
}
EXPERTS = {"num_experts_per_tok": 2}
HALF = ["sliding_attention", "full_attention"] * 2


def _made(name: str, **more: object) -> Callable[[], PreTrainedConfig]:
    def config() -> PreTrainedConfig:
        kind = getattr(transformers, f"{name}Config", None)
        if kind is None:
            pytest.skip(f"{name}: this transformers {transformers.__version__} does not know it")
        return kind(**{**TINY, **more})

    return config


def _gemma4(**more: object) -> Callable[[], PreTrainedConfig]:
    """Two head sizes, per-layer inputs, and last layers that share the keys of earlier ones."""
    own = {
        "num_hidden_layers": 6,
        "head_dim": 16,
        "global_head_dim": 32,
        "sliding_window": WINDOW,
        "vocab_size_per_layer_input": 128,
        "hidden_size_per_layer_input": 8,
        "num_kv_shared_layers": 2,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2,
    }
    return _made("Gemma4Text", **{**own, **more})


MOE = {"num_experts": 4, "moe_intermediate_size": 32}
EXACT: dict[str, Callable[[], PreTrainedConfig]] = {
    "Llama": _made("Llama"),
    "Mistral": _made("Mistral", sliding_window=WINDOW),
    "Qwen2": _made("Qwen2"),
    "Qwen3": _made("Qwen3", head_dim=16),
    "Qwen3-MoE": _made("Qwen3Moe", head_dim=16, **MOE, **EXPERTS),
    "Mixtral": _made("Mixtral", num_local_experts=4),
    "Phi-3": _made("Phi3", partial_rotary_factor=0.5),
    "Gemma 2": _made("Gemma2", head_dim=16, sliding_window=WINDOW, layer_types=HALF),
    "Gemma 3": _made("Gemma3Text", head_dim=16, sliding_window=WINDOW, layer_types=HALF),
    "Gemma 4": _gemma4(),
    "Gemma 4 MoE": _gemma4(enable_moe_block=True, top_k_experts=2, **MOE),
    "gpt-oss": _made(
        "GptOss", head_dim=16, num_local_experts=4, sliding_window=WINDOW, layer_types=HALF
    ),
}
DEEPSEEK = {
    "num_key_value_heads": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "n_group": 1,
    "topk_group": 1,
    "moe_intermediate_size": 32,
}
REFUSED: dict[str, tuple[Callable[[], PreTrainedConfig], str]] = {
    "Mamba": (_made("Mamba", state_size=8), "state|cache|attention"),
    "Jamba": (_made("Jamba", num_experts=2), "layers of type|state"),
    "Qwen3-Next": (_made("Qwen3Next"), "layers of type linear_attention"),
    "Llama 4": (_made("Llama4Text"), "chunked_attention"),
    "RecurrentGemma": (
        _made("RecurrentGemma", lru_width=64, num_hidden_layers=3),
        "1 of its 3 layers attend",
    ),
    "DeepSeek": (_made("DeepseekV3", **DEEPSEEK), "latent attention"),
}


def load(config: PreTrainedConfig, dtype: str, what: str) -> LoadedModel:
    """A random model of ``config``, its weights large enough that attention decides something."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        module = AutoModelForCausalLM.from_config(config, dtype=TORCH_DTYPES[dtype])
        for parameter in module.parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=0.15)
    return adopt_model(module, device="cpu", attention="kvg_invariant", what=what)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    with models.threads(1):
        yield


@pytest.mark.parametrize("dtype", ["BF16", "F32"])
@pytest.mark.parametrize("name", EXACT)
def test_exact_in_every_split_batch_and_graft(name: str, dtype: str) -> None:
    session = session_of(load(EXACT[name](), dtype, name), schedule=None)
    texts = [made_ids(n, n, session.model.vocabulary) for n in LENGTHS]
    fresh = [reference_run(session, text) for text in texts]
    expected = tuple(outcome for outcome, _ in fresh)
    assert expected[0] != expected[1]
    for split in SPLITS:
        pages = [held for _, held in fresh]
        assert varied_run(session, texts, pages, split=split, threads=1) == expected, split


@pytest.mark.parametrize("dtype", ["BF16", "F32"])
@pytest.mark.parametrize("name", EXACT)
def test_exact_with_more_threads_than_share_evenly(name: str, dtype: str) -> None:
    """A pass is long enough for every kernel to share it out, each by its own rule."""
    session = session_of(load(EXACT[name](), dtype, name), schedule=None)
    text = made_ids(1, 301, session.model.vocabulary)
    outcome, pages = reference_run(session, text)
    for threads in (3, 5, 7):
        found = varied_run(session, [text], [pages], split="one-shot", threads=threads)
        assert found == (outcome,), threads


def test_gemma_4_shares_keys_and_mixes_head_sizes() -> None:
    model = load(EXACT["Gemma 4"](), "BF16", "Gemma 4")
    assert [(g.name, g.layers, g.k_dim, g.window) for g in model.groups] == [
        (f"sliding-{WINDOW}", (0, 1, 3), 16, WINDOW),
        ("full", (2,), 32, None),
    ]


def test_soft_caps_and_sinks_change_the_logits() -> None:
    """They are computed, not passed over."""
    for name, change in (
        ("Gemma 2", {"attn_logit_softcapping": 0.5}),
        ("Gemma 2", {"final_logit_softcapping": 0.5}),
    ):
        config = EXACT[name]()
        base = reference_run(session_of(load(config, "F32", name), schedule=None), [5, 9, 7])
        for key, value in change.items():
            setattr(config, key, value)
        other = reference_run(session_of(load(config, "F32", name), schedule=None), [5, 9, 7])
        assert base[0].logits != other[0].logits
    model = load(EXACT["gpt-oss"](), "F32", "gpt-oss")
    session = session_of(model, schedule=None)
    base = reference_run(session, [5, 9, 7])
    with torch.no_grad():
        model.module.model.layers[0].self_attn.sinks.add_(3.0)
    assert reference_run(session, [5, 9, 7])[0].logits != base[0].logits


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_attention_is_refused_by_name(name: str) -> None:
    config, reason = REFUSED[name]
    with pytest.raises(Incompatible, match=reason) as caught:
        load(config(), "BF16", name)
    said = f"{caught.value.message} {caught.value.hint}"
    assert name in said or "the model asks its cache" in said


@pytest.mark.parametrize("attention", ["kvg_invariant", "sdpa"])
def test_heads_of_one_number_are_refused_by_name(attention: str) -> None:
    config = _made("OPT", hidden_size=4, ffn_dim=96, word_embed_proj_dim=4)()
    with torch.random.fork_rng(devices=[]):
        module = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with pytest.raises(Incompatible, match="m: heads of fewer than 2 numbers"):
        session_of(adopt_model(module, device="cpu", attention=attention, what="m"), schedule=None)


DIFF_LLAMA = _made("DiffLlama", head_dim=16)
"""Splits its values between its cache and its attention: the attention is of none that are kept."""


def test_values_made_after_the_cache_are_refused_by_name() -> None:
    with pytest.raises(
        Incompatible, match="DiffLlamaAttention: attends to keys or values"
    ) as found:
        load(DIFF_LLAMA(), "F32", "m")
    assert found.value.hint is not None and "--reference scheduled" in found.value.hint


def test_values_made_after_the_cache_are_stock_in_the_scheduled_reference() -> None:
    """Its cache gives back all keys and values, and the model makes of them what it does."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        module = AutoModelForCausalLM.from_config(DIFF_LLAMA(), dtype=torch.float32).eval()
    ids = made_ids(1, 40, TINY["vocab_size"])
    with torch.inference_mode():
        expected = module(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
    model = adopt_model(module, device="cpu", attention="sdpa", what="m")
    session = session_of(model, schedule=default_schedule(16))
    found = session.run(session.slot(), ids, range(40))
    assert (found - expected).abs().max() < 1e-4


def handing_on(
    change: Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]],
    monkeypatch: pytest.MonkeyPatch,
) -> LoadedModel:
    """A Llama that changes what its cache gives back before it attends to it."""
    real = BoundCache.update, ShapeProbe.update

    def changed(update: Callable[..., tuple[torch.Tensor, torch.Tensor]]) -> Callable[..., object]:
        return lambda *given, **more: change(*update(*given, **more))

    monkeypatch.setattr(BoundCache, "update", changed(real[0]))
    monkeypatch.setattr(ShapeProbe, "update", changed(real[1]))
    return load(EXACT["Llama"](), "F32", "m")


CHANGES = {
    "keys": lambda k, v: (k * 2, v),
    "values": lambda k, v: (k, v * 2),
    "copies": lambda k, v: (k, v.clone()),
    "heads in another order": lambda k, v: (k, v.flip(1)),
    "a part": lambda k, v: (k[:, :1], v[:, :1]),
    "values in place": lambda k, v: (k, v.mul_(2)),
    "exchanged": lambda k, v: (v, k),
}


@pytest.mark.parametrize("how", CHANGES)
def test_changed_keys_or_values_are_refused_as_the_model_is_loaded(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Incompatible, match="m: LlamaAttention: attends to keys or values"):
        handing_on(CHANGES[how], monkeypatch)


@pytest.mark.parametrize("n_tokens", [1, 3, 7])
def test_values_changed_in_passes_of_one_length_are_refused_too(
    n_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the model is loaded, or by the pass that does it: never computed."""

    def change(k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return k, v.clone() if v.shape[2] == n_tokens else v

    with pytest.raises(Incompatible, match="LlamaAttention: attends to keys or values"):
        session = session_of(handing_on(change, monkeypatch), schedule=None)
        assert n_tokens == 7
        session.run(session.slot(), [5] * 7, [6])


def test_a_view_of_all_keys_is_as_good(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = made_ids(1, 40, TINY["vocab_size"])
    plain = session_of(load(EXACT["Llama"](), "F32", "m"), schedule=None)
    viewed = handing_on(lambda k, v: (k.view_as(k), v[:]), monkeypatch)
    session = session_of(viewed, schedule=None)
    found, expected = (s.run(s.slot(), ids, range(40)) for s in (session, plain))
    assert torch.equal(found, expected)


def test_a_model_that_cannot_compute_tokens_alone_is_refused_by_name() -> None:
    """X-MOD wants to be told a language first."""
    with torch.random.fork_rng(devices=[]):
        config = XmodConfig(**TINY, is_decoder=True)
        module = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with pytest.raises(Incompatible, match="m: XmodForCausalLM cannot compute"):
        adopt_model(module, device="cpu", attention="sdpa", what="m")


def test_an_unknown_operator_leaves_the_scheduled_reference() -> None:
    """Invariant refuses it by name and says so; the other reference does take the model."""
    with torch.random.fork_rng(devices=[]):
        module = AutoModelForCausalLM.from_config(EXACT["Llama"](), dtype=torch.float32)
    module.model.layers[0].register_forward_hook(lambda *args: torch.cumsum(args[-1], -1))
    with pytest.raises(Incompatible, match="cumsum") as caught:
        model = adopt_model(module, device="cpu", attention="kvg_invariant", what="m")
        session_of(model, schedule=None)
    assert caught.value.hint is not None and "--reference scheduled" in caught.value.hint
    model = adopt_model(module, device="cpu", attention="sdpa", what="m")
    session = session_of(model, schedule=default_schedule(16))
    assert session.run(session.slot(), [5, 6], [1]).isfinite().all()


def test_a_model_knows_the_ids_that_all_its_embeddings_know() -> None:
    session = session_of(load(_gemma4(vocab_size_per_layer_input=64)(), "F32", "x"), schedule=None)
    assert session.model.vocabulary == 64
    assert session.prefill(session.slot(), [0, 63], [1]).logits
    with pytest.raises(UsageError, match="token id 64"):
        session.prefill(session.slot(), [0, 64], [1])


def test_layers_of_one_input_have_products_of_one_term() -> None:
    session = session_of(load(_made("Llama", intermediate_size=1)(), "BF16", "x"), schedule=None)
    text = made_ids(1, 70, session.model.vocabulary)
    outcome, pages = reference_run(session, text)
    for split in SPLITS:
        found = varied_run(session, [text], [pages], split=split, threads=1)
        assert found == (outcome,), split


def test_a_vocabulary_of_one_is_refused() -> None:
    with pytest.raises(Incompatible, match="a vocabulary of 1 token"):
        load(_made("Llama", vocab_size=1)(), "F32", "x")


@pytest.mark.parametrize("error", [IndexError, KeyError, TypeError, AssertionError, ValueError])
def test_a_model_that_fails_on_a_few_tokens_is_refused_by_name(error: type[Exception]) -> None:
    config = _made("Llama")()
    module = AutoModelForCausalLM.from_config(config, dtype=torch.float32)

    def fail(*_: object) -> None:
        raise error("none such")

    module.model.layers[0].register_forward_pre_hook(fail)
    with pytest.raises(Incompatible, match="LlamaForCausalLM cannot compute a few tokens"):
        adopt_model(module, device="cpu", attention="kvg_invariant", what="x")
