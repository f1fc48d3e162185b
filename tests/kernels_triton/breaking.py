"""A module broken on purpose, beside the one that it was made of."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def broken(folder: Path, module: ModuleType, name: str, *changes: tuple[str, str]) -> ModuleType:
    """A copy of ``module`` named ``name``, with every change made to its source exactly once."""
    source = Path(str(module.__file__)).read_text()
    for old, new in changes:
        assert source.count(old) == 1, f"{old!r} occurs {source.count(old)} times"
        source = source.replace(old, new)
    path = folder / f"{name}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    mutant = importlib.util.module_from_spec(spec)
    sys.modules[name] = mutant
    spec.loader.exec_module(mutant)
    return mutant
