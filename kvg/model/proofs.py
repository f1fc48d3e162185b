"""What a self-check proved, remembered for the next session of the same model on the same machine.

A record counts only where everything that was looked at is the same: engine, shapes, modules,
libraries, processor, threads, and variables that steer the libraries. It is no secret and no
signature: whoever can write the cache folder can write the program too. So a session that finds a
record still proves one of its shapes anew, drawn by chance, and ``kvg doctor`` proves all of them.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar, get_args

import torch
from torch.nn.modules import module as torch_module

import kvg_kernels
from kvg import canon, durable
from kvg.canon import Json
from kvg.digest import hex_of, sha256, sha256_all
from kvg.errors import Corrupt, KvgError
from kvg.model.invariant import TileMenu
from kvg.model.probe import expert_shapes, linear_shapes
from kvg.model.versions import library_versions
from kvg.objects.manifest import Engine
from kvg_kernels.attention import tile_menu
from kvg_kernels.linear import PACKED_TILES, TILES

if TYPE_CHECKING:
    from kvg.model.loader import LoadedModel

SCHEMA = "kvg.self-check/1"
PROCESSOR_FILE = Path("/proc/cpuinfo")
PROCESSOR_KEYS = ("vendor_id", "cpu family", "model", "model name", "stepping", "flags", "Features")
MAX_BYTES = 1 << 20
_LIBRARIES = ("kvg", "peft", "torch", "transformers")
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
_HOOKS_OF_ALL = ("_global_forward_hooks", "_global_forward_pre_hooks")
Shape = TypeVar("Shape")
Proved: TypeAlias = Literal["model", "tiles", "passes"]
"""What a record is of: a whole self-check, tiles alone, for threads that came later, or long passes
of which tokens were computed again alone."""

Passes: TypeAlias = dict[tuple[int, int], int]
"""The longest pass that was looked at, by its kind (``kvg.model.spots``)."""


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """What was proved: the tiles in use, the processor time that it took, and how.

    ``is_remembered``: an earlier session proved it and this one proved one shape of it again.
    """

    menu: TileMenu
    seconds: float
    is_remembered: bool


@dataclass(frozen=True, slots=True)
class ProofCache:
    """A folder of records. ``environment`` are variables that steer the libraries, as NAME=value.

    ``is_renewed``: nothing is recalled, what is proved is kept.
    """

    folder: Path
    environment: tuple[str, ...]
    is_renewed: bool = False

    def recall(
        self, model: LoadedModel, engine: Engine, proved: Proved = "model"
    ) -> TileMenu | None:
        """The tiles that were proved for just this; None without a record that is whole.

        A record that another user could have written counts as none.
        """
        if self.is_renewed or not is_plain(model.module):
            return None
        value = self._read(self._key(model, engine, proved))
        return None if value is None else _menu(value, model)

    def remember(
        self, model: LoadedModel, engine: Engine, menu: TileMenu, proved: Proved = "model"
    ) -> None:
        """Keep ``menu``; where that cannot be done, the next session proves it again."""
        if not is_plain(model.module):
            return
        self._write(
            self._key(model, engine, proved),
            {
                "linear": [list(tiles) for tiles in menu.linear.values()],
                "attention": [list(tiles) for tiles in menu.attention.values()],
                "packed": [list(menu.packed.get(layer, ())) for layer in menu.linear],
            },
        )

    def recall_passes(self, model: LoadedModel, engine: Engine) -> Passes:
        """The passes that sessions of just this looked at; none without a record that is whole."""
        if self.is_renewed or not is_plain(model.module):
            return {}
        value = self._read(self._key(model, engine, "passes"))
        return {} if value is None else _passes(value.get("passes"))

    def remember_passes(self, model: LoadedModel, engine: Engine, passes: Passes) -> None:
        """Keep ``passes`` beside those that are kept; as ``remember``."""
        if not is_plain(model.module):
            return
        known = self.recall_passes(model, engine)
        kept = {kind: max(known.get(kind, 0), passes.get(kind, 0)) for kind in {*known, *passes}}
        self._write(
            self._key(model, engine, "passes"),
            {"passes": [[*kind, longest] for kind, longest in sorted(kept.items())]},
        )

    def _read(self, key: Mapping[str, Json]) -> Mapping[str, Json] | None:
        """The record of ``key``, None unless it is whole and this user's own."""
        try:
            with open(self._path(key), "rb", opener=durable.plain) as file:
                if not (_is_own(os.fstat(file.fileno())) and _is_own(self.folder.stat())):
                    return None
                value = canon.decode(file.read(MAX_BYTES), what="self-check")
        except (OSError, Corrupt):
            return None
        if not isinstance(value, Mapping) or (value.get("schema"), value.get("key")) != (
            SCHEMA,
            key,
        ):
            return None
        kept = {name: item for name, item in value.items() if name != "sum"}
        return kept if value.get("sum") == sha256(canon.encode(kept)) else None

    def _write(self, key: dict[str, Json], fields: Mapping[str, Json]) -> None:
        value: dict[str, Json] = {"schema": SCHEMA, "key": key, **fields}
        data = canon.encode({**value, "sum": sha256(canon.encode(value))})
        try:
            durable.make_dir(self.folder, mode=0o700)
            durable.replace(self._path(key), [data], staging=self.folder, mode=0o600)
        except KvgError:
            return

    def forget(self, model: LoadedModel, engine: Engine) -> None:
        """What was proved holds no more."""
        for proved in get_args(Proved):
            with suppress(KvgError):
                durable.remove(self._path(self._key(model, engine, proved)))

    def _key(self, model: LoadedModel, engine: Engine, proved: Proved) -> dict[str, Json]:
        """Everything that a proof depends on."""
        config = json.dumps(model.module.config.to_dict(), sort_keys=True, default=str)
        modules = [[name, type(part).__qualname__] for name, part in model.module.named_modules()]
        return {
            "proved": proved,
            "engine": engine.fingerprint,
            "kernels": kvg_kernels.VERSION,
            "code": _code(),
            "libraries": dict(library_versions()),
            "processor": sha256(_processor().encode()),
            "capability": torch.backends.cpu.get_cpu_capability(),
            "threads": torch.get_num_threads(),
            "environment": sorted(self.environment),
            "dtype": model.dtype,
            "config": sha256(config.encode()),
            "modules": sha256(canon.encode(modules)),
            "linear": [str(shape) for shape in linear_shapes(model)],
            "experts": [str(shape) for shape in expert_shapes(model)],
            "attention": [repr(shape) for shape in model.shapes],
        }

    def _path(self, key: Mapping[str, Json]) -> Path:
        return self.folder / f"{hex_of(sha256(canon.encode(dict(key))))}.json"


def is_plain(module: torch.nn.Module) -> bool:
    """Whether every part of a model computes as its class in a library says, whose version is a
    part of each record: no hook, no other ``forward``, no class of anybody else's."""
    return not any(getattr(torch_module, name) for name in _HOOKS_OF_ALL) and all(
        map(_is_of_library, module.modules())
    )


def _is_of_library(part: torch.nn.Module) -> bool:
    kind = type(part)
    makers = {kind.__module__, getattr(kind.forward, "__module__", "")}
    is_known = all(name.partition(".")[0] in _LIBRARIES for name in makers)
    has_hook = any(getattr(part, name) for name in _HOOKS)
    return is_known and not has_hook and "forward" not in vars(part)


@cache
def _code() -> str:
    """A digest over the program's own modules that compute: a changed one proves itself anew."""
    folders = (Path(kvg_kernels.__file__).parent, Path(__file__).parent)
    sources = sorted(path for folder in folders for path in folder.rglob("*.py"))
    return sha256_all(path.read_bytes() for path in sources)


def _is_own(stat: os.stat_result) -> bool:
    """Whether only this user (or root) can write what ``stat`` is of."""
    return stat.st_uid in (0, os.geteuid()) and not stat.st_mode & 0o022


def _menu(value: Mapping[str, Json], model: LoadedModel) -> TileMenu | None:
    """The tiles in a record, if it says nothing impossible."""
    layers = [shape.key for shape in linear_shapes(model)]
    linear = _tiles(value.get("linear"), layers, lambda _: TILES)
    attention = _tiles(value.get("attention"), model.shapes, lambda shape: tile_menu(shape.repeat))
    packed = _tiles(value.get("packed"), layers, lambda _: PACKED_TILES, may_lack=True)
    if linear is None or attention is None or packed is None:
        return None
    return TileMenu(linear, attention, {layer: tiles for layer, tiles in packed.items() if tiles})


def _passes(value: Json) -> Passes:
    """The passes in a record; none where it says what can't be."""
    found: Passes = {}
    for item in value if isinstance(value, Sequence) and not isinstance(value, str) else ():
        match item:
            case [int(rows), int(kind), int(longest)]:
                found[rows, kind] = longest
            case _:
                return {}
    return found


def _tiles(
    value: Json,
    shapes: Sequence[Shape],
    known: Callable[[Shape], Sequence[int]],
    *,
    may_lack: bool = False,
) -> dict[Shape, tuple[int, ...]] | None:
    """Tiles by shape; None unless each list is a part of the menu, in its order."""
    if not isinstance(value, Sequence) or len(value) != len(shapes):
        return None
    out = {}
    for shape, tiles in zip(shapes, value, strict=True):
        if not isinstance(tiles, Sequence) or not (tiles or may_lack):
            return None
        out[shape] = tuple(tile for tile in known(shape) if tile in tiles)
        if out[shape] != tuple(tiles):
            return None
    return out


def _processor() -> str:
    """What the first processor says of itself, in lines."""
    try:
        with open(PROCESSOR_FILE, encoding="utf-8", errors="replace") as file:
            first = file.read().split("\n\n")[0]
    except OSError:
        return ""
    return "\n".join(
        line for line in first.splitlines() if re.split(r"\s*:", line)[0] in PROCESSOR_KEYS
    )
