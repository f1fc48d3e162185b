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
from collections.abc import Sequence
from typing import Final, TypeAlias

from kvg.errors import GateFailed
from kvg.frozen import frozen

_LOAD: Final = 0x20
"""BPF_LD | BPF_W | BPF_ABS: the word at an offset of the call."""
_EQUAL: Final = 0x15
_AT_LEAST: Final = 0x35
_ANY_BIT: Final = 0x45
_GO: Final = 0x05
_RETURN: Final = 0x06

_NUMBER_AT, _MACHINE_AT, _FIRST_ARGUMENT_AT = 0, 4, 16
_ALLOWED: Final = 0x7FFF0000
_LACKS_IT: Final = 0x00050000 | 38
"""SECCOMP_RET_ERRNO with ENOSYS."""

_NEXT, _ALLOW, _REFUSE = "next", "allow", "refuse"
_Step: TypeAlias = "tuple[int, str | int, str | int, int]"
"""A word, where to go on where its answer is yes and where it is no (or how many steps to pass
over), and the number that it compares with or loads from."""

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
    # Access lists, of up to 64 KiB a file, are charged to nobody.
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "setxattrat": (463, 463),
}
"""The numbers of each call: of x86-64, and of those that use the kernel's common table."""


@frozen
class _Machine:
    """What a filter has to know of a processor. Calls from ``foreign`` on are another's."""

    audit_arch: int
    column: int
    clone: int
    socket: int
    socketpair: int
    foreign: int = 0x40000000


_MACHINES: Final = {
    "x86_64": _Machine(0xC000003E, 0, 56, 41, 53),
    "aarch64": _Machine(0xC00000B7, 1, 220, 198, 199),
    "riscv64": _Machine(0xC00000F3, 1, 220, 198, 199),
}
_FAMILIES: Final = (1, 2, 10, 16)
"""AF_UNIX, AF_INET, AF_INET6, AF_NETLINK: a network namespace divides these, others not all."""


def system_call_filter(machine: str | None = None) -> bytes:
    """The filter's program, for this machine. Raises ``GateFailed`` for one that is not known."""
    name = os.uname().machine if machine is None else machine
    known = _MACHINES.get(name)
    if known is None:
        raise GateFailed(
            f"no sandbox: the system calls of {name} are not known",
            hint=f"known are {', '.join(_MACHINES)}; or --no-sandbox, which is attested",
        )
    steps: list[_Step] = [
        (_LOAD, _NEXT, _NEXT, _MACHINE_AT),
        (_EQUAL, _NEXT, _REFUSE, known.audit_arch),
        (_LOAD, _NEXT, _NEXT, _NUMBER_AT),
        (_AT_LEAST, _REFUSE, _NEXT, known.foreign),
    ]
    steps += [
        (_EQUAL, _REFUSE, _NEXT, number)
        for number in sorted(numbers[known.column] for numbers in _REFUSED.values())
    ]
    steps += _argued(known.clone, [(_ANY_BIT, _REFUSE, _NEXT, _NEW_USER)], end=_ALLOW)
    families: list[_Step] = [(_EQUAL, _ALLOW, _NEXT, family) for family in _FAMILIES]
    for number in (known.socket, known.socketpair):
        steps += _argued(number, families, end=_REFUSE)
    return _assembled([*steps, (_GO, _ALLOW, _ALLOW, 0)])


def _argued(number: int, tests: Sequence[_Step], *, end: str) -> list[_Step]:
    """Of the call ``number`` its first argument decides: ``tests`` of it, or else ``end``."""
    past = len(tests) + 2
    return [
        (_EQUAL, _NEXT, past, number),
        (_LOAD, _NEXT, _NEXT, _FIRST_ARGUMENT_AT),
        *tests,
        (_GO, end, end, 0),
    ]


def _assembled(steps: Sequence[_Step]) -> bytes:
    """The program, with what allows and what refuses at its end."""
    ends = {_ALLOW: len(steps), _REFUSE: len(steps) + 1}
    words = []
    for at, (code, yes, no, value) in enumerate(steps):
        past = [
            target if isinstance(target, int) else ends.get(target, at + 1) - at - 1
            for target in (yes, no)
        ]
        words.append((code, 0, 0, past[0]) if code == _GO else (code, *past, value))
    words += [(_RETURN, 0, 0, _ALLOWED), (_RETURN, 0, 0, _LACKS_IT)]
    return b"".join(struct.pack("=HBBI", *word) for word in words)
