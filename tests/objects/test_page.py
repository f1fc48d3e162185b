from __future__ import annotations

import ctypes
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvg.digest import hex_of, sha256
from kvg.errors import Corrupt
from kvg.objects import page
from kvg.objects.manifest import Group

DTYPES = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}


def _group(layers: tuple[int, ...], heads: int, k: int, v: int, dtype: str) -> Group:
    return Group("full", "attention", layers, heads, k, v, dtype, None)


def _encode(value: float, dtype: str) -> bytes:
    if dtype == "F16":
        return struct.pack("<e", value)
    word = struct.pack("<f", value)
    return word if dtype == "F32" else word[2:]


def _fill(group: Group, n_tokens: int) -> bytes:
    out = bytearray(page.page_header(group, n_tokens))
    for span in page.tensor_spans(group, n_tokens):
        count = span.shape[0] * span.shape[1] * span.shape[2]
        shift = span.layer + (0.5 if span.part == "v" else 0.0)
        out += b"".join(_encode(i / 8 + shift, group.dtype) for i in range(count))
    return bytes(out)


def test_vectors(vectors: dict[str, Any]) -> None:
    for vector in vectors["page"]:
        dim, n_tokens = vector["head_dim"], vector["tokens"]
        dtype = DTYPES[vector["dtype"]]
        group = _group(tuple(vector["layers"]), vector["kv_heads"], dim, dim, dtype)
        header = page.page_header(group, n_tokens)
        assert header[8:].decode() == vector["header"]
        assert int.from_bytes(header[:8], "little") == len(header) - 8
        raw = _fill(group, n_tokens)
        assert len(raw) == vector["size"] == page.page_size(group, n_tokens)
        assert hex_of(sha256(raw)) == vector["sha256"]
        page.check_page(raw, group, n_tokens, what="page")


def _serialize(spans: tuple[page.TensorSpan, ...], dtype: str) -> bytes:
    """What the safetensors library writes for zeros in ``spans``, whatever its release."""
    safetensors = pytest.importorskip("safetensors")
    name = {short: long for long, short in DTYPES.items()}[dtype]
    zeros = {span.name: ctypes.create_string_buffer(span.size) for span in spans}
    specs = {}
    for span in spans:
        if hasattr(safetensors, "TensorSpec"):
            specs[span.name] = safetensors.TensorSpec(
                dtype=name,
                shape=list(span.shape),
                data_ptr=ctypes.addressof(zeros[span.name]),
                data_len=span.size,
            )
        else:
            specs[span.name] = {
                "dtype": name,
                "shape": list(span.shape),
                "data": bytes(span.size),
            }
    return bytes(safetensors.serialize(specs))


@given(
    st.sets(st.integers(0, 9999), min_size=1, max_size=12),
    st.integers(1, 4),
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(1, 300),
    st.sampled_from(["BF16", "F16", "F32"]),
)
def test_header_is_that_of_the_safetensors_library(
    layers: set[int], heads: int, k: int, v: int, n_tokens: int, dtype: str
) -> None:
    group = _group(tuple(sorted(layers)), heads, k, v, dtype)
    data = _serialize(page.tensor_spans(group, n_tokens)[::-1], dtype)
    header = page.page_header(group, n_tokens)
    assert data[: len(header)] == header
    assert len(data) == page.page_size(group, n_tokens)
    page.check_page(data, group, n_tokens, what="page")


def test_spans_cover_the_data_region_without_a_gap() -> None:
    group = _group((1, 5, 17), 2, 8, 6, "F16")
    end = 0
    for span in page.tensor_spans(group, 7):
        assert span.offset == end
        end += span.size
    assert end == page.data_size(group, 7)
    assert [span.name for span in page.tensor_spans(group, 7)][:3] == [
        "L0001.k",
        "L0001.v",
        "L0005.k",
    ]


def test_every_flip_in_the_header_is_refused() -> None:
    group = _group((0, 1), 1, 2, 2, "BF16")
    raw = _fill(group, 3)
    for index in range(page.data_start(group, 3)):
        for bit in range(8):
            wrong = bytearray(raw)
            wrong[index] ^= 1 << bit
            with pytest.raises(Corrupt, match=r"^page p: "):
                page.check_page(wrong, group, 3, what="page p")


@pytest.mark.parametrize("change", [b"", b"\0"])
def test_other_sizes_are_refused(change: bytes) -> None:
    group = _group((0,), 1, 2, 2, "F32")
    raw = _fill(group, 3)
    wrong = raw + change if change else raw[:-1]
    with pytest.raises(Corrupt, match="expected"):
        page.check_page(wrong, group, 3, what="page")


def test_a_page_of_other_tokens_is_refused() -> None:
    raw = _fill(_group((0,), 1, 2, 4, "F32"), 4)
    with pytest.raises(Corrupt, match="header"):
        page.check_page(raw, _group((0,), 1, 4, 2, "F32"), 4, what="page")
