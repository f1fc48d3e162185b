"""Proofs, constraints and agreement."""

from __future__ import annotations

import shutil
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from kvg.errors import GateFailed, UsageError
from kvg.gates import GateInput, parse_spec, run_gate
from kvg.gates.consistency import canonical_answer
from kvg.gates.place import Place
from tests.gates.conftest import Gate

needs_coq = pytest.mark.skipif(shutil.which("coqc") is None, reason="needs coqc")
needs_lean = pytest.mark.skipif(shutil.which("lean") is None, reason="needs lean")

STATED = "Theorem goal : forall n : nat, n + 0 = n.\n"
PROOF = "Proof. induction n as [|n IH]; simpl; [reflexivity | rewrite IH; reflexivity]. Qed.\n"


@needs_coq
def test_a_proof_of_what_was_stated(gate: Gate) -> None:
    done = gate("coq:goal.v", "text", PROOF, **{"goal.v": STATED})
    assert (done.gate, done.result, done.reason) == ("formal:coq", "PASSED", "")
    assert gate("coq:", "text", STATED + PROOF).is_passed


@needs_coq
@pytest.mark.parametrize(
    ("proof", "named"),
    [
        ("Proof. Admitted.", "Admitted in the proof"),
        ("Proof. admit. Qed.", "admit in the proof"),
        ("Proof. (* Qed. *) Admitted (* . *).", "Admitted in the proof"),
        ("Abort. Theorem goal : True. Proof. exact I. Qed.", "Abort in the proof"),
        ("Proof. intro n. exact (oops n). Qed.", "Error"),
        ("Proof. reflexivity. Qed.", "Error"),
        ("Proof. intro n.", "Error"),
        ("Unset Guard Checking. Proof. auto. Qed.", "Guard Checking in the proof"),
        (PROOF + "Theorem goal : True. Proof. exact I. Qed.", "states goal again"),
    ],
)
def test_a_proof_that_is_none(gate: Gate, proof: str, named: str) -> None:
    done = gate("coq:goal.v", "text", proof, **{"goal.v": STATED})
    assert done.result == "FAILED"
    assert named in done.reason or named.encode() in done.evidence


HIDDEN = {
    "an axiom of another alphabet": "Axiom é : 1 = 2.\nTheorem t : 1 = 2. Proof. exact é. Qed.",
    "a theorem of another alphabet": (
        "Axiom bad : 1 = 2.\nTheorem étrange : 1 = 2. Proof. exact bad. Qed.\nTheorem t : True. "
        "Proof. exact I. Qed."
    ),
    "a definition": "Axiom bad : 1 = 2.\nDefinition d : 1 = 2 := bad.\n"
    "Theorem t : True. Proof. exact I. Qed.",
    "a module": "Module M. Axiom bad : 1 = 2. Example e : 1 = 2. Proof. exact bad. Qed. End M.\n"
    "Theorem t : True. Proof. exact I. Qed.",
    "a name that a search leaves out": "Axiom bad : 1 = 2.\nLemma t_subproof : 1 = 2. Proof. exact "
    "bad. Qed.\nTheorem t : True. Proof. exact I. Qed.",
    "what nothing uses": "Axiom bad : 1 = 2.\nTheorem t : True. Proof. exact I. Qed.",
}


@needs_coq
@pytest.mark.parametrize("name", HIDDEN)
def test_no_axiom_hides(gate: Gate, name: str) -> None:
    done = gate("coq:", "text", HIDDEN[name])
    assert done.result == "FAILED" and "axioms that are not listed" in done.reason, done.reason


@needs_coq
def test_modules_sections_and_types(gate: Gate) -> None:
    source = (
        "Module M. Inductive color := Red | Green. Theorem u : Red <> Green. Proof. discriminate. "
        "Qed. End M.\nSection S. Variable n : nat. Theorem inside : n = n. Proof. reflexivity. "
        "Qed. End S.\nRequire Import Arith.\nTheorem α : 1 + 1 = 2. Proof. reflexivity. Qed.\n"
    )
    done = gate("coq:", "text", source)
    assert done.is_passed, done.reason


@needs_coq
def test_axioms_are_listed_or_refused(gate: Gate) -> None:
    source = (
        "Axiom oops : forall n : nat, n = 0.\nTheorem t : 1 = 0.\nProof. exact (oops 1). Qed.\n"
    )
    assert gate("coq:", source).reason == "rests on axioms that are not listed: proof.oops"
    assert gate("coq:?axioms=proof.oops", source).is_passed
    own = gate("coq:?axioms=oops", source).reason  # who proves may have stated it
    assert own == "rests on axioms that are not listed: proof.oops"
    library = (
        "Require Import Classical. Theorem t : forall P, P \\/ ~ P. Proof. exact classic. Qed."
    )
    assert gate("coq:?axioms=classic", library).is_passed
    assert "not listed" in gate("coq:", library).reason
    assert gate("coq:", "Definition x := 1.").reason == "proves no theorem"


@needs_coq
def test_an_axiom_that_the_file_does_not_state_is_not_covered(gate: Gate) -> None:
    stated = "Theorem foo : forall n : nat, n + 0 = n."
    proof = "Proof. Axiom e : False. destruct e. Qed."
    spec = "coq:s.v?axioms=proof.e,proof.a,proof.b"
    done = gate(spec, "prove", proof, **{"s.v": stated})
    assert done.reason == "rests on axioms that are not listed: proof.e"
    for own in ("Axiom e : False.", "Parameters (a b : nat) (e : False)."):
        done = gate(spec, "prove", "Proof. destruct e. Qed.", **{"s.v": f"{own}\n{stated}"})
        assert done.is_passed, done.reason


@needs_coq
@pytest.mark.parametrize(
    "source",
    [
        "Module Type T. Parameter bad : 1 = 2. End T.\nModule F (X : T).\nTheorem wrong : 1 = 2.\n"
        "Proof. exact X.bad. Qed. End F.\nDefinition wrong := 0.",
        "Module Type T. Axiom f : 1 = 2. Theorem t : 1 = 2. Proof. exact f. Qed. End T.\n"
        "Definition t := I.",
        "Module F [inline] (X : nat). Theorem t : 1 = 1. Proof. reflexivity. Qed. End F.",
        "Declare Module X : T.\nTheorem t : 1 = 2. Proof. exact X.a. Qed.",
        "Definition w := 0. Fail Theorem w : 1 = 2.\nTheorem t : True. Proof. exact I. Qed.",
    ],
)
def test_what_is_proved_of_something_else_is_no_proof(gate: Gate, source: str) -> None:
    assert "in the proof" in gate("coq:", "text", source).reason


LEAN = """#!/bin/sh
case "$*" in *said.lean*) {said} ;; esac
"""


@pytest.mark.parametrize(
    ("source", "said", "why"),
    [
        ("theorem t : 1 + 1 = 2 := rfl", "echo \"'t' does not depend on any axioms\"", ""),
        ("theorem t : 1 = 2 := rfl", "true", "did not say"),
        ("theorem t : 1 = 2 := rfl", "echo \"'t' depends on axioms: [sorryAx]\"", "sorryAx"),
        ("theorem t : 1 = 2 := rfl", "echo \"'u' does not depend on any axioms\"", "did not say"),
        ("theorem t : 1 = 2 := sorryAx _ false", "", "sorryAx in the proof"),
        ("theorem t : 1 = 2 := rfl\n#exit", "", "#exit in the proof"),
        ("macro_rules | `(x) => `(y)\ntheorem t : 1 = 2 := rfl", "", "macro_rules in the proof"),
    ],
)
def test_lean_has_to_tell_of_each_theorem(
    gate: Gate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str, said: str, why: str
) -> None:
    """By a stand-in for the prover: what it is asked, and that its silence is no word."""
    program = tmp_path / "bin" / "lean"
    program.parent.mkdir()
    program.write_text(LEAN.format(said=said or "true"))
    for path in (tmp_path, program.parent, program):
        path.chmod(0o755)
    monkeypatch.setattr("kvg.gates.proof.shutil.which", lambda name: str(program))
    done = gate("lean:", source)
    assert (done.reason == "") if not why else (why in done.reason)


@needs_coq
@pytest.mark.parametrize(
    "answer",
    [
        "Proof. intro n. Axiom classic : False. exfalso. exact classic. Qed.",
        "Proof. Admitted. Module Classical_Prop. Axiom classic : False. End Classical_Prop.",
        "Proof. intro n. Require Import Classical. destruct (classic (n = n + 1)); auto.\n"
        "Axiom proof : False. exfalso. exact proof. Qed.",
    ],
)
@pytest.mark.parametrize("spec", ["coq:goal.v?axioms=classic", "coq:goal.v?axioms=classic,proof"])
def test_what_is_judged_states_no_axiom_of_a_listed_name(
    gate: Gate, place: Place, spec: str, answer: str
) -> None:
    (place.folder / "goal.v").write_text("Theorem goal : forall n : nat, n = n + 1.")
    assert gate(spec, "text", answer).result == "FAILED"


def test_a_prover_that_is_missing(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvg.gates.proof.shutil.which", lambda name: None)
    for kind in ("coq", "lean"):
        with pytest.raises(GateFailed, match="is not installed"):
            gate(f"{kind}:", STATED + PROOF)


@needs_lean
def test_lean(gate: Gate) -> None:
    assert gate("lean:", "theorem t : 1 + 1 = 2 := rfl").is_passed
    assert "sorry" in gate("lean:", "theorem t : 1 + 1 = 2 := by sorry").reason


SMT = "(declare-const answer Int)(assert (= (* 3 answer) 21))"


def test_constraints(gate: Gate) -> None:
    pytest.importorskip("z3", reason="needs z3-solver")
    done = gate("smt:c.smt2", "text", "7", **{"c.smt2": SMT})
    assert (done.gate, done.result, done.reason) == ("formal:smt", "PASSED", "")
    assert "do not hold" in gate("smt:c.smt2", "text", "8").reason
    assert gate("smt:c.smt2", "7").is_passed
    assert "no value of the sort Int" in gate("smt:c.smt2", "text").reason
    loose = {"c.smt2": "(declare-const answer Int)(assert (> answer 3))"}
    assert "single out" in gate("smt:c.smt2", "text", "7", **loose).reason
    assert gate("smt:c.smt2?any", "text", "7").is_passed
    empty = {"c.smt2": "(declare-const answer Int)"}
    assert not gate("smt:c.smt2?any", "text", "7", **empty).is_passed
    always = {"c.smt2": "(declare-const answer Int)(assert (< answer (+ answer 1)))"}
    assert "whatever the answer" in gate("smt:c.smt2?any", "text", "7", **always).reason


def test_a_script_that_is_judged_itself(gate: Gate) -> None:
    """Constraints that do not speak of what is judged prove nothing of it."""
    pytest.importorskip("z3", reason="needs z3-solver")
    valid = "(declare-const x Int)(assert (not (= (+ x 0) x)))"
    done = gate("smt:", valid)
    assert done.is_passed and [part.name for part in done.configuration] == ["sandbox: bubblewrap"]
    assert gate("smt", "text", valid).is_passed
    assert "unsatisfiable" in gate("smt:", SMT).reason
    assert not gate("smt:", "The moon is made of cheese.").is_passed
    for answer in (None, "7"):
        done = gate("smt:c.smt2", "The moon is made of cheese.", answer, **{"c.smt2": valid})
        assert "no constraint speaks of" in done.reason


@pytest.mark.parametrize(
    ("sort", "value", "right", "wrong"),
    [
        ("Int", "10", ("10", " 10\n", "+10", "010"), ("1_0", "１０", "10.0", "ten", "")),
        ("(_ BitVec 8)", "#x02", ("2",), ("258", "-254", "1_0", "٢")),
        ("Real", "(/ 1.0 4.0)", ("1/4", "0.25", "2/8"), ("1/0", "25e-2", "1/4/1", "nan")),
        ("Bool", "true", ("true", "TRUE\n"), ("false", "1", "yes")),
        (
            "String",
            '"a4"',
            ("a4", "a4\n"),
            (" a4", r"a\u{34}", r"a\u0034", "a4\n\n", "a\U0010ffff"),
        ),
        ("String", r'"\u{e9}\u{5c}x"', ("é\\x",), ("é\\\\x", "é")),
    ],
)
def test_an_answer_is_taken_as_it_is_written(
    gate: Gate, sort: str, value: str, right: tuple[str, ...], wrong: tuple[str, ...]
) -> None:
    pytest.importorskip("z3", reason="needs z3-solver")
    script = {"c.smt2": f"(declare-const answer {sort})(assert (= answer {value}))"}
    for answer in right:
        assert gate("smt:c.smt2", "text", answer, **script).is_passed, answer
    for answer in wrong:
        assert not gate("smt:c.smt2", "text", answer, **script).is_passed, answer


def test_88_seeds_agree_or_one_rejects(place: Place) -> None:
    spec, given = parse_spec("consistency"), GateInput(b"text")
    asked: list[int] = []

    def agree(seed: int) -> str:
        asked.append(seed)
        return " 12 " if seed % 2 else "012."

    done = run_gate(spec, given, place, seeded=lambda _: (agree, ()))
    assert (done.gate, done.result) == ("consistency:88", "PASSED")
    assert asked == list(range(88))


@pytest.mark.parametrize(
    ("says", "answer", "named"),
    [
        (lambda seed: "13" if seed == 87 else "12", None, "seed 87 dissents: 87 of 88 seeds"),
        (lambda seed: "13" if seed == 1 else "12", "12", "seed 1 dissents"),
        (lambda seed: "12", "13", "seed 0 dissents: it does not give what is to be deposited"),
        (lambda seed: " ", None, "seed 0 gives no answer"),
    ],
)
def test_one_dissent_rejects(
    place: Place, says: Callable[[int], str], answer: str | None, named: str
) -> None:
    given = GateInput(b"text", None if answer is None else answer.encode())
    done = run_gate(parse_spec("consistency"), given, place, seeded=lambda _: (says, ()))
    assert done.result == "FAILED" and done.reason.startswith(named)


def test_seeds_without_a_model_or_without_choice(place: Place) -> None:
    spec, given = parse_spec("consistency:5?temperature=0.3"), GateInput(b"text")
    assert (spec.n_seeds, spec.temperature, spec.gate) == (5, 0.3, "consistency:5")
    for wrong in ("0", "0.0", "x", "nan", "9"):
        with pytest.raises(UsageError, match="not a temperature"):
            parse_spec(f"consistency?temperature={wrong}")
    with pytest.raises(GateFailed, match="needs a model"):
        run_gate(spec, given, place)


def test_what_counts_of_an_answer() -> None:
    assert canonical_answer("a  b\n") == canonical_answer(" a b")
    assert canonical_answer("1.50") == canonical_answer("1.50 ") != canonical_answer("1.5")
    assert canonical_answer("A") != canonical_answer("a")
    for literal, words in (("5", "int 5"), ('"Paris"', "str Paris"), ("5", "int  5")):
        assert canonical_answer(literal) != canonical_answer(words)
    for one, other in (('["1.5", 2.5]', '[1.5, "2.5"]'), ("[1/2, 50%]", "[50%, 1/2]")):
        assert canonical_answer(one) != canonical_answer(other)
    assert canonical_answer("[1,  [2]]") == canonical_answer("[1, [2]]")
    assert canonical_answer(" ") == ""
    assert canonical_answer('"a b"') != canonical_answer("a b")


@pytest.mark.parametrize(
    ("spec", "module"), [("smt:c.smt2", "z3"), ("smt:", "z3"), ("pytest:test_c.py", "pytest")]
)
def test_what_is_there_outside_alone_is_no_verdict(
    place: Place, monkeypatch: pytest.MonkeyPatch, spec: str, module: str
) -> None:
    """A module that a variable or the user's own folder brings is not seen inside."""
    (place.folder / "c.smt2").write_text("(declare-const answer Int)(assert (= answer 3))")
    (place.folder / "test_c.py").write_text("def test():\n    assert open('answer.txt').read()\n")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    bare = place.folder / "bare"
    venv.create(bare, symlinks=True)
    monkeypatch.setattr(sys, "executable", str(bare / "bin" / "python3"))
    monkeypatch.setattr(sys, "prefix", str(bare))
    with pytest.raises(GateFailed, match=f"needs {module}, which this Python does not have inside"):
        run_gate(parse_spec(spec), GateInput(b"text", b"3"), place)


@needs_coq
def test_a_prover_that_cannot_be_run_inside_is_no_verdict(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrapper = place.folder / "bin" / "coqc"
    wrapper.parent.mkdir()
    wrapper.write_text("#!/nowhere/sh\n")
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{wrapper.parent}:/usr/bin:/bin")
    with pytest.raises(GateFailed, match=f"{wrapper}: can't be run in the sandbox"):
        run_gate(parse_spec("coq:"), GateInput(b"text", (STATED + PROOF).encode()), place)
