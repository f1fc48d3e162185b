"""``kvg bench recurring``: problems that a model does not solve alone, and what their verified
solutions, once deposited, leave it to decode."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kvg import canon
from kvg.digest import sha256
from kvg.errors import UsageError
from kvg.flow.asking import SIDE_BY_SIDE
from kvg.flow.bench.library import Task, open_library
from kvg.flow.bench.setup import check_least, setup_of
from kvg.flow.records.bench import RecurringRun, RecurringSummary
from kvg.flow.requests import DepositRequest
from kvg.frozen import frozen

if TYPE_CHECKING:
    from kvg.flow.bench.library import Library
    from kvg.flow.records.record import Record
    from kvg.flow.settings import Settings
    from kvg.store import Store

BUDGET = 2_048
ATTEMPT_TOKENS = 256
ASKED = "What is the answer? Give the number only."
_TEMPERATURE = 0.7


@frozen
class Recurring:
    """A problem, a solution of it, its key, and a Python assertion about ``answer``."""

    task: Task
    solution: str
    gate: str


@frozen
class RecurringRequest:
    """The problems of a file; the model alone has ``budget`` tokens for each."""

    tasks: Path
    model: str | None = None
    budget: int = BUDGET

    def __post_init__(self) -> None:
        check_least("--budget", self.budget, 1)


def bench_recurring(
    store: Store, settings: Settings, request: RecurringRequest
) -> Iterator[Record]:
    """Yield the setup, one ``RecurringRun`` for each problem, and a summary.

    Alone: greedily first, then by seeds, until an attempt ends with the key or the budget is gone.
    Then the solution, which has to pass its gate, is deposited, and the model answers from the
    graft. Raises ``NotFound``, ``UsageError``, ``GateFailed``.
    """
    problems = read_problems(settings, request.tasks)
    runs = []
    with open_library(store, settings, request.model, ()) as library:
        yield setup_of("recurring", library.model, library.session)
        for number, problem in enumerate(problems):
            run = _run(library, number, problem, request.budget)
            runs.append(run)
            yield run
    alone, grafted = (sum(getattr(run, name) for run in runs) for name in _TOKENS)
    yield RecurringSummary(
        problems=len(runs),
        budget=request.budget,
        solved_alone=sum(run.solved_alone for run in runs),
        right_grafted=sum(run.right_grafted for run in runs),
        tokens_alone=alone,
        tokens_grafted=grafted,
        factor=alone / grafted if grafted else 0.0,
        cpu_s_alone=sum(run.cpu_s_alone for run in runs),
        cpu_s_deposit=sum(run.cpu_s_deposit for run in runs),
        cpu_s_grafted=sum(run.cpu_s_grafted for run in runs),
    )


_TOKENS = ("tokens_alone", "tokens_grafted")


def read_problems(settings: Settings, path: Path) -> tuple[Recurring, ...]:
    """JSON Lines of {problem, solution, answer, check}. Raises ``UsageError``, ``NotFound``."""
    from kvg.flow.sources import parse_chat, parse_text, read_part

    name, data = read_part(settings, path)
    found = []
    for number, line in enumerate(parse_text(data, what=name).splitlines(), 1):
        value = parse_chat(line.encode(), what=f"{name} line {number}")
        keys = ("problem", "solution", "answer", "check")
        texts = [value.get(key) for key in keys] if isinstance(value, dict) else []
        if len(texts) != len(keys) or not all(isinstance(text, str) and text for text in texts):
            raise UsageError(f"{name} line {number}: not problem, solution, answer and check")
        problem, solution, answer, check = map(str, texts)
        found.append(Recurring(Task(problem, answer), solution, f"python-assert:{check}"))
    if not found:
        raise UsageError(f"{name}: no problem")
    return tuple(found)


def _run(library: Library, number: int, problem: Recurring, budget: int) -> RecurringRun:
    began = time.process_time()
    solved, spent = _alone(library, problem.task, budget)
    alone_s, began = time.process_time() - began, time.process_time()
    artifact = _deposit(library, number, problem)
    deposit_s, began = time.process_time() - began, time.process_time()
    said, n_tokens = _grafted(library, f"problem-{number}")
    return RecurringRun(
        problem=number,
        input=sha256(problem.task.text.encode()),
        solved_alone=solved,
        tokens_alone=spent,
        artifact=artifact,
        said=said,
        output=sha256(said.encode()),
        tokens_grafted=n_tokens,
        right_grafted=problem.task.is_right(said),
        cpu_s_alone=alone_s,
        cpu_s_deposit=deposit_s,
        cpu_s_grafted=time.process_time() - began,
    )


def _alone(library: Library, task: Task, budget: int) -> tuple[bool, int]:
    """Whether the model gets there, and the tokens that it spent. Seeds go side by side."""
    asked = library.ask(task.text, grafted=False)
    said, ids = asked.answer(min(ATTEMPT_TOKENS, budget))
    spent, solved, seed = max(1, len(ids)), task.is_right(said), 1
    while not solved and spent < budget:
        most = min(ATTEMPT_TOKENS, budget - spent)
        seeds = range(seed, seed + max(1, min(SIDE_BY_SIDE, (budget - spent) // most)))
        answers = asked.samples(seeds, most, _TEMPERATURE)
        spent += sum(max(1, len(found)) for _, found in answers)
        solved, seed = any(task.is_right(text) for text, _ in answers), seeds.stop
    return solved, spent


def _deposit(library: Library, number: int, problem: Recurring) -> str:
    from kvg.flow.deposit import deposit

    chat: canon.Json = [
        {"role": "user", "content": problem.task.text},
        {"role": "assistant", "content": problem.solution},
    ]
    path = library.settings.cwd / f"problem-{number}.json"
    path.write_bytes(canon.encode(chat))
    request = DepositRequest(f"problem-{number}", chat=path, gates=(problem.gate,))
    return deposit(library.store, library.settings, request).digest


def _grafted(library: Library, ref: str) -> tuple[str, int]:
    """What the model says from the graft, and how many tokens it decodes for it."""
    from kvg.flow.asking import ask_messages
    from kvg.verify import verify_artifact

    digest = library.store.resolve(ref).digest
    verified = verify_artifact(library.store, digest, ref=ref)
    asked = ask_messages(
        library.session,
        library.tokenizer,
        ({"role": "user", "content": ASKED},),
        exemplar=verified,
    )
    said, ids = asked.answer(ATTEMPT_TOKENS)
    return said, len(ids)
