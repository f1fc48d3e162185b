"""PEFT adapters: part of a model's identity, exact in every split, refused where they misfit."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from kvg.digest import Digest
from kvg.errors import Corrupt, Incompatible, KvgError, NotFound
from kvg.flow.bench.library import open_library
from kvg.flow.deposit import deposit
from kvg.flow.graft import graft
from kvg.flow.logits import logits
from kvg.flow.model_add import model_add
from kvg.flow.registered import registered_model
from kvg.flow.replay import replay
from kvg.flow.requests import (
    DepositRequest,
    GraftRequest,
    LogitsRequest,
    ModelAddRequest,
    ReplayRequest,
    Sampling,
)
from kvg.model.adapter import CONFIG, WEIGHTS, read_adapter
from kvg.model.exactness import SPLITS, made_ids, reference_run, varied_run
from kvg.model.folder import read_model
from kvg.model.loader import load_model
from kvg.model.opening import session_of
from kvg.model.session import Session
from kvg.report import SilentReport
from kvg.verify import verify_artifact
from tests import models

LENGTHS = (258, 300)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    with models.threads(1):
        yield


def make_adapter(folder: Path, base: Path, *, seed: int = 0, **more: Any) -> Path:
    """A random LoRA adapter of the model in ``base``, large enough to matter."""
    peft = pytest.importorskip("peft", reason="peft is not installed: no adapter can be made")
    from transformers import AutoModelForCausalLM

    config = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj", "down_proj"], **more}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
        made = peft.get_peft_model(module, peft.LoraConfig(task_type="CAUSAL_LM", **config))
        for name, parameter in made.named_parameters():
            if "lora_" in name:
                torch.nn.init.normal_(parameter, std=0.2)
    made.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def adapters(tiny: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("adapters")
    return {family: make_adapter(base / family, tiny[family]) for family in ("llama", "gemma3")}


@cache
def opened(base: Path, adapter: Path, dtype: str) -> Session:
    model = load_model(base, dtype=dtype, device="cpu", attention="kvg_invariant", adapter=adapter)
    return session_of(model, schedule=None)


@pytest.mark.parametrize("dtype", ["BF16", "F32"])
@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_exact_in_every_split_batch_and_graft(
    tiny: dict[str, Path], adapters: dict[str, Path], family: str, dtype: str
) -> None:
    session = opened(tiny[family], adapters[family], dtype)
    texts = [made_ids(n, n, session.model.vocabulary) for n in LENGTHS]
    fresh = [reference_run(session, text) for text in texts]
    expected = tuple(outcome for outcome, _ in fresh)
    plain = models.session(tiny[family], dtype)
    assert expected[0] != reference_run(plain, texts[0])[0]
    assert session.engine.fingerprint != plain.engine.fingerprint
    for split in SPLITS:
        pages = [held for _, held in fresh]
        assert varied_run(session, texts, pages, split=split, threads=1) == expected, split


def test_it_computes_what_peft_computes(tiny: dict[str, Path], adapters: dict[str, Path]) -> None:
    peft = pytest.importorskip("peft")
    from transformers import AutoModelForCausalLM

    module = AutoModelForCausalLM.from_pretrained(tiny["llama"], dtype=torch.float32)
    wrapped = peft.PeftModel.from_pretrained(module, adapters["llama"]).eval()
    session = opened(tiny["llama"], adapters["llama"], "F32")
    ids = list(range(3, 60))
    with torch.inference_mode():
        theirs = wrapped(input_ids=torch.tensor([ids])).logits[0]
    ours = session.run(session.slot(), ids, range(len(ids)))
    assert (ours - theirs).abs().max() < 1e-4 * theirs.std()


def identity(base: Path, adapter: Path | None, dtype: str = "BF16") -> Digest:
    files = read_model(
        base, dtype=dtype, cache=None, jobs=1, report=SilentReport(), adapter=adapter
    )
    return files.identity.fingerprint


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.fixture
def copy(tmp_path: Path, adapters: dict[str, Path]) -> Path:
    return Path(shutil.copytree(adapters["llama"], tmp_path / "adapter"))


def test_config_and_every_weight_are_part_of_the_identity(
    tiny: dict[str, Path], adapters: dict[str, Path], copy: Path
) -> None:
    base = tiny["llama"]
    before = identity(base, copy)
    assert before == identity(base, adapters["llama"])
    assert before != identity(base, None)
    edit(copy / CONFIG, base_model_name_or_path="/elsewhere", peft_version="9", lora_dropout=0.1)
    assert identity(base, copy) == before
    edit(copy / CONFIG, lora_alpha=9)
    assert identity(base, copy) != before
    edit(copy / CONFIG, lora_alpha=8)
    assert identity(base, copy) == before
    tensors = load_file(copy / WEIGHTS)
    for name in sorted(tensors)[::4]:
        changed = {key: tensor.clone() for key, tensor in tensors.items()}
        changed[name].view(-1)[-1] += 1
        save_file(changed, copy / WEIGHTS)
        assert identity(base, copy) != before, name
    in_bf16 = {key: tensor.bfloat16() for key, tensor in tensors.items()}
    save_file(in_bf16, copy / WEIGHTS)
    assert identity(base, copy) == before  # as loaded
    assert identity(base, copy, "F32") != identity(base, adapters["llama"], "F32")


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"peft_type": "IA3"}, "type IA3"),
        ({"peft_type": "PREFIX_TUNING"}, "PREFIX_TUNING"),
        ({"alora_invocation_tokens": [1]}, "alora"),
        ({"layer_replication": [[0, 2]]}, "repeats layers"),
        ({"init_lora_weights": "pissa"}, "pissa"),
    ],
)
def test_kinds_that_are_refused_by_name(copy: Path, changes: dict[str, object], word: str) -> None:
    edit(copy / CONFIG, **changes)
    with pytest.raises(Incompatible, match=word):
        read_adapter(copy, "BF16")


def test_a_folder_that_is_no_adapter(copy: Path) -> None:
    (copy / WEIGHTS).rename(copy / "adapter_model.bin")
    with pytest.raises(NotFound, match=WEIGHTS):
        read_adapter(copy, "BF16")
    (copy / WEIGHTS).write_bytes(b"\x80\x04 a pickle")
    with pytest.raises(Corrupt, match=WEIGHTS):
        read_adapter(copy, "BF16")
    (copy / CONFIG).write_text("[]")
    with pytest.raises(Corrupt, match=CONFIG):
        read_adapter(copy, "BF16")
    (copy / CONFIG).unlink()
    with pytest.raises(NotFound, match=CONFIG):
        read_adapter(copy, "BF16")


def test_an_adapter_of_another_model_is_refused(
    tiny: dict[str, Path], adapters: dict[str, Path], copy: Path
) -> None:
    with pytest.raises(Incompatible, match="adapter"):
        opened(tiny["llama"], adapters["gemma3"], "BF16")
    tensors = load_file(copy / WEIGHTS)
    name = sorted(tensors)[0]
    save_file({key: tensor for key, tensor in tensors.items() if key != name}, copy / WEIGHTS)
    with pytest.raises(Incompatible, match="wanted but not in the file"):
        load_model(tiny["llama"], dtype="BF16", device="cpu", attention="sdpa", adapter=copy)
    save_file({**tensors, "base_model.model.model.nothing.weight": torch.ones(1)}, copy / WEIGHTS)
    with pytest.raises(Incompatible, match="nothing"):
        load_model(tiny["llama"], dtype="BF16", device="cpu", attention="sdpa", adapter=copy)


def tensors_of(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / WEIGHTS)


def without_one(folder: Path) -> None:
    tensors = tensors_of(folder)
    del tensors[sorted(tensors)[0]]
    save_file(tensors, folder / WEIGHTS)


def with_one_more(folder: Path) -> None:
    more = {"base_model.model.model.nothing.weight": torch.ones(1)}
    save_file({**tensors_of(folder), **more}, folder / WEIGHTS)


def changed_first(folder: Path, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    tensors = tensors_of(folder)
    name = sorted(tensors)[0]
    save_file({**tensors, name: change(tensors[name]).contiguous()}, folder / WEIGHTS)


def poisoned(tensor: torch.Tensor, value: float) -> torch.Tensor:
    out = tensor.clone()
    out.view(-1)[-1] = value
    return out


def cut_short(folder: Path) -> None:
    data = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(data[:-9])


def wrong_header(folder: Path) -> None:
    data = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(data.replace(b'"shape":[4,64]', b'"shape":[4,63]', 1))


def as_kind(folder: Path, dtype: torch.dtype) -> None:
    save_file({name: t.to(dtype) for name, t in tensors_of(folder).items()}, folder / WEIGHTS)


BROKEN: dict[str, tuple[Callable[[Path], object], int, str]] = {
    "missing": (without_one, 7, "wanted but not in the file"),
    "stray": (with_one_more, 7, "in the file but not in the model"),
    "empty": (lambda f: save_file({}, f / WEIGHTS), 7, "wanted but not in the file"),
    "shape": (lambda f: changed_first(f, lambda t: t[:, :-1]), 7, "wants"),
    "rank": (lambda f: edit(f / CONFIG, r=8), 7, "wants"),
    "transposed": (lambda f: changed_first(f, lambda t: t.T), 7, "wants"),
    "nan": (lambda f: changed_first(f, lambda t: poisoned(t, float("nan"))), 5, "not finite"),
    "infinite": (lambda f: changed_first(f, lambda t: poisoned(t, float("inf"))), 5, "not finite"),
    "nan in bf16": (
        lambda f: changed_first(f, lambda t: poisoned(t.bfloat16(), float("nan"))),
        5,
        "not finite",
    ),
    "int8": (lambda f: as_kind(f, torch.int8), 7, "I8"),
    "header": (wrong_header, 5, "bytes"),
    "truncated": (cut_short, 5, WEIGHTS),
    "r 0": (lambda f: edit(f / CONFIG, r=0), 5, "r 0"),
    "r 4.0": (lambda f: edit(f / CONFIG, r=4.0), 5, "r 4.0"),
    "r true": (lambda f: edit(f / CONFIG, r=True), 5, "r True"),
    "r null": (lambda f: edit(f / CONFIG, r=None), 5, "r None"),
    "alpha x": (lambda f: edit(f / CONFIG, lora_alpha="x"), 5, "lora_alpha 'x'"),
    "alpha nan": (lambda f: edit(f / CONFIG, lora_alpha=float("nan")), 5, "lora_alpha nan"),
    "rslora x": (lambda f: edit(f / CONFIG, use_rslora="x"), 5, "use_rslora 'x'"),
    "ranks": (lambda f: edit(f / CONFIG, rank_pattern={"q_proj": 0}), 5, "rank_pattern"),
    "alphas": (lambda f: edit(f / CONFIG, alpha_pattern={"q_proj": "x"}), 5, "alpha_pattern"),
    "bias": (lambda f: edit(f / CONFIG, bias="some"), 5, "bias 'some'"),
    "target 7": (lambda f: edit(f / CONFIG, target_modules=7), 5, "target_modules 7"),
    "no target": (lambda f: edit(f / CONFIG, target_modules=[]), 5, "target_modules []"),
    "unknown target": (lambda f: edit(f / CONFIG, target_modules=["nope"]), 7, "nope"),
    "one unknown": (
        lambda f: edit(f / CONFIG, target_modules=["q_proj", "nope"]),
        7,
        "in the file but not in the model",
    ),
    "saved module": (
        lambda f: edit(f / CONFIG, modules_to_save=["lm_head"]),
        7,
        "wanted but not in the file",
    ),
    "dora": (lambda f: edit(f / CONFIG, use_dora=True), 7, "wanted but not in the file"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_adapter_is_refused_when_it_is_registered(
    user: models.User, tiny: dict[str, Path], copy: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kvg.model import loader

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the weights of the model were loaded")

    monkeypatch.setattr(loader.AutoModelForCausalLM, "from_pretrained", refuse)
    breaking, code, word = BROKEN[kind]
    breaking(copy)
    before = user.store.config.path.read_bytes()
    with pytest.raises(KvgError) as caught:
        model_add(
            user.store,
            user.settings,
            ModelAddRequest("tuned", tiny["llama"], dtype="BF16", adapter=copy),
        )
    assert caught.value.code == code, caught.value.message
    assert word in caught.value.message and str(copy) in caught.value.message
    assert caught.value.hint and "unsupported operand" not in caught.value.message
    assert user.store.config.path.read_bytes() == before


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"use_rslora": True},
        {"use_dora": True},
        {"rank_pattern": {"q_proj": 2}, "alpha_pattern": {"v_proj": 3.5}},
        {"target_modules": "all-linear"},
        {"modules_to_save": ["lm_head"]},
        {"bias": "lora_only"},
        {"lora_bias": True},
    ],
    ids=str,
)
def test_what_peft_saves_is_registered_and_loads(
    user: models.User, tiny: dict[str, Path], tmp_path: Path, more: dict[str, Any]
) -> None:
    made = make_adapter(tmp_path / "adapter", tiny["llama"], **more)
    request = ModelAddRequest("tuned", tiny["llama"], dtype="BF16", adapter=made)
    assert model_add(user.store, user.settings, request).adapter == str(made)
    load_model(tiny["llama"], dtype="BF16", device="cpu", attention="sdpa", adapter=made)


def test_without_peft_what_was_not_compared_is_said(
    user: models.User, tiny: dict[str, Path], copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(type(user.settings.report), "warning", lambda _, text: told.append(text))
    monkeypatch.setitem(sys.modules, "peft", None)
    without_one(copy)
    request = ModelAddRequest("tuned", tiny["llama"], dtype="BF16", adapter=copy)
    model_add(user.store, user.settings, request)
    assert told and "peft" in told[0] and "not compared" in told[0]


@pytest.fixture
def user(tmp_path: Path) -> models.User:
    return models.User.make(tmp_path / "user")


@pytest.fixture
def person(tmp_path: Path, tiny: dict[str, Path], copy: Path) -> models.User:
    made = models.User.make(tmp_path / "person")
    model_add(
        made.store,
        made.settings,
        ModelAddRequest("tuned", tiny["llama"], dtype="BF16", adapter=copy),
    )
    return made


def test_a_graft_with_an_adapter_is_exact(person: models.User, tiny: dict[str, Path]) -> None:
    store, settings = person.store, person.settings
    text = models.text_of(tiny["llama"], 300)
    done = deposit(store, settings, DepositRequest("t", text=text))
    request = GraftRequest("t", prompt=" so", sampling=Sampling(max_tokens=2))
    (found,) = graft(store, settings, request)
    assert found.exact and found.digest == done.digest  # type: ignore[attr-defined]
    provenance = verify_artifact(store, done.digest).provenance
    assert provenance is not None and "peft" in provenance.libraries
    grafted, fresh = (
        logits(store, settings, LogitsRequest("t", prompt=" so", fresh=f)).digest
        for f in (False, True)
    )
    assert grafted == fresh == found.logits_digest  # type: ignore[attr-defined]
    *_, summary = replay(store, settings, ReplayRequest(("t",), samples=2))
    assert (summary.equal, summary.pages) == (2, summary.pages_equal)  # type: ignore[attr-defined]


def refused(person: models.User, ref: str) -> str:
    """The message with which a graft of ``ref`` is refused with exit code 7."""
    with pytest.raises(KvgError) as caught:
        list(graft(person.store, person.settings, GraftRequest(ref, prompt=" so")))
    assert caught.value.code == 7
    return caught.value.message


def test_base_and_adapted_artifacts_are_not_exchanged(
    person: models.User, tiny: dict[str, Path], copy: Path
) -> None:
    text = models.text_of(tiny["llama"], 100)
    tuned = deposit(person.store, person.settings, DepositRequest("tuned", text=text))
    person.add("plain", tiny["llama"])
    plain = deposit(
        person.store, person.settings, DepositRequest("plain", model="plain", text=text)
    )
    assert tuned.digest != plain.digest
    add = ModelAddRequest("plain", tiny["llama"], dtype="BF16", adapter=copy)
    model_add(person.store, person.settings, add)
    assert "no registered model" in refused(person, "plain")
    assert next(iter(graft(person.store, person.settings, GraftRequest("tuned")))).exact  # type: ignore[union-attr]
    person.add("plain", tiny["llama"])
    person.add("tuned", tiny["llama"])
    assert "no registered model" in refused(person, "tuned")


def test_a_flipped_byte_of_the_adapter_is_found(
    person: models.User, tiny: dict[str, Path], copy: Path
) -> None:
    text = models.text_of(tiny["llama"], 100)
    deposit(person.store, person.settings, DepositRequest("t", text=text))
    data = bytearray((copy / WEIGHTS).read_bytes())
    data[-5] ^= 0x10
    (copy / WEIGHTS).write_bytes(data)
    message = refused(person, "t")
    assert "not those that were registered" in message and str(copy) in message
    edit(copy / CONFIG, lora_alpha=9)
    data[-5] ^= 0x10
    (copy / WEIGHTS).write_bytes(data)
    assert "not those that were registered" in refused(person, "t")


def test_benchmarks_measure_the_model_with_its_adapter(person: models.User) -> None:
    registered = registered_model(person.store, "tuned")
    with open_library(person.store, person.settings, "tuned", ()) as library:
        assert library.model.fingerprint == registered.fingerprint
        assert library.model.adapter == registered.adapter


def test_an_adapter_of_rank_one_is_exact(tiny: dict[str, Path], tmp_path: Path) -> None:
    """Its second product is of one term."""
    session = opened(tiny["llama"], make_adapter(tmp_path / "one", tiny["llama"], r=1), "BF16")
    text = made_ids(1, 70, session.model.vocabulary)
    outcome, pages = reference_run(session, text)
    for split in SPLITS:
        found = varied_run(session, [text], [pages], split=split, threads=1)
        assert found == (outcome,), split
