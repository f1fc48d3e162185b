"""Passages: whole lines in order, found by their words; an index is right or not taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvg.search import Passage, PassageIndex, build_index, cut_passages, rows_of
from kvg.search.passages import PASSAGE_CHARS

ROWS = [
    Passage(1, "a.md", 1, "The witness is a digest of logits.\n"),
    Passage(1, "a.md", 9, "A page holds keys and values.\n"),
    Passage(2, "b/c.py", 1, "def rotary_angle(page): return page\n"),
]


def test_passages_are_all_of_the_text_in_order() -> None:
    text = "".join(f"line {n} of it\n" + "\n" * (n % 7 == 0) for n in range(400))
    found = list(cut_passages(3, "a.txt", 11, text))
    assert "".join(item.text for item in found) == text and len(found) > 3
    assert all(len(item.text) < 2 * PASSAGE_CHARS + 20 for item in found)
    lines = text.split("\n")
    for item in found:
        assert lines[item.line - 11] == item.text.split("\n")[0]


def test_only_a_line_feed_ends_a_line() -> None:
    assert rows_of("a\x0cb\u2028c\r\nd") == ["a\x0cb\u2028c\r\n", "d"]
    assert [item.line for item in cut_passages(1, "f", 1, "\x0c\n" * 1000)] == []


def test_the_best_passage_comes_first_and_words_of_the_path_count() -> None:
    index = PassageIndex.of(build_index(ROWS, mark="m"))
    assert [hit.passage for hit in index.search("witness logits?", limit=5)] == [ROWS[0]]
    assert [hit.passage.path for hit in index.search("page", limit=5)] == ["b/c.py", "a.md"]
    assert [hit.passage.path for hit in index.search("page", limit=5, block=1)] == ["a.md"]
    assert [hit.passage for hit in index.search("rotary_angle", limit=5)] == [ROWS[2]]
    assert [hit.passage for hit in index.search("rotary", limit=5)] == [ROWS[2]]
    assert index.search("angle_rotary", limit=5) == ()
    scores = [hit.score for hit in index.search("page keys", limit=5)]
    assert scores == sorted(scores, reverse=True) and scores[0] > 0


def test_words_that_tell_nothing_decide_nothing() -> None:
    rows = [
        Passage(1, "a", 1, "What is it that the one of them is for? It is what it is.\n"),
        Passage(2, "b", 1, "Grafts restore pages.\n"),
    ]
    index = PassageIndex.of(build_index(rows, mark="m"))
    assert [hit.passage.path for hit in index.search("What is it that grafts?", limit=5)] == ["b"]
    assert [hit.passage.path for hit in index.search("what is that", limit=5)] == ["a"]


@pytest.mark.parametrize("query", ["grafting", "grafted", "restores", "GRAFT", "restor"])
def test_a_word_that_stands_nowhere_is_found_in_another_form(query: str) -> None:
    rows = [Passage(1, "a", 1, "Grafts restore pages.\n"), Passage(2, "b", 1, "Rest.\n")]
    index = PassageIndex.of(build_index(rows, mark="m"))
    assert [hit.passage.path for hit in index.search(query, limit=5)] == ["a"]


def test_the_best_line_of_a_passage_is_told() -> None:
    text = "A page.\nIt has keys.\nA witness is a digest\nof the logits at the end.\nNo more.\n"
    index = PassageIndex.of(build_index([Passage(1, "a", 7, text)], mark="m"))
    for query, line in (
        ("What is a witness?", 9),
        ("logits witness", 9),
        ("the last logits", 10),
        ("key", 8),
    ):
        (hit,) = index.search(query, limit=5)
        assert (hit.passage.line, hit.line) == (7, line), query


def test_a_section_begins_a_passage() -> None:
    text = "# One\n\n" + "about it\n" * 30 + "\n# Two\n\nshort\n\n# Three\n\nshort\n"
    assert [item.text[:5] for item in cut_passages(1, "f", 1, text)] == ["# One", "# Two"]
    assert "".join(item.text for item in cut_passages(1, "f", 1, text)) == text


def test_a_limit_beyond_every_number() -> None:
    assert len(PassageIndex.of(build_index(ROWS, mark="m")).search("page", limit=10**30)) == 2


@pytest.mark.parametrize("query", ["", "?!", '"', "page OR", 'a" NEAR (b', "NOT *", "páge\0x"])
def test_a_query_is_words_and_nothing_else(query: str) -> None:
    PassageIndex.of(build_index(ROWS, mark="m")).search(query, limit=3)


def test_an_index_of_other_text_or_damaged_is_none(tmp_path: Path) -> None:
    path = tmp_path / "a ?#%ü.sqlite"
    data = build_index(ROWS, mark="m")
    assert PassageIndex.open(path, mark="m") is None
    path.write_bytes(data)
    opened = PassageIndex.open(path, mark="m")
    assert opened is not None and len(opened.search("page", limit=9)) == 2
    opened.close()
    assert PassageIndex.open(path, mark="n") is None
    for cut in (0, 100, 4096, len(data) - 4096):
        path.write_bytes(data[:cut])
        assert PassageIndex.open(path, mark="m") is None
    path.write_bytes(bytes(len(data)))
    assert PassageIndex.open(path, mark="m") is None
