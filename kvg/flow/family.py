"""``kvg family``: the exact address of a problem, and the families that a store knows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kvg import canon
from kvg.digest import Digest, short
from kvg.errors import Corrupt, NotFound, UsageError
from kvg.flow.records.flywheel import FamilyEntry
from kvg.problem.family import Family, Problem, parse_family, parse_problem
from kvg.problem.ranges import plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvg.problem.literals import Literal
    from kvg.store import Store

NEAREST = 3
MAX_DOCUMENT_BYTES = 8 << 20


def hash_family(
    store: Store | None,
    text: str,
    *,
    constraint: str | None = None,
    names: Sequence[str] = (),
    explain: bool = False,
) -> FamilyEntry:
    """The family of ``text``, and with ``explain`` how the nearest stored structures differ.

    The explanation is for a person; nothing is ever selected by nearness. Raises ``UsageError``.
    """
    problem = parse_problem(text, constraint, names)
    explained = tuple(_nearest(store, problem.family)) if explain else None
    return _entry(store, problem.family, problem, explained)


def show_family(store: Store, target: str) -> FamilyEntry:
    """A stored family by its digest, or the first digits of it. Raises ``NotFound``."""
    return _entry(store, stored_family(store, find_family(store, target)), None, None)


def list_families(store: Store) -> Iterator[FamilyEntry]:
    """Every family for which the store has a method or an artifact, and whose structure it has."""
    for _, family in _known(store):
        yield _entry(store, family, None, None)


def find_family(store: Store, target: str) -> Digest:
    """The family that ``target``, a digest or the start of one, means.

    Raises ``NotFound``, ``UsageError``.
    """
    from kvg.digest import PREFIX, parse_prefix

    start = PREFIX + parse_prefix(target)
    found = [family for family in store.families() if family.startswith(start)]
    if len(found) != 1:
        raise NotFound(
            f"{target}: {'no' if not found else 'more than one'} such family",
            hint="kvg family list",
        )
    return found[0]


def stored_family(store: Store, family: Digest) -> Family:
    """The structure of a stored family, checked. Raises ``Corrupt``, ``Incompatible``."""
    what = f"family {short(family)}"
    raw = store.objects.read(family, what=what, limit=MAX_DOCUMENT_BYTES)
    return parse_family(bytes(raw), what=what)


def _known(store: Store) -> Iterator[tuple[Digest, Family]]:
    for digest in store.families():
        try:
            yield digest, stored_family(store, digest)
        except Corrupt:
            continue


def _entry(
    store: Store | None,
    family: Family,
    problem: Problem | None,
    explained: tuple[Mapping[str, object], ...] | None,
) -> FamilyEntry:
    digest = family.digest
    members = store.family_members(digest) if store is not None else ()
    slots: tuple[Mapping[str, object], ...] = (
        tuple(_slot(slot) for slot in problem.slots)
        if problem is not None
        else tuple({"type": kind, "raw": None, "value": None} for kind in family.types)
    )
    return FamilyEntry(
        family=digest,
        family_seed_hash=family.seed_hash,
        text=family.text,
        constraint=family.constraint,
        slots=slots,
        methods=tuple(item.digest for item in members if item.is_method),
        artifacts=tuple(item.digest for item in members if not item.is_method),
        explained=explained,
    )


def _slot(slot: Literal) -> Mapping[str, object]:
    try:
        value = plain(slot.value)
    except UsageError:  # a number too long to have one
        value = None
    return {"type": slot.type, "raw": slot.raw, "value": value}


def _nearest(store: Store | None, family: Family) -> Iterator[Mapping[str, object]]:
    """The stored structures most like ``family``, and each part in which they differ."""
    if store is None:
        return
    from difflib import SequenceMatcher

    words = family.text.split(" ")
    matcher = SequenceMatcher(b=words, autojunk=False)
    ranked: list[tuple[float, Digest, Family]] = []
    for digest, other in _known(store):
        matcher.set_seq1(other.text.split(" "))
        ranked.append((-matcher.quick_ratio(), digest, other))
    for _, digest, other in sorted(ranked, key=lambda item: item[:2])[:NEAREST]:
        yield {"family": digest, "parts": tuple(_differences(family, other))}


def _differences(here: Family, there: Family) -> Iterator[Mapping[str, object]]:
    """What differs, empty when nothing does."""
    from difflib import SequenceMatcher

    a, b = here.text.split(" "), there.text.split(" ")
    for tag, i, j, k, m in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if tag != "equal":
            yield {"part": "text", "here": " ".join(a[i:j]), "there": " ".join(b[k:m])}
    if here.types != there.types:
        yield {"part": "slots", "here": ", ".join(here.types), "there": ", ".join(there.types)}
    if here.constraint != there.constraint:
        shown = [
            "" if item.constraint is None else canon.encode(item.constraint).decode()
            for item in (here, there)
        ]
        yield {"part": "constraint", "here": shown[0], "there": shown[1]}
