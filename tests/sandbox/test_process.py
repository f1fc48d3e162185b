"""Waiting for the end of a call."""

from __future__ import annotations

import os
import resource
import time
from random import Random

import pytest

from kvg.sandbox import Job, find_enclosure, start
from kvg.sandbox.enclosure import python_folders
from kvg.sandbox.process import END_S, python_argv, wait_readable


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


def test_what_is_ended_as_it_starts_leaves_nothing() -> None:
    """Also in the moment in which what builds the enclosure doesn't yet hang on who started it."""
    enclosure, chance = find_enclosure(), Random(5)
    job = Job(argv=python_argv("main.py"), files={"main.py": b"pass"}, readable=python_folders())
    for _ in range(80):
        began = start(job, enclosure)
        time.sleep(chance.random() * 0.004)
        at = time.monotonic()
        began.end()
        assert time.monotonic() - at < END_S / 2
