"""``kvg bench acceptance``: what K seeds agree on is deposited; how much of it is right."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kvg.digest import sha256
from kvg.errors import GateFailed
from kvg.flow.bench.library import open_library, read_tasks
from kvg.flow.bench.setup import check_least, setup_of
from kvg.flow.records.bench import AcceptanceRun, AcceptanceSummary
from kvg.frozen import frozen
from kvg.gates.spec import SEEDS, TEMPERATURE

if TYPE_CHECKING:
    from kvg.flow.bench.library import Library, Task
    from kvg.flow.records.record import Record
    from kvg.flow.settings import Settings
    from kvg.store import Store

MAX_TOKENS = 16


@frozen
class AcceptanceRequest:
    """Tasks of a file until ``accepted`` are accepted (0: all of them), by ``seeds`` each."""

    tasks: Path
    model: str | None = None
    seeds: int = SEEDS
    temperature: float = TEMPERATURE
    accepted: int = 0

    def __post_init__(self) -> None:
        check_least("--seeds", self.seeds, 2)
        check_least("--accepted", self.accepted, 0)


def bench_acceptance(
    store: Store, settings: Settings, request: AcceptanceRequest
) -> Iterator[Record]:
    """Yield the setup, one ``AcceptanceRun`` for each task, and a summary.

    The most likely answer is what is to be deposited; the gate is the one of ``kvg deposit``. The
    key is compared only with what was accepted. Raises ``NotFound``, ``UsageError``.
    """
    blocks, tasks = read_tasks(settings, request.tasks)
    began = time.perf_counter()
    accepted = matching = asked = 0
    with open_library(store, settings, request.model, blocks) as library:
        yield setup_of("acceptance", library.model, library.session)
        with settings.report.task("acceptance", len(tasks), "tasks") as progress:
            for number, task in enumerate(tasks):
                run = _run(library, number, task, request)
                asked += 1
                accepted += run.accepted
                matching += run.matches is True
                yield run
                progress.advance(1)
                if request.accepted and accepted >= request.accepted:
                    break
    yield AcceptanceSummary(
        asked=asked,
        accepted=accepted,
        matching=matching,
        seeds=request.seeds,
        temperature=str(request.temperature),
        seconds=time.perf_counter() - began,
    )


def _run(library: Library, number: int, task: Task, request: AcceptanceRequest) -> AcceptanceRun:
    from kvg.flow.attempt import Opened, SolveRequest, solve_or_try

    spec = f"consistency:{request.seeds}?temperature={request.temperature}"
    block = library.blocks.get(task.family)
    wanted = SolveRequest(
        task.text,
        tries=True,
        learn=True,
        gates=(spec,),
        parent=block.digest if block else None,
        max_tokens=MAX_TOKENS,
    )
    opened = Opened(library.model, library.files, library.session, library.tokenizer)
    try:
        found = solve_or_try(library.store, library.settings, wanted, opened=opened)
    except GateFailed as error:
        return AcceptanceRun(
            task=number,
            input=sha256(task.text.encode()),
            accepted=False,
            artifact=None,
            said=None,
            matches=None,
            reason=error.message,
        )
    said = found.answer or ""
    return AcceptanceRun(
        task=number,
        input=sha256(task.text.encode()),
        accepted=True,
        artifact=found.artifact,
        said=said,
        matches=task.is_right(said),
        reason=None,
    )
