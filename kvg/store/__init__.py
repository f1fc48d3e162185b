"""A store: objects, log, trust and the index over them. The only home of LMDB."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvg.store.config import Config
    from kvg.store.expectation import ANY, Expectation
    from kvg.store.names import RefAt, check_ref_name, is_ref_name, parse_ref_at, ref_from_stem
    from kvg.store.objects import ObjectFolder, PutResult
    from kvg.store.pending import Pending
    from kvg.store.publish import Published, RefMove
    from kvg.store.refs import LoggedAttestation, Move, RefValue
    from kvg.store.store import Resolved, Store

_HOMES = {
    "ANY": "kvg.store.expectation",
    "Config": "kvg.store.config",
    "Expectation": "kvg.store.expectation",
    "LoggedAttestation": "kvg.store.refs",
    "Move": "kvg.store.refs",
    "ObjectFolder": "kvg.store.objects",
    "Pending": "kvg.store.pending",
    "Published": "kvg.store.publish",
    "PutResult": "kvg.store.objects",
    "RefAt": "kvg.store.names",
    "RefMove": "kvg.store.publish",
    "RefValue": "kvg.store.refs",
    "Resolved": "kvg.store.store",
    "Store": "kvg.store.store",
    "check_ref_name": "kvg.store.names",
    "is_ref_name": "kvg.store.names",
    "parse_ref_at": "kvg.store.names",
    "ref_from_stem": "kvg.store.names",
}

__all__ = (
    "ANY",
    "Config",
    "Expectation",
    "LoggedAttestation",
    "Move",
    "ObjectFolder",
    "Pending",
    "Published",
    "PutResult",
    "RefAt",
    "RefMove",
    "RefValue",
    "Resolved",
    "Store",
    "check_ref_name",
    "is_ref_name",
    "parse_ref_at",
    "ref_from_stem",
)


def __getattr__(name: str) -> object:
    """Import a name's module when it is first asked for: a command pays for what it uses."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(importlib.import_module(_HOMES[name]), name)
