"""``kvg prereg``: expected digests, logged before the run, and every way a run can differ."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvg import canon
from kvg.digest import sha256
from kvg.errors import Corrupt, NotFound
from kvg.flow.deposit import deposit
from kvg.flow.fsck import fsck
from kvg.flow.gc import gc
from kvg.flow.prereg import PreregRequest, create_prereg, run_prereg, show_prereg
from kvg.flow.records.findings import Finding
from kvg.flow.requests import DepositRequest
from tests import models


@pytest.fixture
def put(user: models.User, tiny: dict[str, Path]) -> models.User:
    for name, n in (("a", 300), ("b", 40)):
        text = models.text_of(tiny["llama"], n)
        deposit(user.store, user.settings, DepositRequest(name, text=text))
    return user


def test_a_run_gives_what_was_preregistered(put: models.User) -> None:
    made = create_prereg(put.store, put.settings, PreregRequest(("a", "b"), 3, Path("p.json")))
    data = (put.folder / "p.json").read_bytes()
    assert sha256(data) == made.digest
    assert made.log_index == put.store.log.size - 1
    assert [item.count for item in made.artifacts] == [300, 40]
    for target in (made.digest, made.digest[:15], "p.json"):
        assert show_prereg(put.store, put.settings, target) == made
        *samples, summary = run_prereg(put.store, put.settings, target)
        assert len(samples) == 6 and all(sample.equal for sample in samples)
        assert (summary.samples, summary.equal, summary.exit_code) == (6, 6, 0)
        assert summary.pages == summary.pages_equal == 3
        assert summary.log_index == made.log_index


def test_the_scheduled_reference_too(user: models.User, tiny: dict[str, Path]) -> None:
    text = models.text_of(tiny["llama"], 60)
    deposit(user.store, user.settings, DepositRequest("s", text=text, reference="scheduled"))
    made = create_prereg(user.store, user.settings, PreregRequest(("s",), 2))
    *_, summary = run_prereg(user.store, user.settings, made.digest)
    assert summary.exit_code == 0


def test_it_outlives_gc_and_fsck_finds_nothing(put: models.User) -> None:
    made = create_prereg(put.store, put.settings, PreregRequest(("b",), 1))
    gc(put.store, put.settings)
    assert put.store.objects.has(made.digest)
    assert not [found for found in fsck(put.store, put.settings) if isinstance(found, Finding)]


def test_another_digest_is_exit_code_11(put: models.User, kvg: Callable[..., Any]) -> None:
    create_prereg(put.store, put.settings, PreregRequest(("a",), 2, Path("p.json")))
    value = json.loads((put.folder / "p.json").read_bytes())
    value["runs"][0]["samples"][1]["logits"] = sha256(b"other")
    (put.folder / "q.json").write_bytes(canon.encode(value))
    found = kvg("prereg", "run", "q.json", "--json")
    *samples, summary = (json.loads(line) for line in found.out.splitlines())
    assert found.code == 11
    assert [sample["equal"] for sample in samples] == [True, False]
    assert (summary["equal"], summary["log_index"]) == (1, None)
    assert "not in this store's log" in found.err


def test_another_engine_is_exit_code_7(
    put: models.User,
    kvg: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    tiny: dict[str, Path],
) -> None:
    from kvg.model import opening

    create_prereg(put.store, put.settings, PreregRequest(("b",), 1, Path("p.json")))
    with monkeypatch.context() as patch:
        patch.setattr(opening, "probe", lambda *_: sha256(b"another machine"))
        other = opening.session_of(models.load(tiny["llama"]), schedule=None)
    monkeypatch.setattr("kvg.model.opening.open_session", lambda *_, **__: other)
    found = kvg("prereg", "run", "p.json")
    assert found.code == 7
    assert "computed by engine" in found.err


def test_inputs_that_contradict_the_artifact_are_corrupt(put: models.User) -> None:
    create_prereg(put.store, put.settings, PreregRequest(("b",), 1, Path("p.json")))
    value = json.loads((put.folder / "p.json").read_bytes())
    run = value["runs"][0]
    for change in (
        {"tokens": {"digest": sha256(b"x"), "count": 40}},
        {"pages": []},
        {"samples": [{**run["samples"][0], "prompt": sha256(b"x")}]},
    ):
        bad = canon.encode({**value, "runs": [{**run, **change}]})
        (put.folder / "bad.json").write_bytes(bad)
        with pytest.raises(Corrupt):
            list(run_prereg(put.store, put.settings, "bad.json"))


def test_without_the_artifact_it_cannot_run(put: models.User, tmp_path: Path) -> None:
    create_prereg(put.store, put.settings, PreregRequest(("b",), 1, Path("p.json")))
    other = models.User.make(tmp_path / "other")
    shutil.copy(put.folder / "p.json", other.folder)
    with pytest.raises(NotFound, match="not in the store"):
        list(run_prereg(other.store, other.settings, "p.json"))
    with pytest.raises(NotFound):
        show_prereg(other.store, other.settings, "sha256:abcdef")


def test_the_command_line(put: models.User, kvg: Callable[..., Any]) -> None:
    made = kvg("prereg", "create", "b", "--samples", "2", "-o", "p.json")
    assert made.code == 0 and made.out == sha256((put.folder / "p.json").read_bytes()) + "\n"
    assert kvg("prereg", "show", "p.json").out == made.out
    found = kvg("prereg", "run", made.out.strip())
    assert found.out == "2 of 2 as expected, grafted and fresh; 1 of 1 pages equal\n"
    assert kvg("prereg", "run", "b").code == 5
