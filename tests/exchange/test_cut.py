"""The connection cut after N bytes, the far side killed, two pushes at once: nothing partial seen.

What is under way over a real server breaks off at several places, with ``KVG_CUT_ALL=1`` at many;
the next try moves what is missing.
"""

from __future__ import annotations

import os
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from kvg.errors import KvgError
from kvg.remote import Access
from tests.exchange.conftest import Outcome, Person
from tests.exchange.proxy import CutProxy
from tests.exchange.test_crash import check_nothing_partial, copy
from tests.remote.programs import REPO, S3, Ssh, moto, nginx, registry, sshd
from tests.store.faults import quick_folder

CUT_ALL = bool(os.environ.get("KVG_CUT_ALL"))
CUTS = 25 if CUT_ALL else 4
"""How many places one exchange is cut at."""


def attempt(work: object) -> Outcome | KvgError:
    """What came of it, also if it failed."""
    try:
        return work()
    except KvgError as error:
        return error


def is_cut(found: Outcome | KvgError) -> bool:
    if isinstance(found, KvgError):
        assert found.code in (5, 9), found
        return True
    assert set(found.codes) <= {5, 6, 9}, found.findings
    return bool(found.codes)


def through(url: str, proxy: CutProxy) -> str:
    parts = urlsplit(url)
    return url.replace(f":{parts.port}", f":{proxy.port}", 1)


def places(total: int) -> Iterator[int]:
    """Bytes to cut after: the first, the last, and some between."""
    for n in range(CUTS):
        yield 1 + (total - 2) * n // (CUTS - 1)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with quick_folder() as folder:
        yield folder


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def link(kind: str, stack: ExitStack, tmp_path: Path) -> tuple[str, str, Access, CutProxy]:
    """A remote: its address, the one through a proxy, the login, and the proxy."""
    if kind == "ssh":
        ssh: Ssh = stack.enter_context(sshd(tmp_path / "sshd"))
        proxy = CutProxy(ssh.port)
        alias = f" -o 'HostKeyAlias=[127.0.0.1]:{ssh.port}'"
        access = Access({"KVG_SSH_COMMAND": ssh.access.variables["KVG_SSH_COMMAND"] + alias})
        url = ssh.url(tmp_path / "share")
        found = url, through(url, proxy), access, proxy
    elif kind == "s3":
        s3: S3 = stack.enter_context(moto(tmp_path / "moto"))
        proxy = CutProxy(int(s3.endpoint.rpartition(":")[2]))
        url = s3.bucket(f"kvg-{uuid.uuid4().hex}") + "/kv"
        access = Access(
            {**s3.access.variables, "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{proxy.port}"}
        )
        found = url, url, access, proxy
    else:
        oci = stack.enter_context(registry(tmp_path / "registry"))
        proxy = CutProxy(int(oci.host.rpartition(":")[2]))
        url = oci.url("team/kv")
        found = url, through(url, proxy), oci.access, proxy
    stack.callback(proxy.close)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ssh", "s3", "oci"])
def test_a_push_cut_anywhere(
    kind: str, world: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvg.remote.s3.MAX_RETRIES", 1)
    _, cut_url, access, proxy = link(kind, world, tmp_path)
    alice = Person.make(tmp_path / "alice", access).init().add(cut_url)
    alice.deposit("demo", range(5, 20))
    proxy.passed = 0
    alice.push()
    bob = Person.make(tmp_path / "bob", access)
    bob.clone(cut_url, alice)
    total, cuts = 0, 0
    for n in range(CUTS):
        digest = alice.deposit("demo", range(n, 60 + n))
        if not total:
            proxy.passed = 0
            alice.push()
            total = proxy.passed
            bob.pull()
            continue
        before = bob.store.ref("demo")
        proxy.cut_after(max(1, total * n // CUTS))
        cuts += is_cut(attempt(alice.push))
        proxy.mend()
        seen = bob.pull()
        assert set(seen.codes) <= {6}, seen.findings  # a log ahead of its pointer, at most
        assert bob.store.ref("demo") in (before, digest)
        check_nothing_partial(bob)
        again = alice.push()
        assert not again.findings and again.states["demo"] in ("moved", "unchanged")
        assert not bob.pull().findings and bob.store.ref("demo") == digest
    assert cuts >= CUTS // 2
    check_nothing_partial(bob)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["nginx", "ssh", "s3", "oci"])
def test_a_pull_cut_anywhere_moves_only_what_is_missing(
    kind: str, world: ExitStack, tmp_path: Path, share: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvg.remote.s3.MAX_RETRIES", 1)
    if kind == "nginx":
        shown = world.enter_context(nginx(tmp_path / "nginx", share))
        proxy = CutProxy(int(urlsplit(shown).port or 0))
        world.callback(proxy.close)
        url, cut_url, access = str(share), through(shown, proxy), Access()
    else:
        _, cut_url, access, proxy = link(kind, world, tmp_path)
        url = cut_url
    alice = Person.make(tmp_path / "alice", access).init().add(url)
    alice.deposit("demo", range(5, 20))
    alice.push()
    bob = Person.make(tmp_path / "bob", access)
    bob.clone(cut_url, alice)
    older, newer = bob.store.ref("demo"), alice.deposit("demo", range(80))
    alice.push()
    copy(bob.folder, tmp_path / "bob0")
    proxy.passed = 0
    whole = bob.pull().transfer
    total, cuts = proxy.passed, 0
    for n_bytes in places(total):
        copy(tmp_path / "bob0", bob.folder)
        proxy.cut_after(n_bytes)
        was_cut = is_cut(attempt(bob.pull))
        cuts += was_cut
        check_nothing_partial(bob)
        assert bob.store.ref("demo") in (older, newer)
        kept = sum(1 for path in (bob.store.staging / "quarantine").rglob("*") if _is_object(path))
        proxy.mend()
        again = bob.pull()
        assert not again.findings and bob.store.ref("demo") == newer
        assert again.transfer.objects_sent <= whole.objects_sent - (kept if was_cut else 0)
        check_nothing_partial(bob)
    assert cuts >= CUTS // 2


def _is_object(path: Path) -> bool:
    return path.is_file() and len(path.parent.name) == 2


DYING = """
import os, sys
sys.path[:0] = [{repo!r}, {kernels!r}]
os.fsync = lambda fd: None
from pathlib import Path
from kvg import durable
from kvg.remote.directory import DirectoryFiles
from kvg.remote.serving import Server

left = int(sys.argv[1])

def hook(name, path):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), 9)

durable.set_hook(hook)
folder = Path(sys.argv[-1].split()[-1])
Server(DirectoryFiles(folder), sys.stdin.buffer, sys.stdout.buffer, is_read_only=False).run()
"""


@pytest.mark.slow
def test_the_far_side_killed_at_every_step(tmp_path: Path, share: Path) -> None:
    program = tmp_path / "far.py"
    program.write_text(DYING.format(repo=str(REPO), kernels=str(REPO / "kernels")))

    def access(steps: int) -> Access:
        return Access({"KVG_SSH_COMMAND": f"{sys.executable} {program} {steps}"})

    alice = Person.make(tmp_path / "alice", access(10**9)).init().add(f"ssh://host{share}")
    alice.deposit("demo", range(5, 20))
    alice.push()
    bob = Person.make(tmp_path / "bob").init().add(share)
    bob.pull(trust=[alice.key.public.keyid])
    digest = alice.deposit("demo", range(40))
    copy(share, tmp_path / "share0")
    copy(alice.folder, tmp_path / "alice0")
    copy(bob.folder, tmp_path / "bob0")
    ended = False
    for steps in range(1, 400, 1 if CUT_ALL else 29):
        for name, folder in (("share0", share), ("alice0", alice.folder), ("bob0", bob.folder)):
            copy(tmp_path / name, folder)
        dying = replace(alice, settings=replace(alice.settings, access=access(steps)))
        ended = not is_cut(attempt(dying.push))
        assert set(bob.pull().codes) <= {6}
        check_nothing_partial(bob)
        assert not alice.push().findings
        assert not bob.pull().findings and bob.store.ref("demo") == digest
        if ended:
            break
    assert ended


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["directory", "ssh", "s3", "oci"])
def test_two_pushes_at_once(kind: str, world: ExitStack, tmp_path: Path, share: Path) -> None:
    access, url = Access(), str(share)
    if kind != "directory":
        _, url, access, _ = link(kind, world, tmp_path)
    alice = Person.make(tmp_path / "alice", access).init().add(url)
    alice.deposit("demo", range(5, 20))
    alice.push()
    bob = Person.make(tmp_path / "bob", access)
    bob.clone(url, alice)
    bob.deposit("bobs", range(22))
    bob.push("bobs")
    alice.pull(trust=[bob.key.public.keyid])
    made = {"alice": alice.deposit("demo", range(40)), "bob": bob.deposit("demo", range(50))}
    found: dict[str, Outcome] = {}
    start = threading.Barrier(2)

    def push(name: str, person: Person) -> None:
        start.wait()
        found[name] = person.push("demo")

    threads = [
        threading.Thread(target=push, args=item) for item in (("alice", alice), ("bob", bob))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    losers = [name for name, outcome in found.items() if outcome.codes]
    assert len(losers) == 1 and len(found) == 2, found
    (finding,) = found[losers[0]].findings
    assert finding.code == 4 and "pull" in finding.hint
    winner = "bob" if losers == ["alice"] else "alice"
    third = Person.make(tmp_path / "third", access)
    third.clone(url, alice, bob)
    assert third.store.ref("demo") == made[winner]
    for person in (alice, bob, third):
        check_nothing_partial(person)
    assert alice.store.ref("demo") == made["alice"] and bob.store.ref("demo") == made["bob"]
