"""``kvg solve --model``: on a miss the model tries; what it writes goes through the gates.

With a checker it writes the expression that a program of the family returns, over named slots, so
that no value of this instance can get into it; the program is proved as any method is. Otherwise
its answer is judged by the gates that were asked for. At most one block is grafted before it
tries, an artifact of the family's declared parent.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kvg.digest import Digest, sha256, short
from kvg.errors import GateFailed, Incompatible, KvgError, NotFound, Untrusted, UsageError
from kvg.flow.choice import UNFIT, PassedOver
from kvg.flow.freshness import check_fresh, contract_for
from kvg.flow.method import (
    condition_of,
    ranges_of,
    read_kept,
    store_method,
    warn_of_layout,
)
from kvg.flow.records.flywheel import AnswerFound
from kvg.flow.sandboxed import caller_of
from kvg.flow.settings import attesting_key
from kvg.flow.solve import HIT, run_checked, run_program, solve
from kvg.frozen import frozen
from kvg.objects.contract import Contract
from kvg.objects.statement import PASSED, Resource, sandbox_resource
from kvg.problem.family import Problem, parse_problem
from kvg.problem.method import PROGRAM_GATE
from kvg.problem.ranges import outside_of

if TYPE_CHECKING:
    from kvg.flow.asking import Asked
    from kvg.flow.proving import Proof
    from kvg.flow.registered import RegisteredModel
    from kvg.flow.settings import Settings
    from kvg.gates import GateInput, GateOutcome
    from kvg.gates.calls import Caller
    from kvg.gates.run import Seeded
    from kvg.model.folder import ModelFiles
    from kvg.model.session import Session
    from kvg.model.text import Message, Tokenizer
    from kvg.objects.verified import Verified
    from kvg.problem.method import Method
    from kvg.store import Store

MAX_TOKENS = 256
_PLACE = re.compile(r"\{\{|\}\}|\{(\d+):[^{}]*\}")
_ASKED_PROGRAM = "Write a Python function for this problem.\nProblem: {problem}"


@frozen
class SolveRequest:
    """Solve ``text``; on a miss have ``model`` try (None: the default one).

    ``checker`` and ``slots`` are files as for a method: then a program is asked for. ``gates`` are
    specs that the answer has to pass. ``learn`` deposits what passed. ``parent`` is the ref or
    digest of an exemplar, or a family's; None: what the newest artifact of this family declares.
    ``draft`` has a stored trace confirmed by a forward pass. ``tries`` is whether the model tries.
    ``require`` are gates without which no answer is given, a stored one or the model's.
    """

    text: str
    constraint: str | None = None
    names: tuple[str, ...] = ()
    tries: bool = False
    model: str | None = None
    learn: bool = False
    checker: Path | None = None
    slots: Path | None = None
    gates: tuple[str, ...] = ()
    parent: str | None = None
    max_tokens: int = MAX_TOKENS
    draft: bool = False
    key: str | None = None
    no_sandbox: bool = False
    valid_until: int | None = None
    depends: tuple[Path, ...] = ()
    schema_version: str | None = None
    require: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise UsageError(f"--max-tokens {self.max_tokens}: less than 1")
        if self.learn and not self.tries:
            raise UsageError("--learn: no model to learn from", hint="kvg solve TEXT --model M")
        if self.learn and not self.gates and self.checker is None:
            raise UsageError(
                "--learn: nothing says what is right",
                hint="give --gate SPEC for the answer, or --checker FILE for a program",
            )


class Opened(NamedTuple):
    """A model that is loaded, and what its files were then."""

    model: RegisteredModel
    files: ModelFiles
    session: Session
    tokenizer: Tokenizer


class _Proved(NamedTuple):
    """A program that the model wrote, and its proof."""

    method: Method
    sources: tuple[bytes, bytes]
    proof: Proof
    caller: Caller


@dataclass(frozen=True, slots=True)
class _Tried:
    """What the model gave: the answer, what it is made of, and what it passed."""

    answer: str
    asked: Asked
    generated: tuple[int, ...]
    outcomes: tuple[GateOutcome, ...]
    enclosure: str | None = None
    """Where a program that it wrote ran and its checker said True; None for an answer itself."""
    proved: _Proved | None = None


def solve_or_try(
    store: Store, settings: Settings, request: SolveRequest, *, opened: Opened | None = None
) -> AnswerFound:
    """As ``solve``; on a miss the model tries, when it is to: the one that is ``opened``, or else
    is opened for it.

    Raises ``GateFailed`` when what it gives does not pass: then nothing but evidence is left.
    """
    found = solve(
        store,
        settings,
        request.text,
        constraint=request.constraint,
        names=request.names,
        require=request.require,
        no_sandbox=request.no_sandbox,
    )
    if request.draft:
        return _drafted(store, settings, request, found)
    if found.status == HIT or not request.tries:
        return found
    return _try(store, settings, request, found, opened)


def _try(
    store: Store,
    settings: Settings,
    request: SolveRequest,
    missed: AnswerFound,
    opened: Opened | None,
) -> AnswerFound:
    began, started = time.perf_counter(), time.time()
    _check_required(request)
    problem = parse_problem(request.text, request.constraint, request.names)
    contract = contract_for(
        store, settings, request.valid_until, request.depends, request.schema_version
    )
    unmet = _unmet(store, settings, request, problem)
    if unmet is not None:
        return replace(missed, reason=unmet)
    exemplar = _exemplar(store, settings, problem.family.digest, request.parent)
    opened = opened or _open(store, settings, request.model)
    if exemplar is not None and exemplar.manifest.model != opened.files.identity:
        raise Incompatible(
            f"exemplar {short(exemplar.digest)}: of another model than {opened.model.name}",
            hint="deposit it with this model",
        )
    try_it = _try_program if request.checker is not None else _try_answer
    tried = try_it(store, settings, request, problem, opened, exemplar)
    found = replace(
        missed,
        answer=tried.answer,
        tokens_generated=len(tried.generated),
        run_ms=(time.perf_counter() - began) * 1e3,
        sandbox=tried.enclosure,
        checked=tried.enclosure is not None,
        exemplar=exemplar.digest if exemplar else None,
        gates=tuple(item.gate for item in tried.outcomes),
    )
    if not found.gates:
        settings.report.notice("nothing checked this answer: --gate SPEC or --checker FILE does")
    if not request.learn or settings.dry_run:
        return found
    return _learn(store, settings, request, problem, opened, tried, found, contract, started)


def _check_required(request: SolveRequest) -> None:
    """Raise ``Untrusted`` unless what the model gives is to pass all that is required."""
    if not request.require:
        return
    from kvg.gates import parse_spec
    from kvg.verify.judgement import spelled_out, unmet

    asked = [parse_spec(spec).gate for spec in request.gates]
    asked += [PROGRAM_GATE] if request.checker is not None else []
    missing = unmet(spelled_out(request.require), asked)
    if missing:
        raise Untrusted(
            f"nothing stored, and required gates are not asked for: {', '.join(missing)}",
            hint="--gate SPEC; kvg gate list",
        )


def _unmet(store: Store, settings: Settings, request: SolveRequest, problem: Problem) -> str | None:
    """Why the values of ``problem`` do not meet its constraint; None where they do."""
    condition = condition_of(request.constraint, request.names, len(problem.slots))
    if condition is None:
        return None
    from kvg.gates.calls import slot_values, unmet

    caller = caller_of(settings, store, no_sandbox=request.no_sandbox)
    (called,) = caller.call(condition, "holds", [slot_values(problem.slots)])
    return unmet(called)


def _learn(
    store: Store,
    settings: Settings,
    request: SolveRequest,
    problem: Problem,
    opened: Opened,
    tried: _Tried,
    found: AnswerFound,
    contract: Contract,
    started: float,
) -> AnswerFound:
    from kvg.flow.trace import Learned, deposit_trace

    key = attesting_key(settings, store, request.key)
    method = None
    if tried.proved is not None:
        how = tried.proved
        stored = store_method(
            store,
            problem,
            how.method,
            how.sources,
            how.proof,
            how.caller,
            contract,
            key,
            [outcome for outcome in tried.outcomes if outcome.gate != PROGRAM_GATE],
        )
        method = stored.method
    learned = Learned(
        text=request.text,
        answer=tried.answer,
        family=problem.family,
        asked=tried.asked,
        generated=tried.generated,
        outcomes=tried.outcomes,
        exemplar=found.exemplar,
        method=method,
        started=started,
    )
    digest = deposit_trace(store, settings, opened.model, opened.files, learned, contract, key)
    return replace(found, method=method, artifact=digest, learned=True)


def _try_answer(
    store: Store,
    settings: Settings,
    request: SolveRequest,
    problem: Problem,
    opened: Opened,
    exemplar: Verified | None,
) -> _Tried:
    """The model's own answer, which has to pass the gates that were asked for."""
    from kvg.flow.asking import ask_messages, seeds_of
    from kvg.gates import GateInput

    messages, _ = _question(request, problem, is_program=False)
    asked = ask_messages(opened.session, opened.tokenizer, messages, exemplar=exemplar)
    text, generated = asked.answer(request.max_tokens)
    answer = text.strip()
    given = GateInput(request.text.encode(), answer.encode())
    begin = seeds_of(asked, answer)
    outcomes = _passed(store, settings, request, problem, given, begin)
    return _Tried(answer, asked, generated, outcomes)


def _try_program(
    store: Store,
    settings: Settings,
    request: SolveRequest,
    problem: Problem,
    opened: Opened,
    exemplar: Verified | None,
) -> _Tried:
    """The expression that the model writes for the family, proved, and run on this instance."""
    from kvg.flow.asking import ask_messages, seeds_of
    from kvg.flow.proving import check_provable
    from kvg.flow.rejected import prove_or_reject
    from kvg.gates import GateInput
    from kvg.gates.outcome import GateOutcome
    from kvg.problem.method import Method

    warn_of_layout(settings, request.text)
    checker = read_kept(settings, request.checker or Path(), no_sandbox=request.no_sandbox)
    ranges = ranges_of(settings, request.slots, problem)
    check_provable(ranges)
    outside = outside_of(ranges, problem.slots)
    if outside is not None:
        raise UsageError(outside, hint="a range that holds the values of this problem")
    messages, begun = _question(request, problem, is_program=True)
    asked = ask_messages(opened.session, opened.tokenizer, messages, begun=begun, exemplar=exemplar)
    text, generated = asked.answer(request.max_tokens, stop=("\n",))
    program = f"{program_head(problem, request.names)}{text}\n".encode()
    caller = caller_of(settings, store, no_sandbox=request.no_sandbox)
    condition = condition_of(request.constraint, request.names, len(ranges))
    settings.report.notice(f"{opened.model.name} wrote: return{text}")
    sources = (program, checker)
    proof = prove_or_reject(
        store, settings, caller, problem, ranges, sources, condition, request.key
    )
    what = "the model's program"
    answer = run_checked(caller, *sources, problem.slots, condition=condition, what=what)
    method = Method(problem.family.digest, sha256(program), sha256(checker), ranges)
    configuration = (
        Resource("program", method.program),
        Resource("checker", method.checker),
        sandbox_resource(caller.enclosure.name),
    )
    proved = GateOutcome(PROGRAM_GATE, PASSED, "", proof.evidence, configuration)
    given = GateInput(request.text.encode(), answer.encode())

    def read(text: str) -> str:
        """What another program gives; nothing when it fails."""
        other = f"{program_head(problem, request.names)}{text.partition(chr(10))[0]}\n"
        try:
            return run_program(caller, other.encode(), problem.slots, what="a seed's program")
        except GateFailed:
            return ""

    begin = seeds_of(asked, answer, read=read)
    passed = _passed(store, settings, request, problem, given, begin, proved.about(given))
    how = _Proved(method, sources, proof, caller)
    return _Tried(answer, asked, generated, passed, caller.enclosure.name, how)


def slot_names(problem: Problem, names: tuple[str, ...]) -> tuple[str, ...]:
    """What the slots are called: as declared, else ``s0``, ``s1``, …"""
    rest = range(len(names), len(problem.slots))
    return (*names[: len(problem.slots)], *(f"s{number}" for number in rest))


def named_text(problem: Problem, names: tuple[str, ...]) -> str:
    """The wording of the family, with names in the places of its slots."""
    known = slot_names(problem, names)

    def name(found: re.Match[str]) -> str:
        return known[int(found[1])] if found[1] else found[0][0]

    return _PLACE.sub(name, problem.family.text)


def _question(
    request: SolveRequest, problem: Problem, *, is_program: bool
) -> tuple[tuple[Message, ...], str]:
    """What the model is asked, and what is begun of its answer: the head of a program, if one is
    asked for."""
    if not is_program:
        return ({"role": "user", "content": request.text},), ""
    text = _ASKED_PROGRAM.format(problem=named_text(problem, request.names))
    head = program_head(problem, request.names)
    return ({"role": "user", "content": text},), f"```python\n{head}"


def program_head(problem: Problem, names: tuple[str, ...]) -> str:
    """The beginning of a program: the model writes the expression that it returns."""
    return f"def solve({', '.join(slot_names(problem, names))}):\n    return"


def _passed(
    store: Store,
    settings: Settings,
    request: SolveRequest,
    problem: Problem,
    given: GateInput,
    begin: Seeded,
    *proved: GateOutcome,
) -> tuple[GateOutcome, ...]:
    """The outcomes of all gates. Raises ``GateFailed``; the evidence is kept."""
    from kvg.flow.gated import check_policy, run_gates
    from kvg.flow.rejected import check_outcomes
    from kvg.gates import parse_spec
    from kvg.verify.judgement import ALWAYS
    from kvg.verify.traced import trace_ref

    if not request.gates and not proved:
        return ()
    specs = [parse_spec(spec) for spec in request.gates]
    ref = trace_ref(problem.family.digest, request.text)
    if request.learn:  # a method proves of itself nothing but its proof
        own = [outcome.gate for outcome in proved] or ALWAYS
        check_policy(store, [*own, *(spec.gate for spec in specs)], what=ref)
    outcomes = run_gates(store, settings, specs, given, begin, no_sandbox=request.no_sandbox)
    judged = (sha256(given.text), sha256(given.judged))
    check_outcomes(store, settings, ref, (*proved, *outcomes), judged, request.key)
    return (*proved, *outcomes)


def _exemplar(
    store: Store, settings: Settings, family: Digest, parent: str | None
) -> Verified | None:
    """The block to graft: the parent that is named, or that this family's newest artifact has. Of
    a family that is named, the newest artifact that counts and is fresh.

    Raises ``NotFound``, also for a stale one, ``Untrusted``, ``Corrupt``.
    """
    from kvg.verify import verify_artifact

    declared = _declared(store, family) if parent is None else None
    first: KvgError | None = None
    for digest in (declared,) if parent is None else _named(store, parent):
        if digest is None:
            return None
        try:
            verified = verify_artifact(store, digest, ref=parent)
            check_fresh(store, settings.cwd, verified.provenance, what=parent or short(digest))
        except UNFIT as error:
            first = first or error
        else:
            return verified
    raise first or NotFound(f"{parent}: nothing to graft")


def _declared(store: Store, family: Digest) -> Digest | None:
    """What the newest artifact of ``family`` that counts has as its parent."""
    from kvg.verify import verify_artifact

    for member in reversed(store.family_members(family)):
        if member.is_method:
            continue
        try:
            said = verify_artifact(store, member.digest).provenance
        except UNFIT:
            continue
        if said is not None and said.parent is not None:
            return said.parent
    return None


def _named(store: Store, parent: str) -> tuple[Digest, ...]:
    """A ref or digest of an artifact, or a family's: then its artifacts, the newest first."""
    from kvg.flow.family import find_family

    try:
        members = store.family_members(find_family(store, parent))
    except (NotFound, UsageError):
        return (store.resolve(parent).digest,)
    artifacts = dict.fromkeys(item.digest for item in reversed(members) if not item.is_method)
    if not artifacts:
        raise NotFound(f"family {parent}: no artifact to graft", hint="kvg deposit … --family FILE")
    return tuple(artifacts)


def _open(store: Store, settings: Settings, name: str | None) -> Opened:
    """Raises ``NotFound``, ``Incompatible``."""
    from kvg.flow.registered import (
        check_torch,
        identified,
        open_registered,
        registered_model,
        tokenizer_of,
    )

    check_torch()
    model = registered_model(store, name)
    files = identified(store, settings, model)
    session = open_registered(settings, model, files, reference="invariant")
    return Opened(model, files, session, tokenizer_of(settings, model, files))


def _drafted(
    store: Store, settings: Settings, request: SolveRequest, found: AnswerFound
) -> AnswerFound:
    """Confirm the trace of this text by one forward pass. Raises ``NotFound`` without one."""
    from kvg.flow.asking import question_ids
    from kvg.flow.trace import confirm, find_trace
    from kvg.verify import verify_artifact

    problem = parse_problem(request.text, request.constraint, request.names)
    passed_over = PassedOver()
    trace = find_trace(
        store,
        settings,
        problem.family.digest,
        request.text,
        passed_over,
        require=request.require,
    )
    if trace is None:
        raise NotFound(
            passed_over.told("no stored trace of this very text"),
            hint="kvg solve TEXT --model M --learn",
        )
    opened = _open(store, settings, request.model)
    exemplar = None if trace.parent is None else verify_artifact(store, trace.parent)
    is_program = PROGRAM_GATE in trace.gates
    messages, begun = _question(request, problem, is_program=is_program)
    ids = question_ids(opened.tokenizer, messages, begun=begun, after=exemplar is not None)
    draft = confirm(opened.session, trace.verified, ids, exemplar)
    if found.method is not None and found.answer not in (None, trace.answer):
        settings.report.warning(
            f"method {short(found.method)} answers {found.answer!r:.80}, and the trace does not"
        )
    return replace(
        found,
        status=HIT,
        method=None,
        checked=False,
        sandbox=None,
        run_ms=None,
        answer=trace.answer,
        artifact=trace.verified.digest,
        exemplar=trace.parent,
        gates=trace.gates,
        attestation=trace.attestation,
        draft=draft,
        reason=None,
    )
