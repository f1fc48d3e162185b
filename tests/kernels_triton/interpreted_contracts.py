"""Every operator's contract, on its CPU form and on its Triton form."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest
import torch

from kvg.objects.manifest import Group
from kvg.objects.page import tensor_spans
from kvg_kernels import pages, planes
from kvg_kernels.attention.triton import attention_tile
from kvg_kernels.bmm import baddbmm_reference, bmm_reference
from kvg_kernels.pages import PageLayout, page_gather_reference, page_scatter_reference
from kvg_kernels.planes import join_planes_reference, split_planes_reference
from kvg_kernels.rms_norm import rms_norm_reference
from kvg_kernels.softmax import softmax_reference
from kvg_kernels.tiles import TILES
from tests.kernels_triton import checks
from tests.kernels_triton.checks import assert_bits, assert_close, sample


def form_of(operator: str, form: str) -> ModuleType:
    return importlib.import_module(f"kvg_kernels.{operator}.{form}")


TRITON = {name: form_of(name, "triton") for name in ("linear", "attention")}
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=str)
both = pytest.mark.parametrize("form", ["cpu", "triton"])


@dtypes
def test_linear_rows(dtype: torch.dtype) -> None:
    checks.check_linear_rows(TRITON["linear"].linear, dtype)


@both
@dtypes
def test_linear_close_to_float64(form: str, dtype: torch.dtype) -> None:
    checks.check_linear_close(form_of("linear", form).linear, dtype)


@dtypes
def test_linear_order(dtype: torch.dtype) -> None:
    checks.check_linear_order(TRITON["linear"].linear, TILES[dtype].depth, dtype)


def test_linear_of_a_dtype_without_a_tile() -> None:
    with pytest.raises(TypeError, match="no product tile"):
        TRITON["linear"].linear(sample(2, 2).double(), sample(2, 2).double())


@both
@dtypes
def test_bmm(form: str, dtype: torch.dtype) -> None:
    module = form_of("bmm", form)
    checks.check_bmm(module.bmm, module.baddbmm, dtype)


def test_bmm_reference() -> None:
    a, b, bias = sample(2, 3, 4), sample(2, 4, 5), sample(5)
    torch.testing.assert_close(bmm_reference(a, b), torch.bmm(a, b))
    expected = torch.baddbmm(bias, a, b, beta=0.5, alpha=2)
    torch.testing.assert_close(baddbmm_reference(bias, a, b, beta=0.5, alpha=2), expected)


@dtypes
def test_attention_splits(dtype: torch.dtype) -> None:
    checks.check_attention_splits(TRITON["attention"].attention, dtype)


@pytest.mark.parametrize(("k_dim", "heads"), [(512, 2), (16, 16), (80, 6)])
def test_attention_splits_of_other_heads(k_dim: int, heads: int) -> None:
    operator, spec = TRITON["attention"].attention, "window and softcap"
    checks.check_attention_splits(operator, torch.float16, k_dim=k_dim, heads=heads, specs=[spec])


@both
@dtypes
def test_attention_close_to_float64(form: str, dtype: torch.dtype) -> None:
    checks.check_attention_close(form_of("attention", form).attention, dtype)


@dtypes
def test_attention_order(dtype: torch.dtype) -> None:
    tile = attention_tile(16, 16, dtype.itemsize).keys
    checks.check_attention_order(TRITON["attention"].attention, tile, dtype)


def test_attention_of_nothing_is_positive_zero() -> None:
    checks.check_attention_zero(TRITON["attention"].attention)


def test_attention_of_heads_too_wide() -> None:
    with pytest.raises(ValueError, match="no attention tile"):
        attention_tile(4096, 64, 2)


@both
@dtypes
def test_paged_attention(form: str, dtype: torch.dtype) -> None:
    page_tokens = 256 if dtype is torch.float16 else 64
    layout = PageLayout(n_layers=2, kv_heads=2, page_tokens=page_tokens, k_dim=16, v_dim=24)
    scatter = pages.page_scatter
    if form == "cpu":
        cpu = form_of("attention", "cpu")
        checks.check_paged(
            form_of("attention", "paged").paged_attention, cpu.attention, scatter, layout, dtype
        )
    else:
        triton = TRITON["attention"]
        checks.check_paged(triton.paged_attention, triton.attention, scatter, layout, dtype)


@pytest.mark.parametrize("form", ["cpu", "triton"])
def test_paged_attention_refuses(form: str) -> None:
    module = form_of("attention", "paged" if form == "cpu" else form)
    layout = PageLayout(n_layers=1, kv_heads=1, page_tokens=64, k_dim=16, v_dim=16)
    pool, query, table = (
        torch.zeros(2, layout.slot_elements),
        sample(1, 1, 2, 16),
        torch.zeros(1, 1),
    )
    spec = checks.SPECS["full"]
    for change, message in (
        ({"pool": pool[:, :-1]}, "not of the layout"),
        ({"query": sample(1, 1, 2, 8)}, "not of the layout"),
        ({"starts": [63]}, "end before"),
        ({"starts": [0, 0]}, "starts for"),
        ({"layer": 1}, "layer 1"),
    ):
        given = {"query": query, "pool": pool, "tables": table.int(), "starts": [0], "layer": 0}
        with pytest.raises(ValueError, match=message):
            module.paged_attention(**{**given, **change}, spec=spec, layout=layout)


@both
@dtypes
@pytest.mark.parametrize("size", [1, 64, 576, 1000])
def test_rms_norm(form: str, dtype: torch.dtype, size: int) -> None:
    operator = form_of("rms_norm", form).rms_norm
    x, weight = sample(9, size, dtype=dtype) * 3, sample(size, dtype=dtype, seed=1)
    for scale in (weight, None):
        got = checks.check_rows(lambda rows, w=scale: operator(rows, w, 1e-6), x)
        wide = None if scale is None else scale.double()
        assert_close(got, rms_norm_reference(x.double(), wide, 1e-6), dtype, scale=2)


@both
@dtypes
@pytest.mark.parametrize("size", [1, 64, 1025, 2500])
def test_softmax(form: str, dtype: torch.dtype, size: int) -> None:
    operator = form_of("softmax", form).softmax
    x = sample(7, size, dtype=dtype) * 8
    got = checks.check_rows(operator, x)
    assert_close(got, softmax_reference(x.double()), dtype)
    assert operator(x, dtype=torch.float32).dtype is torch.float32
    for extra in (1, 300, 1100):
        hidden = torch.full((7, extra), float("-inf"), dtype=dtype)
        longer = operator(torch.cat([x, hidden], -1))
        assert_bits(longer[:, :size], got)
        assert longer[:, size:].eq(0).all()


@both
@dtypes
@pytest.mark.parametrize("n_tokens", [1, 5, 8])
def test_pages(form: str, dtype: torch.dtype, n_tokens: int) -> None:
    module = form_of("pages", form)
    layout = PageLayout(n_layers=3, kv_heads=2, page_tokens=8, k_dim=6, v_dim=300)
    bits = torch.arange(layout.page_elements(n_tokens), dtype=torch.int64) * 2654435761
    page = bits.to(torch.int32 if dtype.itemsize == 4 else torch.int16).view(dtype)
    pool, expected = torch.full((2, 3, layout.slot_elements), float("nan"), dtype=dtype)
    module.page_scatter(page, pool, 1, layout, n_tokens)
    page_scatter_reference(page, expected, 1, layout, n_tokens)
    assert_bits(pool, expected)
    assert_bits(module.page_gather(pool, 1, layout, n_tokens), page)
    assert_bits(page_gather_reference(pool, 1, layout, n_tokens), page)


def test_a_slot_is_the_data_region_of_a_page() -> None:
    layout = PageLayout(n_layers=3, kv_heads=2, page_tokens=8, k_dim=6, v_dim=10)
    group = Group("full", "attention", (0, 2, 5), 2, 6, 10, "BF16", None)
    for n_tokens in (8, 3):
        for i, span in enumerate(tensor_spans(group, n_tokens)):
            offset = layout.v_offset if span.part == "v" else layout.k_offset
            assert span.offset == 2 * offset(i // 2, n_tokens)


def test_pages_refuse_what_does_not_fit() -> None:
    layout = PageLayout(n_layers=1, kv_heads=1, page_tokens=4, k_dim=2, v_dim=2)
    pool = torch.zeros(2, layout.slot_elements)
    with pytest.raises(ValueError, match="slot 2"):
        pages.page_gather(pool, 2, layout, 1)
    with pytest.raises(ValueError, match="5 tokens"):
        pages.page_gather(pool, 0, layout, 5)
    with pytest.raises(ValueError, match="page of shape"):
        pages.page_scatter(torch.zeros(3), pool, 0, layout, 1)
    with pytest.raises(ValueError, match="pool of shape"):
        pages.page_gather(pool[:, :-1], 0, layout, 1)
    with pytest.raises(ValueError, match="kv_heads"):
        PageLayout(n_layers=1, kv_heads=0, page_tokens=4, k_dim=2, v_dim=2)


@both
@pytest.mark.parametrize("count", [1, 2, 4, 8])
@pytest.mark.parametrize("size", [0, 1, 7, 2051, 9000])
def test_planes(form: str, count: int, size: int) -> None:
    module = form_of("planes", form)
    raw = (torch.arange(size) * 37 % 251).to(torch.uint8)
    split = module.split_planes(raw, count)
    for got, expected in zip(split, split_planes_reference(raw, count), strict=True):
        assert_bits(got, expected)
    assert_bits(module.join_planes(*split), raw)
    assert_bits(join_planes_reference(*split), raw)


def test_planes_refuse_what_does_not_belong() -> None:
    raw = torch.zeros(6, dtype=torch.uint8)
    with pytest.raises(ValueError, match="3 planes"):
        planes.split_planes(raw, 3)
    with pytest.raises(ValueError, match="flat uint8"):
        planes.split_planes(raw.float(), 2)
    with pytest.raises(ValueError, match="do not belong"):
        planes.join_planes(raw[:1], raw[:3])
    with pytest.raises(ValueError, match="no planes"):
        planes.join_planes()
