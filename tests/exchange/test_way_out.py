"""Every refusal says what helps, and that does help: first contact, damage there, nothing there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kvg.errors import Conflict, Corrupt, NotFound, RemoteFailed, Untrusted, UsageError
from kvg.flow.bundle import bundle_apply, bundle_create, bundle_list, bundle_verify
from kvg.flow.fsck import fsck
from kvg.flow.ls import ls
from kvg.flow.remote import remote_set
from kvg.flow.status import remote_state
from kvg.flow.trust import trust_add
from kvg.remote.layout import object_name
from kvg.signing.note import encode_verifier
from tests import artifacts
from tests.exchange.conftest import Outcome, Person
from tests.remote.servers import StaticHandler, serving

TRUST = re.compile(r"--trust ([0-9a-f]{12})")


@pytest.fixture
def pushed(alice: Person) -> Person:
    alice.deposit("demo")
    alice.push()
    return alice


def test_a_clone_that_was_killed_early_is_gone_on_with(
    pushed: Person, bob: Person, share: Path
) -> None:
    bob.init().add(share)  # as far as it got: a store, its remote, nobody trusted
    with pytest.raises(Conflict) as again:
        bob.clone(share, pushed)
    assert f"pull --trust {pushed.key.public.keyid}" in (again.value.hint or "")
    (refused,) = bob.pull().findings
    found = TRUST.search(refused.hint or "")
    assert found and pushed.key.public.keyid.startswith(found[1])
    assert "kvg pull origin --trust" in (refused.hint or "")
    with pytest.raises(NotFound) as unknown:
        trust_add(bob.store, bob.settings, found[1], (), ())
    assert f"kvg pull REMOTE --trust {found[1]}" in (unknown.value.hint or "")
    assert bob.pull(trust=[found[1]]).states == {"demo": "new"}


@pytest.mark.parametrize("cut", ["body", "status"])
def test_a_clone_that_was_cut_says_how_to_go_on(
    pushed: Person, bob: Person, share: Path, cut: str
) -> None:
    def breaking(handler: StaticHandler, path: str, data: bytes) -> bool:
        if "/objects/" not in path:
            return False
        handler.send_response(200 if cut == "body" else 503)
        handler.send_header("Content-Length", str(len(data) + 1))
        handler.end_headers()
        handler.wfile.write(data[:10])
        handler.close_connection = True
        return True

    with serving(share, misbehave=breaking) as server, pytest.raises(RemoteFailed) as told:
        bob.clone(server.url, pushed)
    words = "go on with kvg -C" if cut == "body" else "may pass"
    assert words in (told.value.hint or "")


def test_what_can_be_no_clone(pushed: Person, bob: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    store = pushed.folder / "work"
    with pytest.raises(NotFound, match="no refs") as told:
        bob.clone(store)
    assert "kvg remote add origin FOLDER" in (told.value.hint or "")
    (bob.folder / "work").write_text("a file")
    with pytest.raises(UsageError, match="is a file"):
        bob.clone(store)


def test_a_folder_that_may_not_be_read_is_the_remotes_fault(
    pushed: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "exists", refuse)
    with pytest.raises(RemoteFailed, match="permission denied") as told:
        pushed.fetch()
    assert "who may read it" in (told.value.hint or "")


def test_a_publisher_whose_key_is_not_on_offer(pushed: Person, bob: Person, share: Path) -> None:
    bob.init().add(share)
    for path in (share / "keys").iterdir():
        path.unlink()
    (refused,) = bob.pull().findings
    assert "kvg trust add FILE" in (refused.hint or "") and "--trust" not in (refused.hint or "")


def test_a_bundle_says_whose_it_is_and_how_to_take_it(pushed: Person, bob: Person) -> None:
    bundle_create(pushed.store, pushed.settings, Path("a.tar"))
    path = pushed.folder / "a.tar"
    *_, key = bundle_list(bob.init().settings, path)
    assert (key.keyid, key.trusted, key.publisher) == (pushed.key.public.keyid, None, True)
    for records in (
        bundle_apply(bob.store, bob.settings, path),
        bundle_verify(bob.store, bob.settings, path),
    ):
        (refused,) = Findings(records)
        found = TRUST.search(refused.hint or "")
        assert found and f"kvg bundle apply {path}" in (refused.hint or "")
    (absent,) = Findings(bundle_apply(bob.store, bob.settings, path, ["other"]))
    assert absent.hint == f"kvg bundle list {path}"
    taken = Outcome(tuple(bundle_apply(bob.store, bob.settings, path, trust=[found[1]])))
    assert taken.states == {"demo": "new"}


def Findings(records: object) -> list:
    return Outcome(tuple(records)).findings


@pytest.mark.parametrize("part", ["page", "manifest", "entries", "checkpoint"])
def test_damage_there_is_not_to_be_looked_for_here(
    pushed: Person, bob: Person, share: Path, part: str
) -> None:
    digest = pushed.store.ref("demo")
    (log,) = (share / "logs").iterdir()
    path = {
        "page": share / object_name(pushed.store.manifest(digest).pages[0].digest),
        "manifest": share / object_name(digest),
        "entries": next(iter(sorted((log / "tile" / "entries").rglob("*.p/*")))),
        "checkpoint": log / "checkpoint",
    }[part]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)
    told = bob.clone(share, pushed).findings
    assert told and all(item.code in (5, 6) for item in told)
    assert not any("kvg fsck" in (item.hint or "") for item in told)
    if part in ("page", "manifest"):
        assert "kvg push origin --verify" in (told[0].hint or "")
        assert pushed.push(read_back=True).transfer.objects_sent == 1
        assert bob.pull().states == {"demo": "new"}
    assert not [item for item in fsck(bob.store, bob.settings) if item.type == "finding"]


@pytest.mark.parametrize("damage", ["gone", "garbage", "another's", "flipped"])
def test_who_wrote_a_log_puts_its_checkpoint_back(
    pushed: Person, bob: Person, share: Path, tmp_path: Path, damage: str
) -> None:
    """Nobody else can, and nothing there can be proved without it."""
    other, key = artifacts.make_store(tmp_path / "other", label="mallory")
    artifacts.deposit(other, key)
    (log,) = (share / "logs").iterdir()
    path = log / "checkpoint"
    whole = path.read_bytes()
    path.chmod(0o644)
    if damage == "gone":
        path.unlink()
    elif damage == "flipped":
        path.write_bytes(whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:])
    else:
        path.write_bytes(b"x\n" if damage == "garbage" else other.log.note)
    assert any(item.code in (5, 6) for item in bob.clone(share, pushed).findings)
    own = pushed.store.log.note
    done = pushed.push()
    assert done.findings == [] and done.states == {"demo": "unchanged"}
    assert path.read_bytes() == own
    assert bob.pull().states == {"demo": "new"}


@pytest.mark.parametrize("checkpoint", ["signed by it", "gone"])
def test_a_log_that_has_another_key_there_is_not_written_over(
    pushed: Person, share: Path, tmp_path: Path, checkpoint: str
) -> None:
    """Another copy of the store may have given it one since: then what is here is the older."""
    other, key = artifacts.make_store(tmp_path / "other", label="mallory")
    artifacts.deposit(other, key)
    (log,) = (share / "logs").iterdir()
    (log / "verifier").chmod(0o644)
    (log / "checkpoint").chmod(0o644)
    (log / "verifier").write_text(
        encode_verifier(pushed.store.log.origin, other.log.verifier) + "\n"
    )
    if checkpoint == "gone":
        (log / "checkpoint").unlink()
    else:
        (log / "checkpoint").write_bytes(other.log.note)
    before = {path: path.read_bytes() for path in log.iterdir() if path.is_file()}
    try:
        assert any(item.code in (5, 6) for item in pushed.push().findings)
    except (Corrupt, Untrusted):
        pass
    assert {path: path.read_bytes() for path in log.iterdir() if path.is_file()} == before


def test_a_clone_with_nothing_to_bring_is_told(pushed: Person, bob: Person, share: Path) -> None:
    with pytest.raises(NotFound, match="no ref there matches x") as told:
        bob.clone(share, pushed, pattern="x*")
    assert "demo" in (told.value.hint or "")
    pushed.push("demo", delete=True)
    with pytest.raises(NotFound, match="no refs there"):
        bob.clone(share, pushed)
    with pytest.raises(NotFound, match="no refs there"):
        bob.clone(share)
    assert not (bob.folder / "work").exists()


def test_a_web_server_without_a_listing_is_told(pushed: Person, bob: Person, share: Path) -> None:
    (share / "listing.json").unlink()
    with serving(share) as server, pytest.raises(NotFound, match=r"no listing\.json"):
        bob.clone(server.url)
    assert not (bob.folder / "work").exists()


def test_another_address_has_not_been_seen(pushed: Person, tmp_path: Path) -> None:
    assert remote_state(pushed.store, "origin").seen
    remote_set(pushed.store, pushed.settings, "origin", url=None, codec=1)
    assert remote_state(pushed.store, "origin").seen
    remote_set(pushed.store, pushed.settings, "origin", url=str(tmp_path / "other"), codec=None)
    state = remote_state(pushed.store, "origin")
    assert (state.seen, state.ahead) == (False, 1)
    assert pushed.push().states == {"demo": "new"}
    assert remote_state(pushed.store, "origin").seen


def test_without_a_model_nothing_is_graftable_and_that_is_said(alice: Person) -> None:
    alice.deposit("demo")
    assert not list(ls(alice.store, alice.settings, graftable=True))
    assert any("kvg model add" in text for text in alice.report.told)
