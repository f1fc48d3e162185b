"""A client of container registries: blobs, manifests, tags, referrers.

https://github.com/opencontainers/distribution-spec/blob/v1.1.0/spec.md, with the fallback of
registries before 1.1 for referrers. The login goes to the registry, and for a token to the server
that issues tokens for it, which has to be its kin (``is_kin``); to no other. A blob may be kept on
another host: that gets no login, and what it gives is checked as everything is.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlencode

from kvg import canon
from kvg.digest import Digest, sha256, short
from kvg.errors import AGAIN, Corrupt, NotFound, RemoteFailed
from kvg.frozen import frozen
from kvg.remote import oci, web
from kvg.remote.address import LOCAL, parse_address
from kvg.remote.docker_login import login_for
from kvg.remote.files import PIECE_BYTES, gathered
from kvg.remote.pace import TooSlow, watched

if TYPE_CHECKING:
    from kvg.digest import Buffer
    from kvg.remote.access import Access

MAX_TAG_CHARS: Final = 128
"""Of any tag, by the specification."""

MAX_PAGES: Final = 10_000
MAX_SMALL_BYTES: Final = 1 << 20
MANIFEST_PAUSES_S: Final = (0.05, 0.2, 0.8)
PASSING: Final = (400, 404, 429, 500, 502, 503, 504)
"""Answers to a manifest that may be others a moment later."""


@frozen
class Fetched:
    """A manifest as it stands, and its digest."""

    data: bytes
    digest: Digest


class Registry:
    """One repository of a registry. Safe for threads.

    Raises ``RemoteFailed`` when it can't be reached or refuses, ``Corrupt`` on answers that can't
    be.
    """

    def __init__(self, url: str, access: Access) -> None:
        """Plain HTTP where the address says ``oci+http`` or the host is this very machine.

        Raises ``UsageError`` on an address that is none.
        """
        address = parse_address(url)
        is_plain = address.kind == "oci+http" or address.host in LOCAL
        self._host = web.host_of(address, scheme="http" if is_plain else "https")
        self.name = address.path
        self.url = f"{address.kind}://{address.server}/{address.path}"
        self._server = address.server
        self._access = access
        self._base = f"/v2/{address.path}"
        self._connections = web.Connections(self._host, access)
        self._guard = threading.Lock()
        self._authorization: str | None = None
        self._lists_referrers = True

    def tags(self) -> tuple[str, ...] | None:
        """Every tag, ascending; None where there is no such repository."""
        path = f"{self._base}/tags/list?n=1000"
        response = self._ask("GET", path)
        if response.status in web.ABSENT:
            self._connections.drop()
            return None
        return tuple(gathered(self._listed(response, path), what=f"{self.url}: tags"))

    def _listed(self, response: HTTPResponse, path: str) -> Iterator[str]:
        """The tags of each page of a list, of which ``response`` is the first, at ``path``."""
        what = f"{self.url}: tags"
        for _ in range(MAX_PAGES):
            value = self._json(response, (200,), "tags")
            tags = value.get("tags") if isinstance(value, Mapping) else None
            for tag in canon.as_list(tags or (), what=what):
                if len(canon.as_str(tag, what=what)) > MAX_TAG_CHARS:
                    raise Corrupt(f"{what}: one of more than {MAX_TAG_CHARS} characters")
                yield str(tag)
            following = self._next_page(response.getheader("Link"), path)
            if following is None:
                return
            path = following
            response = self._ask("GET", path)
        raise Corrupt(f"{what}: a list without an end")

    def _next_page(self, link: str | None, path: str) -> str | None:
        """What to ask this very host for to go on with a list of tags; None at its end."""
        found = re.match(r"\s*<([^>]*)>\s*;\s*rel=\"?next\"?", link or "")
        if found is None:
            return None
        target = web.target_of(found.group(1), base=f"{self._host}{path}")
        if target is None:
            raise RemoteFailed(f"{self.url}: a list of tags that goes on nowhere")
        return target.path

    def manifest(self, reference: str) -> Fetched | None:
        """The manifest with this tag or digest; None when there is none."""
        headers = {"Accept": f"{oci.IMAGE}, {oci.INDEX}"}
        response = self._ask("GET", f"{self._base}/manifests/{quote(reference)}", headers)
        if response.status in web.ABSENT:
            self._passed_over(response)
            return None
        data = self._whole(response, (200,), reference)
        digest = sha256(data)
        if reference.startswith("sha256:") and digest != reference:
            raise Corrupt(f"{self.url}: manifest {short(digest)} is not {reference[:19]}")
        return Fetched(data, digest)

    def put_manifest(self, reference: str, data: bytes, media_type: str) -> bool:
        """Put a manifest under a tag or its digest; whether the registry notes its subject.

        A refusal is asked about again: a registry that finds what a manifest names in files which
        it writes in place refuses one while somebody else uploads the same blob.
        """
        path = f"{self._base}/manifests/{quote(reference)}"
        for pause in (*MANIFEST_PAUSES_S, None):
            response = self._ask("PUT", path, {"Content-Type": media_type}, body=[data])
            if pause is None or response.status not in PASSING:
                break
            self._connections.drop()
            time.sleep(pause)
        self._whole(response, (201, 200), reference)
        return response.getheader("OCI-Subject") is not None

    def delete_manifest(self, digest: Digest) -> None:
        """Delete a manifest, and with it every tag on it."""
        response = self._ask("DELETE", f"{self._base}/manifests/{digest}")
        if response.status in (405, 501):
            self._connections.drop()
            raise RemoteFailed(
                f"{self.url}: deletes nothing", hint="registries have it as an option, off at first"
            )
        self._whole(response, (202, 200, 204, *web.ABSENT), digest)

    def delete_tag(self, tag: str) -> bool:
        """Delete a tag and nothing else; False where the registry says that it does not."""
        response = self._ask("DELETE", f"{self._base}/manifests/{quote(tag)}")
        if response.status not in (202, 200, 204):
            self._passed_over(response)
            return False
        self._whole(response, (202, 200, 204), tag)
        return True

    def delete_blob(self, digest: Digest) -> bool:
        """Delete a blob; whether it is gone. Many registries leave that to their own clean-up."""
        response = self._ask("DELETE", f"{self._base}/blobs/{digest}")
        if response.status in (400, 403, 405, 501):
            self._connections.drop()
            return False
        self._whole(response, (202, 200, 204, *web.ABSENT), digest)
        return True

    def referrers(self, digest: Digest) -> tuple[oci.Descriptor, ...]:
        """What refers to a manifest, by the registry's own list or by the fallback tag."""
        what = f"{self.url}: referrers of {short(digest)}"
        if self._lists_referrers:
            response = self._ask("GET", f"{self._base}/referrers/{digest}")
            if response.status == 200:
                return oci.parse_index(self._whole(response, (200,), digest), what=what)
            self._passed_over(response)
            if response.status not in web.ABSENT:
                raise self._refused(response, digest)
            self._lists_referrers = False  # one that does has an empty list where there are none
        listed = self.manifest(fallback_tag(digest))
        return () if listed is None else oci.parse_index(listed.data, what=what)

    def refer(self, subject: Digest, referrer: oci.Descriptor) -> None:
        """Note in the fallback tag of ``subject`` that ``referrer`` is about it."""
        tag = fallback_tag(subject)
        listed = self.manifest(tag)
        known = () if listed is None else oci.parse_index(listed.data, what=f"{self.url}: {tag}")
        if referrer.digest not in {item.digest for item in known}:
            data = oci.encode_index((*known, referrer))
            self.put_manifest(tag, data, oci.INDEX)

    def has_blob(self, digest: Digest) -> bool:
        """Whether a blob is there; a registry names blobs by what it has checked."""
        response = self._ask("HEAD", f"{self._base}/blobs/{digest}")
        response.read(MAX_SMALL_BYTES)
        if response.status in web.REDIRECTS:
            return True
        if response.status not in (200, *web.ABSENT):
            raise self._refused(response, digest)
        return response.status == 200

    def put_blob(self, digest: Digest, parts: Sequence[Buffer]) -> None:
        """Upload a blob in one piece; the registry checks its digest."""
        response = self._ask("POST", f"{self._base}/blobs/uploads/", body=[])
        self._whole(response, (202,), digest)
        target = self._target(response, digest)
        if target.host != self._host:
            raise RemoteFailed(f"{self.url}: wants blobs on another host, {target.host}")
        mark = "&" if "?" in target.path else "?"
        path = f"{target.path}{mark}{urlencode({'digest': digest})}"
        headers = {"Content-Type": "application/octet-stream"}
        self._whole(self._ask("PUT", path, headers, body=parts), (201,), digest)

    def blob(self, digest: Digest, *, start: int, limit: int) -> Iterator[bytes]:
        """A blob from byte ``start`` on, ``limit`` bytes at most. Raises ``NotFound``."""
        try:
            yield from watched(self._blob(digest, start, limit))
        except TooSlow as error:
            self._connections.drop()
            raise self._failed(error, digest) from None

    def _blob(self, digest: Digest, start: int, limit: int) -> Iterator[bytes]:
        position, left, failures = start, limit, 0
        while left > 0:
            connection, response = self._begin_blob(digest, position, left)
            if response is None:
                return
            try:
                for piece in self._pieces(response, digest, position, left):
                    position, left, failures = position + len(piece), left - len(piece), 0
                    yield piece
                return
            except web.FAILURES as error:
                failures += 1
                if failures >= web.ATTEMPTS or isinstance(error, web.FINAL):
                    raise self._failed(error, digest) from None
            finally:
                if connection is not None:
                    connection.close()
                elif not response.isclosed():
                    self._connections.drop()

    def close(self) -> None:
        """Close what is open."""
        self._connections.close()

    def _begin_blob(
        self, digest: Digest, start: int, limit: int
    ) -> tuple[HTTPConnection | None, HTTPResponse | None]:
        """The answer with a blob, and the connection to close where that is to another host."""
        wanted = {"Range": f"bytes={start}-{start + limit - 1}"}
        response = self._ask("GET", f"{self._base}/blobs/{digest}", wanted)
        connection = None
        for _ in range(web.MAX_REDIRECTS):
            if response.status not in web.REDIRECTS:
                break
            self._connections.drop()
            if connection is not None:
                connection.close()
            target = self._target(response, digest)
            connection, response = self._elsewhere(target, wanted, digest)
        if response.status == 416:
            self._connections.drop()
            return connection, None
        if response.status in web.ABSENT:
            self._connections.drop()
            raise NotFound(f"{self.url}: blob {short(digest)}: not there")
        if response.status not in (200, 206):
            raise self._refused(response, digest)
        return connection, response

    def _target(self, response: HTTPResponse, digest: Digest) -> web.Target:
        """Where the registry says that a blob is, or goes. Raises ``RemoteFailed``."""
        location = response.getheader("Location") or ""
        found = web.target_of(location, base=f"{self._host}{self._base}/") if location else None
        if found is None:
            raise RemoteFailed(f"{self.url}: blob {short(digest)} is nowhere")
        return found

    def _elsewhere(
        self, target: web.Target, headers: Mapping[str, str], digest: Digest
    ) -> tuple[HTTPConnection, HTTPResponse]:
        """Ask another place, without any login; not over plain HTTP where the registry is not."""
        host = target.host
        if self._host.scheme == "https" and host.scheme != "https":
            raise RemoteFailed(f"{self.url}: redirects to plain http on {host.name}")
        connection = web.connect(host, self._access)
        try:
            connection.request("GET", target.path, headers={"User-Agent": "kvg", **headers})
            return connection, web.answer_of(connection)
        except web.FAILURES as error:
            connection.close()
            raise self._failed(error, digest) from None

    def _pieces(
        self, response: HTTPResponse, digest: Digest, start: int, limit: int
    ) -> Iterator[bytes]:
        skip = start if response.status == 200 else 0
        if response.status == 206 and web.range_start(response) != start:
            raise RemoteFailed(f"{self.url}: gives another range of blob {short(digest)}")
        while skip:
            passed = response.read(min(PIECE_BYTES, skip))
            if not passed:
                return
            skip -= len(passed)
        while limit > 0:
            piece = response.read(min(PIECE_BYTES, limit))
            if not piece:
                if response.length:
                    raise HTTPException(f"{response.length} bytes less than were promised")
                return
            limit -= len(piece)
            yield piece

    def _ask(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        body: Sequence[Buffer] | None = None,
    ) -> HTTPResponse:
        """One request, with the login once it is asked for."""
        response = self._request(method, path, headers or {}, body)
        if response.status != 401:
            return response
        challenge = response.getheader("WWW-Authenticate") or ""
        self._connections.drop()
        with self._guard:
            self._authorization = self._authorized(challenge)
        response = self._request(method, path, headers or {}, body)
        if response.status in (401, 403):
            raise self._refused(response, method.lower())
        return response

    def _request(
        self, method: str, path: str, headers: Mapping[str, str], body: Sequence[Buffer] | None
    ) -> HTTPResponse:
        sent = {"User-Agent": "kvg", **headers}
        if self._authorization is not None:
            sent["Authorization"] = self._authorization
        if body is not None:
            sent["Content-Length"] = str(sum(memoryview(part).nbytes for part in body))
        for attempt in range(web.ATTEMPTS):
            connection = self._connections.own()
            try:
                connection.request(method, path, None if body is None else web.body_of(body), sent)
                return web.answer_of(connection)
            except web.FAILURES as error:
                self._connections.drop()
                if attempt == web.ATTEMPTS - 1 or isinstance(error, (TimeoutError, *web.FINAL)):
                    raise self._failed(error, method.lower()) from None
        raise RemoteFailed(f"{self.url}: not reached")

    def _authorized(self, challenge: str) -> str | None:
        """The header that answers ``challenge``."""
        login = login_for(self._server, self._access)
        kind, said = parse_challenge(challenge)
        if kind == "bearer":
            return f"Bearer {self._token(said, None if login is None else login.basic)}"
        if login is None:
            raise RemoteFailed(f"{self.url}: wants a login", hint=f"docker login {self._server}")
        return login.basic

    def _token(self, said: Mapping[str, str], basic: str | None) -> str:
        realm = web.target_of(said.get("realm", ""), base="")
        if realm is None:
            raise RemoteFailed(f"{self.url}: asks for a token of nobody")
        host, path = realm.host, realm.path.partition("?")[0]
        if basic is not None and not is_kin(host, self._host):
            raise RemoteFailed(
                f"{self.url}: wants the login to be sent to another host, {host.name}"
            )
        query = urlencode({key: said[key] for key in ("service", "scope") if key in said})
        connection = web.connect(host, self._access)
        try:
            headers = {"User-Agent": "kvg"} | ({} if basic is None else {"Authorization": basic})
            connection.request("GET", f"{path}?{query}", headers=headers)
            response = web.answer_of(connection)
            data = response.read(MAX_SMALL_BYTES)
        except web.FAILURES as error:
            raise self._failed(error, "token") from None
        finally:
            connection.close()
        if response.status != 200:
            raise self._refused(response, "token")
        found = canon.parse_json(data, what=f"{self.url}: token")
        for key in ("token", "access_token"):
            token = found.get(key) if isinstance(found, Mapping) else None
            if isinstance(token, str) and re.fullmatch(r"[\x21-\x7e]+", token):
                return token
        raise Corrupt(f"{self.url}: no token")

    def _json(self, response: HTTPResponse, good: Sequence[int], what: str) -> canon.Json:
        return canon.parse_json(self._whole(response, good, what), what=f"{self.url}: {what}")

    def _whole(self, response: HTTPResponse, good: Sequence[int], what: str) -> bytes:
        """The whole of a small answer of one of the ``good`` kinds."""
        if response.status not in good:
            raise self._refused(response, what)
        try:
            data = response.read(oci.MAX_DOCUMENT_BYTES + 1)
            if response.length and len(data) <= oci.MAX_DOCUMENT_BYTES:
                raise HTTPException(f"{response.length} bytes less than were promised")
        except web.FAILURES as error:
            self._connections.drop()
            raise self._failed(error, what) from None
        if len(data) > oci.MAX_DOCUMENT_BYTES:
            self._connections.drop()
            raise Corrupt(f"{self.url}: {what} is too large")
        return data

    def _passed_over(self, response: HTTPResponse) -> None:
        """Read what is said beside a short answer, so that the connection can be used again."""
        try:
            response.read(MAX_SMALL_BYTES)
        except web.FAILURES:
            self._connections.drop()
        if not response.isclosed():
            self._connections.drop()

    def _refused(self, response: HTTPResponse, what: str) -> RemoteFailed:
        self._connections.drop()
        words, hint = web.words_of_status(response.status)
        if response.status in (401, 403):
            hint = f"docker login {self._server}"
        return RemoteFailed(f"{self.url}: {what[:80]}: {words}", hint=hint)

    def _failed(self, error: BaseException, what: str) -> RemoteFailed:
        told = f"{web.words_of(error)}{self._connections.told}"
        return RemoteFailed(f"{self.url}: {what[:80]}: {told}", hint=AGAIN)


def fallback_tag(digest: Digest) -> str:
    """The tag under which referrers are listed where the registry does not list them."""
    return digest.replace(":", "-")


def is_kin(host: web.Host, other: web.Host) -> bool:
    """Whether a login for ``other`` may be sent to ``host``: the same, or over https one whose name
    is the other's or lies above or below it.

    Names that share their last parts alone may be strangers', as all under ``github.io`` or
    ``co.uk`` are; of ``docker.io`` it is known whose they are. Over plain http a port is its own
    host: on one machine each may be another user's.
    """
    if host == other:
        return True
    if not host.scheme == other.scheme == "https":
        return False
    one, two = host.name.lower(), other.name.lower()
    if one == two:
        return True
    if any(re.fullmatch(r"[0-9.]+|.*:.*", name) or name.count(".") < 1 for name in (one, two)):
        return False
    is_docker = all(name.endswith(".docker.io") for name in (one, two))
    return is_docker or one.endswith(f".{two}") or two.endswith(f".{one}")


def parse_challenge(text: str) -> tuple[str, dict[str, str]]:
    """The scheme of a registry's challenge, in lower case, and its quoted parameters.

    Linear in the length of ``text``: no name is looked for inside a word.
    """
    scheme, _, rest = text.partition(" ")
    return scheme.lower(), dict(re.findall(r'\b(\w+)="([^"]*)"', rest))
