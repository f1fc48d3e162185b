"""What is done to the trust file."""

from __future__ import annotations

from kvg.errors import Corrupt, Untrusted, UsageError
from kvg.trust import (
    DEPOSITOR,
    PUBLISHER,
    VERIFIER,
    Revocation,
    bootstrap_trust,
    encode_trust,
    parse_trust,
)
from tests.trust.attacks.world import ALICE, BOB, MALLORY, ROWS, World, edited, refused

for _field, _path, _value in (
    ("version", ("version",), 2),
    ("bootstrap", ("bootstrap",), MALLORY.public.keyid),
    ("roles", ("keys", 0, "roles"), ["depositor", "publisher", "verifier"]),
    ("thresholds", ("thresholds",), {"depositor": 1}),
    ("revoked", ("revoked",), [{"keyid": "0" * 64, "origin": "kvg-x", "size": 1}]),
    ("signatures", ("signatures",), []),
):

    def _edit_trust(w: World, path: tuple[str | int, ...] = _path, value: object = _value) -> None:
        path_ = w.store.root / "trust.json"
        w.overwrite(path_, edited(path_.read_bytes(), *path, value=value))
        w.graft()

    _edit_trust.__name__ = f"trust_field_{_field}_is_edited"
    ROWS.append((_edit_trust.__name__, Untrusted, _edit_trust))


@refused(Untrusted)
def the_trust_file_is_mallorys_own(w: World) -> None:
    w.overwrite(w.store.root / "trust.json", encode_trust(bootstrap_trust(MALLORY)))
    w.graft()


@refused(Corrupt)
def the_trust_file_is_json_very_deep(w: World) -> None:
    parse_trust(b'{"keys":' * 50_000)


@refused(Untrusted)
def a_key_adds_itself(w: World) -> None:
    w.trusting(lambda t: t.with_key(MALLORY.public, [PUBLISHER]), MALLORY)


@refused(Untrusted)
def a_depositor_makes_itself_a_publisher(w: World) -> None:
    w.trusting(lambda t: t.with_key(BOB.public, [DEPOSITOR]), ALICE)
    w.trusting(lambda t: t.with_key(BOB.public, [PUBLISHER]), BOB)


@refused(Untrusted)
def the_threshold_is_lowered_by_one_of_two(w: World) -> None:
    w.trusting(lambda t: t.with_key(BOB.public, [PUBLISHER]), ALICE)
    w.trusting(lambda t: t.with_threshold(PUBLISHER, 2), ALICE, BOB)
    w.trusting(lambda t: t.with_threshold(PUBLISHER, 1), ALICE, ALICE)


@refused(Untrusted)
def a_trust_version_is_skipped(w: World) -> None:
    w.trusting(lambda t: t.with_threshold(VERIFIER, 1).with_threshold(VERIFIER, 0), ALICE)


@refused(Untrusted)
def an_older_trust_file_is_published_again(w: World) -> None:
    old = w.store.trust
    w.trusting(lambda t: t.with_threshold(VERIFIER, 1), ALICE)
    w.store.set_trust(old)


@refused(Untrusted)
def a_revoked_publisher_signs_a_change(w: World) -> None:
    w.trusting(lambda t: t.with_key(BOB.public, [PUBLISHER]), ALICE)
    place = Revocation(BOB.public.keyid, w.store.log.origin, 1)
    w.trusting(lambda t: t.with_revocation(place), ALICE)
    w.trusting(lambda t: t.with_threshold(VERIFIER, 1), BOB)


@refused(UsageError)
def the_last_publisher_is_taken_away(w: World) -> None:
    w.trusting(lambda t: t.without_key(ALICE.public.keyid), ALICE)
