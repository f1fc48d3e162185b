"""Push, clone, fetch and pull between two people over a folder."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kvg.cli.render import View
from kvg.cli.render.exchange import transfer
from kvg.cli.terminal import Terminal
from kvg.digest import hex_of
from kvg.errors import Conflict, GateFailed, KvgError, NotFound, RemoteFailed, Untrusted
from kvg.flow.exchange import planes
from kvg.flow.fetch import fetch
from kvg.flow.gc import gc
from kvg.flow.pull import pull
from kvg.flow.push import push
from kvg.flow.rejected import check_outcomes
from kvg.flow.remote import remote_remove, remote_set, remote_show
from kvg.flow.status import remote_state
from kvg.gates.outcome import outcome_of
from kvg.log.receipts import check_receipt, parse_receipt
from kvg.model import planes as numpy_planes
from kvg.remote.layout import object_name
from kvg.store import RefMove, Store
from kvg.verify import check_store, verify_artifact
from kvg.verify.check import VerifySummary
from tests.exchange.conftest import Outcome, Person


def summary(person: Person) -> VerifySummary:
    *findings, last = check_store(person.store)
    assert not findings
    return last


def test_what_is_pushed_is_cloned_whole(alice: Person, bob: Person, share: Path) -> None:
    digest = alice.deposit("docs/demo")
    pushed = alice.push().transfer
    assert (pushed.objects_sent, pushed.objects_skipped) == (10, 0)
    cloned = bob.clone(share, alice)
    assert cloned.states == {"docs/demo": "new"}
    assert cloned.transfer.objects_sent == 10
    assert cloned.transfer.refs[0].signers == (alice.key.public.keyid,)
    assert bob.store.own_refs() == {"docs/demo": digest}
    assert bob.store.refs()["origin/docs/demo"] == digest
    verified = verify_artifact(bob.store, digest)
    for page in verified.manifest.pages:
        a, b = (p.store.objects.read(page.digest, what="page") for p in (alice, bob))
        assert bytes(a) == bytes(b)
    assert summary(bob).signatures_ok
    assert not any((bob.store.staging / "quarantine").rglob("*.part"))


def test_an_artifact_that_shares_half_its_pages_sends_half(alice: Person, share: Path) -> None:
    base = alice.deposit("base", range(5, 37))
    alice.push()
    longer = alice.deposit("longer", range(5, 69))
    pages = {
        name: {page.digest for page in alice.store.manifest(name).pages} for name in (base, longer)
    }
    shared, new = pages[base] & pages[longer], pages[longer] - pages[base]
    assert len(shared) >= 4 and len(new) >= 4
    pushed = alice.push().transfer
    assert pushed.objects_skipped == len(shared) + 1  # and the source, which both name
    assert pushed.objects_sent == len(new) + 3  # token ids, attestation, manifest
    assert all((share / object_name(page)).exists() for page in new)


def test_nothing_new_moves_nothing(alice: Person, bob: Person, share: Path) -> None:
    alice.deposit("demo")
    alice.push()
    before = sorted((path, path.stat().st_mtime_ns) for path in share.rglob("*"))
    again = alice.push().transfer
    assert (again.objects_sent, again.bytes) == (0, 0)
    assert sorted((path, path.stat().st_mtime_ns) for path in share.rglob("*")) == before
    bob.clone(share, alice)
    size = bob.store.log.size
    assert bob.pull().states == {"demo": "unchanged"}
    assert bob.store.log.size == size


def test_shared_pages_move_once(alice: Person, bob: Person, share: Path) -> None:
    alice.deposit("one", range(5, 29))
    alice.push()
    bob.clone(share, alice)
    alice.deposit("two", [*range(5, 21), *range(60, 68)])
    sent = alice.push().transfer
    assert sent.objects_skipped > 0
    assert bob.pull().transfer.objects_sent == sent.objects_sent


def test_remote_objects_have_the_remotes_codec(alice: Person, share: Path) -> None:
    digest = alice.deposit("demo")
    alice.push()
    manifest = alice.store.manifest(digest)
    page = (share / object_name(manifest.pages[0].digest)).read_bytes()
    assert page[4] == 2 and page[5] == 2
    assert (share / object_name(digest)).read_bytes()[4] == 1


@pytest.mark.parametrize("worth_bytes", [0, 1 << 60])
def test_whoever_takes_planes_apart_the_objects_are_the_same(
    alice: Person, bob: Person, share: Path, monkeypatch: pytest.MonkeyPatch, worth_bytes: int
) -> None:
    """Numpy's for much, the interpreter's for little, and where numpy is absent."""
    calls: list[str] = []
    for name in ("split_planes", "join_planes"):
        quick = getattr(numpy_planes, name)
        monkeypatch.setattr(
            numpy_planes, name, lambda *given, of=quick, n=name: calls.append(n) or of(*given)
        )
    monkeypatch.setattr(planes, "WORTH_BYTES", worth_bytes)
    digest = alice.deposit("demo")
    alice.push()
    bob.clone(share, alice)
    assert set(calls) == ({"split_planes", "join_planes"} if worth_bytes == 0 else set())
    assert summary(bob) == summary(alice)
    for page in alice.store.manifest(digest).pages:
        files = [store.objects.stored_path(page.digest) for store in (alice.store, bob.store)]
        assert files[0].read_bytes() == files[1].read_bytes()


def test_numpy_may_be_absent(
    alice: Person, bob: Person, share: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "kvg.model.planes", None)
    monkeypatch.setattr(planes, "WORTH_BYTES", 0)
    digest = alice.deposit("demo")
    alice.push()
    bob.clone(share, alice)
    assert bob.store.refs()["demo"] == digest


def test_token_ids_are_said_to_be_readable_once(alice: Person) -> None:
    alice.deposit("demo")
    alice.push()
    alice.deposit("other", range(40))
    alice.push()
    assert sum("token ids" in text for text in alice.report.told) == 1


def test_first_contact_is_explicit(alice: Person, bob: Person, share: Path) -> None:
    alice.deposit("demo")
    alice.push()
    with pytest.raises(Untrusted) as refused:
        bob.clone(share)
    assert alice.key.public.keyid[:12] in refused.value.hint
    assert not (bob.folder / "work").exists()
    with pytest.raises(Untrusted):
        bob.clone(share, bob)
    asked: list[str] = []
    with pytest.raises(Untrusted):
        bob.clone(share, ask=lambda text: bool(asked.append(text)))
    assert alice.key.public.keyid in asked[0]
    assert not (bob.folder / "work").exists()
    assert bob.clone(share, ask=lambda _: True).states == {"demo": "new"}
    with pytest.raises(Conflict):
        bob.clone(share, alice)


def test_pull_of_an_unknown_publisher_is_untrusted(alice: Person, bob: Person, share: Path) -> None:
    alice.deposit("demo")
    alice.push()
    bob.init().add(share)
    refused = bob.pull()
    assert refused.codes == [6]
    assert bob.store.refs() == {} and not list(bob.store.objects.all())[1:]
    assert bob.store.peers.origins() == ()
    taken = bob.pull(trust=[alice.key.public.keyid[:8]])
    assert taken.states == {"demo": "new"} and not taken.findings


def test_fetch_leaves_ones_own_refs(alice: Person, bob: Person, share: Path) -> None:
    first = alice.deposit("demo")
    alice.push()
    bob.clone(share, alice)
    second = alice.deposit("demo", range(40))
    alice.push()
    assert bob.fetch().states == {"demo": "moved"}
    assert bob.store.ref("demo") == first
    assert bob.store.ref("origin/demo") == second
    state = remote_state(bob.store, "origin")
    assert (state.ahead, state.behind) == (0, 1)
    assert bob.pull().states == {"demo": "moved"}
    assert bob.store.ref("demo") == second
    assert remote_state(bob.store, "origin").behind == 0


def test_two_publishers_take_turns(alice: Person, bob: Person, share: Path) -> None:
    alice.deposit("demo")
    alice.push()
    bob.clone(share, alice)
    newer = bob.deposit("demo", range(40))
    assert remote_state(bob.store, "origin").ahead == 1
    assert bob.push().states == {"demo": "moved"}
    refused = alice.pull()
    assert refused.codes == [6]  # nobody told alice to trust bob
    assert alice.pull(trust=[bob.key.public.keyid]).states == {"demo": "moved"}
    assert alice.store.ref("demo") == newer
    assert alice.push().states == {"demo": "unchanged"}
    assert len(list((share / "logs").iterdir())) == 2


def test_push_is_fast_forward_only(alice: Person, bob: Person, share: Path) -> None:
    alice.deposit("demo")
    alice.push()
    bob.clone(share, alice)
    theirs = alice.deposit("demo", range(40))
    alice.push()
    mine = bob.deposit("demo", range(41))
    refused = bob.push()
    assert refused.codes == [4] and "kvg pull" in refused.findings[0].hint
    diverged = bob.pull()
    assert diverged.codes == [4] and "kvg tag -f" in diverged.findings[0].hint
    assert bob.store.ref("demo") == mine and bob.store.ref("origin/demo") == theirs
    bob.store.publish([RefMove("demo", theirs), RefMove("demo", mine)])
    assert bob.push().states == {"demo": "moved"}


def test_one_refused_ref_does_not_keep_the_others(alice: Person, bob: Person, share: Path) -> None:
    alice.deposit("demo")
    alice.push()
    bob.clone(share, alice)
    alice.deposit("demo", range(40))
    alice.push()
    bob.deposit("demo", range(41))
    bob.deposit("new", range(42))
    pushed = bob.push()
    assert pushed.codes == [4] and pushed.states == {"new": "new"}


def test_damaged_object_here_is_told_and_the_rest_goes(alice: Person, share: Path) -> None:
    bad = alice.deposit("bad", range(60, 90))
    alice.deposit("good")
    path = alice.store.objects.stored_path(alice.store.manifest(bad).pages[-1].digest)
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    pushed = alice.push()
    assert pushed.codes == [5] and pushed.states == {"good": "new"}
    assert not (share / "refs" / "bad").exists()


def test_missing_objects_are_listed_and_the_rest_is_taken(
    alice: Person, bob: Person, share: Path
) -> None:
    bad = alice.deposit("bad", range(60, 90))
    alice.deposit("good")
    alice.push()
    pages = alice.store.manifest(bad).pages
    for page in pages[:2]:
        (share / object_name(page.digest)).unlink()
    cloned = bob.clone(share, alice)
    assert cloned.codes == [5, 5]
    assert all("missing" in finding.message for finding in cloned.findings)
    assert cloned.states == {"good": "new"}
    assert set(bob.store.refs()) == {"good", "origin/good"}
    assert not bob.store.objects.has(bad)
    assert alice.push(read_back=True).transfer.objects_sent == 2
    taken = bob.pull()
    assert taken.transfer.objects_sent == 2 and taken.transfer.resumed > 0
    assert bob.store.ref("bad") == bad


@pytest.mark.parametrize("at", [0, 100, -1])
def test_a_long_object_that_turns_out_damaged_as_it_goes_leaves_nothing_there(
    alice: Person, share: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """In codec 0 a file is read once: it is hashed while it is written."""
    monkeypatch.setattr("kvg.flow.exchange.sending.STREAMED_FROM_BYTES", 1)
    bad, good = alice.deposit("bad", range(5, 32)), alice.deposit("good", range(60, 90))
    alice.store.config.set("remote.origin.codec", 0)
    page = alice.store.manifest(bad).pages[0].digest
    path = alice.store.objects.stored_path(page)
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.chmod(0o600)
    path.write_bytes(data)
    assert alice.push(dry_run=True).codes == [5]
    outcome = alice.push()
    assert 5 in outcome.codes and outcome.states == {"good": "new"}
    assert not (share / object_name(page)).exists()
    assert (share / object_name(good)).exists()
    assert not list((share / "tmp").iterdir())


def test_verify_after_push_repairs_what_the_remote_damaged(alice: Person, share: Path) -> None:
    digest = alice.deposit("demo")
    alice.push()
    path = share / object_name(alice.store.manifest(digest).pages[0].digest)
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert alice.push().transfer.objects_sent == 0
    assert alice.push(read_back=True).transfer.objects_sent == 1
    assert path.read_bytes() != data


def test_receipts_travel_beside_attestations(alice: Person, bob: Person, share: Path) -> None:
    digest = alice.deposit("demo")
    alice.push()
    bob.clone(share, alice)
    (item,) = bob.store.attestations(digest)
    origin = alice.store.log.origin
    path = bob.store.root / "peers" / origin / "receipts" / hex_of(item.envelope)
    receipt = parse_receipt(path.read_bytes(), what="receipt")
    entry = next(iter(alice.store.log.read(receipt.index)))
    verifier = alice.store.log.verifier
    check_receipt(receipt, entry, origin=origin, verifier=verifier, what="receipt")


def test_later_attestations_travel_alone(alice: Person, bob: Person, share: Path) -> None:
    from kvg.objects.statement import PASSED, TestResult, encode_test_result
    from tests.artifacts import attest

    digest = alice.deposit("demo")
    alice.push()
    bob.clone(share, alice)
    said = encode_test_result(digest, TestResult(PASSED, "test", (), ()))
    attest(alice.store, alice.key, digest, said)
    assert alice.push().transfer.objects_sent == 1
    assert bob.pull().transfer.objects_sent == 1
    assert len(bob.store.attestations(digest)) == 2


def test_dry_runs_change_nothing(alice: Person, bob: Person, share: Path) -> None:
    alice.deposit("demo")
    told = alice.push(dry_run=True)
    assert told.states == {"demo": "new"} and told.transfer.objects_sent == 10
    assert not share.exists()
    alice.push()
    bob.init().add(share)
    bob.store.set_trust(_trusting(bob, alice))
    size = bob.store.log.size
    assert bob.pull(dry_run=True).states == {"demo": "new"}
    assert bob.store.log.size == size and bob.store.peers.origins() == ()


def _trusting(person: Person, other: Person) -> object:
    from kvg.trust.policy import sign_trust

    trust = person.store.trust.with_key(other.key.public, ("depositor", "publisher"))
    return sign_trust(trust, [person.key])


def test_delete_takes_a_ref_off(alice: Person, bob: Person, share: Path) -> None:
    alice.deposit("demo")
    alice.deposit("other", range(40))
    alice.push()
    assert alice.push("demo", delete=True).states == {"demo": "deleted"}
    assert alice.store.ref("demo") is not None
    assert alice.store.ref("origin/demo") is None
    assert alice.push("demo", delete=True).codes == [3]
    assert bob.clone(share, alice).states == {"other": "new"}


def test_filter_takes_what_matches(alice: Person, bob: Person, share: Path) -> None:
    alice.deposit("docs/a")
    alice.deposit("b", range(40))
    alice.push()
    assert bob.clone(share, alice, pattern="docs/*").states == {"docs/a": "new"}


def test_forgotten_content_does_not_come_back(alice: Person, bob: Person, share: Path) -> None:
    from kvg.flow.forget import forget

    digest = alice.deposit("demo")
    alice.push()
    bob.clone(share, alice)
    list(forget(bob.store, bob.settings, ["demo"]))
    bob.pull()
    assert not bob.store.objects.has(digest)
    assert any("forget" in text for text in bob.report.told)
    for dry_run in (False, True):
        named = bob.pull("demo", dry_run=dry_run)
        assert named.codes == [3] and "forget" in named.findings[0].message
        assert bob.pull(dry_run=dry_run).states == {}


def test_what_is_here_gets_no_new_name_against_the_rules(
    alice: Person, bob: Person, share: Path
) -> None:
    """A fresh store with these rules would not take it in; what has its names keeps them."""
    digest = alice.deposit("demo")
    alice.push()
    bob.clone(share, alice)
    bob.store.config.set("deposit.require", "test")
    alice.store.publish([RefMove("other", digest)])
    alice.push()
    for dry_run in (False, True):
        refused = bob.pull(dry_run=dry_run)
        assert refused.codes == [6] and "test" in refused.findings[0].message
        assert refused.states == {"demo": "unchanged"}
    assert bob.store.refs() == {"demo": digest, "origin/demo": digest}
    bob.store.config.unset("deposit.require")
    assert bob.pull().states == {"demo": "unchanged", "other": "new"}


def test_a_store_whose_log_went_back_does_not_push(alice: Person, tmp_path: Path) -> None:
    import shutil

    alice.deposit("demo")
    shutil.copytree(alice.folder / "work", tmp_path / "old")
    alice.deposit("other", range(40))
    alice.push()
    shutil.rmtree(alice.folder / "work")
    shutil.copytree(tmp_path / "old", alice.folder / "work")
    for seen in alice.settings.keys.rglob("*.seen"):
        seen.unlink()
    alice.deposit("third", range(41))
    with pytest.raises(Untrusted, match="rolled back or forked"):
        alice.push("third")


def test_a_bare_store_is_a_remote_and_keeps_what_is_pushed(alice: Person, share: Path) -> None:
    keeper = Person.make(share.parent / "keeper")
    Store.init(share, bare=True, keyring=keeper.keyring)
    digest = alice.deposit("demo")
    alice.push()
    bare = Store.open(share, keyring=keeper.keyring)
    assert bare.objects.has(digest)
    with pytest.raises(KvgError, match="other stores push here"):
        gc(bare, keeper.settings)


def test_no_remote_there(alice: Person, bob: Person, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        alice.pull()
    with pytest.raises(NotFound):
        bob.clone(tmp_path / "nowhere", alice)


def test_a_ref_where_the_remote_goes(alice: Person) -> None:
    alice.deposit("demo")
    with pytest.raises(NotFound, match="no such remote") as told:
        tuple(push(alice.store, alice.settings, "demo"))
    assert told.value.hint == "the remote goes first: origin demo"
    with pytest.raises(NotFound) as told:
        tuple(push(alice.store, alice.settings, "nothing"))
    assert told.value.hint == "kvg remote list"
    with pytest.raises(NotFound) as told:
        tuple(push(alice.store, alice.settings, "https://me:secret@example.org/"))
    assert "secret" not in told.value.message and "remote add" in (told.value.hint or "")


def test_show_and_remove(alice: Person, bob: Person, share: Path) -> None:
    digest = alice.deposit("demo")
    alice.push()
    bob.init().add(share)
    kinds = [record.type for record in remote_show(bob.store, bob.settings, None)]
    assert kinds == ["remote", "offered-key", "remote-ref"]
    bob.pull(trust=[alice.key.public.keyid])
    *_, last = remote_show(bob.store, bob.settings, "origin")
    assert (last.digest, last.local, last.problem) == (digest, digest, None)
    remote_remove(bob.store, bob.settings, "origin")
    assert set(bob.store.refs()) == {"demo"}
    assert bob.store.config.names("remote") == ()


def test_remote_names_and_refs_keep_apart(alice: Person) -> None:
    alice.deposit("mine/x")
    with pytest.raises(Conflict):
        alice.add("/mnt/other", "mine")
    with pytest.raises(Conflict):
        alice.add("/mnt/other", "origin")
    with pytest.raises(KvgError):
        alice.add("/mnt/other", "a/b")


def test_evidence_of_a_rejected_deposit_does_not_travel(
    alice: Person, bob: Person, share: Path
) -> None:
    digest = alice.deposit("demo")
    failed = outcome_of("test:cmd", "cmd:false", "exit 1", None)
    with pytest.raises(GateFailed, match="exit 1"):
        check_outcomes(alice.store, alice.settings, "bad", (failed,), (), None)
    (rejected,) = alice.store.rejections()
    assert alice.push().states == {"demo": "new"}
    assert bob.clone(share, alice).states == {"demo": "new"}
    assert bob.store.own_refs() == {"demo": digest}
    assert not bob.store.objects.has(rejected) and bob.store.rejections() == frozenset()
    assert summary(bob).signatures_ok and summary(alice).signatures_ok
    alice.deposit("more", range(5, 29))
    assert alice.push().states["more"] == "new"
    assert bob.pull().states["more"] == "new"


def test_a_push_of_a_named_ref_asks_what_the_remote_has_lost(
    alice: Person, bob: Person, share: Path
) -> None:
    digest = alice.deposit("demo")
    alice.push()
    pages = alice.store.manifest(digest).pages
    (share / object_name(pages[0].digest)).unlink()
    cut = share / object_name(pages[1].digest)
    cut.chmod(0o644)
    cut.write_bytes(cut.read_bytes()[:-3])
    assert alice.push("demo", dry_run=True).transfer.objects_sent == 2
    sent = alice.push("demo")
    assert sent.states == {"demo": "unchanged"} and sent.transfer.objects_sent == 2
    assert alice.push("demo").transfer.objects_sent == 0
    assert bob.clone(share, alice).states == {"demo": "new"}


def test_what_went_wrong_is_counted_in_the_record_that_ends(
    alice: Person, bob: Person, share: Path
) -> None:
    alice.deposit("demo")
    assert alice.push().transfer.problems == 0
    bob.init().add(share)
    told = bob.pull()
    assert told.codes == [6] and told.transfer.problems == 1
    assert bob.fetch().transfer.problems == 1
    bob.deposit("demo", range(40))
    refused = bob.push()
    assert refused.codes == [6] and refused.transfer.problems == 1
    view = View(Terminal(*(7 * [False])), quiet=False, verbose=False, aside=print)
    assert list(transfer(refused.transfer, view)) == ["origin: nothing moved; 1 problem\n"]


def test_a_push_that_was_cut_tells_what_it_goes_on_with(
    alice: Person, bob: Person, share: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kvg.remote.file_remote import FileRemote

    alice.deposit("before", range(5, 21))
    alice.push()
    shared = set(there(share))
    alice.deposit("demo")
    put, n_put = FileRemote.put, [0]

    def failing(self: FileRemote, digest: str, parts: object) -> None:
        n_put[0] += 1
        if n_put[0] > 4:
            raise RemoteFailed("gone")
        put(self, digest, parts)

    monkeypatch.setattr(FileRemote, "put", failing)
    with pytest.raises(RemoteFailed):
        alice.push()
    monkeypatch.undo()
    left = set(there(share)) - shared
    assert left
    done = alice.push().transfer
    assert done.resumed == len(left) and done.objects_skipped > done.resumed
    alice.deposit("more", [*range(5, 21), *range(60, 68)])
    assert alice.push().transfer.resumed == 0
    assert not list((alice.store.staging / "pushes").iterdir())
    assert bob.clone(share, alice).states["demo"] == "new"


def there(share: Path) -> list[str]:
    return [path.name for path in (share / "objects").rglob("*") if path.is_file()]


def test_a_dry_push_tells_what_a_push_moves(alice: Person, share: Path) -> None:
    alice.deposit("demo", range(5, 400))
    for ids in (range(60, 500), range(700)):
        told, done = alice.push(dry_run=True).transfer, alice.push().transfer
        assert (told.objects_sent, told.bytes) == (done.objects_sent, done.bytes)
        alice.deposit("other", ids)


def test_a_dry_pull_goes_by_the_keys_it_is_given(alice: Person, bob: Person, share: Path) -> None:
    from dataclasses import replace

    from kvg.flow.bundle import bundle_apply, bundle_create

    alice.deposit("demo")
    alice.push()
    bundle_create(alice.store, alice.settings, share.parent / "a.tar")
    bob.init().add(share)
    before = (bob.store.log.size, bob.store.trust)
    dry, keys = replace(bob.settings, dry_run=True), [alice.key.public.keyid]
    for records in (
        fetch(bob.store, dry, trust=keys),
        pull(bob.store, dry, trust=keys),
        bundle_apply(bob.store, dry, share.parent / "a.tar", trust=keys),
    ):
        outcome = Outcome(tuple(records))
        assert outcome.states == {"demo": "new"} and not outcome.findings
        with pytest.raises(Untrusted, match="no key of"):
            tuple(fetch(bob.store, dry, trust=["abcdef012345"]))
    assert (bob.store.log.size, bob.store.trust) == before
    assert any("would be trusted" in text for text in bob.report.told)


def test_what_goes_as_it_lies_is_checked_and_never_held_whole(
    alice: Person, bob: Person, share: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvg.flow.exchange.sending.STREAMED_FROM_BYTES", 1)
    monkeypatch.setattr("kvg.store.object_files.SENT_BYTES", 100)
    remote_set(alice.store, alice.settings, "origin", url=None, codec=0)
    bad, good = alice.deposit("bad", range(60, 90)), alice.deposit("good")
    page = alice.store.manifest(bad).pages[0].digest
    path = alice.store.objects.stored_path(page)
    whole = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    pushed = alice.push()
    assert pushed.codes == [5]
    assert pushed.states == {"good": "new"} and not (share / object_name(page)).exists()
    for item in alice.store.manifest(good).pages:
        there = share / object_name(item.digest)
        assert there.read_bytes() == alice.store.objects.stored_path(item.digest).read_bytes()
    path.write_bytes(whole)
    assert alice.push().states == {"bad": "new", "good": "unchanged"}
    assert bob.clone(share, alice).states == {"bad": "new", "good": "new"}
