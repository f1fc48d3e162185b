"""Checkers in Python and of any other make: what passes, and what is rejected, by name."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kvg.digest import sha256
from kvg.errors import GateFailed, NotFound, UsageError
from kvg.gates import GateInput, parse_spec, run_gate
from kvg.gates.place import Place
from kvg.sandbox import Limits, no_enclosure
from tests.gates.conftest import Gate

SUM = "import sys\nsys.exit(sum(map(int, open('text.txt').read().split())) != int(input() or 0))"
TEXT = "3 4 5"


def test_a_command_that_reads_text_and_answer(gate: Gate) -> None:
    done = gate("cmd:python3 sum.py", TEXT, "12", **{"sum.py": SUM})
    assert (done.gate, done.result, done.reason) == ("test:cmd", "PASSED", "")
    assert [part.name for part in done.configuration] == ["sum.py", "sandbox: bubblewrap"]
    evidence = json.loads(done.evidence)
    assert evidence["record"]["answer"]["status"] == 0
    assert evidence["record"]["controls"][-1]["refused"]
    assert gate("cmd:python3 sum.py", TEXT, "13").reason == "exit 1"


def test_a_script_of_its_own(gate: Gate, place: Place) -> None:
    (place.folder / "check.sh").write_text("#!/bin/sh\nexec grep -qx 12 answer.txt\n")
    assert gate("cmd:check.sh", TEXT, "12").is_passed
    assert not gate("cmd:check.sh", TEXT, "13").is_passed


PEEK = """
import re
def secret():
    return re.search("KEY = '([0-9]+)'", open({!r}).read())[1]
"""
CHECK = """
import sys
sys.path.insert(0, '.')
import answer
KEY = '17231'
sys.exit(answer.secret() != KEY)
"""


def test_a_key_beside_an_environment_of_python_is_not_found(
    gate: Gate, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(place.folder))
    (place.folder / "bin").mkdir()
    place.folder.chmod(0o755)
    peek = PEEK.format(str(place.folder / "check.py"))
    done = gate("cmd:python3 check.py", "secrets", peek, **{"check.py": CHECK})
    assert not done.is_passed and "FileNotFoundError" in done.evidence.decode()


def test_a_key_in_an_installed_checker_is_not_read(
    gate: Gate, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(place.folder))
    (place.folder / "bin").mkdir()
    place.folder.chmod(0o755)
    script = place.folder / "bin" / "check"
    script.write_text(f"#!{os.path.realpath(sys.executable)}\n{CHECK}")
    script.chmod(0o755)
    honest = gate("cmd:bin/check", "secrets", "def secret(): return '17231'")
    assert honest.is_passed
    assert honest.configuration[0].digest == sha256(script.read_bytes())
    done = gate("cmd:bin/check", "secrets", PEEK.format(str(script)))
    assert not done.is_passed and "PermissionError" in done.evidence.decode()


@pytest.mark.parametrize("said", ["('value', 1e999)", "('value', [-1e999])", "('value', 1e999-1j)"])
def test_a_value_that_is_not_handed_over_is_not_taken_either(gate: Gate, said: str) -> None:
    """The answer's side is the answer's: it can write what it likes."""
    check = "import answer\ndef test_it():\n    assert answer.area(1) is not None\n"
    assert gate("pytest:t.py", "q", "def area(r): return 1.0", **{"t.py": check}).is_passed
    writes = f"os.ftruncate(3, 0); os.lseek(3, 0, 0); os.write(3, b{said!r}); os._exit(0)"
    forged = f"import os\ndef area(r): {writes}"
    assert not gate("pytest:t.py", "q", forged, **{"t.py": check}).is_passed


def test_a_file_that_everything_can_read_is_no_checker(
    gate: Gate, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(place.folder))
    (place.folder / "lib").mkdir()
    with pytest.raises(UsageError, match="lies among the programs of this system"):
        gate("cmd:python3 lib/check.py", "secrets", "12", **{"lib/check.py": CHECK})


def test_a_text_without_an_answer_is_judged_itself(gate: Gate) -> None:
    assert gate("cmd:grep -q integers text.txt", "Sum the integers").is_passed
    assert not gate("cmd:grep -q integers text.txt", "Sum the primes").is_passed


@pytest.mark.parametrize(
    "command",
    ["true", "sh -c 'exit 0'", "sh -c 'cat >/dev/null; exit 0'", "test -s answer.txt"],
)
def test_a_checker_that_does_not_look(gate: Gate, command: str) -> None:
    done = gate(f"cmd:{command}", TEXT, "12")
    assert done.result == "FAILED" and "passes anything" in done.reason


HOSTILE = {
    "a fork bomb": ("import os\nwhile True:\n  try: os.fork()\n  except OSError: pass", "limit on"),
    "a memory hog": ("x = []\nwhile True: x.append(bytearray(b'x') * (9 << 20))", "on memory"),
    "a network call": (
        "import socket; socket.create_connection(('1.1.1.1', 80), 2)",
        "unreachable",
    ),
    "a write outside": ("open('/usr/x', 'w')", "Read-only"),
    "an endless printer": ("while True: print('x' * 999)", "on output"),
    "an endless loop": ("while True: pass", "limit on"),
    "a killer": ("import os; os.kill(os.getppid(), 9); os.kill(1, 9); 1 / 0", "Error"),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("kind", ["cmd", "python-assert", "pytest"])
def test_hostile_answers_are_rejected_by_name(place: Place, kind: str, name: str) -> None:
    code, named = HOSTILE[name]
    limits = Limits(wall_s=4, cpu_s=3, memory_bytes=200 << 20, processes=24)
    mine = Place(place.enclosure, place.folder, place.hidden, limits)
    inner = "def test():\n    " if kind == "pytest" else ""
    (place.folder / "check.py").write_text(f"import answer\n{inner}assert answer.x == 1\n")
    spec = "cmd:python3 answer.txt" if kind == "cmd" else f"{kind}:check.py"
    done = run_gate(parse_spec(spec), GateInput(b"t", code.encode()), mine)
    assert done.result == "FAILED" and named in done.reason


def test_a_read_of_the_key_folder(gate: Gate, place: Place) -> None:
    path = place.folder / "keys" / "a.pem"
    done = gate("cmd:python3 answer.txt", "t", f"print(open({str(path)!r}).read())")
    assert done.result == "FAILED" and "No such file" in done.reason
    assert b"secret" not in done.evidence


def test_assertions_about_the_answer(gate: Gate) -> None:
    assert gate("python-assert:int(answer) == sum(map(int, text.split()))", TEXT, "12").is_passed
    done = gate("python-assert:int(answer) == 12", TEXT, "13")
    assert (done.gate, done.result) == ("test:python-assert", "FAILED")
    assert "AssertionError" in done.reason


@pytest.mark.parametrize(
    ("checks", "named"),
    [
        ("assert int(answer) == 12\nif False:\n    assert int(answer) > 99", "line 3 never runs"),
        ("def test():\n    assert int(answer) == 99", "line 2 never runs"),
        (
            "def t():\n    assert int(answer) == 12; return; assert int(answer) > 99\nt()",
            "line 2 never runs",
        ),
        ("import os\nos._exit(0)\nassert answer", "before the checks were through"),
        ("import sys\nsys.exit(0)\nassert answer", "before the checks were through"),
        ("x = answer\nassert text == '3 4 5'", "passes anything"),
        ("for _ in []:\n    assert 0 < 1", "line 2 never runs"),
    ],
)
def test_an_assertion_that_never_runs(gate: Gate, checks: str, named: str) -> None:
    done = gate("python-assert:checks.py", TEXT, "12", **{"checks.py": checks})
    assert done.result == "FAILED" and named in done.reason


@pytest.mark.parametrize(
    ("checks", "named"),
    [
        ("x = 1", "asserts nothing"),
        ("assert True", "can't tell"),
        ("assert (answer == '12', 'wrong')", "can't tell"),
    ],
)
def test_checks_that_cannot_fail(gate: Gate, checks: str, named: str) -> None:
    with pytest.raises(GateFailed, match=named):
        gate("python-assert:checks.py", TEXT, "12", **{"checks.py": checks})


PYTEST = "from answer import add\n\ndef test_add():\n    assert add(1, 2) == 3\n"


def test_tests_of_code(gate: Gate) -> None:
    done = gate("pytest:t.py", "Write add.", "def add(a, b): return a + b", **{"t.py": PYTEST})
    assert (done.gate, done.result, done.reason) == ("test:pytest", "PASSED", "")
    assert not gate("pytest:t.py", "Write add.", "def add(a, b): return a - b").is_passed


CHEATS = {
    "reads the tests": "def add(a, b):\n    return int(open('t.py').read()[-2])",
    "reads the tests under their name inside": (
        "import re\ndef add(a, b):\n    return int(open('/tmp/test_checks.py').read()[-1])"
    ),
    "is equal to all": (
        "def add(a, b):\n    class Same(int):\n        def __eq__(self, other): return True\n"
        "        def __hash__(self): return 0\n    return Same()"
    ),
    "marks assertions": "import builtins\nfor n in range(9): builtins.kvg_reached_(n)\nadd = max",
    "counts for itself": (
        "import gc\nfor item in gc.get_objects():\n"
        "    if type(item).__name__ == 'Count': item.passed = 1\nadd = max"
    ),
    "replaces what the tests use": (
        "import sys, builtins\nsys.modules['__main__'].status = 0\nbuiltins.int = lambda _: 3\n"
        "def add(a, b): return a - b"
    ),
    "ends the run": "import os\ndef add(a, b): os._exit(0)",
    "asks for the frames above": (
        "import sys\ndef add(a, b):\n    frame = sys._getframe()\n    while frame:\n"
        "        for value in frame.f_code.co_consts:\n"
        "            if value == 3: return value\n        frame = frame.f_back"
    ),
    "remembers": "calls = []\ndef add(a, b):\n    calls.append(a)\n    return 2 + len(calls) % 2",
}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *(("cmd", name) for name in CHEATS),
        ("pytest", "reads the tests"),
        ("pytest", "counts for itself"),
        ("python-assert", "marks assertions"),
    ],
)
def test_the_answer_runs_apart_from_what_checks_it(gate: Gate, kind: str, name: str) -> None:
    """It passes if it sees the key, or reaches into the checks; alone it is wrong."""
    key = "    assert add(1, 2) == add(1, 2) == add(2, 1) + 0 == 3 - (add(0, 0) != 0)\n    # 3\n"
    body = PYTEST.replace("    assert add(1, 2) == 3\n", key)
    if kind != "pytest":
        body += "\ntest_add()\n# 3\n"
    spec = {"cmd": "cmd:python3 t.py"}.get(kind, f"{kind}:t.py")
    if name == "remembers":
        assert gate(spec, "", "def add(a, b): return a + b", **{"t.py": body}).is_passed
    assert gate(spec, "Write add.", CHEATS[name], **{"t.py": body}).result == "FAILED"


HANDED = """
from answer import echo, limit, fail, table
import pytest

def test_values():
    for value in (0, -5, 10 ** 40, 1.5, "é\\ud800", b"x", True, None, [1, (2, {3})], {"a": [1]}):
        assert echo(value) == value and type(echo(value)) is type(value)
    assert limit == 7 and table["a"] == (1, 2) and echo(value=3, other=4) == 3
    with pytest.raises(ZeroDivisionError, match="none"):
        fail()
    with pytest.raises(TypeError, match="not handed over"):
        echo(object())
"""


def test_values_and_errors_are_handed_over(gate: Gate) -> None:
    code = (
        "limit, table = 7, {'a': (1, 2)}\ndef echo(value, other=0): return value\n"
        "def fail(): raise ZeroDivisionError('none')\n"
    )
    done = gate("pytest:t.py", "Write echo.", code, **{"t.py": HANDED})
    assert done.is_passed, json.loads(done.evidence)["record"]


LEAVER = """
import os, time
def left():
    found = [name for name in os.listdir('/tmp') if name != 'main.py']
    processes = sum(map(str.isdigit, os.listdir('/proc')))
    try:
        open('/proc/%d/mem' % os.getppid(), 'rb').close()
        found.append('memory')
    except OSError:
        pass
    open('/tmp/left', 'w').close()
    if os.fork() == 0:
        time.sleep(60)
    return found, processes
"""


def test_no_question_to_the_answer_finds_what_an_earlier_one_left(gate: Gate) -> None:
    checks = "from answer import left\nassert left() == left() == left()\nassert left()[0] == []\n"
    assert gate("python-assert:c.py", "t", LEAVER, **{"c.py": checks}).reason == ""


def test_a_process_with_many_open_files_hands_over_too(gate: Gate) -> None:
    """As a session with many clients: the pipes then have numbers past the sandbox's own limit."""
    held = [os.dup(0) for _ in range(2 * Limits().open_files)]
    try:
        done = gate("pytest:t.py", "Write two.", "def two(): return 2", **{"t.py": TWO})
    finally:
        for fd in held:
            os.close(fd)
    assert done.is_passed, json.loads(done.evidence)["record"]


TWO = "from answer import two\ndef test():\n    assert two() == 2\n"


@pytest.mark.parametrize(
    ("tests", "named"),
    [
        ("def helper():\n    assert 1 == 2\n", "exit 5"),
        ("import pytest\n@pytest.mark.skip\ndef test():\n    assert 1 == 2\n", "no test ran"),
        ("def test():\n    return\n    assert 1 == 2\n", "line 3 never runs"),
        ("def test():\n    x = 1\n    assert x == 1\n", "passes anything"),
    ],
)
def test_tests_that_test_nothing(gate: Gate, tests: str, named: str) -> None:
    done = gate("pytest:t.py", "Write add.", "def add(a, b): return a + b", **{"t.py": tests})
    assert done.result == "FAILED" and named in done.reason


@pytest.mark.parametrize(
    ("tests", "line"),
    [
        ("try:\n        assert add(1, 2) == 3\n    except AssertionError:\n        pass\n", 5),
        ("try:\n        assert {3: 1}[add(1, 2)]\n    except KeyError:\n        pass\n", 5),
        (
            "with __import__('contextlib').suppress(Exception):\n"
            "        for n in range(3):\n            assert add(n, 2) == n + 2 - 4 * (n > 1)\n",
            6,
        ),
    ],
)
@pytest.mark.parametrize("kind", ["pytest", "python-assert"])
def test_an_assertion_that_fails_and_is_passed_over(
    gate: Gate, kind: str, tests: str, line: int
) -> None:
    checks = f"from answer import add\n\ndef test():\n    {tests}"
    checks += "test()\n" if kind == "python-assert" else ""
    wrong = gate(f"{kind}:t.py", "Write add.", "def add(a, b): return a - b", **{"t.py": checks})
    assert f"the assertion at line {line} fails, and is passed over" in wrong.reason


def test_an_answer_that_ends_the_run(gate: Gate) -> None:
    done = gate("pytest:t.py", "Write add.", "import os; os._exit(0)", **{"t.py": PYTEST})
    assert done.result == "FAILED" and "the answer ended with 0" in done.evidence.decode()


@pytest.mark.parametrize(
    "spec",
    ["nonsense:x", "cmd:", "cmd:'", "pytest:", "consistency:1", "consistency:x", "coq:a?b=c"],
)
def test_specs_that_are_none(gate: Gate, spec: str) -> None:
    with pytest.raises(UsageError):
        gate(spec, "t", "a")


def test_a_file_that_is_not_there(gate: Gate) -> None:
    with pytest.raises(NotFound):
        gate("pytest:absent.py", "t", "a")


def test_what_runs_does_not_pass_for_the_sandbox(gate: Gate) -> None:
    """That there is none is not for what is judged to say: its word is kept as evidence."""
    done = gate("cmd:sh answer.txt", TEXT, "echo 'bwrap: no namespaces' >&2; exit 1")
    assert done.result == "FAILED" and "no namespaces" in done.reason


def test_no_sandbox_is_attested(tmp_path: Path) -> None:
    place = Place(no_enclosure(), tmp_path)
    done = run_gate(parse_spec("cmd:grep -q 12 answer.txt"), GateInput(b"t", b"12"), place)
    assert done.is_passed
    assert [part.name for part in done.configuration] == ["sandbox: none"]


def test_a_function_of_any_name_is_the_answers_own(gate: Gate) -> None:
    """Also one that is called like something in what stands in for the answer."""
    names = ("line", "plain", "ask", "ast", "builtins", "_there", "_said", "error", "name", "kind")
    answer = "".join(f"def {name}(n): return n + {at}\n" for at, name in enumerate(names))
    tests = "".join(f"    assert answer.{name}(1) == {at + 1}\n" for at, name in enumerate(names))
    first = f"from answer import {', '.join(names)}\nassert line(1) == 1 and _said(1) == 7\n"
    checks = f"import answer\n{first}def test():\n{tests}test()\n"
    done = gate("python-assert:c.py", TEXT, answer, **{"c.py": checks})
    assert done.is_passed, done.reason


def test_an_argument_that_is_too_long_for_a_name_is_no_file(gate: Gate) -> None:
    words = ", ".join(f"'word{n}'" for n in range(60))
    assert gate(f"python-assert:answer.strip() in ({words})", TEXT, "word7").is_passed
    code = f"import sys; sys.exit(input() not in ({words}))"
    assert gate(f'cmd:python3 -c "{code}"', TEXT, "word7").is_passed
    with pytest.raises(NotFound, match="no such file"):
        gate("pytest:" + "x" * 300, TEXT, "12")


def test_a_gate_is_not_given_what_is_hidden(place: Place) -> None:
    keys = place.folder / "keys"
    keys.mkdir(exist_ok=True)
    (keys / "default.pem").write_text("a key")
    (place.folder / "link.pem").symlink_to(keys / "default.pem")
    hidden = replace(place, hidden=(keys,))
    for spec in ("cmd:/bin/cat keys/default.pem", "cmd:/bin/cat link.pem", "pytest:link.pem"):
        with pytest.raises(UsageError, match="which no gate is shown"):
            run_gate(parse_spec(spec), GateInput(b"x", b"y"), hidden)
