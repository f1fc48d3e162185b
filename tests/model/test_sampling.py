from __future__ import annotations

import hashlib

import pytest
import torch

from kvg.errors import UsageError
from kvg.model.generation import held_back, stop_index
from kvg.model.sampling import choose, draw


def test_greedy_takes_the_lowest_id_of_a_tie() -> None:
    logits = torch.tensor([0.0, 3.0, 3.0, 1.0])
    assert choose(logits, temperature=0, top_p=1.0, seed=0, counter=0) == 1


def test_the_stream_is_counter_based() -> None:
    assert draw(7, 3) == draw(7, 3)
    numbers = [draw(7, counter) for counter in range(2000)]
    assert all(0 <= number < 1 for number in numbers)
    assert abs(sum(numbers) / 2000 - 0.5) < 0.03
    assert len({draw(seed, 0) for seed in range(100)}) == 100


def test_the_stream_never_changes() -> None:
    assert draw(0, 0) == 0.9967767162583185
    raw = hashlib.shake_256(b"kvg.sample/1 41 7").digest(8)
    assert draw(41, 7) == (int.from_bytes(raw, "little") >> 11) / 2**53


def test_draws_follow_the_softmax() -> None:
    logits = torch.log(torch.tensor([0.5, 0.3, 0.2]))
    found = [choose(logits, temperature=1, top_p=1.0, seed=1, counter=i) for i in range(3000)]
    for token, share in enumerate((0.5, 0.3, 0.2)):
        assert abs(found.count(token) / 3000 - share) < 0.03


def test_top_p_keeps_the_most_likely() -> None:
    logits = torch.log(torch.tensor([0.2, 0.5, 0.3]))
    for top_p, kept in ((0.4, {1}), (0.6, {1, 2}), (1.0, {0, 1, 2})):
        found = {choose(logits, temperature=1, top_p=top_p, seed=2, counter=i) for i in range(300)}
        assert found == kept


@pytest.mark.parametrize(("temperature", "top_p"), [(-1, 1.0), (1, 0.0), (1, 1.1)])
def test_settings_that_mean_nothing(temperature: float, top_p: float) -> None:
    with pytest.raises(UsageError):
        choose(torch.zeros(3), temperature=temperature, top_p=top_p, seed=0, counter=0)


def test_what_may_begin_a_stop_text_is_held_back() -> None:
    assert stop_index("one END two", ("two", "END")) == 4
    assert stop_index("one", ("END",)) is None
    assert held_back("one E", ("END",)) == 1
    assert held_back("one EN", ("END", "NO")) == 2
    assert held_back("one", ("END",)) == 0
    assert held_back("one \ufffd", ()) == 1
