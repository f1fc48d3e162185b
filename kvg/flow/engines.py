"""Which engines this machine computes as: noted by every session, for who asks without a model."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from kvg import canon, durable
from kvg.digest import Digest, hex_of, is_digest, sha256
from kvg.errors import Corrupt, KvgError
from kvg.objects.computation import PROBE_VERSION

if TYPE_CHECKING:
    from pathlib import Path

    from kvg.flow.settings import Settings

FOLDER: Final = "engines"
MAX_BYTES: Final = 1 << 16
_PROCESSOR: Final = "/proc/cpuinfo"
_KEYS: Final = ("vendor_id", "cpu family", "model", "model name", "stepping", "flags", "Features")


def note_engine(settings: Settings, model: Digest, engine: Digest) -> None:
    """Note that this machine computes ``model`` as ``engine``; where it can't be, it is not."""
    path = _path(settings, model)
    known = known_engines(settings, model) or frozenset()
    if path is None or engine in known:
        return
    try:
        durable.make_dir(path.parent, mode=0o700)
        data = canon.encode(sorted({*known, engine}))
        durable.replace(path, [data], staging=path.parent, mode=0o600)
    except KvgError:
        return


def known_engines(settings: Settings, model: Digest) -> frozenset[Digest] | None:
    """The engines noted for ``model`` on this very machine; None where none was yet."""
    path = _path(settings, model)
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            found = canon.decode(file.read(MAX_BYTES), what=str(path))
    except (OSError, Corrupt):
        return None
    items = found if isinstance(found, list) else ()
    return frozenset(item for item in items if is_digest(item))


def _path(settings: Settings, model: Digest) -> Path | None:
    """The file for ``model``: another for other probes, processors, libraries or variables."""
    if settings.arithmetic is None:
        return None
    from importlib.metadata import PackageNotFoundError, version

    try:
        torch = version("torch")
    except PackageNotFoundError:
        return None
    key = canon.encode([model, PROBE_VERSION, _processor(), torch, list(settings.arithmetic)])
    return settings.cache / FOLDER / f"{hex_of(sha256(key))}.json"


def _processor() -> str:
    try:
        with open(_PROCESSOR, encoding="utf-8", errors="replace") as file:
            first = file.read(MAX_BYTES).partition("\n\n")[0]
    except OSError:
        return "unknown"
    return "\n".join(line for line in first.splitlines() if re.split(r"\s*:", line)[0] in _KEYS)
