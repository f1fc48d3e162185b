"""Values of arguments that are more than a number or a path."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Annotated, Literal

from kvg.cli.declare import Option
from kvg.errors import UsageError

_SPAN = r"(\d{1,6})([smhdw])"
_SIZE = r"(?P<number>\d{1,18}(?:\.\d{1,6})?) ?(?:(?P<unit>[KMGTkmgt])(?P<binary>[iI])?)?[Bb]?"
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
STDIN = "-"
MAX_PROBLEM_BYTES = 4 << 20
"""Of UTF-8: a problem has no more than 1 << 20 characters."""
NoSandbox = Annotated[
    bool,
    Option("--no-sandbox", help="Run it without one; what is signed will say so."),
]


def known_gates(names: list[str] | None) -> list[str] | None:
    """``names`` of gates that are required. Raises ``UsageError`` for one that nothing passes."""
    if names:
        from kvg.verify.judgement import check_requirement

        for name in names:
            check_requirement(name, what="--require")
    return names


def parse_moment(text: str, *, option: str, ahead: bool) -> int:
    """Unix seconds of a date, an ISO moment, seconds since 1970, or a span such as ``30d``.

    A span counts forward from now when ``ahead``, else back. Without a zone UTC is meant.
    """
    from datetime import UTC, datetime

    span = re.fullmatch(_SPAN, text, re.ASCII)
    if span is not None:
        seconds = int(span[1]) * _SECONDS[span[2]]
        return int(time.time()) + (seconds if ahead else -seconds)
    if text.isdecimal() and len(text) <= 12:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
        return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError):
        raise UsageError(
            f"{option} {text}: not a moment", hint=f"e.g. {option} 2027-01-31, or {option} 30d"
        ) from None


def parse_span(text: str, *, option: str) -> float:
    """Seconds of ``90``, ``30m``, ``8h``. Raises ``UsageError``."""
    span = re.fullmatch(_SPAN, text, re.ASCII)
    if span is not None:
        return float(int(span[1]) * _SECONDS[span[2]])
    if re.fullmatch(r"\d{1,9}(\.\d{1,3})?", text, re.ASCII):
        return float(text)
    raise UsageError(f"{option} {text[:40]}: not a span of time", hint=f"e.g. {option} 30m")


def parse_percent(text: str, *, option: str) -> float:
    """``5%`` or ``5``: more than 0, up to 100. Raises ``UsageError``."""
    digits = text.removesuffix("%").strip()
    if re.fullmatch(r"\d{1,3}(\.\d{1,6})?", digits, re.ASCII) and 0 < float(digits) <= 100:
        return float(digits)
    raise UsageError(f"{option} {text[:40]}: not a percentage", hint=f"e.g. {option} 5%")


def parse_dtype(text: str) -> Literal["BF16", "F16", "F32"]:
    """``BF16``, ``F16`` or ``F32``, however it is spelled. Raises ``UsageError``."""
    spellings: dict[str, Literal["BF16", "F16", "F32"]] = {
        "bf16": "BF16",
        "bfloat16": "BF16",
        "f16": "F16",
        "fp16": "F16",
        "float16": "F16",
        "f32": "F32",
        "fp32": "F32",
        "float32": "F32",
    }
    found = spellings.get(text.lower())
    if found is None:
        raise UsageError(f"--dtype {text[:40]}: not a dtype", hint="BF16, F16 or F32")
    return found


def parse_size(text: str) -> int | None:
    """``250GB``, ``10GiB`` or a number of bytes, as bytes; None for ``none``."""
    if text == "none":
        return None
    found = re.fullmatch(_SIZE, text, re.ASCII)
    if found is None:
        raise UsageError(f"{text}: not a size", hint="e.g. 250GB, 10GiB, 1000000, or none")
    power = "KMGT".find(found["unit"].upper()) + 1 if found["unit"] else 0
    return int(float(found["number"]) * (1024 if found["binary"] else 1000) ** power)


def parse_numbers(text: str | None, *, option: str) -> tuple[int, ...]:
    """``1,2,3``. Raises ``UsageError``."""
    if text is None:
        return ()
    parts = text.split(",")
    if not all(re.fullmatch(r" *\d{1,18} *", part, re.ASCII) for part in parts):
        raise UsageError(
            f"{option} {text[:80]}: not numbers with commas between", hint=f"e.g. {option} 16,256"
        )
    return tuple(int(part) for part in parts)


def split_ref_and_files(words: list[str], *, has_source: bool) -> tuple[str | None, list[str]]:
    """What ``[REF] FILE…`` means: the ref, None when a file's stem is to give it, and the files.

    ``has_source``: the text comes from an option, so that a word can only be the ref. ``-`` is
    standard input.
    """
    if has_source:
        if len(words) > 1:
            raise UsageError(
                f"{words[1]}: the text is given by an option already", hint="kvg deposit --help"
            )
        return (words[0] if words else None), []
    if len(words) < 2:
        return None, words
    first = words[0]
    if not Path(first).is_file() or (words[1:] == [f"./{first}"] or words[1:] == [first]):
        return first, words[1:]
    if re.fullmatch(r"[a-z0-9_-]+", first):
        raise UsageError(f"{first}: a ref or a file?", hint=f"write ./{first} for the file")
    return None, words


def problem_text(file: Path | None, text: str | None, *, ways: str) -> str:
    """A problem given in words, in a file, or on standard input (``-``): ``ways`` says how.

    Raises ``UsageError`` unless it is given once.
    """
    from kvg.cli.invocation import stdin_bytes

    if (file is None) == (text is None):
        raise UsageError("give the problem once", hint=f"as {ways}")
    if file is None:
        return text or ""
    if str(file) == STDIN:
        data = stdin_bytes(MAX_PROBLEM_BYTES)
    else:
        data = read_bytes(file, MAX_PROBLEM_BYTES)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"{file}: not UTF-8 text") from None


def read_bytes(path: Path, most: int) -> bytes:
    """The bytes of a file that was named on the command line. Raises ``UsageError`` for more than
    ``most``."""
    from kvg import durable
    from kvg.cli.invocation import read_at_most

    if path.is_dir():
        raise UsageError(f"{path}: a folder, not a file")
    with durable.translated(path), open(path, "rb") as file:
        return read_at_most(file, most, what=str(path))
