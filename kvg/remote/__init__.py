"""Remotes: dumb storage that stores exchange through. The only home of HTTP, S3 and ssh.

``Remote`` is the protocol; ``open_remote`` makes one from an address. Nothing that a remote says is
believed: bytes are checked against their digests, logs against signed checkpoints, pointers against
logs, by whoever asks.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvg.remote.access import Access, access_of
    from kvg.remote.address import check_address, open_remote
    from kvg.remote.layout import Pointer
    from kvg.remote.remote import LogFiles, Remote

_HOMES = {
    "Access": "kvg.remote.access",
    "LogFiles": "kvg.remote.remote",
    "Pointer": "kvg.remote.layout",
    "Remote": "kvg.remote.remote",
    "access_of": "kvg.remote.access",
    "check_address": "kvg.remote.address",
    "open_remote": "kvg.remote.address",
}

__all__ = (
    "Access",
    "LogFiles",
    "Pointer",
    "Remote",
    "access_of",
    "check_address",
    "open_remote",
)


def __getattr__(name: str) -> object:
    """Import a name's module when it is first asked for: a command pays for what it uses."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(importlib.import_module(_HOMES[name]), name)
