"""Telling what is under way from what was killed, by no clock but one's own.

A push renews its mark on the remote every ``BEAT_S``, and so does a removal. Who wants to clean
there watches the marks: one that changes, or goes, is of one that is alive; one that stays the same
for ``WATCH_S`` is of one that was killed, or that is cut off, and is taken away. Who comes back
after that finds its mark gone, a push before it moves a pointer, a removal before it removes, and
gives way.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from kvg.errors import Conflict, KvgError

if TYPE_CHECKING:
    from kvg.digest import Digest
    from kvg.remote import Remote
    from kvg.remote.file_remote import FileRemote
    from kvg.report import Report

BEAT_S = 15.0
WATCH_S = 180.0
LOOKS = 12
"""How often the marks are looked at meanwhile."""

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""It goes on while the machine sleeps."""


@contextmanager
def announced(remote: Remote, origin: str) -> Iterator[None]:
    """What is relied on there is not removed meanwhile. Raises ``Conflict``."""
    remote.announce(origin)
    try:
        with _beating(lambda: remote.renew(origin)):
            yield
    except BaseException:
        try:
            remote.withdraw(origin)
        except KvgError:
            pass  # the remote is away: whoever cleans there sees that the mark stays the same
        raise
    remote.withdraw(origin)


class Removal:
    """A removal under way on ``remote``, by the store of the log ``owner``."""

    def __init__(self, remote: FileRemote, owner: str) -> None:
        self._remote = remote
        self._owner = owner
        self._guard = threading.Lock()
        self._renewed = time.clock_gettime(_CLOCK)

    def remove(self, digest: Digest) -> int:
        """Remove an object for good; returns how many bytes it had.

        Raises ``Conflict`` where this removal was taken for dead: others may rely on the object.
        """
        if time.clock_gettime(_CLOCK) - self._renewed > 2 * BEAT_S:
            self.renew()
        return self._remote.remove_object(digest)

    def renew(self) -> None:
        """Show that it is alive. Raises ``Conflict``."""
        with self._guard:
            began = time.clock_gettime(_CLOCK)
            self._remote.renew_gc(self._owner)
            self._renewed = began


@contextmanager
def removing(remote: FileRemote, owner: str) -> Iterator[Removal]:
    """Nobody relies on what nothing needs there meanwhile. Raises ``Conflict``."""
    remote.begin_gc(owner)
    removal = Removal(remote, owner)
    try:
        with _beating(removal.renew):
            yield removal
    finally:
        remote.end_gc()


@contextmanager
def _beating(renew: Callable[[], None]) -> Iterator[None]:
    """Renew every ``BEAT_S``, and no more once the block has ended."""
    ended = threading.Event()
    beating = threading.Thread(target=_beat, args=(renew, ended), daemon=True)
    beating.start()
    try:
        yield
    finally:
        ended.set()
        beating.join(BEAT_S)  # one that hangs on a remote that is away is left to its time-out


def _beat(renew: Callable[[], None], ended: threading.Event) -> None:
    while not ended.wait(BEAT_S):
        try:
            renew()
        except Conflict:
            return  # who works finds it out before it relies on its mark
        except KvgError:
            continue


def end_killed(remote: FileRemote, owner: str, report: Report) -> None:
    """Take away the marks of what was killed; raises ``Conflict`` beside what lives."""
    first = _others(remote, owner)
    if not first:
        return
    report.notice(
        f"{remote.url}: {', '.join(first)[:200]} there: watching for {WATCH_S:.0f} s "
        "whether it lives"
    )
    for _ in range(LOOKS):
        time.sleep(WATCH_S / LOOKS)
        now = _others(remote, owner)
        for name, (mark, _) in first.items():
            if name in now and now[name][0] != mark:
                raise Conflict(f"{remote.url}: {name[:100]} there", hint="try again later")
        first = {name: found for name, found in first.items() if name in now}
        if not first:
            return
    for name, (mark, end) in first.items():
        end(mark)
        report.notice(f"{remote.url}: {name[:100]} no more: it was killed; its mark is gone")


def _others(remote: FileRemote, owner: str) -> Mapping[str, tuple[bytes, Callable[[bytes], None]]]:
    """What others do there by their own word: the mark of each as it is, and how to end it."""
    found: dict[str, tuple[bytes, Callable[[bytes], None]]] = {}
    for name, mark in remote.pushes(besides=owner).items():
        found[f"log {name} pushes"] = mark, partial(remote.end_push, name)
    collector = remote.collector()
    if collector is not None and remote.owner_of(collector) != owner:
        name = f"log {remote.owner_of(collector)} removes"
        found[name] = collector, remote.end_killed_gc
    return found
