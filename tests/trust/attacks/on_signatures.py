"""What is done to envelopes, to who signed, and to thresholds."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from kvg.errors import Corrupt, Untrusted
from kvg.objects.statement import (
    FAILED,
    PASSED,
    Resource,
    TestResult,
    encode_provenance,
    encode_test_result,
)
from kvg.signing.dsse import sign_envelope
from kvg.trust import (
    DEPOSITOR,
    VERIFIER,
    Revocation,
)
from tests import artifacts as a
from tests.trust.attacks.world import ALICE, BOB, MALLORY, World, refused


@refused(Untrusted)
def nobody_signed(w: World) -> None:
    w.unsigned()
    w.graft()


@refused(Untrusted)
def a_stranger_signed(w: World) -> None:
    a.deposit(w.store, MALLORY, ref="demo", ids=range(80, 99))
    w.graft()


@refused(Untrusted)
def a_stranger_signs_under_anothers_key_id(w: World) -> None:
    made = w.unsigned()
    envelope = json.loads(sign_envelope(encode_provenance(made.digest, a.provenance()), [MALLORY]))
    envelope["signatures"][0]["keyid"] = ALICE.public.keyid
    w.record(made.digest, json.dumps(envelope).encode())
    w.graft()


@refused(Untrusted)
def the_signature_was_made_for_another_artifact(w: World) -> None:
    made = w.unsigned()
    w.record(made.digest, bytes(w.store.objects.read(w.made.envelopes[0], what="it")))
    w.graft()


def with_envelope(w: World, change: Callable[[dict[str, Any]], object]) -> None:
    """An artifact whose only envelope is Alice's, edited."""
    made = w.unsigned()
    payload = encode_provenance(made.digest, a.provenance())
    envelope = json.loads(sign_envelope(payload, [ALICE]))
    change(envelope)
    w.record(made.digest, json.dumps(envelope).encode())
    w.graft()


@refused(Untrusted)
def the_payload_is_edited(w: World) -> None:
    import base64

    def change(envelope: dict[str, Any]) -> None:
        payload = base64.b64decode(envelope["payload"]).replace(b"handbook.md", b"handbook.mq")
        envelope["payload"] = base64.b64encode(payload).decode()

    with_envelope(w, change)


@refused(Untrusted)
def the_payload_type_is_edited(w: World) -> None:
    with_envelope(w, lambda envelope: envelope.update(payloadType="application/json"))


@refused(Untrusted)
def the_signature_is_dropped(w: World) -> None:
    other = json.loads(sign_envelope(b"{}", [MALLORY]))["signatures"]
    with_envelope(w, lambda envelope: envelope.update(signatures=other))


@refused(Untrusted)
def the_signature_is_that_of_another_payload(w: World) -> None:
    other = json.loads(sign_envelope(b"{}", [ALICE]))["signatures"]
    with_envelope(w, lambda envelope: envelope.update(signatures=other))


@refused(Corrupt)
def an_envelope_that_is_logged_is_edited(w: World) -> None:
    raw = bytes(w.store.objects.read(w.made.envelopes[0], what="it"))
    w.put_under(w.made.envelopes[0], raw.replace(b"signatures", b"signatureS"))
    w.graft()


@refused(Corrupt)
def an_envelope_that_is_logged_is_removed(w: World) -> None:
    w.path(w.made.envelopes[0]).unlink()
    w.graft()


@refused(Untrusted)
def one_key_signs_twice_towards_a_threshold(w: World) -> None:
    w.trusting(lambda t: t.with_key(BOB.public, [DEPOSITOR]), ALICE)
    w.trusting(lambda t: t.with_threshold(DEPOSITOR, 2), ALICE)
    payload = encode_provenance(w.made.digest, a.provenance())
    envelope = json.loads(sign_envelope(payload, [ALICE]))
    envelope["signatures"] *= 2
    w.record(w.made.digest, json.dumps(envelope).encode(), sign_envelope(payload, [ALICE]))
    w.graft()


@refused(Untrusted)
def a_verifier_signs_a_deposit(w: World) -> None:
    w.trusting(lambda t: t.with_key(BOB.public, [VERIFIER]), ALICE)
    a.deposit(w.store, BOB, ref="demo", ids=range(80, 99))
    w.graft()


@refused(Untrusted)
def one_verifier_replays_twice_towards_a_threshold(w: World) -> None:
    w.trusting(lambda t: t.with_key(BOB.public, [VERIFIER]), ALICE)
    w.trusting(lambda t: t.with_threshold(VERIFIER, 2), ALICE)
    for samples in ("samples 5 of 5", "samples 6 of 6"):
        configuration = (Resource(samples), Resource("pages 6 of 6"))
        said = TestResult(PASSED, "replay", configuration=configuration)
        a.attest(w.store, BOB, w.made.digest, encode_test_result(w.made.digest, said))
    w.graft()


@refused(Untrusted)
def a_replay_saw_all_of_fewer_pages(w: World) -> None:
    w.trusting(lambda t: t.with_key(BOB.public, [VERIFIER]), ALICE)
    w.trusting(lambda t: t.with_threshold(VERIFIER, 1), ALICE)
    said = TestResult(PASSED, "replay", configuration=(Resource("pages 1 of 1"),))
    a.attest(w.store, BOB, w.made.digest, encode_test_result(w.made.digest, said))
    w.graft()


@refused(Untrusted)
def a_replay_saw_only_some_pages(w: World) -> None:
    w.trusting(lambda t: t.with_key(BOB.public, [VERIFIER]), ALICE)
    w.trusting(lambda t: t.with_threshold(VERIFIER, 1), ALICE)
    said = TestResult(PASSED, "replay", configuration=(Resource("pages 5 of 6"),))
    a.attest(w.store, BOB, w.made.digest, encode_test_result(w.made.digest, said))
    w.graft()


@refused(Untrusted)
def a_trusted_key_says_that_a_replay_failed(w: World) -> None:
    w.trusting(lambda t: t.with_key(BOB.public, [VERIFIER]), ALICE)
    said = encode_test_result(w.made.digest, TestResult(FAILED, "replay"))
    a.attest(w.store, BOB, w.made.digest, said)
    w.graft()


@refused(Untrusted)
def a_stranger_says_that_the_required_gate_passed(w: World) -> None:
    w.store.config.set("deposit.require", ("formal",))
    said = encode_test_result(w.made.digest, TestResult(PASSED, "formal"))
    a.attest(w.store, MALLORY, w.made.digest, said)
    w.graft()


@refused(Untrusted)
def a_revoked_key_signs(w: World) -> None:
    w.trusting(lambda t: t.with_key(BOB.public, [DEPOSITOR]), ALICE)
    place = Revocation(BOB.public.keyid, w.store.log.origin, w.store.log.size)
    w.trusting(lambda t: t.with_revocation(place), ALICE)
    a.deposit(w.store, BOB, ref="demo", ids=range(80, 99))
    w.graft()


@refused(Untrusted)
def a_revoked_key_is_dated_by_another_log(w: World) -> None:
    w.trusting(lambda t: t.with_key(BOB.public, [DEPOSITOR]), ALICE)
    a.deposit(w.store, BOB, ref="demo", ids=range(80, 99))
    place = Revocation(BOB.public.keyid, "kvg-elsewhere", 10_000)
    w.trusting(lambda t: t.with_revocation(place), ALICE)
    w.graft()
