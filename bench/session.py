"""What a graft from the shell takes through a resident session, against ``import typer`` alone.

    python bench/session.py MODEL_FOLDER [--tokens 1000] [--runs 40]

Deposits TOKENS tokens of the language reference in a store of its own, starts a session, then runs
``kvg graft --session`` and ``python -c 'import typer'`` in turn, each a process of its own, on the
wall clock. Prints one JSON record: least and median milliseconds of both, the ratio of each, and
what of the graft the session itself took. The aim is a ratio of 2 at most; nothing here fails on a
time.
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--tokens", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=40)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        env = environment(home)
        text = text_of(given.model, given.tokens)
        for words in (
            ["init"],
            ["model", "add", "model", str(given.model.absolute())],
            ["deposit", "text", "--text", text],
            ["session", "start", "bench"],
        ):
            subprocess.run([*PROGRAM, *words], cwd=home, env=env, check=True, capture_output=True)
        try:
            print(json.dumps(measure(home, env, given.runs)))
        finally:
            stop = [*PROGRAM, "session", "stop", "bench"]
            subprocess.run(stop, cwd=home, env=env, check=True, capture_output=True)
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
