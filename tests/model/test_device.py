"""Where a session computes: ``auto`` takes a GPU only for a reference that has a session there."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kvg.errors import Incompatible
from kvg.model import opening
from kvg.report import SilentReport
from tests import models

Patch = pytest.MonkeyPatch


class Kept(SilentReport):
    def __init__(self) -> None:
        self.notices: list[str] = []

    def notice(self, text: str) -> None:
        self.notices.append(text)


@pytest.fixture
def gpu(monkeypatch: Patch) -> None:
    """A machine whose torch says that there is one GPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)


@pytest.mark.usefixtures("gpu")
def test_auto_falls_back_to_the_cpu_for_invariant_and_says_so_once(tiny: dict[str, Path]) -> None:
    report = Kept()
    session = opening.open_session(
        tiny["llama"], dtype="BF16", device="auto", reference="invariant", report=report
    )
    assert session.model.device.type == "cpu"
    assert session.run(session.slot(), [5, 6], [1]).isfinite().all()
    (notice,) = report.notices
    assert "no invariant session on a GPU yet" in notice and "--reference scheduled" in notice


@pytest.mark.usefixtures("gpu")
def test_what_is_asked_for_by_name_is_not_replaced() -> None:
    report = Kept()
    assert opening.session_device("auto", "scheduled", report) == "cuda"
    assert opening.session_device("cuda:0", "invariant", report) == "cuda:0"
    assert opening.session_device("cpu", "invariant", report) == "cpu"
    assert report.notices == []


def test_without_a_gpu_nothing_is_said(monkeypatch: Patch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    report = Kept()
    for reference in ("invariant", "scheduled"):
        assert opening.session_device("auto", reference, report) == "cpu"  # type: ignore[arg-type]
    assert report.notices == []


@pytest.mark.usefixtures("gpu")
def test_an_invariant_session_of_a_model_on_a_gpu_is_refused_by_name(
    tiny: dict[str, Path],
) -> None:
    from dataclasses import replace

    there = replace(models.load(tiny["llama"]), device=torch.device("cuda:0"))
    with pytest.raises(Incompatible, match="no invariant kernels") as caught:
        opening.session_of(there, schedule=None)
    assert caught.value.hint is not None and "--device cpu" in caught.value.hint


@pytest.mark.usefixtures("gpu")
def test_a_model_is_registered_for_where_it_would_be_computed(
    tmp_path: Path, tiny: dict[str, Path]
) -> None:
    from kvg.flow.model_add import model_add
    from kvg.flow.requests import ModelAddRequest

    user = models.User.make(tmp_path / "user").with_settings(device="auto")
    entry = model_add(user.store, user.settings, ModelAddRequest("tiny", tiny["llama"]))
    assert entry.device == "cpu"
