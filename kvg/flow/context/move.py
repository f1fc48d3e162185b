"""``kvg context at`` with a model: the window moved to a place, and the text gone on from there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvg.flow.context.ahead import read_ahead
from kvg.flow.context.places import find_place
from kvg.flow.context.stored import read_context
from kvg.flow.graft import graft
from kvg.flow.records.record import Record
from kvg.flow.requests import ContextAtRequest, GraftRequest, Sampling

if TYPE_CHECKING:
    from kvg.flow.settings import Settings
    from kvg.store import Store


def move_context(store: Store, settings: Settings, request: ContextAtRequest) -> Iterator[Record]:
    """The graft of the block that holds the place; without a prompt the place before it.

    Afterwards the block that follows is asked of the system's cache. Raises ``NotFound``,
    ``UsageError``, and as ``graft`` does.
    """
    found = find_place(store, settings, request.name, request.place)
    sampling = request.sampling
    if request.prompt is None:
        yield found
        sampling = Sampling(max_tokens=0)
    asked = GraftRequest(
        found.ref, prompt=request.prompt, sampling=sampling, require=request.require
    )
    yield from graft(store, settings, asked)
    blocks = read_context(store, request.name).blocks
    read_ahead(store, [block for block in blocks if block.number > found.number][:1])
