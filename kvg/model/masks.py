"""Which window the stock model's own masks give each layer.

The stock model hides old positions by a mask that it makes from its config, and passes over what
its layers ask the attention for beside that. kvg takes what the layers ask for and makes no mask.
Where the two say the same, it computes the model, and else it would compute another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

import torch
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from kvg.errors import Incompatible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from transformers import PreTrainedModel

    from kvg.model.invariant import AttentionShape

LOOKING_NAME: Final = "kvg_looking"
"""What transformers' interfaces know by which the masks are looked at."""
_N_TOKENS: Final = 2


class _Seen:
    """``asked``: the windows that masks were made for; ``of_layer``: that of each layer's mask."""

    def __init__(self) -> None:
        self.asked: list[int | None] = []
        self.of_layer: dict[int, int | None] = {}


_seen: ContextVar[_Seen] = ContextVar("kvg_masks_seen")


def check_windows(
    module: PreTrainedModel, shapes: Mapping[int, AttentionShape], *, what: str
) -> None:
    """Raise ``Incompatible`` where a layer's mask has another window than its attention asks for.

    ``shapes``: of every layer, by its index. It takes a pass over two tokens, and none where
    neither the config nor any layer speaks of a window. The module's implementations are left
    changed.
    """
    if not (_names_window(module) or any(shape.spec.window for shape in shapes.values())):
        return
    for layer, window in sorted(_windows_of_masks(module).items()):
        asked = shapes[layer].spec.window if layer in shapes else window
        if asked != window:
            raise Incompatible(
                f"{what}: layer {layer} of {type(module).__name__} is masked to {_words(window)} "
                f"and asks its attention for {_words(asked)}: the two are different models",
                hint="take the window out of its config, if it was trained without one",
            )


def _words(window: int | None) -> str:
    return "no window" if window is None else f"a window of {window}"


def _names_window(module: PreTrainedModel) -> bool:
    config = module.config.get_text_config().to_dict()
    return any("window" in key and value for key, value in config.items())


def _windows_of_masks(module: PreTrainedModel) -> Mapping[int, int | None]:
    """Of each layer that was given a mask of transformers' making; one that does more with it than
    to hand it on can't be looked at so."""
    with _looking() as seen, torch.inference_mode():
        module.set_attn_implementation(LOOKING_NAME)
        places = torch.arange(_N_TOKENS, device=module.device).unsqueeze(0)
        with suppress(AttributeError, RuntimeError, TypeError, ValueError):
            module(input_ids=torch.zeros_like(places), position_ids=places, use_cache=False)
    return seen.of_layer


@contextmanager
def _looking() -> Iterator[_Seen]:
    token = _seen.set(found := _Seen())
    try:
        yield found
    finally:
        _seen.reset(token)


def _mask_made(
    *, batch_size: int, kv_length: int, local_size: int | None = None, **said: object
) -> torch.Tensor:
    """A mask that says by its numbers which one it is, whatever a layer cuts off it."""
    seen = _seen.get()
    seen.asked.append(local_size)
    size = batch_size, 1, _N_TOKENS, kv_length
    return torch.full(size, float(len(seen.asked)), device=said.get("device"))  # type: ignore[call-overload,no-any-return]


def _attention_looked_at(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **_: object,
) -> tuple[torch.Tensor, None]:
    """Nothing but the shape of attention, and which mask it was given."""
    seen = _seen.get()
    if attention_mask is not None and attention_mask.numel():
        number = int(attention_mask.flatten()[0])
        if 1 <= number <= len(seen.asked):
            seen.of_layer[int(module.layer_idx)] = seen.asked[number - 1]  # type: ignore[arg-type]
    batch, heads, n_tokens, _dim = query.shape
    return query.new_zeros(batch, n_tokens, heads, value.shape[-1]), None


ALL_MASK_ATTENTION_FUNCTIONS.register(LOOKING_NAME, _mask_made)
ALL_ATTENTION_FUNCTIONS.register(LOOKING_NAME, _attention_looked_at)
