"""The user's own private keys: one folder, one file per key, never under a store.

``NAME.pem`` holds the private key (PKCS#8, 0600 from its creation), ``NAME.pub`` the public one as
an OpenSSH line; ``logs/ORIGIN.pem`` the key of a store's log that was made here, and
``logs/ORIGIN.seen`` the newest checkpoint of a log that this user has seen, wherever it was made;
``logs/ORIGIN.peers/`` what the store of that log last saw of the logs of others, and
``logs/ORIGIN.cosigned/`` what witnesses cosigned of those and of its own.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from typing import TYPE_CHECKING

from kvg import durable
from kvg.errors import Conflict, Corrupt, KvgError, NotFound, Untrusted, UsageError
from kvg.frozen import frozen
from kvg.signing import keys as signing

if TYPE_CHECKING:
    from pathlib import Path

    from kvg.signing.keys import Passphrase, PrivateKey, PublicKey

LOGS = "logs"
SEEN = ".seen"
PEERS = ".peers"
COSIGNED = ".cosigned"
NEXT = ".next.pem"
CACHE_SECRET = "cache.secret"
SECRET_BYTES = 32
MAX_FILE_BYTES = 1 << 16
MIN_KEYID_DIGITS = 6
_FIRST = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
_LATER = _FIRST | frozenset(".@")
MAX_NAME = 100
_KEYID = r"[0-9a-f]{6,64}"


@frozen
class KeyInfo:
    """What is known of a private key without opening it."""

    name: str
    keyid: str
    public: PublicKey
    encrypted: bool
    path: Path


class Keyring:
    """The private keys in ``folder``. Nothing is made until a key is."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def new(self, name: str, passphrase: bytes | None = None) -> PrivateKey:
        """Make and keep a key called ``name``.

        Raises ``Conflict`` when there is one, ``UsageError`` on a bad name, ``Untrusted`` when the
        folder lies under a store or others can read it.
        """
        return self._add(name, signing.generate(), passphrase)

    def import_(
        self, name: str, data: bytes, passphrase: Passphrase | None = None, *, what: str = ""
    ) -> PrivateKey:
        """Keep the private key in ``data`` (PKCS#8 or OpenSSH PEM) as ``name``.

        One that is encrypted stays so, under the same passphrase. ``what`` is what errors call the
        data, the name if left out. Raises as ``new`` and as ``kvg.signing.keys.parse_private``.
        """
        given: list[bytes] = []

        def ask() -> bytes:
            given.append(passphrase() if passphrase else b"")
            return given[-1]

        key = signing.parse_private(data, what=what or name, passphrase=ask if passphrase else None)
        return self._add(name, key, given[-1] if given else None)

    def list(self) -> tuple[KeyInfo, ...]:
        """Every key, by name; the log keys are not among them."""
        names = durable.names_in(self.folder)
        stems = [name.removesuffix(".pem") for name in names if name.endswith(".pem")]
        return tuple(self.info(stem) for stem in stems if is_key_name(stem))

    def info(self, name: str) -> KeyInfo:
        """What is known of the key called ``name``. Raises ``NotFound``."""
        path = self._path(name)
        data = read_private(path, missing=f"{name}: no such key in {self.folder}")
        encrypted = signing.is_encrypted(data, what=str(path))
        public = self._public(name, None if encrypted else data)
        return KeyInfo(name, public.keyid, public, encrypted, path)

    def find(self, text: str) -> KeyInfo:
        """The key meant by a name or by the first 6 or more digits of its id.

        Raises ``NotFound``, and ``UsageError`` when several are meant.
        """
        known = self.list()
        by_name = [info for info in known if info.name == text]
        if by_name:
            return by_name[0]
        found = [k for k in known if re.fullmatch(_KEYID, text) and k.keyid.startswith(text)]
        if not found:
            raise NotFound(f"{text}: no such key in {self.folder}", hint="kvg key list")
        if len(found) > 1:
            raise UsageError(f"{text}: stands for {len(found)} keys", hint="kvg key list")
        return found[0]

    def load(self, text: str, passphrase: Passphrase | None = None) -> PrivateKey:
        """Open the key meant by ``text``; ``passphrase`` is asked only for an encrypted one."""
        return load_file(self.find(text).path, passphrase)

    def new_log_key(self, origin: str) -> PrivateKey:
        """Make and keep the key of the log ``origin``; the one that is there when there is one."""
        self._check_folder()
        path = self.log_path(origin)
        if path.exists():
            return self.log_key(origin)
        key = signing.generate()
        self._make_folder(path.parent)
        self._write(path.with_suffix(".pub"), _public_line(key.public, origin), 0o644)
        self._write(path, signing.encode_private(key, None), 0o600)
        return key

    def next_log_key(self, origin: str) -> PrivateKey:
        """Make and keep the key that is to replace that of the log ``origin``; once is enough."""
        self.log_key(origin)
        path = self.log_path(origin).with_suffix(NEXT)
        if path.exists():
            return load_file(path, None)
        key = signing.generate()
        self._write(path.with_suffix(".pub"), _public_line(key.public, origin), 0o644)
        self._write(path, signing.encode_private(key, None), 0o600)
        return key

    def take_next_log_key(self, origin: str, public: PublicKey) -> None:
        """Put the next key of the log ``origin`` in the place of its key, if it is ``public``."""
        path = self.log_path(origin)
        following = path.with_suffix(NEXT)
        if not following.exists() or load_file(following, None).public != public:
            return
        line = _public_line(public, origin)
        durable.replace(path.with_suffix(".pub"), [line], staging=path.parent, mode=0o644)
        durable.move(following, path)
        durable.remove(following.with_suffix(".pub"))

    def log_key(self, origin: str, public: PublicKey | None = None) -> PrivateKey:
        """The key of the log ``origin``; the next one when that is the one with ``public``.

        Raises ``NotFound`` when it was not made here.
        """
        path = self.log_path(origin)
        following = path.with_suffix(NEXT)
        if public is not None and following.exists():
            key = load_file(following, None)
            if key.public == public:
                return key
        if not path.exists():
            raise NotFound(
                f"no key for the log {origin} in {path.parent}",
                hint="only who made the store can add to it; kvg clone makes one of your own",
            )
        return load_file(path, None)

    def log_public(self, origin: str) -> PublicKey | None:
        """The public key of the log ``origin`` when it was made here; costs no cryptography."""
        return _read_public(self.log_path(origin).with_suffix(".pub"))

    def log_publics(self, origin: str) -> tuple[PublicKey, ...]:
        """The public keys by which the log ``origin``, made here, may be known: now and next."""
        path = self.log_path(origin)
        following = _read_public(path.with_suffix(NEXT).with_suffix(".pub"))  # it becomes the other
        known = _read_public(path.with_suffix(".pub"))
        if known is None:
            return ()
        return (known,) if following is None else (known, following)

    def seen_checkpoint(self, origin: str) -> bytes | None:
        """The newest checkpoint of the log ``origin`` that this user has seen; None if none."""
        return _read_seen(self.seen_path(origin))

    def keep_checkpoint(self, origin: str, note: bytes) -> bool:
        """Remember that the log ``origin`` had got as far as ``note``; False where it can't be."""
        return self._keep_seen(self.seen_path(origin), note)

    def seen_path(self, origin: str) -> Path:
        """Where the newest checkpoint seen of the log ``origin`` is kept."""
        return self.log_path(origin).with_suffix(SEEN)

    def seen_peers(self, own: str) -> tuple[str, ...]:
        """The logs of others that the store of the log ``own`` has seen, ascending."""
        names = durable.names_in(self.log_path(own).with_suffix(PEERS))
        return tuple(name for name in names if is_key_name(name))

    def seen_peer(self, own: str, origin: str) -> bytes | None:
        """What that store last saw of the log ``origin``; None when it never did."""
        return _read_seen(self.peer_path(own, origin))

    def keep_peer(self, own: str, origin: str, data: bytes) -> bool:
        """Remember what that store saw of the log ``origin``; False where it can't be."""
        return self._keep_seen(self.peer_path(own, origin), data)

    def peer_path(self, own: str, origin: str) -> Path:
        """Where it is kept what the store of the log ``own`` saw of the log ``origin``."""
        return self._path_beside(own, PEERS, origin)

    def seen_cosigned(self, own: str, origin: str) -> bytes | None:
        """The newest checkpoint of the log ``origin`` that the store of the log ``own``, it or
        another, had with cosignatures of witnesses; None when it never did."""
        return _read_seen(self.cosigned_path(own, origin))

    def keep_cosigned(self, own: str, origin: str, note: bytes) -> bool:
        """Remember the checkpoint ``note`` as ``seen_cosigned``; False where it can't be."""
        return self._keep_seen(self.cosigned_path(own, origin), note)

    def cosigned_path(self, own: str, origin: str) -> Path:
        """Where ``seen_cosigned`` is kept."""
        return self._path_beside(own, COSIGNED, origin)

    def _path_beside(self, own: str, suffix: str, origin: str) -> Path:
        if not is_key_name(origin):
            raise UsageError(f"{origin[:80]!r}: not an origin of a log of this kvg")
        return self.log_path(own).with_suffix(suffix) / origin

    def _keep_seen(self, path: Path, data: bytes) -> bool:
        try:
            self._check_folder()
            self._make_folder(path.parent)
            durable.replace(path, [data], staging=self.folder / LOGS, mode=0o600)
        except KvgError:
            return False
        return True

    def cache_secret(self) -> bytes | None:
        """32 bytes that only this user has, to know caches again that lie where others write.

        Made at the first call; None where they can't be kept. Raises ``Untrusted`` when others can
        read them.
        """
        path = self.folder / CACHE_SECRET
        if not path.exists():
            try:
                self._check_folder()
                self._make_folder(self.folder)
                self._write(path, os.urandom(SECRET_BYTES), 0o600)
            except KvgError:
                return None
        found = read_private(path, missing=f"{path}: no such file")
        return found if len(found) == SECRET_BYTES else None

    def _add(self, name: str, key: PrivateKey, passphrase: bytes | None) -> PrivateKey:
        path = self._path(name)
        self._check_folder()
        if path.exists():
            raise Conflict(f"{name}: there is a key of this name", hint="kvg key list")
        self._make_folder(self.folder)
        self._write(path.with_suffix(".pub"), _public_line(key.public, name), 0o644)
        self._write(path, signing.encode_private(key, passphrase), 0o600)
        return key

    def _write(self, path: Path, data: bytes, mode: int) -> None:
        durable.write_new(path, [data], staging=path.parent, mode=mode)

    def _make_folder(self, folder: Path) -> None:
        if folder != self.folder:
            self._make_folder(folder.parent)
        if not folder.is_dir():
            durable.make_dir(folder.parent)
            durable.make_dir(folder, mode=0o700)

    def _check_folder(self) -> None:
        check_outside_stores(self.folder)

    def _path(self, name: str) -> Path:
        if not is_key_name(name):
            raise UsageError(
                f"{name[:80]!r}: not a name of a key", hint="letters, digits and . _ @ -"
            )
        return self.folder / f"{name}.pem"

    def log_path(self, origin: str) -> Path:
        """Where the private key of the log ``origin`` lies, if it was made here."""
        if not is_key_name(origin):
            raise UsageError(f"{origin[:80]!r}: not an origin of a log of this kvg")
        return self.folder / LOGS / f"{origin}.pem"

    def _public(self, name: str, data: bytes | None) -> PublicKey:
        """From the private key where it can be read, else from the file beside it."""
        path = self._path(name)
        if data is not None:
            return signing.parse_private(data, what=str(path), passphrase=None).public
        beside = path.with_suffix(".pub")
        return signing.parse_public(_read(beside).decode("utf-8", "replace"), what=str(beside))


def _read_seen(path: Path) -> bytes | None:
    try:
        with durable.translated(path), open(path, "rb", opener=durable.plain) as file:
            return file.read(MAX_FILE_BYTES + 1)
    except NotFound:
        return None


def _read_public(path: Path) -> PublicKey | None:
    try:
        return signing.parse_public(_read(path).decode("utf-8", "replace"), what=str(path))
    except NotFound:
        return None


def is_key_name(name: str) -> bool:
    """Whether ``name`` can name a key's file."""
    return 0 < len(name) <= MAX_NAME and name[0] in _FIRST and _LATER.issuperset(name)


def load_file(path: Path, passphrase: Passphrase | None) -> PrivateKey:
    """Open the private key in the file ``path``, which nobody else may read or write.

    Raises ``NotFound``, ``Untrusted`` on loose permissions, under a store, or without the right
    passphrase; ``Corrupt`` and ``Incompatible`` as ``kvg.signing.keys.parse_private``.
    """
    check_outside_stores(path.parent)
    data = read_private(path, missing=f"{path}: no such key")
    return signing.parse_private(data, what=str(path), passphrase=passphrase)


def check_outside_stores(folder: Path) -> None:
    """Raise ``Untrusted`` when ``folder`` lies under a store: what is there gets copied."""
    store = durable.store_above(folder)
    if store is not None:
        raise Untrusted(
            f"{folder}: private keys never lie under a store ({store})",
            hint="keep keys elsewhere, e.g. in ~/.local/share/kvg/keys",
        )


def _public_line(public: PublicKey, name: str) -> bytes:
    return (signing.encode_public(public, "openssh", name) + "\n").encode()


def read_private(path: Path, *, missing: str, hint: str | None = "kvg key list") -> bytes:
    """The bytes of a private key's file, which nobody else may read or write.

    Raises ``NotFound`` saying ``missing``, ``Untrusted`` on loose permissions and what is no file.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe never answers
    except FileNotFoundError:
        raise NotFound(missing, hint=hint) from None
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise _not_a_key(path) from None
        durable.raise_translated(error, path)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise _not_a_key(path)
        if stat.S_IMODE(found.st_mode) & 0o077:
            raise Untrusted(
                f"{path}: others can read this private key (mode {found.st_mode & 0o777:04o})",
                hint=f"chmod 600 {path}",
            )
        if found.st_uid not in (os.geteuid(), 0):
            raise Untrusted(f"{path}: belongs to another user", hint=f"chown {os.geteuid()} {path}")
        return os.read(fd, MAX_FILE_BYTES)
    finally:
        os.close(fd)


def _not_a_key(path: Path) -> Untrusted:
    return Untrusted(f"{path}: not a plain file", hint="give the file that holds the key")


def _read(path: Path) -> bytes:
    with durable.translated(path), open(path, "rb", opener=durable.plain) as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise Corrupt(f"{path}: too large for a key", hint="put back the file from a copy")
    return data
