"""What is kept of inputs that were found: few bytes that reach the same code."""

from __future__ import annotations

from random import Random

from kvg.canon import decode
from kvg.errors import KvgError
from tests.corpus import arcs_of, chosen, good_inputs, least, lines_in, needed, read_input, traced
from tests.fuzzing import Target


def read(_: int, data: bytes) -> bool:
    try:
        return decode(data, what="it") is not None
    except KvgError:
        return False


TARGET = Target((b"{}", b"[]"), lambda data, _: data, read)


def test_each_input_that_is_kept_reaches_what_no_other_does() -> None:
    data = [b"\0{", b"\0{ ", b"\0null", b'\0{"a":1,"a":1}', b"\0\xff", b"\0[[[", b"\1[]"]
    kept = least(TARGET, data, 1000)
    assert b"\1[]" not in kept and 2 <= len(kept) < len(data)
    known = frozenset().union(*traced(TARGET, good_inputs(TARGET)))
    reached = [arcs - known for arcs in traced(TARGET, kept)]
    for number, arcs in enumerate(reached):
        assert arcs - frozenset().union(
            *(other for at, other in enumerate(reached) if at != number)
        )
    assert frozenset().union(*reached) == frozenset().union(*traced(TARGET, data)) - known


def test_one_whose_code_later_ones_reach_is_left_out() -> None:
    """The first adds most for its size, and in the end nothing."""
    arc = [(read.__code__, 0, line) for line in range(6)]
    reached = {
        b"x": frozenset(arc[:4]),
        b"y": frozenset((*arc[:2], arc[4])),
        b"z": frozenset((*arc[2:4], arc[5])),
    }
    taken = chosen(reached, 10)
    assert list(taken) == [b"x", b"z", b"y"]
    assert needed(taken) == {b"y": reached[b"y"], b"z": reached[b"z"]}


def test_no_more_bytes_than_asked_for_are_kept() -> None:
    kept = least(TARGET, [b"\0{", b"\0" + b"[" * 50, b"\0\xff"], 5)
    assert kept and sum(map(len, kept)) <= 5


def test_what_others_reach_is_no_arc_of_ours() -> None:
    assert arcs_of(lambda: Random(0).random()) == frozenset()
    assert lines_in(traced(TARGET, [b"\0{}"])) > 3


def test_an_input_begins_with_the_number_of_a_good_document() -> None:
    seen: list[tuple[int, bytes]] = []
    target = Target((b"a", b"b"), lambda data, _: data, lambda *args: bool(seen.append(args)))
    for data in (*good_inputs(target), b"\xff", b""):
        read_input(target, data)
    assert seen == [(0, b"a"), (1, b"b"), (1, b""), (0, b"")]
