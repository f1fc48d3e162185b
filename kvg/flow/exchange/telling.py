"""What went wrong is counted into the record that ends an exchange."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from kvg.flow.records.exchange import Transfer
from kvg.flow.records.findings import Finding

if TYPE_CHECKING:
    from kvg.flow.records import Record


def counted(records: Iterator[Record]) -> Iterator[Record]:
    """``records``, the ``transfer`` among them with how many findings came before it."""
    problems = 0
    for record in records:
        problems += isinstance(record, Finding)
        yield replace(record, problems=problems) if isinstance(record, Transfer) else record
