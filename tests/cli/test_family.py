"""``kvg family`` where nothing is stored."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Run, Stored

TEXT = "Sum the integers from 3 to 9."
FAMILY = "sha256:91b4fdf3b6d4c466fe8dae8cbd40a2347ddcd20e9c4cc8b66b2bbd87303855a1"


def test_an_address_needs_no_store(kvg: Run) -> None:
    assert kvg("family", "hash", "--text", TEXT).out == FAMILY + "\n"
    record = kvg("family", "hash", "--text", TEXT, "--json").record
    assert record["type"] == "family" and record["family"] == FAMILY
    assert record["slots"][0] == {"type": "int", "raw": "3", "value": 3}
    assert len(record["family_seed_hash"]) == 32


def test_every_way_to_give_a_problem(kvg: Run) -> None:
    Path("problem.txt").write_text(TEXT)
    assert kvg("family", "hash", "problem.txt").out == FAMILY + "\n"
    assert kvg("family", "hash", "-", stdin=TEXT.encode()).out == FAMILY + "\n"
    assert kvg("family", "hash").code == 2
    assert kvg("family", "hash", "problem.txt", "--text", TEXT).code == 2
    assert kvg("family", "hash", "-", stdin=b"\xff").code == 2
    assert kvg("family", "hash", "--text", " ").code == 2
    assert kvg("family", "hash", "absent.txt").code == 3


def test_names_of_slots(kvg: Run) -> None:
    named = ("--text", TEXT, "--constraint", "a <= b", "--name", "a", "--name", "b", "--json")
    plain = ("--text", TEXT, "--constraint", "s1 >= s0", "--json")
    assert kvg("family", "hash", *named).record == kvg("family", "hash", *plain).record
    refused = kvg("family", "hash", "--text", TEXT, "--constraint", "{1: 2}", "--json")
    assert refused.code == 2 and "Dict" in refused.error["message"]


def test_nothing_is_stored(kvg: Run, stored: Stored) -> None:
    assert kvg("family", "list").out == ""
    assert kvg("family", "show", FAMILY).code == 3
    assert kvg("family", "hash", "--text", TEXT, "--explain", "--json").record["explained"] == []
