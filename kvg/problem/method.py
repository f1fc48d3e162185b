"""A method: the parametric program that answers a family, and the checker that judges it.

The document names its parts by digest; that it was proved is what its attestation says.
"""

from __future__ import annotations

from typing import Final

from kvg import canon
from kvg.digest import Digest, parse_digest, sha256
from kvg.frozen import frozen
from kvg.problem.ranges import SlotRange, parse_range, range_value

SCHEMA: Final = "kvg.method/1"
METHOD_GATE: Final = "method"
"""The name of the gate that a method passes: right on every generated instance."""

PROGRAM_GATE: Final = "test:method"
"""What that proof counts as in a policy: a test. A trace has passed it whose program was proved."""


def as_required(gate: str) -> str:
    """The name under which ``gate`` is required, and shown."""
    return PROGRAM_GATE if gate == METHOD_GATE else gate


FAMILY: Final = "family"
PROGRAM: Final = "program"
CHECKER: Final = "checker"

MAX_PROGRAM_BYTES: Final = 1 << 20


@frozen
class Method:
    """``program`` defines ``solve``, ``checker`` defines ``check``; ``slots`` are their ranges."""

    family: Digest
    program: Digest
    checker: Digest
    slots: tuple[SlotRange, ...]

    @property
    def document(self) -> bytes:
        """The canonical bytes whose digest is the method's name."""
        return canon.encode(
            {
                "schema": SCHEMA,
                "family": self.family,
                "program": self.program,
                "checker": self.checker,
                "slots": [range_value(slot) for slot in self.slots],
            }
        )

    @property
    def digest(self) -> Digest:
        return sha256(self.document)

    @property
    def parts(self) -> tuple[tuple[str, Digest], ...]:
        """What the document names: what it is, and its digest. What runs comes first."""
        return (PROGRAM, self.program), (CHECKER, self.checker), (FAMILY, self.family)


def parse_method(data: bytes, *, what: str) -> Method:
    """The method whose canonical bytes are ``data``. Raises ``Corrupt``, ``Incompatible``."""
    value = canon.decode(data, what=what)
    canon.check_schema(value, SCHEMA, what=what)
    fields = canon.take(value, ("schema", "family", "program", "checker", "slots"), what=what)
    slots = canon.as_list(fields["slots"], what=f"{what}: slots")
    return Method(
        parse_digest(fields["family"], what=f"{what}: family"),
        parse_digest(fields["program"], what=f"{what}: program"),
        parse_digest(fields["checker"], what=f"{what}: checker"),
        tuple(parse_range(slot, what=f"{what}: slot") for slot in slots),
    )
