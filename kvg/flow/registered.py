"""Registered models: which one a request means, whether its files are still what was registered."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kvg.digest import Digest, parse_digest
from kvg.errors import Corrupt, Incompatible, NotFound
from kvg.flow.sealed import fingerprint_cache
from kvg.flow.settings import Settings
from kvg.objects.manifest import Engine, Manifest, Reference, Schedule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvg.model.folder import ModelFiles
    from kvg.model.session import Session, Slot
    from kvg.model.text import Tokenizer
    from kvg.objects.statement import Provenance
    from kvg.objects.verified import Verified
    from kvg.store import Store

SECTION = "model"
DEFAULT_KEY = "default.model"


@dataclass(frozen=True, slots=True)
class RegisteredModel:
    """One model of the store's configuration."""

    name: str
    path: Path
    architecture: str
    parameters: int | None
    dtype: str
    fingerprint: Digest
    adapter: Path | None = None


def registered_model(store: Store, name: str | None) -> RegisteredModel:
    """The model called ``name``, or the default one. Raises ``NotFound``."""
    if name is None:
        name = store.config.text(DEFAULT_KEY) or next(iter(store.config.names(SECTION)), None)
        if name is None:
            raise NotFound("no model is registered", hint="kvg model add NAME PATH")
    table = store.config.table(SECTION, name)
    what = f"{store.config.path}: model {name}"
    parameters = table.get("parameters")
    for key in ("path", "architecture", "dtype"):
        if not isinstance(table.get(key), str):
            raise Corrupt(f"{what}: {key} is missing", hint=f"kvg model add {name} PATH")
    return RegisteredModel(
        name=name,
        path=Path(str(table["path"])),
        architecture=str(table["architecture"]),
        parameters=parameters if isinstance(parameters, int) else None,
        dtype=str(table["dtype"]),
        fingerprint=parse_digest(table.get("fingerprint"), what=f"{what}: fingerprint"),
        adapter=_adapter(table.get("adapter"), what=what),
    )


def model_of(store: Store, manifest: Manifest, said: Provenance | None = None) -> RegisteredModel:
    """The registered model that computed ``manifest``. Raises ``Incompatible`` without it.

    Of several with these weights, one whose tokenizer and chat template are those that ``said``
    attests goes first.
    """
    known = (registered_model(store, name) for name in store.config.names(SECTION))
    found = [model for model in known if model.fingerprint == manifest.model.fingerprint]
    if found:
        return found[0] if len(found) == 1 or said is None else _closest(found, said)
    raise Incompatible(
        f"no registered model is {manifest.model.architecture} {manifest.model.dtype} with "
        f"fingerprint {manifest.model.fingerprint}",
        hint="kvg model add NAME PATH, with --adapter as the artifact was computed",
    )


def _closest(models: Sequence[RegisteredModel], said: Provenance) -> RegisteredModel:
    """The first of ``models`` that reads text as the depositor did, else simply the first."""
    from kvg.model.folder import template_digest, tokenizer_digest

    def likeness(model: RegisteredModel) -> int:
        found = (tokenizer_digest(model.path), template_digest(model.path))
        wanted = (said.tokenizer, said.template)
        return sum(
            part is None or part.digest in (None, digest)
            for digest, part in zip(found, wanted, strict=True)
        )

    return max(models, key=likeness)


def identified(store: Store, settings: Settings, model: RegisteredModel) -> ModelFiles:
    """What the files of ``model`` are now. Raises ``Incompatible`` when they were changed.

    In a resident session: what they were when they were loaded.
    """
    if settings.seat is not None:
        return settings.seat.files(model)
    from kvg.model.folder import read_model

    files = read_model(
        model.path,
        dtype=model.dtype,
        cache=fingerprint_cache(store, settings),
        jobs=settings.jobs,
        report=settings.report,
        adapter=model.adapter,
    )
    if files.identity.fingerprint != model.fingerprint:
        raise Incompatible(
            f"model {model.name}: the files in {_places(model)} are not those that were "
            "registered: "
            f"fingerprint {files.identity.fingerprint}, registered {model.fingerprint}",
            hint=f"put them back, or register them anew: kvg model add {_arguments(model)}",
        )
    return files


def open_registered(
    settings: Settings,
    model: RegisteredModel,
    files: ModelFiles,
    *,
    reference: Reference,
    schedule: Schedule | None = None,
    prove_all: bool = False,
) -> Session:
    """A session of ``model``, whose files were ``files`` when they were identified.

    Raises ``Incompatible`` without torch, device or exactness, and where the files that were loaded
    are not sure to be those. ``prove_all`` takes nothing from an earlier self-check.
    """
    if settings.seat is not None:
        return settings.seat.session(model, reference, schedule)
    check_torch()
    from kvg.flow.engines import note_engine
    from kvg.model.opening import open_session
    from kvg.model.proofs import ProofCache

    proofs = None
    if settings.arithmetic is not None:
        proofs = ProofCache(settings.cache / "self-check", settings.arithmetic, prove_all)
    session = open_session(
        model.path,
        dtype=model.dtype,
        device=settings.device,
        reference=reference,
        schedule=schedule,
        report=settings.report,
        adapter=model.adapter,
        proofs=proofs,
    )
    _check_still(model, files)
    note_engine(settings, model.fingerprint, session.engine.fingerprint)
    return session


def open_engine(
    settings: Settings, model: RegisteredModel, files: ModelFiles, engine: Engine
) -> Session:
    """A session of ``model`` that computes as ``engine`` says, as far as this machine can."""
    reference, schedule = engine.reference, engine.schedule
    return open_registered(settings, model, files, reference=reference, schedule=schedule)


def _check_still(model: RegisteredModel, files: ModelFiles) -> None:
    """Raise ``Incompatible`` where a file of ``model`` changed since it was looked at first: what
    was read after that may be another model's, under the name of this one."""
    from kvg.model.stamp import stamp_of

    now = dict(stamp_of(model.path, model.adapter))
    for path, was in files.stamp:
        if now.pop(path, None) != was:
            raise _changed(model, path)
    for path in now:
        raise _changed(model, path)


def _changed(model: RegisteredModel, path: str) -> Incompatible:
    return Incompatible(
        f"model {model.name}: {path} changed while it was read",
        hint="run it again, once nothing writes there",
    )


def empty_slot(settings: Settings, session: Session, n_tokens: int) -> Slot:
    """An empty slot that ``n_tokens`` will go into. Raises ``NoSpace`` in a resident session."""
    return settings.seat.empty(n_tokens) if settings.seat is not None else session.slot()


def grafted_slot(
    settings: Settings, session: Session, verified: Verified, end: int, n_more: int
) -> tuple[Slot, int]:
    """A slot with the first ``end`` tokens of ``verified``, and the bytes of state restored.

    ``n_more`` tokens will go into it. Raises ``Corrupt``; ``NoSpace`` in a resident session.
    """
    if settings.seat is not None:
        return settings.seat.grafted(verified, end, n_more)
    slot = session.slot()
    return slot, session.restore(slot, verified, cut=end)


def away(settings: Settings) -> AbstractContextManager[None]:
    """In a resident session, let others compute for the time of the block."""
    return settings.seat.away() if settings.seat is not None else nullcontext()


def tokenizer_of(settings: Settings, model: RegisteredModel, files: ModelFiles) -> Tokenizer:
    """The tokenizer of ``model``. Raises ``Incompatible`` without one, or without transformers, and
    as ``open_registered`` where its files changed."""
    if settings.seat is not None:
        return settings.seat.tokenizer(model)
    check_torch()
    from kvg.model.text import Tokenizer

    found = Tokenizer.load(model.path)
    _check_still(model, files)
    return found


def check_tokenizer(verified: Verified, files: ModelFiles, model: RegisteredModel) -> None:
    """Raise ``Incompatible`` unless text means the same ids as to the depositor."""
    attested = verified.provenance.tokenizer if verified.provenance else None
    if attested is None or attested.digest is None or attested.digest == files.tokenizer:
        return
    raise Incompatible(
        f"{verified.digest}: deposited with tokenizer {attested.digest}, model {model.name} has "
        f"{files.tokenizer}",
        hint="text would become other ids; use the depositor's tokenizer files",
    )


def check_template(verified: Verified, files: ModelFiles, model: RegisteredModel) -> None:
    """Raise ``Incompatible`` unless messages become the same text as with the depositor."""
    attested = verified.provenance.template if verified.provenance else None
    if attested is None or attested.digest is None or attested.digest == files.template:
        return
    raise Incompatible(
        f"{verified.digest}: deposited with chat template {attested.digest}, model {model.name} "
        f"has {files.template or 'none'}",
        hint="messages would become other text; use the depositor's chat template, "
        "or kvg graft --prompt",
    )


def _adapter(value: object, *, what: str) -> Path | None:
    if value is not None and not isinstance(value, str):
        raise Corrupt(f"{what}: adapter is no path", hint="kvg model add NAME PATH --adapter DIR")
    return None if value is None else Path(value)


def _places(model: RegisteredModel) -> str:
    return f"{model.path} and {model.adapter}" if model.adapter else str(model.path)


def _arguments(model: RegisteredModel) -> str:
    adapter = f" --adapter {model.adapter}" if model.adapter else ""
    return f"{model.name} {model.path}{adapter}"


def check_torch() -> None:
    """Raise ``Incompatible`` where torch or transformers is absent."""
    from importlib.util import find_spec

    for name in ("torch", "transformers"):
        if find_spec(name) is None:
            raise Incompatible(
                f"{name} is not installed: this needs a model", hint="pip install 'kvg[model]'"
            )
