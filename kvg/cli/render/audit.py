"""Renderers of an audit as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from kvg.cli.render import Renderer, View
from kvg.cli.render.findings import finding
from kvg.cli.render.keys import revocation, trusted_key
from kvg.cli.render.stores import cosignature, log_entry
from kvg.cli.render.words import brief, count, gates_listed, listed, size, values
from kvg.cli.terminal import on_one_line
from kvg.flow.records.audit import Audit, AuditedArtifact, PublishedFigure, Saying

RECENT = 10
MOST = 3
"""How many keys are told that a statement only names."""

UNREAD = "can't be read"


def audit(record: Audit, view: View) -> Iterator[str]:
    good = {True: "ok", False: view.terminal.out("NOT ok", "red")}
    yield f"store {record.store}\nlog {log_of(record)}\n"
    yield (
        f"{count(record.objects, 'object')}, {size(record.bytes)}: bytes {good[record.bytes_ok]}, "
        f"signatures {good[record.signatures_ok]}, policy {good[record.policy_ok]}\n"
    )
    yield from _section("findings", view)
    for fault in record.findings:
        yield from finding(fault, view)
    if not record.findings:
        yield "none\n"
    yield from _section("artifacts", view)
    for item in record.artifacts:
        yield from artifact(item, view)
    yield from _section("trust", view)
    for key in record.keys:
        yield from trusted_key(key, view)
    for gone in record.revoked:
        yield from revocation(gone, view)
    yield trust_of(record)
    yield f"gates required: {listed(record.required) if record.required else 'none'}\n"
    for witness in record.witnesses:
        yield from cosignature(witness, view)
    yield from _section("log, newest first", view)
    shown = record.timeline[: None if view.verbose else RECENT]
    for entry in shown:
        yield from log_entry(entry, view)
    if len(shown) < len(record.timeline):
        yield f"and {len(record.timeline) - len(shown):,} before those: kvg audit -v\n"
    if record.results:
        yield from _section("published figures", view)
        for figure in record.results:
            yield from published_figure(figure, view)
    yield from _section("not checked", view)
    for sentence in record.unchecked:
        yield f"- {on_one_line(sentence)}\n"


def log_of(record: Audit) -> str:
    """Which log it is, and how long."""
    name = record.origin or "of a name that can't be read"
    return f"{name}  {UNREAD if record.log_size is None else f'{record.log_size:,} entries'}"


def trust_of(record: Audit) -> str:
    """Which version of the trust file it is, and how many keys that asks for."""
    if record.trust_version is None:
        return f"{UNREAD}\n"
    needed = ", ".join(f"{role} {n}" for role, n in record.thresholds.items())
    return f"version {record.trust_version}  keys needed: {needed}\n"


def artifact(record: AuditedArtifact, view: View) -> Iterator[str]:
    name = listed(record.refs) if record.refs else nameless(record)
    state = "stands" if record.stands else view.terminal.out("not verified", "red")
    shown = [view.terminal.out(name, "bold"), brief(record.digest), state]
    if record.tokens is not None and record.bytes is not None:
        shown += [f"{record.tokens:,} tokens", size(record.bytes)]
    yield "  ".join(shown) + "\n"
    yield f"  signed by {signed_by(record, 6)}; replayed by {_keys(record.verifiers)}\n"
    yield f"  gates: {gates_listed(record.gates, record.unenclosed)}\n"
    if record.stale is not None:
        yield f"  {view.terminal.out(on_one_line(record.stale), 'yellow')}\n"
    if record.failed:
        yield f"  {view.terminal.out('failed: ' + listed(record.failed), 'red')}\n"
    if view.verbose:
        for said in record.said:
            yield from saying(said, view)


def nameless(record: AuditedArtifact) -> str:
    """What stands in the place of a ref."""
    return "method" if record.is_method else "(no name)"


def published_figure(record: PublishedFigure, view: View) -> Iterator[str]:
    name = view.terminal.out(on_one_line(record.file), "bold")
    yield f"{name}  {on_one_line(record.kind)}: {values(record.figures, ', ')}\n"
    yield f"  {count(record.samples, 'sample')}, {count(len(record.digests), 'digest')}  "
    yield f"file {brief(record.digest)}\n"
    if view.verbose:
        yield from (f"  {digest}\n" for digest in record.digests)


def saying(record: Saying, view: View) -> Iterator[str]:
    result = f" {record.result}" if record.result else ""
    yield f"  at {record.index}: {on_one_line(record.kind + result)} by {keys_of(record, 6)}\n"


def signed_by(record: AuditedArtifact, digits: int) -> str:
    """Who signed the deposit, and who would have been another signer."""
    return _with_others(record.depositors, record.revoked, record.untrusted, digits)


def keys_of(record: Saying, digits: int) -> str:
    """Who signed the statement, and for whom it does not count."""
    return _with_others(record.signers, record.revoked, record.untrusted, digits)


def _with_others(
    counted: Sequence[str], revoked: Sequence[str], untrusted: Sequence[str], digits: int
) -> str:
    told = [on_one_line(keyid[:digits]) for keyid in counted]
    told += [f"{keyid[:digits]}, who is revoked" for keyid in revoked]
    told += [
        f"it says {on_one_line(keyid[:digits])}, whom nobody trusts here"
        for keyid in untrusted[:MOST]
    ]
    told += [f"{len(untrusted) - MOST} more" for _ in untrusted[MOST : MOST + 1]]
    return "; ".join(told) or "nobody"


def _keys(keyids: tuple[str, ...]) -> str:
    return ", ".join(keyid[:6] for keyid in keyids) or "nobody"


def _section(name: str, view: View) -> Iterator[str]:
    yield f"\n{view.terminal.out(name, 'bold')}\n"


RENDERERS = cast(
    "dict[str, Renderer]",
    {
        "audit": audit,
        "audited-artifact": artifact,
        "saying": saying,
        "published-figure": published_figure,
    },
)
