"""Which of several stored methods answers: the newest that counts, is fresh, and was proved for the
values.

Newest is whose last statement stands last in the log. Each that doesn't answer is passed over with
its reason, and the next older one is asked; only when none is left is it a miss, which names each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from kvg.digest import Digest, short
from kvg.errors import Corrupt, Incompatible, KvgError, NotFound, Untrusted
from kvg.flow.freshness import stale_reason
from kvg.problem.ranges import outside_of

if TYPE_CHECKING:
    from pathlib import Path

    from kvg.problem.literals import Literal
    from kvg.store import Store
    from kvg.verify.method import VerifiedMethod

UNFIT = (Corrupt, Incompatible, NotFound, Untrusted)
"""What is raised of a stored answer that doesn't count; an older one may."""


class PassedOver:
    """What was asked and does not answer: each with its reason, and what was raised first."""

    def __init__(self) -> None:
        self._reasons: list[tuple[str, str]] = []
        self._first: KvgError | None = None
        self._is_any_verified = False

    def note(self, name: str, reason: str) -> None:
        """``name`` counts, but not for what was asked, or not any more."""
        self._is_any_verified = True
        self._reasons.append((name, reason))

    def note_error(self, name: str, error: KvgError) -> None:
        """``name`` does not count."""
        self._first = self._first or error
        self._reasons.append((name, error.message))

    def check(self) -> None:
        """Raise what was raised first, unless something counted."""
        if self._first is not None and not self._is_any_verified:
            raise self._first

    def told(self, otherwise: str) -> str:
        """The reasons, in the order in which they were met; ``otherwise`` where there are none."""
        if len(self._reasons) < 2:
            return self._reasons[0][1] if self._reasons else otherwise
        return "; ".join(f"{name}: {reason}" for name, reason in self._reasons)


def choose_method(
    store: Store,
    cwd: Path,
    family: Digest,
    slots: Sequence[Literal],
    verify: Callable[[Store, Digest], VerifiedMethod],
    passed_over: PassedOver,
) -> VerifiedMethod | None:
    """The newest method of ``family`` that answers for ``slots``; those before it are noted."""
    for digest in methods_of(store, family):
        name = f"method {short(digest)}"
        try:
            found = verify(store, digest)
        except UNFIT as error:
            passed_over.note_error(name, error)
            continue
        reason = unfit(store, cwd, family, slots, found)
        if reason is None:
            return found
        passed_over.note(name, reason)
    return None


def methods_of(store: Store, family: Digest) -> Iterator[Digest]:
    """The methods that are listed for ``family``, the newest first, each once."""
    members = (item.digest for item in reversed(store.family_members(family)) if item.is_method)
    yield from dict.fromkeys(members)


def unfit(
    store: Store, cwd: Path, family: Digest, slots: Sequence[Literal], found: VerifiedMethod
) -> str | None:
    """Why a method that counts does not answer for ``slots``; None when it does."""
    if found.method.family != family:
        return "it is of another family"
    outside = outside_of(found.method.slots, slots)
    return outside or stale_reason(store, cwd, found.contract)
