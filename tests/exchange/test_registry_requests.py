"""How often a container registry is asked: about once for each ref, however much is said of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kvg.flow.refs import tag
from kvg.remote.distribution import Registry
from tests.exchange.conftest import Outcome, Person
from tests.remote.programs import Oci, registry

N_REFS = 8
ABOUT = 10
"""Requests for what does not grow with the refs: lists of tags, logs, keys."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Oci]:
    with registry(tmp_path / "registry") as server:
        yield server


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every request that is made, as it is made."""
    found: list[str] = []
    request = Registry._request

    def counting(self: Registry, method: str, path: str, *more: object) -> object:
        found.append(f"{method} {path}")
        return request(self, method, path, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(Registry, "_request", counting)
    return found


def test_requests_do_not_multiply(server: Oci, tmp_path: Path, asked: list[str]) -> None:
    def counted(work: Callable[[], Outcome]) -> tuple[Outcome, int]:
        asked.clear()
        return work(), len(asked)

    url = server.url("team/kv")
    alice = Person.make(tmp_path / "alice", server.access).init().add(url)
    bob = Person.make(tmp_path / "bob", server.access)
    digest = alice.deposit("demo")
    for number in range(N_REFS - 1):
        tag(alice.store, alice.settings, f"many/{number}", "demo", force=False)
    assert len(alice.push().states) == N_REFS
    pushed, n_push = counted(alice.push)
    assert set(pushed.states.values()) == {"unchanged"}
    assert n_push <= N_REFS + ABOUT, asked
    cloned, n_clone = counted(lambda: bob.clone(url, alice))
    assert set(cloned.states.values()) == {"new"} and not cloned.findings
    assert bob.store.attestations(digest)
    n_twice = N_REFS  # a clone looks first at what is there, and who vouches for it
    assert n_clone <= N_REFS + n_twice + 2 * ABOUT + cloned.transfer.objects_sent, asked
    fetched, n_fetch = counted(bob.fetch)
    assert set(fetched.states.values()) == {"unchanged"}
    assert n_fetch <= N_REFS + ABOUT, asked
    alice.deposit("more", range(40))
    assert alice.push().states["more"] == "new"
    taken, n_taken = counted(bob.fetch)
    assert taken.states["more"] == "new"
    assert n_taken <= N_REFS + 2 * ABOUT + taken.transfer.objects_sent, asked
