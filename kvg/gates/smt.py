"""``smt:``: constraints for z3, in SMT-LIB 2.

The file declares a constant ``answer``; the constraints have to be satisfied by what is judged, and
by nothing else unless ``?any``. Without a file what is judged is the script itself, and has to be
unsatisfiable.
"""

from __future__ import annotations

from typing import Final

from kvg.errors import GateFailed
from kvg.gates.outcome import GateInput, GateOutcome, make_outcome
from kvg.gates.place import Place, call_record
from kvg.gates.python import IMPORTED, check_imported
from kvg.gates.spec import Spec
from kvg.sandbox.process import python_argv

_HARNESS: Final = (
    """
import re, sys
nonce, mode = sys.stdin.readline().split()
"""
    + IMPORTED.format("z3")
    + """
formulas = list(z3.parse_smt2_file('script.smt2'))
def verdict(*constraints):
    solver = z3.Solver()
    solver.add(*constraints)
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
def is_one(form, text):
    return re.fullmatch(form, text, re.ASCII) is not None
def string(char):
    if ord(char) > 0x2ffff:
        raise SystemExit('the answer has a character that the solver does not know')
    return char if ' ' <= char <= '~' and char != chr(92) else chr(92) + 'u{%x}' % ord(char)
def value(node, text):
    sort = node.sort()
    if sort == z3.StringSort():
        return z3.StringVal(''.join(map(string, text.removesuffix(chr(10)))))
    text = text.strip()
    if sort == z3.IntSort() and is_one('[+-]?[0-9]+', text):
        return z3.IntVal(text.removeprefix('+'))
    if sort == z3.RealSort() and is_one('[+-]?[0-9]+([.][0-9]+|/0*[1-9][0-9]*)?', text):
        return z3.RealVal(text.removeprefix('+'))
    if sort == z3.BoolSort() and text.lower() in ('true', 'false'):
        return z3.BoolVal(text.lower() == 'true')
    if z3.is_bv_sort(sort) and is_one('[0-9]{1,4000}', text) and int(text) < 2 ** sort.size():
        return z3.BitVecVal(int(text), sort)
    raise SystemExit('the answer is no value of the sort ' + str(sort))
if mode == 'script':
    said = [verdict(*formulas)]
else:
    node = constant()
    if node is None:
        raise SystemExit('no constraint speaks of a constant answer')
    given = value(node, open('answer.txt', encoding='utf-8', newline='').read())
    said = [verdict(*formulas, node == given), verdict(*formulas, node != given),
            verdict(z3.Not(z3.And(formulas)))]
print(nonce, *said)
"""
)
_SAT: Final = "1"
_UNSAT: Final = "-1"


def smt_gate(spec: Spec, given: GateInput, place: Place) -> GateOutcome:
    """Raises ``GateFailed`` where z3 is missing."""
    from importlib.util import find_spec
    from os import urandom

    if find_spec("z3") is None:
        raise GateFailed("gate smt: z3 is not installed", hint="pip install 'kvg[smt]'")
    script = place.read(spec.argument) if spec.argument else given.judged
    mode = "answer" if spec.argument else "script"
    nonce = urandom(16).hex()
    files = {"script.smt2": script, "answer.txt": given.judged, "main.py": _HARNESS.encode()}
    outcome = place.run(python_argv("main.py"), files, stdin=f"{nonce} {mode}\n".encode())
    check_imported(spec, outcome, nonce)
    reason = outcome.reason or _refusal(
        outcome.stdout.decode("utf-8", "replace").split(), nonce, mode, "any" in spec.options
    )
    record = {"call": call_record(outcome)}
    used = {"script": script} if spec.argument else {}
    return make_outcome(spec, reason, record, place.configuration(used))


def _refusal(said: list[str], nonce: str, mode: str, several: bool) -> str:
    if len(said) != (2 if mode == "script" else 4) or said[0] != nonce:
        return "the solver did not come to an end"
    if mode == "script":
        return "" if said[1] == _UNSAT else "the script is not unsatisfiable"
    if said[1] != _SAT:
        return "the constraints do not hold for the answer"
    if said[3] != _SAT:
        return "the constraints hold whatever the answer is"
    if said[2] == _UNSAT or (several and said[2] == _SAT):
        return ""
    return "the constraints do not single out the answer"
