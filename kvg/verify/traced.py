"""What was said of one text, where several have the same trace.

A trace is named after its family and its text. Where a model was asked by the wording alone, those
of several texts are one artifact: what was said of one counts for no other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kvg.digest import Digest, hex_of, sha256
from kvg.objects.statement import Provenance
from kvg.verify.judgement import Judgement, Opened, about, amount, answered_in

if TYPE_CHECKING:
    from kvg.trust import TrustFile

SOLVED = "solved/"


def trace_ref(family: Digest, text: str) -> str:
    """The name of the trace of exactly this text."""
    return _ref_of(family, sha256(text.encode("utf-8")))


def _ref_of(family: Digest, problem: Digest) -> str:
    return f"{SOLVED}{hex_of(family)[:16]}/{hex_of(problem)[:32]}"


def said_under(ref: str, found: Judgement, trust: TrustFile) -> Judgement:
    """What ``found`` comes to for the text that ``ref`` is the trace of, here or as a remote had
    it; all where it is none."""
    if SOLVED not in ref:
        return found
    for _, said in deposits(found.opened[::-1]):
        problem, answer = answered_in(said)
        if (
            said.family
            and problem
            and answer
            and f"/{ref}".endswith(f"/{_ref_of(said.family, problem)}")
        ):
            return amount(about(found.opened, problem, answer), trust)
    return found


def deposits(opened: Sequence[Opened]) -> Iterator[tuple[Opened, Provenance]]:
    """Those that say where the artifact came from, with what they say."""
    for item in opened:
        if item.statement is not None and isinstance(item.statement.predicate, Provenance):
            yield item, item.statement.predicate
