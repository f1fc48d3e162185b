"""What holds a call that has no enclosure, so that nothing of it is left.

A small process of kvg's own stands between kvg and the call. It makes itself the parent of whatever
the call starts, in whichever group or session. When the call ends, or kvg does, however that ends,
it kills all of it and removes the folder. A program that has no enclosure can kill this process,
as it can do anything that its user can; then the program itself ends, not what it has started.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from kvg import durable
from kvg.sandbox.ending import BELOW

# It waits for a byte before it starts the call, and takes the end of that pipe for the end of kvg.
_PROGRAM: Final = (
    BELOW
    + r"""
import ctypes, os, select, signal, sys, time
control, folder, theirs, *argv = sys.argv[1:]
control = int(control)
os.set_inheritable(control, False)
prctl, SUBREAPER, DEATH_SIGNAL = ctypes.CDLL(None).prctl, 36, 1
prctl(SUBREAPER, 1, 0, 0, 0)
def remove(path):
    try:
        os.chmod(path, 0o700)
        for entry in list(os.scandir(path)):
            (remove if entry.is_dir(follow_symlinks=False) else os.unlink)(entry.path)
        os.rmdir(path)
    except OSError:
        pass
def reap():
    found = {}
    try:
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            found[ended[0]] = ended[1]
    except ChildProcessError:
        found[0] = 0
    return found
def end():
    ends = time.monotonic() + 4
    while 0 not in reap() and time.monotonic() < ends:
        kill_below()
        time.sleep(0.001)
def run():
    awake, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    call = os.fork()
    if call == 0:
        try:
            prctl(DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
            for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores, and hands on
                signal.signal(number, signal.SIG_DFL)
            os.setsid()
            os.chdir(folder)
            os.execv(argv[0], argv)
        except OSError as error:
            os.write(2, f'{argv[0]}: {error.strerror}\n'.encode())
        os._exit(127)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    for fd in filter(None, theirs.split(',')):
        os.close(int(fd))
    poll = select.poll()
    poll.register(control)
    poll.register(awake, select.POLLIN)
    while True:
        ready = dict(poll.poll())
        if awake in ready:
            os.read(awake, 4096)
            status = reap().get(call)
            if status is not None:
                return os.waitstatus_to_exitcode(status)
        if control in ready:
            return -signal.SIGKILL
sys.setrecursionlimit(10000)
status = run() if os.read(control, 1) else 0
end()
remove(folder)
os._exit(128 - status if status < 0 else status)
"""
)


class Keeper:
    """Of one call. ``begin`` comes after its process was started by ``argv``; ``end``, at the
    latest when this process ends, is the end of the call and of all that it left."""

    def __init__(self) -> None:
        import tempfile

        self._folder = Path(tempfile.gettempdir(), f"kvg-{os.urandom(8).hex()}")
        self._reads, writes = os.pipe()
        self._control = open(writes, "wb", buffering=0)  # noqa: SIM115  closed by ``end``

    def __enter__(self) -> Keeper:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        os.close(self._reads)

    @property
    def fds(self) -> tuple[int, ...]:
        """What the process gets, by the same number."""
        return (self._reads,)

    def argv(self, call: Sequence[str], fds: Sequence[int]) -> tuple[str, ...]:
        """The command of the process; ``call`` is run with the open files ``fds``."""
        given = ",".join(map(str, fds))
        program = (sys.executable, "-I", "-S", "-B", "-c", _PROGRAM)
        return (*program, str(self._reads), str(self._folder), given, *call)

    def begin(self, files: Mapping[str, bytes]) -> None:
        """Start the call, in a folder of its own that holds ``files``."""
        with durable.translated(self._folder):
            self._folder.mkdir(mode=0o700)
            for name, data in files.items():
                (self._folder / name).write_bytes(data)
        try:
            self._control.write(b"\n")
        except BrokenPipeError:
            pass  # it has ended, and its status tells why

    def end(self) -> None:
        """End the call; again is harmless, from any thread."""
        self._control.close()
