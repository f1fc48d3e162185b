"""Merkle trees of RFC 6962: hashes, roots, inclusion and consistency proofs.

A tree's hashes come from a ``Subtree``: the hash of the complete, aligned subtree of 2^height
leaves that begins at leaf ``start``. Proofs and roots are made from these alone, so that they
work on tiles without holding the leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

from kvg.digest import Buffer, sha256_bytes, sha256_each
from kvg.errors import Corrupt, Untrusted

HASH_SIZE: Final = 32
EMPTY_ROOT: Final = sha256_bytes(b"")

Subtree: TypeAlias = Callable[[int, int], bytes]
"""(start, height) → the hash over leaves [start, start + 2^height); start a multiple of it."""


def leaf_hash(entry: Buffer) -> bytes:
    """The hash of one entry."""
    return sha256_bytes(b"".join((b"\x00", entry)))


def leaf_hashes(entries: Sequence[bytes]) -> list[bytes]:
    """The hash of each entry."""
    return sha256_each([b"\x00" + entry for entry in entries])


def node_hashes(nodes: Sequence[bytes]) -> list[bytes]:
    """The hash of the inner node above each two of an even number of ``nodes``."""
    return sha256_each([b"\x01" + a + b for a, b in zip(nodes[::2], nodes[1::2], strict=True)])


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash of an inner node."""
    return sha256_bytes(b"\x01" + left + right)


def root_of(leaves: Sequence[bytes]) -> bytes:
    """The root over ``leaves``, which are leaf hashes."""
    frontier = Frontier()
    for leaf in leaves:
        frontier.append(leaf)
    return frontier.root()


class Frontier:
    """A growing tree that keeps the roots of its complete subtrees only: log2(size) hashes."""

    __slots__ = ("_roots", "size")

    def __init__(self) -> None:
        self.size = 0
        self._roots: list[bytes] = []

    def append(self, leaf: bytes) -> None:
        """Add one leaf hash."""
        node, size = leaf, self.size
        while size & 1:
            node = node_hash(self._roots.pop(), node)
            size >>= 1
        self._roots.append(node)
        self.size += 1

    def root(self) -> bytes:
        """The root over all that was added."""
        return fold(self._roots)


def fold(roots: Sequence[bytes]) -> bytes:
    """The root over complete subtrees of falling size, the left ones first."""
    if not roots:
        return EMPTY_ROOT
    *rest, node = roots
    for left in reversed(rest):
        node = node_hash(left, node)
    return node


def range_hash(start: int, stop: int, subtree: Subtree) -> bytes:
    """MTH(D[start:stop]) for a range that RFC 6962 hashes: ``start`` a multiple of its split."""
    roots = []
    while start < stop:
        height = (stop - start).bit_length() - 1
        roots.append(subtree(start, height))
        start += 1 << height
    return fold(roots)


def inclusion_proof(index: int, size: int, subtree: Subtree) -> tuple[bytes, ...]:
    """PATH(index, D[size]): from the leaf's sibling up to the root's child."""
    return tuple(range_hash(a, b, subtree) for a, b in _path(index, 0, size))


def consistency_proof(old: int, new: int, subtree: Subtree) -> tuple[bytes, ...]:
    """PROOF(old, D[new]) for 0 < old <= new."""
    return tuple(range_hash(a, b, subtree) for a, b in _proof(old, 0, new))


def check_inclusion(
    leaf: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes, *, what: str
) -> None:
    """Raise unless ``proof`` shows ``leaf`` at ``index`` of the tree (``size``, ``root``).

    ``Corrupt`` when the proof has not the length of such a proof, ``Untrusted`` when it leads to
    another root. Both name ``what``.
    """
    if not 0 <= index < size or len(proof) != sum(1 for _ in _path(index, 0, size)):
        raise Corrupt(f"{what}: not a proof of entry {index} of {size}")
    if _climb(leaf, index, size - 1, proof) != root:
        raise Untrusted(f"{what}: entry {index} is not in the log of size {size}")


def check_consistency(
    old: int, old_root: bytes, new: int, new_root: bytes, proof: Sequence[bytes], *, what: str
) -> None:
    """Raise unless ``proof`` shows that tree ``new`` extends tree ``old``.

    ``Corrupt`` when the proof has not the length of such a proof, ``Untrusted`` when the trees
    are of different histories or ``new`` is the smaller. Both name ``what``.
    """
    if new < old:
        raise Untrusted(f"{what}: rolled back from size {old} to {new}")
    expected = sum(1 for _ in _proof(old, 0, new)) if old else 0
    if len(proof) != expected:
        raise Corrupt(f"{what}: not a proof from size {old} to {new}")
    if not _is_consistent(old, old_root, new, new_root, proof):
        raise Untrusted(f"{what}: forked: size {new} does not extend size {old}")


def _is_consistent(
    old: int, old_root: bytes, new: int, new_root: bytes, proof: Sequence[bytes]
) -> bool:
    if old == 0:
        return old_root == EMPTY_ROOT and (new > 0 or new_root == EMPTY_ROOT)
    if old == new:
        return old_root == new_root
    shift = (old & -old).bit_length() - 1
    node, last = (old - 1) >> shift, (new - 1) >> shift
    start, *rest = proof if old & (old - 1) else (old_root, *proof)
    return (
        _climb_left(start, node, last, rest) == old_root
        and _climb(start, node, last, rest) == new_root
    )


def _climb(node_at: bytes, node: int, last: int, proof: Iterable[bytes]) -> bytes:
    """The root that ``proof`` leads to from ``node`` of a level whose last node is ``last``."""
    for sibling in proof:
        if node & 1 or node == last:
            node_at = node_hash(sibling, node_at)
            while node and not node & 1:
                node, last = node >> 1, last >> 1
        else:
            node_at = node_hash(node_at, sibling)
        node, last = node >> 1, last >> 1
    return node_at


def _climb_left(node_at: bytes, node: int, last: int, proof: Iterable[bytes]) -> bytes:
    """The root of the old tree, whose last node is ``node``: the siblings on the left alone."""
    for sibling in proof:
        if node & 1 or node == last:
            node_at = node_hash(sibling, node_at)
            while node and not node & 1:
                node, last = node >> 1, last >> 1
        node, last = node >> 1, last >> 1
    return node_at


def _path(index: int, start: int, stop: int) -> list[tuple[int, int]]:
    """The ranges whose hashes are PATH(index, D[start:stop])."""
    ranges: list[tuple[int, int]] = []
    while stop - start > 1:
        middle = start + _split(stop - start)
        if index < middle:
            ranges.append((middle, stop))
            stop = middle
        else:
            ranges.append((start, middle))
            start = middle
    return ranges[::-1]


def _proof(old: int, start: int, stop: int) -> list[tuple[int, int]]:
    """The ranges whose hashes are PROOF(old, D[start:stop])."""
    ranges: list[tuple[int, int]] = []
    while old != stop:
        middle = start + _split(stop - start)
        if old <= middle:
            ranges.append((middle, stop))
            stop = middle
        else:
            ranges.append((start, middle))
            start = middle
    if start:
        ranges.append((start, stop))
    return ranges[::-1]


def _split(count: int) -> int:
    """The largest power of two below ``count``, which is at least 2."""
    return 1 << ((count - 1).bit_length() - 1)
