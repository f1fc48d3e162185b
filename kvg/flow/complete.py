"""What a resident session computes for the OpenAI API: a graft, or without a ref a fresh text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvg.errors import UsageError
from kvg.flow.graft import computed, graft
from kvg.flow.records.record import Record
from kvg.flow.registered import open_engine
from kvg.flow.requests import GraftRequest
from kvg.flow.settings import Settings

if TYPE_CHECKING:
    from kvg.model.text import Tokenizer
    from kvg.store import Store


def complete(store: Store, settings: Settings, request: GraftRequest) -> Iterator[Record]:
    """Yield as ``graft`` does. With an empty ``ref`` the texts or messages are the whole text.

    Needs a seat in a resident session. Raises as ``graft``.
    """
    if request.ref:
        yield from graft(store, settings, request)
        return
    if settings.seat is None:
        raise UsageError("complete: no session was named")
    resident = settings.seat.resident
    prompts = tuple(_whole(request, resident.tokenizer))
    if not prompts or not all(prompts):
        raise UsageError("request: empty prompt", hint="give a prompt, or kvg_ref")
    engine = resident.session.engine
    files = settings.seat.files(resident.model)
    session = open_engine(settings, resident.model, files, engine)
    yield from computed(settings, request, session, resident.tokenizer, prompts)


def _whole(request: GraftRequest, tokenizer: Tokenizer) -> Iterator[tuple[int, ...]]:
    if request.messages is not None:
        yield tuple(tokenizer.encode_more(tokenizer.render(request.messages, answer=True)))
    for text in request.texts or ():
        yield tuple(tokenizer.encode(text))
