"""Arguments that are more than a number or a path."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kvg.cli.values import parse_dtype, parse_moment, parse_numbers, split_ref_and_files
from kvg.errors import UsageError


@pytest.mark.parametrize(
    ("words", "ref", "files"),
    [
        (["a.md"], None, ["a.md"]),
        (["a.md", "b.md"], None, ["a.md", "b.md"]),
        (["book", "a.md", "b.md"], "book", ["a.md", "b.md"]),
        (["docs/book", "-"], "docs/book", ["-"]),
        (["notes", "./notes"], "notes", ["./notes"]),
        (["./notes", "a.md"], None, ["./notes", "a.md"]),
        (["a.md", "missing.md"], None, ["a.md", "missing.md"]),
    ],
)
def test_ref_and_files(home: Path, words: list[str], ref: str | None, files: list[str]) -> None:
    for name in ("a.md", "b.md", "notes"):
        Path(name).write_text("text")
    assert split_ref_and_files(words, has_source=False) == (ref, files)


def test_what_could_be_either_is_asked_about(home: Path) -> None:
    Path("notes").write_text("text")
    with pytest.raises(UsageError, match="a ref or a file"):
        split_ref_and_files(["notes", "more.md"], has_source=False)


def test_text_given_by_an_option_leaves_only_the_ref(home: Path) -> None:
    assert split_ref_and_files(["facts"], has_source=True) == ("facts", [])
    assert split_ref_and_files([], has_source=True) == (None, [])
    with pytest.raises(UsageError):
        split_ref_and_files(["facts", "a.md"], has_source=True)


def test_moments() -> None:
    now = int(time.time())
    assert abs(parse_moment("2d", option="--since", ahead=False) - (now - 172_800)) <= 2
    assert abs(parse_moment("2d", option="--until", ahead=True) - (now + 172_800)) <= 2
    assert parse_moment("2027-01-31", option="--until", ahead=True) == 1_801_353_600
    assert parse_moment("2027-01-31T01:00:00+01:00", option="--until", ahead=True) == 1_801_353_600
    assert parse_moment("1801353600", option="--until", ahead=True) == 1_801_353_600
    for text in ("soon", "31.1.2027", "", "9" * 40, "1y"):
        with pytest.raises(UsageError):
            parse_moment(text, option="--until", ahead=True)


def test_numbers() -> None:
    assert parse_numbers(None, option="--cut-points") == ()
    assert parse_numbers("1,20,300", option="--cut-points") == (1, 20, 300)
    for text in ("", "1,", "a"):
        with pytest.raises(UsageError):
            parse_numbers(text, option="--cut-points")


@pytest.mark.parametrize(
    ("text", "dtype"), [("bf16", "BF16"), ("F32", "F32"), ("float16", "F16"), ("fp32", "F32")]
)
def test_dtypes_as_people_write_them(text: str, dtype: str) -> None:
    assert parse_dtype(text) == dtype
    with pytest.raises(UsageError, match="not a dtype"):
        parse_dtype(text + "8")
