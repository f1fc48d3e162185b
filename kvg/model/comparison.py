"""Two logits that should be equal: whether they are, and how far apart when they are not."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kvg.digest import Digest
from kvg.model.dtypes import tensor_digest
from kvg.model.session import lowest_maximum


@dataclass(frozen=True, slots=True)
class Comparison:
    """Grafted against fresh logits of one position, by their raw bytes and in float64.

    ``kl`` is the Kullback-Leibler divergence of grafted from fresh in nats; ``top2_gap`` the
    distance of the two best fresh logits, for a tie can flip without any error.
    """

    grafted: Digest
    fresh: Digest
    kl: float
    argmax_equal: bool
    max_abs_diff: float
    top2_gap: float

    @property
    def equal(self) -> bool:
        """Whether the bytes are the same."""
        return self.grafted == self.fresh


def compare_logits(grafted: torch.Tensor, fresh: torch.Tensor) -> Comparison:
    """Compare two logits ``[vocabulary]``."""
    a, b = grafted.to(torch.float64), fresh.to(torch.float64)
    log_a, log_b = torch.log_softmax(a, -1), torch.log_softmax(b, -1)
    best = torch.topk(b, 2).values
    return Comparison(
        grafted=tensor_digest(grafted),
        fresh=tensor_digest(fresh),
        kl=float((log_b.exp() * (log_b - log_a)).sum()),
        argmax_equal=lowest_maximum(grafted) == lowest_maximum(fresh),
        max_abs_diff=float((a - b).abs().max()),
        top2_gap=float(best[0] - best[1]),
    )
