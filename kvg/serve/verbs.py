"""The private face of a session: the verbs of the command line, and what the session is."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kvg.client.channel import END, error_line
from kvg.errors import KvgError, UsageError
from kvg.flow.records.record import Record
from kvg.flow.records.wire import encode_record
from kvg.flow.requests import (
    AskRequest,
    ContextAskRequest,
    ContextAtRequest,
    DepositRequest,
    GraftRequest,
    LogitsRequest,
    ReplayRequest,
)
from kvg.flow.wire import as_path, parse_body, parse_request
from kvg.serve.http import CLOSE, JobAnswer, read_body, status_of
from kvg.serve.jobs import Desk, Flow, Item, Job, Notice

if TYPE_CHECKING:
    from kvg.flow.settings import Settings
    from kvg.flow.wire import Request as Asked
    from kvg.store import Store

KINDS: dict[str, type[Asked]] = {
    "graft": GraftRequest,
    "ask": AskRequest,
    "logits": LogitsRequest,
    "replay": ReplayRequest,
    "deposit": DepositRequest,
    "context-at": ContextAtRequest,
    "context-ask": ContextAskRequest,
}
TYPE = "application/jsonl"
Handler = Callable[[Request], Awaitable[Response]]


def routes(
    desk: Desk, state: Callable[[], Mapping[str, object]], stop: Callable[[], None]
) -> list[Route]:
    """The routes of the private face."""

    async def verb(request: Request) -> Response:
        name = str(request.path_params["verb"])
        if name not in KINDS:
            raise UsageError(f"session: no verb {name[:40]!r}")
        body = parse_body(await read_body(request))
        return answer(take(desk, name, body))

    async def look(request: Request) -> Response:
        return lines([state()])

    async def slots(request: Request) -> Response:
        return lines(list(slot_states(desk)))

    async def clear(request: Request) -> Response:
        index = int(request.path_params["index"])

        def flow(store: Store, settings: Settings) -> Iterator[Record]:
            desk.resident.clear(index)
            return iter(())

        return answer(desk.submit(f"clear slot {index}", flow, index=index))

    async def end(request: Request) -> Response:
        final = state()
        stop()
        return lines([final])

    return [
        Route("/kvg/state", guarded(look), methods=["GET"]),
        Route("/kvg/slots", guarded(slots), methods=["GET"]),
        Route("/kvg/slots/{index:int}/clear", guarded(clear), methods=["POST"]),
        Route("/kvg/stop", guarded(end), methods=["POST"]),
        Route("/kvg/{verb}", guarded(verb), methods=["POST"]),
    ]


def take(desk: Desk, name: str, body: Mapping[str, object]) -> Job:
    """Queue what ``body`` asks for: ``request``, ``slot``, and settings of the client's.

    Raises ``UsageError``, ``NotFound``.
    """
    request = parse_request(KINDS[name], body.get("request"))
    index = body.get("slot")
    if index is not None and (isinstance(index, bool) or not isinstance(index, int)):
        raise UsageError("request: slot: not a whole number")
    _check_store(desk, body.get("store"))
    changes: dict[str, object] = {}
    for setting in ("key_file", "cwd"):
        if body.get(setting) is not None:
            changes[setting] = as_path(body[setting], f"request: {setting}")
    if body.get("dry_run") is True:
        changes["dry_run"] = True
    what = getattr(request, "ref", None) or getattr(request, "name", None)
    what = what or ", ".join(getattr(request, "refs", ()))
    where = "" if index is None else f" in slot {index}"
    return desk.submit(f"{name} {what!r:.80}{where}", _flow(request), index=index, changes=changes)


def _check_store(desk: Desk, named: object) -> None:
    """Raise ``UsageError`` when the client stands in another store."""
    root = desk.resident.root
    if isinstance(named, str) and os.path.realpath(named) != os.path.realpath(root):
        raise UsageError(
            f"session {desk.resident.name}: serves the store {root}, not {named[:200]}",
            hint="start one for this store, or name the other with --store",
        )


def _flow(request: Asked) -> Flow:
    def flow(store: Store, settings: Settings) -> Iterator[Record]:
        if isinstance(request, GraftRequest):
            from kvg.flow.graft import graft

            yield from graft(store, settings, request)
        elif isinstance(request, AskRequest):
            from kvg.flow.ask import ask

            yield from ask(store, settings, request)
        elif isinstance(request, LogitsRequest):
            from kvg.flow.logits import logits

            yield logits(store, settings, request)
        elif isinstance(request, ReplayRequest):
            from kvg.flow.replay import replay

            yield from replay(store, settings, request)
        elif isinstance(request, ContextAtRequest):
            from kvg.flow.context.move import move_context

            yield from move_context(store, settings, request)
        elif isinstance(request, ContextAskRequest):
            from kvg.flow.context.ask import ask_context

            yield ask_context(store, settings, request)
        else:
            from kvg.flow.deposit import deposit, plan_deposit

            yield (plan_deposit if settings.dry_run else deposit)(store, settings, request)

    return flow


def slot_states(desk: Desk) -> Iterator[dict[str, object]]:
    """What each numbered slot holds."""
    busy = {job.index for job in desk.jobs}
    for index, held in enumerate(desk.resident.held):
        yield {
            "session": desk.resident.name,
            "slot": index,
            "busy": index in busy,
            "ref": held.ref if held else None,
            "digest": held.digest if held else None,
            "grafted": held.end if held else 0,
            "tokens": held.position if held else 0,
            "position": held.position if held else 0,
            "memory_bytes": held.lease.size_bytes if held else 0,
        }


def guarded(handler: Handler) -> Handler:
    """``handler``, its errors answered as lines."""

    async def handle(request: Request) -> Response:
        try:
            return await handler(request)
        except KvgError as error:
            return failure(error)

    return handle


def lines(items: list[Mapping[str, object]]) -> Response:
    """A whole answer."""
    return Response(b"".join(map(_line, [*items, {"type": END}])), media_type=TYPE)


def failure(error: KvgError) -> Response:
    """An answer that is an error and nothing else."""
    return Response(_line(error_line(error)), status_of(error), headers=CLOSE, media_type=TYPE)


def answer(job: Job) -> Response:
    """The answer of a job, line by line."""
    return JobAnswer(job, _encode, lambda: _line({"type": END}), media_type=TYPE)


def _encode(item: Item) -> bytes:
    if isinstance(item, KvgError):
        return _line(error_line(item))
    if isinstance(item, Notice):
        return _line({"type": item.kind, "message": item.text})
    return _line(encode_record(item))


def _line(value: Mapping[str, object]) -> bytes:
    return json.dumps(value).encode() + b"\n"
