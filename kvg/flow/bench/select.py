"""``kvg bench select``: families with many near twins, addressed exactly; what each step costs."""

from __future__ import annotations

import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from kvg.digest import Digest, from_raw, raw_of, sha256
from kvg.errors import KvgError, UsageError
from kvg.flow.bench.setup import check_least, cpu_name
from kvg.flow.bench.twins import MOST, STORED, Form, absent_forms, stored_forms
from kvg.flow.records.bench import BenchMachine, SelectBatch, SelectSummary, SelectTime
from kvg.flow.settings import Settings, keyring_of
from kvg.frozen import frozen
from kvg.problem.family import parse_problem

if TYPE_CHECKING:
    from kvg.flow.records.record import Record
    from kvg.store import Store
    from kvg.store.selector import Selector

FAMILIES = 4_500
LOOKUPS = 100_000
LARGE = 1_000_000
BATCH = 1_000
TIMED = 20_000
SOLVES = 50
STARTS = 15
SEED = 4500
_PROGRAM = b"def solve(a, b):\n    return a + b\n"
_CHECKER = b"def check(answer, a, b):\n    return answer - a == b\n"
_STEPS = ("canonicalise", "look up", "verify", "run")
_CLI = "from kvg.cli.main import run; run()"


@frozen
class SelectRequest:
    """``families`` in a store of its own, ``lookups`` of them, half of families that are absent.

    ``large`` is the size of the second index (0: none); ``solves`` and ``starts`` count runs of a
    whole solve in a warm process and of the command.
    """

    families: int = FAMILIES
    lookups: int = LOOKUPS
    large: int = LARGE
    solves: int = SOLVES
    starts: int = STARTS

    def __post_init__(self) -> None:
        if not len(STORED) <= self.families <= FAMILIES:
            raise UsageError(f"--families {self.families}: not from {len(STORED)} to {FAMILIES}")
        check_least("--lookups", self.lookups, BATCH)
        check_least("--large", self.large, 0)
        check_least("--solves", self.solves, 0)
        check_least("--starts", self.starts, 0)


def bench_select(settings: Settings, request: SelectRequest) -> Iterator[Record]:
    """Yield the machine, one ``SelectBatch`` for each thousand look-ups, times, and a summary.

    The methods are signed and logged without a proof: what is measured is how they are found. The
    summary's exit code says whether any look-up was wrong. Raises ``GateFailed`` without a sandbox
    when whole solves are asked for.
    """
    yield BenchMachine(
        "select", cpu_name(), os.cpu_count() or 1, {"python": platform.python_version()}
    )
    with tempfile.TemporaryDirectory(prefix="kvg-bench-") as folder:
        own = _settings(settings, Path(folder))
        store, methods, forms = make_store(own, request.families)
        wrong = present = 0
        began = time.perf_counter()
        with store.index.selecting() as selector:
            for batch in _lookups(settings, selector, methods, forms, request.lookups):
                wrong, present = wrong + batch.wrong, present + batch.present
                yield batch
            seconds = time.perf_counter() - began
            families = tuple(methods)
            yield _timed(request.families, "look-up", _look_ups(selector, families))
        if request.large:
            yield _timed(request.large, "look-up", _large(Path(folder), request.large))
        yield from _whole(store, own, forms, request)
        yield from _cold(own, forms, request)
        store.close()
    yield SelectSummary(
        families=request.families,
        lookups=request.lookups,
        present=present,
        absent=request.lookups - present,
        wrong=wrong,
        seconds=seconds,
    )


def _settings(settings: Settings, folder: Path) -> Settings:
    """The same in a folder of its own, laid out as the command line looks for it."""
    from dataclasses import replace

    return replace(
        settings,
        cwd=folder,
        keys=folder / "data/kvg/keys",
        cache=folder / "cache",
        user_config=folder / "config.toml",
        store_path=None,
        key_file=None,
        dry_run=False,
    )


def make_store(
    settings: Settings, count: int
) -> tuple[Store, dict[Digest, Digest], tuple[Form, ...]]:
    """A store with a signed method for each of ``count`` families: (store, methods, forms)."""
    from kvg.log.entry import AttestationEntry
    from kvg.store import Store

    store = Store.init(settings.cwd, keyring=keyring_of(settings))
    key = keyring_of(settings).new("bench")
    store.trust_first(key)
    forms, random = stored_forms(count), Random(SEED)
    methods: dict[Digest, Digest] = {}
    entries = []
    with (
        store.pending() as pending,
        settings.report.task("methods", count, "families") as task,
    ):
        for data in (_PROGRAM, _CHECKER):
            pending.put(data)
        for form in forms:
            family, method, envelope = _put(pending, form.instance(random), form.constraint, key)
            if family in methods:
                raise KvgError(f"bench select: two families of one structure: {form.wording}")
            methods[family] = method
            entries.append(AttestationEntry(0, method, envelope))
            task.advance(1)
        store.publish(entries)
    return store, methods, forms


def _put(
    pending: object, text: str, constraint: str | None, key: object
) -> tuple[Digest, Digest, Digest]:
    from typing import cast

    from kvg.objects.statement import PASSED, Resource, TestResult, encode_test_result
    from kvg.problem.method import METHOD_GATE, Method
    from kvg.problem.ranges import SlotRange
    from kvg.signing.dsse import sign_envelope
    from kvg.signing.keys import PrivateKey
    from kvg.store import Pending

    put, signer = cast("Pending", pending).put, cast("PrivateKey", key)
    problem = parse_problem(text, constraint)
    put(problem.family.document)
    ranges = tuple(SlotRange(kind, None, "2", f"{MOST}.5") for kind in problem.family.types)
    method = Method(problem.family.digest, sha256(_PROGRAM), sha256(_CHECKER), ranges)
    put(method.document)
    said = TestResult(PASSED, METHOD_GATE, (Resource("family", method.family),))
    envelope = put(sign_envelope(encode_test_result(method.digest, said), [signer])).digest
    return method.family, method.digest, envelope


def drawn(forms: Sequence[Form], count: int) -> Iterator[tuple[str, str | None, bool]]:
    """``count`` problems, one half of stored families and one of absent twins: (text, constraint,
    whether it is stored). The same for the same count."""
    random = Random(SEED + 1)
    absent = absent_forms(-(-len(forms) // len(STORED)))
    for _ in range(count):
        is_stored = random.random() < 0.5
        form = random.choice(forms if is_stored else absent)
        yield form.instance(random), form.constraint, is_stored


def _lookups(
    settings: Settings,
    selector: Selector,
    methods: dict[Digest, Digest],
    forms: Sequence[Form],
    count: int,
) -> Iterator[SelectBatch]:
    """Every look-up against what was stored; a digest of what was asked and found each batch."""
    asked, found, wrong, present = [], [], 0, 0
    with settings.report.task("look-ups", count, "look-ups") as task:
        for number, (text, constraint, is_stored) in enumerate(drawn(forms, count), 1):
            family = parse_problem(text, constraint).family.digest
            method = selector.method(family)
            expected = methods.get(family)
            wrong += method != expected or (expected is not None) != is_stored
            present += is_stored
            asked.append(f"{text}\t{constraint}\n")
            found.append(f"{family} {method}\n")
            if number % BATCH == 0 or number == count:
                task.advance(len(asked))
                yield SelectBatch(
                    first=number - len(asked),
                    count=len(asked),
                    present=present,
                    wrong=wrong,
                    input=sha256("".join(asked).encode()),
                    output=sha256("".join(found).encode()),
                )
                asked, found, wrong, present = [], [], 0, 0


def _look_ups(selector: Selector, families: Sequence[Digest]) -> list[float]:
    """Microseconds of each of many look-ups by digest, with the clock's own taken off."""
    random, find, clock = Random(SEED + 2), selector.find, time.perf_counter_ns
    chosen = [random.choice(families) for _ in range(TIMED)]
    empty = []
    for _ in range(TIMED):
        began = clock()
        empty.append(clock() - began)
    taken = []
    for family in chosen:
        began = clock()
        find(family)
        taken.append(clock() - began)
    own = statistics.median(empty)
    return [max(0.0, (ns - own) / 1e3) for ns in taken]


def _large(folder: Path, count: int) -> list[float]:
    """The same in an index of ``count`` families, filled directly."""
    from kvg.store import tables as t
    from kvg.store.lmdb_file import close_file, open_file
    from kvg.store.refs import METHOD
    from kvg.store.selector import Selector

    place = folder / "large"
    file = open_file(place)
    families = sorted(raw_of(sha256(number.to_bytes(8, "big"))) for number in range(count))
    for first in range(0, count, 50_000):
        with file.writing() as tables:
            for raw in families[first : first + 50_000]:
                tables.put(t.FAMILIES, raw, METHOD + bytes(8) + raw)
    with file.reading() as view:
        taken = _look_ups(Selector(view.getter(t.FAMILIES), 0), [from_raw(raw) for raw in families])
    close_file(place)
    return taken


def _timed(size: int, what: str, taken: Sequence[float], whole_us: float = 0.0) -> SelectTime:
    ordered = sorted(round(1e3 * microseconds) for microseconds in taken)
    median = statistics.median(ordered) / 1e3
    return SelectTime(
        size=size,
        what=what,
        runs=len(ordered),
        median_us=median,
        p99_us=ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)] / 1e3,
        share=median / whole_us if whole_us else None,
        times_ns=tuple(sorted(Counter(ordered).items())),
    )


def _whole(
    store: Store, settings: Settings, forms: Sequence[Form], request: SelectRequest
) -> Iterator[SelectTime]:
    """Whole solves in this process: all of it, then the share of each step."""
    if not request.solves:
        return
    from kvg.flow.sandboxed import caller_of
    from kvg.flow.solve import HIT, solve
    from kvg.verify.method import Verdicts

    random, verdicts = Random(SEED + 3), Verdicts()
    steps: dict[str, list[float]] = {}
    caller = caller_of(settings, store, no_sandbox=False, keep_ready=True)
    with store.index.selecting() as selector:
        for number in range(request.solves + 1):
            form = random.choice(forms)
            text = form.instance(random, is_ascending=True)
            began = time.perf_counter()
            found = solve(
                store,
                settings,
                text,
                constraint=form.constraint,
                verdicts=verdicts,
                caller=caller,
                selector=selector,
            )
            taken = (time.perf_counter() - began) * 1e6
            if found.status != HIT:
                raise KvgError(f"bench select: {text}: {found.reason}")
            if number:  # the first one only fills caches
                for what, value in (
                    ("solve, warm process", taken),
                    ("canonicalise", found.canonical_us),
                    ("look up", found.select_us),
                    ("verify", found.verify_us or 0.0),
                    ("run", (found.run_ms or 0.0) * 1e3),
                ):
                    steps.setdefault(what, []).append(value)
    caller.close()
    whole = statistics.median(round(1e3 * us) for us in steps["solve, warm process"]) / 1e3
    for what, values in steps.items():
        yield _timed(request.families, what, values, whole)


def _cold(
    settings: Settings, forms: Sequence[Form], request: SelectRequest
) -> Iterator[SelectTime]:
    """The command from its start to its end, its steps, and a Python that does nothing.

    Also in processor time, of the command and all that it starts: other work on the machine
    changes that less.
    """
    if not request.starts:
        return
    random = Random(SEED + 4)
    plain = [form for form in forms if form.constraint is None]
    nothing: list[_Started] = []
    solved: list[_Started] = []
    for _ in range(request.starts + 1):
        text = random.choice(plain).instance(random)
        nothing.append(_start(settings, "pass"))
        solved.append(_start(settings, _CLI, "solve", text, "--json"))
    nothing, solved = nothing[1:], solved[1:]  # the first ones only fill caches
    whole = statistics.median(round(1e3 * item.wall_us) for item in solved) / 1e3
    pairs = list(zip(solved, nothing, strict=True))
    rows = {
        "interpreter start": [item.wall_us for item in nothing],
        "kvg solve, cold": [item.wall_us for item in solved],
        "beyond interpreter start": [max(0.0, a.wall_us - b.wall_us) for a, b in pairs],
        **{f"cold: {name}": [item.steps[name] for item in solved] for name in _STEPS},
    }
    for what, values in rows.items():
        yield _timed(request.families, what, values, whole)
    rows = {
        "processor time: interpreter start": [item.cpu_us for item in nothing],
        "processor time: kvg solve, cold": [item.cpu_us for item in solved],
        "processor time: beyond": [max(0.0, a.cpu_us - b.cpu_us) for a, b in pairs],
    }
    for what, values in rows.items():
        yield _timed(request.families, what, values)


@frozen
class _Started:
    """One command: microseconds by the clock and of the processor, and of the steps it tells."""

    wall_us: float
    cpu_us: float
    steps: Mapping[str, float]


def _start(settings: Settings, *words: str) -> _Started:
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", *words],
        cwd=settings.cwd,
        env=_environment(settings.cwd),
        capture_output=True,
        check=False,
    )
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise KvgError(f"bench select: kvg solve: {done.stderr.decode(errors='replace')}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    steps = _steps(json.loads(done.stdout)) if done.stdout else {}
    return _Started(wall * 1e6, cpu * 1e6, steps)


def _steps(answer: Mapping[str, float]) -> Mapping[str, float]:
    taken = (answer["canonical_us"], answer["select_us"], answer["verify_us"])
    return dict(zip(_STEPS, (*taken, answer["run_ms"] * 1e3), strict=True))


def _environment(folder: Path) -> dict[str, str]:
    return {
        "PATH": os.defpath,
        "HOME": str(folder),
        "XDG_DATA_HOME": str(folder / "data"),
        "XDG_CONFIG_HOME": str(folder / "config"),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
