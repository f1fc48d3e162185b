"""What an audit rests on, as far as a damaged store still gives it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from kvg.digest import Digest
from kvg.errors import Corrupt, Incompatible, NotFound, Untrusted
from kvg.flow.checkpoint import newest_word
from kvg.flow.log import log
from kvg.frozen import frozen
from kvg.store.trusted import logged_trust
from kvg.store.witnesses import configured
from kvg.trust import TrustFile

if TYPE_CHECKING:
    from kvg.flow.records.stores import Cosignature, LogEntry
    from kvg.log.log import Log
    from kvg.signing.cosignature import Witness
    from kvg.store import Store

T = TypeVar("T")

TIMELINE = 1000
"""Entries of the log that are listed; every one is counted and checked."""

POINTS = 400
"""Points at most of the log's growth."""


@frozen
class Ground:
    """The log, the refs and the trust of a store; None for what can't be read.

    ``trust`` is the file in force; where that can't be relied on (``is_trust_sound``) the newest
    that the log names, and without that either (``is_trust_known``) one that trusts nobody.
    ``timeline`` and ``growth`` are of the entries that can be read.
    """

    log: Log | None
    refs: Mapping[str, Digest] | None
    trust: TrustFile
    is_trust_sound: bool
    is_trust_known: bool
    witnesses: tuple[Cosignature, ...]
    timeline: tuple[LogEntry, ...]
    growth: tuple[tuple[int, int], ...]

    @property
    def is_listed(self) -> bool:
        """Whether every entry of the log that there is room for is in ``timeline``."""
        return self.log is None or len(self.timeline) == min(TIMELINE, self.log.size)


def ground_of(store: Store) -> Ground:
    """What can be told of ``store``; it never fails for damage, which ``kvg verify`` names."""
    sound = told(lambda: store.trust, None)
    known = sound or told(lambda: logged_trust(store), None)
    refs = told(store.refs, None)
    return Ground(
        log=told(lambda: store.log, None),
        refs=refs,
        trust=known or TrustFile(),
        is_trust_sound=sound is not None,
        is_trust_known=known is not None,
        witnesses=tuple(_words(store)),
        timeline=() if refs is None else _timeline(store),
        growth=told(lambda: tuple(_growth(store)), ()),
    )


def _words(store: Store) -> Iterator[Cosignature]:
    """Every witness's newest word; one that can't be read hides no other."""
    nobody: tuple[Witness, ...] = ()
    for witness in told(lambda: configured(store), nobody):
        word = told(partial(_word, store, witness), None)
        if word is not None:
            yield word


def _word(store: Store, witness: Witness) -> Cosignature | None:
    return newest_word(store.log, witness)


def told(ask: Callable[[], T], otherwise: T) -> T:
    """What ``ask`` answers; ``otherwise`` where what it reads is damaged."""
    try:
        return ask()
    except (Corrupt, Incompatible, NotFound, Untrusted):
        return otherwise


def _timeline(store: Store) -> tuple[LogEntry, ...]:
    return tuple(itertools.islice(log(store, None, is_damaged=True), TIMELINE))


def _growth(store: Store) -> Iterator[tuple[int, int]]:
    """(time, entries) at evenly spaced entries, with both ends."""
    size = store.log.size
    wanted = sorted({size * n // POINTS for n in range(POINTS)} | {size - 1}) if size else []
    for index in wanted:
        time = told(partial(_time_of, store, index), None)
        if time is not None:
            yield time, index + 1


def _time_of(store: Store, index: int) -> int:
    from kvg.log.entry import parse_entry

    raw = next(iter(store.log.read(index, index + 1)))
    return parse_entry(raw, what=f"log entry {index}").time
