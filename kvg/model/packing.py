"""The weights of a session that decodes, laid out beforehand: more memory, less time per token."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import torch

from kvg.model.invariant import TileMenu
from kvg.model.probe import same_bits
from kvg_kernels.linear import PackedWeight, pack

SHORT_PASSES: Final = 4
"""Passes of few tokens after which a session is one that decodes."""
SAMPLED: Final = 64
"""Elements of each laid-out weight that every short pass looks at."""
MAX_BYTES: Final = 1 << 30
"""Most memory that laid-out weights may take; a model that needs more keeps to the plain ones."""


class Packing:
    """Lays a model's weights out once it is worth the while.

    ``menu`` says for which layers that changes no bit. Bits do not depend on whether it was done,
    unless a weight is written to past its counter of changes, in elements that are not sampled.
    """

    def __init__(self, module: torch.nn.Module, menu: TileMenu) -> None:
        self._module = module
        self._menu = menu
        self._passes = 0
        self._packed: dict[int, PackedWeight] | None = None
        self._samples: list[torch.Tensor] = []
        """Views of some elements of every weight that is laid out."""
        self._sampled = torch.empty(0)
        """What they were then."""

    def weights(self, n_rows: int) -> Mapping[int, PackedWeight]:
        """The laid-out weights for a pass over ``n_rows`` tokens, by the ``id`` of the plain one.

        Empty while the passes were few or long, and where the weights would take too much memory.
        """
        most = max((tiles[0] for tiles in self._menu.packed.values()), default=0)
        if n_rows > most:
            return {}
        self._passes += 1
        if self._passes > SHORT_PASSES and (self._packed is None or self._is_stale()):
            self._packed = self._laid_out()
        return self._packed or {}

    def _laid_out(self) -> dict[int, PackedWeight]:
        weights = {id(weight): weight for weight in self._candidates()}
        n_bytes = sum(weight.numel() * weight.element_size() for weight in weights.values())
        if not weights or n_bytes > MAX_BYTES:
            return {}
        self._samples = [_sample(weight) for weight in weights.values()]
        self._sampled = torch.cat(self._samples)
        return {key: pack(weight) for key, weight in weights.items()}

    def _is_stale(self) -> bool:
        """Whether a sampled element is another one than when the weights were laid out."""
        return bool(self._packed) and not same_bits(torch.cat(self._samples), self._sampled)

    def _candidates(self) -> Iterator[torch.Tensor]:
        for part in self._module.modules():
            if isinstance(part, torch.nn.Linear):
                shape = (part.in_features, part.out_features, part.bias is not None)
                is_plain = part.weight.is_contiguous() and not part.weight.is_inference()
                if shape in self._menu.packed and is_plain:
                    yield part.weight


def _sample(weight: torch.Tensor) -> torch.Tensor:
    """A view of up to ``SAMPLED`` elements of ``weight``, as far apart as there is room."""
    flat = weight.detach().view(-1)
    return flat[:: max(1, flat.numel() // SAMPLED)][:SAMPLED]
