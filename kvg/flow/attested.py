"""What is said about an artifact and counts: for showing it, not for relying on it.

A damaged or foreign envelope is passed over here; ``kvg verify`` is what reports it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvg.digest import Digest, hex_of, sha256, short
from kvg.errors import Corrupt, Untrusted
from kvg.objects.statement import Provenance
from kvg.verify.judgement import Judgement, about, amount, answered_in, open_attestation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kvg.log.log import Log
    from kvg.store import Store
    from kvg.trust import TrustFile
    from kvg.verify.judgement import Opened

_SOLVED = "solved/"


def attested(
    store: Store, subject: Digest, trust: TrustFile | None = None, log: Log | None = None
) -> Judgement:
    """What the envelopes of ``subject`` amount to that can be read, taken together.

    ``trust`` and ``log`` are the store's, where the caller has them.
    """
    trust, log, what = trust or store.trust, log or store.log, short(subject)
    opened: list[Opened] = []
    for item in store.attestations(subject):
        try:
            opened.append(open_attestation(store, subject, item, trust, log, what=what))
        except (Corrupt, Untrusted):
            continue
    return amount(opened, trust)


def trace_ref(family: Digest, text: str) -> str:
    """The name of the trace of exactly this text."""
    return _ref_of(family, sha256(text.encode("utf-8")))


def _ref_of(family: Digest, problem: Digest) -> str:
    return f"{_SOLVED}{hex_of(family)[:16]}/{hex_of(problem)[:32]}"


def said_under(ref: str, found: Judgement, trust: TrustFile) -> Judgement:
    """What ``found`` comes to for the text that ``ref`` is the trace of, all where it is none."""
    if not ref.startswith(_SOLVED):
        return found
    for _, said in deposits(found.opened[::-1]):
        problem, answer = answered_in(said)
        if said.family and problem and answer and _ref_of(said.family, problem) == ref:
            return amount(about(found.opened, problem, answer), trust)
    return found


def deposits(opened: Sequence[Opened]) -> Iterator[tuple[Opened, Provenance]]:
    """Those that say where the artifact came from, with what they say."""
    for item in opened:
        if item.statement is not None and isinstance(item.statement.predicate, Provenance):
            yield item, item.statement.predicate
