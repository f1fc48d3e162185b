"""Renderers of records about kvg itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from kvg.cli.render import Renderer, View
from kvg.flow.records.program import ConfigEntry, HelpText, Version


def version(record: Version, view: View) -> Iterator[str]:
    yield f"kvg {record.version}\n"


def help_text(record: HelpText, view: View) -> Iterator[str]:
    yield record.text + "\n"


def setting(record: ConfigEntry, view: View) -> Iterator[str]:
    value = "not set" if record.value is None else f"= {shown(record.value)}"
    line = f"{record.key} {value}\n"
    where = "" if record.origin is None else f"{record.origin}\t{record.source or '-'}\t"
    yield where + line


def shown(value: object) -> str:
    """A value as it is written in a configuration."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return " ".join(value) if isinstance(value, tuple) else str(value)


RENDERERS = cast("dict[str, Renderer]", {"version": version, "help": help_text, "setting": setting})
