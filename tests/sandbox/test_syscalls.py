"""The filter of system calls, run as the kernel runs it."""

from __future__ import annotations

import struct

import pytest

from kvg.errors import GateFailed
from kvg.sandbox.syscalls import system_call_filter

ALLOWED, LACKS_IT = 0x7FFF0000, 0x00050000 | 38
X86_64, AARCH64, RISCV64, I386 = 0xC000003E, 0xC00000B7, 0xC00000F3, 0x40000003
NEW_USER, NEW_THREAD = 0x10000000, 0x003D0F00


def verdict(program: bytes, arch: int, number: int, argument: int = 0) -> int:
    """What the filter says of one call."""
    call = struct.pack("=IIQ6Q", number, arch, 0, argument, *[0] * 5)
    steps = list(struct.iter_unpack("=HBBI", program))
    word, at = 0, 0
    while True:
        code, jump_true, jump_false, value = steps[at]
        at += 1
        match code:
            case 0x20:
                (word,) = struct.unpack_from("=I", call, value)
            case 0x15:
                at += jump_true if word == value else jump_false
            case 0x35:
                at += jump_true if word >= value else jump_false
            case 0x45:
                at += jump_true if word & value else jump_false
            case 0x05:
                at += value
            case 0x06:
                return int(value)
            case _:
                raise AssertionError(f"step {at}: {code:#x}")


@pytest.mark.parametrize(
    ("machine", "arch", "refused"),
    [
        ("x86_64", X86_64, {29, 64, 68, 155, 165, 240, 248, 249, 250, 272, 298, 308, 319, 321}),
        ("aarch64", AARCH64, {40, 41, 97, 180, 186, 190, 194, 217, 218, 219, 241, 268, 279, 280}),
    ],
)
def test_which_calls_are_refused(machine: str, arch: int, refused: set[int]) -> None:
    program = system_call_filter(machine)
    both = {425, 428, 429, 430, 435, 442, 447, 463, 323 if machine == "x86_64" else 282}
    both |= {188, 189, 190} if machine == "x86_64" else {5, 6, 7}
    sockets = {41, 53} if machine == "x86_64" else {198, 199}
    told = {n for n in range(480) if verdict(program, arch, n) == LACKS_IT}
    assert told == refused | both | sockets
    assert {verdict(program, arch, n) for n in set(range(480)) - told} == {ALLOWED}


def test_a_process_may_be_started_but_not_with_a_user_namespace() -> None:
    for machine, arch, clone in (("x86_64", X86_64, 56), ("aarch64", AARCH64, 220)):
        program = system_call_filter(machine)
        assert verdict(program, arch, clone, NEW_THREAD) == ALLOWED
        assert verdict(program, arch, clone, NEW_USER | 17) == LACKS_IT


def test_sockets_are_of_families_that_a_network_namespace_divides() -> None:
    for machine, arch, calls in (("x86_64", X86_64, (41, 53)), ("riscv64", RISCV64, (198, 199))):
        program = system_call_filter(machine)
        for number in calls:
            allowed = {n for n in range(50) if verdict(program, arch, number, n) == ALLOWED}
            assert allowed == {1, 2, 10, 16}


def test_calls_of_another_kind_of_program_are_refused() -> None:
    program = system_call_filter("x86_64")
    assert verdict(program, I386, 3) == LACKS_IT
    assert verdict(program, X86_64, 0x40000000) == LACKS_IT


def test_a_machine_that_is_not_known_has_no_sandbox() -> None:
    with pytest.raises(GateFailed, match="system calls of pdp11 are not known"):
        system_call_filter("pdp11")
