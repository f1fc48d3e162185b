"""Source for programs of kvg's own that end what an untrusted one has started."""

from __future__ import annotations

from typing import Final

# ``posix`` is built into Python; ``os`` would have to be loaded.
BELOW: Final = r"""
import posix
def below(pid):
    try:
        with open(f'/proc/{pid}/task/{pid}/children') as file:
            children = file.read().split()
    except OSError:
        children = []
    for child in children:
        yield int(child)
        yield from below(child)
def kill_below():
    for pid in list(below(posix.getpid())):
        try:
            posix.kill(pid, 9)
        except OSError:
            pass
"""
"""``kill_below`` kills all that descends from this process, but not what it starts meanwhile."""
