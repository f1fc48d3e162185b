"""Generation: one token after the other from a slot, with stop texts that are never shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from kvg.model.sampling import choose
from kvg.model.session import Session, Slot
from kvg.model.text import Tokenizer


@dataclass(frozen=True, slots=True)
class Choice:
    """How tokens are chosen; see ``sampling.choose``. ``stop`` texts end the answer."""

    max_tokens: int
    temperature: float
    top_p: float
    seed: int
    stop: tuple[str, ...]


@dataclass(slots=True)
class Generated:
    """What was generated so far: ids, the text that is certain, and whether it came to an end.

    It did at an end-of-text token or a stop text, not where it was cut short.
    """

    ids: list[int]
    text: str
    ended: bool = False


def generate(
    session: Session,
    slot: Slot,
    logits: torch.Tensor,
    tokenizer: Tokenizer,
    choice: Choice,
    progress: Generated,
    *,
    first: Callable[[], None] = lambda: None,
) -> Iterator[str]:
    """Yield pieces of text after ``slot``, whose last position gave ``logits`` ``[vocabulary]``.

    ``progress`` is filled as it goes. A piece is held back while it may be the beginning of a
    stop text or of a character. ``first`` is called when the first token is chosen. Ends at an
    end-of-text token, a stop text, ``max_tokens`` or the model's window.
    """
    while len(progress.ids) < choice.max_tokens:
        token = choose(
            logits,
            temperature=choice.temperature,
            top_p=choice.top_p,
            seed=choice.seed,
            counter=len(progress.ids),
        )
        if not progress.ids:
            first()
        progress.ids.append(token)
        if token in session.model.eos_ids:
            progress.ended = True
            break
        text = tokenizer.decode(progress.ids)
        end = stop_index(text, choice.stop)
        if end is not None:
            progress.ended = True
            yield from _advance(progress, text[:end])
            return
        yield from _advance(progress, text[: len(text) - held_back(text, choice.stop)])
        if len(progress.ids) == choice.max_tokens or slot.length >= session.model.window:
            break
        logits = session.run(slot, [token], [0])[0]
    ids = progress.ids
    yield from _advance(progress, tokenizer.decode(ids[:-1] if progress.ended else ids))


def stop_index(text: str, stop: Sequence[str]) -> int | None:
    """Where the first stop text begins in ``text``."""
    found = [index for index in (text.find(item) for item in stop) if index >= 0]
    return min(found) if found else None


def held_back(text: str, stop: Sequence[str]) -> int:
    """How many characters at the end of ``text`` may still change or begin a stop text."""
    most = len(text) - len(text.rstrip("\ufffd"))
    for item in stop:
        for n in range(min(len(item) - 1, len(text)), most, -1):
            if text.endswith(item[:n]):
                most = n
                break
    return most


def _advance(progress: Generated, text: str) -> Iterator[str]:
    if len(text) > len(progress.text):
        piece = text[len(progress.text) :]
        progress.text = text
        yield piece
