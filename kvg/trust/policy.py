"""``trust.json``: whose signatures count in one store. It never travels.

Rules of a version:

- it is signed by the threshold of publishers of the version before, and by its own;
- the first is signed by its bootstrap key, which is a publisher in it;
- a key that it revokes signs neither it nor anything later, but what a log had included before the
  stated size still counts.

What this does **not** do: it says nothing of whether a version is the newest. The store's log does.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace

from kvg import canon
from kvg.canon import Json
from kvg.digest import Buffer
from kvg.errors import Corrupt, Untrusted, UsageError
from kvg.frozen import frozen
from kvg.signing import base64
from kvg.signing.keys import PrivateKey, PublicKey, public_from_raw

SCHEMA = "kvg.trust/1"
DEPOSITOR = "depositor"
VERIFIER = "verifier"
PUBLISHER = "publisher"
ROLES = (DEPOSITOR, VERIFIER, PUBLISHER)
DEFAULT_THRESHOLDS: Mapping[str, int] = {DEPOSITOR: 1, VERIFIER: 0, PUBLISHER: 1}
"""How many keys are needed where the file states no number; no verifier is needed by default."""

MAX_FILE_BYTES = 1 << 20
MAX_THRESHOLD = 1000
_HEX = frozenset("0123456789abcdef")
_ORIGIN = r"[!-*,-~]{1,255}"
_KEYS = ("schema", "version", "bootstrap", "keys", "thresholds", "revoked", "signatures")


@frozen
class TrustedKey:
    """A key that counts, and for which roles (ascending, at least one)."""

    keyid: str
    public: PublicKey
    roles: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.keyid != self.public.keyid:
            raise Corrupt(f"trust: key {self.keyid[:12]} is not the digest of its public key")
        if not self.roles or self.roles != tuple(sorted(set(self.roles) & set(ROLES))):
            raise Corrupt(f"trust: key {self.keyid[:12]} has roles {self.roles}")


@frozen
class Revocation:
    """A key that counts no more, but for what the log ``origin`` held before it had ``size``."""

    keyid: str
    origin: str
    size: int

    def __post_init__(self) -> None:
        if not _is_keyid(self.keyid):
            raise Corrupt(f"trust: revoked key {self.keyid[:80]!r}")
        if re.fullmatch(_ORIGIN, self.origin) is None or not 0 <= self.size <= canon.MAX_INTEGER:
            raise Corrupt(f"trust: revocation of {self.keyid[:12]} has no position in a log")


@frozen
class TrustSignature:
    """One signature over the file; ``keyid`` only tells which key to try."""

    keyid: str
    sig: bytes

    def __post_init__(self) -> None:
        if not _is_keyid(self.keyid) or len(self.sig) != 64:
            raise Corrupt("trust: malformed signature")


@frozen
class TrustFile:
    """One version. Version 0 is no file at all: nobody is trusted."""

    version: int = 0
    bootstrap: str | None = None
    keys: tuple[TrustedKey, ...] = ()
    thresholds: tuple[tuple[str, int], ...] = ()
    revoked: tuple[Revocation, ...] = ()
    signatures: tuple[TrustSignature, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        if not 0 <= self.version <= canon.MAX_INTEGER:
            raise Corrupt("trust: version is not a count")
        if self.bootstrap is not None and not _is_keyid(self.bootstrap):
            raise Corrupt("trust: bootstrap is not a key id")
        if not _ascends([key.keyid for key in self.keys]):
            raise Corrupt("trust: keys are not in ascending order")
        if not _ascends([role for role, _ in self.thresholds]):
            raise Corrupt("trust: thresholds are not in ascending order")
        for role, n in self.thresholds:
            _check_threshold(role, n)
        if not _ascends([(item.keyid, item.origin) for item in self.revoked]):
            raise Corrupt("trust: revocations are not in ascending order")
        if not _ascends([item.keyid for item in self.signatures]):
            raise Corrupt("trust: signatures are not in ascending order")

    def keys_for(self, role: str) -> tuple[PublicKey, ...]:
        """The keys that have ``role``; revoked ones too, for what a log held before."""
        return tuple(key.public for key in self.keys if role in key.roles)

    def threshold(self, role: str) -> int:
        """How many distinct keys with ``role`` are needed."""
        return dict(self.thresholds).get(role, DEFAULT_THRESHOLDS[role])

    def find(self, keyid: str) -> TrustedKey | None:
        """The trusted key with the whole id ``keyid``."""
        return next((key for key in self.keys if key.keyid == keyid), None)

    def revocations(self, keyid: str) -> tuple[Revocation, ...]:
        """What is said of a revoked key; empty for one that is not revoked."""
        return tuple(item for item in self.revoked if item.keyid == keyid)

    def counts(self, keyid: str, origin: str, index: int | None) -> bool:
        """Whether a signature by ``keyid`` counts that the log ``origin`` holds at ``index``.

        It does unless the key is revoked; then only where that log held it before the stated size.
        """
        found = self.revocations(keyid)
        if not found:
            return True
        return index is not None and any(
            item.origin == origin and index < item.size for item in found
        )

    def governors(self) -> tuple[PublicKey, ...]:
        """The publishers that are not revoked: the keys that sign the next version."""
        return self.standing_keys(PUBLISHER)

    def standing_keys(self, role: str) -> tuple[PublicKey, ...]:
        """The keys with ``role`` that are not revoked: whose new signatures count."""
        return tuple(key for key in self.keys_for(role) if not self.revocations(key.keyid))

    # Each of the following gives the next version, unsigned.

    def with_key(self, public: PublicKey, roles: Iterable[str]) -> TrustFile:
        """The next version, where ``public`` has ``roles`` besides those it had.

        Raises ``UsageError`` on an unknown role and for a revoked key.
        """
        wanted = _check_roles(roles)
        if self.revocations(public.keyid):
            raise UsageError(f"key {public.keyid[:12]} is revoked", hint="kvg key new NAME")
        known = self.find(public.keyid)
        merged = tuple(sorted(wanted | set(known.roles if known else ())))
        others = [key for key in self.keys if key.keyid != public.keyid]
        entry = TrustedKey(public.keyid, public, merged)
        return self._next(keys=tuple(sorted([*others, entry], key=lambda key: key.keyid)))

    def without_key(self, keyid: str, roles: Iterable[str] = ()) -> TrustFile:
        """The next version, where ``keyid`` has lost ``roles`` (all, when none are given).

        What it signed counts no more; see ``with_revocation`` for keeping the past.
        Raises ``UsageError`` when it is not trusted or nobody could sign the next version.
        """
        known = self.find(keyid)
        if known is None:
            raise UsageError(f"key {keyid[:12]} is not trusted", hint="kvg trust list")
        lost = _check_roles(roles) or set(ROLES)
        left = tuple(role for role in known.roles if role not in lost)
        kept = [key for key in self.keys if key.keyid != keyid]
        if left:
            kept.append(TrustedKey(keyid, known.public, left))
        return self._next(keys=tuple(sorted(kept, key=lambda key: key.keyid)))

    def with_threshold(self, role: str, n: int) -> TrustFile:
        """The next version, where ``n`` distinct keys are needed for ``role``.

        Raises ``UsageError``.
        """
        _check_roles([role])
        if not 0 <= n <= MAX_THRESHOLD or (n == 0 and role != VERIFIER):
            raise UsageError(f"threshold of {role}: {n} is out of range", hint="give 1 or more")
        thresholds = tuple(sorted({**dict(self.thresholds), role: n}.items()))
        return self._next(thresholds=thresholds)

    def with_revocation(self, revocation: Revocation) -> TrustFile:
        """The next version, where the key counts only for what the named log held before.

        Raises ``UsageError`` when nobody could sign the next version.
        """
        others = [
            item
            for item in self.revoked
            if (item.keyid, item.origin) != (revocation.keyid, revocation.origin)
        ]
        found = sorted([*others, revocation], key=lambda item: (item.keyid, item.origin))
        return self._next(revoked=tuple(found))

    def _next(
        self,
        *,
        keys: tuple[TrustedKey, ...] | None = None,
        thresholds: tuple[tuple[str, int], ...] | None = None,
        revoked: tuple[Revocation, ...] | None = None,
    ) -> TrustFile:
        made = replace(
            self,
            version=self.version + 1,
            keys=self.keys if keys is None else keys,
            thresholds=self.thresholds if thresholds is None else thresholds,
            revoked=self.revoked if revoked is None else revoked,
            signatures=(),
        )
        if len(made.governors()) < made.threshold(PUBLISHER):
            raise UsageError(
                "too few publishers would be left to sign the trust file",
                hint="kvg trust add KEY --role publisher",
            )
        return made


def bootstrap_trust(key: PrivateKey) -> TrustFile:
    """Version 1: ``key`` is trusted as depositor and publisher, and signs."""
    public = key.public
    entry = TrustedKey(public.keyid, public, (DEPOSITOR, PUBLISHER))
    return sign_trust(TrustFile(1, public.keyid, (entry,)), [key])


def sign_trust(trust: TrustFile, keys: Sequence[PrivateKey]) -> TrustFile:
    """``trust`` with the signatures of ``keys`` besides those it has."""
    message = _message(trust)
    made = {key.public.keyid: TrustSignature(key.public.keyid, key.sign(message)) for key in keys}
    merged = {item.keyid: item for item in trust.signatures} | made
    return replace(trust, signatures=tuple(merged[keyid] for keyid in sorted(merged)))


def _is_keyid(text: str) -> bool:
    return len(text) == 64 and _HEX.issuperset(text)


def check_first(trust: TrustFile, *, what: str = "trust.json") -> None:
    """Raise ``Untrusted`` unless ``trust`` is a version 1 that its bootstrap key signed."""
    first = trust.find(trust.bootstrap) if trust.bootstrap else None
    if trust.version != 1 or first is None or PUBLISHER not in first.roles:
        raise Untrusted(f"{what}: not a first version with a bootstrap key")
    if first.keyid not in _signed_by(trust, [first.public]):
        raise Untrusted(f"{what}: not signed by its bootstrap key {first.keyid[:12]}")


def check_succession(old: TrustFile, new: TrustFile, *, what: str = "trust.json") -> None:
    """Raise ``Untrusted`` unless ``new`` is the version that may follow ``old``."""
    if old.version == 0:
        check_first(new, what=what)
        return
    if new.version != old.version + 1 or new.bootstrap != old.bootstrap:
        raise Untrusted(f"{what}: version {new.version} does not follow {old.version}")
    sizes = _revoked(new)
    if any(sizes.get(place, size + 1) > size for place, size in _revoked(old).items()):
        raise Untrusted(f"{what}: version {new.version} takes back a revocation")
    for trust in (old, new):
        _check_signed(new, trust, what=what)


def is_succession(old: TrustFile, new: TrustFile) -> bool:
    """Whether ``new``, with the signatures that it bears, is the version that may follow."""
    try:
        check_succession(old, new)
    except Untrusted:
        return False
    return True


def check_signed(trust: TrustFile, *, what: str = "trust.json") -> None:
    """Raise ``Untrusted`` unless ``trust`` bears the signatures that it asks for itself."""
    if trust.version == 1:
        check_first(trust, what=what)
    elif trust.version > 1:
        _check_signed(trust, trust, what=what)


def _check_signed(new: TrustFile, by: TrustFile, *, what: str) -> None:
    """Raise ``Untrusted`` unless the publishers of ``by`` signed ``new``; revoked ones do not."""
    allowed = [key for key in by.governors() if not new.revocations(key.keyid)]
    found = _signed_by(new, allowed)
    needed = by.threshold(PUBLISHER)
    if len(found) < needed:
        raise Untrusted(
            f"{what}: version {new.version} is signed by {len(found)} of the {needed} publishers "
            f"that version {by.version} asks for",
            hint="bring the other publishers' keys together: kvg key import NAME FILE, then "
            "--key NAME for each of them",
        )


def _revoked(trust: TrustFile) -> dict[tuple[str, str], int]:
    """From where on each key is revoked in each log."""
    found: dict[tuple[str, str], int] = {}
    for item in trust.revoked:
        place = (item.keyid, item.origin)
        found[place] = min(item.size, found.get(place, item.size))
    return found


def _signed_by(trust: TrustFile, keys: Iterable[PublicKey]) -> frozenset[str]:
    message = _message(trust)
    by_keyid = {item.keyid: item.sig for item in trust.signatures}
    return frozenset(
        key.keyid
        for key in keys
        if key.keyid in by_keyid and key.is_signed(message, by_keyid[key.keyid])
    )


def _message(trust: TrustFile) -> bytes:
    """What is signed: the document with no signatures in it."""
    return encode_trust(replace(trust, signatures=()))


def encode_trust(trust: TrustFile) -> bytes:
    """The canonical bytes of ``trust``."""
    value: Json = {
        "schema": SCHEMA,
        "version": trust.version,
        "bootstrap": trust.bootstrap,
        "keys": [
            {"keyid": key.keyid, "public": base64.encode(key.public.raw), "roles": key.roles}
            for key in trust.keys
        ],
        "thresholds": dict(trust.thresholds),
        "revoked": [
            {"keyid": item.keyid, "origin": item.origin, "size": item.size}
            for item in trust.revoked
        ],
        "signatures": [
            {"keyid": item.keyid, "sig": base64.encode(item.sig)} for item in trust.signatures
        ],
    }
    return canon.encode(value)


def parse_trust(data: Buffer, *, what: str = "trust.json") -> TrustFile:
    """The trust file in ``data``; its signatures are not checked here.

    Raises ``Corrupt`` naming ``what`` on anything but one canonical document, ``Incompatible`` on
    another schema version.
    """
    if memoryview(data).nbytes > MAX_FILE_BYTES:
        raise Corrupt(f"{what}: larger than a trust file can be")
    value = canon.decode(bytes(data), what=what)
    canon.check_schema(value, SCHEMA, what=what)
    found = canon.take(value, _KEYS, what=what)
    try:
        return _read(found, what)
    except Corrupt as error:
        message = error.message if error.message.startswith(what) else f"{what}: {error.message}"
        raise Corrupt(message, hint="kvg fsck") from None


def _read(found: Mapping[str, Json], what: str) -> TrustFile:
    bootstrap = found["bootstrap"]
    thresholds = found["thresholds"]
    if not isinstance(thresholds, Mapping):
        raise Corrupt(f"{what}: thresholds is not an object")
    return TrustFile(
        canon.as_int(found["version"], what=f"{what}: version", least=1),
        None if bootstrap is None else canon.as_str(bootstrap, what=f"{what}: bootstrap"),
        tuple(_read_key(item, what) for item in canon.as_list(found["keys"], what=what)),
        tuple((role, canon.as_int(n, what=what)) for role, n in thresholds.items()),
        tuple(_read_revocation(item, what) for item in canon.as_list(found["revoked"], what=what)),
        tuple(_read_signature(s, what) for s in canon.as_list(found["signatures"], what=what)),
    )


def _read_key(value: Json, what: str) -> TrustedKey:
    found = canon.take(value, ("keyid", "public", "roles"), what=f"{what}: key")
    public = canon.as_str(found["public"], what=f"{what}: public key")
    roles = canon.as_list(found["roles"], what=f"{what}: roles")
    return TrustedKey(
        canon.as_str(found["keyid"], what=f"{what}: keyid"),
        public_from_raw(base64.decode(public, what=f"{what}: public key"), what=what),
        tuple(canon.as_str(role, what=f"{what}: role") for role in roles),
    )


def _read_revocation(value: Json, what: str) -> Revocation:
    found = canon.take(value, ("keyid", "origin", "size"), what=f"{what}: revocation")
    return Revocation(
        canon.as_str(found["keyid"], what=f"{what}: keyid"),
        canon.as_str(found["origin"], what=f"{what}: origin"),
        canon.as_int(found["size"], what=f"{what}: size"),
    )


def _read_signature(value: Json, what: str) -> TrustSignature:
    found = canon.take(value, ("keyid", "sig"), what=f"{what}: signature")
    sig = canon.as_str(found["sig"], what=f"{what}: signature")
    keyid = canon.as_str(found["keyid"], what=f"{what}: keyid")
    return TrustSignature(keyid, base64.decode(sig, what=f"{what}: signature"))


def _ascends(items: Sequence[str] | Sequence[tuple[str, str]]) -> bool:
    return all(a < b for a, b in itertools.pairwise(items))  # type: ignore[operator]


def _check_threshold(role: str, n: int) -> None:
    if role not in ROLES or isinstance(n, bool) or not isinstance(n, int):
        raise Corrupt(f"trust: threshold of {role[:40]!r}")
    if not 0 <= n <= MAX_THRESHOLD or (n == 0 and role != VERIFIER):
        raise Corrupt(f"trust: threshold of {role} is {n}")


def _check_roles(roles: Iterable[str]) -> set[str]:
    wanted = set(roles)
    unknown = sorted(wanted - set(ROLES))
    if unknown:
        raise UsageError(f"{unknown[0]}: not a role", hint=f"a role is one of {', '.join(ROLES)}")
    return wanted
