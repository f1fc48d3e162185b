"""``kvg method``: parametric programs that answer a family, proved before they are stored."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kvg import durable
from kvg.digest import Digest, sha256
from kvg.errors import Corrupt, Incompatible, Untrusted, UsageError
from kvg.flow.family import find_family, stored_family
from kvg.flow.freshness import contract_for, stale_reason
from kvg.flow.records.flywheel import MethodEntry, StaleMethod
from kvg.flow.sandboxed import caller_of
from kvg.flow.settings import attesting_key
from kvg.frozen import frozen
from kvg.objects.contract import Contract
from kvg.problem.family import Problem, parse_problem
from kvg.problem.method import MAX_PROGRAM_BYTES, METHOD_GATE, PROGRAM_GATE, Method
from kvg.problem.ranges import SlotRange, outside_of, range_value, read_ranges
from kvg.problem.text import has_code, indented_line, unread_line

if TYPE_CHECKING:
    from kvg.flow.proving import Proof
    from kvg.flow.settings import Settings
    from kvg.gates import GateOutcome
    from kvg.gates.calls import Caller
    from kvg.problem.literals import Literal
    from kvg.signing.keys import PrivateKey
    from kvg.store import Store
    from kvg.verify.method import VerifiedMethod

_POLICY_HINT = (
    f"a method's proof is a {PROGRAM_GATE}; kvg solve --learn --gate SPEC attests more of one"
)


@frozen
class MethodRequest:
    """A method for the family of ``text`` (and ``constraint``, in which ``names`` name slots)."""

    text: str
    program: Path
    checker: Path
    slots: Path | None = None
    constraint: str | None = None
    names: tuple[str, ...] = ()
    key: str | None = None
    no_sandbox: bool = False
    valid_until: int | None = None
    depends: tuple[Path, ...] = ()
    schema_version: str | None = None


def add_method(store: Store, settings: Settings, request: MethodRequest) -> MethodEntry:
    """Prove the method, then sign and store it under its family.

    Raises ``GateFailed`` naming the rule that it breaks; then nothing but evidence is left. Also,
    and before anything runs, when the store requires what such a proof is not.
    """
    from kvg.flow.gated import check_policy
    from kvg.flow.rejected import method_of, prove_or_reject

    program, checker = (
        read_kept(settings, path, no_sandbox=request.no_sandbox)
        for path in (request.program, request.checker)
    )
    problem = parse_problem(request.text, request.constraint, request.names)
    warn_of_layout(settings, request.text)
    check_policy(store, (METHOD_GATE,), what=method_of(problem), hint=_POLICY_HINT)
    ranges = ranges_of(settings, request.slots, problem)
    contract = contract_for(
        store, settings, request.valid_until, request.depends, request.schema_version
    )
    outside = outside_of(ranges, problem.slots)
    if outside is not None:
        settings.report.notice(f"the text itself is none that it will answer: {outside}")
    caller = caller_of(settings, store, no_sandbox=request.no_sandbox)
    condition = condition_of(request.constraint, request.names, len(ranges))
    sources = (program, checker)
    key = None if settings.dry_run else attesting_key(settings, store, request.key)
    proof = prove_or_reject(
        store, settings, caller, problem, ranges, sources, condition, request.key
    )
    method = Method(problem.family.digest, sha256(program), sha256(checker), ranges)
    if key is None:
        return _entry(method, problem.family.text, proof.instances, sandbox=caller.enclosure.name)
    return store_method(store, problem, method, sources, proof, caller, contract, key)


def show_method(store: Store, target: str, cwd: Path = Path()) -> MethodEntry:
    """The method that ``target``, of a method or a family, means; verified. Files that it depends
    on are looked for from ``cwd``, too.

    Raises ``NotFound``, ``Untrusted``, ``Corrupt``.
    """
    found = verified_method(store, target)
    return _entry(
        found.method,
        stored_family(store, found.method.family).text,
        None,
        attestation=found.attestation,
        log_index=_index_of(store, found),
        signers=found.signers,
        stale=stale_reason(store, cwd, found.contract),
        sandbox=found.proof.sandbox,
    )


def stale_methods(store: Store, cwd: Path) -> Iterator[StaleMethod]:
    """Every method that counts but is stale, by its position in the log."""
    from kvg.verify.method import verify_method

    entries = []
    for digest in store.methods():
        try:
            found = verify_method(store, digest)
            text = stored_family(store, found.method.family).text
        except (Corrupt, Incompatible, Untrusted):
            continue
        stale = stale_reason(store, cwd, found.contract)
        if stale is not None:
            index = _index_of(store, found)
            family = found.method.family
            entries.append(StaleMethod(digest, family, text, found.attestation, index, stale))
    yield from sorted(entries, key=lambda entry: entry.log_index)


def _index_of(store: Store, found: VerifiedMethod) -> int:
    """The position in the log of the statement that a method was proved."""
    listed = store.attestations(found.digest)
    return next(item.index for item in listed if item.envelope == found.attestation)


def verified_method(
    store: Store, target: str, *, cwd: Path = Path(), slots: Sequence[Literal] | None = None
) -> VerifiedMethod:
    """The method of that digest; of a family's, the newest that counts, and where ``slots`` are
    given the newest of those that answers for them, if one does."""
    from kvg.flow.choice import PassedOver, choose_method
    from kvg.verify.method import newest_method, verify_method

    methods = sorted(store.methods())
    wanted = target.removeprefix("sha256:")
    found = [item for item in methods if item.startswith(f"sha256:{wanted}")]
    if len(wanted) >= 6 and len(found) == 1:
        return verify_method(store, found[0])
    family, found_for = find_family(store, target), None
    if slots is not None:
        found_for = choose_method(store, cwd, family, slots, verify_method, PassedOver())
    return found_for or newest_method(store, family, verify_method)


def warn_of_layout(settings: Settings, text: str) -> None:
    """Say what of ``text`` does not count in its family although it seems to, the indentation of a
    line outside of code, the names and comments of code; and which code counts as it is spelt."""
    if has_code(text):
        settings.report.notice(
            "what code in the problem calls its names, its comments and its lines do not count: "
            "where the wording asks for them, all answers are of one problem"
        )
    unread = unread_line(text)
    if unread is not None:
        settings.report.warning(
            f"the block that opens in line {unread} of the problem is nothing that Python "
            f"{sys.version_info.major}.{sys.version_info.minor} can read: it counts letter by "
            "letter, and a Python that reads it gives the problem another family"
        )
    line = indented_line(text)
    if line is not None:
        settings.report.warning(
            f"line {line} of the problem begins with white space, which does not count outside of "
            "a block that opens with ```python: the same words with other indentation are the "
            "same problem"
        )


def ranges_of(settings: Settings, slots: Path | None, problem: Problem) -> tuple[SlotRange, ...]:
    """The ranges in the file ``slots``, closed: a side that is open there, or all without a file,
    is at the usual limit or at the problem's own value, and a notice says so.

    Raises ``UsageError``, ``NotFound``.
    """
    types = problem.family.types
    given = tuple(SlotRange(kind) for kind in types)
    if slots is not None:
        given = read_ranges(read_program(settings, slots), types, what=str(slots))
    ranges = []
    for number, (slot, own) in enumerate(zip(given, problem.slots, strict=True)):
        closed = closed_range(slot, own, number)
        if slot.is_open:
            settings.report.notice(
                f"slot {slot.name or f's{number}'} ({slot.type}): proved and answered for "
                f"{closed.words()}; give --slots for a wider one"
            )
        ranges.append(closed)
    return tuple(ranges)


def closed_range(slot: SlotRange, own: Literal, number: int) -> SlotRange:
    """The range of slot ``number`` with no side open. Raises ``UsageError`` naming the slot."""
    try:
        return slot.closed((own,))
    except UsageError as error:
        raise UsageError(f"slot {number}: {error.message}", hint=error.hint) from None


def condition_of(constraint: str | None, names: Sequence[str], n_slots: int) -> bytes | None:
    """The program of a constraint, where there is one."""
    return None if constraint is None else constraint_program(constraint, names, n_slots)


def constraint_program(constraint: str, names: Sequence[str], n_slots: int) -> bytes:
    """A program whose ``holds(s0, s1, …)`` says whether values meet ``constraint``.

    It has the functions of ``math`` and, before those, Python's own. Nothing else in it goes by a
    name that a slot could have.
    """
    slots = ", ".join(f"s{n}" for n in range(n_slots))
    given = "; ".join(f"{name} = s{n}" for n, name in enumerate(names)) or "pass"
    return (
        "from math import *\nfrom builtins import *\n"
        f"def holds({slots}):\n    {given}\n    return not not (\n{constraint.strip()}\n)\n"
    ).encode()


def store_method(
    store: Store,
    problem: Problem,
    method: Method,
    sources: tuple[bytes, bytes],
    proof: Proof,
    caller: Caller,
    contract: Contract,
    key: PrivateKey,
    outcomes: Sequence[GateOutcome] = (),
) -> MethodEntry:
    """Store a proved method with its ``sources``, program and checker.

    Everything that the statements name first, then the statements, then the log. ``outcomes`` are
    of what else its answer passed.
    """
    from kvg.flow.gated import attest_gates
    from kvg.objects.statement import (
        PASSED,
        Resource,
        TestResult,
        encode_test_result,
        sandbox_resource,
    )
    from kvg.signing.dsse import sign_envelope

    said = TestResult(
        PASSED,
        METHOD_GATE,
        configuration=(
            Resource("family", method.family),
            Resource("program", method.program),
            Resource("checker", method.checker),
            sandbox_resource(caller.enclosure.name),
            *contract.resources(),
        ),
        evidence=(Resource("proof", sha256(proof.evidence)),),
    )
    with store.pending() as pending:
        for data in (*sources, problem.family.document, proof.evidence):
            pending.put(data)
        new = pending.put(method.document).new
        payload = encode_test_result(method.digest, said)
        envelope = pending.put(sign_envelope(payload, [key])).digest
        more = attest_gates(pending, outcomes, method.digest, key)
        published = store.record(method.digest, [envelope, *more])
    return _entry(
        method,
        problem.family.text,
        proof.instances,
        new=new,
        attestation=envelope,
        log_index=published.index_of(envelope),
        signers=(key.public.keyid,),
        sandbox=caller.enclosure.name,
    )


def _entry(
    method: Method,
    text: str,
    instances: int | None,
    *,
    new: bool = False,
    attestation: Digest | None = None,
    log_index: int | None = None,
    signers: tuple[str, ...] = (),
    stale: str | None = None,
    sandbox: str | None = None,
) -> MethodEntry:
    return MethodEntry(
        method=method.digest,
        family=method.family,
        text=text,
        program=method.program,
        checker=method.checker,
        slots=_slots(method),
        instances=instances,
        new=new,
        attestation=attestation,
        log_index=log_index,
        signers=signers,
        stale=stale,
        sandbox=sandbox,
    )


def _slots(method: Method) -> tuple[Mapping[str, object], ...]:
    """The ranges that a method answers, whatever was left open in its document."""
    return tuple({**range_value(slot.as_proved()), "range": slot.words()} for slot in method.slots)


def read_kept(settings: Settings, path: Path, *, no_sandbox: bool) -> bytes:
    """As ``read_program``, of one that what runs in a sandbox must not find by itself."""
    if not no_sandbox:
        from kvg.sandbox.enclosure import check_kept

        check_kept(settings.cwd / path, str(path))
    return read_program(settings, path)


def read_program(settings: Settings, path: Path) -> bytes:
    """The bytes of a file that is no larger than a program of a method may be."""
    full = settings.cwd / path
    with durable.translated(path), open(full, "rb") as file:
        data = file.read(MAX_PROGRAM_BYTES + 1)
    if len(data) > MAX_PROGRAM_BYTES:
        raise UsageError(f"{path}: larger than a program of a method may be")
    return data
