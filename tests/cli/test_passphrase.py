"""Where a passphrase comes from, and how much of that is read."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kvg.cli.layers import MAX_PASSPHRASE_BYTES, passphrase_source
from kvg.cli.terminal import Terminal
from kvg.errors import KvgError, UsageError

SECRET = b"open sesame"


def asked(name: str, value: str) -> bytes:
    ask = passphrase_source({f"KVG_PASSPHRASE_{name}": value}, Terminal(*[False] * 7))
    assert ask is not None
    return ask()


def of_file(path: Path) -> bytes:
    path.chmod(0o600)
    return asked("FILE", str(path))


def of_descriptor(path: Path) -> bytes:
    return asked("FD", str(os.open(path, os.O_RDONLY)))


def of_command(path: Path) -> bytes:
    return asked("COMMAND", f"cat {path}")


WAYS = (of_file, of_descriptor, of_command)


@pytest.mark.parametrize("way", WAYS)
def test_the_first_line_is_taken(tmp_path: Path, way: Callable[[Path], bytes]) -> None:
    path = tmp_path / "secret"
    for text in (SECRET, SECRET + b"\n", SECRET + b"\r\nmore\n"):
        path.write_bytes(text)
        assert way(path) == SECRET
    path.write_bytes(b"x" * MAX_PASSPHRASE_BYTES)
    assert way(path) == b"x" * MAX_PASSPHRASE_BYTES


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("line", [b"", b"\n"])
def test_what_is_longer_is_refused(
    tmp_path: Path, way: Callable[[Path], bytes], line: bytes
) -> None:
    path = tmp_path / "secret"
    path.write_bytes(SECRET + line + b"x" * MAX_PASSPHRASE_BYTES)
    with pytest.raises(UsageError, match="larger than"):
        way(path)


@pytest.mark.parametrize(
    ("name", "value"),
    [("FILE", "/dev/zero"), ("COMMAND", "yes"), ("COMMAND", "cat /dev/zero"), ("FD", "/dev/zero")],
)
def test_what_never_ends_is_refused(name: str, value: str) -> None:
    """With little memory, which all that is read would fill."""
    if name == "FD":
        value = str(os.open(value, os.O_RDONLY))
    limits = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * 4096 + (256 << 20), limits[1]))
    try:
        with pytest.raises(UsageError, match="larger than"):
            asked(name, value)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


@pytest.mark.parametrize("command", [f"{sys.executable} -c exit(3)", "no-such-program-here", "'"])
def test_a_command_that_fails_gives_none(command: str) -> None:
    with pytest.raises(KvgError, match="KVG_PASSPHRASE_COMMAND: failed"):
        asked("COMMAND", command)
