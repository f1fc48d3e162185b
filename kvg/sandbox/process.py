"""One call: start it, watch it, end it. Nothing of it is left when ``run`` returns."""

from __future__ import annotations

import os
import select
import selectors
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from kvg.errors import GateFailed, UsageError
from kvg.frozen import frozen
from kvg.objects.statement import NO_SANDBOX
from kvg.sandbox.enclosure import HINT, Enclosure, environment, python_program
from kvg.sandbox.limits import Limits
from kvg.sandbox.outcome import Outcome, limit_met
from kvg.sandbox.syscalls import system_call_filter

if TYPE_CHECKING:
    from kvg.sandbox.keeper import Keeper

LOOK_S: Final = 0.02
"""How often the processes of a call are looked at."""

END_S: Final = 5.0
"""How long the end of what is killed is waited for. Each process holds a pipe until it ends."""

Reply: TypeAlias = Callable[[bytes], bytes | None]
"""What is written last, given all that was printed until now; None while that does not tell."""

NOT_RUN: Final = (126, 127)
"""How a call ends whose program can't be run."""

_NOT_EXECUTED: Final = b"prlimit: failed to execute "
_PRLIMIT: Final = "/usr/bin/prlimit"
_TRUE: Final = "/usr/bin/true"
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_CHUNK_BYTES: Final = 1 << 16
_FILE_BYTES: Final = 1 << 11
"""What the kernel keeps of a file, and some."""


@frozen
class Job:
    """What to run: a command, in a folder that holds ``files`` (plain names), with ``stdin``.

    ``readable`` are paths of the host that it may read; ``hidden`` it may not, whatever it may.
    ``fds`` are open files that it gets, by the same numbers. ``is_init`` asks for no other
    process of its user inside; it then has to wait for what loses its parent.
    """

    argv: tuple[str, ...]
    files: Mapping[str, bytes] = field(default_factory=dict)
    stdin: bytes = b""
    readable: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    limits: Limits = field(default_factory=Limits)
    fds: tuple[int, ...] = ()
    is_init: bool = False

    def __post_init__(self) -> None:
        for name in self.files:
            if name in ("", ".", "..") or "/" in name or "\0" in name:
                raise UsageError(f"file {name!r}: not a plain name")


def run(job: Job, enclosure: Enclosure) -> Outcome:
    """Run ``job`` in a fresh ``enclosure`` and wait for its end, or end it at a limit.

    Raises ``GateFailed`` when the enclosure itself can't be set up.
    """
    return start(job, enclosure).finish(job.stdin)


def start(job: Job, enclosure: Enclosure) -> Started:
    """Start ``job``, which waits for its standard input. ``finish`` or ``end`` has to follow."""
    stack = ExitStack()
    keeper = None
    try:
        if enclosure.program is None:
            from kvg.sandbox.keeper import Keeper

            keeper = stack.enter_context(Keeper())
            argv, fds = keeper.argv([_PRLIMIT, *_limits(job), *job.argv], job.fds), keeper.fds
        else:
            argv, fds = stack.enter_context(_enclosed(job, enclosure))
        ended, held = os.pipe()
        stack.callback(os.close, ended)
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(*fds, *job.fds, held),
                cwd="/",
                env=environment(),
                start_new_session=True,
            )
        finally:
            os.close(held)
    except BaseException:
        stack.close()
        raise
    started = Started(job, enclosure, process, ended, stack, keeper)
    if keeper is not None:
        try:
            keeper.begin(job.files)
        except BaseException:
            started.end()
            raise
    return started


class Started:
    """A call that has begun, in an enclosure that is its own, and is used once."""

    def __init__(
        self,
        job: Job,
        enclosure: Enclosure,
        process: subprocess.Popen[bytes],
        ended: int,
        stack: ExitStack,
        keeper: Keeper | None = None,
    ) -> None:
        self._job = job
        self._enclosure = enclosure
        self._watch = _Watch(process, job.limits, enclosure, keeper)
        self._process = process
        self._ended = ended
        self._stack = stack

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def finish(self, stdin: bytes, reply: Reply | None = None) -> Outcome:
        """Give it ``stdin``, and the ``reply`` to what it prints; wait for its end. Limits on time
        count from here.

        Raises ``GateFailed`` when the enclosure can't be set up, or its program not be run in it.
        """
        with self._stack:
            outcome = self._watch.wait(stdin, reply)
            wait_readable(self._ended, END_S)
        if self._is_unenclosed(outcome):
            said = outcome.stderr.decode("utf-8", "replace").strip().splitlines()[0]
            raise GateFailed(f"no sandbox: {said}", hint=HINT)
        if outcome.status in NOT_RUN and outcome.stderr.startswith(_NOT_EXECUTED):
            raise not_run(self._job.argv[0], outcome)
        return outcome

    def _is_unenclosed(self, outcome: Outcome) -> bool:
        """Whether what ended is the enclosure that could not be set up. What runs in one may say so
        as well: then nothing at all can be run in another."""
        if outcome.status != 1 or not outcome.stderr.startswith(b"bwrap: "):
            return False
        if self._enclosure.program is None:
            return False
        with _enclosed(Job((_TRUE,)), self._enclosure) as (argv, fds):
            told = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=fds,
                cwd="/",
                env=environment(),
                check=False,
            )
        return told.returncode != 0

    def stop(self) -> None:
        """End it while another thread is in ``finish``, which then returns."""
        self._watch.stop()

    def end(self) -> None:
        """End it unused."""
        with self._stack:
            self._watch.kill()
            self._watch.status()
            wait_readable(self._ended, END_S)


@contextmanager
def _enclosed(job: Job, enclosure: Enclosure) -> Iterator[tuple[tuple[str, ...], tuple[int, ...]]]:
    with ExitStack() as stack:
        fds = {
            name: stack.enter_context(_memory_file(name, data)) for name, data in job.files.items()
        }
        argv = [
            *enclosure.argv(
                readable=job.readable,
                hidden=job.hidden,
                tmp_bytes=job.limits.file_bytes,
                is_init=job.is_init,
            )
        ]
        for name, fd in fds.items():
            argv += ["--perms", "0555", "--ro-bind-data", str(fd), f"/tmp/{name}"]
        filter_fd = stack.enter_context(_memory_file("filter", system_call_filter()))
        argv += ["--seccomp", str(filter_fd)]
        argv += ["--chdir", "/tmp", "--remount-ro", "/", "--", *enclosure.inner_argv()]
        yield (*argv, _PRLIMIT, *_limits(job), *job.argv), (*fds.values(), filter_fd)


def _limits(job: Job) -> tuple[str, ...]:
    return job.limits.argv(beyond=max(job.fds, default=-1) + 1)


@contextmanager
def _memory_file(name: str, data: bytes) -> Iterator[int]:
    fd = os.memfd_create(name[:200], os.MFD_CLOEXEC)
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(data)
        os.lseek(fd, 0, os.SEEK_SET)
        yield fd
    finally:
        os.close(fd)


class _Watch:
    """Reads what a process prints, looks at what it uses, and kills all of it at a limit."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        limits: Limits,
        enclosure: Enclosure,
        keeper: Keeper | None,
    ) -> None:
        self._process = process
        self._keeper = keeper
        self._limits = limits
        self._enclosure = enclosure
        self._began = time.monotonic()
        self._unwritten = memoryview(b"")
        self._reply: Reply | None = None
        self._kept: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}

    def wait(self, stdin: bytes, reply: Reply | None = None) -> Outcome:
        self._began = time.monotonic()
        self._unwritten, self._reply = memoryview(stdin), reply
        stopped = None
        try:
            stopped = self._read()
        finally:
            self.kill()
        status = self.status()
        stdout, stderr = (bytes(self._kept[name]) for name in ("stdout", "stderr"))
        return Outcome(
            status,
            stdout,
            stderr,
            stopped or limit_met(status, stderr),
            time.monotonic() - self._began,
            self._enclosure.name,
        )

    def _read(self) -> str | None:
        """Read to the end of both streams; the name of the limit when one was met before."""
        with selectors.DefaultSelector() as selector:
            for name, stream in (
                ("stdout", self._process.stdout),
                ("stderr", self._process.stderr),
            ):
                if stream is not None:
                    selector.register(stream.fileno(), selectors.EVENT_READ, name)
            if self._process.stdin is not None:
                os.set_blocking(self._process.stdin.fileno(), False)
            self._offer(selector)
            looked = self._began
            while selector.get_map():
                for key, _ in selector.select(LOOK_S):
                    is_open = self._give() if key.data == "stdin" else self._take(key.fd, key.data)
                    if not is_open:
                        selector.unregister(key.fd)
                    if key.data == "stdout":
                        self._answer(selector, is_last=not is_open)
                    if key.data == "stdin" and not is_open and self._reply is None:
                        self._close_stdin()
                now = time.monotonic()
                if sum(map(len, self._kept.values())) >= self._limits.output_bytes:
                    return "output"
                if now - self._began > self._limits.wall_s:
                    return "time"
                if now - looked >= LOOK_S:
                    looked = now
                    over = self._over()
                    if over is not None:
                        return over
        return self._wait_end()

    def _wait_end(self) -> str | None:
        """Wait for a process that has closed its streams."""
        left = self._limits.wall_s - (time.monotonic() - self._began)
        try:
            self._process.wait(max(left, LOOK_S))
        except subprocess.TimeoutExpired:
            return "time"
        return None

    def _offer(self, selector: selectors.BaseSelector) -> None:
        """Have what is unwritten written as it can be taken."""
        stdin = self._process.stdin
        if stdin is not None and not stdin.closed and stdin.fileno() not in selector.get_map():
            selector.register(stdin.fileno(), selectors.EVENT_WRITE, "stdin")

    def _answer(self, selector: selectors.BaseSelector, *, is_last: bool) -> None:
        """Have the reply to what was printed written, once there is one; it is the last word."""
        if self._reply is None:
            return
        said = self._reply(bytes(self._kept["stdout"]))
        if said is None and not is_last:
            return
        self._reply = None
        self._unwritten = memoryview(bytes(self._unwritten) + (said or b""))
        self._offer(selector)

    def _give(self) -> bool:
        """Write what can be written now; False when all is, or nobody reads it."""
        if not self._unwritten or self._process.stdin is None:
            return False
        try:
            n = os.write(self._process.stdin.fileno(), self._unwritten[:_CHUNK_BYTES])
        except BlockingIOError:
            return True
        except BrokenPipeError:
            return False
        self._unwritten = self._unwritten[n:]
        return bool(self._unwritten)

    def _close_stdin(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()

    def _take(self, stream: int, name: str) -> bool:
        """Keep what can be read now, up to the limit; False at the end."""
        data = os.read(stream, _CHUNK_BYTES)
        room = self._limits.output_bytes - sum(map(len, self._kept.values()))
        self._kept[name] += data[: max(room, 0)]
        return bool(data)

    def _over(self) -> str | None:
        n_processes, memory_bytes = _usage(self._process.pid, self._enclosure)
        if memory_bytes > self._limits.memory_bytes:
            return "memory"
        return "processes" if n_processes > self._limits.processes else None

    def stop(self) -> None:
        """End every process of the call. The enclosure's end is the end of all inside it, once it
        stands; before, what builds it is still in the group of who started it. Once that was waited
        for its number is another's. Without an enclosure the keeper ends what it keeps.
        """
        if self._keeper is not None:
            return self._keeper.end()
        if self._process.returncode is not None:
            return
        try:
            os.killpg(self._process.pid, 9)
        except ProcessLookupError:
            pass

    def status(self) -> int:
        """How it ended, once it has; a keeper that was kept from its work is ended, too."""
        try:
            return self._process.wait(None if self._keeper is None else END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def kill(self) -> None:
        """End the call, and close its streams."""
        self.stop()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()


def _usage(pid: int, enclosure: Enclosure) -> tuple[int, int]:
    """How many processes there are under ``pid``, itself not counted, and their memory, with what
    the files take that they made, empty ones too."""
    n_processes, memory_bytes, n_files = 0, 0, 0
    waiting = [str(pid)]
    while waiting:
        parent = waiting.pop()
        children = list(_children(parent))
        n_processes += len(children)
        memory_bytes += sum(_resident(child) for child in children)
        if enclosure.program is not None:
            n_files = max(n_files, *map(_n_files, children), 0)
        waiting += children
    return n_processes, memory_bytes + n_files * _FILE_BYTES


def _n_files(pid: str) -> int:
    """The files in the folders that are the enclosure's own, as a process in it sees them."""
    found = 0
    for folder in ("/tmp", "/dev/shm"):
        try:
            if os.stat(f"/proc/{pid}/root{folder}").st_dev != os.stat(folder).st_dev:
                told = os.statvfs(f"/proc/{pid}/root{folder}")
                found += told.f_files - told.f_ffree
        except OSError:  # it has ended, or has not stepped inside yet
            continue
    return found


def _children(pid: str) -> Iterator[str]:
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
                yield from file.read().split()
    except OSError:
        return


def _resident(pid: str) -> int:
    """Memory in use. Pages that several processes share count for each."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0


def not_run(program: str, outcome: Outcome) -> GateFailed:
    """That ``program`` was not run at all, which is no verdict on what it was to judge."""
    where = "" if outcome.enclosure == NO_SANDBOX else " in the sandbox"
    return GateFailed(
        f"{program}: can't be run{where}: {outcome.reason.rpartition(': ')[2]}",
        hint="inside there are the system's programs and this Python, and what the gate is given",
    )


def python_argv(script: str, *arguments: str) -> tuple[str, ...]:
    """This Python on a script, without the user's own packages and settings."""
    return (python_program(), "-I", "-B", script, *arguments)


def bare_python_argv(script: str) -> tuple[str, ...]:
    """This Python with its standard library and nothing else: it starts sooner."""
    return (python_program(), "-I", "-S", "-B", script)


def wait_readable(fd: int, seconds: float) -> None:
    """Wait until ``fd`` can be read, or for ``seconds``; any number of files may be open."""
    with selectors.DefaultSelector() as selector:
        selector.register(fd, selectors.EVENT_READ)
        selector.select(seconds)


def has_data(fd: int, seconds: float) -> bool:
    """Wait until a pipe can be read; False when it has ended with nothing in it, or after
    ``seconds``."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return any(event & select.POLLIN for _, event in poll.poll(1000 * seconds))
