"""``kvg status``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvg.flow.exchange.left_out import left_out
from kvg.flow.exchange.standing import is_followed, was_here
from kvg.flow.model import default_model
from kvg.flow.records.status import RemoteState, Status

if TYPE_CHECKING:
    from kvg.store import Store


def status(store: Store) -> Status:
    """The store at a glance. Raises ``Corrupt``, ``Untrusted`` when log or trust are not whole."""
    log = store.log
    return Status(
        path=str(store.root),
        origin=log.origin,
        refs=len(store.own_refs()),
        artifacts=len(store.artifacts()),
        log_size=log.size,
        model=default_model(store),
        models=len(store.config.names("model")),
        keys=len(store.trust.keys),
        remotes=store.config.names("remote"),
        remote_states=tuple(remote_state(store, name) for name in store.config.names("remote")),
        require=store.config.words("deposit.require"),
    )


def remote_state(store: Store, remote: str) -> RemoteState:
    """How one's own refs stand to those of ``remote`` as last seen; nothing is asked of it."""
    refs, own = store.refs(), store.own_refs()
    seen = {
        name.removeprefix(f"{remote}/"): digest
        for name, digest in refs.items()
        if name.startswith(f"{remote}/")
    }
    ahead = behind = 0
    for name in {*seen, *own}:
        here, there = own.get(name), seen.get(name)
        if here == there:
            continue
        if here is None:
            behind += 1
        elif there is None:
            ahead += 1
        elif is_followed(store, name, f"{remote}/{name}"):
            behind += 1
        elif was_here(store, name, there):
            ahead += 1
        elif any(move.digest == here for move in store.history(f"{remote}/{name}")):
            behind += 1
        else:
            ahead, behind = ahead + 1, behind + 1
    refused = left_out(store, remote)
    return RemoteState(remote, bool(seen or refused), ahead, behind, len(refused))
