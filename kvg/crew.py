"""Threads that work on what is submitted; where none can be started, who submits does the work."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

NO_THREAD = "can't start new thread"
"""How Python says that the system gives no thread; it has no class of its own."""


class Crew(Executor):
    """Up to ``n`` threads, fewer where the system gives fewer, down to none.

    Each piece of work is done once, by a thread or within ``submit``. So it must not wait for what
    who submits does later.
    """

    def __init__(self, n: int, *, name: str = "") -> None:
        self._pool = ThreadPoolExecutor(n, thread_name_prefix=name)

    def submit(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Begin ``work``; it is done when this returns where no thread was free or to be had."""
        future: Future[T] = Future()
        unclaimed = threading.Lock()

        def run() -> None:
            if not unclaimed.acquire(blocking=False) or not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(work(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001  it is raised where the result is asked
                future.set_exception(error)

        try:
            self._pool.submit(run)
        except RuntimeError as error:
            if NO_THREAD not in str(error):
                raise
            run()  # unless one of the threads that there are was quicker: it is queued for them
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more work, and ``wait`` for what was begun; see ``Executor.shutdown``."""
        self._pool.shutdown(wait, cancel_futures=cancel_futures)
