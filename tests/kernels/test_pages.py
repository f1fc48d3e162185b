from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from kvg_kernels.pages import (
    PageLayout,
    page_gather,
    page_gather_reference,
    page_scatter,
    page_scatter_reference,
)

Made = Callable[..., torch.Tensor]
LAYOUTS = {
    "one": PageLayout(1, 1, 1, 1, 1),
    "two head sizes": PageLayout(3, 2, 7, 5, 3),
    "whole": PageLayout(2, 3, 16, 8, 8),
}
DTYPES = [torch.bfloat16, torch.float32]


def pool_of_nans(layout: PageLayout, dtype: torch.dtype) -> torch.Tensor:
    return torch.full((3, layout.slot_elements), float("nan"), dtype=dtype)


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """The same bytes: NaN is equal to itself."""
    return torch.equal(a.view(torch.uint8), b.view(torch.uint8))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", LAYOUTS)
def test_equals_its_definition_for_every_number_of_tokens(
    made: Made, name: str, dtype: torch.dtype, nan_filled: None
) -> None:
    """Byte for byte, the rest of the pool included; and a page comes back as it was."""
    layout = LAYOUTS[name]
    for n in range(1, layout.page_tokens + 1):
        page = made(layout.page_elements(n), dtype=dtype, skip=1)
        found, expected = pool_of_nans(layout, dtype), pool_of_nans(layout, dtype)
        page_scatter(page, found, 1, layout, n)
        page_scatter_reference(page, expected, 1, layout, n)
        assert same(found, expected)
        assert int(found.isnan().sum()) == found.numel() - page.numel()
        assert same(page_gather(found, 1, layout, n), page)
        assert same(page_gather_reference(found, 1, layout, n), page)


def test_a_page_that_was_gathered_is_a_copy(made: Made) -> None:
    layout = LAYOUTS["two head sizes"]
    pool = made(3, layout.slot_elements)
    for n in (3, layout.page_tokens):
        page = page_gather(pool, 2, layout, n)
        before = pool.clone()
        page.zero_()
        assert torch.equal(pool, before)


def test_what_does_not_belong_together_is_refused(made: Made) -> None:
    layout = LAYOUTS["whole"]
    pool, page = made(2, layout.slot_elements), made(layout.page_elements(4))
    for slot in (-1, 2):
        with pytest.raises(ValueError, match="slot"):
            page_gather(pool, slot, layout, 4)
    for n in (0, layout.page_tokens + 1):
        with pytest.raises(ValueError, match="tokens"):
            page_gather(pool, 0, layout, n)
    for wrong in (page[:-1], page.double(), page.view(4, -1)):
        with pytest.raises(ValueError, match="page of shape"):
            page_scatter(wrong, pool, 0, layout, 4)
    with pytest.raises(ValueError, match="pool of shape"):
        page_scatter(page, pool[:, :-1], 0, layout, 4)
