"""How much processor time opening an invariant session of a model takes, part by part.

    python bench/self_check.py FOLDER [--dtype BF16] [--threads 2] [--repeats 3]

One JSON record a line; of each part the least of the repeats, in seconds of processor time and of
the clock. ``self-check`` is what ``kvg doctor`` shows, ``remembered`` what a later session pays.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]

import torch  # noqa: E402

from kvg.model.invariant import TileMenu  # noqa: E402
from kvg.model.loader import load_model  # noqa: E402
from kvg.model.opening import session_of  # noqa: E402
from kvg.model.probe import probe  # noqa: E402
from kvg.model.proofs import ProofCache  # noqa: E402
from kvg.model.selfcheck import prove_splits  # noqa: E402
from kvg.model.session import Session  # noqa: E402
from kvg.model.tiling import is_still_true, prove_tiles  # noqa: E402


def timed(work: Callable[[], object], repeats: int) -> dict[str, float]:
    """The least processor and clock time of ``work``."""
    found = []
    for _ in range(repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        found.append((time.process_time() - cpu, time.perf_counter() - wall))
    cpu, wall = (round(min(times), 3) for times in zip(*found, strict=True))
    return {"cpu_s": cpu, "wall_s": wall}


def main() -> int:
    """The program. Returns its exit status: 1 when the self-check takes 2 s or more."""
    parser = argparse.ArgumentParser(description="Time the self-check of a model.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dtype", default="BF16")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    model = load_model(asked.folder, dtype=asked.dtype, device="cpu", attention="kvg_invariant")
    with tempfile.TemporaryDirectory() as folder:
        cache = ProofCache(Path(folder), ())
        session = session_of(model, schedule=None, proofs=cache)
        menu: TileMenu = prove_tiles(model)

        def check() -> None:
            prove_splits(Session(model, session.engine, prove_tiles(model)))

        parts: dict[str, Callable[[], object]] = {
            "probe": lambda: probe(model, None),
            "tiles": lambda: prove_tiles(model),
            "splits": lambda: prove_splits(session),
            "self-check": check,
            "remembered": lambda: (cache.recall(model, session.engine), is_still_true(model, menu)),
        }
        times = {name: timed(work, asked.repeats) for name, work in parts.items()}
    for name, found in times.items():
        print(json.dumps({"part": name, "dtype": asked.dtype, "threads": asked.threads, **found}))
    return int(times["self-check"]["cpu_s"] >= 2)


if __name__ == "__main__":
    sys.exit(main())
