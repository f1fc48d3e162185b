"""Renderers of exchange with remotes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from kvg.cli.render import Renderer, View
from kvg.cli.render.words import brief, count, size
from kvg.cli.terminal import printable
from kvg.flow.records.exchange import (
    BundleEntry,
    BundleSummary,
    ForgottenThere,
    LockEntry,
    OfferedKey,
    RemoteCollected,
    RemoteEntry,
    RemoteRefEntry,
    Transfer,
    TransferRef,
)

TOLD_REFS = 8
"""How many refs one line names, unless more is asked for."""


def transfer(record: Transfer, view: View) -> Iterator[str]:
    """One line for what changed; what was the same is told only when nothing changed."""
    changed = [ref for ref in record.refs if ref.state != "unchanged"]
    if record.direction == "clone":
        for ref in record.refs:
            yield from transfer_ref(ref, view)
    else:
        yield f"{record.remote}: {_changes(record, changed, view)}\n"
    if view.verbose:
        yield (
            f"{count(record.objects_sent, 'object')} moved, {size(record.bytes)}; "
            f"{record.objects_skipped:,} there already, {record.resumed:,} of an earlier try; "
            f"{record.seconds:.1f} s\n"
        )


def _changes(record: Transfer, changed: Sequence[TransferRef], view: View) -> str:
    """What became of refs, the first of them by name, and of objects."""
    told = [f"{ref.ref} {ref.state}" for ref in changed]
    n_named = len(told) if view.verbose else TOLD_REFS
    if len(told) > n_named + 1:
        told[n_named:] = [f"and {count(len(told) - n_named, 'ref')} more"]
    would = "would: " if record.dry_run and told else ""
    same = "up to date" if not record.problems else "nothing moved"
    words = would + (", ".join(told) or same)
    if changed or record.objects_sent:
        words += f", {count(record.objects_sent, 'object')}"
    if record.read_back:
        words += f", {count(record.read_back, 'object')} read back"
    return f"{words}; {count(record.problems, 'problem')}" if record.problems else words


def transfer_ref(record: TransferRef, view: View) -> Iterator[str]:
    value = "removed" if record.digest is None else brief(record.digest)
    signed = ", ".join(keyid[:6] for keyid in record.signers)
    yield f"{record.ref}  {value}{f'  signed by {signed}, trusted' if signed else ''}\n"


def remote(record: RemoteEntry, view: View) -> Iterator[str]:
    changed = f"  ({record.changed})" if record.changed else ""
    codec = f"  codec {record.codec}" if view.verbose else ""
    only = f"  only {printable(record.filter)}" if record.filter else ""
    yield f"{record.name}  {printable(record.url)}{only}{codec}{changed}\n"


def remote_collected(record: RemoteCollected, view: View) -> Iterator[str]:
    would = "would remove" if record.dry_run else "removed"
    yield (
        f"{record.remote}: {would} {count(record.objects, 'object')}, {size(record.bytes)}; "
        f"{record.kept:,} kept{_partial(record)}\n"
    )


def _partial(record: RemoteCollected) -> str:
    return f"; {count(record.partial, 'half-written file')}" if record.partial else ""


def remote_forgotten(record: ForgottenThere, view: View) -> Iterator[str]:
    word = "would forget" if record.dry_run else "forgotten"
    names = f"  ({', '.join(record.refs)})" if record.refs else ""
    shared = f"; {count(record.remaining, 'object')} shared with others" if record.remaining else ""
    yield (
        f"{record.remote}: {word} {brief(record.digest)}{names}  "
        f"{count(record.objects, 'object')}, {size(record.bytes)}{shared}\n"
    )


def remote_ref(record: RemoteRefEntry, view: View) -> Iterator[str]:
    if record.digest is None:
        refused = view.terminal.out("refused", "red")
        yield f"{record.ref}  {refused}: {printable(record.problem or '')}\n"
        if record.hint is not None:
            yield f"  hint: {printable(record.hint)}\n"
        return
    here = "new" if record.local is None else "differs here"
    state = "same here" if record.local == record.digest else here
    yield f"{record.ref}  {brief(record.digest)}  {state}\n"


def offered_key(record: OfferedKey, view: View) -> Iterator[str]:
    role = "publisher" if record.publisher else "key"
    state = {True: "trusted", False: "not trusted", None: "on offer"}[record.trusted]
    yield f"{role} {record.keyid[:12]}  {state}\n  {printable(record.public)}\n"


def bundle(record: BundleSummary, view: View) -> Iterator[str]:
    state = "would create" if record.dry_run else record.state
    yield (
        f"{record.path}: {state}, {count(record.refs, 'ref')}, "
        f"{count(record.objects, 'object')}, {size(record.bytes)}\n"
    )


def bundle_ref(record: BundleEntry, view: View) -> Iterator[str]:
    digest = brief(record.digest) if view.person else record.digest
    pages = count(record.pages, "page")
    yield f"{record.ref}  {digest}  {count(record.tokens, 'token')}  {pages}\n"


def lock(record: LockEntry, view: View) -> Iterator[str]:
    if record.digest is None:
        yield f"{record.ref}  removed, was {brief(record.previous or '')}\n"
        return
    if record.previous == record.digest:
        state = "unchanged"
    else:
        state = f"was {brief(record.previous)}" if record.previous else "locked"
    yield f"{record.ref}  {brief(record.digest)}  {state}\n"


RENDERERS = cast(
    "dict[str, Renderer]",
    {
        "bundle": bundle,
        "bundle-ref": bundle_ref,
        "lock": lock,
        "transfer": transfer,
        "transfer-ref": transfer_ref,
        "remote": remote,
        "remote-collected": remote_collected,
        "remote-forgotten": remote_forgotten,
        "remote-ref": remote_ref,
        "offered-key": offered_key,
    },
)
