"""Addresses of remotes: which kind an address means."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from kvg.errors import RemoteFailed, UsageError
from kvg.frozen import frozen

if TYPE_CHECKING:
    from kvg.remote.access import Access
    from kvg.remote.directory import DirectoryFiles, Keeper
    from kvg.remote.files import Files
    from kvg.remote.remote import Remote
    from kvg.report import Report

REGISTRIES: Final = ("oci", "oci+http")
WEB: Final = ("https", "http")
KINDS: Final = ("ssh", "s3", *REGISTRIES, *WEB, "file")
FORMS: Final = {
    "": "a folder, or https://HOST/PATH",
    "ssh": "ssh://USER@HOST/PATH",
    "s3": "s3://BUCKET/PREFIX, a bucket's name in lower case",
    "oci": "oci://HOST/REPOSITORY",
    "oci+http": "oci+http://HOST/REPOSITORY",
    "https": "https://HOST/PATH, a path with %40 for @ and in ASCII",
    "http": "http://HOST/PATH, a path with %40 for @ and in ASCII",
    "file": "file:///PATH, with %3F for ? and %23 for #",
}
"""How an address of each kind is written."""

LOCAL: Final = ("localhost", "127.0.0.1", "::1")
"""This machine."""

STORE_FOLDER: Final = ".kvg"
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_LABEL: Final = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*\.?")
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]")
_PART: Final = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY: Final = re.compile(rf"{_PART}(?:/{_PART})*")
_PORT: Final = re.compile(r"[0-9]{1,5}")


@frozen
class Address:
    """An address, taken apart. ``kind`` is empty for a folder, of which there is only a ``path``.

    ``host`` is in lower case, an IPv6 address without its brackets, for S3 the bucket. ``user`` and
    ``password`` are as they were meant, so is the ``path`` of ``file`` and ``ssh``; that of the
    other kinds is as it was written.
    """

    kind: str
    path: str
    host: str = ""
    port: int | None = None
    user: str | None = None
    password: str | None = None

    @property
    def server(self) -> str:
        """Host and port, as they are written."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"


def split_scheme(url: str) -> tuple[str, str]:
    """The scheme of ``url`` (empty for a path) and what follows it."""
    found = _SCHEME.fullmatch(url)
    return (found[1].lower(), found[2]) if found else ("", url)


def is_registry(url: str) -> bool:
    """Whether ``url`` is that of a container registry, which holds artifacts as wholes."""
    return split_scheme(url)[0] in REGISTRIES


def check_address(url: str) -> None:
    """Raise ``UsageError`` unless ``open_remote`` can take ``url`` for an address of some kind."""
    parse_address(url)


def parse_address(url: str) -> Address:
    """What the address ``url`` says; nothing is looked at. Raises ``UsageError``.

    No error shows a name and password that are in it, wherever in it they stand.
    """
    kind, rest = split_scheme(url)
    if not rest or not url.isprintable():
        raise _refused(url, "not an address")
    if not kind:
        return _folder_address(url)
    if kind not in KINDS:
        kinds = ", ".join(f"{name}://" for name in KINDS)
        raise _refused(url, f"{kind} is not a kind of remote", f"a folder, or one of {kinds}")
    if "?" in rest or "#" in rest:
        raise _refused(url, "an address ends before any ? or #", FORMS[kind])
    authority, slash, path = rest.partition("/")
    if kind == "file":
        return _file_address(url, authority, slash + path)
    login, _, server = authority.rpartition("@")
    if kind != "s3" and "@" in path:
        raise _refused(url, "a name and password end before the first /", FORMS[kind])
    if kind == "s3":
        return _bucket_address(url, authority, path)
    host, port = _server(url, kind, server)
    user, password = _login(url, kind, host, login if "@" in authority else None)
    return Address(kind, _path(url, kind, slash + path), host, port, user, password)


def _folder_address(url: str) -> Address:
    """A colon before the first slash is none of a folder's name, as for git and scp."""
    first = url.partition("/")[0]
    if ":" not in first:
        return Address("", url)
    word = first.partition(":")[0].lower()
    hint = FORMS[word] if word in KINDS else f"{FORMS['ssh']}; a folder of this name is ./NAME"
    raise _refused(url, "not an address", hint)


def _file_address(url: str, host: str, path: str) -> Address:
    meant = unquote(path)
    if host.lower() not in ("", "localhost"):
        raise _refused(url, "a folder of another host", FORMS["file"])
    if not meant.strip("/") or not meant.isprintable():
        raise _refused(url, "names no folder", FORMS["file"])
    return Address("file", meant)


def _bucket_address(url: str, bucket: str, prefix: str) -> Address:
    if not _BUCKET.fullmatch(bucket):
        raise _refused(url, "no name of a bucket", FORMS["s3"])
    if prefix.strip("/") and not _is_plain(prefix.strip("/")):
        raise _refused(url, "no prefix of names", FORMS["s3"])
    return Address("s3", prefix.strip("/"), bucket)


def _server(url: str, kind: str, text: str) -> tuple[str, int | None]:
    """The host and the port of an address."""
    if text.startswith("["):
        host, mark, rest = text[1:].partition("]")
        is_good = bool(mark) and _is_ipv6(host) and (not rest or rest.startswith(":"))
        digits = rest[1:]
    else:
        host, _, digits = text.lower().partition(":")
        is_good = is_host(host)
    if not is_good or (digits and not (_PORT.fullmatch(digits) and 0 < int(digits) < 1 << 16)):
        raise _refused(url, "no host, or no port", FORMS[kind])
    return host, int(digits) if digits else None


def is_host(name: str) -> bool:
    """Whether ``name`` may be that of a host: ASCII, as it is looked up."""
    return len(name) < 254 and (_HOST.fullmatch(name.lower()) is not None or _is_ipv6(name))


def _is_ipv6(text: str) -> bool:
    if ":" not in text:
        return False
    from ipaddress import IPv6Address

    try:
        IPv6Address(text)
    except ValueError:
        return False
    return text.isascii()


def _login(url: str, kind: str, host: str, login: str | None) -> tuple[str | None, str | None]:
    """The name and password in an address, where this kind takes them."""
    if login is None:
        return None, None
    name, mark, secret = login.partition(":")
    user, password = unquote(name), unquote(secret) if mark else None
    if kind == "ssh" and password is not None:
        raise _refused(url, "a password can't be given", "ssh-copy-id, or an agent")
    if kind in REGISTRIES:
        raise _refused(url, "a login can't be given", "docker login HOST")
    if kind == "http" and host not in LOCAL:
        raise _refused(url, "a login would go there for all to read", "https://NAME:PASSWORD@HOST")
    if kind == "ssh" and (not user or user.startswith("-") or not user.isprintable()):
        raise _refused(url, "no name of a user", FORMS[kind])
    return user, password


def _path(url: str, kind: str, path: str) -> str:
    """The path of an address with a host, checked."""
    if kind == "ssh":
        meant = unquote(path)
        if not meant.strip("/") or not meant.isprintable():
            raise _refused(url, "no path there", FORMS[kind])
        return meant
    inner = path.strip("/")
    if kind in REGISTRIES:
        if not _REPOSITORY.fullmatch(inner):
            raise _refused(url, "no name of a repository", FORMS[kind])
        return inner
    is_good = path.isascii() and not set(path) & set(' \\"<>^`{|}')
    if not is_good or (inner and not _is_plain(unquote(inner))):
        raise _refused(url, "no path of an address", FORMS[kind])
    return path.rstrip("/")


def _is_plain(path: str) -> bool:
    """Whether no part of ``path`` leads elsewhere or is empty."""
    return all(part not in ("", ".", "..") for part in path.split("/"))


def _refused(url: str, why: str, hint: str = FORMS[""]) -> UsageError:
    return UsageError(f"{shown(url) or repr(url)}: {why}", hint=hint)


def shown(url: str) -> str:
    """``url`` without a name and password; of what is no address, nothing that may be these."""
    kind, rest = split_scheme(url)
    if not kind:
        is_folder = ":" not in url.partition("/")[0]
        return shown_text(url if is_folder else url.rpartition("@")[2])
    start = url[: len(kind)] + "://"
    plain = re.split(r"[?#]", rest, maxsplit=1)[0]
    if "@" in rest[len(plain) :]:
        return f"{start}…"
    authority, slash, path = plain.partition("/")
    may_hold_it = kind == "file" or (kind == "s3" and _BUCKET.fullmatch(authority))
    if not may_hold_it and "@" in path:
        return shown_text(f"{start}{plain.rpartition('@')[2]}")
    more = "…" if plain != rest else ""
    return shown_text(f"{start}{authority.rpartition('@')[2]}{slash}{path}{more}")


def shown_text(text: str) -> str:
    """``text`` with a mark in place of what can't be printed."""
    return "".join(mark if mark.isprintable() else "\ufffd" for mark in text)


def open_remote(
    url: str,
    *,
    cwd: Path,
    access: Access | None = None,
    keeper: Keeper | None = None,
    lock_wait: float | None = None,
    report: Report | None = None,
) -> Remote:
    """The remote at ``url``: a path (from ``cwd``), or an address of one of ``KINDS``.

    ``access`` is what the user's surroundings say of logins, ``keeper`` counts what is written into
    a folder; ``lock_wait``: the seconds to wait for that one's lock. Nothing is looked at yet.
    Raises ``UsageError``, and ``Incompatible`` where an extra of the distribution is needed.
    """
    from kvg.remote.access import Access
    from kvg.remote.file_remote import FileRemote

    address = parse_address(url)
    if address.kind in REGISTRIES:
        from kvg.remote.registry import RegistryRemote

        return RegistryRemote(url, access or Access())
    if address.kind in ("", "file"):
        folder = cwd / address.path
        return FileRemote(open_folder(folder, keeper=keeper, lock_wait=lock_wait, report=report))
    return FileRemote(_files(url, address, access or Access()))


def _files(url: str, address: Address, access: Access) -> Files:
    if address.kind in WEB:
        from kvg.remote.http import HttpFiles

        return HttpFiles(url, access)
    if address.kind == "ssh":
        from kvg.remote.ssh import SshFiles

        return SshFiles(url, access)
    from kvg.remote.s3 import S3Files

    return S3Files(url, access)


def open_folder(
    path: Path,
    *,
    keeper: Keeper | None = None,
    lock_wait: float | None = None,
    report: Report | None = None,
) -> DirectoryFiles:
    """The files of a remote in the folder ``path``, or of the store in it. See ``open_remote``."""
    from kvg.remote.directory import DirectoryFiles

    return DirectoryFiles(_folder(path), keeper=keeper, lock_wait=lock_wait, report=report)


def _folder(path: Path) -> Path:
    """A folder that holds a store is served by the store's own folder."""
    inner = path / STORE_FOLDER
    try:
        return inner if not (path / "format").exists() and (inner / "format").exists() else path
    except OSError as error:
        words = (error.strerror or str(error)).lower()
        raise RemoteFailed(
            f"{path}: {words}", hint="check who may read it, and the mount"
        ) from None
