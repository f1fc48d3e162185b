"""``kvg doctor``: look at this machine, its store and keys, and prove what it can compute."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Literal

from kvg import __version__
from kvg.errors import Incompatible, KvgError
from kvg.flow.records.models import DoctorCheck, DoctorSummary
from kvg.flow.registered import identified, open_registered, registered_model
from kvg.flow.requests import DoctorRequest
from kvg.flow.settings import Settings

if TYPE_CHECKING:
    from kvg.model.proofs import SelfCheck
    from kvg.store import Store

PACKAGES = ("torch", "transformers", "safetensors", "lmdb", "zstandard", "cryptography", "blake3")
NEEDED_FOR_MODELS = ("torch", "transformers")


def doctor(
    store: Store | None, settings: Settings, request: DoctorRequest
) -> Iterator[DoctorCheck | DoctorSummary]:
    """Yield one check after the other, then what they come to. Problems are records, not errors."""
    versions = {"python": platform.python_version(), "kvg": __version__}
    yield DoctorCheck("python", "ok", f"{versions['python']} on {platform.machine()}")
    for name in PACKAGES:
        found = _version(name)
        if found is not None:
            versions[name] = found
    yield _packages(versions)
    yield _store_check(store)
    exact: bool | None = None
    device = settings.device
    for record in _exactness(store, settings, request):
        if record.status == "ok":
            exact = True
        elif record.status == "failed" and record.code == Incompatible.code:
            exact = False
        yield record
    yield DoctorSummary(exact=exact, device=device, versions=versions)


def _packages(versions: dict[str, str]) -> DoctorCheck:
    missing = [name for name in NEEDED_FOR_MODELS if name not in versions]
    if missing:
        return DoctorCheck(
            "packages",
            "warning",
            f"{', '.join(missing)} not installed: no deposit, graft or replay here",
            hint="pip install 'kvg[model]'",
        )
    return DoctorCheck(
        "packages", "ok", ", ".join(f"{name} {versions[name]}" for name in NEEDED_FOR_MODELS)
    )


def _store_check(store: Store | None) -> DoctorCheck:
    if store is None:
        return DoctorCheck("store", "skipped", "no store here or above", hint="kvg init")
    try:
        n_refs, size = len(store.refs()), store.log.size
        trust = store.trust
    except KvgError as error:
        return DoctorCheck("store", "failed", error.message, hint=error.hint, code=error.code)
    return DoctorCheck(
        "store", "ok", f"{store.root}: {n_refs} refs, {size} log entries, {len(trust.keys)} keys"
    )


def _exactness(
    store: Store | None, settings: Settings, request: DoctorRequest
) -> Iterator[DoctorCheck]:
    """Open an invariant session: its self-check proves or refutes exactness on this machine."""
    bad: Literal["failed", "skipped"] = "failed" if request.require_exact else "skipped"
    if store is None:
        text = "no store, so no model to prove it on"
        code = Incompatible.code if request.require_exact else 0
        yield DoctorCheck("exactness", bad, text, hint="kvg init", code=code)
        return
    try:
        model = registered_model(store, request.model)
        files = identified(store, settings, model)
        session = open_registered(settings, model, files, reference="invariant", prove_all=True)
    except KvgError as error:
        absent = error.code == 3 and request.model is None
        status = bad if absent else "failed"
        code = 0 if status == "skipped" else error.code
        yield DoctorCheck("exactness", status, error.message, hint=error.hint, code=code)
        return
    yield DoctorCheck(
        "exactness",
        "ok",
        f"{model.name} on {session.model.device}: engine {session.engine.fingerprint}",
    )
    if session.self_check is not None:
        yield _self_check(session.self_check, kept=settings.arithmetic is not None)


def _self_check(found: SelfCheck, *, kept: bool) -> DoctorCheck:
    """What was proved, in one line: the tiles of every layer, largest first."""
    packed = found.menu.packed
    linear = [
        f"linear {n_in} to {n_out}{' with a bias' if has_bias else ''}: {_listed(tiles)}"
        f"{_laid_out(packed.get((n_in, n_out, has_bias)))}"
        for (n_in, n_out, has_bias), tiles in found.menu.linear.items()
    ]
    seen = [
        f"attention of {shape.kv_heads * shape.repeat} heads"
        f"{f' in a window of {shape.spec.window}' if shape.spec.window else ''}: {_listed(tiles)}"
        for shape, tiles in found.menu.attention.items()
    ]
    return DoctorCheck(
        "self-check",
        "ok",
        f"{found.seconds:.1f} s of processor time; tiles that agree: {'; '.join([*linear, *seen])}"
        + ("; remembered for the next sessions" if kept else ""),
    )


def _laid_out(tiles: Sequence[int] | None) -> str:
    return f" (laid out beforehand: {_listed(tiles)})" if tiles else ""


def _listed(tiles: Sequence[int]) -> str:
    return " ".join(str(tile) for tile in tiles)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
