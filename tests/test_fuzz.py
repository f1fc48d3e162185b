"""Every decoder of untrusted bytes: only our own errors come out, and what is read is canonical.

``KVG_FUZZ_EXAMPLES`` sets how many examples each decoder gets (100). What is run and on which bytes
is in ``tests/fuzzing.py``; ``bench/fuzz.py`` runs the same a million times, and
``bench/fuzz_guided.py`` has found the corpus, which is read again here.
"""

from __future__ import annotations

import os
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvg.digest import hex_of, sha256
from tests import corpus
from tests.forked import in_child
from tests.fuzzing import NAMES, Given, folder_in_memory, targets

EXAMPLES = int(os.environ.get("KVG_FUZZ_EXAMPLES", "100"))
MOST_GROWN_KB = 100_000
"""By which a process of its own may grow over a whole decoder's examples."""

SLOW = ("bundle", "log head")


def fuzzed(name: str, examples: int) -> None:
    """Call the check with a source of chance, and now and then with bytes of no form at all."""

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.integers(0, 2**64 - 1), st.one_of(st.none(), st.none(), st.binary(max_size=200)))
    def run(seed: int, junk: bytes | None) -> None:
        target.check(Random(seed), junk)

    with folder_in_memory() as folder:
        target = targets(Given(folder))[name]
        run()


@pytest.mark.parametrize("name", NAMES)
def test_decoder(name: str) -> None:
    examples = max(20, EXAMPLES // 4) if name in SLOW else EXAMPLES
    _, grown_kb = in_child(lambda: fuzzed(name, examples))
    assert grown_kb < MOST_GROWN_KB, f"{grown_kb:,} KB"


def test_the_corpus_is_read_again() -> None:
    """What once reached new code: ``bench/fuzz_guided.py`` has found it."""
    with folder_in_memory() as folder:
        found = targets(Given(folder))
        for name in NAMES:
            for data in corpus.inputs(corpus.folder_of(name)):
                corpus.read_input(found[name], data)


def test_the_corpus_is_small_and_named_by_its_bytes() -> None:
    paths = [path for path in corpus.FOLDER.rglob("*") if path.parent != corpus.FOLDER]
    assert {path.parent for path in paths} == {corpus.folder_of(name) for name in NAMES}
    assert all(path.name == hex_of(sha256(path.read_bytes())) for path in paths)
    assert len(paths) > 100 and sum(path.stat().st_size for path in paths) < corpus.MOST_BYTES


def test_no_decoder_is_left_out() -> None:
    with folder_in_memory() as folder:
        assert set(targets(Given(folder))) == set(NAMES)


def test_a_decoder_that_takes_much_is_seen_after_one_that_took_more() -> None:
    """The process's own peak, which never goes down, is no measure."""
    assert len(bytearray(3 * MOST_GROWN_KB << 10)) > 0
    size, grown_kb = in_child(lambda: len(bytearray(2 * MOST_GROWN_KB << 10)))
    assert size == 2 * MOST_GROWN_KB << 10 and grown_kb > MOST_GROWN_KB


def test_what_fails_in_a_child_fails_here() -> None:
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        in_child(lambda: 1 // 0)
