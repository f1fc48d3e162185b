"""What a person sees of an answer."""

from __future__ import annotations

import dataclasses

import pytest

from kvg.cli.render import View
from kvg.cli.render.flywheel import answer
from kvg.cli.terminal import Terminal
from kvg.digest import sha256
from kvg.flow.records.flywheel import AnswerFound

FOUND = AnswerFound(
    "HIT", sha256(b"f"), sha256(b"m"), "", 0, 1.0, 1.0, 1.0, 1.0, sha256(b"a"), "bubblewrap", None
)


def shown(text: str, *, on_terminal: bool) -> str:
    terminal = Terminal(on_terminal, *(6 * [False]))
    view = View(terminal, quiet=True, verbose=False, aside=lambda _: None)
    return "".join(answer(dataclasses.replace(FOUND, answer=text), view))


@pytest.mark.parametrize("text", ["\x1b[31mred", "a\u202eb", "\x07"])
def test_an_answer_moves_no_terminal_and_goes_into_a_pipe_as_it_is(text: str) -> None:
    assert shown(text, on_terminal=False) == f"{text}\n"
    assert shown(text, on_terminal=True).rstrip("\n").isprintable()


@pytest.mark.parametrize(("sandbox", "said"), [("none", True), ("bubblewrap", False)])
def test_a_check_without_a_sandbox_is_told_as_such(sandbox: str, said: bool) -> None:
    asides: list[str] = []
    view = View(Terminal(True, *(6 * [False])), quiet=True, verbose=False, aside=asides.append)
    found = dataclasses.replace(FOUND, answer="7", sandbox=sandbox, checked=True)
    assert [*answer(found, view)] == ["7\n"]
    assert ("checked, sandbox: none, 0 tokens" in asides[0]) == said
