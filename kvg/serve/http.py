"""What both faces of a session share: bodies with a limit, answers that stream, who is let in."""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias, cast

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from kvg.client.channel import MAX_BODY_BYTES, peer_uid
from kvg.errors import (
    Conflict,
    Corrupt,
    Incompatible,
    KvgError,
    NoSpace,
    NotFound,
    RemoteFailed,
    Untrusted,
    UsageError,
)
from kvg.serve.jobs import Item, Job

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

BODY_S = 60.0
"""How long a request's body may take to arrive."""
HEAD_S = 30.0
"""How long a connection may take to its first request."""
MOST_OWN = 700
"""Connections of this user at once: more than requests may wait, fewer than files may be open."""
MOST_STRANGERS = 128
"""Connections to the port at a time: anyone on the machine can make one, each is an open file."""
STATUSES: dict[type[KvgError], int] = {
    UsageError: 400,
    NotFound: 404,
    Conflict: 409,
    Corrupt: 422,
    Untrusted: 403,
    Incompatible: 422,
    NoSpace: 429,
    RemoteFailed: 503,
}
"""HTTP status by kind; what is not here is 500. Clients repeat 409, 429 and 5xx by themselves."""
CLOSE = {"connection": "close"}
"""Sent with every error: what is left of a body is not read."""
log = logging.getLogger("kvg.serve")


class TooLarge(UsageError):
    """A body that is not read to its end."""


def status_of(error: KvgError) -> int:
    """The HTTP status that says what ``error`` is."""
    if isinstance(error, TooLarge):
        return 413
    return next((code for kind, code in STATUSES.items() if isinstance(error, kind)), 500)


async def read_body(request: Request) -> bytes:
    """The body of ``request``. Raises ``UsageError`` where it is too large, slow, or not whole."""
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared) > MAX_BODY_BYTES:
        raise _too_large(int(declared))
    parts, total = [], 0
    try:
        async with asyncio.timeout(BODY_S):
            async for part in request.stream():
                total += len(part)
                if total > MAX_BODY_BYTES:
                    raise _too_large(total)
                parts.append(part)
    except ClientDisconnect:
        log.info("%s: the client left before its request was whole", request.url.path)
        raise UsageError("request: not whole") from None
    except TimeoutError:
        raise UsageError(f"request: its body did not arrive in {BODY_S:g} s") from None
    return b"".join(parts)


def _too_large(size: int) -> TooLarge:
    return TooLarge(
        f"request: a body of {size:,} bytes or more, {MAX_BODY_BYTES:,} are read",
        hint="a prompt must fit the model's window",
    )


class JobAnswer(Response):
    """The items of a job as they come; the job is cancelled when the client goes away.

    ``encode`` makes the bytes of one item, ``finish`` those of the end. The status is that of the
    first item; ``fail`` answers an error that comes first in a way of its own.
    """

    def __init__(
        self,
        job: Job,
        encode: Callable[[Item], bytes],
        finish: Callable[[], bytes],
        *,
        media_type: str,
        fail: Callable[[KvgError], Response] | None = None,
    ) -> None:
        self._fail = fail
        self._job = job
        self._encode = encode
        self._finish = finish
        self._type = media_type
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watcher = asyncio.create_task(watch(receive, self._job))
        try:
            await self._send_all(scope, receive, send)
        except OSError:
            pass
        finally:
            self._job.cancelled.set()
            watcher.cancel()

    async def _send_all(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_begun = False
        async for item in self._job.items():
            if not is_begun and self._fail is not None and isinstance(item, KvgError):
                await self._fail(item)(scope, receive, send)
                return
            if not is_begun:
                is_begun = True
                await send(self._head(item))
            data = self._encode(item)
            if data:
                await send({"type": "http.response.body", "body": data, "more_body": True})
        if not is_begun:
            await send(self._head(None))
        await send({"type": "http.response.body", "body": self._finish(), "more_body": False})

    def _head(self, first: Item | None) -> MutableMapping[str, Any]:
        status = status_of(first) if isinstance(first, KvgError) else 200
        headers = [(b"content-type", self._type.encode()), (b"cache-control", b"no-store")]
        return {"type": "http.response.start", "status": status, "headers": headers}


async def watch(receive: Receive, job: Job) -> None:
    """Cancel ``job`` when the client has gone away."""
    while (await receive())["type"] != "http.disconnect":
        pass
    job.cancelled.set()


class LimitedProtocol(H11Protocol):
    """HTTP/1.1 that does not wait for ever for the first request of a connection; of more than
    ``most`` connections the one that has been silent for the longest time goes."""

    most = MOST_OWN

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._late = self.loop.call_later(HEAD_S, self._give_up)
        others = [other for other in self.connections if isinstance(other, type(self))]
        others = [other for other in others if not other.transport.is_closing()]
        if len(others) > self.most:
            silent = (other for other in others if cast("object", other.cycle) is None)
            min(silent, key=lambda other: other._late.when()).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._late.cancel()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Say so unless something was said already; who answers the request is told it left."""
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is not None and cycle.response_started:
            self.transport.close()
            return
        super().send_400_response(msg)
        if cycle is not None:
            cycle.disconnected = True
            cycle.message_event.set()

    def _give_up(self) -> None:
        if cast("object", self.cycle) is None:
            self.transport.close()


class PublicProtocol(LimitedProtocol):
    """HTTP/1.1 for whoever is on this machine."""

    most = MOST_STRANGERS


class PrivateProtocol(LimitedProtocol):
    """HTTP/1.1 for processes of this very user; anyone else is cut off unheard."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        link: socket.socket = transport.get_extra_info("socket")
        uid = peer_uid(link)
        super().connection_made(transport)
        if uid != os.geteuid():
            log.warning("user %d was refused", uid)
            transport.abort()

    def data_received(self, data: bytes) -> None:
        if not self.transport.is_closing():
            super().data_received(data)


class Guard:
    """Lets in who names this host, comes from no web page, and knows the token."""

    def __init__(self, app: App, *, port: int, token: str) -> None:
        self._app = app
        self._hosts = {f"{host}:{port}".encode() for host in ("127.0.0.1", "localhost")}
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        refusal = self._refusal(scope["headers"])
        if refusal is None:
            await self._app(scope, receive, send)
            return
        status, message = refusal
        log.warning("%s %s: %d %s", scope["method"], scope["path"], status, message)
        body = {"error": {"message": message, "type": "untrusted", "param": None, "code": None}}
        await JSONResponse(body, status, headers=CLOSE)(scope, receive, send)

    def _refusal(self, headers: list[tuple[bytes, bytes]]) -> tuple[int, str] | None:
        hosts = [value.lower() for name, value in headers if name == b"host"]
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            return 421, "host: not this one"
        if any(name == b"origin" for name, _ in headers):
            return 403, "origin: not for web pages"
        tokens = [value for name, value in headers if name == b"authorization"]
        if len(tokens) != 1 or not hmac.compare_digest(tokens[0], self._expected):
            return 401, "authorization: not the token of this session"
        return None
