"""Renderers of contexts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

from kvg.cli.render import Renderer, View
from kvg.cli.render.words import brief, count, seconds, size
from kvg.cli.terminal import one_line, printable
from kvg.flow.records.contexts import (
    ContextAnswer,
    ContextBlock,
    ContextEntry,
    ContextMade,
    ContextPassage,
    ContextPlace,
)

SHOWN_LINES = 3
"""Lines of a passage that a person sees of it, from the one before the best."""


def entry(record: ContextEntry, view: View) -> Iterator[str]:
    name = view.terminal.out(record.context, "bold")
    gone = f"  {count(record.gone, 'block')} gone" if record.gone else ""
    yield (
        f"{name}  {count(record.blocks, 'block')}  {count(record.tokens, 'token')}, "
        f"at most {record.largest:,} in one  {count(record.files, 'file')}{gone}\n"
    )


def block(record: ContextBlock, view: View) -> Iterator[str]:
    if not view.person and record.tokens_computed is not None and record.digest is not None:
        yield record.digest + "\n"
        return
    done = ""
    if record.tokens_computed is not None:
        done = f"  {record.tokens_computed:,} computed"
    digest = brief(record.digest) if record.digest else "not stored"
    yield (
        f"{record.ref}  {digest}  from {record.start:,}  {count(record.tokens, 'token')}{done}  "
        f"{_parts(record.parts)}\n"
    )


def made(record: ContextMade, view: View) -> Iterator[str]:
    view.aside(
        f"context {record.context}: {count(record.blocks, 'block')}, "
        f"{count(record.tokens, 'token')} of {count(record.files, 'file')}; "
        f"{count(record.computed, 'block')} computed ({count(record.tokens_computed, 'token')}), "
        f"{record.removed} removed; {size(record.bytes_raw)} raw, {size(record.bytes_stored)} "
        f"stored; {seconds(1e3 * record.seconds)}"
    )
    yield from ()


def place(record: ContextPlace, view: View) -> Iterator[str]:
    """The bare ref for a script; for a person what the block is."""
    if not view.person:
        yield record.ref + "\n"
        return
    yield (
        f"{record.ref}  {brief(record.digest)}  tokens {record.start:,} to {record.end:,}  "
        f"{_parts(record.parts)}\n"
    )


def passage(record: ContextPassage, view: View) -> Iterator[str]:
    name = view.terminal.out(f"{one_line(record.path)}:{record.best_line}", "bold")
    yield f"{name}  {record.ref}  {record.score:.1f}\n"
    rows = record.text.split("\n")
    if not view.verbose:
        first = max(0, record.best_line - record.line - 1)
        rows = [row for row in rows[first:] if row.strip()][:SHOWN_LINES]
    for row in filter(str.strip, rows):
        yield f"    {printable(row) if view.person else row}\n"


def answer(record: ContextAnswer, view: View) -> Iterator[str]:
    """The text on stdout, with where it stands; what the graft was on stderr."""
    yield (printable(record.text) if view.person else record.text) + "\n"
    for citation, passage in zip(record.citations, record.passages, strict=True):
        yield f"[{one_line(citation)}]  passage from line {passage.rpartition(':')[2]}\n"
    exact = "exact" if record.exact else "not exact"
    tried = f", the best of {len(record.candidates)}" if len(record.candidates) > 1 else ""
    view.aside(
        f"{record.ref}{tried}: {count(record.saved_tokens, 'token')} restored, first token after "
        f"{seconds(record.first_token_ms)}, {exact}"
    )


def _parts(parts: tuple[Mapping[str, object], ...]) -> str:
    """Where a block begins and ends."""
    first, last = parts[0], parts[-1]
    end = int(cast("int", last["line"])) + int(cast("int", last["lines"])) - 1
    more = f" and {len(parts) - 2} more" if len(parts) > 2 else ""
    begin = f"{first['path']}:{first['line']}"
    whole = f"{begin}-{end}" if len(parts) == 1 else f"{begin} to {last['path']}:{end}{more}"
    return one_line(whole)


RENDERERS = cast(
    "dict[str, Renderer]",
    {
        "context": entry,
        "context-answer": answer,
        "context-block": block,
        "context-made": made,
        "context-passage": passage,
        "context-place": place,
    },
)
