"""Many clients at once, clients that die, a session that is killed, stopped, or left alone."""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kvg.errors import KvgError, NotFound, RemoteFailed
from kvg.flow.graft import graft
from kvg.flow.logits import logits
from kvg.flow.records.computed import Graft
from kvg.flow.requests import GraftRequest, LogitsRequest, Sampling
from tests.sessions import Home, _open_session, opened

CLIENTS = 50
PARALLEL = 4


@pytest.fixture(scope="module")
def busy(home: Home) -> Home:
    """A session that lets four requests be under way at a time."""
    home.start("busy", "--parallel", str(PARALLEL))
    return home


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Direct verbs of this process use a model that is loaded once."""
    monkeypatch.setattr("kvg.model.opening.open_session", _open_session)


def request(number: int, most: int = 6) -> dict:
    return {
        "ref": ("one", "two")[number % 2],
        "prompt": f" item {number}:",
        "sampling": {"max_tokens": most},
    }


def expected(home: Home, number: int) -> tuple[str, str]:
    """The digest of fresh logits and the text of a direct graft, each computed here."""
    given = request(number)
    store, settings = home.user.store, home.user.settings
    fresh = logits(store, settings, LogitsRequest(given["ref"], prompt=given["prompt"], fresh=True))
    sampling = Sampling(given["sampling"]["max_tokens"])
    asked = GraftRequest(given["ref"], prompt=given["prompt"], sampling=sampling)
    (direct,) = graft(store, settings, asked)
    assert isinstance(direct, Graft) and direct.logits_digest == fresh.digest
    return str(fresh.digest), direct.text


def test_fifty_clients_at_once(busy: Home, alone: None) -> None:
    """None is lost, none gets what is not its own, and they are served in the order of asking."""
    wanted = [expected(busy, number) for number in range(CLIENTS)]
    assert len(set(wanted)) == CLIENTS, "each client's answer tells it apart"
    before = busy.state("busy")["done"]
    gate = threading.Barrier(CLIENTS)

    def client(number: int) -> dict:
        gate.wait()
        (record,) = busy.ask("busy", "graft", request(number))
        return record

    with ThreadPoolExecutor(CLIENTS) as pool:
        found = list(pool.map(client, range(CLIENTS)))
    assert [(record["logits_digest"], record["text"]) for record in found] == wanted
    assert all(record["exact"] for record in found)
    assert busy.state("busy")["done"] == before + CLIENTS
    ended = [int(n) for n in re.findall(r"INFO (\d+) graft '\w+': done", busy.log("busy"))]
    ended = ended[-CLIENTS:]
    first = min(ended)
    late = [abs(rank - (number - first)) for rank, number in enumerate(ended)]
    assert max(late) <= 2 * PARALLEL, f"out of the order of asking: {ended}"


def test_numbered_slots_side_by_side_hold_what_each_gives_alone(busy: Home) -> None:
    def talk(index: int) -> list[str]:
        digests = []
        at = None
        for turn in range(3):
            given = {**request(10 * index + turn, 4), "ref": "one", "at": at}
            (record,) = busy.ask("busy", "graft", given, slot=index)
            digests.append(record["logits_digest"])
            at = busy.kvg("session", "slots", "busy", "--json").records[index]["position"]
        return digests

    one_by_one = [talk(index) for index in range(4)]
    given = [{**request(10 * i, 4), "ref": "one"} for i in range(4)]
    with ThreadPoolExecutor(4) as pool:  # the first turn of all four at once, over and over
        rounds = list(pool.map(lambda i: busy.ask("busy", "graft", given[i % 4], i % 4), range(16)))
    assert [r[0]["logits_digest"] for r in rounds] == [one_by_one[i % 4][0] for i in range(16)]
    assert len({tuple(digests) for digests in one_by_one}) == 4


def test_a_long_answer_does_not_hold_up_short_ones(busy: Home) -> None:
    long = busy.popen("graft", "one", "--session", "busy", "--max-tokens", "1600")
    try:
        until_requests(busy, 1)
        for number in range(5):
            (record,) = busy.ask("busy", "graft", request(number))
            assert record["exact"]
        assert long.poll() is None, "it ended before the short ones: nothing was shown"
    finally:
        long.kill()
        long.wait()
    until_requests(busy, 0)


def until_requests(home: Home, n: int, name: str = "busy") -> None:
    end = time.monotonic() + 30
    while home.state(name)["requests"] != n:
        assert time.monotonic() < end, home.log(name)
        time.sleep(0.02)


def test_clients_that_are_killed_cost_nothing(busy: Home) -> None:
    """Killed in the middle of a stream; others go on meanwhile, and nothing stays behind."""
    busy.ask("busy", "graft", request(2))  # both artifacts are restored, and kept
    wanted = busy.ask("busy", "graft", request(3))[0]["logits_digest"]
    memory = busy.state("busy")["memory_bytes"]
    children = [
        busy.popen("graft", "one", "--session", "busy", "--stream", "--max-tokens", "1600")
        for _ in range(6)
    ]
    try:
        for child in children[:2]:
            assert child.stdout is not None and child.stdout.read(1)
        for child in children:
            child.send_signal(signal.SIGKILL)
    finally:
        for child in children:
            child.kill()
            child.wait()
    assert busy.ask("busy", "graft", request(3))[0]["logits_digest"] == wanted
    until_requests(busy, 0)
    assert busy.state("busy")["memory_bytes"] == memory
    assert "cancelled" in busy.log("busy")


def test_a_client_that_leaves_while_it_waits_is_not_computed_for(busy: Home) -> None:
    link = opened(busy.place("busy"))
    before = busy.log("busy").count("cancelled")
    body = b'{"request": {"ref": "one", "sampling": {"max_tokens": 1700}}}'
    head = f"POST /kvg/graft HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    link.sendall(head.encode() + body)
    until_requests(busy, 1)
    link.shutdown(socket.SHUT_RDWR)
    link.close()
    until_requests(busy, 0)
    assert busy.log("busy").count("cancelled") == before + 1


def test_a_cancelled_answer_leaves_its_slot_whole(busy: Home) -> None:
    """What was computed before the client died stands, and is what a fresh run gives."""
    words = ("graft", "two", "--session", "busy", "--slot", "5", "--stream", "--max-tokens", "1600")
    child = busy.popen(*words)
    assert child.stdout is not None and child.stdout.read(8)
    child.kill()
    child.wait()
    until_requests(busy, 0)
    summary = busy.kvg("replay", "--session", "busy", "--slot", "5", "--samples", "2", "--json")
    last = summary.records[-1]
    assert (last["equal"], last["pages_equal"]) == (2, last["pages"])
    busy.kvg("session", "slots", "busy", "--clear", "5")


def test_ctrl_c(busy: Home) -> None:
    child = busy.popen("graft", "one", "--session", "busy", "--stream", "--max-tokens", "1600")
    assert child.stdout is not None and child.stdout.read(1)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=20)
    assert child.returncode == 130 and b"interrupted" in err
    until_requests(busy, 0)


def test_a_session_that_is_killed_starts_clean(home: Home) -> None:
    started = home.start("frail")
    wanted = home.ask("frail", "graft", request(1))[0]["logits_digest"]
    told: list[KvgError] = []

    def client(number: int) -> None:
        try:
            home.ask("frail", "graft", request(number, 1600))
        except KvgError as error:
            told.append(error)

    clients = [threading.Thread(target=client, args=(number,)) for number in range(4)]
    for thread in clients:
        thread.start()
    until_requests(home, 4, "frail")
    place = home.place("frail")
    os.kill(started["pid"], signal.SIGKILL)
    for thread in clients:
        thread.join(20)
        assert not thread.is_alive()
    assert [type(error) for error in told] == [RemoteFailed] * 4
    assert place.socket.exists(), "nobody was there to remove it"
    until_dead(home, "frail")
    with pytest.raises(NotFound):
        home.ask("frail", "graft", request(1))
    again = home.start("frail")
    assert again["pid"] != started["pid"]
    assert home.ask("frail", "graft", request(1))[0]["logits_digest"] == wanted
    os.kill(again["pid"], signal.SIGKILL)
    until_dead(home, "frail")
    assert home.kvg("session", "stop", "frail", "--json").records[0]["status"] == "stopped"
    assert not place.socket.exists()
    assert home.kvg("session", "list", "--json").out.count("frail") == 0


def until_dead(home: Home, name: str) -> None:
    end = time.monotonic() + 20
    while True:
        (entry,) = [r for r in home.kvg("session", "list", "--json").records if r["name"] == name]
        if entry["status"] == "dead":
            return
        assert time.monotonic() < end, entry
        time.sleep(0.05)


def test_a_stop_in_the_middle_of_answers(home: Home) -> None:
    """Those under way and those that wait are told; nothing is left, and the store is whole."""
    home.start("brief", "--parallel", "2")
    pid = home.state("brief")["pid"]
    told: list[KvgError] = []

    def client(number: int) -> None:
        try:
            home.ask("brief", "graft", request(number, 1600))
        except KvgError as error:
            told.append(error)

    clients = [threading.Thread(target=client, args=(number,)) for number in range(6)]
    for thread in clients:
        thread.start()
    until_requests(home, 6, "brief")
    place = home.place("brief")
    ran = home.kvg("session", "stop", "brief", "--json")
    assert ran.code == 0, ran.err
    for thread in clients:
        thread.join(20)
        assert not thread.is_alive()
    assert {(type(error), "stopped before" in error.message) for error in told} == {
        (RemoteFailed, True)
    }
    assert len(told) == 6
    assert not place.socket.exists() and not place.token.exists()
    assert not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text()
    assert home.kvg("verify").code == 0
    assert home.kvg("graft", "one", "--session", "brief").code == 3


def test_sigterm_is_a_stop(home: Home) -> None:
    home.start("term")
    place = home.place("term")
    os.kill(home.state("term")["pid"], signal.SIGTERM)
    home.wait("term", "stopped after 0 requests")
    end = time.monotonic() + 10
    while place.socket.exists():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_it_ends_when_nobody_asks(home: Home) -> None:
    home.start("lazy", "--idle", "1")
    home.wait("lazy", "nobody asked for 1 s")
    home.wait("lazy", "stopped after")


def test_another_reference_is_another_session(home: Home) -> None:
    home.start("stock", "--reference", "scheduled")
    ran = home.kvg("graft", "one", "--session", "stock")
    assert ran.code == 7 and "scheduled" in ran.err
    assert home.kvg("session", "stop", "stock").code == 0


def test_many_requests_leave_nothing_open(busy: Home) -> None:
    pid = busy.state("busy")["pid"]

    def held() -> tuple[int, int]:
        statm = Path(f"/proc/{pid}/statm").read_text().split()
        n_open = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        return n_open, int(statm[1]) * os.sysconf("SC_PAGE_SIZE")

    for number in range(20):
        busy.ask("busy", "graft", request(number, 1))
    files, memory = held()
    for number in range(150):
        busy.ask("busy", "graft", request(number, 1))
    assert held()[0] <= files + 2
    assert held()[1] < memory + (24 << 20)
