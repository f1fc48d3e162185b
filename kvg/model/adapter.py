"""PEFT adapters: what identifies one, without loading it, and how one joins its model.

An adapter is a folder with ``adapter_config.json`` and ``adapter_model.safetensors``, as the
``peft`` library writes it. Its low-rank factors stay factors: the model computes ``W x + s B A x``,
each product an invariant linear layer of its own. Only safetensors are read, never a pickle.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kvg.digest import Digest
from kvg.errors import Corrupt, Incompatible, NotFound
from kvg.model.adapter_checks import check_numbers, check_settings
from kvg.model.foreign import first_line, json_file
from kvg.model.weights import digest_as, stored_tensors
from kvg.objects.computation import FloatJson, adapter_fingerprint

if TYPE_CHECKING:
    import torch
    from peft import PeftModel
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

    Covers its config and every tensor. Raises ``NotFound``, ``Corrupt`` also for settings of a
    wrong kind and numbers that are not finite, and ``Incompatible`` for a kind of adapter or of
    number that is not supported.
    """
    config = read_adapter_config(folder)
    tensors = stored_tensors(_weights(folder))
    check_numbers(tensors)
    return adapter_fingerprint(
        {key: value for key, value in config.items() if key not in WITHOUT_MATHEMATICS},
        {t.name: digest_as(t, dtype) for t in tensors},
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
    check_settings(config, what=str(path))
    return config


def is_checkable() -> bool:
    """Whether torch, transformers and peft are here, which ``check_fit`` needs."""
    try:
        import peft  # noqa: F401
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError:
        return False
    return True


def check_fit(base: Path, folder: Path) -> None:
    """Raise ``Incompatible`` unless the adapter in ``folder`` fits the model in ``base``.

    Names and shapes are compared with those of a model without weights. Raises as ``read_adapter``.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    read_adapter_config(folder)
    try:
        config = AutoConfig.from_pretrained(
            str(base), local_files_only=True, trust_remote_code=False
        )
        with torch.device("meta"):
            module = AutoModelForCausalLM.from_config(config)
    except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
        raise Incompatible(
            f"{base}: transformers cannot make this model: {first_line(error)}",
            hint="kvg model add takes a folder with config.json and *.safetensors",
        ) from None
    wrapped = _wrapped(module, folder)
    shapes = {t.name: t.shape for t in stored_tensors(_weights(folder))}
    _check_shapes(shapes, _held(wrapped, folder), what=str(folder))


def apply_adapter(module: PreTrainedModel, folder: Path) -> None:
    """Put the adapter in ``folder`` into a model that is in memory, in the model's dtype.

    Raises ``Incompatible`` without ``peft``, when the adapter does not fit the model, and when what
    was loaded is not what the file holds; ``NotFound`` and ``Corrupt`` as ``read_adapter``.
    """
    read_adapter_config(folder)
    wrapped = _wrapped(module, folder)
    tensors = stored_tensors(_weights(folder))
    check_numbers(tensors)
    shapes = {t.name: t.shape for t in tensors}
    _check_shapes(shapes, _held(wrapped, folder), what=str(folder))
    from peft.utils import set_peft_model_state_dict
    from safetensors.torch import load_file

    stored = load_file(_weights(folder))
    with warnings.catch_warnings(action="ignore"), _translated(folder):
        set_peft_model_state_dict(wrapped, stored)
    held = _held(wrapped, folder)
    for name, tensor in stored.items():
        if not tensor.to(module.dtype).equal(held[name].to(module.dtype)):
            raise Incompatible(
                f"{folder}: {name} was not loaded as it is stored",
                hint="merge the adapter into the model",
            )


def _wrapped(module: PreTrainedModel, folder: Path) -> PeftModel:
    """``module`` with the empty factors that the config in ``folder`` asks for."""
    try:
        from peft import LoraConfig, PeftModel
    except ImportError:
        raise Incompatible(
            f"{folder}: an adapter needs peft", hint="pip install 'kvg[adapter]'"
        ) from None
    with warnings.catch_warnings(action="ignore"), _translated(folder):
        config = LoraConfig.from_pretrained(str(folder), local_files_only=True)
        config.inference_mode = True
        config.base_model_name_or_path = None  # peft would look that name up in the network
        return PeftModel(
            module,
            config,
            autocast_adapter_dtype=False,
            low_cpu_mem_usage=module.device.type == "meta",
        )


def _held(wrapped: PeftModel, folder: Path) -> dict[str, torch.Tensor]:
    """What a file of the adapter in ``wrapped`` would hold, by name."""
    from peft import get_peft_model_state_dict

    with warnings.catch_warnings(action="ignore"), _translated(folder):
        return dict(get_peft_model_state_dict(wrapped))


@contextmanager
def _translated(folder: Path) -> Iterator[None]:
    try:
        yield
    except (ValueError, KeyError, TypeError, RuntimeError, AttributeError, OSError) as error:
        raise Incompatible(
            f"{folder}: this adapter does not fit the model: {first_line(error)}",
            hint="it belongs to the model named in its base_model_name_or_path",
        ) from None


def _check_shapes(
    stored: Mapping[str, tuple[int, ...]], held: Mapping[str, torch.Tensor], *, what: str
) -> None:
    """Raise ``Incompatible`` unless the file has what the model wants: no more and no less."""
    hint = "the adapter is of another model, or its config of another adapter"
    odd = sorted(stored.keys() ^ held.keys())
    if odd:
        is_stored = odd[0] in stored
        where = "in the file but not in the model" if is_stored else "wanted but not in the file"
        raise Incompatible(f"{what}: {odd[0]} is {where}", hint=hint)
    for name, shape in stored.items():
        wanted = tuple(held[name].shape)
        if shape != wanted:
            raise Incompatible(
                f"{what}: {name} is {_words(shape)} in the file, the model wants {_words(wanted)}",
                hint=hint,
            )


def _words(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "one number"


def _weights(folder: Path) -> Path:
    path = folder / WEIGHTS
    if not path.is_file():
        raise NotFound(f"{folder}: no {WEIGHTS}", hint="save the adapter as safetensors")
    return path
