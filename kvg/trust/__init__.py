"""Whose keys count, for what and how many of them; and the user's own keys."""

from __future__ import annotations

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
