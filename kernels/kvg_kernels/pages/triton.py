"""``page_scatter`` and ``page_gather`` in Triton: one launch for all layers of a page."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kvg_kernels.pages.layout import PageLayout

BLOCK_ELEMENTS = 1024
WARPS = 4
_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def page_scatter(
    page: torch.Tensor, pool: torch.Tensor, slot: int, layout: PageLayout, n_tokens: int
) -> None:
    """Put a page of ``n_tokens`` into the first tokens of a slot; the slot's others stay."""
    _move(page.contiguous(), pool[slot], layout, n_tokens, into_slot=True)


def page_gather(pool: torch.Tensor, slot: int, layout: PageLayout, n_tokens: int) -> torch.Tensor:
    """The page of a slot's first ``n_tokens``: a copy."""
    page = pool.new_empty(layout.page_elements(n_tokens))
    _move(page, pool[slot], layout, n_tokens, into_slot=False)
    return page


def _move(
    page: torch.Tensor, slot: torch.Tensor, layout: PageLayout, n_tokens: int, *, into_slot: bool
) -> None:
    bits = _BITS[page.element_size()]
    widest = n_tokens * max(layout.k_dim, layout.v_dim)
    grid = (layout.n_layers * 2 * layout.kv_heads, triton.cdiv(widest, BLOCK_ELEMENTS))
    move_kernel[grid](
        page.view(bits),
        slot.view(bits),
        n_tokens,
        HEADS=layout.kv_heads,
        PAGE_TOKENS=layout.page_tokens,
        K_DIM=layout.k_dim,
        V_DIM=layout.v_dim,
        INTO_SLOT=into_slot,
        BLOCK=BLOCK_ELEMENTS,
        num_warps=WARPS,
    )


@triton.jit(do_not_specialize=["n_tokens"])
def move_kernel(
    page_ptr,
    slot_ptr,
    n_tokens,
    HEADS: tl.constexpr,
    PAGE_TOKENS: tl.constexpr,
    K_DIM: tl.constexpr,
    V_DIM: tl.constexpr,
    INTO_SLOT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Program (r, b) moves block b of run r: the tokens of one head of one layer's k or v."""
    run = tl.program_id(0).to(tl.int64)
    layer = run // (2 * HEADS)
    is_value = (run // HEADS) % 2
    head = run % HEADS
    dim = tl.where(is_value == 1, V_DIM, K_DIM)
    before = layer * HEADS * (K_DIM + V_DIM) + is_value * HEADS * K_DIM + head * dim
    element = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    ok = element < n_tokens * dim
    in_page = page_ptr + before * n_tokens + element
    in_slot = slot_ptr + before * PAGE_TOKENS + element
    if INTO_SLOT:
        tl.store(in_slot, tl.load(in_page, mask=ok), mask=ok)
    else:
        tl.store(in_page, tl.load(in_slot, mask=ok), mask=ok)
