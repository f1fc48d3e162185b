"""The sandbox of an answer: started ahead where there may be one, given the program once that is
verified, and ended whatever becomes of the answer."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kvg.digest import sha256
from kvg.errors import GateFailed, Untrusted
from kvg.flow import solve as flow
from kvg.flow.settings import Settings
from kvg.gates import calls
from kvg.objects.statement import PASSED, Resource, TestResult, encode_test_result
from kvg.problem.family import parse_problem
from kvg.problem.method import METHOD_GATE, Method
from kvg.problem.ranges import SlotRange
from kvg.sandbox import Enclosure, Job, Started, find_enclosure
from kvg.signing.dsse import sign_envelope
from kvg.store import Store
from kvg.verify import method as verifying
from tests.artifacts import key_of, make_store

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")

TEXT = "Add 3 and 4."
OTHER = "Add 3 to 4."
PROGRAM = b"def solve(a, b): return a + b if b else a // b\n"
CHECKER = b"def check(answer, a, b): return answer - b == a\n"


def put_method(
    store: Store,
    *,
    signer: str = "alice",
    most: str | None = None,
    program: bytes = PROGRAM,
    checker: bytes = CHECKER,
) -> None:
    """A method for the family of ``TEXT``, for values of up to ``most``, as if it were proved."""
    family = parse_problem(TEXT).family
    slots = (SlotRange("int"), SlotRange("int", None, "0", most))
    method = Method(family.digest, sha256(program), sha256(checker), slots)
    said = TestResult(PASSED, METHOD_GATE, (Resource("family", family.digest),))
    with store.pending() as pending:
        for data in (program, checker, family.document, method.document):
            pending.put(data)
        payload = encode_test_result(method.digest, said)
        envelope = pending.put(sign_envelope(payload, [key_of(signer)])).digest
        store.record(method.digest, [envelope])


class Seen:
    """What happened, in order, and every enclosure that was started."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.started: list[Started] = []

    @property
    def is_over(self) -> bool:
        """Whether every process that was started has been waited for."""
        return all(item._process.returncode is not None for item in self.started)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return make_store(tmp_path)[0]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(tmp_path, tmp_path / "keys", tmp_path / "cache", tmp_path / "config.toml")


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    seen, start, verify = Seen(), calls.start, verifying.verify_method

    class Told(Started):
        def finish(self, *given: object) -> object:  # type: ignore[override]
            seen.events.append("give")
            return super().finish(*given)  # type: ignore[arg-type]

    def told_start(job: Job, enclosure: Enclosure) -> Started:
        seen.events.append("start")
        started = start(job, enclosure)
        started.__class__ = Told
        seen.started.append(started)
        return started

    def told_verify(*given: object, **named: object) -> object:
        seen.events.append("verify")
        return verify(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(calls, "start", told_start)
    monkeypatch.setattr(verifying, "verify_method", told_verify)
    return seen


def test_the_sandbox_starts_first_and_is_given_what_was_verified(
    store: Store, settings: Settings, seen: Seen
) -> None:
    put_method(store)
    found = flow.solve(store, settings, TEXT)
    assert (found.status, found.answer, found.sandbox) == ("HIT", "7", "bubblewrap")
    assert seen.events == ["start", "verify", "give"]
    assert seen.is_over


def test_a_method_of_an_unknown_key_is_given_to_no_sandbox(
    store: Store, settings: Settings, seen: Seen
) -> None:
    put_method(store, signer="mallory")
    with pytest.raises(Untrusted, match="0 of 1 trusted depositors"):
        flow.solve(store, settings, TEXT)
    assert seen.events == ["start", "verify"]
    assert seen.is_over


def test_values_out_of_range_are_given_to_no_sandbox(
    store: Store, settings: Settings, seen: Seen
) -> None:
    put_method(store, most="3")
    found = flow.solve(store, settings, TEXT)
    assert (found.status, found.sandbox) == ("MISS", None)
    assert seen.events == ["start", "verify"]
    assert seen.is_over


def test_a_miss_starts_nothing(store: Store, settings: Settings, seen: Seen) -> None:
    put_method(store)
    assert flow.solve(store, settings, OTHER).status == "MISS"
    assert seen.events == []


def test_without_a_sandbox_nothing_is_started_before_it_is_verified(
    store: Store, settings: Settings, seen: Seen
) -> None:
    put_method(store)
    found = flow.solve(store, settings, TEXT, no_sandbox=True)
    assert (found.answer, found.sandbox) == ("7", "none")
    assert seen.events == ["verify", *["start", "give"] * 2]
    assert seen.is_over


def test_an_index_that_is_gone_costs_a_start_and_nothing_else(
    store: Store, settings: Settings, seen: Seen
) -> None:
    put_method(store)
    store.close()
    shutil.rmtree(store.root / "index.lmdb")
    assert flow.solve(store, settings, TEXT).answer == "7"
    assert seen.events == ["verify", "start", "give"]


def test_a_program_that_fails_is_told_as_ever(store: Store, settings: Settings, seen: Seen) -> None:
    put_method(store)
    with pytest.raises(GateFailed, match="ZeroDivisionError"):
        flow.solve(store, settings, "Add 3 and 0.")
    assert seen.is_over


def test_an_answer_that_its_checker_refuses_is_none(
    store: Store, settings: Settings, seen: Seen
) -> None:
    """A program that has turned wrong since it was proved."""
    put_method(store, program=b"def solve(a, b): return a + b + (a == 5)\n")
    found = flow.solve(store, settings, TEXT)
    assert (found.answer, found.checked) == ("7", True)
    with pytest.raises(GateFailed, match="the checker refuses 10 for 5, 4"):
        flow.solve(store, settings, "Add 5 and 4.")
    with pytest.raises(GateFailed, match="the checker refuses 10 for 5, 4"):
        flow.run_method(store, settings, parse_problem(TEXT).family.digest, ["5", "4"])
    assert seen.is_over


@pytest.mark.parametrize("said", ["1", "'True'", "answer == 8", "None", "1 / 0", "check"])
def test_only_true_counts(store: Store, settings: Settings, said: str) -> None:
    put_method(store, checker=f"def check(answer, a, b): return {said}\n".encode())
    with pytest.raises(GateFailed, match=r"the checker (refuses|fails on)"):
        flow.solve(store, settings, TEXT, no_sandbox=True)


def missing() -> Enclosure:
    raise GateFailed("no sandbox: bubblewrap is not installed")


def gone() -> Enclosure:
    return Enclosure("bubblewrap", "/nowhere/bwrap")


@pytest.mark.parametrize("found", [missing, gone])
def test_where_there_is_no_sandbox_an_answer_alone_fails(
    store: Store,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    found: Callable[[], Enclosure],
) -> None:
    monkeypatch.setattr("kvg.sandbox.find_enclosure", found)
    put_method(store, signer="mallory")
    assert flow.solve(store, settings, OTHER).status == "MISS"
    with pytest.raises(Untrusted):
        flow.solve(store, settings, TEXT)
    put_method(store)
    with pytest.raises((GateFailed, FileNotFoundError), match=r"bubblewrap|/nowhere/bwrap"):
        flow.solve(store, settings, TEXT)


def test_an_enclosure_that_cannot_be_set_up_is_told_by_its_words(
    store: Store, settings: Settings, seen: Seen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho 'bwrap: no user namespaces' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr("kvg.sandbox.find_enclosure", lambda: Enclosure("x", str(broken)))
    put_method(store)
    with pytest.raises(GateFailed, match="no sandbox: bwrap: no user namespaces"):
        flow.solve(store, settings, TEXT)
    assert seen.is_over


def test_an_interrupted_solve_leaves_no_process(
    store: Store, settings: Settings, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_method(store)

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(verifying, "verify_method", interrupt)
    with pytest.raises(KeyboardInterrupt):
        flow.solve(store, settings, TEXT)
    assert seen.events == ["start"] and seen.is_over


def test_who_brings_a_caller_gets_no_other(store: Store, settings: Settings, seen: Seen) -> None:
    put_method(store)
    caller = calls.Caller(find_enclosure())
    assert flow.solve(store, settings, TEXT, caller=caller).answer == "7"
    assert seen.events == ["verify", "start", "give"]
