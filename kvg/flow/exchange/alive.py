"""Telling a push that is under way from one that was killed, by no clock but one's own.

A push renews its mark on the remote every ``BEAT_S``. Who wants to clean there watches the marks:
one that changes, or goes, is of a push that is alive; one that stays the same for ``WATCH_S`` is of
one that was killed, or that is cut off, and is taken away. A push that comes back after that finds
its mark gone, before it moves a pointer, and gives way.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kvg.errors import Conflict, KvgError

if TYPE_CHECKING:
    from kvg.remote import Remote
    from kvg.remote.file_remote import FileRemote
    from kvg.report import Report

BEAT_S = 15.0
WATCH_S = 180.0
LOOKS = 12
"""How often the marks are looked at meanwhile."""


@contextmanager
def announced(remote: Remote, origin: str) -> Iterator[None]:
    """What is relied on there is not removed meanwhile. Raises ``Conflict``."""
    remote.announce(origin)
    ended = threading.Event()
    beating = threading.Thread(target=_beat, args=(remote, origin, ended), daemon=True)
    beating.start()
    try:
        yield
    except BaseException:
        ended.set()
        try:
            remote.withdraw(origin)
        except KvgError:
            pass  # the remote is away: whoever cleans there sees that the mark stays the same
        raise
    ended.set()
    beating.join()
    remote.withdraw(origin)


def _beat(remote: Remote, origin: str, ended: threading.Event) -> None:
    while not ended.wait(BEAT_S):
        try:
            remote.renew(origin)
        except Conflict:
            return  # the push finds it out before it moves a pointer
        except KvgError:
            continue


def end_killed(remote: FileRemote, owner: str, report: Report) -> None:
    """Take away the marks of pushes that were killed; raises ``Conflict`` beside one that lives."""
    first = dict(remote.pushes(besides=owner))
    if not first:
        return
    names = ", ".join(first)
    report.notice(
        f"{remote.url}: log {names[:200]} is marked as pushing: watching for {WATCH_S:.0f} s "
        "whether it does"
    )
    for _ in range(LOOKS):
        time.sleep(WATCH_S / LOOKS)
        now = remote.pushes(besides=owner)
        for name, mark in first.items():
            if name in now and now[name] != mark:
                raise Conflict(f"{remote.url}: {name[:80]} pushes there", hint="try again later")
        first = {name: mark for name, mark in first.items() if name in now}
        if not first:
            return
    for name, mark in first.items():
        remote.end_push(name, mark)
        report.notice(f"{remote.url}: the push of log {name[:80]} was killed; its mark is gone")
