"""Records of exchange with remotes."""

from __future__ import annotations

from typing import ClassVar, Literal

from kvg.digest import Digest
from kvg.flow.records.record import Record
from kvg.frozen import frozen

Direction = Literal["push", "fetch", "pull", "clone", "bundle"]
State = Literal["new", "moved", "unchanged", "deleted", "gone", "attested"]
"""``deleted`` was taken off the remote now; ``gone`` was, by somebody, since it was last seen."""


@frozen
class RemoteEntry(Record):
    """A remote as it is configured; ``url`` without credentials. ``changed``: set or removed.

    ``filter``: only refs that match it are fetched where none is named.
    """

    type: ClassVar[str] = "remote"
    name: str
    url: str
    codec: int
    changed: str | None = None
    filter: str | None = None


@frozen
class RemoteRefEntry(Record):
    """A ref on a remote; ``local`` is what it is here. ``digest`` is None where it could not be
    proved, and ``problem`` says why; ``code`` is that of the error taxonomy."""

    type: ClassVar[str] = "remote-ref"
    ref: str
    digest: Digest | None
    local: Digest | None
    problem: str | None
    hint: str | None = None
    code: int = 0

    @property
    def exit_code(self) -> int:
        return self.code


@frozen
class RemoteCollected(Record):
    """What was removed from a remote, or in a dry run would be; ``kept`` objects are needed.

    ``partial`` files were half written by pushes that were killed.
    """

    type: ClassVar[str] = "remote-collected"
    remote: str
    objects: int
    bytes: int
    kept: int
    dry_run: bool
    partial: int = 0


@frozen
class OfferedKey(Record):
    """A public key that a remote offers: worth nothing until someone trusts it.

    ``publisher``: it vouches for a log there. ``trusted``: None where no store was asked.
    """

    type: ClassVar[str] = "offered-key"
    keyid: str
    public: str
    trusted: bool | None
    publisher: bool


@frozen
class LockEntry(Record):
    """A line of a lock file, ``previous``: what it said before. Without a ``digest`` it went."""

    type: ClassVar[str] = "lock"
    ref: str
    digest: Digest | None
    previous: Digest | None
    path: str


@frozen
class BundleEntry(Record):
    """A ref in a bundle, as the bundle says; ``pages`` are those that it holds."""

    type: ClassVar[str] = "bundle-ref"
    ref: str
    digest: Digest
    tokens: int
    pages: int


@frozen
class BundleSummary(Record):
    """A bundle that was created or looked through; ``bytes`` is the size of its file.

    ``refused``: something was told of before it. Then ``refs`` are those that hold all the same.
    ``dry_run``: it would be created; ``bytes`` are 0 where pages have to be brought first.
    """

    type: ClassVar[str] = "bundle"
    path: str
    refs: int
    objects: int
    bytes: int
    state: Literal["created", "verified", "refused"]
    dry_run: bool = False


@frozen
class TransferRef(Record):
    """What became of one ref."""

    type: ClassVar[str] = "transfer-ref"
    ref: str
    digest: Digest | None
    previous: Digest | None
    state: State
    signers: tuple[str, ...] = ()


@frozen
class Transfer(Record):
    """What moved between a store and a remote.

    ``objects_sent`` moved now; ``objects_skipped`` were there already; ``bytes`` are those of the
    stored forms that moved; ``resumed`` objects were gone on with after an earlier try;
    ``problems`` were told of before it; every byte of ``read_back`` objects was read back there.
    """

    type: ClassVar[str] = "transfer"
    direction: Direction
    remote: str
    refs: tuple[TransferRef, ...]
    objects_sent: int
    objects_skipped: int
    bytes: int
    resumed: int
    seconds: float
    dry_run: bool
    problems: int = 0
    read_back: int = 0


@frozen
class ForgottenThere(Record):
    """An artifact that was removed from a remote, or in a dry run would be.

    ``refs`` were taken off; ``objects`` of ``bytes`` removed; ``remaining`` objects are needed by
    other refs there. What could not be removed is told in findings before it.
    """

    type: ClassVar[str] = "remote-forgotten"
    remote: str
    digest: Digest
    refs: tuple[str, ...]
    objects: int
    bytes: int
    remaining: int
    dry_run: bool
