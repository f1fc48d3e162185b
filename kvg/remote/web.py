"""Connections to one web server, one for each thread, kept open."""

from __future__ import annotations

import io
import socket
import threading
from collections.abc import Iterable, Iterator
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import TYPE_CHECKING, Final
from urllib.parse import urljoin, urlsplit

from kvg.frozen import frozen
from kvg.remote.address import is_host
from kvg.remote.pace import Overlong, PacedStream, TooSlow
from kvg.remote.proxies import Proxy, proxy_for

if TYPE_CHECKING:
    from kvg.digest import Buffer
    from kvg.remote.access import Access
    from kvg.remote.address import Address

TIMEOUT_S: Final = 60.0
MAX_REDIRECTS: Final = 5
ATTEMPTS: Final = 3
"""How often a request is made where the server closed an idle connection or broke off."""

MAX_HEAD_BYTES: Final = 64 << 10
"""The most that an answer may say before its body, interim answers and all, or around its parts."""

CHUNKS_BYTES: Final = 64 << 10
"""What is read at once of an answer in chunks."""

MOST_AROUND: Final = 8
"""The most bytes on the wire for each byte of an answer in chunks: one of a byte takes six."""

SENT_BYTES: Final = 64 << 10
"""What is sent at once: a server has to take that much in ``TIMEOUT_S``."""

FINAL: Final = (TooSlow, Overlong)
"""Failures that another try would only repeat."""

REDIRECTS: Final = (301, 302, 303, 307, 308)
ABSENT: Final = (404, 410)
FAILURES: Final = (HTTPException, OSError)
"""What a connection raises."""

AGAIN_LATER: Final = "that may pass: try again later; what is done is kept"

PORTS: Final = {"http": 80, "https": 443}


@frozen
class Host:
    """One server: nothing that is meant for it is sent to another."""

    scheme: str
    name: str
    port: int

    def __str__(self) -> str:
        name = f"[{self.name}]" if ":" in self.name else self.name
        shown = "" if self.port == PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{name}{shown}"


@frozen
class Target:
    """Where an answer leads: a host, and what to ask it for."""

    host: Host
    path: str
    """Path and query."""


def host_of(address: Address, *, scheme: str) -> Host:
    """The server that an address is on, as ``scheme`` reaches it."""
    return Host(scheme, address.host, address.port or PORTS[scheme])


def target_of(location: str, *, base: str) -> Target | None:
    """Where the untrusted ``location``, met at the address ``base``, leads; None where nowhere."""
    if not location.isascii() or not location.isprintable() or " " in location:
        return None
    try:
        parts = urlsplit(urljoin(base, location))
        port = parts.port
    except ValueError:
        return None
    name = parts.hostname or ""
    if parts.scheme not in PORTS or not is_host(name) or port == 0:
        return None
    query = f"?{parts.query}" if parts.query else ""
    host = Host(parts.scheme, name, port or PORTS[parts.scheme])
    return Target(host, (parts.path or "/") + query)


class Connections:
    """Connections to ``host``. Safe for threads."""

    def __init__(self, host: Host, access: Access) -> None:
        """Raises ``UsageError`` where no proxy is said that can be used."""
        self._host = host
        self._proxy = proxy_for(host, access)
        self.told = "" if self._proxy is None else f" (by the proxy {self._proxy})"
        """What a failure says of the way there."""
        self._local = threading.local()
        self._guard = threading.Lock()
        self._open: list[HTTPConnection] = []

    def own(self) -> HTTPConnection:
        """This thread's connection."""
        found: HTTPConnection | None = getattr(self._local, "connection", None)
        if found is None:
            found = _connection(self._host, self._proxy)
            self._local.connection = found
            with self._guard:
                self._open.append(found)
        return found

    def drop(self) -> None:
        """Close this thread's connection: what is left on it is not read."""
        found: HTTPConnection | None = getattr(self._local, "connection", None)
        if found is not None:
            found.close()
            self._local.connection = None
            with self._guard:
                self._open = [item for item in self._open if item is not found]

    def close(self) -> None:
        """Close them all."""
        with self._guard:
            for connection in self._open:
                connection.close()
            self._open.clear()


def connect(host: Host, access: Access) -> HTTPConnection:
    """A connection to ``host``, opened when it is first used. Raises ``UsageError``."""
    return _connection(host, proxy_for(host, access))


def _connection(host: Host, proxy: Proxy | None) -> HTTPConnection:
    kind = HTTPSConnection if host.scheme == "https" else HTTPConnection
    if proxy is None:
        connection = kind(host.name, host.port, timeout=TIMEOUT_S)
    elif host.scheme == "https":
        connection = kind(proxy.host, proxy.port, timeout=TIMEOUT_S)
        connection.set_tunnel(host.name, host.port, dict(proxy.headers))
    else:
        connection = _ByProxy(host, proxy)
    connection.response_class = PacedResponse
    return connection


class _ByProxy(HTTPConnection):
    """A connection to a proxy that asks it for what is on ``host``, over plain HTTP."""

    def __init__(self, host: Host, proxy: Proxy) -> None:
        super().__init__(proxy.host, proxy.port, timeout=TIMEOUT_S)
        self._of = host
        self._headers = proxy.headers

    def putrequest(self, method: str, url: str, *args: bool, **more: bool) -> None:
        """As ``HTTPConnection.putrequest``, of a path on the host that is meant."""
        super().putrequest(method, f"{self._of}{url}", *args, **more)
        for name, value in self._headers.items():
            self.putheader(name, value)


class PacedResponse(HTTPResponse):
    """An answer that comes at a pace, with a head and an end: see ``PacedStream``."""

    def __init__(self, sock: socket.socket, *args: object, **kwargs: object) -> None:
        super().__init__(sock, *args, **kwargs)  # type: ignore[arg-type]
        self._paced = PacedStream(self.fp.detach())
        self._paced.allow(MAX_HEAD_BYTES)  # a proxy's word on a tunnel is read without ``begin``
        self.fp = io.BufferedReader(self._paced)

    def begin(self) -> None:
        """Read the head."""
        self._paced.allow(MAX_HEAD_BYTES)
        super().begin()

    def read(self, amt: int | None = None) -> bytes:
        """As ``HTTPResponse.read``; without ``amt`` nothing is read of what has no length."""
        wanted = (self.length or 0) if amt is None else amt
        if not self.chunked:
            self._paced.allow(wanted + MAX_HEAD_BYTES)
            return super().read(wanted)
        pieces = []
        while wanted > 0:
            self._paced.allow(MOST_AROUND * CHUNKS_BYTES + MAX_HEAD_BYTES)
            piece = super().read(min(wanted, CHUNKS_BYTES))
            if not piece:
                break
            pieces.append(piece)
            wanted -= len(piece)
        return b"".join(pieces)


def body_of(parts: Iterable[Buffer]) -> Iterator[memoryview]:
    """``parts`` in pieces that any server takes before it is given up."""
    for part in parts:
        view = memoryview(part).cast("B")
        for at in range(0, len(view), SENT_BYTES):
            yield view[at : at + SENT_BYTES]


def answer_of(connection: HTTPConnection) -> HTTPResponse:
    """What comes back for the request that was sent. Raises ``HTTPException`` where it can't be."""
    response = connection.getresponse()
    length = response.getheader("Content-Length")
    if length is not None and not (length.isascii() and length.strip().isdigit()):
        connection.close()
        raise HTTPException("answers with a length that is no length")
    return response


def range_start(response: HTTPResponse) -> int | None:
    """Where the part that ``response`` gives begins."""
    unit, _, rest = (response.getheader("Content-Range") or "").partition(" ")
    first = rest.partition("-")[0]
    return int(first) if unit == "bytes" and first.isascii() and first.isdigit() else None


def whole_size(response: HTTPResponse) -> int | None:
    """The size of the file that ``response`` is (a part of), where it is told."""
    text = response.getheader("Content-Length") or ""
    if response.status == 206:
        text = (response.getheader("Content-Range") or "").rpartition("/")[2]
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None


def words_of_status(status: int) -> tuple[str, str | None]:
    """What an answer of this kind, which is none that was asked for, means, and what may help."""
    if status in REDIRECTS:
        return f"redirects, with {status}, to another place", None
    if status == 429 or status >= 500:
        return f"fails with {status}", AGAIN_LATER
    return f"refused with {status}", None


def words_of(error: BaseException) -> str:
    """What went wrong, in lower case."""
    return str(getattr(error, "strerror", None) or error or type(error).__name__).lower()
