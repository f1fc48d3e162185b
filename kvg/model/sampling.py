"""Choosing the next token: greedy, or from a random stream that anyone can recompute.

The stream is counter-based: number i of seed s is SHAKE-256 of a label with both, so it does not
depend on what was drawn before, on the library or on the machine.
"""

from __future__ import annotations

import torch

from kvg.digest import shake256
from kvg.errors import UsageError
from kvg.model.session import check_numbers, lowest_maximum

STREAM = "kvg.sample/1"


def draw(seed: int, counter: int) -> float:
    """Number ``counter`` of the stream ``seed``: in [0, 1), with 53 random bits."""
    raw = shake256(f"{STREAM} {seed} {counter}".encode(), 8)
    return (int.from_bytes(raw, "little") >> 11) / 2**53


def choose(
    logits: torch.Tensor, *, temperature: float, top_p: float, seed: int, counter: int
) -> int:
    """The next token id for ``logits`` ``[vocabulary]``.

    Temperature 0 takes the lowest id among the maxima. Else the softmax is taken in float64, cut
    to the most likely tokens that hold ``top_p`` of it, and the stream decides. Equal
    probabilities are ordered by id.
    """
    if temperature == 0:
        return lowest_maximum(logits)
    return Weights(logits, temperature=temperature, top_p=top_p).pick(seed, counter)


class Weights:
    """How likely each token is to be chosen after ``logits`` ``[vocabulary]``, by any seed."""

    def __init__(self, logits: torch.Tensor, *, temperature: float, top_p: float) -> None:
        if not temperature > 0 or not 0 < top_p <= 1:
            raise UsageError("sampling: temperature from 0 up, top-p in (0, 1]")
        check_numbers(logits)
        weights = torch.softmax(logits.to(torch.float64) / temperature, -1)
        ordered, ids = torch.sort(weights, descending=True, stable=True)
        total = torch.cumsum(ordered, -1)
        n_kept = min(int((total < top_p).sum()) + 1, ordered.shape[0])
        self._ids, self._total = ids[:n_kept], total[:n_kept]

    def pick(self, seed: int, counter: int) -> int:
        """The token that number ``counter`` of the stream ``seed`` decides for."""
        target = draw(seed, counter) * float(self._total[-1])
        index = int(torch.searchsorted(self._total, target, right=True))
        return int(self._ids[min(index, len(self._ids) - 1)])
