"""A method followed to all that it is made of: what is missing or damaged is named, not used."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kvg.digest import Digest, sha256, short
from kvg.errors import Corrupt
from kvg.objects.statement import PASSED, Resource, TestResult, encode_test_result
from kvg.problem.family import parse_problem
from kvg.problem.method import METHOD_GATE, Method
from kvg.problem.ranges import SlotRange
from kvg.signing.keys import PrivateKey
from kvg.store import Store
from kvg.store.forget import plan_forget, remove_for_good
from kvg.store.sweep import sweep
from kvg.verify.check import VerifySummary, check_store
from kvg.verify.findings import Finding
from kvg.verify.fsck import FsckSummary, Repaired, fsck
from kvg.verify.method import Verdicts, verify_method
from tests import artifacts as a

PROBLEM = parse_problem("Add 3 and 4.")
PARTS = {
    "program": b"def solve(a, b): return a + b\n",
    "checker": b"def check(answer, a, b): return answer - b == a\n",
    "family": PROBLEM.family.document,
    "proof": b"{}",
}
NEEDED = tuple(PARTS)


def put_method(store: Store, key: PrivateKey, *, least: str | None = None) -> Digest:
    """A method with all that its statement names; ``least`` tells one from another."""
    slots = (SlotRange("int", None, least, None), SlotRange("int"))
    family, program, checker, proof = (
        sha256(PARTS[name]) for name in ("family", *NEEDED[:2], "proof")
    )
    method = Method(family, program, checker, slots)
    named = (("family", family), ("program", program), ("checker", checker))
    said = TestResult(
        PASSED,
        METHOD_GATE,
        tuple(Resource(name, digest) for name, digest in named),
        (Resource("proof", proof),),
    )
    with store.pending() as pending:
        for data in (*PARTS.values(), method.document):
            pending.put(data)
        a.attest(store, key, method.digest, encode_test_result(method.digest, said))
    return method.digest


@pytest.fixture
def made(tmp_path: Path) -> tuple[Store, Digest]:
    store, key = a.make_store(tmp_path)
    return store, put_method(store, key)


def lose(store: Store, digest: Digest) -> None:
    os.unlink(store.objects.stored_path(digest))


def flip(store: Store, digest: Digest) -> None:
    path = store.objects.stored_path(digest)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)


def faults(store: Store) -> tuple[list[Finding], FsckSummary]:
    *found, last = fsck(store)
    assert isinstance(last, FsckSummary)
    return [item for item in found if isinstance(item, Finding)], last


HARMS = pytest.mark.parametrize("harm", [lose, flip])
EACH = pytest.mark.parametrize("part", NEEDED)


def test_a_whole_method_has_no_fault_and_is_counted(made: tuple[Store, Digest]) -> None:
    store, digest = made
    found, summary = faults(store)
    assert found == [] and (summary.artifacts, summary.methods) == (0, 1)
    (checked,) = check_store(store)
    assert isinstance(checked, VerifySummary) and checked.methods == 1
    assert checked.bytes_ok and checked.signatures_ok and checked.policy_ok
    assert checked.objects == len(PARTS) + 2  # and the document, and the envelope
    assert verify_method(store, digest).program == PARTS["program"]


@HARMS
@EACH
def test_fsck_names_what_is_missing_or_damaged_and_the_method(
    made: tuple[Store, Digest], part: str, harm: Callable[[Store, Digest], None]
) -> None:
    store, digest = made
    harm(store, sha256(PARTS[part]))
    (fault,), _ = faults(store)
    assert (fault.object, fault.code) == (sha256(PARTS[part]), 5)
    assert f"method {short(digest)}" in fault.message and part in fault.message


@HARMS
def test_fsck_names_a_document_that_is_gone(
    made: tuple[Store, Digest], harm: Callable[[Store, Digest], None]
) -> None:
    store, digest = made
    harm(store, digest)
    (fault,), _ = faults(store)
    assert fault.object == digest and "method" in fault.message


@EACH
def test_a_repair_fetches_it_again(made: tuple[Store, Digest], part: str) -> None:
    store, _ = made
    wanted = sha256(PARTS[part])
    flip(store, wanted)

    def refetch(digest: Digest) -> str:
        store.objects.put(PARTS[part])
        return "origin"

    done = [
        item for item in fsck(store, repair=True, refetch=refetch) if isinstance(item, Repaired)
    ]
    assert [item.action for item in done] == ["moved", "fetched from origin"]
    assert faults(store)[0] == []


@HARMS
@EACH
def test_verify_names_it_for_all_and_for_the_method_alone(
    made: tuple[Store, Digest], part: str, harm: Callable[[Store, Digest], None]
) -> None:
    store, digest = made
    harm(store, sha256(PARTS[part]))
    for named in (None, [(str(digest), digest)]):
        finding, summary = check_store(store, named)
        assert isinstance(finding, Finding) and isinstance(summary, VerifySummary)
        assert (finding.object, finding.code) == (sha256(PARTS[part]), 5)
        assert part in finding.message and not summary.bytes_ok and summary.signatures_ok


def test_verify_says_of_a_method_of_an_unknown_key_that_it_does_not_count(tmp_path: Path) -> None:
    store, _ = a.make_store(tmp_path)
    put_method(store, a.key_of("mallory"))
    finding, summary = check_store(store)
    assert isinstance(finding, Finding) and isinstance(summary, VerifySummary)
    assert finding.code == 6 and summary.bytes_ok and not summary.signatures_ok


@HARMS
@pytest.mark.parametrize("part", ["program", "checker"])
def test_a_method_without_its_program_or_checker_is_not_used(
    made: tuple[Store, Digest], part: str, harm: Callable[[Store, Digest], None]
) -> None:
    store, digest = made
    harm(store, sha256(PARTS[part]))
    with pytest.raises(Corrupt, match=f"method {short(digest)}.*{part}"):
        Verdicts().verify(store, digest)


def test_gc_keeps_all_of_it_and_forget_removes_it_but_for_what_another_needs(
    tmp_path: Path,
) -> None:
    store, key = a.make_store(tmp_path)
    first, second = put_method(store, key), put_method(store, key, least="1")
    sweep(store)
    assert faults(store)[0] == []
    remove_for_good(store, plan_forget(store, first), now=1)
    assert not store.objects.has(first)
    assert faults(store)[0] == [] and faults(store)[1].methods == 1
    remove_for_good(store, plan_forget(store, second), now=2)
    assert [part for part in NEEDED if store.objects.has(sha256(PARTS[part]))] == []
    assert faults(store)[0] == [] and faults(store)[1].methods == 0
