"""The manifest: the reproducible description of one computation; its digest names the artifact.

Every class here checks itself when made, so that a manifest in memory is a valid one whether it
was read or built. ``Corrupt`` messages name the field; ``parse_manifest`` adds the object.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal, TypeAlias

from kvg import canon
from kvg.canon import Json
from kvg.digest import Buffer, Digest, is_digest, parse_digest, sha256
from kvg.errors import Corrupt
from kvg.objects import page as pages
from kvg.objects import tokens as token_ids

SCHEMA: Final = "kvg.manifest/1"
MODEL_SCHEMA: Final = "kvg.model/1"
ENGINE_SCHEMA: Final = "kvg.engine/1"

MEDIA_TYPE: Final = "application/vnd.kvg.manifest.v1+json"
TOKENS_MEDIA_TYPE: Final = token_ids.MEDIA_TYPE
PAGE_MEDIA_TYPE: Final = pages.MEDIA_TYPE
ATTESTATION_MEDIA_TYPE: Final = "application/vnd.dsse.envelope.v1+json"

MAX_SIZE_BYTES: Final = 64 << 20
"""The most that a reader needs to hold for one manifest."""

Reference: TypeAlias = Literal["invariant", "scheduled"]
FloatJson: TypeAlias = (
    "bool | int | float | str | Sequence[FloatJson] | Mapping[str, FloatJson] | None"
)
"""Foreign JSON, such as a model's config: with floats."""

Span: TypeAlias = tuple[int, int]
"""Positions [start, end)."""

_MAX_NAME = 200
_HEX = frozenset("0123456789abcdef")


@dataclass(frozen=True, slots=True)
class Model:
    """Which mathematics: the fingerprint of weights and config, and what they are called."""

    fingerprint: Digest
    architecture: str
    dtype: str

    def __post_init__(self) -> None:
        _check_digest(self.fingerprint, "model.fingerprint")
        _check_name(self.architecture, "model.architecture")
        _check_dtype(self.dtype, "model.dtype")


@dataclass(frozen=True, slots=True)
class Schedule:
    """How a scheduled reference cuts its input: pages of ``page_tokens``, backend, threads."""

    page_tokens: int
    attention: str
    threads: int

    def __post_init__(self) -> None:
        _check_int(self.page_tokens, "engine.schedule.page_tokens", least=1)
        _check_name(self.attention, "engine.schedule.attention")
        _check_int(self.threads, "engine.schedule.threads", least=1)


@dataclass(frozen=True, slots=True)
class Engine:
    """How it was computed; ``schedule`` is None exactly when the reference is invariant."""

    fingerprint: Digest
    reference: Reference
    schedule: Schedule | None

    def __post_init__(self) -> None:
        _check_digest(self.fingerprint, "engine.fingerprint")
        if self.reference not in ("invariant", "scheduled"):
            raise Corrupt("engine.reference: neither invariant nor scheduled")
        if (self.schedule is not None) != (self.reference == "scheduled"):
            raise Corrupt(f"engine.schedule: does not fit reference {self.reference}")


@dataclass(frozen=True, slots=True)
class Tokens:
    """The token ids: the digest of their stored bytes, and how many."""

    digest: Digest
    count: int

    def __post_init__(self) -> None:
        _check_digest(self.digest, "tokens.digest")
        _check_int(self.count, "tokens.count", least=1)


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """One layer's cache: its index in the model, its shape and its visibility (None: all)."""

    index: int
    kind: str
    kv_heads: int
    k_dim: int
    v_dim: int
    dtype: str
    window: int | None


@dataclass(frozen=True, slots=True)
class Group:
    """Layers whose caches are equal in all but number. ``window`` counts the token itself."""

    name: str
    kind: str
    layers: tuple[int, ...]
    kv_heads: int
    k_dim: int
    v_dim: int
    dtype: str
    window: int | None

    def __post_init__(self) -> None:
        _check_name(self.name, "group name")
        where = f"group {self.name}"
        if self.kind != "attention":
            raise Corrupt(f"{where}: kind {self.kind[:40]!r} is not of version 1")
        if not self.layers or not _ascends(self.layers):
            raise Corrupt(f"{where}: layers do not ascend")
        for layer in self.layers:
            _check_int(layer, f"{where}: layer", least=0, most=pages.MAX_LAYER)
        _check_int(self.kv_heads, f"{where}: kv_heads", least=1, most=2**20)
        _check_int(self.k_dim, f"{where}: k_dim", least=1, most=2**20)
        _check_int(self.v_dim, f"{where}: v_dim", least=1, most=2**20)
        _check_dtype(self.dtype, f"{where}: dtype")
        if self.window is not None:
            _check_int(self.window, f"{where}: window", least=1)


@dataclass(frozen=True, slots=True)
class Layout:
    """How the state is cut: up to ``page_tokens`` tokens per page, per group."""

    page_tokens: int
    groups: tuple[Group, ...]

    def __post_init__(self) -> None:
        _check_int(self.page_tokens, "layout.page_tokens", least=1, most=2**20)
        if not self.groups:
            raise Corrupt("layout.groups: empty")
        layers = [layer for group in self.groups for layer in group.layers]
        if len(layers) != len(set(layers)):
            raise Corrupt("layout.groups: a layer is in two groups")
        if not _ascends([group.layers[0] for group in self.groups]):
            raise Corrupt("layout.groups: not in the order of their first layers")
        if len({_traits(group) for group in self.groups}) != len(self.groups):
            raise Corrupt("layout.groups: two groups are equal in all but number")
        expected = tuple(_group_names(group.window for group in self.groups))
        if tuple(group.name for group in self.groups) != expected:
            raise Corrupt(f"layout.groups: names are not {', '.join(expected)[:200]}")


@dataclass(frozen=True, slots=True)
class Page:
    """One page: positions [start, end) of one group, its digest, BLAKE3-256 hex and size."""

    group: str
    start: int
    end: int
    digest: Digest
    blake3: str
    size: int

    def __post_init__(self) -> None:
        _check_name(self.group, "page group")
        _check_int(self.start, "page start")
        _check_int(self.end, "page end", least=self.start + 1)
        _check_digest(self.digest, "page digest")
        if not isinstance(self.blake3, str) or len(self.blake3) != 64:
            raise Corrupt(f"page {self.digest}: blake3 is not 64 hex digits")
        if not _HEX.issuperset(self.blake3):
            raise Corrupt(f"page {self.digest}: blake3 is not 64 hex digits")
        _check_int(self.size, f"page {self.digest}: size", least=1)

    @property
    def n_tokens(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Witness:
    """The digest of the raw logits at one position, and the lowest id among their maxima."""

    position: int
    logits: Digest
    dtype: str
    shape: tuple[int]
    next_token: int

    def __post_init__(self) -> None:
        _check_int(self.position, "witness position")
        where = f"witness at {self.position}"
        _check_digest(self.logits, f"{where}: logits")
        _check_dtype(self.dtype, f"{where}: dtype")
        if len(self.shape) != 1:
            raise Corrupt(f"{where}: shape is not [vocab]")
        _check_int(self.shape[0], f"{where}: shape", least=1, most=2**32)
        _check_int(self.next_token, f"{where}: next_token", most=self.shape[0] - 1)


@dataclass(frozen=True, slots=True)
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
    value = canon.decode(bytes(data), what=what)
    canon.check_schema(value, SCHEMA, what=what)
    try:
        return _read_manifest(value)
    except Corrupt as error:
        raise Corrupt(f"{what}: {error.message}", hint="kvg fsck") from None


def check_sizes(manifest: Manifest, *, what: str) -> None:
    """Raise ``Corrupt`` naming ``what`` unless every page's size is what its shape makes it.

    Apart from parsing, because it is a statement about pages, not about the document.
    """
    groups = {group.name: group for group in manifest.layout.groups}
    for page in manifest.pages:
        expected = pages.page_size(groups[page.group], page.n_tokens)
        if page.size != expected:
            raise Corrupt(f"{what}: page {page.digest}: size {page.size}, expected {expected}")


def needed_pages(
    group: Group, page_tokens: int, count: int, cuts: Iterable[int] = ()
) -> tuple[Span, ...]:
    """The spans of the pages that ``group`` keeps for ``count`` tokens and each of ``cuts``.

    Without a window: every page. With a window W: every page that holds a position in
    [max(0, end - W), end), for end = ``count`` and for each cut.
    """
    return tuple(
        (index * page_tokens, min((index + 1) * page_tokens, count))
        for first, last in _kept(group.window, page_tokens, count, cuts)
        for index in range(first, last)
    )


def group_layers(layers: Sequence[LayerSpec]) -> tuple[Group, ...]:
    """The groups that ``layers`` fall into, in order of their first layers, named by the rule.

    Raises ``Corrupt`` on a layer that version 1 cannot hold.
    """
    found: dict[tuple[str, int, int, int, str, int | None], list[int]] = {}
    for layer in sorted(layers, key=lambda layer: layer.index):
        found.setdefault(_traits(layer), []).append(layer.index)
    names = _group_names(traits[-1] for traits in found)
    return tuple(
        Group(name, kind, tuple(indices), kv_heads, k_dim, v_dim, dtype, window)
        for name, ((kind, kv_heads, k_dim, v_dim, dtype, window), indices) in zip(
            names, found.items(), strict=True
        )
    )


def engine_fingerprint(reference: Reference, schedule: Schedule | None, probe: Digest) -> Digest:
    """The class of machines that compute alike: reference, schedule and measured probe."""
    return sha256(
        canon.encode(
            {
                "schema": ENGINE_SCHEMA,
                "reference": reference,
                "schedule": _schedule_value(schedule),
                "probe": probe,
            }
        )
    )


def model_fingerprint(
    architecture: str,
    config: Mapping[str, FloatJson],
    weights: Mapping[str, Digest],
    dtype: str,
    adapters: Sequence[Digest] = (),
) -> Digest:
    """The identity of a model's mathematics; floats in ``config`` count as their repr.

    ``adapters`` is null in the hashed document where there are none.
    """
    return sha256(
        canon.encode(
            {
                "schema": MODEL_SCHEMA,
                "architecture": architecture,
                "config": _without_floats(config),
                "weights": dict(weights),
                "dtype": dtype,
                "adapters": list(adapters) or None,
            }
        )
    )


def _without_floats(value: FloatJson) -> Json:
    if isinstance(value, float):
        return repr(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Mapping):
        return {key: _without_floats(item) for key, item in value.items()}
    return [_without_floats(item) for item in value]


def _traits(layer: LayerSpec | Group) -> tuple[str, int, int, int, str, int | None]:
    return layer.kind, layer.kv_heads, layer.k_dim, layer.v_dim, layer.dtype, layer.window


def _group_names(windows: Iterable[int | None]) -> Iterator[str]:
    seen: dict[str, int] = {}
    for window in windows:
        name = "full" if window is None else f"sliding-{window}"
        seen[name] = seen.get(name, 0) + 1
        yield name if seen[name] == 1 else f"{name}-{seen[name]}"


def _kept(window: int | None, page_tokens: int, count: int, cuts: Iterable[int]) -> list[Span]:
    """Ranges of page numbers, ascending and apart: few, however large ``count`` claims to be."""
    if window is None:
        return [(0, -(-count // page_tokens))]
    ranges: list[Span] = []
    for end in sorted({*cuts, count}):
        first, last = max(0, end - window) // page_tokens, -(-end // page_tokens)
        if ranges and first <= ranges[-1][1]:
            ranges[-1] = (ranges[-1][0], max(last, ranges[-1][1]))
        else:
            ranges.append((first, last))
    return ranges


def _check_witnesses(witnesses: Sequence[Witness], count: int) -> None:
    if not _ascends([witness.position for witness in witnesses]):
        raise Corrupt("witnesses: positions do not ascend")
    if not witnesses or witnesses[-1].position != count - 1:
        raise Corrupt("witnesses: the last is not at the end")
    if len({(witness.dtype, witness.shape) for witness in witnesses}) != 1:
        raise Corrupt("witnesses: dtypes or shapes differ")


def _check_pages(manifest: Manifest) -> None:
    """The page list must be the one that layout, count and cuts ask for, in that order."""
    page_tokens, count, cuts = manifest.layout.page_tokens, manifest.count, manifest.cuts
    kept = [_kept(group.window, page_tokens, count, cuts) for group in manifest.layout.groups]
    n_needed = sum(last - first for ranges in kept for first, last in ranges)
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


def _ascends(values: Sequence[int]) -> bool:
    return all(a < b for a, b in pairwise(values))


def _check_digest(value: object, what: str) -> None:
    if not is_digest(value):
        raise Corrupt(f"{what}: not a digest: {str(value)[:80]!r}")


def _check_name(value: object, what: str) -> None:
    if not isinstance(value, str) or not 0 < len(value) <= _MAX_NAME or not value.isprintable():
        raise Corrupt(f"{what}: not a name: {str(value)[:80]!r}")


def _check_dtype(value: object, what: str) -> None:
    if value not in pages.DTYPE_SIZES:
        raise Corrupt(f"{what}: {str(value)[:40]!r} is not one of {', '.join(pages.DTYPE_SIZES)}")


def _check_int(value: object, what: str, *, least: int = 0, most: int = canon.MAX_INTEGER) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Corrupt(f"{what}: not an integer from {least} to {most}")


def _schedule_value(schedule: Schedule | None) -> Json:
    if schedule is None:
        return None
    return {
        "page_tokens": schedule.page_tokens,
        "attention": schedule.attention,
        "threads": schedule.threads,
    }


def _manifest_value(manifest: Manifest) -> Json:
    model, engine = manifest.model, manifest.engine
    return {
        "schema": SCHEMA,
        "model": {
            "fingerprint": model.fingerprint,
            "architecture": model.architecture,
            "dtype": model.dtype,
        },
        "engine": {
            "fingerprint": engine.fingerprint,
            "reference": engine.reference,
            "schedule": _schedule_value(engine.schedule),
        },
        "tokens": {"digest": manifest.tokens.digest, "count": manifest.count},
        "positions": [0, manifest.count],
        "layout": {
            "page_tokens": manifest.layout.page_tokens,
            "groups": [_group_value(group) for group in manifest.layout.groups],
        },
        "pages": [_page_value(page) for page in manifest.pages],
        "witnesses": [_witness_value(witness) for witness in manifest.witnesses],
    }


def _group_value(group: Group) -> Json:
    return {
        "name": group.name,
        "kind": group.kind,
        "layers": list(group.layers),
        "kv_heads": group.kv_heads,
        "k_dim": group.k_dim,
        "v_dim": group.v_dim,
        "dtype": group.dtype,
        "window": group.window,
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
    if _read_ints(top["positions"], "positions") != (0, count):
        raise Corrupt("positions: not [0, count]")
    layout = canon.take(top["layout"], ("page_tokens", "groups"), what="layout")
    return Manifest(
        model=_read_model(top["model"]),
        engine=_read_engine(top["engine"]),
        tokens=Tokens(parse_digest(tokens["digest"], what="tokens.digest"), count),
        layout=Layout(
            page_tokens=canon.as_int(layout["page_tokens"], what="layout.page_tokens", least=1),
            groups=tuple(map(_read_group, canon.as_list(layout["groups"], what="layout.groups"))),
        ),
        pages=tuple(map(_read_page, canon.as_list(top["pages"], what="pages"))),
        witnesses=tuple(map(_read_witness, canon.as_list(top["witnesses"], what="witnesses"))),
    )


def _read_model(value: Json) -> Model:
    model = canon.take(value, ("fingerprint", "architecture", "dtype"), what="model")
    return Model(
        fingerprint=parse_digest(model["fingerprint"], what="model.fingerprint"),
        architecture=canon.as_str(model["architecture"], what="model.architecture"),
        dtype=canon.as_str(model["dtype"], what="model.dtype"),
    )


def _read_engine(value: Json) -> Engine:
    engine = canon.take(value, ("fingerprint", "reference", "schedule"), what="engine")
    reference = canon.as_str(engine["reference"], what="engine.reference")
    return Engine(
        fingerprint=parse_digest(engine["fingerprint"], what="engine.fingerprint"),
        reference=_read_reference(reference),
        schedule=_read_schedule(engine["schedule"]),
    )


def _read_reference(text: str) -> Reference:
    if text == "invariant":
        return "invariant"
    if text == "scheduled":
        return "scheduled"
    raise Corrupt(f"engine.reference: {text[:40]!r} is neither invariant nor scheduled")


def _read_schedule(value: Json) -> Schedule | None:
    if value is None:
        return None
    keys = ("page_tokens", "attention", "threads")
    schedule = canon.take(value, keys, what="engine.schedule")
    return Schedule(
        page_tokens=canon.as_int(schedule["page_tokens"], what="engine.schedule.page_tokens"),
        attention=canon.as_str(schedule["attention"], what="engine.schedule.attention"),
        threads=canon.as_int(schedule["threads"], what="engine.schedule.threads"),
    )


_GROUP = ("name", "kind", "layers", "kv_heads", "k_dim", "v_dim", "dtype", "window")


def _read_group(value: Json) -> Group:
    group = canon.take(value, _GROUP, what="group")
    window = group["window"]
    return Group(
        name=canon.as_str(group["name"], what="group name"),
        kind=canon.as_str(group["kind"], what="group kind"),
        layers=_read_ints(group["layers"], "group layers"),
        kv_heads=canon.as_int(group["kv_heads"], what="group kv_heads"),
        k_dim=canon.as_int(group["k_dim"], what="group k_dim"),
        v_dim=canon.as_int(group["v_dim"], what="group v_dim"),
        dtype=canon.as_str(group["dtype"], what="group dtype"),
        window=None if window is None else canon.as_int(window, what="group window"),
    )


def _read_page(value: Json) -> Page:
    page = canon.take(value, ("group", "positions", "digest", "blake3", "size"), what="page")
    positions = _read_ints(page["positions"], "page positions")
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
    shape = _read_ints(witness["shape"], "witness shape")
    if len(shape) != 1:
        raise Corrupt("witness shape: not [vocab]")
    return Witness(
        position=canon.as_int(witness["position"], what="witness position"),
        logits=parse_digest(witness["logits"], what="witness logits"),
        dtype=canon.as_str(witness["dtype"], what="witness dtype"),
        shape=shape,
        next_token=canon.as_int(witness["next_token"], what="witness next_token"),
    )


def _read_ints(value: Json, what: str) -> tuple[int, ...]:
    return tuple(canon.as_int(item, what=what) for item in canon.as_list(value, what=what))
