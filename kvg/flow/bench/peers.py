"""The same text's state as others keep it, beside kvg's own: time, size, checked or not, exact."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from kvg.errors import Corrupt
from kvg.flow.bench.measured import FORMS, Measured
from kvg.flow.records.bench import RestoreOther, RestoreSkipped

if TYPE_CHECKING:
    from kvg.model.foreign_cache import KeptState

LLAMA = "llama.cpp"


def peers(measured: Measured, gguf: Path | None) -> Iterator[RestoreOther | RestoreSkipped]:
    """kvg's two forms, transformers' cache through two kinds of file, and llama.cpp's own state.

    ``gguf``: the same model in a file for llama.cpp. What cannot be had is said by name.
    """
    for form, codec in FORMS:
        measured.store_as(codec)
        yield _own(measured, form)
    yield from _transformers(measured)
    if gguf is None:
        yield RestoreSkipped(LLAMA, "no GGUF of the model was named (--gguf FILE)")
    elif find_spec("llama_cpp") is None:
        yield RestoreSkipped(LLAMA, "llama-cpp-python is not installed (kvg[peers])")
    else:
        yield _llama(measured, gguf)


def _own(measured: Measured, form: str) -> RestoreOther:
    row = measured.row(form, "warm")
    runs = tuple((verify + restore, whole) for verify, restore, whole in row.runs_ms)
    return RestoreOther(
        tokens=row.tokens,
        way=f"kvg, {form}",
        repeats=row.repeats,
        bytes_stored=row.bytes_stored,
        load_ms=median(load for load, _ in runs),
        first_token_ms=median(whole for _, whole in runs),
        notices_damage=_notices_damage(measured),
        exact=row.exact,
        runs_ms=runs,
    )


def _notices_damage(measured: Measured) -> bool:
    """Whether a graft fails when one bit in the middle of a page's file is another."""
    page = measured.pages[len(measured.pages) // 2]
    path = measured.library.store.objects.stored_path(page.digest)
    good = path.read_bytes()
    bad = bytearray(good)
    bad[len(bad) // 2] ^= 1
    path.chmod(0o644)
    path.write_bytes(bad)
    try:
        measured.graft()
    except Corrupt:
        return True
    finally:
        path.write_bytes(good)
        path.chmod(0o444)
    return False


def _transformers(measured: Measured) -> Iterator[RestoreOther]:
    from kvg.model.foreign_cache import WAYS, KeptCache
    from kvg.model.speed import StockModel

    model, session = measured.library.model, measured.library.session
    stock = StockModel(model.path, model.dtype, session.model.device, model.adapter)
    for number, way in enumerate(WAYS):
        path = measured.library.settings.cwd / f"other-{number}"
        yield _row(measured, way, path, KeptCache(stock, measured.verified.ids, path, way))


def _llama(measured: Measured, gguf: Path) -> RestoreOther:
    from kvg.model.foreign_llama import KeptLlama

    path = measured.library.settings.cwd / "other-llama"
    return _row(measured, LLAMA, path, KeptLlama(gguf, measured.verified.ids, path))


def _row(measured: Measured, way: str, path: Path, kept: KeptState) -> RestoreOther:
    """Load it and run the last token after it, several times over."""
    runs, is_exact = [], True
    for _ in range(measured.repeats + 1):
        began = time.perf_counter()
        run: Callable[[], str] = kept.load()
        loaded = time.perf_counter()
        digest = run()
        runs.append(((loaded - began) * 1e3, (time.perf_counter() - began) * 1e3))
        is_exact = is_exact and digest == kept.fresh
    return RestoreOther(
        tokens=measured.verified.manifest.count,
        way=way,
        repeats=measured.repeats,
        bytes_stored=path.stat().st_size,
        load_ms=median(load for load, _ in runs[1:]),
        first_token_ms=median(whole for _, whole in runs[1:]),
        notices_damage=kept.notices_a_flipped_bit(),
        exact=is_exact,
        runs_ms=tuple(runs[1:]),
    )
