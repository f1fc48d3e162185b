"""A context through a session: the window moves, answers are the same, memory stays flat."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import models
from tests.sessions import Home

N_BLOCKS = 12


@pytest.fixture(scope="module")
def docs(desk: Home) -> Home:
    """The home with a context ``docs`` of a good many blocks."""
    text = models.real_text()[: N_BLOCKS * 900]
    folder = desk.user.folder / "docs"
    folder.mkdir()
    for number in range(N_BLOCKS):
        part = text[number * 900 : (number + 1) * 900]
        (folder / f"{number:02}.txt").write_text(f"zebra{number}\n{part}")
    made = desk.kvg("context", "create", "docs", "docs", "--block-tokens", "450", "--json")
    assert made.code == 0 and made.records[-1]["blocks"] >= N_BLOCKS, made.err
    return desk


@pytest.mark.parametrize(
    "words",
    [
        ("at", "docs", "1500", "--prompt", " so", "--max-tokens", "5"),
        ("at", "docs", "03.txt:1", "--prompt", " so", "--max-tokens", "5"),
        ("ask", "docs", "Where is zebra4?", "--max-tokens", "6"),
        ("ask", "docs", "zebra2 zebra7", "--blocks", "2", "--max-tokens", "6"),
        ("at", "docs", "99999999", "--prompt", " so"),
        ("at", "docs", "nosuch.txt:1", "--prompt", " so"),
        ("at", "docs", "x", "--prompt", " so"),
        ("at", "nosuch", "1", "--prompt", " so"),
        ("ask", "docs", "xylophone"),
        ("ask", "docs", " "),
        ("ask", "docs", "zebra1", "--require", "tests"),
    ],
    ids=lambda words: " ".join(words)[:40],
)
def test_the_same_as_without_a_session(docs: Home, words: tuple[str, ...]) -> None:
    alone = docs.kvg("context", *words, "--json")
    there = docs.kvg("context", *words, "--json", "--session", "desk")
    assert there.code == alone.code, (alone.err, there.err)
    assert [_timeless(r) for r in there.records] == [_timeless(r) for r in alone.records]
    assert there.err.count("error:") == alone.err.count("error:")


def _timeless(record: dict) -> dict:
    kept = {k: v for k, v in record.items() if not k.endswith("_ms")}
    if "candidates" in kept:
        kept["candidates"] = [_timeless(item) for item in kept["candidates"]]
    return kept


def test_the_window_is_moved_and_stays_in_its_slot(docs: Home) -> None:
    more = ("--session", "desk", "--slot", "1", "--json")
    for place in ("0", "4000"):
        place_, moved = docs.kvg("context", "at", "docs", place, *more).records
        assert place_["type"] == "context-place" and place_["start"] <= int(place) < place_["end"]
        assert (moved["type"], moved["new_tokens"], moved["exact"]) == ("graft", 0, True)
        assert moved["digest"] == place_["digest"]
        slot = docs.kvg("session", "slots", "desk", "--json").records[1]
        assert (slot["ref"], slot["digest"]) == (place_["ref"], place_["digest"])
    length = place_["end"] - place_["start"]
    on = docs.kvg(
        "graft", place_["ref"], "--prompt", " so", "--max-tokens", "3", "--at", str(length), *more
    )
    assert on.code == 0 and on.records[-1]["exact"], on.err
    assert docs.kvg("context", "at", "docs", "0", "--slot", "1").code == 2


def test_memory_is_flat_over_all_blocks(docs: Home) -> None:
    """With one block kept, the session holds after every block what it held after the first."""
    docs.start("small", "--keep", "1")

    def memory() -> tuple[int, int]:
        """Bytes that the session counts, and of shared memory that it holds: restored states."""
        state = docs.state("small")
        status = Path(f"/proc/{state['pid']}/status").read_text()
        (line,) = [row for row in status.splitlines() if row.startswith("RssShmem")]
        return int(state["memory_bytes"]), int(line.split()[1]) * 1024

    try:
        seen = []
        for number in range(N_BLOCKS):
            at = docs.kvg("context", "at", "docs", f"{number:02}.txt:1", "--session", "small")
            assert at.code == 0, at.err
            seen.append(memory())
        counted, held = zip(*seen, strict=True)
        assert held[0] > 100_000, "a restored block is seen"
        assert max(held) <= 1.5 * held[0] + 65_536
        assert max(counted) - counted[0] <= held[0] // 2
    finally:
        docs.kvg("session", "stop", "small")
