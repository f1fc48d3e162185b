"""The enclosure of a call: bubblewrap where it can be had, or none, when that is asked for.

As root a user of its own is a real one that nobody else has, so that the limit on processes holds;
otherwise it is one of a user namespace.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from kvg.errors import GateFailed, UsageError
from kvg.frozen import frozen
from kvg.objects.statement import NO_SANDBOX

NOBODY: Final = 65534
FIRST_UID: Final = 1 << 30
HINT: Final = (
    "install bubblewrap, e.g. apt-get install bubblewrap; or --no-sandbox, which is attested"
)
SHARED_MEMORY_BYTES: Final = 16 << 20
_PARTS: Final = ("bin", "sbin", "lib", "lib32", "lib64", "libexec", "share", "pyvenv.cfg")
"""Of a place where programs are installed, what they are made of. What else lies there is
somebody's: a project in /usr/src, or around an environment of Python."""
_SYSTEM: Final = ("/bin", "/sbin", "/lib", "/lib32", "/lib64")
_SETTINGS: Final = (
    "/etc/ld.so.cache",
    "/etc/alternatives",
    "/etc/ocamlfind.conf",
    "/etc/ocamlfind.conf.d",
)
_ENVIRONMENT: Final = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",
}


@frozen
class Enclosure:
    """``program`` is bubblewrap, None for no enclosure. ``name`` is what is attested."""

    name: str
    program: str | None

    def argv(
        self,
        *,
        readable: Sequence[Path],
        hidden: Sequence[Path],
        tmp_bytes: int,
        is_init: bool = False,
    ) -> tuple[str, ...]:
        """The command that encloses another; the files it is given come after it.

        ``readable`` are shown inside, read-only, where they lie; ``hidden`` are not, also when
        they lie in those. With ``is_init`` no other process inside is of the same user: it is the
        first one itself, or the first one is root's, which ends it with who started it.
        """
        if self.program is None:
            return ()
        return (
            self.program,
            *("--die-with-parent", "--new-session", "--unshare-pid", "--unshare-net"),
            *("--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--hostname", "sandbox"),
            *(("--as-pid-1",) if is_init and os.geteuid() != 0 else ()),
            *(_as_root() if os.geteuid() == 0 else _as_user()),
            *(item for pair in _ENVIRONMENT.items() for item in ("--setenv", *pair)),
            *_system(),
            *("--proc", "/proc", "--dev", "/dev"),
            *_private("/dev/shm", SHARED_MEMORY_BYTES),
            *("--remount-ro", "/dev"),
            *_private("/tmp", tmp_bytes),
            *_shown(readable, hidden),
        )

    def inner_argv(self) -> tuple[str, ...]:
        """What comes first inside: the step to a user of its own, where it takes one."""
        if self.program is None or os.geteuid() != 0:
            return ()
        user = str(_own_uid())
        return (
            *("/usr/bin/setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"),
            *("--no-new-privs", "--bounding-set=-all", "--inh-caps=-all", "--"),
        )


def find_enclosure() -> Enclosure:
    """Bubblewrap. Raises ``GateFailed`` where it, or what it takes, is missing."""
    program = shutil.which("bwrap")
    if program is None:
        raise GateFailed("no sandbox: bubblewrap is not installed", hint=HINT)
    needed = ("/usr/bin/prlimit", *(("/usr/bin/setpriv",) if os.geteuid() == 0 else ()))
    for path in needed:
        if not os.access(path, os.X_OK):
            raise GateFailed(f"no sandbox: {path} is missing", hint="install util-linux")
    return Enclosure("bubblewrap", program)


def no_enclosure() -> Enclosure:
    """None at all: limits on resources only. Whoever uses it has to say so in what is attested."""
    return Enclosure(NO_SANDBOX, None)


def environment() -> dict[str, str]:
    """The variables inside."""
    return dict(_ENVIRONMENT)


def python_folders() -> tuple[Path, ...]:
    """What has to be readable for this Python to run."""
    given = {Path(sys.prefix), Path(sys.base_prefix)}
    found = {folder.resolve() for folder in given} | {straight(folder) for folder in given}
    return parts_of(found)


def parts_of(prefixes: Iterable[Path], more: Sequence[str] = ()) -> tuple[Path, ...]:
    """What has to be readable for what is installed in ``prefixes`` to run, and is not anyway."""
    found = {folder / name for folder in prefixes for name in (*_PARTS, *more)}
    return tuple(sorted(path for path in found if path.exists() and not _is_of_system(path)))


def is_seen(path: Path) -> bool:
    """Whether every program in an enclosure can read it, wherever it was meant to be kept."""
    real = path.resolve()
    seen = (*_of_usr(), *map(Path, _SYSTEM), *python_folders())
    return any(real.is_relative_to(folder.resolve()) for folder in seen)


def check_kept(path: Path, name: str) -> None:
    """Raise ``UsageError`` for a file that every program in an enclosure can read: what judges must
    not be seen by what is judged."""
    if is_seen(path):
        raise UsageError(
            f"{name}: lies among the programs of this system, where all that runs can read it",
            hint="give a copy elsewhere, such as in a folder of your own",
        )


def python_program() -> str:
    """This Python by a path that leads to it inside, where ``python_folders`` can be read."""
    path = straight(Path(sys.executable))
    is_there = any(path.is_relative_to(folder) for folder in (*_of_usr(), *python_folders()))
    return str(path if is_there else path.resolve())


def straight(path: Path) -> Path:
    """``path`` as it is, or, where it goes by way of ``..`` or from the working folder, by way of
    no folder that it need not pass: inside there may be no such folder."""
    if path.is_absolute() and ".." not in path.parts:
        return path
    return path.parent.resolve() / path.name


def _as_root() -> tuple[str, ...]:
    return (
        *("--clearenv", "--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"),
        *("--cap-add", "CAP_SETPCAP"),
    )


def _as_user() -> tuple[str, ...]:
    user = str(NOBODY)
    return ("--clearenv", "--unshare-user", "--uid", user, "--gid", user, "--cap-drop", "ALL")


def _own_uid() -> int:
    """A user id that no other call has now, within what this system can name."""
    if _mapped_uids() <= FIRST_UID:
        return NOBODY
    return FIRST_UID + int.from_bytes(os.urandom(3), "big")


@cache
def _mapped_uids() -> int:
    try:
        words = Path("/proc/self/uid_map").read_text().split()
    except OSError:
        return 0
    return int(words[2]) if len(words) == 3 else 0


@cache
def _of_usr() -> tuple[Path, ...]:
    """What every enclosure has of /usr."""
    found = (Path(prefix) / name for prefix in ("/usr", "/usr/local") for name in _PARTS)
    return tuple(path for path in found if path.exists())


def _is_of_system(path: Path) -> bool:
    return any(path.is_relative_to(folder) for folder in _of_usr())


def _system() -> Iterator[str]:
    for folder in ("/usr", "/usr/local"):
        yield from ("--perms", "0755", "--dir", folder)
    for path in _of_usr():
        yield from ("--ro-bind", str(path), str(path))
    for name in _SYSTEM:
        path = Path(name)
        if path.is_symlink():
            yield from ("--symlink", os.readlink(path), name)
        elif path.is_dir():
            yield from ("--ro-bind", name, name)
    yield from ("--perms", "0755", "--dir", "/etc")
    for name in _SETTINGS:
        yield from ("--ro-bind-try", name, name)


def _private(folder: str, size_bytes: int) -> tuple[str, ...]:
    return ("--perms", "1777", "--size", str(size_bytes), "--tmpfs", folder)


def _shown(readable: Sequence[Path], hidden: Sequence[Path]) -> Iterator[str]:
    """The mounts of ``readable``; folders above them are made so that the own user may pass."""
    made: set[Path] = set()
    for path in sorted(set(readable)):
        for above in reversed(path.parents[:-1]):
            covered = any(above.is_relative_to(other) for other in readable if other != path)
            if above not in made and not covered and not _is_of_system(above):
                made.add(above)
                if str(above) not in ("/tmp", "/dev", "/proc", "/usr", "/usr/local"):
                    yield from ("--perms", "0755", "--dir", str(above))
        yield from ("--ro-bind", str(path), str(path))
    for path in sorted({item.resolve() for item in hidden}):
        if not any(path.is_relative_to(shown) for shown in (*readable, *_of_usr())):
            continue
        if path.is_dir():
            yield from ("--tmpfs", str(path), "--remount-ro", str(path))
        elif path.is_file():
            yield from ("--ro-bind", "/dev/null", str(path))
