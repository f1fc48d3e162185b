"""Whether a freshness contract is kept. What is stale is a miss, with the reason.

A file is named as it lies from the folder of the store, or from the current one; another is
refused, since nobody could find it again. What can't be seen to be fresh is stale: a file that is
not there, that can't be read, or whose name leads elsewhere.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from kvg import durable
from kvg.digest import Digest, Sha256Stream
from kvg.errors import Corrupt, NotFound, UsageError
from kvg.flow.settings import STORE_FOLDER, check_file_name, check_text
from kvg.objects.contract import Contract, contract_of
from kvg.objects.statement import Resource

if TYPE_CHECKING:
    from kvg.flow.settings import Settings
    from kvg.objects.statement import Provenance
    from kvg.store import Store
    from kvg.verify.judgement import Judgement

SCHEMA_KEY = "freshness.schema"
"""The store's setting that says which schema version is in force."""


def stale_now(store: Store, cwd: Path, found: Judgement) -> str | None:
    """Why the artifact or method that ``found`` is about counts no more; None when it is fresh."""
    return stale_reason(store, cwd, found.contract)


def contract_for(
    store: Store,
    settings: Settings,
    valid_until: int | None,
    depends: Sequence[Path],
    schema_version: str | None,
) -> Contract:
    """A contract as it is asked for. Raises ``NotFound``, ``UsageError``."""
    if schema_version is not None:
        check_text(schema_version, what="--schema-version")
        if not schema_version.strip():
            raise UsageError("--schema-version: empty")
        in_force = store.config.get(SCHEMA_KEY)
        if in_force is not None and str(in_force) != schema_version:
            raise UsageError(
                f"--schema-version {schema_version}: the store's is {in_force}; it would be stale "
                "from the start",
                hint=f"kvg config set {SCHEMA_KEY} VERSION",
            )
    if valid_until is not None and valid_until < time.time():
        raise UsageError("--valid-until: in the past", hint="e.g. --valid-until 30d")
    return Contract(valid_until, depends_of(store, settings, depends), schema_version)


def depends_of(store: Store, settings: Settings, paths: Sequence[Path]) -> tuple[Resource, ...]:
    """Files with the digests that they have now.

    Raises ``NotFound`` for one that is not there, ``UsageError`` for one that can't be found again.
    """
    found = []
    for path in paths:
        digest = _digest(settings.cwd / path)
        if digest is None:
            full = settings.cwd / path
            why = "not a plain file that can be read" if os.path.lexists(full) else "no such file"
            raise NotFound(f"--depends {path}: {why}", hint="name a file that can be read again")
        name = _name(store, settings, path)
        check_file_name(name)
        found.append(Resource(name, digest))
    return tuple(found)


def stale_reason(
    store: Store, cwd: Path, contract: Contract, *, now: int | None = None
) -> str | None:
    """Why what is under ``contract`` counts no more; None when it is fresh."""
    until, now = contract.valid_until, int(time.time()) if now is None else now
    if until is not None and until < now:
        moment = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(max(0, until)))
        return f"stale: valid until {moment}"
    for part in contract.depends:
        reason = _outdated(store, cwd, part)
        if reason is not None:
            return f"stale: {reason}"
    if contract.schema_version is None:
        return None
    wanted = store.config.get(SCHEMA_KEY)
    if wanted is not None and contract.schema_version != str(wanted):
        return f"stale: schema version {contract.schema_version}, the store's is {wanted}"
    return None


def check_fresh(store: Store, cwd: Path, said: Provenance | None, *, what: str) -> None:
    """Raise ``NotFound``, a miss, when the artifact is stale."""
    reason = stale_reason(store, cwd, contract_of(said))
    if reason is not None:
        raise NotFound(f"{what}: {reason}", hint="deposit it again; kvg ls --stale")


def _outdated(store: Store, cwd: Path, part: Resource) -> str | None:
    """Why a file does not stand for what depends on it; None when it is there and as it was."""
    if part.digest is None or not _leads_down(part.name):
        return f"{part.name}, on which it depends, can't be checked from here; deposit it again"
    folders = _bases(store, cwd)
    for folder in folders:
        if os.path.lexists(folder / part.name):
            return (
                None if _digest(folder / part.name) == part.digest else f"{part.name} has changed"
            )
    where = folders[0] / part.name
    return f"{part.name}, on which it depends, is not here; put it at {where}, or deposit it again"


def _leads_down(name: str) -> bool:
    """Whether ``name`` is that of a file below the folder that it is looked for in."""
    parts = PurePosixPath(name).parts
    return bool(parts) and parts[0] != "/" and ".." not in parts and "\0" not in name


def _bases(store: Store, cwd: Path) -> tuple[Path, ...]:
    """The folders that files are looked for in, the first that has one decides."""
    return (store.root.parent, cwd) if store.root.name == STORE_FOLDER else (cwd,)


def _name(store: Store, settings: Settings, path: Path) -> str:
    """The path from the folder of the store, or else from the current one, that leads to it.

    Raises ``UsageError`` for a file outside both, also where a link inside leads to it.
    """
    full = settings.cwd / path
    bases = _bases(store, settings.cwd)
    is_inside = any(full.resolve().is_relative_to(base.resolve()) for base in bases)
    for base in bases if is_inside else ():
        for place in (Path(os.path.abspath(full)), full.resolve()):
            for folder in (Path(os.path.abspath(base)), base.resolve()):
                if place.is_relative_to(folder) and _is_same(place, full):
                    return place.relative_to(folder).as_posix()
    folders = " and ".join(dict.fromkeys(str(base.resolve()) for base in bases))
    raise UsageError(
        f"{path}: outside {folders}, where files are looked for again when it is used",
        hint="copy it there, and depend on the copy",
    )


def _is_same(place: Path, full: Path) -> bool:
    try:
        return place.samefile(full)
    except OSError:
        return False


def _digest(path: Path) -> Digest | None:
    """The digest of a file, None when there is none that can be read."""
    stream = Sha256Stream()
    try:
        with open(path, "rb", opener=durable.plain) as file:
            while block := file.read(1 << 20):
                stream.update(block)
    except (OSError, Corrupt):
        return None
    return stream.digest()
