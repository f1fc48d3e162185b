"""``kvg bench capability``: a model alone, and with the one block grafted that is routed to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kvg.digest import sha256
from kvg.errors import UsageError
from kvg.flow.asking import SIDE_BY_SIDE
from kvg.flow.bench.library import open_library, read_tasks
from kvg.flow.bench.setup import check_least, setup_of
from kvg.flow.records.bench import CapabilityRun, CapabilitySummary
from kvg.frozen import frozen

if TYPE_CHECKING:
    from kvg.flow.bench.library import Library, Task
    from kvg.flow.records.record import Record
    from kvg.flow.settings import Settings
    from kvg.store import Store

MAX_TOKENS = 32


@frozen
class CapabilityRequest:
    """The first ``limit`` tasks of a file (0: all), each answered in ``max_tokens`` at most."""

    tasks: Path
    model: str | None = None
    max_tokens: int = MAX_TOKENS
    limit: int = 0

    def __post_init__(self) -> None:
        check_least("--max-tokens", self.max_tokens, 1)
        check_least("--limit", self.limit, 0)


def bench_capability(
    store: Store, settings: Settings, request: CapabilityRequest
) -> Iterator[Record]:
    """Yield the setup, one ``CapabilityRun`` for each task and way, and a summary.

    Answers are greedy. Raises ``NotFound``, ``UsageError``, ``Incompatible``.
    """
    blocks, tasks = read_tasks(settings, request.tasks)
    tasks = tasks[: request.limit or None]
    held = {text for block in blocks for text, _ in block.shots}
    shown = [task.text for task in tasks if task.text in held]
    if shown:
        raise UsageError(f"{request.tasks}: not held out: {shown[0][:80]}")
    right, tokens = {"alone": 0, "grafted": 0}, {"alone": 0, "grafted": 0}
    with open_library(store, settings, request.model, blocks) as library:
        yield setup_of("capability", library.model, library.session)
        before = library.weights()
        with settings.report.task("capability", len(tasks), "tasks") as progress:
            for first in range(0, len(tasks), SIDE_BY_SIDE):
                part = tasks[first : first + SIDE_BY_SIDE]
                for run in _runs(library, first, part, request.max_tokens):
                    right[run.way] += run.right
                    tokens[run.way] += run.tokens
                    yield run
                progress.advance(len(part))
        routed = sum(task.family in library.blocks for task in tasks)
        yield CapabilitySummary(
            tasks=len(tasks),
            routed=routed,
            right_alone=right["alone"],
            right_grafted=right["grafted"],
            tokens_alone=tokens["alone"],
            tokens_grafted=tokens["grafted"],
            weights_before=before,
            weights_after=library.weights(),
        )


def _runs(
    library: Library, first: int, tasks: Sequence[Task], most: int
) -> Iterator[CapabilityRun]:
    """Both ways, several tasks side by side, which changes no bit. Where no block is routed to,
    nothing is grafted: that is alone once more."""
    alone = _answered(library, first, tasks, "alone", most)
    routed = [task for task in tasks if task.family in library.blocks]
    grafted = {run.input: run for run in _answered(library, first, routed, "grafted", most)}
    for number, run in enumerate(alone, first):
        yield run
        yield replace(grafted.get(run.input, run), task=number, way="grafted")


def _answered(
    library: Library, first: int, tasks: Sequence[Task], way: str, most: int
) -> list[CapabilityRun]:
    from kvg.flow.asking import answer_together

    if not tasks:
        return []
    asked = [library.ask(task.text, grafted=way == "grafted") for task in tasks]
    said = answer_together(asked, most)
    return [_run(library, first + n, task, way, *said[n]) for n, task in enumerate(tasks)]


def _run(
    library: Library, number: int, task: Task, way: str, said: str, ids: Sequence[int]
) -> CapabilityRun:
    block = library.blocks.get(task.family) if way == "grafted" else None
    return CapabilityRun(
        task=number,
        way=way,
        block=block.digest if block else None,
        input=sha256(task.text.encode()),
        output=sha256(said.encode()),
        said=said,
        tokens=len(ids),
        right=task.is_right(said),
    )
