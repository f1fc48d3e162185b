from __future__ import annotations

import pytest

from kvg.errors import UsageError
from kvg.store.names import (
    RefAt,
    check_ref_name,
    is_ref_name,
    parse_digest_prefix,
    parse_ref_at,
    ref_from_stem,
)

GOOD = ["a", "handbook", "docs/v1.2/hand-book_3", "0", "-x", "_", "a.b", "a/b/c", "x" * 255]
BAD = [
    "",
    "A",
    "é",
    ".a",
    "a/.b",
    "a..b",
    "a/../b",
    "/a",
    "a/",
    "a//b",
    "a b",
    "a\n",
    "a@{1}",
    "sha256:abcdef",
    "x" * 256,
    "a\\b",
    "a\x00",
    "\N{FULLWIDTH LATIN SMALL LETTER A}",
]


@pytest.mark.parametrize("name", GOOD)
def test_a_good_name(name: str) -> None:
    assert is_ref_name(name)
    check_ref_name(name)


@pytest.mark.parametrize("name", BAD)
def test_a_bad_name(name: str) -> None:
    assert not is_ref_name(name)
    with pytest.raises(UsageError):
        check_ref_name(name)


def test_field_s25_names_that_differ_by_case_cannot_collide() -> None:
    assert not is_ref_name("Handbook")


def test_the_past_of_a_ref() -> None:
    assert parse_ref_at("a/b@{3}") == RefAt("a/b", 3)
    assert parse_ref_at("a") == RefAt("a", 0)
    assert str(RefAt("a", 2)) == "a@{2}"
    for text in ("a@{}", "a@{-1}", "a@{x}", "@{1}", "a@{1}@{2}", "a@{1234567890}"):
        with pytest.raises(UsageError):
            parse_ref_at(text)


def test_a_digest_prefix() -> None:
    assert parse_digest_prefix("abcdef") == "abcdef"
    assert parse_digest_prefix("sha256:abcdef12") == "abcdef12"
    assert parse_digest_prefix("abcde") is None
    assert parse_digest_prefix("handbook") is None
    with pytest.raises(UsageError):
        parse_digest_prefix("sha256:xyz")


@pytest.mark.parametrize(
    ("stem", "ref"),
    [
        ("handbook", "handbook"),
        ("Hand Book (2)", "hand-book-2"),
        (".hidden", "hidden"),
        ("a..b", "a.b"),
        ("Ünïcode", "n-code"),
        ("x" * 300, "x" * 255),
    ],
)
def test_a_ref_from_a_file(stem: str, ref: str) -> None:
    assert ref_from_stem(stem) == ref


def test_a_file_without_a_usable_name() -> None:
    with pytest.raises(UsageError, match="gives no name"):
        ref_from_stem("...")
