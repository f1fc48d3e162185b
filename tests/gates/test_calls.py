"""Calls of functions in programs that are not trusted."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from fractions import Fraction

import pytest

from kvg.gates.calls import KEPT_READY, Answer, Caller, answer_text
from kvg.gates.place import Place
from kvg.sandbox import Limits

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


def test_values_go_in_and_out_unchanged(caller: Caller) -> None:
    called = caller.call(b"def solve(x): return x", "solve", [[value] for value in VALUES])
    assert [item.error for item in called] == [None] * len(VALUES)
    assert [item.value for item in called] == VALUES
    assert [type(item.value) for item in called] == [type(value) for value in VALUES]


def test_nothing_is_carried_from_call_to_call(caller: Caller) -> None:
    program = b"seen = []\ndef solve(x):\n    seen.append(x)\n    return len(seen)\n"
    assert [item.value for item in caller.call(program, "solve", [[1], [2], [3]])] == [1, 1, 1]


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


def test_a_call_where_a_condition_holds(caller: Caller) -> None:
    condition = b"def holds(x): return x > 1 / (x - 5)"
    program = b"def solve(x):\n    if x < 0: open('/nowhere')\n    return -x"
    for value, wanted in ((6, -6), (-6, None), (5, None)):
        found = caller.call_where(condition, program, "solve", [value])
        assert (found.value if found else None) == wanted
    failed = caller.call_where(b"def holds(x): return True", program, "solve", [-1])
    assert failed is not None and failed.error is not None and "nowhere" in failed.error
    assert caller.call_where(b"def holds(x): return 1", program, "solve", [1]) is None


@pytest.mark.parametrize(
    ("program", "named"),
    [
        ("def solve(x): return 1 / 0", "ZeroDivisionError"),
        ("def other(x): return x", "defines no solve"),
        ("def solve(: pass", "SyntaxError"),
        ("def solve(x): return object()", "an answer of type object"),
        ("def solve(x): return {1: 2}", "an answer of type dict"),
        ("import os\ndef solve(x): os._exit(0)", "ended with 0"),
        ("def solve(x): raise SystemExit", "SystemExit"),
        ("def solve(x):\n    while True: pass", "limit on cpu"),
        ("def solve(x): return bytearray(b'x') * (1 << 40)", "limit on memory"),
        ("def solve(x): return open('/etc/passwd').read()", "FileNotFoundError"),
        ("def solve(x): open('/usr/x', 'w')", "OSError"),
        ("import socket\ndef solve(x): socket.create_connection(('1.1.1.1', 80))", "unreachable"),
        ("def solve(x): return 'x' * 9999999", "ended"),
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
