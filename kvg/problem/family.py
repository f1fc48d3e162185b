"""The family of a problem: the digest of its structure, by which answers are addressed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from kvg import canon
from kvg.canon import Json
from kvg.digest import Digest, hex_of, sha256
from kvg.errors import Corrupt, UsageError
from kvg.frozen import frozen
from kvg.problem.literals import Literal
from kvg.problem.text import canonical_text

SCHEMA: Final = "kvg.family/1"
SEED_HEX: Final = 32
_SLOT: Final = re.compile(r"s(0|[1-9][0-9]*)", re.ASCII)


@frozen
class Family:
    """A structure: canonical text, normal constraint (None: none), and the types of the slots."""

    text: str
    constraint: Json
    types: tuple[str, ...]

    @property
    def document(self) -> bytes:
        """The canonical bytes whose digest is the family's."""
        return canon.encode(
            {
                "schema": SCHEMA,
                "text": self.text,
                "constraint": self.constraint,
                "slots": list(self.types),
            }
        )

    @property
    def digest(self) -> Digest:
        return sha256(self.document)

    @property
    def seed_hash(self) -> str:
        """The 32 hex digits of the seed form, of the text and the constraint's canonical JSON."""
        constraint = "" if self.constraint is None else canon.encode(self.constraint).decode()
        return seed_hash(self.text, constraint)


@frozen
class Problem:
    """One instance: its family, and the literals in the slots."""

    family: Family
    slots: tuple[Literal, ...]


def parse_problem(text: str, constraint: str | None = None, names: Sequence[str] = ()) -> Problem:
    """The problem that ``text`` poses. ``names`` are names of the slots in the constraint.

    Raises ``UsageError`` for a text or constraint that has no canonical form.
    """
    found = canonical_text(text)
    normal: Json = None
    if constraint is not None:
        from kvg.problem.constraint import normal_constraint

        normal = normal_constraint(constraint, found.types, names)
        _check_slots(normal, len(found.types))
    elif names:
        from kvg.problem.constraint import slot_names

        slot_names(found.types, names)
    return Problem(Family(found.text, normal, found.types), found.slots)


def _check_slots(normal: Json, n_slots: int) -> None:
    """Raise ``UsageError`` where ``normal`` names a slot beyond the ``n_slots`` that there are."""
    match normal:
        case ["name", str(name)]:
            if _SLOT.fullmatch(name):
                known = f"s0 to s{n_slots - 1}" if n_slots else "none"
                raise UsageError(f"constraint: {name}: no such slot; the slots are {known}")
        case list():
            for part in normal:
                _check_slots(part, n_slots)


def parse_family(data: bytes, *, what: str) -> Family:
    """The structure whose canonical bytes are ``data``. Raises ``Corrupt``, ``Incompatible``."""
    value = canon.decode(data, what=what)
    canon.check_schema(value, SCHEMA, what=what)
    fields = canon.take(value, ("schema", "text", "constraint", "slots"), what=what)
    types = canon.as_list(fields["slots"], what=f"{what}: slots")
    family = Family(
        canon.as_str(fields["text"], what=f"{what}: text"),
        fields["constraint"],
        tuple(canon.as_str(item, what=f"{what}: slots") for item in types),
    )
    if family.document != data:
        raise Corrupt(f"{what}: not a family document")
    return family


def seed_hash(prompt: str, constraint: str) -> str:
    """The seed form of a structural address, kept for exchange with others that use it."""
    joined = f"{prompt.strip()}::{constraint.strip()}"
    return hex_of(sha256(joined.encode("utf-8")))[:SEED_HEX]
