"""``smt:``: constraints for z3, in SMT-LIB 2.

With an answer, the file declares a constant ``answer``; the constraints have to be satisfied by
what was answered, and by nothing else unless ``?any``. Without one the text is the script, and has
to be unsatisfiable.
"""

from __future__ import annotations

from typing import Final

from kvg.errors import GateFailed
from kvg.gates.outcome import GateInput, GateOutcome, make_outcome
from kvg.gates.place import Place, call_record
from kvg.gates.spec import Spec
from kvg.sandbox.process import python_argv

_HARNESS: Final = """
import os, sys, z3
nonce, mode = sys.stdin.readline().split()
formulas = list(z3.parse_smt2_file('script.smt2'))
def verdict(*more):
    solver = z3.Solver()
    solver.add(*formulas, *more)
    return solver.check().r
def constant():
    found, seen, waiting = None, set(), list(formulas)
    while waiting:
        node = waiting.pop()
        if node.get_id() in seen:
            continue
        seen.add(node.get_id())
        if z3.is_const(node) and node.decl().name() == 'answer':
            found = node
        waiting.extend(node.children())
    return found
def value(node, text):
    sort = node.sort()
    if sort == z3.IntSort():
        return z3.IntVal(int(text))
    if sort == z3.RealSort():
        return z3.RealVal(text)
    if sort == z3.StringSort():
        return z3.StringVal(text)
    if sort == z3.BoolSort():
        return z3.BoolVal({'true': True, 'false': False}[text.lower()])
    if z3.is_bv_sort(sort):
        return z3.BitVecVal(int(text), sort)
    raise SystemExit('the constant answer has a sort that is not known')
if mode == 'script':
    said = [verdict(), 0]
else:
    node = constant()
    if node is None:
        raise SystemExit('no constraint speaks of a constant answer')
    given = value(node, open('answer.txt').read().strip())
    said = [verdict(node == given), verdict(node != given)]
print(nonce, *said)
"""
_SAT: Final = "1"
_UNSAT: Final = "-1"


def smt_gate(spec: Spec, given: GateInput, place: Place) -> GateOutcome:
    """Raises ``GateFailed`` where z3 is missing."""
    from importlib.util import find_spec
    from os import urandom

    if find_spec("z3") is None:
        raise GateFailed("gate smt: z3 is not installed", hint="pip install 'kvg[smt]'")
    script = place.read(spec.argument)
    mode = "script" if given.answer is None else "answer"
    nonce = urandom(16).hex()
    files = {"script.smt2": script, "answer.txt": given.judged, "main.py": _HARNESS.encode()}
    outcome = place.run(python_argv("main.py"), files, stdin=f"{nonce} {mode}\n".encode())
    reason = outcome.reason or _refusal(
        outcome.stdout.decode("utf-8", "replace").split(), nonce, mode, "any" in spec.options
    )
    record = {"call": call_record(outcome)}
    return make_outcome(spec, reason, record, place.configuration({"script": script}))


def _refusal(said: list[str], nonce: str, mode: str, several: bool) -> str:
    if len(said) != 3 or said[0] != nonce:
        return "the solver did not come to an end"
    if mode == "script":
        return "" if said[1] == _UNSAT else "the script is not unsatisfiable"
    if said[1] != _SAT:
        return "the constraints do not hold for the answer"
    if said[2] == _UNSAT or (several and said[2] == _SAT):
        return ""
    return "the constraints do not single out the answer"
