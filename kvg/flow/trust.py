"""``kvg trust``: whose signatures count in a store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kvg.errors import Corrupt, NotFound, UsageError
from kvg.flow.records.keys import Revoked, Threshold, TrustEntry, TrustSummary
from kvg.flow.settings import keyring_of, signing_key
from kvg.trust.policy import (
    DEPOSITOR,
    PUBLISHER,
    ROLES,
    Revocation,
    TrustFile,
    is_succession,
    sign_trust,
)

if TYPE_CHECKING:
    from pathlib import Path

    from kvg.flow.records import Record
    from kvg.flow.settings import Settings
    from kvg.signing.keys import PublicKey
    from kvg.store import Store
    from kvg.trust.policy import TrustedKey

MIN_KEYID_DIGITS = 6
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

    def added(trust: TrustFile) -> TrustFile:
        known = trust.find(public.keyid)
        has_all = known is not None and set(wanted) <= set(known.roles)
        is_there = has_all and not trust.revocations(public.keyid)
        return trust if is_there else trust.with_key(public, wanted)

    return _entry(_change(store, settings, added, keys), public.keyid, settings)


def trust_remove(
    store: Store, settings: Settings, given: str, roles: Sequence[str], keys: Sequence[str]
) -> TrustEntry:
    """Take ``roles`` (none: all of them) from a trusted key; nothing it signed counts any more.

    Raises ``NotFound``, ``UsageError`` when too few publishers would be left, ``Untrusted``.
    """
    known = _find_trusted(store, settings, given)
    trust = _change(store, settings, lambda old: old.without_key(known.keyid, roles), keys)
    return _entry_of(trust, known, settings)


def trust_revoke(
    store: Store,
    settings: Settings,
    given: str,
    keys: Sequence[str],
    *,
    origin: str | None = None,
    size: int | None = None,
) -> Revoked:
    """Let a key count only for what the log ``origin`` held before it had ``size`` entries.

    Without either: this store's log as it is now. Another publisher's key signs. Raises
    ``NotFound``, ``UsageError``, ``Untrusted``.
    """
    log = store.log
    if size is None and origin not in (None, log.origin):
        raise UsageError(f"{origin}: how far did this log get?", hint="--size N")
    keyid = _find_trusted(store, settings, given).keyid
    place = Revocation(keyid, origin or log.origin, log.size if size is None else size)
    trust = _change(store, settings, lambda old: _with_revocation(old, place), keys)
    stands = min(known.size for known in trust.revocations(keyid) if known.origin == place.origin)
    if size is not None and stands < size:
        raise UsageError(
            f"{keyid[:12]}: revoked from entry {stands:,} of {place.origin} already",
            hint="a revocation is never taken back, nor moved further on",
        )
    return _revoked(replace(place, size=stands), trust, settings)


def _with_revocation(trust: TrustFile, place: Revocation) -> TrustFile:
    for known in trust.revocations(place.keyid):
        if known.origin == place.origin and known.size <= place.size:
            return trust
    return trust.with_revocation(place)


def trust_threshold(
    store: Store, settings: Settings, wanted: Sequence[str], keys: Sequence[str]
) -> Iterator[Threshold]:
    """Set how many distinct keys are needed: each of ``wanted`` is ``ROLE=N``; then every role's.

    Raises ``UsageError``, ``Untrusted`` when those of the keys at hand may not sign.
    """
    numbers = [parse_threshold(text) for text in wanted]

    def changed(trust: TrustFile) -> TrustFile:
        made = trust
        for role, n in numbers:
            if made.threshold(role) != n:
                made = replace(made.with_threshold(role, n), version=trust.version + 1)
        return made

    trust = _change(store, settings, changed, keys) if numbers else store.trust
    for role in ROLES:
        needed, n_keys = trust.threshold(role), len(trust.standing_keys(role))
        if n_keys < needed:
            settings.report.warning(_unmet(role, needed, n_keys))
        yield Threshold(role, needed, n_keys, trust.version)


def _unmet(role: str, needed: int, n_keys: int) -> str:
    have = "1 trusted key has" if n_keys == 1 else f"{n_keys} trusted keys have"
    return (
        f"{role}={needed}: {have} this role, so that nothing can meet it: "
        f"kvg trust add KEY --role {role}"
    )


def parse_threshold(text: str) -> tuple[str, int]:
    """``ROLE=N``. Raises ``UsageError``."""
    role, sign, number = text.partition("=")
    if not sign or role not in ROLES or not (number.isascii() and number.isdigit()):
        raise UsageError(f"{text[:80]}: not ROLE=N", hint=f"a role is one of {', '.join(ROLES)}")
    if len(number) > 4:
        raise UsageError(f"threshold of {role}: {number[:40]} is out of range")
    return role, int(number)


def trust_list(store: Store, settings: Settings) -> Iterator[Record]:
    """Every trusted key, what is revoked from where on, then the thresholds."""
    yield from trust_records(store.trust, settings)


def trust_records(trust: TrustFile, settings: Settings) -> Iterator[Record]:
    """As ``trust_list``, of the file ``trust``."""
    for key in trust.keys:
        yield _entry(trust, key.keyid, settings)
    for place in trust.revoked:
        yield _revoked(place, trust, settings)
    yield TrustSummary(trust.version, {role: trust.threshold(role) for role in ROLES})


def _change(
    store: Store,
    settings: Settings,
    change: Callable[[TrustFile], TrustFile],
    names: Sequence[str],
) -> TrustFile:
    """The trust file after ``change``, signed as the old version and the new ask for. Where another
    has changed it meanwhile, that is what is changed.

    Nothing is signed or written when the change makes no difference, nor in a dry run.
    """
    if settings.tell_dry_run():
        return change(store.trust)
    if not store.trust.version:
        signing_key(settings, store, names[0] if names else None)
    while (new := change(old := store.trust)) != old:
        signed = _signed(settings, store, old, new, names)
        with store.lock.exclusive():
            if store.trust == old:
                store.set_trust(signed)
                break
    return store.trust


def _signed(
    settings: Settings, store: Store, old: TrustFile, new: TrustFile, names: Sequence[str]
) -> TrustFile:
    """``new`` signed by the keys called ``names``; without any by as many of the user's publisher
    keys as it takes. Whether that is enough is for the store to judge."""
    if names or settings.key_file is not None:
        return sign_trust(new, [signing_key(settings, store, name) for name in names or (None,)])
    may = {key.keyid for key in (*old.governors(), *new.governors()) if not _is_gone(new, key)}
    made = new
    for info in keyring_of(settings).list():
        if is_succession(old, made):
            break
        if info.keyid in may:
            made = sign_trust(made, [signing_key(settings, store, info.name)])
    return made


def _is_gone(trust: TrustFile, key: PublicKey) -> bool:
    return bool(trust.revocations(key.keyid))


def _find_trusted(store: Store, settings: Settings, given: str) -> TrustedKey:
    """The trusted key meant by 6 or more digits of its id, or as ``find_public`` says."""
    trust = store.trust
    is_keyid = len(given) >= MIN_KEYID_DIGITS and not set(given) - set("0123456789abcdef")
    found = [key for key in trust.keys if is_keyid and key.keyid.startswith(given)]
    if len(found) > 1:
        raise UsageError(f"{given}: stands for {len(found)} trusted keys", hint="kvg trust list")
    key = found[0] if found else trust.find(find_public(settings, given).keyid)
    if key is None:
        raise NotFound(f"{given[:80]}: not a trusted key", hint="kvg trust list")
    return key


def find_public(settings: Settings, given: str) -> PublicKey:
    """The public key that a person means by ``given``. Raises ``NotFound``, ``UsageError``."""
    from kvg import durable
    from kvg.signing.keys import parse_public

    path = settings.cwd / given
    if durable.is_file(path):
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
            hint=_way_to(given),
        ) from None


def _way_to(given: str) -> str:
    """How to come by the public key that ``given`` may mean."""
    by_file = "kvg key export NAME > key.pub, then kvg trust add key.pub"
    if not set(given) <= set("0123456789abcdef"):
        return by_file
    offered = f"one that a remote offers: kvg pull REMOTE --trust {given[:64]}"
    return f"{offered}; else, from its owner: {by_file}"


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
    key = trust.find(keyid)
    if key is None:
        raise NotFound(f"key {keyid[:12]}: not trusted", hint="kvg trust list")
    return _entry_of(trust, key, settings)


def _entry_of(trust: TrustFile, key: TrustedKey, settings: Settings) -> TrustEntry:
    """``key`` as ``trust`` has it; with no roles when it is trusted no longer."""
    from kvg.signing.keys import encode_public

    now = trust.find(key.keyid)
    name = _own_name(settings, key.keyid)
    line = encode_public(key.public, "openssh", name or key.keyid[:12]).strip()
    is_revoked = bool(trust.revocations(key.keyid))
    return TrustEntry(key.keyid, line, now.roles if now else (), name, is_revoked)


def _revoked(place: Revocation, trust: TrustFile, settings: Settings) -> Revoked:
    name = _own_name(settings, place.keyid)
    return Revoked(place.keyid, name, place.origin, place.size, trust.version)


def _own_name(settings: Settings, keyid: str) -> str | None:
    own = {info.keyid: info.name for info in keyring_of(settings).list()}
    return own.get(keyid)
