"""The store's trust file: ``trust.json`` is a copy of the object that the log names as newest.

Order of a change, each durable before the next: the object, the log, ``trust.json``. So after a
crash the log decides, and a file that the log does not know was changed by hand.
"""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING

from kvg import durable
from kvg.digest import Digest, sha256
from kvg.errors import KvgError, NotFound, Untrusted
from kvg.trust.policy import (
    TrustFile,
    bootstrap_trust,
    check_signed,
    check_succession,
    encode_trust,
    parse_trust,
)

if TYPE_CHECKING:
    from kvg.log.entry import Entry
    from kvg.signing.keys import PrivateKey
    from kvg.store.publish import Published
    from kvg.store.store import Store

FILE = "trust.json"
MAX_FILE_BYTES = 1 << 20


def read_trust(store: Store) -> TrustFile:
    """See ``Store.trust``."""
    path = store.root / FILE
    data = read_file(store)
    versions = store.trust_versions()
    if not versions:
        if data is not None:
            raise Untrusted(f"{path}: not in the log of this store", hint=f"remove {path}")
        return TrustFile()
    newest = versions[-1][1]
    digest = None if data is None else sha256(data)
    if digest is not None and all(digest != known for _, known in versions):
        raise Untrusted(
            f"{path}: changed without the signatures that a change needs",
            hint="kvg fsck --repair puts back the signed one; then use kvg trust",
        )
    if data is None or digest != newest:
        data = bytes(store.objects.read(newest, what=f"trust file of {path}"))
    return _checked(data, str(path))


@lru_cache(maxsize=4)
def _checked(data: bytes, what: str) -> TrustFile:
    """The file with these very bytes, its own signatures checked."""
    trust = parse_trust(data, what=what)
    check_signed(trust, what=what)
    return trust


def stale_version(store: Store) -> int | None:
    """The version that ``trust.json`` is of, where that is an older one than the log names; None
    where it is not. Whose writing was cut has left the one before."""
    data = read_file(store)
    digest = None if data is None else sha256(data)
    older = {known: version for version, known in store.trust_versions()[:-1]}
    return older.get(digest) if digest is not None else None


def finish(store: Store) -> None:
    """Write ``trust.json`` as the log names it, where it is an older one. To be called under the
    lock. What keeps it from that keeps nobody from writing: what counts is the log's."""
    with suppress(KvgError):
        if stale_version(store) is not None:
            newest = store.trust_versions()[-1][1]
            data = bytes(store.objects.read(newest, what="trust file"))
            durable.replace(store.root / FILE, [data], staging=store.staging)


def logged_trust(store: Store) -> TrustFile:
    """The newest version that the log names, whatever ``trust.json`` is like; version 0 when there
    is none. Raises ``Corrupt``, ``Untrusted``."""
    versions = store.trust_versions()
    if not versions:
        return TrustFile()
    what = f"trust file, version {versions[-1][0]}"
    return _checked(bytes(store.objects.read(versions[-1][1], what=what)), what)


def write_trust(store: Store, trust: TrustFile, *, now: int) -> Published:
    """See ``Store.set_trust``."""
    with store.lock.exclusive(), store.pending() as pending:
        old = read_trust(store)
        check_succession(old, trust)
        data = encode_trust(trust)
        digest = pending.put(data).digest
        published = store.publish(_entries(old, trust, digest, now), now=now)
        durable.replace(store.root / FILE, [data], staging=store.staging)
        return published


def trust_first(store: Store, key: PrivateKey, *, now: int) -> bool:
    """See ``Store.trust_first``."""
    with store.lock.exclusive():
        trust = read_trust(store)
        if trust.version:
            if not (store.root / FILE).exists():  # the writing of it was cut
                durable.replace(store.root / FILE, [encode_trust(trust)], staging=store.staging)
            return False
        write_trust(store, bootstrap_trust(key), now=now)
    return True


def check_versions(store: Store) -> None:
    """Check every version that the log names against the one before.

    Raises ``Corrupt`` when one is damaged, ``Untrusted`` when one may not follow the other.
    """
    old = TrustFile()
    for version, digest in store.trust_versions():
        new = read_version(store, digest)
        check_succession(old, new, what=f"trust file, version {version}")
        old = new


def read_version(store: Store, digest: Digest) -> TrustFile:
    """A version of the trust file from its object, unchecked but for its bytes."""
    return parse_trust(store.objects.read(digest, what="trust file"), what="trust file")


def _entries(old: TrustFile, new: TrustFile, digest: Digest, now: int) -> list[Entry]:
    from kvg.log.entry import RevokeEntry, TrustEntry

    added = [item for item in new.revoked if item not in old.revoked]
    entries: list[Entry] = [TrustEntry(now, new.version, digest)]
    return entries + [RevokeEntry(now, item.keyid, item.origin, item.size) for item in added]


def read_file(store: Store) -> bytes | None:
    """The bytes of ``trust.json``, unchecked; None when it is not there."""
    path = store.root / FILE
    try:
        with durable.translated(path), open(path, "rb", opener=durable.plain) as file:
            return file.read(MAX_FILE_BYTES + 1)
    except NotFound:
        return None
