"""``page_scatter`` and ``page_gather`` on a CPU: one copy for a full page, else one per tensor."""

from __future__ import annotations

import torch

from kvg_kernels.pages.layout import PageLayout


def page_scatter(
    page: torch.Tensor, pool: torch.Tensor, slot: int, layout: PageLayout, n_tokens: int
) -> None:
    """Put a page of ``n_tokens`` into the first tokens of a slot; the slot's others stay."""
    if n_tokens == layout.page_tokens:
        pool[slot].copy_(page)
        return
    places = layout.tensors(pool[slot], layout.page_tokens)
    for place, tensor in zip(places, layout.tensors(page, n_tokens), strict=True):
        place[:, :n_tokens].copy_(tensor)


def page_gather(pool: torch.Tensor, slot: int, layout: PageLayout, n_tokens: int) -> torch.Tensor:
    """The page of a slot's first ``n_tokens``: a copy."""
    if n_tokens == layout.page_tokens:
        return pool[slot].clone()
    page = pool.new_empty(layout.page_elements(n_tokens))
    places = layout.tensors(pool[slot], layout.page_tokens)
    for place, tensor in zip(places, layout.tensors(page, n_tokens), strict=True):
        tensor.copy_(place[:, :n_tokens])
    return page
