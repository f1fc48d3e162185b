"""A store of a bench's own, in a folder that goes afterwards."""

from __future__ import annotations

from pathlib import Path

from kvg.flow.model_add import model_add
from kvg.flow.requests import ModelAddRequest
from kvg.flow.settings import Settings
from kvg.report import SilentReport
from kvg.store import Store
from kvg.trust import Keyring


def store_in(
    place: Path, model: Path, *, cwd: Path | None = None, jobs: int = 1
) -> tuple[Store, Settings]:
    """A store in ``place`` with its own keys and ``model`` registered; paths are from ``cwd``."""
    settings = Settings(
        cwd=cwd or place,
        keys=place / "keys",
        cache=place / "cache",
        user_config=place / "config.toml",
        device="cpu",
        jobs=jobs,
        report=SilentReport(),
    )
    store = Store.init(place, keyring=Keyring(settings.keys))
    model_add(store, settings, ModelAddRequest("model", model.absolute()))
    return store, settings
