"""Slots that start from one state share its memory until they write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kvg.errors import Bug
from kvg.model.state import SlotState, place_page
from kvg.objects.manifest import Group, LayerSpec
from kvg.objects.page import page_size

LAYERS = tuple(LayerSpec(index, "attention", 2, 64, 64, "BF16", None) for index in range(4))
CPU = torch.device("cpu")
TOKENS = 32_768
KINDS = ("Pss_Anon:", "Pss_Shmem:")
BYTES = 4 * 2 * 2 * TOKENS * 64 * 2


def filled(state: SlotState) -> SlotState:
    """``state`` with other numbers in every layer, up to its capacity."""
    for layer in LAYERS:
        state.keys[layer.index].fill_(layer.index + 1)
        state.values[layer.index].fill_(-layer.index - 1)
    state.length = state.capacity
    return state


def memory_bytes() -> int:
    """What this process takes of the machine: pages that it shares with itself count once.

    Pages of files are left out: how much of a library counts follows from who else has loaded it.
    """
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith(KINDS))


def touch(state: SlotState) -> float:
    """Read every byte of ``state``."""
    return sum(
        float(piece.float().sum())
        for layer in LAYERS
        for held in (state.keys, state.values)
        for piece in held[layer.index].split(256, 1)
    )


def test_two_forks_of_one_state_cost_its_memory_once() -> None:
    before = memory_bytes()
    base = filled(SlotState.to_share(LAYERS, CPU, TOKENS))
    base.freeze()
    forks = [base.fork(), base.fork()]
    total = {touch(fork) for fork in forks}
    assert len(total) == 1
    used = memory_bytes() - before
    assert 0.98 * BYTES < used < 1.25 * BYTES
    copies = [filled(SlotState(LAYERS, CPU, TOKENS)) for _ in forks]
    assert memory_bytes() - before - used > 1.75 * BYTES
    assert len(copies) == 2


def test_a_fork_that_writes_changes_nobody_else() -> None:
    base = filled(SlotState.to_share(LAYERS, CPU, TOKENS))
    base.freeze()
    one, two = base.fork(), base.fork()
    one.write(2, 100, torch.full((2, 3, 64), 9.0), torch.full((2, 3, 64), 9.0))
    assert bool((one.keys[2][:, 100:103] == 9).all())
    assert bool((two.keys[2] == 3).all())
    assert bool((base.keys[2] == 3).all())
    assert bool((one.keys[2][:, 103:] == 3).all())


GROUP = Group("full", "attention", (0,), 2, 64, 64, "BF16", None)
WRITES: dict[str, Callable[[SlotState], object]] = {
    "write": lambda s: s.write(0, 0, torch.zeros(2, 1, 64), torch.zeros(2, 1, 64)),
    "wipe": lambda s: s.wipe(0, 1),
    "take": lambda s: s.take(SlotState(LAYERS, CPU, 256)),
    "put_token": lambda s: s.put_token(0, s.token(0)),
    "place_page": lambda s: place_page(s, GROUP, 0, 1, bytearray(page_size(GROUP, 1))),
}


@pytest.mark.parametrize("how", WRITES)
def test_a_frozen_state_refuses_to_be_written(how: str) -> None:
    base = filled(SlotState.to_share(LAYERS, CPU, 256))
    base.freeze()
    fork = base.fork()
    with pytest.raises(Bug):
        WRITES[how](base)
    assert bool((fork.keys[0] == 1).all())


def test_a_token_is_put_back_as_it_was() -> None:
    state = filled(SlotState(LAYERS, CPU, TOKENS))
    held = state.token(5)
    for layer in LAYERS:
        state.keys[layer.index][:, 4:7] = 9
        state.values[layer.index][:, 4:7] = 9
    state.put_token(5, held)
    for layer in LAYERS:
        for sign, part in ((1, state.keys[layer.index]), (-1, state.values[layer.index])):
            assert bool((part[:, 5] == sign * (layer.index + 1)).all())
            assert bool((part[:, 4] == 9).all()) and bool((part[:, 6] == 9).all())


def test_a_fork_of_a_living_state_is_a_copy() -> None:
    state = filled(SlotState(LAYERS, CPU, TOKENS))
    fork = state.fork()
    state.keys[0].zero_()
    assert bool((fork.keys[0] == 1).all())


def test_a_state_grows_past_its_first_capacity() -> None:
    state = SlotState(LAYERS, CPU, 256)
    state.write(1, 0, torch.full((2, 200, 64), 5.0), torch.full((2, 200, 64), 6.0))
    state.length = 200
    state.reserve(1000)
    assert state.capacity >= 1000
    assert bool((state.keys[1][:, :200] == 5).all())
    assert bool((state.values[1][:, 200:] == 0).all())


def test_every_layer_lies_on_a_page_boundary() -> None:
    odd = tuple(LayerSpec(index, "attention", 3, 40, 24, "F32", 7) for index in range(3))
    state = SlotState(odd, CPU, 300)
    for layer in odd:
        assert state.keys[layer.index].data_ptr() % 4096 == 0
        assert state.values[layer.index].data_ptr() % 4096 == 0
