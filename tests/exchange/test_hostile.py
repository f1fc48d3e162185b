"""A remote that lies in every way: each lie is refused with its class, and nothing is seen."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kvg import codec as kvz
from kvg.digest import Digest, shake256
from kvg.remote import Pointer, open_remote
from kvg.remote.layout import encode_pointer, object_name
from kvg.verify import check_store
from tests.exchange.conftest import Person

Lie = Callable[["World"], None]


class World:
    """A remote that Alice pushed to twice, and Bob, who saw the first."""

    def __init__(self, alice: Person, bob: Person, share: Path) -> None:
        self.alice, self.bob, self.share = alice, bob, share
        alice.deposit("old", range(60, 90))
        alice.push()
        bob.clone(share, alice)
        self.before = share.parent / "share before"
        shutil.copytree(share, self.before)
        self.digest = alice.deposit("demo")
        alice.push()
        self.origin = alice.store.log.origin
        self.log = share / "logs" / self.origin

    def object(self, digest: Digest) -> Path:
        return self.share / object_name(digest)

    @property
    def page(self) -> Digest:
        return self.alice.store.manifest(self.digest).pages[0].digest

    @property
    def envelope(self) -> Digest:
        return self.alice.store.attestations(self.digest)[0].envelope

    def write(self, path: Path, data: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            path.chmod(0o644)
        path.write_bytes(data)


def another_signature(world: World) -> None:
    """One character of the checkpoint's signature is another: still base64, no signature."""
    path = world.log / "checkpoint"
    data = bytearray(path.read_bytes())
    data[-20] = ord("A") if data[-20] != ord("A") else ord("B")
    path.chmod(0o644)
    path.write_bytes(bytes(data))


def flip(path_of: Callable[[World], Path], at: int = -1) -> Lie:
    def lie(world: World) -> None:
        path = path_of(world)
        data = bytearray(path.read_bytes())
        data[at] ^= 1
        world.write(path, bytes(data))

    return lie


def cut(path_of: Callable[[World], Path], keep: float = 0.5) -> Lie:
    def lie(world: World) -> None:
        path = path_of(world)
        data = path.read_bytes()
        world.write(path, data[: int(len(data) * keep)])

    return lie


def other_object(world: World) -> None:
    other = world.alice.store.manifest(world.digest).pages[1].digest
    world.write(world.object(world.page), world.object(other).read_bytes())


def other_bytes_under_the_right_digest(world: World) -> None:
    raw = shake256(b"poison", 500)
    stored = kvz.encode(raw, digest=world.page, codec=kvz.ZSTD)
    world.write(world.object(world.page), b"".join(stored.parts()))


def huge_size(world: World) -> None:
    data = bytearray(world.object(world.page).read_bytes())
    data[8:16] = (1 << 60).to_bytes(8, "little")
    world.write(world.object(world.page), bytes(data))


def huge_frame_count(world: World) -> None:
    data = bytearray(world.object(world.page).read_bytes())
    data[20:24] = (0xFFFFFFFF).to_bytes(4, "little")
    world.write(world.object(world.page), bytes(data))


def trailing_bytes(world: World) -> None:
    world.write(world.object(world.page), world.object(world.page).read_bytes() + b"x")


def long_garbage(world: World) -> None:
    world.write(world.object(world.page), bytes(5_000_000))


def pointer_moved_back(world: World) -> None:
    newer = world.alice.deposit("demo", range(40))
    old = (world.share / "refs" / "demo").read_bytes()
    world.alice.push()
    assert newer
    world.write(world.share / "refs" / "demo", old)


def pointer_at(index: int) -> Lie:
    def lie(world: World) -> None:
        pointer = encode_pointer(Pointer(world.origin, index))
        world.write(world.share / "refs" / "demo", pointer)

    return lie


def pointer_of_another_ref(world: World) -> None:
    world.write(world.share / "refs" / "demo", (world.share / "refs" / "old").read_bytes())


def rolled_back_log(world: World) -> None:
    for name in ("logs", "refs"):
        shutil.rmtree(world.share / name)
        shutil.copytree(world.before / name, world.share / name)
    world.write(world.share / "refs" / "demo", (world.before / "refs" / "old").read_bytes())
    # Bob has to have seen the newer one for this to be a rollback.


def forked_log(world: World) -> None:
    """Alice's own key tells another story from the start."""
    from kvg.log.entry import RefEntry, encode_entry
    from kvg.log.log import Log

    store = world.alice.store
    key = store.log_key()
    folder = world.share.parent / "fork"
    log = Log.create(folder, origin=world.origin, key=key, staging=world.share.parent)
    log.append(
        [encode_entry(RefEntry(1, "demo", world.digest, None)) for _ in range(store.log.size + 1)],
        key,
    )
    shutil.copy(world.log / "publisher", folder / "publisher")
    shutil.rmtree(world.log)
    shutil.copytree(folder, world.log)
    pointer_at(store.log.size)(world)


def mallory(world: World) -> Person:
    found = Person.make(world.share.parent / "mallory").init().add(world.share)
    return found


def another_publishers_log(world: World) -> None:
    """Mallory publishes under the same name, in a log of her own."""
    other = mallory(world)
    other.deposit("demo", range(41))
    (world.share / "refs" / "demo").unlink()
    other.push()


def another_key_signs_the_log(world: World) -> None:
    """Mallory's log under Alice's origin, vouched for by Mallory."""
    from kvg.flow.exchange.publishers import sign_publisher
    from kvg.log.log import Log

    other = mallory(world)
    folder = world.share.parent / "fake"
    Log.create(folder, origin=world.origin, key=other.key, staging=world.share.parent)
    note = sign_publisher(world.origin, other.key.public, [other.key])
    (folder / "publisher").write_bytes(note)
    shutil.rmtree(world.log)
    shutil.copytree(folder, world.log)


def publisher_gone(world: World) -> None:
    (world.log / "publisher").unlink()


def checkpoint_gone(world: World) -> None:
    (world.log / "checkpoint").unlink()


def unsigned_artifact(world: World) -> None:
    """Alice's log names an artifact that Mallory, whom nobody trusts, signed."""
    from tests.artifacts import deposit, key_of

    deposit(world.alice.store, key_of("mallory"), ref="demo", ids=range(42))
    store = world.alice.store
    trust = store.trust.with_key(key_of("mallory").public, ("depositor",))
    from kvg.trust.policy import sign_trust

    store.set_trust(sign_trust(trust, [world.alice.key]))
    world.alice.push()


def tiles_gone(world: World) -> None:
    shutil.rmtree(world.log / "tile")


def format_gone(world: World) -> None:
    world.write(world.share / "format", b"kvg-remote 9\n")


LIES: dict[str, tuple[Lie, int]] = {
    "a page with a flipped bit": (flip(lambda w: w.object(w.page)), 5),
    "a page with a flipped bit in its header": (flip(lambda w: w.object(w.page), 70), 5),
    "a page cut short": (cut(lambda w: w.object(w.page)), 5),
    "a page cut in its header": (cut(lambda w: w.object(w.page), 0.02), 5),
    "an empty page": (cut(lambda w: w.object(w.page), 0.0), 5),
    "another page": (other_object, 5),
    "other bytes under the right digest": (other_bytes_under_the_right_digest, 5),
    "a huge size": (huge_size, 5),
    "a huge number of frames": (huge_frame_count, 5),
    "trailing bytes": (trailing_bytes, 5),
    "five megabytes of nothing": (long_garbage, 5),
    "a manifest with a flipped bit": (flip(lambda w: w.object(w.digest)), 5),
    "a manifest that is gone": (lambda w: w.object(w.digest).unlink(), 5),
    "an attestation with a flipped bit": (flip(lambda w: w.object(w.envelope)), 5),
    "a pointer that was moved back": (pointer_moved_back, 6),
    "a pointer past the end": (pointer_at(999), 6),
    "a pointer at an entry of another kind": (pointer_at(0), 6),
    "a pointer of another ref": (pointer_of_another_ref, 6),
    "a pointer that is none": (lambda w: w.write(w.share / "refs/demo", b"\x00" * 100), 5),
    "a log that forked": (forked_log, 6),
    "another publisher's log": (another_publishers_log, 6),
    "a log by another key under the same name": (another_key_signs_the_log, 6),
    "a log nobody vouches for": (publisher_gone, 6),
    "a publisher's note with a flipped bit": (flip(lambda w: w.log / "publisher", 30), 6),
    "a checkpoint with a flipped bit": (another_signature, 6),
    "a checkpoint that is gone": (checkpoint_gone, 5),
    "a log without tiles": (tiles_gone, 5),
    "an artifact that nobody trusted signed": (unsigned_artifact, 6),
}


@pytest.fixture
def world(alice: Person, bob: Person, share: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr("kvg.flow.exchange.reading.BETWEEN_LOG_AND_POINTER_S", 0.0)
    return World(alice, bob, share)


def snapshot(person: Person) -> tuple[object, ...]:
    return (dict(person.store.refs()), person.store.log.size, sorted(person.store.objects.all()))


@pytest.mark.parametrize("name", LIES)
def test_lie_is_refused_with_its_class(name: str, world: World) -> None:
    lie, code = LIES[name]
    lie(world)
    before = snapshot(world.bob)
    outcome = world.bob.pull("demo")
    assert outcome.codes == [code], outcome.findings
    assert outcome.transfer.refs == ()
    assert snapshot(world.bob) == before
    *findings, _ = check_store(world.bob.store)
    assert not findings


def test_truth_after_a_lie_is_taken(world: World) -> None:
    good = world.object(world.page).read_bytes()
    flip(lambda w: w.object(w.page))(world)
    assert world.bob.pull("demo").codes == [5]
    world.write(world.object(world.page), good)
    again = world.bob.pull("demo")
    assert again.states == {"demo": "new"}
    assert again.transfer.objects_sent == 1 and again.transfer.resumed >= 7


def test_rollback_of_what_was_seen_is_refused(world: World) -> None:
    world.bob.pull()
    rolled_back_log(world)
    before = snapshot(world.bob)
    assert set(world.bob.pull().codes) == {6}
    assert snapshot(world.bob) == before


def test_revoked_publisher_counts_for_the_past_only(world: World) -> None:
    from kvg.trust.policy import Revocation, sign_trust

    bob = world.bob
    keyid = world.alice.key.public.keyid
    size = bob.store.peers.log(world.origin).size
    trust = bob.store.trust.with_revocation(Revocation(keyid, world.origin, size))
    bob.store.set_trust(sign_trust(trust, [bob.key]))
    outcome = bob.pull()
    assert outcome.codes == [6] and "revoked" in outcome.findings[0].message
    assert outcome.states == {"old": "unchanged"}


def test_names_that_lead_out_are_never_asked_for(world: World, tmp_path: Path) -> None:
    """A listing is a hint: what it names is looked at before anything is asked."""
    from kvg.errors import Corrupt
    from tests.remote.servers import serving

    listing = world.share / "listing.json"
    text = listing.read_bytes().replace(b'"demo"', b'"../../demo"')
    world.write(listing, text)
    with serving(world.share) as server:
        remote = open_remote(server.url, cwd=tmp_path)
        with pytest.raises(Corrupt):
            remote.refs()
        assert all(".." not in path for _, path, _ in server.asked)
        remote.close()


def endless() -> Iterator[bytes]:
    while True:
        yield bytes(1 << 16)


def test_body_without_an_end_is_left_alone(world: World) -> None:
    """However much comes, what is read is bounded by what the signed manifest says."""
    from tests.remote.servers import StaticHandler, serving

    page = object_name(world.page)
    data = world.object(world.page).read_bytes()
    sent = 0

    def pour(handler: StaticHandler, path: str, body: bytes) -> bool:
        nonlocal sent
        if not path.endswith(page) or handler.command != "GET":
            return False
        handler.send_response(200)
        handler.end_headers()
        handler.close_connection = True
        handler.wfile.write(data)
        for piece in endless():
            handler.wfile.write(piece)
            sent += len(piece)
            if sent > 1 << 28:
                break
        return True

    with serving(world.share, misbehave=pour) as server:
        world.bob.store.config.set_table("remote", "origin", {"url": server.url})
        assert world.bob.pull("demo").codes == [5]
    assert sent < 1 << 26
