"""Compile the kernels for GPUs that need not be there: what the interpreter can't show.

A script: every kernel becomes machine code for two generations, and must fit their shared memory.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import kvg_kernels.attention.triton as attention
import kvg_kernels.bmm.triton as bmm
import kvg_kernels.linear.triton as linear
import kvg_kernels.pages.triton as pages
import kvg_kernels.planes.triton as planes
import kvg_kernels.rms_norm.triton as rms_norm
import kvg_kernels.softmax.triton as softmax
from kvg_kernels.tiles import TILES

SHARED_BYTES = {80: 166_912, 90: 232_448}
"""Shared memory that a block may have, by compute capability."""
NAMES = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}


def compiled(
    kernel: Any,
    capability: int,
    types: dict[str, str],
    warps: int,
    stages: int = 3,
    **constants: Any,
) -> None:
    """Compile with every pointer 16-byte aligned, integers as they come; check what it needs."""
    names = kernel.arg_names
    signature = {name: types.get(name, "i32") for name in names if name not in constants}
    aligned = {
        (i,): [["tt.divisibility", 16]]
        for i, n in enumerate(names)
        if signature.get(n, "").startswith("*")
    }
    source = ASTSource(
        kernel,
        signature={**signature, **dict.fromkeys(constants, "constexpr")},
        constexprs={(names.index(name),): value for name, value in constants.items()},
        attrs=aligned,
    )
    options = {"num_warps": warps, "num_stages": stages, "enable_fp_fusion": False}
    done = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    if done.metadata.shared > SHARED_BYTES[capability]:
        sys.exit(f"{kernel.__name__}, sm_{capability}, {constants}: {done.metadata.shared} bytes")


def products(capability: int, dtype: torch.dtype) -> None:
    tile, name = TILES[dtype], f"*{NAMES[dtype]}"
    blocks = {"BLOCK_M": tile.rows, "BLOCK_N": tile.columns, "BLOCK_K": tile.depth, "WIDEN": False}
    types = dict.fromkeys(("x_ptr", "a_ptr", "b_ptr", "weight_ptr", "bias_ptr", "out_ptr"), name)
    types |= {"alpha": "fp32", "beta": "fp32"}
    compiled(
        linear.linear_kernel,
        capability,
        types,
        tile.warps,
        tile.stages,
        **blocks,
        GROUP=8,
        HAS_BIAS=True,
    )
    compiled(bmm.bmm_kernel, capability, types, tile.warps, tile.stages, **blocks, HAS_BIAS=True)


def attentions(capability: int, dtype: torch.dtype, dim: int, repeat: int) -> None:
    tile, name = attention.attention_tile(dim, dim, dtype.itemsize), f"*{NAMES[dtype]}"
    types = dict.fromkeys(("query_ptr", "keys_ptr", "values_ptr", "out_ptr"), name)
    types |= {"tables_ptr": "*i32", "starts_ptr": "*i32", "sinks_ptr": "*fp32"}
    types |= {"scale": "fp32", "softcap": "fp32"}
    members = triton.next_power_of_2(repeat)
    compiled(
        attention.attention_kernel,
        capability,
        types,
        tile.warps,
        tile.stages,
        HEADS=8 * repeat,
        REPEAT=repeat,
        K_DIM=dim,
        V_DIM=dim,
        PAGE_TOKENS=256,
        K_STRIDE=256 * 8 * 2 * dim,
        V_STRIDE=256 * 8 * 2 * dim,
        WINDOW=512,
        CAPPED=True,
        HAS_SINKS=True,
        POSITIONS=max(1, tile.rows // members),
        MEMBERS=members,
        BLOCK_KEYS=tile.keys,
        BLOCK_K=max(16, triton.next_power_of_2(dim)),
        BLOCK_V=max(16, triton.next_power_of_2(dim)),
        LOG2E=attention.LOG2_E,
        WIDEN=False,
    )


def rows_and_bytes(capability: int) -> None:
    types = {"x_ptr": "*bf16", "weight_ptr": "*bf16", "out_ptr": "*bf16", "eps": "fp32"}
    compiled(rms_norm.rms_norm_kernel, capability, types, 4, SIZE=3840, HAS_WEIGHT=True, BLOCK=4096)
    compiled(softmax.softmax_kernel, capability, types, 4, BLOCK=1024)
    types = {"page_ptr": "*i16", "slot_ptr": "*i16", "raw_ptr": "*u8", "flat_ptr": "*u8"}
    for way in (True, False):
        compiled(
            pages.move_kernel,
            capability,
            types,
            4,
            HEADS=8,
            PAGE_TOKENS=256,
            K_DIM=256,
            V_DIM=128,
            INTO_SLOT=way,
            BLOCK=1024,
        )
        compiled(planes.planes_kernel, capability, types, 4, PLANES=2, SPLIT=way, BLOCK=1024)


for generation in SHARED_BYTES:
    products(generation, torch.bfloat16)
    attentions(generation, torch.bfloat16, 256, 2)
rows_and_bytes(90)
products(90, torch.float32)
attentions(90, torch.bfloat16, 128, 4)
attentions(90, torch.bfloat16, 512, 3)
attentions(90, torch.float32, 512, 2)
