"""Small real models, made on the spot, and a user with a store of their own.

The models are random but whole: config, weights and a byte-level tokenizer with a chat template,
written by transformers itself. Their windows are smaller than the texts of the tests.
"""

from __future__ import annotations

import os
import pydoc_data.topics
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import torch
from tokenizers import Tokenizer as RawTokenizer
from tokenizers import decoders, models, pre_tokenizers, trainers
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from kvg.flow.model_add import model_add
from kvg.flow.requests import ModelAddRequest
from kvg.flow.settings import Settings
from kvg.model import opening
from kvg.model.loader import LoadedModel, load_model
from kvg.model.session import Session
from kvg.model.text import Tokenizer
from kvg.objects.manifest import Schedule
from kvg.report import Report, SilentReport
from kvg.store import Store
from kvg.trust.keyring import Keyring

VOCABULARY = 512
WINDOW = 96
"""Of the sliding layers."""
POSITIONS = 2048
FAMILIES = ("llama", "qwen3", "mistral", "gemma3")
REPO = Path(__file__).parents[1]
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)


def real_text() -> str:
    """Prose that every Python has: 700 KB of its language reference."""
    topics = pydoc_data.topics.topics
    return "\n".join(topics[name] for name in sorted(topics))


@cache
def _raw_tokenizer() -> RawTokenizer:
    tokenizer = RawTokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<|end|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([real_text()[:60_000]], trainer)
    return tokenizer


def _common(**more: object) -> dict[str, object]:
    return {
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": POSITIONS,
        "initializer_range": 0.15,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "pad_token_id": 0,
        "tie_word_embeddings": True,
        **more,
    }


def _recipe(family: str) -> tuple[type[PreTrainedModel], PreTrainedConfig]:
    if family == "llama":
        return LlamaForCausalLM, LlamaConfig(**_common(tie_word_embeddings=False))
    if family == "qwen3":
        return Qwen3ForCausalLM, Qwen3Config(**_common())
    if family == "mistral":
        return MistralForCausalLM, MistralConfig(**_common(sliding_window=WINDOW))
    kinds = ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]
    own = {"num_hidden_layers": 4, "layer_types": kinds, "sliding_window": WINDOW}
    return Gemma3ForCausalLM, Gemma3TextConfig(**_common(**own, query_pre_attn_scalar=16))


def make_model(folder: Path, family: str, *, seed: int = 0) -> Path:
    """Write a tiny random model of ``family`` into ``folder``, once; the same for the same seed."""
    if (folder / "done").is_file():
        return folder
    kind, config = _recipe(family)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1000 + seed)
        module = kind(config)
    return write_model(folder, module)


def sliding_and_full(*, window: int) -> PreTrainedModel:
    """A tiny random Gemma 3 of two layers: one sees ``window`` tokens, the other all."""
    config = Gemma3TextConfig(
        **_common(
            num_hidden_layers=2,
            query_pre_attn_scalar=16,
            max_position_embeddings=2048,
            sliding_window=window,
            layer_types=["sliding_attention", "full_attention"],
        )
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        return Gemma3ForCausalLM(config)


def write_model(folder: Path, module: PreTrainedModel) -> Path:
    """Write ``module`` in bf16 into ``folder``, with the tokenizer that all models here have."""
    module.to(torch.bfloat16).save_pretrained(folder)
    PreTrainedTokenizerFast(
        tokenizer_object=_raw_tokenizer(),
        bos_token=None,
        eos_token="<|end|>",
        chat_template=CHAT_TEMPLATE,
    ).save_pretrained(folder)
    (folder / "done").touch()
    return folder


@cache
def load(folder: Path, dtype: str = "BF16", attention: str = "kvg_invariant") -> LoadedModel:
    """The model in ``folder``, loaded once for the whole run."""
    return load_model(folder, dtype=dtype, device="cpu", attention=attention)


@cache
def session(folder: Path, dtype: str = "BF16", schedule: Schedule | None = None) -> Session:
    """A session that stays for the whole run; ``schedule`` None is the invariant reference."""
    attention = schedule.attention if schedule else "kvg_invariant"
    return opening.session_of(load(folder, dtype, attention), schedule=schedule)


@cache
def tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer in ``folder``, loaded once."""
    return Tokenizer.load(folder)


def text_of(folder: Path, n_tokens: int) -> str:
    """A piece of the real text, exactly ``n_tokens`` long for the model in ``folder``."""
    found = tokenizer(folder)
    text = real_text()[: 8 * n_tokens + 64]
    ids = found.encode(text)
    for skip in range(64):
        cut = found.decode(ids[skip : skip + n_tokens])
        if "\ufffd" not in cut and len(found.encode(cut)) == n_tokens:
            return cut
    raise AssertionError(f"no text of {n_tokens} tokens")


@dataclass
class User:
    """A person with keys, settings and a store; models are added by name."""

    folder: Path
    settings: Settings
    store: Store

    @classmethod
    def make(cls, folder: Path, *, report: Report | None = None) -> User:
        folder.mkdir(parents=True, exist_ok=True)
        settings = Settings(
            cwd=folder,
            keys=folder / "keys",
            cache=folder / "cache",
            user_config=folder / "config.toml",
            device="cpu",
            report=report or SilentReport(),
        )
        return cls(folder, settings, Store.init(folder, keyring=Keyring(settings.keys)))

    def add(self, name: str, path: Path, dtype: str = "BF16") -> None:
        model_add(self.store, self.settings, ModelAddRequest(name, path, dtype=dtype))  # type: ignore[arg-type]

    def with_settings(self, **changes: object) -> User:
        return User(self.folder, replace(self.settings, **changes), self.store)  # type: ignore[arg-type]


def program_env(folder: Path, **more: str) -> dict[str, str]:
    """The environment of a ``kvg`` process whose keys, cache and settings lie in ``folder``."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    return {
        **kept,
        "HOME": str(folder),
        "XDG_DATA_HOME": str(folder / "data"),
        "XDG_CONFIG_HOME": str(folder / "config"),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "PYTHONPATH": os.pathsep.join([str(REPO), str(REPO / "kernels")]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": str(torch.get_num_threads()),
        **more,
    }


@contextmanager
def threads(n: int) -> Iterator[None]:
    """Run the body with ``n`` compute threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)
