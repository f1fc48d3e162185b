"""An artifact in a registry, seen by clients that know nothing of kvg."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvg.cli.main import main
from kvg.digest import hex_of
from kvg.remote import oci
from tests.exchange.conftest import Person
from tests.remote.programs import Oci, need, registry


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Oci]:
    with registry(tmp_path / "registry") as server:
        yield server


def run(*argv: str, **more: object) -> bytes:
    done = subprocess.run(argv, capture_output=True, check=False, **more)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def test_listed_and_pulled_by_skopeo(
    server: Oci, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    skopeo, sha256sum = need("skopeo"), need("sha256sum")
    alice = Person.make(tmp_path / "alice").init().add(server.url("team/kv"))
    digest = alice.deposit("docs/demo")
    alice.push()
    url = f"docker://{server.host}/team/kv"
    listed = json.loads(run(skopeo, "list-tags", "--tls-verify=false", url))
    assert "docs..demo" in listed["Tags"]
    raw = json.loads(run(skopeo, "inspect", "--raw", "--tls-verify=false", f"{url}:docs..demo"))
    assert raw["artifactType"] == oci.ARTIFACT
    assert raw["config"]["digest"] == digest
    folder = tmp_path / "pulled"
    run(
        skopeo,
        "--insecure-policy",
        "copy",
        "--src-tls-verify=false",
        f"{url}:docs..demo",
        f"dir:{folder}",
    )
    manifest = alice.store.manifest(digest)
    wanted = {manifest.tokens.digest, *(page.digest for page in manifest.pages)}
    assert {layer["annotations"][oci.RAW_DIGEST] for layer in raw["layers"]} == wanted
    for blob in (raw["config"], *raw["layers"]):
        digits = blob["digest"].removeprefix("sha256:")
        assert run(sha256sum, str(folder / digits)).decode().split()[0] == digits
    assert (folder / hex_of(digest)).read_bytes() == bytes(
        alice.store.objects.read(digest, what="manifest")
    )
    for page in manifest.pages:
        capfdbinary.readouterr()
        assert main(["-C", str(alice.folder / "work"), "cat", page.digest]) == 0
        given = capfdbinary.readouterr().out
        assert run(sha256sum, input=given).decode().split()[0] == hex_of(page.digest)


def test_pulled_by_oras(server: Oci, tmp_path: Path) -> None:
    client = pytest.importorskip("oras.client", reason="no oras on this machine")
    alice = Person.make(tmp_path / "alice").init().add(server.url("team/kv"))
    digest = alice.deposit("demo")
    alice.push()
    registry_client = client.OrasClient(hostname=server.host, insecure=True, tls_verify=False)
    manifest = registry_client.get_manifest(f"{server.host}/team/kv:demo")
    assert manifest["artifactType"] == oci.ARTIFACT and manifest["config"]["digest"] == digest
    assert "demo" in registry_client.get_tags(f"{server.host}/team/kv")
