"""``kvg session``: start, list, stop and look into models that stay loaded."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import cast

from kvg import canon, durable
from kvg.client.channel import call, parse_error
from kvg.client.place import Place, check_name, check_private, find_place, make_folder
from kvg.errors import Conflict, Incompatible, KvgError
from kvg.flow.records.sessions import SessionEntry, SlotEntry
from kvg.frozen import frozen

MOST_LOG_BYTES = 4 << 20
STOP_S = 60.0
"""How long a session may take to end what it is at."""


@frozen
class Homes:
    """Where sessions lie (``folder``) and where they write what happens (``logs``)."""

    folder: Path
    logs: Path

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"


def start_session(homes: Homes, name: str, command: Sequence[str]) -> SessionEntry:
    """Start the session ``name`` as a process of its own, and wait until it answers.

    ``command`` is what runs it; the number of a descriptor for its first line is added. Raises
    what the session raises while it loads its model, ``Conflict`` when it runs already.
    """
    check_name(name)
    check_served()
    make_folder(homes.folder)
    log = homes.log(name)
    reader, writer = os.pipe()
    try:
        out = _open_log(log)
        try:
            child = subprocess.Popen(
                [*command, "--ready-fd", str(writer)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                pass_fds=(writer,),
                start_new_session=True,
                cwd="/",
            )
        finally:
            os.close(out)
            os.close(writer)
        with os.fdopen(reader, "rb", closefd=False) as file:
            try:
                first = file.readline()
            except KeyboardInterrupt:
                child.terminate()
                raise
    finally:
        os.close(reader)
    return _entry(homes, _first_line(first, name, log))


def check_served() -> None:
    """Raise ``Incompatible`` where what a session needs is absent."""
    for name in ("torch", "transformers", "uvicorn", "starlette"):
        if find_spec(name) is None:
            raise Incompatible(
                f"{name} is not installed: a session needs it",
                hint="pip install 'kvg[model,serve]'",
            )


def list_sessions(homes: Homes) -> Iterator[SessionEntry]:
    """Every session of this user, by name."""
    if not homes.folder.is_dir():
        return
    check_private(homes.folder)
    for name in durable.names_in(homes.folder):
        stem, _, kind = name.rpartition(".")
        if kind != "lock":
            continue
        place = Place(stem, homes.folder)
        if not is_held(place):
            if os.path.lexists(place.socket):
                yield SessionEntry(place.name, "dead", str(homes.log(place.name)))
            continue
        try:
            (state,) = call(place, "GET", "/kvg/state")
            yield _entry(homes, state)
        except KvgError:
            yield SessionEntry(place.name, "starting", str(homes.log(place.name)))


def stop_session(homes: Homes, name: str) -> SessionEntry:
    """End a session and wait until it has ended; what it is at is cut off before its next pass.

    What one that was killed left behind is removed. Raises ``NotFound``, ``Conflict``.
    """
    check_name(name)
    place = Place(name, homes.folder)
    if is_held(place) and not os.path.lexists(place.socket):
        raise Conflict(f"session {name}: it is still starting", hint="run it again in a moment")
    place = find_place(homes.folder, name)
    if not is_held(place):
        for path in (place.socket, place.token):
            durable.remove(path)
        return SessionEntry(name, "stopped", str(homes.log(name)))
    (state,) = call(place, "POST", "/kvg/stop")
    began = time.monotonic()
    while is_held(place):
        if time.monotonic() - began > STOP_S:
            raise Conflict(
                f"session {name}: did not end in {STOP_S:g} s", hint=f"kill -9 {state.get('pid')}"
            )
        time.sleep(0.02)
    return _entry(homes, {**state, "status": "stopped"})


def session_slots(homes: Homes, name: str, clear: int | None = None) -> Iterator[SlotEntry]:
    """The numbered slots of a session, after ``clear`` was emptied. Raises ``NotFound``."""
    place = find_place(homes.folder, name)
    if clear is not None:
        for _ in call(place, "POST", f"/kvg/slots/{max(clear, 0)}/clear"):
            pass
    for line in call(place, "GET", "/kvg/slots"):
        yield SlotEntry(**line)  # type: ignore[arg-type]


def is_held(place: Place) -> bool:
    """Whether a process is this session now: the kernel's word, not a file's."""
    import fcntl

    try:
        fd = os.open(place.lock, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _open_log(path: Path) -> int:
    """The log, open to append to; a long one is put aside first."""
    durable.make_dir(path.parent, mode=0o700)
    with durable.translated(path):
        if path.exists() and path.stat().st_size > MOST_LOG_BYTES:
            os.replace(path, path.with_suffix(".log.1"))
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        return os.open(path, flags, 0o600)


def _first_line(data: bytes, name: str, log: Path) -> Mapping[str, object]:
    try:
        value = json.loads(data, object_pairs_hook=canon.unique)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise KvgError(f"session {name}: ended before it listened", hint=f"see {log}")
    if value.get("type") == "error":
        raise parse_error(value)
    return cast("Mapping[str, object]", value)


def _entry(homes: Homes, state: Mapping[str, object]) -> SessionEntry:
    values = {key: value for key, value in state.items() if key != "type"}
    return SessionEntry(log=str(homes.log(str(state.get("name")))), **values)  # type: ignore[arg-type]
