"""``coq:`` and ``lean:``: formal proofs, checked by the prover itself.

The file of the gate, if it has one, comes first and states the theorem; what is judged goes on
with its proof. What each name of the file rests on is asked of the prover in runs of their own,
over which the proof has no say.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path
from typing import Final

from kvg.errors import GateFailed
from kvg.gates.outcome import GateInput, GateOutcome, make_outcome
from kvg.gates.place import Place, call_record
from kvg.gates.spec import Spec
from kvg.sandbox import Outcome
from kvg.sandbox.enclosure import parts_of, straight
from kvg.sandbox.process import NOT_RUN, not_run

_COQ_THEOREM: Final = re.compile(
    r"\b(?:Theorem|Lemma|Corollary|Proposition|Property|Fact|Remark|Example)\s+([^\W\d][\w']*)"
)
_COQ_REFUSED: Final = re.compile(
    r"\b(Admitted|admit|give_up|Abort|Fail|Reset|Back|Undo|Restart|Load|Redirect|Cd|Drop|Extraction"
    r"|Unset\s+\w+\s+Checking|bypass_check|Type\s+In\s+Type|Nested\s+Proofs"
    r"|Module\s+Type)\b|\bDeclare\s+M|\bModule(?:\s+(?:Import|Export))*\s+[\w']+\s*[(\[]"
)
"""Also modules with parameters and their types: what is proved in one holds only of what it is
given, and is nothing that the prover would list."""
_COQ_STATED: Final = re.compile(
    r"\b(?:Axioms?|Parameters?|Conjectures?|Hypothes[ei]s|Variables?)\s+((?:\([^)]*\)\s*)+|[^:]*:)"
)
_COQ_LISTED: Final = re.compile(r"([^:()]+):")
_COQ_COMMENT: Final = re.compile(r"\(\*|\*\)|\"[^\"]*\"")
_COQ_FILE: Final = "proof"
_COQ_CLOSED: Final = "Closed under the global context"
_COQ_AXIOM: Final = re.compile(r"^([^\s:]+)", re.MULTILINE)
_COQ_NAMES: Final = """Require proof.
Remove Search Blacklist "Private_" "_subproof" "_subterm".
Set Search Output Name Only.
Search _ inside proof.
"""
_COQ_SCRIPT: Final = """set -e
COQC -q -R . "" proof.v >&2
COQC -q -R . "" names.v > names
cat names
echo SEPARATOR
{ echo 'Require proof. Set Printing Width 100000.'
  sed 's/.*/Print Assumptions &./' names; } > assumptions.v
exec COQC -q -R . "" assumptions.v
"""
_LEAN_THEOREM: Final = re.compile(r"^\s*(?:theorem|lemma)\s+([A-Za-z_][\w.']*)", re.MULTILINE)
_LEAN_REFUSED: Final = re.compile(
    r"\b(sorry|sorryAx|admit|axiom|unsafe|native_decide|implemented_by|extern|run_cmd|run_elab"
    r"|run_meta|opaque|macro|macro_rules|elab|elab_rules|syntax|notation|infix[lr]?|prefix|postfix"
    r"|command_elab|term_elab|tactic|initialize|builtin_initialize|set_option|partial)\b"
    r"|#exit|#eval"
)
"""Besides gaps: what changes how the prover reads or says things, or ends it early."""
_LEAN_SCRIPT: Final = """set -e
LEAN -o proof.olean proof.lean >&2
LEAN_PATH=. exec LEAN said.lean
"""
_LEAN_SAID: Final = re.compile(
    r"^'([^'\n]+)' (?:does not depend on any axioms|depends on axioms: \[([^\]]*)\])", re.MULTILINE
)
_LEAN_USUAL: Final = frozenset({"propext", "Classical.choice", "Quot.sound"})


def coq_gate(spec: Spec, given: GateInput, place: Place) -> GateOutcome:
    """``coq:[FILE][?axioms=A,B]``; an axiom that the file itself states is ``proof.NAME``.

    Raises ``GateFailed`` where coqc is missing.
    """
    program = _find("coqc")
    stated = place.read(spec.argument) if spec.argument else b""
    source = stated + b"\n" + given.judged
    before, after = (
        coq_without_comments(part.decode("utf-8", "replace")) for part in (stated, given.judged)
    )
    names = tuple(dict.fromkeys(_COQ_THEOREM.findall(f"{before}\n{after}")))
    refused = _refused(_COQ_REFUSED, f"{before}\n{after}") or ("" if names else "proves no theorem")
    again = set(_COQ_THEOREM.findall(before)) & set(_COQ_THEOREM.findall(after))
    if again and not refused:
        refused = f"states {', '.join(sorted(again))} again"
    if refused:
        return _outcome(spec, place, stated, refused, None)
    separator = os.urandom(16).hex()
    script = _COQ_SCRIPT.replace("COQC", shlex.quote(program)).replace("SEPARATOR", separator)
    outcome = place.run(
        ("/bin/sh", "-c", script),
        {"proof.v": source, "names.v": _COQ_NAMES.encode()},
        readable=_home(program),
    )
    if outcome.status in NOT_RUN:  # the shell says so: of a proof coqc says 1
        raise not_run(program, outcome)
    own = _axioms_stated(before if spec.argument else after)
    allowed = frozenset(name for name in spec.axioms if _is_others(name) or _last(name) in own)
    reason = outcome.reason or _coq_rests_on(outcome, separator, names, allowed)
    return _outcome(spec, place, stated, reason, outcome)


def coq_without_comments(source: str) -> str:
    """``source`` with comments (they nest) and strings blanked."""
    depth, at, kept = 0, 0, list[str]()
    for found in _COQ_COMMENT.finditer(source):
        if depth == 0:
            kept.append(source[at : found.start()])
        token = found[0]
        if token == "(*":
            depth += 1
        elif token == "*)":
            depth = max(0, depth - 1)
        at = found.end()
    if depth == 0:
        kept.append(source[at:])
    return " ".join(kept)


def _coq_rests_on(
    outcome: Outcome, separator: str, stated: tuple[str, ...], allowed: frozenset[str]
) -> str:
    """Why what the file holds rests on too much; every name in it is looked at."""
    listed, _, said = outcome.stdout.decode("utf-8", "replace").partition(f"{separator}\n")
    names = listed.split()
    missing = set(stated) - set(map(_last, names))
    if missing:
        return f"does not hold {', '.join(sorted(missing))} in the end"
    if said.count(_COQ_CLOSED) + said.count("Axioms:") != len(names):
        return "the prover did not say what each name rests on"
    open_parts = said.replace(_COQ_CLOSED, "").replace("Axioms:", "")
    axioms = set(_COQ_AXIOM.findall(open_parts))
    beyond = sorted(name for name in axioms if not _is_listed(name, allowed))
    return f"rests on axioms that are not listed: {', '.join(beyond)}" if beyond else ""


def _is_listed(axiom: str, allowed: frozenset[str]) -> bool:
    """One of a library may go by its last name. One of the file itself, where what is judged may
    have put it, is listed by its whole name: what FILE states under that, nothing states again."""
    return axiom in allowed or (_is_others(axiom) and _last(axiom) in allowed)


def _is_others(axiom: str) -> bool:
    """Whether it is no axiom of the file itself."""
    return not axiom.startswith(f"{_COQ_FILE}.")


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _axioms_stated(source: str) -> frozenset[str]:
    """The names of the axioms that ``source``, without comments, states itself."""
    listed = (found[1] for found in _COQ_STATED.finditer(source))
    return frozenset(
        name for part in listed for names in _COQ_LISTED.findall(part) for name in names.split()
    )


def lean_gate(spec: Spec, given: GateInput, place: Place) -> GateOutcome:
    """``lean:[FILE][?axioms=A,B]``. Raises ``GateFailed`` where lean is missing."""
    program = _find("lean")
    stated = place.read(spec.argument) if spec.argument else b""
    source = (stated + b"\n" + given.judged).decode("utf-8", "replace")
    names = tuple(dict.fromkeys(_LEAN_THEOREM.findall(source)))
    refused = _refused(_LEAN_REFUSED, source) or ("" if names else "proves no theorem")
    if refused:
        return _outcome(spec, place, stated, refused, None)
    asked = "import proof\n" + "".join(f"#print axioms {name}\n" for name in names)
    script = _LEAN_SCRIPT.replace("LEAN ", f"{shlex.quote(program)} ")
    outcome = place.run(
        ("/bin/sh", "-c", script),
        {"proof.lean": source.encode(), "said.lean": asked.encode()},
        readable=_home(program),
    )
    if outcome.status in NOT_RUN:
        raise not_run(program, outcome)
    reason = outcome.reason or _lean_rests_on(outcome, names, _LEAN_USUAL | spec.axioms)
    return _outcome(spec, place, stated, reason, outcome)


def _lean_rests_on(outcome: Outcome, names: tuple[str, ...], allowed: frozenset[str]) -> str:
    """Why a theorem rests on too much; the prover has to have told of each, and of no other."""
    said = _LEAN_SAID.findall(outcome.stdout.decode("utf-8", "replace"))
    if sorted(name for name, _ in said) != sorted(names):
        return "the prover did not say what each theorem rests on"
    used = {word.strip() for _, listed in said for word in listed.split(",") if word.strip()}
    beyond = sorted(used - allowed)
    return f"rests on axioms that are not listed: {', '.join(beyond)}" if beyond else ""


def _refused(pattern: re.Pattern[str], source: str) -> str:
    found = pattern.search(source)
    return f"{found[0]} in the proof" if found else ""


def _find(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        raise GateFailed(f"{program} is not installed", hint="kvg gate list")
    return str(straight(Path(found)))


_ELAN: Final = ("toolchains", "settings.toml")
"""Where elan, which Lean is installed with, keeps what it starts."""


def _home(program: str) -> tuple[Path, ...]:
    """What has to be readable for a prover that is not one of the system's."""
    prefixes = {Path(program).parent.parent, Path(program).resolve().parent.parent}
    return parts_of(prefixes, more=_ELAN)


def _outcome(
    spec: Spec, place: Place, stated: bytes, reason: str, outcome: Outcome | None
) -> GateOutcome:
    files = {"statement": stated} if stated else {}
    record = {"call": None if outcome is None else call_record(outcome)}
    return make_outcome(spec, reason, record, place.configuration(files))
