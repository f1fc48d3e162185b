"""``kvg key``: the user's own signing keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from kvg.errors import NotFound, UsageError
from kvg.flow.records.keys import KeyEntry, PublicText
from kvg.flow.settings import Settings, keyring_of, open_store, tilde

if TYPE_CHECKING:
    from kvg.signing.keys import PrivateKey
    from kvg.store import Store
    from kvg.trust.keyring import KeyInfo

Form = Literal["openssh", "pem", "note"]


def new_key(settings: Settings, name: str, passphrase: bytes | None = None) -> KeyEntry:
    """Make a key, encrypted with a ``passphrase``; a store here that trusts nobody yet trusts it.

    Raises ``Conflict`` when the name is taken.
    """
    if passphrase == b"":
        raise UsageError(f"{name}: empty passphrase")
    store = _store_without_keys(settings)
    key = keyring_of(settings).new(name, passphrase)
    settings.report.notice(f"made signing key {key.public.keyid[:6]} in {tilde(settings.keys)}")
    _trust_first(settings, store, key)
    return show_key(settings, name)


def list_keys(settings: Settings) -> Iterator[KeyEntry]:
    """Every key, by name."""
    for info in keyring_of(settings).list():
        yield _entry(info)


def show_key(settings: Settings, name: str) -> KeyEntry:
    """One key, by name or key id. Raises ``NotFound``."""
    return _entry(keyring_of(settings).find(name))


def import_key(settings: Settings, name: str, data: bytes, *, source: str) -> KeyEntry:
    """Take in a private key, PKCS#8 or OpenSSH PEM; an encrypted one stays encrypted.

    Raises ``Conflict``, ``Corrupt``, ``Incompatible``, ``Untrusted``.
    """
    store = _store_without_keys(settings)
    key = keyring_of(settings).import_(name, data, settings.passphrase, what=source)
    _trust_first(settings, store, key)
    return show_key(settings, name)


def export_key(settings: Settings, name: str, form: Form) -> PublicText:
    """The public key in one of its forms. Raises ``NotFound``."""
    from kvg.signing.keys import encode_public

    info = keyring_of(settings).find(name)
    return PublicText(info.name, info.keyid, form, encode_public(info.public, form, info.name))


def _entry(info: KeyInfo) -> KeyEntry:
    from kvg.signing.keys import encode_public

    line = encode_public(info.public, "openssh", info.name)
    return KeyEntry(info.name, info.keyid, line.strip(), info.encrypted, str(info.path))


def _store_without_keys(settings: Settings) -> Store | None:
    """The store here, if there is one that trusts nobody yet and that this user may write.

    Looked at before a key is made: what is wrong with the store is raised with nothing done.
    """
    try:
        store = open_store(settings)
    except NotFound:
        return None
    if store.trust.version:
        return None
    try:
        store.log_key()
    except NotFound as error:
        settings.report.warning(f"the store here will not trust the key: {error.message}")
        return None
    return store


def _trust_first(settings: Settings, store: Store | None, key: PrivateKey) -> None:
    """Let ``store`` trust ``key`` as its first."""
    if store is not None and store.trust_first(key):
        settings.report.notice(
            f"key {key.public.keyid[:6]} is the first of this store: "
            "trusted as depositor and publisher"
        )
