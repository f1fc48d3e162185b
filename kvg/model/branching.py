"""What many seeds generate after one text: tokens that they share are computed once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from kvg.model.sampling import Weights

if TYPE_CHECKING:
    import torch

    from kvg.model.session import Session, Slot

SIDE_BY_SIDE: Final = 8
"""How many sequences are computed at a time."""

Path: TypeAlias = tuple[int, ...]
"""The tokens that were chosen so far."""


class Branches:
    """The answers of seeds after ``slot``, whose last position gave ``logits`` ``[vocabulary]``.

    Equal tokens give equal logits, so seeds that have chosen the same ones so far go on together;
    where they part, several are computed side by side if that changes no bit. What the first seed
    chose is remembered: a later one that agrees takes no forward pass. ``slot`` stays as it is.
    """

    def __init__(
        self,
        session: Session,
        slot: Slot,
        logits: torch.Tensor,
        *,
        temperature: float,
        max_tokens: int,
    ) -> None:
        self._session = session
        self._slot = slot
        self._temperature = temperature
        self._most = min(max_tokens, session.model.window - slot.length + 1)
        self._first: dict[Path, Weights] = {(): self._weigh(logits)}
        self._is_invariant = session.engine.reference == "invariant"

    def answers(self, seeds: Sequence[int]) -> list[Path]:
        """The ids that each of ``seeds`` generates, without the one that ends the text."""
        found: dict[int, Path] = {}
        at: dict[int, Path] = dict.fromkeys(seeds, ())
        weights: dict[Path, Weights] = {(): self._first[()]}
        slots: dict[Path, Slot] = {}
        is_new = len(self._first) == 1
        while at:
            at = self._chosen(at, weights, found)
            paths = tuple(dict.fromkeys(at.values()))
            weights = {path: self._first[path] for path in paths if path in self._first}
            weights |= self._computed([path for path in paths if path not in weights], slots)
            if is_new and seeds[0] in at:
                self._first[at[seeds[0]]] = weights[at[seeds[0]]]
        return [found[seed] for seed in seeds]

    def _chosen(
        self, at: dict[int, Path], weights: dict[Path, Weights], found: dict[int, Path]
    ) -> dict[int, Path]:
        """One token further, for each seed; those that are done go to ``found``."""
        on: dict[int, Path] = {}
        for seed, path in at.items():
            token = weights[path].pick(seed, len(path))
            if token in self._session.model.eos_ids:
                found[seed] = path
            elif len(path) + 1 >= self._most:
                found[seed] = (*path, token)
            else:
                on[seed] = (*path, token)
        return on

    def _computed(self, paths: Sequence[Path], slots: dict[Path, Slot]) -> dict[Path, Weights]:
        """What follows each of ``paths``; ``slots`` holds those of the step before, and then
        those of this one."""
        before = dict(slots)
        slots.clear()
        left = Counter(path[:-1] for path in paths)
        found: dict[Path, Weights] = {}
        size = SIDE_BY_SIDE if self._is_invariant else 1
        for start in range(0, len(paths), size):
            part = paths[start : start + size]
            mine = [self._at(path[:-1], before, left) for path in part]
            rows = self._session.run_batch(mine, [[path[-1]] for path in part], [0])
            for n, path in enumerate(part):
                slots[path] = mine[n]
                found[path] = self._weigh(rows[n, 0])
        return found

    def _at(self, path: Path, before: dict[Path, Slot], left: Counter[Path]) -> Slot:
        """A slot of its own that holds ``path`` after the text; ``left`` want one."""
        left[path] -= 1
        if path in before:
            return self._session.fork(before[path]) if left[path] else before.pop(path)
        slot = self._session.fork(self._slot)
        step = len(path) if self._is_invariant else 1
        for start in range(0, len(path), max(1, step)):
            self._session.run(slot, path[start : start + step], [])
        return slot

    def _weigh(self, logits: torch.Tensor) -> Weights:
        return Weights(logits, temperature=self._temperature, top_p=1.0)
