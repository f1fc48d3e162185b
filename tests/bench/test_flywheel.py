"""The benches of the flywheel, on a tiny random model: what they count, and what they refuse."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from kvg.errors import UsageError
from kvg.flow.bench.acceptance import AcceptanceRequest, bench_acceptance
from kvg.flow.bench.capability import CapabilityRequest, bench_capability
from kvg.flow.bench.library import Task, read_tasks
from kvg.flow.bench.recurring import RecurringRequest, bench_recurring, read_problems
from kvg.flow.records import (
    AcceptanceRun,
    AcceptanceSummary,
    CapabilityRun,
    CapabilitySummary,
    RecurringRun,
    RecurringSummary,
)
from kvg.problem.family import parse_problem
from kvg.store.names import is_ref_name
from tests import models

needs_bwrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")
TASKS = models.REPO / "bench/tasks"
BLOCK = {"block": "sums", "shots": [["Add 1 and 2.", "3"], ["Add 4 and 5.", "9"]]}
HELD = [{"task": "Add 6 and 2.", "answer": "8"}, {"task": "Multiply 6 by 2.", "answer": "12"}]


def write(folder: Path, *lines: object) -> Path:
    (folder / "tasks.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return Path("tasks.jsonl")


def test_alone_and_with_the_one_routed_block(user: models.User) -> None:
    request = CapabilityRequest(write(user.folder, BLOCK, *HELD), max_tokens=4)
    records = list(bench_capability(user.store, user.settings, request))
    runs = [item for item in records if isinstance(item, CapabilityRun)]
    assert [(run.task, run.way) for run in runs] == [
        (0, "alone"),
        (0, "grafted"),
        (1, "alone"),
        (1, "grafted"),
    ]
    assert [run.block is not None for run in runs] == [False, True, False, False]
    assert runs[2].output == runs[3].output  # no block of its family: the same as alone
    summary = records[-1]
    assert isinstance(summary, CapabilitySummary) and summary.exit_code == 0
    assert (summary.tasks, summary.routed) == (2, 1)
    assert summary.tokens_grafted == sum(run.tokens for run in runs if run.way == "grafted")
    assert user.store.refs() == {}


def test_a_task_that_is_in_a_block_is_refused(user: models.User) -> None:
    path = write(user.folder, BLOCK, {"task": "Add 4 and 5.", "answer": "9"})
    with pytest.raises(UsageError, match="not held out"):
        list(bench_capability(user.store, user.settings, CapabilityRequest(path)))


@needs_bwrap
def test_seeds_that_do_not_agree_are_not_deposited(user: models.User) -> None:
    request = AcceptanceRequest(write(user.folder, BLOCK, *HELD), seeds=3, temperature=2.0)
    records = list(bench_acceptance(user.store, user.settings, request))
    runs = [item for item in records if isinstance(item, AcceptanceRun)]
    assert [run.accepted for run in runs] == [False, False]
    assert all(run.reason and "dissents" in run.reason and run.matches is None for run in runs)
    summary = records[-1]
    assert isinstance(summary, AcceptanceSummary)
    assert (summary.asked, summary.accepted, summary.matching) == (2, 0, 0)


@needs_bwrap
def test_a_problem_within_a_budget_and_from_its_deposit(user: models.User) -> None:
    line = {
        "problem": "What is 12 times 12?",
        "solution": "10 times 12 is 120 and 2 times 12 is 24. The answer is 144.",
        "answer": "144",
        "check": "int(answer.rstrip('.').split()[-1]) == 12 * 12",
    }
    path = write(user.folder, line)
    records = list(bench_recurring(user.store, user.settings, RecurringRequest(path, budget=8)))
    run, summary = records[-2:]
    assert isinstance(run, RecurringRun) and isinstance(summary, RecurringSummary)
    assert not run.solved_alone and run.tokens_alone == 8 and run.tokens_grafted > 0
    assert (summary.problems, summary.tokens_alone) == (1, 8)


@pytest.mark.parametrize(
    "line",
    [
        [],
        {"task": "x"},
        {"task": "x", "answer": ""},
        {"task": "x", "answer": "y", "more": 1},
        {"block": "a", "shots": []},
        {"block": "a", "shots": [["one"]]},
        {"block": "a", "shots": [["Add 1.", "1"], ["Take 1.", "1"]]},
    ],
)
def test_files_that_are_none(user: models.User, line: object) -> None:
    with pytest.raises(UsageError):
        read_tasks(user.settings, write(user.folder, HELD[0], line))
    with pytest.raises(UsageError):
        read_problems(user.settings, write(user.folder, line))
    with pytest.raises(UsageError, match="no task"):
        read_tasks(user.settings, write(user.folder, BLOCK))


def test_what_counts_as_right() -> None:
    number, word = Task("x", "1200"), Task("x", "Paris")
    assert number.is_right("It is 3 plus 1,197, so 1,200.") and not number.is_right("1200 or 7")
    assert word.is_right("the capital is PARIS.") and not word.is_right("Parisian")
    assert not number.is_right("") and not word.is_right("")
    several = Task("x", "[1, 887204]")
    assert several.is_right("The GCD is 1, the LCM 887,204.") and several.is_right("[1, 887204]")
    assert not several.is_right("[887204, 1]") and not several.is_right("887204")
    assert Task("x", "[43/27, -2]").is_right("x = 43/27, y = -2") and not word.is_right("1/0")
    assert not Task("x", "0").is_right("4/0") and Task("x", "2.50").is_right("2.5")


def test_the_tasks_that_come_along(user: models.User) -> None:
    for name in ("words.jsonl", "hard.jsonl", "eight.jsonl"):
        shutil.copy(TASKS / name, user.folder / name)
    blocks, tasks = read_tasks(user.settings, Path("words.jsonl"))
    families = {block.family for block in blocks}
    held = {text for block in blocks for text, _ in block.shots}
    assert len(tasks) >= 150 and len(blocks) == len(families) == 5
    assert all(parse_problem(task.text).family.digest in families for task in tasks)
    assert not held & {task.text for task in tasks}
    blocks, tasks = read_tasks(user.settings, Path("hard.jsonl"))
    families = {block.family for block in blocks}
    held = {text for block in blocks for text, _ in block.shots}
    assert all(is_ref_name(block.name) for block in blocks)
    assert len(tasks) == 32 and len(families) == 4 and not held & {task.text for task in tasks}
    assert {parse_problem(task.text).family.digest for task in tasks} == families
    problems = read_problems(user.settings, Path("eight.jsonl"))
    assert len(problems) == 8
    for problem in problems:
        check = compile(problem.gate.removeprefix("python-assert:"), "check", "eval")
        assert eval(check, {"answer": problem.solution})  # noqa: S307
        assert problem.task.is_right(problem.solution)
