"""Records as they cross a session's socket: JSON objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kvg.errors import RemoteFailed
from kvg.flow.records import computed, contexts
from kvg.flow.records.record import Record

if TYPE_CHECKING:
    from dataclasses import Field

KINDS: dict[str, type[Record]] = {
    kind.type: kind
    for kind in (
        computed.Deposited,
        computed.DepositPlan,
        computed.TextPiece,
        computed.Graft,
        computed.Logits,
        computed.Replay,
        computed.ReplaySummary,
        contexts.ContextPlace,
        contexts.ContextAnswer,
    )
}
"""The records that a session's verbs give."""

CANDIDATES = "candidates"
"""The one field that holds values of a kind of its own."""


def encode_record(record: Record) -> dict[str, object]:
    """``record`` as a JSON object."""
    fields: Mapping[str, Field[object]] = record.__dataclass_fields__  # type: ignore[attr-defined]
    found: dict[str, object] = {name: getattr(record, name) for name in fields}
    if isinstance(record, contexts.ContextAnswer):
        found[CANDIDATES] = [
            {name: getattr(item, name) for name in item.__dataclass_fields__}
            for item in record.candidates
        ]
    return {"type": record.type, **found}


def parse_record(line: Mapping[str, object]) -> Record:
    """The record that ``encode_record`` wrote. Raises ``RemoteFailed`` for anything else."""
    kind = KINDS.get(str(line.get("type")))
    values = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in line.items()
        if name != "type"
    }
    try:
        if kind is None:
            raise TypeError(f"a record of type {line.get('type')!r}")
        if kind is contexts.ContextAnswer:
            values[CANDIDATES] = _candidates(line.get(CANDIDATES))
        return kind(**values)
    except TypeError as error:
        raise RemoteFailed(
            f"session: {error}", hint="is it another version of kvg? kvg session stop, then start"
        ) from None


def _candidates(value: object) -> tuple[contexts.Candidate, ...]:
    items = value if isinstance(value, list) else []
    return tuple(contexts.Candidate(**item) for item in items if isinstance(item, dict))
