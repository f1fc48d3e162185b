"""From records to text, JSON or JSON Lines on standard output. One renderer per record type."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar, cast

from kvg.errors import Bug, most_severe
from kvg.flow.records import SCHEMA_VERSION, Record
from kvg.frozen import frozen

if TYPE_CHECKING:
    from kvg.cli.invocation import Globals
    from kvg.cli.terminal import Terminal


@frozen
class Raw:
    """Bytes for standard output as they are: an object, a script, names ended by NUL."""

    data: bytes | bytearray | memoryview


class View:
    """What a renderer may ask: the terminal, how much to say, and where asides go (stderr)."""

    __slots__ = ("aside", "quiet", "streamed", "terminal", "verbose")

    def __init__(
        self, terminal: Terminal, quiet: bool, verbose: bool, aside: Callable[[str], None]
    ) -> None:
        self.terminal = terminal
        self.quiet = quiet
        self.verbose = verbose
        self.aside = aside
        self.streamed = False

    @property
    def person(self) -> bool:
        """Whether a person reads standard output."""
        return self.terminal.out_tty


Renderer = Callable[[Record, View], Iterable[str]]
"""Yields pieces of text for standard output, with their line ends."""

_HOMES: dict[str, str] = {
    "preregistration": "prereg",
    "prereg-sample": "prereg",
    "prereg-summary": "prereg",
    "acceptance-run": "bench",
    "acceptance-summary": "bench",
    "capability-run": "bench",
    "capability-summary": "bench",
    "recurring-run": "bench",
    "recurring-summary": "bench",
    "bench-machine": "bench",
    "bench-setup": "bench",
    "context-access": "bench",
    "context-bench-summary": "bench",
    "energy-row": "bench",
    "restore-other": "bench",
    "restore-part": "bench",
    "restore-row": "bench",
    "restore-skipped": "bench",
    "restore-verified": "bench",
    "store-deposit": "bench",
    "store-row": "bench",
    "restore-stage": "bench",
    "restore-summary": "bench",
    "select-batch": "bench",
    "select-summary": "bench",
    "select-time": "bench",
    "exactness-run": "bench",
    "exactness-row": "bench",
    "exactness-summary": "bench",
    "logits-moved": "bench",
    "speed-row": "bench",
    "keys-moved": "bench",
    "own-position-summary": "bench",
    "session": "sessions",
    "slot": "sessions",
    "context": "contexts",
    "context-answer": "contexts",
    "context-block": "contexts",
    "context-made": "contexts",
    "context-passage": "contexts",
    "context-place": "contexts",
    "deposited": "computed",
    "deposit-plan": "computed",
    "text": "computed",
    "graft": "computed",
    "logits": "computed",
    "replay": "computed",
    "replay-summary": "computed",
    "model": "models",
    "check": "models",
    "doctor-summary": "models",
    "version": "program",
    "help": "program",
    "setting": "program",
    "store": "stores",
    "remote-state": "status",
    "status": "status",
    "log-entry": "stores",
    "receipt": "stores",
    "checkpoint": "stores",
    "cosignature": "stores",
    "reindexed": "stores",
    "repaired": "upkeep",
    "fsck-summary": "upkeep",
    "collected": "upkeep",
    "usage": "upkeep",
    "usage-summary": "upkeep",
    "stats": "upkeep",
    "quota": "upkeep",
    "remaining": "upkeep",
    "remote-collected": "exchange",
    "remote-forgotten": "exchange",
    "forgotten": "upkeep",
    "bundle": "exchange",
    "bundle-ref": "exchange",
    "lock": "exchange",
    "transfer": "exchange",
    "transfer-ref": "exchange",
    "remote": "exchange",
    "remote-ref": "exchange",
    "offered-key": "exchange",
    "ref": "refs",
    "ref-moved": "refs",
    "pin": "refs",
    "digest": "refs",
    "artifact": "artifacts",
    "attestation": "artifacts",
    "difference": "artifacts",
    "diff-summary": "artifacts",
    "object": "artifacts",
    "family": "flywheel",
    "answer": "flywheel",
    "gate": "flywheel",
    "gate-kind": "flywheel",
    "method": "flywheel",
    "stale-method": "flywheel",
    "finding": "findings",
    "verify-summary": "findings",
    "key": "keys",
    "public-key": "keys",
    "trusted-key": "keys",
    "audit": "audit",
    "audited-artifact": "audit",
    "saying": "audit",
    "published-figure": "audit",
    "revocation": "keys",
    "rekeyed": "keys",
    "threshold": "keys",
    "trust-summary": "keys",
}


class Output:
    """Standard output of one run."""

    def __init__(self, given: Globals) -> None:
        self._given = given
        self._view: View | None = None

    def write(self, result: object) -> int:
        """Write what a verb returned. Returns the exit code: that of the most severe record.

        Where nobody reads it any more, the flow still comes to its end, unless all that it does is
        to show something: no verdict is lost.
        """
        codes: list[int] = []
        for item in _items(result):
            codes.append(0 if isinstance(item, Raw) else item.exit_code)
            try:
                self._write_one(item)
            except BrokenPipeError:
                silence_stdout()
                if self._given.shows:
                    break
        self._write_kept()
        return most_severe(codes)

    def _write_one(self, item: Record | Raw) -> None:
        if isinstance(item, Raw):
            sys.stdout.flush()
            sys.stdout.buffer.write(item.data)
            return
        if self._given.json:
            sys.stdout.write(json_line(item) + "\n")
        else:
            for piece in renderer(item.type)(shown(item), self._get_view()):
                sys.stdout.write(piece)
        if item.type == "text":
            sys.stdout.flush()

    def _get_view(self) -> View:
        if self._view is None:
            from kvg.cli.invocation import Invocation

            run = self._given.run or Invocation(self._given)
            self._view = View(
                run.terminal, self._given.quiet, self._given.verbose, run.report.notice
            )
        return self._view

    def _write_kept(self) -> None:
        """Under ``--json``, what would have been notices and warnings, as JSON on stderr."""
        run = self._given.run
        if run is None or not self._given.json or not run.report.kept:
            return
        import json

        for kind, text in run.report.kept:
            line = {"type": kind, "schema_version": SCHEMA_VERSION, "message": text}
            print(json.dumps(line), file=sys.stderr)  # noqa: T201


def silence_stdout() -> None:
    """Point standard output to nowhere, so that what is still written to it stays quiet."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
    except (OSError, ValueError):
        pass


def renderer(record_type: str) -> Renderer:
    """The renderer of a record type."""
    module = importlib.import_module(f"kvg.cli.render.{_HOMES[record_type]}")
    renderers: dict[str, Renderer] = module.RENDERERS
    return renderers[record_type]


VERBATIM = frozenset(("text", "answer"))
"""Fields that hold what a model or a program wrote: what becomes of it, their renderer says."""

T = TypeVar("T")


def shown(value: T) -> T:
    """``value`` with every string in it harmless on a terminal: whoever signed it chose the words.

    A record that holds none to be changed is given back as it is.
    """
    from kvg.cli.terminal import printable

    kind: type = type(value)
    made: object = value
    if isinstance(value, str):
        made = value if value.isprintable() else printable(value)
    elif kind is tuple:
        made = tuple(map(shown, cast("tuple[object, ...]", value)))
    elif isinstance(value, Mapping):
        made = {shown(key): shown(item) for key, item in value.items()}
    elif hasattr(kind, "__dataclass_fields__"):
        made = _shown_record(value)
    return cast("T", value if made == value else made)


def _shown_record(record: object) -> object:
    names: tuple[str, ...] = type(record).__match_args__  # type: ignore[attr-defined]
    found = {name: getattr(record, name) for name in names}
    made = {name: item if name in VERBATIM else shown(item) for name, item in found.items()}
    if all(made[name] is found[name] for name in names):
        return record
    copy: object = object.__new__(type(record))  # its own checks were passed by what was said
    for name, item in made.items():
        object.__setattr__(copy, name, item)
    return copy


def json_line(record: Record) -> str:
    """``record`` as one line of ASCII JSON; NaN and infinity, which JSON lacks, become null."""
    import json

    value = {"type": record.type, "schema_version": SCHEMA_VERSION, **_fields(record)}
    return json.dumps(value, separators=(", ", ": "), allow_nan=False)


def _items(result: object) -> Iterator[Record | Raw]:
    if result is None:
        return
    if isinstance(result, Record | Raw):
        yield result
    elif isinstance(result, Iterable):
        for item in result:
            yield from _items(item)
    else:
        raise Bug(f"a verb returned {type(result).__name__}")


def _fields(record: object) -> dict[str, object]:
    from dataclasses import fields

    return {
        field.name: _plain(getattr(record, field.name))
        for field in fields(record)  # type: ignore[arg-type]
    }


def _plain(value: object) -> object:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, Record) or hasattr(value, "__dataclass_fields__"):
        return _fields(value)
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    raise Bug(f"{type(value).__name__} in a record")
