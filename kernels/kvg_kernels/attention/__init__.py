"""Causal attention in query tiles fixed to absolute positions."""

from kvg_kernels.attention.cpu import MaskCache, attention, rows_per_tile
from kvg_kernels.attention.reference import attention_reference
from kvg_kernels.attention.spec import BLOCK_TOKENS, AttentionSpec

__all__ = [
    "BLOCK_TOKENS",
    "AttentionSpec",
    "MaskCache",
    "attention",
    "attention_reference",
    "rows_per_tile",
]
