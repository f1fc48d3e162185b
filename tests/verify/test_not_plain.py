"""A pipe, socket, device or folder in place of a file of the store: named, never waited for."""

from __future__ import annotations

import os
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kvg.errors import Corrupt, KvgError, Untrusted
from kvg.flow.exchange.publishers import sign_publisher
from kvg.store import Store
from kvg.verify.check import check_store
from kvg.verify.findings import Finding
from kvg.verify.fsck import fsck
from tests import artifacts as a

FILES = (
    "format",
    "config.toml",
    "trust.json",
    "lock",
    "log/checkpoint",
    "log/verifier",
    "log/tile/0/000.p/WIDEST",
    "log/tile/entries/000.p/WIDEST",
    "peers/OTHER/checkpoint",
    "peers/OTHER/verifier",
    "peers/OTHER/tile/entries/000.p/1",
)
WAIT_S = 20


def fifo(path: Path) -> None:
    os.mkfifo(path)


def listening(path: Path) -> None:
    here = os.open(".", os.O_RDONLY)  # the name of a socket is short: bind it where it lies
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.fchdir(here)
        os.close(here)


def folder(path: Path) -> None:
    path.mkdir()


def device(path: Path) -> None:
    try:
        os.mknod(path, 0o600 | 0o020000, os.makedev(1, 5))  # /dev/zero
    except PermissionError:
        pytest.skip("making a device takes root")


@pytest.fixture(autouse=True)
def never_waits() -> Iterator[None]:
    def late(*_: object) -> None:
        raise TimeoutError("waited for the other end")

    old = signal.signal(signal.SIGALRM, late)
    signal.alarm(WAIT_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, old)


def made(tmp_path: Path) -> Path:
    """A store with a deposit and the log of somebody else."""
    store, key = a.make_store(tmp_path)
    a.deposit(store, key)
    other, key = a.make_store(tmp_path / "else")
    origin = other.log.origin
    shutil.copytree(other.root / "log", store.root / "peers" / origin)
    store.peers.keep_publisher(origin, sign_publisher(origin, other.log.verifier, [key]))
    store.close()
    return store.root


def looked(check: Callable[[Store], Iterator[object]], root: Path) -> list[Finding]:
    try:
        store = Store.open(root, keyring=a.make_keyring(root.parent))
        return [item for item in check(store) if isinstance(item, Finding)]
    except KvgError as error:
        return [Finding(error.code, error.kind, "store", error.message)]


@pytest.mark.parametrize("put", [fifo, listening, folder, device])
@pytest.mark.parametrize("name", FILES)
def test_every_file_of_a_store(tmp_path: Path, name: str, put: Callable[[Path], None]) -> None:
    root = made(tmp_path)
    assert looked(fsck, root) == []
    (other,) = (path.name for path in (root / "peers").iterdir())
    name = name.replace("OTHER", other)
    if name.endswith("WIDEST"):
        widths = (int(item) for item in os.listdir((root / name).parent))
        name = name.replace("WIDEST", str(max(widths)))
    (root / name).unlink()
    put(root / name)
    checks = [fsck] if name.startswith(("peers", "lock")) else [fsck, check_store]
    for check in checks:
        found = looked(check, root)
        assert found, check
        assert {item.code for item in found} <= {Corrupt.code, Untrusted.code}, found
        assert any(name.removeprefix("log/") in item.message for item in found), found


@pytest.mark.parametrize("put", [fifo, listening, device])
@pytest.mark.parametrize("name", ["tmp/partial.1", "peers/pipe", "log/pipe", "pipe"])
def test_what_nobody_put_there(tmp_path: Path, name: str, put: Callable[[Path], None]) -> None:
    root = made(tmp_path)
    put(root / name)
    assert [item.object for item in looked(fsck, root)] == [name]


@pytest.mark.parametrize("put", [fifo, listening])
@pytest.mark.parametrize("name", ["data.mdb", "lock.mdb"])
def test_the_index_is_a_cache(tmp_path: Path, name: str, put: Callable[[Path], None]) -> None:
    root = made(tmp_path)
    path = root / "index.lmdb" / name
    path.unlink()
    put(path)
    found = looked(fsck, root)
    assert {item.object for item in found} <= {"index.lmdb", f"index.lmdb/{name}"}
    store = Store.open(root, keyring=a.make_keyring(tmp_path))
    assert set(store.refs()) == {"demo"}
    assert [item for item in looked(check_store, root) if "index" not in item.object] == []


@pytest.mark.parametrize("put", [fifo, listening, folder])
def test_keys(tmp_path: Path, put: Callable[[Path], None]) -> None:
    root = made(tmp_path)
    keyring = a.make_keyring(tmp_path)
    origin = Store.open(root, keyring=keyring).log.origin
    for suffix in (".pem", ".pub", ".seen"):
        path = tmp_path / "keys" / "logs" / f"{origin}{suffix}"
        kept = path.read_bytes()
        path.unlink()
        put(path)
        reading: Callable[[], object] = {
            ".pem": lambda: keyring.log_key(origin),
            ".pub": lambda: keyring.log_public(origin),
            ".seen": lambda: keyring.seen_checkpoint(origin),
        }[suffix]
        with pytest.raises((Corrupt, Untrusted), match=f"{origin}.*: not a plain file"):
            reading()
        path.rmdir() if path.is_dir() else path.unlink()
        path.write_bytes(kept)
        path.chmod(0o600)


def test_a_passphrase_from_a_pipe_is_read_when_there_is_one(tmp_path: Path) -> None:
    from kvg.cli.layers import passphrase_source
    from kvg.cli.terminal import Terminal

    path = tmp_path / "secret"
    os.mkfifo(path)
    ask = passphrase_source({"KVG_PASSPHRASE_FILE": str(path)}, Terminal(*[False] * 7))
    assert ask is not None
    with pytest.raises(KvgError, match=r"secret: empty"):
        ask()
    reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    writing = os.open(path, os.O_WRONLY)
    os.write(writing, b"open sesame\n")
    os.close(writing)
    assert ask() == b"open sesame"
    os.close(reading)
