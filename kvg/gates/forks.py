"""What makes one call after the other in an enclosure, with as little as can be between them.

``serve`` makes each call in a fork that alone learns what it is called with, through a file
without a name; the answer comes back in the same. When that process ends, all others inside are
killed, the files that they left are removed, and then the next call is read; of the kernel they
can ask nothing that stays (``kvg.sandbox.syscalls``). The memory and open files of the harness
can't be reached from a call; one that kills it, or changes its limits or its priority on
processors, ends the run. What goes on all the same: the numbers of processes, the priority of input
and output, network counters. Without an enclosure what a call has started is ended all the same,
and nothing else of this holds.
"""

from __future__ import annotations

from typing import Final

from kvg.sandbox.ending import BELOW

XCPU: Final = 24
"""How a process ends that is over its limit on processor time."""
NO_ROOM: Final = 28 << 8
"""How one ends that has left no room in ``/tmp`` for what it gives."""

SERVE: Final = (
    BELOW
    + r"""
import _ctypes, _signal
# Where there is no enclosure there are kvg and the keeper before this one; inside, at most an init
# that no kill from here reaches. So all other processes that there are are then its own to end.
IS_ALONE = posix.getpid() <= 2
FOLDERS = ('/tmp', '/dev/shm')
DUMPABLE, SUBREAPER = 4, 36
PRINTED = ((4, 0), (8, 0), (10, 0), (1031, 65536))  # fcntl: flags, owner, signal, size of the pipe
desk = memoryview(bytearray(65536))  # all of a call that passes through here, and it is wiped
blank = bytes(len(desk))
libc = _ctypes.dlopen(None, 2)
def from_libc(name, *arguments):
    return _ctypes.call_function(_ctypes.dlsym(libc, name), arguments)
def prctl(option, value):
    if from_libc('prctl', option, value, 0, 0, 0):
        raise OSError('prctl')
def read(fd, size):
    data = b''
    while len(data) < size and (part := posix.read(fd, size - len(data))):
        data += part
    return data
def write(fd, data):
    while data:
        data = data[posix.write(fd, data):]
def move(source, sink, size):
    while size:
        n = posix.readv(source, [desk[:size]])
        if n == 0:
            raise EOFError
        write(sink, desk[:n])
        desk[:n] = blank[:n]
        size -= n
def standing():
    with open('/proc/self/limits') as file:
        limits = file.read()
    return limits, posix.sched_getaffinity(0), posix.getpriority(0, 0), posix.sched_getscheduler(0)
def wait(child):
    while (ended := posix.waitpid(-1, 0))[0] != child:
        pass
    try:
        while True:
            if IS_ALONE:
                posix.kill(-1, 9)
            else:
                kill_below()
            posix.waitpid(-1, 0)
    except (ProcessLookupError, ChildProcessError):
        return ended[1]
def empty(folder):
    while found := [item for item in posix.scandir(folder) if item.path not in given]:
        for item in found:
            if not item.is_dir(follow_symlinks=False):
                posix.unlink(item.path)
                continue
            posix.chmod(item.path, 0o700)
            for inner in list(posix.scandir(item.path)):  # a level up: no path grows too long
                if inner.is_dir(follow_symlinks=False):
                    posix.chmod(inner.path, 0o700)
                posix.rename(inner.path, folder + '/' + posix.urandom(8).hex())
            posix.rmdir(item.path)
def restore(folder):
    try:  # as a user that is all there is inside a call owns the folder
        posix.chmod(folder, 0o1777)
        posix.utime(folder, (0, 0))
        for name in posix.listxattr(folder):
            posix.removexattr(folder, name)
    except OSError:
        pass
def clear():
    for folder in FOLDERS:
        restore(folder)
        empty(folder)
        restore(folder)
    for setting in PRINTED:
        from_libc('fcntl', 2, *setting)
    from_libc('flock', 2, 8)
    if standing() != stood:
        raise PermissionError('a call changed the limits of what runs it')
def shut(fd):
    try:
        posix.close(fd)
    except OSError:  # that of the listing
        pass
def run(paper, work):
    try:
        prctl(DUMPABLE, 1)
        posix.dup2(posix.open('/dev/null', posix.O_RDWR), 0)
        posix.dup2(paper, 3)
        for fd in posix.listdir('/proc/self/fd'):
            if int(fd) > 3:
                shut(int(fd))
        data = read(3, posix.fstat(3).st_size)
        posix.ftruncate(3, 0)
        posix.lseek(3, 0, 0)
        said = work(data)
        posix.lseek(3, 0, 0)
        posix.ftruncate(3, 0)
        try:
            write(3, said)
        except OSError:  # what the call left takes all the room that there is
            posix._exit(28)
        posix._exit(0)
    finally:
        posix._exit(1)
def blank_paper():
    if IS_ALONE:  # no name can be given to it, and what it holds counts as what is in the folder
        return posix.open('/tmp', posix.O_TMPFILE | posix.O_EXCL | posix.O_RDWR, 0o600)
    return posix.memfd_create('call')
def serve(asks, gives, name, work, most, agreed=b''):
    head = read(asks, 16)
    while head:
        paper = blank_paper()
        move(asks, paper, int(head[1:]))
        posix.lseek(paper, 0, 0)
        child = posix.fork()
        if child == 0:
            run(paper, work)
        status = wait(child)
        size = posix.fstat(paper).st_size
        is_met = head[:1] != b'?' or posix.pread(paper, 64, 0) == agreed
        posix.lseek(paper, 0, 0)
        if size > most:
            status, size = -1, 0
        write(gives, b'%s%d %d\n' % (name, status, size))
        move(paper, gives, size)
        posix.close(paper)
        head = is_met and read(asks, 16)
        if head and IS_ALONE:
            clear()
_signal.signal(_signal.SIGINT, _signal.SIG_DFL)
prctl(DUMPABLE, 0)
prctl(SUBREAPER, 1)
if IS_ALONE:
    given = {item.path for folder in FOLDERS for item in posix.scandir(folder)}
    stood = standing()
"""
)


TOO_LARGE: Final = -1
"""What is told in the place of an end when what a call gave is more than may be."""


def framed(call: object, *, is_condition: bool = False) -> bytes:
    """A literal as ``serve`` reads it: its length before it. After a condition that it does not
    agree to it makes no further call."""
    literal = ascii(call).encode()
    return b"%s%15d%s" % (b"?" if is_condition else b" ", len(literal), literal)
