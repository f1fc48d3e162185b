"""The words of a question that say what it is about, and how they stand in a text."""

from __future__ import annotations

import re

MAX_WORDS = 64
LEAST_STEM = 3
"""Letters of a word without its ending, at least."""

_WORD = re.compile(r"\w+")
_ENDING = re.compile(r"(?:ies|es|s|ed|ing|e|y)$")
_STOP_WORDS = (
    "a about after all also am an and any are as at be because been before being but by can "
    "could did do does doing down during each for from had has have having he her here hers him "
    "his how i if in into is it its just may me might more most must my no nor not of off on "
    "once only or other our out over own shall she should so some such than that the their them "
    "then there these they this those through to too under until up very was we were what when "
    "where which while who whom whose why will with would you your"
)
_STOP = frozenset(_STOP_WORDS.split())


def words_of(text: str) -> list[str]:
    """The words of ``text`` in small letters, each once, in order; a name keeps its ``_``."""
    return list(dict.fromkeys(word.lower() for word in _WORD.findall(text)))


def telling_words(text: str) -> list[str]:
    """The words to look for: without those that stand in every English text, unless all do."""
    words = words_of(text)
    return ([word for word in words if word not in _STOP] or words)[:MAX_WORDS]


def stem(word: str) -> str:
    """What ``word`` begins with in its other forms: without an English ending; short ones whole."""
    cut = _ENDING.sub("", word)
    return cut if len(cut) >= LEAST_STEM else word


def holds(row: str, beginning: str) -> bool:
    """Whether a word of ``row``, or a part of a name at ``_``, begins so; is it, if it is short."""
    end = "" if len(beginning) >= LEAST_STEM and beginning.isalpha() else r"(?![^\W_])"
    return re.search(rf"(?<![^\W_]){re.escape(beginning)}{end}", row, re.IGNORECASE) is not None
