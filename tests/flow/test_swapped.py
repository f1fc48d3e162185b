"""A model's files that change between the look at what they are and the loading of them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvg.errors import Incompatible
from kvg.flow.deposit import deposit
from kvg.flow.logits import logits
from kvg.flow.model_add import model_add
from kvg.flow.requests import DepositRequest, LogitsRequest, ModelAddRequest
from kvg.model import opening
from kvg.model.opening import open_session
from kvg.model.session import Session
from kvg.model.text import Tokenizer
from tests import models
from tests.model.test_adapter import make_adapter

Swap = Callable[[Path], None]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model of the user's own, and beside it one of other weights that looks the same."""
    models.make_model(tmp_path / "other", "llama", seed=2)
    return models.make_model(tmp_path / "model", "llama", seed=1)


def replaced(path: Path) -> None:
    """As ``mv`` does it: another file under the same name."""
    shutil.copy(path.parent.parent / "other" / path.name, path.with_name("new"))
    os.replace(path.with_name("new"), path)


def written_over(path: Path) -> None:
    data = (path.parent.parent / "other" / path.name).read_bytes()
    with open(path, "r+b") as file:
        file.write(data)


def added(path: Path) -> None:
    path.with_name("chat_template.jinja").write_text("{{ messages }}")


def gone(path: Path) -> None:
    path.unlink()


def then(monkeypatch: pytest.MonkeyPatch, change: Callable[[], None], back: bool) -> None:
    """Do ``change`` just before the model is loaded, and undo it afterwards."""

    def opened(folder: Path, **more: Any) -> Session:
        kept = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
        change()
        try:
            return open_session(folder, **more)
        finally:
            for path, data in kept.items() if back else ():
                if path.read_bytes() != data:
                    path.write_bytes(data)

    monkeypatch.setattr(opening, "open_session", opened)


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("swap", [replaced, written_over])
def test_weights_that_are_others_when_they_are_loaded(
    user: models.User, folder: Path, monkeypatch: pytest.MonkeyPatch, swap: Swap, back: bool
) -> None:
    """They would be computed with, and signed, under the name of those that were hashed."""
    user.add("mine", folder)
    then(monkeypatch, lambda: swap(folder / "model.safetensors"), back)
    told = r"model\.safetensors changed while it was read"
    with pytest.raises(Incompatible, match=told):
        deposit(user.store, user.settings, DepositRequest("t", text="a b c d", model="mine"))
    assert not user.store.refs() and not user.store.artifacts()
    if back:  # the next time all is as it was registered, and then it is not again
        with pytest.raises(Incompatible, match=told):
            list(logits(user.store, user.settings, LogitsRequest(model="mine", prompt="a b c")))


@pytest.mark.parametrize("change", [added, gone])
def test_files_that_come_and_go(
    user: models.User, folder: Path, monkeypatch: pytest.MonkeyPatch, change: Swap
) -> None:
    user.add("mine", folder)
    then(monkeypatch, lambda: change(folder / "tokenizer.json"), False)
    with pytest.raises(Incompatible, match="changed while it was read"):
        deposit(user.store, user.settings, DepositRequest("t", text="a b c d", model="mine"))


def test_a_tokenizer_that_is_another_when_it_is_loaded(
    user: models.User, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user.add("mine", folder)
    path = folder / "tokenizer.json"
    real = Tokenizer.load

    def load(where: Path) -> Tokenizer:
        path.write_bytes(path.read_bytes() + b"\n")
        return real(where)

    monkeypatch.setattr(Tokenizer, "load", load)
    with pytest.raises(Incompatible, match=r"tokenizer\.json changed while it was read"):
        deposit(user.store, user.settings, DepositRequest("t", text="a b c d", model="mine"))


def test_an_adapter_that_is_another_when_it_is_loaded(
    user: models.User, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = make_adapter(tmp_path / "adapter", folder)
    other = make_adapter(tmp_path / "another", folder, seed=3)
    model_add(user.store, user.settings, ModelAddRequest("mine", folder, adapter=adapter))
    name = "adapter_model.safetensors"
    then(monkeypatch, lambda: os.replace(other / name, adapter / name), False)
    with pytest.raises(Incompatible, match="adapter_model"):
        deposit(user.store, user.settings, DepositRequest("t", text="a b c d", model="mine"))
