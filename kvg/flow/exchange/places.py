"""The remotes of a store: which one is meant, and opening it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import partial
from shlex import quote
from typing import TYPE_CHECKING

from kvg import durable
from kvg.errors import NotFound, UsageError
from kvg.flow.settings import counted_in
from kvg.frozen import frozen
from kvg.remote.address import STORE_FOLDER, open_remote, parse_address, shown
from kvg.store.names import MAX_NAME_BYTES, is_ref_name
from kvg.verify.traced import SOLVED

if TYPE_CHECKING:
    from pathlib import Path

    from kvg.flow.settings import Settings
    from kvg.remote import Remote
    from kvg.store import Store

SECTION = "remote"
CONFIG_FILE = "config.toml"
DEFAULT = "origin"
DEFAULT_CODEC = 2
"""Byte planes: what remotes get where ``remote.NAME.codec`` does not say otherwise."""


@frozen
class Place:
    """A remote with the name that it has in a store."""

    name: str
    url: str
    codec: int
    is_tracked: bool = True
    """Whether refs here say what it had."""
    has_pages: bool = True
    """Whether a fetch brings pages; else they are brought when they are read."""
    filter: str | None = None
    """The pattern of the refs that a fetch brings where none is named; None: all of them."""
    own: Path | None = None
    """The folder of the store whose remote it is."""

    @property
    def again(self) -> str:
        """The command that takes what is there."""
        return f"kvg pull {self.name}" if self.is_tracked else f"kvg bundle apply {quote(self.url)}"

    @property
    def look(self) -> str:
        """The command that says what is there."""
        return (
            f"kvg remote show {self.name}"
            if self.is_tracked
            else f"kvg bundle list {quote(self.url)}"
        )

    @property
    def repair(self) -> str:
        """What helps against damage there."""
        if self.is_tracked:
            return (
                f"damaged on {self.name}: who has it whole puts it there anew, "
                f"kvg push {self.name} --verify"
            )
        return "the bundle is damaged: copy it again, or have it made anew with kvg bundle create"

    def matching(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those of the refs ``names`` there that a fetch brings where none is named."""
        pattern = self.filter
        return tuple(name for name in names if pattern is None or fnmatchcase(name, pattern))

    def is_trackable(self, ref: str) -> bool:
        """Whether the name of what this remote has under ``ref`` is short enough."""
        return len(self.name) + 1 + len(ref) <= MAX_NAME_BYTES

    def check_trackable(self, ref: str) -> None:
        """Raise ``UsageError`` where what this remote has under ``ref`` can't be named here."""
        if self.is_tracked and not self.is_trackable(ref):
            raise UsageError(
                f"{ref[:40]}…: too long a name beside that of the remote, {self.name}",
                hint="kvg mv REF SHORTER, where it was made",
            )

    def tracking(self, ref: str) -> str:
        """The ref that says what this remote had under ``ref``."""
        return f"{self.name}/{ref}"


def check_remote_name(name: str) -> None:
    """Raise ``UsageError`` unless ``name`` may name a remote: one that no command takes for an
    option."""
    if "/" in name or name.startswith("-") or not is_ref_name(name):
        raise UsageError(f"{shown(name)[:80]!r}: not a name of a remote", hint="e.g. origin")
    if f"{name}/" == SOLVED:
        raise UsageError(f"{name}: refs to solved problems go by that name", hint="give another")


def find_place(store: Store, name: str | None) -> Place:
    """The remote ``name``; without one ``origin``, else the only one. Raises ``NotFound``."""
    known = store.config.names(SECTION)
    if name is None:
        if DEFAULT not in known and len(known) != 1:
            why = f"which of {', '.join(known)}?" if known else "no remote"
            raise NotFound(why, hint="kvg remote add origin URL")
        name = DEFAULT if DEFAULT in known else known[0]
    if name not in known:
        hint = (
            f"the remote goes first: {known[0]} {name}" if known and is_ref(store, name) else None
        )
        if "://" in name:
            hint = "a NAME belongs here: kvg remote add NAME URL"
        raise NotFound(f"{shown(name)[:80]}: no such remote", hint=hint or "kvg remote list")
    table = store.config.table(SECTION, name)
    url, codec = table.get("url"), table.get("codec", DEFAULT_CODEC)
    if not isinstance(url, str):
        raise UsageError(f"remote {name}: has no url", hint=f"kvg remote set {name} URL")
    if isinstance(codec, bool) or codec not in (0, 1, 2):
        raise UsageError(f"remote.{name}.codec is {codec}: not 0, 1 or 2")
    pages = table.get("pages", True)
    if not isinstance(pages, bool):
        raise UsageError(f"remote.{name}.pages is {pages}: not true or false")
    pattern = table.get("filter")
    if pattern is not None and not isinstance(pattern, str):
        raise UsageError(f"remote.{name}.filter is {pattern}: not a pattern of refs")
    return Place(name, url, int(codec), has_pages=pages, filter=pattern or None, own=store.root)


def is_ref(store: Store, name: str) -> bool:
    """Whether a ref has this name."""
    return is_ref_name(name) and store.ref(name) is not None


def check_other(url: str, own: Path, settings: Settings, *, hint: str) -> None:
    """Raise ``UsageError`` where ``url`` is the folder of the store at ``own``, or lies in it."""
    address = parse_address(url)
    if address.kind not in ("", "file"):
        return
    store, folder = os.path.realpath(own), os.path.realpath(settings.cwd / address.path)
    within = f"{folder}{os.sep}".startswith(f"{store}{os.sep}")
    if within or _is_same(folder, store) or _is_same(f"{folder}/{STORE_FOLDER}", store):
        raise UsageError(f"{shown(url)}: is this very store", hint=hint)


def check_not_own(store: Store, place: Place, remote: Remote) -> None:
    """Raise ``UsageError`` where ``remote`` is the store itself, whichever way it is reached.

    A copy of it says the same, and is no remote either: two stores with one log would part ways.
    """
    there = remote.store_log()
    if there is not None and there.origin == store.log.origin:
        raise UsageError(
            f"{place.name}: {remote.url} is this very store, or a copy of it",
            hint=f"kvg remote set {place.name} URL, of another place",
        )


def _is_same(path: str, other: str) -> bool:
    try:
        return os.path.samefile(path, other)
    except OSError:
        return False


def _tell_of_readers(place: Place, own: Path, settings: Settings) -> None:
    """Warn where a login lies open to others, as after an edit by hand."""
    from kvg.store.config import holds_login

    path = own / CONFIG_FILE
    if holds_login(place.url) and not durable.is_shared(path):
        with durable.translated(path):
            is_open = path.stat().st_mode & 0o077
        if is_open:
            settings.report.warning(f"{path}: holds a login that others may read: chmod 600 {path}")


@contextmanager
def opened(place: Place, settings: Settings) -> Iterator[Remote]:
    """The remote of ``place``, open; relative paths start from the working folder.

    Raises ``UsageError`` where it is the very store that it is a remote of.
    """
    if place.own is not None:
        check_other(place.url, place.own, settings, hint=f"kvg remote set {place.name} URL")
        _tell_of_readers(place, place.own, settings)
    keeper = partial(counted_in, settings)
    remote = open_remote(
        place.url,
        cwd=settings.cwd,
        access=settings.access,
        keeper=keeper,
        lock_wait=settings.lock_wait,
        report=settings.report,
    )
    try:
        yield remote
    finally:
        remote.close()
