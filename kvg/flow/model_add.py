"""``kvg model add``: register a local model by the fingerprint of its config and weights."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from kvg.digest import Digest
from kvg.errors import NotFound, UsageError
from kvg.flow.records.models import ModelEntry
from kvg.flow.registered import DEFAULT_KEY, SECTION, check_torch
from kvg.flow.requests import ModelAddRequest
from kvg.flow.sealed import fingerprint_cache
from kvg.flow.settings import Settings, check_file_name

if TYPE_CHECKING:
    from kvg.store import Store

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


def model_add(store: Store, settings: Settings, request: ModelAddRequest) -> ModelEntry:
    """Fingerprint the model and keep it under its name; again replaces the entry.

    Raises ``NotFound``, ``Corrupt``, ``Incompatible``, ``UsageError``.
    """
    from kvg.model.folder import read_model

    if not _NAME.fullmatch(request.name):
        raise UsageError(
            f"{request.name}: not a model name", hint="lower-case letters, digits, dots, - and _"
        )
    folder = _folder(settings, request)
    adapter = _adapter(settings, request)
    for path in (folder, adapter) if adapter else (folder,):
        check_file_name(str(path))
    files = read_model(
        folder,
        dtype=request.dtype,
        cache=None if request.no_cache else fingerprint_cache(store, settings),
        jobs=settings.jobs,
        report=settings.report,
        adapter=adapter,
    )
    if adapter is not None:
        _check_fit(settings, folder, adapter)
    default = store.config.text(DEFAULT_KEY)
    _notice_change(store, settings, request.name, files.identity.fingerprint)
    if not settings.dry_run:
        store.config.set_table(
            SECTION,
            request.name,
            {
                "path": str(folder),
                "architecture": files.identity.architecture,
                "parameters": files.n_parameters,
                "dtype": files.identity.dtype,
                "fingerprint": files.identity.fingerprint,
                **({"adapter": str(adapter)} if adapter else {}),
            },
        )
        if default is None:
            store.config.set(DEFAULT_KEY, request.name)
    return ModelEntry(
        name=request.name,
        path=str(folder),
        architecture=files.identity.architecture,
        parameters=files.n_parameters,
        dtype=files.identity.dtype,
        fingerprint=files.identity.fingerprint,
        default=default in (None, request.name),
        device=_device(settings),
        adapter=str(adapter) if adapter else None,
    )


def _device(settings: Settings) -> str | None:
    """Where this model would be computed unless another reference is asked for; None without
    torch."""
    if find_spec("torch") is None:
        return None
    from kvg.model.loader import torch_device

    return str(torch_device("cpu" if settings.device == "auto" else settings.device))


def _notice_change(store: Store, settings: Settings, name: str, fingerprint: Digest) -> None:
    """Say so when ``name`` stood for another model."""
    if name in store.config.names(SECTION):
        before = store.config.table(SECTION, name).get("fingerprint")
        if before != fingerprint:
            settings.report.notice(f"model {name} was {before}")


def _adapter(settings: Settings, request: ModelAddRequest) -> Path | None:
    if request.adapter is None:
        return None
    given = (settings.cwd / request.adapter).resolve()
    if not given.is_dir():
        raise NotFound(
            f"{request.adapter}: no such adapter folder",
            hint="kvg model add NAME PATH --adapter DIR",
        )
    return given


def _check_fit(settings: Settings, folder: Path, adapter: Path) -> None:
    """Raise ``Incompatible`` unless ``adapter`` fits the model; no weights are loaded for that."""
    from kvg.model.adapter import check_fit, is_checkable

    if not is_checkable():
        settings.report.warning(
            f"{adapter}: not compared with the model: that needs peft, as its use will "
            "(pip install 'kvg[adapter]')"
        )
        return
    check_fit(folder, adapter)


def _folder(settings: Settings, request: ModelAddRequest) -> Path:
    """The folder of safetensors that is registered: the one given, or what a GGUF was made into."""
    given = (settings.cwd / request.path).resolve()
    if request.gguf is None and given.suffix != ".gguf":
        if not given.is_dir():
            raise NotFound(f"{request.path}: no such model folder", hint="kvg model add NAME PATH")
        return given
    path = given if request.gguf is None else _gguf_path(settings, given, request.gguf)
    if not path.is_file():
        raise NotFound(f"{path}: no such GGUF file")
    check_torch()
    from kvg.model.gguf import import_gguf

    return import_gguf(path, cache=settings.cache / "gguf", report=settings.report)


def _gguf_path(settings: Settings, folder: Path, name: Path) -> Path:
    inside = folder / name
    return inside if inside.is_file() else (settings.cwd / name).resolve()
