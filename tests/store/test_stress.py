"""Writers, readers and collectors at once.

``KVG_STRESS_SECONDS`` makes it last longer, and from a minute on with more of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from kvg.verify.findings import Finding
from kvg.verify.fsck import fsck
from tests import artifacts as a
from tests.store.faults import quick_folder

ROOT = Path(__file__).resolve().parents[2]
SECONDS = float(os.environ.get("KVG_STRESS_SECONDS", "4"))
WRITERS, READERS, COLLECTORS = (6, 4, 2) if SECONDS >= 60 else (3, 2, 2)

HEAD = """
import json, random, sys, time
from pathlib import Path
from kvg.errors import Corrupt, KvgError
from kvg.store import Store
from kvg.store.sweep import sweep
from kvg.verify import verify_artifact
from tests import artifacts as a
folder, me, seconds = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
store = Store.open(folder, keyring=a.make_keyring(folder))
choice, end, count = random.Random(me), time.monotonic() + seconds, 0
def whole(digest):
    artifact = verify_artifact(store, digest)
    for page in artifact.manifest.pages:
        artifact.read_page(page)
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
        else:
            a.deposit(store, key, ref=name, ids=ids)
    except Corrupt as error:
        assert known and "missing" in error.message, error.message  # it went before it was named
        continue
    assert store.ref(name) == digest
    whole(digest)
    count += 1
    if choice.random() < 0.4:
        store.set_ref(name, None)
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
            count += 1
        except KvgError as error:  # it may go once its name has moved, were it there and back
            assert store.history(name) != moves, (name, digest, error.message)
"""

COLLECTOR = """
while time.monotonic() < end:
    count += sweep(store, batch=5).objects
"""


def start(code: str, folder: Path, me: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"{HEAD}\n{code}\nprint(json.dumps(count))",
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
    counts: dict[str, int] = {}
    with quick_folder() as folder:
        store, key = a.make_store(folder)
        kept = a.deposit(store, key, ref="kept", ids=range(50, 77))
        running = [("writers", start(WRITER, folder, me)) for me in range(WRITERS)]
        running += [("readers", start(READER, folder, me)) for me in range(READERS)]
        running += [("collectors", start(COLLECTOR, folder, me)) for me in range(COLLECTORS)]
        for role, process in running:
            out, err = process.communicate(timeout=SECONDS * 20 + 120)
            assert process.returncode == 0, f"{role}: {err}"
            counts[role] = counts.get(role, 0) + json.loads(out)
        assert [found for found in fsck(store) if isinstance(found, Finding)] == []
        assert store.refs()["kept"] == kept.digest
    assert all(count > 0 for count in counts.values()), counts
    for role, word in (
        ("writers", "artifacts written"),
        ("readers", "artifacts verified"),
        ("collectors", "objects removed"),
    ):
        record_property("stress matrix", (role, word, counts[role]))
