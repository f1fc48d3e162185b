"""Published figures: the sums in files of results, with the digests of the samples behind each."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kvg import durable
from kvg.digest import is_digest, sha256
from kvg.errors import Corrupt, NotFound
from kvg.flow.records.audit import PublishedFigure

SUFFIX = ".jsonl"
MAX_FILE_BYTES = 256 << 20
SETTINGS = ("machine", "setup", "bench-setup")
"""Records that say what was measured on. Their digests name the model and the engine."""

Row = Mapping[str, object]


def published(cwd: Path, paths: Sequence[Path]) -> Iterator[PublishedFigure]:
    """The figures of each file, or of every ``.jsonl`` file of a folder, in their order.

    Raises ``NotFound``, and ``Corrupt`` for a file that is not JSON Lines.
    """
    for path in paths:
        place = cwd / path
        if not place.exists():
            raise NotFound(f"{path}: no such file or folder")
        files = sorted(place.glob(f"*{SUFFIX}")) if place.is_dir() else [place]
        if not files:
            raise NotFound(f"{path}: no file of results in it", hint=f"results are {SUFFIX} files")
        for file in files:
            yield from _figures(file, str(path / file.name) if place.is_dir() else str(path))


def _figures(file: Path, name: str) -> Iterator[PublishedFigure]:
    with durable.translated(file), open(file, "rb") as source:
        data = source.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise Corrupt(f"{name}: too large for results")
    rows = [row for row in _rows(data, name) if row.get("type") not in SETTINGS]
    digests = [_digests(row) for row in rows]
    beside = tuple(dict.fromkeys(digest for found in digests for digest in found))
    samples = sum(1 for found in digests if found)
    has_sums = any(not found for found in digests)
    for row, own in zip(rows, digests, strict=True):
        if own and has_sums:
            continue  # a sample of what is summed up beside it
        figures = {
            key: value for key, value in row.items() if key not in ("type", "schema_version")
        }
        plain = {key: value for key, value in figures.items() if _is_plain(value)}
        yield PublishedFigure(
            file=name,
            digest=sha256(data),
            kind=str(row.get("type", "")),
            figures=plain,  # type: ignore[arg-type]
            samples=1 if own else samples,
            digests=own or beside,
        )


def _rows(data: bytes, name: str) -> Iterator[Row]:
    for number, line in enumerate(data.splitlines(), 1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            raise Corrupt(f"{name}: line {number}: not a JSON object")
        yield row


def _digests(row: Row) -> tuple[str, ...]:
    return tuple(value for value in row.values() if is_digest(value))


def _is_plain(value: object) -> bool:
    """Whether it is one value that a person reads as it stands."""
    return value is None or (isinstance(value, str | int | float) and not is_digest(value))
