"""``consistency:K``: one answer from K seeds. A single dissent rejects."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import TypeAlias

from kvg.canon import Json
from kvg.digest import sha256
from kvg.errors import UsageError
from kvg.gates.outcome import GateOutcome, make_outcome
from kvg.gates.spec import Spec
from kvg.objects.statement import Resource
from kvg.problem.literals import Literal, parse_literal
from kvg.problem.ranges import plain

Ask: TypeAlias = Callable[[int], str]
"""The answer that one seed gives; what needs a model is behind this."""


def consistency_gate(
    spec: Spec, ask: Ask, answer: str | None, *, source: tuple[Resource, ...] = ()
) -> GateOutcome:
    """Ask every seed, from 0 up, until one differs from the first, or from ``answer`` if given.

    ``source`` tells who was asked, and how.
    """
    wanted = None if answer is None else canonical_answer(answer)
    first = canonical_answer(ask(0))
    seen: list[Json] = [sha256(first.encode())]
    reason = "" if first else "seed 0 gives no answer"
    if wanted not in (None, first) and not reason:
        reason = "seed 0 dissents: it does not give what is to be deposited"
    for seed in range(1, spec.n_seeds):
        if reason:
            break
        said = canonical_answer(ask(seed))
        seen.append(sha256(said.encode()))
        if said != first:
            reason = f"seed {seed} dissents: {seed} of {spec.n_seeds} seeds agreed before it"
    record: Json = {
        "answer": first,
        "deposited": wanted,
        "seeds": spec.n_seeds,
        "answers": seen,
    }
    return make_outcome(spec, reason, record, source)


def canonical_answer(text: str) -> str:
    """What counts of an answer: words, or the type and value of one that is a literal, with two
    spaces between, as words have not; so of each element of a list, too."""
    words = unicodedata.normalize("NFC", " ".join(text.split()))
    try:
        return _spelt(parse_literal(words.rstrip(".")))
    except UsageError:
        return words


def _spelt(literal: Literal) -> str:
    items = literal.items
    return f"{literal.type}  {list(map(_spelt, items)) if items else plain(literal.value)}"
