"""What is asked of the kernel inside an enclosure: a filter that bubblewrap installs.

It takes away what holds memory that belongs to no process, and so counts towards no limit (memory
files, System V segments and queues, POSIX queues, keyrings, file systems of one's own), what would
outlive a call there, and doors into the kernel that no checker needs. Each says that this kernel
lacks it, so that programs which know another way take that.

A classic BPF program over ``struct seccomp_data``: seccomp(2); the words are of linux/filter.h.
"""

from __future__ import annotations

import os
import struct
from typing import Final

from kvg.errors import GateFailed
from kvg.frozen import frozen

_LOAD: Final = 0x20
"""BPF_LD | BPF_W | BPF_ABS: the word at an offset of the call."""
_EQUAL: Final = 0x15
_AT_LEAST: Final = 0x35
_ANY_BIT: Final = 0x45
_RETURN: Final = 0x06

_NUMBER_AT, _MACHINE_AT, _FIRST_ARGUMENT_AT = 0, 4, 16
_ALLOW: Final = 0x7FFF0000
_LACKS_IT: Final = 0x00050000 | 38
"""SECCOMP_RET_ERRNO with ENOSYS."""

_NEW_USER: Final = 0x10000000
"""CLONE_NEWUSER: with a namespace of its own a process may mount what it likes."""

_REFUSED: Final = {
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "unshare": (272, 97),
    "setns": (308, 268),
    # Its flags lie behind a pointer, which a filter can't follow; without it ``clone`` is used.
    "clone3": (435, 435),
    "mount": (165, 40),
    "pivot_root": (155, 41),
    "fsopen": (430, 430),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "mount_setattr": (442, 442),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
}
"""The numbers of each call: of x86-64, and of those that use the kernel's common table."""


@frozen
class _Machine:
    """What a filter has to know of a processor. Calls from ``foreign`` on are another's."""

    audit_arch: int
    column: int
    clone: int
    foreign: int


_MACHINES: Final = {
    "x86_64": _Machine(0xC000003E, 0, 56, 0x40000000),
    "aarch64": _Machine(0xC00000B7, 1, 220, 0x40000000),
    "riscv64": _Machine(0xC00000F3, 1, 220, 0x40000000),
}


def system_call_filter(machine: str | None = None) -> bytes:
    """The filter's program, for this machine. Raises ``GateFailed`` for one that is not known."""
    name = os.uname().machine if machine is None else machine
    known = _MACHINES.get(name)
    if known is None:
        raise GateFailed(
            f"no sandbox: the system calls of {name} are not known",
            hint=f"known are {', '.join(_MACHINES)}; or --no-sandbox, which is attested",
        )
    refused = sorted(numbers[known.column] for numbers in _REFUSED.values())
    # Each step tells how many it passes over where the answer is yes, and where it is no.
    past_calls = len(refused) + 3
    steps = [
        (_LOAD, 0, 0, _MACHINE_AT),
        (_EQUAL, 0, past_calls + 3, known.audit_arch),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_AT_LEAST, past_calls + 1, 0, known.foreign),
        *((_EQUAL, past_calls - n, 0, number) for n, number in enumerate(refused)),
        (_EQUAL, 0, 2, known.clone),
        (_LOAD, 0, 0, _FIRST_ARGUMENT_AT),
        (_ANY_BIT, 1, 0, _NEW_USER),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _LACKS_IT),
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)
