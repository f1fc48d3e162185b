"""Checks that are programs: what they say of the answer, and whether they look at it at all.

A checker that passes nonsense too has not looked. So each is run again on controls, letters and
digits drawn by chance in the place of the answer, and has to refuse one.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

from kvg import durable
from kvg.canon import Json
from kvg.errors import UsageError
from kvg.gates.apart import MODULE
from kvg.gates.outcome import GateInput, GateOutcome, make_outcome
from kvg.gates.place import MAX_FILE_BYTES, Place, call_record
from kvg.gates.spec import Spec
from kvg.sandbox import Outcome
from kvg.sandbox.enclosure import is_seen, python_program, straight

TEXT_FILE: Final = "text.txt"
ANSWER_FILE: Final = "answer.txt"
_PYTHONS: Final = frozenset({"python", "python3"})

Check: TypeAlias = Callable[[GateInput], "tuple[str, Outcome]"]
"""Runs a checker on an input: (why it refuses it, empty when it does not; the call)."""


def judge(
    spec: Spec, given: GateInput, place: Place, files: dict[str, bytes], check: Check
) -> GateOutcome:
    """The outcome of a checker on ``given``, and on controls once it has passed."""
    reason, outcome = check(given)
    record: dict[str, Json] = {"answer": call_record(outcome), "controls": []}
    if not reason:
        controls: list[Json] = []
        for control in _controls():
            refusal, seen = check(given.with_judged(control))
            controls.append({"refused": refusal, "call": call_record(seen)})
            if refusal:
                break
        else:
            reason = "the checker passes anything: letters and digits drawn by chance, too"
        record["controls"] = controls
    return make_outcome(spec, reason, record, place.configuration(files))


def _controls() -> tuple[bytes, ...]:
    """Rare letters and none else, and digits and none else: what looks for one sees the other."""
    drawn = os.urandom(24)
    letters = bytes(b"qxzjkv"[byte % 6] for byte in drawn)
    return letters + b"\n", b"%d\n" % (10**23 + int.from_bytes(drawn[:9], "big"))


def input_files(given: GateInput) -> dict[str, bytes]:
    """The files in which a checker finds text and answer."""
    return {TEXT_FILE: given.text, ANSWER_FILE: given.judged}


def command_gate(spec: Spec, given: GateInput, place: Place) -> GateOutcome:
    """``cmd:``. Words that name files are sent along; what is judged is on standard input too."""
    argv, files = _command(spec, place)
    installed = {word: data for word in argv if (data := _read_script(place.folder / word))}
    kept = tuple(map(Path, installed))

    def check(item: GateInput) -> tuple[str, Outcome]:
        mine = {**files, **input_files(item)}
        outcome = place.run(argv, mine, stdin=item.judged, answer=item.judged, kept=kept)
        return outcome.reason, outcome

    return judge(spec, given, place, {**files, **installed}, check)


def _command(spec: Spec, place: Place) -> tuple[tuple[str, ...], dict[str, bytes]]:
    try:
        words = shlex.split(spec.argument)
    except ValueError as error:
        raise UsageError(f"gate {spec.text}: {error}") from None
    if not words:
        raise UsageError(f"gate {spec.text}: no command")
    files: dict[str, bytes] = {}
    argv: list[str] = []
    for number, word in enumerate(words):
        path = place.folder / word
        if number == 0 and word in _PYTHONS:
            argv += [python_program(), "-B"]
        elif not durable.is_file(path):
            argv.append(word)
        elif _is_installed(path):
            argv.append(str(straight(path)))
        else:
            name = Path(word).name
            if name in files or name in (TEXT_FILE, ANSWER_FILE, MODULE):
                raise UsageError(f"gate {spec.text}: {name} is the name of another file")
            files[name] = place.read(word)
            argv.append(f"./{name}" if number == 0 else name)
    return tuple(argv), files


def _is_installed(path: Path) -> bool:
    """Whether it is a program of this system, which is run where it lies."""
    return os.access(path, os.X_OK) and is_seen(path)


def _read_script(path: Path) -> bytes:
    """An installed program that can be read like a text, and what it knows in it; else nothing."""
    if not durable.is_file(path) or not _is_installed(path):
        return b""
    with durable.translated(path), open(path, "rb") as file:
        return file.read(MAX_FILE_BYTES) if file.read(2) == b"#!" and not file.seek(0) else b""
