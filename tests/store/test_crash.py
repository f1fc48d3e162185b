"""Crashes that the matrix does not go through: of making a store, and beside another writer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvg import durable
from kvg.errors import KvgError, NoSpace
from kvg.store import Store
from kvg.verify import verify_artifact
from tests import artifacts as a
from tests.store.faults import Fault, die, full, hooked, quick_folder


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with quick_folder() as folder:
        yield folder


def test_init_killed_at_every_step(tmp_path: Path) -> None:
    at = 0
    while True:
        at += 1
        folder = tmp_path / str(at)
        folder.mkdir()
        pid = os.fork()
        if pid == 0:
            durable.set_hook(Fault(at, die))
            a.make_store(folder)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        store, key = a.make_store(folder)
        assert store.trust.version == 1
        made = a.deposit(store, key)
        assert verify_artifact(store, made.digest).signers == (key.public.keyid,)
        store.close()
        if code == 0:
            break
    assert at > 30


def test_field_s03_a_killed_writer_leaves_others_alone(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    a.deposit(store, key)
    with store.pending() as pending:
        kept = pending.put(b"still at work").digest
        pid = os.fork()
        if pid == 0:
            durable.set_hook(Fault(20, die))
            other = Store.open(tmp_path, keyring=a.make_keyring(tmp_path))
            a.deposit(other, key, ref="second", ids=range(5, 30))
            os._exit(0)
        os.waitpid(pid, 0)
        assert kept in store.roots()
    assert store.objects.has(kept)


def test_an_error_says_what_to_do(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    with hooked(Fault(3, full)), pytest.raises(KvgError) as error:
        a.deposit(store, key)
    assert error.value.code == NoSpace.code and error.value.hint
