"""The layers of settings: flag, then environment, then the store's config, then the user's.

Only here are environment variables read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING

from kvg import durable
from kvg.errors import Corrupt, KvgError, NotFound, Untrusted, UsageError
from kvg.frozen import frozen
from kvg.parallel import MOST_THREADS

if TYPE_CHECKING:
    from kvg.cli.invocation import Globals
    from kvg.cli.terminal import Terminal
    from kvg.flow.records import ConfigEntry
    from kvg.flow.settings import Settings
    from kvg.report import Report
    from kvg.store.config import Config, Value

Env = Mapping[str, str]
STORE, USER = "store", "user"
"""The layers that are files: the store's and the user's."""

MAX_PASSPHRASE_BYTES = 1 << 16
"""The most that what gives a passphrase may give."""

ARITHMETIC = (
    "ATEN_",
    "BLIS_",
    "DNNL_",
    "GLIBC_TUNABLES",
    "GOMP_",
    "KMP_",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "MKL_",
    "OMP_",
    "ONEDNN_",
    "OPENBLAS_",
    "PYTORCH_",
    "TORCH_",
)
"""How the names of variables begin that steer the libraries which compute a model."""


@frozen
class Option:
    """A setting that several layers can give. ``default`` None means unset."""

    key: str
    meaning: str
    default: str | int | bool | None = None
    variable: str | None = None
    flag: str | None = None


OPTIONS: tuple[Option, ...] = (
    Option("core.device", "where to compute", "auto", "KVG_DEVICE", "device"),
    Option("core.jobs", "threads for reading, hashing and blocks", None, None, "jobs"),
    Option("core.lock-wait", "seconds to wait for the store's lock", None, None, "lock_wait"),
    Option("core.color", "when to use colour: auto, always, never", "auto", None, "color"),
    Option("core.progress", "whether to draw progress bars", True),
    Option("store.codec", "how new objects are stored: 0 raw, 1 zstd, 2 byte planes", 0),
    Option("store.quota", "the most bytes that the store may take; kvg quota sets it"),
    Option("store.witnesses", "who may cosign the log; kvg log --witness adds one"),
    Option("default.model", "the model that is used without --model"),
    Option("deposit.require", "gates without which nothing is deposited or accepted"),
    Option("freshness.schema", "the schema version in force; artifacts made for another are stale"),
)
BY_KEY: dict[str, Option] = {option.key: option for option in OPTIONS}


def user_config_path(env: Env) -> Path:
    """Where the user's configuration lies."""
    return _base(env, "XDG_CONFIG_HOME", ".config") / "kvg" / "config.toml"


def keys_path(env: Env) -> Path:
    """Where the user's private keys lie."""
    return _base(env, "XDG_DATA_HOME", ".local/share") / "kvg" / "keys"


def cache_path(env: Env) -> Path:
    """Where caches lie."""
    return _base(env, "XDG_CACHE_HOME", ".cache") / "kvg"


def state_path(env: Env) -> Path:
    """Where logs lie."""
    return _base(env, "XDG_STATE_HOME", ".local/state") / "kvg"


def runtime_path(env: Env) -> Path | None:
    """The user's folder for sockets, None where there is none."""
    value = env.get("XDG_RUNTIME_DIR", "")
    return Path(value) if value else None


def _base(env: Env, variable: str, fallback: str) -> Path:
    """An XDG folder; relative values are ignored, as the specification asks."""
    value = env.get(variable, "")
    if value and Path(value).is_absolute():
        return Path(value)
    try:
        return Path.home() / fallback
    except RuntimeError:
        raise NotFound("no home folder", hint="set HOME") from None


def store_path(given: Globals, env: Env) -> Path | None:
    """The store that was named by flag or environment, None when it is to be looked for."""
    if given.store is not None:
        return given.store
    value = env.get("KVG_STORE")
    return Path(value) if value else None


@frozen
class Found:
    """A value in force and the layer it comes from; ``source`` is the file or variable."""

    value: str | int | bool | float | tuple[str, ...] | None
    origin: str
    source: str | None


class Layers:
    """All layers of one run. The files are read once, and only if they are there."""

    def __init__(self, given: Globals, env: Env, *, is_damaged: bool = False) -> None:
        """``is_damaged``: that the store's file may be; what can't be read then says nothing."""
        self._given = given
        self._env = env
        self._is_damaged = is_damaged
        self.configs: list[tuple[str, Config]] = list(self._read())

    def find(self, key: str) -> Found | None:
        """The value in force of ``key``, None when no layer has it."""
        option = BY_KEY.get(key)
        if option is not None and option.flag is not None:
            value = getattr(self._given, option.flag)
            if value is not None:
                return Found(value, "flag", "--" + option.flag.replace("_", "-"))
        if option is not None and option.variable and self._env.get(option.variable):
            return Found(self._env[option.variable], "environment", option.variable)
        for origin, config in self.configs:
            found = config.get(key)
            if found is not None:
                return Found(without_login(found), origin, str(config.path))
        if option is not None and option.default is not None:
            return Found(option.default, "default", None)
        return None

    def keys(self) -> Iterator[str]:
        """Every key that some layer has, sorted."""
        names = {option.key for option in OPTIONS if self.find(option.key) is not None}
        for _, config in self.configs:
            names.update(key for key, _ in config.items())
        yield from sorted(names)

    def entries(self) -> Iterator[ConfigEntry]:
        """Every setting in force."""
        from kvg.flow.records import ConfigEntry

        for key in self.keys():
            found = self.find(key)
            if found is not None:
                yield ConfigEntry(key, found.value, found.origin, found.source)

    def _read(self) -> Iterator[tuple[str, Config]]:
        root = store_root(self._given, self._env)
        paths = [(STORE, root / "config.toml")] if root else []
        paths.append((USER, user_config_path(self._env)))
        for origin, path in paths:
            if path.is_file():
                from kvg.store.config import Config

                may_be = self._is_damaged and origin == STORE
                yield origin, Config(path, is_damaged=may_be)


def store_root(given: Globals, env: Env) -> Path | None:
    """The store's folder, None when there is none."""
    from kvg.flow.settings import find_root

    try:
        return find_root(store_path(given, env), Path.cwd())
    except (NotFound, Corrupt):
        return None


def make_settings(
    given: Globals, env: Env, report: Report, terminal: Terminal, *, is_damaged: bool = False
) -> Settings:
    """The settings in force; what the user's file says that means nothing is told.

    ``is_damaged``: the store's configuration may be. Raises ``UsageError`` on a value that does not
    fit, ``Corrupt``.
    """
    from kvg.flow.settings import Settings, tell_unknown
    from kvg.remote.access import access_of

    layers = Layers(given, env, is_damaged=is_damaged)
    for origin, config in layers.configs:
        if origin == USER:
            tell_unknown(config, report)
    wait, jobs = layers.find("core.lock-wait"), layers.find("core.jobs")
    key_file = env.get("KVG_KEY_FILE")
    return Settings(
        cwd=Path.cwd(),
        store_path=store_path(given, env),
        keys=keys_path(env),
        cache=cache_path(env),
        user_config=user_config_path(env),
        key_file=Path(key_file) if key_file else None,
        passphrase=passphrase_source(env, terminal),
        device=_text(layers.find("core.device")),
        lock_wait=None if wait is None else wait_of(wait),
        jobs=_available() if jobs is None else jobs_of(jobs),
        report=report,
        dry_run=given.dry_run,
        assume_yes=given.yes,
        arithmetic=tuple(sorted(f"{k}={v}" for k, v in env.items() if k.startswith(ARITHMETIC))),
        access=access_of(env, _home()),
    )


def _home() -> Path | None:
    try:
        return Path.home()
    except RuntimeError:
        return None


def quick_look(key: str, given: Globals, env: Env) -> str | bool | None:
    """What the files say of ``key``, for the terminal's sake: a broken one is not reported here.

    A file that does not even hold the word is not parsed: most say nothing of the terminal.
    """
    word = key.partition(".")[2].encode("ascii")
    for path in _config_paths(given, env):
        if word in _content(path):
            try:
                found = Layers(given, env).find(key)
            except KvgError:
                return None
            return found.value if found and isinstance(found.value, str | bool) else None
    return None


def _config_paths(given: Globals, env: Env) -> Iterator[Path]:
    root = store_root(given, env)
    if root is not None:
        yield root / "config.toml"
    yield user_config_path(env)


def _content(path: Path) -> bytes:
    try:
        with open(path, "rb", opener=durable.plain) as file:
            return file.read(1 << 20)
    except (OSError, Corrupt):
        return b""


def without_login(value: Value) -> Value:
    """``value`` as it may be shown: an address without a name and password."""
    if not isinstance(value, str) or "://" not in value:
        return value
    from kvg.remote.address import shown

    return shown(value)


def passphrase_source(env: Env, terminal: Terminal) -> Callable[[], bytes] | None:
    """Where a key's passphrase comes from; None where there is nowhere to ask."""
    if env.get("KVG_PASSPHRASE_FD"):
        return lambda: _passphrase_from_fd(env["KVG_PASSPHRASE_FD"])
    if env.get("KVG_PASSPHRASE_FILE"):
        return lambda: _first_line(_read_secret(Path(env["KVG_PASSPHRASE_FILE"])))
    if env.get("KVG_PASSPHRASE_COMMAND"):
        return lambda: _passphrase_from_command(env["KVG_PASSPHRASE_COMMAND"])
    return ask_passphrase if terminal.prompts else None


def ask_passphrase() -> bytes:
    """A passphrase typed on the terminal. Raises ``UsageError`` when there is none."""
    import getpass

    try:
        return getpass.getpass("passphrase: ").encode("utf-8")
    except EOFError:
        raise UsageError("no passphrase was given") from None


def ask_new_passphrase() -> bytes:
    """A new passphrase typed twice. Raises ``UsageError`` when the two differ."""
    first = ask_passphrase()
    if ask_passphrase() != first:
        raise UsageError("the two passphrases differ", hint="run it again")
    return first


def _passphrase_from_fd(text: str) -> bytes:
    try:
        with os.fdopen(int(text), "rb") as file:
            return _first_line(_read_out(file, "KVG_PASSPHRASE_FD"))
    except (ValueError, OSError):
        raise UsageError(
            f"KVG_PASSPHRASE_FD={text}: cannot be read",
            hint="give the number of an open descriptor",
        ) from None


def _read_secret(path: Path) -> bytes:
    """What the file holds. Raises ``Untrusted`` when it is a plain file that others can read."""
    import stat

    with durable.translated(path), open(path, "rb", opener=_unwaiting) as file:
        mode = os.fstat(file.fileno()).st_mode
        os.set_blocking(file.fileno(), True)  # what has its writer may take its time
        if stat.S_ISREG(mode) and stat.S_IMODE(mode) & 0o077:
            raise Untrusted(
                f"{path}: others can read this passphrase (mode {stat.S_IMODE(mode):04o})",
                hint=f"chmod 600 {path}",
            )
        secret = _read_out(file, str(path))
    if stat.S_ISFIFO(mode) and not secret:
        raise UsageError(f"{path}: empty, a pipe that nobody writes into")
    return secret


def _unwaiting(path: str, flags: int) -> int:
    """An opener that doesn't wait for somebody to write into a named pipe."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def _passphrase_from_command(command: str) -> bytes:
    import shlex
    import subprocess

    try:
        with subprocess.Popen(shlex.split(command), stdout=subprocess.PIPE) as program:
            try:
                secret = _read_out(program.stdout, "KVG_PASSPHRASE_COMMAND")
            except BaseException:
                program.kill()
                raise
        if program.returncode:
            raise subprocess.CalledProcessError(program.returncode, program.args)
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        raise KvgError(f"KVG_PASSPHRASE_COMMAND: failed: {error}", hint="run it by hand") from None
    return _first_line(secret)


def _read_out(file: IO[bytes] | None, what: str) -> bytes:
    from kvg.cli.invocation import read_at_most

    said = f"{what}: the passphrase"
    return b"" if file is None else read_at_most(file, MAX_PASSPHRASE_BYTES, what=said)


def _first_line(data: bytes) -> bytes:
    return data.split(b"\n", 1)[0].removesuffix(b"\r")


def _text(found: Found | None) -> str:
    return "auto" if found is None else str(found.value)


def jobs_of(found: Found) -> int:
    number = _number(found, "core.jobs")
    if not number.is_integer() or not 1 <= number <= MOST_THREADS:
        raise UsageError(
            f"{found.source or 'core.jobs'}: {found.value} threads: not 1 to {MOST_THREADS}",
            hint="kvg config set core.jobs N",
        )
    return int(number)


def wait_of(found: Found) -> float:
    seconds = _number(found, "core.lock-wait")
    if not 0 <= seconds < float("inf"):
        raise UsageError(
            f"{found.source or 'core.lock-wait'}: {found.value} is no time to wait",
            hint="kvg config set core.lock-wait SECONDS",
        )
    return seconds


def _number(found: Found, key: str) -> float:
    try:
        return float(str(found.value))
    except ValueError:
        raise UsageError(
            f"{found.source or key}: {key} is not a number", hint=f"kvg config set {key} NUMBER"
        ) from None


def _available() -> int:
    known = hasattr(os, "sched_getaffinity")
    found = len(os.sched_getaffinity(0)) if known else os.cpu_count() or 1
    return min(found, MOST_THREADS)
