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
    """A key that the store trusts for ``roles``; with none, no longer.

    ``name`` is that of the user's own key, if it is one.
    """

    type: ClassVar[str] = "trusted-key"
    keyid: str
    public: str
    roles: tuple[str, ...]
    name: str | None
    revoked: bool


@frozen
class Revoked(Record):
    """A key that counts only for what the log ``origin`` held before it had ``size`` entries.

    ``version`` is that of the trust file.
    """

    type: ClassVar[str] = "revocation"
    keyid: str
    name: str | None
    origin: str
    size: int
    version: int


@frozen
class Rekeyed(Record):
    """A log's key was replaced: its verifier lines before and after, and the entry that says so.

    ``verifier`` and ``index`` are None in a dry run.
    """

    type: ClassVar[str] = "rekeyed"
    origin: str
    previous: str
    verifier: str | None
    index: int | None


@frozen
class Threshold(Record):
    """How many distinct keys ``role`` needs, and how many are trusted for it."""

    type: ClassVar[str] = "threshold"
    role: str
    needed: int
    trusted: int
    version: int


@frozen
class TrustSummary(Record):
    """The trust file: its version, and how many keys each role needs."""

    type: ClassVar[str] = "trust-summary"
    version: int
    thresholds: Mapping[str, int]
