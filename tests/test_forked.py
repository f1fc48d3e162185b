"""Checks in processes of their own: the good are told, and what kills one of them is survived."""

from __future__ import annotations

import mmap
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from kvg.forked import Forked, can_fork

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="forks on Linux alone")


def good(is_good: Callable[[int], bool], n_items: int, processes: int = 2) -> frozenset[int]:
    with closing(Forked(is_good, n_items, processes=processes)) as forked:
        return forked.good()


@contextmanager
def a_cut_file(path: Path) -> Iterator[mmap.mmap]:
    """A mapping of two pages, of which the file has only one any more."""
    path.write_bytes(bytes(2 * mmap.PAGESIZE))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapping:
        file.truncate(mmap.PAGESIZE)
        yield mapping


@pytest.mark.parametrize("processes", [1, 2, 5])
def test_each_item_is_looked_at_once(tmp_path: Path, processes: int) -> None:
    seen = tmp_path / "seen"

    def is_good(item: int) -> bool:
        with seen.open("ab", buffering=0) as file:
            file.write(b"%03d\n" % item)
        return item % 3 != 0

    assert good(is_good, 200, processes) == {item for item in range(200) if item % 3}
    assert sorted(map(int, seen.read_text().split())) == list(range(200))


def test_no_items() -> None:
    assert good(lambda _: True, 0) == frozenset()


def test_a_failure_is_not_good() -> None:
    def is_good(item: int) -> bool:
        if item == 3:
            raise RuntimeError("told to nobody")
        return True

    assert good(is_good, 5, processes=1) == {0, 1, 2}
    assert good(is_good, 5) == {0, 1, 2, 4}


def test_a_file_that_is_cut_kills_the_process_that_reads_it(tmp_path: Path) -> None:
    with a_cut_file(tmp_path / "cut") as mapping:

        def is_good(item: int) -> bool:
            return item != 1 or mapping[mmap.PAGESIZE] == 0

        assert good(is_good, 4) == {0, 2, 3}


def test_a_process_that_was_begun_is_ended() -> None:
    forked = Forked(lambda _: time.sleep(60) is None, 2, processes=2)
    children = [child for child, _ in forked._children]
    began = time.monotonic()
    forked.close()
    assert time.monotonic() - began < 10
    for child in children:
        with pytest.raises(ChildProcessError):
            os.waitpid(child, os.WNOHANG)


def test_where_ends_of_processes_are_ignored() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert good(lambda item: item != 2, 9) == set(range(9)) - {2}
        forked = Forked(lambda _: time.sleep(60) is None, 2, processes=2)
        began = time.monotonic()
        forked.close()
        assert time.monotonic() - began < 10
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_where_no_process_is_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    def fork() -> int:
        raise BlockingIOError

    monkeypatch.setattr(os, "fork", fork)
    assert good(lambda _: True, 5) == frozenset()


def test_a_process_whose_parent_is_gone_ends(tmp_path: Path) -> None:
    began = tmp_path / "began"
    parent = os.fork()
    if parent == 0:
        try:
            began.touch()
            Forked(lambda _: time.sleep(0.02) is None, 10_000, processes=1)
            time.sleep(60)
        finally:
            os._exit(0)
    while not began.exists():
        time.sleep(0.01)
    time.sleep(0.1)
    (child,) = children_of(parent)
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    deadline = time.monotonic() + 10
    while is_running(child) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_running(child)


def children_of(process: int) -> list[int]:
    text = Path(f"/proc/{process}/task/{process}/children").read_text()
    return [int(word) for word in text.split()]


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_process_with_threads_is_not_copied() -> None:
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    try:
        assert not can_fork()
    finally:
        end.set()
        thread.join()
