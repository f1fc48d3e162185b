"""Records of keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from kvg.flow.records.record import Record
from kvg.frozen import frozen


@frozen
class KeyEntry(Record):
    """A key of the user's; ``public`` is its OpenSSH line."""

    type: ClassVar[str] = "key"
    name: str
    keyid: str
    public: str
    encrypted: bool
    path: str


@frozen
class PublicText(Record):
    """A public key in the form that was asked for."""

    type: ClassVar[str] = "public-key"
    name: str
    keyid: str
    form: str
    text: str


@frozen
class TrustEntry(Record):
    """A key that the store trusts, for ``roles``; ``name`` is that of the user's own key, if so."""

    type: ClassVar[str] = "trusted-key"
    keyid: str
    public: str
    roles: tuple[str, ...]
    name: str | None
    revoked: bool


@frozen
class TrustSummary(Record):
    """The trust file: its version, and how many keys each role needs."""

    type: ClassVar[str] = "trust-summary"
    version: int
    thresholds: Mapping[str, int]
