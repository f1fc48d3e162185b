"""Verbs through a session: the same records, text and exit codes, and each graft is proved."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import models
from tests.sessions import Home

SAME = (
    ("graft", "one", "--prompt", " so", "--max-tokens", "12"),
    ("graft", "one", "--max-tokens", "3"),
    ("graft", "one", "--prompt", " so", "--max-tokens", "9", "--temperature", "1", "--seed", "4"),
    ("graft", "one", "--prompt", " so", "--max-tokens", "30", "--stop", "e", "--stream"),
    ("graft", "one", "--prompt-file", "p.txt", "--max-tokens", "4"),
    ("graft", "one", "--prompts", "p.jsonl", "--max-tokens", "4"),
    ("graft", "one", "--chat", "c.json", "--max-tokens", "4"),
    ("graft", "none", "--or-fresh", "tiny", "--prompt", "The text", "--max-tokens", "4"),
    ("ask", "two", "What is it?", "--max-tokens", "12"),
    ("ask", "two", "What is it?", "--max-tokens", "12", "--stream"),
    ("logits", "one", "--prompt", " so"),
    ("logits", "one", "--prompt", " so", "--fresh"),
    ("logits", "--model", "tiny", "--prompt", "The text"),
    ("replay", "one", "two", "--samples", "2"),
    ("replay", "one", "--prompts", "p.jsonl"),
    # what fails
    ("graft", "nosuch"),
    ("graft", "one", "--at", "7"),
    ("graft", "one", "--cut", "7"),
    ("graft", "one", "--require", "tests"),
    ("graft", "one", "--prompt", " so" * 3000),
    ("graft", "one", "--prompt-file", "nosuch.txt"),
    ("graft", "one", "--max-tokens", "3", "--top-p", "0"),
    ("graft", "one@{9}"),
    ("graft", "../one"),
    ("ask", "one", " "),
    ("ask", "one", "What?", "--at", "7"),
    ("logits", "one", "--model", "nosuch"),
    ("logits", "one", "--reference", "scheduled"),
    ("replay", "nosuch"),
)


@pytest.fixture(scope="module", autouse=True)
def files(desk: Home) -> None:
    folder = desk.user.folder
    (folder / "p.txt").write_text("A prompt in a file")
    (folder / "p.jsonl").write_text('{"prompt": " so"}\n"and then"\n')
    (folder / "c.json").write_text('[{"role": "user", "content": "Say it."}]')


@pytest.mark.parametrize("words", SAME, ids=lambda words: " ".join(words)[:60])
def test_the_same_as_without_a_session(desk: Home, words: tuple[str, ...]) -> None:
    for form in ((), ("--json",)):
        alone = desk.kvg(*words, *form)
        through = desk.kvg(*words, *form, "--session", "desk")
        assert through.code == alone.code
        if not form or alone.code not in (0, 11):
            assert through.out == alone.out
        else:
            assert through.timeless == alone.timeless
        if alone.code:
            assert through.err == alone.err
        else:
            assert ("exact" in through.err) == ("exact" in alone.err)


def test_standard_input_and_a_file_for_logits(desk: Home) -> None:
    alone = desk.kvg("graft", "one", "-", "--max-tokens", "4", stdin=b" so it goes")
    through = desk.kvg(
        "graft", "one", "-", "--max-tokens", "4", "--session", "desk", stdin=b" so it goes"
    )
    assert (through.code, through.out) == (0, alone.out)
    ran = desk.kvg("logits", "one", "--out", "l.safetensors", "--session", "desk", "--json")
    from safetensors.torch import load_file

    from kvg.model.dtypes import tensor_digest

    found = tensor_digest(load_file(desk.user.folder / "l.safetensors")["logits"])
    assert found == ran.records[0]["digest"]


def test_each_graft_is_proved_and_the_next_restores_nothing_anew(desk: Home) -> None:
    first, second = (
        desk.kvg("graft", "one", "--max-tokens", "1", "--session", "desk", "--json").records[0]
        for _ in range(2)
    )
    assert first["exact"] and second["exact"]
    assert first["logits_digest"] == second["logits_digest"]
    assert (second["saved_tokens"], second["status"]) == (first["saved_tokens"], "GRAFT_HIT")


def test_a_conversation_goes_on_and_becomes_an_artifact(desk: Home) -> None:
    """Two turns in a slot; what is deposited is what a fresh prefill of its tokens gives."""
    first = desk.kvg("ask", "one", "Who?", "--max-tokens", "9", "--session", "desk", "--slot", "2")
    assert first.code == 0, first.err
    at = slot(desk, 2)["position"]
    more = ("--session", "desk", "--slot", "2", "--json")
    second = desk.kvg("ask", "one", "And?", "--max-tokens", "9", "--at", str(at), *more)
    assert second.code == 0, second.err
    assert second.records[0]["exact"] is True
    assert second.records[0]["saved_tokens"] in (at - 1, at - 2)
    held = slot(desk, 2)
    assert held["ref"] == "one" and held["tokens"] > at
    summary = desk.kvg("replay", "--session", "desk", "--slot", "2", "--json").records[-1]
    assert (summary["equal"], summary["pages_equal"]) == (summary["samples"], summary["pages"])
    made = desk.kvg("deposit", "talk", "--session", "desk", "--slot", "2", "--json").records[0]
    assert made["tokens"] == held["tokens"] and not made["unchanged"]
    assert made["tokens_computed"] <= 1
    assert desk.kvg("replay", "talk", "--samples", "2").code == 0
    manifest = desk.user.store.manifest(made["digest"])
    fresh = models.session(desk_model(desk))
    ids = tuple(desk.user.store.ids(manifest, what="talk"))
    run = fresh.prefill(fresh.slot(), ids, [len(ids) - 1])
    from kvg.model.dtypes import tensor_digest

    assert tensor_digest(run.logits[len(ids) - 1]) == manifest.witnesses[-1].logits
    shown = desk.kvg("show", "talk", "--json").records[0]
    assert shown["digest"] == made["digest"]
    again = desk.kvg("deposit", "talk", "--session", "desk", "--slot", "2", "--json").records[0]
    assert again["unchanged"] is True and again["digest"] == made["digest"]
    assert desk.kvg("ask", "talk", "More?", "--max-tokens", "3", "--session", "desk").code == 0


def desk_model(desk: Home) -> Path:
    from kvg.flow.registered import registered_model

    return registered_model(desk.user.store, "tiny").path


def slot(desk: Home, index: int) -> dict:
    return desk.kvg("session", "slots", "desk", "--json").records[index]


def test_a_slot_says_where_it_goes_on(desk: Home) -> None:
    more = ("--session", "desk", "--slot", "1", "--max-tokens", "2")
    assert desk.kvg("graft", "one", "--at", "9", *more).code == 3  # empty
    assert desk.kvg("graft", "one", *more).code == 0
    at = slot(desk, 1)["position"]
    other = desk.kvg("graft", "two", "--at", str(at), *more)
    assert other.code == 7 and "begins with" in other.err
    wrong = desk.kvg("graft", "one", "--at", str(at - 1), *more)
    assert wrong.code == 7 and f"expects position {at}" in wrong.err
    assert desk.kvg("graft", "one", "--at", str(at), "--prompt", " so", *more).code == 0
    assert slot(desk, 1)["position"] > at
    assert desk.kvg("graft", "one", *more).code == 0, "without --at it is grafted anew"
    assert slot(desk, 1)["position"] == at
    assert desk.kvg("session", "slots", "desk", "--clear", "1").code == 0
    assert slot(desk, 1)["digest"] is None
    gone = desk.kvg("deposit", "x", "--session", "desk", "--slot", "1")
    assert gone.code == 3 and "empty" in gone.err


def test_what_a_slot_holds_is_what_one_run_gives(desk: Home) -> None:
    """Going on token by token and turn by turn: the logits of a whole run of the same tokens."""
    more = ("--session", "desk", "--slot", "3", "--json")
    desk.kvg("graft", "one", "--prompt", " a", "--max-tokens", "5", *more)
    at = slot(desk, 3)["position"]
    went = desk.kvg("graft", "one", "--at", str(at), "--prompt", " b", "--max-tokens", "1", *more)
    desk.kvg("deposit", "walk", "--session", "desk", "--slot", "3")
    manifest = desk.user.store.manifest(desk.user.store.resolve("walk").digest)
    ids = tuple(desk.user.store.ids(manifest, what="walk"))
    session = models.session(desk_model(desk))
    last = len(ids) - 2  # the last token was generated
    logits = session.prefill(session.slot(), ids, [last]).logits[last]
    from kvg.model.dtypes import tensor_digest

    assert tensor_digest(logits) == went.records[0]["logits_digest"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("graft", "one", "--session", "nosuch"), 3, "not running"),
        (("graft", "one", "--session", "../desk"), 2, "not a name"),
        (("graft", "one", "--session", "desk", "--slot", "99"), 3, "has slots 0 to 7"),
        (("graft", "one", "--slot", "1"), 2, "of which session"),
        (("deposit", "x", "--session", "desk"), 2, "which slot"),
        (("deposit", "x", "--session", "desk", "--slot", "1", "--text", "t"), 2, "exactly one"),
        (("replay", "--session", "desk", "--slot", "0"), 3, "empty"),
        (("replay", "--session", "desk"), 2, "no ref"),
        (("session", "stop", "nosuch"), 3, "not running"),
        (("session", "slots", "nosuch"), 3, "not running"),
        (("session", "slots", "desk", "--clear", "99"), 3, "has slots"),
        (("session", "start", "desk"), 4, "running already"),
        (("session", "start", "Desk!"), 2, "not a name"),
        (("session", "start", "other", "--model", "nosuch"), 3, "nosuch"),
        (("session", "start", "other", "--memory", "10MB"), 2, "the model alone takes"),
        (("session", "start", "other", "--idle", "soon"), 2, "not a span"),
    ],
    ids=lambda value: " ".join(value)[:50] if isinstance(value, tuple) else None,
)
def test_refusals(desk: Home, words: tuple[str, ...], code: int, said: str) -> None:
    ran = desk.kvg(*words)
    assert (ran.code, said in ran.err) == (code, True), ran.err
    as_json = json.loads(desk.kvg(*words, "--json").err.splitlines()[-1])
    assert as_json["code"] == code


def test_another_store_is_not_mistaken_for_this_one(desk: Home) -> None:
    other = desk.folder / "other"
    assert desk.kvg("init", str(other)).code == 0
    ran = desk.kvg("-C", str(other), "graft", "one", "--session", "desk")
    assert ran.code == 2 and "serves the store" in ran.err
    outside = desk.folder / "outside"
    outside.mkdir()
    ran = desk.kvg("-C", str(outside), "graft", "one", "--session", "desk", "--max-tokens", "1")
    assert ran.code == 0, "where there is no store, the session's is meant"


def test_trust_is_asked_at_every_graft(desk: Home) -> None:
    """The state is in memory already; a key that is trusted no longer still stops it."""
    graft = ("graft", "two", "--max-tokens", "1", "--session", "desk")
    assert desk.kvg(*graft).code == 0
    keys = [r for r in desk.kvg("trust", "list", "--json").records if r.get("keyid")]
    keyid = keys[0]["keyid"]
    assert desk.kvg("key", "new", "second").code == 0
    second = next(r for r in desk.kvg("key", "list", "--json").records if r["name"] == "second")
    assert desk.kvg("trust", "add", second["keyid"]).code == 0
    removed = desk.kvg("trust", "remove", keyid, "--role", "depositor", "--yes")
    assert removed.code == 0, removed.err
    refused = desk.kvg(*graft)
    assert refused.code == 6, refused.err
    assert desk.kvg("trust", "add", keyid, "--role", "depositor").code == 0
    assert desk.kvg(*graft).code == 0


def test_the_list_says_what_there_is(desk: Home) -> None:
    end = time.monotonic() + 30  # what clients that went away left is ended first
    while desk.state("desk")["requests"] and time.monotonic() < end:
        time.sleep(0.05)
    (record,) = desk.kvg("session", "list", "--json").records
    assert (record["name"], record["status"], record["model"]) == ("desk", "running", "tiny")
    assert record["memory_bytes"] < record["memory_limit_bytes"]
    assert record["done"] > 0 and record["requests"] == 0
    text = desk.kvg("session", "list").out
    assert text.startswith("desk  running  tiny invariant cpu")


def test_the_log_holds_no_text(desk: Home) -> None:
    desk.kvg("graft", "one", "--prompt", "a secret", "--max-tokens", "1", "--session", "desk")
    log = desk.log("desk")
    assert "graft 'one': done" in log and "secret" not in log


LIGHT = """
import json, sys
from kvg.cli.main import main
code = main(sys.argv[1:])
print(json.dumps([code, sorted(sys.modules)]), file=sys.stderr)
"""


@pytest.mark.parametrize(
    "words",
    [
        ("graft", "one", "--prompt", " so", "--max-tokens", "1", "--json"),
        ("ask", "one", "What?", "--max-tokens", "1"),
        ("logits", "one", "--json"),
        ("replay", "one", "--samples", "1"),
    ],
    ids=lambda words: words[0],
)
def test_a_client_is_light(desk: Home, words: tuple[str, ...]) -> None:
    """No model, no index, no keys, no HTTP library, no parser."""
    done = subprocess.run(
        [sys.executable, "-c", LIGHT, *words, "--session", "desk"],
        cwd=desk.user.folder,
        env=desk.env,
        capture_output=True,
        text=True,
        check=True,
    )
    code, modules = json.loads(done.stderr.splitlines()[-1])
    assert code == 0
    heavy = {"torch", "transformers", "numpy", "rich", "lmdb", "cryptography", "zstandard", "http"}
    heavy |= {"tomllib", "pydantic", "uvicorn", "starlette", "asyncio", "socket", "hashlib"}
    heavy |= {"kvg.store", "typer"}
    assert heavy & set(modules) == set()
    own = [name for name in modules if name.partition(".")[0] == "kvg"]
    assert len(own) <= 47, own


def test_a_conversation_passes_gates_too(desk: Home) -> None:
    more = ("--session", "desk", "--slot", "4")
    assert desk.kvg("graft", "one", "--prompt", " so", "--max-tokens", "3", *more).code == 0
    planned = desk.kvg("deposit", "gated", "--dry-run", "--json", *more)
    assert planned.code == 0 and not planned.records[0]["unchanged"], planned.err
    gate = ("--no-sandbox", "--gate")
    refused = desk.kvg("deposit", "gated", *gate, "cmd:grep -q zebra text.txt", *more)
    assert refused.code == 8, refused.err
    assert desk.kvg("rev-parse", "gated").code == 3, "what was refused is not there"
    passed = desk.kvg("deposit", "gated", "--json", *gate, "cmd:grep -q the text.txt", *more)
    assert passed.code == 0, passed.err
    assert len(passed.records[0]["gates"]) >= 1
    assert desk.kvg("verify", "gated").code == 0
