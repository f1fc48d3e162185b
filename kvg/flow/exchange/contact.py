"""First contact: whose keys a remote offers, and trusting one in so many words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from kvg.digest import parse_prefix
from kvg.errors import Corrupt, Incompatible, Untrusted
from kvg.flow.exchange.publishers import vouching
from kvg.flow.exchange.sending import read_publisher
from kvg.flow.settings import signing_key
from kvg.remote.layout import VERIFIER
from kvg.store.peers import parse_verifier_line
from kvg.trust.policy import DEPOSITOR, PUBLISHER, sign_trust

if TYPE_CHECKING:
    from kvg.flow.settings import Settings
    from kvg.remote import Remote
    from kvg.signing.keys import PublicKey
    from kvg.store import Store
    from kvg.trust import TrustFile

MAX_LINE_BYTES = 1 << 16
Ask = Callable[[str], bool]
"""Puts a question to a person; True for yes."""


def offers(remote: Remote) -> dict[str, PublicKey]:
    """The keys on offer by id; what is no key under its own id is passed over."""
    from kvg.signing.keys import parse_public

    found: dict[str, PublicKey] = {}
    for keyid, text in remote.offers().items():
        try:
            public = parse_public(text, what=f"{remote.url}: key {keyid[:12]}")
        except (Corrupt, Incompatible):
            continue
        if public.keyid == keyid:
            found[keyid] = public
    return dict(sorted(found.items()))


def key_line(key: PublicKey) -> str:
    """A key as it is shown to people: OpenSSH's line."""
    from kvg.signing.keys import encode_public

    return encode_public(key, "openssh", key.keyid[:12]).strip()


def publishers(remote: Remote) -> dict[str, PublicKey]:
    """Those keys on offer that vouch for some log there."""
    known, found = offers(remote), {}
    for origin in remote.origins():
        for key in _vouching(remote, origin, tuple(known.values())):
            found[key.keyid] = key
    return found


def _vouching(remote: Remote, origin: str, keys: Sequence[PublicKey]) -> Iterator[PublicKey]:
    try:
        line = remote.log(origin).read(VERIFIER, MAX_LINE_BYTES) or b""
        log_key = parse_verifier_line(line, origin=origin)
        note = read_publisher(remote, origin)
        yield from () if note is None else vouching(note, origin, log_key, keys)
    except (Corrupt, Incompatible, Untrusted):
        return


def choose(
    remote: Remote, wanted: Sequence[str], ask: Ask | None, *, again: str
) -> tuple[PublicKey, ...]:
    """The keys to trust: those that ``wanted`` names by id, else those that a person says yes to.

    ``again`` is the command that a hint shows, without ``--trust``. Raises ``Untrusted``.
    """
    known = offers(remote)
    if wanted:
        return tuple(_find(remote, known, text) for text in wanted)
    found = publishers(remote)
    if not found:
        return ()
    if ask is None:
        first = next(iter(found))
        names = ", ".join(keyid[:12] for keyid in found)
        raise Untrusted(
            f"{remote.url}: published by {names}, unknown here",
            hint=f"compare it with what its owner says, then: {again} --trust {first[:12]}",
        )
    chosen = tuple(key for keyid, key in found.items() if ask(question(remote.url, keyid)))
    if not chosen:
        raise Untrusted(f"{remote.url}: no publisher was trusted", hint=f"{again} --trust KEYID")
    return chosen


def question(url: str, keyid: str) -> str:
    """What a person is asked."""
    return f"{url} is published by {keyid}\ntrust it as depositor and publisher?"


def _find(remote: Remote, known: dict[str, PublicKey], text: str) -> PublicKey:
    digits = parse_prefix(text)
    found = [key for keyid, key in known.items() if keyid.startswith(digits)]
    if len(found) != 1:
        offered = ", ".join(keyid[:12] for keyid in known) or "none"
        raise Untrusted(
            f"{remote.url}: {'no key' if not found else 'several keys'} of {text}; "
            f"on offer: {offered}",
            hint="compare it with what its owner says",
        )
    return found[0]


def trust_all(store: Store, settings: Settings, keys: Sequence[PublicKey]) -> TrustFile:
    """Trust ``keys`` as depositors and publishers, signed by the user's own key.

    Returns what then is trusted; a dry run stores nothing of it.
    """
    roles, trust = (DEPOSITOR, PUBLISHER), store.trust
    if settings.dry_run:
        for key in keys:
            trust = trust.with_key(key, roles)
            settings.report.notice(
                f"key {key.keyid[:6]} would be trusted as depositor and publisher"
            )
        return trust
    for key in keys:
        known = store.trust.find(key.keyid)
        if known is None or not set(roles) <= set(known.roles):
            signer = signing_key(settings, store)
            store.set_trust(sign_trust(store.trust.with_key(key, roles), [signer]))
            settings.report.notice(f"key {key.keyid[:6]} trusted as depositor and publisher")
    return store.trust
