"""A remote on any static web server, read only: GET with byte ranges, over HTTP or HTTPS.

A name and password in the address (``https://NAME:PASSWORD@HOST/…``) go to that host and to no
other: a redirect to another host, or from https to http, is refused, and no message shows them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from http.client import HTTPException, HTTPResponse
from typing import TYPE_CHECKING
from urllib.parse import quote

from kvg.errors import AGAIN, NotFound, RemoteFailed
from kvg.remote import files as asking
from kvg.remote import web
from kvg.remote.address import parse_address
from kvg.remote.files import ASKERS, PIECE_BYTES, Head
from kvg.remote.pace import TooSlow, watched

if TYPE_CHECKING:
    from kvg.digest import Buffer, Digest
    from kvg.remote.access import Access
    from kvg.remote.address import Address


class HttpFiles:
    """See ``Files``. One connection for each thread, kept open."""

    is_writable = False
    keeps_folders = False
    writes_in_turn = False

    def __init__(self, url: str, access: Access) -> None:
        """Raises ``UsageError`` on an address that is none."""
        address = parse_address(url)
        self._host = web.host_of(address, scheme=address.kind)
        self._base = address.path
        self._headers = {"Accept-Encoding": "identity", "User-Agent": "kvg", **_login(address)}
        self._url = f"{self._host}{self._base}"
        self._connections = web.Connections(self._host, access)

    @property
    def url(self) -> str:
        return self._url

    def read(self, name: str, limit: int) -> bytes | None:
        try:
            return b"".join(self.stream(name, start=0, limit=limit + 1))
        except NotFound:
            return None

    def stream(self, name: str, *, start: int, limit: int) -> Iterator[bytes]:
        """As ``Files.stream``. A connection that breaks is taken up again where it broke."""
        try:
            yield from watched(self._stream(name, start, limit))
        except TooSlow as error:
            self._connections.drop()
            raise self._failed(name, error) from None

    def _stream(self, name: str, start: int, limit: int) -> Iterator[bytes]:
        position, left, failures = start, limit, 0
        while left > 0:
            try:
                response = self._get(name, position, left)
                if response is None:
                    return
                for piece in self._body(response, name, left):
                    position, left, failures = position + len(piece), left - len(piece), 0
                    yield piece
                return
            except web.FAILURES as error:
                self._connections.drop()
                failures += 1
                if failures >= web.ATTEMPTS or isinstance(error, web.FINAL):
                    raise self._failed(name, error) from None

    def read_all(self, names: Sequence[str], limit: int) -> Mapping[str, bytes | None]:
        return asking.read_all(self, names, limit, askers=ASKERS)

    def head(self, name: str, limit: int) -> Head | None:
        try:
            response = self._get(name, 0, limit)
        except NotFound:
            return None
        if response is None:
            return Head(b"", 0)
        try:
            size = web.whole_size(response)
            data = b"".join(self._body(response, name, limit))
        except web.FAILURES as error:
            self._connections.drop()
            raise self._failed(name, error) from None
        return Head(data, len(data) if size is None else size)

    def missing(self, digests: Sequence[Digest]) -> frozenset[Digest]:
        return asking.missing(self, digests, askers=ASKERS)

    def write(self, name: str, parts: Iterable[Buffer]) -> None:
        raise self._read_only()

    def swap(self, name: str, data: bytes | None, *, expect: bytes | None) -> None:
        raise self._read_only()

    def remove(self, name: str) -> int:
        raise self._read_only()

    def remove_abandoned(self, *, dry_run: bool) -> tuple[int, int]:
        return 0, 0  # nothing is seen there before it is whole

    def names(self, folder: str) -> Sequence[str] | None:
        return None

    def close(self) -> None:
        self._connections.close()

    def _get(self, name: str, start: int, limit: int) -> HTTPResponse | None:
        """The response that begins at ``start``; None where there is nothing past it."""
        wanted = {"Range": f"bytes={start}-{start + limit - 1}"}
        response = self._ask("GET", name, wanted)
        if response.status == 416:  # nothing at or past ``start``: an empty file, or all is had
            self._connections.drop()
            return None
        if response.status in web.ABSENT:
            self._connections.drop()
            raise NotFound(f"{self._url}/{name}: not there")
        self._check_status(response, name, (200, 206))
        if response.status == 200 and start:
            self._skip(response, name, start)
        if response.status == 206 and web.range_start(response) != start:
            self._connections.drop()
            raise RemoteFailed(f"{self._url}/{name}: gives another range than was asked for")
        return response

    def _body(self, response: HTTPResponse, name: str, limit: int) -> Iterator[bytes]:
        """``limit`` bytes of the body at most; what comes after that is not read."""
        while limit > 0:
            piece = response.read(min(PIECE_BYTES, limit))
            if not piece:
                if response.length:
                    raise HTTPException(f"{response.length} bytes less than were promised")
                return
            limit -= len(piece)
            yield piece
        if not response.isclosed():
            self._connections.drop()

    def _skip(self, response: HTTPResponse, name: str, n_bytes: int) -> None:
        """Pass over the beginning where a server knows no ranges."""
        while n_bytes > 0:
            piece = response.read(min(PIECE_BYTES, n_bytes))
            if not piece:
                self._connections.drop()
                raise RemoteFailed(f"{self._url}/{name}: shorter than what was had of it")
            n_bytes -= len(piece)

    def _ask(self, method: str, name: str, headers: Mapping[str, str]) -> HTTPResponse:
        path = f"{self._base}/{quote(name)}"
        for _ in range(web.MAX_REDIRECTS):
            response = self._request(method, path, headers, name)
            if response.status not in web.REDIRECTS:
                return response
            path = self._redirected(response.getheader("Location") or "", path, name)
            self._connections.drop()
        raise RemoteFailed(f"{self._url}/{name}: redirected more than {web.MAX_REDIRECTS} times")

    def _request(
        self, method: str, path: str, headers: Mapping[str, str], name: str
    ) -> HTTPResponse:
        for attempt in range(web.ATTEMPTS):
            connection = self._connections.own()
            try:
                connection.request(method, path, headers={**self._headers, **headers})
                return web.answer_of(connection)
            except web.FAILURES as error:
                self._connections.drop()
                if attempt == web.ATTEMPTS - 1 or isinstance(error, (TimeoutError, *web.FINAL)):
                    raise self._failed(name, error) from None
        raise RemoteFailed(f"{self._url}/{name}: not reached")

    def _redirected(self, location: str, path: str, name: str) -> str:
        """The path on this very host that ``location`` means. Raises ``RemoteFailed``."""
        target = web.target_of(location, base=f"{self._host}{path}") if location else None
        if target is None:
            raise RemoteFailed(f"{self._url}/{name}: redirects to what is no address")
        if target.host != self._host:
            raise RemoteFailed(
                f"{self._url}/{name}: redirects to another host, {target.host}",
                hint="give that address yourself if you mean it: kvg remote set NAME URL",
            )
        return target.path

    def _check_status(self, response: HTTPResponse, name: str, good: Sequence[int]) -> None:
        if response.status not in good:
            self._connections.drop()
            words, hint = web.words_of_status(response.status)
            if response.status in (401, 403):
                hint = "a login goes into the address: https://NAME:PASSWORD@HOST/PATH"
            raise RemoteFailed(f"{self._url}/{name}: {words}", hint=hint)

    def _failed(self, name: str, error: Exception) -> RemoteFailed:
        told = f"{web.words_of(error)}{self._connections.told}"
        return RemoteFailed(f"{self._url}/{name}: {told}", hint=AGAIN)

    def _read_only(self) -> RemoteFailed:
        return RemoteFailed(f"{self._url}: can only be read")


def _login(address: Address) -> dict[str, str]:
    """The header for the name and password in ``address``."""
    if address.user is None:
        return {}
    from kvg.signing import base64

    pair = f"{address.user}:{address.password or ''}"
    return {"Authorization": f"Basic {base64.encode(pair.encode('utf-8'))}"}
