"""A call without an enclosure: it ends with who started it, however that one ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvg.sandbox import Job, Limits, no_enclosure, run, start
from kvg.sandbox.process import python_argv

LONG_S = 3600
RUNAWAY = """
import os, signal, subprocess, sys
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
if os.fork() == 0:  # out of every group, and nobody's child
    os.setsid()
    if os.fork():
        os._exit(0)
    os.closerange(0, 64)
    os.execv('/usr/bin/sleep', ['sleep', WORD])
os.makedirs('a/b')
open('a/b/left', 'w').close()
os.chmod('a', 0o500)
print('runs', flush=True)
subprocess.run(['/usr/bin/sleep', WORD])
"""
STARTER = """
import sys
from kvg.sandbox import Job, no_enclosure, run
from kvg.sandbox.process import python_argv
run(Job(python_argv('main.py'), files={'main.py': sys.argv[1].encode()}), no_enclosure())
"""


def running(word: str) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and word.encode() in (entry / "cmdline").read_bytes():
                found.append(entry.name)
        except OSError:
            continue
    return found


def until(holds: object, *, within_s: float = 20.0) -> bool:
    ends = time.monotonic() + within_s
    while time.monotonic() < ends:
        if holds():  # type: ignore[operator]
            return True
        time.sleep(0.01)
    return False


@pytest.fixture
def word() -> Iterator[str]:
    """What tells the processes of one test from all others; none of them outlives it."""
    found = f"{LONG_S}.{os.getpid()}{time.monotonic_ns() % 10**6:06}"
    yield found
    for pid in running(found):
        os.kill(int(pid), signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_it_ends_with_who_started_it(tmp_path: Path, word: str, number: int) -> None:
    code = RUNAWAY.replace("WORD", repr(word))
    root = str(Path(__file__).parents[2])
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, code],
        env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": root},
        stderr=subprocess.DEVNULL,
    )
    try:
        assert until(lambda: len(running(word)) >= 2 and any(tmp_path.rglob("left")))
        starter.send_signal(number)
        starter.wait(20)
        assert until(lambda: not running(word))
        assert until(lambda: not any(tmp_path.iterdir()))
    finally:
        starter.kill()


def test_nothing_outlives_it_and_it_leaves_nothing(
    tmp_path: Path, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code = RUNAWAY.replace("WORD", repr(word)).replace("subprocess.run", "print").encode()
    done = run(Job(python_argv("main.py"), files={"main.py": code}), no_enclosure())
    assert done.stdout.startswith(b"runs\n") and done.is_done and done.wall_s < 8
    assert running(word) == [] and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("code", "status", "stopped"),
    [
        ("raise SystemExit(7)", 7, None),
        ("import os; os.kill(os.getpid(), 15)", 128 + 15, None),
        ("import time; time.sleep(60)", None, "time"),
        ("import os\nwhile True: os.write(1, b'x' * 9999)", None, "output"),
    ],
)
def test_how_it_ended_is_told(code: str, status: int | None, stopped: str | None) -> None:
    limits = Limits(wall_s=0.5 if stopped else 20, output_bytes=1 << 16)
    job = Job(python_argv("main.py"), files={"main.py": code.encode()}, limits=limits)
    done = run(job, no_enclosure())
    assert done.stopped == stopped and status in (None, done.status)


def test_it_is_ended_unused_and_from_another_thread(
    tmp_path: Path, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code = f"import os; os.execv('/usr/bin/sleep', ['sleep', {word!r}])".encode()
    job = Job(python_argv("main.py"), files={"main.py": code})
    start(job, no_enclosure()).end()
    began = start(job, no_enclosure())
    threading.Timer(0.1, began.stop).start()
    assert began.finish(b"").wall_s < 8
    assert running(word) == [] and list(tmp_path.iterdir()) == []
