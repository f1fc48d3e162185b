"""A remote in any S3-compatible object store: ``s3://BUCKET/PREFIX``.

Where the store is, and who one is there, is said as to the AWS tools: ``AWS_ENDPOINT_URL_S3``,
``AWS_REGION``, ``AWS_ACCESS_KEY_ID`` and the others, else the profile ``AWS_PROFILE`` in
``~/.aws``. Objects of more than a part's size go up in parts; pointers and checkpoints move by
conditional put (If-Match, If-None-Match), and a store that does not heed those is not written to.
A ref that was taken off leaves a small marker behind: what is replaced can be compared with what
was expected, what is deleted can't.

An upload that is killed leaves parts behind that are no object and that obstore does not list: the
bucket's life-cycle rule AbortIncompleteMultipartUpload removes them.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from kvg.errors import AGAIN, Conflict, Incompatible, NotFound, RemoteFailed, UsageError
from kvg.remote import files as asking
from kvg.remote import layout, pace, web
from kvg.remote.address import WEB, parse_address, shown
from kvg.remote.aws import settings_of
from kvg.remote.files import ASKERS, PIECE_BYTES, Head
from kvg.remote.pace import TooSlow, watched
from kvg.remote.proxies import proxy_for

if TYPE_CHECKING:
    from obstore.store import S3Store

    from kvg.digest import Buffer, Digest
    from kvg.remote.access import Access

PART_BYTES: Final = 8 << 20
"""What is longer goes up in parts of this size, several at a time."""

PARTS_AT_ONCE: Final = 4
MARKER: Final = b"kvg-removed\n"
"""What lies where a ref was taken off: shorter than any pointer."""

MAX_RETRIES: Final = 5
REQUEST_TIMEOUT = "300s"
"""How long one request may take, its body and all: a part goes up, a piece comes down in it."""

MAX_SAID_CHARS: Final = 300
_LOGIN: Final = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
_ASKED_FOR_LOGIN: Final = ("169.254.169.254", "fd00:ec2::254")
"""Where a login is asked for, as a machine of the provider's may, once none is set."""

_PROVIDERS: Final = ("amazonaws.com", "amazonaws.com.cn", "api.aws")
"""Domains whose hosts send to one another: where a bucket lies, and who gives logins out."""


class S3Files:
    """See ``Files``."""

    is_writable = True
    keeps_folders = False
    writes_in_turn = False

    def __init__(self, url: str, access: Access) -> None:
        """Raises ``UsageError`` on an address that is none, ``Incompatible`` without obstore."""
        address = parse_address(url)
        self._prefix = address.path
        self._bucket = address.host
        self._obstore, self._opened, self._endpoint = _open(self._bucket, access)
        self._access = access
        self._guard = threading.Lock()
        self._at_first = threading.Lock()
        self._is_there = not self._endpoint
        self._heeds_conditions = False
        self._has_ranges = True

    @property
    def url(self) -> str:
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    @property
    def _store(self) -> S3Store:
        """The store, once its endpoint was seen to send nobody elsewhere.

        obstore would follow it there, and take a session token along.
        """
        with self._at_first:
            if not self._is_there:
                path = f"/{self._bucket}/{self._key(layout.FORMAT_FILE)}"
                check_no_redirect(self._endpoint, path, self._access, what=self.url)
                self._is_there = True
        return self._opened

    def read(self, name: str, limit: int) -> bytes | None:
        found = self._read(name, limit)
        return None if found is None or found[0] == MARKER else found[0]

    def read_all(self, names: Sequence[str], limit: int) -> Mapping[str, bytes | None]:
        return asking.read_all(self, names, limit, askers=ASKERS)

    def stream(self, name: str, *, start: int, limit: int) -> Iterator[bytes]:
        try:
            yield from watched(self._stream(name, start, limit))
        except TooSlow as error:
            raise RemoteFailed(f"{self.url}/{name}: {error}", hint=AGAIN) from None

    def _stream(self, name: str, start: int, limit: int) -> Iterator[bytes]:
        position, left, failures, since = start, limit, 0, time.monotonic()
        while left > 0:
            try:
                found = self._get(name, position, left, is_part=False)
                if found is None:
                    raise NotFound(f"{self.url}/{name}: not there")
                for piece in self._body(found, name, position, left):
                    position, left, failures = position + len(piece), left - len(piece), 0
                    yield piece
                    since = time.monotonic()
                return
            except RemoteFailed:
                size = self._size(name) if position else None
                if size is not None and position >= size:
                    return  # nothing past the end: that is told as a failure
                failures += 1
                if failures >= MAX_RETRIES or time.monotonic() - since > pace.BODY_WINDOW_S:
                    raise

    def head(self, name: str, limit: int) -> Head | None:
        try:
            found = self._get(name, 0, limit, is_part=True)
        except RemoteFailed:  # an empty object has no range, and says so in many ways
            if self._size(name) != 0:
                raise
            return Head(b"", 0)
        if found is None:
            return None
        return Head(b"".join(self._body(found, name, 0, limit)), int(found.meta["size"]))

    def missing(self, digests: Sequence[Digest]) -> frozenset[Digest]:
        return asking.missing(self, digests, askers=ASKERS)

    def write(self, name: str, parts: Iterable[Buffer]) -> None:
        kept = list(parts)
        size = sum(memoryview(part).nbytes for part in kept)
        with self._failing(name):
            if size <= PART_BYTES:
                self._obstore.put(self._store, self._key(name), b"".join(kept), use_multipart=False)
                return
            self._obstore.put(
                self._store,
                self._key(name),
                _cut(kept),
                use_multipart=True,
                chunk_size=PART_BYTES,
                max_concurrency=PARTS_AT_ONCE,
            )

    def swap(self, name: str, data: bytes | None, *, expect: bytes | None) -> None:
        self._check_conditions()
        limit = layout.MAX_LISTING_BYTES
        found = self._read(name, limit)
        there, tag = (None, None) if found is None else found
        if (None if there == MARKER else there) != expect:
            raise Conflict(f"{self.url}/{name}: changed meanwhile")
        new = MARKER if data is None else data
        if there != new and not self._put_if(name, new, tag):
            now = self._read(name, limit)
            if now is None or now[0] != new:  # a try that was repeated may find its own work
                raise Conflict(f"{self.url}/{name}: changed meanwhile")

    def remove(self, name: str) -> int:
        size = self._size(name)
        if size is None:
            return 0
        with self._failing(name):
            self._obstore.delete(self._store, self._key(name))
        return size

    def remove_abandoned(self, *, dry_run: bool) -> tuple[int, int]:
        return 0, 0  # obstore lists no uploads: a life-cycle rule of the bucket ends those

    def names(self, folder: str) -> Sequence[str] | None:
        prefix = self._key(folder) + "/"

        def listed() -> Iterator[str]:
            for batch in self._obstore.list(self._store, prefix):
                for item in batch:
                    name = str(item["path"]).removeprefix(prefix)
                    if item["size"] != len(MARKER) and layout.is_name(name):
                        yield name

        with self._failing(folder):
            return asking.gathered(listed(), what=f"{self.url}/{folder}")

    def close(self) -> None:
        return None

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}" if self._prefix else name

    def _read(self, name: str, limit: int) -> tuple[bytes, str | None] | None:
        """The first ``limit`` + 1 bytes, and the tag by which they can be replaced."""
        found = self._get(name, 0, limit + 1, is_part=False)
        if found is None:
            return None
        return b"".join(self._body(found, name, 0, limit + 1)), found.meta.get("e_tag")

    def _size(self, name: str) -> int | None:
        try:
            with self._failing(name):
                return int(self._obstore.head(self._store, self._key(name))["size"])
        except NotFound:
            return None

    def _get(self, name: str, start: int, limit: int, *, is_part: bool) -> Any:  # noqa: ANN401
        """The answer (obstore's) that begins at ``start`` or before; None where nothing is there.

        Asks for a range where little of much is wanted; a server that gives all of it instead is
        not asked for ranges again. A range that begins past the end raises ``RemoteFailed``.
        """
        options: Any = {}
        if (is_part or start) and self._has_ranges:
            options = {"range": (start, start + limit)}
        try:
            with self._failing(name):
                return self._obstore.get(self._store, self._key(name), options=options)
        except NotFound:
            return None
        except RemoteFailed as error:
            if "non-partial response" not in error.message:
                raise
        self._has_ranges = False
        return self._get(name, start, limit, is_part=is_part)

    def _body(self, found: Any, name: str, start: int, limit: int) -> Iterator[bytes]:  # noqa: ANN401
        """``limit`` bytes of an answer at most, from byte ``start`` of the object on."""
        skip, left = start - int(found.range[0]), limit
        chunks = iter(found.stream(min_chunk_size=PIECE_BYTES))
        while left > 0:
            with self._failing(name):
                chunk = next(chunks, None)
            if chunk is None:
                return
            data = memoryview(chunk)
            data, skip = data[skip : skip + left], max(0, skip - len(data))
            left -= len(data)
            for at in range(0, len(data), PIECE_BYTES):
                yield bytes(data[at : at + PIECE_BYTES])

    def _put_if(self, name: str, data: bytes, tag: str | None) -> bool:
        """Put if ``name`` still has ``tag`` (None: is not there); whether it was put."""
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        mode: Any = "create" if tag is None else {"e_tag": tag}
        try:
            with self._failing(name, besides=(AlreadyExistsError, PreconditionError)):
                self._obstore.put(
                    self._store, self._key(name), data, mode=mode, use_multipart=False
                )
        except (AlreadyExistsError, PreconditionError):
            return False
        return True

    def _check_conditions(self) -> None:
        """Raise ``Incompatible`` where conditions are not heeded: there two pushers would lose."""
        with self._guard:
            if self._heeds_conditions:
                return
            name = layout.FORMAT_FILE
            if self._read(name, layout.MAX_SMALL_BYTES) is None:
                self._put_if(name, layout.FORMAT, None)
            if self._put_if(name, layout.FORMAT, None) or self._put_if(
                name, layout.FORMAT, '"00000000000000000000000000000000"'
            ):
                raise Incompatible(
                    f"{self.url}: does not heed If-None-Match and If-Match: of two pushes at once "
                    "one would be lost",
                    hint="use an object store with conditional puts",
                )
            self._heeds_conditions = True

    def _failing(self, name: str, *, besides: tuple[type[Exception], ...] = ()) -> _Translated:
        return _Translated(f"{self.url}/{name}", besides)


class _Translated:
    """A ``with`` block whose foreign exceptions come out as our own, except ``besides``."""

    def __init__(self, what: str, besides: tuple[type[Exception], ...]) -> None:
        self._what = what
        self._besides = besides

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        from obstore import exceptions as told

        if error is None or isinstance(error, self._besides):
            return
        said = str(error).lower()
        if "nosuchbucket" in said:
            raise NotFound(
                f"{self._what}: no such bucket", hint="make the bucket; kvg makes what is in it"
            ) from None
        if any(name in said for name in _ASKED_FOR_LOGIN):
            raise RemoteFailed(f"{self._what}: no credentials were found", hint=_LOGIN) from None
        if _nobody() in said or any(f"status code: {code}" in said for code in web.REDIRECTS):
            raise RemoteFailed(
                f"{self._what}: the endpoint redirects to another host",
                hint="give that one yourself if you mean it: AWS_ENDPOINT_URL_S3",
            ) from None
        if isinstance(error, FileNotFoundError | told.NotFoundError):
            raise NotFound(f"{self._what}: not there") from None
        if isinstance(error, told.PermissionDeniedError | told.UnauthenticatedError):
            raise RemoteFailed(f"{self._what}: refused", hint=_LOGIN) from None
        if isinstance(error, told.BaseError | OSError | ValueError):
            raise RemoteFailed(f"{self._what}: {_words(error)}", hint=AGAIN) from None


def _words(error: BaseException) -> str:
    """The first line of what went wrong, without what the library adds for its own debugging."""
    line = str(error).strip().partition("\n")[0]
    return line[:MAX_SAID_CHARS].lower() or type(error).__name__.lower()


def _cut(parts: Iterable[Buffer]) -> Iterator[bytes]:
    for part in parts:
        view = memoryview(part).cast("B")
        for at in range(0, len(view), PIECE_BYTES):
            yield bytes(view[at : at + PIECE_BYTES])


def _check_settings(found: Mapping[str, str], endpoint: str) -> None:
    """Raise ``UsageError`` on what obstore would panic at."""
    for name, value in found.items():
        if not value.isascii() or not value.isprintable():
            raise UsageError(f"s3: {name}: not printable ASCII", hint=f"AWS_{name.upper()}")
    if endpoint and parse_address(endpoint).kind not in WEB:
        raise UsageError(f"s3: {shown(endpoint)}: not an endpoint", hint="AWS_ENDPOINT_URL_S3")


def check_no_redirect(endpoint: str, path: str, access: Access, *, what: str) -> None:
    """Raise ``RemoteFailed`` where the endpoint sends who asks it for ``path`` to another host.

    It is asked once, by nobody in particular. Where it is not reached, obstore says why.
    """
    address = parse_address(endpoint)
    host = web.host_of(address, scheme=address.kind)
    full = f"{address.path.rstrip('/')}{quote(path)}"
    connection = web.connect(host, access)
    try:
        connection.request("GET", full, headers={"Range": "bytes=0-0"})
        answer = connection.getresponse()
        location = answer.getheader("Location") or ""
    except web.FAILURES:
        return
    finally:
        connection.close()
    if answer.status not in web.REDIRECTS or not location:
        return
    target = web.target_of(location, base=f"{host}{full}")
    if target is None or target.host != host:
        raise RemoteFailed(
            f"{what}: {host} redirects to another host, {target.host if target else 'none'}",
            hint="give that one yourself if you mean it: AWS_ENDPOINT_URL_S3",
        )


def _own_hosts_only(found: Mapping[str, str], endpoint: str, access: Access) -> dict[str, str]:
    """Options by which obstore reaches the endpoint, and where logins are had, and no other host.

    It follows redirects, and takes a session token along. So every other host is to be reached by a
    proxy that is none: a port of this machine's that nobody listens at. Where the user has a proxy
    for the endpoint, that one is gone by, and decides.
    """
    kin = [*_ASKED_FOR_LOGIN, "169.254.170.2", *_PROVIDERS]
    for url in (endpoint, found.get("container_credentials_full_uri", "")):
        if url:
            address = parse_address(url)
            kin.append(address.host)
            if url == endpoint and proxy_for(web.host_of(address, scheme=address.kind), access):
                return {}
    return {"proxy_url": f"http://{_nobody()}", "proxy_excludes": ",".join(kin)}


def _nobody() -> str:
    """Where nobody listens, and whoever comes is refused."""
    host, port = _taken().getsockname()
    return f"{host}:{port}"


@cache
def _taken() -> socket.socket:
    taken = socket.socket()
    taken.bind(("127.0.0.1", 0))
    return taken


def _open(bucket: str, access: Access) -> tuple[Any, S3Store, str]:
    try:
        import obstore
        from obstore.store import S3Store
    except ImportError:
        raise Incompatible("s3: needs the library obstore", hint="pip install 'kvg[s3]'") from None
    found = settings_of(access)
    endpoint = found.get("endpoint", "")
    _check_settings(found, endpoint)
    config: Any = dict(found)
    options: Any = {"allow_http": endpoint.startswith("http://"), "timeout": REQUEST_TIMEOUT}
    options |= _own_hosts_only(found, endpoint, access)
    retry: Any = {"max_retries": MAX_RETRIES}
    try:
        store = S3Store(bucket, config=config, client_options=options, retry_config=retry)
    except (obstore.exceptions.BaseError, ValueError) as error:
        raise UsageError(f"s3://{bucket}: {_words(error)}", hint="AWS_ENDPOINT_URL_S3") from None
    return obstore, store, endpoint
