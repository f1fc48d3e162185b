"""The invariant reference: operators whose result for a token depends on its own history alone.

A forward pass of an unmodified model runs inside ``installed``: linear layers, attention and the
element-wise functions that need it are replaced for that time and in that thread, every other
operator must be known to be row-wise, and nothing stays behind afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from kvg.errors import Incompatible
from kvg.model.binding import BoundCache, ShapeProbe
from kvg.model.census import (
    LONG_ROW,
    OWN,
    POINTWISE,
    ROOTS,
    ROW_NORMS,
    ROW_REDUCTIONS,
    ROW_WISE,
    calling_module,
    function_name,
    in_places,
    is_along_rows,
    is_idle_dropout,
    is_in_place,
    is_long_sum,
    is_norm_of_rows,
    is_scaled,
    is_side_by_side,
    is_weight,
    is_wide,
    own_operator,
)
from kvg.model.experts import EXPERTS_NAME, experts_of_tokens
from kvg_kernels.attention import AttentionSpec, MaskCache, attention
from kvg_kernels.bmm import baddbmm, bmm
from kvg_kernels.linear import SMALL_TILE, PackedWeight, linear, packed_linear
from kvg_kernels.pointwise import pointwise

OTHER_REFERENCE = "use --reference scheduled for this model"
ATTENTION_NAME = "kvg_invariant"
"""What the transformers attention interface knows this attention by."""


class AttentionShape(NamedTuple):
    """What one attention layer computes: ``repeat`` query heads share each of ``kv_heads``."""

    repeat: int
    kv_heads: int
    k_dim: int
    v_dim: int
    spec: AttentionSpec
    has_sinks: bool


@dataclass(frozen=True, slots=True)
class TileMenu:
    """The tiles that were proved equal on this machine, largest first.

    ``linear``: rows, by (inputs, outputs, with a bias) of a linear layer; ``attention``: positions,
    by the shape of a layer. What is not there takes the one tile that the others were compared
    with. ``packed``: rows for which a linear layer may read its weight as laid out beforehand.
    """

    linear: Mapping[tuple[int, int, bool], tuple[int, ...]] = field(default_factory=dict)
    attention: Mapping[AttentionShape, tuple[int, ...]] = field(default_factory=dict)
    packed: Mapping[tuple[int, int, bool], tuple[int, ...]] = field(default_factory=dict)


_SHAPE_FREE = (SMALL_TILE,)
_SUMS = frozenset({torch.baddbmm, torch.Tensor.baddbmm})
_POWERS = frozenset({torch.pow, torch.Tensor.pow})
_SECOND = {torch.matmul: "other", torch.Tensor.matmul: "other", torch.Tensor.__matmul__: "other"}
"""What the second factor is called, where that is not ``mat2``."""
_MATMULS = _SUMS | {
    torch.matmul,
    torch.Tensor.matmul,
    torch.Tensor.__matmul__,
    torch.bmm,
    torch.Tensor.bmm,
}


class Execution:
    """One forward pass: the slots it works on and what its layers share."""

    def __init__(
        self,
        cache: BoundCache,
        menu: TileMenu,
        packed: Mapping[int, PackedWeight] | None = None,
        *,
        dtype: torch.dtype | None = None,
    ) -> None:
        """``packed``: weights laid out beforehand, by the ``id`` of the plain one. ``dtype``: that
        of the weights for which ``menu`` was proved; None where it is empty."""
        self.cache = cache
        self.menu = menu
        self.dtype = dtype
        self.packed = packed or {}
        self.masks: MaskCache = {}
        self.shapes: dict[int, AttentionShape] = {}
        """Of every attention layer that was called, by its own index."""
        self.inside = False
        self.depth = 0
        """Of operators that were called from Python and have not returned."""
        self.is_probe = isinstance(cache, ShapeProbe)
        """Whether only shapes are asked for, so that any operator will do."""
        self.refusal: Incompatible | None = None
        """Why a model that was probed has no invariant form, as far as a probe sees."""

    def refuse(self, why: str) -> None:
        """Raise ``Incompatible``; a probe goes on and keeps the first reason in ``refusal``."""
        refusal = Incompatible(why, hint=OTHER_REFERENCE)
        if not self.is_probe:
            raise refusal
        self.refusal = self.refusal or refusal

    @contextmanager
    def own_operators(self) -> Iterator[None]:
        """The body is kvg's own code: its operators are not the model's."""
        self.inside = True
        try:
            yield
        finally:
            self.inside = False


_running: ContextVar[Execution] = ContextVar("kvg_execution")


@contextmanager
def installed(execution: Execution) -> Iterator[None]:
    """Run the body with the invariant operators, in this thread, for this ``execution``."""
    token = _running.set(execution)
    try:
        with _Operators(execution):
            yield
    finally:
        _running.reset(token)


class _Operators(TorchFunctionMode):
    """Sees every operator that the model calls; replaces it, lets it pass, or refuses it."""

    def __init__(self, execution: Execution) -> None:
        super().__init__()
        self._execution = execution

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401  an operator gives back whatever it gives
        kwargs = kwargs or {}
        self._execution.depth += 1
        try:
            return self._call(func, args, kwargs)
        finally:
            self._execution.depth -= 1

    def _call(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:  # noqa: ANN401  as above
        execution = self._execution
        if execution.inside or execution.is_probe or func in OWN:
            return func(*args, **kwargs)
        if func in ROW_WISE and not is_scaled(func, args, kwargs):
            return func(*args, **kwargs)
        if func is functional.linear:
            return self._linear(*args, **kwargs)
        if func in ROOTS and is_wide(args[0] if args else kwargs.get("input")):
            return func(*args, **kwargs)
        if func in POINTWISE or func in ROOTS:
            return _pointwise(func, args, kwargs)
        if is_long_sum(func, args, kwargs):
            raise _unknown(function_name(func), f" of rows of {LONG_ROW} elements or more")
        if func in ROW_REDUCTIONS and is_along_rows(args, kwargs):
            return func(*args, **kwargs)
        if func in ROW_NORMS and is_norm_of_rows(args, kwargs):
            return func(*args, **kwargs)
        if func is functional.dropout and is_idle_dropout(args, kwargs):
            return func(*args, **kwargs)
        if func in _POWERS:
            return _power(func, args, kwargs)
        if func in _MATMULS:
            return _matmul(func, args, kwargs)
        raise _unknown(function_name(func))

    def _linear(
        self, input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """As ``functional.linear``, whose arguments have these names."""
        x, execution = input, self._execution
        if not is_side_by_side(x):
            raise _unknown(function_name(functional.linear), " of what is no row")
        n_in, n_out = weight.shape[1], weight.shape[0]
        shape = (n_in, n_out, bias is not None)
        if weight.dtype != execution.dtype:
            return linear(x, weight, bias, tiles=_SHAPE_FREE)
        packed = execution.packed.get(id(weight))
        if packed is not None and packed.is_of(weight):
            few = execution.menu.packed.get(shape)
            if few and x.numel() <= few[0] * n_in:
                rows = x.reshape(-1, n_in)
                return packed_linear(rows, packed, bias, few).view(*x.shape[:-1], n_out)
        return linear(x, weight, bias, tiles=execution.menu.linear.get(shape, _SHAPE_FREE))


def _pointwise(
    func: Callable[..., torch.Tensor], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> torch.Tensor:
    """An element-wise function, also one that changes its argument. Raises ``Incompatible``."""
    named = dict(kwargs)
    if not args and "input" in named:
        args = (named.pop("input"),)
    if not args or named.get("out") is not None:
        raise Incompatible(
            f"operator {function_name(func)}, called by {calling_module()}: writes into a tensor "
            "that it is given",
            hint=OTHER_REFERENCE,
        )
    x, rest = args[0], args[1:]
    if not is_in_place(func, args, named):
        return pointwise(lambda t: func(t, *rest, **named), x)
    found = pointwise(lambda t: func(t, *rest, **named), x.clone())
    changed: torch.Tensor = x.copy_(found)
    return changed


def _unknown(operator: str, more: str = "") -> Incompatible:
    return Incompatible(
        f"operator {operator}{more}, called by {calling_module()}: not known to give a token the "
        "same bits in any company",
        hint=OTHER_REFERENCE,
    )


def _power(
    func: Callable[..., torch.Tensor], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> torch.Tensor:
    """Powers by small whole numbers are products; others are not correctly rounded.

    One of base and exponent is a number. Raises ``Incompatible``.
    """
    (base, exponent), named = in_places(("input", "exponent"), args, kwargs)
    if named or _is_many(base) == _is_many(exponent):
        raise _unknown(function_name(func))
    if _is_many(exponent):
        return pointwise(lambda t: func(base, t), exponent)
    if isinstance(exponent, int) and 0 <= exponent <= 3:
        return func(base, exponent)
    return pointwise(lambda t: func(t, exponent), base)


def _is_many(factor: object) -> bool:
    return isinstance(factor, torch.Tensor) and factor.dim() > 0


def _matmul(
    func: Callable[..., torch.Tensor], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> torch.Tensor:
    """A product with a weight of the model, or over one term (rotary angles), which is ``a * b``.

    Raises ``Incompatible`` for two factors that both follow from tokens: they may mix them.
    """
    names = ("input", "batch1", "batch2") if func in _SUMS else ("input", _SECOND.get(func, "mat2"))
    args, kwargs = in_places(names, args, kwargs)
    added, factors = (args[0], args[1:]) if func in _SUMS else (None, args)
    if len(factors) == 2 and kwargs.keys() <= {"beta", "alpha"}:
        a, b = factors
        is_layer = is_weight(b) and is_side_by_side(a)
        if added is None and a.dim() > 1 and a.shape[-1] == 1 and b.shape[-2] == 1:
            return torch.mul(a, b)
        if b.dim() == 3 and a.dim() == 3 and a.shape[0] == b.shape[0] and is_layer:
            return bmm(a, b) if added is None else baddbmm(added, a, b, **kwargs)
        if b.dim() == 2 and added is None and is_layer:
            rows = a.reshape(1, -1, a.shape[-1])
            return bmm(rows, b.unsqueeze(0)).view(*a.shape[:-1], b.shape[-1])
    shapes = " and ".join(str(tuple(part.shape)) for part in factors)
    raise _unknown(function_name(func), f" of {shapes}")


class _Census(TorchDispatchMode):
    """Sees every operator that reaches the library, also from compiled code."""

    refusal: Incompatible | None = None
    """Of the first operator that was seen here alone."""

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401  an operator gives back whatever it gives
        execution = _running.get(None)
        if execution is not None and execution.depth == 0 and self.refusal is None:
            self.refusal = _unknown(str(func))
        return func(*args, **(kwargs or {}))


@contextmanager
def no_hidden_operators() -> Iterator[None]:
    """Raise ``Incompatible`` after the body if a pass in it called what ``installed`` cannot see.

    Compiled code (TorchScript, extensions in C++) calls operators past Python. Too slow for more
    than a few tokens.
    """
    with _Census() as census:  # type: ignore[no-untyped-call]
        yield
    if census.refusal is not None:
        raise census.refusal


def attention_of_slots(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    is_causal: bool | None = None,
    **_: object,
) -> tuple[torch.Tensor, None]:
    """Attention as the transformers interface calls it, over the slots of the running execution.

    Shapes: query ``[B, H, T, k_dim]``, key and value the new tokens' ``[B, G, T, dim]``; result
    ``[B, T, H, v_dim]``.
    """
    execution = _running.get()
    if attention_mask is not None:
        raise Incompatible("attention with a mask of its own has no invariant form")
    if is_causal is False or getattr(module, "is_causal", True) is False:
        raise Incompatible(f"{type(module).__name__}: attention that looks ahead is not causal")
    layer = execution.cache.owner(key, value)
    if layer is None:
        execution.refuse(
            f"{type(module).__name__}: attends to keys or values that it makes of those in its "
            "cache; the invariant attention reads the cache itself"
        )
    spec = AttentionSpec(
        scale=query.shape[-1] ** -0.5 if scaling is None else float(scaling),
        window=sliding_window,
        softcap=softcap,
    )
    heads, kv_heads = query.shape[1], key.shape[1]
    shape = AttentionShape(
        heads // kv_heads, kv_heads, key.shape[-1], value.shape[-1], spec, s_aux is not None
    )
    execution.shapes.setdefault(int(module.layer_idx), shape)  # type: ignore[arg-type]
    if execution.is_probe or layer is None:
        return query.new_zeros(*_swapped(query), value.shape[-1]), None
    tiles = execution.menu.attention.get(shape, ())
    return _attend(query, execution, layer, spec, s_aux, tiles), None


@own_operator
def _attend(
    query: torch.Tensor,
    execution: Execution,
    layer: int,
    spec: AttentionSpec,
    sinks: torch.Tensor | None,
    tiles: tuple[int, ...],
) -> torch.Tensor:
    """Attention of every slot's new tokens ``[B, H, T, k_dim]``; result ``[B, T, H, v_dim]``."""
    batch, heads, n_tokens, _ = query.shape
    v_dim = execution.cache.states[0].values[layer].shape[-1]
    out = query.new_empty(batch, n_tokens, heads, v_dim)
    slots = zip(execution.cache.states, execution.cache.starts, strict=True)
    for row, (state, start) in enumerate(slots):
        attention(
            query[row],
            state.keys[layer],
            state.values[layer],
            start,
            spec,
            sinks=sinks,
            masks=execution.masks,
            tiles=tiles,
            out=out[row].transpose(0, 1),
        )
    return out


def _swapped(query: torch.Tensor) -> tuple[int, int, int]:
    batch, heads, n_tokens, _ = query.shape
    return batch, n_tokens, heads


def experts_of_execution(
    module: torch.nn.Module,
    hidden_states: torch.Tensor,
    top_k_index: torch.Tensor,
    top_k_weights: torch.Tensor,
) -> torch.Tensor:
    """Experts as the transformers interface calls them, inside the running execution."""
    own_operators = _running.get().own_operators
    return experts_of_tokens(module, hidden_states, top_k_index, top_k_weights, own_operators)


ALL_ATTENTION_FUNCTIONS.register(ATTENTION_NAME, attention_of_slots)
ALL_EXPERTS_FUNCTIONS.register(EXPERTS_NAME, experts_of_execution)
