"""Figures of a store: how fast ``verify`` is, in how much memory, and how commands grow with it.

    python bench/store.py [--bytes N,...] [--artifacts N,...] [--folder DIR] > store.jsonl

``--bytes``: an artifact of so many bytes of random pages each; ``kvg verify`` reads every byte.
Beside it, in the same run, what all cores hash together (SHA-256, from memory), and what it takes
where there is one page of 8 MiB: the start of a process, for the most part.
``--artifacts``: a store of so many artifacts of 100 objects each; ``ls``, ``log``, ``rev-parse``
and ``gc --dry-run`` on it. Every command is a process of its own: seconds from start to end, CPU
seconds, and its largest memory. One JSON record a line, the machine first; a table on stderr.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kvg import codec
from kvg.digest import Digest, blake3_hex, sha256
from kvg.log.entry import AttestationEntry
from kvg.objects import manifest as m
from kvg.objects import page as p
from kvg.objects.statement import encode_provenance
from kvg.objects.tokens import encode_ids
from kvg.signing.dsse import sign_envelope
from kvg.signing.keys import PrivateKey
from kvg.store import RefMove, Store
from tests import artifacts as a

PROGRAM = "from kvg.cli.main import run; run()"
STARTER = """
import json, resource, subprocess, sys, time
began = time.monotonic()
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
seconds = time.monotonic() - began
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([seconds, used.ru_utime + used.ru_stime, used.ru_maxrss]))
"""
PAGE_TOKENS = 256
BIG = m.Group("full", "attention", tuple(range(32)), 8, 32, 32, "BF16", None)
"""Pages of 8 MiB, those of a model of some billion parameters."""

SMALL_PAGES = 98
"""With token ids and the manifest 100 objects."""


def layout_of(group: m.Group) -> m.Layout:
    spec = [m.LayerSpec(i, "attention", group.kv_heads, group.k_dim, group.v_dim, "BF16", None)
            for i in group.layers]  # fmt: skip
    return m.Layout(PAGE_TOKENS, m.group_layers(spec))


def page(group: m.Group, start: int, data: bytes) -> tuple[m.Page, bytes]:
    raw = p.page_header(group, PAGE_TOKENS) + data
    digest = sha256(raw)
    return m.Page(group.name, start, start + PAGE_TOKENS, digest, blake3_hex(raw), len(raw)), raw


def manifest_of(layout: m.Layout, pages: Sequence[m.Page], ids: Sequence[int]) -> m.Manifest:
    tokens = m.Tokens(sha256(encode_ids(ids)), len(ids))
    witness = a.witness_at(ids, len(ids) - 1)
    return m.Manifest(a.MODEL, a.ENGINE, tokens, layout, tuple(pages), (witness,))


def make_big(folder: Path, size_bytes: int) -> None:
    """A store with one artifact of about ``size_bytes``, signed and named ``big``."""
    store, key = a.make_store(folder)
    layout = layout_of(BIG)
    (group,) = layout.groups
    data_bytes = p.data_size(group, PAGE_TOKENS)
    n_pages = max(1, size_bytes // data_bytes)
    ids = range(n_pages * PAGE_TOKENS)
    pages = []
    with store.pending() as pending:
        for n in range(n_pages):
            found, raw = page(group, n * PAGE_TOKENS, os.urandom(data_bytes))
            start = p.data_start(group, PAGE_TOKENS)
            pending.put(raw, digest=found.digest, data_start=start, element=2)
            pages.append(found)
        pending.put(a.SOURCE)
        pending.put(encode_ids(ids), element=4)
        digest = pending.put(m.encode_manifest(manifest_of(layout, pages, ids))).digest
        envelope = pending.put(sign_envelope(encode_provenance(digest, a.provenance()), [key]))
        store.record(digest, [envelope.digest], refs=[RefMove("big", digest)], now=a.NOW)
    store.close()


def write_object(store: Store, raw: bytes) -> Digest:
    """An object without the waiting for the disk that a million of them would take."""
    digest = sha256(raw)
    path = store.objects.stored_path(digest)
    path.parent.mkdir(exist_ok=True)
    if not path.exists():
        path.write_bytes(b"".join(map(bytes, codec.encode(raw, digest=digest, codec=1).parts())))
    return digest


def grow(
    store: Store, key: PrivateKey, first: int, last: int, *, n_pages: int = SMALL_PAGES
) -> None:
    """Add the artifacts ``first`` to ``last``, each with a ref, in publications of a thousand."""
    group = m.Group("full", "attention", (0,), 1, 1, 1, "BF16", None)
    layout = layout_of(group)
    (group,) = layout.groups
    data_bytes = p.data_size(group, PAGE_TOKENS)
    for begin in range(first, last, 1000):
        entries: list[AttestationEntry | RefMove] = []
        for number in range(begin, min(last, begin + 1000)):
            ids = [number % 90, number // 90, *range(n_pages * PAGE_TOKENS - 2)]
            made = [page(group, n * PAGE_TOKENS, os.urandom(data_bytes)) for n in range(n_pages)]
            for _, raw in made:
                write_object(store, raw)
            write_object(store, encode_ids(ids))
            manifest = manifest_of(layout, [found for found, _ in made], ids)
            digest = write_object(store, m.encode_manifest(manifest))
            payload = encode_provenance(digest, a.provenance())
            envelope = write_object(store, sign_envelope(payload, [key]))
            entries.append(AttestationEntry(a.NOW, digest, envelope))
            entries.append(RefMove(f"a/{number:06}", digest))
        store.publish(entries, now=a.NOW)


def command(folder: Path, *words: str) -> dict[str, float]:
    """Run one command; its seconds, CPU seconds and largest memory.

    A small process starts it: the largest memory of a child counts what its parent held.
    """
    environment = {**os.environ, "XDG_DATA_HOME": str(folder / "home"),
                   "PYTHONPATH": sys.path[0]}  # fmt: skip
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [sys.executable, "-c", STARTER, sys.executable, "-c", PROGRAM, *words],
        cwd=folder, env=environment, check=True, capture_output=True, text=True,
    )  # fmt: skip
    seconds, cpu, kilobytes = json.loads(done.stdout)
    return {"seconds": round(seconds, 3), "cpu_seconds": round(cpu, 3),
            "memory_mb": round(kilobytes / 1024, 1)}  # fmt: skip


def sha256_rate(size_bytes: int = 512 << 20) -> float:
    """GB/s of SHA-256 of all cores together, each on its own memory."""
    cores = len(os.sched_getaffinity(0))
    data = [os.urandom(8 << 20) for _ in range(cores)]

    def work(block: bytes) -> None:
        for _ in range(size_bytes // cores // len(block)):
            hashlib.sha256(block).digest()

    best = 0.0
    with ThreadPoolExecutor(cores) as pool:
        for _ in range(3):
            began = time.monotonic()
            list(pool.map(work, data))
            best = max(best, size_bytes / (time.monotonic() - began) / 1e9)
    return round(best, 3)


def verify_figures(place: Path, sizes: Sequence[int]) -> Iterator[dict[str, object]]:
    small = place / "small"
    small.mkdir()
    make_big(small, 1)
    command(small, "verify", "--quiet")
    starts = [command(small, "verify", "--quiet")["seconds"] for _ in range(5)]
    for size_bytes in sizes:
        folder = place / f"big-{size_bytes}"
        folder.mkdir()
        make_big(folder, size_bytes)
        rates = [sha256_rate()]
        runs = []
        for _ in range(3):
            runs.append(command(folder, "verify", "--quiet"))
            rates.append(sha256_rate())
        best = min(runs, key=lambda found: found["seconds"])
        rate = size_bytes / best["seconds"] / 1e9
        yield {"type": "verify", "bytes": size_bytes, **best, "gb_per_s": round(rate, 3),
               "sha256_all_cores_gb_per_s": max(rates),
               "ratio": round(rate / max(rates), 3),
               "start_seconds": min(starts), "start_runs": starts,
               "ratio_without_start": without_start(size_bytes, best["seconds"], starts, rates),
               "runs": runs, "sha256_runs_gb_per_s": rates}  # fmt: skip
        shutil.rmtree(folder)


def without_start(
    size_bytes: int, seconds: float, starts: Sequence[float], rates: Sequence[float]
) -> float:
    """The share of SHA-256's rate, less what ``verify`` of one page takes."""
    return round(size_bytes / (seconds - min(starts)) / 1e9 / max(rates), 3)


def growth_figures(place: Path, counts: Sequence[int]) -> Iterator[dict[str, object]]:
    if not counts:
        return
    folder = place / "many"
    folder.mkdir()
    store, key = a.make_store(folder)
    done = 0
    write_object(store, a.SOURCE)
    for count in sorted(counts):
        grow(store, key, done, count)
        done = count
        store.close()
        command(folder, "ls")  # the index is brought up to date once, as the first command does
        for words in (("ls",), ("log",), ("rev-parse", f"a/{count - 1:06}"), ("gc", "--dry-run")):
            found = command(folder, *words)
            yield {"type": "growth", "command": " ".join(words[:1]), "artifacts": count,
                   "objects": count * (SMALL_PAGES + 3), **found}  # fmt: skip


def machine() -> dict[str, object]:
    name = next(
        (line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
         if line.startswith("model name")), platform.processor())  # fmt: skip
    return {"type": "machine", "cpu": name, "cores": len(os.sched_getaffinity(0)),
            "python": platform.python_version(), "system": platform.platform()}  # fmt: skip


def numbers(text: str) -> list[int]:
    return [int(float(part)) for part in text.split(",") if part]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=numbers, default=[256 << 20, 2 << 30])
    parser.add_argument("--artifacts", type=numbers, default=[100, 1000, 10_000])
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as name:
        place = Path(name)
        show(machine())
        for record in verify_figures(place, asked.bytes):
            show(record)
        for record in growth_figures(place, asked.artifacts):
            show(record)
    return 0


def show(record: dict[str, object]) -> None:
    print(json.dumps(record), flush=True)
    print("  ".join(f"{key} {value}" for key, value in record.items()), file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
