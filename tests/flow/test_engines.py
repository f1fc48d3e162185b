"""Which engine computed an artifact, and which ones this machine is: by the probe of this kvg."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kvg.digest import sha256
from kvg.errors import Incompatible
from kvg.flow import engines
from kvg.flow.deposit import deposit
from kvg.flow.graft import graft
from kvg.flow.requests import DepositRequest, GraftRequest
from kvg.model import probe
from kvg.model.opening import session_of
from kvg.model.session import Session
from tests import models

Patch = pytest.MonkeyPatch


def test_an_artifact_of_an_earlier_probe_is_refused_with_what_to_do(
    user: models.User, tiny: dict[str, Path], monkeypatch: Patch
) -> None:
    request = DepositRequest("t", text=models.text_of(tiny["llama"], 40))
    with monkeypatch.context() as patch:
        patch.setattr("kvg.model.versions.kernels_version", lambda: "cpu-1")
        patch.setattr(probe, "PROBE_VERSION", "kvg.probe/1")
        patch.setattr(engines, "PROBE_VERSION", "kvg.probe/1")
        patch.setattr("kvg.model.opening.open_session", reopened)
        deposit(user.store, user.settings, request)
    with pytest.raises(Incompatible) as caught:
        list(graft(user.store, user.settings, GraftRequest("t", prompt=" so")))
    assert "computed by engine" in caught.value.message
    assert caught.value.hint is not None
    assert "named by cpu-1" in caught.value.hint and "deposit the text again" in caught.value.hint
    deposit(user.store, user.settings, request)
    (found,) = graft(user.store, user.settings, GraftRequest("t", prompt=" so"))
    assert found.exact is True  # type: ignore[union-attr]


def reopened(folder: Path, *, dtype: str, **_: object) -> Session:
    """A session that is not the one that other tests share."""
    return session_of(models.load(folder, dtype), schedule=None)


def test_engines_that_an_earlier_probe_named_are_not_noted_for_this_one(
    user: models.User, monkeypatch: Patch
) -> None:
    settings = replace(user.settings, arithmetic=())
    model_digest, engine = sha256(b"model"), sha256(b"engine")
    with monkeypatch.context() as patch:
        patch.setattr(engines, "PROBE_VERSION", "kvg.probe/1")
        engines.note_engine(settings, model_digest, engine)
        assert engines.known_engines(settings, model_digest) == {engine}
    assert engines.known_engines(settings, model_digest) is None
