"""Blocks of a context computed side by side, against one after the other.

    python bench/abreast.py MODEL_FOLDER [--blocks 6] [--tokens 1000] [--rounds 3]

``kvg context create`` of texts of the language reference, in a store of its own, in turns: each
block alone with all compute threads, and as many at a time as ``--jobs`` would give, each with one.
The model is loaded before. Two JSON records: what it was measured on; the seconds of every run, by
the clock and of the processor, and the medians of the pairs' ratios. Below 1 side by side is the
quicker way. On a busy machine the clock says nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import pydoc_data.topics
import resource
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "kernels"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.place import store_in
from kvg.cli.render import json_line
from kvg.flow.bench.setup import setup_of
from kvg.flow.context import create
from kvg.flow.context.abreast import lanes_for


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(place: Path, asked: argparse.Namespace) -> Iterator[dict[str, object]]:
    """Both ways in turns, each with texts that are new to the store."""
    store, settings = store_in(place, asked.model, jobs=len(os.sched_getaffinity(0)))
    first = create.ContextRequest("any", (Path("any"),))
    opened = create.open_model(store, settings, create._first_request(first))
    create.open_model = lambda *_: opened
    yield json.loads(json_line(setup_of("abreast", opened.model, opened.session)))
    topics = pydoc_data.topics.topics
    left = "\n".join(topics[name] for name in sorted(topics))
    names = [f"{way}_{kind}" for way in ("alone", "abreast") for kind in ("s", "cpu_s")]
    runs: dict[str, list[float]] = {name: [] for name in names}
    for number in range(-1, 2 * asked.rounds):  # the first only warms up
        way = ("alone", "abreast")[(number + number // 2) % 2]
        create.lanes_for = (lambda *_: 1) if way == "alone" else lanes_for
        folder = place / f"text{number + 1}"
        folder.mkdir()
        for block in range(asked.blocks):
            at = opened.tokenizer.prefix(left, asked.tokens)
            (folder / f"{block:02}.txt").write_text(left[:at], encoding="utf-8")
            left = left[at:]
        request = create.ContextRequest(
            folder.name, (Path(folder.name),), block_tokens=asked.tokens + 64, room=0
        )
        before = cpu_seconds()
        *_, made = create.create_context(store, settings, request)
        if number >= 0:
            runs[f"{way}_s"].append(made.seconds)
            runs[f"{way}_cpu_s"].append(cpu_seconds() - before)

    def ratio(kind: str) -> float:
        pairs = zip(runs[f"abreast_{kind}"], runs[f"alone_{kind}"], strict=True)
        return median(abreast / alone for abreast, alone in pairs)

    yield {
        "type": "context-abreast",
        "blocks": asked.blocks,
        "tokens": asked.tokens,
        "rounds": asked.rounds,
        "jobs": settings.jobs,
        **runs,
        "ratio": ratio("s"),
        "ratio_cpu": ratio("cpu_s"),
        "load": os.getloadavg()[0],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--blocks", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        for record in measure(Path(name), asked):
            print(json.dumps(record), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
