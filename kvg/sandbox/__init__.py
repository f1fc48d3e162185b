"""Running what is not trusted: one fresh enclosure per call, with limits, by bubblewrap.

What runs inside has a user of its own, no network, a read-only system, a private ``/tmp`` that is
gone afterwards, and sees no file of the host but the system's programs and what it is given. It
can't ask the kernel for what counts towards no limit (``syscalls.py``). A fault in the kernel is
not what this protects from.
"""

from kvg.sandbox.enclosure import Enclosure, find_enclosure, no_enclosure
from kvg.sandbox.limits import Limits
from kvg.sandbox.outcome import Outcome
from kvg.sandbox.process import Job, Started, run, start

__all__ = [
    "Enclosure",
    "Job",
    "Limits",
    "Outcome",
    "Started",
    "find_enclosure",
    "no_enclosure",
    "run",
    "start",
]
