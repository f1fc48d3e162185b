"""What torch is told for a whole process or thread, and computes otherwise by.

A session is proved under what holds when it is opened. Whoever changes that later would have other
bits of it without a word: a pass under anything else is refused.
"""

from __future__ import annotations

from typing import TypeAlias

import torch

from kvg.errors import Incompatible

Ambient: TypeAlias = "tuple[tuple[str, object], ...]"


def ambient() -> Ambient:
    """What holds now in this thread, each by the name of what sets it."""
    return (
        ("torch.set_float32_matmul_precision", torch.get_float32_matmul_precision()),
        ("torch.set_default_dtype", torch.get_default_dtype()),
        ("torch.backends.mkldnn.enabled", torch.backends.mkldnn.enabled),
        ("torch.use_deterministic_algorithms", torch.are_deterministic_algorithms_enabled()),
        ("torch.autocast", torch.is_autocast_enabled("cpu")),
    )


def check_ambient(proved: Ambient) -> None:
    """Raise ``Incompatible`` where what a session was proved under does not hold now."""
    now = ambient()
    if now == proved:
        return
    for (name, was), (_, found) in zip(proved, now, strict=True):
        if was != found:
            raise Incompatible(
                f"{name}: is {found} now, and was {was} when this session was opened",
                hint="set it back, or open a session under it",
            )


def check_no_autocast() -> None:
    """Raise ``Incompatible`` inside of ``torch.autocast``: what is computed in follows from the
    operator there, and not from the model."""
    if torch.is_autocast_enabled("cpu"):
        raise Incompatible("torch.autocast: no session is opened inside", hint="open it outside")
