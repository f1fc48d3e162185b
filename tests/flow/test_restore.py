"""Restoring: pages go straight to their places; what is not what was signed leaves nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kvg.digest import Digest
from kvg.errors import Corrupt
from kvg.flow.deposit import deposit
from kvg.flow.requests import DepositRequest
from kvg.model.placing import Placing
from kvg.model.session import Session, Slot
from kvg.objects.verified import Verified
from kvg.verify import verify_artifact
from tests import models


@pytest.fixture(params=["llama", "gemma3"])
def put(
    request: pytest.FixtureRequest, tmp_path: Path, tiny: dict[str, Path]
) -> tuple[models.User, Digest, Session]:
    user = models.User.make(tmp_path / "user")
    user.add("tiny", tiny[request.param])
    text = models.text_of(tiny["llama"], 700)
    made = deposit(user.store, user.settings, DepositRequest("t", text=text, page_tokens=128))
    return user, made.digest, models.session(tiny[request.param])


def state(slot: Slot, n_tokens: int) -> list[torch.Tensor]:
    held = slot.state
    return [part[i][:, :n_tokens].clone() for part in (held.keys, held.values) for i in part]


def restored(session: Session, verified: Verified) -> list[torch.Tensor]:
    slot = session.slot()
    session.restore(slot, verified)
    return state(slot, verified.manifest.count)


def whole_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every page read whole, checked, and put in its place by torch."""
    monkeypatch.setattr(Verified, "give_page", lambda self, page, put, **_: False)


@pytest.fixture(params=[0, 2], ids=["raw", "planes"])
def form(request: pytest.FixtureRequest, put: tuple[models.User, Digest, Session]) -> int:
    """All pages of the artifact in one stored form."""
    user, digest, _ = put
    verified = verify_artifact(user.store, digest)
    for page in verified.manifest.pages:
        raw = bytes(verified.read_page(page))
        user.store.objects.remove(page.digest)
        user.store.objects.put(raw, digest=page.digest, element=2, codec=request.param)
    return int(request.param)


@pytest.mark.parametrize("piece", [None, 1000, 20_002])
@pytest.mark.parametrize("threads", [1, 3])
def test_straight_is_as_by_whole_pages(
    put: tuple[models.User, Digest, Session],
    form: int,
    monkeypatch: pytest.MonkeyPatch,
    threads: int,
    piece: int | None,
) -> None:
    user, digest, session = put
    verified = verify_artifact(user.store, digest)
    with monkeypatch.context() as patch:
        whole_pages(patch)
        expected = restored(session, verified)
    if piece is not None:
        monkeypatch.setattr(Placing, "piece_bytes", piece)
    with models.threads(threads):
        found = restored(session, verified)
    assert all(map(torch.equal, found, expected)) and len(found) == len(expected)


def test_any_byte_that_differs_is_refused_and_leaves_nothing(
    put: tuple[models.User, Digest, Session], form: int
) -> None:
    user, digest, session = put
    verified = verify_artifact(user.store, digest)
    page = verified.manifest.pages[-1]
    path = user.store.objects.stored_path(page.digest)
    good = path.read_bytes()
    path.chmod(0o644)
    places = [0, 5, 70, 150, 3000, len(good) // 3, len(good) // 2, len(good) - 1]
    for place in places:
        path.write_bytes(good[:place] + bytes([good[place] ^ 0x40]) + good[place + 1 :])
        _refused(session, verified)
    for wrong in (good[:-1], good + b"\0", good[:4096], b""):
        path.write_bytes(wrong)
        _refused(session, verified)
    path.write_bytes(good)
    restored(session, verified)


def _refused(session: Session, verified: Verified) -> None:
    slot = session.slot()
    with pytest.raises(Corrupt):
        session.restore(slot, verified)
    assert slot.length == 0
    assert not any(bool(part.any()) for part in state(slot, verified.manifest.count))


def test_a_file_that_shrinks_while_it_is_read(
    put: tuple[models.User, Digest, Session], form: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    user, digest, session = put
    verified = verify_artifact(user.store, digest)
    read = os.preadv

    def short(fd: int, buffers: list[memoryview], offset: int) -> int:
        return 0 if offset >= 4096 else read(fd, buffers, offset)

    monkeypatch.setattr(os, "preadv", short)
    _refused(session, verified)
