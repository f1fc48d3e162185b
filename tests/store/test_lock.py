from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kvg.errors import Conflict, KvgError
from kvg.locking import Lock, holder

HOLD = """
import sys, time
from pathlib import Path
from kvg.locking import Lock
lock = Lock(Path(sys.argv[1]))
with getattr(lock, sys.argv[2])():
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held_elsewhere(path: Path, mode: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, os.fspath(path), mode],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


def test_the_holder_is_named_on_one_line(tmp_path: Path) -> None:
    """Its arguments are another's words: here a program of several lines."""
    path = tmp_path / "lock"
    with (
        held_elsewhere(path, "exclusive"),
        pytest.raises(Conflict, match="locked by process") as refused,
        Lock(path, wait_s=0).exclusive(),
    ):
        pass
    assert refused.value.message.isprintable() and "import sys" in refused.value.message
    path.write_text("process 1 on host (\x1b[31mred\n)\n")
    with open(path, "rb") as file:
        assert holder(file.fileno()) == "process 1 on host ( [31mred )"


def test_field_s13_the_wait_is_bounded_and_the_holder_named(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with held_elsewhere(path, "exclusive") as process:
        lock = Lock(path, wait_s=0.05)
        for mode in (lock.exclusive, lock.shared):
            with pytest.raises(Conflict, match=f"process {process.pid}") as error, mode():
                pass
            assert "--lock-wait" in (error.value.hint or "")


def test_field_s12_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with held_elsewhere(path, "exclusive") as process:
        process.kill()
        process.wait()
        with Lock(path, wait_s=5).exclusive():
            pass


def test_sharers_share_and_keep_out_the_exclusive(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with held_elsewhere(path, "shared") as process:
        lock = Lock(path, wait_s=0.05)
        with lock.shared():
            pass
        with pytest.raises(Conflict, match=str(process.pid)), lock.exclusive():
            pass


def test_a_file_system_that_is_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who only reads takes the lock all the same, on a file that is there."""
    with Lock(tmp_path / "lock").exclusive():
        pass
    real = os.open

    def read_only(path: str, flags: int, *rest: int, **more: int) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR):
            raise OSError(errno.EROFS, "Read-only file system")
        return real(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", read_only)
    with Lock(tmp_path / "lock").exclusive():
        pass
    with pytest.raises(KvgError, match="no such file"), Lock(tmp_path / "none").exclusive():
        pass


def test_no_wait_at_all(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = Lock(path, wait_s=0)
    with held_elsewhere(path, "exclusive"), pytest.raises(Conflict), lock.exclusive():
        pass


def test_one_who_waits_gets_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    got = threading.Event()

    def wait() -> None:
        with Lock(path).exclusive():
            got.set()

    with Lock(path).exclusive():
        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.02)
        assert not got.is_set()
    thread.join(10)
    assert got.is_set()


def test_a_holder_may_take_it_again(tmp_path: Path) -> None:
    lock = Lock(tmp_path / "lock", wait_s=0)
    with lock.exclusive(), lock.exclusive(), lock.shared():
        assert lock.is_held()
    assert not lock.is_held()
    with lock.shared(), lock.shared():
        assert not lock.is_held()


def test_a_shared_lock_does_not_grow(tmp_path: Path) -> None:
    lock = Lock(tmp_path / "lock", wait_s=0)
    refused = pytest.raises(KvgError, match="cannot become exclusive")
    with lock.shared(), refused, lock.exclusive():
        pass


def test_threads_of_one_process_exclude_one_another(tmp_path: Path) -> None:
    lock = Lock(tmp_path / "lock", wait_s=10)
    inside: list[int] = []
    worst = 0

    def work() -> None:
        nonlocal worst
        for _ in range(20):
            with lock.exclusive():
                inside.append(1)
                worst = max(worst, len(inside))
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert worst == 1


def test_an_error_inside_releases_it(tmp_path: Path) -> None:
    lock = Lock(tmp_path / "lock", wait_s=0)
    with pytest.raises(ValueError, match="inside"), lock.exclusive():
        raise ValueError("inside")
    with Lock(tmp_path / "lock", wait_s=0).exclusive():
        pass
