"""Renderers of keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from kvg.cli.render import Renderer, View
from kvg.cli.render.words import listed
from kvg.flow.records.keys import (
    KeyEntry,
    PublicText,
    Rekeyed,
    Revoked,
    Threshold,
    TrustEntry,
    TrustSummary,
)


def key(record: KeyEntry, view: View) -> Iterator[str]:
    keyid = record.keyid[:6] if view.person else record.keyid
    lock = "  with passphrase" if record.encrypted else ""
    yield f"{view.terminal.out(record.name, 'bold')}  {keyid}{lock}\n"
    if view.verbose:
        yield f"  {record.public}\n  {record.path}\n"


def public_key(record: PublicText, view: View) -> Iterator[str]:
    yield record.text if record.text.endswith("\n") else record.text + "\n"


def trusted_key(record: TrustEntry, view: View) -> Iterator[str]:
    keyid = record.keyid[:6] if view.person else record.keyid
    name = f"  {record.name}" if record.name else ""
    gone = "  " + view.terminal.out("revoked", "red") if record.revoked else ""
    roles = listed(record.roles) if record.roles else "trusted no longer"
    yield f"{keyid}  {roles}{name}{gone}\n"


def revocation(record: Revoked, view: View) -> Iterator[str]:
    keyid = record.keyid[:6] if view.person else record.keyid
    name = f"  {record.name}" if record.name else ""
    word = view.terminal.out("revoked", "red")
    yield f"{keyid}{name}  {word} from entry {record.size:,} of {record.origin} on\n"


def rekeyed(record: Rekeyed, view: View) -> Iterator[str]:
    if record.verifier is None:
        yield f"log {record.origin}: its key would be replaced\n"
    else:
        yield f"{record.verifier}\n"
        view.aside(f"entry {record.index} of {record.origin}, signed by the old key and the new")


def threshold(record: Threshold, view: View) -> Iterator[str]:
    yield f"{record.role}  {record.needed} needed, {record.trusted} trusted\n"


def trust_summary(record: TrustSummary, view: View) -> Iterator[str]:
    if view.verbose:
        needed = ", ".join(f"{role} {n}" for role, n in record.thresholds.items())
        yield f"version {record.version}  keys needed: {needed}\n"


RENDERERS = cast(
    "dict[str, Renderer]",
    {
        "key": key,
        "public-key": public_key,
        "trusted-key": trusted_key,
        "revocation": revocation,
        "rekeyed": rekeyed,
        "threshold": threshold,
        "trust-summary": trust_summary,
    },
)
