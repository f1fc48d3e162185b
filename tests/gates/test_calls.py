"""Calls of functions in programs that are not trusted."""

from __future__ import annotations

import ctypes
import inspect
import os
import select
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from decimal import Decimal
from fractions import Fraction

import pytest

from kvg.gates.calls import (
    KEPT_READY,
    MAX_ANSWER_DEPTH,
    Answer,
    Called,
    Caller,
    Checked,
    answer_text,
)
from kvg.gates.place import Place
from kvg.sandbox import Limits, no_enclosure

VALUES: list[Answer] = [
    0,
    -(10**40),
    True,
    None,
    1.5,
    'a "b" \\ \n é 😀',
    Decimal("1.50"),
    Fraction(3, 4),
    date(2024, 2, 29),
    [1, ["x", []]],
]


@pytest.fixture
def caller(place: Place) -> Caller:
    return Caller(place.enclosure, place.hidden, Limits(wall_s=20, cpu_s=2, output_bytes=4 << 20))


def test_the_deepest_answer_comes_to_its_checker(caller: Caller) -> None:
    program = f"def solve(x):\n    for _ in range({MAX_ANSWER_DEPTH}): x = [x]\n    return x"
    found = caller.call_checked(program.encode(), b"def check(answer, x): return bool(answer)", [1])
    assert found.verdict == Called(True, None)


def test_values_go_in_and_out_unchanged(caller: Caller) -> None:
    called = caller.call(b"def solve(x): return x", "solve", [[value] for value in VALUES])
    assert [item.error for item in called] == [None] * len(VALUES)
    assert [item.value for item in called] == VALUES
    assert [type(item.value) for item in called] == [type(value) for value in VALUES]


def test_nothing_is_carried_from_call_to_call(caller: Caller) -> None:
    program = b"seen = []\ndef solve(x):\n    seen.append(x)\n    return len(seen)\n"
    assert [item.value for item in caller.call(program, "solve", [[1], [2], [3]])] == [1, 1, 1]


def leave_in_processes() -> None:
    for session in (False, True):
        if os.fork() == 0:
            if session:
                os.setsid()
            with open("/proc/self/comm", "w") as file:
                file.write("leftover")
            time.sleep(60)
            os._exit(0)
    time.sleep(0.05)


def leave_in_files() -> None:
    os.makedirs("/tmp/a/b/c")
    with open("/tmp/a/b/c/d", "w"), open("/dev/shm/x", "w"):
        pass
    os.symlink("/usr", "/tmp/a/b/link")
    os.chmod("/tmp/a/b/c", 0)
    os.chmod("/tmp/a", 0)


def leave_in_the_kernel() -> None:
    libc = ctypes.CDLL(None)
    libc.shmget(7, 64, 0o1600)
    libc.msgget(7, 0o1600)
    libc.semget(7, 1, 0o1600)
    libc.mq_open(b"/left", 0o102, 0o600, None)
    assert libc.syscall({"x86_64": 248}.get(os.uname().machine, 217), b"user", b"left", b"x", 1, -3)


def leave_in_standard_error() -> None:
    os.set_blocking(2, False)


def what_is_left() -> list[str]:
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/comm") as file:
                found += ["process"] * (file.read() == "leftover\n")
        except OSError:
            pass
    found += [*os.listdir("/tmp"), *os.listdir("/dev/shm")]
    for kind in ("shm", "msg", "sem"):
        with open(f"/proc/sysvipc/{kind}") as file:
            found += [kind] * (len(file.readlines()) - 1)
    libc = ctypes.CDLL(None)
    found += ["queue"] * (libc.mq_open(b"/left", 0) >= 0)
    find_key = {"x86_64": 249}.get(os.uname().machine, 218)
    found += ["key"] * (libc.syscall(find_key, b"user", b"left", None, 0) > 0)
    return found if os.get_blocking(2) else [*found, "a flag"]


LEAVE = (leave_in_processes, leave_in_files, leave_in_the_kernel, leave_in_standard_error)


def program_of(*functions: Callable[..., object], solve: str) -> bytes:
    sources = "\n".join(map(inspect.getsource, functions))
    return f"import ctypes, os, signal, time\n{sources}\n{solve}\n".encode()


@pytest.mark.parametrize("leave", LEAVE)
def test_no_call_finds_what_an_earlier_one_left(caller: Caller, leave: Callable[[], None]) -> None:
    solve = f"def solve(x):\n    found = what_is_left()\n    {leave.__name__}()\n    return found"
    program = program_of(leave, what_is_left, solve=solve)
    assert [
        (item.value, item.error) for item in caller.call(program, "solve", [[1], [2], [3]])
    ] == [(["main.py"], None)] * 3


def test_a_call_that_leaves_a_process_with_its_answer_is_not_waited_for(caller: Caller) -> None:
    program = program_of(solve="def solve(x):\n    return x if os.fork() else time.sleep(60)")
    began = time.monotonic()
    assert [item.value for item in caller.call(program, "solve", [[1], [2]])] == [1, 2]
    assert time.monotonic() - began < caller._job.limits.wall_s


def reached_of_the_harness() -> list[str]:
    found = [fd for fd in os.listdir("/proc/self/fd") if int(fd) > 4]  # the last lists them
    libc = ctypes.CDLL(None, use_errno=True)
    parent, here = os.getppid(), ctypes.create_string_buffer(8)
    for name in ("mem", "maps", "environ", "auxv", "io", "stack", "syscall", "oom_score_adj"):
        try:
            with open(f"/proc/{parent}/{name}", "r+b" if name == "oom_score_adj" else "rb"):
                found.append(name)
        except OSError:
            pass
    for name in ("fd", "map_files", "fdinfo", "ns", "cwd/.", "root/."):
        try:
            found += os.listdir(f"/proc/{parent}/{name}")
        except OSError:
            pass
    if libc.ptrace(16, parent, 0, 0) == 0:
        found.append("ptrace")
    words = (ctypes.c_ulong * 2)(ctypes.addressof(here), 8)
    if libc.process_vm_readv(parent, words, 1, words, 1, 0) >= 0 or ctypes.get_errno() != 1:
        found.append("process_vm_readv")
    if libc.syscall(438, os.pidfd_open(parent), 0, 0) >= 0 or ctypes.get_errno() != 1:
        found.append("pidfd_getfd")
    return found


def test_the_harness_is_out_of_a_calls_reach(caller: Caller) -> None:
    program = program_of(
        reached_of_the_harness, solve="def solve(x): return reached_of_the_harness()"
    )
    assert [item.value for item in caller.call(program, "solve", [[1], [2]])] == [[], []]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_harness_gives_no_other_answer(caller: Caller, number: int) -> None:
    solve = f"def solve(x):\n    os.kill(os.getppid(), {number:d})\n    return x"
    for n, called in enumerate(caller.call(program_of(solve=solve), "solve", [[0], [1]])):
        assert called.value == n if called.error is None else called.value is None


def test_a_call_that_changes_the_limits_of_the_harness_ends_the_run(caller: Caller) -> None:
    solve = (
        "import resource\ndef solve(x):\n    return resource.prlimit(os.getppid(), 7, (99, 99))[0]"
    )
    first, second = caller.call(program_of(solve=solve), "solve", [[1], [2]])
    assert first.value is not None and second.error is not None
    assert "a call changed the limits" in second.error


def test_a_call_knows_nothing_of_the_others(caller: Caller) -> None:
    """Neither how many there are nor what they are called with, in memory or on its way."""
    solve = """
import re
def solve(secret):
    known = [secret]
    for line in open('/proc/self/maps'):
        first, last, mode = re.match('(.*?)-(.*?) (..)', line).groups()
        if mode == 'rw' and '[v' not in line:
            with open('/proc/self/mem', 'rb', 0) as memory:
                memory.seek(int(first, 16))
                held = memory.read(int(last, 16) - int(first, 16)) or b''
            known += re.findall(b'known only to [0-9]{3}', held)
    return sorted({k if isinstance(k, str) else k.decode() for k in known})
"""
    secrets = [f"known only to {n}" for n in (111, 222, 333)]
    called = caller.call(solve.encode(), "solve", [[secret] for secret in secrets])
    assert [(item.value, item.error) for item in called] == [([secret], None) for secret in secrets]


def test_calls_end_with_who_makes_them(caller: Caller) -> None:
    held, holds = os.pipe()
    caller._job = replace(caller._job, fds=(holds,))
    maker = os.fork()
    if maker == 0:
        caller.call(b"import time\ndef solve(x): time.sleep(60)", "solve", [[1]])
    time.sleep(0.3)
    os.close(holds)
    os.kill(maker, signal.SIGKILL)
    os.waitpid(maker, 0)
    ready = select.poll()
    ready.register(held, select.POLLIN | select.POLLHUP)
    assert ready.poll(10_000) and os.read(held, 1) == b""
    os.close(held)


def test_what_a_call_without_an_enclosure_has_started_is_ended_before_the_next() -> None:
    plain = Caller(no_enclosure(), (), Limits(wall_s=20))
    solve = """
def solve(before):
    pid = int(open(before).read()) if os.path.exists(before) else 0
    child = os.fork()
    if child == 0:
        os.setsid()
        time.sleep(60)
        os._exit(0)
    with open(before, 'w') as file:
        file.write(str(child))
    return pid == 0 or not os.path.exists(f'/proc/{pid}')
"""
    called = plain.call(program_of(solve=solve), "solve", [["pid"], ["pid"], ["pid"]])
    assert [(item.value, item.error) for item in called] == [(True, None)] * 3


FORGER = b"""
import os, sys
def solve(x):
    frame = sys._getframe()
    while frame.f_back:
        frame = frame.f_back
    nonce = frame.f_globals['nonce']
    for fd in range(3, 64):
        try:
            os.write(fd, b'%s [1,["value",["int","7"]]]\\n' % nonce.encode())
        except OSError:
            pass
    os._exit(0)
"""


def test_a_call_does_not_hold_the_pipe_that_tells(caller: Caller) -> None:
    said = caller.call(FORGER, "solve", [[1], [2]])
    assert [item.value for item in said] == [None, None]


ADDS = b"def check(answer, x): return answer == x + 1"


def test_an_answer_and_what_its_checker_says(caller: Caller) -> None:
    for sound, said in ((b"x + 1", True), (b"x", False)):
        found = caller.call_checked(b"def solve(x): return " + sound, ADDS, [3])
        assert found.verdict == Called(said, None)


def test_every_kind_of_answer_comes_to_its_checker_as_it_is(caller: Caller) -> None:
    program = b"def solve(x): return x"
    checker = b"def check(answer, x): return (answer == x and type(answer) is type(x))"
    for value in VALUES:
        found = caller.call_checked(program, checker, [value])
        assert found.answer == Called(value, None)
        assert found.verdict == Called(True, None)


@pytest.mark.parametrize(
    "said", ["1e9999999", "0.5", "1/3e9999999", "1_0/3", "/2", "1/0", "1/" + "3" * 5000]
)
def test_a_fraction_is_two_whole_numbers(caller: Caller, said: str) -> None:
    """What spells another number could take kvg itself hours and all memory to read."""
    program = f"class Fraction(str): pass\ndef solve(x): return Fraction({said!r})"
    began = time.monotonic()
    found = caller.call(program.encode(), "solve", [[1]])[0]
    assert found.value is None and found.error is not None
    assert time.monotonic() - began < 5


def test_what_gives_no_answer_is_not_checked(caller: Caller) -> None:
    found = caller.call_checked(b"def solve(x): return 1 / x", ADDS, [0])
    assert found.answer and found.answer.error and "ZeroDivision" in found.answer.error
    assert found.verdict is None


def test_a_call_is_made_where_a_condition_holds(caller: Caller) -> None:
    condition = b"def holds(x): return x > 1 / (x - 5)"
    program = b"def solve(x):\n    if x < 0: open('/nowhere')\n    return x + 1"
    made = caller.call_checked(program, ADDS, [6], condition=condition)
    assert made == Checked(None, Called(7, None), Called(True, None))
    for value, why in ((-6, "the values do not meet the constraint"), (5, "ZeroDivisionError")):
        found = caller.call_checked(program, ADDS, [value], condition=condition)
        assert found.answer is None and found.verdict is None
        assert found.unmet is not None and why in found.unmet
    failed = caller.call_checked(program, ADDS, [-1], condition=b"def holds(x): return True")
    assert failed.answer and failed.answer.error and "nowhere" in failed.answer.error
    assert caller.call_checked(program, ADDS, [1], condition=b"def holds(x): return 1").unmet


SEEKER = b"""
import sys
def solve(x):
    seen = [sys._getframe(n) for n in range(len(__import__('inspect').stack()))]
    held = repr([(frame.f_globals, frame.f_locals) for frame in seen])
    with open('/proc/self/maps') as maps, open('/proc/self/mem', 'rb') as memory:
        for line in maps:
            area, rights, *_, name = line.split(None, 5) + ['']
            if rights.startswith('rw') and '[v' not in line:
                start, end = (int(part, 16) for part in area.split('-'))
                memory.seek(start)
                try:
                    held += memory.read(end - start).decode('latin-1')
                except OSError:
                    continue
    return ''.join(chr(ord(c) + 1) for c in 'jdxbngdb') in held
"""


def test_a_program_finds_nothing_of_its_checker(caller: Caller) -> None:
    checker = b"def check(answer, x): return answer is False  # keycohec"
    found = caller.call_checked(SEEKER, checker, [1])
    assert found == Checked(None, Called(False, None), Called(True, None))
    there = caller.call_checked(SEEKER + b"# keycohec", checker, [1])
    assert there.answer == Called(True, None)


LEAVER = b"""
import os, time
def solve(x):
    open('/tmp/left', 'w').close()
    if os.fork() == 0:
        os.setsid()
        while True:
            open('/tmp/left', 'w').close()
            time.sleep(0.001)
    return x + 1
"""


def test_a_checker_finds_nothing_that_the_program_left(caller: Caller) -> None:
    checker = b"""
import os
def check(answer, x):
    others = [pid for pid in os.listdir('/proc') if pid.isdigit() and int(pid) != os.getpid()]
    return len(others) < 3 and not os.path.exists('/tmp/left') and answer == x + 1
"""
    found = caller.call_checked(LEAVER, checker, [1])
    assert found.verdict == Called(True, None)


def test_without_an_enclosure_a_checker_is_called_when_the_programs_harness_has_ended() -> None:
    """Else the program could write a verdict where its own answer is read."""
    plain = Caller(no_enclosure(), (), Limits(wall_s=20), keep_ready=True)
    program = b"import os\ndef solve(x): return os.getppid()"
    checker = b"import os\ndef check(pid, x): return not os.path.exists(f'/proc/{pid}')"
    found = plain.call_checked(program, checker, [1], condition=b"def holds(x): return x == 1")
    assert found.verdict == Called(True, None)
    kept_out = plain.call_checked(program, checker, [1], condition=b"def holds(x): return x == 2")
    assert kept_out.unmet and kept_out.answer is None
    failed = plain.call_checked(b"def solve(x): return 1 / 0", checker, [1])
    assert failed.answer and failed.answer.error and failed.verdict is None


VERDICT = b"""
import os, sys
def solve(x):
    harness = sys.modules['__main__']
    with open(f'/proc/{os.getppid()}/fd/{harness.out}', 'wb', buffering=0) as out:
        for said in (b'["value",["int","5"]]', b'["value",["bool",true]]'):
            out.write(harness.nonce + b' 0 %d\\n' % len(said) + said)
    return 5
"""


def test_a_program_without_an_enclosure_says_no_verdict_in_its_own_run() -> None:
    found = Caller(no_enclosure(), (), Limits(wall_s=20)).call_checked(VERDICT, ADDS, [1])
    assert found.verdict is None or found.verdict.value is not True


@pytest.mark.parametrize("ending", ["os.kill(os.getppid(), 9)", "os.kill(-1, 9)"])
def test_a_program_that_ends_its_enclosure_has_no_verdict(caller: Caller, ending: str) -> None:
    program = f"import os\ndef solve(x):\n    if os.fork() == 0: {ending}\n    return x + 2"
    found = caller.call_checked(program.encode(), ADDS, [1])
    assert found.verdict is None or found.verdict.value is not True


def test_a_checker_that_fails_or_is_endless_is_named(caller: Caller) -> None:
    program = b"def solve(x): return x + 1"
    for checker, named in (
        (b"def check(answer, x): return 1 / 0", "ZeroDivisionError"),
        (b"def check(answer, x):\n    while True: pass", "limit on cpu"),
        (b"import os\ndef check(answer, x): os._exit(0)", "exit 0 before it gave an answer"),
        (b"x", "NameError"),
    ):
        found = caller.call_checked(program, checker, [1])
        assert found.answer == Called(2, None)
        assert found.verdict and found.verdict.error and named in found.verdict.error


@pytest.mark.parametrize(
    ("program", "named"),
    [
        ("def solve(x): return 1 / 0", "ZeroDivisionError"),
        ("def other(x): return x", "defines no solve"),
        ("def solve(: pass", "SyntaxError"),
        ("def solve(x): return object()", "an answer of type object"),
        ("def solve(x): return {1: 2}", "an answer of type dict"),
        ("import os\ndef solve(x): os._exit(0)", "exit 0 before it gave an answer"),
        ("import os\ndef solve(x): os.kill(os.getpid(), 9)", "killed by SIGKILL"),
        ("import os\ndef solve(x): os.kill(os.getppid(), 9)", "SIGKILL"),
        (
            "def solve(x):\n f = open('/tmp/x', 'wb')\n while True: f.write(b'x' * 1000000)",
            "limit on files",
        ),
        (
            "def solve(x):\n try:\n  f = open('/tmp/x', 'wb')\n"
            "  while True: f.write(b'x' * 1000000)\n except OSError: return 'y' * 5000",
            "limit on files",
        ),
        ("def solve(x): return [open('/dev/null') for _ in range(1000)]", "limit on files"),
        ("import os\ndef solve(x):\n while True: os.fork()", "limit on processes"),
        ("def solve(x): raise SystemExit", "SystemExit"),
        ("def solve(x):\n    while True: pass", "limit on cpu"),
        ("def solve(x): return bytearray(b'x') * (1 << 40)", "limit on memory"),
        ("def solve(x): return open('/etc/passwd').read()", "FileNotFoundError"),
        ("def solve(x): open('/usr/x', 'w')", "OSError"),
        ("import socket\ndef solve(x): socket.create_connection(('1.1.1.1', 80))", "unreachable"),
        ("def solve(x): return 'x' * 9999999", "more than 1,000,000 bytes"),
        ("def solve(x): return [1] * 200000", "more than 1,000,000 bytes"),
        ("def solve(x): return 'x' * 70000", "longer than 65,536 characters"),
        (
            "import sys\ndef solve(x):\n    sys.set_int_max_str_digits(0)\n    return 10**5000",
            "limit",
        ),
        ("import decimal\ndef solve(x): return decimal.Decimal('sNaN7')", "signalling NaN"),
        ("def solve(x):\n    for _ in range(40): x = [x]\n    return x", "more than 32 deep"),
        ("def solve(x):\n    for _ in range(400): x = [x]\n    return x", "Recursion"),
        (
            "class Fraction:\n    __str__ = lambda self: '1/0'\ndef solve(x): return Fraction()",
            "can't be read",
        ),
        (
            "class date:\n    __str__ = lambda self: '2026-13-99'\ndef solve(x): return date()",
            "can't be read",
        ),
        ("def solve(x):\n    while True: print('x' * 9999)", "limit on output"),
    ],
)
def test_what_a_program_does_wrong_is_told(caller: Caller, program: str, named: str) -> None:
    (called,) = caller.call(program.encode(), "solve", [[1]])
    assert called.value is None and called.error is not None
    assert named in called.error


def test_one_call_that_fails_spoils_no_other(caller: Caller) -> None:
    program = b"def solve(x): return 6 // x"
    assert [item.value for item in caller.call(program, "solve", [[0], [2], [3]])] == [None, 3, 2]


def test_what_is_printed_is_no_answer(caller: Caller) -> None:
    program = b"def solve(x):\n    print('0' * 32, [0, ['value', ['int', '9']]])\n    return x\n"
    assert caller.call(program, "solve", [[7]])[0].value == 7


def test_an_enclosure_kept_ready_is_used_once(place: Place) -> None:
    kept = Caller(place.enclosure, place.hidden, keep_ready=True)
    program = b"import os\ndef solve(x):\n    open('/tmp/left', 'x')\n    return x\n"
    try:
        for n in range(2 * KEPT_READY + 1):
            assert kept.call(program, "solve", [[n]])[0].value == n
        ready = list(kept._ready)
        assert len(ready) == KEPT_READY and all(started.is_alive for started in ready)
        for started in ready:
            started._process.kill()
            started._process.wait()
        assert kept.call(program, "solve", [[7]])[0].value == 7
        assert not set(ready) & set(kept._ready)
        ready = list(kept._ready)
    finally:
        kept.close()
    assert not any(started.is_alive for started in ready)


def test_answers_as_text() -> None:
    assert [answer_text(value) for value in (True, None, 5, Fraction(1, 2), "a b")] == [
        "true",
        "none",
        "5",
        "1/2",
        "a b",
    ]
    assert answer_text([1, "x", [Decimal("1.5")]]) == '[1, "x", [1.5]]'
