"""The weights of a session that decodes, laid out beforehand: more memory, less time per token."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import torch

from kvg.model.invariant import TileMenu
from kvg_kernels.linear import PackedWeight, pack

SHORT_PASSES: Final = 4
"""Passes of few tokens after which a session is one that decodes."""
MAX_BYTES: Final = 1 << 30
"""Most memory that laid-out weights may take; a model that needs more keeps to the plain ones."""


class Packing:
    """Lays a model's weights out once it is worth the while.

    ``menu`` says for which layers that changes no bit. Bits never depend on whether it was done.
    """

    def __init__(self, module: torch.nn.Module, menu: TileMenu) -> None:
        self._module = module
        self._menu = menu
        self._passes = 0
        self._packed: dict[int, PackedWeight] | None = None

    def weights(self, n_rows: int) -> Mapping[int, PackedWeight]:
        """The laid-out weights for a pass over ``n_rows`` tokens, by the ``id`` of the plain one.

        Empty while the passes were few or long, and where the weights would take too much memory.
        """
        most = max((tiles[0] for tiles in self._menu.packed.values()), default=0)
        if n_rows > most:
            return {}
        self._passes += 1
        if self._packed is None and self._passes > SHORT_PASSES:
            weights = {id(weight): weight for weight in self._candidates()}
            n_bytes = sum(weight.numel() * weight.element_size() for weight in weights.values())
            fit = weights if n_bytes <= MAX_BYTES else {}
            self._packed = {key: pack(weight) for key, weight in fit.items()}
        return self._packed or {}

    def _candidates(self) -> Iterator[torch.Tensor]:
        for part in self._module.modules():
            if isinstance(part, torch.nn.Linear):
                shape = (part.in_features, part.out_features, part.bias is not None)
                if shape in self._menu.packed and part.weight.is_contiguous():
                    yield part.weight
