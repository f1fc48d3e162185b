"""A cache that others can write is believed only where this user's own seal is on it."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from kvg.errors import Incompatible
from kvg.flow.registered import identified, registered_model
from kvg.flow.sealed import SEAL_BYTES, SealedCache, fingerprint_cache
from kvg.model import weights
from tests import models

KEY, SECRET = bytes(32), b"s" * 32


def test_what_another_sealed_or_changed_is_not_recalled(user: models.User) -> None:
    index = user.store.index
    cache = SealedCache(index, SECRET)
    cache.remember(KEY, b"value")
    assert cache.recall(KEY) == b"value"
    assert SealedCache(index, b"t" * 32).recall(KEY) is None
    held = index.recall(KEY)
    assert held is not None
    index.remember(b"\1" * 32, held)
    assert cache.recall(b"\1" * 32) is None
    for forged in (b"value", held[:-1] + b"E", held[:SEAL_BYTES], b""):
        index.remember(KEY, forged)
        assert cache.recall(KEY) is None


def test_the_secret_is_kept_and_private(user: models.User) -> None:
    first = fingerprint_cache(user.store, user.settings)
    second = fingerprint_cache(user.store, user.settings)
    assert first is not None and second is not None
    first.remember(KEY, b"value")
    assert second.recall(KEY) == b"value"
    (secret,) = user.settings.keys.glob("cache.secret")
    assert secret.stat().st_mode & 0o077 == 0 and len(secret.read_bytes()) == 32


def test_a_forged_fingerprint_cache_lets_no_other_weights_pass(
    user: models.User, tiny: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever can write the store knows what to put there: the digests of the right weights."""
    folder = tmp_path / "model"
    shutil.copytree(tiny["llama"], folder)
    user.add("tiny", folder)
    model = registered_model(user.store, "tiny")
    assert identified(user.store, user.settings, model)
    path = folder / "model.safetensors"
    digests = weights.weight_digests(
        folder, dtype=model.dtype, known={}, jobs=1, report=user.settings.report
    )
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    later = time.time_ns() + 10**10
    monkeypatch.setattr(time, "time_ns", lambda: later)  # the file is old enough by now
    key = weights.cache_key(path, model.dtype)
    assert key is not None
    user.store.index.remember(key, weights.encode_digests(digests[path]))
    with pytest.raises(Incompatible, match="not those that were registered"):
        identified(user.store, user.settings, model)
