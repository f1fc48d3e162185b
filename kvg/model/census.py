"""Which operators a model may call while its results must not depend on the shape of the call.

A function is row-wise when the bits it gives for one token depend on that token's own row alone:
views and copies, correctly rounded arithmetic, and reductions along a row of fixed length.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch.nn import functional

P = ParamSpec("P")
R = TypeVar("R")

_VIEWS = (
    "__getitem__ __setitem__ to type_as float bfloat16 half view reshape transpose permute "
    "unsqueeze squeeze expand expand_as contiguous is_contiguous chunk split flatten size dim "
    "numel clone detach repeat_interleave unflatten narrow masked_fill masked_fill_ copy_ swapaxes "
    "index_select element_size is_floating_point new_zeros new_empty __len__ __bool__ item "
    "is_complex movedim unbind t select fill_ zero_ __format__ __repr__ get_device cpu tolist "
    "stride storage_offset data_ptr requires_grad_ view_as long int bool repeat"
)
_ARITHMETIC = (
    "add sub mul div neg abs __add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ "
    "__rtruediv__ __neg__ mul_ add_ sub_ div_ sqrt square reciprocal maximum minimum clamp "
    "clamp_ clamp_min eq ne lt le gt ge __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __and__ __or__ "
    "__invert__ logical_and logical_or logical_not rsub where relu __iadd__ __imul__ __isub__ "
    "__itruediv__ __floordiv__ floor __mod__ round true_divide"
)
_ROW_REDUCTIONS = "mean sum amax max amin min argmax topk softmax var any all"
_MODULE = (
    "arange tensor cat stack zeros ones empty full zeros_like ones_like empty_like full_like "
    "where maximum minimum add sub mul div neg sqrt square reciprocal clamp "
    "unsqueeze squeeze reshape transpose chunk split repeat_interleave "
    "is_tensor is_floating_point broadcast_tensors index_select flatten finfo outer unbind "
    "as_tensor"
)
_FUNCTIONAL = "embedding relu pad"
_PROPERTIES = (
    "shape dtype device ndim is_cuda is_meta data T mT layout requires_grad is_quantized is_cpu "
    "is_nested is_sparse is_mps itemsize real names grad_fn"
)
_POINTWISE_METHODS = (
    "cos sin exp exp2 log log2 tanh sigmoid erf exp_ tanh_ sigmoid_ cos_ sin_ log1p expm1"
)
_POINTWISE_FUNCTIONS = (
    "silu gelu sigmoid tanh softplus mish elu selu hardswish logsigmoid quick_gelu"
)


_SWITCHES = (
    "_set_grad_enabled is_autocast_enabled set_autocast_enabled get_autocast_dtype "
    "set_autocast_dtype autocast_increment_nesting autocast_decrement_nesting "
    "is_autocast_cache_enabled set_autocast_cache_enabled clear_autocast_cache"
)
"""Functions of ``torch._C`` that compute nothing: gradient and autocast modes."""


def _named(owner: object, names: str) -> set[Hashable]:
    return {getattr(owner, name) for name in names.split() if hasattr(owner, name)}


ROW_WISE: frozenset[Hashable] = frozenset(
    _named(torch.Tensor, _VIEWS)
    | _named(torch.Tensor, _ARITHMETIC)
    | _named(torch, _MODULE)
    | _named(functional, _FUNCTIONAL)
    | _named(torch._C, _SWITCHES)
    | {
        getattr(torch.Tensor, name).__get__
        for name in _PROPERTIES.split()
        if hasattr(getattr(torch.Tensor, name, None), "__get__")
    }
)
"""Functions that give a token the same bits in any company, as they stand."""

SCALED_SUMS: frozenset[Hashable] = frozenset(
    _named(torch.Tensor, "add sub rsub add_ sub_") | _named(torch, "add sub rsub")
)
"""Sums that take a factor, ``alpha``: with one they round once or twice, as it comes."""

ROOTS: frozenset[Hashable] = frozenset({torch.Tensor.rsqrt, torch.rsqrt})
"""The reciprocal of a root: two roundings, which in 16 bits are in the one place or the other."""

LONG_SUMS: frozenset[Hashable] = frozenset(
    _named(torch.Tensor, "sum mean var")
    | _named(torch, "sum mean var")
    | _named(functional, "layer_norm rms_norm")
)
"""Sums whose order follows from how many threads share a row of ``LONG_ROW`` elements or more."""

LONG_ROW = 1 << 15

ROW_REDUCTIONS: frozenset[Hashable] = frozenset(
    _named(torch.Tensor, _ROW_REDUCTIONS)
    | _named(torch, _ROW_REDUCTIONS)
    | _named(functional, "softmax")
)
"""Reductions that are row-wise along the last dimension, and along no other."""

ROW_NORMS: frozenset[Hashable] = frozenset(_named(functional, "layer_norm rms_norm"))
"""Norms that are row-wise over the last dimension, and over no more."""

POINTWISE: frozenset[Hashable] = frozenset(
    _named(torch.Tensor, _POINTWISE_METHODS)
    | _named(torch, _POINTWISE_METHODS)
    | _named(functional, _POINTWISE_FUNCTIONS)
)
"""Element-wise functions that are not correctly rounded: they run through ``pointwise``."""


def is_scaled(func: Hashable, args: Sequence[object], kwargs: Mapping[str, object]) -> bool:
    """Whether a call of one of ``SCALED_SUMS`` has a factor other than 1."""
    if not kwargs and len(args) < 3:
        return False
    return func in SCALED_SUMS and (len(args) > 2 or kwargs.get("alpha", 1) != 1)


def is_wide(x: object) -> bool:
    """Whether an element has as many bits as ``ROOTS`` need to be the same everywhere."""
    return isinstance(x, torch.Tensor) and x.dtype in (torch.float32, torch.float64)


def is_long_sum(func: Hashable, args: Sequence[object], kwargs: Mapping[str, object]) -> bool:
    """Whether a call of one of ``LONG_SUMS`` is over rows that threads may share."""
    x = args[0] if args else kwargs.get("input")
    return (
        func in LONG_SUMS
        and isinstance(x, torch.Tensor)
        and x.is_floating_point()
        and x.dim() > 0
        and x.shape[-1] >= LONG_ROW
    )


def is_along_rows(args: Sequence[object], kwargs: Mapping[str, object]) -> bool:
    """Whether a call of one of ``ROW_REDUCTIONS`` mixes nothing but the elements of one row.

    Whole numbers and truth values have no rounding: their order does not matter, and positions and
    masks are counted along any dimension; more than two are a row of each token. ``max`` and
    ``min`` of two tensors are element-wise. The elements of a row lie side by side: a last
    dimension of which that is not so was another one, of tokens or heads. So may be the only
    dimension of a tensor that is no weight.
    """
    x = args[0] if args else kwargs.get("input")
    if not isinstance(x, torch.Tensor):
        return False
    is_whole = not (x.is_floating_point() or x.is_complex())
    if (is_whole and x.dim() < 3) or x.dim() == 0 or is_weight(x):
        return True
    rest = [item for item in args[1:] if not isinstance(item, torch.dtype)]
    if any(isinstance(item, torch.Tensor) for item in (*rest, kwargs.get("other"))):
        return True
    is_topk = "k" in kwargs or (len(rest) > 1 and not isinstance(rest[1], bool))
    if x.dim() == 1 or not is_side_by_side(x):
        return False
    places = rest[1:] if is_topk else rest
    dim = kwargs.get("dim", places[0] if places else (-1 if is_topk else None))
    dims = tuple(dim) if isinstance(dim, tuple | list) else (dim,)
    return all(isinstance(item, int) and item in (-1, x.dim() - 1) for item in dims)


def is_side_by_side(x: torch.Tensor) -> bool:
    """Whether the elements of a row lie next to each other."""
    return x.dim() == 0 or x.shape[-1] <= 1 or x.stride(-1) == 1


def is_norm_of_rows(args: Sequence[object], kwargs: Mapping[str, object]) -> bool:
    """Whether a call of one of ``ROW_NORMS`` looks at one dimension, of elements side by side."""
    x = args[0] if args else kwargs.get("input")
    if not isinstance(x, torch.Tensor) or not is_side_by_side(x):
        return False
    shape = args[1] if len(args) > 1 else kwargs.get("normalized_shape")
    return isinstance(shape, Sequence | int) and (isinstance(shape, int) or len(shape) == 1)


def is_idle_dropout(args: Sequence[object], kwargs: Mapping[str, object]) -> bool:
    """Whether a call of ``functional.dropout`` drops nothing."""
    given = {**dict(zip(parameter_names(functional.dropout), args, strict=False)), **kwargs}
    return given.get("p", 0.5) == 0 or not given.get("training", True)


def is_weight(tensor: torch.Tensor) -> bool:
    """Whether ``tensor`` is a parameter of a module, or a view of one."""
    return isinstance(tensor, torch.nn.Parameter) or isinstance(tensor._base, torch.nn.Parameter)


def in_places(
    names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments called ``names`` in their places, and the other keywords."""
    left = dict(kwargs)
    placed = tuple(left.pop(name) for name in names[len(args) :] if name in left)
    return (*args, *placed), left


def is_in_place(
    function: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]
) -> bool:
    """Whether a call of one of ``POINTWISE`` changes its argument."""
    if function_name(function).endswith("_"):
        return True
    names = parameter_names(function)
    if "inplace" not in names:
        return False
    return bool(dict(zip(names, args, strict=False)).get("inplace", kwargs.get("inplace")))


@cache
def parameter_names(function: Callable[..., object]) -> tuple[str, ...]:
    """What the parameters of ``function`` are called; nothing of one that is not in Python."""
    try:
        return tuple(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return ()


def calling_module() -> str:
    """The class of the innermost model module on the stack: who called an operator."""
    frame = inspect.currentframe()
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, torch.nn.Module):
            return type(owner).__name__
        frame = frame.f_back
    return "no module"


def function_name(function: Callable[..., object]) -> str:
    """What people call ``function``."""
    name = torch.overrides.resolve_name(function)
    return name or repr(function)


OWN: set[Hashable] = set()
"""Functions of kvg's own that run inside a forward pass: what they call is not the model's."""


def own_operator(function: Callable[P, R]) -> Callable[P, R]:
    """``function``, counted as one operator: the mode that sees operators does not see inside it.

    Its first argument that is a tensor decides nothing; there has to be one.
    """
    OWN.add(function)

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        tensors = tuple(item for item in args if isinstance(item, torch.Tensor))
        if torch.overrides.has_torch_function(tensors):
            return torch.overrides.handle_torch_function(function, tensors, *args, **kwargs)
        return function(*args, **kwargs)

    return called
