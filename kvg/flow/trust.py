"""``kvg trust``: whose signatures count in a store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kvg.errors import Corrupt, NotFound, UsageError
from kvg.flow.records.keys import TrustEntry, TrustSummary
from kvg.flow.settings import keyring_of, signing_key
from kvg.trust.policy import DEPOSITOR, PUBLISHER, ROLES, TrustFile, sign_trust

if TYPE_CHECKING:
    from pathlib import Path

    from kvg.flow.records import Record
    from kvg.flow.settings import Settings
    from kvg.signing.keys import PublicKey
    from kvg.store import Store

MAX_FILE_BYTES = 1 << 16


def trust_add(
    store: Store, settings: Settings, given: str, roles: Sequence[str], keys: Sequence[str]
) -> TrustEntry:
    """Trust a key for ``roles`` (none: depositor and publisher).

    ``given`` is a file with a public key, the key itself as a line, or one of the user's own keys
    by name or id. The new trust file is signed by ``keys``, the user's first without any. Raises
    ``NotFound``, ``UsageError``, ``Untrusted`` when those may not sign.
    """
    public = find_public(settings, given)
    wanted = tuple(roles) or (DEPOSITOR, PUBLISHER)
    trust = store.trust
    if settings.tell_dry_run():
        return _entry(trust.with_key(public, wanted), public.keyid, settings)
    signers = [signing_key(settings, store, name) for name in (keys or (None,))]
    trust = store.trust
    known = trust.find(public.keyid)
    if known is None or not set(wanted) <= set(known.roles):
        store.set_trust(sign_trust(trust.with_key(public, wanted), signers))
    return _entry(store.trust, public.keyid, settings)


def trust_list(store: Store, settings: Settings) -> Iterator[Record]:
    """Every trusted key, then the thresholds."""
    trust = store.trust
    for key in trust.keys:
        yield _entry(trust, key.keyid, settings)
    yield TrustSummary(trust.version, {role: trust.threshold(role) for role in ROLES})


def find_public(settings: Settings, given: str) -> PublicKey:
    """The public key that a person means by ``given``. Raises ``NotFound``, ``UsageError``."""
    from kvg.signing.keys import parse_public

    path = settings.cwd / given
    if path.is_file():
        return parse_public(_read(path), what=given)
    try:
        return keyring_of(settings).find(given).public
    except (NotFound, UsageError):
        pass
    try:
        return parse_public(given, what=given[:40])
    except Corrupt:
        raise NotFound(
            f"{given[:80]}: neither a file with a public key, nor one, nor a key of yours",
            hint="kvg key export NAME > key.pub, then kvg trust add key.pub",
        ) from None


def _read(path: Path) -> str:
    from kvg import durable

    with durable.translated(path), open(path, "rb") as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise Corrupt(f"{path}: too large for a public key")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise Corrupt(f"{path}: not a public key") from None


def _entry(trust: TrustFile, keyid: str, settings: Settings) -> TrustEntry:
    from kvg.signing.keys import encode_public

    key = trust.find(keyid)
    if key is None:
        raise NotFound(f"key {keyid[:12]}: not trusted", hint="kvg trust list")
    own = {info.keyid: info.name for info in keyring_of(settings).list()}
    name = own.get(keyid)
    line = encode_public(key.public, "openssh", name or keyid[:12]).strip()
    return TrustEntry(keyid, line, key.roles, name, bool(trust.revocations(keyid)))
