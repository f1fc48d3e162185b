"""The answer as a program, apart from what checks it.

A checker that imports ``answer`` gets a stand-in. What it asks of it is computed in a second
enclosure that holds the answer and nothing else: neither the checks nor the key in them can be
read there, and nothing that the answer does reaches the checks but the values that it returns.
Functions are called in a fresh fork each; arguments and results are numbers, strings, bytes,
booleans, None, and lists, tuples, sets and dictionaries of them.
"""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Final

from kvg.gates.forks import NO_ROOM, SERVE, TOO_LARGE, XCPU, framed
from kvg.sandbox import Enclosure, Job, Outcome, Started, start
from kvg.sandbox.enclosure import python_folders
from kvg.sandbox.process import END_S, LOOK_S, bare_python_argv, has_data

MODULE: Final = "answer.py"
_PLAIN: Final = r"""
def __plain(value):
    kind = type(value)
    if kind in (list, tuple, set, frozenset):
        return kind(map(__plain, value))
    if kind is dict:
        return {__plain(key): __plain(item) for key, item in value.items()}
    if kind is float and value - value != 0:
        raise ValueError('a float that is not finite is not handed over')
    if kind not in (int, float, str, bytes, bool, type(None)):
        raise TypeError('a value of type ' + kind.__name__ + ' is not handed over')
    return value
def __line(value):
    return ascii(__plain(value)).encode()
"""
# All names in it begin with two underscores: none of the answer's own is asked for that does.
_STAND_IN: Final = (
    _PLAIN
    + r"""
import ast as __ast, builtins as __builtin
__there, __said = open(%d, 'wb', 0), open(%d, 'rb')
def __ask(*request):
    data = __line(request)
    data = b'%%16d' %% len(data) + data
    try:
        while data:
            data = data[__there.write(data):]
    except BrokenPipeError:
        pass
    kind, *rest = __heard(__said.readline().split())
    if kind == 'value':
        return rest[0]
    if kind == 'function':
        return lambda *args, **named: __ask('call', request[1], args, named)
    if kind == 'ended':
        raise RuntimeError('the answer ended before it gave a value')
    error = getattr(__builtin, rest[0], None)
    is_error = isinstance(error, type) and issubclass(error, Exception)
    raise (error if is_error and error is not StopIteration else RuntimeError)(rest[1])
def __heard(head):
    if not head:
        return 'ended',
    status, size = map(int, head)
    data = __said.read(size)
    if len(data) < size:
        return 'ended',
    if data and status == 0:
        return __plain(__ast.literal_eval(data.decode()))
    ways = {%d: 'cpu', %d: 'files'}
    way = f'is over the limit on {ways[status]}' if status in ways else f'ended with {status}'
    way = 'gives more than is handed over' if status == %d else way
    return 'error', 'RuntimeError', 'the answer ' + way
def __getattr__(name):
    if name.startswith('__'):
        raise AttributeError(name)
    return __ask('get', name)
"""
)
_HARNESS: Final = (
    SERVE
    + _PLAIN
    + r"""
# What is read here are literals of kvg's own and of the checks; the answer, which is not trusted,
# is on this side, where it can run what it likes anyway.
asks, gives, source = eval(read(0, int(read(0, 16))), {'__builtins__': {}})
def answer(request):
    scope = {'__name__': 'answer'}
    exec(compile(source, 'answer.py', 'exec'), scope)
    kind, name, *rest = request
    if name not in scope:
        raise AttributeError("the answer has no " + name)
    if kind == 'call':
        return 'value', scope[name](*rest[0], **rest[1])
    return ('function',) if callable(scope[name]) else ('value', scope[name])
def told(data):
    try:
        return __line(answer(eval(data, {'__builtins__': {}})))
    except BaseException as error:
        return __line(('error', type(error).__name__, str(error)[:300]))
serve(asks, gives, b'', told, 8 << 20)
posix._exit(0)
"""
)


class Apart:
    """The second enclosure: it is started when the checker first asks, and ended with it."""

    def __init__(self, enclosure: Enclosure, job: Job, answer: bytes) -> None:
        self._enclosure, self._job, self._answer = enclosure, job, answer
        self._asks, asked = os.pipe()
        given, self._gives = os.pipe()
        self._open = {self._asks, self._gives, asked, given}
        self.fds = (asked, given)
        """The ends for the checker; they have the same numbers there."""
        self._started: Started | None = None
        self._pool = ThreadPoolExecutor(1)
        self._served: Future[Outcome | None] | None = None

    def stand_in(self) -> bytes:
        """The module ``answer`` that the checker finds."""
        return (_STAND_IN % (*self.fds, XCPU, NO_ROOM, TOO_LARGE)).encode()

    def begin(self) -> None:
        """The checker is started and holds its ends: wait for what it asks."""
        self._close(*self.fds)
        self._served = self._pool.submit(self._serve)

    def end(self) -> Outcome | None:
        """How it ended, None when the checker never asked. Raises what its start raised."""
        self._close(*self.fds)
        try:
            while self._served is not None and not self._served.done():
                if self._started is not None:
                    self._started.stop()
                wait([self._served], LOOK_S)
            return None if self._served is None else self._served.result()
        finally:
            self._pool.shutdown()
            self._close(*self._open)

    def _serve(self) -> Outcome | None:
        if not has_data(self._asks, self._job.limits.wall_s + END_S):
            return None
        fds = self._asks, self._gives
        job = Job(
            bare_python_argv("main.py"),
            files={"main.py": _HARNESS.encode()},
            readable=python_folders(),
            hidden=self._job.hidden,
            limits=self._job.limits,
            fds=fds,
            is_init=True,
        )
        self._started = start(job, self._enclosure)
        self._close(*fds)  # so that the checker waits for no answer that can't come
        return self._started.finish(framed((*fds, self._answer)))

    def _close(self, *fds: int) -> None:
        for fd in fds:
            if fd in self._open:
                self._open.discard(fd)
                os.close(fd)
