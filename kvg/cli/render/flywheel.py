"""Renderers of families, gates, methods and answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

from kvg.cli.render import Renderer, View
from kvg.cli.render.words import BARE, brief, count
from kvg.cli.terminal import printable
from kvg.flow.records.flywheel import (
    AnswerFound,
    FamilyEntry,
    GateKind,
    GateResult,
    MethodEntry,
    StaleMethod,
)
from kvg.objects.statement import NO_SANDBOX


def family(record: FamilyEntry, view: View) -> Iterator[str]:
    yield f"{record.family}\n"
    if not view.person and not view.verbose and record.explained is None:
        return
    yield f"  text        {record.text}\n"
    if record.constraint is not None:
        from kvg import canon

        yield f"  constraint  {canon.encode(cast('canon.Json', record.constraint)).decode()}\n"
    for number, slot in enumerate(record.slots):
        raw = "" if slot["raw"] is None else f"  {slot['raw']}"
        yield f"  slot {number:<6} {slot['type']}{raw}\n"
    yield f"  seed form   {record.family_seed_hash}\n"
    yield f"  stored      {count(len(record.methods), 'method')}, "
    yield f"{count(len(record.artifacts), 'artifact')}\n"
    for other in record.explained or ():
        yield from _explained(other)


def _explained(other: Mapping[str, object]) -> Iterator[str]:
    parts = cast("tuple[Mapping[str, str], ...]", other["parts"])
    yield f"{brief(cast('str', other['family']))}  {'differs' if parts else 'is the same'}\n"
    for part in parts:
        yield f"  {part['part']:<10}  {part['here'] or '-'}\n"
        yield f"  {'there':<10}  {part['there'] or '-'}\n"


def gate_kind(record: GateKind, view: View) -> Iterator[str]:
    missing = "" if record.available else "  (not to be had here)"
    name = view.terminal.out(f"{record.kind + ':' + record.argument:<32}", "bold")
    yield f"{name}  {record.proves:<12}  {record.summary}{missing}\n"


def gate(record: GateResult, view: View) -> Iterator[str]:
    style = "green" if record.result == "PASSED" else "red"
    why = "" if record.reason is None else f"  {record.reason}"
    is_bare = any(part["name"] == BARE for part in record.configuration)
    where = f"  ({BARE})" if is_bare else ""
    yield f"{record.gate}  {view.terminal.out(record.result, style)}{where}{why}\n"
    if view.verbose:
        yield f"{record.evidence}\n"


def method(record: MethodEntry, view: View) -> Iterator[str]:
    digest = brief(record.method) if view.person else record.method
    state = "new" if record.new else "not stored" if record.attestation is None else "stored"
    proved = f"  proved on {count(record.instances, 'instance')}" if record.instances else ""
    stale = "" if record.stale is None else f"  {printable(record.stale)}"
    yield f"{digest}  {state}{proved}{stale}\n"
    yield f"  family      {record.family}\n  text        {record.text}\n"
    for number, slot in enumerate(record.slots):
        name = printable(str(slot["name"] or f"s{number}"))
        yield f"  slot {name:<6} {slot['type']}  {slot['range']}\n"
    if record.sandbox is not None:
        yield f"  sandbox     {printable(record.sandbox)}\n"
    if view.verbose:
        yield f"  program     {record.program}\n  checker     {record.checker}\n"


def stale_method(record: StaleMethod, view: View) -> Iterator[str]:
    digest = brief(record.method) if view.person else record.method
    name = view.terminal.out(f"{f'method {digest}':<24}", "bold")
    yield f"{name}  {printable(record.text)}  {printable(record.stale)}\n"


def answer(record: AnswerFound, view: View) -> Iterator[str]:
    if record.answer is None:
        view.aside(f"miss: {record.reason}: family {record.family}")
        return
    yield f"{printable(record.answer) if view.person else record.answer}\n"
    if view.person or view.verbose:
        view.aside(_origin(record))
    if record.draft is not None:
        view.aside(_drafted(record.draft))


def _origin(record: AnswerFound) -> str:
    """Where an answer came from."""
    n_tokens = count(record.tokens_generated, "token")
    if record.status != "HIT":
        gates = ", ".join(record.gates) or "none"
        learned = ", learned" if record.learned else ""
        return f"miss: the model's own, {n_tokens} generated, gates: {gates}{learned}"
    attested = brief(record.attestation) if record.attestation else "none"
    if record.method is None:
        return f"trace {brief(record.artifact or '')}, {n_tokens} generated, attested by {attested}"
    checked = "checked, " if record.checked else ""
    bare = f"{BARE}, " if record.sandbox == NO_SANDBOX else ""
    how = f"{checked}{bare}{n_tokens} generated"
    return f"method {brief(record.method)}, {how}, attested by {attested}"


def _drafted(draft: Mapping[str, object]) -> str:
    wrong = cast("Mapping[str, int | None] | None", draft["first_difference"])
    said = f"draft: {draft['confirmed']} of {draft['tokens']} tokens confirmed"
    if wrong is None:
        exact = "bit for bit" if draft["witness_equal"] else "with other logits"
        return f"{said} by one forward pass, {exact}"
    stored, computed = wrong["stored"], wrong["computed"]
    return f"{said}; position {wrong['position']}: {stored} stored, {computed} computed"


RENDERERS = cast(
    "dict[str, Renderer]",
    {
        "answer": answer,
        "family": family,
        "gate": gate,
        "gate-kind": gate_kind,
        "method": method,
        "stale-method": stale_method,
    },
)
