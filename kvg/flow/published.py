"""Published figures: the sums in files of results, with the digests of the samples behind each."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kvg import canon, durable
from kvg.digest import is_digest, sha256
from kvg.errors import Corrupt, NotFound, Unreadable
from kvg.flow.records.audit import PublishedFigure
from kvg.flow.records.findings import Finding

LINES, DOCUMENT = ".jsonl", ".json"
MAX_FILE_BYTES = 256 << 20
SETTINGS = ("machine", "setup")
"""How the types of records end that say what was measured on, with which model and engine."""

SUMS = ("-summary", "-row", "-time")
"""How the types of records end that sum up the samples beside them."""

Row = Mapping[str, object]


def published(cwd: Path, paths: Sequence[Path]) -> Iterator[PublishedFigure | Finding]:
    """The figures of each file, or of every ``.jsonl`` and ``.json`` file of a folder, in order.

    A file that is not JSON Lines, nor, by its name, JSON, or that can't be read, is a finding, and
    the others are shown. Raises ``NotFound`` where there is nothing.
    """
    for path in paths:
        place = cwd / path
        if not place.exists():
            raise NotFound(f"{path}: no such file or folder")
        files = [place]
        if place.is_dir():
            files = sorted(file for file in place.iterdir() if file.suffix in (LINES, DOCUMENT))
        if not files:
            hint = f"results are {LINES} and {DOCUMENT} files"
            raise NotFound(f"{path}: no file of results in it", hint=hint)
        for file in files:
            name = str(path / file.name) if place.is_dir() else str(path)
            try:
                yield from tuple(_figures(file, name))
            except (Corrupt, NotFound, Unreadable) as error:
                yield Finding(error.code, error.kind, name, error.message, error.hint)


def _figures(file: Path, name: str) -> Iterator[PublishedFigure]:
    """The sums of one file; where nothing is summed up, every record stands for itself."""
    with durable.translated(file), open(file, "rb", opener=durable.plain) as source:
        data = source.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise Corrupt(f"{name}: too large for results")
    read = _parts if file.suffix == DOCUMENT else _rows
    rows = [row for row in read(data, name) if not _kind(row).endswith(SETTINGS)]
    sums = [row for row in rows if _kind(row).endswith(SUMS)]
    others = [row for row in rows if not _kind(row).endswith(SUMS)] if sums else []
    samples = [row for row in others if any(_digests(row))]
    beside = tuple(dict.fromkeys(digest for row in samples for digest in _digests(row)))
    for row in sums or rows:
        own = tuple(dict.fromkeys(_digests(row)))
        hidden = ("type", "schema_version")
        yield PublishedFigure(
            file=name,
            digest=sha256(data),
            kind=_kind(row),
            figures={k: v for k, v in row.items() if k not in hidden and _is_plain(v)},  # type: ignore[misc]
            samples=len(samples) or int(bool(own)),
            digests=(*own, *beside),
        )


def _rows(data: bytes, name: str) -> Iterator[Row]:
    for number, line in enumerate(data.splitlines(), 1):
        yield _object(line, f"{name}: line {number}")


def _parts(data: bytes, name: str) -> Iterator[Row]:
    """A document of one object: what stands in it, then each object in it, its name as its type."""
    whole = _object(data, name)
    parts = {key: value for key, value in whole.items() if isinstance(value, dict)}
    rest = {key: value for key, value in whole.items() if key not in parts}
    if any(_is_plain(value) for value in rest.values()):
        yield {"type": Path(name).stem, **rest}
    for key, value in parts.items():
        yield {"type": key, **value}


def _object(data: bytes, what: str) -> Row:
    try:
        row = json.loads(
            data, object_pairs_hook=canon.unique, parse_float=_finite, parse_constant=_finite
        )
        if b"\\u" in data:  # the one way in for half a surrogate pair
            json.dumps(row, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise Corrupt(f"{what}: malformed JSON: {error}") from None
    if not isinstance(row, dict):
        raise Corrupt(f"{what}: not a JSON object")
    return row


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]}: no number")
    return number


def _kind(row: Row) -> str:
    return str(row.get("type", ""))


def _digests(value: object) -> Iterator[str]:
    """Every digest in ``value``, however deep."""
    if is_digest(value):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _digests(item)
    elif isinstance(value, list):
        for item in value:
            yield from _digests(item)


def _is_plain(value: object) -> bool:
    """Whether it is one value that a person reads as it stands."""
    return value is None or (isinstance(value, str | int | float) and not is_digest(value))
