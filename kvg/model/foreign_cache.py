"""The same text's state as transformers users keep it: its cache in one file, read back whole.

Nothing here is kvg's own storage; it stands beside it in ``kvg bench restore``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from transformers import DynamicCache

from kvg.digest import Digest
from kvg.model.dtypes import tensor_digest
from kvg.model.speed import StockModel

Tensors = dict[str, torch.Tensor]


def _load_torch(path: Path) -> Tensors:
    return cast("Tensors", torch.load(path, weights_only=True))


WAYS: dict[str, tuple[Callable[[Tensors, Path], None], Callable[[Path], Tensors]]] = {
    "transformers, safetensors": (save_file, load_file),
    "transformers, torch.save": (torch.save, _load_torch),
}
"""How the tensors of a cache are written and read."""


class KeptState(Protocol):
    """The state of all but the last token of a text, kept in a file by someone else.

    ``fresh`` is the digest of the logits that its own pass over the whole text gives.
    """

    fresh: Digest

    def load(self) -> Callable[[], Digest]:
        """Read the file; what comes back runs the last token and gives its logits' digest."""

    def notices_a_flipped_bit(self) -> bool:
        """Whether reading the file fails when one bit in the middle of it is another.

        The file stays damaged.
        """


def flip_a_bit(path: Path) -> None:
    """Make one bit in the middle of the file another."""
    with open(path, "r+b") as file:
        file.seek(path.stat().st_size // 2)
        (byte,) = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte ^ 1]))


class KeptCache:
    """A stock model's cache of all but the last of ``ids``, written to ``path`` in one of ``WAYS``.

    It is a ``KeptState``.
    """

    def __init__(self, stock: StockModel, ids: Sequence[int], path: Path, way: str) -> None:
        self._stock = stock
        self._path = path
        self._last = ids[-1]
        save, self._load = WAYS[way]
        cache = DynamicCache()
        stock.run(ids[:-1], cache)
        save(_tensors(cache), path)
        self.fresh = tensor_digest(stock.run(ids, DynamicCache()))

    def load(self) -> Callable[[], Digest]:
        tensors = self._load(self._path)

        def run() -> Digest:
            logits = self._stock.run([self._last], _cache(tensors))
            logits.argmax().item()
            return tensor_digest(logits)

        return run

    def notices_a_flipped_bit(self) -> bool:
        flip_a_bit(self._path)
        try:
            self._load(self._path)
        except (RuntimeError, ValueError, SafetensorError, OSError):
            return True
        return False


def _tensors(cache: DynamicCache) -> Tensors:
    return {
        f"{number:04}.{name}": cast("torch.Tensor", getattr(layer, part)).contiguous()
        for number, layer in enumerate(cache.layers)
        for name, part in (("k", "keys"), ("v", "values"))
    }


def _cache(tensors: Tensors) -> DynamicCache:
    cache = DynamicCache()
    for number in range(len(tensors) // 2):
        cache.update(tensors[f"{number:04}.k"], tensors[f"{number:04}.v"], number)
    return cache
