"""``split_planes`` and ``join_planes`` in Triton: every byte is read and written once."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK_ELEMENTS = 1024
WARPS = 4


def split_planes(raw: torch.Tensor, planes: int) -> tuple[torch.Tensor, ...]:
    """Plane p holds raw[p], raw[p + planes], …; the planes lie one after another."""
    raw = raw.contiguous()
    out = torch.empty_like(raw)
    _move(raw, out, planes, split=True)
    return out.split([-(-(raw.numel() - plane) // planes) for plane in range(planes)])


def join_planes(*planes: torch.Tensor) -> torch.Tensor:
    """The bytes that ``split_planes`` made ``planes`` of."""
    flat = torch.cat(planes)
    out = torch.empty_like(flat)
    _move(out, flat, len(planes), split=False)
    return out


def _move(raw: torch.Tensor, flat: torch.Tensor, planes: int, *, split: bool) -> None:
    if raw.numel():
        grid = (triton.cdiv(raw.numel(), planes * BLOCK_ELEMENTS),)
        planes_kernel[grid](
            raw,
            flat,
            raw.numel(),
            PLANES=planes,
            SPLIT=split,
            BLOCK=BLOCK_ELEMENTS,
            num_warps=WARPS,
        )


@triton.jit(do_not_specialize=["size"])
def planes_kernel(
    raw_ptr, flat_ptr, size, PLANES: tl.constexpr, SPLIT: tl.constexpr, BLOCK: tl.constexpr
):
    """raw ``[size]`` and flat ``[size]``: plane after plane, the first size % PLANES longer."""
    element = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    plane = tl.arange(0, PLANES)
    in_raw = element[:, None] * PLANES + plane[None, :]
    starts = plane * (size // PLANES) + tl.minimum(plane, size % PLANES)
    in_flat = element[:, None] + starts[None, :]
    ok = in_raw < size
    if SPLIT:
        tl.store(flat_ptr + in_flat, tl.load(raw_ptr + in_raw, mask=ok), mask=ok)
    else:
        tl.store(raw_ptr + in_raw, tl.load(flat_ptr + in_flat, mask=ok), mask=ok)
