"""Sums along the last dimension in one fixed tree, from element-wise additions alone.

An element-wise IEEE addition has one result, whatever the vectors, threads, rows or addresses; so
a sum made of nothing else depends on the summands and their order, and on nothing more.
"""

from __future__ import annotations

import torch

BLOCK = 256
"""Columns summed by halving; blocks are then added in ascending order."""


def tree_sum(x: torch.Tensor) -> torch.Tensor:
    """The sum of each row of ``x`` ``[..., N]`` in x's dtype; result ``[..., 1]``.

    Zeros appended to a row leave its sum as it is, bit for bit: they fill up a block that is
    padded with zeros anyway, or make further blocks that add nothing.
    """
    n_blocks = max(1, -(-x.shape[-1] // BLOCK))
    blocks = x.new_zeros(*x.shape[:-1], n_blocks * BLOCK)
    blocks[..., : x.shape[-1]] = x
    blocks = blocks.view(*x.shape[:-1], n_blocks, BLOCK)
    width = BLOCK
    while width > 1:
        width //= 2
        blocks = blocks[..., :width] + blocks[..., width:]
    total = blocks[..., 0, :]
    for block in range(1, n_blocks):
        total = total + blocks[..., block, :]
    return total
