"""The outline of an artifact: what a list shows of it, as the index keeps it. A hint, no proof."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvg import canon
from kvg.digest import Digest, parse_digest
from kvg.errors import Corrupt
from kvg.frozen import frozen

if TYPE_CHECKING:
    from kvg.objects.manifest import Manifest

_WHAT = "index: outline"


@frozen
class Outline:
    """How many tokens and pages, and what computed them."""

    tokens: int
    pages: int
    model: Digest
    architecture: str
    engine: Digest
    reference: str


def outline_of(manifest: Manifest) -> Outline:
    """The outline of the artifact with this manifest."""
    return Outline(
        manifest.count,
        len(manifest.pages),
        manifest.model.fingerprint,
        manifest.model.architecture,
        manifest.engine.fingerprint,
        manifest.engine.reference,
    )


def encode_outline(outline: Outline) -> bytes:
    """As it stands in the index."""
    return canon.encode([getattr(outline, name) for name in outline.__match_args__])


def decode_outline(raw: bytes) -> Outline:
    """The outline whose bytes are ``raw``. Raises ``Corrupt``."""
    fields = canon.as_list(canon.decode(raw, what=_WHAT), what=_WHAT)
    if len(fields) != len(Outline.__match_args__):
        raise Corrupt(f"{_WHAT}: {len(fields)} fields", hint="kvg reindex")
    tokens, pages, model, architecture, engine, reference = fields
    return Outline(
        canon.as_int(tokens, what=_WHAT),
        canon.as_int(pages, what=_WHAT),
        parse_digest(model, what=_WHAT),
        canon.as_str(architecture, what=_WHAT),
        parse_digest(engine, what=_WHAT),
        canon.as_str(reference, what=_WHAT),
    )
