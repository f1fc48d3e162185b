"""What a call brings is never compiled in: shown by what Triton would compile, without a GPU.

A script. Triton makes another binary for an integer that is 1 or a multiple of 16, and for a
pointer that is no multiple of 16, unless it is told not to; the interpreter knows nothing of it.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.compiler import make_backend
from triton.runtime.jit import create_function_from_signature

import kvg_kernels.attention.triton as attention
import kvg_kernels.bmm.triton as bmm
import kvg_kernels.linear.triton as linear
import kvg_kernels.pages.triton as pages
import kvg_kernels.planes.triton as planes
import kvg_kernels.softmax.triton as softmax
from tests.kernels_triton.breaking import broken

BROUGHT: dict[str, tuple[ModuleType, tuple[str, ...]]] = {
    "linear_kernel": (linear, ("n_rows",)),
    "bmm_kernel": (bmm, ("n_rows", "bias_item", "bias_row", "bias_column")),
    "attention_kernel": (attention, ("n_tokens", "n_pages", "head_pages")),
    "softmax_kernel": (softmax, ("n_columns",)),
    "move_kernel": (pages, ("n_tokens",)),
    "planes_kernel": (planes, ("size",)),
}
"""By kernel: its module, and the integers that follow from a call and not from the model."""
COUNTS = (1, 2, 16, 17, 256)


def specialised(kernel: Any, names: tuple[str, ...]) -> list[str]:
    """Those of the arguments by whose value Triton would choose a binary."""
    bind = create_function_from_signature(
        kernel.signature, kernel.params, make_backend(GPUTarget("cuda", 90, 32))
    )
    given = {
        p.name: 1 if p.is_constexpr else torch.zeros(16) if p.name.endswith("_ptr") else 3
        for p in kernel.params
    }
    keys = {name: {str(bind(**{**given, name: n})[1]) for n in COUNTS} for name in names}
    return [name for name in names if len(keys[name]) > 1]


def faults(folder: Path, name: str, module: ModuleType, counts: tuple[str, ...]) -> Iterator[str]:
    """What is compiled in, and what would be and is not seen, line by line."""
    found = specialised(getattr(module, name), counts)
    yield from (f"{name}: {count} is compiled in" for count in found)
    for count in (count for count in counts if count not in found):
        mutant = broken(folder, module, f"{name}_{count}", (f'"{count}"', '"no_such_argument"'))
        if count not in specialised(getattr(mutant, name), counts):
            yield f"{name}: {count} is not seen to be compiled in"


def main() -> int:
    """The program: 1, and what is wrong, when a count is compiled in or a mutant is not seen."""
    with tempfile.TemporaryDirectory() as folder:
        wrong = [
            fault
            for name, (module, counts) in BROUGHT.items()
            for fault in faults(Path(folder), name, module, counts)
        ]
    for fault in wrong:
        print(fault)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
