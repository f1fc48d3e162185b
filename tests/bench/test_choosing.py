"""The page of graft, LoRA and RAG has the figures of its result file, and no others."""

from __future__ import annotations

import json

from bench import asking, choosing
from bench.filling import between, filled
from tests.models import REPO

PAGE = REPO / "docs" / "choosing.md"
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


ASKED = [
    {"type": "bench-setup", "bench": "asking"},
    {
        "type": "asking-summary",
        "questions": 28,
        "context_tokens": 11_000,
        "context_blocks": 24,
        "block_tokens": 512,
        "blocks": 1,
        "found": 27,
        "cited": 24,
        "right": 8,
        "right_alone": 1,
        "equal": 28,
    },
]


def test_a_result_fills_the_page_and_nothing_else_of_it() -> None:
    page = PAGE.read_text()
    for script, table, row in (
        ("choosing", choosing.table(ROWS), "\n| handbook | graft | 2 of 3 | 4.3 | 0.46 | 11 |\n"),
        ("asking", asking.table(ASKED), "\n| the answer is right | 8 of 28 |\n"),
    ):
        done = filled(page, script, table)
        assert row in done and filled(done, script, table) == done
        head, tail = page.split(f"<!-- bench/{script}.py -->\n")
        assert done.startswith(head) and done.endswith(tail.partition("<!-- end -->\n")[2])
        assert between(done, script) == table.strip()


def test_the_page_says_what_the_result_files_say() -> None:
    for script, table in (("choosing", choosing.table), ("asking", asking.table)):
        result = REPO / "bench" / "results" / f"{script}.jsonl"
        if not result.is_file():
            assert between(PAGE.read_text(), script) == "Not measured yet."
            continue
        rows = [json.loads(line) for line in result.read_text().splitlines()]
        assert between(PAGE.read_text(), script) == table(rows).strip()
