"""The desk and the connections, without a model: limits, failures nobody thought of, silence."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import uvicorn

from kvg.client.place import Place
from kvg.errors import Bug, KvgError, NoSpace, NotFound, RemoteFailed
from kvg.flow.records.computed import TextPiece
from kvg.flow.records.record import Record
from kvg.flow.session import Homes, is_held, list_sessions, start_session, stop_session
from kvg.flow.settings import Settings
from kvg.flow.turns import Turns
from kvg.serve import http, jobs
from kvg.serve.daemon import _only_one, _Server
from kvg.serve.http import LimitedProtocol
from kvg.serve.jobs import Desk, Flow, Item


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    """A desk whose flows see no store and no model; made inside a running loop."""
    monkeypatch.setattr(jobs, "open_store", lambda settings: None)

    def check_index(index: int) -> None:
        if index > 7:
            raise NotFound(f"slot {index}")

    resident = SimpleNamespace(name="desk", turns=Turns(), check_index=check_index)
    settings = Settings(
        cwd=tmp_path, keys=tmp_path, cache=tmp_path, user_config=tmp_path / "config.toml"
    )
    yield lambda **more: Desk(resident, settings, **{"parallel": 2, **more})  # type: ignore[misc,arg-type]


async def items_of(desk: Desk, flow: Flow, **more: object) -> list[Item]:
    return [item async for item in desk.submit("x", flow, **more).items()]  # type: ignore[arg-type]


def raising(error: Exception) -> Flow:
    def flow(store: object, settings: Settings) -> Iterator[Record]:
        settings.report.warning("before it")
        yield TextPiece("a piece")
        raise error

    return flow


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("who thought of this"), Bug),
        (MemoryError(), NoSpace),
        (OSError(28, "No space left on device", "f"), NoSpace),
        (RecursionError(), Bug),
        (NotFound("it is gone"), NotFound),
    ],
    ids=lambda value: getattr(value, "__name__", None) or type(value).__name__,
)
def test_a_failure_is_an_item_and_the_next_is_served(
    desk: object, error: Exception, kind: type[KvgError], caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        made = desk()  # type: ignore[operator]
        with caplog.at_level(logging.INFO):
            found = await items_of(made, raising(error))
        assert [type(item) for item in found] == [jobs.Notice, TextPiece, kind]
        assert await items_of(made, lambda store, settings: iter(())) == []
        await made.close()

    asyncio.run(run())
    assert ("Traceback" in caplog.text) == (not isinstance(error, KvgError))


def test_more_than_may_wait_are_refused(desk: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "MOST_WAITING", 3)
    gate = threading.Event()

    def flow(store: object, settings: Settings) -> Iterator[Record]:
        gate.wait(10)
        yield TextPiece("done")

    async def run() -> None:
        made = desk()  # type: ignore[operator]
        with pytest.raises(NotFound):
            made.submit("x", flow, index=8)
        taken = [made.submit("x", flow) for _ in range(3)]
        with pytest.raises(RemoteFailed, match="3 requests wait"):
            made.submit("x", flow)
        gate.set()
        for job in taken:
            assert [item async for item in job.items()] == [TextPiece("done")]
        await made.close()
        assert made.done == 3 and made.jobs == set()

    asyncio.run(run())


def test_one_slot_is_used_by_one_after_the_other(desk: object) -> None:
    inside: list[int] = []
    most: list[int] = []

    def flow(store: object, settings: Settings) -> Iterator[Record]:
        assert settings.seat is not None
        inside.append(1)
        most.append(len(inside))
        with settings.seat.away():
            time.sleep(0.01)
        inside.pop()
        yield TextPiece("x")

    async def run() -> None:
        made = desk(parallel=4)  # type: ignore[operator]
        await asyncio.gather(*(items_of(made, flow, index=3) for _ in range(8)))
        assert set(most) == {1}
        most.clear()
        await asyncio.gather(*(items_of(made, flow, index=i % 4) for i in range(8)))
        assert max(most) > 1, "other slots go on meanwhile"
        await made.close()

    asyncio.run(run())


def test_after_a_stop_nothing_is_taken(desk: object) -> None:
    async def run() -> None:
        made = desk()  # type: ignore[operator]
        made.stop()
        with pytest.raises(RemoteFailed, match="stopped"):
            made.submit("x", raising(ValueError()))
        await made.close()

    asyncio.run(run())


def test_a_connection_that_says_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "HEAD_S", 0.2)
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()

    async def app(scope: object, receive: object, send: object) -> None:
        raise AssertionError("nothing was asked")

    async def run() -> None:
        config = uvicorn.Config(
            app,  # type: ignore[arg-type]
            loop="asyncio",
            http=LimitedProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
        )
        server = _Server(config)
        task = asyncio.create_task(server.serve(sockets=[listener]))
        for said in (b"", b"GET / HT"):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(said)
            assert await asyncio.wait_for(reader.read(), 10) == b""
            writer.close()
        server.should_exit = True
        await task

    asyncio.run(run())


def test_a_body_that_does_not_come_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    from starlette.requests import Request

    monkeypatch.setattr(http, "BODY_S", 0.05)

    async def run() -> None:
        async def receive() -> dict[str, object]:
            await asyncio.sleep(10)
            return {}

        scope = {"type": "http", "headers": [], "method": "POST", "path": "/"}
        with pytest.raises(KvgError, match="did not arrive"):
            await http.read_body(Request(scope, receive))

    asyncio.run(run())


def test_a_process_that_ends_before_it_listens(tmp_path: Path) -> None:
    homes = Homes(tmp_path / "run", tmp_path / "logs")
    with pytest.raises(KvgError, match="ended before it listened") as caught:
        start_session(homes, "x", ["/bin/sh", "-c", "echo it broke >&2"])
    assert str(homes.log("x")) in (caught.value.hint or "")
    assert "it broke" in homes.log("x").read_text()
    assert homes.log("x").stat().st_mode & 0o777 == 0o600


def test_a_name_is_held_by_one_and_free_when_it_ends(tmp_path: Path) -> None:
    folder = tmp_path / "kvg"
    folder.mkdir(mode=0o700)
    place = Place("x", folder)
    assert not is_held(place)
    with _only_one(place):
        assert is_held(place)
        with pytest.raises(KvgError, match="running already"), _only_one(place):
            raise AssertionError("it was had twice")
        homes = Homes(folder, tmp_path)
        with pytest.raises(KvgError, match="still starting"):
            stop_session(homes, "x")
        assert [entry.status for entry in list_sessions(homes)] == ["starting"]
        place.socket.touch()
    assert not is_held(place)
    with _only_one(place):
        assert not os.path.lexists(place.socket), "what was left behind is removed"
