"""Deposit, graft and fresh: the same bytes at every length, in both references."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvg.flow.deposit import deposit
from kvg.flow.graft import graft
from kvg.flow.logits import logits
from kvg.flow.replay import replay
from kvg.flow.requests import DepositRequest, GraftRequest, LogitsRequest, ReplayRequest, Sampling
from tests import models

LENGTHS = (1, 2, 255, 256, 257, 511, 512, 513)
SLIDING_LENGTHS = (95, 96, 97, 128, 352, 1023, 1024, 1025)
"""Around the window, the window before a page's end, and far past it."""
REFERENCES = ("invariant", "scheduled sdpa", "scheduled eager")


@pytest.fixture(params=models.FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def person(tmp_path: Path, tiny: dict[str, Path], family: str) -> models.User:
    made = models.User.make(tmp_path / "person")
    made.add("tiny", tiny[family])
    return made


@pytest.fixture(params=REFERENCES)
def reference(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    _, _, attention = str(request.param).partition(" ")
    if attention:
        monkeypatch.setattr(
            "kvg.model.opening.default_schedule.__kwdefaults__", {"attention": attention}
        )
    return str(request.param)


def check(person: models.User, folder: Path, n: int, reference: str) -> None:
    ref = f"n{n}"
    request = DepositRequest(ref, text=models.text_of(folder, n), reference=reference.split()[0])  # type: ignore[arg-type]
    made = deposit(person.store, person.settings, request)
    assert made.tokens == n
    for prompt in (None, "The statement after it. " * 3):
        grafted = logits(person.store, person.settings, LogitsRequest(ref, prompt=prompt))
        fresh = logits(person.store, person.settings, LogitsRequest(ref, prompt=prompt, fresh=True))
        assert (grafted.source, fresh.source) == ("grafted", "fresh")
        assert grafted.digest == fresh.digest, (n, prompt)
    witness = person.store.manifest(made.digest).witnesses[-1]
    empty = logits(person.store, person.settings, LogitsRequest(ref))
    assert empty.digest == witness.logits
    *records, summary = replay(person.store, person.settings, ReplayRequest((ref,), samples=2))
    assert summary.exit_code == 0
    assert all(record.kl == 0 and record.max_abs_diff == 0 for record in records)
    assert summary.pages == summary.pages_equal == len(person.store.manifest(made.digest).pages)


def test_lengths_around_a_page(
    person: models.User, tiny: dict[str, Path], family: str, reference: str
) -> None:
    for n in LENGTHS:
        check(person, tiny[family], n, reference)
    (engine,) = {person.store.manifest(d).engine for d in person.store.artifacts()}
    kind = f"scheduled {engine.schedule.attention}" if engine.schedule else "invariant"
    assert kind == reference


@pytest.mark.parametrize("family", ["mistral", "gemma3"])
def test_lengths_around_a_sliding_window(
    person: models.User, tiny: dict[str, Path], family: str, reference: str
) -> None:
    for n in SLIDING_LENGTHS:
        check(person, tiny[family], n, reference)


@pytest.mark.parametrize("page_tokens", [1, 7, 64, 300])
@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_other_page_sizes(
    person: models.User, tiny: dict[str, Path], family: str, page_tokens: int
) -> None:
    text = models.text_of(tiny[family], 150)
    deposit(person.store, person.settings, DepositRequest("t", text=text, page_tokens=page_tokens))
    grafted = logits(person.store, person.settings, LogitsRequest("t", prompt=" and"))
    fresh = logits(person.store, person.settings, LogitsRequest("t", prompt=" and", fresh=True))
    assert grafted.digest == fresh.digest


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_a_cut_point_grafts_like_a_shorter_text(
    person: models.User, tiny: dict[str, Path], family: str
) -> None:
    text = models.text_of(tiny[family], 400)
    store, settings = person.store, person.settings
    deposit(store, settings, DepositRequest("t", text=text, cut_points=(100, 256)))
    ids = models.tokenizer(tiny[family]).encode(text)
    session = models.session(tiny[family])
    for cut in (100, 256, None):
        request = GraftRequest("t", prompt=" so", cut=cut, sampling=Sampling(max_tokens=3))
        (found,) = graft(store, settings, request)
        prompt = models.tokenizer(tiny[family]).encode_more(" so")
        whole = [*ids[: cut or 400], *prompt]
        last = session.run(session.slot(), whole, [len(whole) - 1])[0]
        from kvg.model.dtypes import tensor_digest

        assert found.logits_digest == tensor_digest(last)
        assert found.exact is True


def test_fp32_and_fp16(tmp_path: Path, tiny: dict[str, Path]) -> None:
    for dtype in ("F32", "F16"):
        person = models.User.make(tmp_path / dtype)
        person.add("tiny", tiny["qwen3"], dtype)
        check(person, tiny["qwen3"], 257, "invariant")
        check(person, tiny["qwen3"], 257, "scheduled")
