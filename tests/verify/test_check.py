from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from kvg.digest import Digest, sha256
from kvg.errors import KvgError
from kvg.log.log import word_name
from kvg.signing.cosignature import Witness, cosign, encode_witness
from kvg.signing.note import parse_note
from kvg.store import Store
from kvg.verify import (
    ArtifactRequest,
    Finding,
    VerifySummary,
    check_artifact,
    check_log,
    check_objects,
    check_store,
    verify_artifact,
)
from tests import artifacts as a


def spoil(path: Path, place: int, bit: int = 0) -> bytes:
    """Flip one bit; returns the file as it was."""
    whole = path.read_bytes()
    spoilt = bytearray(whole)
    spoilt[place] ^= 1 << bit
    path.chmod(0o644)
    path.write_bytes(spoilt)
    return whole


def findings(store: Store) -> list[Finding]:
    return [found for found in check_store(store) if isinstance(found, Finding)]


def summary(store: Store) -> VerifySummary:
    found = list(check_store(store))[-1]
    assert isinstance(found, VerifySummary)
    return found


def test_a_good_store(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    one = a.deposit(store, key, ref="one", ids=range(20))
    two = a.deposit(store, key, ref="two", ids=range(27))
    store.set_ref("same", one.digest)
    found = list(check_store(store))
    distinct = {sha256(a.SOURCE)} | {
        digest
        for made in (one, two)
        for digest in (
            made.digest,
            made.manifest.tokens.digest,
            *made.envelopes,
            *(page.digest for page in made.manifest.pages),
        )
    }
    assert len(found) == 1 and isinstance(found[0], VerifySummary)
    assert (found[0].artifacts, found[0].objects) == (2, len(distinct))
    sizes = [len(store.objects.read(digest, what="it")) for digest in distinct]
    assert found[0].bytes == sum(sizes)
    assert (found[0].bytes_ok, found[0].signatures_ok, found[0].policy_ok) == (True, True, True)
    assert found[0].recomputed == 0


def test_an_empty_store(tmp_path: Path) -> None:
    store, _ = a.make_store(tmp_path)
    assert list(check_store(store)) == [VerifySummary(0, 0, 0, True, True, True)]


def test_field_s17_every_fault_is_named_and_none_stops_the_rest(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    bad = a.deposit(store, key, ref="bad", ids=range(27))
    good = a.deposit(store, key, ref="good", ids=range(100, 120))
    a.deposit(store, None, ref="unsigned", ids=range(200, 210))
    pages = [page.digest for page in bad.manifest.pages]
    spoil(store.objects.stored_path(pages[0]), -1)
    os.truncate(store.objects.stored_path(pages[1]), 100)
    store.objects.remove(pages[2])
    spoil(store.objects.stored_path(bad.manifest.tokens.digest), -1)
    found = findings(store)
    assert {item.object for item in found if item.kind == "corrupt"} == {
        *pages[:3],
        bad.manifest.tokens.digest,
    }
    assert [item.kind for item in found if item.object == "unsigned"] == ["untrusted"]
    total = summary(store)
    assert (total.artifacts, total.bytes_ok, total.signatures_ok) == (3, False, False)
    assert verify_artifact(store, good.digest)


def test_one_flipped_byte_in_any_object(tmp_path: Path) -> None:
    """In the header, the padding and the data of every object that an artifact is made of."""
    store, key = a.make_store(tmp_path)
    made = a.deposit(store, key)
    choice = random.Random(0)
    for digest in store.objects.all():
        path = store.objects.stored_path(digest)
        size = path.stat().st_size
        places = {*range(0, min(size, 140), 7), size - 1, *choice.sample(range(size), 12)}
        if digest in dict(store.trust_versions()).values():
            continue
        for place in sorted(places):
            whole = spoil(path, place, choice.randrange(8))
            found = findings(store)
            assert [item.object for item in found] == [digest], (digest, place, found)
            assert found[0].code == 5
            assert [item.object for item in check_objects(store)] == [digest]
            path.write_bytes(whole)
    assert findings(store) == []
    verify_artifact(store, made.digest)


def test_flips_all_over_an_envelope(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    made = a.deposit(store, key)
    envelope = made.envelopes[0]
    path = store.objects.stored_path(envelope)
    for place in range(0, path.stat().st_size, 7):
        whole = spoil(path, place, place % 8)
        with pytest.raises(KvgError) as error:
            verify_artifact(store, made.digest)
        assert error.value.code in (5, 6) and envelope[:13] in error.value.message
        path.write_bytes(whole)


def test_a_trust_version_that_is_damaged_is_named(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    a.deposit(store, key)
    digest = store.trust_versions()[0][1]
    spoil(store.objects.stored_path(digest), -1)
    found = findings(store)
    assert [item.kind for item in found] == ["corrupt"] and digest[:13] in found[0].message


def test_every_file_of_the_log(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    made = a.deposit(store, key)
    folder = store.root / "log"
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    assert len(files) >= 4
    for path in files:
        size = path.stat().st_size
        for place in {0, size // 2, size - 1}:
            whole = spoil(path, place)
            fresh = Store.open(tmp_path)
            found = list(check_log(fresh))
            if path.parent.name.endswith(".p") and not found:
                path.write_bytes(whole)
                continue  # an older partial tile, which nobody reads any more
            assert found and found[0].code in (5, 6), (path, place)
            path.write_bytes(whole)
    assert verify_artifact(Store.open(tmp_path), made.digest)


def test_a_ref_whose_manifest_is_gone(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    made = a.deposit(store, key)
    store.objects.remove(made.digest)
    check = check_artifact(ArtifactRequest(store), made.digest, ref="demo")
    assert [(item.kind, item.object) for item in check.findings] == [("corrupt", made.digest)]
    assert not check.bytes_ok and check.signatures_ok


def test_evidence_is_checked_where_it_lies_here(tmp_path: Path) -> None:
    from kvg.objects.statement import PASSED, Resource, TestResult

    store, key = a.make_store(tmp_path)
    evidence = store.objects.put(b"ran 88 of 88").digest
    gate = TestResult(PASSED, "consistency", evidence=(Resource("log", evidence),))
    made = a.deposit(store, key, gates=[gate])
    assert evidence in check_artifact(ArtifactRequest(store), made.digest).objects
    spoil(store.objects.stored_path(evidence), -1)
    assert [item.object for item in findings(store)] == [evidence]


def test_only_what_was_asked_for(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    one = a.deposit(store, key, ref="one", ids=range(9))
    two = a.deposit(store, key, ref="two", ids=range(30, 60))
    store.objects.remove(two.manifest.pages[0].digest)
    found = list(check_store(store, [("one", one.digest)]))
    assert len(found) == 1
    assert len(list(check_store(store, [("two", two.digest)]))) == 2


def test_a_required_gate_is_policy(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    a.deposit(store, key)
    found = list(check_store(store, require=["formal"]))
    assert isinstance(found[0], Finding) and found[0].code == 6
    assert isinstance(found[1], VerifySummary)
    assert (found[1].bytes_ok, found[1].signatures_ok, found[1].policy_ok) == (True, True, False)


def test_a_setting_that_means_nothing_is_of_the_policy_alone(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    a.deposit(store, key)
    path = store.root / "config.toml"
    path.write_text(path.read_text() + "\n[alien]\nsetting = 1\n")
    store = Store.open(tmp_path)
    (finding,) = findings(store)
    assert finding.object == "config.toml" and finding.code == 5
    total = summary(store)
    assert (total.bytes_ok, total.signatures_ok, total.policy_ok) == (True, True, False)


def test_the_word_of_a_witness_is_of_the_signatures_alone(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    a.deposit(store, key)
    witness_key = a.key_of("witness")
    witness = Witness("witness.example", witness_key.public)
    store.config.set("store.witnesses", (encode_witness(witness),))
    log = store.log
    word = cosign(parse_note(log.note, what="it").text, witness.name, witness_key, time=a.NOW)
    log.add_cosignatures(log.note, [word])
    spoil(store.root / "log" / word_name(witness.name, witness.key_hash), -3)
    assert [finding.object.startswith("log/") for finding in findings(store)] == [True]
    total = summary(store)
    assert (total.bytes_ok, total.signatures_ok, total.policy_ok) == (True, False, True)


def test_the_stored_form_does_not_matter(tmp_path: Path) -> None:
    digests: set[Digest] = set()
    for codec in (0, 1, 2):
        store, key = a.make_store(tmp_path / str(codec))
        store.config.set("store.codec", codec)
        digests.add(a.deposit(store, key).digest)
        assert findings(store) == []
    assert len(digests) == 1


def test_the_bytes_are_checked_whoever_is_trusted(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    made = a.deposit(store, key)
    (store.root / "trust.json").write_bytes(b"junk")
    spoil(store.objects.stored_path(made.manifest.pages[0].digest), -1)
    found = findings(store)
    assert made.manifest.pages[0].digest in {item.object for item in found}
    assert "trust.json" in {item.object for item in found}
    total = summary(store)
    assert (total.artifacts, total.bytes_ok, total.signatures_ok) == (1, False, False)


def test_a_source_that_is_gone_is_named(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    a.deposit(store, key, ref="one")
    store.objects.remove(sha256(a.SOURCE))
    findings = [item for item in check_store(store) if isinstance(item, Finding)]
    assert [item.code for item in findings] == [5]
    assert findings[0].object == sha256(a.SOURCE)


def test_what_a_pin_alone_keeps_is_checked_too(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    made = a.deposit(store, key, ref="one", ids=range(20))
    store.set_pin(made.digest, True)
    store.set_pin(made.manifest.tokens.digest, True)  # which is no artifact
    store.set_ref("one", None)
    assert findings(store) == [] and summary(store).artifacts == 1
    page = made.manifest.pages[0].digest
    spoil(store.objects.stored_path(page), -1)
    assert [item.object for item in findings(store)] == [page]
