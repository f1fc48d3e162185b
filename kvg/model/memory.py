"""Memory for the state of slots: one mapping per slot, shared between slots until one writes.

The page table of a paged cache is here the one of the processor. A state that several slots start
from lies in an anonymous file; each slot maps it copy-on-write, so what a slot does not change is
the same physical memory, and every layer's keys still lie in one piece for the attention kernel.
"""

from __future__ import annotations

import mmap
import os
import weakref
from contextlib import suppress

import torch

from kvg.errors import NoSpace

PAGE_BYTES = mmap.PAGESIZE
_NO_RESERVE = 0x4000
"""MAP_NORESERVE of Linux, which Python's mmap does not name: untouched memory costs nothing."""


class Memory:
    """``size_bytes`` of zeros in CPU memory that are there once they are touched.

    Kind ``own``: this slot's alone. ``shared``: in an anonymous file that others may start from.
    A copy-on-write ``fork`` of a shared one sees its bytes until it writes its own.
    """

    def __init__(self, size_bytes: int, fd: int | None, mapping: mmap.mmap) -> None:
        self.size_bytes = size_bytes
        self.tensor = torch.frombuffer(mapping, dtype=torch.uint8)
        self.view = memoryview(mapping)
        self._mapping = mapping
        self._fd = fd

    @classmethod
    def own(cls, size_bytes: int) -> Memory:
        """Zeros for one slot."""
        return cls(size_bytes, None, _map(-1, size_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))

    @classmethod
    def shared(cls, size_bytes: int) -> Memory:
        """Zeros that ``fork`` can be called on. Not to be written after the first fork."""
        fd = os.memfd_create("kvg-state", os.MFD_CLOEXEC)
        try:
            os.ftruncate(fd, size_bytes)
            memory = cls(size_bytes, fd, _map(fd, size_bytes, mmap.MAP_SHARED))
        except BaseException:
            os.close(fd)
            raise
        weakref.finalize(memory, os.close, fd)
        return memory

    def expect(self) -> None:
        """Most of it is about to be written: take it in large pages where the system has them."""
        if hasattr(mmap, "MADV_HUGEPAGE"):
            with suppress(OSError):  # a wish; a kernel without them refuses it
                self._mapping.madvise(mmap.MADV_HUGEPAGE)

    @property
    def is_shared(self) -> bool:
        return self._fd is not None

    def fork(self) -> Memory:
        """The same bytes, copied page by page as they are written."""
        if self._fd is None:
            copy = Memory.own(self.size_bytes)
            copy.tensor.copy_(self.tensor)
            return copy
        return Memory(self.size_bytes, None, _map(self._fd, self.size_bytes, mmap.MAP_PRIVATE))


def _map(fd: int, size_bytes: int, flags: int) -> mmap.mmap:
    try:
        return mmap.mmap(fd, size_bytes, flags=flags | _NO_RESERVE)
    except OSError as error:
        raise NoSpace(
            f"memory: cannot map {size_bytes >> 20} MiB: {(error.strerror or str(error)).lower()}",
            hint="use a model with a smaller window, or free some memory",
        ) from None
