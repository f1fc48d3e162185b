"""Kept buffers lie where a file's bytes lie in their pages, and are the same from time to time."""

from __future__ import annotations

import ctypes
import mmap
import os

import pytest

from kvg.buffers import Buffers


def address(view: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(view))


@pytest.mark.parametrize("at", [0, 1, 16, 3144, 4095, 4096, 10**12 + 7])
@pytest.mark.parametrize("n_bytes", [1, 4096, 100_000])
def test_a_buffer_begins_in_its_page_where_a_file_does(at: int, n_bytes: int) -> None:
    view = Buffers().take("piece", n_bytes, at=at)
    assert view.nbytes == n_bytes and not view.readonly
    assert address(view) % mmap.PAGESIZE == at % mmap.PAGESIZE


def test_what_is_large_enough_is_kept() -> None:
    own = Buffers()
    first = address(own.take("piece", 5000))
    assert address(own.take("piece", 100)) == first
    assert address(own.take("piece", 100, at=7)) == first + 7
    assert address(own.take("other", 5000)) != first


def test_no_bytes_are_a_buffer_too() -> None:
    assert Buffers().take("piece", 0).nbytes == 0


def test_what_a_child_writes_stays_its_own() -> None:
    view = Buffers().take("piece", 1)
    view[0] = 1
    child = os.fork()
    if not child:
        view[0] = 2
        os._exit(0)
    os.waitpid(child, 0)
    assert view[0] == 1
