"""``kvg clone``: a new store from a remote, after first contact in so many words."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from kvg.errors import AGAIN, Conflict, KvgError, NotFound, UsageError
from kvg.flow.exchange.contact import Ask, choose, trust_all
from kvg.flow.exchange.fetching import Fetch
from kvg.flow.exchange.places import DEFAULT, SECTION, find_place, opened
from kvg.flow.exchange.telling import counted
from kvg.flow.pull import take
from kvg.flow.records.findings import Finding
from kvg.flow.remote import absolute
from kvg.flow.settings import STORE_FOLDER, keyring_of
from kvg.remote.address import check_address, open_remote, parse_address, shown

if TYPE_CHECKING:
    from kvg.flow.records import Record
    from kvg.flow.settings import Settings
    from kvg.signing.keys import PublicKey


def clone(
    settings: Settings,
    url: str,
    folder: Path | None = None,
    *,
    pattern: str | None = None,
    pages: bool = True,
    trust: Sequence[str] = (),
    ask: Ask | None = None,
) -> Iterator[Record]:
    """Make a store in ``folder`` (None: the last part of ``url``) with what ``url`` publishes.

    ``trust`` names publishers' keys; without any a person is asked through ``ask``. Nothing is made
    before that. ``pattern`` keeps only refs that match it, now and in later fetches. Without
    ``pages`` manifests, token ids and what is attested come now, and an artifact's pages when they
    are first read. Yields and raises as ``pull``; also ``Untrusted`` where nobody is trusted,
    ``Conflict`` where a store is there already, ``NotFound`` where there is nothing to bring.
    """
    from kvg.store.store import Store

    check_address(url)
    pattern = pattern or None
    url = absolute(url, settings.cwd)
    root = settings.cwd / (folder or Path(_name_of(url)))
    if (root / STORE_FOLDER / "format").exists() or (root / "format").exists():
        again = "".join(f" --trust {text}" for text in trust)
        raise Conflict(
            f"{root}: a store is there already", hint=f"kvg -C {quote(str(root))} pull{again}"
        )
    if os.path.lexists(root) and not root.is_dir():
        raise UsageError(f"{root}: is a file, and no folder", hint="kvg clone URL DIR")
    keys = _first_contact(settings, url, pattern, trust, ask)
    store = Store.init(
        root,
        keyring=keyring_of(settings),
        lock_wait=settings.lock_wait,
        report=settings.report,
    )
    store.config.set_table(SECTION, DEFAULT, _settings_of(url, pattern, pages=pages))
    try:
        trust_all(store, settings, keys)
        place = find_place(store, DEFAULT)
        with opened(place, settings) as remote, store.exchange.exclusive():
            work = Fetch(store, settings, place, remote, pages=pages)
            for record in counted(take(work, store, settings, None, "clone")):
                if isinstance(record, Finding) and record.hint == AGAIN:
                    record = replace(record, hint=_go_on(root))
                yield record
    except KvgError as error:
        if error.hint in (None, AGAIN):
            error.hint = _go_on(root)
        raise
    finally:
        store.close()


def _go_on(root: Path) -> str:
    return f"go on with kvg -C {quote(str(root))} pull"


def _settings_of(url: str, pattern: str | None, *, pages: bool) -> dict[str, str | bool]:
    table: dict[str, str | bool] = {"url": url}
    if pattern is not None:
        table["filter"] = pattern
    if not pages:
        table["pages"] = False
    return table


def _first_contact(
    settings: Settings, url: str, pattern: str | None, trust: Sequence[str], ask: Ask | None
) -> tuple[PublicKey, ...]:
    remote = open_remote(url, cwd=settings.cwd, access=settings.access)
    try:
        remote.check()
        names = remote.refs()
        if not names:
            raise NotFound(
                f"{remote.url}: no refs there",
                hint="once its owner has pushed some, clone it; kvg init makes an empty store"
                if remote.store_log() is None
                else "that is a store, whose own refs it keeps to itself: there, kvg remote add "
                "origin FOLDER and kvg push, then kvg clone FOLDER",
            )
        if pattern is not None and not any(fnmatchcase(name, pattern) for name in names):
            raise NotFound(
                f"{remote.url}: no ref there matches {pattern}",
                hint=f"there are {len(names)}: {', '.join(names[:5])[:200]}",
            )
        return choose(remote, trust, ask, again=f"kvg clone {remote.url}")
    finally:
        remote.close()


def _name_of(url: str) -> str:
    """The folder that a clone of ``url`` gets: its last part, else the name of the host."""
    address = parse_address(url)
    path = address.path.rstrip("/")
    name = os.path.basename(path.removesuffix("/" + STORE_FOLDER)).removesuffix(STORE_FOLDER)
    name = name or address.host
    if not name or name in (".", ".."):
        raise UsageError(f"{shown(url)}: gives no name for a folder", hint="kvg clone URL DIR")
    return name
