"""The OpenAI API of a session: models, completions, chat completions; ``kvg_ref`` names a ref.

https://platform.openai.com/docs/api-reference. What is not computed here is refused by name, not
ignored. Without a temperature the likeliest token is taken.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from kvg.errors import KvgError, NotFound, UsageError
from kvg.flow.records.computed import Graft, TextPiece
from kvg.flow.records.record import Record
from kvg.flow.records.wire import encode_record
from kvg.flow.requests import MAX_NEW_TOKENS, GraftRequest, Sampling
from kvg.flow.wire import (
    as_bool,
    as_int,
    as_messages,
    as_number,
    as_text,
    as_texts,
    parse_body,
)
from kvg.frozen import frozen
from kvg.serve.http import CLOSE, JobAnswer, Receive, Scope, Send, read_body, status_of, watch
from kvg.serve.jobs import Desk, Item, Job

if TYPE_CHECKING:
    from kvg.flow.settings import Settings
    from kvg.store import Store

Handler = Callable[[Request], Awaitable[Response]]
T = TypeVar("T")

NEUTRAL: dict[str, tuple[object, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "echo": (False,),
    "logprobs": (False, 0),
    "top_logprobs": (0,),
    "suffix": ("",),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "logit_bias": ({},),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "store": (False,),
}
"""Parameters that are taken only where they change nothing."""
IGNORED = frozenset({"user", "metadata", "service_tier", "safety_identifier", "prompt_cache_key"})
"""Parameters that have no bearing on the text."""


@frozen
class Asked:
    """One request of the API, checked."""

    model: str
    request: GraftRequest
    is_chat: bool
    stream: bool
    include_usage: bool


def routes(desk: Desk) -> list[Route]:
    """The routes of the API."""
    began = int(time.time())

    def model() -> dict[str, object]:
        name = desk.resident.model.name
        return {"id": name, "object": "model", "created": began, "owned_by": "kvg"}

    async def models(request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [model()]})

    async def one_model(request: Request) -> Response:
        _check_model(desk, str(request.path_params["name"]))
        return JSONResponse(model())

    async def completions(request: Request) -> Response:
        return await _complete(desk, request, is_chat=False)

    async def chat(request: Request) -> Response:
        return await _complete(desk, request, is_chat=True)

    async def health(request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    return [
        Route("/health", _guarded(health), methods=["GET"]),
        Route("/v1/models", _guarded(models), methods=["GET"]),
        Route("/v1/models/{name}", _guarded(one_model), methods=["GET"]),
        Route("/v1/completions", _guarded(completions), methods=["POST"]),
        Route("/v1/chat/completions", _guarded(chat), methods=["POST"]),
    ]


async def _complete(desk: Desk, request: Request, *, is_chat: bool) -> Response:
    asked = parse_asked(parse_body(await read_body(request)), is_chat=is_chat)
    _check_model(desk, asked.model)

    def flow(store: Store, settings: Settings) -> Iterator[Record]:
        from kvg.flow.complete import complete

        yield from complete(store, settings, asked.request)

    kind = "chat completion" if is_chat else "completion"
    job = desk.submit(f"{kind} {asked.request.ref!r:.80}", flow)
    told = Answer(asked, desk.resident.session.model.window)
    if asked.stream:
        events = "text/event-stream"
        return JobAnswer(job, told.event, told.last_event, media_type=events, fail=failure)
    return WholeAnswer(job, told)


class WholeAnswer(JobAnswer):
    """One JSON object once the job is done; the job is cancelled when the client goes away."""

    def __init__(self, job: Job, told: Answer) -> None:
        super().__init__(job, lambda item: b"", lambda: b"", media_type="application/json")
        self._told = told

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watcher = asyncio.create_task(watch(receive, self._job))
        try:
            found = [item async for item in self._job.items()]
        finally:
            watcher.cancel()
        error = next((item for item in found if isinstance(item, KvgError)), None)
        if error is None:
            grafts = [item for item in found if isinstance(item, Graft)]
            response: Response = JSONResponse(self._told.whole(grafts))
        else:
            response = failure(error)
        await response(scope, receive, send)


class Answer:
    """The objects of the API that one job becomes."""

    def __init__(self, asked: Asked, window: int) -> None:
        self._asked = asked
        self._index = 0
        self._grafts: list[Graft] = []
        prefix, kind = (
            ("chatcmpl", "chat.completion") if asked.is_chat else ("cmpl", "text_completion")
        )
        self._kind = kind
        self._id = f"{prefix}-{os.urandom(12).hex()}"
        self._created = int(time.time())
        self._is_begun = False

    def whole(self, grafts: Sequence[Graft]) -> dict[str, object]:
        """The answer without streaming."""
        choices = [self._choice(index, graft) for index, graft in enumerate(grafts)]
        return {
            **self._head(self._kind),
            "choices": choices,
            "usage": usage(grafts),
            **_kvg(grafts),
        }

    def event(self, item: Item) -> bytes:
        """The server-sent events of one item."""
        if isinstance(item, KvgError):
            return _event(error_body(item))
        if isinstance(item, TextPiece):
            return self._first() + _event(self._chunk(item.text, None))
        if isinstance(item, Graft):
            self._grafts.append(item)
            last = {**self._chunk("", item.finish), **_kvg([item])}
            data = self._first() + _event(last)
            self._index += 1
            self._is_begun = False
            return data
        return b""

    def last_event(self) -> bytes:
        """What ends the stream."""
        data = b""
        if self._asked.include_usage and self._grafts:
            chunk = {**self._head(self._chunk_kind), "choices": [], "usage": usage(self._grafts)}
            data = _event(chunk)
        return data + b"data: [DONE]\n\n"

    @property
    def _chunk_kind(self) -> str:
        return "chat.completion.chunk" if self._asked.is_chat else self._kind

    def _head(self, kind: str) -> dict[str, object]:
        head = {"id": self._id, "object": kind, "created": self._created}
        return {**head, "model": self._asked.model}

    def _choice(self, index: int, graft: Graft) -> dict[str, object]:
        said: dict[str, object] = {"text": graft.text}
        if self._asked.is_chat:
            said = {"message": {"role": "assistant", "content": graft.text, "refusal": None}}
        return {"index": index, **said, "logprobs": None, "finish_reason": graft.finish}

    def _first(self) -> bytes:
        """A chat's first event says who speaks."""
        if self._is_begun or not self._asked.is_chat:
            return b""
        self._is_begun = True
        return _event(self._made({"delta": {"role": "assistant", "content": ""}}, None))

    def _chunk(self, text: str, finish: str | None) -> dict[str, object]:
        if not self._asked.is_chat:
            return self._made({"text": text}, finish)
        return self._made({"delta": {"content": text} if text else {}}, finish)

    def _made(self, said: Mapping[str, object], finish: str | None) -> dict[str, object]:
        choice = {"index": self._index, **said, "logprobs": None, "finish_reason": finish}
        return {**self._head(self._chunk_kind), "choices": [choice]}


def usage(grafts: Sequence[Graft]) -> dict[str, object]:
    """Tokens: those restored count as cached parts of the prompt."""
    cached = sum(graft.saved_tokens for graft in grafts)
    is_hit = [graft.status == "GRAFT_HIT" for graft in grafts]
    prompt = sum(graft.prompt_tokens for graft in grafts) + cached + sum(is_hit)
    made = sum(graft.new_tokens for graft in grafts)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": made,
        "total_tokens": prompt + made,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def parse_asked(body: Mapping[str, object], *, is_chat: bool) -> Asked:
    """The request that ``body`` describes. Raises ``UsageError`` naming the parameter."""
    known = {"model", "kvg_ref", "stream", "stream_options", *_SAMPLING, *NEUTRAL, *IGNORED}
    own = {"messages", "max_completion_tokens"} if is_chat else {"prompt"}
    unknown = sorted(body.keys() - known - own)
    if unknown:
        raise UsageError(f"{unknown[0][:40]}: no parameter of this session")
    for name, allowed in NEUTRAL.items():
        value = body.get(name)
        if value is not None and not any(_is_same(value, item) for item in allowed):
            raise UsageError(f"{name}: not supported here")
    stream = _taken(body, "stream", as_bool) or False
    if body.get("stream_options") is not None and not stream:
        raise UsageError("stream_options: only with stream")
    return Asked(
        model=_taken(body, "model", as_text) or "",
        request=GraftRequest(
            ref=_taken(body, "kvg_ref", as_text) or "",
            texts=None if is_chat else _prompts(body.get("prompt")),
            messages=_messages(body.get("messages")) if is_chat else None,
            sampling=_sampling(body),
            stream=stream,
        ),
        is_chat=is_chat,
        stream=stream,
        include_usage=_wants_usage(body.get("stream_options")),
    )


def _is_same(value: object, allowed: object) -> bool:
    """Equal, and true is no 1."""
    return value == allowed and isinstance(value, bool) == isinstance(allowed, bool)


_SAMPLING = ("max_tokens", "temperature", "top_p", "seed", "stop")


def _taken(body: Mapping[str, object], name: str, check: Callable[[object, str], T]) -> T | None:
    """The checked value of a parameter, None where it was not given."""
    value = body.get(name)
    return None if value is None else check(value, name)


def _sampling(body: Mapping[str, object]) -> Sampling:
    most = _taken(body, "max_completion_tokens", as_int)
    if most is None:
        most = _taken(body, "max_tokens", as_int)
    top_p = _taken(body, "top_p", as_number)
    stop = body.get("stop")
    stops = [] if stop is None else [stop] if isinstance(stop, str) else stop
    try:
        return Sampling(
            max_tokens=MAX_NEW_TOKENS if most is None else most,
            temperature=_taken(body, "temperature", as_number) or 0.0,
            top_p=1.0 if top_p is None else top_p,
            seed=_taken(body, "seed", as_int),
            stop=as_texts(stops, "stop"),
        )
    except UsageError as error:  # it names the command's option
        raise UsageError(_OPTION.sub(_parameter, error.message)) from None


_OPTION = re.compile(r"^--([a-z-]+)")


def _parameter(option: re.Match[str]) -> str:
    return option[1].replace("-", "_")


def _prompts(value: object) -> tuple[str, ...]:
    if value is None:
        return ("",)
    found = (value,) if isinstance(value, str) else value
    if not isinstance(found, list | tuple) or not found:
        raise UsageError("prompt: neither text nor a list of texts")
    return as_texts(found, "prompt")


def _messages(value: object) -> tuple[Mapping[str, str], ...]:
    """Messages whose content is text, or a list of parts that are text."""
    items = value if isinstance(value, list) else []
    for number, item in enumerate(items):
        said = item.items() if isinstance(item, dict) else ()
        for key, more in said:
            if key not in ("role", "content") and more not in (None, [], {}):
                raise UsageError(f"messages: message {number}: {key[:40]}: not supported here")
    flat = [
        {**item, "content": _joined(item.get("content"))} if isinstance(item, dict) else item
        for item in items
    ]
    return as_messages(flat, "messages")


def _joined(content: object) -> object:
    if not isinstance(content, list):
        return content
    parts = [part if isinstance(part, dict) else {} for part in content]
    if any(part.get("type") != "text" for part in parts):
        raise UsageError("messages: content: only text is read")
    return "".join(as_text(part.get("text"), "messages: content: text") for part in parts)


def _wants_usage(value: object) -> bool:
    if value is None:
        return False
    if not isinstance(value, dict) or value.keys() - {"include_usage", "include_obfuscation"}:
        raise UsageError("stream_options: only include_usage is known")
    return _taken(value, "include_usage", as_bool) or False


def _check_model(desk: Desk, name: str) -> None:
    own = desk.resident.model.name
    if name != own:
        raise NotFound(f"model {name[:80]!r}: this session holds {own}", hint=f"model={own!r}")


def _kvg(grafts: Sequence[Graft]) -> dict[str, object]:
    """What each graft was: the record of ``kvg graft``."""
    return {"kvg": [encode_record(graft) for graft in grafts]}


def _event(value: Mapping[str, object]) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def error_body(error: KvgError) -> dict[str, object]:
    """``error`` in the API's form: ``type`` is kvg's kind, ``code`` its exit code."""
    text = error.message if error.hint is None else f"{error.message} ({error.hint})"
    return {"error": {"message": text, "type": error.kind, "param": None, "code": str(error.code)}}


def failure(error: KvgError) -> Response:
    return JSONResponse(error_body(error), status_of(error), headers=CLOSE)


def _guarded(handler: Handler) -> Handler:
    async def handle(request: Request) -> Response:
        try:
            return await handler(request)
        except KvgError as error:
            return failure(error)

    return handle
