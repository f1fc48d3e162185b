"""Waiting for the end of a call."""

from __future__ import annotations

import os
import resource

import pytest

from kvg.sandbox.process import wait_readable


def test_any_number_of_files_may_be_open() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2048:
        pytest.skip("ulimit: fewer than 2048 files here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    read, write = os.pipe()
    high = os.dup2(read, 1500)
    try:
        wait_readable(high, 0.01)
        os.write(write, b"x")
        wait_readable(high, 10)
    finally:
        for fd in (read, write, high):
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
