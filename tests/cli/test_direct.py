"""A plain command line read directly makes the very call that the parser would make of it."""

from __future__ import annotations

import itertools
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache, wraps
from pathlib import Path

import pytest
from typer import Exit, TyperException

from bench.startup import COMMANDS
from kvg.cli import group
from kvg.cli.direct import Call, _functions, _Param, _params, read
from kvg.cli.invocation import Globals
from kvg.cli.table import VERBS
from kvg.errors import KvgError

Outcome = tuple[dict[str, object], dict[str, object]]


class Made(Exception):
    """The call that the parser made."""

    def __init__(self, values: dict[str, object]) -> None:
        super().__init__()
        self.values = values


@pytest.fixture
def by_parser(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[str]], Outcome | str]:
    group.global_params()
    as_typer = group._as_typer

    def recorded(function: Callable[..., object]) -> Callable[..., object]:
        @wraps(function)
        def record(**values: object) -> None:
            raise Made({k: v for k, v in values.items() if not hasattr(v, "command")})

        return as_typer(record)

    monkeypatch.setattr(group, "_as_typer", recorded)
    monkeypatch.setattr(group, "_build", cache(group._build))

    def parse(argv: list[str]) -> Outcome | str:
        given, root = Globals(), group.build_root()
        try:
            with root.make_context("kvg", list(argv), obj=given) as ctx:
                root.invoke(ctx)
        except Made as made:
            return made.values, noted(given)
        except (Exit, KvgError, TyperException) as error:
            return type(error).__name__
        return "nothing"

    return parse


def directly(argv: list[str]) -> Outcome | str | None:
    given = Globals()
    try:
        call = read(argv, given)
    except KvgError as error:
        return type(error).__name__
    if call is None:
        assert noted(given) == noted(Globals())
        return None
    values = {k: v for k, v in call.values.items() if not isinstance(v, Call)}
    return values, noted(given)


def noted(given: Globals) -> dict[str, object]:
    return {k: v for k, v in vars(given).items() if k not in ("stack", "run", "shows")}


def paths() -> Iterator[tuple[str, ...]]:
    for verb in VERBS:
        for sub in [name for name, _ in verb.subverbs] or [""]:
            yield (verb.name, sub) if sub else (verb.name,)


def example_lines(path: tuple[str, ...]) -> Iterator[list[str]]:
    """What the help of a verb shows, up to a pipe or a file."""
    import importlib

    verb = next(verb for verb in VERBS if verb.name == path[0])
    text = importlib.import_module(f"kvg.cli.verbs.{verb.module}").EXAMPLES[path[-1]]
    shown = text.replace("\\\n", " ").splitlines()
    for line in (line for line in shown if line.lstrip().startswith("$ ")):
        for part in line.split("|"):
            words = shlex.split(part.strip().removeprefix("$ "), comments=True)
            if words[:1] == ["kvg"]:
                yield list(itertools.takewhile(lambda word: word[:1] not in "<>", words[1:]))


def sample(param: _Param, text: str = "") -> str:
    from typing import get_args

    if get_args(param.kind):
        return str(get_args(param.kind)[-1])
    return text or (str(int(param.declared.min or 0) + 1) if param.kind in (int, float) else "w")


def made_lines(path: tuple[str, ...]) -> Iterator[list[str]]:
    """Every option of a verb, in each form, beside what the verb must have."""
    verb = next(verb for verb in VERBS if verb.name == path[0])
    params = _params(_functions(verb)[path[-1]])
    must = [p for p in params if p.default not in (None, False) and not known_default(p)]
    words: list[str] = []
    for param in must:
        words += [*param.declared.names[:1], sample(param)]
    yield [*path, *words]
    yield [*path, *words, "--", "one", "-two"]
    yield [*path, *words, "one", "two", "-", "three"]
    yield [*path, *words, "--json", "-q", "--no-such"]
    yield [
        "--json",
        "-C",
        ".",
        path[0],
        "-C",
        ".",
        *path[1:],
        "--store",
        "s",
        *words,
        "--color=never",
    ]
    for param in params:
        for names in param.declared.names:
            for name in names.split("/"):
                if param.kind is bool:
                    yield [*path, *words, name]
                    yield [*path, *words, f"{name}=1"]
                    continue
                yield [*path, *words, name, sample(param)]
                yield [*path, name, sample(param), *words, name, sample(param)]
                yield [*path, *words, f"{name}={sample(param)}"]
                yield [*path, *words, name]
                yield [*path, *words, name, "-1"]
                yield [*path, *words, f"{name}="]
                yield [*path, *words, name, "no number"]


def known_default(param: _Param) -> bool:
    from kvg.cli.direct import _REQUIRED

    return param.default is not _REQUIRED


@pytest.mark.parametrize("path", list(paths()), ids=" ".join)
def test_both_make_the_same_call(
    path: tuple[str, ...], by_parser: Callable[[list[str]], Outcome | str]
) -> None:
    lines = [*example_lines(path), *made_lines(path)]
    lines += [list(words) for words in COMMANDS if words[0] == path[0]]
    found = [(line, directly(line)) for line in lines]
    for line, outcome in found:
        if outcome is not None:
            assert by_parser(line) == outcome, line
    assert any(isinstance(outcome, tuple) for _, outcome in found)


@pytest.mark.parametrize("path", list(paths()), ids=" ".join)
def test_what_help_shows_is_plain(path: tuple[str, ...]) -> None:
    assert [line for line in example_lines(path) if directly(line) is None] == []


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["--help"],
        ["ls", "-h"],
        ["lss"],
        ["key"],
        ["key", "nothing"],
        ["ls", "--no-such"],
        ["graft"],
        ["graft", "demo", "-", "more"],
        ["graft", "demo", "--slot", "-1"],
        ["graft", "demo", "--slot", "x"],
        ["graft", "demo", "--slot"],
        ["graft", "demo", "--stream=1"],
        ["-qv", "ls"],
        ["ls", "-j4"],
        ["--", "ls"],
    ],
    ids=" ".join,
)
def test_the_rest_is_the_parsers(argv: list[str]) -> None:
    assert directly(argv) is None


def test_a_plain_command_line_imports_no_parser(tmp_path: Path) -> None:
    code = (
        "import sys; from kvg.cli.main import main; main(['version', '--json'])\n"
        "print('typer' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == "False"
