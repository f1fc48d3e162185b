"""Seeds that share tokens give what each gives alone, and take no pass more than they differ."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvg.model.branching import Branches
from kvg.model.sampling import choose
from kvg.model.session import Session
from kvg.objects.manifest import Schedule
from tests import models

IDS = (5, 9, 2, 77, 31, 8)
MOST = 7


def alone(session: Session, seed: int, temperature: float) -> tuple[int, ...]:
    """One seed, token by token, without any sharing."""
    slot = session.slot()
    logits = session.prefill(slot, IDS, [len(IDS) - 1]).logits[len(IDS) - 1]
    found: list[int] = []
    while len(found) < MOST:
        token = choose(logits, temperature=temperature, top_p=1.0, seed=seed, counter=len(found))
        if token in session.model.eos_ids:
            break
        found.append(token)
        logits = session.run(slot, [token], [0])[0]
    return tuple(found)


@pytest.mark.parametrize("schedule", [None, Schedule(256, "sdpa", 1)])
@pytest.mark.parametrize("temperature", [0.05, 0.3, 1.0])
def test_every_seed_is_what_it_is_alone(
    tiny: dict[str, Path], schedule: Schedule | None, temperature: float
) -> None:
    session = models.session(tiny["llama"], schedule=schedule)
    slot = session.slot()
    logits = session.prefill(slot, IDS, [len(IDS) - 1]).logits[len(IDS) - 1]
    branches = Branches(session, slot, logits, temperature=temperature, max_tokens=MOST)
    seeds = (3, 0, 1, 2, 4, 11, 12, 13, 14, 15)
    assert branches.answers(seeds) == [alone(session, seed, temperature) for seed in seeds]
    assert branches.answers((21, 3)) == [alone(session, seed, temperature) for seed in (21, 3)]
    assert slot.length == len(IDS)


def test_seeds_that_agree_take_one_pass_a_token(
    tiny: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = models.session(tiny["llama"])
    slot = session.slot()
    logits = session.prefill(slot, IDS, [len(IDS) - 1]).logits[len(IDS) - 1]
    branches = Branches(session, slot, logits, temperature=1e-4, max_tokens=MOST)
    passes: list[int] = []
    run_batch = Session.run_batch

    def counted(self: Session, slots: list[object], *rest: object, **named: object) -> object:
        passes.append(len(slots))
        return run_batch(self, slots, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(Session, "run_batch", counted)
    answers = branches.answers(range(8))
    assert len(set(answers)) == 1 and passes == [1] * (len(answers[0]) - 1)
    assert set(branches.answers(range(8, 88))) == set(answers)
    assert len(passes) == len(answers[0]) - 1, "agreement took a forward pass"
