"""``kvg gate``: the checks that a deposit can be asked to pass, and a run of them by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kvg.digest import sha256
from kvg.flow.records.flywheel import GateKind, GateResult

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvg.flow.settings import Settings
    from kvg.objects.statement import Resource


def list_gates() -> Iterator[GateKind]:
    """Every kind of gate."""
    from kvg.gates import KINDS
    from kvg.gates.run import is_available

    for kind in KINDS.values():
        yield GateKind(kind.name, kind.argument, kind.proves, is_available(kind.name), kind.summary)


def run_gates(
    settings: Settings,
    specs: Sequence[str],
    text: bytes,
    answer: bytes | None,
    *,
    no_sandbox: bool = False,
) -> Iterator[GateResult]:
    """Run each gate on ``text`` and ``answer``; nothing is stored or signed.

    Raises ``UsageError``, ``NotFound``, ``GateFailed`` when one can't be run at all.
    """
    from kvg.flow.sandboxed import place_of
    from kvg.gates import GateInput, parse_spec, run_gate

    parsed = [parse_spec(spec) for spec in specs]
    place = place_of(settings, None, no_sandbox=no_sandbox)
    given = GateInput(text, answer)
    for spec in parsed:
        outcome = run_gate(spec, given, place)
        yield GateResult(
            gate=outcome.gate,
            spec=spec.text,
            result=outcome.result,
            reason=outcome.reason or None,
            configuration=tuple(_resource(item) for item in outcome.configuration),
            digest=sha256(outcome.evidence),
            evidence=outcome.evidence.decode("utf-8"),
        )


def _resource(item: Resource) -> Mapping[str, object]:
    return {"name": item.name, "digest": item.digest}
