"""Calls of a function in a program: many instances in one enclosure, a fresh fork for each.

The program is compiled once and run anew in every fork, so nothing of it is carried from one call
to the next. Values go in and out by kind and spelling; nothing is evaluated.
"""

from __future__ import annotations

import json
import os
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from kvg.frozen import frozen
from kvg.gates.forks import NO_ROOM, SERVE, TOO_LARGE, framed
from kvg.sandbox import Enclosure, Job, Limits, Started, start
from kvg.sandbox.enclosure import python_folders
from kvg.sandbox.outcome import ended, limit_met, over
from kvg.sandbox.process import bare_python_argv

if TYPE_CHECKING:
    from datetime import date
    from decimal import Decimal
    from fractions import Fraction
    from pathlib import Path

    from kvg.problem.literals import Literal

Answer: TypeAlias = "bool | int | float | str | Decimal | Fraction | date | list[Answer] | None"

_Last: TypeAlias = "Callable[[Called], _Call | None]"
"""What is to be called last, given what was called before."""

CALL_LIMITS: Final = Limits(wall_s=60.0, cpu_s=10, output_bytes=8 << 20)
KEPT_READY: Final = 2
"""Enclosures that are kept ready: one call after the other takes longer to start than to run."""

MAX_ANSWER_CHARS: Final = 1 << 16
"""Of each text and number in an answer."""
MAX_ANSWER_BYTES: Final = 1_000_000
MAX_ANSWER_DEPTH: Final = 32
"""Lists in lists."""
_OF_LIMITS: Final = ("MemoryError", "OSError", "BlockingIOError", "RuntimeError: can't start new")
"""What Python raises where a limit is met."""
_WHOLE: Final = re.compile(r"-?[0-9]+")
_HARNESS: Final = (
    SERVE
    + r"""
def imported(name, attribute):
    return getattr(__import__(name), attribute)
def inward(v):
    kind, x = v
    if kind == 'list':
        return [inward(i) for i in x]
    if kind == 'decimal':
        return imported('decimal', 'Decimal')(x)
    if kind == 'fraction':
        return imported('fractions', 'Fraction')(x)
    if kind == 'date':
        return imported('datetime', 'date').fromisoformat(x)
    return {'int': int, 'str': str, 'float': float, 'bool': bool}[kind](x) if x is not None else x
def outward(v):
    if isinstance(v, (list, tuple)):
        return ['list', [outward(i) for i in v]]
    name = type(v).__name__
    if v is None or name in ('bool', 'str'):
        return ['none' if v is None else name, v]
    if name in ('int', 'float', 'Decimal', 'Fraction', 'date'):
        return [name.lower(), repr(v) if name == 'float' else str(v)]
    raise TypeError('an answer of type ' + name)
def spelt(v):
    if isinstance(v, list):
        return '[' + ','.join(map(spelt, v)) + ']'
    if isinstance(v, str):
        return '"' + ''.join(map(letter, v)) + '"'
    return {None: 'null', True: 'true', False: 'false'}[v]
def letter(c):
    if ' ' <= c <= '~' and c not in '"\\':
        return c
    units = c.encode('utf-16-be', 'surrogatepass').hex()
    return ''.join('\\u' + units[i:i + 4] for i in range(0, len(units), 4))
nonce, sources = eval(read(0, int(read(0, 16))), {'__builtins__': {}})
out = posix.dup(1)
posix.dup2(2, 1)
codes = [compile(source, 'program.py', 'exec') for source in sources]
def called(program, name, arguments):
    scope = {'__name__': 'program'}
    is_here = type(program) is int
    exec(codes[program] if is_here else compile(program, 'program.py', 'exec'), scope)
    if not callable(scope.get(name)):
        raise TypeError('the program defines no ' + name)
    return outward(scope[name](*arguments))
def work(data):
    try:
        program, name, arguments = eval(data, {'__builtins__': {}})
        return spelt(['value', called(program, name, [inward(v) for v in arguments])]).encode()
    except BaseException as error:
        return spelt(['error', (type(error).__name__ + ': ' + str(error))[:300]]).encode()
serve(0, out, nonce + b' ', work, MOST, b'["value",["bool",true]]')
posix._exit(0)
""".replace("MOST", str(MAX_ANSWER_BYTES))
)


class Caller:
    """Where programs are called. With ``keep_ready`` the next enclosures are started ahead of their
    calls, as ``prepare`` does once; each is still used once. ``close`` ends those not used. Where
    there is no enclosure none is started ahead: what runs could reach it."""

    def __init__(
        self,
        enclosure: Enclosure,
        hidden: tuple[Path, ...] = (),
        limits: Limits | None = None,
        *,
        keep_ready: bool = False,
    ) -> None:
        self.enclosure = enclosure
        self._job = Job(
            bare_python_argv("main.py"),
            files={"main.py": _HARNESS.encode()},
            readable=python_folders(),
            hidden=hidden,
            limits=limits or CALL_LIMITS,
            is_init=True,
        )
        self._is_bare = enclosure.program is None
        self._n_kept = KEPT_READY if keep_ready and not self._is_bare else 0
        self._ready: deque[Started] = deque()
        self._keep()

    def call(
        self, program: bytes, name: str, calls: Sequence[Sequence[Answer]]
    ) -> tuple[Called, ...]:
        """What ``name`` of ``program`` gives for each of ``calls``, in their order.

        Raises ``GateFailed`` where there is no sandbox. All that the program does wrong is told in
        what it gave.
        """
        return tuple(self._made([program], [_Call(0, name, arguments) for arguments in calls]))

    def call_checked(
        self,
        program: bytes,
        checker: bytes,
        arguments: Sequence[Answer],
        *,
        condition: bytes | None = None,
    ) -> Checked:
        """What ``solve`` of ``program`` gives for ``arguments``, and what ``check`` of ``checker``
        says to that answer and them; no verdict where there is no answer.

        Each comes into the enclosure with its call, when the one before has ended there, with all
        that it started and left, and finds nothing of it. Without an enclosure each is called by a
        harness of its own, which is started when that of the one before has ended. Neither is
        called where ``holds`` of the program ``condition`` does not give True for the same
        ``arguments``.
        """
        calls = [_Call(program, "solve", arguments)]
        if condition is not None:
            calls.insert(0, _Call(condition, "holds", arguments, is_condition=True))

        def check(answer: Called) -> _Call | None:
            if answer.error is not None:
                return None
            return _Call(checker, "check", [answer.value, *arguments])

        found = (self._made_apart if self._is_bare else self._made_together)(calls, check)
        if condition is not None:
            is_met, *found = found
            if unmet(is_met) is not None:
                return Checked(unmet(is_met), None, None)
        answer, *verdict = found
        return Checked(None, answer, verdict[0] if verdict else None)

    def _made_together(self, calls: Sequence[_Call], last: _Last) -> list[Called]:
        """What ``calls``, and the one that ``last`` makes, gave in one enclosure."""
        return self._made([], calls, last)

    def _made_apart(self, calls: Sequence[_Call], last: _Last) -> list[Called]:
        """The same, each in a run of its own, up to a condition that is not met."""
        found: list[Called] = []
        for call in calls:
            found += self._made([], [call])
            if call.is_condition and unmet(found[-1]) is not None:
                return found
        more = last(found[-1])
        return found if more is None else [*found, *self._made([], [more])]

    def _made(
        self,
        programs: Sequence[bytes],
        calls: Sequence[_Call],
        last: _Last | None = None,
    ) -> list[Called]:
        """What each of ``calls`` gave, and the one that ``last`` makes of what they ended with."""
        nonce = os.urandom(16).hex().encode()
        given = [framed((nonce, [*programs])), *(call.framed() for call in calls)]
        calls = [*calls]

        def reply(said: bytes) -> bytes | None:
            found = [*_told(said, nonce)]
            if last is None or len(found) < len(calls):
                return None
            more = last(found[-1])
            if more is None:
                return b""
            calls.append(more)
            return more.framed()

        taken = self._take()
        try:
            self._keep()
        finally:
            outcome = taken.finish(b"".join(given), None if last is None else reply)
        found = [*_told(outcome.stdout, nonce)][: len(calls)]  # no call says more than one thing
        missing = Called(None, outcome.reason or "it ended before it gave an answer")
        return [*found, *[missing] * (len(calls) - len(found))]

    def prepare(self) -> None:
        """Start the enclosure of a call to come, which then takes no start. Until that call it is
        given nothing but the harness."""
        self._ready.append(start(self._job, self.enclosure))

    def close(self) -> None:
        """End what is kept ready."""
        while self._ready:
            self._ready.popleft().end()

    def _take(self) -> Started:
        """An enclosure that nothing has run in."""
        while self._ready:
            taken = self._ready.popleft()
            if taken.is_alive:
                return taken
            taken.end()
        return start(self._job, self.enclosure)

    def _keep(self) -> None:
        """Start as many as are to be ready; they come to be while others run."""
        while len(self._ready) < self._n_kept:
            self.prepare()


@frozen
class _Call:
    """One call: which function, of which of the programs or of one that comes with it. After a
    condition that does not give True no other is made."""

    program: int | bytes
    name: str
    arguments: Sequence[Answer]
    is_condition: bool = False

    def framed(self) -> bytes:
        arguments = [encode_value(value) for value in self.arguments]
        return framed((self.program, self.name, arguments), is_condition=self.is_condition)


@frozen
class Called:
    """What one call gave: a value, or why there is none."""

    value: Answer
    error: str | None


@frozen
class Checked:
    """What a checked call gave. ``unmet`` is why it was not made, None where it was; ``verdict``
    is what the checker said, None where there was no answer."""

    unmet: str | None
    answer: Called | None
    verdict: Called | None


def unmet(is_met: Called) -> str | None:
    """Why values are no instance, by what a condition gave for them; None where they are one."""
    if is_met.value is True:
        return None
    failed = "" if is_met.error is None else f": it can't be computed for them: {is_met.error}"
    return f"the values do not meet the constraint{failed}"


def _told(said: bytes, nonce: bytes) -> Iterator[Called]:
    """What each call gave, to the first of which not all has come."""
    stream = BytesIO(said)
    for line in stream:
        match line.split():
            case [first, status, size] if first == nonce:
                body = stream.read(int(size))
                if len(body) < int(size):
                    return
                yield _called(body, int(status))


def _called(body: bytes, status: int) -> Called:
    if status == TOO_LARGE:
        return Called(None, f"the answer takes more than {MAX_ANSWER_BYTES:,} bytes")
    if status or not body.endswith(b"]"):
        return Called(None, _ended(status))
    try:
        kind, said = json.loads(body.decode("utf-8", "replace"))
        if kind != "value":
            return Called(None, _error(str(said)))
        if not _is_unicode(json.dumps(said, ensure_ascii=False)):
            return Called(None, "the answer is not Unicode text")
        return Called(decode_value(said), None)
    except RecursionError:
        return Called(None, "the answer is nested too deeply")
    except (ValueError, TypeError, ArithmeticError) as error:
        return Called(None, f"the answer can't be read: {error}"[:300])


def _ended(status: int) -> str:
    """How a call ended that gave nothing, by what ``waitpid`` said."""
    if status == NO_ROOM:
        return over("files")
    code = os.waitstatus_to_exitcode(status)
    met = limit_met(code, b"")
    return f"{ended(code)} before it gave an answer" if met is None else over(met)


def _error(text: str) -> str:
    """What a call raised: the limit that it met, where it is that which was raised."""
    met = limit_met(1, text.encode()) if text.startswith(_OF_LIMITS) else None
    return text if met is None else over(met)


def refusal(answer: Answer, verdict: Called | None, given: str) -> str | None:
    """Why an answer to what is ``given`` does not count; None where its checker said True."""
    if verdict is None:
        return f"the checker was not called for {given}"
    if verdict.error is not None:
        return f"the checker fails on {given}: {verdict.error}"
    if verdict.value is not True:
        return f"the checker refuses {answer_text(answer)[:80]} for {given}"
    return None


def shown_slots(slots: Sequence[Literal]) -> str:
    """Values as a message names them, cut where they are long."""
    return ", ".join(slot.raw for slot in slots)[:120]


def slot_values(slots: Sequence[Literal]) -> list[Answer]:
    """The values that a program is called with."""
    return [_listed(slot.value) for slot in slots]


def _listed(value: object) -> Answer:
    if isinstance(value, tuple):
        return [_listed(item) for item in value]
    return cast("Answer", value)


def encode_value(value: Answer) -> list[object]:
    """A value with its kind."""
    match value:
        case None:
            return ["none", None]
        case bool():
            return ["bool", value]
        case list():
            return ["list", [encode_value(item) for item in value]]
        case float():
            return ["float", repr(value)]
        case _:
            return [type(value).__name__.lower(), str(value)]


def is_same(one: Answer, other: Answer) -> bool:
    """Whether two answers are printed alike: ``1``, ``1.0`` and ``True`` are three."""
    return encode_value(one) == encode_value(other)


def decode_value(value: object, *, depth: int = 0) -> Answer:
    """The value that ``encode_value`` gave. Raises ``ValueError``, ``ArithmeticError``."""
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError("not a value with its kind")
    kind, content = value
    if kind == "list" and isinstance(content, list):
        if depth == MAX_ANSWER_DEPTH:
            raise ValueError(f"lists in lists, more than {MAX_ANSWER_DEPTH} deep")
        return [decode_value(item, depth=depth + 1) for item in content]
    if kind == "none":
        return None
    if kind == "bool" and isinstance(content, bool):
        return content
    if not isinstance(content, str) or len(content) > MAX_ANSWER_CHARS:
        raise ValueError(f"not text, or longer than {MAX_ANSWER_CHARS:,} characters")
    match kind:
        case "int":
            return int(content)
        case "str":
            if not _is_unicode(content):
                raise ValueError("half a character")
            return content
        case "float":
            return float(content)
        case "decimal":
            from decimal import Decimal

            number = Decimal(content)
            if number.is_snan():  # any comparison with it is an error
                raise ValueError("a signalling NaN")
            return number
        case "fraction":
            from fractions import Fraction

            over, line, under = content.partition("/")
            if not (_WHOLE.fullmatch(over) and (not line or _WHOLE.fullmatch(under))):
                raise ValueError("not a whole number, or one over another")
            return Fraction(int(over), int(under or "1"))
        case "date":
            from datetime import date

            return date.fromisoformat(content)
    raise ValueError("not a kind of value")


def _is_unicode(text: str) -> bool:
    """Whether ``text`` has no half of a surrogate pair, which no file could hold."""
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)


def answer_text(value: Answer) -> str:
    """An answer as it is printed."""
    match value:
        case None:
            return "none"
        case bool():
            return "true" if value else "false"
        case list():
            return "[" + ", ".join(_quoted(item) for item in value) + "]"
        case _:
            return str(value)


def _quoted(value: Answer) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else answer_text(value)
