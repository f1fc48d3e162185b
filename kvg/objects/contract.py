"""Freshness contracts: until when something holds, which files it was made from, which schema.

They stand in what is attested: of a deposit in fields, of a method's proof among its resources.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvg.frozen import frozen
from kvg.objects.statement import Resource

if TYPE_CHECKING:
    from kvg.objects.statement import Provenance, TestResult

_UNTIL, _FILE, _SCHEMA = "valid until ", "depends ", "schema "
_DIGITS = 16


@frozen
class Contract:
    """``valid_until`` in seconds since 1970; ``depends`` are files with their digests."""

    valid_until: int | None = None
    depends: tuple[Resource, ...] = ()
    schema_version: str | None = None

    def resources(self) -> tuple[Resource, ...]:
        """The contract as resources of a test result, which has no fields for it."""
        until = () if self.valid_until is None else (Resource(f"{_UNTIL}{self.valid_until}"),)
        files = tuple(Resource(f"{_FILE}{part.name}", part.digest) for part in self.depends)
        schema = () if self.schema_version is None else (Resource(_SCHEMA + self.schema_version),)
        return (*until, *files, *schema)


def contract_of(said: Provenance | None) -> Contract:
    """What a deposit promises; nothing where nothing is said."""
    if said is None:
        return Contract()
    return Contract(said.valid_until, said.depends, said.schema_version)


def contract_of_proof(said: TestResult) -> Contract:
    """What the statement about a method promises."""
    until, schema, files = None, None, []
    for part in said.configuration:
        if part.name.startswith(_UNTIL):
            until = _moment(part.name[len(_UNTIL) :])
        elif part.name.startswith(_FILE):
            files.append(Resource(part.name[len(_FILE) :] or "/", part.digest))
        elif part.name.startswith(_SCHEMA):
            schema = part.name[len(_SCHEMA) :]
    return Contract(until, tuple(files), schema)


def strictest(contracts: Sequence[Contract]) -> Contract:
    """What meets all of ``contracts``: the first end, every file. Of two schema versions no store
    has both, so what is under both is stale."""
    ends = [item.valid_until for item in contracts if item.valid_until is not None]
    files = dict.fromkeys(part for item in contracts for part in item.depends)
    versions = dict.fromkeys(
        item.schema_version for item in contracts if item.schema_version is not None
    )
    return Contract(min(ends, default=None), tuple(files), " and ".join(versions) or None)


def _moment(text: str) -> int:
    """Seconds since 1970; what is no number, or too long for one, is over."""
    return int(text) if text.isdecimal() and len(text) < _DIGITS else 0
