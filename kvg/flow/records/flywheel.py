"""Records of families, gates, methods and answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from kvg.digest import Digest
from kvg.flow.records.record import Record


@dataclass(frozen=True, slots=True)
class FamilyEntry(Record):
    """One family: the digest of a structure, and the structure.

    ``slots`` are {type, raw, value}; raw and value are None where no instance was asked about.
    ``methods`` and ``artifacts`` are what the store lists for it. ``explained`` says how the
    nearest stored structures differ: {family, parts: {part, here, there}}, None where not asked.
    """

    type: ClassVar[str] = "family"
    family: Digest
    family_seed_hash: str
    text: str
    constraint: object
    slots: tuple[Mapping[str, object], ...]
    methods: tuple[Digest, ...]
    artifacts: tuple[Digest, ...]
    explained: tuple[Mapping[str, object], ...] | None = None
