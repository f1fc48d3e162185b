"""An engine that computes otherwise: nothing of its graft gets out."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from kvg.errors import Incompatible
from kvg.flow.deposit import deposit
from kvg.flow.graft import graft
from kvg.flow.logits import logits
from kvg.flow.requests import DepositRequest, GraftRequest, LogitsRequest
from kvg.model import opening, tiling
from kvg.model.session import Session
from kvg.objects.manifest import Engine
from tests import models

SECOND_CLASS = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}


def run(folder: Path, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kvg.cli.main", *args],
        cwd=folder,
        env=models.program_env(folder, **env),
        capture_output=True,
        text=True,
        check=False,
    )


SET_UP = """
import sys
from kvg.cli.main import main
sys.exit(main(["init"]) or main(["model", "add", "tiny", sys.argv[1], "--dtype", sys.argv[2]])
         or main(["deposit", "f.md", "--reference", sys.argv[3]]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "reference"), [("BF16", "invariant"), ("F32", "invariant"), ("F32", "scheduled")]
)
def test_a_second_class_of_machine(
    tmp_path: Path, tiny: dict[str, Path], dtype: str, reference: str
) -> None:
    (tmp_path / "f.md").write_text(models.text_of(tiny["llama"], 300))
    subprocess.run(
        [sys.executable, "-c", SET_UP, str(tiny["llama"]), dtype, reference],
        cwd=tmp_path,
        env=models.program_env(tmp_path),
        capture_output=True,
        check=True,
    )
    here = run(tmp_path, "graft", "f", "--prompt", " so", "--max-tokens", "8")
    there = run(tmp_path, "graft", "f", "--prompt", " so", "--max-tokens", "8", **SECOND_CLASS)
    assert here.returncode == 0
    if there.returncode == 0:  # the probe found no operator of this model that differs there
        assert there.stdout == here.stdout
        own = run(tmp_path, "logits", "f", "--prompt", " so")
        assert run(tmp_path, "logits", "f", "--prompt", " so", **SECOND_CLASS).stdout == own.stdout
        return
    assert there.returncode == 7
    assert there.stdout == ""
    assert there.stderr.startswith("error: ")
    assert "engine" in there.stderr


def changed_sdpa(*args: torch.Tensor, **kwargs: object) -> torch.Tensor:
    """Attention with another rounding."""
    wide = [item.double() if isinstance(item, torch.Tensor) else item for item in args]
    more = {
        name: item.double() if isinstance(item, torch.Tensor) else item
        for name, item in kwargs.items()
    }
    return STOCK(*wide, **more).to(args[0].dtype)  # type: ignore[arg-type]


STOCK = functional.scaled_dot_product_attention


def split_linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, **_: object
) -> torch.Tensor:
    """A linear layer that adds up two halves of K."""
    half = x.shape[-1] // 2
    found = x[..., :half] @ weight[:, :half].T + x[..., half:] @ weight[:, half:].T
    return found if bias is None else found + bias


def patch_linear(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("kvg.model.invariant.linear", split_linear)
    patch.setattr("kvg.model.probe.linear", split_linear)


CHANGES: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "attention": lambda patch: patch.setattr(
        functional, "scaled_dot_product_attention", changed_sdpa
    ),
    "tile of attention": lambda patch: patch.setattr("kvg_kernels.attention.cpu.TILE_ROWS", 64),
    "linear": patch_linear,
}


@pytest.fixture
def made(user: models.User, tiny: dict[str, Path]) -> models.User:
    user.add("tiny", tiny["llama"], "F32")
    text = models.text_of(tiny["llama"], 300)
    deposit(user.store, user.settings, DepositRequest("t", text=text))
    return user


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_an_engine_changed_by_hand_is_another_engine(
    made: models.User,
    tiny: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[pytest.MonkeyPatch], None],
) -> None:
    """By its probe, before anything is restored, or it computes the same bits."""
    before = logits(made.store, made.settings, LogitsRequest("t", prompt=" so")).digest
    change(monkeypatch)
    model = models.load(tiny["llama"], "F32")

    def open_session(*_: object, **__: object) -> Session:
        return opening.session_of(model, schedule=None)

    monkeypatch.setattr("kvg.model.opening.open_session", open_session)
    try:
        found = logits(made.store, made.settings, LogitsRequest("t", prompt=" so")).digest
    except Incompatible:
        with pytest.raises(Incompatible):
            next(graft(made.store, made.settings, GraftRequest("t", prompt=" so")))
    else:
        assert found == before


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_an_engine_that_lies_about_its_name_fails_by_the_witness(
    made: models.User,
    tiny: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[pytest.MonkeyPatch], None],
) -> None:
    honest = models.session(tiny["llama"], "F32")
    before = logits(made.store, made.settings, LogitsRequest("t", prompt=" so")).digest
    change(monkeypatch)
    found = []
    try:
        found = list(graft(made.store, made.settings, GraftRequest("t", prompt=" so")))
    except Incompatible as error:
        assert "witness failed at position 299" in error.message
        assert honest.engine.fingerprint in error.message
        with pytest.raises(Incompatible, match="witness"):
            logits(made.store, made.settings, LogitsRequest("t", prompt=" so"))
    else:
        assert [record.logits_digest for record in found] == [before]  # type: ignore[attr-defined]


def test_another_engine_is_named_with_this_one(
    made: models.User, tiny: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = models.session(tiny["llama"], "F32")
    foreign = replace(honest.engine, fingerprint="sha256:" + "ab" * 32)
    session = Session(honest.model, Engine(foreign.fingerprint, "invariant", None), {})
    monkeypatch.setattr("kvg.model.opening.open_session", lambda *_, **__: session)
    with pytest.raises(Incompatible) as error:
        next(graft(made.store, made.settings, GraftRequest("t", prompt=" so", stream=True)))
    assert foreign.fingerprint in error.value.message
    assert honest.engine.fingerprint in error.value.message


def test_the_self_check_refuses_an_operator_that_depends_on_the_split(
    tiny: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stock causal call over all queries at once is not invariant, and is caught."""

    def by_length(*args: torch.Tensor, **kwargs: object) -> torch.Tensor:
        out = STOCK(*args, **kwargs)
        return out * (1 + 2**-6 * (args[0].shape[0] == 1))

    model = models.load(tiny["llama"], "F32")
    monkeypatch.setattr(functional, "scaled_dot_product_attention", by_length)
    with pytest.raises(Incompatible, match="self-check: attention of 4 heads"):
        opening.session_of(model, schedule=None)


def test_the_self_check_refuses_a_linear_layer_that_depends_on_threads(
    tiny: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    stock = functional.linear

    def by_threads(
        x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        return stock(x, weight, bias) * torch.get_num_threads()

    monkeypatch.setattr(functional, "linear", by_threads)
    with models.threads(2), pytest.raises(Incompatible, match="number of threads"):
        tiling.prove_tiles(models.load(tiny["llama"], "F32"))
