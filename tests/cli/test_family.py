"""``kvg family`` where nothing is stored."""

from __future__ import annotations

from pathlib import Path

import pytest

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


def test_a_problem_without_end_is_refused(kvg: Run) -> None:
    for said in (kvg("family", "hash", "/dev/zero"), kvg("solve", "--file", "/dev/zero")):
        assert said.code == 2 and "/dev/zero: larger than" in said.err
    endless = kvg("family", "hash", "-", stdin=b"y\n" * (3 << 20))
    assert endless.code == 2 and "standard input: larger than" in endless.err
    given = ("gate", "run", "cmd:true", "--text", "x", "--answer-file", "/dev/zero")
    assert kvg(*given).code == 2


def test_names_of_slots(kvg: Run) -> None:
    named = ("--text", TEXT, "--constraint", "a <= b", "--name", "a", "--name", "b", "--json")
    plain = ("--text", TEXT, "--constraint", "s1 >= s0", "--json")
    assert kvg("family", "hash", *named).record == kvg("family", "hash", *plain).record
    refused = kvg("family", "hash", "--text", TEXT, "--constraint", "{1: 2}", "--json")
    assert refused.code == 2 and "Dict" in refused.error["message"]


@pytest.mark.parametrize("constraint", ["s0 < s2", "any(x == s17 for x in s0)", "s9999999999 > 0"])
def test_a_constraint_over_a_slot_that_is_not_there(kvg: Run, constraint: str) -> None:
    refused = kvg("family", "hash", "--text", TEXT, "--constraint", constraint, "--json")
    assert refused.code == 2 and "no such slot" in refused.error["message"]
    assert "s0 to s1" in refused.error["message"]
    bound = "any(s7 > s0 for s7 in [1]) or s1 == 's2' or s0.s3 or s01"
    assert kvg("family", "hash", "--text", TEXT, "--constraint", bound).code == 0


@pytest.mark.parametrize(
    "option", ["--text", "--constraint", "--name", "--answer", "--schema-version", "--gate"]
)
@pytest.mark.parametrize("form", ["{} {}", "{}={}", "{}={} --bogus"])
def test_an_option_is_text(kvg: Run, option: str, form: str) -> None:
    """What is not UTF-8 is told as such, by who reads a plain line and by the parser."""
    verbs = {"--answer": "gate run", "--schema-version": "method add", "--gate": "solve"}
    verb = verbs.get(option, "family hash")
    refused = kvg(*verb.split(), *form.format(option, "a\udcff").split(), "--json")
    assert refused.code == 2 and option in refused.err and "not Unicode text" in refused.err


def test_nothing_is_stored(kvg: Run, stored: Stored) -> None:
    assert kvg("family", "list").out == ""
    assert kvg("family", "show", FAMILY).code == 3
    assert kvg("family", "hash", "--text", TEXT, "--explain", "--json").record["explained"] == []
