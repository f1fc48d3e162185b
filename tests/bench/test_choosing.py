"""The page of graft, LoRA and RAG has the figures of its result file, and no others."""

from __future__ import annotations

import json

from bench import choosing
from tests.models import REPO

PAGE = REPO / "docs" / "choosing.md"
RESULT = REPO / "bench" / "results" / "choosing.jsonl"
ROWS = [
    {"type": "bench-setup", "bench": "choosing"},
    {
        "type": "choosing-row",
        "task": "handbook",
        "way": "graft",
        "questions": 3,
        "right": 2,
        "prepare_s": 4.26,
        "answer_s": 0.4567,
        "tokens": [9, 1200, 11],
    },
]


def between() -> str:
    return PAGE.read_text().split(choosing.MARKS[0])[1].split(choosing.MARKS[1])[0].strip()


def test_a_result_fills_the_page_and_nothing_else_of_it() -> None:
    page = PAGE.read_text()
    filled = choosing.filled(page, ROWS)
    assert "\n| handbook | graft | 2 of 3 | 4.3 | 0.46 | 11 |\n" in filled
    assert choosing.filled(filled, ROWS) == filled
    head, tail = page.split(choosing.MARKS[0])[0], page.split(choosing.MARKS[1])[1]
    assert filled.startswith(head) and filled.endswith(tail) and "Not measured" not in filled


def test_the_page_says_what_the_result_file_says() -> None:
    if not RESULT.is_file():
        assert between() == "Not measured yet."
        return
    rows = [json.loads(line) for line in RESULT.read_text().splitlines()]
    assert between() == choosing.table(rows).strip()
