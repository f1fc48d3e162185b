"""What is done to the log and to receipts."""

from __future__ import annotations

import shutil

from kvg.errors import Corrupt, Untrusted
from kvg.log.receipts import check_receipt, parse_receipt
from kvg.signing.note import encode_verifier
from kvg.store import RefMove, Store
from kvg.trust import Revocation, sign_trust
from tests import artifacts as a
from tests.trust.attacks.world import MALLORY, ROWS, World, refused

for _field, _line, _value in (
    ("origin", 0, "kvg-" + "0" * 32),
    ("size", 1, "2"),
    ("root", 2, "qqlAJmTxpB9A67xSyZk+tmrrNmYClY/fqig7ceZNsSM="),
):

    def _edit_checkpoint(w: World, line: int = _line, value: str = _value) -> None:
        lines = w.log("checkpoint").read_text().split("\n")
        lines[line] = value
        w.overwrite(w.log("checkpoint"), "\n".join(lines).encode())
        w.graft()

    _edit_checkpoint.__name__ = f"checkpoint_{_field}_is_edited"
    ROWS.append((_edit_checkpoint.__name__, Untrusted, _edit_checkpoint))


@refused(Corrupt)
def the_checkpoint_bears_no_signature(w: World) -> None:
    text = w.log("checkpoint").read_text()
    w.overwrite(w.log("checkpoint"), text.partition("—")[0].encode())
    w.graft()


@refused(Untrusted)
def the_log_is_mallorys_own(w: World) -> None:
    a.make_store(w.folder / "theirs", label="mallory")
    shutil.rmtree(w.store.root / "log")
    shutil.copytree(w.folder / "theirs/.kvg/log", w.store.root / "log")
    w.graft()


@refused(Untrusted)
def the_verifier_line_is_another(w: World) -> None:
    line = encode_verifier(w.store.log.origin, MALLORY.public)
    w.overwrite(w.log("verifier"), f"{line}\n".encode())
    w.graft()


@refused(Untrusted)
def the_pinned_verifier_is_another(w: World) -> None:
    line = encode_verifier(w.store.log.origin, MALLORY.public)
    w.store.config.set("store.log", line)
    w.overwrite(w.log("verifier"), f"{line}\n".encode())
    w.graft()


@refused(Untrusted)
def the_log_goes_back_and_the_ref_to_an_older_artifact(w: World) -> None:
    shutil.copytree(w.store.root, w.folder / "older")
    w.store.set_ref("demo", w.other.digest)
    w.graft()
    shutil.rmtree(w.store.root)
    shutil.move(w.folder / "older", w.store.root)
    w.graft()


@refused(Untrusted)
def the_log_is_forked_by_its_own_key(w: World) -> None:
    shutil.copytree(w.store.root, w.folder / "fork")
    fork = Store.open(w.folder / "fork")
    key = w.store.log_key()
    w.store.set_ref("demo", w.other.digest)
    w.graft()
    for n in range(3):
        fork.publish([RefMove(f"x{n}", w.made.digest)], key=key)
    shutil.rmtree(w.store.root)
    shutil.move(w.folder / "fork", w.store.root)
    w.graft()


@refused(Untrusted)
def the_logs_old_key_signs_after_it_was_replaced(w: World) -> None:
    from kvg.store.rekey import rekey

    old = w.store.log_key()
    rekey(w.store, now=a.NOW)
    w.again().publish([RefMove("x", w.made.digest)], key=old)


@refused(Untrusted)
def a_stranger_appends_to_the_log(w: World) -> None:
    w.store.publish([RefMove("x", w.made.digest)], key=MALLORY)


@refused(Corrupt)
def a_tile_of_hashes_is_cut_short(w: World) -> None:
    (path,) = (p for p in w.log("tile/0").rglob("*") if p.name == str(w.store.log.size))
    w.overwrite(path, path.read_bytes()[:-32])
    w.graft()


@refused(Corrupt)
def an_entry_of_the_log_is_edited(w: World) -> None:
    for path in w.log("tile/entries").rglob("*"):
        if path.is_file():
            w.overwrite(path, path.read_bytes().replace(b'"demo"', b'"demO"'))
    shutil.rmtree(w.store.root / "index.lmdb")
    w.graft()


@refused(Corrupt)
def the_log_holds_an_envelope_for_another_artifact(w: World) -> None:
    receipt = w.store.log.receipt(1)
    parse_receipt(receipt.replace(b"index 1\n", b"index 99\n"), what="it")


@refused(Untrusted)
def a_receipt_is_shown_for_another_entry(w: World) -> None:
    log = w.store.log
    receipt = parse_receipt(log.receipt(1), what="it")
    entry = next(iter(log.read(2, 3)))
    check_receipt(receipt, entry, origin=log.origin, verifier=log.verifier, what="it")


@refused(Untrusted)
def a_receipt_is_of_another_log(w: World) -> None:
    log = w.store.log
    receipt = parse_receipt(log.receipt(1), what="it")
    entry = next(iter(log.read(1, 2)))
    check_receipt(receipt, entry, origin="kvg-other", verifier=log.verifier, what="it")


@refused(Untrusted)
def a_receipt_is_signed_by_a_stranger(w: World) -> None:
    log = w.store.log
    receipt = parse_receipt(log.receipt(1), what="it")
    entry = next(iter(log.read(1, 2)))
    check_receipt(receipt, entry, origin=log.origin, verifier=MALLORY.public, what="it")


@refused(Untrusted)
def a_revoked_publisher_vouches_for_its_log(w: World) -> None:
    """Whose key is revoked signs on, and its log with it: a ref that came after counts no more."""
    from tests.exchange.conftest import Person

    share = w.folder / "share"
    alice, bob = (Person.make(w.folder / name) for name in ("theirs", "ours"))
    alice.init().add(share).deposit("demo")
    alice.push()
    bob.init().add(share)
    bob.pull(trust=[alice.key.public.keyid])
    kept = bob.store.peers.log(alice.store.log.origin)
    assert kept is not None and bob.store.ref("demo") is not None
    place = Revocation(alice.key.public.keyid, kept.origin, kept.size)
    bob.store.set_trust(sign_trust(bob.store.trust.with_revocation(place), [bob.key]))
    alice.deposit("demo", range(50))
    alice.push()
    (finding,) = bob.pull().findings
    assert finding.code == Untrusted.code and "revoked" in finding.message
    raise Untrusted(finding.message)


@refused(Untrusted)
def the_logs_replaced_key_signs_a_checkpoint(w: World) -> None:
    """Who kept the key that was replaced puts a checkpoint of its own in the folder."""
    from kvg.log.checkpoint import sign_checkpoint
    from kvg.store.rekey import rekey

    old = w.store.log_key()
    rekey(w.store, now=a.NOW)
    w.overwrite(w.log("checkpoint"), sign_checkpoint(w.again().log.checkpoint, old))
    w.graft()


@refused(Untrusted)
def a_ref_points_back_to_an_older_artifact_on_a_remote(w: World) -> None:
    """Both are signed; the pointer alone is older."""
    from tests.exchange.conftest import Person

    share = w.folder / "share"
    alice, bob = (Person.make(w.folder / name) for name in ("theirs", "ours"))
    alice.init().add(share).deposit("demo")
    alice.push()
    older = (share / "refs/demo").read_bytes()
    alice.deposit("demo", range(50))
    alice.push()
    bob.init().add(share)
    assert not bob.pull(trust=[alice.key.public.keyid]).findings
    (share / "refs/demo").write_bytes(older)
    (finding,) = bob.pull().findings
    assert finding.code == Untrusted.code and "demo" in finding.message
    raise Untrusted(finding.message)
