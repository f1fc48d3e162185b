"""How a call ended."""

from __future__ import annotations

import signal
from typing import Final

from kvg.frozen import frozen

MAX_REASON_CHARS: Final = 200
_SIGNS: Final = (
    ("memory", (b"MemoryError", b"Cannot allocate memory", b"Out of memory", b"std::bad_alloc")),
    ("processes", (b"Resource temporarily unavailable", b"can't start new thread")),
    ("files", (b"No space left on device", b"File too large", b"Too many open files")),
)
_SIGNALS: Final = {signal.SIGXCPU: "cpu", signal.SIGXFSZ: "files"}


@frozen
class Outcome:
    """The exit status, what was printed (never more than the limit), and what stopped it.

    ``stopped`` names a limit: time, cpu, memory, processes, output, files; None when none was met.
    ``enclosure`` says in what it ran.
    """

    status: int
    stdout: bytes
    stderr: bytes
    stopped: str | None
    wall_s: float
    enclosure: str

    @property
    def is_done(self) -> bool:
        """Whether it ended by itself, well."""
        return self.status == 0 and self.stopped is None

    @property
    def reason(self) -> str:
        """Why it is not done, in a few words; empty when it is."""
        if self.is_done:
            return ""
        if self.stopped is not None:
            return over(self.stopped)
        lines = self.stderr.decode("utf-8", "replace").strip().splitlines()
        last = "".join(char if char.isprintable() else " " for char in lines[-1]) if lines else ""
        return last[:MAX_REASON_CHARS] or ended(self.status)


def over(limit: str) -> str:
    """The words for a limit that was met."""
    return f"over the limit on {limit}"


def ended(status: int) -> str:
    """The words for an exit status: below 0 of a signal, above 128 a shell's of one."""
    number = -status if status < 0 else status - 128
    if number not in set(signal.Signals):
        return f"exit {status}"
    name = signal.Signals(number).name
    return f"killed by {name}" if status < 0 else f"exit {status} ({name})"


def limit_met(status: int, stderr: bytes) -> str | None:
    """The limit that made a program fail, as far as its end tells; None when it tells nothing."""
    if status == 0:
        return None
    number = -status if status < 0 else status - 128
    for at, name in _SIGNALS.items():
        if number == at:
            return name
    for name, signs in _SIGNS:
        if any(sign in stderr for sign in signs):
            return name
    return None
