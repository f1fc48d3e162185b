"""Passes side by side in one process: each calling thread with one compute thread of its own."""

from __future__ import annotations

from kvg_kernels.threads import OneThread, is_settable

__all__ = ["OneThread", "is_divisible"]


def is_divisible() -> bool:
    """Whether one calling thread can be given fewer compute threads than the others."""
    return is_settable()
