"""Every kind of remote, made the same way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from kvg.remote import Remote, open_remote
from tests.remote.programs import Ssh, nginx, sshd
from tests.remote.servers import serving

WRITABLE = ("directory", "ssh")
READABLE = ("http", "http without ranges", "nginx")


@pytest.fixture(scope="session")
def ssh_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ssh]:
    with sshd(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@dataclass(frozen=True)
class Kind:
    """``remote`` is what is tested; ``writer`` writes to the same place, ``raw`` without asking."""

    name: str
    remote: Remote
    writer: Remote
    folder: Path

    def write(self, name: str, data: bytes | None) -> None:
        """Put (or with None remove) bytes there behind the remote's back."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            path.unlink()
        if data is not None:
            path.write_bytes(data)


@pytest.fixture(params=[*WRITABLE, *READABLE])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kind]:
    """Each kind that can be read, in turn, made a remote."""
    folder = tmp_path / "remote"
    with ExitStack() as stack:
        if request.param in WRITABLE:
            remote = stack.enter_context(_writable(request, folder))
            remote.make()
            yield Kind(request.param, remote, remote, folder)
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
        yield Kind(request.param, remote, writer, folder)


class _writable:
    """Opens a writable kind of remote, and closes it."""

    def __init__(self, request: pytest.FixtureRequest, folder: Path) -> None:
        if request.param == "ssh":
            server: Ssh = request.getfixturevalue("ssh_server")
            self._remote = open_remote(server.url(folder), cwd=folder, access=server.access)
        else:
            self._remote = open_remote(str(folder), cwd=folder)

    def __enter__(self) -> Remote:
        return self._remote

    def __exit__(self, *_: object) -> None:
        self._remote.close()


@pytest.fixture(params=WRITABLE)
def writable(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Remote]:
    """Each kind that can be written, in turn, made a remote."""
    with _writable(request, tmp_path / "remote") as remote:
        remote.make()
        yield remote
