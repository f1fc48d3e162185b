"""``recheck.py --results``: whatever number is edited is found, or is said to be raw."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rechecking.files import BENCHES, check_exchange, check_results, check_rows
from rechecking.rows import Wrong
from rechecking.shapes import RAW, RAW_OF_EXCHANGE, SHAPES

from tests.models import REPO

RESULTS = REPO / "bench/results"
NAMES = sorted(path.name for path in RESULTS.glob("*.json*"))


def documents(name: str) -> list[dict[str, Any]]:
    """The records of a file; one for a file that is one document."""
    text = (RESULTS / name).read_text()
    return (
        [json.loads(text)]
        if name.endswith(".json")
        else list(map(json.loads, text.split("\n")[:-1]))
    )


def check(name: str, rows: list[dict[str, Any]]) -> None:
    if name.endswith(".json"):
        check_exchange(rows[0], name)
    else:
        check_rows(rows, name)


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """(names, container, key) of every number and flag, however deep; lists add no name."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        names = (*path, str(key)) if isinstance(value, dict) else path
        if isinstance(value[key], dict | list):
            yield from leaves(value[key], names)
        elif isinstance(value[key], int | float):
            yield names, value, key


def is_raw(kind: str, names: tuple[str, ...]) -> bool:
    raw = RAW_OF_EXCHANGE if kind == "exchange" else RAW.get(kind, "").split(" ")
    return bool({names[0], names[-1], ".".join(names)} & set(raw))


def edited(old: float | bool) -> float | bool:
    if isinstance(old, bool):
        return not old
    return old + 1 if isinstance(old, int) else old * 1.01 + 0.001


def places(rows: list[dict[str, Any]]) -> Iterator[tuple[str, tuple[str, ...], Any, Any]]:
    """Every kind of field, at its first, a middle and its last place."""
    found: dict[tuple[str, tuple[str, ...]], list[tuple[Any, Any]]] = {}
    for row in rows:
        kind = row.get("type", "exchange")
        for names, container, key in leaves(row):
            found.setdefault((kind, names), []).append((container, key))
    for (kind, names), all_ in found.items():
        for number in sorted({0, len(all_) // 2, len(all_) - 1}):
            yield kind, names, *all_[number]


@pytest.mark.parametrize("name", NAMES)
def test_every_number_follows_or_is_said_to_be_raw(name: str) -> None:
    rows = documents(name)
    check(name, rows)
    passed, n_found = [], 0
    for kind, names, container, key in places(rows):
        good = container[key]
        container[key] = edited(good)
        try:
            check(name, rows)
        except Wrong:
            n_found += 1
        else:
            if not is_raw(kind, names):
                passed.append(f"{kind}: {'.'.join(names)}")
        container[key] = good
    assert not passed and n_found


LEFT_OUT = ("setup", "machine", "context-made")
"""Types without which a file is still that of a benchmark."""


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith("l")])
def test_a_type_or_a_field_of_another_name_or_none(name: str) -> None:
    rows = documents(name)
    for kind in {row["type"] for row in rows}:
        first = next(n for n, row in enumerate(rows) if row["type"] == kind)
        renamed = {**rows[first], "type": f"{kind}s"}
        without = [row for row in rows if row["type"] != kind]
        more = {**rows[first], "more": 1}
        for bad in (
            [*rows[:first], renamed, *rows[first + 1 :]],
            [{**row, "type": f"{kind}s"} if row["type"] == kind else row for row in rows],
            [*rows[:first], more, *rows[first + 1 :]],
            *([without] if not kind.endswith(LEFT_OUT) else []),
        ):
            with pytest.raises(Wrong):
                check_rows(bad, name)
        for field in rows[first].keys() - {"type", "schema_version", "versions"}:
            less = {key: value for key, value in rows[first].items() if key != field}
            if rows[first][field] is not None and f"{field}:?" not in SHAPES[kind]:
                with pytest.raises(Wrong):
                    check_rows([*rows[:first], less, *rows[first + 1 :]], name)


def test_every_benchmark_and_what_is_raw_of_it_is_of_a_known_type() -> None:
    known = {name for names, _ in BENCHES for name in names.split()}
    assert known == set(SHAPES)
    assert set(RAW) <= known
    for kind in RAW:
        fields = {item.split(":")[0] for item in SHAPES[kind].split()}
        assert {name.split(".")[0] for name in RAW[kind].split()} <= fields, kind


def copied(folder: Path) -> Path:
    place = folder / "results"
    shutil.copytree(RESULTS, place)
    return place


def test_what_is_raw_is_held_by_the_sums(tmp_path: Path) -> None:
    place = copied(tmp_path)
    assert check_results(place) > 1000
    path = place / "fuzz.jsonl"
    good = path.read_text()
    path.write_text(good.replace('"accepted": 1', '"accepted": 2', 1))
    for asked in (place, path):  # nothing in the file tells
        with pytest.raises(Wrong, match="not the bytes that SHA256SUMS tells of"):
            check_results(asked)
    path.write_text(good)
    (place / "more.jsonl").write_text(good)
    with pytest.raises(Wrong, match=r"more.jsonl: SHA256SUMS does not tell of it"):
        check_results(place / "more.jsonl")
    with pytest.raises(Wrong, match="other files"):
        check_results(place)
    (place / "more.jsonl").unlink()
    path.unlink()
    with pytest.raises(Wrong, match="other files"):
        check_results(place)
    path.write_text(good)
    (place / "SHA256SUMS").unlink()
    for asked in (place, path):
        with pytest.raises(Wrong, match="no SHA256SUMS: nothing pins the records"):
            check_results(asked)


def test_the_sums_are_those_of_sha256sum(tmp_path: Path) -> None:
    lines = (RESULTS / "SHA256SUMS").read_text().splitlines()
    assert sorted(line.split("  ")[1] for line in lines) == NAMES
    for line in lines:
        digest, name = line.split("  ")
        assert hashlib.sha256((RESULTS / name).read_bytes()).hexdigest() == digest
