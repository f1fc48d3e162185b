"""Failures that users of neighbouring stores reported and that belong to no single module."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.store.faults import quick_folder

ROOT = Path(__file__).resolve().parents[2]

FILL = """
import sys
from collections.abc import Callable
from pathlib import Path
from kvg.digest import shake256
from kvg.store import RefMove
from tests import artifacts as a
folder, n = Path(sys.argv[1]), int(sys.argv[2])
store, key = a.make_store(folder)
made = a.deposit(store, key)
import kvg.durable
kvg.durable.sync_dir = lambda path: None
with store.pending() as pending:
    for i in range(n):
        pending.put(shake256(b"%d" % i, 40), codec=1)
store.publish([RefMove(f"r{i:06}", made.digest) for i in range(n // 4)])
store.close()
"""

MEASURE = """
import json, sys, tracemalloc
from pathlib import Path
from kvg.store import Store
from kvg.store.sweep import sweep
from kvg.verify.fsck import fsck
from tests import artifacts as a
store = Store.open(Path(sys.argv[1]), keyring=a.make_keyring(Path(sys.argv[1])))
what = sys.argv[2]
tracemalloc.start()
if what == "gc":
    found = sweep(store, dry_run=True).objects
elif what == "fsck":
    found = list(fsck(store))[-1].objects
else:
    found = len(store.refs())
# What is asked for; the pages of a mapped file are the system's, which takes them back as it likes.
print(json.dumps([found, tracemalloc.get_traced_memory()[1]]))
"""

SMALL, LARGE = 4000, 16000
MOST_BYTES_EACH = {"gc": 200, "fsck": 200, "refs": 200}
"""What one more object, with a quarter of a ref, may cost."""


def run(code: str, *args: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *args], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_field_s20_memory_hardly_grows_with_the_store(
    record_property: Callable[[str, object], None],
) -> None:
    peaks: dict[str, list[int]] = {}
    for n in (SMALL, LARGE):
        with quick_folder() as folder:
            run(FILL, os.fspath(folder), str(n))
            for what in MOST_BYTES_EACH:
                found, peak = json.loads(run(MEASURE, os.fspath(folder), what))
                assert found >= n // 4
                peaks.setdefault(what, []).append(peak)
    for what, (small, large) in peaks.items():
        most = MOST_BYTES_EACH[what] * (LARGE - SMALL)
        grown = large - small
        assert grown <= most, f"{what}: {grown} bytes more"
        each = f"{max(0, grown) // (LARGE - SMALL)} bytes an object"
        record_property("memory matrix", (what, each, LARGE))
