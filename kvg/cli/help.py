"""Help pages: one description of a verb, from which its help and its man page are made."""

from __future__ import annotations

import inspect
import shutil
import textwrap
from typing import TYPE_CHECKING

from typer.core import TyperArgument, TyperOption

from kvg.cli.table import SECTIONS, VERBS, Verb
from kvg.errors import KINDS, UsageError
from kvg.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kvg.cli.group import VerbCommand

Rows = tuple[tuple[str, str], ...]


@frozen
class Page:
    """What is said about one verb. ``tables`` are (heading, (term, description) rows)."""

    path: tuple[str, ...]
    summary: str
    usage: tuple[str, ...]
    description: tuple[str, ...]
    tables: tuple[tuple[str, Rows], ...]
    examples: str
    footer: str = ""


def page_of(command: VerbCommand) -> Page:
    """The page of one verb."""
    from kvg.cli.group import global_params

    shared = {id(param) for param in global_params()}
    own = [param for param in command.params if id(param) not in shared]
    arguments = [p for p in own if isinstance(p, TyperArgument) and not p.hidden]
    options = [p for p in own if isinstance(p, TyperOption) and not p.hidden]
    global_options = [p for p in global_params() if p.name != "dry_run" or command.has_dry_run]
    paragraphs = _paragraphs(command.help or "")
    return Page(
        path=command.path,
        summary=command.summary,
        usage=(
            " ".join(("kvg", *command.path, *map(_usage_word, arguments), *_options_word(options))),
        ),
        description=paragraphs[1:],
        tables=tuple(
            (heading, rows)
            for heading, rows in (
                ("arguments", tuple((_argument_term(p), p.help or "") for p in arguments)),
                ("options", tuple(_option_row(p) for p in options)),
                ("global options", tuple(_option_row(p) for p in global_options)),
            )
            if rows
        ),
        examples=inspect.cleandoc(command.examples),
    )


def group_page(verb: Verb) -> Page:
    """The page of a verb that has verbs of its own."""
    return Page(
        path=(verb.name,),
        summary=verb.summary,
        usage=(f"kvg {verb.name} VERB …",),
        description=(),
        tables=((f"verbs of {verb.name}", verb.subverbs),),
        examples="",
        footer=f"kvg {verb.name} VERB --help shows one of them.",
    )


def root_page() -> Page:
    """The page of ``kvg`` itself, the everyday verbs first."""
    tables = tuple(
        (
            section,
            tuple((v.name, v.summary) for v in VERBS if v.section == section and not v.hidden),
        )
        for section in SECTIONS
    )
    return Page(
        path=(),
        summary="git and cosign for KV caches",
        usage=("kvg [GLOBAL OPTIONS] VERB …",),
        description=(),
        tables=(*tables, ("global options", global_rows())),
        examples="",
        footer=(
            "kvg VERB --help shows a verb with examples, kvg help exit-codes the exit codes,\n"
            "kvg help environment the variables that are read."
        ),
    )


def global_rows() -> Rows:
    """The global options as rows."""
    from kvg.cli.group import global_params

    return tuple(_option_row(param) for param in global_params())


def exit_code_rows() -> Rows:
    """The exit codes, from the taxonomy of errors."""
    return (
        ("0", "done"),
        *((str(kind.code), f"{kind.kind}: {kind.meaning}") for kind in KINDS),
    )


ENVIRONMENT: Rows = (
    ("KVG_STORE", "the store, as --store"),
    ("KVG_DEVICE", "where to compute, as --device"),
    ("KVG_KEY_FILE", "a private key file that signs in place of the user's keys"),
    ("KVG_PASSPHRASE_FD", "a file descriptor from which the key's passphrase is read"),
    ("KVG_PASSPHRASE_FILE", "a file that holds the passphrase"),
    ("KVG_PASSPHRASE_COMMAND", "a command that prints the passphrase"),
    ("KVG_SSH_COMMAND", "the command that reaches ssh:// remotes; ssh if unset"),
    ("AWS_*", "the login, region and endpoint of s3:// remotes, as other tools read them"),
    ("DOCKER_CONFIG", "the folder of docker's config.json, with the logins of oci:// remotes"),
    (
        "http_proxy, https_proxy",
        "the proxy of such remotes, and of oci:// ones; all_proxy: of both",
    ),
    ("no_proxy", "hosts and domains that are reached without a proxy"),
    ("XDG_CONFIG_HOME", "the user's configuration is kvg/config.toml in it; ~/.config if unset"),
    ("XDG_DATA_HOME", "the user's keys are kvg/keys in it; ~/.local/share if unset"),
    ("XDG_CACHE_HOME", "caches are in kvg in it; ~/.cache if unset"),
    ("NO_COLOR, FORCE_COLOR", "turn colour off, on"),
    ("TERM=dumb, CI", "no colour (TERM=dumb), no progress bars and no prompts"),
)
TOPICS: dict[str, Rows] = {"environment": ENVIRONMENT}


def topic_text(name: str) -> str:
    """The text of ``kvg help TOPIC``. Raises ``UsageError``."""
    if name == "exit-codes":
        return _table_text("exit codes", exit_code_rows(), _width())
    if name not in TOPICS:
        raise UsageError(f"{name}: no such verb or topic", hint="kvg help")
    return _table_text(name, TOPICS[name], _width())


def text_of(page: Page) -> str:
    """``page`` for a terminal."""
    width = _width()
    title = " ".join(("kvg", *page.path))
    parts = [f"{title}: {page.summary}", "usage: " + "\n       ".join(page.usage)]
    parts += [textwrap.fill(paragraph, width) for paragraph in page.description]
    parts += [_table_text(heading, rows, width) for heading, rows in page.tables]
    if page.examples:
        parts.append("examples:\n" + textwrap.indent(page.examples, "  "))
    if page.footer:
        parts.append(page.footer)
    return "\n\n".join(parts)


def _table_text(heading: str, rows: Rows, width: int) -> str:
    column = min(max(len(term) for term, _ in rows), 30) + 2
    lines = [f"{heading}:"]
    for term, text in rows:
        wrapped = textwrap.wrap(text, max(width - column - 2, 30)) or [""]
        if len(term) + 2 > column:
            lines.append(f"  {term}")
            lines += [" " * (column + 2) + line for line in wrapped]
        else:
            lines.append(f"  {term:<{column}}{wrapped[0]}".rstrip())
            lines += [" " * (column + 2) + line for line in wrapped[1:]]
    return "\n".join(lines)


def _paragraphs(text: str) -> tuple[str, ...]:
    blocks = inspect.cleandoc(text).split("\n\n")
    return tuple(" ".join(block.split()) for block in blocks)


def _usage_word(param: TyperArgument) -> str:
    word = _argument_term(param)
    return word if param.required or word.startswith("[") else f"[{word}]"


def _argument_term(param: TyperArgument) -> str:
    name = param.metavar or param.name.upper().rstrip("_")
    return name + "…" if param.nargs != 1 and not name.endswith("…") else name


def _options_word(options: Iterable[TyperOption]) -> tuple[str, ...]:
    return ("[OPTIONS]",) if tuple(options) else ()


def _option_row(param: TyperOption) -> tuple[str, str]:
    names = ", ".join(sorted(param.opts, key=len))
    if not param.is_flag and not param.count:
        names += f" {param.metavar or param.name.upper()}"
    return names, param.help or ""


def _width() -> int:
    return max(min(shutil.get_terminal_size((100, 24)).columns, 100), 40)
