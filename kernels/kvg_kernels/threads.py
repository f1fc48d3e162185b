"""One compute thread for the length of a small operator, in the calling thread alone.

``torch.set_num_threads`` holds for the whole process and drops what the libraries remember; the
OpenMP runtime that torch uses has a number for each calling thread, which costs nothing to change.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import TracebackType

import torch

_MAPS = Path("/proc/self/maps")
_RUNTIME = re.compile(r"\S*/lib(?:gomp|omp|iomp5)[-.\w]*\.so[.\w]*$", re.MULTILINE)


class OneThread:
    """A context: inside, the calling thread's operators run on it alone, if ``wanted``.

    Does nothing where torch's OpenMP runtime cannot be told from outside.
    """

    __slots__ = ("_before", "_set")

    def __init__(self, wanted: bool = True) -> None:
        self._set = _setter() if wanted else None
        self._before = 1

    def __enter__(self) -> None:
        if self._set is not None:
            self._before = torch.get_num_threads()
            self._set(1)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._set is not None:
            self._set(self._before)


def is_settable() -> bool:
    """Whether ``OneThread`` does anything here."""
    return _setter() is not None


@cache
def _setter() -> Callable[[int], object] | None:
    """``omp_set_num_threads`` of the runtime that torch itself asks; None where it is not found."""
    try:
        paths = sorted(set(_RUNTIME.findall(_MAPS.read_text(errors="replace"))))
    except OSError:
        return None
    before = torch.get_num_threads()
    for path in paths:
        try:
            function = ctypes.CDLL(path).omp_set_num_threads
        except (OSError, AttributeError):
            continue
        function.restype, function.argtypes = None, [ctypes.c_int]
        other = before + 1
        function(other)
        is_the_one = torch.get_num_threads() == other
        function(before)
        if is_the_one:
            return function
    return None
