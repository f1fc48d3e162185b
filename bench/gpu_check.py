"""Prove the Triton kernels on the GPU at hand: near float64, and bit-equal whatever the shape.

Checks come first: every operator in bf16, fp16 and fp32 against float64 and the CPU form, then
bit equality over row counts, splits, single tokens, batches, pages and alignments on the shapes of
large models. Only then are operators timed. Everything goes to bench/results as JSON under the
card's name; the exit status is 1 when a check failed, and 7 where there is no CUDA device.

    python bench/gpu_check.py              on a machine with a CUDA device
    python bench/gpu_check.py --rehearse   small shapes on the CPU, in Triton's interpreter: tries
                                           out this script, and proves nothing about a GPU
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]

import torch  # noqa: E402

from kvg.errors import Incompatible  # noqa: E402
from kvg_kernels.attention import AttentionSpec, attention_reference  # noqa: E402
from kvg_kernels.attention.cpu import attention as cpu_attention  # noqa: E402
from kvg_kernels.bmm import cpu as cpu_bmm  # noqa: E402
from kvg_kernels.linear.cpu import linear as cpu_linear  # noqa: E402
from kvg_kernels.pages import PageLayout  # noqa: E402
from kvg_kernels.pages import cpu as cpu_pages  # noqa: E402
from kvg_kernels.planes import cpu as cpu_planes  # noqa: E402
from kvg_kernels.rms_norm.cpu import rms_norm as cpu_rms_norm  # noqa: E402
from kvg_kernels.softmax.cpu import softmax as cpu_softmax  # noqa: E402

TOLERANCE = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
"""Largest difference from float64, relative where the result is larger than 1."""
PAGE_TOKENS = 256


@dataclass(frozen=True, slots=True)
class LayerShape:
    """One attention layer of a model and the widths of its linear layers."""

    name: str
    heads: int
    kv_heads: int
    dim: int
    window: int | None
    hidden: int
    inner: int


LARGE = (
    LayerShape("12B sliding", 16, 8, 256, 1024, 3840, 15360),
    LayerShape("12B full", 16, 1, 512, None, 3840, 15360),
    LayerShape("31B sliding", 32, 16, 256, 1024, 5376, 21504),
    LayerShape("31B full", 32, 4, 512, None, 5376, 21504),
)
"""Widths of the order of Gemma 4's 12B and 31B models; the weights are random."""
SMALL = (LayerShape("small", 4, 2, 32, 40, 64, 96),)


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at: what, whether it holds, and the figures behind it."""

    name: str
    passed: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Timing:
    """Median milliseconds of one operator, and of stock torch on the same inputs."""

    name: str
    invariant_ms: float
    stock_ms: float


class Kernels:
    """The Triton forms, imported when there is something that they can run on."""

    def __init__(self) -> None:
        from kvg_kernels.attention import triton as attention
        from kvg_kernels.bmm import triton as bmm
        from kvg_kernels.linear import triton as linear
        from kvg_kernels.pages import triton as pages
        from kvg_kernels.planes import triton as planes
        from kvg_kernels.rms_norm import triton as rms_norm
        from kvg_kernels.softmax import triton as softmax

        self.attention, self.paged_attention = attention.attention, attention.paged_attention
        self.bmm, self.baddbmm = bmm.bmm, bmm.baddbmm
        self.linear = linear.linear
        self.page_scatter, self.page_gather = pages.page_scatter, pages.page_gather
        self.split_planes, self.join_planes = planes.split_planes, planes.join_planes
        self.rms_norm, self.softmax = rms_norm.rms_norm, softmax.softmax


class Bench:
    """Inputs on the device that their seed fixes, made on the CPU."""

    def __init__(self, device: str, shapes: tuple[LayerShape, ...], n_tokens: int) -> None:
        self.device, self.shapes, self.n_tokens = device, shapes, n_tokens
        self.kernels = Kernels()

    def sample(self, *shape: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
        generator = torch.Generator().manual_seed(seed)
        return (torch.rand(*shape, generator=generator) * 2 - 1).to(dtype).to(self.device)


def digest(x: torch.Tensor) -> str:
    return hashlib.sha256(x.contiguous().cpu().view(torch.uint8).numpy().tobytes()).hexdigest()


def near(name: str, got: torch.Tensor, true: torch.Tensor, on_cpu: torch.Tensor) -> Check:
    """Within the dtype's tolerance of float64, and of the CPU form within twice that."""
    wide = true.double().cpu()
    scale = wide.abs().clamp(min=1)
    error = ((got.double().cpu() - wide).abs() / scale).max().item()
    apart = ((got.double().cpu() - on_cpu.double().cpu()).abs() / scale).max().item()
    bound = TOLERANCE[got.dtype]
    passed = error <= bound and apart <= 2 * bound
    return Check(name, passed, f"off float64 by {error:.2e}, off the CPU form by {apart:.2e}")


def equal(name: str, whole: torch.Tensor, parts: dict[str, tuple[torch.Tensor, slice]]) -> Check:
    """Every part has the bytes that the whole has there; -2 is the dimension of tokens."""
    wrong = [
        how for how, (part, span) in parts.items() if digest(part) != digest(whole[..., span, :])
    ]
    what = f"differ: {', '.join(wrong)}" if wrong else f"{len(parts)} ways equal"
    return Check(name, not wrong, f"{what}; {digest(whole)}")


def closeness(bench: Bench, dtype: torch.dtype) -> Iterator[Check]:
    """Every operator on ragged shapes against float64 and its CPU form."""
    k, label = bench.kernels, str(dtype).removeprefix("torch.")
    for m, depth, n in ((1, 64, 5), (33, 130, 70), (150, 200, 129)):
        x, w = bench.sample(m, depth, dtype=dtype), bench.sample(n, depth, dtype=dtype, seed=1)
        b = bench.sample(n, dtype=dtype, seed=2)
        true = x.double() @ w.double().T + b.double()
        on_cpu = cpu_linear(x.cpu(), w.cpu(), b.cpu())
        yield near(f"linear {label} {m}x{depth}x{n}", k.linear(x, w, b), true, on_cpu)
    a, b = bench.sample(3, 40, 70, dtype=dtype), bench.sample(3, 70, 33, dtype=dtype, seed=1)
    c = bench.sample(3, 1, 33, dtype=dtype, seed=2)
    true = a.double() @ b.double()
    yield near(f"bmm {label}", k.bmm(a, b), true, cpu_bmm.bmm(a.cpu(), b.cpu()))
    on_cpu = cpu_bmm.baddbmm(c.cpu(), a.cpu(), b.cpu())
    yield near(f"baddbmm {label}", k.baddbmm(c, a, b), true + c.double(), on_cpu)
    x, w = bench.sample(9, 1000, dtype=dtype), bench.sample(1000, dtype=dtype, seed=1)
    wide = x.double()
    true = wide / (wide.square().mean(-1, keepdim=True) + 1e-6).sqrt() * w.double()
    yield near(
        f"rms_norm {label}", k.rms_norm(x, w, 1e-6), true, cpu_rms_norm(x.cpu(), w.cpu(), 1e-6)
    )
    true = torch.softmax(wide * 8, -1)
    yield near(f"softmax {label}", k.softmax(x * 8), true, cpu_softmax(x.cpu() * 8))
    yield from attention_closeness(bench, dtype)


def attention_closeness(bench: Bench, dtype: torch.dtype) -> Iterator[Check]:
    """Grouped heads, odd head sizes, window, soft-cap, sinks, against float64 and the CPU form."""
    label = str(dtype).removeprefix("torch.")
    for spec in (
        AttentionSpec(0.25),
        AttentionSpec(0.25, window=50),
        AttentionSpec(0.25, window=33, softcap=2.0),
    ):
        n, start = 300, 240
        query = bench.sample(6, n - start, 40, dtype=dtype)
        keys = bench.sample(2, 512, 40, dtype=dtype, seed=1)
        values = bench.sample(2, 512, 24, dtype=dtype, seed=2)
        for sinks in (None, bench.sample(6, dtype=torch.float32, seed=3)):
            wide = None if sinks is None else sinks.double()
            true = attention_reference(
                query.double(), keys.double(), values.double(), start, spec, wide
            )
            on_cpu = cpu_attention(
                query.cpu(),
                keys.cpu(),
                values.cpu(),
                start,
                spec,
                sinks=None if sinks is None else sinks.cpu(),
            )
            got = bench.kernels.attention(query, keys, values, start, spec, sinks=sinks)
            name = f"attention {label} window={spec.window} softcap={spec.softcap}"
            yield near(f"{name} sinks={sinks is not None}", got, true, on_cpu)


def bytes_moved(bench: Bench) -> Iterator[Check]:
    """Pages and planes move bytes: the CPU form's, all of them."""
    k = bench.kernels
    layout = PageLayout(n_layers=3, kv_heads=4, page_tokens=64, k_dim=32, v_dim=48)
    for n_tokens in (64, 1, 37):
        page = bench.sample(layout.page_elements(n_tokens), dtype=torch.bfloat16)
        pool = bench.sample(3, layout.slot_elements, dtype=torch.bfloat16, seed=1)
        expected = pool.cpu()
        k.page_scatter(page, pool, 1, layout, n_tokens)
        cpu_pages.page_scatter(page.cpu(), expected, 1, layout, n_tokens)
        same = digest(pool) == digest(expected)
        back = digest(k.page_gather(pool, 1, layout, n_tokens)) == digest(page)
        yield Check(f"pages of {n_tokens} tokens", same and back, f"scatter {same}, gather {back}")
    raw = (torch.arange(100_003) * 37 % 251).to(torch.uint8).to(bench.device)
    for planes in (1, 2, 4):
        split = k.split_planes(raw, planes)
        expected_planes = cpu_planes.split_planes(raw.cpu(), planes)
        same = all(digest(a) == digest(b) for a, b in zip(split, expected_planes, strict=True))
        joined = digest(k.join_planes(*split)) == digest(raw)
        yield Check(f"{planes} planes", same and joined, f"split {same}, join {joined}")


def spans(n: int) -> dict[str, slice]:
    """Ways to cut n tokens: the ends, single tokens, odd chunks, borders of tiles and pages."""
    cuts = {
        "first": (0, 1),
        "last": (n - 1, n),
        "two": (n // 2, n // 2 + 2),
        "head": (0, n // 3),
        "tail": (n // 3, n),
        "odd": (min(63, n - 2), min(130, n)),
        "page": (min(255, n - 2), min(257, n)),
    }
    return {how: slice(first, last) for how, (first, last) in cuts.items() if first < last}


def misaligned(x: torch.Tensor) -> torch.Tensor:
    room = x.new_empty(x.numel() + 1)
    room[1:] = x.reshape(-1)
    return room[1:].view(x.shape)


def linear_bits(bench: Bench, shape: LayerShape, dtype: torch.dtype) -> Iterator[Check]:
    """Linear layers and norms: a row's bits in any number of rows and at any address."""
    k, n = bench.kernels, bench.n_tokens
    x = bench.sample(n, shape.hidden, dtype=dtype)
    weight = bench.sample(shape.inner, shape.hidden, dtype=dtype, seed=1)
    whole = k.linear(x, weight)
    parts = {how: (k.linear(x[span], weight), span) for how, span in spans(n).items()}
    parts["misaligned"] = (k.linear(misaligned(x), weight), slice(0, n))
    yield equal(f"linear rows, {shape.name}, {dtype}", whole, parts)
    factor = weight.T.expand(2, -1, -1)
    batched = k.bmm(x.expand(2, -1, -1), factor)
    parts = {how: (k.bmm(x[None, span], factor[:1])[0], span) for how, span in spans(n).items()}
    yield equal(f"bmm rows and batch, {shape.name}, {dtype}", batched[1], parts)
    scale = bench.sample(shape.hidden, dtype=dtype, seed=2)
    whole = k.rms_norm(x, scale, 1e-6)
    parts = {how: (k.rms_norm(x[span], scale, 1e-6), span) for how, span in spans(n).items()}
    yield equal(f"rms_norm rows, {shape.name}, {dtype}", whole, parts)
    whole = k.softmax(x)
    parts = {how: (k.softmax(x[span]), span) for how, span in spans(n).items()}
    yield equal(f"softmax rows, {shape.name}, {dtype}", whole, parts)


def attention_bits(bench: Bench, shape: LayerShape, dtype: torch.dtype) -> Iterator[Check]:
    """Attention: one call, chunks, single tokens, pages in any order."""
    k, n = bench.kernels, bench.n_tokens
    spec = AttentionSpec(scale=shape.dim**-0.5, window=shape.window)
    layout = PageLayout(1, shape.kv_heads, PAGE_TOKENS, shape.dim, shape.dim)
    query, keys, values = attention_inputs(bench, shape, dtype)
    pool, table = filled_pool(bench, layout, [(keys, values)])
    whole = k.attention(query, keys, values, 0, spec)
    parts: dict[str, tuple[torch.Tensor, slice]] = {}
    for how, span in spans(n).items():
        known_keys, known_values = keys.clone(), values.clone()
        known_keys[:, span.stop :], known_values[:, span.stop :] = 0, 0
        part = query[:, span].contiguous()
        parts[how] = (k.attention(part, known_keys, known_values, span.start, spec), span)
        paged = k.paged_attention(part[None], pool, table, [span.start], spec, layout, 0)
        parts[f"{how}, paged"] = (paged[0], span)
    yield equal(f"attention, {shape.name}, {dtype}", whole, parts)


def batch_bits(bench: Bench, shape: LayerShape, dtype: torch.dtype) -> Iterator[Check]:
    """Three texts in one call, the first half of their pages shared: each as it is alone."""
    k, n = bench.kernels, bench.n_tokens
    spec = AttentionSpec(scale=shape.dim**-0.5, window=shape.window)
    layout = PageLayout(1, shape.kv_heads, PAGE_TOKENS, shape.dim, shape.dim)
    texts = [attention_inputs(bench, shape, dtype, seed=10 * i) for i in range(3)]
    n_shared = texts[0][1].shape[1] // PAGE_TOKENS // 2
    for text in texts[1:]:
        for own, shared in zip(text[1:], texts[0][1:], strict=True):
            own[:, : n_shared * PAGE_TOKENS] = shared[:, : n_shared * PAGE_TOKENS]
    pool, tables = filled_pool(bench, layout, [text[1:] for text in texts])
    tables[1:, :n_shared] = tables[0, :n_shared]
    starts = [n - 1, n * 3 // 4, n // 2]
    spans = [slice(start, start + 1) for start in starts]
    queries = [query[:, span] for (query, _, _), span in zip(texts, spans, strict=True)]
    batch = k.paged_attention(torch.stack(queries), pool, tables, starts, spec, layout, 0)
    for i, ((query, keys, values), span) in enumerate(zip(texts, spans, strict=True)):
        whole = k.attention(query, keys, values, 0, spec)
        parts = {f"in a batch, at {span.start}": (batch[i], span)}
        yield equal(f"attention of text {i} of 3, {shape.name}, {dtype}", whole, parts)


def attention_inputs(
    bench: Bench, shape: LayerShape, dtype: torch.dtype, *, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    capacity = -(-bench.n_tokens // PAGE_TOKENS) * PAGE_TOKENS
    query = bench.sample(shape.heads, bench.n_tokens, shape.dim, dtype=dtype, seed=seed) * 2
    keys = bench.sample(shape.kv_heads, capacity, shape.dim, dtype=dtype, seed=seed + 1)
    values = bench.sample(shape.kv_heads, capacity, shape.dim, dtype=dtype, seed=seed + 2)
    return query, keys, values


def filled_pool(
    bench: Bench, layout: PageLayout, texts: Sequence[tuple[torch.Tensor, torch.Tensor]]
) -> tuple[torch.Tensor, torch.Tensor]:
    """A pool that holds the keys and values of texts in shuffled slots, and a table for each."""
    n_pages = texts[0][0].shape[1] // PAGE_TOKENS
    n_slots = len(texts) * n_pages + 1
    pool = texts[0][0].new_zeros(n_slots, layout.slot_elements)
    slots = torch.randperm(n_slots, generator=torch.Generator().manual_seed(5))[:-1]
    tables = slots.view(len(texts), n_pages)
    for table, (keys, values) in zip(tables, texts, strict=True):
        for i, slot in enumerate(table.tolist()):
            span = slice(i * PAGE_TOKENS, (i + 1) * PAGE_TOKENS)
            page = torch.cat([keys[:, span].reshape(-1), values[:, span].reshape(-1)])
            bench.kernels.page_scatter(page, pool, slot, layout, PAGE_TOKENS)
    return pool, tables.to(torch.int32).to(bench.device)


def checks(bench: Bench) -> Iterator[Check]:
    for dtype in TOLERANCE:
        yield from closeness(bench, dtype)
    yield from bytes_moved(bench)
    for shape in bench.shapes:
        for dtype in TOLERANCE:
            if dtype is torch.bfloat16 or shape is bench.shapes[0]:
                yield from linear_bits(bench, shape, dtype)
                yield from attention_bits(bench, shape, dtype)
                yield from batch_bits(bench, shape, dtype)


def median_ms(call: Callable[[], object], repeats: int = 9) -> float:
    """Median wall milliseconds of ``call`` with the device idle before and after."""
    taken = []
    for i in range(repeats + 2):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        call()
        torch.cuda.synchronize()
        if i >= 2:
            taken.append((time.perf_counter() - begun) * 1000)
    return sorted(taken)[len(taken) // 2]


def timings(bench: Bench) -> Iterator[Timing]:
    """Prefill and one decode step of each layer shape in bf16, beside stock torch."""
    for shape in bench.shapes:
        for what, rows in (("prefill", bench.n_tokens), ("decode", 1)):
            yield linear_timing(bench, shape, what, rows)
            yield attention_timing(bench, shape, what, rows)


def linear_timing(bench: Bench, shape: LayerShape, what: str, rows: int) -> Timing:
    x = bench.sample(rows, shape.hidden, dtype=torch.bfloat16)
    weight = bench.sample(shape.inner, shape.hidden, dtype=torch.bfloat16, seed=1)
    return Timing(
        f"linear {what}, {shape.name}",
        median_ms(lambda: bench.kernels.linear(x, weight)),
        median_ms(lambda: torch.nn.functional.linear(x, weight)),
    )


def attention_timing(bench: Bench, shape: LayerShape, what: str, rows: int) -> Timing:
    n = bench.n_tokens
    query, keys, values = attention_inputs(bench, shape, torch.bfloat16)
    layout = PageLayout(1, shape.kv_heads, PAGE_TOKENS, shape.dim, shape.dim)
    pool, table = filled_pool(bench, layout, [(keys, values)])
    spec = AttentionSpec(scale=shape.dim**-0.5, window=shape.window)
    part = query[None, :, n - rows :].contiguous()
    k, v = keys[None, :, :n].contiguous(), values[None, :, :n].contiguous()
    paged = bench.kernels.paged_attention
    sdpa = torch.nn.functional.scaled_dot_product_attention
    return Timing(
        f"attention {what}, {shape.name}",
        median_ms(lambda: paged(part, pool, table, [n - rows], spec, layout, 0)),
        median_ms(lambda: sdpa(part, k, v, is_causal=rows > 1, enable_gqa=True)),
    )


def write_report(bench: Bench, found: list[Check], timed: list[Timing], card: str) -> Path:
    import triton

    report = {
        "schema": "kvg.gpu-check/1",
        "card": card,
        "torch": torch.__version__,
        "triton": triton.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "n_tokens": bench.n_tokens,
        "shapes": [asdict(shape) for shape in bench.shapes],
        "passed": all(check.passed for check in found),
        "checks": [asdict(check) for check in found],
        "timings": [asdict(timing) for timing in timed],
        "note": "stock attention is causal without a window; a decode step has n_tokens of state",
    }
    folder = ROOT / "bench" / "results"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"gpu-check-{re.sub(r'[^A-Za-z0-9]+', '-', card).strip('-').lower()}.json"
    path.write_text(json.dumps(report, indent=2) + "\n")
    return path


def looked_at(bench: Bench) -> list[Check]:
    found = []
    for check in checks(bench):
        found.append(check)
        print(f"{'ok  ' if check.passed else 'FAIL'} {check.name}: {check.detail}", flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--tokens", type=int, default=12_000, help="tokens of the large shapes")
    parser.add_argument("--rehearse", action="store_true", help="small, in Triton's interpreter")
    options = parser.parse_args()
    if options.rehearse:
        os.environ["TRITON_INTERPRET"] = "1"
        found = looked_at(Bench("cpu", SMALL, 90))
        print("rehearsed in the interpreter: nothing is known about a GPU")
        return 0 if all(check.passed for check in found) else 1
    if not torch.cuda.is_available():
        print("no CUDA device: nothing was checked", file=sys.stderr)
        return Incompatible.code
    bench = Bench("cuda", LARGE, options.tokens)
    card = torch.cuda.get_device_name()
    with torch.inference_mode():
        found = looked_at(bench)
        timed = list(timings(bench)) if all(check.passed for check in found) else []
    for timing in timed:
        ratio = timing.invariant_ms / timing.stock_ms
        print(f"{timing.name}: {timing.invariant_ms:.3f} ms, {ratio:.2f} of stock")
    print(f"{card}: written to {write_report(bench, found, timed, card)}")
    return 0 if all(check.passed for check in found) else 1


if __name__ == "__main__":
    sys.exit(main())
