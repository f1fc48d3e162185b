"""Renderers of what a model computed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from kvg.cli.render import Renderer, View
from kvg.cli.render.words import brief, count, gates_listed, listed, seconds, size
from kvg.cli.terminal import printable
from kvg.flow.records.computed import (
    Deposited,
    DepositPlan,
    Graft,
    Logits,
    Replay,
    ReplaySummary,
    TextPiece,
)


def deposited(record: Deposited, view: View) -> Iterator[str]:
    """The bare digest for a script; for a person what was done."""
    if not view.person:
        yield record.digest + "\n"
    elif record.unchanged:
        yield f"{record.ref}  unchanged, {count(record.tokens_computed, 'token')} computed\n"
    else:
        name = view.terminal.out(record.ref, "bold")
        gates = gates_listed(record.gates, record.unenclosed)
        yield (
            f"{name}  {brief(record.digest)}  {count(record.tokens, 'token')}  "
            f"{count(record.pages, 'page')}  gates: {gates}\n"
        )
        if view.verbose:
            view.aside(
                f"deposit: {count(record.tokens_computed, 'token')} computed in "
                f"{seconds(record.prefill_ms)}, "
                f"{count(record.new_objects, 'new object')} stored in "
                f"{seconds(record.store_ms)}, {record.dtype} on {record.device}"
            )


def text(record: TextPiece, view: View) -> Iterator[str]:
    view.streamed = True
    yield printable(record.text) if view.person else record.text


def deposit_plan(record: DepositPlan, view: View) -> Iterator[str]:
    name = view.terminal.out(record.ref, "bold")
    if record.unchanged:
        yield f"{name}  is there already, nothing to compute\n"
        return
    gates = f"  after {listed(record.gates)}" if record.gates else ""
    yield (
        f"{name}  {record.tokens_computed:,} of {count(record.tokens, 'token')} to compute, "
        f"{count(record.pages, 'page')}, {size(record.bytes_raw)}{gates}\n"
    )


def graft(record: Graft, view: View) -> Iterator[str]:
    """The model's text on stdout, what the graft was on stderr."""
    body = "" if view.streamed else record.text
    view.streamed = False
    if record.new_tokens:
        yield (printable(body) if view.person else body) + "\n"
    view.aside(graft_line(record))


def graft_line(record: Graft) -> str:
    """What one graft was, in a line."""
    if record.status == "CACHE_MISS":
        return f"graft: miss, computed fresh ({record.reference})"
    exact = "exact" if record.exact else "not exact"
    return (
        f"graft: {count(record.saved_tokens, 'token')} restored in "
        f"{seconds(record.restore_ms)}, {exact}"
    )


def logits(record: Logits, view: View) -> Iterator[str]:
    if not view.person:
        yield record.digest + "\n"
    else:
        shape = "x".join(str(side) for side in record.shape)
        yield f"{record.digest}  {record.dtype} [{shape}]  {record.source}, {record.reference}\n"


def replay(record: Replay, view: View) -> Iterator[str]:
    if record.equal and not view.verbose:
        return
    mark = "equal" if record.equal else view.terminal.out("differs", "red")
    argmax = "same" if record.argmax_equal else "other"
    yield (
        f"{record.ref}  prompt {brief(record.prompt_digest)}  {mark}  KL {record.kl:.3g}  "
        f"argmax {argmax}  largest difference {record.max_abs_diff:.3g}  "
        f"gap of the two best {record.top2_gap:.3g}\n"
    )


def replay_summary(record: ReplaySummary, view: View) -> Iterator[str]:
    line = (
        f"{record.equal} of {record.samples} equal  KL {record.kl_max:.3g}  "
        f"argmax {100 * record.argmax_rate:.4g} %  "
        f"{record.pages_equal} of {record.pages} pages equal"
    )
    yield view.terminal.out(line, "red" if record.exit_code else "green") + "\n"


RENDERERS = cast(
    "dict[str, Renderer]",
    {
        "deposited": deposited,
        "deposit-plan": deposit_plan,
        "text": text,
        "graft": graft,
        "logits": logits,
        "replay": replay,
        "replay-summary": replay_summary,
    },
)
