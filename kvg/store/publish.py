"""Publication: one append to the log, under the lock, after looking at what is there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kvg.digest import Digest, raw_of, short
from kvg.errors import Conflict, Corrupt, Incompatible, NoSpace, NotFound
from kvg.frozen import frozen
from kvg.log.entry import (
    AttestationEntry,
    Entry,
    ForgetEntry,
    PinEntry,
    RefEntry,
    encode_entry,
)
from kvg.store import refs
from kvg.store import tables as t
from kvg.store.expectation import ANY, Anything, Expectation
from kvg.store.layout import SEARCH
from kvg.store.names import check_ref_name

if TYPE_CHECKING:
    from kvg.log.log import Log
    from kvg.signing.keys import PrivateKey
    from kvg.store.store import Store
    from kvg.store.tables import Tables


@frozen
class RefMove:
    """A wish to move a ref; refused with ``Conflict`` unless the ref is as expected now."""

    name: str
    digest: Digest | None
    expect: Expectation = ANY

    def __post_init__(self) -> None:
        check_ref_name(self.name)


@frozen
class Published:
    """What one publication added: each entry with its index in the log; may be nothing."""

    entries: tuple[tuple[int, Entry], ...]
    size: int
    is_indexed: bool = True

    def index_of(self, digest: Digest) -> int | None:
        """The index of the attestation that names the envelope ``digest``; None if not new."""
        for index, entry in self.entries:
            if isinstance(entry, AttestationEntry) and entry.envelope == digest:
                return index
        return None


def publish(
    store: Store, changes: Sequence[Entry | RefMove], *, now: int, key: PrivateKey | None
) -> Published:
    """See ``Store.publish``."""
    from kvg.store import trusted
    from kvg.store.rekey import finish

    with store.lock.exclusive():
        finish(store)
        trusted.finish(store)
        log = store.log
        entries = store.index.query(lambda tables: tuple(_entries(store, tables, changes, now)))
        if not entries:
            store.index.list_again(_named(changes))
            return Published((), log.size)
        signer = key or store.log_key()
        first = _append(store, log, entries, signer)
        is_indexed = store.index.update()
        if is_indexed:
            store.index.list_again(_named(changes))
        store.reserve.fill()
        numbered = tuple(enumerate(entries, first))
        return Published(numbered, first + len(entries), is_indexed)


def _named(changes: Sequence[Entry | RefMove]) -> Iterator[Digest]:
    """The artifacts that ``changes`` name: they are there now, whatever was folded before."""
    for change in changes:
        match change:
            case AttestationEntry(subject=digest):
                yield digest
            case RefMove(digest=digest) | RefEntry(digest=digest) if digest is not None:
                yield digest


def _append(store: Store, log: Log, entries: Sequence[Entry], key: PrivateKey) -> int:
    """The index of the first of ``entries`` in the log; to let something go it has the reserve."""

    def append() -> int:
        return log.append([encode_entry(entry) for entry in entries], key)

    if not all(map(_lets_go, entries)):
        return append()
    try:
        return store.reserve.spend(append)
    except NoSpace as error:
        cache = store.root / SEARCH
        own = f"remove {cache}, a cache, or " if cache.is_dir() else ""
        raise NoSpace(
            error.message,
            hint=f"even to let something go the log needs some KiB: {own}free them elsewhere on "
            "this file system; then run it again, and kvg gc after it",
        ) from None


def _lets_go(entry: Entry) -> bool:
    match entry:
        case RefEntry(digest=None) | PinEntry(on=False) | ForgetEntry():
            return True
        case _:
            return False


def _entries(
    store: Store, tables: Tables, changes: Sequence[Entry | RefMove], now: int
) -> Iterator[Entry]:
    """The entries that make ``changes``; what is so already is left out."""
    values: dict[str, Digest | None] = {}
    whole: set[Digest] = set()
    attested = {item.subject for item in changes if isinstance(item, AttestationEntry)}
    for change in changes:
        if isinstance(change, RefMove | RefEntry):
            found = _ref_entry(tables, values, change, now)
            if found is not None:
                if found.digest is not None:
                    if found.digest not in whole:
                        _check_whole(store, found.digest, f"ref {found.name}")
                        whole.add(found.digest)
                    if found.digest not in attested:
                        _check_not_forgotten(tables, found.digest, f"ref {found.name}")
                values[found.name] = found.digest
                yield found
        elif isinstance(change, AttestationEntry):
            _check_there(store, change.subject, "attestation's subject")
            _check_there(store, change.envelope, "attestation")
            known = refs.attestations(tables, change.subject)
            if all(item.envelope != change.envelope for item in known):
                yield change
        elif isinstance(change, PinEntry):
            if change.on:
                _check_whole(store, change.digest, "pin")
                _check_not_forgotten(tables, change.digest, "pin")
            if _is_pinned(tables, change.digest) != change.on:
                yield change
        else:
            yield change


def _ref_entry(
    tables: Tables, values: dict[str, Digest | None], change: RefMove | RefEntry, now: int
) -> RefEntry | None:
    check_ref_name(change.name)
    known = refs.ref_value(tables, change.name)
    current = values.get(change.name, known.digest if known else None)
    if isinstance(change, RefMove):
        expect, time = change.expect, now
    else:
        expect, time = change.previous, change.time
    if change.digest == current and (expect in (ANY, current) or _is_done(change)):
        return None
    if not isinstance(expect, Anything) and expect != current:
        raise Conflict(
            f"{change.name}: moved to {_name(current)}, expected {_name(expect)}",
            hint=f"look at it with kvg log {change.name}, then run it again",
        )
    return RefEntry(time, change.name, change.digest, current)


def _is_done(change: RefMove | RefEntry) -> bool:
    """Whether a value that is there already is all that was wanted, by whomever it was put."""
    return isinstance(change, RefMove) and change.digest is not None


def _is_pinned(tables: Tables, digest: Digest) -> bool:
    return any(pinned == digest for pinned, _ in refs.digests(tables, t.PINS))


def _check_there(store: Store, digest: Digest, what: str) -> None:
    if not store.objects.has(digest):
        raise Corrupt(f"{what}: object {short(digest)} missing", hint="kvg fsck")


def _check_whole(store: Store, digest: Digest, what: str) -> None:
    """Raise ``Corrupt`` when the artifact, or anything that its manifest names, is missing.

    Pages may be absent where a remote keeps them until they are read.

    Under the lock under which gc removes things: what is whole now, and is named now, stays.
    """
    _check_there(store, digest, what)
    try:
        manifest = store.manifest(digest, what=what)
    except (Corrupt, Incompatible):
        return  # whether it is an artifact is for its reader to say
    pages = () if store.is_partial else manifest.pages
    for needed in {manifest.tokens.digest, *(page.digest for page in pages)}:
        _check_there(store, needed, what)


def _check_not_forgotten(tables: Tables, digest: Digest, what: str) -> None:
    """An artifact that is being removed for good gets no name, however much of it is left."""
    if tables.get(t.FORGOTTEN, raw_of(digest)) is not None:
        raise NotFound(
            f"{what}: the content of {short(digest)} was removed with kvg forget",
            hint="deposit it again",
        )


def _name(digest: Digest | None) -> str:
    return short(digest) if digest else "nothing"
