"""Man pages, made from the same source as the help.

``python -m kvg.cli.man DIR`` writes them; ``--check DIR`` fails when they are not what it would
write.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from kvg import __version__
from kvg.cli.group import SubverbGroup, VerbCommand, build_root
from kvg.cli.help import (
    ENVIRONMENT,
    Page,
    Rows,
    exit_code_rows,
    group_page,
    page_of,
    root_page,
)
from kvg.cli.table import VERBS


def pages() -> Iterator[tuple[str, Page]]:
    """Every man page: its name without section, and what it says."""
    yield "kvg", root_page()
    root = build_root()
    for verb in VERBS:
        found = None if verb.hidden else root.find(verb.name)
        if isinstance(found, VerbCommand):
            yield f"kvg-{verb.name}", page_of(found)
        elif isinstance(found, SubverbGroup):
            yield f"kvg-{verb.name}", group_page(verb)
            for name, _ in verb.subverbs:
                command = found.find(name)
                if command is not None:
                    yield f"kvg-{verb.name}-{name}", page_of(command)


def roff_of(name: str, page: Page) -> str:
    """``page`` in the language of man."""
    lines = [
        f'.TH {_quoted(name.upper())} 1 "" {_quoted(f"kvg {__version__}")} "kvg manual"',
        ".SH NAME",
        f"{_text(name)} \\- {_text(page.summary)}",
        ".SH SYNOPSIS",
        *(f".B {_text(line)}" for line in page.usage),
    ]
    if page.description:
        lines += [".SH DESCRIPTION", *_paragraphs(page.description)]
    for heading, rows in page.tables:
        if heading != "global options" or not page.path:
            lines += [f".SH {_text(heading.upper())}", *_list(rows)]
    if page.examples:
        lines += [".SH EXAMPLES", ".nf", *(_text(x) for x in page.examples.splitlines()), ".fi"]
    if not page.path:
        lines += [".SH EXIT CODES", *_list(exit_code_rows())]
        lines += [".SH ENVIRONMENT", *_list(ENVIRONMENT)]
    else:
        lines += [".SH SEE ALSO", ".BR kvg (1)", "for the global options and the exit codes."]
    return "\n".join(lines) + "\n"


def write(folder: Path) -> None:
    """Write every page into ``folder``, and remove those of verbs that are gone."""
    from kvg import durable

    durable.make_dir(folder)
    wanted = dict(_files())
    for name, data in wanted.items():
        durable.replace(folder / name, [data], staging=folder)
    for path in folder.glob("*.1"):
        if path.name not in wanted:
            durable.remove(path)


def drift(folder: Path) -> list[str]:
    """The names of the pages in ``folder`` that differ from what ``write`` would write."""
    wanted = dict(_files())
    found = {path.name: path.read_bytes() for path in folder.glob("*.1")}
    return sorted(
        name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name)
    )


def _files() -> Iterator[tuple[str, bytes]]:
    for name, page in pages():
        yield f"{name}.1", roff_of(name, page).encode("utf-8")


def _paragraphs(texts: tuple[str, ...]) -> Iterator[str]:
    for number, text in enumerate(texts):
        if number:
            yield ".PP"
        yield _text(text)


def _list(rows: Rows) -> Iterator[str]:
    for term, text in rows:
        yield ".TP"
        yield f".B {_text(term)}"
        yield _text(text) or "\\&"


def _text(text: str) -> str:
    """``text`` safe from being read as a request, with hyphens that can be copied."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + escaped if escaped[:1] in (".", "'") else escaped


def _quoted(text: str) -> str:
    return '"' + _text(text).replace('"', '""') + '"'


def main(argv: list[str]) -> int:
    """The program. Returns its exit code."""
    if argv[:1] == ["--check"] and len(argv) == 2:
        names = drift(Path(argv[1]))
        for name in names:
            print(f"{argv[1]}/{name}: not up to date; make man", file=sys.stderr)  # noqa: T201
        return 1 if names else 0
    if len(argv) == 1:
        write(Path(argv[0]))
        return 0
    print("usage: python -m kvg.cli.man [--check] DIR", file=sys.stderr)  # noqa: T201
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
