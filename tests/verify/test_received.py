"""What attestations that came from elsewhere amount to."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvg.objects.statement import PASSED, Resource, TestResult, encode_test_result
from kvg.signing.dsse import sign_envelope
from kvg.trust import VERIFIER, sign_trust
from kvg.verify.received import judge_received
from tests import artifacts as a


@pytest.mark.parametrize(("pages", "counts"), [("6 of 6", True), ("1 of 1", False)])
def test_a_replay_counts_by_the_pages_of_the_manifest(
    tmp_path: Path, pages: str, counts: bool
) -> None:
    store, key = a.make_store(tmp_path)
    made, bob = a.deposit(store, key), a.key_of("bob")
    trust = sign_trust(store.trust.with_key(bob.public, [VERIFIER]), [key])
    said = TestResult(PASSED, "replay", configuration=(Resource(f"pages {pages}"),))
    envelope = sign_envelope(encode_test_result(made.digest, said), [bob])
    found = judge_received(
        trust, made.digest, [("elsewhere", 0, made.digest, envelope)], n_pages=6, what="it"
    )
    assert (found.verifiers == (bob.public.keyid,)) is counts
