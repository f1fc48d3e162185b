"""``python-assert:`` and ``pytest:``: assertions in Python, each of which has to run.

Every ``assert`` is preceded by a mark that it was reached, and leaves another when it fails. The
harness tells at the end, under a number that it alone was given, which were not reached and which
failed though the checks went on; a run that ends without that has failed.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Mapping, Set
from typing import Final

from kvg import durable
from kvg.errors import GateFailed, UsageError
from kvg.gates.judged import input_files, judge
from kvg.gates.outcome import GateInput, GateOutcome
from kvg.gates.place import Place
from kvg.gates.spec import Spec
from kvg.sandbox import Outcome
from kvg.sandbox.enclosure import python_program
from kvg.sandbox.outcome import MAX_REASON_CHARS
from kvg.sandbox.process import python_argv

MARK: Final = "kvg_reached_"
CHECKS: Final = "test_checks.py"
IMPORTED: Final = """
try:
    import {0}
except ImportError:
    print(nonce, 'missing', '{0}')
    raise SystemExit(1)
"""
"""How a harness imports what the gate needs. Nothing has run before that knows its number."""

_ASSERT_HARNESS: Final = f"""
import builtins, sys
nonce = sys.stdin.readline().strip()
reached = set()
builtins.{MARK} = reached.add
sys.path.insert(0, '.')
read = lambda name: open(name, encoding='utf-8', errors='surrogateescape').read()
scope = {{'__name__': 'checks', 'text': read('text.txt'), 'answer': read('answer.txt')}}
exec(compile(read('{CHECKS}'), '{CHECKS}', 'exec'), scope)
print()
print(nonce, 1, *sorted(reached))
"""
_PYTEST_HARNESS: Final = f"""
import builtins, os, sys
os.environ['COLUMNS'] = '{MAX_REASON_CHARS}'
nonce = sys.stdin.readline().strip()
reached = set()
builtins.{MARK} = reached.add
sys.path.insert(0, '.')
{IMPORTED.format("pytest")}
class Count:
    passed = 0
    def pytest_runtest_logreport(self, report):
        self.passed += report.when == 'call' and report.outcome == 'passed'
count = Count()
status = pytest.main(
    ['-q', '-p', 'no:cacheprovider', '--rootdir', '.', '-c', '/dev/null', '{CHECKS}'],
    plugins=[count])
print()
print(nonce, count.passed, *sorted(reached))
sys.exit(int(status))
"""


def assert_gate(spec: Spec, given: GateInput, place: Place) -> GateOutcome:
    """``python-assert:FILE``, or one expression of ``text`` and ``answer``."""
    if durable.is_file(place.folder / spec.argument):
        source = place.read(spec.argument)
    else:
        source = f"assert ({spec.argument})\n".encode()
    return _python_gate(spec, given, place, source, _ASSERT_HARNESS)


def pytest_gate(spec: Spec, given: GateInput, place: Place) -> GateOutcome:
    """``pytest:FILE``."""
    from importlib.util import find_spec

    if find_spec("pytest") is None:
        raise GateFailed("gate pytest: pytest is not installed", hint="pip install pytest")
    return _python_gate(spec, given, place, place.read(spec.argument), _PYTEST_HARNESS)


def _python_gate(
    spec: Spec, given: GateInput, place: Place, source: bytes, harness: str
) -> GateOutcome:
    marked, lines = mark_assertions(source, what=spec.argument)

    def check(item: GateInput) -> tuple[str, Outcome]:
        nonce = os.urandom(16).hex()
        files = {**input_files(item), CHECKS: marked.encode(), "main.py": harness.encode()}
        stdin = f"{nonce}\n".encode()
        outcome = place.run(python_argv("main.py"), files, stdin=stdin, answer=item.judged)
        check_imported(spec, outcome, nonce)
        return _told(outcome) or outcome.reason or _unreached(outcome, nonce, lines), outcome

    return judge(spec, given, place, {"checks": source}, check)


def check_imported(spec: Spec, outcome: Outcome, nonce: str) -> None:
    """Raise ``GateFailed`` where the harness could not import what the gate needs."""
    match outcome.stdout.decode("utf-8", "replace").split():
        case [first, "missing", module] if first == nonce:
            raise GateFailed(
                f"gate {spec.kind.name}: needs {module}, which this Python does not have inside "
                "the sandbox",
                hint=f"{python_program()} -I -c 'import {module}' has to work: PYTHONPATH and a "
                "user's own packages are not seen there",
            )


def mark_assertions(source: bytes, *, what: str) -> tuple[str, Mapping[int, int]]:
    """``source`` with a mark at each assertion, and the line of each mark. That of an assertion
    that fails is negative.

    Raises ``GateFailed`` for checks that can't fail, ``UsageError`` for what is not Python.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UsageError(f"{what}: not Python: {error}") from None
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Assert)]
    if not found:
        raise GateFailed(f"{what}: asserts nothing")
    for node in found:
        if isinstance(node.test, ast.Constant | ast.Tuple):
            raise GateFailed(f"{what}: the assertion at line {node.lineno} can't tell anything")
    marker = _Marker()
    marked = ast.fix_missing_locations(marker.visit(tree))
    return ast.unparse(marked), marker.lines


class _Marker(ast.NodeTransformer):
    def __init__(self) -> None:
        self.lines: dict[int, int] = {}

    def visit_Assert(self, node: ast.Assert) -> list[ast.stmt]:
        mark = len(self.lines) + 1
        self.lines[mark] = node.lineno
        failed = ast.ExceptHandler(
            ast.Name("BaseException", ast.Load()), None, [_reached(-mark), ast.Raise()]
        )
        tried = ast.Try([node], [failed], [], [])
        return [ast.copy_location(item, node) for item in (_reached(mark), tried)]


def _reached(mark: int) -> ast.stmt:
    return ast.Expr(ast.Call(ast.Name(MARK, ast.Load()), [ast.Constant(mark)], []))


def _told(outcome: Outcome) -> str:
    """What the summary of pytest says of the last test that failed; empty where it says nothing."""
    if outcome.status == 0 or outcome.stopped is not None or outcome.stderr.strip():
        return ""
    for line in reversed(outcome.stdout.decode("utf-8", "replace").splitlines()):
        word, _, rest = line.partition(" ")
        if word in ("FAILED", "ERROR"):
            said = rest.removeprefix(f"{CHECKS}::")
            return "".join(char if char.isprintable() else " " for char in said)[:MAX_REASON_CHARS]
    return ""


def _unreached(outcome: Outcome, nonce: str, lines: Mapping[int, int]) -> str:
    """Why a run that ended well is none: it did not tell, ran nothing, or passed some over."""
    last = outcome.stdout.decode("utf-8", "replace").strip().rpartition("\n")[2].split(" ")
    if last[0] != nonce:
        return "it ended before the checks were through"
    if int(last[1]) == 0:
        return "no test ran"
    marks = {int(word) for word in last[2:]}
    failed = {-mark for mark in marks if mark < 0}
    if failed:
        return f"the assertion at line {_listed(failed, lines)} fails, and is passed over"
    never = lines.keys() - marks
    return f"the assertion at line {_listed(never, lines)} never runs" if never else ""


def _listed(marks: Set[int], lines: Mapping[int, int]) -> str:
    return ", ".join(map(str, sorted({lines[mark] for mark in marks})))
