"""``kvg prereg``: expected digests, logged before the run, and every way a run can differ."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from kvg import canon
from kvg.digest import sha256
from kvg.errors import Corrupt, Inexact, NotFound
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
    (expected,) = made.artifacts
    put.store.set_ref("b", None)
    gc(put.store, put.settings)
    assert put.store.objects.has(made.digest)
    assert [run.exit_code for run in run_prereg(put.store, put.settings, made.digest)][-1] == 0
    assert put.store.is_complete(expected.manifest)
    assert not [found for found in fsck(put.store, put.settings) if isinstance(found, Finding)]


@pytest.mark.parametrize("lost", [False, True])
def test_a_damaged_artifact_is_not_committed_to(put: models.User, lost: bool) -> None:
    """A page that the last token hardly looks at, or one that is gone: nothing is logged."""
    digest = put.store.resolve("a").digest
    page = put.store.manifest(digest).pages[0]
    path = put.store.objects.stored_path(page.digest)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.chmod(0o600)
    if lost:
        path.unlink()
    else:
        path.write_bytes(data)
    size = put.store.log.size
    with pytest.raises(Corrupt, match=page.digest[:13]):
        create_prereg(put.store, put.settings, PreregRequest(("b", "a"), 1, Path("p.json")))
    assert put.store.log.size == size
    assert not (put.folder / "p.json").exists()


def test_pages_that_are_signed_but_not_true_are_not_committed_to(
    put: models.User, tiny: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from kvg.model import state

    stock = state.capture_page

    def poisoned(*args: object, **kwargs: object) -> bytearray:
        raw = stock(*args, **kwargs)  # type: ignore[arg-type]
        raw[-1] ^= 0x01
        return raw

    with monkeypatch.context() as patch:
        patch.setattr(state, "capture_page", poisoned)
        patch.setattr("kvg.flow.deposit.prove_itself", lambda *_, **__: ())  # which would have told
        text = models.text_of(tiny["llama"], 30)
        deposit(put.store, put.settings, DepositRequest("poisoned", text=text))
    size = put.store.log.size
    with pytest.raises(Inexact, match="1 of its 1 pages"):
        create_prereg(put.store, put.settings, PreregRequest(("poisoned",), 1))
    assert put.store.log.size == size


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


OTHER = sha256(b"other")
SCHEDULE = {"page_tokens": 256, "attention": "sdpa", "threads": 1}
FALSE = [
    ("tokens.digest", OTHER, 11, "token ids"),
    ("tokens.count", 41, 11, "tokens"),
    ("pages", [], 11, "pages"),
    ("pages.0", OTHER, 11, "page 1"),
    ("samples.0.prompt", OTHER, 11, "prompt"),
    ("samples.1.prompt", OTHER, 11, "prompt"),
    ("samples.0.count", 2, 11, "tokens"),
    ("model.fingerprint", OTHER, 7, "model"),
    ("model.architecture", "OtherForCausalLM", 7, "model"),
    ("model.dtype", "F32", 7, "model"),
    ("engine.fingerprint", OTHER, 7, "engine"),
    ("engine", {"fingerprint": OTHER, "reference": "scheduled", "schedule": SCHEDULE}, 7, "engine"),
]


def changed(value: Any, path: str, new: object) -> Any:
    """A copy of ``value`` with what lies at ``path`` replaced."""
    key, _, rest = path.partition(".")
    copy = value.copy()
    at: Any = int(key) if isinstance(value, list) else key
    assert not isinstance(value, dict) or key in value
    copy[at] = changed(value[at], rest, new) if rest else new
    return copy


def leaves(value: Any, path: str = "") -> set[str]:
    """The paths of all that is not an object or a list, numbers of list items left out."""
    if isinstance(value, dict):
        inner = [leaves(item, f"{path}.{key}") for key, item in value.items()]
    elif isinstance(value, list):
        inner = [leaves(item, path) for item in value]
    else:
        return {path.lstrip(".")}
    return set().union(*inner)


def test_no_field_may_say_what_is_false(put: models.User, kvg: Callable[..., Any]) -> None:
    create_prereg(put.store, put.settings, PreregRequest(("b",), 2, Path("p.json")))
    value = json.loads((put.folder / "p.json").read_bytes())
    run = value["runs"][0]
    for path, new, code, word in FALSE:
        bad = canon.encode({**value, "runs": [changed(run, path, new)]})
        (put.folder / "bad.json").write_bytes(bad)
        found = kvg("prereg", "run", "bad.json")
        assert found.code == code, (path, found)
        assert word in found.err and "hint:" in found.err, (path, found.err)
        assert found.out == "", path
    tried = {"".join(c for c in path if not c.isdigit()).replace("..", ".") for path, *_ in FALSE}
    tried |= {"manifest", "samples.logits", "engine.reference", "engine.schedule"}
    assert leaves(run) <= {path.strip(".") for path in tried}


def test_another_artifact_than_the_one_that_was_run(put: models.User) -> None:
    create_prereg(put.store, put.settings, PreregRequest(("b",), 1, Path("p.json")))
    value = json.loads((put.folder / "p.json").read_bytes())
    other = changed(value["runs"][0], "manifest", put.store.resolve("a").digest)
    (put.folder / "bad.json").write_bytes(canon.encode({**value, "runs": [other]}))
    with pytest.raises(Inexact, match="token ids"):
        list(run_prereg(put.store, put.settings, "bad.json"))


def test_one_that_is_not_in_the_log_says_so_and_can_be_refused(
    put: models.User, kvg: Callable[..., Any], tmp_path: Path
) -> None:
    made = create_prereg(put.store, put.settings, PreregRequest(("b",), 2, Path("p.json")))
    assert kvg("prereg", "run", "p.json", "--logged").code == 0
    assert kvg("prereg", "run", made.digest, "--logged").code == 0
    value = json.loads((put.folder / "p.json").read_bytes())
    value["runs"][0]["samples"] = value["runs"][0]["samples"][:1]
    (put.folder / "q.json").write_bytes(canon.encode(value))
    found = kvg("prereg", "run", "q.json", "-q")
    assert (found.code, "1 of 1 as expected" in found.out) == (0, True)
    assert "not in this store's log" in found.out and "not in this store's log" in found.err
    found = kvg("prereg", "run", "q.json", "--logged")
    assert (found.code, found.out) == (6, "")
    assert "not in this store's log" in found.err and "hint:" in found.err


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


def test_its_records_are_json(put: models.User, kvg: Callable[..., Any]) -> None:
    made = kvg("prereg", "create", "b", "--samples", "1", "--json")
    assert made.code == 0, made.err
    record = json.loads(made.out)
    (artifact,) = record["artifacts"]
    assert (record["type"], artifact["count"], len(artifact["logits"])) == (
        "preregistration",
        40,
        1,
    )
    shown = kvg("prereg", "show", record["digest"], "--json")
    assert json.loads(shown.out) == record
    ran = kvg("prereg", "run", record["digest"], "--json")
    sample, summary = map(json.loads, ran.out.splitlines())
    assert ran.code == 0 and sample["equal"] is True and summary["equal"] == 1


@pytest.mark.slow
def test_two_classes_of_machine_meet_their_own(tmp_path: Path, tiny: dict[str, Path]) -> None:
    """bench/prereg_classes.py on a tiny model: each meets its own, none passes for the other."""
    if torch.backends.cpu.get_cpu_capability() in ("DEFAULT", "AVX2"):
        pytest.skip("this machine has one class: it cannot be told to compute as a lesser one")
    bench = models.REPO / "bench" / "prereg_classes.py"
    args = [str(tiny["llama"]), "--samples", "2", "--tokens", "100"]
    done = subprocess.run(
        [sys.executable, str(bench), *args],
        env=models.program_env(tmp_path, PYTHONPATH=os.pathsep.join(sys.path)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    classes = {item["class"]: item for item in found if item["type"] == "class"}
    assert {item["capability"] for item in classes.values()} == {"AVX2", "AVX512"}
    assert [(i["class"], i["exit"]) for i in found if i["type"] == "own"] == [
        ("native", 0),
        ("avx2", 0),
    ]
    engines = {name: item["prereg"]["artifacts"][0]["engine"] for name, item in classes.items()}
    samples = [item for item in found if item["type"] == "prereg-sample"]
    assert len(samples) >= 4 and all(item["equal"] for item in samples)
    foreign = [item["exit"] for item in found if item["type"] == "foreign"]
    assert foreign == ([7, 7] if engines["native"] != engines["avx2"] else [0, 0])
