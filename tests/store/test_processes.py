"""Several processes at once, under different hash seeds, and stores that can't be written to."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from kvg.errors import KvgError
from kvg.store import Store
from kvg.verify import VerifySummary, check_store, verify_artifact
from tests import artifacts as a

ROOT = Path(__file__).resolve().parents[2]

WRITER = """
import sys
from pathlib import Path
from kvg.errors import Conflict
from kvg.store import Store
from tests import artifacts as a
folder, me = Path(sys.argv[1]), int(sys.argv[2])
store = Store.open(folder, keyring=a.make_keyring(folder))
key = a.key_of("alice")
won = 0
for i in range(8):
    made = a.deposit(store, key, ref=f"w{me}/n{i}", ids=range(i, i + 12 + me))
    while True:
        current = store.ref("contended")
        try:
            store.set_ref("contended", made.digest, expect=current)
            won += current != made.digest
            break
        except Conflict:
            pass
print(won)
"""

DIGEST = """
import sys, tempfile
from pathlib import Path
from tests import artifacts as a
store, key = a.make_store(Path(tempfile.mkdtemp()))
made = a.deposit(store, key, cuts=(13,))
print(made.digest, *made.envelopes, *sorted(store.objects.all()))
"""


def start(code: str, *args: str, seed: str = "random") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *args],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": seed},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_no_ref_is_lost_between_writers(tmp_path: Path) -> None:
    store, _ = a.make_store(tmp_path)
    writers = [start(WRITER, os.fspath(tmp_path), str(me)) for me in range(4)]
    won = 0
    for writer in writers:
        out, err = writer.communicate(timeout=120)
        assert writer.returncode == 0, err
        won += int(out)
    refs = store.refs()
    assert set(refs) == {"contended", *(f"w{me}/n{i}" for me in range(4) for i in range(8))}
    assert len(store.history("contended")) == won
    moves = [move.digest for move in reversed(store.history("contended"))]
    assert all(one != two for one, two in pairwise(moves))
    found = list(check_store(store))
    assert len(found) == 1 and isinstance(found[0], VerifySummary) and found[0].artifacts == 32
    assert list((store.staging / "pending").iterdir()) == []


def test_field_k12_names_do_not_depend_on_the_process(tmp_path: Path) -> None:
    found = {start(DIGEST, seed=seed).communicate(timeout=60)[0] for seed in ("0", "1", "4711")}
    assert len(found) == 1 and "sha256:" in found.pop()


def read_only(folder: Path) -> None:
    for parent, folders, files in os.walk(folder, topdown=False):
        for name in files:
            (Path(parent) / name).chmod(0o444)
        for name in folders:
            (Path(parent) / name).chmod(0o555)
    folder.chmod(0o555)


POWERLESS = """
import ctypes, os
if os.geteuid() == 0:
    head = (ctypes.c_uint32 * 2)(0x20080522, 0)
    assert ctypes.CDLL(None, use_errno=True).capset(head, (ctypes.c_uint32 * 6)()) == 0
"""


def powerless(work: str, *args: str) -> subprocess.CompletedProcess[str]:
    """Run ``work`` so that permissions bind it, also where the test runs as root."""
    return subprocess.run(
        [sys.executable, "-c", POWERLESS + work, *args],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


READ = """
import sys
from pathlib import Path
from kvg.store import Store
from kvg.verify import check_store, verify_artifact
store = Store.open(Path(sys.argv[1]))
print(store.refs()["demo"])
artifact = verify_artifact(store, store.refs()["demo"])
print(sum(len(artifact.read_page(page)) for page in artifact.manifest.pages) > 0)
print(list(check_store(store))[-1].bytes_ok, store.recall(["x"]))
store.remember(["x"], b"y")
"""

WRITE = """
import sys
from pathlib import Path
from kvg.errors import KvgError
from kvg.store import Store
from tests import artifacts as a
store = Store.open(Path(sys.argv[1]), keyring=a.make_keyring(Path(sys.argv[1])))
for work in (
    lambda: a.deposit(store, a.key_of("alice"), ids=range(9)),
    lambda: store.set_ref("x", store.refs()["demo"]),
    lambda: store.config.set("a.b", 1),
    lambda: store.reindex(),
):
    try:
        work()
        print("written")
    except KvgError as error:
        print(error.code, error.message)
"""


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Path]:
    """A store that others may read and nobody may write."""
    store, key = a.make_store(tmp_path / "s")
    a.deposit(store, key)
    store.close()
    read_only(store.root)
    yield tmp_path / "s"
    for parent, _, _ in os.walk(store.root):
        Path(parent).chmod(0o755)


def test_field_s22_a_store_that_can_only_be_read_is_read(shared: Path) -> None:
    ran = powerless(READ, os.fspath(shared))
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[1:] == ["True", "True None"]


def test_a_store_that_can_only_be_read_is_not_written(shared: Path) -> None:
    ran = powerless(WRITE, os.fspath(shared))
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert len(lines) == 4 and "written" not in lines, ran.stdout
    assert all("permission" in line or "not writable" in line or "key" in line for line in lines)


def test_verification_needs_no_index(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    made = a.deposit(store, key)
    store.close()
    (store.root / "index.lmdb" / "data.mdb").unlink()
    assert verify_artifact(Store.open(tmp_path), made.digest).digest == made.digest


def test_a_wrong_place_is_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(KvgError):
        Store.init(tmp_path / "file", keyring=a.make_keyring(tmp_path))


READER = """
import sys, time
from pathlib import Path
from kvg.store import Store
from kvg.verify import verify_artifact
store = Store.open(Path(sys.argv[1]))
seen = 0
while "last" not in store.refs():
    refs = store.refs()
    assert len(refs) >= seen
    seen = len(refs)
    for digest in list(refs.values())[-2:]:
        verify_artifact(store, digest)
print(seen)
"""


def test_readers_take_no_lock_and_see_whole_states(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    readers = [start(READER, os.fspath(tmp_path)) for _ in range(2)]
    for i in range(25):
        a.deposit(store, key, ref=f"r{i:02}", ids=range(i, i + 9))
    with store.lock.exclusive():
        refs = Store.open(tmp_path, lock_wait=0).refs()
    assert len(refs) == 25
    a.deposit(store, key, ref="last")
    for reader in readers:
        out, err = reader.communicate(timeout=60)
        assert reader.returncode == 0, err
        assert 0 <= int(out) <= 26


def test_an_index_ahead_of_a_readers_checkpoint_is_kept(tmp_path: Path) -> None:
    """A reader that read the checkpoint before another process published must not start over."""
    store, key = a.make_store(tmp_path)
    slow = Store.open(tmp_path)
    log, folded = slow.log, []
    a.deposit(store, key)
    answers = iter([log])
    slow.index._log = lambda: next(answers, None) or slow.log
    slow.index._read = lambda digest: folded.append(digest)
    assert set(slow.refs()) == {"demo"}
    assert folded == []
