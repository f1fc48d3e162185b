"""Pages in and out of a pool: a page's data region to a slot and back, byte for byte."""

from __future__ import annotations

import torch

from kvg_kernels.pages import cpu
from kvg_kernels.pages.layout import PageLayout, check_page, check_pool
from kvg_kernels.pages.reference import page_gather_reference, page_scatter_reference

__all__ = [
    "PageLayout",
    "page_gather",
    "page_gather_reference",
    "page_scatter",
    "page_scatter_reference",
]


def page_scatter(
    page: torch.Tensor, pool: torch.Tensor, slot: int, layout: PageLayout, n_tokens: int
) -> None:
    """Put a page of ``n_tokens`` into the first tokens of a slot; the slot's others stay.

    Shapes: page ``[layout.page_elements(n_tokens)]``, pool ``[n_slots, slot_elements]``, of one
    dtype. Bits are moved, not numbers. Raises ``ValueError`` for shapes that do not belong
    together.
    """
    check_pool(pool, slot, layout)
    check_page(page, n_tokens, layout, pool)
    if pool.is_cuda:
        from kvg_kernels.pages.triton import page_scatter as on_gpu

        return on_gpu(page, pool, slot, layout, n_tokens)
    return cpu.page_scatter(page, pool, slot, layout, n_tokens)


def page_gather(pool: torch.Tensor, slot: int, layout: PageLayout, n_tokens: int) -> torch.Tensor:
    """The page of a slot's first ``n_tokens``: ``[layout.page_elements(n_tokens)]``, a copy.

    Raises ``ValueError`` for a pool or slot that is not the layout's.
    """
    check_pool(pool, slot, layout)
    layout.page_elements(n_tokens)
    if pool.is_cuda:
        from kvg_kernels.pages.triton import page_gather as on_gpu

        return on_gpu(pool, slot, layout, n_tokens)
    return cpu.page_gather(pool, slot, layout, n_tokens)
