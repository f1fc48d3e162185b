"""Lock files: CI gets what was written down, or is told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kvg.errors import Corrupt, Incompatible, NotFound
from kvg.flow.lock import lock
from kvg.flow.pull import pull
from kvg.flow.verify import verify
from kvg.store import ANY, RefMove
from kvg.store.lockfile import encode_lock, read_lock
from tests.exchange.conftest import Outcome, Person

FILE = Path("kvg.lock")


def locked(person: Person, *refs: str) -> bytes:
    list(lock(person.store, person.settings, FILE, refs))
    return (person.folder / FILE).read_bytes()


def test_lock_is_the_same_for_the_same_refs(alice: Person) -> None:
    a, b = alice.deposit("docs/a"), alice.deposit("b", range(40))
    data = locked(alice)
    assert data.decode() == (
        f'# made by kvg lock\nversion = 1\n\n[refs]\n"b" = "{b}"\n"docs/a" = "{a}"\n'
    )
    assert locked(alice) == data
    newer = alice.deposit("b", range(41))
    assert read_lock(alice.folder / FILE)["b"] == b
    locked(alice, "b")
    assert read_lock(alice.folder / FILE) == {"docs/a": a, "b": newer}
    with pytest.raises(NotFound):
        locked(alice, "nothing")


def test_a_file_that_cannot_be_read_is_written_anew(alice: Person) -> None:
    digest = alice.deposit("demo")
    (alice.folder / FILE).write_text("x")
    with pytest.raises(Corrupt):
        list(lock(alice.store, alice.settings, Path(FILE), ["demo"]))  # the other lines stay
    list(lock(alice.store, alice.settings, Path(FILE), []))
    assert read_lock(alice.folder / FILE) == {"demo": digest}


def test_a_line_that_goes_is_told(alice: Person) -> None:
    alice.deposit("a")
    digest = alice.deposit("b", range(40))
    locked(alice)
    alice.store.publish([RefMove("b", None, ANY)])
    told = {entry.ref: entry for entry in lock(alice.store, alice.settings, FILE, ())}
    assert (told["b"].digest, told["b"].previous) == (None, digest)
    assert set(read_lock(alice.folder / FILE)) == {"a"}


def test_nothing_is_held_to_a_lock_that_names_nothing(alice: Person, share: Path) -> None:
    alice.deposit("a")
    alice.push()
    (alice.folder / FILE).write_bytes(encode_lock({}))
    with pytest.raises(NotFound, match="names no ref"):
        list(verify(alice.store, alice.settings, lock=FILE))
    with pytest.raises(NotFound, match="names no ref"):
        list(pull(alice.store, alice.settings, lock=FILE))
    (alice.folder / FILE).unlink()
    os.mkfifo(alice.folder / FILE)
    with pytest.raises(Corrupt, match="not a plain file"):
        list(verify(alice.store, alice.settings, lock=FILE))


def test_verify_holds_refs_to_the_lock(alice: Person) -> None:
    alice.deposit("a")
    first = alice.deposit("b", range(40))
    locked(alice)
    *findings, summary = verify(alice.store, alice.settings, lock=FILE)
    assert not findings and summary.artifacts == 2
    alice.deposit("b", range(41))
    *findings, summary = verify(alice.store, alice.settings, lock=FILE)
    assert [found.code for found in findings] == [4] and first[:13] in findings[0].message
    alice.store.publish([RefMove("b", None, ANY)])
    *findings, summary = verify(alice.store, alice.settings, lock=FILE)
    assert [found.code for found in findings] == [3] and summary.artifacts == 1


def test_pull_takes_what_the_lock_says(alice: Person, bob: Person, share: Path) -> None:
    first = alice.deposit("demo")
    alice.push()
    data = locked(alice)
    alice.deposit("demo", range(40))
    alice.deposit("other", range(41))
    alice.push()
    bob.init().add(share)
    (bob.folder / FILE).write_bytes(data)
    keys = (alice.key.public.keyid,)
    taken = Outcome(tuple(pull(bob.store, bob.settings, trust=keys, lock=FILE)))
    assert taken.states == {"demo": "new"}
    assert bob.store.refs() == {"demo": first}
    assert not [f for f in verify(bob.store, bob.settings, lock=FILE) if f.exit_code]
    (bob.folder / FILE).write_bytes(encode_lock({"demo": alice.store.ref("other")}))
    refused = Outcome(tuple(pull(bob.store, bob.settings, lock=FILE)))
    assert refused.codes == [4] and bob.store.ref("demo") == first


def test_what_the_lock_does_not_name_is_not_as_locked(
    alice: Person, bob: Person, share: Path
) -> None:
    """Asked for by name, it is refused: nothing says what it has to stand for."""
    first, second = alice.deposit("a"), alice.deposit("b", range(40))
    alice.push()
    locked(alice, "a")

    def codes(*targets: str) -> list[int]:
        *findings, _ = verify(alice.store, alice.settings, targets, lock=FILE)
        return [found.code for found in findings]

    assert codes("a") == codes("a@{0}") == codes(first) == []
    assert codes("b") == codes("a", "b") == codes("b@{0}") == codes(second) == [3]
    alice.store.set_ref("c", first)
    assert codes("c") == [3]
    bob.init().add(share)
    (bob.folder / FILE).write_bytes((alice.folder / FILE).read_bytes())
    keys = (alice.key.public.keyid,)
    taken = Outcome(tuple(pull(bob.store, bob.settings, None, ("a", "b"), trust=keys, lock=FILE)))
    assert taken.codes == [3] and taken.states == {"a": "new"}
    assert bob.store.own_refs() == {"a": first}


def test_hints_for_refs_that_no_lock_file_names(alice: Person, bob: Person, share: Path) -> None:
    from kvg.flow.forget import forget

    digest = alice.deposit("demo")
    alice.push()
    bob.clone(share, alice)
    locked(bob)
    (found, *_) = verify(bob.store, bob.settings, ("origin/demo",), lock=FILE)
    assert found.hint == "kvg tag OWN origin/demo, then kvg lock OWN"
    digest_of_another = bob.deposit("another", range(40))
    (found, *_) = verify(bob.store, bob.settings, (digest_of_another,), lock=FILE)
    assert found.hint == f"kvg tag OWN {digest_of_another}, then kvg lock OWN"
    list(forget(bob.store, bob.settings, ["demo"]))
    (found, *_) = verify(bob.store, bob.settings, lock=FILE)
    assert digest[:13] in found.message and "kvg forget" in found.hint
    refused = Outcome(tuple(pull(bob.store, bob.settings, lock=FILE)))
    assert refused.codes == [3] and "kvg forget" in refused.findings[0].message


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("version = 2\n[refs]\n", Incompatible),
        ("version = true\n[refs]\n", Incompatible),
        ("version = 1.0\n[refs]\n", Corrupt),
        ("[refs]\n", Incompatible),
        ("version = 1\nmore = 1\n[refs]\n", Corrupt),
        ('version = 1\n[refs]\n"../x" = "sha256:00"\n', Corrupt),
        ('version = 1\n[refs]\nx = "sha256:00"\n', Corrupt),
        ("version = 1\nrefs = 3\n", Corrupt),
        ("version = [", Corrupt),
    ],
)
def test_other_files_are_refused(tmp_path: Path, text: str, kind: type[Exception]) -> None:
    path = tmp_path / FILE
    path.write_text(text)
    with pytest.raises(kind):
        read_lock(path)
