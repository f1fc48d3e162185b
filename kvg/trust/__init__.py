"""Whose keys count, for what and how many of them; and the user's own keys."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvg.trust.keyring import KeyInfo, Keyring
    from kvg.trust.policy import (
        DEPOSITOR,
        PUBLISHER,
        ROLES,
        VERIFIER,
        Revocation,
        TrustedKey,
        TrustFile,
        TrustSignature,
        bootstrap_trust,
        check_first,
        check_succession,
        encode_trust,
        parse_trust,
        sign_trust,
    )

_HOMES = {
    "DEPOSITOR": "kvg.trust.policy",
    "KeyInfo": "kvg.trust.keyring",
    "Keyring": "kvg.trust.keyring",
    "PUBLISHER": "kvg.trust.policy",
    "ROLES": "kvg.trust.policy",
    "Revocation": "kvg.trust.policy",
    "TrustFile": "kvg.trust.policy",
    "TrustSignature": "kvg.trust.policy",
    "TrustedKey": "kvg.trust.policy",
    "VERIFIER": "kvg.trust.policy",
    "bootstrap_trust": "kvg.trust.policy",
    "check_first": "kvg.trust.policy",
    "check_succession": "kvg.trust.policy",
    "encode_trust": "kvg.trust.policy",
    "parse_trust": "kvg.trust.policy",
    "sign_trust": "kvg.trust.policy",
}

__all__ = (
    "DEPOSITOR",
    "KeyInfo",
    "Keyring",
    "PUBLISHER",
    "ROLES",
    "Revocation",
    "TrustFile",
    "TrustSignature",
    "TrustedKey",
    "VERIFIER",
    "bootstrap_trust",
    "check_first",
    "check_succession",
    "encode_trust",
    "parse_trust",
    "sign_trust",
)


def __getattr__(name: str) -> object:
    """Import a name's module when it is first asked for: a command pays for what it uses."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(importlib.import_module(_HOMES[name]), name)
