"""A remote over ssh: plain OpenSSH here, ``kvg`` on the far side.

    ssh://[USER@]HOST[:PORT]/PATH      an absolute path; /~/PATH starts in the user's home there

One connection carries every request; they are answered in order, and several are under way at once
(see ``wire``). Who may log in, with which key, is OpenSSH's business and that of its configuration.
"""

from __future__ import annotations

import io
import os
import queue
import select
import shlex
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, BinaryIO, Final, NoReturn

from kvg import canon
from kvg.digest import is_digest
from kvg.errors import (
    AGAIN,
    Conflict,
    Corrupt,
    Incompatible,
    KvgError,
    NoSpace,
    NotFound,
    RemoteFailed,
    UsageError,
)
from kvg.remote import wire
from kvg.remote.address import FORMS, parse_address, shown, shown_text
from kvg.remote.files import Head
from kvg.remote.pace import Pace, TooSlow
from kvg.signing import base64

if TYPE_CHECKING:
    from kvg.canon import Json
    from kvg.digest import Buffer, Digest
    from kvg.remote.access import Access

VERB: Final = "__serve"
COMMAND: Final = "ssh"
KEPT_ALIVE: Final = (
    *("-o", "ConnectTimeout=60"),
    *("-o", "ServerAliveInterval=15"),
    *("-o", "ServerAliveCountMax=4"),
)
WAITING_CHUNKS: Final = 8
"""How much of a body may wait for who asked for it, in chunks of up to 1 MiB."""

SILENCE_S = 600.0
"""How long a far side may say nothing, and take nothing, while it is waited for."""

GREETING_S = 120.0
"""How long the far side may take to say what it is; somebody may have to give a password first."""

LOOK_S = 1.0
READ_BYTES: Final = 1 << 16
MAX_SAID_CHARS: Final = 500
_RAISED: Final = (NotFound, Conflict, Corrupt, Incompatible, NoSpace)


class SshFiles:
    """See ``Files``. The connection is made at the first request."""

    is_writable = True
    keeps_folders = True
    writes_in_turn = False

    def __init__(self, url: str, access: Access) -> None:
        """Raises ``UsageError`` on an address that is none."""
        self._url, self._argv = command(url, access)
        self._guard = threading.Lock()
        self._channel: Channel | None = None

    @property
    def url(self) -> str:
        return self._url

    def read(self, name: str, limit: int) -> bytes | None:
        found = self._ask({"op": "read", "name": name, "limit": limit})
        data = self._data(found.get("data"))
        return None if data is None else data[: limit + 1]

    def read_all(self, names: Sequence[str], limit: int) -> Mapping[str, bytes | None]:
        found = self._ask({"op": "read_all", "names": list(names), "limit": limit})
        data = [self._data(item) for item in canon.as_list(found.get("data"), what=self._url)]
        if len(data) != len(names):
            raise Corrupt(f"{self._url}: answers another question")
        return dict(zip(names, data, strict=True))

    def stream(self, name: str, *, start: int, limit: int) -> Iterator[bytes]:
        answer = self._begin({"op": "stream", "name": name, "start": start, "limit": limit})
        left = limit
        try:
            self._check(answer.fields())
            for piece in answer.pieces():
                if len(piece) > left:
                    raise Corrupt(f"{self._url}: gives more than was asked for")
                left -= len(piece)
                if piece:
                    yield piece
        finally:
            answer.abandon()

    def head(self, name: str, limit: int) -> Head | None:
        found = self._ask({"op": "head", "name": name, "limit": limit})
        data = self._data(found.get("data"))
        if data is None:
            return None
        return Head(data[:limit], canon.as_int(found.get("size"), what=self._url))

    def missing(self, digests: Sequence[Digest]) -> frozenset[Digest]:
        if not digests:
            return frozenset()
        found = self._ask({"op": "missing", "digests": list(digests)})
        told = canon.as_list(found.get("digests"), what=self._url)
        absent = frozenset(item for item in told if is_digest(item))
        return absent & frozenset(digests)

    def write(self, name: str, parts: Iterable[Buffer]) -> None:
        self._check(self._begin({"op": "write", "name": name, "body": True}, parts).fields())

    def swap(self, name: str, data: bytes | None, *, expect: bytes | None) -> None:
        told = {key: _encoded(value) for key, value in (("data", data), ("expect", expect))}
        self._ask({"op": "swap", "name": name, **told})

    def remove(self, name: str) -> int:
        found = self._ask({"op": "remove", "name": name})
        return canon.as_int(found.get("size"), what=self._url)

    def remove_abandoned(self, *, dry_run: bool) -> tuple[int, int]:
        found = self._ask({"op": "remove_abandoned", "dry_run": dry_run})
        count, size = (canon.as_int(found.get(key), what=self._url) for key in ("count", "size"))
        return count, size

    def names(self, folder: str) -> Sequence[str] | None:
        from kvg.remote.layout import is_name

        found = self._ask({"op": "names", "folder": folder}).get("names")
        if found is None:
            return None
        told = [canon.as_str(n, what=self._url) for n in canon.as_list(found, what=self._url)]
        return sorted(name for name in told if is_name(name))

    def close(self) -> None:
        with self._guard:
            if self._channel is not None:
                self._channel.close()
                self._channel = None

    def _ask(self, fields: Mapping[str, Json]) -> Mapping[str, Json]:
        answer = self._begin(fields).fields()
        self._check(answer)
        return answer

    def _begin(self, fields: Mapping[str, Json], body: Iterable[Buffer] = ()) -> Answer:
        with self._guard:
            if self._channel is None:
                self._channel = Channel(self._argv, self._url)
            channel = self._channel
        return channel.ask(fields, body)

    def _check(self, fields: Mapping[str, Json]) -> None:
        error = fields.get("error")
        if error is not None:
            raise_told(error, self._url)

    def _data(self, value: Json) -> bytes | None:
        if value is None:
            return None
        return base64.decode(canon.as_str(value, what=self._url), what=self._url)


class Answer:
    """What comes back for one request, as it comes."""

    def __init__(self) -> None:
        self._header: queue.Queue[Mapping[str, Json] | KvgError] = queue.Queue(1)
        self._body: queue.Queue[bytes | KvgError | None] = queue.Queue(WAITING_CHUNKS)
        self._is_abandoned = False
        self._has_body = False

    def fields(self) -> Mapping[str, Json]:
        """The answer without its body. Raises what went wrong."""
        found = self._header.get()
        if isinstance(found, KvgError):
            raise found
        return found

    def pieces(self) -> Iterator[bytes]:
        """The body. Raises what went wrong."""
        while (piece := self._body.get()) is not None:
            if isinstance(piece, KvgError):
                raise piece
            yield piece

    def abandon(self) -> None:
        """Nobody reads on: what still comes is dropped."""
        self._is_abandoned = True
        try:
            while True:
                self._body.get_nowait()
        except queue.Empty:
            return

    def begin(self, message: wire.Message) -> None:
        """The answer has come."""
        self._header.put(message.fields)
        self._has_body = message.has_body

    def add(self, piece: bytes | None) -> None:
        """A piece of the body has come, or with None its end."""
        if not self._is_abandoned:
            self._body.put(piece)

    def fail(self, error: KvgError) -> None:
        """Nothing more will come."""
        if not self._has_body:
            self._header.put(error)
        elif not self._is_abandoned:
            self._body.put(error)


class Channel:
    """One ssh process, and a thread that reads what comes from it."""

    def __init__(self, argv: Sequence[str], what: str) -> None:
        """Raises ``RemoteFailed`` where it does not start or no kvg answers."""
        self._what = what
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=1 << 16,
            )
        except OSError as error:
            raise RemoteFailed(
                f"{argv[0]}: {(error.strerror or str(error)).lower()}",
                hint="install OpenSSH's client",
            ) from None
        self._heard = Heard(_open_end(self._process.stdout), self._check_silence)
        self._source = io.BufferedReader(self._heard, READ_BYTES)
        self._moved = time.monotonic()
        self._said: deque[bytes] = deque(maxlen=20)
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        self._sending = threading.Lock()
        self._waiting: deque[Answer] = deque()
        self._failure: KvgError | None = None
        self._is_known = False
        self._greet()
        self._is_known = True
        threading.Thread(target=self._receive, daemon=True).start()

    @property
    def _sink(self) -> BinaryIO:
        return _open_end(self._process.stdin)

    def ask(self, fields: Mapping[str, Json], body: Iterable[Buffer]) -> Answer:
        """Send one request; what comes back is read by another thread."""
        answer = Answer()
        with self._sending:
            if self._failure is not None:
                raise self._failure
            self._moved = time.monotonic()
            self._waiting.append(answer)
            try:
                wire.write_message(self._sink, fields)
                if fields.get("body") is True:
                    for part in body:
                        wire.write_chunk(self._sink, part)
                        self._moved = time.monotonic()
                    wire.end_body(self._sink)
                self._sink.flush()
            except (OSError, ValueError):
                self._process.kill()  # the reading thread then tells who waits
            except BaseException:
                self._process.kill()  # half a request was sent: nothing can follow it
                raise
        return answer

    def close(self) -> None:
        """End the connection."""
        try:
            self._sink.close()
        except OSError:
            pass
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _check_silence(self) -> None:
        """Raise ``TooSlow`` where what is waited for has been waited for long."""
        silent_s = time.monotonic() - max(self._moved, self._heard.last)
        if (self._waiting and silent_s > SILENCE_S) or (
            not self._is_known and silent_s > GREETING_S
        ):
            raise TooSlow(f"silent for {silent_s:.0f} s")

    def _greet(self) -> None:
        try:
            line = self._source.readline(MAX_SAID_CHARS)
        except TooSlow as error:
            self._process.kill()
            self._process.wait()
            raise RemoteFailed(
                f"{self._what}: {error}: no kvg answers there",
                hint="see whether ssh reaches it: ssh -v HOST kvg version",
            ) from None
        if line == wire.GREETING:
            return
        self._process.kill()
        raise self._greeted_otherwise(line) if line else self._lost()

    def _greeted_otherwise(self, line: bytes) -> KvgError:
        """What to say where the first line from there is another than kvg's."""
        said = shown_text(line.decode("utf-8", "replace").strip())
        if line.startswith(wire.GREETING_WORD):
            own = wire.GREETING.decode("ascii").strip()
            return Incompatible(
                f"{self._what}: speaks {said}, this kvg speaks {own}",
                hint="update kvg, here or there, so that both are of one version",
            )
        return RemoteFailed(
            f'{self._what}: says "{said}" before kvg does',
            hint="let the far side's shell print nothing at start, e.g. in ~/.bashrc only where it "
            "is interactive: ssh HOST true | wc -c then says 0",
        )

    def _lost(self) -> RemoteFailed:
        self._process.wait()
        self._listener.join(1)
        said = b" ".join(self._said).decode("utf-8", "replace").strip()[:MAX_SAID_CHARS]
        return RemoteFailed(
            f"{self._what}: {shown_text(said[:1].lower() + said[1:]) or 'connection lost'}",
            hint=_way_out(said),
        )

    def _listen(self) -> None:
        stream = _open_end(self._process.stderr)
        while line := stream.readline(MAX_SAID_CHARS):
            self._said.append(line.strip())

    def _receive(self) -> None:
        try:
            while (message := self._next()) is not None:
                if not self._waiting:
                    raise Corrupt(f"{self._what}: answers what nobody asked")
                answer = self._waiting[0]
                answer.begin(message)
                if message.has_body:
                    for piece in wire.read_body(self._source, what=self._what):
                        answer.add(piece)
                    answer.add(None)
                self._waiting.popleft()
            self._end(None)
        except KvgError as error:
            self._end(error if isinstance(error, Corrupt) else None)
        except TooSlow as error:
            self._end(RemoteFailed(f"{self._what}: {error}", hint=AGAIN))
        except (OSError, ValueError):
            self._end(None)

    def _next(self) -> wire.Message | None:
        self._heard.expect()
        return wire.read_message(self._source, what=self._what)

    def _end(self, error: KvgError | None) -> None:
        self._process.kill()
        told = self._lost() if error is None else error
        with self._sending:
            self._failure = told
            for answer in self._waiting:
                answer.fail(told)
            self._waiting.clear()


class Heard(io.RawIOBase):
    """What comes through a pipe, at a pace once an answer has begun: see ``Pace``.

    ``look`` is called while nothing comes, and may raise.
    """

    def __init__(self, pipe: BinaryIO, look: Callable[[], None]) -> None:
        self._pipe = pipe
        self._look = look
        self._ready = select.poll()
        self._ready.register(pipe.fileno(), select.POLLIN)
        self._pace: Pace | None = None
        self.last = time.monotonic()
        """When something came last."""

    def expect(self) -> None:
        """Another answer is waited for; its first bytes may take their time."""
        self._pace = None

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """As ``io.RawIOBase.readinto``. Raises ``TooSlow``."""
        began = time.monotonic()
        while not self._ready.poll(LOOK_S * 1000):
            self._look()
        n_bytes = os.readv(self._pipe.fileno(), [buffer])
        self.last = time.monotonic()
        if self._pace is None:
            self._pace = Pace()
        else:
            self._pace.add(n_bytes, self.last - began)
        return n_bytes

    def readable(self) -> bool:
        """It is there to be read."""
        return True


def command(url: str, access: Access) -> tuple[str, tuple[str, ...]]:
    """The address as shown, and the command that reaches the far side. Raises ``UsageError``."""
    address = parse_address(url)
    if address.kind != "ssh":
        raise UsageError(f"{shown(url)}: not an address of ssh", hint=FORMS["ssh"])
    path, port = address.path, address.port
    argv = _program(access)
    argv += ["-p", str(port)] if port else []
    argv += ["--", f"{address.user}@{address.host}" if address.user else address.host]
    folder = path.removeprefix("/") if path.startswith("/~") else path
    argv.append(f"kvg {VERB} {shlex.quote(folder)}")
    user = f"{address.user}@" if address.user else ""
    return f"ssh://{user}{address.server}{path}", tuple(argv)


def _program(access: Access) -> list[str]:
    """How ssh is started."""
    own = access.get("KVG_SSH_COMMAND")
    if own is None:
        return [COMMAND, "-T", *KEPT_ALIVE]
    try:
        argv = shlex.split(own)
    except ValueError:
        argv = []
    if not argv:
        raise UsageError("KVG_SSH_COMMAND: not a command", hint="quote it as for a shell")
    return argv


def raise_told(error: Json, what: str) -> NoReturn:
    """Raise what the far side says went wrong; its words are cut and its class is one of few."""
    if not isinstance(error, Mapping):
        raise Corrupt(f"{what}: an answer that is none")
    code, text, hint = (error.get(key) for key in ("code", "message", "hint"))
    message = shown_text(str(text)[:MAX_SAID_CHARS])
    told = None  # a hint is what one is told to run: that of a stranger is no hint of kvg's
    if isinstance(hint, str):
        told = f"the kvg on the far side says: {shown_text(hint[:MAX_SAID_CHARS])}"
    for kind in _RAISED:
        if kind.code == code:
            raise kind(message, hint=told)
    raise RemoteFailed(f"{what}: {message}", hint=told)


def _encoded(data: bytes | None) -> str | None:
    return None if data is None else base64.encode(data)


def _open_end(stream: object) -> BinaryIO:
    if stream is None:
        raise RemoteFailed("ssh: no pipe")
    from typing import cast

    return cast(BinaryIO, stream)


def _way_out(said: str) -> str:
    """What helps where ssh, or the shell there, ``said`` so."""
    if "not found" in said:
        return "kvg must be on the PATH there"
    if "Permission denied" in said or "verification failed" in said:
        return "ssh has to get in there by itself: a key that it takes, and a known host"
    return AGAIN
