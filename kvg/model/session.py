"""A session: one loaded model that stays, and slots that each hold one sequence."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import torch

from kvg.buffers import Buffers
from kvg.digest import Digest
from kvg.errors import Incompatible, UsageError
from kvg.model.ambient import ambient, check_ambient
from kvg.model.binding import BoundCache
from kvg.model.dtypes import TORCH_DTYPES, tensor_digest
from kvg.model.invariant import Execution, TileMenu, installed
from kvg.model.loader import LoadedModel
from kvg.model.menus import Menus
from kvg.model.packing import Packing
from kvg.model.planes import join_planes
from kvg.model.probe import same_bits
from kvg.model.spots import NO_SPOT, Spot, Spots, mixed
from kvg.model.state import SlotState, place_page
from kvg.model.window import check_fits
from kvg.objects.computation import PROBE_VERSION
from kvg.objects.manifest import Engine, Page, Schedule, Witness
from kvg.objects.verified import Verified
from kvg.parallel import in_order
from kvg.report import Report, SilentReport
from kvg_kernels.linear import whole_rows

if TYPE_CHECKING:
    from kvg.model.proofs import ProofCache, SelfCheck
    from kvg.objects.statement import Provenance

MAX_FIRST_CAPACITY = 32_768
"""Tokens of address space that a new slot takes at most; memory is used as it is written."""
PAD_FROM = 65
"""New tokens from which padding them costs less than padding the rows of every linear layer."""
PREFILL_TOKENS = 1024
"""New tokens per forward pass of an invariant prefill: it bounds memory, not results."""


@dataclass(slots=True)
class Slot:
    """One sequence inside a session: its state, its token ids, and how many were restored.

    Lives as long as the session; ``truncate`` takes it back to a shorter text. ``ids`` are those
    that the state was computed or restored from.
    """

    state: SlotState
    restored: int = 0
    ids: list[int] = field(default_factory=list)

    @property
    def length(self) -> int:
        return self.state.length

    def truncate(self, length: int) -> None:
        """Forget everything from position ``length`` on.

        Raises ``UsageError`` past its end, ``Incompatible`` as ``SlotState.truncate``.
        """
        if length > self.state.length:
            raise UsageError(f"slot: {length} is past its {self.state.length} tokens")
        self.state.truncate(length)
        del self.ids[length:]


@dataclass(frozen=True, slots=True)
class Prefilled:
    """What a prefill computed: how many tokens, and the logits at the positions asked for."""

    n_computed: int
    logits: Mapping[int, torch.Tensor] = field(default_factory=dict)


def check_rows(module: torch.nn.Module, logits: torch.Tensor, wanted: int) -> None:
    """Raise ``Incompatible`` unless ``logits`` ``[B, n, vocabulary]`` are of the rows asked for."""
    if logits.shape[1] != wanted:
        raise Incompatible(
            f"{type(module).__name__}: gives the logits of {logits.shape[1]} tokens where those of "
            f"{wanted} were asked for (logits_to_keep)",
            hint="only models that give the logits of chosen tokens can be used",
        )


class Session:
    """A model with one reference execution. Every forward pass of kvg goes through here.

    ``engine`` names how this session computes: two sessions with equal engines give equal bits.
    ``self_check`` is what proved it, None where nothing had to be; ``proofs`` remembers what more
    threads have proved later.
    """

    def __init__(
        self,
        model: LoadedModel,
        engine: Engine,
        menu: TileMenu,
        *,
        report: Report | None = None,
        self_check: SelfCheck | None = None,
        proofs: ProofCache | None = None,
    ) -> None:
        self.model = model
        self.engine = engine
        self.self_check = self_check
        self.before_pass: Callable[[], None] = _go_on
        """Called before every forward pass; what it raises ends the work before it."""
        self._ambient = ambient()
        self._menus = Menus(model, engine, menu, proofs)
        self._packing = Packing(model.module, menu)
        self._proofs = proofs
        self._spots = Spots(proofs.recall_passes(model, engine) if proofs else None)
        self._report = report or SilentReport()

    def slot(self) -> Slot:
        """An empty slot."""
        return Slot(SlotState(self.model.layers, self.model.device, self._capacity()))

    def shared(self, verified: Verified, *, cut: int | None = None) -> tuple[Slot, int]:
        """A frozen slot that holds ``verified``, and the bytes restored: forks share its memory.

        Raises as ``restore``.
        """
        state = SlotState.to_share(self.model.layers, self.model.device, self._capacity())
        slot = Slot(state)
        n_bytes = self.restore(slot, verified, cut=cut)
        state.freeze()
        return slot, n_bytes

    def fork(self, slot: Slot) -> Slot:
        """A slot that begins as ``slot``. Of a frozen one it costs only what it changes."""
        return Slot(slot.state.fork(), slot.restored, list(slot.ids))

    def _capacity(self) -> int:
        """Tokens that a slot has room for at once: the window, unless that is very large."""
        return min(self.model.window, MAX_FIRST_CAPACITY)

    def run(self, slot: Slot, ids: Sequence[int], rows: Sequence[int]) -> torch.Tensor:
        """Append ``ids`` to ``slot`` in one forward pass.

        Returns logits ``[len(rows), vocabulary]`` of those indices into ``ids``. Raises
        ``Incompatible`` past the model's window.
        """
        return self.run_batch([slot], [ids], rows)[0]

    def run_batch(
        self,
        slots: Sequence[Slot],
        ids: Sequence[Sequence[int]],
        rows: Sequence[int],
        *,
        offsets: Sequence[int] | None = None,
    ) -> torch.Tensor:
        """Append ``ids[b]`` to ``slots[b]``, all in one forward pass.

        Returns logits ``[B, len(rows), vocabulary]``; rows past the end of a shorter row hold
        nothing of use. Only the invariant reference takes more than one slot. ``offsets[b]`` is
        added to the positions of row b as the model is told them: the text computed further on.
        Raises ``Incompatible`` where keys or values overflow, or a token computed again alone has
        other bits; the slots are then as they were.
        """
        self.before_pass()
        self._check_input(slots, ids)
        if len(slots) > 1 and self.engine.reference != "invariant":
            raise Incompatible("scheduled execution takes one slot at a time")
        starts = [slot.length for slot in slots]
        counts = [len(row) for row in ids]
        width = self._width(starts, counts)
        for slot, start, n in zip(slots, starts, counts, strict=True):
            self.check_window(start + n)
            slot.state.reserve(start + width)
        cache = BoundCache(
            [slot.state for slot in slots],
            starts,
            counts,
            whole=self.engine.reference == "scheduled",
        )
        padded = [[*row, *([row[-1]] * (width - len(row)))] for row in ids]
        told = [a + b for a, b in zip(starts, offsets or [0] * len(starts), strict=True)]
        if self._spots.is_refused(counts, width):
            raise mixed(self.model.module, len(ids) * width)
        spot = NO_SPOT if self.engine.schedule else self._spots.draw(counts, width)
        try:
            logits = self._forward(padded, told, cache, [*rows, *spot.indices])
            for slot, start, n in zip(slots, starts, counts, strict=True):
                slot.state.check_finite(start, start + n)
            if spot.indices:
                self._check_spot(spot, cache, padded, told, logits[spot.row, len(rows) :])
                self._passed(counts, width)
        except BaseException:
            for slot, start, n in zip(slots, starts, counts, strict=True):
                slot.state.wipe(start, start + n)
            raise
        for slot, start, row in zip(slots, starts, ids, strict=True):
            slot.state.length = start + len(row)
            slot.ids[start:] = row
        return logits[:, : len(rows)]

    def _check_input(self, slots: Sequence[Slot], ids: Sequence[Sequence[int]]) -> None:
        """Raise ``UsageError`` for what no pass can be made of."""
        if len({id(slot.state) for slot in slots}) < len(slots):
            raise UsageError("a slot is in the batch twice: it holds one sequence")
        for row in ids:
            if not row:
                raise UsageError("a forward pass over no tokens")
            for token in (min(row), max(row)):
                if not 0 <= token < self.model.vocabulary:
                    raise UsageError(
                        f"token id {token}: the model's are 0 to {self.model.vocabulary - 1:,}"
                    )

    def _check_spot(
        self,
        spot: Spot,
        whole: BoundCache,
        ids: Sequence[Sequence[int]],
        told: Sequence[int],
        logits: torch.Tensor,
    ) -> None:
        """Raise ``Incompatible`` unless the tokens of ``spot`` give alone what they gave in a pass.

        That was the pass of the cache ``whole``: ``logits`` ``[n, vocabulary]``, keys and values.
        """
        state, start = whole.states[spot.row], whole.starts[spot.row]
        at = [start + index for index in spot.indices]
        held = [state.token(position) for position in at]
        cache = BoundCache([state] * len(at), at, [1] * len(at), whole=False)
        tokens = [[ids[spot.row][index]] for index in spot.indices]
        places = [told[spot.row] + index for index in spot.indices]
        alone = self._forward(tokens, places, cache, [0])
        pairs = [(alone[:, 0], logits)]
        for position, before in zip(at, held, strict=True):
            pairs += zip(state.token(position), before, strict=True)
        if not all(same_bits(now, then) for now, then in pairs):
            self._spots.refuse(whole.counts, len(ids[0]))
            if self._proofs is not None:
                self._proofs.forget(self.model, self.engine)
            raise mixed(self.model.module, len(ids) * len(ids[0]))

    def _passed(self, counts: Sequence[int], width: int) -> None:
        """A pass was looked at; other sessions need not."""
        self._spots.passed(counts, width)
        if self._proofs is not None:
            self._proofs.remember_passes(self.model, self.engine, dict(self._spots.longest))

    def _width(self, starts: Sequence[int], counts: Sequence[int]) -> int:
        """Tokens per row of a pass: a long row alone is padded to whole tiles here, once."""
        n = max(counts)
        if len(counts) > 1 or n < PAD_FROM or self.engine.schedule:
            return n
        whole = whole_rows(n)
        return whole if starts[0] + whole <= self.model.window else n

    def check_window(self, n_tokens: int) -> None:
        """Raise ``Incompatible`` when ``n_tokens`` do not fit the model's window."""
        check_fits(n_tokens, self.model.window)

    def prefill(
        self, slot: Slot, ids: Sequence[int], wanted: Sequence[int] = (), *, label: str = "prefill"
    ) -> Prefilled:
        """Append ``ids`` by the reference's schedule; ``wanted`` are absolute positions.

        Invariant: in pieces of any size, the logits come from the same passes. Scheduled: each
        page is one chunk, then each wanted position is run once more as a chunk of its own, with
        the state left as the pages made it.
        """
        first = slot.length
        logits: dict[int, torch.Tensor] = {}
        scheduled = self.engine.schedule
        with self._report.task(label, len(ids), "tokens") as task:
            for a, b in self._chunks(first, first + len(ids)):
                rows = [] if scheduled else [p - a for p in wanted if a <= p < b]
                out = self.run(slot, ids[a - first : b - first], rows)
                logits.update(zip((a + row for row in rows), out, strict=True))
                task.advance(b - a)
        if scheduled:
            for position in wanted:
                logits[position] = self.logits_at(slot, position, ids[position - first])
        return Prefilled(len(ids), logits)

    def resume(
        self, slot: Slot, last_id: int, prompt: Sequence[int]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Continue ``slot``, which holds a whole text, by ``prompt``.

        Runs the last token of the text again. Returns its logits ``[vocabulary]``, the witness,
        and those of the last position. The bits are those of any fresh computation of the
        reference.
        """
        slot.state.check_writable()
        position = slot.length - 1
        if self.engine.schedule:
            witness = self.logits_at(slot, position, last_id)
            last = self.run(slot, prompt, [len(prompt) - 1])[0] if prompt else witness
            return witness, last
        held = slot.state.token(position)
        slot.truncate(position)
        try:
            out = self.run(slot, [last_id, *prompt], [0, len(prompt)])
        except BaseException:
            slot.state.put_token(position, held)
            slot.state.length = position + 1
            slot.ids[position:] = [last_id]
            raise
        return out[0], out[1]

    def logits_at(self, slot: Slot, position: int, token: int) -> torch.Tensor:
        """Logits ``[vocabulary]`` of ``token`` at ``position``, run again as a chunk of its own.

        The slot stays as it was. These are the witness's logits, whatever was appended since.
        """
        ids = list(slot.ids)
        try:
            with slot.state.taken_back(position):
                return self.run(slot, [token], [0])[0]
        finally:
            slot.ids[:] = ids

    def restore(self, slot: Slot, verified: Verified, *, cut: int | None = None) -> int:
        """Put the pages of ``verified`` into the empty ``slot``, at their own positions.

        ``cut`` restores only the first ``cut`` tokens. Several pages are read at a time, and each
        piece is hashed as it is put where it belongs. Returns the bytes restored.
        Raises ``Corrupt`` for a page that is not what the manifest names; the slot is then empty.
        """
        manifest = verified.manifest
        end = manifest.count if cut is None else cut
        pages = tuple(page for page in manifest.pages if page.start < end)
        slot.state.reserve(end)
        slot.state.expect(end)
        n_bytes = sum(page.size for page in pages)
        place = partial(self._place, slot, verified, Buffers())
        try:
            with self._report.task("restore", n_bytes, "B") as task:
                for size in in_order(place, pages, threads=min(_n_threads(), len(pages))):
                    task.advance(size)
        except BaseException:
            slot.state.wipe(0, slot.state.capacity)
            raise
        slot.state.fill(end, ((manifest.group(p.group), p.start, p.end) for p in pages))
        slot.restored = end
        slot.ids[:] = verified.ids[:end]
        return n_bytes

    def check_engine(self, verified: Verified) -> None:
        """Raise ``Incompatible`` unless this very engine and layout computed ``verified``."""
        manifest = verified.manifest
        what = verified.digest
        if manifest.engine.fingerprint != self.engine.fingerprint:
            raise Incompatible(
                f"{what}: computed by engine {manifest.engine.fingerprint} "
                f"({manifest.engine.reference}), this one is {self.engine.fingerprint} "
                f"({self.engine.reference})",
                hint=_other_engine(verified.provenance),
            )
        if manifest.layout.groups != self.model.groups:
            raise Incompatible(f"{what}: its layout is not that of this model's layers")
        if manifest.model.dtype != self.model.dtype:
            raise Incompatible(
                f"{what}: computed in {manifest.model.dtype}, the model is in {self.model.dtype}"
            )

    def check_witness(self, verified: Verified, witness: Witness, logits: torch.Tensor) -> None:
        """Raise ``Incompatible`` unless ``logits`` are, bit for bit, those of ``witness``."""
        found = tensor_digest(logits)
        if found != witness.logits:
            raise Incompatible(
                f"{verified.digest}: witness failed at position {witness.position}: the manifest "
                f"has {witness.logits} by engine {verified.manifest.engine.fingerprint}, this "
                f"engine {self.engine.fingerprint} computed {found}",
                hint="this machine computes otherwise, or the pages are not true: kvg replay",
            )

    def _place(self, slot: Slot, verified: Verified, own: Buffers, page: Page) -> int:
        """Put one page where it belongs, piece by piece where that can be; its bytes."""
        group = verified.manifest.group(page.group)
        placing = slot.state.placing(group, page.start, page.end)
        if placing is None or not verified.give_page(
            page, placing.put, join=join_planes, most=placing.piece_bytes, buffers=own
        ):
            place_page(slot.state, group, page.start, page.end, verified.read_page(page))
        return page.size

    def _chunks(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Cut positions [start, end) into the pieces that one forward pass takes each."""
        schedule = self.engine.schedule
        size = schedule.page_tokens if schedule else PREFILL_TOKENS
        first = start
        while first < end:
            last = min(end, (first // size + 1) * size)
            yield first, last
            first = last

    def _forward(
        self,
        ids: list[list[int]],
        starts: Sequence[int],
        cache: BoundCache,
        rows: Sequence[int],
    ) -> torch.Tensor:
        device = self.model.device
        tokens = torch.tensor(ids, dtype=torch.long, device=device)
        positions = torch.tensor(starts, dtype=torch.long, device=device).unsqueeze(1)
        ends = positions + torch.tensor(cache.counts, device=device).unsqueeze(1) - 1
        positions = torch.minimum(positions + torch.arange(tokens.shape[1], device=device), ends)
        keep = torch.tensor(list(rows) or [0], dtype=torch.long, device=device)
        with torch.inference_mode(), self._execution(cache, tokens.numel()):
            logits = self.model.forward(tokens, positions, cache, keep)
        check_rows(self.model.module, logits, len(keep))
        return logits[:, : len(rows)]

    @contextmanager
    def _execution(self, cache: BoundCache, n_rows: int) -> Iterator[None]:
        schedule = self.engine.schedule
        check_ambient(self._ambient)
        if schedule is None:
            packed = self._packing.weights(n_rows)
            dtype = TORCH_DTYPES[self.model.dtype]
            with installed(Execution(cache, self._menus.here(), packed, dtype=dtype)):
                yield
            return
        with pinned_threads(schedule.threads):
            yield


def _n_threads() -> int:
    """How many threads place pages: those that compute, as far as there are processors."""
    return max(1, min(torch.get_num_threads(), len(os.sched_getaffinity(0))))


def _other_engine(said: Provenance | None) -> str:
    """What to do about an artifact of another engine: ``said`` is what its depositor attests."""
    if said is not None and PROBE_VERSION not in said.kernels.split():
        return (
            f"its engine was named by {said.kernels}, those of this kvg are by {PROBE_VERSION}, "
            "which looks at more: deposit the text again"
        )
    return "deposit the text on this class of machine; kvg doctor shows the engine"


def _go_on() -> None:
    """Nothing stands between one forward pass and the next."""


@contextmanager
def pinned_threads(n: int) -> Iterator[None]:
    """Run the body with ``n`` compute threads, then go back to as many as there were."""
    before = torch.get_num_threads()
    if before == n:
        yield
        return
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def witness_of(position: int, logits: torch.Tensor, dtype: str) -> Witness:
    """The witness of ``logits`` ``[vocabulary]`` at ``position``."""
    return Witness(
        position=position,
        logits=tensor_digest(logits),
        dtype=dtype,
        shape=(logits.shape[0],),
        next_token=lowest_maximum(logits),
    )


def lowest_maximum(logits: torch.Tensor) -> int:
    """The lowest token id among the maxima of ``logits`` ``[vocabulary]``.

    Raises ``Incompatible`` where one is no number.
    """
    found = (logits == logits.max()).nonzero()
    if not len(found):
        check_numbers(logits)
    return int(found[0, 0])


def check_numbers(logits: torch.Tensor) -> None:
    """Raise ``Incompatible`` where a logit is no number: then none of them says anything."""
    if logits.max().isnan():
        raise Incompatible(
            "a logit is not a number",
            hint="the model overflowed in this dtype: try kvg model add --dtype F32",
        )


def schedule_for(page_tokens: int, attention: str, threads: int) -> Schedule:
    """The schedule of a scheduled engine."""
    return Schedule(page_tokens=page_tokens, attention=attention, threads=threads)


def engine_of(fingerprint: Digest, schedule: Schedule | None) -> Engine:
    """The engine that ``fingerprint`` names."""
    return Engine(fingerprint, "scheduled" if schedule else "invariant", schedule)
