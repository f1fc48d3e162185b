"""Failures that users of neighbouring key-value caches reported, each looked for here by number."""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load as load_safetensors

from kvg import durable
from kvg.digest import Digest, sha256
from kvg.errors import Corrupt, Incompatible, KvgError
from kvg.flow.deposit import deposit
from kvg.flow.graft import graft
from kvg.flow.logits import logits
from kvg.flow.records.computed import Deposited, Graft
from kvg.flow.replay import replay
from kvg.flow.requests import (
    AskRequest,
    DepositRequest,
    GraftRequest,
    LogitsRequest,
    ReplayRequest,
    Sampling,
)
from kvg.model.comparison import compare_logits
from kvg.model.dtypes import tensor_digest
from kvg.model.session import Session
from kvg.store import Store
from kvg.verify import verify_artifact
from tests import models

Users = Callable[..., models.User]


@pytest.fixture
def person(tmp_path: Path, tiny: dict[str, Path]) -> Users:
    def make(family: str = "llama", dtype: str = "BF16", name: str = "person") -> models.User:
        made = models.User.make(tmp_path / name)
        made.add("tiny", tiny[family], dtype)
        return made

    return make


def put(user: models.User, ref: str, text: str, **more: object) -> Deposited:
    return deposit(user.store, user.settings, DepositRequest(ref, text=text, **more))  # type: ignore[arg-type]


def restore(user: models.User, ref: str, prompt: str = " so", n: int = 4, **more: object) -> Graft:
    request = GraftRequest(ref, prompt=prompt, sampling=Sampling(max_tokens=n), **more)  # type: ignore[arg-type]
    (found,) = graft(user.store, user.settings, request)
    assert isinstance(found, Graft)
    return found


def logits_of(
    user: models.User, ref: str, prompt: str | None = None, *, fresh: bool = False
) -> Digest:
    return logits(user.store, user.settings, LogitsRequest(ref, prompt=prompt, fresh=fresh)).digest


def object_path(store: Store, digest: Digest) -> Path:
    return store.objects.stored_path(digest)


def overwrite(path: Path, data: bytes) -> None:
    path.chmod(0o644)
    path.write_bytes(data)


@pytest.mark.parametrize("family", models.FAMILIES)
def test_field_k01_a_hit_flips_no_greedy_output(
    person: Users, tiny: dict[str, Path], family: str
) -> None:
    user = person(family)
    text = models.text_of(tiny[family], 300)
    put(user, "t", text)
    session, tokenizer = models.session(tiny[family]), models.tokenizer(tiny[family])
    ids = tokenizer.encode(text)
    for number in range(10):
        prompt = f" question {number}:"
        cold = []
        for _ in range(2):
            slot = session.slot()
            whole = [*ids, *tokenizer.encode_more(prompt)]
            row = session.run(slot, whole, [len(whole) - 1])[0]
            first, chosen = tensor_digest(row), []
            for _ in range(6):
                chosen.append(int(row.argmax()))
                row = session.run(slot, chosen[-1:], [0])[0]
            cold.append((first, tuple(chosen)))
        assert cold[0] == cold[1]  # the control: cold against cold
        hit = restore(user, "t", prompt, n=6)
        assert hit.logits_digest == cold[0][0]
        eos = session.model.eos_ids
        kept = next((i for i, token in enumerate(cold[0][1]) if token in eos), 6)
        assert hit.text == tokenizer.decode(cold[0][1][:kept])


@pytest.mark.parametrize("reference", ["invariant", "scheduled"])
def test_field_k02_the_first_of_two_requests_is_like_the_later_ones(
    person: Users, tiny: dict[str, Path], reference: str
) -> None:
    user = person()
    made = put(user, "t", models.text_of(tiny["llama"], 300), reference=reference)
    found = [restore(user, "t") for _ in range(3)]
    assert len({(record.logits_digest, record.text) for record in found}) == 1
    engine = user.store.manifest(made.digest).engine
    assert engine.reference == found[0].reference == reference
    assert (engine.schedule is None) == (reference == "invariant")


def test_field_k03_replay_tells_the_gap_of_the_two_best(
    person: Users, tiny: dict[str, Path]
) -> None:
    tied = torch.tensor([0.0, 2.0, 2.0, -1.0])
    record = compare_logits(tied, tied.clone())
    assert (record.equal, record.argmax_equal, record.top2_gap) == (True, True, 0.0)
    near = torch.tensor([0.0, 2.0, 2.5, -1.0])
    other = compare_logits(tied, near)
    assert (other.equal, other.argmax_equal, other.top2_gap) == (False, False, 0.5)
    assert other.kl > 0
    user = person()
    put(user, "t", models.text_of(tiny["llama"], 40))
    *records, _ = replay(user.store, user.settings, ReplayRequest(("t",), samples=3))
    assert all(record.top2_gap >= 0 for record in records)  # type: ignore[attr-defined]


@pytest.mark.parametrize("family", ["llama", "gemma3"])
@pytest.mark.parametrize("n", [63, 64, 65, 128])
def test_field_k06_lengths_around_a_page_with_and_without_a_suffix(
    person: Users, tiny: dict[str, Path], family: str, n: int
) -> None:
    user = person(family)
    made = put(user, "t", models.text_of(tiny[family], n), page_tokens=64)
    assert made.tokens == n
    for prompt in (None, " so"):
        assert logits_of(user, "t", prompt) == logits_of(user, "t", prompt, fresh=True)


def test_field_k09_nobody_gets_somebody_elses_conversation(
    person: Users, tiny: dict[str, Path]
) -> None:
    user = person()
    mine = put(user, "mine", models.text_of(tiny["llama"], 300))
    other = put(user, "other", models.text_of(tiny["llama"], 301)[5:])
    store = user.store
    a, b = store.manifest(mine.digest), store.manifest(other.digest)
    shutil.copy(object_path(store, b.pages[0].digest), object_path(store, a.pages[0].digest))
    with pytest.raises(Corrupt):
        restore(user, "mine")
    shutil.copy(object_path(store, b.tokens.digest), object_path(store, a.tokens.digest))
    with pytest.raises(Corrupt):
        restore(user, "mine")
    assert restore(user, "other").exact


def test_field_k10_a_store_that_failed_at_any_step_shows_nothing_half_done(
    person: Users, tiny: dict[str, Path]
) -> None:
    user = person()
    put(user, "before", "A first text.")
    text = models.text_of(tiny["llama"], 30)
    for n in range(1, 400):
        seen = 0

        def hook(step: str, path: str, n: int = n) -> None:
            nonlocal seen
            seen += 1
            if seen == n:
                raise OSError(5, "Input/output error")

        durable.set_hook(hook)
        try:
            put(user, "t", text, page_tokens=16)
        except KvgError:
            pass
        finally:
            durable.set_hook(None)
        store = Store.open(user.store.root, keyring=user.store.keyring)
        if "t" in store.refs():
            verified = verify_artifact(store, store.refs()["t"])
            for page in verified.manifest.pages:
                verified.read_page(page)
            break
        assert set(store.refs()) == {"before"}
    else:
        raise AssertionError("the deposit never succeeded")
    assert n > 10
    assert restore(user, "t").exact


IDENTITY = """
from tests import artifacts as a
from kvg.objects.manifest import model_fingerprint
manifest, raws = a.build(tuple(range(5, 32)))
config = {"b": 1, "a": {"z": [1.5, None], "y": "x"}}
weights = {"w%d" % i: a.sha256(b"%d" % i) for i in range(20)}
print(manifest.digest, model_fingerprint("Tiny", config, weights, "BF16", ()), sorted(raws))
"""


def test_field_k12_digests_do_not_depend_on_the_process() -> None:
    found = {
        subprocess.run(
            [sys.executable, "-c", IDENTITY],
            env=models.program_env(models.REPO, PYTHONHASHSEED=seed),
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "random")
    }
    assert len(found) == 1
    assert "sha256:" in found.pop()


def test_field_k16_a_colliding_key_reuses_nothing(
    person: Users, tiny: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = person(name="alone")
    text, wrong = models.text_of(tiny["llama"], 300), models.text_of(tiny["llama"], 301)[7:]
    expected = put(alone, "t", text)
    user = person()
    other = put(user, "other", wrong)
    monkeypatch.setattr(Store, "find_tokens", lambda *_: (other.digest,))
    monkeypatch.setattr(Store, "find_prefix", lambda *_: ((256, other.digest),))
    made = put(user, "t", text)
    assert (made.unchanged, made.tokens_computed, made.digest) == (False, 300, expected.digest)


def test_field_k17_saved_tokens_are_counted(
    person: Users, tiny: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    user = person()
    put(user, "t", models.text_of(tiny["llama"], 300))
    ran: list[int] = []
    stock = Session.run_batch

    def counted(self: Session, slots, ids, rows):  # type: ignore[no-untyped-def]
        ran.append(sum(len(row) for row in ids))
        return stock(self, slots, ids, rows)

    monkeypatch.setattr(Session, "run_batch", counted)
    found = restore(user, "t", " and so on", n=3)
    decoded = max(0, found.new_tokens - 1)
    assert found.saved_tokens == 300 + found.prompt_tokens + decoded - sum(ran)
    assert found.saved_tokens == 299


def test_field_k19_a_graft_yields_no_more_than_was_asked(
    person: Users, tiny: dict[str, Path]
) -> None:
    user = person()
    text = models.text_of(tiny["llama"], 400)
    tokenizer = models.tokenizer(tiny["llama"])
    put(user, "long", text, cut_points=(300,))
    start = tokenizer.decode(tokenizer.encode(text)[:300])
    short = put(user, "short", start)
    assert short.tokens == 300
    lone = person(name="lone")
    assert put(lone, "short", start).digest == short.digest
    for n in (0, 1, 5):
        found = restore(user, "short", n=n)
        assert found.new_tokens <= n
        cut = restore(user, "long", n=n, cut=300)
        assert (cut.text, cut.logits_digest) == (found.text, found.logits_digest)
    prompts = user.folder / "p.jsonl"
    prompts.write_text('{"prompt": " a longer prompt than the next one"}\n{"prompt": " so"}\n')
    request = GraftRequest("short", prompts=prompts, sampling=Sampling(max_tokens=4))
    last = list(graft(user.store, user.settings, request))[-1]
    assert isinstance(last, Graft)
    assert last.logits_digest == restore(user, "short").logits_digest


@pytest.mark.parametrize("reference", ["invariant", "scheduled"])
@pytest.mark.parametrize("n", [1, 256, 300])
def test_field_k23_an_exact_hit_counts_its_last_token_once(
    person: Users, tiny: dict[str, Path], n: int, reference: str
) -> None:
    user = person()
    made = put(user, "t", models.text_of(tiny["llama"], n), reference=reference)
    witness = user.store.manifest(made.digest).witnesses[-1]
    assert witness.position == n - 1
    assert logits_of(user, "t") == witness.logits == logits_of(user, "t", fresh=True)
    found = restore(user, "t", "", n=1)
    assert (found.prompt_tokens, found.logits_digest) == (0, witness.logits)


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
def test_field_k24_with_and_without_a_cache_the_difference_is_zero(
    person: Users, tiny: dict[str, Path], dtype: str
) -> None:
    user = person("qwen3", dtype)
    put(user, "t", models.text_of(tiny["qwen3"], 280))
    *records, summary = replay(user.store, user.settings, ReplayRequest(("t",), samples=4))
    assert summary.exit_code == 0  # type: ignore[attr-defined]
    assert {record.max_abs_diff for record in records} == {0.0}  # type: ignore[attr-defined]


def test_field_k26_stored_bytes_name_no_class_and_no_version(
    person: Users, tiny: dict[str, Path]
) -> None:
    user = person("gemma3")
    made = put(user, "t", models.text_of(tiny["gemma3"], 300))
    manifest = user.store.manifest(made.digest)
    raw = bytes(user.store.objects.read(made.digest, what="manifest"))
    assert not re.search(
        rb"torch|transformers|kvg\.(model|flow)|Cache|/", raw.replace(b"kvg.manifest/1", b"")
    )
    for page in manifest.pages:
        data = bytes(user.store.objects.read(page.digest, what="page"))
        tensors = load_safetensors(data)
        assert len(tensors) == 2 * len(manifest.group(page.group).layers)
        assert not re.search(rb"torch|transformers|Cache", data[: data.index(b"}}")])


def test_field_k27_no_pickle_is_ever_loaded(
    person: Users, tiny: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.system, (f"touch {tmp_path / 'exploded'}",)

    user = person()
    made = put(user, "t", models.text_of(tiny["llama"], 30))
    manifest = user.store.manifest(made.digest)
    bomb = pickle.dumps(Bomb())
    for digest in (manifest.pages[0].digest, manifest.tokens.digest, made.digest):
        path = object_path(user.store, digest)
        kept = path.read_bytes()
        for data in (bomb, kept[:4096] + bomb, bomb.ljust(len(kept), b"\0")):
            overwrite(path, data)
            with pytest.raises(Corrupt):
                restore(user, "t")
        overwrite(path, kept)
    assert not (tmp_path / "exploded").exists()
    for path in (models.REPO / "kvg").rglob("*.py"):
        assert not re.search(
            r"^\s*(import|from) (pickle|marshal|shelve|dill)\b"
            r"|torch\.load\((?![^)]*weights_only=True)",
            path.read_text(),
            re.M,
        )


def test_field_k28_ids_are_matched_and_the_first_difference_is_told(
    person: Users, tiny: dict[str, Path]
) -> None:
    user = person()
    tokenizer = models.tokenizer(tiny["llama"])
    text = models.text_of(tiny["llama"], 60)
    whole = tokenizer.encode(text)
    end = next(
        end
        for end in range(len(text) - 1, 0, -1)
        if tokenizer.encode(text[:end]) != whole[: len(tokenizer.encode(text[:end]))]
    )
    part = tokenizer.encode(text[:end])
    index = next(i for i, (a, b) in enumerate(zip(part, whole, strict=False)) if a != b)
    put(user, "part", text[:end])
    with pytest.raises(Incompatible, match=f"token ids differ first at {index}"):
        put(user, "t", text, parent="part")
    assert put(user, "t", text).tokens == 60
    verified = verify_artifact(user.store, user.store.resolve("t").digest)
    assert list(verified.ids) == whole


def test_field_k22_the_template_is_applied_once_and_nothing_is_padded(
    person: Users, tiny: dict[str, Path], tmp_path: Path
) -> None:
    padded = tmp_path / "padded"
    shutil.copytree(tiny["llama"], padded)
    rules = json.loads((padded / "tokenizer.json").read_text())
    rules["padding"] = {
        "strategy": {"Fixed": 64},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "<|end|>",
    }
    (padded / "tokenizer.json").write_text(json.dumps(rules))
    user = person()
    user.add("padded", padded)
    talk = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi."}]
    (user.folder / "talk.json").write_text(json.dumps(talk))
    tokenizer = models.tokenizer(tiny["llama"])
    expected = tuple(tokenizer.encode_more(tokenizer.render(talk)))
    for name in ("tiny", "padded"):
        request = DepositRequest(name, model=name, chat=Path("talk.json"))
        digest = deposit(user.store, user.settings, request).digest
        ids = verify_artifact(user.store, digest).ids
        assert ids == expected
        text = tokenizer.render(talk)
        assert text.count("<|im_start|>") == 2 == text.count("<|im_end|>")
        assert tokenizer.encode_more(text) == list(ids)
    # Rows of unequal length share a pass: what fills the shorter one up is never kept.
    session = models.session(tiny["llama"])
    short, long = session.slot(), session.slot()
    session.run_batch([short, long], [expected[:5], expected], [0])
    alone = session.slot()
    session.run(alone, expected[:5], [0])
    assert short.length == 5
    for layer in session.model.layers:
        assert not bool(short.state.keys[layer.index][:, 5:].any())
        assert torch.equal(
            short.state.keys[layer.index][:, :5], alone.state.keys[layer.index][:, :5]
        )


def test_field_k29_a_chat_is_cut_before_the_generation_prompt(
    person: Users, tiny: dict[str, Path]
) -> None:
    user = person()
    tokenizer = models.tokenizer(tiny["llama"])
    first = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    more = [{"role": "assistant", "content": "Hi."}, {"role": "user", "content": "And now?"}]
    for name, messages in (("first", first), ("both", [*first, *more])):
        (user.folder / f"{name}.json").write_text(json.dumps(messages))
        request = DepositRequest(name, chat=Path(f"{name}.json"))
        deposit(user.store, user.settings, request)
    ids = {
        name: verify_artifact(user.store, user.store.resolve(name).digest).ids
        for name in ("first", "both")
    }
    assert "<think>" not in tokenizer.decode(ids["first"])
    assert "assistant" not in tokenizer.decode(ids["first"])
    assert ids["both"][: len(ids["first"])] == ids["first"]
    found = list(
        graft(user.store, user.settings, AskRequest("first", "Go on", Sampling(max_tokens=2)))
    )
    assert isinstance(found[-1], Graft)
    asked = tokenizer.render_more([{"role": "user", "content": "Go on"}])
    assert asked.endswith("<|im_start|>assistant\n<think>\n")
    assert found[-1].prompt_tokens == len(tokenizer.encode_more(asked))


def test_field_k32_new_weights_under_the_same_path_are_refused(
    person: Users, tiny: dict[str, Path], tmp_path: Path
) -> None:
    user = person()
    folder = tmp_path / "model"
    shutil.copytree(tiny["llama"], folder)
    user.add("tiny", folder)
    put(user, "t", models.text_of(tiny["llama"], 40))
    other = models.make_model(tmp_path / "other", "llama", seed=1)
    shutil.copy(other / "model.safetensors", folder / "model.safetensors")
    with pytest.raises(Incompatible, match="not those that were registered"):
        restore(user, "t")
    with pytest.raises(Incompatible, match="not those that were registered"):
        put(user, "u", "More text.")
    user.add("tiny", folder)
    with pytest.raises(Incompatible, match="no registered model"):
        restore(user, "t")


def test_field_k33_a_broken_state_is_a_typed_error(person: Users, tiny: dict[str, Path]) -> None:
    user = person("gemma3")
    made = put(user, "t", models.text_of(tiny["gemma3"], 300))
    manifest = user.store.manifest(made.digest)
    for digest in (manifest.pages[-1].digest, manifest.tokens.digest, made.digest):
        path = object_path(user.store, digest)
        kept = path.read_bytes()
        size = len(kept)
        flips = [bytes([kept[i] ^ 1]) for i in range(0, size, max(1, size // 40))]
        broken = [
            b"",
            kept[:3],
            kept[: size // 2],
            kept[:-1],
            kept + b"\0",
            bytes(size),
            os.urandom(size),
        ]
        broken += [
            kept[: n * max(1, size // 40)] + flip + kept[n * max(1, size // 40) + 1 :]
            for n, flip in enumerate(flips)
        ]
        for data in broken:
            overwrite(path, data)
            with pytest.raises(KvgError) as error:
                restore(user, "t")
            assert error.value.code in (5, 6)
        overwrite(path, kept)
    assert restore(user, "t").exact
    assert sha256(b"") != made.digest
