from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kvg import canon
from kvg.errors import Corrupt, Incompatible, KvgError, Untrusted, UsageError
from kvg.trust import (
    DEPOSITOR,
    PUBLISHER,
    VERIFIER,
    Revocation,
    TrustFile,
    bootstrap_trust,
    check_first,
    check_succession,
    encode_trust,
    parse_trust,
    sign_trust,
)
from kvg.trust.policy import check_signed, is_succession
from tests.artifacts import key_of

ALICE, BOB, CAROL = (key_of(name) for name in ("alice", "bob", "carol"))


def first() -> TrustFile:
    return bootstrap_trust(ALICE)


def two_publishers() -> TrustFile:
    new = first().with_key(BOB.public, [PUBLISHER])
    return sign_trust(new, [ALICE])


def test_the_first_version() -> None:
    trust = first()
    check_first(trust)
    check_succession(TrustFile(), trust)
    assert trust.keys_for(DEPOSITOR) == trust.keys_for(PUBLISHER) == (ALICE.public,)
    assert trust.keys_for(VERIFIER) == ()
    assert [trust.threshold(role) for role in (DEPOSITOR, VERIFIER, PUBLISHER)] == [1, 0, 1]


def test_bytes_round_trip() -> None:
    trust = sign_trust(
        two_publishers()
        .with_threshold(DEPOSITOR, 2)
        .with_revocation(Revocation(CAROL.public.keyid, "kvg-x", 7)),
        [ALICE, BOB],
    )
    data = encode_trust(trust)
    assert parse_trust(data) == trust
    assert parse_trust(data).signatures == trust.signatures
    assert encode_trust(parse_trust(data)) == data
    check_signed(parse_trust(data))


def test_a_key_is_added_by_who_may() -> None:
    old = first()
    new = old.with_key(BOB.public, [DEPOSITOR])
    with pytest.raises(Untrusted, match="0 of the 1 publishers"):
        check_succession(old, new)
    with pytest.raises(Untrusted):
        check_succession(old, sign_trust(new, [BOB]))
    check_succession(old, sign_trust(new, [ALICE]))


def test_a_depositor_changes_nothing() -> None:
    old = sign_trust(first().with_key(BOB.public, [DEPOSITOR]), [ALICE])
    new = old.with_key(BOB.public, [PUBLISHER])
    with pytest.raises(Untrusted):
        check_succession(old, sign_trust(new, [BOB]))


def test_the_old_threshold_and_the_new_both_sign() -> None:
    old = two_publishers()
    two = old.with_threshold(PUBLISHER, 2)
    with pytest.raises(Untrusted, match="1 of the 2"):
        check_succession(old, sign_trust(two, [ALICE]))
    two = sign_trust(two, [ALICE, BOB])
    check_succession(old, two)
    lower = two.with_threshold(PUBLISHER, 1)
    with pytest.raises(Untrusted, match="1 of the 2"):
        check_succession(two, sign_trust(lower, [ALICE]))
    check_succession(two, sign_trust(lower, [ALICE, BOB]))


def test_one_key_counts_once() -> None:
    two = sign_trust(two_publishers().with_threshold(PUBLISHER, 2), [ALICE, ALICE])
    assert len(two.signatures) == 1
    with pytest.raises(Untrusted):
        check_succession(two_publishers(), two)


def test_a_revocation_is_signed_by_another_key() -> None:
    old = two_publishers()
    revoked = old.with_revocation(Revocation(ALICE.public.keyid, "kvg-x", 5))
    with pytest.raises(Untrusted):
        check_succession(old, sign_trust(revoked, [ALICE]))
    revoked = sign_trust(revoked, [BOB])
    check_succession(old, revoked)
    later = revoked.with_key(CAROL.public, [DEPOSITOR])
    with pytest.raises(Untrusted):
        check_succession(revoked, sign_trust(later, [ALICE]))
    check_succession(revoked, sign_trust(later, [BOB]))
    with pytest.raises(UsageError, match="is revoked"):
        revoked.with_key(ALICE.public, [DEPOSITOR])


def test_the_last_publisher_stays() -> None:
    for change in (
        lambda: first().without_key(ALICE.public.keyid),
        lambda: first().without_key(ALICE.public.keyid, [PUBLISHER]),
        lambda: first().with_revocation(Revocation(ALICE.public.keyid, "kvg-x", 5)),
        lambda: first().with_threshold(PUBLISHER, 2),
    ):
        with pytest.raises(UsageError, match="too few publishers"):
            change()


def test_a_revocation_is_not_taken_back() -> None:
    old = sign_trust(
        two_publishers().with_revocation(Revocation(CAROL.public.keyid, "kvg-x", 5)), [ALICE]
    )
    forged = TrustFile(old.version + 1, old.bootstrap, old.keys, old.thresholds)
    with pytest.raises(Untrusted, match="takes back"):
        check_succession(old, sign_trust(forged, [ALICE, BOB]))
    (place,) = old.revoked
    for size, is_legal in ((place.size + 1, False), (place.size - 1, True)):
        moved = replace(
            old, version=old.version + 1, revoked=(replace(place, size=size),), signatures=()
        )
        assert is_succession(old, sign_trust(moved, [ALICE, BOB])) == is_legal


def test_versions_follow_one_another() -> None:
    old = first()
    new = sign_trust(old.with_threshold(VERIFIER, 1), [ALICE])
    skipped = sign_trust(new.with_threshold(VERIFIER, 2), [ALICE])
    with pytest.raises(Untrusted, match="does not follow"):
        check_succession(old, skipped)
    with pytest.raises(Untrusted):
        check_succession(new, old)
    other = bootstrap_trust(BOB)
    with pytest.raises(Untrusted):
        check_succession(first(), sign_trust(other.with_threshold(VERIFIER, 1), [ALICE, BOB]))
    with pytest.raises(Untrusted, match="not a first version"):
        check_first(new)


def test_roles_are_taken_and_given() -> None:
    trust = first().with_key(BOB.public, [VERIFIER])
    trust = trust.with_key(BOB.public, [DEPOSITOR])
    found = trust.find(BOB.public.keyid)
    assert found is not None and found.roles == (DEPOSITOR, VERIFIER)
    trust = trust.without_key(BOB.public.keyid, [VERIFIER])
    found = trust.find(BOB.public.keyid)
    assert found is not None and found.roles == (DEPOSITOR,)
    assert trust.without_key(BOB.public.keyid).find(BOB.public.keyid) is None
    with pytest.raises(UsageError, match="not a role"):
        trust.with_key(BOB.public, ["admin"])
    with pytest.raises(UsageError, match="not trusted"):
        trust.without_key(CAROL.public.keyid)
    for n in (0, -1, 1001):
        with pytest.raises(UsageError):
            trust.with_threshold(DEPOSITOR, n)


def test_what_a_revoked_key_signed_before_still_counts() -> None:
    trust = two_publishers().with_revocation(Revocation(CAROL.public.keyid, "kvg-x", 5))
    keyid = CAROL.public.keyid
    assert trust.counts(keyid, "kvg-x", 4)
    assert not trust.counts(keyid, "kvg-x", 5)
    assert not trust.counts(keyid, "kvg-y", 0)
    assert not trust.counts(keyid, "kvg-x", None)
    assert trust.counts(ALICE.public.keyid, "kvg-y", None)


def test_every_flipped_bit_is_refused() -> None:
    data = encode_trust(two_publishers())
    for place in range(len(data)):
        for bit in range(8):
            spoilt = bytearray(data)
            spoilt[place] ^= 1 << bit
            with pytest.raises(KvgError) as error:
                trust = parse_trust(bytes(spoilt))
                check_signed(trust)
            assert error.value.code in (5, 6, 7)


def edited(change: Callable[[dict[str, Any]], object]) -> bytes:
    value = json.loads(encode_trust(two_publishers()))
    change(value)
    return canon.encode(value)


@pytest.mark.parametrize(
    "change",
    [
        lambda v: v.pop("revoked"),
        lambda v: v.update(extra=1),
        lambda v: v.update(version=0),
        lambda v: v.update(version=True),
        lambda v: v.update(bootstrap="abc"),
        lambda v: v.update(thresholds={"admin": 1}),
        lambda v: v.update(thresholds={"depositor": 0}),
        lambda v: v.update(thresholds=[]),
        lambda v: v["keys"].reverse(),
        lambda v: v["keys"].append(v["keys"][0]),
        lambda v: v["keys"][0].update(roles=[]),
        lambda v: v["keys"][0].update(roles=["admin"]),
        lambda v: v["keys"][0].update(roles=["publisher", "depositor"]),
        lambda v: v["keys"][0].update(public="AAAA"),
        lambda v: v["keys"][0].update(public=v["keys"][1]["public"]),
        lambda v: v["signatures"].append(v["signatures"][0]),
        lambda v: v["signatures"][0].update(sig="AAAA"),
        lambda v: v.update(revoked=[{"keyid": "x", "origin": "o", "size": 1}]),
        lambda v: v.update(revoked=[{"keyid": "0" * 64, "origin": "a b", "size": 1}]),
        lambda v: v.update(revoked=[{"keyid": "0" * 64, "origin": "o", "size": -1}]),
    ],
)
def test_what_is_no_trust_file(change: Callable[[dict[str, Any]], object]) -> None:
    with pytest.raises(Corrupt, match=r"trust\.json"):
        parse_trust(edited(change))


def test_other_versions_and_spellings() -> None:
    with pytest.raises(Incompatible):
        parse_trust(edited(lambda v: v.update(schema="kvg.trust/2")))
    data = encode_trust(first())
    for spoilt in (data + b"\n", b" " + data, data[:-1], b"", b"[]", b"\xff" + data):
        with pytest.raises(Corrupt):
            parse_trust(spoilt)
    with pytest.raises(Corrupt, match="larger"):
        parse_trust(bytes(2 << 20))
