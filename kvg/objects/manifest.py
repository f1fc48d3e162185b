"""The manifest: the reproducible description of one computation; its digest names the artifact.

Every class here checks itself when made, so that a manifest in memory is a valid one whether it
was read or built. ``Corrupt`` messages name the field; ``parse_manifest`` adds the object.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Final

from kvg import canon
from kvg.canon import Json
from kvg.digest import Buffer, Digest, find_digests, parse_digest, sha256
from kvg.errors import Corrupt, Incompatible
from kvg.frozen import frozen
from kvg.objects.computation import (
    Engine,
    FloatJson,
    Model,
    Reference,
    Schedule,
    engine_fingerprint,
    engine_value,
    model_fingerprint,
    model_value,
    read_engine,
    read_model,
)
from kvg.objects.fields import (
    ascends,
    check_digest,
    check_dtype,
    check_hex,
    check_int,
    check_name,
    read_ints,
)
from kvg.objects.layout import (
    Group,
    LayerSpec,
    Layout,
    Span,
    group_layers,
    group_value,
    kept,
    needed_pages,
    read_group,
)

__all__ = [
    "ATTESTATION_MEDIA_TYPE",
    "Engine",
    "FloatJson",
    "Group",
    "LayerSpec",
    "Layout",
    "MEDIA_TYPE",
    "Manifest",
    "Model",
    "PAGE_MEDIA_TYPE",
    "Page",
    "Reference",
    "Schedule",
    "Span",
    "TOKENS_MEDIA_TYPE",
    "Tokens",
    "Witness",
    "check_sizes",
    "digests_in",
    "encode_manifest",
    "engine_fingerprint",
    "group_layers",
    "model_fingerprint",
    "needed_pages",
    "parse_manifest",
]

SCHEMA: Final = "kvg.manifest/1"

MEDIA_TYPE: Final = "application/vnd.kvg.manifest.v1+json"
TOKENS_MEDIA_TYPE: Final = "application/vnd.kvg.tokens.v1"
PAGE_MEDIA_TYPE: Final = "application/vnd.kvg.page.v1+safetensors"
ATTESTATION_MEDIA_TYPE: Final = "application/vnd.dsse.envelope.v1+json"

MAX_SIZE_BYTES: Final = 64 << 20
"""The most that a reader needs to hold for one manifest."""
_MAX_KEPT_BYTES: Final = 64 << 10
_MARK: Final = b'"schema":"%s"' % SCHEMA.encode()


@frozen
class Tokens:
    """The token ids: the digest of their stored bytes, and how many."""

    digest: Digest
    count: int

    def __post_init__(self) -> None:
        check_digest(self.digest, "tokens.digest")
        check_int(self.count, "tokens.count", least=1)


@frozen
class Page:
    """One page: positions [start, end) of one group, its digest, BLAKE3-256 hex and size."""

    group: str
    start: int
    end: int
    digest: Digest
    blake3: str
    size: int

    def __post_init__(self) -> None:
        check_name(self.group, "page group")
        check_int(self.start, "page start")
        check_int(self.end, "page end", least=self.start + 1)
        check_digest(self.digest, "page digest")
        check_hex(self.blake3, f"page {self.digest}: blake3")
        check_int(self.size, f"page {self.digest}: size", least=1)

    @property
    def n_tokens(self) -> int:
        return self.end - self.start


@frozen
class Witness:
    """The digest of the raw logits at one position, and the lowest id among their maxima."""

    position: int
    logits: Digest
    dtype: str
    shape: tuple[int]
    next_token: int

    def __post_init__(self) -> None:
        check_int(self.position, "witness position")
        where = f"witness at {self.position}"
        check_digest(self.logits, f"{where}: logits")
        check_dtype(self.dtype, f"{where}: dtype")
        if len(self.shape) != 1:
            raise Corrupt(f"{where}: shape is not [vocab]")
        check_int(self.shape[0], f"{where}: shape", least=1, most=2**32)
        check_int(self.next_token, f"{where}: next_token", most=self.shape[0] - 1)


@frozen
class Manifest:
    """One computation, whole: nothing can be added or left out without ``Corrupt``.

    Pages are by group, then position, and are exactly those that the groups keep for the end
    and for each cut; witnesses ascend, the last at ``count`` - 1.
    """

    model: Model
    engine: Engine
    tokens: Tokens
    layout: Layout
    pages: tuple[Page, ...]
    witnesses: tuple[Witness, ...]

    def __post_init__(self) -> None:
        _check_witnesses(self.witnesses, self.count)
        _check_pages(self)

    @property
    def count(self) -> int:
        """How many tokens."""
        return self.tokens.count

    @property
    def cuts(self) -> tuple[int, ...]:
        """The lengths, ascending, at which this artifact can be grafted short of its end."""
        return tuple(witness.position + 1 for witness in self.witnesses[:-1])

    @property
    def digest(self) -> Digest:
        """The digest of the encoded manifest: the artifact's name."""
        return sha256(encode_manifest(self))

    def group(self, name: str) -> Group:
        """The group called ``name``. Raises ``Corrupt`` when there is none."""
        for group in self.layout.groups:
            if group.name == name:
                return group
        raise Corrupt(f"group {name[:80]}: not in the layout")

    def pages_of(self, name: str) -> tuple[Page, ...]:
        """The pages of the group called ``name``, by position."""
        return tuple(page for page in self.pages if page.group == name)


def encode_manifest(manifest: Manifest) -> bytes:
    """The canonical bytes of ``manifest``."""
    return canon.encode(_manifest_value(manifest))


def parse_manifest(data: Buffer, *, what: str) -> Manifest:
    """The manifest whose canonical bytes are ``data``.

    Raises ``Incompatible`` on another schema version, ``Corrupt`` naming ``what`` on anything
    that is not exactly one valid manifest.
    """
    if memoryview(data).nbytes > MAX_SIZE_BYTES:
        raise Corrupt(f"{what}: larger than any manifest", hint="kvg fsck")
    raw = bytes(data)
    if len(raw) <= _MAX_KEPT_BYTES:
        with suppress(Corrupt, Incompatible):
            return _parse_small(raw)
    return _parse(raw, what)


def digests_in(data: Buffer, *, what: str) -> frozenset[Digest]:
    """Every digest in the bytes of a manifest: all that it needs, and a few that name no object.

    Many times quicker than ``parse_manifest``, and it misses none: whatever can be read as a
    manifest of version 1 has its digests in quotes as they are, for nothing in JSON but a backslash
    writes a letter as anything else. What is not marked as one, or has a backslash, is parsed.
    Raises as ``parse_manifest`` does.
    """
    raw = bytes(data)
    if b"\\" in raw or _MARK not in raw:
        parse_manifest(raw, what=what)
    return find_digests(raw)


def _parse(raw: bytes, what: str) -> Manifest:
    value = canon.decode(raw, what=what)
    canon.check_schema(value, SCHEMA, what=what)
    try:
        return _read_manifest(value)
    except Corrupt as error:
        raise Corrupt(f"{what}: {error.message}", hint="kvg fsck") from None


@lru_cache(maxsize=8)
def _parse_small(raw: bytes) -> Manifest:
    """One command looks at an artifact from several sides: the same bytes are parsed once."""
    return _parse(raw, "manifest")


def check_sizes(manifest: Manifest, *, what: str) -> None:
    """Raise ``Corrupt`` naming ``what`` unless every page's size is what its shape makes it, and no
    object is to be two pages that differ in more than their place.

    Apart from parsing, because it is a statement about pages, not about the document.
    """
    from kvg.objects.page import page_size

    groups = {group.name: group for group in manifest.layout.groups}
    known: dict[Digest, tuple[str, int, str]] = {}
    for page in manifest.pages:
        expected = page_size(groups[page.group], page.n_tokens)
        if page.size != expected:
            raise Corrupt(f"{what}: page {page.digest}: size {page.size}, expected {expected}")
        said = page.group, page.n_tokens, page.blake3
        if known.setdefault(page.digest, said) != said:
            raise Corrupt(f"{what}: page {page.digest}: is to be two different pages")


def _check_witnesses(witnesses: Sequence[Witness], count: int) -> None:
    if not ascends([witness.position for witness in witnesses]):
        raise Corrupt("witnesses: positions do not ascend")
    if not witnesses or witnesses[-1].position != count - 1:
        raise Corrupt("witnesses: the last is not at the end")
    if len({(witness.dtype, witness.shape) for witness in witnesses}) != 1:
        raise Corrupt("witnesses: dtypes or shapes differ")


def _check_pages(manifest: Manifest) -> None:
    """The page list must be the one that layout, count and cuts ask for, in that order."""
    page_tokens, count, cuts = manifest.layout.page_tokens, manifest.count, manifest.cuts
    kept_pages = [kept(group.window, page_tokens, count, cuts) for group in manifest.layout.groups]
    n_needed = sum(last - first for ranges in kept_pages for first, last in ranges)
    if n_needed != len(manifest.pages):
        raise Corrupt(f"pages: {len(manifest.pages)} listed, {n_needed} needed")
    needed = (
        (group, span)
        for group in manifest.layout.groups
        for span in needed_pages(group, page_tokens, count, cuts)
    )
    for index, (page, (group, (start, end))) in enumerate(zip(manifest.pages, needed, strict=True)):
        if (page.group, page.start, page.end) != (group.name, start, end):
            raise Corrupt(f"pages[{index}]: not {group.name} [{start}, {end})")


def _manifest_value(manifest: Manifest) -> Json:
    return {
        "schema": SCHEMA,
        "model": model_value(manifest.model),
        "engine": engine_value(manifest.engine),
        "tokens": {"digest": manifest.tokens.digest, "count": manifest.count},
        "positions": [0, manifest.count],
        "layout": {
            "page_tokens": manifest.layout.page_tokens,
            "groups": [group_value(group) for group in manifest.layout.groups],
        },
        "pages": [_page_value(page) for page in manifest.pages],
        "witnesses": [_witness_value(witness) for witness in manifest.witnesses],
    }


def _page_value(page: Page) -> Json:
    return {
        "group": page.group,
        "positions": [page.start, page.end],
        "digest": page.digest,
        "blake3": page.blake3,
        "size": page.size,
    }


def _witness_value(witness: Witness) -> Json:
    return {
        "position": witness.position,
        "logits": witness.logits,
        "dtype": witness.dtype,
        "shape": list(witness.shape),
        "next_token": witness.next_token,
    }


_TOP = ("schema", "model", "engine", "tokens", "positions", "layout", "pages", "witnesses")


def _read_manifest(value: Json) -> Manifest:
    top = canon.take(value, _TOP, what="manifest")
    tokens = canon.take(top["tokens"], ("digest", "count"), what="tokens")
    count = canon.as_int(tokens["count"], what="tokens.count", least=1)
    if read_ints(top["positions"], "positions") != (0, count):
        raise Corrupt("positions: not [0, count]")
    layout = canon.take(top["layout"], ("page_tokens", "groups"), what="layout")
    return Manifest(
        model=read_model(top["model"]),
        engine=read_engine(top["engine"]),
        tokens=Tokens(parse_digest(tokens["digest"], what="tokens.digest"), count),
        layout=Layout(
            page_tokens=canon.as_int(layout["page_tokens"], what="layout.page_tokens", least=1),
            groups=tuple(map(read_group, canon.as_list(layout["groups"], what="layout.groups"))),
        ),
        pages=tuple(map(_read_page, canon.as_list(top["pages"], what="pages"))),
        witnesses=tuple(map(_read_witness, canon.as_list(top["witnesses"], what="witnesses"))),
    )


def _read_page(value: Json) -> Page:
    page = canon.take(value, ("group", "positions", "digest", "blake3", "size"), what="page")
    positions = read_ints(page["positions"], "page positions")
    if len(positions) != 2:
        raise Corrupt("page positions: not [start, end]")
    return Page(
        group=canon.as_str(page["group"], what="page group"),
        start=positions[0],
        end=positions[1],
        digest=parse_digest(page["digest"], what="page digest"),
        blake3=canon.as_str(page["blake3"], what="page blake3"),
        size=canon.as_int(page["size"], what="page size"),
    )


_WITNESS = ("position", "logits", "dtype", "shape", "next_token")


def _read_witness(value: Json) -> Witness:
    witness = canon.take(value, _WITNESS, what="witness")
    shape = read_ints(witness["shape"], "witness shape")
    if len(shape) != 1:
        raise Corrupt("witness shape: not [vocab]")
    return Witness(
        position=canon.as_int(witness["position"], what="witness position"),
        logits=parse_digest(witness["logits"], what="witness logits"),
        dtype=canon.as_str(witness["dtype"], what="witness dtype"),
        shape=shape,
        next_token=canon.as_int(witness["next_token"], what="witness next_token"),
    )
