from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kvg.digest import Digest, hex_of, sha256, shake256
from kvg.errors import NotFound, Unreadable
from kvg.objects.statement import Resource, encode_provenance
from kvg.signing.dsse import sign_envelope
from kvg.store import RefMove, Store
from kvg.store.forget import Unclaimed, plan_forget, remove_for_good, unclaimed
from kvg.store.sizes import sizes
from kvg.store.sweep import sweep
from kvg.store.traces import find_traces, take_traces
from kvg.verify import verify_artifact
from kvg.verify.fsck import Finding, fsck
from tests import artifacts as a
from tests.unlistable import make_unlistable

SOURCE = b"The handbook says, in so many words, what the with statement does to a file."


def with_source(store: Store, ref: str, ids: range, source: bytes = SOURCE) -> Digest:
    """An artifact whose source lies in the store too."""
    with store.pending() as pending:
        digest, _ = a.put_all(pending, ids)
        said = replace(
            a.provenance(), source=(Resource("handbook.md", pending.put(source).digest),)
        )
        payload = encode_provenance(digest, said)
        envelope = pending.put(sign_envelope(payload, [a.key_of("alice")])).digest
        store.record(digest, [envelope], refs=[RefMove(ref, digest)], now=a.NOW)
    return digest


def forget(store: Store, digest: Digest) -> None:
    remove_for_good(store, plan_forget(store, digest), now=a.NOW)


def everything(store: Store) -> Iterator[tuple[Path, bytes]]:
    """Every file of the store as it is, and every object in raw form."""
    for parent, _, names in os.walk(store.root):
        for name in names:
            path = Path(parent, name)
            yield path, path.read_bytes()
    for digest in store.objects.all():
        yield store.objects.stored_path(digest), bytes(store.objects.read(digest, what="it"))


def clean(store: Store) -> bool:
    return not [found for found in fsck(store) if isinstance(found, Finding)]


@pytest.mark.parametrize("codec", [0, 1, 2])
def test_nothing_of_it_is_left(tmp_path: Path, codec: int) -> None:
    store, key = a.make_store(tmp_path)
    store.config.set("store.codec", codec)
    other = a.deposit(store, key, ref="other", ids=range(200, 227))
    digest = with_source(store, "handbook", range(20))
    store.set_ref("alias", digest)
    store.set_pin(digest, True)
    manifest, raws = a.build(range(20))
    content = [raw[-64:] for raw, _ in raws.values()]
    content += [SOURCE[10:40], bytes(a.encode_ids(range(3, 9)))]
    assert all(any(piece in data for _, data in everything(store)) for piece in content)
    plan = plan_forget(store, digest)
    traces = take_traces(store, plan.content)
    assert plan.refs == ("alias", "handbook") and plan.kept == () and len(traces) > 5
    removed = remove_for_good(store, plan, now=a.NOW)
    assert removed.objects == len(raws) + 4 and removed.log_index == store.log.size - 1
    for piece in content:
        assert [path for path, data in everything(store) if piece in data] == []
    assert list(find_traces(store, traces)) == []
    assert set(store.refs()) == {"other"} and store.pins() == frozenset()
    assert clean(store) and verify_artifact(store, other.digest)
    with pytest.raises(NotFound, match="forget"):
        verify_artifact(store, digest)
    assert manifest.digest in store.forgotten() and store.history("handbook")[1].digest == digest


def test_what_cannot_be_looked_through_is_not_found_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _ = a.make_store(tmp_path)
    digest = with_source(store, "demo", range(40))
    traces = take_traces(store, plan_forget(store, digest).content)
    aside = store.root / "lost-found" / "folder"
    aside.mkdir(parents=True)
    (aside / "copy").write_bytes(SOURCE)
    make_unlistable(monkeypatch, aside)
    with pytest.raises(Unreadable, match="folder"):
        list(find_traces(store, traces))


def test_what_is_shared_stays_and_is_listed(tmp_path: Path) -> None:
    store, _ = a.make_store(tmp_path)
    one = with_source(store, "one", range(20))
    two = with_source(store, "two", range(27))
    plan = plan_forget(store, one)
    shared = {kept.digest for kept in plan.kept}
    assert sha256(SOURCE) in shared and len(shared) > 1
    assert all(kept.users == ("two",) for kept in plan.kept)
    traces = take_traces(store, plan.content)
    forget(store, one)
    artifact = verify_artifact(store, two)
    assert all(len(artifact.read_page(page)) for page in artifact.manifest.pages)
    hits = {hit.digest for hit in find_traces(store, traces)}
    assert hits <= {artifact.manifest.tokens.digest, *(p.digest for p in artifact.manifest.pages)}
    assert artifact.manifest.tokens.digest in hits  # its ids begin with those of the other
    assert clean(store)


def test_pages_of_an_old_value_are_named_by_its_digest(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    old = a.deposit(store, key, ref="r", ids=range(20))
    new = a.deposit(store, key, ref="r", ids=range(27))
    users = {user for kept in plan_forget(store, new.digest).kept for user in kept.users}
    assert users == {old.digest[:13]}
    sweep(store)
    assert plan_forget(store, new.digest).kept == ()


def test_what_a_running_writer_needs_stays(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    made = a.deposit(store, key, ids=range(20))
    page = made.manifest.pages[0].digest
    with store.pending() as pending:
        assert pending.keep(page)
        plan = plan_forget(store, made.digest)
        assert [(kept.digest, kept.users) for kept in plan.kept] == [(page, ("a running command",))]
        forget(store, made.digest)
        assert store.objects.has(page)
    assert sweep(store).objects == 1


@pytest.mark.parametrize("is_published", [True, False])
def test_what_a_deposit_has_put_meanwhile_stays_until_that_ends(
    tmp_path: Path, is_published: bool
) -> None:
    """It is not called gone while it is there, and who deposits it anew is not undone."""
    store, key = a.make_store(tmp_path)
    made = a.deposit(store, key)
    content = made.manifest.tokens.digest
    with store.pending() as pending:
        digest, _ = a.put_all(pending, range(5, 32))
        pending.put(a.SOURCE)
        assert digest == made.digest
        plan = plan_forget(store, made.digest)
        assert (made.digest, ("a running command",)) in [(k.digest, k.users) for k in plan.kept]
        remove_for_good(store, plan, now=a.NOW)
        assert store.objects.has(made.digest) and store.objects.has(content)
        if is_published:
            payload = encode_provenance(digest, a.provenance())
            envelope = pending.put(sign_envelope(payload, [key])).digest
            store.record(digest, [envelope], refs=[RefMove("anew", digest)], now=a.NOW)
    if is_published:
        assert clean(store) and verify_artifact(store, store.ref("anew") or digest)
        return
    assert next(item for item in fsck(store) if hasattr(item, "unfinished")).unfinished == 1
    forget(store, made.digest)
    assert not store.objects.has(made.digest) and not store.objects.has(content)


def test_it_can_be_deposited_again(tmp_path: Path) -> None:
    store, _ = a.make_store(tmp_path)
    digest = with_source(store, "r", range(20))
    forget(store, digest)
    assert with_source(store, "r", range(20)) == digest
    assert verify_artifact(store, digest).signers and clean(store)
    forget(store, digest)
    assert not store.objects.has(digest) and clean(store)
    store.reindex()
    assert digest in store.forgotten() and store.attestations(digest) == ()


def test_damaged_copies_in_lost_found_go_too(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    made = a.deposit(store, key, ids=range(20))
    page = made.manifest.pages[0].digest
    path = store.objects.stored_path(page)
    data = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(data[:-1] + b"\0")
    assert list(fsck(store, repair=True))
    a.deposit(store, key, ids=range(20))
    assert os.listdir(store.root / "lost-found") == [f"{hex_of(page)}.0"]
    forget(store, made.digest)
    assert os.listdir(store.root / "lost-found") == []


def flip(store: Store, digest: Digest) -> None:
    path = store.objects.stored_path(digest)
    data = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


@pytest.mark.parametrize("part", ["page", "tokens", "source"])
def test_damaged_copies_go_when_nothing_took_their_place(tmp_path: Path, part: str) -> None:
    store, key = a.make_store(tmp_path)
    other = a.deposit(store, key, ref="other", ids=range(200, 227))
    digest = with_source(store, "r", range(20))
    manifest = store.manifest(digest)
    which = {"page": manifest.pages[0].digest, "tokens": manifest.tokens.digest}
    damaged = which.get(part, sha256(SOURCE))
    for item in (damaged, other.manifest.pages[0].digest):
        flip(store, item)
    assert list(fsck(store, repair=True)) and not store.objects.has(damaged)
    plan = plan_forget(store, digest)
    assert plan.is_known and plan.aside == (f"{hex_of(damaged)}.0",)
    removed = remove_for_good(store, plan, now=a.NOW)
    assert removed.is_known and removed.bytes > 0
    assert os.listdir(store.root / "lost-found") == [f"{hex_of(other.manifest.pages[0].digest)}.0"]
    assert plan_forget(store, digest).is_known


def test_what_another_needs_stays_in_lost_found(tmp_path: Path) -> None:
    store, _ = a.make_store(tmp_path)
    one, two = with_source(store, "one", range(20)), with_source(store, "two", range(27))
    pages = {page.digest for page in store.manifest(one).pages}
    shared = sorted(pages & {page.digest for page in store.manifest(two).pages})[0]
    flip(store, shared)
    assert list(fsck(store, repair=True))
    plan = plan_forget(store, one)
    assert plan.aside == () and shared in {kept.digest for kept in plan.kept}
    forget(store, one)
    assert os.listdir(store.root / "lost-found") == [f"{hex_of(shared)}.0"]


def test_one_whose_manifest_is_lost(tmp_path: Path) -> None:
    """What it held isn't known: until nothing is left that may be of it, nothing is claimed."""
    store, _ = a.make_store(tmp_path)
    digest = with_source(store, "r", range(20))
    os.unlink(store.objects.stored_path(digest))
    plan = plan_forget(store, digest)
    assert not plan.is_known and sha256(SOURCE) in plan.objects
    removed = remove_for_good(store, plan, now=a.NOW)
    assert not removed.is_known
    assert store.refs() == {} and not store.objects.has(sha256(SOURCE))
    assert digest in store.forgotten() and not plan_forget(store, digest).is_known
    left = unclaimed(store)
    assert left.objects > 0 and left.aside == ()
    assert sweep(store).objects == left.objects and clean(store)
    assert unclaimed(store) == Unclaimed(0, ())


def test_one_whose_attestation_is_lost(tmp_path: Path) -> None:
    """It may have named a source."""
    store, _ = a.make_store(tmp_path)
    digest = with_source(store, "r", range(20))
    os.unlink(store.objects.stored_path(store.attestations(digest)[0].envelope))
    plan = plan_forget(store, digest)
    assert not plan.is_known and store.manifest(digest).tokens.digest in plan.objects
    assert not remove_for_good(store, plan, now=a.NOW).is_known
    assert unclaimed(store).objects == 1


def test_what_lies_aside_and_is_no_ones_is_unclaimed(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    kept = a.deposit(store, key, ref="kept", ids=range(200, 227))
    digest = with_source(store, "r", range(20))
    page = store.manifest(digest).pages[0].digest
    for item in (page, digest, kept.manifest.pages[0].digest):
        flip(store, item)
    assert list(fsck(store, repair=True))
    removed = remove_for_good(store, plan_forget(store, digest), now=a.NOW)
    assert not removed.is_known
    sweep(store)
    assert unclaimed(store) == Unclaimed(0, (f"{hex_of(page)}.0",))


def test_a_pin_of_a_page_is_named_and_keeps_only_that(tmp_path: Path) -> None:
    """Such pins can't be made any more; logs may have some."""
    store, key = a.make_store(tmp_path)
    made = a.deposit(store, key, ids=range(20))
    other = a.deposit(store, key, ref="other", ids=range(200, 227))
    page = made.manifest.pages[0].digest
    store.set_pin(page, True)
    (found,) = [item for item in fsck(store) if isinstance(item, Finding)]
    assert (found.code, found.object) == (3, page) and "unpin" in str(found.hint)
    assert sum(size.objects for size in sizes(store, [other.digest])) > 4
    plan = plan_forget(store, made.digest)
    assert plan.is_known
    assert (page, (f"pin {page[:13]}",)) in [(kept.digest, kept.users) for kept in plan.kept]
    forget(store, made.digest)
    assert store.objects.has(page) and sweep(store).objects == 0
    store.set_pin(page, False)
    assert sweep(store).objects == 1 and clean(store)


def test_what_is_no_artifact_is_refused(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    made = a.deposit(store, key)
    with pytest.raises(NotFound, match="no artifact"):
        plan_forget(store, made.manifest.pages[0].digest)


def test_traces_of_what_says_nothing_are_none(tmp_path: Path) -> None:
    store, _ = a.make_store(tmp_path)
    with store.pending() as pending:
        blank = pending.put(b" " * 5000).digest
        little = pending.put(b"abc").digest
        much = [pending.put(shake256(str(n).encode(), 300)).digest for n in range(100)]
    assert take_traces(store, [(blank, 0), (little, 0)]) == ()
    assert 10 <= len(take_traces(store, [(item, 0) for item in much])) <= 24
