"""A machine of another class holds and verifies what it can't graft; ``ls --graftable`` tells."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kvg.digest import sha256
from kvg.flow.engines import known_engines, note_engine
from kvg.flow.ls import ls
from kvg.verify import verify_artifact
from tests.artifacts import ENGINE, MODEL
from tests.exchange.conftest import Person

OTHER = sha256(b"another class of machine")


@pytest.fixture
def peer(alice: Person, bob: Person, share: Path) -> Person:
    """Somebody with a clone, and the model."""
    alice.deposit("demo")
    alice.push()
    bob.clone(share, alice)
    bob.store.config.set_table("model", "tiny", {"path": "/x", "fingerprint": MODEL.fingerprint})
    return replace(bob, settings=replace(bob.settings, arithmetic=("OMP_NUM_THREADS=1",)))


def listed(person: Person) -> list[str]:
    return [entry.ref for entry in ls(person.store, person.settings, graftable=True)]


def test_before_any_session_the_model_decides_and_that_is_said(peer: Person) -> None:
    assert listed(peer) == ["demo"]
    assert any("only the model is compared" in text for text in peer.report.told)


def test_another_engine_is_held_and_verified_but_not_graftable(peer: Person) -> None:
    note_engine(peer.settings, MODEL.fingerprint, OTHER)
    assert listed(peer) == []
    digest = peer.store.ref("demo")
    assert digest is not None and verify_artifact(peer.store, digest).digest == digest
    note_engine(peer.settings, MODEL.fingerprint, ENGINE.fingerprint)
    assert known_engines(peer.settings, MODEL.fingerprint) == {OTHER, ENGINE.fingerprint}
    assert listed(peer) == ["demo"]


def test_what_was_noted_counts_for_this_very_machine_only(peer: Person) -> None:
    note_engine(peer.settings, MODEL.fingerprint, OTHER)
    other = replace(peer.settings, arithmetic=("ATEN_CPU_CAPABILITY=avx2",))
    assert known_engines(other, MODEL.fingerprint) is None
    (path,) = (peer.settings.cache / "engines").iterdir()
    path.write_bytes(b"{}")
    assert known_engines(peer.settings, MODEL.fingerprint) == frozenset()
    path.write_bytes(b"no json")
    assert known_engines(peer.settings, MODEL.fingerprint) is None
    assert known_engines(replace(peer.settings, arithmetic=None), MODEL.fingerprint) is None
