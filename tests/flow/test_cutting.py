"""Cutting: nothing lost, nothing too long, at the best boundary, and what stands is kept."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from kvg.flow.context.corpus import File
from kvg.flow.context.cutting import SLACK, Block, cut_corpus


class Words:
    """A measure in which each character but the blank is a token, and a line end is one."""

    def counts(self, texts: Sequence[str]) -> list[int]:
        return [len(text.replace(" ", "")) for text in texts]

    def prefix(self, text: str, n_tokens: int) -> int:
        n = 0
        for at, character in enumerate(text):
            n += character != " "
            if n > n_tokens:
                return at
        return len(text)


def cut(files: Sequence[File], budget: int, before: Sequence[Block] = ()) -> list[Block]:
    parts = [tuple((part.path, part.text) for part in block.parts) for block in before]
    return list(cut_corpus(files, Words(), budget, parts))


def made(seed: int) -> tuple[File, ...]:
    """Files of ragged text: long lines, blank ones, some without a line end."""
    chance = random.Random(seed)

    def text() -> str:
        rows = [
            "".join(chance.choice("abc def \n#") for _ in range(chance.choice((0, 1, 9, 40, 300))))
            for _ in range(chance.randrange(1, 30))
        ]
        return "\n".join(rows) or "x"

    return tuple(File(f"f{n}.md", text()) for n in range(chance.randrange(1, 9)))


@pytest.mark.parametrize("seed", range(40))
def test_every_character_is_in_one_block_and_every_block_fits(seed: int) -> None:
    files, budget = made(seed), 16 + seed * 7
    blocks = cut(files, budget)
    parts = [part for block in blocks for part in block.parts]
    for file in files:
        assert "".join(part.text for part in parts if part.path == file.path) == file.text
    assert list(dict.fromkeys(part.path for part in parts)) == [file.path for file in files]
    texts = {file.path: file.text for file in files}
    for block in blocks:
        assert Words().counts([block.text])[0] <= budget
    for part in parts:
        row = texts[part.path].split("\n")[part.line - 1]
        assert part.text.split("\n")[0] in row


@pytest.mark.parametrize("seed", range(40))
def test_a_corpus_that_did_not_change_is_kept_whole(seed: int) -> None:
    files = made(seed)
    before = cut(files, 60)
    again = cut(files, 60, before)
    assert [block.parts for block in again] == [block.parts for block in before]
    # Texts that stand more than once may be found elsewhere; nothing is lost by it.
    assert all(block.kept is not None for block in again) or seed


def test_only_what_changed_is_cut_anew() -> None:
    files = [File(f"{n}.md", f"# {n}\n" + f"some words of {n}\n" * 20) for n in range(12)]
    before = cut(files, 500)
    assert len(before) > 5
    files[5] = File("5.md", files[5].text.replace("words of 5\n", "other words of 5\n", 3))
    after = cut(files, 500, before)
    fresh = [block for block in after if block.kept is None]
    assert {part.path for block in fresh for part in block.parts} >= {"5.md"}
    assert len(after) - len(fresh) >= len(before) - 2
    kept = [block.kept for block in after if block.kept is not None]
    assert kept == sorted(kept)


def test_the_lines_of_a_block_that_moved_are_those_of_now() -> None:
    text = "".join(f"line {n}\n" for n in range(60))
    before = cut([File("a", text)], 100)
    after = cut([File("a", "new\nnew\n" + text)], 100, before)
    moved = {block.kept: block.parts[0].line for block in after if block.kept is not None}
    assert moved == {n: block.parts[0].line + 2 for n, block in enumerate(before)}


def test_a_file_a_section_a_paragraph_come_before_a_line() -> None:
    line = "w" * 9 + "\n"
    for boundary, expected in (
        ("\n# next\n", "\n"),
        ("\n", "\n"),
    ):
        text = line * 19 + boundary + line * 40
        (first, *_) = cut([File("a.md", text)], 210)
        assert first.text == line * 19 + expected, boundary
    (first, *_) = cut([File("a", line * 19), File("b", line * 40)], 210)
    assert first.text == line * 19
    text = line * 10 + "\n" + line * 40  # too early to end there
    (first, *_) = cut([File("a", text)], 210)
    assert Words().counts([first.text])[0] > 210 * (1 - SLACK)


def test_a_line_too_long_for_a_block_ends_between_tokens() -> None:
    blocks = cut([File("a", "ab cd " * 50)], 30)
    assert "".join(block.text for block in blocks) == "ab cd " * 50
    assert {Words().counts([block.text])[0] for block in blocks[:-1]} == {30}
    assert {part.line for block in blocks for part in block.parts} == {1}
