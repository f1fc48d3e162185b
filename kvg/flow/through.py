"""Verbs through a resident session: the request crosses its socket, the records come back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kvg.client.channel import call
from kvg.flow.records.record import Record
from kvg.flow.requests import (
    AskRequest,
    ContextAskRequest,
    ContextAtRequest,
    DepositRequest,
    GraftRequest,
    LogitsRequest,
    ReplayRequest,
)
from kvg.flow.wire import encode_request
from kvg.frozen import frozen

if TYPE_CHECKING:
    from kvg.client.place import Place
    from kvg.flow.settings import Settings
    from kvg.flow.wire import Request
    from kvg.report import Report

VERBS: dict[type, str] = {
    GraftRequest: "graft",
    AskRequest: "ask",
    LogitsRequest: "logits",
    ReplayRequest: "replay",
    DepositRequest: "deposit",
    ContextAtRequest: "context-at",
    ContextAskRequest: "context-ask",
}


@frozen
class Link:
    """A way to one session. ``store`` is the store that the client stands in, None for none."""

    place: Place
    report: Report
    store: Path | None = None
    key_file: Path | None = None
    dry_run: bool = False


def compute(link: Link, request: Request, slot: int | None) -> Iterator[Record]:
    """The records of ``request``, computed by the session; it is asked at once.

    What is needed to show them is imported while it computes. Raises what the verb raises, and
    ``NotFound`` or ``RemoteFailed`` when there is no session.
    """
    body: dict[str, object] = {"request": encode_request(request), "cwd": os.getcwd()}
    if slot is not None:
        body["slot"] = slot
    if link.store is not None:
        body["store"] = str(link.store)
    if link.dry_run:
        body["dry_run"] = True
    if link.key_file is not None:
        body["key_file"] = str(link.key_file)
    return _records(link, call(link.place, "POST", f"/kvg/{VERBS[type(request)]}", body))


def _records(link: Link, lines: Iterator[dict[str, object]]) -> Iterator[Record]:
    from kvg.flow.records.wire import parse_record

    for line in lines:
        told = line.get("type")
        if told == "notice":
            link.report.notice(str(line.get("message")))
        elif told == "warning":
            link.report.warning(str(line.get("message")))
        else:
            yield parse_record(line)


def compute_one(link: Link, request: Request, slot: int | None) -> Record:
    """The one record of ``request``. Raises as ``compute``."""
    (record,) = compute(link, request, slot)
    return record


def with_prompts(settings: Settings, request: GraftRequest) -> GraftRequest:
    """``request`` with the prompts that its files or standard input hold in place of their names.

    Raises ``UsageError``, ``NotFound``.
    """
    from kvg.flow.prompts import chat_messages, prompt_texts

    chat = request.chat
    messages = None if chat is None else chat_messages(settings, chat)
    texts = prompt_texts(settings, request) if chat is None else None
    return replace(
        request,
        prompt=None,
        prompt_file=None,
        chat=None,
        prompts=None,
        stdin=None,
        texts=texts,
        messages=messages,
    )


def with_texts(settings: Settings, request: ReplayRequest) -> ReplayRequest:
    """``request`` with the prompts of its file. Raises ``UsageError``, ``NotFound``."""
    from kvg.flow.prompts import read_prompts

    if request.prompts is None:
        return request
    return replace(request, prompts=None, texts=read_prompts(settings, request.prompts))


def with_paths(settings: Settings, request: DepositRequest) -> DepositRequest:
    """``request`` with absolute paths: the session has a working folder of its own."""
    return replace(
        request,
        family=None if request.family is None else settings.cwd / request.family,
        depends=tuple(settings.cwd / path for path in request.depends),
    )
