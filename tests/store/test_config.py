from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvg.errors import Corrupt, NotFound, UsageError
from kvg.store.config import Config, parse_plain, parse_value, split_key

TEXT = """\
# mine
[store]
codec = 2   # planes

[model."qwen2.5"]
path = "/m"
"""


def written(folder: Path, text: str) -> Config:
    path = folder / "config.toml"
    path.write_text(text, encoding="utf-8")
    return Config(path)


def test_a_file_that_is_not_there_is_empty(tmp_path: Path) -> None:
    config = Config(tmp_path / "config.toml")
    assert config.get("store.codec") is None
    assert config.text("a.b", "else") == "else"
    assert list(config.items()) == []


def test_typed_reads(tmp_path: Path) -> None:
    config = written(tmp_path, '[a]\ns = "x"\nn = 3\nb = true\nw = ["p", "q"]\n')
    assert config.text("a.s") == "x"
    assert config.number("a.n", 0) == 3
    assert config.switch("a.b", False) is True
    assert config.words("a.w") == ("p", "q")
    assert config.words("a.s") == ("x",)
    assert config.words("a.none") == ()
    for wrong in (
        lambda: config.text("a.n"),
        lambda: config.number("a.b", 0),
        lambda: config.number("a.s", 0),
        lambda: config.switch("a.n", True),
        lambda: config.words("a.n"),
        lambda: config.get("a.w.x") or config.get("a"),
    ):
        with pytest.raises((Corrupt, UsageError)):
            wrong()


def test_a_change_keeps_comments_and_the_rest(tmp_path: Path) -> None:
    config = written(tmp_path, TEXT)
    config.set("store.codec", 1)
    config.set("deposit.require", ("seeds",))
    text = config.path.read_text(encoding="utf-8")
    assert "# mine" in text and "# planes" in text and 'path = "/m"' in text
    again = Config(config.path)
    assert again.number("store.codec", 0) == 1
    assert again.words("deposit.require") == ("seeds",)


def test_names_with_dots(tmp_path: Path) -> None:
    config = written(tmp_path, TEXT)
    assert split_key("model.qwen2.5.path") == ("model", "qwen2.5", "path")
    assert config.text("model.qwen2.5.path") == "/m"
    assert config.names("model") == ("qwen2.5",)
    config.set("model.smol-1.7b.path", "/s")
    assert Config(config.path).table("model", "smol-1.7b") == {"path": "/s"}


def test_tables(tmp_path: Path) -> None:
    config = written(tmp_path, "")
    config.set_table("remote", "origin", {"url": "/mnt", "codec": 2})
    config.set_table("remote", "other", {"url": "/x"})
    assert config.names("remote") == ("origin", "other")
    config.set_table("remote", "origin", {"url": "/new"})
    assert config.table("remote", "origin") == {"url": "/new"}
    config.remove_table("remote", "origin")
    assert Config(config.path).names("remote") == ("other",)
    with pytest.raises(NotFound):
        config.remove_table("remote", "origin")


def test_unset(tmp_path: Path) -> None:
    config = written(tmp_path, TEXT)
    config.unset("store.codec")
    config.unset("no.such")
    assert Config(config.path).get("store.codec") is None


def test_two_openers_do_not_lose_each_others_change(tmp_path: Path) -> None:
    first = written(tmp_path, "")
    second = Config(first.path)
    first.set("a.x", 1)
    second.set("a.y", 2)
    assert dict(Config(first.path).items()) == {"a.x": 1, "a.y": 2}


@pytest.mark.parametrize(
    "text", ["a = ", "[a]\nx = 1.5\n", "[a]\nx = [1]\n", "[a]\nx = 2020-01-01\n", "[a]\n[a]\n"]
)
def test_what_is_no_configuration(tmp_path: Path, text: str) -> None:
    with pytest.raises(Corrupt, match=r"config\.toml"):
        written(tmp_path, text)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(Corrupt, match="not UTF-8"):
        Config(tmp_path / "config.toml")


@pytest.mark.parametrize("key", ["", "a", ".", "a.", ".a", "model.x", "a..b"])
def test_a_bad_key(key: str, tmp_path: Path) -> None:
    if key == "model.x":
        assert split_key(key) == ("model", "x")
        return
    with pytest.raises(UsageError):
        split_key(key)


def test_what_a_person_types() -> None:
    assert parse_value("true") is True
    assert parse_value("12") == 12
    assert parse_value('["a", "b"]') == ("a", "b")
    assert parse_value("[a") == "[a"
    assert parse_value("plain") == "plain"


LINES = st.sampled_from(
    [
        "[store]",
        "[model.a]",
        "[model.a.b]",
        "[model]",
        "[model.'a']",
        '[model."a"]',
        '[model."a".b]',
        '[model."qwen2.5"]',
        '[model."a\\u0041"]',
        '["model"]',
        '[model."a]',
        '[model."]',
        '[model.""]',
        "[[model]]",
        "[]",
        "[a.]",
        'log = "kvg-1+2/="',
        'log = "a\\u0041"',
        'log = "ü — x"',
        'log = "tab\there"',
        "log = 'a'",
        'log = """a"""',
        'log = "a" # why',
        'a = ""',
        'a.b = "c"',
        "a = 0",
        "a = 01",
        "a = 17",
        "a = -1",
        "a = 1_000",
        "a = 123456789012345678901234567890",
        "a=1",
        "a  = 1",
        " a = 1",
        "a = 1 ",
        "a = true",
        "a = True",
        'a = ["x", "y"]',
        'b = "c"',
        "--- = 1",
        "# a comment",
        "",
        "b",
        "b = ",
        '"b" = 1',
        "ä = 1",
        'b = "c"\r',
        'b = "',
    ]
)


@given(st.lists(LINES, max_size=8), st.booleans())
def test_plain_files_are_read_as_tomllib_reads_them(lines: list[str], ends: bool) -> None:
    text = "\n".join(lines) + "\n" * ends
    plain = parse_plain(text)
    if plain is not None:
        assert plain == tomllib.loads(text)


def test_what_kvg_writes_is_plain(tmp_path: Path) -> None:
    config = Config(tmp_path / "config.toml")
    config.set("store.log", "kvg-1+2+a/b=")
    config.set("store.codec", 0)
    config.set("model.tiny.1.path", "/models/tiny")
    config.set("core.progress", False)
    text = (tmp_path / "config.toml").read_text()
    assert parse_plain(text) == tomllib.loads(text)
    assert parse_plain("") == {} == tomllib.loads("")
