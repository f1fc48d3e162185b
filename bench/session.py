"""What a graft from the shell takes through a resident session, against ``import typer`` alone.

    python bench/session.py MODEL_FOLDER [--tokens 1000] [--runs 40] > session.jsonl

Deposits TOKENS tokens of the language reference in a store of its own, starts a session, then runs
``kvg graft --session`` and ``python -c 'import typer'`` in turn, each a process of its own, on the
wall clock. The record ``session-start``: all runs, least and median milliseconds of both, the ratio
of each, and what of the graft the session itself took. The aim is a ratio of 2 at most.

Before it, ``session-deposit``: ``--deposit-tokens`` (4,000) as a plain prefill and a whole deposit
(cut into pages, encoded, stored, proved, signed, logged, named), both with the model loaded, in
turns. A run is milliseconds of the prefill and of the deposit by the clock, then of the processor;
``overhead`` the median of deposit / prefill - 1. The aim is 0.05 at most. Nothing here fails on a
time; on a busy machine only the processor's figures say something.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "kernels"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.place import store_in
from kvg.cli.render import json_line
from kvg.flow import deposit
from kvg.flow.bench.setup import setup_of
from kvg.flow.requests import DepositRequest

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = [sys.executable, "-c", "from kvg.cli.main import run; run()"]
BASELINE = [sys.executable, "-c", "import typer"]
GRAFT = [*PROGRAM, "graft", "text", "--session", "bench", "--max-tokens", "1", "--json"]


def environment(home: str) -> dict[str, str]:
    """The environment of one run, with a home of its own."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("KVG_", "XDG_"))}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    paths = os.pathsep.join([str(ROOT), str(ROOT / "kernels")])
    return {**kept, "HOME": home, "PYTHONPATH": paths}


def text_of(model: Path, n_tokens: int) -> str:
    """A text of about ``n_tokens`` tokens of the model in ``model``."""
    import pydoc_data.topics

    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(model), local_files_only=True)
    topics = pydoc_data.topics.topics
    text = "\n".join(topics[name] for name in sorted(topics))
    ids = tokenizer(text[: 8 * n_tokens])["input_ids"]
    return str(tokenizer.decode(ids[:n_tokens]))


def timed(argv: Sequence[str], home: str, env: dict[str, str]) -> tuple[float, bytes]:
    """Milliseconds of one process from start to end, and what it printed."""
    began = time.perf_counter()
    done = subprocess.run(argv, cwd=home, env=env, capture_output=True, check=True)
    return (time.perf_counter() - began) * 1e3, done.stdout


class InProcess:
    """A store of its own with the model, which stays loaded: what a session does."""

    def __init__(self, place: Path, model: Path) -> None:
        jobs = len(os.sched_getaffinity(0))  # what the command line takes
        self.store, self.settings = store_in(place, model, jobs=jobs)
        opened = deposit.open_model(self.store, self.settings, DepositRequest("any", text="any"))
        deposit.open_model = lambda *_: opened
        self.opened = opened

    def prefill(self, text: str) -> None:
        ids = self.opened.tokenizer.encode(text)
        self.opened.session.prefill(self.opened.session.slot(), ids, [len(ids) - 1])

    def deposit(self, text: str) -> int:
        """How many tokens were computed, and the whole artifact proved, signed and named."""
        request = DepositRequest("text", text=text)
        return deposit.deposit(self.store, self.settings, request).tokens_computed

    def setup(self) -> dict[str, object]:
        found = setup_of("session", self.opened.model, self.opened.session)
        return dict(json.loads(json_line(found)))


def measure_deposits(
    inside: InProcess, model: Path, n_tokens: int, repeats: int
) -> dict[str, object]:
    """A plain prefill and a whole deposit of the same text, in turns, each text a new one."""
    runs = []
    tokens = 0
    for turn in range(repeats + 1):
        text = f"{turn}\n" + text_of(model, n_tokens - 2)
        order = (inside.prefill, inside.deposit) if turn % 2 else (inside.deposit, inside.prefill)
        took = {}
        for work in order:
            wall, cpu = time.perf_counter(), time.process_time()
            found = work(text)
            took[work.__name__] = (time.perf_counter() - wall, time.process_time() - cpu)
            tokens = found or tokens
        if turn:  # the first only warms up
            pairs = zip(took["prefill"], took["deposit"], strict=True)
            runs.append([seconds * 1e3 for pair in pairs for seconds in pair])
    columns = list(zip(*runs, strict=True))
    return {
        "type": "session-deposit",
        "tokens": tokens,
        "repeats": repeats,
        "prefill_ms": statistics.median(columns[0]),
        "deposit_ms": statistics.median(columns[1]),
        "overhead": statistics.median(run[1] / run[0] - 1 for run in runs),
        "overhead_cpu": statistics.median(run[3] / run[2] - 1 for run in runs),
        "runs_ms": runs,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--tokens", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--deposit-tokens", type=int, default=4000)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        inside = InProcess(Path(place), given.model)
        print(json.dumps(inside.setup()), flush=True)
        found = measure_deposits(inside, given.model, given.deposit_tokens, given.repeats)
        print(json.dumps(found), flush=True)
        del inside
    with tempfile.TemporaryDirectory() as home:
        env = environment(home)
        text = text_of(given.model, given.tokens)
        for words in (
            ["init"],
            ["model", "add", "model", str(given.model.absolute())],
            ["deposit", "text", "--text", text],
            ["session", "start", "bench"],
        ):
            subprocess.run(
                [*PROGRAM, *words], cwd=home, env=env, check=True, stdout=subprocess.DEVNULL
            )
        try:
            print(json.dumps(measure(home, env, given.runs)))
        finally:
            stop = [*PROGRAM, "session", "stop", "bench"]
            subprocess.run(stop, cwd=home, env=env, check=True, stdout=subprocess.DEVNULL)
    return 0


def measure(home: str, env: dict[str, str], runs: int) -> dict[str, object]:
    """Both in turn, after one of each that only fills caches."""
    base: list[float] = []
    graft: list[float] = []
    inside: list[float] = []
    record: dict[str, object] = {}
    for turn in range(runs + 1):
        base_ms, _ = timed(BASELINE, home, env)
        graft_ms, out = timed(GRAFT, home, env)
        record = json.loads(out)
        if not record["exact"]:
            raise SystemExit("a graft was not exact")
        if turn:
            base.append(base_ms)
            graft.append(graft_ms)
            inside.append(float(str(record["first_token_ms"])))
    return {
        "type": "session-start",
        "runs": runs,
        "tokens": int(str(record["saved_tokens"])) + 1,
        "typer_runs_ms": base,
        "graft_runs_ms": graft,
        "first_token_runs_ms": inside,
        "typer_ms": {"least": min(base), "median": statistics.median(base)},
        "graft_ms": {"least": min(graft), "median": statistics.median(graft)},
        "first_token_ms": {"least": min(inside), "median": statistics.median(inside)},
        "ratio": {
            "least": min(graft) / min(base),
            "median": statistics.median(graft) / statistics.median(base),
        },
        "load": os.getloadavg()[0],
    }


if __name__ == "__main__":
    sys.exit(main())
