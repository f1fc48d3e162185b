"""What an attention layer computes, apart from its inputs."""

from __future__ import annotations

from dataclasses import dataclass

BLOCK_TOKENS = 256
"""Keys come in blocks of this many absolute positions; every tile sees whole blocks."""


@dataclass(frozen=True, slots=True)
class AttentionSpec:
    """Causal attention: query at position p sees keys in (p - window, p], or all up to p."""

    scale: float
    window: int | None = None
    softcap: float | None = None

    def first_block(self, block: int) -> int:
        """The first key block that queries of block ``block`` may see."""
        if self.window is None:
            return 0
        return max(0, block * BLOCK_TOKENS - self.window + 1) // BLOCK_TOKENS
