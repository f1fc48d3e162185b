"""The tiles in use, by the number of threads that compute.

A product that is shared out among two threads may be cut otherwise than among one or three. So what
was proved for some numbers of threads says nothing of another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from kvg.model.invariant import TileMenu
from kvg.model.tiling import is_still_true, prove_tiles

if TYPE_CHECKING:
    from kvg.model.loader import LoadedModel
    from kvg.model.proofs import ProofCache
    from kvg.objects.manifest import Engine


class Menus:
    """What was proved for one thread and for as many as compute at the time, and what is proved
    once others do; ``proofs`` remembers that for later sessions."""

    def __init__(
        self, model: LoadedModel, engine: Engine, menu: TileMenu, proofs: ProofCache | None
    ) -> None:
        self._model = model
        self._engine = engine
        self._proofs = proofs
        self._proved = dict.fromkeys((1, torch.get_num_threads()), menu)

    def here(self) -> TileMenu:
        """The tiles for as many threads as compute now; they are proved first where they were not.

        Raises ``Incompatible``, naming the operator, where even the safe tile depends on that.
        """
        n_threads = torch.get_num_threads()
        if n_threads not in self._proved:
            self._proved[n_threads] = self._recalled() or self._proved_now()
        return self._proved[n_threads]

    def _recalled(self) -> TileMenu | None:
        """What an earlier session proved for as many threads, if a shape of it still holds."""
        menu = self._proofs.recall(self._model, self._engine, "tiles") if self._proofs else None
        return menu if menu is not None and is_still_true(self._model, menu) else None

    def _proved_now(self) -> TileMenu:
        menu = prove_tiles(self._model)
        if self._proofs:
            self._proofs.remember(self._model, self._engine, menu, "tiles")
        return menu
