"""A model that stays: its numbered slots, the memory that requests share, and the limit on it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kvg.errors import Incompatible, NoSpace, NotFound, UsageError
from kvg.flow.turns import Turns
from kvg.objects.page import DTYPE_SIZES

if TYPE_CHECKING:
    from kvg.digest import Digest
    from kvg.flow.registered import RegisteredModel
    from kvg.model.folder import ModelFiles
    from kvg.model.session import Session, Slot
    from kvg.model.text import Tokenizer
    from kvg.objects.manifest import Engine, Reference, Schedule
    from kvg.objects.verified import Verified

KEPT = 8
"""Artifacts whose restored state is kept for the next graft of the same, unless told otherwise."""


@dataclass(slots=True, eq=False)
class Base:
    """The restored state of one artifact, that any number of slots begin from."""

    slot: Slot
    size_bytes: int
    restored_bytes: int
    users: int = 0


@dataclass(slots=True, eq=False)
class Lease:
    """Memory that one slot may take, and the base that it begins from."""

    size_bytes: int
    base: Base | None = None


@dataclass(slots=True, eq=False)
class Held:
    """What stays in a numbered slot. It begins with the first ``end`` tokens of ``ref``.

    ``unread`` are tokens that were generated last and not yet computed on.
    """

    ref: str
    digest: Digest
    end: int
    slot: Slot
    lease: Lease
    unread: tuple[int, ...] = ()

    @property
    def ids(self) -> tuple[int, ...]:
        """All tokens of the conversation as it stands."""
        return (*self.slot.ids, *self.unread)

    @property
    def position(self) -> int:
        """Where the next token goes."""
        return len(self.slot.ids) + len(self.unread)


class Resident:
    """One model that stays loaded, with ``n_slots`` numbered slots.

    ``limit_bytes`` bounds what the model took when it was loaded (``model_bytes``) and all state
    of slots together. ``n_kept`` bounds the pool of restored states that nobody uses now: the one
    that was not wanted for the longest time goes before another is restored. It is used by one
    thread at a time: the one that holds a turn.
    """

    def __init__(
        self,
        name: str,
        root: Path,
        model: RegisteredModel,
        files: ModelFiles,
        session: Session,
        tokenizer: Tokenizer,
        *,
        n_slots: int,
        limit_bytes: int,
        model_bytes: int,
        n_kept: int = KEPT,
    ) -> None:
        self.name = name
        self.root = root
        self.model = model
        self.files = files
        self.session = session
        self.tokenizer = tokenizer
        self.turns = Turns()
        self.held: list[Held | None] = [None] * n_slots
        self.limit_bytes = limit_bytes
        self.model_bytes = model_bytes
        self.n_kept = n_kept
        self.state_bytes = 0
        self._bases: OrderedDict[tuple[Digest, int], Base] = OrderedDict()
        session.before_pass = self.turns.pass_on
        layers = session.model.layers
        self._token_bytes = sum(
            layer.kv_heads * (layer.k_dim + layer.v_dim) * DTYPE_SIZES[layer.dtype]
            for layer in layers
        )
        self._least_bytes = sum(2 * layer.kv_heads * 4096 for layer in layers)

    def check_index(self, index: int) -> None:
        """Raise ``NotFound`` unless there is a slot of this number."""
        if not 0 <= index < len(self.held):
            raise NotFound(
                f"slot {index}: session {self.name} has slots 0 to {len(self.held) - 1}",
                hint=f"kvg session slots {self.name}",
            )

    def clear(self, index: int) -> None:
        """Empty a slot."""
        self.check_index(index)
        held, self.held[index] = self.held[index], None
        if held is not None:
            self.release(held.lease)

    def base_of(self, verified: Verified, end: int) -> Base:
        """The restored first ``end`` tokens of ``verified``; its pages are verified when read."""
        key = (verified.digest, end)
        base = self._bases.get(key)
        if base is None:
            while len(self._bases) >= self.n_kept and self._evict():
                pass
            size = self._size(end)
            self._take(size, f"{verified.digest}: its {end:,} tokens")
            try:
                slot, restored = self.session.shared(verified, cut=end)
            except BaseException:
                self.state_bytes -= size
                raise
            base = self._bases[key] = Base(slot, size, restored)
        self._bases.move_to_end(key)
        return base

    def lease(self, n_tokens: int, base: Base | None = None) -> Lease:
        """Memory for ``n_tokens`` more. Raises ``NoSpace`` past the limit."""
        if base is not None:
            base.users += 1
        try:
            size = self._size(n_tokens)
            self._take(size, f"a slot for {n_tokens:,} tokens")
        except NoSpace:
            if base is not None:
                base.users -= 1
            raise
        return Lease(size, base)

    def extend(self, lease: Lease, n_tokens: int) -> None:
        """Memory for ``n_tokens`` more in a slot that is there. Raises ``NoSpace``."""
        size = n_tokens * self._token_bytes
        self._take(size, f"{n_tokens:,} tokens more in a slot")
        lease.size_bytes += size

    def settle(self, held: Held) -> None:
        """Give back what was taken for tokens that did not come into the slot of ``held``."""
        size = self._size(max(0, len(held.slot.ids) - held.end))
        surplus = held.lease.size_bytes - size
        if surplus > 0:
            held.lease.size_bytes = size
            self.state_bytes -= surplus

    def release(self, lease: Lease) -> None:
        """Give back what ``lease`` stands for."""
        self.state_bytes -= lease.size_bytes
        lease.size_bytes = 0
        if lease.base is not None:
            lease.base.users -= 1
            lease.base = None

    def _size(self, n_tokens: int) -> int:
        return n_tokens * self._token_bytes + self._least_bytes

    def _take(self, size: int, what: str) -> None:
        while self.model_bytes + self.state_bytes + size > self.limit_bytes and self._evict():
            pass
        used = self.model_bytes + self.state_bytes
        if used + size > self.limit_bytes:
            raise NoSpace(
                f"session {self.name}: {what} would take {_mib(size)} more, and {_mib(used)} of "
                f"its {_mib(self.limit_bytes)} are in use",
                hint=f"kvg session slots {self.name} --clear I, or start it with more --memory",
            )
        self.state_bytes += size

    def _evict(self) -> bool:
        """Drop the base that was not wanted for the longest time; False when all are in use."""
        for key, base in self._bases.items():
            if base.users == 0:
                del self._bases[key]
                self.state_bytes -= base.size_bytes
                return True
        return False


@dataclass(slots=True, eq=False)
class Seat:
    """One request's place in a resident session; ``index`` None is a slot for this request alone.

    Used as a context manager: what it took for itself is given back at the end.
    """

    resident: Resident
    index: int | None = None
    _leases: list[Lease] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.index is not None:
            self.resident.check_index(self.index)

    def __enter__(self) -> Seat:
        return self

    def __exit__(self, *_: object) -> None:
        while self._leases:
            self.resident.release(self._leases.pop())
        held = None if self.index is None else self.resident.held[self.index]
        if held is not None:
            self.resident.settle(held)

    @contextmanager
    def away(self) -> Iterator[None]:
        """Let other requests compute for the time of the block."""
        with self.resident.turns.away():
            yield

    def files(self, model: RegisteredModel) -> ModelFiles:
        """What the files of ``model`` were when it was loaded. Raises ``Incompatible``."""
        own = self.resident.model
        if model.fingerprint != own.fingerprint or model.dtype != own.dtype:
            raise Incompatible(
                f"session {self.resident.name}: holds model {own.name}, this needs {model.name} "
                f"({model.fingerprint})",
                hint=f"kvg session start NAME --model {model.name}",
            )
        return self.resident.files

    def tokenizer(self, model: RegisteredModel) -> Tokenizer:
        self.files(model)
        return self.resident.tokenizer

    def session(
        self, model: RegisteredModel, reference: Reference, schedule: Schedule | None
    ) -> Session:
        """The session, if it computes ``model`` by this reference. Raises ``Incompatible``."""
        self.files(model)
        engine = self.resident.session.engine
        if reference != engine.reference or (schedule and schedule != engine.schedule):
            raise Incompatible(
                f"session {self.resident.name}: computes by the {engine.reference} reference, "
                f"this needs the {reference} one{' by another schedule' if schedule else ''}",
                hint=f"kvg session start NAME --reference {reference}",
            )
        return self.resident.session

    def empty(self, n_tokens: int) -> Slot:
        """A slot of this request alone with room for ``n_tokens``. Raises ``NoSpace``."""
        self._leases.append(self.resident.lease(n_tokens))
        return self.resident.session.slot()

    def grafted(self, verified: Verified, end: int, n_more: int) -> tuple[Slot, int]:
        """A slot with the first ``end`` tokens of ``verified``, and the bytes that they take.

        It shares memory with every other slot that begins so. Raises ``NoSpace``, ``Corrupt``.
        """
        base = self.resident.base_of(verified, end)
        self._leases.append(self.resident.lease(n_more, base))
        return self.resident.session.fork(base.slot), base.restored_bytes

    def keep(self, ref: str, verified: Verified, end: int, slot: Slot) -> None:
        """Put ``slot``, the last that was asked for and proved, into the numbered slot."""
        if self.index is None:
            return
        now = self.resident.held[self.index]
        if now is not None and now.slot is slot:
            return
        self.resident.clear(self.index)
        self.resident.held[self.index] = Held(ref, verified.digest, end, slot, self._leases.pop())

    def leave(self, slot: Slot, unread: tuple[int, ...]) -> None:
        """Note what was generated last in the numbered slot and not computed on."""
        held = None if self.index is None else self.resident.held[self.index]
        if held is not None and held.slot is slot:
            held.unread = unread

    def conversation(self) -> Held:
        """What the numbered slot holds. Raises ``NotFound`` when it is empty."""
        if self.index is None:
            raise UsageError("no slot was named", hint="give --slot I")
        held = self.resident.held[self.index]
        if held is None:
            raise NotFound(
                f"slot {self.index} of session {self.resident.name}: empty",
                hint=f"kvg graft REF --session {self.resident.name} --slot {self.index}",
            )
        return held

    def continued(self, ref: str, verified: Verified, end: int, at: int) -> Held:
        """The numbered slot, which must hold ``verified`` and expect its next token at ``at``.

        Raises ``Incompatible``, ``NotFound``.
        """
        held = self.conversation()
        where = f"slot {self.index} of session {self.resident.name}"
        if (held.digest, held.end) != (verified.digest, end):
            raise Incompatible(
                f"{ref}: {where} begins with the first {held.end:,} tokens of {held.ref} "
                f"({held.digest}), not with it",
                hint="leave out --at to graft anew",
            )
        if held.position != at:
            raise Incompatible(
                f"{ref}: {where} expects position {held.position}, asked for at {at}",
                hint=f"--at {held.position} goes on; without --at it is grafted anew",
            )
        return held

    def extend(self, held: Held, n_more: int) -> None:
        """Memory for ``n_more`` tokens in the numbered slot; what does not come into it is given
        back at the end of the request. Raises ``NoSpace``."""
        self.resident.extend(held.lease, n_more)


def check_decodes_as_prefill(engine: Engine) -> None:
    """Raise ``Incompatible`` unless state built token by token is what a prefill would build."""
    if engine.reference != "invariant":
        raise Incompatible(
            f"the {engine.reference} reference: what was built token by token is not what a fresh "
            "computation of the same tokens gives",
            hint="kvg session start NAME --reference invariant",
        )


def read_on(session: Session, held: Held) -> None:
    """Compute on the tokens of ``held`` that were generated last."""
    if held.unread:
        session.run(held.slot, held.unread, [])
        held.unread = ()


def _mib(n_bytes: int) -> str:
    return f"{n_bytes / 2**20:,.0f} MiB"
