"""Every decoder of untrusted bytes: only our own errors come out, and what is read is canonical.

``KVG_FUZZ_EXAMPLES`` sets how many examples each decoder gets (100). What is run and on which bytes
is in ``tests/fuzzing.py``; ``bench/fuzz.py`` runs the same a million times.
"""

from __future__ import annotations

import os
import resource
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzzing import Check, Given, checks

EXAMPLES = int(os.environ.get("KVG_FUZZ_EXAMPLES", "100"))
MOST_MEMORY_KB = 400_000
"""By which the process may grow over a whole decoder's examples."""

SLOW = ("bundle", "log head")

NAMES = (
    "manifest", "statement", "envelope", "log entry", "trust", "preregistration", "family",
    "method", "pointer", "canonical json", "token ids", "page", "checkpoint", "note", "receipt",
    "entry bundle", "verifier key", "witness key", "public key", "private key", "ref",
    "session request", "chat request",
    "stored form", "log tiles", "bundle", "configuration", "log head",
)  # fmt: skip


@pytest.fixture(scope="module")
def given_documents(tmp_path_factory: pytest.TempPathFactory) -> Given:
    return Given(tmp_path_factory.mktemp("fuzz"))


def fuzzed(check: Check, examples: int = EXAMPLES) -> None:
    """Call ``check`` with a source of chance, and now and then with bytes of no form at all."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.integers(0, 2**64 - 1), st.one_of(st.none(), st.none(), st.binary(max_size=200)))
    def run(seed: int, junk: bytes | None) -> None:
        check(Random(seed), junk)

    run()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < MOST_MEMORY_KB, f"{grown:,} KB"


@pytest.mark.parametrize("name", NAMES)
def test_decoder(given_documents: Given, name: str) -> None:
    fuzzed(checks(given_documents)[name], max(20, EXAMPLES // 4) if name in SLOW else EXAMPLES)


def test_no_decoder_is_left_out(given_documents: Given) -> None:
    assert set(checks(given_documents)) == set(NAMES)
