"""The crash matrix: every verb that changes a store, every step it takes, every kind of fault.

After each: ``fsck`` finds nothing, everything that was there verifies byte for byte, what was
interrupted is absent or whole, and doing it again brings it to its end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kvg.digest import Digest
from kvg.store import Store
from kvg.store.forget import plan_forget, remove_for_good
from kvg.store.quota import QUOTA_KEY
from kvg.store.sweep import sweep
from kvg.store.traces import take_traces
from kvg.store.wanted import keep_wanted, mark_of, read_wanted
from kvg.trust import sign_trust
from kvg.verify import verify_artifact
from kvg.verify.fsck import FsckSummary, fsck
from tests import artifacts as a
from tests.store.faults import (
    KINDS,
    Judged,
    Kind,
    Recorder,
    copy_tree,
    hooked,
    quick_folder,
    run,
    struck,
)

FIRST, OLD, GONE, NEW = range(5, 32), range(40, 55), range(5, 26), range(5, 30)
BOB = a.key_of("bob")


def open_store(folder: Path) -> Store:
    return Store.open(folder, lock_wait=5, keyring=a.make_keyring(folder))


def deposit(store: Store) -> None:
    a.deposit(store, a.key_of("alice"), ref="new", ids=NEW)


def tag(store: Store) -> None:
    store.set_ref("new", store.refs()["demo"], expect=store.ref("new"))


def collect(store: Store) -> None:
    sweep(store, batch=2)


def forget(store: Store) -> None:
    """What is to be looked for is kept from before the removal until nothing is found."""
    digest = a.build(GONE)[0].digest
    plan = plan_forget(store, digest)
    marks = map(mark_of, take_traces(store, plan.content))
    keep_wanted(store, digest, (*marks, *read_wanted(store, digest)))
    remove_for_good(store, plan, now=a.NOW)
    keep_wanted(store, digest, ())


def reindex(store: Store) -> None:
    store.reindex()
    store.index.rebuild(anew=True)


def trust(store: Store) -> None:
    if store.trust.find(BOB.public.keyid) is None:
        new = store.trust.with_key(BOB.public, ["verifier"])
        store.set_trust(sign_trust(new, [a.key_of("alice")]))


def pin(store: Store) -> None:
    store.set_pin(store.refs()["demo"], True)


def quota(store: Store) -> None:
    with store.lock.exclusive():
        store.config.set(QUOTA_KEY, 1 << 30)
        store.quota.recount()
    with store.pending() as pending:
        pending.put(b"counted")
    store.set_ref("new", store.refs()["demo"])


def repair(store: Store) -> None:
    """Without a fault to repair it changes nothing; so it is given one of its own."""
    stray = store.objects.folder / "stray"
    if not stray.exists() and not (store.root / "lost-found").exists():
        stray.write_bytes(b"x")
    list(fsck(store, repair=True))


def is_named(store: Store) -> bool:
    return "new" in store.refs()


def is_collected(store: Store) -> bool:
    return not store.objects.has(a.build(OLD)[0].digest)


def is_forgotten(store: Store) -> bool:
    digest = a.build(GONE)[0].digest
    is_gone = digest in store.forgotten() and not store.objects.has(digest)
    return is_gone and not read_wanted(store, digest)


def is_trusted(store: Store) -> bool:
    return store.trust.find(BOB.public.keyid) is not None


@dataclass(frozen=True)
class Verb:
    """``done``: whether it has come to its end."""

    work: Callable[[Store], None]
    done: Callable[[Store], bool]

    @property
    def name(self) -> str:
        return self.work.__name__


VERBS = (
    Verb(deposit, is_named),
    Verb(tag, is_named),
    Verb(collect, is_collected),
    Verb(forget, is_forgotten),
    Verb(reindex, lambda store: store.index.differences() == ()),
    Verb(trust, is_trusted),
    Verb(pin, lambda store: store.refs()["demo"] in store.pins()),
    Verb(quota, is_named),
    Verb(repair, lambda store: not (store.objects.folder / "stray").exists()),
)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand still, so that the same fault leaves the same bytes."""
    monkeypatch.setattr("kvg.store.store._seconds", lambda now: a.NOW if now is None else now)


@pytest.fixture(scope="module")
def base() -> Iterator[Path]:
    """A store with an artifact, one that no ref names, and one that shares pages with the first."""
    with quick_folder() as folder:
        store, key = a.make_store(folder / "s")
        a.deposit(store, key, ref="demo", ids=FIRST)
        a.deposit(store, key, ref="old", ids=OLD)
        a.deposit(store, key, ref="gone", ids=GONE)
        store.set_ref("old", None)
        (store.staging / "partial.1.1.dead").write_bytes(b"half")
        (store.staging / "index.1.1.dead").mkdir()
        (store.staging / "index.1.1.dead" / "data.mdb").write_bytes(b"old")
        (store.staging / "pending" / "roots.1.1.dead").write_bytes(b"")
        store.close()
        yield folder / "s"


def copied(base: Path, folder: Path) -> Path:
    copy_tree(base, folder / "s")
    return folder / "s"


def check_sound(store: Store, verb: Verb, where: str) -> None:
    """Nothing is wrong, and every name that stands stands for a whole artifact."""
    *findings, summary = fsck(store)
    gone = a.build(GONE)[0].digest
    assert isinstance(summary, FsckSummary)
    assert (gone in summary.to_forget) is bool(read_wanted(store, gone)), where
    if verb.work is repair:
        findings = [found for found in findings if found.object != "objects/stray"]
    assert findings == [], where
    refs = store.refs()
    wanted = {"demo", "gone"} - ({"gone"} if verb.work is forget else set())
    assert wanted <= set(refs) <= {"demo", "gone", "new"}, where
    for digest in set(refs.values()):
        check_whole(store, digest)


def check_whole(store: Store, digest: Digest) -> None:
    artifact = verify_artifact(store, digest)
    for page in artifact.manifest.pages:
        artifact.read_page(page)


def steps_of(verb: Verb, base: Path, folder: Path) -> list[str]:
    store = open_store(copied(base, folder))
    recorder = Recorder([])
    with hooked(recorder):
        verb.work(store)
    assert verb.done(store)
    check_sound(store, verb, verb.name)
    store.close()
    return recorder.names


def strike(verb: Verb, kind: Kind, at: int, folder: Path, judged: Judged) -> None:
    where = f"{verb.name}: {kind.name} at step {at}"

    def work() -> None:
        verb.work(open_store(folder))

    ended = run(work, kind, at)
    if not judged.is_new(ended, folder):
        return
    store = open_store(folder)
    check_sound(store, verb, where)
    assert not ended or verb.done(store), where
    verb.work(store)
    assert verb.done(store), where
    sweep(store)
    assert [name for name in store.staging.iterdir() if name.name != "pending"] == [], where
    assert list((store.staging / "pending").iterdir()) == [], where
    check_whole(store, store.refs()["demo"])
    store.close()


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_every_fault_at_every_step(
    base: Path, verb: Verb, record_property: Callable[[str, object], None]
) -> None:
    with quick_folder() as folder:
        names = steps_of(verb, base, folder)
        points, judged = Counter[str](), Judged()
        for kind in KINDS:
            for at, name in enumerate(names, 1):
                if kind.steps and name not in kind.steps:
                    continue
                strike(verb, kind, at, copied(base, folder), judged)
                points[kind.name] += 1
    assert points.total() >= 4 * len(names) > 0
    struck(record_property, "crash matrix", verb.name, len(names), len(judged), points)
