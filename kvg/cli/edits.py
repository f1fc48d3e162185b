"""Settings as they are written: into the store's file, or the user's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvg.cli.layers import (
    BY_KEY,
    STORE,
    USER,
    Found,
    jobs_of,
    wait_of,
    without_login,
)
from kvg.errors import NotFound, UsageError
from kvg.flow.settings import check_device, check_text
from kvg.store.config import KNOWN_OF, Config, Value, parse_value
from kvg.verify.judgement import REQUIRE_KEY, check_requirement

if TYPE_CHECKING:
    from kvg.flow.records import ConfigEntry
    from kvg.flow.settings import Settings
    from kvg.store.store import Store

CHOICES: dict[str, tuple[str, ...]] = {
    "core.color": ("auto", "always", "never"),
    "core.progress": ("true", "false"),
    "store.codec": ("0", "1", "2"),
}
PINNED = "store.log"
"""Pins the log of a store; not for editing."""

KEPT: dict[str, str] = {
    PINNED: "kvg init makes it",
    "store.shared": "kvg init --shared makes it",
}
"""Settings that a store is made with, and what makes them."""


def set_option(store: Store | None, settings: Settings, key: str, text: str) -> ConfigEntry:
    """Write a setting into the store's configuration, or without a store into the user's.

    Raises ``UsageError`` on a key that means nothing and on a value that does not fit.
    """
    from kvg.flow.records import ConfigEntry

    check_option(key, text)
    value = parse_value(text)
    if key == REQUIRE_KEY:
        _check_requirements(value)
    if _is_address(key):
        from kvg.flow.remote import absolute

        value = absolute(text, settings.cwd)
    config = _config(store, settings)
    if not settings.tell_dry_run():
        config.set(key, value)
    shown = without_login(value)
    return ConfigEntry(key, shown, USER if store is None else STORE, str(config.path))


def unset_option(store: Store | None, settings: Settings, key: str) -> ConfigEntry:
    """Take a setting out of that configuration, also one that means nothing there.

    Raises ``NotFound`` where it is not set, ``UsageError`` for what a store, a model or a remote
    can't be without.
    """
    from kvg.flow.records import ConfigEntry

    _check_removable(key)
    config = _config(store, settings)
    if config.get(key) is None:
        raise NotFound(f"{key}: not set in {config.path}", hint="kvg config list --show-origin")
    if not settings.tell_dry_run():
        config.unset(key)
    return ConfigEntry(key, None, USER if store is None else STORE, str(config.path))


def _config(store: Store | None, settings: Settings) -> Config:
    return Config(settings.user_config) if store is None else store.config


def _check_removable(key: str) -> None:
    section, _, rest = key.partition(".")
    if key in KEPT:
        raise UsageError(f"{key}: a store keeps it", hint=KEPT[key])
    if section == "model" and key.rpartition(".")[2] in KNOWN_OF[section]:
        raise UsageError(f"{key}: part of a registered model", hint="kvg model add NAME PATH")
    if _is_address(key):
        name = rest.removesuffix(".url")
        raise UsageError(f"{key}: a remote has an address", hint=f"kvg remote remove {name}")


def _is_address(key: str) -> bool:
    return key.startswith("remote.") and key.endswith(".url")


def _check_requirements(value: Value) -> None:
    """Raise ``UsageError`` unless every gate in ``value`` is one that a deposit can pass."""
    for name in value if isinstance(value, tuple) else (value,):
        check_requirement(str(name), what=REQUIRE_KEY)


def check_option(key: str, text: str) -> None:
    """Raise ``UsageError`` unless ``key`` may be set to ``text``."""
    import difflib

    if key == PINNED:
        raise UsageError(f"{key}: pins the store's log and cannot be set", hint="kvg init makes it")
    if key not in BY_KEY and key.partition(".")[0] not in ("model", "remote"):
        near = difflib.get_close_matches(key, list(BY_KEY), n=1)
        hint = f"did you mean {near[0]}?" if near else f"one of {', '.join(BY_KEY)}"
        raise UsageError(f"{key}: no such setting", hint=hint)
    if text not in CHOICES.get(key, (text,)):
        raise UsageError(f"{key} {text}: not one of {', '.join(CHOICES[key])}")
    if key == "core.jobs":
        jobs_of(Found(text, "flag", None))
    if key == "core.lock-wait":
        wait_of(Found(text, "flag", None))
    if key == REQUIRE_KEY and not text.strip("[] "):
        raise UsageError(f"{key}: no gate", hint=f"to require none: kvg config unset {key}")
    check_text(text, what=key)
    if key == "store.quota" and not text.isdecimal():
        raise UsageError(f"{key} {text}: not a number of bytes", hint="kvg quota SIZE")
    if key == "core.device":
        check_device(text)
    if _is_address(key):
        from kvg.flow.exchange.places import check_remote_name
        from kvg.remote.address import check_address

        check_remote_name(key.removeprefix("remote.").removesuffix(".url"))
        check_address(text)
