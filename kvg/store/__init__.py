"""A store: objects, log, trust and the index over them. The only home of LMDB."""

from __future__ import annotations

from kvg.store.config import Config
from kvg.store.names import RefAt, check_ref_name, is_ref_name, parse_ref_at, ref_from_stem
from kvg.store.objects import ObjectFolder, PutResult
from kvg.store.pending import Pending
from kvg.store.publish import ANY, Expectation, Published, RefMove
from kvg.store.refs import LoggedAttestation, Move, RefValue
from kvg.store.store import Resolved, Store

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
