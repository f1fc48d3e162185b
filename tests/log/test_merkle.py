from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvg.digest import sha256_bytes
from kvg.errors import Corrupt, Untrusted
from kvg.log import merkle

LEAVES = [merkle.leaf_hash(b"entry-%d" % i) for i in range(70)]
SIZES = st.integers(1, len(LEAVES))


def _subtree(start: int, height: int) -> bytes:
    assert start % (1 << height) == 0
    return merkle.root_of(LEAVES[start : start + (1 << height)])


def _root(size: int) -> bytes:
    return merkle.root_of(LEAVES[:size])


def _reference_root(leaves: list[bytes]) -> bytes:
    """MTH as RFC 6962 section 2.1 writes it."""
    if not leaves:
        return sha256_bytes(b"")
    if len(leaves) == 1:
        return leaves[0]
    split = 1
    while split * 2 < len(leaves):
        split *= 2
    left, right = _reference_root(leaves[:split]), _reference_root(leaves[split:])
    return sha256_bytes(b"\x01" + left + right)


def test_vectors(vectors: dict[str, Any]) -> None:
    vector = vectors["rfc6962"]
    leaves = [merkle.leaf_hash(text.encode()) for text in vector["entries_utf8"]]
    assert leaves == LEAVES[: len(leaves)]
    assert [_root(n).hex() for n in range(len(leaves) + 1)] == vector["roots_hex"]
    for case in vector["inclusion"]:
        index, size = case["index"], case["size"]
        proof = merkle.inclusion_proof(index, size, _subtree)
        assert [node.hex() for node in proof] == case["proof_hex"]
        merkle.check_inclusion(LEAVES[index], index, size, proof, _root(size), what="p")
    for case in vector["consistency"]:
        old, new = case["from"], case["to"]
        proof = merkle.consistency_proof(old, new, _subtree)
        assert [node.hex() for node in proof] == case["proof_hex"]
        merkle.check_consistency(old, _root(old), new, _root(new), proof, what="p")


@pytest.mark.parametrize("size", range(len(LEAVES) + 1))
def test_roots_are_those_of_the_rfc(size: int) -> None:
    assert _root(size) == _reference_root(LEAVES[:size])
    assert merkle.range_hash(0, size, _subtree) == _root(size)


@pytest.mark.parametrize("size", range(1, 36))
def test_every_inclusion_proof_holds_and_no_other(size: int) -> None:
    for index in range(size):
        proof = merkle.inclusion_proof(index, size, _subtree)
        merkle.check_inclusion(LEAVES[index], index, size, proof, _root(size), what="p")
        for wrong in range(size):
            if wrong != index:
                with pytest.raises((Corrupt, Untrusted), match=r"^p: "):
                    merkle.check_inclusion(LEAVES[index], wrong, size, proof, _root(size), what="p")


@pytest.mark.parametrize("new", range(1, 36))
def test_every_consistency_proof_holds_and_no_other(new: int) -> None:
    for old in range(1, new + 1):
        proof = merkle.consistency_proof(old, new, _subtree)
        merkle.check_consistency(old, _root(old), new, _root(new), proof, what="p")
        for wrong_old, wrong_new in ((old - 1, new), (old, new + 1)):
            with pytest.raises((Corrupt, Untrusted), match=r"^p: "):
                merkle.check_consistency(
                    wrong_old,
                    _root(wrong_old),
                    wrong_new,
                    _root(wrong_new),
                    proof or (b"",),
                    what="p",
                )


@given(st.data(), SIZES)
def test_a_changed_inclusion_proof_is_refused(data: st.DataObject, size: int) -> None:
    index = data.draw(st.integers(0, size - 1))
    proof = list(merkle.inclusion_proof(index, size, _subtree))
    with pytest.raises(Untrusted, match="not in the log"):
        merkle.check_inclusion(LEAVES[size - 1 - index] + b"", index, size, proof, b"", what="p")
    if proof:
        at = data.draw(st.integers(0, len(proof) - 1))
        proof[at] = bytes([proof[at][0] ^ 1]) + proof[at][1:]
        with pytest.raises(Untrusted):
            merkle.check_inclusion(LEAVES[index], index, size, proof, _root(size), what="p")
        with pytest.raises(Corrupt):
            merkle.check_inclusion(LEAVES[index], index, size, proof[:-1], _root(size), what="p")
    with pytest.raises(Corrupt):
        merkle.check_inclusion(LEAVES[index], index, size, [*proof, b""], _root(size), what="p")


@given(st.data(), SIZES)
def test_a_changed_consistency_proof_is_refused(data: st.DataObject, new: int) -> None:
    old = data.draw(st.integers(1, new))
    proof = list(merkle.consistency_proof(old, new, _subtree))
    roots = (_root(old), _root(new))
    if proof:
        at = data.draw(st.integers(0, len(proof) - 1))
        proof[at] = bytes([proof[at][0] ^ 1]) + proof[at][1:]
        with pytest.raises(Untrusted, match="forked"):
            merkle.check_consistency(old, roots[0], new, roots[1], proof, what="p")
    with pytest.raises(Corrupt):
        merkle.check_consistency(old, roots[0], new, roots[1], [*proof, b""], what="p")


def test_the_edges_of_consistency() -> None:
    empty = merkle.EMPTY_ROOT
    merkle.check_consistency(0, empty, 0, empty, (), what="p")
    merkle.check_consistency(0, empty, 5, _root(5), (), what="p")
    merkle.check_consistency(5, _root(5), 5, _root(5), (), what="p")
    with pytest.raises(Untrusted, match="forked"):
        merkle.check_consistency(0, _root(1), 5, _root(5), (), what="p")
    with pytest.raises(Untrusted, match="forked"):
        merkle.check_consistency(5, _root(4), 5, _root(5), (), what="p")
    with pytest.raises(Untrusted, match="rolled back from size 5 to 4"):
        merkle.check_consistency(5, _root(5), 4, _root(4), (), what="p")


@pytest.mark.parametrize(("index", "size"), [(0, 0), (-1, 3), (3, 3), (4, 3)])
def test_positions_outside_the_log_are_corrupt(index: int, size: int) -> None:
    with pytest.raises(Corrupt):
        merkle.check_inclusion(LEAVES[0], index, size, (), LEAVES[0], what="p")


def test_frontiers_hold_few_hashes() -> None:
    frontier = merkle.Frontier()
    for leaf in LEAVES:
        frontier.append(leaf)
    assert frontier.size == len(LEAVES)
    assert len(frontier._roots) == bin(len(LEAVES)).count("1")
