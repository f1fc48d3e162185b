"""What standard output and standard error are connected to, and what may be shown there."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Literal

from kvg.frozen import frozen

ColorChoice = Literal["auto", "always", "never"]

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


@frozen
class Terminal:
    """``out_tty`` and ``err_tty``: a person reads them. ``progress``: bars may be drawn."""

    out_tty: bool
    err_tty: bool
    in_tty: bool
    color_out: bool
    color_err: bool
    progress: bool
    prompts: bool

    def out(self, text: str, style: str) -> str:
        """``text`` for standard output, in ``style`` where colour is on."""
        return _styled(text, style) if self.color_out else text

    def err(self, text: str, style: str) -> str:
        """``text`` for standard error, in ``style`` where colour is on."""
        return _styled(text, style) if self.color_err else text


def look(env: Mapping[str, str], *, color: ColorChoice, progress: bool, quiet: bool) -> Terminal:
    """The terminal as it is. A set ``CI`` and ``TERM=dumb`` mean no bars and no prompts."""
    out_tty, err_tty, in_tty = (_is_tty(s) for s in (sys.stdout, sys.stderr, sys.stdin))
    plain = bool(env.get("CI")) or env.get("TERM") == "dumb"
    return Terminal(
        out_tty=out_tty,
        err_tty=err_tty,
        in_tty=in_tty,
        color_out=_colored(env, color, out_tty),
        color_err=_colored(env, color, err_tty),
        progress=progress and err_tty and not plain and not quiet,
        prompts=in_tty and err_tty and not env.get("CI"),
    )


def printable(text: str) -> str:
    """``text`` with every control character but tab and newline made visible and harmless.

    So are those that turn the direction of what follows, and halves of surrogate pairs, which no
    stream can write.
    """
    if text.isprintable():
        return text
    return "".join(map(_visible, text))


def on_one_line(text: str) -> str:
    """As ``printable``, on one line: for names, which may hold anything."""
    return printable(text).replace("\n", "\\n")


def _visible(char: str) -> str:
    number = ord(char)
    if char not in "\t\n" and (number < 32 or 127 <= number < 160):
        return f"\\x{number:02x}"
    is_turning = char in "\u061c\u200e\u200f" or any(a <= char <= b for a, b in _TURNING)
    return f"\\u{number:04x}" if is_turning or 0xD800 <= number < 0xE000 else char


_TURNING = (("\u202a", "\u202e"), ("\u2066", "\u2069"))


def one_line(text: str) -> str:
    """``text`` in one line, whatever it holds: names come from wherever they come from."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def _colored(env: Mapping[str, str], choice: ColorChoice, tty: bool) -> bool:
    if choice != "auto":
        return choice == "always"
    if env.get("NO_COLOR"):
        return False
    if env.get("FORCE_COLOR"):
        return True
    return tty and env.get("TERM") != "dumb"


def _is_tty(stream: object) -> bool:
    isatty = getattr(stream, "isatty", None)
    try:
        return bool(isatty and isatty())
    except ValueError:  # a closed stream
        return False


def _styled(text: str, style: str) -> str:
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m"
