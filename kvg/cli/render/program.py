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
    value = record.value
    if isinstance(value, bool):
        shown = "true" if value else "false"
    elif isinstance(value, tuple):
        shown = " ".join(str(item) for item in value)
    else:
        shown = str(value)
    if record.key == "":
        yield f"{shown}\n"
    elif record.source is not None:
        yield f"{record.origin}:{record.source}\t{record.key} = {shown}\n"
    else:
        yield f"{record.key} = {shown}\n"


RENDERERS = cast("dict[str, Renderer]", {"version": version, "help": help_text, "setting": setting})
