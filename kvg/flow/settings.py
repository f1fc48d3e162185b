"""What every flow needs to know beside its request: where things lie, and how far it may go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kvg import durable
from kvg.errors import Corrupt, NotFound, Untrusted, UsageError
from kvg.frozen import frozen
from kvg.parallel import MOST_THREADS
from kvg.remote.access import Access
from kvg.report import Report, SilentReport

if TYPE_CHECKING:
    from kvg.flow.records.findings import Finding
    from kvg.flow.resident import Seat
    from kvg.objects.manifest import Manifest
    from kvg.remote.directory import Counted
    from kvg.signing.keys import PrivateKey
    from kvg.store.config import Config
    from kvg.store.store import Store
    from kvg.trust.keyring import Keyring


@frozen
class Settings:
    """The settings in force, whatever layer they came from.

    ``store_path`` None means the nearest ``.kvg`` from ``cwd`` upward. ``keys`` is the folder of
    the user's private keys, ``key_file`` a private key that takes their place. ``passphrase`` is
    called when a key is encrypted. ``lock_wait`` is in seconds, None waits for as long as it takes.
    ``jobs`` counts threads. ``arithmetic`` are the variables of the environment, as NAME=value,
    that steer how a model's libraries compute; None where that is not known, so that nothing is
    remembered of a self-check.
    ``access`` is what remotes may know of the user's surroundings.
    ``seat`` is a place in a resident session, whose model is then used.
    """

    cwd: Path
    keys: Path
    cache: Path
    user_config: Path
    store_path: Path | None = None
    key_file: Path | None = None
    passphrase: Callable[[], bytes] | None = None
    device: str = "auto"
    lock_wait: float | None = None
    jobs: int = 1
    report: Report = field(default_factory=SilentReport)
    dry_run: bool = False
    assume_yes: bool = False
    arithmetic: tuple[str, ...] | None = None
    access: Access = field(default_factory=Access)
    seat: Seat | None = None

    def tell_dry_run(self) -> bool:
        """Whether nothing is to be changed; the report is told so."""
        if self.dry_run:
            self.report.notice("dry run: nothing was changed")
        return self.dry_run

    def __post_init__(self) -> None:
        if not 1 <= self.jobs <= MOST_THREADS:
            raise UsageError(f"jobs {self.jobs}: not 1 to {MOST_THREADS}", hint="--jobs N")
        if self.lock_wait is not None and not self.lock_wait >= 0:
            raise UsageError(f"lock wait {self.lock_wait}: not a number of seconds")
        check_device(self.device)


TEXT_HINT = "give UTF-8; a file is read with the verb's option for files"


def check_text(text: str, *, what: str, hint: str = TEXT_HINT) -> None:
    """Raise ``UsageError`` unless ``text`` is Unicode: what was not UTF-8 on a command line, and
    half a surrogate pair in JSON, is not."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UsageError(
            f"{what}: not Unicode text at character {error.start}",
            hint=hint,
        ) from None


def check_file_name(name: str) -> None:
    """Raise ``UsageError`` unless documents can hold ``name``: that of a file may be any bytes."""
    check_text(name, what=repr(name), hint="rename it: a document holds names in UTF-8")


def check_device(device: str) -> None:
    """Raise ``UsageError`` unless ``device`` is auto, cpu, cuda or cuda:N."""
    kind, _, number = device.partition(":")
    if not (device in ("auto", "cpu", "cuda") or (kind == "cuda" and number.isdecimal())):
        raise UsageError(f"device {device}: not auto, cpu or cuda:N", hint="--device cpu")


STORE_FOLDER = ".kvg"


def _check_not_bereft(folder: Path) -> None:
    """Raise ``Corrupt`` for a store without its format line; without a log nothing is imported."""
    if (folder / "log").is_dir():
        from kvg.store.layout import check_not_bereft

        check_not_bereft(folder)


def find_root(store_path: Path | None, cwd: Path) -> Path:
    """The folder of the store: ``store_path``, else the nearest ``.kvg`` (or bare store) upward.

    A named path may be the store itself or the folder that holds its ``.kvg``. Nothing is opened.
    Raises ``NotFound``, ``Corrupt`` where a store has lost its format line.
    """
    if store_path is not None:
        root = cwd / store_path
        for candidate in (root, root / STORE_FOLDER):
            if (candidate / "format").exists():
                return candidate
            _check_not_bereft(candidate)
        raise NotFound(f"{store_path}: no store there", hint=f"kvg init {store_path}")
    for folder in (cwd, *cwd.parents):
        if (folder / STORE_FOLDER / "format").exists():
            return folder / STORE_FOLDER
        _check_not_bereft(folder / STORE_FOLDER)
        if _is_bare(folder):
            return folder
        _check_not_bereft(folder)
    raise NotFound(f"{cwd}: no store here or above", hint="kvg init")


def _is_bare(folder: Path) -> bool:
    try:
        with open(folder / "format", "rb", opener=durable.plain) as file:
            return file.read(10) == b"kvg-store "
    except (OSError, Corrupt):
        return False


def keyring_of(settings: Settings) -> Keyring:
    """The user's own keys."""
    from kvg.trust.keyring import Keyring

    return Keyring(settings.keys)


def open_store(settings: Settings, *, is_checked: bool = False) -> Store:
    """The store that the settings are about. Raises ``NotFound``, ``Incompatible``, ``Corrupt``.

    What its configuration says that means nothing is told, unless it ``is_checked`` by what is to
    be done with it.
    """
    from kvg.store.store import Store

    store = Store.open(
        find_root(settings.store_path, settings.cwd),
        lock_wait=settings.lock_wait,
        keyring=keyring_of(settings),
        report=settings.report,
    )
    store.supply = partial(_supply, store, settings)
    if not is_checked:
        tell_unknown(store.config, settings.report)
    return store


def counted_in(settings: Settings, root: Path) -> Counted | None:
    """How objects are counted that are written into the folder ``root`` as to a remote: by the
    quota of the store that it is; None where it is none, or has no quota.

    Raises ``Corrupt`` where its configuration does not say.
    """
    if not _is_bare(root):
        return None
    from kvg.store.store import Store

    store = Store(root, lock_wait=settings.lock_wait, report=settings.report)
    return None if store.quota.limit is None else store.objects.counted


def open_damaged(settings: Settings) -> tuple[Store, tuple[Finding, ...]]:
    """The store that the settings are about, also where its format line is damaged or gone, and
    what is wrong with that; or its configuration, which the store then has as a fault.

    Raises ``NotFound``, ``Incompatible``.
    """
    from kvg.flow.records.findings import Finding
    from kvg.store.layout import FORMAT_FILE, check_not_bereft, has_format
    from kvg.store.store import Store

    faults: tuple[Finding, ...] = ()
    try:
        root = find_root(settings.store_path, settings.cwd)
    except (Corrupt, NotFound):
        root = _damaged_root(settings)
    try:
        if not has_format(root):
            check_not_bereft(root)
            raise NotFound(f"{root}: not a store", hint=f"kvg init {root}")
    except Corrupt as error:
        if not error.message.startswith(f"{root / FORMAT_FILE}:"):
            raise
        faults = (Finding(error.code, error.kind, FORMAT_FILE, error.message, error.hint),)
    store = Store(
        root,
        lock_wait=settings.lock_wait,
        keyring=keyring_of(settings),
        report=settings.report,
        is_damaged=True,
    )
    return store, faults


def _damaged_root(settings: Settings) -> Path:
    """The folder that is a store but for its format line. Raises ``NotFound``."""
    if settings.store_path is not None:
        given = settings.cwd / settings.store_path
        folders = [given, given / STORE_FOLDER]
    else:
        above = (settings.cwd, *settings.cwd.parents)
        folders = [root for folder in above for root in (folder / STORE_FOLDER, folder)]
    found = next((root for root in folders if _was_store(root)), None)
    if found is None:
        raise NotFound(f"{settings.cwd}: no store here or above", hint="kvg init")
    return found


def _was_store(root: Path) -> bool:
    return (root / "objects").is_dir() and (root / "log").is_dir()


def tell_unknown(config: Config, report: Report) -> None:
    """Tell of every key of ``config`` that means nothing."""
    for key, near in config.unknown():
        meant = f"; did you mean {near}?" if near else ""
        report.notice(f"{config.path}: {key}: no such setting{meant}")


def _supply(store: Store, settings: Settings, manifest: Manifest, what: str) -> None:
    from kvg.flow.exchange.supplying import supply

    supply(store, settings, manifest, what)


FIRST_KEY = "default"


def signing_key(settings: Settings, store: Store | None, name: str | None = None) -> PrivateKey:
    """The key to sign with: ``name``, else ``KVG_KEY_FILE``, else the oldest of the user's own.

    Makes one when there is none, and has ``store`` trust it when that trusts nobody yet; the report
    is told of both. Raises ``NotFound``, ``Untrusted``.
    """
    key = _find_key(settings, name)
    if store is not None and store.trust_first(key):
        settings.report.notice(
            f"key {key.public.keyid[:6]} is the first of this store: "
            "trusted as depositor and publisher"
        )
    return key


def attesting_key(settings: Settings, store: Store, name: str | None = None) -> PrivateKey:
    """The key to attest something with: as ``signing_key``, and not one that is revoked here.

    Raises ``NotFound``, ``Untrusted``.
    """
    key = signing_key(settings, store, name)
    if store.trust.revocations(key.public.keyid):
        raise Untrusted(
            f"key {key.public.keyid[:12]} is revoked in this store: what it signs does not count",
            hint="give another by --key NAME; kvg key new NAME",
        )
    return key


def _find_key(settings: Settings, name: str | None) -> PrivateKey:
    keyring = keyring_of(settings)
    if name is not None:
        return keyring.load(name, settings.passphrase)
    if settings.key_file is not None:
        from kvg.trust.keyring import load_file

        return load_file(settings.cwd / settings.key_file, settings.passphrase)
    known = sorted(keyring.list(), key=lambda info: (info.path.stat().st_mtime_ns, info.name))
    if known:
        return keyring.load(known[0].name, settings.passphrase)
    key = keyring.new(FIRST_KEY)
    settings.report.notice(f"made signing key {key.public.keyid[:6]} in {tilde(settings.keys)}")
    return key


def tilde(path: Path) -> str:
    """``path`` with the home folder written as ``~``."""
    try:
        return f"~/{path.relative_to(Path.home())}"
    except (ValueError, RuntimeError):
        return str(path)
