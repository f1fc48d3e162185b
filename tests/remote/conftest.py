"""Every kind of remote, made the same way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kvg.remote import Remote, open_remote
from tests.remote.servers import serving

WRITABLE = ("directory",)
READABLE = ("http", "http without ranges")


@dataclass(frozen=True)
class Kind:
    """``remote`` is what is tested; ``writer`` writes to the same place."""

    remote: Remote
    writer: Remote
    folder: Path


@pytest.fixture(params=[*WRITABLE, *READABLE])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kind]:
    """Each kind that can be read, in turn, made a remote."""
    folder = tmp_path / "remote"
    writer = open_remote(str(folder), cwd=tmp_path)
    writer.make()
    if request.param == "directory":
        yield Kind(writer, writer, folder)
        return
    with serving(folder, has_ranges=request.param == "http") as server:
        remote = open_remote(server.url, cwd=tmp_path)
        yield Kind(remote, writer, folder)
        remote.close()


@pytest.fixture(params=WRITABLE)
def writable(request: pytest.FixtureRequest, tmp_path: Path) -> Remote:
    """Each kind that can be written, in turn, made a remote."""
    remote = open_remote(str(tmp_path / "remote"), cwd=tmp_path)
    remote.make()
    return remote
