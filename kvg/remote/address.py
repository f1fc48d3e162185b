"""Addresses of remotes: which kind an address means."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from kvg.errors import Corrupt, UsageError

if TYPE_CHECKING:
    from kvg.remote.access import Access
    from kvg.remote.directory import DirectoryFiles
    from kvg.remote.files import Files
    from kvg.remote.remote import Remote

REGISTRIES: Final = ("oci", "oci+http")
KINDS: Final = ("ssh", "s3", *REGISTRIES, "https", "http", "file")
STORE_FOLDER: Final = ".kvg"


def split_scheme(url: str) -> tuple[str, str]:
    """The scheme of ``url`` (empty for a path) and what follows it."""
    scheme, mark, rest = url.partition("://")
    return (scheme.lower(), rest) if mark else ("", url)


def is_registry(url: str) -> bool:
    """Whether ``url`` is that of a container registry, which holds artifacts as wholes."""
    return split_scheme(url)[0] in REGISTRIES


def check_address(url: str) -> None:
    """Raise ``UsageError`` unless ``url`` is of a kind that ``open_remote`` knows."""
    scheme, rest = split_scheme(url)
    if not rest.strip("/") and not (scheme == "" and rest):
        raise UsageError(f"{url!r}: not an address", hint="a folder, or https://HOST/PATH")
    if not url.isprintable():
        raise UsageError(f"{url!r}: not an address")
    if scheme and scheme not in KINDS:
        raise UsageError(
            f"{shown(url)}: {scheme} is not a kind of remote",
            hint=f"a folder, or one of {', '.join(f'{kind}://' for kind in KINDS)}",
        )


def shown(url: str) -> str:
    """``url`` without a user's name and password."""
    scheme, mark, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{mark}{host.rpartition('@')[2]}{slash}{path}" if mark else url


def open_remote(url: str, *, cwd: Path, access: Access | None = None) -> Remote:
    """The remote at ``url``: a path (from ``cwd``), or an address of one of ``KINDS``.

    ``access`` is what the user's surroundings say of logins. Nothing is looked at yet. Raises
    ``UsageError``, and ``Incompatible`` where an extra of the distribution is needed.
    """
    from kvg.remote.access import Access
    from kvg.remote.file_remote import FileRemote

    check_address(url)
    if is_registry(url):
        from kvg.remote.registry import RegistryRemote

        return RegistryRemote(url, access or Access())
    return FileRemote(_files(url, cwd, access or Access()))


def _files(url: str, cwd: Path, access: Access) -> Files:
    scheme, rest = split_scheme(url)
    if scheme in ("http", "https"):
        from kvg.remote.http import HttpFiles

        return HttpFiles(url)
    if scheme == "ssh":
        from kvg.remote.ssh import SshFiles

        return SshFiles(url, access)
    if scheme == "s3":
        from kvg.remote.s3 import S3Files

        return S3Files(url, access)
    return open_folder(Path("/" + rest.lstrip("/")) if scheme else cwd / rest)


def open_folder(path: Path) -> DirectoryFiles:
    """The files of a remote in the folder ``path``, or of the store in it."""
    from kvg.remote.directory import DirectoryFiles

    return DirectoryFiles(_folder(path))


def _folder(path: Path) -> Path:
    """A folder that holds a store is served by the store's own folder."""
    inner = path / STORE_FOLDER
    try:
        return inner if not (path / "format").exists() and (inner / "format").exists() else path
    except OSError as error:
        raise Corrupt(f"{path}: {error.strerror}") from None
