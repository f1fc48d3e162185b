"""``kvg diff``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, cast

from kvg import canon
from kvg.flow.records.artifacts import Difference, DiffSummary

if TYPE_CHECKING:
    from kvg.flow.records import Record
    from kvg.objects.manifest import Manifest
    from kvg.store import Store

FIELDS = ("model", "engine", "layout", "tokens")


def diff(store: Store, a: str, b: str) -> Iterator[Record]:
    """What differs between two artifacts, then a summary. Raises ``NotFound``, ``Corrupt``."""
    from kvg.objects.tokens import first_difference

    first, second = store.resolve(a).digest, store.resolve(b).digest
    manifest_a, manifest_b = store.manifest(first, what=a), store.manifest(second, what=b)
    yield from _differences(_value(manifest_a), _value(manifest_b))
    ids_a, ids_b = store.ids(manifest_a, what=a), store.ids(manifest_b, what=b)
    index = first_difference(ids_a, ids_b)
    if index is not None and index < min(len(ids_a), len(ids_b)):
        yield Difference(f"token id at {index}", ids_a[index], ids_b[index])
    pages_a = {page.digest for page in manifest_a.pages}
    pages_b = {page.digest for page in manifest_b.pages}
    yield DiffSummary(
        a=first,
        b=second,
        same=first == second,
        common_tokens=len(ids_a) if index is None else index,
        common_pages=len(pages_a & pages_b),
        only_a_pages=len(pages_a - pages_b),
        only_b_pages=len(pages_b - pages_a),
    )


def _value(manifest: Manifest) -> Mapping[str, object]:
    from kvg.objects.manifest import encode_manifest

    value = canon.parse_json(encode_manifest(manifest), what="manifest")
    return cast("Mapping[str, object]", value)


def _differences(a: Mapping[str, object], b: Mapping[str, object]) -> Iterator[Difference]:
    for field in FIELDS:
        yield from _compare(field, a[field], b[field])


def _compare(name: str, a: object, b: object) -> Iterator[Difference]:
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for key in sorted(a.keys() | b.keys()):
            yield from _compare(f"{name}.{key}", a.get(key), b.get(key))
    elif a != b:
        yield Difference(name, a, b)
