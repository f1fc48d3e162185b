"""PEFT adapters: what identifies one, without loading it, and how one joins its model.

An adapter is a folder with ``adapter_config.json`` and ``adapter_model.safetensors``, as the
``peft`` library writes it. Its low-rank factors stay factors: the model computes ``W x + s B A x``,
each product an invariant linear layer of its own. Only safetensors are read, never a pickle.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kvg.digest import Digest
from kvg.errors import Corrupt, Incompatible, NotFound
from kvg.model.foreign import json_file
from kvg.model.weights import digest_as, stored_tensors
from kvg.objects.computation import FloatJson, adapter_fingerprint

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
WITHOUT_MATHEMATICS = frozenset(
    {
        "auto_mapping",
        "base_model_name_or_path",
        "inference_mode",
        "lora_dropout",
        "megatron_config",
        "megatron_core",
        "peft_version",
        "revision",
        "runtime_config",
        "task_type",
    }
)
"""Keys of adapter_config.json that change nothing of what a loaded adapter computes."""
NOT_YET = {
    "alora_invocation_tokens": "is switched on by certain tokens",
    "layer_replication": "repeats layers",
    "use_bdlora": "is cut into blocks for several devices",
}
"""Settings that change more than the products of linear layers, and what they do."""
PLAIN_STARTS = (True, False, None, "gaussian")
"""Ways to begin training that leave the model's own weights alone."""


def read_adapter(folder: Path, dtype: str) -> Digest:
    """Identify the adapter in ``folder`` as loaded in ``dtype``.

    Covers its config and every tensor. Raises ``NotFound``, ``Corrupt``, and ``Incompatible`` for a
    kind of adapter that is not supported.
    """
    config = read_adapter_config(folder)
    return adapter_fingerprint(
        {key: value for key, value in config.items() if key not in WITHOUT_MATHEMATICS},
        {t.name: digest_as(t, dtype) for t in stored_tensors(_weights(folder))},
    )


def read_adapter_config(folder: Path) -> dict[str, FloatJson]:
    """The parsed adapter_config.json, of a kind that can be exact. Raises as ``read_adapter``."""
    path = folder / CONFIG
    if not path.is_file():
        raise NotFound(
            f"{folder}: no {CONFIG}", hint="give the folder that peft's save_pretrained wrote"
        )
    config = json_file(path)
    if not isinstance(config, dict):
        raise Corrupt(f"{path}: not a JSON object")
    kind = config.get("peft_type")
    if kind != "LORA":
        raise Incompatible(
            f"{folder}: an adapter of type {kind}", hint="LORA is supported; or merge the adapter"
        )
    for key, meaning in NOT_YET.items():
        if config.get(key):
            raise Incompatible(
                f"{folder}: {key}: this adapter {meaning}", hint="merge the adapter into the model"
            )
    if config.get("init_lora_weights", True) not in PLAIN_STARTS:
        raise Incompatible(
            f"{folder}: init_lora_weights {config['init_lora_weights']}: the adapter was trained "
            "against changed weights of the model",
            hint="save it converted to plain LoRA, or merge it",
        )
    return config


def apply_adapter(module: PreTrainedModel, folder: Path) -> None:
    """Put the adapter in ``folder`` into a model that is in memory, in the model's dtype.

    Raises ``Incompatible`` without ``peft``, when the adapter does not fit the model, and when what
    was loaded is not what the file holds.
    """
    read_adapter_config(folder)
    try:
        from peft import LoraConfig, PeftModel, get_peft_model_state_dict
        from peft.utils import set_peft_model_state_dict
    except ImportError:
        raise Incompatible(
            f"{folder}: an adapter needs peft", hint="pip install 'kvg[adapter]'"
        ) from None
    from safetensors.torch import load_file

    stored = load_file(_weights(folder))
    try:
        with warnings.catch_warnings(action="ignore"):
            config = LoraConfig.from_pretrained(str(folder), local_files_only=True)
            config.inference_mode = True
            wrapped = PeftModel(module, config, autocast_adapter_dtype=False)
            set_peft_model_state_dict(wrapped, stored)
            held = get_peft_model_state_dict(wrapped)
    except (ValueError, KeyError, TypeError, RuntimeError, AttributeError, OSError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise Incompatible(
            f"{folder}: this adapter does not fit the model: {first[:200]}",
            hint="it belongs to the model named in its base_model_name_or_path",
        ) from None
    _check_whole(stored, held, module.dtype, what=str(folder))


def _check_whole(
    stored: Mapping[str, torch.Tensor],
    held: Mapping[str, torch.Tensor],
    dtype: torch.dtype,
    *,
    what: str,
) -> None:
    """Raise ``Incompatible`` unless the model holds what the file does: no more and no less."""
    odd = sorted(stored.keys() ^ held.keys())
    if odd:
        is_stored = odd[0] in stored
        where = "in the file but not in the model" if is_stored else "wanted but not in the file"
        raise Incompatible(f"{what}: {odd[0]} is {where}", hint="the adapter is of another model")
    for name, tensor in stored.items():
        if not tensor.to(dtype).equal(held[name].to(dtype)):
            raise Incompatible(f"{what}: {name} was not loaded as it is stored")


def _weights(folder: Path) -> Path:
    path = folder / WEIGHTS
    if not path.is_file():
        raise NotFound(f"{folder}: no {WEIGHTS}", hint="save the adapter as safetensors")
    return path
