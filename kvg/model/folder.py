"""A model on disk: what it is, by config and weights, without loading it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kvg import canon
from kvg.digest import Digest, sha256
from kvg.errors import Corrupt, Incompatible, NotFound
from kvg.model import weights
from kvg.model.adapter import read_adapter
from kvg.model.foreign import json_file, read_file
from kvg.model.stamp import Stamp, stamp_of
from kvg.objects.manifest import FloatJson, Model, model_fingerprint
from kvg.report import Report

DTYPE_NAMES = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}
WITHOUT_MATHEMATICS = frozenset(
    {
        "_attn_implementation",
        "_attn_implementation_autoset",
        "_commit_hash",
        "_model_name_or_path",
        "_name_or_path",
        "architectures",
        "attn_implementation",
        "auto_map",
        "bos_token_id",
        "cache_implementation",
        "decoder_start_token_id",
        "dtype",
        "eos_token_id",
        "name_or_path",
        "output_attentions",
        "output_hidden_states",
        "pad_token_id",
        "return_dict",
        "sep_token_id",
        "tokenizer_class",
        "torch_dtype",
        "transformers_version",
        "unk_token_id",
        "use_cache",
        "vocab_file",
    }
)
"""Keys of config.json that change no mathematics: paths, versions, switches, special ids."""
TOKENIZER_FILES = (
    "added_tokens.json",
    "merges.txt",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
)


class FingerprintCache(Protocol):
    """Remembers what hashing found; forgetting costs time only."""

    def recall(self, key: bytes) -> bytes | None:
        """What was remembered under ``key`` (32 bytes)."""

    def remember(self, key: bytes, value: bytes) -> None:
        """Keep ``value`` under ``key``."""


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """What the files of a model say: its identity, its size, its tokenizer and chat template.

    ``stamp`` tells later whether a file changed since the first of them was read.
    """

    identity: Model
    n_parameters: int
    tokenizer: Digest | None
    template: Digest | None
    stamp: Stamp


def read_model(
    folder: Path,
    *,
    dtype: str | None,
    cache: FingerprintCache | None,
    jobs: int,
    report: Report,
    adapter: Path | None = None,
) -> ModelFiles:
    """Identify the model in ``folder`` as loaded in ``dtype`` (None: the config's own).

    ``cache`` None hashes everything again; ``adapter`` is the folder of a PEFT adapter. Raises
    ``NotFound``, ``Corrupt``, ``Incompatible``.
    """
    stamp = stamp_of(folder, adapter)
    config = read_config(folder)
    named = config.get("architectures")
    if not isinstance(named, list) or not named or not isinstance(named[0], str):
        raise Incompatible(f"{folder}: config.json names no architecture")
    if config.get("quantization_config"):
        raise Incompatible(
            f"{folder}: quantized weights", hint="register the unquantized model, or a GGUF file"
        )
    dtype = dtype or config_dtype(config, what=str(folder))
    adapters = () if adapter is None else (read_adapter(adapter, dtype),)
    digests = _weight_digests(folder, dtype, config, cache, jobs, report)
    kept = {key: value for key, value in config.items() if key not in WITHOUT_MATHEMATICS}
    fingerprint = model_fingerprint(named[0], kept, digests, dtype, adapters)
    return ModelFiles(
        identity=Model(fingerprint, named[0], dtype),
        n_parameters=_count_parameters(folder, frozenset(digests)),
        tokenizer=tokenizer_digest(folder),
        template=template_digest(folder),
        stamp=stamp,
    )


def read_config(folder: Path) -> dict[str, FloatJson]:
    """The parsed config.json of the model in ``folder``."""
    if not folder.is_dir():
        raise NotFound(f"{folder}: no such model folder", hint="kvg model list")
    path = folder / "config.json"
    value = json_file(path)
    if not isinstance(value, dict):
        raise Corrupt(f"{path}: not a JSON object")
    return value


def config_dtype(config: Mapping[str, FloatJson], *, what: str) -> str:
    """The dtype that ``config`` says its weights are meant for, by its safetensors name."""
    inner = config.get("text_config")
    for source in (config, inner if isinstance(inner, Mapping) else {}):
        for key in ("dtype", "torch_dtype"):
            if source.get(key) in DTYPE_NAMES:
                return DTYPE_NAMES[str(source[key])]
    raise Incompatible(f"{what}: config.json says no dtype that pages hold", hint="give --dtype")


def tokenizer_digest(folder: Path) -> Digest | None:
    """One digest over the files that decide how text becomes ids; None without a tokenizer."""
    found = {
        name: sha256(read_file(folder / name))
        for name in TOKENIZER_FILES
        if (folder / name).is_file()
    }
    if not {"tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt"} & found.keys():
        return None
    return sha256(canon.encode(found))


def template_digest(folder: Path) -> Digest | None:
    """The digest of the chat template's text; None without one."""
    text = template_text(folder)
    return None if text is None else sha256(text.encode())


def template_text(folder: Path) -> str | None:
    """The chat template of the model in ``folder``, wherever it is kept."""
    path = folder / "chat_template.jinja"
    if path.is_file():
        return read_file(path).decode("utf-8", errors="replace")
    settings = folder / "tokenizer_config.json"
    value = json_file(settings) if settings.is_file() else None
    template = value.get("chat_template") if isinstance(value, dict) else None
    return template if isinstance(template, str) else None


def _weight_digests(
    folder: Path,
    dtype: str,
    config: Mapping[str, FloatJson],
    cache: FingerprintCache | None,
    jobs: int,
    report: Report,
) -> dict[str, Digest]:
    tied = bool(config.get("tie_word_embeddings", False))
    files = weights.weight_files(folder)
    keys = {path: weights.cache_key(path, dtype) for path in files}
    known = {}
    for path, key in keys.items():
        held = cache.recall(key) if cache is not None and key is not None else None
        if held is not None:
            known[path] = weights.decode_digests(held)
    by_file = weights.weight_digests(folder, dtype=dtype, known=known, jobs=jobs, report=report)
    for path, key in keys.items():
        unchanged = key is not None and weights.cache_key(path, dtype) == key
        if cache is not None and path not in known and key is not None and unchanged:
            cache.remember(key, weights.encode_digests(by_file[path]))
    return weights.merged(by_file, tied=tied)


def _count_parameters(folder: Path, names: frozenset[str]) -> int:
    return sum(
        tensor.n_elements
        for path in weights.weight_files(folder)
        for tensor in weights.stored_tensors(path)
        if tensor.name in names
    )
