"""Field reports about shapes, windows, recurrent layers and topology, each looked for by number."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn import functional
from transformers import (
    AutoModelForCausalLM,
    MambaConfig,
    PreTrainedConfig,
    Qwen3NextConfig,
    RecurrentGemmaConfig,
)

from kvg.digest import Digest, sha256
from kvg.errors import Incompatible
from kvg.flow.deposit import _MOMENT, deposit
from kvg.flow.graft import graft
from kvg.flow.logits import logits
from kvg.flow.requests import DepositRequest, GraftRequest, LogitsRequest, Sampling
from kvg.model import invariant
from kvg.model.binding import BoundCache
from kvg.model.dtypes import tensor_digest
from kvg.model.loader import adopt_model
from kvg.model.state import capture_page
from kvg.objects.computation import adapter_fingerprint, model_fingerprint
from kvg.verify import verify_artifact
from tests import models

Users = Callable[..., models.User]
SLIDING = ("mistral", "gemma3")


@pytest.fixture
def person(tmp_path: Path, tiny: dict[str, Path]) -> Users:
    def make(family: str, name: str = "person", dtype: str = "BF16") -> models.User:
        made = models.User.make(tmp_path / name)
        made.add("tiny", tiny[family], dtype)
        return made

    return make


def put(user: models.User, ref: str, text: str, **more: object) -> Digest:
    return deposit(user.store, user.settings, DepositRequest(ref, text=text, **more)).digest  # type: ignore[arg-type]


def is_exact(user: models.User, ref: str, prompt: str | None = None) -> bool:
    asked = [LogitsRequest(ref, prompt=prompt, fresh=fresh) for fresh in (False, True)]
    grafted, fresh = (logits(user.store, user.settings, request) for request in asked)
    return grafted.digest == fresh.digest


@pytest.mark.parametrize("family", models.FAMILIES)
def test_field_k04_no_drift_where_a_block_ends(
    person: Users, tiny: dict[str, Path], family: str
) -> None:
    user = person(family)
    for n in (254, 255, 256, 257, 258):
        put(user, f"n{n}", models.text_of(tiny[family], n))
        for prompt in (None, " so", " and so on and so forth"):
            assert is_exact(user, f"n{n}", prompt), (n, prompt)


def test_field_k05_a_hit_changes_no_matrix_size_but_within_the_proved_menu(
    person: Users, tiny: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    user = person("llama")
    put(user, "t", models.text_of(tiny["llama"], 300))
    session = models.session(tiny["llama"])
    sizes: list[tuple[int, torch.Size]] = []
    real = functional.linear

    def seen(x: torch.Tensor, weight: torch.Tensor, bias: Any = None) -> torch.Tensor:
        sizes.append((x.shape[0], weight.shape))
        return real(x, weight, bias)

    def written(rows: torch.Tensor, columns: torch.Tensor, bias: Any, out: torch.Tensor) -> None:
        sizes.append((rows.shape[0], columns.t().shape))
        out.copy_(real(rows, columns.t(), bias))

    monkeypatch.setattr("kvg_kernels.linear.cpu.functional", SimpleNamespace(linear=seen))
    monkeypatch.setattr("kvg_kernels.linear.cpu._product", written)
    ids = models.tokenizer(tiny["llama"]).encode(models.text_of(tiny["llama"], 300))
    for n in (1, 2, 3, 15, 16, 17, 63, 64, 65, 257):
        prompt = ids[:n]
        slot = session.slot()
        session.restore(slot, verify_artifact(user.store, user.store.resolve("t").digest))
        hit = session.resume(slot, ids[-1], prompt)[1]
        whole = [*ids, *prompt]
        assert torch.equal(hit, session.run(session.slot(), whole, [len(whole) - 1])[0]), n
    menu = session._menus.here().linear
    assert all(n in menu[shape[1], shape[0], False] for n, shape in sizes)
    assert len({n for n, _ in sizes}) > 2


RECURRENT: dict[str, tuple[type[PreTrainedConfig], dict[str, object]]] = {
    "Mamba": (MambaConfig, {"state_size": 8}),
    "Qwen3-Next": (Qwen3NextConfig, {"num_attention_heads": 4, "num_key_value_heads": 2}),
    "RecurrentGemma": (RecurrentGemmaConfig, {"num_attention_heads": 4, "lru_width": 64}),
}


@pytest.mark.parametrize("name", RECURRENT)
def test_field_k07_recurrent_layers_are_refused_by_name(name: str) -> None:
    kind, more = RECURRENT[name]
    config = kind(vocab_size=64, hidden_size=64, num_hidden_layers=3, pad_token_id=0, **more)
    module = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with pytest.raises(Incompatible) as caught:
        adopt_model(module, device="cpu", attention="kvg_invariant", what=f"folder of {name}")
    said = f"{caught.value.message} {caught.value.hint}"
    assert "state that pages cannot hold" in said or "not keys and values" in said, said


def test_field_k08_a_restore_under_load_is_whole(person: Users, tiny: dict[str, Path]) -> None:
    """Eight at once, each captured again after its copy has landed."""
    user = person("gemma3")
    digest = put(user, "t", models.text_of(tiny["gemma3"], 600))
    session = models.session(tiny["gemma3"])
    ids = verify_artifact(user.store, digest).ids

    def call(_: int) -> bool:
        verified = verify_artifact(user.store, digest)
        slot = session.slot()
        session.restore(slot, verified)
        same = all(
            page.digest == sha256(captured)
            for page in verified.manifest.pages
            for captured in [
                capture_page(
                    slot.state,
                    verified.manifest.group(page.group),
                    page.start,
                    page.end,
                    what="restored",
                )
            ]
        )
        witness, _ = session.resume(slot, ids[-1], [])
        session.check_witness(verified, verified.manifest.witnesses[-1], witness)
        return same

    with models.threads(1), ThreadPoolExecutor(8) as pool:
        assert all(pool.map(call, range(24)))


@pytest.mark.parametrize("family", SLIDING)
def test_field_k18_lengths_around_every_window_on_sliding_layers(
    person: Users, tiny: dict[str, Path], family: str
) -> None:
    user = person(family)
    for n in (127, 128, 129, 130, 255, 256, 257, 511, 512, 513, 1023, 1024, 1025):
        manifest = user.store.manifest(put(user, f"n{n}", models.text_of(tiny[family], n)))
        assert is_exact(user, f"n{n}", " so"), n
        sliding = [page for page in manifest.pages if page.group.startswith("sliding")]
        assert (
            sliding
            and min(page.start for page in sliding) == max(0, n - models.WINDOW) // 256 * 256
        )


@pytest.mark.parametrize("family", SLIDING)
def test_field_k21_rotated_caches_are_never_cut(
    person: Users, tiny: dict[str, Path], family: str
) -> None:
    """Positions are absolute; a cut without a witness is refused, one with a witness is exact."""
    user = person(family)
    put(user, "t", models.text_of(tiny[family], 700), cut_points=(300, 513))
    tokenizer, session = models.tokenizer(tiny[family]), models.session(tiny[family])
    ids = tokenizer.encode(models.text_of(tiny[family], 700))
    for cut in (300, 513):
        request = GraftRequest("t", prompt=" so", cut=cut, sampling=Sampling(max_tokens=1))
        (found,) = graft(user.store, user.settings, request)
        whole = [*ids[:cut], *tokenizer.encode_more(" so")]
        last = session.run(session.slot(), whole, [len(whole) - 1])[0]
        assert found.logits_digest == tensor_digest(last)  # type: ignore[attr-defined]
    for cut in (299, 301, 600):
        with pytest.raises(Incompatible, match=f"no cut point at {cut}"):
            list(graft(user.store, user.settings, GraftRequest("t", cut=cut)))
    slot = session.slot()
    session.run(slot, ids, [])
    slot.truncate(450)
    again = session.run(slot, ids[450:460], [9])[0]
    assert torch.equal(again, session.run(session.slot(), ids[:460], [459])[0])


def test_field_k25_what_is_not_keys_and_values_is_refused(tiny: dict[str, Path]) -> None:
    """A model that reaches for an offloaded, static or recurrent cache gets no answer from ours."""
    session = models.session(tiny["llama"])
    cache = BoundCache((), (0,), (1,), whole=False)
    for name in ("offload", "prefetch", "layers", "conv_states", "recurrent_states", "crop"):
        with pytest.raises(Incompatible, match=f"asks its cache for {name}"):
            getattr(cache, name)
    layer = session.model.module.model.layers[1]
    hook = layer.register_forward_pre_hook(
        lambda *args: (args[-1].get("cache") or args[-1]["past_key_values"]).offload(1),
        with_kwargs=True,
    )
    try:
        with pytest.raises(Incompatible, match="asks its cache for offload"):
            session.run(session.slot(), [5, 6], [1])
    finally:
        hook.remove()


class Kept(models.SilentReport):
    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warning(self, text: str) -> None:
        self.warnings.append(text)


def test_field_k30_a_moment_near_the_start_is_warned_of(
    person: Users, tiny: dict[str, Path]
) -> None:
    user = person("llama").with_settings(report=Kept())
    report = user.settings.report
    assert isinstance(report, Kept)
    put(user, "plain", "The manual says what to do. " * 30)
    put(user, "late", "The manual says what to do. " * 30 + "2026-03-01 14:05:09")
    assert report.warnings == []
    put(user, "dated", "Today is 2026-03-01. The manual says what to do.")
    put(user, "timed", "It is 14:05:09 now. The manual says what to do.")
    assert [warning.split(":")[0] for warning in report.warnings] == ["dated", "timed"]
    assert "2026-03-01" in report.warnings[0] and "14:05:09" in report.warnings[1]


@pytest.mark.parametrize(
    "moment",
    [
        *("2026/3/1", "3/1/2026", "01.03.2026", "1 March 2026", "March 1, 2026", "Dec 1, 2026"),
        *("1st of May", "Sept. 3rd, 2026", "June 2026", "9:05", "5 pm", "11 a.m."),
    ],
)
def test_field_k30_a_moment_as_people_write_it(moment: str) -> None:
    found = _MOMENT.search(f"As of {moment}, the manual says so.")
    assert found is not None and found[0] == moment.rstrip(".")


@pytest.mark.parametrize(
    "text",
    ["version 3.11.20", "ratio 3/4", "you may 3 times", "2026 items", "1.2.3", "10:99", "am"],
)
def test_field_k30_numbers_that_are_no_moment(text: str) -> None:
    assert _MOMENT.search(text) is None


def test_field_k31_the_layout_is_free_of_topology(
    person: Users, tiny: dict[str, Path], tmp_path: Path
) -> None:
    """The same weights in other shards, other threads and jobs: the same manifest."""
    sharded = tmp_path / "sharded"
    module = AutoModelForCausalLM.from_pretrained(tiny["qwen3"], dtype=torch.bfloat16)
    module.save_pretrained(sharded, max_shard_size="60KB")
    for path in tiny["qwen3"].glob("tokenizer*"):
        (sharded / path.name).write_bytes(path.read_bytes())
    assert len(list(sharded.glob("*.safetensors"))) > 1
    text = models.text_of(tiny["qwen3"], 300)
    whole = person("qwen3", "whole")
    parts = models.User.make(tmp_path / "parts").with_settings(jobs=3)
    parts.add("other-name", sharded)
    with models.threads(1):
        first = put(whole, "t", text)
    assert put(parts, "t", text) == first
    data = bytes(whole.store.objects.read(first, what="manifest"))
    for word in (b"rank", b"shard", b"parallel", b"world"):
        assert word not in data
    assert invariant.ATTENTION_NAME.encode() not in data


def test_field_k15_dtype_weights_and_adapter_are_in_the_key() -> None:
    """Every field by its name, so that no two can run together."""
    weights = {"a": sha256(b"1"), "b": sha256(b"2")}
    base = ("Llama", {"n": 1, "eps": 1e-5}, weights, "BF16", ())
    others = [
        ("Llama2", *base[1:]),
        (base[0], {"n": 1, "eps": 1e-6}, *base[2:]),
        (base[0], {"n": "1", "eps": 1e-5}, *base[2:]),
        (*base[:2], {"a": sha256(b"2"), "b": sha256(b"1")}, *base[3:]),
        (*base[:2], {"a": sha256(b"1")}, *base[3:]),
        (*base[:3], "F16", ()),
        (*base[:4], (sha256(b"adapter"),)),
        (*base[:4], (sha256(b"other adapter"),)),
        ("Llam", {"n": 1, "eps": 1e-5}, weights, "aBF16", ()),
    ]
    assert len({model_fingerprint(*key) for key in (base, *others)}) == len(others) + 1
    assert adapter_fingerprint({"r": 4}, weights) != adapter_fingerprint({"r": 8}, weights)
    assert adapter_fingerprint({}, weights) != model_fingerprint("", {}, weights, "")
