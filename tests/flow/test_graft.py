"""What a graft yields: text, pieces, several prompts, a recorded random stream."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file

from kvg.errors import UsageError
from kvg.flow.deposit import deposit
from kvg.flow.graft import graft
from kvg.flow.logits import logits
from kvg.flow.records.computed import Graft, TextPiece
from kvg.flow.replay import replay
from kvg.flow.requests import (
    DepositRequest,
    GraftRequest,
    LogitsRequest,
    ReplayRequest,
    Sampling,
)
from kvg.model.dtypes import tensor_digest
from tests import models


@pytest.fixture
def put(user: models.User, tiny: dict[str, Path]) -> models.User:
    text = models.text_of(tiny["llama"], 300)
    deposit(user.store, user.settings, DepositRequest("t", text=text))
    return user


def run(user: models.User, **more: object) -> list[object]:
    sampling = Sampling(**{"max_tokens": 12, **more.pop("sampling", {})})  # type: ignore[arg-type,dict-item]
    return list(graft(user.store, user.settings, GraftRequest("t", sampling=sampling, **more)))  # type: ignore[arg-type]


def test_the_record(put: models.User) -> None:
    (found,) = run(put, prompt=" so")
    assert isinstance(found, Graft)
    assert (found.status, found.exact, found.saved_tokens) == ("GRAFT_HIT", True, 299)
    assert (found.reference, found.device, found.prompt_tokens > 0) == ("invariant", "cpu", True)
    pages = put.store.manifest(put.store.resolve("t").digest).pages
    assert found.restored_bytes == sum(page.size for page in pages)
    grafted = logits(put.store, put.settings, LogitsRequest("t", prompt=" so"))
    assert found.logits_digest == grafted.digest


def test_pieces_add_up_to_the_text(put: models.User) -> None:
    *pieces, last = run(put, prompt=" so", stream=True)
    (whole,) = run(put, prompt=" so")
    assert all(isinstance(piece, TextPiece) for piece in pieces)
    assert "".join(piece.text for piece in pieces) == last.text == whole.text  # type: ignore[attr-defined]


def test_a_stop_text_is_never_shown(put: models.User) -> None:
    (whole,) = run(put, prompt=" so")
    text = whole.text  # type: ignore[attr-defined]
    stop = text[len(text) // 2 : len(text) // 2 + 3]
    *pieces, last = run(put, prompt=" so", stream=True, sampling={"stop": (stop,)})
    assert last.text == text[: text.index(stop)]  # type: ignore[attr-defined]
    assert "".join(piece.text for piece in pieces) == last.text  # type: ignore[attr-defined]


def test_seeds_repeat_themselves(put: models.User) -> None:
    texts = [
        run(put, prompt=" so", sampling={"temperature": 1.0, "seed": seed})[0].text  # type: ignore[attr-defined]
        for seed in (1, 1, 2)
    ]
    assert texts[0] == texts[1] != texts[2]


def test_several_prompts_are_grafted_alone(put: models.User) -> None:
    path = put.folder / "p.jsonl"
    prompts = [" so", " a longer prompt, then", "", " so"]
    path.write_text("\n".join(json.dumps({"prompt": text}) for text in prompts))
    found = run(put, prompts=path)
    alone = [run(put, prompt=text)[0] for text in prompts]
    assert [(a.text, a.logits_digest) for a in found] == [  # type: ignore[attr-defined]
        (b.text, b.logits_digest)  # type: ignore[attr-defined]
        for b in alone
    ]
    path.write_text('{"prompt": 3}')
    with pytest.raises(UsageError, match="line 1"):
        run(put, prompts=path)


def test_a_miss_is_answered_fresh_when_asked(put: models.User) -> None:
    request = GraftRequest("none", prompt="The text", or_fresh="tiny", sampling=Sampling(3))
    (found,) = graft(put.store, put.settings, request)
    assert isinstance(found, Graft)
    assert (found.status, found.digest, found.saved_tokens) == ("CACHE_MISS", None, 0)
    own = logits(put.store, put.settings, LogitsRequest(model="tiny", prompt="The text"))
    assert found.logits_digest == own.digest


def test_logits_are_written_as_they_are(put: models.User) -> None:
    out = put.folder / "l.safetensors"
    found = logits(put.store, put.settings, LogitsRequest("t", prompt=" so", out=out))
    assert tensor_digest(load_file(out)["logits"]) == found.digest
    assert found.shape == (models.VOCABULARY,)


def test_a_replay_can_be_signed(put: models.User) -> None:
    digest = put.store.resolve("t").digest
    before = len(put.store.attestations(digest))
    request = ReplayRequest(("t",), samples=2, sign=True)
    *_, summary = replay(put.store, put.settings, request)
    assert summary.exit_code == 0  # type: ignore[attr-defined]
    assert len(put.store.attestations(digest)) == before + 1
