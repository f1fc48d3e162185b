"""The process of a session: load the model, listen, answer until told to stop or left alone."""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn
from starlette.applications import Starlette

from kvg import durable
from kvg.client.place import Place, make_folder
from kvg.errors import Conflict, KvgError, UsageError
from kvg.flow.registered import identified, registered_model, tokenizer_of
from kvg.flow.resident import KEPT, Resident
from kvg.flow.settings import Settings, open_store
from kvg.frozen import frozen
from kvg.serve import openai, verbs
from kvg.serve.http import App, Guard, LimitedProtocol, PrivateProtocol, PublicProtocol
from kvg.serve.jobs import Desk

if TYPE_CHECKING:
    from kvg.objects.manifest import Reference, Schedule

STOP_S = 20
"""How long answers may take to be read after a stop."""
LOCK_TRIES = 10
MOST_CONNECTIONS = 1024
MOST_ACCEPTED = 64
"""Connections that are taken before one of them is looked at; others wait in the kernel."""
MOST_HEAD_BYTES = 64 << 10
LOOPBACK = "127.0.0.1"
log = logging.getLogger("kvg.serve")


@frozen
class ServeRequest:
    """Serve the registered model ``model`` (None: the default one) at ``place``.

    ``n_slots`` numbered slots; ``parallel`` requests under way at a time; ``idle_s`` seconds
    without a request end it (0: never); ``memory_bytes`` bounds model and state (None: three
    quarters of the machine's). ``tcp`` is a port of loopback for the OpenAI API (0: any), None for
    none. ``ready_fd`` receives one line when it listens.
    """

    place: Place
    model: str | None = None
    reference: Reference = "invariant"
    n_slots: int = 8
    n_kept: int = KEPT
    parallel: int = 8
    idle_s: float = 1800.0
    memory_bytes: int | None = None
    tcp: int | None = None
    ready_fd: int | None = None

    def __post_init__(self) -> None:
        if min(self.n_slots, self.n_kept, self.parallel) < 1:
            raise UsageError("session: at least one slot and one request at a time")
        if not 0 <= self.idle_s < 10**9:
            raise UsageError(f"session: --idle {self.idle_s}: not a number of seconds")


def serve(settings: Settings, request: ServeRequest) -> None:
    """Serve until stopped. Raises ``Conflict`` when the session runs already, and all that loading
    a model raises."""
    make_folder(request.place.folder)
    with _only_one(request.place) as lock:
        resident = _open(settings, request)
        settings = replace(settings, cwd=resident.root.parent)
        try:
            asyncio.run(_Daemon(resident, settings, request, lock).run())
        finally:
            for path in (request.place.socket, request.place.token):
                durable.remove(path)


@contextmanager
def _only_one(place: Place) -> Iterator[int]:
    """Hold the session's name. What a killed one left behind is taken over; the file stays."""
    with durable.translated(place.lock):
        fd = os.open(place.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        if not _try_lock(fd):
            raise Conflict(
                f"session {place.name}: running already",
                hint=f"kvg session stop {place.name}, or choose another name",
            )
        os.ftruncate(fd, 0)
        for path in (place.socket, place.token):
            durable.remove(path)
        yield fd
    finally:
        os.close(fd)


def _try_lock(fd: int) -> bool:
    """Whether the lock is had; who only looks whether it is held holds it for a moment too."""
    for _ in range(LOCK_TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(0.05)
    return False


def _open(settings: Settings, request: ServeRequest) -> Resident:
    from kvg.flow.registered import open_registered

    store = open_store(settings)
    model = registered_model(store, request.model)
    files = identified(store, settings, model)
    schedule: Schedule | None = None
    if request.reference == "scheduled":
        from kvg.model.opening import default_schedule

        schedule = default_schedule()
    session = open_registered(
        settings, model, files, reference=request.reference, schedule=schedule
    )
    limit = request.memory_bytes or _machine_bytes() * 3 // 4
    taken = _resident_bytes()
    if taken >= limit:
        raise UsageError(
            f"session: the model alone takes {taken >> 20:,} MiB of {limit >> 20:,} MiB",
            hint="give it more --memory",
        )
    return Resident(
        request.place.name,
        store.root,
        model,
        files,
        session,
        tokenizer_of(settings, model, files),
        n_slots=request.n_slots,
        n_kept=request.n_kept,
        limit_bytes=limit,
        model_bytes=taken,
    )


class _Daemon:
    """The two faces, and what ends them."""

    def __init__(
        self, resident: Resident, settings: Settings, request: ServeRequest, lock: int
    ) -> None:
        self._resident = resident
        self._settings = settings
        self._request = request
        self._lock = lock
        self._began = time.time()
        self._servers: list[uvicorn.Server] = []
        self._port: int | None = None
        self._desk: Desk

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        self._desk = Desk(self._resident, self._settings, parallel=self._request.parallel)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self.stop)
        sockets: list[tuple[socket.socket, App, type[LimitedProtocol]]]
        sockets = [(_private_socket(self._request.place), self._private(), PrivateProtocol)]
        if self._request.tcp is not None:
            link = _loopback_socket(self._request.tcp)
            self._port = int(link.getsockname()[1])
            sockets.append((link, self._public(), PublicProtocol))
        tasks = [asyncio.create_task(self._serve(*item)) for item in sockets]
        idle = asyncio.create_task(self._watch_idle())
        while not all(server.started for server in self._servers):
            await asyncio.sleep(0.01)
        self._tell_ready()
        await asyncio.gather(*tasks)
        idle.cancel()
        self._desk.stop()
        await self._desk.close()
        log.info("stopped after %d requests", self._desk.done)

    def stop(self) -> None:
        """End what is under way cleanly, then the process."""
        if not self._desk.is_stopping:
            log.info("stopping; %d requests are under way", len(self._desk.jobs))
        self._desk.stop()
        for server in self._servers:
            server.should_exit = True

    def state(self) -> Mapping[str, object]:
        """What this session is and does now."""
        resident, request = self._resident, self._request
        return {
            "name": resident.name,
            "status": "stopping" if self._desk.is_stopping else "running",
            "pid": os.getpid(),
            "model": resident.model.name,
            "reference": resident.session.engine.reference,
            "device": str(resident.session.model.device),
            "store": str(resident.root),
            "socket": str(request.place.socket),
            "tcp": None if self._port is None else f"http://{LOOPBACK}:{self._port}/v1",
            "token_file": None if self._port is None else str(request.place.token),
            "slots": len(resident.held),
            "slots_used": sum(held is not None for held in resident.held),
            "requests": len(self._desk.jobs),
            "done": self._desk.done,
            "memory_bytes": resident.model_bytes + resident.state_bytes,
            "memory_limit_bytes": resident.limit_bytes,
            "idle_s": time.monotonic() - self._desk.last_used if not self._desk.jobs else 0.0,
            "up_s": time.time() - self._began,
        }

    def _private(self) -> App:
        routes = verbs.routes(self._desk, self.state, self.stop)
        return Starlette(routes=[*routes, *openai.routes(self._desk)])

    def _public(self) -> App:
        token = secrets.token_urlsafe(32)
        place = self._request.place
        durable.replace(place.token, [token.encode() + b"\n"], staging=place.folder, mode=0o600)
        return Guard(Starlette(routes=openai.routes(self._desk)), port=self._port or 0, token=token)

    async def _serve(self, link: socket.socket, app: App, protocol: type[LimitedProtocol]) -> None:
        config = uvicorn.Config(
            app,
            loop="asyncio",
            http=protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=None,  # the protocol has limits of its own, and says so in JSON
            backlog=MOST_ACCEPTED,
            h11_max_incomplete_event_size=MOST_HEAD_BYTES,
            timeout_graceful_shutdown=STOP_S,
        )
        server = _Server(config)
        self._servers.append(server)
        await server.serve(sockets=[link])

    def _tell_ready(self) -> None:
        state = dict(self.state())
        os.pwrite(self._lock, json.dumps(state).encode() + b"\n", 0)
        log.info("listening on %s", state["socket"])
        if self._request.ready_fd is not None:
            tell(self._request.ready_fd, state)

    async def _watch_idle(self) -> None:
        limit = self._request.idle_s
        while limit:
            await asyncio.sleep(min(max(limit / 10, 0.05), 10.0))
            if not self._desk.jobs and time.monotonic() - self._desk.last_used >= limit:
                log.info("nobody asked for %g s", limit)
                self.stop()
                return


class _Server(uvicorn.Server):
    """A server whose signals are the daemon's matter."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def tell(fd: int, value: Mapping[str, object]) -> None:
    """Write one line of JSON to whoever started this process, who may have gone."""
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(json.dumps(value).encode() + b"\n")
    except OSError:
        pass


def _private_socket(place: Place) -> socket.socket:
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        with durable.translated(place.socket):
            link.bind(os.fspath(place.socket))
    finally:
        os.umask(before)
    link.listen(MOST_CONNECTIONS)
    return link


def _loopback_socket(port: int) -> socket.socket:
    link = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        link.bind((LOOPBACK, port))
    except OSError as error:
        link.close()
        raise KvgError(
            f"port {port}: cannot listen: {(error.strerror or str(error)).lower()}",
            hint="--tcp 0 takes a free one",
        ) from None
    link.listen(MOST_CONNECTIONS)
    return link


def _resident_bytes() -> int:
    """What this process takes now."""
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


def _machine_bytes() -> int:
    """What this machine, or the container, has."""
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            found.append(int(Path("/sys/fs/cgroup", name).read_text()))
        except (OSError, ValueError):
            pass
    return min(found)


def start_log() -> None:
    """Lines of what happens on standard error, which is the session's log file."""
    form = "%(asctime)s %(levelname)s %(message)s"
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format=form)
    logging.Formatter.converter = time.gmtime
