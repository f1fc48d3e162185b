"""One ref of a push: what lies there, and whether it may be moved from that: fast-forward only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvg.digest import Digest, short
from kvg.errors import Conflict
from kvg.flow.exchange.going_back import standing
from kvg.flow.exchange.reading import NoValue, RemoteRef
from kvg.flow.exchange.standing import is_followed, was_here
from kvg.flow.records.exchange import State, TransferRef
from kvg.frozen import frozen
from kvg.remote.layout import Expected, MalformedPointer, Pointer

if TYPE_CHECKING:
    from kvg.flow.exchange.places import Place
    from kvg.flow.exchange.reading import Reader
    from kvg.store import Store


@frozen
class Step:
    """One ref that is to go, or is there already."""

    name: str
    digest: Digest
    there: RemoteRef | None
    worthless: Pointer | MalformedPointer | None = None
    """What lies there and says nothing that anybody can believe: it is replaced."""

    @property
    def state(self) -> State:
        """What becomes of it."""
        if self.there is None:
            return "new"
        return "unchanged" if self.there.digest == self.digest else "moved"

    @property
    def expected(self) -> Expected:
        """The pointer that it replaces."""
        return self.worthless if self.there is None else self.there.pointer

    def done(self, state: State | None = None) -> TransferRef:
        """What is told of it."""
        previous = None if self.there is None else self.there.digest
        return TransferRef(self.name, self.digest, previous, state or self.state)


def worthless(error: MalformedPointer | NoValue) -> Pointer | MalformedPointer:
    """What ``error`` tells of, as what a move expects there."""
    return error.pointer if isinstance(error, NoValue) else error


def pull_first(place: Place, name: str) -> str:
    """What helps where the remote is ahead."""
    return f"kvg pull {place.name} {name}, then push again"


def check_forward(store: Store, place: Place, reader: Reader, step: Step) -> None:
    """Raise ``Conflict`` unless what ``step`` brings came after what lies there."""
    if step.worthless is not None:
        _check_seen(store, place, reader, step)
        _check_logs(store, place, reader, step)
    there, name, tracked = step.there, step.name, place.tracking(step.name)
    if step.state != "moved" or there is None or there.pointer.origin == store.log.origin:
        return  # one's own was moved last from here, and on since
    if not was_here(store, name, there.digest):
        raise Conflict(
            f"{name}: {place.name} has {short(there.digest)}, which {name} never was here",
            hint=pull_first(place, name),
        )
    if is_followed(store, name, tracked):
        raise Conflict(
            f"{name}: {place.name} went from {short(step.digest)} to {short(there.digest)}, and "
            "nothing moved here since",
            hint=pull_first(place, name),
        )


def _check_seen(store: Store, place: Place, reader: Reader, step: Step) -> None:
    """What lies there says nothing: what was seen last is what it was."""
    name, tracked = step.name, place.tracking(step.name)
    seen = reader.seen.get(tracked)
    if seen is None or seen == step.digest:
        return
    if not was_here(store, name, seen) or is_followed(store, name, tracked):
        raise Conflict(
            f"{name}: {place.name} had {short(seen)}, and nothing moved here since",
            hint=f"kvg tag -f {name} {tracked}, then push again",
        )


def _check_logs(store: Store, place: Place, reader: Reader, step: Step) -> None:
    """What lies there says nothing: the logs there say what it may have been."""
    name = step.name
    logs = {log.origin: log for log in reader.counting()}
    newest = {o: d for o, log in logs.items() if (d := log.newest.get(name, (0, None))[1])}
    orders = {origin: log.values(name) for origin, log in logs.items()}
    for origin, value in standing(newest, orders).items():
        if value != step.digest and not was_here(store, name, value):
            raise Conflict(
                f"{name}: log {origin} on {place.name} has {short(value)}, which {name} never was "
                "here, and what its pointer was can't be told",
                hint="its publisher puts it back with kvg push; or take it off: "
                f"kvg push {place.name} --delete {name}",
            )
