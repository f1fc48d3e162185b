"""Blocks computed side by side: the same artifacts and the same log as one after the other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from kvg.errors import GateFailed, Interrupted
from kvg.flow.context import abreast, create
from kvg.flow.context.abreast import MOST_LANES, Lanes, lanes_for
from kvg.flow.context.create import ContextRequest, create_context
from kvg.log.entry import AttestationEntry, parse_entry
from kvg.model.threads import is_divisible
from tests import models

BLOCK = 150
JOBS = 4

pytestmark = pytest.mark.skipif(not is_divisible(), reason="no OpenMP runtime that can be told")


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    """Files of one block each: new ones, equal ones, and some that begin alike."""
    prose = models.real_text()
    parts = {f"{n:02}.md": prose[500 * n : 500 * n + 330] for n in range(8)}
    return parts | {"20.md": parts["03.md"], "21.md": parts["03.md"], "22.md": parts["07.md"]}


def write(user: models.User, texts: dict[str, str]) -> None:
    (user.folder / "docs").mkdir()
    for name, text in texts.items():
        (user.folder / "docs" / name).write_text(text)


def run(user: models.User) -> Iterator[Any]:
    request = ContextRequest("docs", (Path("docs"),), block_tokens=BLOCK, page_tokens=32)
    return create_context(user.store, user.settings, request)


def subjects(user: models.User) -> list[str]:
    entries = (
        parse_entry(item, what="log") for item in user.store.log.read(0, user.store.log.size)
    )
    return [entry.subject for entry in entries if isinstance(entry, AttestationEntry)]


def test_the_same_blocks_and_the_same_log(
    tmp_path: Path, tiny: dict[str, Path], texts: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: set[str] = set()
    made = create.build_from

    def build(*args: Any) -> Any:
        seen.add(threading.current_thread().name)
        assert "block" not in threading.current_thread().name or torch.get_num_threads() == 1
        return made(*args)

    monkeypatch.setattr(create, "build_from", build)
    found = []
    for jobs in (1, JOBS):
        user = models.User.make(tmp_path / str(jobs)).with_settings(jobs=jobs)
        user.add("tiny", tiny["llama"])
        write(user, texts)
        *blocks, last = run(user)
        told = [(b.ref, b.digest, b.start, b.tokens, b.tokens_computed) for b in blocks]
        found.append((told, subjects(user), last.computed, last.tokens_computed))
    assert found[0] == found[1]
    assert any("block" in name for name in seen) and len(found[0][0]) > 6


@pytest.mark.parametrize("way", ["interrupt", "close", "gate"])
def test_what_ends_it_ends_all_of_it(
    user: models.User,
    tiny: dict[str, Path],
    texts: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    way: str,
) -> None:
    write(user, texts)
    abroad = user.with_settings(jobs=JOBS)
    session = models.session(tiny["llama"])
    before = session.before_pass
    records = run(abroad)
    first = next(records)
    if way == "close":
        records.close()
    else:
        error: type[BaseException] = KeyboardInterrupt if way == "interrupt" else GateFailed

        def fail(*args: Any) -> None:
            raise error("no") if way == "gate" else error

        with monkeypatch.context() as patch:
            patch.setattr(create, "_sign" if way == "interrupt" else "prove_itself", fail)
            with pytest.raises(error):
                list(records)
    assert session.before_pass == before
    assert not any(t.name.startswith("block") for t in threading.enumerate())
    assert user.store.refs() == {}
    *blocks, last = run(abroad)
    assert blocks[0].digest == first.digest and blocks[0].tokens_computed == 0
    assert len(user.store.refs()) == len(blocks) == last.blocks


def test_what_is_under_way_ends_before_its_next_pass(tiny: dict[str, Path]) -> None:
    session = models.session(tiny["llama"])
    begun, go_on = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        go_on.wait(10)
        session.prefill(session.slot(), list(range(3, 40)), [36])

    with Lanes(session, 2) as lanes:
        made = lanes.submit(work)
        assert begun.wait(10)
        threading.Timer(0.2, go_on.set).start()
    with pytest.raises(Interrupted):
        made.result()


def test_how_many_at_a_time(
    user: models.User, tiny: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = models.session(tiny["llama"])
    many = user.with_settings(jobs=64).settings
    assert lanes_for(user.settings, session, 100, 50) == 1
    assert lanes_for(many, session, 100, 50) == MOST_LANES
    assert lanes_for(many, session, 100, 3) == 3
    assert lanes_for(many, session, 100, 0) == 1
    monkeypatch.setattr(abreast, "_free_bytes", lambda: 1 << 20)
    assert lanes_for(many, session, 2000, 50) == 1
