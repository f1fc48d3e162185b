"""Every decoder of untrusted bytes, guided by what code is reached, and the corpus that this grows.

    pip install 'kvg[fuzz]'
    python bench/fuzz_guided.py [--seconds S] [--keep] [NAME ...] > fuzz-guided.jsonl

Each decoder runs twice for S seconds (60) from the same beginning, the good documents and what
``tests/corpus`` holds. Once an input is mostly an earlier one edited as ``tests/editing.py`` does,
which gets past checksums, signatures and digests; once it is only what libFuzzer makes of bytes.
What is checked is the same as in ``bench/fuzz.py``; an input that takes more than ten seconds is a
failure, too, and so is a process that grows by more than 64 MB, what libFuzzer keeps included. Exit
status 1 after one; its input is left in the folder of ``--work``, and named.

``--keep`` leaves in ``tests/corpus`` few of all inputs that were found, and of those that lay
there: each reaches code that no other does. Run it again to go on from there. Records, one a line:
the machine; each run, with the lines of kvg that its inputs reach; each decoder's corpus, with the
lines that it reaches, and, for comparison, those of the good documents, and of edits of them alone.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.fuzz_process import COUNTS, WAYS
from kvg.flow.bench.setup import cpu_name
from tests import corpus
from tests.forked import in_child
from tests.fuzzing import NAMES, Given, Target, folder_in_memory, targets

Record = dict[str, Any]

EDITED = 3000
"""As many edits of the good documents show how far these alone come."""

MOST_GROWN_KB = 64 << 10
MOST_SECONDS = 10
PROCESS = Path(__file__).with_name("fuzz_process.py")
ENDED = re.compile(r"DONE +cov: (\d+) ft: \d+ corp: (\d+)/")


@contextmanager
def opened(name: str) -> Iterator[Target]:
    with folder_in_memory() as folder:
        yield targets(Given(folder))[name]


def run(name: str, way: str, seconds: int, work: Path) -> Record:
    """One guided run; the inputs that it kept lie in ``work/found``."""
    (work / "found").mkdir(parents=True)
    (work / "counts").write_bytes(bytes(COUNTS.size))
    longest = in_child(lambda: write_good(name, work / "good"))[0]
    began = time.monotonic()
    argv = [PROCESS, name, way, work / "counts", *bounds(name, seconds, longest, work)]
    done = subprocess.run(
        [sys.executable, *argv], capture_output=True, text=True, errors="replace", check=False
    )
    took = round(time.monotonic() - began, 1)
    executions, accepted, first_kb, most_kb = COUNTS.unpack((work / "counts").read_bytes())
    ended = ENDED.search(done.stderr)
    edges, kept = (int(ended[1]), int(ended[2])) if ended else (0, 0)
    return {
        "type": "fuzz-guided",
        "decoder": name,
        "way": way,
        "executions": executions,
        "accepted": accepted,
        "failures": n_failures(done, work, most_kb - first_kb),
        "edges": edges,
        "inputs": kept,
        "lines": in_child(lambda: lines_of(name, corpus.inputs(work / "found")))[0],
        "seconds": took,
        "grown_kb": most_kb - first_kb,
    }


def n_failures(done: subprocess.CompletedProcess[str], work: Path, grown_kb: int) -> int:
    """How many there were in a run, which ends at the first; told on stderr."""
    found = sorted(work.glob("failed-*"))
    is_good = done.returncode == 0 and ENDED.search(done.stderr) and grown_kb <= MOST_GROWN_KB
    if is_good and not found:
        return 0
    print(done.stderr[-6000:], file=sys.stderr)
    print(f"{work}: {grown_kb:,} KB more, {[path.name for path in found]}", file=sys.stderr)
    return max(1, len(found))


def write_good(name: str, folder: Path) -> int:
    """Put the good documents there as inputs; how long the longest is."""
    with opened(name) as target:
        good = corpus.good_inputs(target)
    folder.mkdir()
    for number, data in enumerate(good):
        (folder / str(number)).write_bytes(data)
    return max(map(len, good))


def bounds(name: str, seconds: int, longest: int, work: Path) -> Sequence[str]:
    """What libFuzzer is told: its bounds, and where inputs go and come from."""
    folders = [work / "found", work / "good", corpus.folder_of(name)]
    return (
        f"-max_total_time={seconds}",
        f"-timeout={MOST_SECONDS}",
        f"-max_len={longest + 4096}",
        "-rss_limit_mb=1024",
        f"-artifact_prefix={work}/failed-",
        *[os.fspath(folder) for folder in folders if folder.is_dir()],
    )


def lines_of(name: str, data: Sequence[bytes]) -> int:
    """How many lines of kvg the good documents and ``data`` reach."""
    with opened(name) as target:
        return corpus.lines_in(corpus.traced(target, [*corpus.good_inputs(target), *data]))


def lines_of_edits(name: str) -> int:
    """How many lines edits of the good documents reach, by chance alone."""
    with opened(name) as target:
        return corpus.lines_in(
            corpus.traced(target, list(corpus.edited_inputs(target, Random(0), EDITED)))
        )


def keep_least(name: str, works: Sequence[Path]) -> int:
    """Leave in the corpus what is needed of it and of all that was found."""
    data = [data for work in works for data in corpus.inputs(work / "found")]
    data += corpus.inputs(corpus.folder_of(name))
    with opened(name) as target:
        corpus.keep(name, corpus.least(target, data, corpus.most_bytes_of(name)))
    return len(data)


def corpus_record(name: str) -> Record:
    kept = corpus.inputs(corpus.folder_of(name))
    return {
        "type": "fuzz-corpus",
        "decoder": name,
        "files": len(kept),
        "bytes": sum(map(len, kept)),
        "lines": in_child(lambda: lines_of(name, kept))[0],
        "lines_good": in_child(lambda: lines_of(name, []))[0],
        "edits": EDITED,
        "lines_edits": in_child(lambda: lines_of_edits(name))[0],
    }


def machine() -> Record:
    return {
        "type": "bench-machine",
        "bench": "fuzz-guided",
        "cpu": cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "versions": {"python": platform.python_version(), "atheris": version("atheris")},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--work", type=Path, help="a new folder; else one that is removed")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    asked = parser.parse_args()
    for name in asked.names:
        if name not in NAMES:
            parser.error(f"{name}: no decoder, one of {', '.join(NAMES)}")
    work = asked.work or Path(tempfile.mkdtemp(prefix="kvg-fuzz-"))
    n_failed = 0
    print(json.dumps(machine()), flush=True)
    for name in asked.names or NAMES:
        works = [work / corpus.folder_of(name).name / way for way in WAYS]
        for way, place in zip(WAYS, works, strict=True):
            record = run(name, way, asked.seconds, place)
            print(json.dumps(record), flush=True)
            n_failed += record["failures"] != 0
        if asked.keep:
            in_child(lambda name=name, works=works: keep_least(name, works))
        print(json.dumps(corpus_record(name)), flush=True)
    if not n_failed and asked.work is None:
        shutil.rmtree(work)
    return int(n_failed > 0)


if __name__ == "__main__":
    sys.exit(main())
