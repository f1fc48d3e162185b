"""``tl.dot`` in Triton's interpreter, computed so that a row's place in its tile can't matter.

The interpreter hands a tile to numpy's BLAS, which on some processors (OpenBLAS on those with AVX2
and no AVX-512) sums the last rows of a tile in another order than the ones before them. A tensor
core does not, and the kernels rest on that: the interpreter has to give it, whatever the processor.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from triton.runtime import interpreter


def rowwise_product(a: np.ndarray, b: np.ndarray, dtype: Any) -> np.ndarray:
    """``a @ b`` of ``[M, K]`` and ``[K, N]``: K in ascending order, each step rounded to dtype."""
    total = np.zeros((a.shape[0], b.shape[1]), dtype)
    term = np.empty_like(total)
    for column, row in zip(a.astype(dtype).T, b.astype(dtype), strict=True):
        np.multiply(column[:, None], row[None, :], out=term)
        np.add(total, term, out=total)
    return total


def install() -> None:
    """From here on the interpreter of this process multiplies row by row."""
    builder = interpreter.InterpreterBuilder
    builder.create_dot  # noqa: B018  (a Triton that has another name for it must not go by unseen)

    def create_dot(self: Any, a: Any, b: Any, d: Any, *_: Any) -> Any:
        product = rowwise_product(a.data, b.data, d.data.dtype)
        return interpreter.TensorHandle(product + d.data, d.dtype.scalar)

    builder.create_dot = create_dot
