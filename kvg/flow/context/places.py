"""``kvg context list``, ``show`` and ``at``: what there is, and which block holds a place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvg.errors import Untrusted, UsageError
from kvg.flow.context.stored import StoredContext, described, names_of, read_context
from kvg.flow.records.contexts import ContextBlock, ContextEntry, ContextPlace
from kvg.flow.records.findings import Finding

if TYPE_CHECKING:
    from kvg.flow.records.record import Record
    from kvg.flow.settings import Settings
    from kvg.store import Store


def list_contexts(store: Store) -> Iterator[ContextEntry | Finding]:
    """Every context of the store, by name; one whose signers are all revoked is a finding."""
    for name in names_of(store):
        try:
            yield _entry(read_context(store, name))
        except Untrusted as error:
            yield Finding(error.code, error.kind, name, error.message, error.hint)


def show_context(store: Store, name: str) -> Iterator[Record]:
    """The context, then its blocks in order. Raises ``NotFound``, ``Untrusted``, ``Corrupt``."""
    found = read_context(store, name)
    yield _entry(found)
    for block in found.blocks:
        yield ContextBlock(
            context=name,
            number=block.number,
            ref=block.ref,
            digest=block.digest,
            start=block.start,
            tokens=block.tokens,
            tokens_computed=None,
            parts=described(block.parts),
        )


def find_place(store: Store, settings: Settings, name: str, place: str) -> ContextPlace:
    """The block that holds ``place``: a token's number from 0, or ``PATH:LINE``.

    Raises ``NotFound``, ``UsageError``.
    """
    found = read_context(store, name, settings.report)
    if place.isdecimal() and place.isascii() and len(place) <= 15:
        return _place(found, offset=int(place))
    path, _, line = place.rpartition(":")
    if not path or not line.isdecimal() or len(line) > 9 or int(line) < 1:
        raise UsageError(f"{place}: no place", hint="a token's number, or PATH:LINE")
    return _place(found, path=path, line=int(line))


def _place(
    found: StoredContext,
    *,
    offset: int | None = None,
    path: str | None = None,
    line: int | None = None,
) -> ContextPlace:
    if path is not None and line is not None:
        path = found.whole_path(path)
        block = found.at_line(path, line)
    else:
        block = found.at_token(offset or 0)
    return ContextPlace(
        context=found.name,
        number=block.number,
        ref=block.ref,
        digest=block.digest,
        start=block.start,
        end=block.end,
        offset=offset,
        path=path,
        line=line,
        parts=described(block.parts),
    )


def _entry(found: StoredContext) -> ContextEntry:
    return ContextEntry(
        context=found.name,
        blocks=len(found.blocks),
        tokens=found.tokens,
        largest=max(block.tokens for block in found.blocks),
        files=len(found.paths),
        gone=found.n_gone,
        model=found.blocks[0].model,
    )
