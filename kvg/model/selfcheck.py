"""The self-check of a whole model: its logits depend on nothing that must not matter.

``tiling`` proves operator by operator; here the model runs over a few tokens in every way that they
could be computed, and near the stock model's logits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from kvg.digest import shake256
from kvg.errors import Incompatible
from kvg.model.probe import one_thread, same_bits

if TYPE_CHECKING:
    from kvg.model.loader import LoadedModel
    from kvg.model.session import Session

CHECK_TOKENS = 20
FARTHEST = {"F32": 0.05}
FARTHEST_NARROW = 0.5
"""How far logits may be from the stock model's, as a part of their spread, by dtype: the root mean
square over the vocabulary, the median over tokens. Models come to 1e-6 in fp32 and 0.03 in bf16."""
HINT = "use --reference scheduled for this model"


def prove_splits(session: Session) -> None:
    """Raise ``Incompatible`` unless the whole model ignores splits, batches and threads.

    Runs a few tokens in one pass, which has to be near the stock model's; in two pieces, the first
    beside another text, the second a single token; with one thread; and the last token of it beside
    one of another text that is not as far.
    """
    noise = shake256(b"kvg.self-check/1", 8 * CHECK_TOKENS)
    words = [int.from_bytes(noise[i : i + 4], "little") for i in range(0, len(noise), 4)]
    ids = [word % session.model.vocabulary for word in words[:CHECK_TOKENS]]
    others = [word % session.model.vocabulary for word in words[CHECK_TOKENS:]]
    last = CHECK_TOKENS - 1
    whole = session.run(session.slot(), ids, range(CHECK_TOKENS))
    _check_near(session.model, whole, ids)
    pieces, beside = session.slot(), session.slot()
    batch = session.run_batch([pieces, beside], [ids[:-1], others[:12]], [0])[0, 0]
    other = session.run(session.slot(), others[:13], [12])[0]
    ahead = session.fork(pieces)
    apart = session.run_batch([ahead, beside], [ids[-1:], others[12:13]], [0])[:, 0]
    with one_thread():
        alone = session.run(session.slot(), ids, [last])[0]
    found = {
        "what else is in the batch": (batch, whole[0]),
        "how a text is split and what is in the batch": (
            session.run(pieces, ids[-1:], [0])[0],
            whole[last],
        ),
        "how far the other texts of a batch are": (apart, torch.stack([whole[last], other])),
        "the number of threads": (alone, whole[last]),
    }
    for what, (logits, expected) in found.items():
        if not same_bits(logits, expected):
            raise Incompatible(
                f"self-check: the logits of {type(session.model.module).__name__} depend on {what}",
                hint=HINT,
            )


def _check_near(model: LoadedModel, logits: torch.Tensor, ids: Sequence[int]) -> None:
    """Raise ``Incompatible`` when ``logits`` ``[n, vocabulary]`` are far from the stock model's.

    Another order of rounding is near; a rule of the model that was passed over is not.
    """
    stock = model.stock_logits(ids).float()
    distance = (logits.float() - stock).square().mean(-1).sqrt()
    parts = distance / stock.std(-1).clamp_min(torch.finfo(torch.float32).tiny)
    farthest = FARTHEST.get(model.dtype, FARTHEST_NARROW)
    if not float(parts.median()) <= farthest:
        raise Incompatible(
            f"self-check: the logits of {type(model.module).__name__} are not those of the stock "
            f"model: they differ by {float(parts.median()):.0%} of their spread",
            hint=HINT,
        )
