"""The same text's state as llama.cpp keeps it: its own state file, read back whole.

Nothing here is kvg's own storage; it stands beside it in ``kvg bench restore``. llama.cpp computes
on its own weights (a GGUF, quantised or not), so only its own passes are compared with each other.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kvg.digest import Digest, sha256
from kvg.errors import Incompatible
from kvg.model.foreign_cache import flip_a_bit
from kvg.model.versions import compute_threads

if TYPE_CHECKING:
    from llama_cpp import Llama

BATCH_TOKENS = 512


class KeptLlama:
    """llama.cpp's state of all but the last of ``ids``, written to ``path``. A ``KeptState``.

    Raises ``Incompatible`` for a GGUF that it cannot load or of another vocabulary.
    """

    def __init__(self, gguf: Path, ids: Sequence[int], path: Path) -> None:
        self._path = path
        self._ids = list(ids)
        self._llama = _opened(gguf, len(ids))
        if max(ids) >= self._llama.n_vocab():
            raise Incompatible(f"{gguf}: a model of another vocabulary")
        self._run(self._ids)
        self.fresh = self._logits()
        self._run(self._ids[:-1])
        self._save()

    def load(self) -> Callable[[], Digest]:
        if not self._read():
            raise Incompatible(f"{self._path}: llama.cpp does not load what it saved")

        def run() -> Digest:
            self._llama.n_tokens = len(self._ids) - 1
            self._llama.eval(self._ids[-1:])
            return self._logits()

        return run

    def notices_a_flipped_bit(self) -> bool:
        flip_a_bit(self._path)
        return not self._read()

    def _run(self, ids: list[int]) -> None:
        self._llama.reset()
        self._llama.eval(ids)

    def _logits(self) -> Digest:
        """The digest of the logits of the last position."""
        from llama_cpp import llama_get_logits_ith

        found = llama_get_logits_ith(self._llama.ctx, -1)
        return sha256(ctypes.string_at(found, 4 * self._llama.n_vocab()))

    def _save(self) -> None:
        from llama_cpp import llama_state_save_file, llama_token

        ids = self._ids[:-1]
        tokens = (llama_token * len(ids))(*ids)
        if not llama_state_save_file(self._llama.ctx, bytes(self._path), tokens, len(ids)):
            raise Incompatible(f"{self._path}: llama.cpp did not save its state")

    def _read(self) -> bool:
        from llama_cpp import llama_state_load_file, llama_token

        count = ctypes.c_size_t()
        tokens = (llama_token * len(self._ids))()
        return bool(
            llama_state_load_file(
                self._llama.ctx, bytes(self._path), tokens, len(self._ids), ctypes.byref(count)
            )
        )


def _opened(gguf: Path, n_tokens: int) -> Llama:
    from llama_cpp import Llama

    threads = compute_threads()
    try:
        return Llama(
            str(gguf),
            n_ctx=n_tokens + BATCH_TOKENS,
            n_batch=BATCH_TOKENS,
            n_threads=threads,
            n_threads_batch=threads,
            verbose=False,
        )
    except ValueError as error:
        raise Incompatible(f"{gguf}: llama.cpp cannot load it: {error}") from None
