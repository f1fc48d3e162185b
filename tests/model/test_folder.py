"""What identifies a model, and which models are refused by name."""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from kvg.digest import Digest
from kvg.errors import Corrupt, Incompatible, KvgError, NotFound
from kvg.flow.sources import check_messages
from kvg.model.folder import ModelFiles, read_model
from kvg.model.loader import check_config, torch_device
from kvg.model.text import Tokenizer
from kvg.report import SilentReport
from tests import models


def read(folder: Path, dtype: str | None = None) -> ModelFiles:
    return read_model(folder, dtype=dtype, cache=None, jobs=2, report=SilentReport())


def fingerprint(folder: Path, dtype: str | None = None) -> Digest:
    return read(folder, dtype).identity.fingerprint


@pytest.fixture
def folder(tmp_path: Path, tiny: dict[str, Path]) -> Path:
    copy = tmp_path / "model"
    shutil.copytree(tiny["llama"], copy)
    return copy


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_what_a_model_says_of_itself(tiny: dict[str, Path]) -> None:
    found = read(tiny["llama"])
    assert (found.identity.architecture, found.identity.dtype) == ("LlamaForCausalLM", "BF16")
    assert found.n_parameters == sum(
        tensor.numel() for tensor in load_file(tiny["llama"] / "model.safetensors").values()
    )
    assert len({fingerprint(folder) for folder in tiny.values()}) == len(tiny)


def test_the_place_and_the_sharding_change_nothing(folder: Path, tiny: dict[str, Path]) -> None:
    before = fingerprint(tiny["llama"])
    assert fingerprint(folder) == before
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    parts = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for name, own in parts.items():
        save_file({key: tensors[key] for key in own}, folder / name)
    index = {key: name for name, own in parts.items() for key in own}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    assert fingerprint(folder) == before
    (folder / "b.safetensors").unlink()
    with pytest.raises(NotFound, match=r"b\.safetensors"):
        fingerprint(folder)


def test_the_dtype_is_part_of_the_identity(folder: Path) -> None:
    assert len({fingerprint(folder, dtype) for dtype in ("BF16", "F16", "F32")}) == 3
    tensors = load_file(folder / "model.safetensors")
    wide = {name: tensor.float() for name, tensor in tensors.items()}
    before = fingerprint(folder, "F32")
    save_file(wide, folder / "model.safetensors")
    assert fingerprint(folder, "F32") == before


def test_a_config_key_without_mathematics_changes_nothing(folder: Path) -> None:
    before = fingerprint(folder)
    edit(folder / "config.json", transformers_version="9", use_cache=False, _name_or_path="/x")
    assert fingerprint(folder) == before
    edit(folder / "config.json", rope_theta=9.0)
    assert fingerprint(folder) != before


def test_every_weight_counts(folder: Path) -> None:
    before = fingerprint(folder)
    tensors = load_file(folder / "model.safetensors")
    for name in sorted(tensors)[::5]:
        changed = {key: tensor.clone() for key, tensor in tensors.items()}
        changed[name].view(-1)[-1] += 1
        save_file(changed, folder / "model.safetensors")
        assert fingerprint(folder) != before, name


@pytest.mark.parametrize(
    ("data", "kind"),
    [(b"", Corrupt), (b"\xff" * 40, Corrupt), (b"\x08" + bytes(7) + b"not json", Corrupt)],
)
def test_a_weights_file_that_is_none(folder: Path, data: bytes, kind: type[KvgError]) -> None:
    (folder / "model.safetensors").write_bytes(data)
    with pytest.raises(kind, match=r"model\.safetensors"):
        fingerprint(folder)


def test_models_that_are_refused_by_name(folder: Path) -> None:
    for config, word in (
        ({"layer_types": ["full_attention", "linear_attention"]}, "linear_attention"),
        ({"layer_types": ["mamba"]}, "mamba"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "dynamic"),
        ({"rope_parameters": {"full_attention": {"rope_type": "longrope"}}}, "longrope"),
    ):
        with pytest.raises(Incompatible, match=word):
            check_config(config, what="m")
    edit(folder / "config.json", quantization_config={"bits": 4})
    with pytest.raises(Incompatible, match="quantized"):
        fingerprint(folder)


def test_devices() -> None:
    assert torch_device("cpu").type == "cpu"
    for name in ("cuda:99", "mps", "nonsense"):
        with pytest.raises(Incompatible):
            torch_device(name)


def test_chat_goes_on_where_it_was_cut(tiny: dict[str, Path]) -> None:
    tokenizer = Tokenizer.load(tiny["llama"])
    first = [{"role": "system", "content": "Be brief."}]
    more = [{"role": "user", "content": "Hello"}]
    whole = tokenizer.render([*first, *more])
    assert whole.startswith(tokenizer.render(first))
    answer = tokenizer.render(first) + tokenizer.render_more(more)
    assert answer == whole + "<|im_start|>assistant\n<think>\n"


def test_text_goes_to_ids_and_back(tiny: dict[str, Path]) -> None:
    tokenizer = models.tokenizer(tiny["llama"])
    for text in ("a", " leading", "trailing \n", "naïve — 漢字 🙂", models.real_text()[:2000]):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_messages_are_checked() -> None:
    assert check_messages({"messages": [{"role": "user", "content": "x"}]}, what="c")
    for value in (None, [], {}, [1], [{"role": "user"}], [{"role": 1, "content": "x"}]):
        with pytest.raises(KvgError, match="c"):
            check_messages(value, what="c")


def test_the_oldest_transformers_is_the_one_that_is_tested() -> None:
    """.ci/transformers tests the versions of constraints-oldest.txt; both must say the same."""
    project = tomllib.loads((models.REPO / "pyproject.toml").read_text())
    extra = project["project"]["optional-dependencies"]["model"]
    (bound,) = [item for item in extra if item.startswith("transformers")]
    pins = (models.REPO / "constraints-oldest.txt").read_text().splitlines()
    (pin,) = [line for line in pins if line.startswith("transformers")]
    assert pin.split("==")[1].rsplit(".", 1) == [bound.split(">=")[1], "0"]
