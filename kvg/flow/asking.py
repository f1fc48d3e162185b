"""Asking a model: messages in, an answer out, greedily or by a seed; the slot stays to be kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvg.errors import GateFailed
from kvg.objects.statement import Resource

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

    from kvg.gates.consistency import Ask
    from kvg.gates.run import Seeded
    from kvg.gates.spec import Spec
    from kvg.model.branching import Branches
    from kvg.model.session import Session, Slot
    from kvg.model.text import Message, Tokenizer
    from kvg.objects.verified import Verified

MAX_ANSWER_TOKENS = 256
SIDE_BY_SIDE = 8
"""How many seeds are asked at a time."""
ROOM_TOKENS = 8
"""How many tokens longer than the deposited answer a seed's answer may get before it is cut."""


@dataclass(slots=True)
class Asked:
    """A question in a slot: ``ids`` so far, and the ``logits`` ``[vocabulary]`` after them."""

    session: Session
    tokenizer: Tokenizer
    slot: Slot
    ids: tuple[int, ...]
    logits: torch.Tensor

    def answer(self, max_tokens: int, *, stop: tuple[str, ...] = ()) -> tuple[str, tuple[int, ...]]:
        """The most likely answer: its text, and the ids that were generated.

        The slot then holds the question and all but the last of them.
        """
        from kvg.model.generation import Choice, Generated, generate

        self.slot.truncate(len(self.ids))
        progress = Generated([], "")
        choice = Choice(max_tokens, 0.0, 1.0, 0, stop)
        for _ in generate(self.session, self.slot, self.logits, self.tokenizer, choice, progress):
            pass
        return progress.text, tuple(progress.ids)

    def seeds(self, max_tokens: int, temperature: float) -> Ask:
        """What each seed answers. Tokens that seeds have in common are computed once."""
        known: dict[int, str] = {}
        branches = self._branches(max_tokens, temperature)

        def ask(seed: int) -> str:
            if seed not in known:
                batch = range(seed, seed + SIDE_BY_SIDE)
                texts = map(self.tokenizer.decode, branches.answers(batch))
                known.update(zip(batch, texts, strict=True))
            return known[seed]

        return ask

    def samples(
        self, seeds: range, max_tokens: int, temperature: float
    ) -> list[tuple[str, tuple[int, ...]]]:
        """The text and ids of each seed's answer."""
        found = self._branches(max_tokens, temperature).answers(seeds)
        return [(self.tokenizer.decode(ids), ids) for ids in found]

    def _branches(self, max_tokens: int, temperature: float) -> Branches:
        from kvg.model.branching import Branches

        slot = self.session.fork(self.slot)
        slot.truncate(len(self.ids))
        return Branches(
            self.session, slot, self.logits, temperature=temperature, max_tokens=max_tokens
        )


def answer_together(asked: Sequence[Asked], max_tokens: int) -> list[tuple[str, tuple[int, ...]]]:
    """What ``Asked.answer`` gives for each, computed side by side. All are of one session.

    Raises ``Incompatible`` unless the session is of the invariant reference.
    """
    from kvg.model.session import lowest_maximum

    session = asked[0].session
    found: list[list[int]] = [[] for _ in asked]
    for item in asked:
        item.slot.truncate(len(item.ids))
    logits = {n: item.logits for n, item in enumerate(asked)}
    while logits:
        for n, row in list(logits.items()):
            found[n].append(lowest_maximum(row))
            is_full = len(found[n]) == max_tokens or asked[n].slot.length >= session.model.window
            if is_full or found[n][-1] in session.model.eos_ids:
                del logits[n]
        left = list(logits)
        if left:
            rows = session.run_batch(
                [asked[n].slot for n in left], [[found[n][-1]] for n in left], [0]
            )
            logits = {n: rows[at, 0] for at, n in enumerate(left)}
    return [_said(item, tuple(ids)) for item, ids in zip(asked, found, strict=True)]


def _said(asked: Asked, ids: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    has_ended = ids[-1] in asked.session.model.eos_ids
    return asked.tokenizer.decode(list(ids[:-1] if has_ended else ids)), ids


def question_ids(
    tokenizer: Tokenizer, messages: Sequence[Message], *, begun: str = "", after: bool = False
) -> tuple[int, ...]:
    """The ids of ``messages`` and of what is ``begun`` of the answer; ``after`` earlier turns."""
    render = tokenizer.render_more if after else tokenizer.render_asked
    return tuple(tokenizer.encode_more(render(messages) + begun))


def ask_messages(
    session: Session,
    tokenizer: Tokenizer,
    messages: Sequence[Message],
    *,
    begun: str = "",
    exemplar: Verified | None = None,
    place: Callable[[Verified, int, int], tuple[Slot, int]] | None = None,
    n_more: int = 0,
) -> Asked:
    """Put ``messages``, after a grafted ``exemplar`` if there is one, into a new slot.

    ``place`` gives the slot with the exemplar, its first so many tokens, and room for so many more:
    the question and an answer of ``n_more``. Without it the exemplar goes to a slot of its own.
    Raises ``Incompatible`` when they do not fit, or the exemplar is not of this engine.
    """
    ids = question_ids(tokenizer, messages, begun=begun, after=exemplar is not None)
    if exemplar is None:
        slot = session.slot()
        session.check_window(len(ids))
        last = len(ids) - 1
        logits = session.prefill(slot, ids, [last]).logits[last]
        return Asked(session, tokenizer, slot, ids, logits)
    session.check_engine(exemplar)
    end = len(exemplar.ids)
    session.check_window(end + len(ids))
    if place is None:
        slot = session.slot()
        session.restore(slot, exemplar)
    else:
        n_more = min(len(ids) + n_more, session.model.window - end)
        slot, _ = place(exemplar, end, n_more)
    proof, logits = session.resume(slot, exemplar.ids[-1], ids)
    session.check_witness(exemplar, exemplar.manifest.witnesses[-1], proof)
    return Asked(session, tokenizer, slot, (*exemplar.ids, *ids), logits)


def seeded(
    opened: Callable[[], tuple[Session, Tokenizer]],
    question: Callable[[], tuple[Sequence[Message], str | None]],
) -> Seeded:
    """How ``consistency`` asks the model that ``opened`` gives.

    Each seed gets the messages of ``question`` anew; its second part is the deposited answer.
    """

    def begin(spec: Spec) -> tuple[Ask, tuple[Resource, ...]]:
        messages, answer = question()
        if not messages:
            raise GateFailed(
                f"gate {spec.gate}: the text asks nothing",
                hint="deposit a --chat that ends with the answer, or name the problem by --family",
            )
        session, tokenizer = opened()
        return seeds_of(ask_messages(session, tokenizer, messages), answer)(spec)

    return begin


def seeds_of(
    asked: Asked, answer: str | None, *, read: Callable[[str], str] | None = None
) -> Seeded:
    """How ``consistency`` asks what is ``asked``; ``answer`` is the one that is to come out.

    ``read`` gives the answer that a seed's text means; by default it is the text.
    """

    def begin(spec: Spec) -> tuple[Ask, tuple[Resource, ...]]:
        most = MAX_ANSWER_TOKENS
        if answer is not None and read is None:
            most = len(asked.tokenizer.encode_more(answer)) + ROOM_TOKENS
        said = (
            Resource("engine", asked.session.engine.fingerprint),
            Resource(f"temperature {spec.temperature}"),
            Resource(f"at most {most} tokens"),
        )
        ask = asked.seeds(most, spec.temperature)
        return ask if read is None else lambda seed: read(ask(seed)), said

    return begin
