"""The tiles in use, by the number of threads that compute.

A product that is shared out among two threads may be cut otherwise than among one or three. So what
was proved for some numbers of threads says nothing of another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from kvg.model.invariant import TileMenu
from kvg.model.selfcheck import prove_tiles

if TYPE_CHECKING:
    from kvg.model.loader import LoadedModel


class Menus:
    """What was proved for one thread and for as many as compute at the time, and what is proved
    once others do."""

    def __init__(self, model: LoadedModel, menu: TileMenu) -> None:
        self._model = model
        self._proved = dict.fromkeys((1, torch.get_num_threads()), menu)

    def here(self) -> TileMenu:
        """The tiles for as many threads as compute now; they are proved first where they were not.

        Raises ``Incompatible``, naming the operator, where even the safe tile depends on that.
        """
        n_threads = torch.get_num_threads()
        if n_threads not in self._proved:
            self._proved[n_threads] = prove_tiles(self._model)
        return self._proved[n_threads]
