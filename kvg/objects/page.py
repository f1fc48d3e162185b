"""Pages: the KV state of consecutive tokens for one layer group, as one safetensors file.

The header of a page is a function of its group and its number of tokens, so a page is never
parsed: its header is compared with the one that it must have.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from kvg.digest import Buffer
from kvg.errors import Corrupt
from kvg.frozen import frozen
from kvg.objects.fields import DTYPE_SIZES as DTYPE_SIZES

if TYPE_CHECKING:
    from kvg.objects.layout import Group

_LENGTH_SIZE = 8
_ALIGNMENT = 8


@frozen
class TensorSpan:
    """Where one tensor lies in a page's data region: bytes from its start, shape in elements."""

    name: str
    layer: int
    part: Literal["k", "v"]
    offset: int
    size: int
    shape: tuple[int, int, int]


@lru_cache(maxsize=256)
def tensor_spans(group: Group, n_tokens: int) -> tuple[TensorSpan, ...]:
    """The tensors of a page, in stored order: [kv_heads, n_tokens, dim] each, contiguous."""
    spans: list[TensorSpan] = []
    offset = 0
    for layer in group.layers:
        for part, dim in _parts(group):
            shape = (group.kv_heads, n_tokens, dim)
            size = group.kv_heads * n_tokens * dim * DTYPE_SIZES[group.dtype]
            spans.append(TensorSpan(f"L{layer:04d}.{part}", layer, part, offset, size, shape))
            offset += size
    return tuple(spans)


@lru_cache(maxsize=256)
def page_header(group: Group, n_tokens: int) -> bytes:
    """The exact bytes before a page's data region, the 8-byte length included.

    Equal to what the safetensors library writes for the same tensors: ordered by name, padded
    with spaces to 8 bytes, no metadata.
    """
    tensors = {
        span.name: {
            "dtype": group.dtype,
            "shape": span.shape,
            "data_offsets": (span.offset, span.offset + span.size),
        }
        for span in tensor_spans(group, n_tokens)
    }
    text = json.dumps(tensors, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % _ALIGNMENT)
    return len(text).to_bytes(_LENGTH_SIZE, "little") + text


def data_start(group: Group, n_tokens: int) -> int:
    """The offset of a page's data region: the length of its header."""
    return len(page_header(group, n_tokens))


def data_size(group: Group, n_tokens: int) -> int:
    """The bytes of a page's data region."""
    width = (group.k_dim + group.v_dim) * DTYPE_SIZES[group.dtype]
    return len(group.layers) * group.kv_heads * n_tokens * width


def page_size(group: Group, n_tokens: int) -> int:
    """The bytes of a whole page."""
    return data_start(group, n_tokens) + data_size(group, n_tokens)


def check_page(raw: Buffer, group: Group, n_tokens: int, *, what: str) -> None:
    """Raise ``Corrupt`` naming ``what`` unless ``raw`` has this page's header and size.

    Says nothing about the values.
    """
    head = bytes(memoryview(raw)[: data_start(group, n_tokens)])
    check_page_head(head, memoryview(raw).nbytes, group, n_tokens, what=what)


def check_page_head(head: bytes, size: int, group: Group, n_tokens: int, *, what: str) -> None:
    """As ``check_page``, of the bytes before a page's data region and the size of all of it."""
    expected = page_size(group, n_tokens)
    if size != expected:
        raise Corrupt(f"{what}: {size} bytes, expected {expected}", hint="kvg fsck")
    if head != page_header(group, n_tokens):
        raise Corrupt(
            f"{what}: header is not that of {n_tokens} tokens of group {group.name}",
            hint="kvg fsck",
        )


def _parts(group: Group) -> tuple[tuple[Literal["k"], int], tuple[Literal["v"], int]]:
    return ("k", group.k_dim), ("v", group.v_dim)
