"""The machinery broken on purpose: the self-check or a witness catches each way."""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn import functional

import kvg_kernels.alignment
import kvg_kernels.linear.cpu
from kvg.errors import Incompatible
from kvg.flow.deposit import deposit
from kvg.flow.requests import DepositRequest
from kvg.model import cancelling, experts, invariant, opening, probe, tiling
from kvg.model.loader import LoadedModel
from kvg.model.made import made_input
from kvg.model.session import Session
from kvg.verify import verify_artifact
from kvg_kernels.attention import BLOCK_TOKENS, AttentionSpec, attention
from kvg_kernels.attention.cpu import LEAST_ROWS
from kvg_kernels.linear import linear
from tests import models
from tests.model.test_architectures import EXACT, load

Patch = pytest.MonkeyPatch
UNALIGNED_BYTES = 8


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    with models.threads(1):
        yield


@pytest.fixture(params=["llama", "gemma3"])
def model(request: pytest.FixtureRequest, tiny: dict[str, Path]) -> LoadedModel:
    return models.load(tiny[request.param], "F32")


def in_halves(tile: int, *, last_row_only: bool = False) -> Callable[..., torch.Tensor]:
    """``linear``, but whole tiles of ``tile`` rows (or their last rows) sum K in two halves."""

    def spoilt(
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        *,
        tiles: Sequence[int],
    ) -> torch.Tensor:
        rows = x.reshape(-1, x.shape[-1])
        out = linear(rows, weight, bias, tiles=tiles)
        whole = rows.shape[0] // tile * tile if tile in tiles else 0
        if whole:
            half = rows.shape[1] // 2
            a, b = rows[:whole].float(), weight.float()
            other = (a[:, :half] @ b[:, :half].T + a[:, half:] @ b[:, half:].T).to(x.dtype)
            first, step = (tile - 1, tile) if last_row_only else (0, 1)
            out[first:whole:step] = other[first::step]
        return out.view(*x.shape[:-1], -1)

    return spoilt


def refuses(model: LoadedModel) -> None:
    with pytest.raises(Incompatible, match="self-check"):
        opening.session_of(model, schedule=None)


def plain_attention(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    start: int,
    spec: AttentionSpec,
    *,
    out: torch.Tensor,
    **_: object,
) -> torch.Tensor:
    """Stock attention over exactly the keys that there are: its shapes follow the call."""
    end = start + query.shape[1]
    at, key = torch.arange(start, end).unsqueeze(1), torch.arange(end)
    seen = key <= at
    if spec.window is not None:
        seen &= key > at - spec.window
    repeat = query.shape[0] // keys.shape[0]
    found = functional.scaled_dot_product_attention(
        query.unsqueeze(0),
        keys[:, :end].repeat_interleave(repeat, 0).unsqueeze(0),
        values[:, :end].repeat_interleave(repeat, 0).unsqueeze(0),
        attn_mask=seen,
        scale=spec.scale,
    )
    return out.copy_(found[0])


def test_stock_attention_is_caught(model: LoadedModel, monkeypatch: Patch) -> None:
    monkeypatch.setattr(invariant, "attention", plain_attention)
    refuses(model)


WRONG = {
    "a scale": lambda spec: replace(spec, scale=spec.scale * 4),
    "a window": lambda spec: replace(spec, window=1),
}


@pytest.mark.parametrize("how", WRONG)
def test_attention_that_is_wrong_in_every_split_alike_is_caught(
    how: str, model: LoadedModel, monkeypatch: Patch
) -> None:
    """Nothing depends on the company, but it is not what the model computes."""

    def wrong(query, keys, values, start, spec, **more):  # type: ignore[no-untyped-def]
        return attention(query, keys, values, start, WRONG[how](spec), **more)

    monkeypatch.setattr(invariant, "attention", wrong)
    with pytest.raises(Incompatible, match=r"self-check: .* are not those of the stock model"):
        opening.session_of(model, schedule=None)


def test_split_keys_are_caught(model: LoadedModel, monkeypatch: Patch) -> None:
    """Split-K: a decode step that sums its keys in two halves and joins them."""

    def split(
        query: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        start: int,
        spec: AttentionSpec,
        **more: object,
    ) -> torch.Tensor:
        if query.shape[1] > 1:
            return attention(query, keys, values, start, spec, **more)  # type: ignore[arg-type]
        repeat = query.shape[0] // keys.shape[0]
        wide = keys[:, : start + 1].repeat_interleave(repeat, 0)
        scores = (query @ wide.transpose(1, 2)) * spec.scale
        weights = (scores - scores.amax(-1, keepdim=True)).exp()
        held = values[:, : start + 1].repeat_interleave(repeat, 0)
        half = (start + 1) // 2
        parts = weights[..., :half] @ held[:, :half], weights[..., half:] @ held[:, half:]
        joined = (parts[0] + parts[1]) / weights.sum(-1, keepdim=True)
        return more["out"].copy_(joined)  # type: ignore[attr-defined,no-any-return]

    monkeypatch.setattr(invariant, "attention", split)
    refuses(model)


def test_stock_linear_is_caught(model: LoadedModel, monkeypatch: Patch) -> None:
    """A single row takes another path through the library."""
    monkeypatch.setattr(
        invariant, "linear", lambda x, weight, bias, *, tiles: functional.linear(x, weight, bias)
    )
    refuses(model)


def test_stock_pointwise_is_caught(model: LoadedModel, monkeypatch: Patch) -> None:
    """Elements left over from whole vectors are rounded by other code."""
    x = made_input("pointwise", (1, 1021), torch.float32) * 8
    used = (torch.cos, torch.sin, functional.silu, functional.gelu)
    if all(torch.equal(invariant.pointwise(op, x)[:, 1:], op(x[:, 1:].clone())) for op in used):
        pytest.skip("this machine rounds cos, sin, silu and gelu alike in vectors and after them")
    monkeypatch.setattr(invariant, "pointwise", lambda op, x: op(x))
    refuses(model)


def backwards(tile: int) -> Callable[..., torch.Tensor]:
    """``attention``, but tiles of ``tile`` positions alone see their keys from last to first."""

    def spoilt(
        query: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        start: int,
        spec: AttentionSpec,
        *,
        sinks: torch.Tensor | None,
        tiles: Sequence[int],
    ) -> torch.Tensor:
        out = attention(query, keys, values, start, spec, sinks=sinks, tiles=tiles)
        if tiles != (tile,):
            return out
        n_tokens, block = query.shape[1], start // BLOCK_TOKENS
        low, high = spec.first_block(block) * BLOCK_TOKENS, (block + 1) * BLOCK_TOKENS
        at, key = torch.arange(start, start + n_tokens).unsqueeze(1), torch.arange(low, high)
        hidden = (key > at) | (key <= at - (spec.window or high))
        mask = torch.zeros(hidden.shape, dtype=query.dtype).masked_fill_(hidden, float("-inf"))
        rows = torch.arange(max(n_tokens, LEAST_ROWS)).clamp_max(n_tokens - 1)
        repeat = query.shape[0] // keys.shape[0]
        return functional.scaled_dot_product_attention(
            query[:, rows].unsqueeze(0),
            keys[:, low:high].flip(1).repeat_interleave(repeat, 0).unsqueeze(0),
            values[:, low:high].flip(1).repeat_interleave(repeat, 0).unsqueeze(0),
            attn_mask=mask.flip(1)[rows],
            scale=spec.scale,
        )[0, :, :n_tokens]

    return spoilt


@pytest.mark.parametrize("dtype", ["BF16", "F32"])
def test_a_tile_that_sums_in_another_order_is_not_used(
    tiny: dict[str, Path], dtype: str, monkeypatch: Patch
) -> None:
    model = models.load(tiny["gemma3"], dtype)
    before = tiling.prove_tiles(model).attention
    assert all(64 in tiles for tiles in before.values())
    monkeypatch.setattr(tiling, "attention", backwards(64))
    after = tiling.prove_tiles(model).attention
    for shape, tiles in before.items():
        assert after[shape] == tuple(tile for tile in tiles if tile != 64)


def test_another_order_of_the_keys_in_a_short_window_shows(
    tiny: dict[str, Path], monkeypatch: Patch
) -> None:
    """From three keys on, for a whole block and for a decode step; two have no order."""
    model = models.load(tiny["mistral"], "BF16")
    (shape,) = model.shapes
    shapes = [shape._replace(spec=replace(shape.spec, window=n)) for n in (3, 5, 8, 33)]
    assert {256, 1} <= set(tiling._attention_tiles(model, shapes[0]))
    for tile in (256, 1):
        monkeypatch.setattr(tiling, "attention", backwards(tile))
        assert not any(tile in tiling._attention_tiles(model, there) for there in shapes)


def test_windows_that_cancel_do_so_wherever_they_begin(tiny: dict[str, Path]) -> None:
    (shape,) = models.load(tiny["mistral"]).shapes
    for window in (2, 3, 8, 33, 512):
        there = shape._replace(spec=replace(shape.spec, window=window))
        (_, keys, values), _ = cancelling.windowed_inputs(
            there, torch.bfloat16, n_tokens=8, n_blocks=3
        )
        sums = values.double().unfold(1, window, 1).sum(-1)
        assert sums.abs().max() <= (2.0**-18 if window % 2 else 0)
        assert values.abs().amax() > 0.9 and keys.abs().mean() > 0.3


def test_a_small_tile_that_halves_many_keys_is_not_used(monkeypatch: Patch) -> None:
    """Gemma 2 has soft caps: its products are over all keys at once."""
    model = load(EXACT["Gemma 2"](), "F32", "m")
    product = torch.bmm

    def halved(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        half = a.shape[-1] // 2
        if half < 512 or a.shape[1] > 8:
            return product(a, b)
        first = product(a[..., :half].contiguous(), b[:, :half].contiguous())
        return first + product(a[..., half:].contiguous(), b[:, half:].contiguous())

    def least_rows() -> set[int]:
        found = tiling.prove_tiles(model).attention
        return {
            min(tiles) * shape.repeat for shape, tiles in found.items() if not shape.spec.window
        }

    assert max(least_rows()) <= 8
    monkeypatch.setattr(torch, "bmm", halved)
    assert min(least_rows()) > 8


def test_a_linear_tile_that_sums_in_another_order_is_not_used(
    tiny: dict[str, Path], monkeypatch: Patch
) -> None:
    """bf16 hides such a difference on plain inputs; those that cancel show it."""
    model = models.load(tiny["llama"], "BF16")
    before = tiling.prove_tiles(model).linear
    monkeypatch.setattr(tiling, "linear", in_halves(64))
    after = tiling.prove_tiles(model).linear
    assert all(64 in tiles for tiles in before.values())
    assert not any(64 in tiles for tiles in after.values())


@pytest.mark.parametrize("tile", [2, 4, 64, 256, 1024])
def test_a_tile_that_is_wrong_at_its_end_alone_is_not_used(
    tile: int, tiny: dict[str, Path], monkeypatch: Patch
) -> None:
    """Every row of a tile is looked at, not its first ones."""
    model = models.load(tiny["llama"], "BF16")
    before = tiling.prove_tiles(model).linear
    monkeypatch.setattr(tiling, "linear", in_halves(tile, last_row_only=True))
    after = tiling.prove_tiles(model).linear
    assert any(tile in tiles for tiles in before.values())
    assert not any(tile in tiles for tiles in after.values())


def test_a_layout_that_sums_in_another_order_is_not_used(
    tiny: dict[str, Path], monkeypatch: Patch
) -> None:
    model = models.load(tiny["llama"], "BF16")
    if not tiling.prove_tiles(model).packed:
        pytest.skip("this torch lays out no weights that agree with plain ones")
    real = tiling.packed_linear

    def other(x: torch.Tensor, packed: object, *more: object) -> torch.Tensor:
        half = torch.zeros_like(x)
        half[:, : x.shape[1] // 2] = x[:, : x.shape[1] // 2]
        return real(half, packed, *more) + real(x - half, packed, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(tiling, "packed_linear", other)
    assert tiling.prove_tiles(model).packed == {}


@pytest.mark.parametrize("name", ["Mixtral", "gpt-oss"])
def test_experts_that_compute_one_row_otherwise_are_refused(name: str, monkeypatch: Patch) -> None:
    """Split-K and another path for M = 1, as a library's batched product has them."""
    model = load(EXACT[name](), "BF16", name)

    def spoilt(operator: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def call(*given: torch.Tensor) -> torch.Tensor:
            *added, a, b = given
            if a.shape[1] != 1:
                return operator(*given)
            half = a.shape[-1] // 2
            x, y = a.float(), b.float()
            out = x[..., :half] @ y[:, :half] + x[..., half:] @ y[:, half:]
            return (out + added[0].float() if added else out).to(a.dtype)

        return call

    for module in (tiling, experts):
        monkeypatch.setattr(module, "bmm", spoilt(module.bmm))
        monkeypatch.setattr(module, "baddbmm", spoilt(module.baddbmm))
    with pytest.raises(Incompatible, match=r"product .* of experts .* its other rows"):
        opening.session_of(model, schedule=None)


def test_inputs_that_cancel_are_zero_but_for_rounding(tiny: dict[str, Path]) -> None:
    x, weight = cancelling.linear_inputs(64, 300, 5, torch.bfloat16)
    assert (x.double() @ weight.double().T).abs().max() < 1e-12
    assert x.abs().mean() > 0.3 and weight.abs().mean() > 0.3
    (shape,) = models.load(tiny["llama"]).shapes
    silent, loud = cancelling.attention_inputs(shape, torch.bfloat16, n_tokens=8, n_blocks=2)
    scores = loud[0][:2].double() @ loud[1][0].double().T
    assert scores.abs().max() == 0
    assert silent[2].double().view(2, 32, 16, -1).sum(2).abs().max() == 0


@pytest.fixture
def session(tiny: dict[str, Path]) -> Session:
    return models.session(tiny["gemma3"])


@pytest.fixture
def put(tmp_path: Path, tiny: dict[str, Path], monkeypatch: Patch) -> models.User:
    opened = models.session(tiny["gemma3"])
    monkeypatch.setattr("kvg.model.opening.open_session", lambda *_, **__: opened)
    monkeypatch.setattr("os.fsync", lambda fd: None)
    user = models.User.make(tmp_path / "user")
    user.add("tiny", tiny["gemma3"])
    text = models.text_of(tiny["gemma3"], 300)
    for name, words in (("a", text), ("b", text[300:] + text[:300])):
        deposit(user.store, user.settings, DepositRequest(name, text=words))
    return user


def witness_holds(user: models.User, session: Session, spoil: Callable[..., None] | None) -> bool:
    """Graft ``a`` as ``kvg graft`` does, ``spoil`` the slot, and check the witness."""
    verified = verify_artifact(user.store, user.store.resolve("a").digest)
    slot = session.slot()
    session.restore(slot, verified)
    if spoil is not None:
        spoil(slot)
    witness, _ = session.resume(slot, verified.ids[-1], [])
    try:
        session.check_witness(verified, verified.manifest.witnesses[-1], witness)
    except Incompatible as error:
        assert "witness failed" in error.message
        return False
    return True


def test_a_window_off_by_one_is_caught(
    put: models.User, session: Session, monkeypatch: Patch, tiny: dict[str, Path]
) -> None:
    assert witness_holds(put, session, None)

    def wider(query, keys, values, start, spec, **more):  # type: ignore[no-untyped-def]
        window = spec.window + 1 if spec.window else None
        return attention(query, keys, values, start, replace(spec, window=window), **more)

    monkeypatch.setattr(invariant, "attention", wider)
    assert not witness_holds(put, session, None)
    monkeypatch.setattr(probe, "attention", wider)
    other = opening.session_of(models.load(tiny["gemma3"]), schedule=None)
    assert other.engine.fingerprint != session.engine.fingerprint


def test_a_stale_page_is_caught(put: models.User, session: Session) -> None:
    other = verify_artifact(put.store, put.store.resolve("b").digest)
    stale = session.slot()
    session.restore(stale, other)

    def spoil(slot) -> None:  # type: ignore[no-untyped-def]
        for layer in slot.state.keys:
            slot.state.keys[layer][:, 256:280] = stale.state.keys[layer][:, 256:280]
            slot.state.values[layer][:, 256:280] = stale.state.values[layer][:, 256:280]

    assert not witness_holds(put, session, spoil)


def lopsided(operator: Callable[..., torch.Tensor], place: int) -> Callable[..., torch.Tensor]:
    """``operator``, but with other bits where its argument number ``place`` lies unaligned."""

    def spoilt(*given: torch.Tensor, **more: object) -> torch.Tensor:
        out = operator(*given, **more)
        if given[place] is not None and not kvg_kernels.alignment.is_aligned(given[place]):
            out = out + 2.0**-10
        return out

    return spoilt


PLACES = {
    "linear rows": ("kvg_kernels.linear._on_cpu", 0, "linear"),
    "linear weights": ("kvg.model.tiling.linear", 1, "linear"),
    "linear biases": ("kvg.model.tiling.linear", 2, "linear"),
    "queries": ("kvg.model.tiling.attention", 0, "attention"),
    "pages of keys": ("kvg.model.tiling.attention", 1, "attention"),
    "pages of values": ("kvg.model.tiling.attention", 2, "attention"),
    "rows of experts": ("kvg.model.tiling.bmm", 0, "experts"),
    "weights of experts": ("kvg.model.tiling.bmm", 1, "experts"),
    "elements": ("kvg.model.tiling.pointwise", 1, "cos"),
}


@pytest.mark.parametrize("what", PLACES)
def test_an_operator_that_minds_where_its_inputs_lie_is_refused(
    what: str, monkeypatch: Patch
) -> None:
    """As one would that lost its copy to aligned memory."""
    name = {"linear biases": "Qwen2", "rows of experts": "Mixtral", "weights of experts": "Mixtral"}
    model = load(EXACT[name.get(what, "Gemma 2")](), "BF16", what)
    path, place, operator = PLACES[what]
    opening.session_of(model, schedule=None)
    module, attribute = path.rsplit(".", 1)
    real = getattr(sys.modules[module], attribute)
    monkeypatch.setattr(path, lopsided(real, place))
    how = "how its queries are split" if what == "queries" else "where its inputs lie in memory"
    with pytest.raises(Incompatible, match=f"self-check: .*{operator}.* depends on {how}"):
        opening.session_of(model, schedule=None)


ALIGNED = {
    "linear": "kvg_kernels.linear.aligned",
    "linear rows": "kvg_kernels.linear.cpu.aligned",
    "attention": "kvg_kernels.attention.aligned",
    "experts": "kvg_kernels.bmm.cpu.aligned",
}


COPIES = {
    "weights": ("kvg_kernels.linear", "_on_cpu", 1),
    "rows": ("kvg_kernels.linear.cpu", "functional.linear", 0),
    "keys": ("kvg_kernels.attention", "_on_cpu", 1),
    "rows of experts": ("kvg_kernels.bmm.cpu", "torch.mm", 0),
}
"""Who copies to aligned memory, for which operator, and which of its arguments is the copy."""


def minding(path: str, place: int, monkeypatch: Patch) -> None:
    """Let the operator at ``path`` give other bits where its argument ``place`` is unaligned."""
    owner, attribute = path.rsplit(".", 1)
    real = getattr(pkgutil.resolve_name(owner), attribute)
    monkeypatch.setattr(path, lopsided(real, place))


@pytest.mark.parametrize("what", COPIES)
def test_a_copy_to_aligned_memory_that_is_left_out_is_caught(what: str, monkeypatch: Patch) -> None:
    """An operator that minds where its inputs lie passes with the copy, and not without it."""
    model = load(EXACT["Mixtral"](), "F32", what)
    where, operator, place = COPIES[what]
    minding(f"{where}.{operator}", place, monkeypatch)
    tiling.prove_tiles(model)
    monkeypatch.setattr(f"{where}.aligned", lambda tensor: tensor.contiguous())
    with pytest.raises(Incompatible, match=r"self-check: .* depends on where its inputs lie"):
        tiling.prove_tiles(model)


def test_rows_that_are_copied_to_where_they_may_not_lie_are_caught(
    tiny: dict[str, Path], monkeypatch: Patch
) -> None:
    """Always 8 bytes past a line of the cache: the places agree, but padded rows lie on one."""

    def unaligned(tensor: torch.Tensor) -> torch.Tensor:
        return tiling.shifted(tensor, UNALIGNED_BYTES)

    real = kvg_kernels.linear.cpu._product

    def product(
        rows: torch.Tensor, columns: torch.Tensor, bias: torch.Tensor | None, out: torch.Tensor
    ) -> None:
        real(rows, columns, bias, out)
        if not kvg_kernels.alignment.is_aligned(rows):
            out += 2.0**-10

    model = models.load(tiny["llama"], "F32")
    monkeypatch.setattr("kvg_kernels.linear.cpu._product", product)
    opening.session_of(model, schedule=None)
    monkeypatch.setattr("kvg_kernels.linear.cpu.aligned", unaligned)
    refuses(model)
