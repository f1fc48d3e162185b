"""Records as they cross a session's socket: JSON objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kvg.errors import RemoteFailed
from kvg.flow.records import computed
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
    )
}
"""The records that a session's verbs give."""


def encode_record(record: Record) -> dict[str, object]:
    """``record`` as a JSON object."""
    fields: Mapping[str, Field[object]] = record.__dataclass_fields__  # type: ignore[attr-defined]
    return {"type": record.type, **{name: getattr(record, name) for name in fields}}


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
        return kind(**values)
    except TypeError as error:
        raise RemoteFailed(
            f"session: {error}", hint="is it another version of kvg? kvg session stop, then start"
        ) from None
