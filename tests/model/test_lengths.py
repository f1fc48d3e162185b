"""Every length from 1 to 1,100 on layers with a window of 512, grafted at its end and at cuts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import pytest
import torch

from kvg.model.dtypes import tensor_digest
from kvg.model.loader import adopt_model
from kvg.model.opening import session_of
from kvg.model.session import Session, Slot
from kvg.model.state import capture_page, place_page
from kvg.objects.layout import needed_pages
from kvg.objects.manifest import Group
from tests import models
from tests.model.test_invariant import text_ids

LONGEST = 1100
MORE = 3
"""Tokens that follow a graft."""
SLIDING = 512
PAGE = 256


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    with models.threads(1):
        yield


@cache
def opened() -> Session:
    """A tiny Gemma 3 of a sliding and a full layer, in bf16."""
    module = models.sliding_and_full(window=SLIDING).to(torch.bfloat16)
    model = adopt_model(module, device="cpu", attention="kvg_invariant", what="gemma3")
    return session_of(model, schedule=None)


class Whole:
    """One prefill of the longest text: the logits of every position, and pages cut from it."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.ids = text_ids(LONGEST + MORE)
        self.slot = session.slot()
        self.rows = session.run(self.slot, self.ids, range(len(self.ids)))
        self._pages: dict[tuple[str, int, int], bytearray] = {}

    def page(self, group: Group, start: int, end: int) -> bytearray:
        key = (group.name, start, end)
        if key not in self._pages:
            self._pages[key] = capture_page(self.slot.state, group, start, end, what="t")
        return self._pages[key]

    def grafted(self, count: int, cuts: Sequence[int], at: int) -> Slot:
        """A slot that holds the first ``at`` tokens, from the pages of ``count`` tokens."""
        slot = self.session.slot()
        slot.state.reserve(count)
        for group in self.session.model.groups:
            for start, end in needed_pages(group, PAGE, count, cuts):
                if start < at:
                    place_page(slot.state, group, start, end, self.page(group, start, end))
        slot.state.length = at
        return slot

    def check(self, slot: Slot) -> bool:
        """Whether the last token and those that follow give the bits of the one prefill."""
        n = slot.length
        witness, last = self.session.resume(slot, self.ids[n - 1], self.ids[n : n + MORE])
        return torch.equal(witness, self.rows[n - 1]) and torch.equal(last, self.rows[n + MORE - 1])


@cache
def whole() -> Whole:
    return Whole(opened())


def test_the_row_of_a_long_prefill_is_the_end_of_a_short_one() -> None:
    session, ids = opened(), whole().ids
    for n in (1, 2, 127, 255, 256, 257, 511, 512, 513, 769, 1023, 1025, 1100):
        alone = session.run(session.slot(), ids[:n], [n - 1])[0]
        assert tensor_digest(alone) == tensor_digest(whole().rows[n - 1]), n


def test_every_length_grafted_at_its_end() -> None:
    wrong = [n for n in range(1, LONGEST + 1) if not whole().check(whole().grafted(n, (), n))]
    assert wrong == []


def test_every_cut_point_of_the_longest() -> None:
    wrong = [
        cut for cut in range(1, LONGEST) if not whole().check(whole().grafted(LONGEST, (cut,), cut))
    ]
    assert wrong == []


def test_pages_before_the_window_are_not_kept_and_one_less_is_not_enough() -> None:
    sliding = next(group for group in opened().model.groups if group.window)
    spans = needed_pages(sliding, PAGE, 1100, ())
    assert spans[0][0] == 512
    slot = whole().grafted(1100, (), 1100)
    first = spans[0]
    for layer in sliding.layers:
        slot.state.values[layer][:, first[0] : first[1]] = 0
    assert not whole().check(slot)
