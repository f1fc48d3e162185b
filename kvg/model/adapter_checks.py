"""What an adapter's files must be before any model is looked at: settings of the right kinds, and
tensors of finite floating-point numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from kvg.errors import Corrupt, Incompatible
from kvg.model.weights import FLOAT_DTYPES, StoredTensor, raw_pieces
from kvg.objects.computation import FloatJson

HINT = "save the adapter again with peft's save_pretrained"
FLAGS = ("use_rslora", "use_dora", "fan_in_fan_out", "lora_bias")
BIASES = ("none", "all", "lora_only")
_WIDTHS = {"BF16": "<u2", "F16": "<u2", "F32": "<u4", "F64": "<u8"}
_EXPONENTS = {"BF16": 0x7F80, "F16": 0x7C00, "F32": 0x7F800000, "F64": 0x7FF0000000000000}
"""The bits that are all set in an infinity and in what is no number."""


def check_settings(config: Mapping[str, FloatJson], *, what: str) -> None:
    """Raise ``Corrupt`` unless the settings that LoRA computes with are of the right kinds.

    One that is left out is peft's default.
    """
    for key, is_right, wanted in _rules():
        if key in config and not is_right(config[key]):
            raise Corrupt(f"{what}: {key} {config[key]!r:.60}: not {wanted}", hint=HINT)


def check_numbers(tensors: Sequence[StoredTensor]) -> None:
    """Raise unless every tensor holds finite floating-point numbers.

    ``Incompatible`` for another kind of number, ``Corrupt`` for an infinity or what is no number.
    """
    for tensor in tensors:
        if tensor.dtype not in FLOAT_DTYPES:
            raise Incompatible(
                f"{tensor.path}: {tensor.name} is stored in {tensor.dtype}",
                hint=f"an adapter's weights are {', '.join(FLOAT_DTYPES)}; save it unquantized",
            )
        if not _is_finite(tensor):
            raise Corrupt(
                f"{tensor.path}: {tensor.name} has numbers that are not finite", hint=HINT
            )


def _is_finite(tensor: StoredTensor) -> bool:
    try:
        import numpy as np
    except ImportError:
        raise Incompatible(
            f"{tensor.path}: numpy is not installed: an adapter's numbers are looked at with it",
            hint="pip install 'kvg[model]'",
        ) from None
    bits = _EXPONENTS[tensor.dtype]
    for piece in raw_pieces(tensor):
        if bool(((np.frombuffer(piece, _WIDTHS[tensor.dtype]) & bits) == bits).any()):
            return False
    return True


def _rules() -> Iterator[tuple[str, Callable[[FloatJson], bool], str]]:
    """(key, whether a value is right, what it has to be) of every setting that is looked at."""
    yield "r", _is_rank, "a whole number from 1"
    yield "lora_alpha", _is_number, "a finite number"
    yield "rank_pattern", lambda v: _is_pattern(v, _is_rank), "names with whole numbers from 1"
    yield "alpha_pattern", lambda v: _is_pattern(v, _is_number), "names with finite numbers"
    yield "target_modules", lambda v: v is None or _is_name(v) or _is_names(v), "names of layers"
    yield "modules_to_save", lambda v: v is None or v == [] or _is_names(v), "names of layers"
    yield "bias", lambda v: v in BIASES, f"one of {', '.join(BIASES)}"
    for key in FLAGS:
        yield key, lambda v: isinstance(v, bool), "true or false"


def _is_rank(value: FloatJson) -> bool:
    return type(value) is int and value >= 1


def _is_number(value: FloatJson) -> bool:
    return type(value) is int or (type(value) is float and math.isfinite(value))


def _is_name(value: FloatJson) -> bool:
    return isinstance(value, str) and bool(value)


def _is_names(value: FloatJson) -> bool:
    return isinstance(value, list) and bool(value) and all(_is_name(item) for item in value)


def _is_pattern(value: FloatJson, is_right: Callable[[FloatJson], bool]) -> bool:
    if value is None:
        return True
    return isinstance(value, Mapping) and all(is_right(item) for item in value.values())
