"""Canonical text: a problem's wording with its literals taken out as typed slots."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kvg.errors import UsageError
from kvg.frozen import frozen
from kvg.problem.code import code_digest, read_code, unread_digest
from kvg.problem.literals import WHITE_SPACE, Literal, Scanner
from kvg.problem.looking import asks_of_errors, words_of

if TYPE_CHECKING:
    from ast import Module

MAX_TEXT_CHARS: Final = 1 << 20
_OPENING: Final = "```python"
_CLOSING: Final = "```"
_PLAIN: Final = re.compile(r"[^\[\"“`0-9+\-−{}]+")


@frozen
class CanonicalText:
    """Wording with placeholders ``{i:type}`` and ``{code:…}``, and the literals that they replace.

    Braces of the wording itself are doubled, so that a placeholder can't be forged.
    """

    text: str
    slots: tuple[Literal, ...]

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(slot.type for slot in self.slots)


def canonical_text(text: str) -> CanonicalText:
    """The canonical form of ``text``; two texts have one family when theirs is the same.

    A fenced block that this Python can't read counts letter by letter. Raises ``UsageError`` for
    what is not Unicode text, is empty, or is longer than ``MAX_TEXT_CHARS``.
    """
    if len(text) > MAX_TEXT_CHARS:
        raise UsageError(f"problem of {len(text)} characters: more than {MAX_TEXT_CHARS}")
    _check_unicode(text)
    text = _in_lines(text)
    blocks = _blocks(text)
    scanner, parts, slots = Scanner(text), list[str](), list[Literal]()
    places: dict[int, _Block] = {}
    at = 0
    while at < len(text):
        if at in blocks:
            places[len(parts)] = blocks[at]
            parts.append("")
            at = blocks[at].end
            continue
        literal = scanner.at(at)
        if literal is not None:
            parts.append(f"{{{len(slots)}:{literal.type}}}")
            slots.append(literal)
            at += len(literal.raw)
            continue
        end = _plain_end(text, at)
        parts.append(text[at:end].replace("{", "{{").replace("}", "}}"))
        at = end
    for place, digest in _addressed(places, parts, slots):
        parts[place] = f"{{code:{digest}}}"
    joined = _one_space("".join(parts)).strip(" ")
    if not joined:
        raise UsageError("empty problem", hint='kvg family hash --text "Sum 3 and 4."')
    return CanonicalText(unicodedata.normalize("NFC", joined), tuple(slots))


def _check_unicode(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UsageError(f"problem: not Unicode text at character {error.start}") from None


@frozen
class _Block:
    """A fenced block: where it ends, its source, and what that is; None where it can't be read."""

    end: int
    source: str
    tree: Module | None


def _in_lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _blocks(text: str) -> dict[int, _Block]:
    """The fenced blocks, by where each starts."""
    found: dict[int, _Block] = {}
    if _OPENING not in text:
        return found
    opened: tuple[int, int] | None = None
    at = 0
    for line in text.split("\n"):
        end = at + len(line)
        mark = line.rstrip(" \t")
        if opened is None and mark == _OPENING:
            opened = (at, end + 1)
        elif opened is not None and mark == _CLOSING:
            source = text[opened[1] : at]
            found[opened[0]] = _Block(end, source, read_code(source))
            opened = None
        at = end + 1
    return found


def has_code(text: str) -> bool:
    """Whether ``text`` has a block that counts as Python does."""
    return any(block.tree is not None for block in _blocks(_in_lines(text)).values())


def unread_line(text: str) -> int | None:
    """The number of the line that opens the first block that this Python can't read."""
    text = _in_lines(text)
    unread = (at for at, block in _blocks(text).items() if block.tree is None)
    return next((text.count("\n", 0, at) + 1 for at in unread), None)


def indented_line(text: str) -> int | None:
    """The number of the first line outside of blocks that begins with white space before a word."""
    text = _in_lines(text)
    blocks = _blocks(text)
    at, inside = 0, 0
    for number, line in enumerate(text.split("\n"), 1):
        if at in blocks:
            inside = blocks[at].end
        if at >= inside and number > 1 and line[:1].isspace() and line.strip():
            return number
        at += len(line) + 1
    return None


def _addressed(
    places: Mapping[int, _Block], parts: Sequence[str], slots: Sequence[Literal]
) -> Iterator[tuple[int, str]]:
    """The digest of each block, by its place. Words of the wording, and of other blocks, may speak
    of its names, so these count; where a slot is a string, or errors are asked for, each may be
    meant."""
    if not places:
        return
    wording = words_of(" ".join(parts))
    all_count = any("str" in slot.type for slot in slots) or asks_of_errors(wording)
    by_block = {place: words_of(block.source) for place, block in places.items()}
    spoken = Counter(word for words in by_block.values() for word in words)
    for place, block in places.items():
        of_others = {word for word in by_block[place] if word in wording or spoken[word] > 1}
        if block.tree is None:
            yield place, unread_digest(block.source)
        else:
            yield place, code_digest(block.tree, None if all_count else of_others)


def _plain_end(text: str, at: int) -> int:
    """The end of the stretch from ``at`` in which no literal and no block can start."""
    found = _PLAIN.match(text, at)
    return found.end() if found else at + 1


def _one_space(text: str) -> str:
    """Every run of white space as one space. Placeholders hold none."""
    words, word = [], list[str]()
    in_space = False
    for char in text:
        if char in WHITE_SPACE:
            if not in_space:
                words.append("".join(word))
                word.clear()
            in_space = True
        else:
            in_space = False
            word.append(char)
    words.append("".join(word))
    return " ".join(words)
