"""Two stores on two hosts, which are network namespaces of this machine, over real servers.

One host has the model, a store and the servers; the other gets everything over the network, and
replays it with the model: over ssh, and with ``KVG_HOSTS_ALL=1`` over every server. Needs root and
``ip``; skipped by name without them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.models import make_model, text_of
from tests.remote.programs import (
    SYSTEM_PATH,
    Host,
    kvg_program,
    moto,
    need,
    nginx,
    registry,
    sshd,
)

KINDS = ("ssh", "nginx", "s3", "oci")
REPLAYED = KINDS if os.environ.get("KVG_HOSTS_ALL") else KINDS[:1]
"""Over which of them what came is replayed, too; its bytes are compared over each."""


@dataclass(frozen=True)
class Person:
    """Somebody on a host, with a home of their own; ``kvg`` runs as a process there."""

    home: Path
    host: Host
    env: dict[str, str] = field(default_factory=dict)

    def kvg(self, *words: str | Path, code: int = 0) -> bytes:
        env = {
            "PATH": f"{self.home / 'bin'}:{SYSTEM_PATH}",
            "HOME": str(self.home),
            "OMP_NUM_THREADS": "1",
            **self.env,
        }
        for variable, folder in (("DATA", "data"), ("CONFIG", "config"), ("CACHE", "cache")):
            env[f"XDG_{variable}_HOME"] = str(self.home / folder)
        done = subprocess.run(
            [*self.host.prefix, str(self.home / "bin" / "kvg"), *map(str, words)],
            cwd=self.home,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        assert done.returncode == code, done.stderr.decode()
        return done.stdout

    def json(self, *words: str | Path) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.kvg("--json", *words).splitlines()]


def person(folder: Path, host: Host) -> Person:
    kvg_program(folder / "bin")
    return Person(folder, host)


@pytest.fixture(scope="module")
def hosts() -> Iterator[tuple[Host, Host]]:
    """Two hosts on a wire."""
    ip = need("ip")
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    label = uuid.uuid4().hex[:6]
    names = [f"kvg-{label}-{n}" for n in (1, 2)]
    wires = [f"kv{label}{n}" for n in (1, 2)]
    made: list[str] = []

    def run(*words: str) -> None:
        subprocess.run([ip, *words], check=True, capture_output=True)

    try:
        try:
            for name in names:
                run("netns", "add", name)
                made.append(name)
            run("link", "add", wires[0], "netns", names[0], "type", "veth", "peer", "name",
                wires[1], "netns", names[1])  # fmt: skip
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespaces here: {error.stderr.decode().strip()}")
        for n, (name, wire) in enumerate(zip(names, wires, strict=True), 1):
            run("-n", name, "addr", "add", f"10.77.0.{n}/24", "dev", wire)
            run("-n", name, "link", "set", wire, "up")
            run("-n", name, "link", "set", "lo", "up")
        yield tuple(
            Host(f"10.77.0.{n}", (ip, "netns", "exec", name)) for n, name in enumerate(names, 1)
        )
    finally:
        for name in made:
            subprocess.run([ip, "netns", "del", name], check=False)


@pytest.fixture(scope="module")
def alice(tmp_path_factory: pytest.TempPathFactory, hosts: tuple[Host, Host]) -> Person:
    """Has deposited a text, on the first host."""
    folder = tmp_path_factory.mktemp("alice")
    alice = person(folder, hosts[0])
    model = make_model(folder / "model", "llama")
    (folder / "text.md").write_text(text_of(model, 300))
    alice.kvg("init")
    alice.kvg("model", "add", "tiny", model)
    alice.kvg("deposit", "docs/text", "text.md")
    return alice


@pytest.fixture(params=KINDS)
def place(
    request: pytest.FixtureRequest, alice: Person, tmp_path: Path
) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Where Alice pushes to, where another reads from, and the variables that this takes."""
    kind, here = request.param, alice.host
    with ExitStack() as stack:
        if kind == "ssh":
            ssh = stack.enter_context(sshd(tmp_path / "sshd", here))
            url = ssh.url(tmp_path / "share")
            yield url, url, dict(ssh.access.variables)
        elif kind == "nginx":
            share = tmp_path / "share"
            yield str(share), stack.enter_context(nginx(tmp_path / "nginx", share, here)), {}
        elif kind == "s3":
            s3 = stack.enter_context(moto(tmp_path / "moto", here))
            url = s3.bucket("exchange") + "/kv"
            yield url, url, dict(s3.access.variables)
        else:
            oci = stack.enter_context(registry(tmp_path / "registry", here, login=True))
            yield oci.url("team/kv"), oci.url("team/kv"), dict(oci.access.variables)


def check_replay(alice: Person, bob: Person, peer: tuple[str, ...]) -> None:
    """What ``bob`` got replays exactly, in a process that never saw the text."""
    shutil.copytree(alice.home / "model", bob.home / "a model")
    bob.kvg(*peer, "model", "add", "mine", bob.home / "a model")
    *_, summary = bob.json(*peer, "replay", "docs/text", "--samples", "1")
    assert (summary["samples"], summary["equal"], summary["kl_max"]) == (1, 1, 0)
    assert summary["pages"] == summary["pages_equal"] > 0


@pytest.mark.slow
def test_bytes_and_digests_are_the_same_on_both_hosts(
    alice: Person,
    hosts: tuple[Host, Host],
    place: tuple[str, str, dict[str, str]],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    to, source, env = place
    kind = request.node.callspec.params["place"]
    alice = Person(alice.home, alice.host, env)
    alice.kvg("remote", "add", kind, to)
    (sent,) = (r for r in alice.json("push", kind) if r["type"] == "transfer")
    assert sent["refs"][0]["state"] == "new"
    (key,) = alice.json("key", "list")
    bob = Person(person(tmp_path / "bob", hosts[1]).home, hosts[1], env)
    (got,) = (
        r
        for r in bob.json("clone", source, bob.home / "peer", "--trust", str(key["keyid"]))
        if r["type"] == "transfer"
    )
    assert got["refs"][0]["digest"] == sent["refs"][0]["digest"]
    peer = ("-C", str(bob.home / "peer"))
    (shown,) = alice.json("show", "docs/text")
    objects = [shown["digest"], *(page["digest"] for page in shown["pages"])]
    for digest in objects:
        assert alice.kvg("cat", digest) == bob.kvg(*peer, "cat", digest)
    assert alice.kvg("rev-parse", "docs/text") == bob.kvg(*peer, "rev-parse", "docs/text")
    bob.kvg(*peer, "verify")
    if kind in REPLAYED:
        check_replay(alice, bob, peer)
    if to == source:  # and back, over the network
        bob.kvg(*peer, "tag", f"from/{kind}", "docs/text")
        bob.kvg(*peer, "push", "origin", f"from/{kind}")
        (bobs,) = bob.json("key", "list")
        alice.kvg("trust", "add", f"{bob.home}/data/kvg/keys/{bobs['name']}.pub")
        alice.kvg("pull", kind)
        assert alice.kvg("rev-parse", f"from/{kind}") == alice.kvg("rev-parse", "docs/text")
