"""Every kind of remote, made the same way."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from kvg.remote import Remote, open_remote
from tests.remote.programs import S3, Ssh, moto, nginx, sshd
from tests.remote.servers import serving

WRITABLE = ("directory", "ssh", "s3")
READABLE = ("http", "http without ranges", "nginx")


@pytest.fixture(scope="session")
def ssh_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ssh]:
    with sshd(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with moto(tmp_path_factory.mktemp("moto")) as server:
        yield server


@dataclass(frozen=True)
class Kind:
    """``remote`` is what is tested, ``writer`` writes to the same place; ``write`` puts (or with
    None removes) bytes there behind their back."""

    name: str
    remote: Remote
    writer: Remote
    write: Callable[[str, bytes | None], None]


def write_file(folder: Path) -> Callable[[str, bytes | None], None]:
    def write(name: str, data: bytes | None) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            path.unlink()
        if data is not None:
            path.write_bytes(data)

    return write


def write_object(server: S3, bucket: str) -> Callable[[str, bytes | None], None]:
    import obstore

    store = server.raw(bucket)

    def write(name: str, data: bytes | None) -> None:
        if data is None:
            obstore.delete(store, f"team/{name}")
        else:
            obstore.put(store, f"team/{name}", data)

    return write


def make_writable(request: pytest.FixtureRequest, folder: Path) -> Kind:
    """A kind that can be written, made a remote."""
    name = request.param
    write = write_file(folder)
    if name == "ssh":
        ssh: Ssh = request.getfixturevalue("ssh_server")
        remote = open_remote(ssh.url(folder), cwd=folder, access=ssh.access)
    elif name == "s3":
        s3: S3 = request.getfixturevalue("s3_server")
        bucket = s3.bucket(f"kvg-{uuid.uuid4().hex}")
        write = write_object(s3, bucket)
        remote = open_remote(f"{bucket}/team", cwd=folder, access=s3.access)
    else:
        remote = open_remote(str(folder), cwd=folder)
    remote.make()
    return Kind(name, remote, remote, write)


@pytest.fixture(params=[*WRITABLE, *READABLE])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kind]:
    """Each kind that can be read, in turn, made a remote."""
    folder = tmp_path / "remote"
    with ExitStack() as stack:
        if request.param in WRITABLE:
            made = make_writable(request, folder)
            stack.callback(made.remote.close)
            yield made
            return
        writer = open_remote(str(folder), cwd=tmp_path)
        writer.make()
        if request.param == "nginx":
            url = stack.enter_context(nginx(tmp_path / "nginx", folder))
        else:
            has_ranges = request.param == "http"
            url = stack.enter_context(serving(folder, has_ranges=has_ranges)).url
        remote = open_remote(url, cwd=tmp_path)
        stack.callback(remote.close)
        yield Kind(request.param, remote, writer, write_file(folder))


@pytest.fixture(params=WRITABLE)
def writable(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Remote]:
    """Each kind that can be written, in turn, made a remote."""
    made = make_writable(request, tmp_path / "remote")
    yield made.remote
    made.remote.close()
