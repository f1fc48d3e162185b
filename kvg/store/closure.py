"""What an artifact needs: everything that its name leads to and that lies in this store.

The manifest names token ids and pages; the log names the envelopes about it; the statements in
those name sources, evidence and methods. A statement's word is enough to keep an object: whether
it counts is for ``kvg.verify`` to judge.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from kvg.digest import Digest, short
from kvg.errors import Corrupt, Incompatible
from kvg.frozen import frozen
from kvg.objects.statement import Provenance, Resource, TestResult, parse_statement
from kvg.signing.dsse import parse_envelope

if TYPE_CHECKING:
    from kvg.objects.manifest import Manifest
    from kvg.store.store import Store

MAX_ENVELOPE_BYTES = 16 << 20


@frozen
class Closure:
    """One artifact: ``resources`` are what statements about it name, if it lies in this store."""

    digest: Digest
    manifest: Manifest
    envelopes: tuple[Digest, ...]
    resources: tuple[Digest, ...]

    @property
    def pages(self) -> tuple[Digest, ...]:
        """The digests of the pages, each once."""
        return tuple(dict.fromkeys(page.digest for page in self.manifest.pages))

    def objects(self) -> tuple[Digest, ...]:
        """Every object, each once: pages, token ids, resources, envelopes, the manifest last."""
        found = (
            *self.pages,
            self.manifest.tokens.digest,
            *self.resources,
            *self.envelopes,
        )
        return (*(item for item in dict.fromkeys(found) if item != self.digest), self.digest)


def closure(store: Store, digest: Digest, *, envelopes: Iterable[Digest] | None = None) -> Closure:
    """What the artifact ``digest`` needs. ``envelopes``: by default those that count in the log.

    Raises ``Corrupt`` or ``Incompatible`` when its manifest is missing or can't be read: then
    nobody knows what it needs. An envelope that can't be read leads to nothing.
    """
    manifest = store.manifest(digest)
    named = (
        (item.envelope for item in store.attestations(digest)) if envelopes is None else envelopes
    )
    kept = tuple(dict.fromkeys(named))
    said = (item for envelope in kept for item in named_by(store, envelope))
    resources = tuple(item for item in dict.fromkeys(said) if store.objects.has(item))
    return Closure(digest, manifest, kept, resources)


def idle_pins(store: Store) -> frozenset[Digest]:
    """Pins of what was never an artifact: no ref stands for it, and nobody attested anything."""
    pins = store.pins()
    named = {*store.refs().values(), *store.methods()} if pins else set()
    return frozenset(d for d in pins if d not in named and not store.attestations(d))


def attested(store: Store, digest: Digest) -> tuple[Digest, ...]:
    """The envelopes about ``digest`` that count, and what they name that lies in this store."""
    found: dict[Digest, None] = {}
    for item in store.attestations(digest):
        found[item.envelope] = None
        found.update((d, None) for d in named_by(store, item.envelope) if store.objects.has(d))
    return tuple(found)


def said_in(store: Store, envelope: Digest) -> Provenance | TestResult | None:
    """What the statement in ``envelope`` says, whoever signed it; None when it can't be read."""
    what = f"attestation {short(envelope)}"
    try:
        raw = store.objects.read(envelope, what=what, limit=MAX_ENVELOPE_BYTES)
    except (Corrupt, Incompatible):
        return None
    return _said(bytes(raw))


def named_by(store: Store, envelope: Digest) -> Iterator[Digest]:
    """The digests that the statement in ``envelope`` names, beside its subject and its parent."""
    yield from _named(said_in(store, envelope))


def digests_named(envelope: bytes) -> Iterator[Digest]:
    """As ``named_by``, for the bytes of an envelope. One that can't be read names nothing."""
    yield from _named(_said(envelope))


def _said(envelope: bytes) -> Provenance | TestResult | None:
    try:
        payload = parse_envelope(envelope, what="attestation").payload
        return parse_statement(payload, what="attestation").predicate
    except (Corrupt, Incompatible):
        return None


def _named(said: Provenance | TestResult | None) -> Iterator[Digest]:
    if isinstance(said, Provenance):
        yield from (digest for digest in (said.family, said.method) if digest is not None)
        yield from _digests((*(said.source or ()), *said.depends))
        yield from _digests(part for part in (said.tokenizer, said.template) if part is not None)
    elif said is not None:
        yield from _digests((*said.configuration, *said.evidence))


def _digests(resources: Iterable[Resource]) -> Iterator[Digest]:
    return (item.digest for item in resources if item.digest is not None)
