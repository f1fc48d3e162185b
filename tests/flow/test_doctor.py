"""``kvg doctor``: the self-check is run whole, shown, and kept for the next session."""

from __future__ import annotations

from pathlib import Path

from kvg.flow.deposit import deposit
from kvg.flow.doctor import doctor
from kvg.flow.requests import DepositRequest, DoctorRequest
from kvg.model import opening
from tests import models

OPEN_SESSION = opening.open_session
"""Taken before the tests of this folder put a quicker one in its place."""


def test_the_self_check_is_shown_and_kept(
    user: models.User, tiny: dict[str, Path], monkeypatch
) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr("kvg.model.opening.open_session", OPEN_SESSION)
    opened = []
    real = opening.session_of
    monkeypatch.setattr(
        opening, "session_of", lambda *a, **k: opened.append(real(*a, **k)) or opened[-1]
    )
    user = user.with_settings(arithmetic=())
    for _ in range(2):
        *checks, summary = doctor(user.store, user.settings, DoctorRequest(True, "tiny"))
        (found,) = [check for check in checks if check.name == "self-check"]  # type: ignore[union-attr]
        assert summary.exact is True  # type: ignore[union-attr]
        assert all((check.code == 0) == (check.exit_code == 0) for check in checks)  # type: ignore[union-attr]
        assert "linear 64 to 96: " in found.detail  # type: ignore[union-attr]
        assert "attention of 4 heads: " in found.detail  # type: ignore[union-attr]
        assert "s of processor time" in found.detail  # type: ignore[union-attr]
    deposit(user.store, user.settings, DepositRequest("t", text="some words", model="tiny"))
    assert [session.self_check.is_remembered for session in opened] == [False, False, True]
    without = user.with_settings(arithmetic=None)
    deposit(without.store, without.settings, DepositRequest("u", text="other words", model="tiny"))
    assert not opened[-1].self_check.is_remembered


def test_only_a_failed_check_has_a_code(user: models.User) -> None:
    for exact, codes in ((False, [0]), (True, [7])):
        *checks, _ = doctor(None, user.settings, DoctorRequest(exact, None))
        assert [check.code for check in checks if check.name == "exactness"] == codes  # type: ignore[union-attr]
