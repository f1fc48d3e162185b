"""Refs that moved here and are not pushed: their pointers stay, and the log's owner says so."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from kvg.log.held import held_name, sign_held
from kvg.remote.layout import Pointer

if TYPE_CHECKING:
    from kvg.flow.exchange.places import Place
    from kvg.log.log import Log
    from kvg.remote import Remote
    from kvg.store import Store


def hold_back(
    store: Store,
    place: Place,
    remote: Remote,
    log: Log,
    *,
    moving: Collection[str],
    known: Mapping[str, Pointer],
) -> None:
    """Sign, before ``log`` goes to ``remote``, which refs stay behind it there, and where.

    ``moving`` are the refs whose pointers go along; ``known`` are pointers that were read already.
    A pointer that lies before what this store last saw of it was moved back by somebody: nothing is
    signed for it, nor for one to what is forgotten. Nothing is written where nothing stays behind.
    """
    newest = store.newest_moves()
    staying = [name for name in remote.refs() if name in newest and name not in moving]
    unread = [name for name in staying if name not in known]
    pointers = {**known, **remote.pointers(unread)}
    held: dict[str, int] = {}
    for name in staying:
        pointer = pointers.get(name)
        if not isinstance(pointer, Pointer) or pointer.origin != log.origin:
            continue
        if pointer.index < newest[name].index and not _is_back(store, place, name, pointer.index):
            held[name] = pointer.index
    if held:
        note = sign_held(log.origin, log.size, log.root, held, store.log_key())
        remote.log(log.origin).write(held_name(log.size), note)


def _is_back(store: Store, place: Place, name: str, index: int) -> bool:
    """Whether entry ``index`` is no value of ``name`` that may stay, or one before what was last
    seen there."""
    moves = store.history(name)
    value = next((move.digest for move in moves if move.index == index), None)
    seen = store.ref(place.tracking(name))
    if value is None or value in store.forgotten():
        return True
    if seen is None or value == seen:
        return False
    return any(move.digest == seen and move.index > index for move in moves)
