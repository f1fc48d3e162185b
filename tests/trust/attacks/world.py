"""What is attacked, and the table that the rows stand in."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvg import canon, codec
from kvg.digest import Digest
from kvg.errors import KvgError
from kvg.signing.keys import PrivateKey
from kvg.store import Store
from kvg.trust import (
    TrustFile,
    sign_trust,
)
from kvg.verify import verify_artifact
from tests import artifacts as a

ALICE, BOB, MALLORY = (a.key_of(name) for name in ("alice", "bob", "mallory"))


@dataclass(frozen=True)
class World:
    """A store with two good artifacts, ``demo`` and ``other``, signed by Alice."""

    folder: Path
    store: Store
    made: a.Made
    other: a.Made

    def again(self) -> Store:
        """The store as the next process opens it."""
        return Store.open(self.store.root, keyring=a.make_keyring(self.folder))

    def graft(self, digest: Digest | None = None) -> None:
        """Read as a graft does: verify, then every page, each checked as it is loaded."""
        store = self.again()
        verified = verify_artifact(store, digest or store.resolve("demo").digest, ref="demo")
        for page in verified.manifest.pages:
            verified.read_page(page)

    def overwrite(self, path: Path, data: bytes) -> None:
        path.unlink(missing_ok=True)
        path.write_bytes(data)

    def put_under(self, digest: Digest, raw: bytes) -> None:
        """A well-formed object file that claims to be ``digest`` and holds ``raw``."""
        stored = codec.encode(raw, digest=digest, codec=0)
        self.overwrite(self.path(digest), b"".join(map(bytes, stored.parts())))

    def path(self, digest: Digest) -> Path:
        return self.store.objects.stored_path(digest)

    def log(self, name: str) -> Path:
        return self.store.root / "log" / name

    def trusting(self, change: Callable[[TrustFile], TrustFile], *keys: PrivateKey) -> None:
        """Try to make ``change`` to the trust file, signed by ``keys``."""
        self.store.set_trust(sign_trust(change(self.store.trust), keys))

    def record(self, subject: Digest, *envelopes: bytes) -> None:
        """Log envelopes that somebody made, as a writer of the store can."""
        with self.store.pending() as pending:
            digests = [pending.put(envelope).digest for envelope in envelopes]
            self.store.record(subject, digests, now=a.NOW)

    def unsigned(self) -> a.Made:
        return a.deposit(self.store, None, ref="demo", ids=range(80, 99))


Attack = Callable[[World], object]
ROWS: list[tuple[str, type[KvgError], Attack]] = []


def refused(error: type[KvgError]) -> Callable[[Attack], Attack]:
    """Add a row to the table."""

    def add(attack: Attack) -> Attack:
        ROWS.append((attack.__name__, error, attack))
        return attack

    return add


def edited(data: bytes, *path: str | int, value: object) -> bytes:
    """Canonical bytes of ``data`` with one field changed."""
    root: Any = json.loads(data)
    node = root
    for step in path[:-1]:
        node = node[step]
    node[path[-1]] = value
    return canon.encode(root)


OTHER = "sha256:" + "7" * 64
"""A digest of nothing that is there."""
