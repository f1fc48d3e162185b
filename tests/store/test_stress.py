"""Writers, readers and collectors at once.

``KVG_STRESS_SECONDS`` makes it last longer, and from a minute on with more of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from kvg.verify.findings import Finding
from kvg.verify.fsck import fsck
from tests import artifacts as a
from tests.store.faults import quick_folder

ROOT = Path(__file__).resolve().parents[2]
SECONDS = float(os.environ.get("KVG_STRESS_SECONDS", "4"))
WRITERS, READERS, COLLECTORS = (6, 4, 2) if SECONDS >= 60 else (3, 2, 2)

COUNTED = (
    "deposited", "named", "unnamed", "gone_before_named", "verified", "gone_meanwhile", "sweeps",
    "removed", "lost", "wrong",
)  # fmt: skip
"""What the processes count. ``lost``: what a name that stands stands for is not there; ``wrong``:
it is there and not as it was. ``gone_before_named``, ``gone_meanwhile``: no name held it."""

HEAD = """
import json, random, sys, time
from collections import Counter
from pathlib import Path
from kvg.errors import Corrupt, KvgError
from kvg.store import Store
from kvg.store.sweep import sweep
from kvg.verify import verify_artifact
from tests import artifacts as a
folder, me, seconds = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
store = Store.open(folder, keyring=a.make_keyring(folder))
choice, end, counts = random.Random(me), time.monotonic() + seconds, Counter(lost=0, wrong=0)
def whole(digest):
    artifact = verify_artifact(store, digest)
    for page in artifact.manifest.pages:
        artifact.read_page(page)
def failed(what, message):
    counts[what] += 1
    print(f"{what}: {message}", file=sys.stderr)
def is_missing(error):
    return isinstance(error, Corrupt) and "missing" in error.message
"""

WRITER = """
key = a.key_of("alice")
while time.monotonic() < end:
    first = choice.randrange(6)
    ids, name = range(first, first + 9 + choice.randrange(20)), f"w{me}/{choice.randrange(3)}"
    digest = a.build(ids)[0].digest
    known = choice.random() < 0.5
    try:
        if known and digest in store.artifacts() and store.objects.has(digest):
            store.set_ref(name, digest)
            done = "named"
        else:
            a.deposit(store, key, ref=name, ids=ids)
            done = "deposited"
    except Corrupt as error:
        if not (known and is_missing(error)):
            raise
        counts["gone_before_named"] += 1
        continue
    try:
        if store.ref(name) != digest:
            failed("lost", f"{name} is not {digest}")
        whole(digest)
    except KvgError as error:
        failed("lost" if is_missing(error) else "wrong", f"{name}: {error.message}")
    counts[done] += 1
    if choice.random() < 0.4:
        store.set_ref(name, None)
        counts["unnamed"] += 1
"""

READER = """
while time.monotonic() < end:
    for name in store.refs():
        try:
            moves = store.history(name)
        except KvgError:
            continue
        digest = moves[0].digest
        if digest is None:
            continue
        try:
            whole(digest)
            counts["verified"] += 1
        except KvgError as error:
            if store.history(name) != moves:  # its name moved, were it there and back: it may go
                counts["gone_meanwhile"] += 1
            else:
                failed("lost" if is_missing(error) else "wrong", f"{name}: {error.message}")
"""

COLLECTOR = """
while time.monotonic() < end:
    counts["removed"] += sweep(store, batch=5).objects
    counts["sweeps"] += 1
"""


def start(code: str, folder: Path, me: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"{HEAD}\n{code}\nprint(json.dumps(counts))",
            os.fspath(folder),
            str(me),
            str(SECONDS),
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_field_s09_nothing_is_lost_between_writers_readers_and_collectors(
    record_property: Callable[[str, object], None],
) -> None:
    counts = Counter(dict.fromkeys(COUNTED, 0))
    began = time.monotonic()
    with quick_folder() as folder:
        store, key = a.make_store(folder)
        kept = a.deposit(store, key, ref="kept", ids=range(50, 77))
        running = [("writers", start(WRITER, folder, me)) for me in range(WRITERS)]
        running += [("readers", start(READER, folder, me)) for me in range(READERS)]
        running += [("collectors", start(COLLECTOR, folder, me)) for me in range(COLLECTORS)]
        told = ""
        for role, process in running:
            out, err = process.communicate(timeout=SECONDS * 20 + 120)
            assert process.returncode == 0, f"{role}: {err}"
            counts.update(json.loads(out))
            told += err
        seconds = round(time.monotonic() - began, 1)
        found = [found for found in fsck(store) if isinstance(found, Finding)]
        counts["wrong"] += len(found)
        counts["lost"] += store.refs().get("kept") != kept.digest
    assert (counts["lost"], counts["wrong"]) == (0, 0), (told, found)
    assert set(counts) == set(COUNTED)
    written = counts["deposited"] + counts["named"]
    assert min(written, counts["verified"], counts["removed"]) > 0, counts
    sizes = {"writers": WRITERS, "readers": READERS, "collectors": COLLECTORS}
    record_property("record", {"type": "stress", **sizes, "seconds": seconds, **counts})
    points = written + counts["unnamed"] + counts["verified"] + counts["sweeps"]
    size = ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in counts.items())
    record_property(
        "stress matrix", (", ".join(f"{n} {role}" for role, n in sizes.items()), size, points)
    )
