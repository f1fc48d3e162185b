"""Prove grafts of whole random models on the device at hand, then time them: Gemma 4's 12B and 31B.

For each shape a random model in bf16 computes one text. Where the device has an invariant session,
graft, one pass, pieces, single tokens and a batch of two texts have to give the same bits. Where it
has none, that is said by name, and what is proved is the scheduled reference: the same schedule
twice, and a graft from its pages; how the other ways come out is told, not promised.

Then: prefill; restore from host memory and from files that were dropped from the page cache, each
page hashed; the first token; their ratio beside the papers' 85.6; and, with an invariant session,
its prefill against the stock one. Results go to bench/results under the card's name; the exit
status is 1 when a promise failed, and 7 where there is no CUDA device.

    python bench/gpu_model.py                        both shapes on a CUDA device, 12,000 tokens
    python bench/gpu_model.py --device cpu --tiny    the same steps on small shapes, as CI runs it
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]

import torch  # noqa: E402
import transformers  # noqa: E402
from transformers import AutoModelForCausalLM, Gemma4TextConfig  # noqa: E402

from kvg.digest import blake3_hex, sha256  # noqa: E402
from kvg.errors import Incompatible  # noqa: E402
from kvg.model.dtypes import tensor_digest  # noqa: E402
from kvg.model.exactness import (  # noqa: E402
    SPLITS,
    CapturedPage,
    captured,
    made_ids,
    reference_run,
    state_digest,
    varied_run,
)
from kvg.model.invariant import ATTENTION_NAME  # noqa: E402
from kvg.model.loader import LoadedModel, adopt_model  # noqa: E402
from kvg.model.opening import default_schedule, session_of  # noqa: E402
from kvg.model.session import Session, Slot, lowest_maximum  # noqa: E402
from kvg.model.state import place_page  # noqa: E402

PAPERS_RATIO = 85.6
"""Prefill over graft and one token, of 11,994 tokens (2607.14431)."""
LARGEST_RATIO = 1.25
"""Of an invariant prefill to the stock one."""
REPEATS = 5
SECOND_TEXT = 0.6
"""How long the text beside is, in parts of the first."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A Gemma 4 of so many layers, one in six without a window, with the keys of its own."""

    name: str
    layers: int
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    full_kv_heads: int
    dim: int
    full_dim: int
    window: int
    vocabulary: int

    def config(self, n_tokens: int) -> Gemma4TextConfig:
        """For texts of ``n_tokens``: on a GPU a slot takes its whole window at once."""
        kinds = [
            "full_attention" if i % 6 == 5 else "sliding_attention" for i in range(self.layers)
        ]
        return Gemma4TextConfig(
            num_hidden_layers=self.layers,
            hidden_size=self.hidden,
            intermediate_size=self.inner,
            num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads,
            num_global_key_value_heads=self.full_kv_heads,
            attention_k_eq_v=True,
            head_dim=self.dim,
            global_head_dim=self.full_dim,
            sliding_window=self.window,
            vocab_size=self.vocabulary,
            vocab_size_per_layer_input=self.vocabulary,
            hidden_size_per_layer_input=0,
            layer_types=kinds,
            max_position_embeddings=(n_tokens // 1024 + 1) * 1024,
        )


LARGE = (
    Shape("12B", 48, 3840, 15_360, 16, 8, 1, 256, 512, 1024, 262_144),
    Shape("31B", 60, 5376, 21_504, 32, 16, 4, 256, 512, 1024, 262_144),
)
TINY = (
    Shape("tiny 12B", 6, 64, 96, 4, 2, 1, 16, 32, 100, 512),
    Shape("tiny 31B", 6, 96, 128, 8, 4, 2, 16, 32, 100, 512),
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One comparison. ``promised``: the reference says that it is equal."""

    what: str
    promised: bool
    equal: bool


@dataclass(slots=True)
class Report:
    """What one shape gave. Times are medians in milliseconds, None where there is no such thing."""

    shape: str
    layers: int
    parameters: int
    tokens: int
    device: str
    reference: str
    why_not_invariant: str | None
    engine: str
    input: str
    logits: str
    state: str
    page_bytes: int
    findings: list[Finding] = field(default_factory=list)
    prefill_ms: float = 0.0
    restore_host_ms: float = 0.0
    restore_disk_ms: float = 0.0
    first_token_ms: float = 0.0
    stock_prefill_ms: float | None = None
    """Of the stock sdpa prefill in one pass, where an invariant one stands against it."""
    papers_ratio: float = PAPERS_RATIO

    @property
    def ratios(self) -> dict[str, float | None]:
        graft = {"host": self.restore_host_ms, "disk": self.restore_disk_ms}
        out: dict[str, float | None] = {
            f"prefill_over_graft_from_{name}": self.prefill_ms / (ms + self.first_token_ms)
            for name, ms in graft.items()
        }
        stock = self.stock_prefill_ms
        out["invariant_over_stock_prefill"] = None if stock is None else self.prefill_ms / stock
        return out

    @property
    def passed(self) -> bool:
        return all(found.equal for found in self.findings if found.promised)

    def value(self) -> dict[str, object]:
        return {**asdict(self), **self.ratios, "passed": self.passed}


def made_model(shape: Shape, device: str, n_tokens: int) -> torch.nn.Module:
    """A random model in bf16, made where it stays; its seed is fixed."""
    torch.manual_seed(1)
    with torch.device(device):
        module = AutoModelForCausalLM.from_config(shape.config(n_tokens), dtype=torch.bfloat16)
    return module.eval()  # type: ignore[no-any-return]


def opened(module: torch.nn.Module, device: str) -> tuple[Session, str | None]:
    """An invariant session, or a scheduled one and why there is no invariant one."""
    try:
        model = adopted(module, device, ATTENTION_NAME)
        return session_of(model, schedule=None), None
    except Incompatible as error:
        model = adopted(module, device, "sdpa")
        return session_of(model, schedule=default_schedule()), error.message


def adopted(module: torch.nn.Module, device: str, attention: str) -> LoadedModel:
    return adopt_model(module, device=device, attention=attention, what="gemma 4")  # type: ignore[arg-type]


def invariant_findings(session: Session, texts: Sequence[Sequence[int]]) -> Iterator[Finding]:
    """Every split of both texts side by side, and of the first alone, against one pass each."""
    fresh = [reference_run(session, text) for text in texts]
    pages = [held for _, held in fresh]
    expected = tuple(outcome for outcome, _ in fresh)
    threads = torch.get_num_threads()
    for split in SPLITS:
        found = varied_run(session, texts, pages, split=split, threads=threads)
        yield Finding(f"{split}, two texts in a batch", True, found == expected)
        alone = varied_run(session, texts[:1], pages[:1], split=split, threads=threads)
        yield Finding(f"{split}, alone", True, alone == expected[:1])
    slot = session.slot()
    logits = session.prefill(slot, texts[0], [len(texts[0]) - 1]).logits[len(texts[0]) - 1]
    same = tensor_digest(logits) == expected[0].logits
    yield Finding(
        "prefill in pieces",
        True,
        same and state_digest(captured(session, slot)) == expected[0].state,
    )


def scheduled_findings(
    session: Session, ids: Sequence[int], prompt: Sequence[int]
) -> Iterator[Finding]:
    """The schedule again and a graft from its pages; what it does not promise is told beside."""
    fresh = session.slot()
    session.prefill(fresh, ids)
    pages = captured(session, fresh)
    expected = [tensor_digest(row) for row in session.resume(fresh, ids[-1], prompt)]
    again = session.slot()
    session.prefill(again, ids)
    yield Finding("the same schedule again: pages", True, captured(session, again) == pages)
    grafted = restored(session, ids, pages)
    found = [tensor_digest(row) for row in session.resume(grafted, ids[-1], prompt)]
    yield Finding("graft: logits of the last token and after a prompt", True, found == expected)
    state = state_digest(pages)
    for split in SPLITS[1:4]:
        outcome = varied_run(session, [ids], [pages], split=split, threads=torch.get_num_threads())
        yield Finding(f"{split}: pages", False, outcome[0].state == state)


def restored(session: Session, ids: Sequence[int], pages: Sequence[CapturedPage]) -> Slot:
    """A slot that holds ``ids`` from ``pages`` in host memory, each page hashed first."""
    slot = session.slot()
    slot.state.reserve(len(ids))
    for page in pages:
        blake3_hex(page.raw)
        place_page(slot.state, page.group, page.start, page.end, page.raw)
    slot.state.length = slot.restored = len(ids)
    slot.ids[:] = ids
    return slot


def from_files(
    session: Session, ids: Sequence[int], pages: Sequence[CapturedPage], paths: Sequence[Path]
) -> Slot:
    """As ``restored``, read from files."""
    read = [
        CapturedPage(page.group, page.start, page.end, bytearray(path.read_bytes()))
        for page, path in zip(pages, paths, strict=True)
    ]
    return restored(session, ids, read)


def median_ms(
    device: torch.device, work: Callable[[], object], before: Callable[[], object] = lambda: None
) -> float:
    """The median of ``REPEATS`` after one that does not count; the device is idle at both ends."""
    taken = []
    for number in range(REPEATS + 1):
        before()
        settle(device)
        began = time.perf_counter()
        work()
        settle(device)
        if number:
            taken.append((time.perf_counter() - began) * 1e3)
    return statistics.median(taken)


def settle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def time_graft(report: Report, session: Session, ids: Sequence[int]) -> None:
    """Prefill, restore from host memory and from disk, and the first token."""
    device = session.model.device
    held = session.slot()
    session.prefill(held, ids)
    pages = captured(session, held)
    report.page_bytes = sum(len(page.raw) for page in pages)
    report.prefill_ms = median_ms(
        device, lambda: session.prefill(session.slot(), ids, [len(ids) - 1])
    )
    report.restore_host_ms = median_ms(device, lambda: restored(session, ids, pages))
    slot = restored(session, ids, pages)
    report.first_token_ms = median_ms(
        device, lambda: lowest_maximum(session.resume(slot, ids[-1], [])[1])
    )
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{number}.page" for number in range(len(pages))]
        for path, page in zip(paths, pages, strict=True):
            path.write_bytes(page.raw)
            with path.open("rb") as file:
                os.fsync(file.fileno())
        report.restore_disk_ms = median_ms(
            device,
            lambda: from_files(session, ids, pages, paths),
            before=lambda: dropped(paths),
        )


def dropped(paths: Sequence[Path]) -> None:
    """Ask the system to forget what it keeps of ``paths``, so that they are read from the disk."""
    for path in paths:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def time_stock(report: Report, module: torch.nn.Module, device: str, ids: Sequence[int]) -> None:
    """A stock sdpa prefill of ``ids`` in one pass. The module computes so from here on."""
    model = adopted(module, device, "sdpa")
    session = session_of(model, schedule=default_schedule(len(ids)))
    report.stock_prefill_ms = median_ms(model.device, lambda: session.prefill(session.slot(), ids))


def looked_at(shape: Shape, device: str, n_tokens: int) -> Report:
    """Everything about one shape."""
    module = made_model(shape, device, n_tokens)
    session, why_not = opened(module, device)
    ids = made_ids(0, n_tokens, shape.vocabulary)
    other = made_ids(1, max(2, int(n_tokens * SECOND_TEXT)), shape.vocabulary)
    fresh = session.slot()
    logits = session.prefill(fresh, ids, [n_tokens - 1]).logits[n_tokens - 1]
    report = Report(
        shape=shape.name,
        layers=shape.layers,
        parameters=sum(part.numel() for part in module.parameters()),
        tokens=n_tokens,
        device=name_of(session.model.device),
        reference=session.engine.reference,
        why_not_invariant=why_not,
        engine=session.engine.fingerprint,
        input=sha256(b"".join(token.to_bytes(4, "little") for token in ids)),
        logits=tensor_digest(logits),
        state=state_digest(captured(session, fresh)),
        page_bytes=0,
    )
    del fresh
    if why_not is None:
        report.findings += invariant_findings(session, [ids, other])
    else:
        report.findings += scheduled_findings(session, ids, other[:16])
    time_graft(report, session, ids)
    if why_not is None:
        time_stock(report, module, device, ids)
    return report


def name_of(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)


def tell(report: Report) -> None:
    """The report in lines."""
    print(f"{report.shape}: {report.parameters:,} parameters, {report.tokens:,} tokens", end=", ")
    print(report.device)
    if report.why_not_invariant is not None:
        print(f"  NOT invariant: {report.why_not_invariant}")
        print("  what is proved holds for the scheduled reference alone")
    for found in report.findings:
        if found.promised:
            print(f"  {'ok  ' if found.equal else 'FAIL'} {found.what}")
        else:
            print(f"  {'equal' if found.equal else 'differs'}, not promised: {found.what}")
    print(
        f"  prefill {report.prefill_ms:.1f} ms; restore from host memory "
        f"{report.restore_host_ms:.1f} ms, from disk {report.restore_disk_ms:.1f} ms "
        f"({report.page_bytes / 1e6:.0f} MB); first token {report.first_token_ms:.1f} ms"
    )
    for name, ratio in report.ratios.items():
        said = "no invariant session here" if ratio is None else f"{ratio:.2f}"
        print(f"  {name.replace('_', ' ')}: {said}")
    print(f"  the papers' ratio of prefill to graft: {report.papers_ratio}", flush=True)


def written(reports: Sequence[Report], path: Path) -> None:
    value: Mapping[str, object] = {
        "schema": "kvg.gpu-model/1",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "cuda": torch.version.cuda,
        "largest_ratio": LARGEST_RATIO,
        "passed": all(report.passed for report in reports),
        "models": [report.value() for report in reports],
    }
    path.write_text(json.dumps(value, indent=2) + "\n")
    print(f"written to {path}")


def main() -> int:
    """The program. Returns its exit status."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N or cpu")
    parser.add_argument("--tiny", action="store_true", help="small shapes, to try the script")
    parser.add_argument("--tokens", type=int, help="12,000; 300 with --tiny")
    parser.add_argument("--only", choices=["12B", "31B"], help="one of the shapes")
    parser.add_argument("--out", type=Path, help="where the results go")
    asked = parser.parse_args()
    if asked.device.startswith("cuda") and not torch.cuda.is_available():
        print("no CUDA device: no model was looked at", file=sys.stderr)
        return Incompatible.code
    shapes = [s for s in (TINY if asked.tiny else LARGE) if s.name.endswith(asked.only or "B")]
    reports = []
    for shape in shapes:
        reports.append(
            looked_at(shape, asked.device, asked.tokens or (300 if asked.tiny else 12_000))
        )
        tell(reports[-1])
    if asked.out is not None or not asked.tiny:
        card = re.sub(r"[^A-Za-z0-9]+", "-", reports[0].device).strip("-").lower()
        written(reports, asked.out or ROOT / "bench" / "results" / f"gpu-model-{card}.json")
    slow = [r for r in reports if (r.ratios["invariant_over_stock_prefill"] or 0) > LARGEST_RATIO]
    for report in slow if not asked.tiny else []:
        print(f"{report.shape}: invariant prefill is past {LARGEST_RATIO} of stock")
    return 0 if all(report.passed for report in reports) else 1


if __name__ == "__main__":
    sys.exit(main())
