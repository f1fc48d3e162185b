"""What a gate is asked for: ``KIND:ARGUMENT``, and the kinds that there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kvg.errors import UsageError
from kvg.frozen import frozen

FORMAL: Final = "formal"
TEST: Final = "test"
CONSISTENCY: Final = "consistency"
SEEDS: Final = 88
"""How many seeds have to agree, where it is not said."""
TEMPERATURE: Final = 0.7
"""How freely each seed chooses, where it is not said."""
_LEAST_TEMPERATURE: Final = 0.1


@frozen
class Kind:
    """A kind of gate. ``proves`` is what it counts as in a policy: formal, test or consistency."""

    name: str
    proves: str
    argument: str
    summary: str


KINDS: Final[Mapping[str, Kind]] = {
    kind.name: kind
    for kind in (
        Kind("cmd", TEST, "COMMAND", "a program that reads text.txt and answer.txt and exits 0"),
        Kind(
            "pytest",
            TEST,
            "FILE",
            "tests that import answer or read answer.txt; every assertion must run",
        ),
        Kind(
            "python-assert",
            TEST,
            "FILE|EXPRESSION",
            "assertions about text and answer; import answer runs it apart",
        ),
        Kind("smt", FORMAL, "[FILE]", "z3: the constraints hold for the answer and for no other"),
        Kind(
            "coq",
            FORMAL,
            "[FILE]",
            "coqc: a proof of FILE's statement, else of its own; no goal admitted, no other axioms",
        ),
        Kind(
            "lean",
            FORMAL,
            "[FILE]",
            "lean: a proof of FILE's statement, else of its own; no sorry, no other axioms",
        ),
        Kind(
            "consistency",
            CONSISTENCY,
            "[K][?temperature=T]",
            f"K seeds give one answer; {SEEDS} and {TEMPERATURE} if left out",
        ),
    )
}


@frozen
class Spec:
    """One gate: its kind, its argument, and options (``axioms=a,b`` after a ``?``)."""

    text: str
    kind: Kind
    argument: str
    options: Mapping[str, str]

    @property
    def gate(self) -> str:
        """The name under which it is attested; what stands before the colon is what it proves."""
        if self.kind.proves == CONSISTENCY:
            return f"{CONSISTENCY}:{self.n_seeds}"
        return f"{self.kind.proves}:{self.kind.name}"

    @property
    def n_seeds(self) -> int:
        return int(self.argument or SEEDS)

    @property
    def temperature(self) -> float:
        """How freely each seed chooses."""
        return float(self.options.get("temperature", TEMPERATURE))

    @property
    def axioms(self) -> frozenset[str]:
        """The axioms that a proof may rest on."""
        return frozenset(word for word in self.options.get("axioms", "").split(",") if word)


def parse_spec(text: str) -> Spec:
    """``KIND:ARGUMENT``. Raises ``UsageError``."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"gate {text[:80]!r}: not UTF-8", hint="rename the file") from None
    name, _, argument = text.partition(":")
    if "?" in name:  # options without an argument
        name, argument = name[: name.index("?")], text[text.index("?") :]
    kind = KINDS.get(name)
    if kind is None:
        raise UsageError(f"gate {text[:80]!r}: no such kind of gate", hint="kvg gate list")
    options: dict[str, str] = {}
    if kind.proves in _OPTIONS:
        argument, _, query = argument.partition("?")
        options = dict(_option(text, kind, part) for part in query.split("&") if part)
    if kind.proves == CONSISTENCY and argument and not is_count(argument):
        raise UsageError(f"gate {text}: not a number of seeds from 2 up", hint="consistency:88")
    if not argument and not kind.argument.startswith("["):
        raise UsageError(f"gate {text}: no {kind.argument}", hint=f"{name}:{kind.argument}")
    return Spec(text, kind, argument, options)


def is_count(text: str) -> bool:
    """Whether ``text`` is a number of seeds that can agree or not."""
    return text.isascii() and text.isdecimal() and len(text) <= 6 and int(text) >= 2


_OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    FORMAL: ("axioms=NAME,NAME", "any"),
    CONSISTENCY: ("temperature=T",),
}
"""What may stand after the ``?``, by what a kind of gate proves."""


def _option(text: str, kind: Kind, part: str) -> tuple[str, str]:
    name, is_set, value = part.partition("=")
    known = {form.partition("=")[0]: "=" in form for form in _OPTIONS[kind.proves]}
    if name not in known or known[name] != bool(is_set):
        hint = " or ".join(f"?{form}" for form in _OPTIONS[kind.proves])
        raise UsageError(f"gate {text}: option {part!r}", hint=hint)
    if name == "temperature":
        _check_temperature(text, value)
    return name, value


def _check_temperature(text: str, value: str) -> None:
    try:
        is_one = _LEAST_TEMPERATURE <= float(value) <= 2.0
    except ValueError:
        is_one = False
    if not is_one:
        raise UsageError(
            f"gate {text}: not a temperature from {_LEAST_TEMPERATURE} to 2",
            hint="near 0 every seed gives one answer, whatever it is worth",
        )
