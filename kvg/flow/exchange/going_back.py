"""Pointers that go back: an entry of one log, put where a newer one of another log was.

It is the newest of its name in its own log, so that log alone does not tell. What tells is what
this store saw there: a push moves a pointer only from a value that the ref has had where the push
comes from. So whoever made an entry that was known here already knew by then the value that the
ref has had there since, or one that came after it; else it is the old pointer again, put back by a
hand that need not have any key. Who never saw the newer value can't tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from kvg.log.entry import RefEntry, parse_entry

if TYPE_CHECKING:
    from kvg.digest import Digest
    from kvg.log.tiles import Tiles


def values(tiles: Tiles, origin: str, name: str, size: int) -> tuple[Digest, ...]:
    """What the ref ``name`` was, here or on a remote, by the first ``size`` entries of the log
    ``origin``: each value once, where it first was."""
    return tuple(dict.fromkeys(_moves(tiles, origin, name, size)))


def _moves(tiles: Tiles, origin: str, name: str, size: int) -> Iterator[Digest]:
    for index, raw in enumerate(tiles.entries(0, size)):
        entry = parse_entry(raw, what=f"log {origin}: entry {index}")
        if not isinstance(entry, RefEntry) or entry.digest is None:
            continue
        if entry.name == name or entry.name.endswith(f"/{name}"):
            yield entry.digest


def is_known(wanted: Digest, known: Iterable[Digest], others: Iterable[tuple[Digest, ...]]) -> bool:
    """Whether ``wanted`` is among ``known``, or came before one of these in one of ``others``: each
    the values of a log, in order."""
    orders = tuple(others)
    found, new = set(known), True
    while new:
        earlier = {v for order in orders for v in _before_last(order, found)}
        new = not earlier <= found
        found |= earlier
    return wanted in found


def _before_last(order: tuple[Digest, ...], found: set[Digest]) -> tuple[Digest, ...]:
    """What came in ``order`` before the last that is ``found``."""
    last = max((place for place, value in enumerate(order) if value in found), default=0)
    return order[:last]


def standing(
    newest: Mapping[str, Digest], orders: Mapping[str, tuple[Digest, ...]]
) -> Mapping[str, Digest]:
    """Of the newest value of a ref in each log those that no other log went on from, by log.

    ``orders``: the values in each of the logs, in order.
    """
    return {
        origin: value
        for origin, value in newest.items()
        if not any(value in order and newest.get(by) != value for by, order in orders.items())
    }
