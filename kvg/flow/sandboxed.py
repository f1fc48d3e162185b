"""Where untrusted programs run, for the flows that run some."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from kvg.flow.settings import Settings
    from kvg.gates.calls import Caller
    from kvg.gates.place import Place
    from kvg.sandbox import Enclosure, Limits
    from kvg.store import Store


def enclosure_of(settings: Settings, *, no_sandbox: bool) -> Enclosure:
    """The sandbox, or none where that was asked for. Raises ``GateFailed`` where it can't be had.

    What is signed after it names which of the two it was.
    """
    from kvg.sandbox import find_enclosure, no_enclosure

    if not no_sandbox:
        return find_enclosure()
    settings.report.warning("no sandbox: what runs now can read and write all that you can")
    return no_enclosure()


def place_of(
    settings: Settings, store: Store | None, *, no_sandbox: bool, limits: Limits | None = None
) -> Place:
    """Where gates run: files are found from the working folder; keys and store are not seen."""
    from kvg.gates.place import GATE_LIMITS, Place

    enclosure = enclosure_of(settings, no_sandbox=no_sandbox)
    return Place(enclosure, settings.cwd, hidden_of(settings, store), limits or GATE_LIMITS)


def caller_of(
    settings: Settings, store: Store, *, no_sandbox: bool, keep_ready: bool = False
) -> Caller:
    """Where programs are called: they see neither keys nor the store."""
    from kvg.gates.calls import Caller

    enclosure = enclosure_of(settings, no_sandbox=no_sandbox)
    return Caller(enclosure, hidden_of(settings, store), keep_ready=keep_ready)


def hidden_of(settings: Settings, store: Store | None) -> tuple[Path, ...]:
    """What nothing in a sandbox sees, whatever else it may read."""
    folders = [settings.keys]
    if settings.key_file is not None:
        folders.append((settings.cwd / settings.key_file).parent)
    if store is not None:
        folders.append(store.root)
    return tuple(folders)
