"""How the bytes of a page's data region, and so of a pool slot, are laid out."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class PageLayout:
    """One layer group: per layer k ``[kv_heads, tokens, k_dim]``, then v ``[…, v_dim]``.

    A full page has ``page_tokens`` tokens and is one pool slot, element for element; a page of
    fewer tokens has the same order and other strides. Sizes are in elements.
    """

    n_layers: int
    kv_heads: int
    page_tokens: int
    k_dim: int
    v_dim: int

    def __post_init__(self) -> None:
        for name in ("n_layers", "kv_heads", "page_tokens", "k_dim", "v_dim"):
            if getattr(self, name) < 1:
                raise ValueError(f"page layout: {name} must be at least 1")

    @property
    def token_elements(self) -> int:
        """Elements of one token over all layers of the group."""
        return self.n_layers * self.kv_heads * (self.k_dim + self.v_dim)

    @property
    def slot_elements(self) -> int:
        """Elements of one pool slot."""
        return self.page_elements(self.page_tokens)

    def page_elements(self, n_tokens: int) -> int:
        """Elements of a page of ``n_tokens``; raises ``ValueError`` unless 1 ≤ n ≤ page_tokens."""
        if not 1 <= n_tokens <= self.page_tokens:
            raise ValueError(f"page of {n_tokens} tokens: 1 to {self.page_tokens} fit")
        return n_tokens * self.token_elements

    def k_offset(self, layer: int, n_tokens: int | None = None) -> int:
        """Where the keys of the group's ``layer``-th layer begin in a page (a slot when None)."""
        n = self.page_tokens if n_tokens is None else n_tokens
        return layer * n * self.kv_heads * (self.k_dim + self.v_dim)

    def v_offset(self, layer: int, n_tokens: int | None = None) -> int:
        """Where the values of the group's ``layer``-th layer begin in a page (a slot when None)."""
        n = self.page_tokens if n_tokens is None else n_tokens
        return self.k_offset(layer, n) + n * self.kv_heads * self.k_dim

    def tensors(self, data: torch.Tensor, n_tokens: int) -> tuple[torch.Tensor, ...]:
        """Views of a page's flat elements: k and v of each layer, ``[kv_heads, n_tokens, dim]``."""
        views = []
        for layer in range(self.n_layers):
            for offset, dim in (
                (self.k_offset(layer, n_tokens), self.k_dim),
                (self.v_offset(layer, n_tokens), self.v_dim),
            ):
                size = self.kv_heads * n_tokens * dim
                views.append(data[offset : offset + size].view(self.kv_heads, n_tokens, dim))
        return tuple(views)


def check_pool(pool: torch.Tensor, slot: int, layout: PageLayout) -> None:
    """Raise ``ValueError`` unless ``pool`` ``[n_slots, slot_elements]`` has that slot."""
    if pool.dim() != 2 or pool.shape[1] != layout.slot_elements or not pool.is_contiguous():
        due = f"[slots, {layout.slot_elements}]"
        raise ValueError(f"pool of shape {tuple(pool.shape)}: a contiguous {due} is due")
    if not 0 <= slot < pool.shape[0]:
        raise ValueError(f"slot {slot}: the pool has {pool.shape[0]}")


def check_page(page: torch.Tensor, n_tokens: int, layout: PageLayout, pool: torch.Tensor) -> None:
    """Raise ``ValueError`` unless ``page`` is flat, of the pool's dtype and as long as it says."""
    size = layout.page_elements(n_tokens)
    if page.shape != (size,) or page.dtype is not pool.dtype:
        raise ValueError(
            f"page of shape {tuple(page.shape)}, {page.dtype}: [{size}], {pool.dtype} is due"
        )
