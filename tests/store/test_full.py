"""A full or read-only file system: what the hint says helps."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kvg import durable
from kvg.errors import KvgError, NoSpace
from kvg.store import RefMove, Store
from kvg.store.forget import plan_forget, remove_for_good
from tests import artifacts as a
from tests.store.faults import hooked


def full(name: str, path: str) -> None:
    if name == "write":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


@pytest.mark.parametrize("verb", ["rm", "unpin", "forget"])
def test_letting_go_says_how_little_it_needs(tmp_path: Path, verb: str) -> None:
    store, key = a.make_store(tmp_path)
    made = a.deposit(store, key)
    store.set_pin(made.digest, True)
    (store.root / "search").mkdir()
    size = store.log.size

    def let_go() -> None:
        if verb == "rm":
            store.publish([RefMove("demo", None)])
        elif verb == "unpin":
            store.set_pin(made.digest, False)
        else:
            remove_for_good(store, plan_forget(store, made.digest), now=a.NOW)

    with hooked(full), pytest.raises(NoSpace) as refused:
        let_go()
    assert f"remove {store.root}/search" in str(refused.value.hint)
    assert "some KiB" in str(refused.value.hint) and Store.open(store.root).log.size == size
    let_go()


def test_taking_more_says_the_usual(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    made = a.deposit(store, key)
    with hooked(full), pytest.raises(NoSpace) as refused:
        store.set_ref("more", made.digest)
    assert refused.value.hint == "free some space, then run it again"


def test_a_read_only_file_system_has_a_hint() -> None:
    with (
        pytest.raises(KvgError, match="read-only file system") as refused,
        durable.translated("/somewhere"),
    ):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))
    assert "mount it for writing" in str(refused.value.hint)
