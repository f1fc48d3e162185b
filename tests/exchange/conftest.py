"""Two people with a store each, and a folder between them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from kvg.digest import Digest
from kvg.flow.clone import clone
from kvg.flow.fetch import fetch
from kvg.flow.pull import pull
from kvg.flow.push import push
from kvg.flow.records import Finding, Record, Transfer
from kvg.flow.remote import remote_add
from kvg.flow.settings import Settings
from kvg.remote import Access
from kvg.signing.keys import PrivateKey
from kvg.store import Store
from kvg.trust import Keyring
from tests.artifacts import deposit


class Notes:
    """A report that is read."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def notice(self, text: str) -> None:
        self.told.append(text)

    warning = notice

    def task(self, label: str, total: int, unit: str) -> object:
        from kvg.report import SilentTask

        return SilentTask()


@dataclass(frozen=True)
class Outcome:
    """What an exchange yielded."""

    records: tuple[Record, ...]

    @property
    def transfer(self) -> Transfer:
        (only,) = (record for record in self.records if isinstance(record, Transfer))
        return only

    @property
    def findings(self) -> list[Finding]:
        return [record for record in self.records if isinstance(record, Finding)]

    @property
    def codes(self) -> list[int]:
        return [finding.code for finding in self.findings]

    @property
    def states(self) -> dict[str, str]:
        return {ref.ref: ref.state for ref in self.transfer.refs}


@dataclass(frozen=True)
class Person:
    """One user with a key; a store once one was made."""

    folder: Path
    settings: Settings
    report: Notes = field(default_factory=Notes)

    @classmethod
    def make(cls, folder: Path, access: Access | None = None) -> Person:
        folder.mkdir()
        notes = Notes()
        settings = Settings(
            cwd=folder,
            keys=folder / "keys",
            cache=folder / "cache",
            user_config=folder / "config.toml",
            lock_wait=30.0,
            report=notes,
            access=access or Access(),
        )
        return cls(folder, settings, notes)

    @property
    def keyring(self) -> Keyring:
        return Keyring(self.settings.keys)

    @property
    def key(self) -> PrivateKey:
        if not self.keyring.list():
            self.keyring.new("default")
        return self.keyring.load("default")

    @property
    def store(self) -> Store:
        return Store.open(self.folder / "work", keyring=self.keyring)

    def init(self) -> Person:
        store = Store.init(self.folder / "work", keyring=self.keyring)
        store.trust_first(self.key)
        return self

    def deposit(self, ref: str, ids: Iterable[int] = range(5, 32)) -> Digest:
        return deposit(self.store, self.key, ref=ref, ids=tuple(ids)).digest

    def add(self, url: str | Path, name: str = "origin") -> Person:
        remote_add(self.store, self.settings, name, str(url))
        return self

    def push(self, *refs: str, dry_run: bool = False, **more: bool) -> Outcome:
        settings = replace(self.settings, dry_run=dry_run)
        return Outcome(tuple(push(self.store, settings, None, refs, **more)))

    def pull(self, *refs: str, trust: Sequence[str] = (), dry_run: bool = False) -> Outcome:
        settings = replace(self.settings, dry_run=dry_run)
        return Outcome(tuple(pull(self.store, settings, None, refs, trust=trust)))

    def fetch(self, *refs: str) -> Outcome:
        return Outcome(tuple(fetch(self.store, self.settings, None, refs)))

    def clone(self, url: str | Path, *trust: Person, **more: object) -> Outcome:
        keyids = [person.key.public.keyid for person in trust]
        return Outcome(
            tuple(clone(self.settings, str(url), self.folder / "work", trust=keyids, **more))
        )


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the waits for a disk that loses no power here."""
    monkeypatch.setattr("os.fsync", lambda fd: None)


@pytest.fixture
def share(tmp_path: Path) -> Path:
    return tmp_path / "share"


@pytest.fixture
def alice(tmp_path: Path, share: Path) -> Person:
    return Person.make(tmp_path / "alice").init().add(share)


@pytest.fixture
def bob(tmp_path: Path) -> Person:
    """Someone without a store yet."""
    return Person.make(tmp_path / "bob")
