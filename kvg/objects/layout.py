"""How the state is cut into pages: layer groups, their names, and the pages that each keeps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from kvg import canon
from kvg.canon import Json
from kvg.errors import Corrupt
from kvg.frozen import frozen
from kvg.objects.fields import ascends, check_dtype, check_int, check_name, read_ints

Span: TypeAlias = tuple[int, int]
"""Positions [start, end)."""

MAX_LAYER = 9999
"""The highest layer number whose name in a page still sorts by number."""


@frozen
class LayerSpec:
    """One layer's cache: its index in the model, its shape and its visibility (None: all)."""

    index: int
    kind: str
    kv_heads: int
    k_dim: int
    v_dim: int
    dtype: str
    window: int | None


@frozen
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
        check_name(self.name, "group name")
        where = f"group {self.name}"
        if self.kind != "attention":
            raise Corrupt(f"{where}: kind {self.kind[:40]!r} is not of version 1")
        if not self.layers or not ascends(self.layers):
            raise Corrupt(f"{where}: layers do not ascend")
        for layer in self.layers:
            check_int(layer, f"{where}: layer", least=0, most=MAX_LAYER)
        check_int(self.kv_heads, f"{where}: kv_heads", least=1, most=2**20)
        check_int(self.k_dim, f"{where}: k_dim", least=1, most=2**20)
        check_int(self.v_dim, f"{where}: v_dim", least=1, most=2**20)
        check_dtype(self.dtype, f"{where}: dtype")
        if self.window is not None:
            check_int(self.window, f"{where}: window", least=1)


@frozen
class Layout:
    """How the state is cut: up to ``page_tokens`` tokens per page, per group."""

    page_tokens: int
    groups: tuple[Group, ...]

    def __post_init__(self) -> None:
        check_int(self.page_tokens, "layout.page_tokens", least=1, most=2**20)
        if not self.groups:
            raise Corrupt("layout.groups: empty")
        layers = [layer for group in self.groups for layer in group.layers]
        if len(layers) != len(set(layers)):
            raise Corrupt("layout.groups: a layer is in two groups")
        if not ascends([group.layers[0] for group in self.groups]):
            raise Corrupt("layout.groups: not in the order of their first layers")
        if len({_traits(group) for group in self.groups}) != len(self.groups):
            raise Corrupt("layout.groups: two groups are equal in all but number")
        expected = tuple(_group_names(group.window for group in self.groups))
        if tuple(group.name for group in self.groups) != expected:
            raise Corrupt(f"layout.groups: names are not {', '.join(expected)[:200]}")


def needed_pages(
    group: Group, page_tokens: int, count: int, cuts: Iterable[int] = ()
) -> tuple[Span, ...]:
    """The spans of the pages that ``group`` keeps for ``count`` tokens and each of ``cuts``.

    Without a window: every page. With a window W: every page that holds a position in
    [max(0, end - W), end), for end = ``count`` and for each cut.
    """
    return tuple(
        (index * page_tokens, min((index + 1) * page_tokens, count))
        for first, last in kept(group.window, page_tokens, count, cuts)
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


def kept(window: int | None, page_tokens: int, count: int, cuts: Iterable[int]) -> list[Span]:
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


def group_value(group: Group) -> Json:
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


_GROUP = ("name", "kind", "layers", "kv_heads", "k_dim", "v_dim", "dtype", "window")


def read_group(value: Json) -> Group:
    group = canon.take(value, _GROUP, what="group")
    window = group["window"]
    return Group(
        name=canon.as_str(group["name"], what="group name"),
        kind=canon.as_str(group["kind"], what="group kind"),
        layers=read_ints(group["layers"], "group layers"),
        kv_heads=canon.as_int(group["kv_heads"], what="group kv_heads"),
        k_dim=canon.as_int(group["k_dim"], what="group k_dim"),
        v_dim=canon.as_int(group["v_dim"], what="group v_dim"),
        dtype=canon.as_str(group["dtype"], what="group dtype"),
        window=None if window is None else canon.as_int(window, what="group window"),
    )


def _traits(layer: LayerSpec | Group) -> tuple[str, int, int, int, str, int | None]:
    return layer.kind, layer.kv_heads, layer.k_dim, layer.v_dim, layer.dtype, layer.window


def _group_names(windows: Iterable[int | None]) -> Iterator[str]:
    seen: dict[str, int] = {}
    for window in windows:
        name = "full" if window is None else f"sliding-{window}"
        seen[name] = seen.get(name, 0) + 1
        yield name if seen[name] == 1 else f"{name}-{seen[name]}"
