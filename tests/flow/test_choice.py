"""Which of several methods and traces answers: the newest that counts, is fresh and is in range."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvg.digest import Digest, sha256, short
from kvg.errors import NotFound, Untrusted, UsageError
from kvg.flow.method import show_method, stale_methods
from kvg.flow.settings import Settings
from kvg.flow.solve import run_method, solve
from kvg.objects.contract import Contract
from kvg.objects.statement import PASSED, Resource, TestResult, encode_test_result
from kvg.problem.family import parse_problem
from kvg.problem.method import METHOD_GATE, Method
from kvg.problem.ranges import SlotRange
from kvg.signing.dsse import sign_envelope
from kvg.store import Store
from tests.artifacts import key_of, make_store

TEXT = "Add 3 and 4."
OTHER = "Take 3 from 4."
CHECKER = b"def check(answer, a, b): return bool(answer)\n"
GONE = Contract(depends=(Resource("gone.csv", sha256(b"1")),))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return make_store(tmp_path)[0]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(tmp_path, tmp_path / "keys", tmp_path / "cache", tmp_path / "config.toml")


def put(
    store: Store,
    name: str,
    *,
    most: int = 60,
    contract: Contract = GONE,
    signer: str = "alice",
    text: str = TEXT,
    listed_for: str | None = None,
) -> Digest:
    """A method that answers its ``name``; listed for its own family or for another."""
    program = f"def solve(a, b): return {name!r}\n".encode()
    family = parse_problem(text).family
    slots = tuple(SlotRange("int", None, "1", str(most)) for _ in family.types)
    method = Method(family.digest, sha256(program), sha256(CHECKER), slots)
    named = parse_problem(listed_for or text).family.digest
    said = TestResult(PASSED, METHOD_GATE, (Resource("family", named), *contract.resources()))
    with store.pending() as pending:
        for data in (program, CHECKER, family.document, method.document):
            pending.put(data)
        payload = encode_test_result(method.digest, said)
        envelope = pending.put(sign_envelope(payload, [key_of(signer)])).digest
        store.record(method.digest, [envelope])
    return method.digest


def answer(store: Store, settings: Settings, text: str = TEXT) -> str | None:
    return solve(store, settings, text, no_sandbox=True).answer


def reason(store: Store, settings: Settings, text: str = TEXT) -> str:
    found = solve(store, settings, text, no_sandbox=True)
    assert found.answer is None and found.reason is not None and found.exit_code == 3
    return found.reason


def test_the_newest_that_answers_is_taken(store: Store, settings: Settings) -> None:
    put(store, "wide", most=500, contract=Contract())
    put(store, "old", contract=Contract())
    assert answer(store, settings) == "old"
    put(store, "newest", contract=Contract())
    stale = put(store, "stale", contract=GONE)
    put(store, "unknown", contract=Contract(), signer="mallory")
    assert answer(store, settings) == "newest"
    assert answer(store, settings, "Add 61 and 4.") == "wide"
    assert run_method(store, settings, parse_problem(TEXT).family.digest, ["61", "4"]).answer
    put(store, "stale", contract=Contract())  # proved again: the same method, the newest now
    assert answer(store, settings) == "stale"
    assert show_method(store, stale, settings.cwd).stale is None


def test_a_miss_names_each_that_was_asked_in_order(store: Store, settings: Settings) -> None:
    old = put(store, "old", most=2, contract=Contract())
    assert reason(store, settings).startswith("slot s0: 3 is not within 1 to 2 (int)")
    stale = put(store, "stale")
    unknown = put(store, "unknown", signer="mallory")
    parts = reason(store, settings).split("; method ")
    assert parts[0].startswith("method ")
    whys = (
        "0 of 1 trusted",
        "gone.csv, on which it depends, is not here",
        "slot s0: 3 is not within",
    )
    for part, digest, why in zip(parts, (unknown, stale, old), whys, strict=True):
        assert part.removeprefix("method ").startswith(f"{short(digest)}: ") and why in part


def test_where_none_counts_the_newest_is_blamed(store: Store, settings: Settings) -> None:
    put(store, "one", signer="mallory")
    newest = put(store, "two", signer="mallory")
    with pytest.raises(Untrusted, match=short(newest)):
        solve(store, settings, TEXT, no_sandbox=True)


def test_a_method_of_another_family_does_not_answer(store: Store, settings: Settings) -> None:
    """Who lists for, or signs, decides nothing: the method says itself of which family it is."""
    put(store, "take", contract=Contract(), text=OTHER)
    put(store, "take", contract=Contract(), text=OTHER, listed_for=TEXT, signer="mallory")
    assert "another family" in reason(store, settings)
    assert answer(store, settings, OTHER) == "take"
    put(store, "own", contract=Contract())
    put(store, "take", contract=Contract(), text=OTHER, listed_for=TEXT)
    assert answer(store, settings) == "own"


def test_stale_methods_are_listed_and_not_run(store: Store, settings: Settings) -> None:
    put(store, "fresh", contract=Contract())
    first, second = put(store, "a"), put(store, "b", contract=Contract(valid_until=1))
    put(store, "c", signer="mallory")
    listed = list(stale_methods(store, settings.cwd))
    assert [item.method for item in listed] == [first, second]
    assert "gone.csv" in listed[0].stale and listed[1].stale.startswith("stale: valid until 1970")
    shown = show_method(store, first, settings.cwd)
    assert shown.stale == listed[0].stale
    with pytest.raises(NotFound, match=r"gone\.csv"):
        run_method(store, settings, first, ["3", "4"], no_sandbox=True)
    with pytest.raises(UsageError):
        run_method(store, settings, first, ["61", "4"], no_sandbox=True)
