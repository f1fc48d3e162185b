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
