"""``kvg bench own-position``: a graft moved to other offsets, with correct re-rotation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvg.digest import sha256
from kvg.errors import UsageError
from kvg.flow.bench.setup import check_least, open_measured, setup_of
from kvg.flow.records.bench import KeysMoved, LogitsMoved, OwnPositionSummary
from kvg.flow.records.record import Record
from kvg.flow.registered import check_torch
from kvg.flow.settings import Settings
from kvg.objects.tokens import encode_ids

if TYPE_CHECKING:
    from kvg.model.own_position import MovedKeys, MovedLogits
    from kvg.store import Store

KEY_TOKENS = 4
TOKENS = 200
PROMPT_TOKENS = 16
BATCH = 32


@dataclass(frozen=True, slots=True)
class OwnPositionRequest:
    """Move a graft of ``tokens`` by powers of two and compare the logits after a prompt.

    And ``key_tokens`` keys by every ``step``-th offset below the window.
    """

    model: str | None = None
    tokens: int = TOKENS
    prompt_tokens: int = PROMPT_TOKENS
    key_tokens: int = KEY_TOKENS
    step: int = 1

    def __post_init__(self) -> None:
        check_least("--prompt-tokens", self.prompt_tokens, 1)
        check_least("--step", self.step, 1)
        for option, value in (("--tokens", self.tokens), ("--key-tokens", self.key_tokens)):
            if value < 2:
                raise UsageError(
                    f"{option} {value}: less than 2",
                    hint="a first token alone has no angle to turn back and nothing to attend to",
                )


def bench_own_position(
    store: Store, settings: Settings, request: OwnPositionRequest
) -> Iterator[Record]:
    """Yield the setup, ``LogitsMoved``, ``KeysMoved``, and one summary for each arithmetic.

    The exit code is 11 when the graft is not exact at its own position. Raises ``NotFound``,
    ``Incompatible`` also for a model whose keys are not turned by a rotary module.
    """
    check_torch()
    whole = request.tokens + request.prompt_tokens
    longest = max(whole, request.key_tokens) + 1
    model, session = open_measured(store, settings, request.model, longest)
    session.check_window(longest)
    yield setup_of("own-position", model, session)
    from kvg.model.exactness import made_ids
    from kvg.model.own_position import arithmetics, moved_keys, moved_logits, own_logits
    from kvg.model.rotation import Rotation

    window = session.model.window
    rotation = Rotation(session)
    text = made_ids(0, whole, session.model.vocabulary)
    ids, prompt = text[: request.tokens], text[request.tokens :]
    head = text[: request.key_tokens]
    own = _logits(own_logits(session, ids, prompt), text)
    yield own
    logits: list[LogitsMoved] = []
    powers = [1 << k for k in range(window.bit_length()) if (1 << k) + whole <= window]
    with settings.report.task("logits", len(powers), "offsets") as task:
        for offset in powers:
            for found in moved_logits(session, rotation, ids, prompt, offset):
                logits.append(_logits(found, text))
                yield logits[-1]
            task.advance(1)
    keys: list[KeysMoved] = []
    offsets = range(1, window - request.key_tokens + 1, request.step)
    with settings.report.task("keys", len(offsets), "offsets") as task:
        for first in range(0, len(offsets), BATCH):
            part = offsets[first : first + BATCH]
            for moved in moved_keys(session, rotation, head, part):
                keys.append(_keys(moved, head))
                yield keys[-1]
            task.advance(len(part))
    for arithmetic in arithmetics(session):
        yield _summary(arithmetic, own, logits, keys)


def _logits(found: MovedLogits, text: Sequence[int]) -> LogitsMoved:
    return LogitsMoved(
        offset=found.offset,
        arithmetic=found.arithmetic,
        input=sha256(encode_ids(text)),
        fresh=found.found.fresh,
        grafted=found.found.grafted,
        equal=found.found.equal,
        kl=found.found.kl,
        argmax_equal=found.found.argmax_equal,
        max_abs_diff=found.found.max_abs_diff,
        max_ulp=found.max_ulp,
    )


def _keys(found: MovedKeys, text: Sequence[int]) -> KeysMoved:
    return KeysMoved(
        offset=found.offset,
        arithmetic=found.arithmetic,
        input=sha256(encode_ids(text)),
        fresh=found.fresh,
        moved=found.moved,
        equal=found.fresh == found.moved,
        first_layer_equal=found.first_layer_equal,
        elements=found.elements,
        elements_equal=found.elements_equal,
        max_ulp=found.max_ulp,
    )


def _summary(
    arithmetic: str,
    own: LogitsMoved,
    logits: Sequence[LogitsMoved],
    keys: Sequence[KeysMoved],
) -> OwnPositionSummary:
    of_logits = [record for record in logits if record.arithmetic == arithmetic]
    of_keys = [record for record in keys if record.arithmetic == arithmetic]
    total = sum(record.elements for record in of_keys)
    return OwnPositionSummary(
        arithmetic=arithmetic,
        own_exact=own.equal,
        key_offsets=len(of_keys),
        keys_equal=tuple(record.offset for record in of_keys if record.equal),
        first_layer_equal=tuple(record.offset for record in of_keys if record.first_layer_equal),
        elements_equal=sum(record.elements_equal for record in of_keys) / total if total else 0.0,
        keys_max_ulp=max((record.max_ulp for record in of_keys), default=0),
        logits_offsets=len(of_logits),
        logits_equal=tuple(record.offset for record in of_logits if record.equal),
        kl_max=max((record.kl for record in of_logits), default=0.0),
        logits_max_ulp=max((record.max_ulp for record in of_logits), default=0),
    )
