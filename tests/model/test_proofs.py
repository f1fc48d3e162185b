"""What a self-check remembers: used for just what it proved, and never believed blindly."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kvg import canon
from kvg.digest import sha256
from kvg.errors import Incompatible
from kvg.flow.deposit import deposit
from kvg.flow.requests import DepositRequest
from kvg.model import invariant, menus, opening, proofs, tiling
from kvg.model.invariant import TileMenu
from kvg.model.loader import LoadedModel
from kvg.model.proofs import ProofCache
from kvg.model.session import Session
from kvg.verify import verify_artifact
from tests import models
from tests.model.test_mutations import in_halves

Patch = pytest.MonkeyPatch
TILE = 64
"""The one that is made inexact here."""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    with models.threads(1):
        yield


@pytest.fixture
def model(tiny: dict[str, Path]) -> LoadedModel:
    return models.load(tiny["gemma3"])


@pytest.fixture
def cache(tmp_path: Path) -> ProofCache:
    return ProofCache(tmp_path / "self-check", ())


def opened(model: LoadedModel, cache: ProofCache) -> Session:
    return opening.session_of(model, schedule=None, proofs=cache)


def remembered(session: Session) -> bool:
    assert session.self_check is not None
    return session.self_check.is_remembered


def record(cache: ProofCache) -> Path:
    (path,) = cache.folder.iterdir()
    return path


def test_a_second_session_proves_one_shape_only(
    model: LoadedModel, cache: ProofCache, monkeypatch: Patch
) -> None:
    first = opened(model, cache)
    assert not remembered(first)
    monkeypatch.setattr(opening, "prove_splits", lambda session: pytest.fail("proved again"))
    second = opened(model, cache)
    assert remembered(second)
    assert second.self_check.menu == first.self_check.menu  # type: ignore[union-attr]
    assert second.engine == first.engine


def test_tiles_for_threads_that_came_later_are_remembered_as_tiles(
    model: LoadedModel, cache: ProofCache, monkeypatch: Patch
) -> None:
    """Not as a self-check: a session that begins with as many proves the whole model."""
    first = opened(model, cache)
    with models.threads(2):
        first.run(first.slot(), [1, 2, 3], [])
    with monkeypatch.context() as patch:
        patch.setattr(menus, "prove_tiles", lambda model: pytest.fail("proved again"))
        second = opened(model, cache)
        with models.threads(2):
            second.run(second.slot(), [1, 2, 3], [])
            assert second._menus.here() == first._menus.here()
    monkeypatch.setattr(menus, "is_still_true", lambda model, menu: False)
    third = opened(model, cache)
    proved: list[LoadedModel] = []
    monkeypatch.setattr(menus, "prove_tiles", lambda model: proved.append(model) or TileMenu())
    with models.threads(2):
        third.run(third.slot(), [1, 2, 3], [])
        assert proved == [model]
        assert not remembered(opened(model, cache))


def test_what_holds_no_more_is_not_kept(
    model: LoadedModel, cache: ProofCache, monkeypatch: Patch
) -> None:
    """A check that fails takes the record of the one that passed with it."""
    opened(model, cache)
    assert record(cache).exists()

    def refuse(_: Session) -> None:
        raise Incompatible("depends on how a text is split")

    monkeypatch.setattr(opening, "prove_splits", refuse)
    with pytest.raises(Incompatible):
        opened(model, replace(cache, is_renewed=True))
    assert list(cache.folder.iterdir()) == []


def test_changed_code_proves_itself_anew(
    model: LoadedModel, cache: ProofCache, monkeypatch: Patch
) -> None:
    opened(model, cache)
    monkeypatch.setattr(proofs, "_code", lambda: sha256(b"other sources"))
    assert not remembered(opened(model, cache))


def test_doctor_takes_nothing_from_it(model: LoadedModel, cache: ProofCache) -> None:
    opened(model, cache)
    before = record(cache).read_bytes()
    record(cache).write_bytes(b"{}")
    assert not remembered(opened(model, replace(cache, is_renewed=True)))
    assert record(cache).read_bytes() == before


def test_another_engine_shape_thread_or_machine_finds_nothing(
    model: LoadedModel,
    cache: ProofCache,
    tiny: dict[str, Path],
    tmp_path: Path,
    monkeypatch: Patch,
) -> None:
    engine = opened(model, cache).engine
    assert cache.recall(model, engine) is not None
    other = replace(engine, fingerprint="sha256:" + "ab" * 32)
    assert cache.recall(model, other) is None
    assert cache.recall(models.load(tiny["llama"]), engine) is None
    assert cache.recall(replace(model, shapes=model.shapes[:1]), engine) is None
    assert cache.recall(replace(model, dtype="F32"), engine) is None
    assert replace(cache, environment=("OMP_NUM_THREADS=1",)).recall(model, engine) is None
    with models.threads(2):
        assert cache.recall(model, engine) is None
    for change in (
        lambda p: p.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2"),
        lambda p: p.setattr(proofs, "PROCESSOR_FILE", tmp_path / "none"),
        lambda p: p.setattr(proofs.kvg_kernels, "VERSION", "other"),
        lambda p: p.setattr(proofs, "library_versions", lambda: {"torch": "other"}),
        lambda p: p.setattr(model.module.config, "rms_norm_eps", 0.5),
    ):
        with monkeypatch.context() as patch:
            change(patch)
            assert cache.recall(model, engine) is None
    assert cache.recall(model, engine) is not None


WHERE = """
import sys
from pathlib import Path
from kvg.model.loader import load_model
from kvg.model.opening import session_of
from kvg.model.proofs import ProofCache
model = load_model(Path(sys.argv[1]), dtype="BF16", device="cpu", attention="kvg_invariant")
session = session_of(model, schedule=None, proofs=ProofCache(Path(sys.argv[2]), ()))
print(session.self_check.is_remembered)
"""


@pytest.mark.slow
def test_a_second_class_of_machine_proves_for_itself(tmp_path: Path, tiny: dict[str, Path]) -> None:
    def run(**env: str) -> str:
        args = [sys.executable, "-c", WHERE, str(tiny["llama"]), str(tmp_path / "proofs")]
        done = subprocess.run(
            args,
            env=models.program_env(tmp_path, PYTHONPATH=os.pathsep.join(sys.path), **env),
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    if torch.backends.cpu.get_cpu_capability() in ("DEFAULT", "AVX2"):
        pytest.skip("this machine has one class: it cannot be told to compute as a lesser one")
    assert run() == "False"
    assert run() == "True"
    assert run(ATEN_CPU_CAPABILITY="avx2", ONEDNN_MAX_CPU_ISA="AVX2") == "False"


def test_a_damaged_record_is_none(model: LoadedModel, cache: ProofCache) -> None:
    engine = opened(model, cache).engine
    path = record(cache)
    whole = path.read_bytes()
    for at in range(0, len(whole), 7):
        spoilt = bytearray(whole)
        spoilt[at] ^= 1 << (at % 8)
        path.write_bytes(spoilt)
        assert cache.recall(model, engine) is None, at
    for data in (b"", whole[:-1], whole + b" ", b"\x00" * 40, b"[]"):
        path.write_bytes(data)
        assert cache.recall(model, engine) is None
    path.write_bytes(whole)
    assert cache.recall(model, engine) is not None


def test_a_record_that_others_can_write_is_none(model: LoadedModel, cache: ProofCache) -> None:
    engine = opened(model, cache).engine
    for path, mode in ((record(cache), 0o620), (cache.folder, 0o777)):
        before = path.stat().st_mode
        path.chmod(mode)
        assert cache.recall(model, engine) is None
        path.chmod(before)
    assert cache.recall(model, engine) is not None


def forged(cache: ProofCache, **changes: object) -> None:
    """A record of that place that says otherwise, with a sum that is right."""
    path = record(cache)
    value = dict(canon.decode(path.read_bytes(), what="record"))  # type: ignore[arg-type]
    value.pop("sum")
    value.update(changes)
    path.write_bytes(canon.encode({**value, "sum": sha256(canon.encode(value))}))


def test_a_record_that_says_impossible_things_is_none(
    model: LoadedModel, cache: ProofCache
) -> None:
    session = opened(model, cache)
    n = len(session.self_check.menu.linear)  # type: ignore[union-attr]
    for linear in ([], [[]] * n, [[1]] * n, [[16, 64]] * n, [[16]] * (n + 1), "x", None):
        forged(cache, linear=linear)
        assert cache.recall(model, session.engine) is None, linear
    forged(cache, linear=[[16]] * n)
    assert cache.recall(model, session.engine) is not None


def spoil_linear(patch: Patch) -> None:
    """Here row tiles of ``TILE`` sum K in two halves."""
    for module in (tiling, invariant):
        patch.setattr(module, "linear", in_halves(TILE))


class Kept(models.SilentReport):
    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warning(self, text: str) -> None:
        self.warnings.append(text)


def test_a_forged_tile_is_found_when_its_shape_is_drawn(
    model: LoadedModel, cache: ProofCache, monkeypatch: Patch
) -> None:
    honest = opened(model, cache).self_check.menu  # type: ignore[union-attr]
    assert all(TILE in tiles for tiles in honest.linear.values())
    spoil_linear(monkeypatch)
    for drawn in range(len(honest.linear)):
        monkeypatch.setattr(tiling.secrets, "randbelow", lambda n, drawn=drawn: drawn)
        forged(cache, linear=[list(tiles) for tiles in honest.linear.values()])
        report = Kept()
        session = opening.session_of(model, schedule=None, proofs=cache, report=report)
        assert not remembered(session)
        assert not any(TILE in tiles for tiles in session._menus.here().linear.values())
        assert len(report.warnings) == 1 and "does not hold" in report.warnings[0]
        assert cache.recall(model, session.engine) == session._menus.here()


def test_a_forged_tile_that_is_not_drawn_fails_by_the_witness(
    tiny: dict[str, Path], tmp_path: Path, monkeypatch: Patch
) -> None:
    """In fp32 at least, where no difference is rounded away; a look at long passes fails sooner."""
    monkeypatch.setattr("kvg.model.spots.CHECK_TOKENS", 1 << 20)
    model = models.load(tiny["gemma3"], "F32")
    honest = models.session(tiny["gemma3"], "F32")
    monkeypatch.setattr("kvg.model.opening.open_session", lambda *_, **__: honest)
    user = models.User.make(tmp_path / "user")
    user.add("tiny", tiny["gemma3"], "F32")
    done = deposit(
        user.store, user.settings, DepositRequest("t", text=models.text_of(tiny["gemma3"], 300))
    )
    verified = verify_artifact(user.store, done.digest)
    spoil_linear(monkeypatch)
    proved = honest._menus.here()
    menu = TileMenu(dict.fromkeys(proved.linear, (TILE, 16, 4)), proved.attention)
    session = Session(model, honest.engine, menu)
    for n, holds in ((3, True), (TILE - 1, False)):
        slot = session.slot()
        session.restore(slot, verified)
        witness, _ = session.resume(slot, verified.ids[-1], verified.ids[:n])
        if holds:
            session.check_witness(verified, verified.manifest.witnesses[-1], witness)
            continue
        with pytest.raises(Incompatible, match="witness failed"):
            session.check_witness(verified, verified.manifest.witnesses[-1], witness)
