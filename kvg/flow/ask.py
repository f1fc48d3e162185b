"""``kvg ask``: graft, then answer a question through the chat template."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvg.flow.graft import graft
from kvg.flow.records.record import Record
from kvg.flow.requests import AskRequest
from kvg.flow.settings import Settings

if TYPE_CHECKING:
    from kvg.store import Store


def ask(store: Store, settings: Settings, request: AskRequest) -> Iterator[Record]:
    """Yield the graft of ``request.ref`` with the answer. Raises as ``graft`` does."""
    yield from graft(store, settings, request)
