"""The definition of ``page_scatter`` and ``page_gather``, one token of one head at a time."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from kvg_kernels.pages.layout import PageLayout


def page_scatter_reference(
    page: torch.Tensor, pool: torch.Tensor, slot: int, layout: PageLayout, n_tokens: int
) -> None:
    """Put a page of ``n_tokens`` into the first tokens of a slot; the slot's others stay."""
    for in_page, in_slot, dim in _vectors(layout, n_tokens):
        pool[slot, in_slot : in_slot + dim] = page[in_page : in_page + dim]


def page_gather_reference(
    pool: torch.Tensor, slot: int, layout: PageLayout, n_tokens: int
) -> torch.Tensor:
    """The page of a slot's first ``n_tokens``."""
    page = pool.new_empty(layout.page_elements(n_tokens))
    for in_page, in_slot, dim in _vectors(layout, n_tokens):
        page[in_page : in_page + dim] = pool[slot, in_slot : in_slot + dim]
    return page


def _vectors(layout: PageLayout, n_tokens: int) -> Iterator[tuple[int, int, int]]:
    """Every vector of the page: (place in the page, place in the slot, elements)."""
    for layer in range(layout.n_layers):
        for offset, dim in ((layout.k_offset, layout.k_dim), (layout.v_offset, layout.v_dim)):
            for head in range(layout.kv_heads):
                for token in range(n_tokens):
                    in_page = offset(layer, n_tokens) + (head * n_tokens + token) * dim
                    in_slot = offset(layer) + (head * layout.page_tokens + token) * dim
                    yield in_page, in_slot, dim
