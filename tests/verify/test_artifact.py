from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kvg.digest import Digest, sha256
from kvg.errors import Corrupt, NotFound, Untrusted
from kvg.log.entry import ForgetEntry
from kvg.objects.contract import Contract
from kvg.objects.statement import (
    FAILED,
    PASSED,
    WARNED,
    Resource,
    Result,
    TestResult,
    encode_provenance,
    encode_test_result,
)
from kvg.objects.verified import Verified
from kvg.problem.method import METHOD_GATE
from kvg.signing.dsse import sign_envelope
from kvg.signing.keys import PrivateKey
from kvg.store import Store
from kvg.trust import DEPOSITOR, VERIFIER, Revocation, sign_trust
from kvg.verify import is_gate_met, judge, required_gates, verify_artifact, verify_to_replay
from tests import artifacts as a

ALICE, BOB, CAROL = (a.key_of(name) for name in ("alice", "bob", "carol"))


def gate(name: str, result: Result = PASSED) -> TestResult:
    return TestResult(result, name, evidence=(Resource("log", sha256(b"evidence")),))


def replayed(*pages: str) -> TestResult:
    """What ``kvg replay --sign`` attests of a run that found all equal."""
    said = pages or ("pages 6 of 6",)
    return TestResult(PASSED, "replay", configuration=tuple(map(Resource, said)))


def trusted(store: Store, key: PrivateKey, roles: Sequence[str]) -> None:
    store.set_trust(sign_trust(store.trust.with_key(key.public, roles), [ALICE]))


def say(store: Store, key: PrivateKey, digest: Digest, outcome: TestResult) -> None:
    a.attest(store, key, digest, encode_test_result(digest, outcome))


def test_a_good_artifact(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    made = a.deposit(store, key, cuts=(13,), gates=[gate("command:pytest")])
    verified = verify_artifact(store, made.digest, ref="demo")
    assert isinstance(verified, Verified)
    assert verified.digest == made.digest and verified.manifest == made.manifest
    assert verified.ids == made.ids
    assert verified.signers == (key.public.keyid,)
    assert verified.gates == ("command:pytest",)
    assert verified.provenance == a.provenance()
    for page in made.manifest.pages:
        assert len(verified.read_page(page)) == page.size


def test_a_verified_cannot_be_made_otherwise(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    verified = verify_artifact(store, a.deposit(store, key).digest)
    with pytest.raises(TypeError):
        pickle.dumps(verified)
    with pytest.raises(TypeError):
        Verified(
            object(),
            digest=verified.digest,
            manifest=verified.manifest,
            ids=(),
            signers=(),
            gates=(),
            provenance=None,
            load_page=lambda page: b"",
        )


def test_unsigned_is_untrusted(tmp_path: Path) -> None:
    store, _ = a.make_store(tmp_path)
    made = a.deposit(store, None)
    with pytest.raises(Untrusted, match=r"demo: signed by 0 of 1 .* no attestation"):
        verify_artifact(store, made.digest, ref="demo")


def test_a_strangers_signature_is_untrusted_and_named(tmp_path: Path) -> None:
    store, _ = a.make_store(tmp_path)
    made = a.deposit(store, BOB)
    keyid = BOB.public.keyid[:12]
    with pytest.raises(Untrusted, match=f"{keyid} is not trusted") as error:
        verify_artifact(store, made.digest)
    assert f"kvg trust add {keyid}" in (error.value.hint or "")
    trusted(store, BOB, [DEPOSITOR])
    assert verify_artifact(store, made.digest).signers == (BOB.public.keyid,)


def test_a_verifier_is_no_depositor(tmp_path: Path) -> None:
    store, _ = a.make_store(tmp_path)
    trusted(store, BOB, [VERIFIER])
    with pytest.raises(Untrusted):
        verify_artifact(store, a.deposit(store, BOB).digest)


def test_an_envelope_about_something_else_is_refused(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    made = a.deposit(store, None)
    other = encode_provenance(sha256(b"something else"), a.provenance())
    a.attest(store, key, made.digest, other)
    with pytest.raises(Untrusted, match="not this artifact"):
        verify_artifact(store, made.digest)


def test_a_gate_result_is_not_a_deposit(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    made = a.deposit(store, None)
    say(store, key, made.digest, gate("consistency"))
    with pytest.raises(Untrusted, match="signed by 0 of 1"):
        verify_artifact(store, made.digest)


def test_an_envelope_that_the_log_does_not_hold_counts_for_nothing(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    made = a.deposit(store, None)
    store.objects.put(sign_envelope(encode_provenance(made.digest, a.provenance()), [key]))
    with pytest.raises(Untrusted):
        verify_artifact(store, made.digest)


def test_two_signers_of_one_digest(tmp_path: Path) -> None:
    store, _ = a.make_store(tmp_path)
    trusted(store, BOB, [DEPOSITOR])
    store.set_trust(sign_trust(store.trust.with_threshold(DEPOSITOR, 2), [ALICE]))
    made = a.deposit(store, ALICE)
    with pytest.raises(Untrusted, match="signed by 1 of 2"):
        verify_artifact(store, made.digest)
    again = a.attest(store, ALICE, made.digest, encode_provenance(made.digest, a.provenance()))
    assert again == made.envelopes[0]
    with pytest.raises(Untrusted):
        verify_artifact(store, made.digest)
    a.deposit(store, BOB)
    signers = verify_artifact(store, made.digest).signers
    assert set(signers) == {ALICE.public.keyid, BOB.public.keyid}


def test_field_s24_the_position_in_the_log_decides_what_a_revoked_key_signed(
    tmp_path: Path,
) -> None:
    store, _ = a.make_store(tmp_path)
    trusted(store, BOB, [DEPOSITOR])
    before = a.deposit(store, BOB, ids=range(10), ref="before").digest
    size = store.log.size
    after = a.deposit(store, BOB, ids=range(20), ref="after").digest
    revoked = Revocation(BOB.public.keyid, store.log.origin, size)
    store.set_trust(sign_trust(store.trust.with_revocation(revoked), [ALICE]))
    verify_artifact(store, before)
    with pytest.raises(Untrusted, match=f"{BOB.public.keyid[:12]} is revoked"):
        verify_artifact(store, after)
    a.deposit(store, ALICE, ids=range(20), ref="after")
    assert verify_artifact(store, after).signers == (ALICE.public.keyid,)


def test_required_gates(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    made = a.deposit(store, key, gates=[gate("test:pytest"), gate("finite", WARNED)])
    verify_artifact(store, made.digest, require=["test"])
    verify_artifact(store, made.digest, require=["test:pytest", "formal|test"])
    with pytest.raises(Untrusted, match=r"required gates not met: formal; gates: test:pytest"):
        verify_artifact(store, made.digest, require=["formal"])
    with pytest.raises(Untrusted):
        verify_artifact(store, made.digest, require=["finite"])
    store.config.set("deposit.require", ("seeds",))
    assert required_gates(store, ["test"]) == ("formal|test", "consistency:88", "test")
    say(store, key, made.digest, gate("consistency:87"))
    with pytest.raises(Untrusted, match="not met: consistency:88"):
        verify_artifact(store, made.digest)
    say(store, key, made.digest, gate("consistency:88"))
    assert verify_artifact(store, made.digest).gates == (
        "consistency:87",
        "consistency:88",
        "test:pytest",
    )


@pytest.mark.parametrize(
    ("requirement", "passed", "is_met"),
    [
        ("consistency", "consistency:2", True),
        ("consistency:88", "consistency:88", True),
        ("consistency:88", "consistency:100", True),
        ("consistency:88", "consistency:9", False),
        ("formal|consistency:3", "consistency:4", True),
        ("consistency:88", "consistency:many", False),
        ("test:pytest", "test:cmd", False),
    ],
)
def test_more_seeds_than_are_asked_for_will_do(requirement: str, passed: str, is_met: bool) -> None:
    assert is_gate_met(requirement, ("finite", passed)) == is_met


def test_a_strangers_gate_counts_for_nothing(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    made = a.deposit(store, key)
    say(store, BOB, made.digest, gate("formal"))
    say(store, BOB, made.digest, gate("replay", FAILED))
    assert verify_artifact(store, made.digest).gates == ()


def test_a_trusted_failure_blocks(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    trusted(store, BOB, [VERIFIER])
    made = a.deposit(store, key, gates=[gate("replay")])
    say(store, BOB, made.digest, gate("replay", FAILED))
    with pytest.raises(Untrusted, match="says that replay failed"):
        verify_artifact(store, made.digest)


def test_verifiers_are_counted(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    trusted(store, BOB, [VERIFIER])
    trusted(store, CAROL, [VERIFIER])
    store.set_trust(sign_trust(store.trust.with_threshold(VERIFIER, 2), [ALICE]))
    made = a.deposit(store, key)
    for who in (BOB, CAROL):
        with pytest.raises(Untrusted, match="of 2 trusted verifiers"):
            verify_artifact(store, made.digest)
        say(store, who, made.digest, replayed())
        verify_to_replay(store, made.digest)
    verify_artifact(store, made.digest)
    assert len(judge(store, made.digest, what="it").verifiers) == 2


def test_a_replay_of_some_pages_is_no_verifiers_word(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    trusted(store, BOB, [VERIFIER])
    store.set_trust(sign_trust(store.trust.with_threshold(VERIFIER, 1), [ALICE]))
    made = a.deposit(store, key)
    assert len(made.manifest.pages) == 6
    for pages in (
        ("samples 5 of 5",),
        ("pages 5 of 6",),
        ("pages 0 of 0",),
        ("pages 1 of 1",),
        ("pages 7 of 7",),
        ("pages 06 of 06",),
        ("pages 0 of 6", "pages 3 of 3"),
        ("pages 0 of 6", "pages 6 of 6"),
        ("pages 6 of 6", "pages 6 of 6"),
    ):
        say(store, BOB, made.digest, replayed(*pages))
        with pytest.raises(Untrusted, match="0 of 1 trusted verifiers"):
            verify_artifact(store, made.digest)
    say(store, key, made.digest, replayed())  # a depositor is no verifier
    with pytest.raises(Untrusted, match="0 of 1 trusted verifiers"):
        verify_artifact(store, made.digest)
    say(store, BOB, made.digest, replayed())
    verify_artifact(store, made.digest)


def test_a_failed_replay_may_be_replayed_again_but_not_answered_from(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    trusted(store, BOB, [VERIFIER])
    made = a.deposit(store, key)
    say(store, BOB, made.digest, gate("replay", FAILED))
    with pytest.raises(Untrusted, match="replay failed"):
        verify_artifact(store, made.digest)
    verify_to_replay(store, made.digest)
    say(store, BOB, made.digest, gate("test", FAILED))
    with pytest.raises(Untrusted, match="test failed"):
        verify_to_replay(store, made.digest)


def test_nobody_is_trusted_by_default(tmp_path: Path) -> None:
    store = Store.init(tmp_path, keyring=a.make_keyring(tmp_path))
    assert store.trust.version == 0
    with pytest.raises(Untrusted):
        verify_artifact(store, a.deposit(store, ALICE).digest)
    assert store.trust_first(ALICE)
    assert not store.trust_first(BOB)
    assert store.trust.find(BOB.public.keyid) is None


def test_a_trust_file_edited_by_hand_is_untrusted(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    made = a.deposit(store, key)
    path = store.root / "trust.json"
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"thresholds":{}', b'"thresholds":{"verifier":0}'))
    with pytest.raises(Untrusted, match="changed without the signatures"):
        verify_artifact(store, made.digest)
    path.write_bytes(b"junk")
    with pytest.raises(Untrusted):
        verify_artifact(store, made.digest)
    path.unlink()
    verify_artifact(store, made.digest)


def test_an_older_trust_file_is_not_believed(tmp_path: Path) -> None:
    store, _ = a.make_store(tmp_path)
    old = (store.root / "trust.json").read_bytes()
    trusted(store, BOB, [DEPOSITOR])
    (store.root / "trust.json").write_bytes(old)
    assert store.trust.find(BOB.public.keyid) is not None


def test_a_trust_file_from_elsewhere_is_untrusted(tmp_path: Path) -> None:
    store = Store.init(tmp_path / "a", keyring=a.make_keyring(tmp_path))
    other, _ = a.make_store(tmp_path / "b", label="mallory")
    (store.root / "trust.json").write_bytes((other.root / "trust.json").read_bytes())
    with pytest.raises(Untrusted, match="not in the log"):
        _ = store.trust


def test_what_is_missing(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    made = a.deposit(store, key)
    with pytest.raises(Corrupt, match="missing"):
        verify_artifact(store, sha256(b"nothing"))
    for digest in (made.envelopes[0], made.manifest.tokens.digest, made.digest):
        path = store.objects.stored_path(digest)
        raw = path.read_bytes()
        path.unlink()
        with pytest.raises(Corrupt, match=f"object {digest[:13]} missing"):
            verify_artifact(store, made.digest)
        path.write_bytes(raw)
    verified = verify_artifact(store, made.digest)
    page = made.manifest.pages[0]
    store.objects.remove(page.digest)
    with pytest.raises(Corrupt, match="missing"):
        verified.read_page(page)


def test_what_was_forgotten_is_not_found(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    made = a.deposit(store, key)
    store.publish([ForgetEntry(a.NOW, made.digest)])
    store.objects.remove(made.digest)
    with pytest.raises(NotFound, match="forget"):
        verify_artifact(store, made.digest)


def test_field_k11_a_page_is_checked_on_every_load(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    made = a.deposit(store, key)
    verified = verify_artifact(store, made.digest, ref="demo")
    one, two = made.manifest.pages[0], made.manifest.pages[1]
    verified.read_page(one)
    path = store.objects.stored_path(one.digest)
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.chmod(0o644)
    path.write_bytes(raw)
    with pytest.raises(Corrupt, match=r"page full \[0, 8\)"):
        verified.read_page(one)
    verified.read_page(two)
    path.write_bytes(store.objects.stored_path(two.digest).read_bytes())
    with pytest.raises(Corrupt):
        verified.read_page(one)


def test_requirements() -> None:
    assert is_gate_met("a|b", ["b"])
    assert is_gate_met("test", ["test:x:y"])
    assert not is_gate_met("tes", ["test"])
    assert not is_gate_met("test:x", ["test:y", "test"])
    assert not is_gate_met("x", [])


SOON, LATE, NEVER = Contract(valid_until=10), Contract(valid_until=20), Contract()
FILED = Contract(depends=(Resource("rates.csv", sha256(b"3")),), schema_version="1")
OTHER = Contract(schema_version="2")


def promise(store: Store, key: PrivateKey, digest: Digest, terms: Contract, *, proof: bool) -> None:
    """A deposit, or the proof of a method, on ``terms``."""
    if proof:
        say(store, key, digest, TestResult(PASSED, METHOD_GATE, terms.resources()))
        return
    said = replace(
        a.provenance(),
        valid_until=terms.valid_until,
        depends=terms.depends,
        schema_version=terms.schema_version,
    )
    a.attest(store, key, digest, encode_provenance(digest, said))


@pytest.mark.parametrize("proof", [False, True])
@pytest.mark.parametrize(
    ("needed", "said", "wanted"),
    [
        (1, [(ALICE, SOON), (ALICE, NEVER)], NEVER),
        (1, [(ALICE, SOON), (BOB, NEVER)], NEVER),
        (1, [(ALICE, SOON), (CAROL, NEVER)], SOON),
        (2, [(ALICE, SOON), (BOB, SOON), (BOB, NEVER)], SOON),
        (2, [(ALICE, SOON), (BOB, SOON), (BOB, NEVER), (ALICE, LATE)], LATE),
        (2, [(ALICE, FILED), (BOB, LATE)], Contract(20, FILED.depends, "1")),
        (2, [(ALICE, FILED), (BOB, OTHER)], Contract(None, FILED.depends, "2 and 1")),
        (2, [(ALICE, SOON)], SOON),
    ],
)
def test_whose_terms_are_in_force(
    tmp_path: Path,
    needed: int,
    said: Sequence[tuple[PrivateKey, Contract]],
    wanted: Contract,
    proof: bool,
) -> None:
    """Alice and Bob are depositors; Carol is trusted for replays alone, and her word is no term."""
    store, _ = a.make_store(tmp_path)
    trusted(store, BOB, [DEPOSITOR])
    trusted(store, CAROL, [VERIFIER])
    store.set_trust(sign_trust(store.trust.with_threshold(DEPOSITOR, needed), [ALICE]))
    with store.pending() as pending:
        digest = pending.put(b"what it is about").digest
        store.record(digest, [])
    for key, terms in said:
        promise(store, key, digest, terms, proof=proof)
    found = judge(store, digest, what="it")
    assert found.contract.valid_until == wanted.valid_until
    assert found.contract.depends == wanted.depends
    versions = (found.contract.schema_version or "").split(" and ")
    assert sorted(versions) == sorted((wanted.schema_version or "").split(" and "))
