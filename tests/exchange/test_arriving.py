"""A page that comes is written as it comes: what is no page, or has no room, leaves nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvg import codec as kvz
from kvg.digest import Digest, blake3_hex, sha256, shake256
from kvg.errors import Corrupt, KvgError, NoSpace, RemoteFailed
from kvg.flow.exchange.arriving import Arrival, Had, Wanted
from kvg.store import Store
from kvg.store.quota import QUOTA_KEY
from tests.exchange.conftest import Person

RAW = shake256(b"a page", 50_000)
DIGEST = sha256(RAW)
START = 264


def stored_as(raw: bytes = RAW, digest: Digest = DIGEST, codec: int = kvz.RAW) -> bytes:
    planes = 2 if codec == kvz.PLANES else 1
    made = kvz.encode(
        raw,
        digest=digest,
        codec=codec,
        planes=planes,
        data_start=START if codec == kvz.RAW else 0,
    )
    return b"".join(made.parts())


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Person.make(tmp_path / "bob").init().store


def arrive(store: Store, stored: bytes, *, piece: int = 1 << 14, size: int = len(RAW)) -> Had:
    wanted = Wanted(DIGEST, "it", size=size, data_start=START, element=2, is_page=True)
    with Arrival(store.quarantine, wanted, join=None) as arrival:
        for start in range(0, len(stored), piece):
            arrival.add(stored[start : start + piece])
        return arrival.end()


def left(store: Store) -> list[Path]:
    return [path for path in store.quarantine.folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("codec", [kvz.RAW, kvz.PLANES])
@pytest.mark.parametrize("piece", [100, 1 << 20])
def test_a_page_is_kept_in_the_form_of_the_store(store: Store, codec: int, piece: int) -> None:
    had = arrive(store, stored_as(codec=codec), piece=piece)
    assert had.blake3 == blake3_hex(RAW)
    assert bytes(had.raw[:START]) == RAW[:START]
    assert store.quarantine.read_stored(DIGEST, what="it") == stored_as()
    assert len(left(store)) == 1


LIES = {
    "bytes": lambda: flipped(stored_as(), 30_000),
    "all bytes": lambda: stored_as(flipped(RAW, 30_000)),
    "padding": lambda: flipped(stored_as(), 1000),
    "more than there is": lambda: stored_as() + b"x",
    "less than there is": lambda: stored_as()[:-1],
    "another object": lambda: stored_as(digest=sha256(b"another")),
}


@pytest.mark.parametrize("lie", sorted(LIES))
def test_a_page_that_is_none_leaves_nothing(store: Store, lie: str) -> None:
    store.config.set(QUOTA_KEY, 1 << 20)
    used = store.quota.recount()
    for _ in range(2):
        with pytest.raises(Corrupt):
            arrive(store, LIES[lie](), piece=7_000)
        assert not left(store)
    assert used == store.quota.used() == _counted(store)


def _counted(store: Store) -> int:
    return int((store.root / "usage").read_bytes()[37:57])


def test_a_page_of_another_size_is_refused_before_it_is_written(store: Store) -> None:
    with pytest.raises(Corrupt, match="50000 bytes, not 50001"):
        arrive(store, stored_as(), size=len(RAW) + 1)
    assert not left(store)


def test_a_page_beyond_the_quota_leaves_nothing(store: Store) -> None:
    store.config.set(QUOTA_KEY, store.quota.used() + 20_000)
    with pytest.raises(NoSpace):
        arrive(store, stored_as())
    assert not left(store)


def test_a_page_that_is_cut_is_counted_as_what_is_left_of_it(store: Store) -> None:
    store.config.set(QUOTA_KEY, 1 << 20)
    store.quota.recount()
    wanted = Wanted(DIGEST, "it", size=len(RAW), data_start=START, element=2, is_page=True)
    error: KvgError = RemoteFailed("cut")
    with pytest.raises(RemoteFailed), Arrival(store.quarantine, wanted, join=None) as arrival:
        arrival.add(stored_as()[:40_000])
        raise error
    assert not left(store)
    assert store.quota.used() == _counted(store)
