"""A byte search over a whole store: is there anything left of what was removed?

From each object some stretches of bytes are taken before it goes. Then every file of the store is
searched for them, byte by byte, and objects that are compressed once more in their raw form.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kvg import durable
from kvg.digest import PREFIX, Digest, is_digest, short
from kvg.errors import Corrupt, Incompatible
from kvg.frozen import frozen
from kvg.store.wanted import Mark

if TYPE_CHECKING:
    from kvg.store.store import Store

TRACE_BYTES = 48
MAX_TRACES = 24
LEAST_VARIETY = 8
"""How many different bytes a stretch has at least: a run of blanks proves nothing."""

BLOCK_BYTES = 8 << 20
_COMPRESSED = (1, 2)


@frozen
class Trace:
    """Where something of the removed content is still found: a file under the store's folder.

    ``digest`` is that of the object which the file holds, None when it is no object.
    """

    path: str
    digest: Digest | None


def take_traces(store: Store, content: Sequence[tuple[Digest, int]]) -> tuple[bytes, ...]:
    """Stretches by which ``content`` is known again; at most ``MAX_TRACES``, spread out.

    ``content``: objects, each with the offset where what tells it from others begins. Those that
    are damaged or hold nothing distinctive give none.
    """
    step = max(1, -(-len(content) // MAX_TRACES))
    chosen = content[::step]
    each = max(1, MAX_TRACES // max(1, len(chosen)))
    found: dict[bytes, None] = {}
    for digest, start in chosen:
        try:
            raw = store.objects.read(digest, what=short(digest))
        except (Corrupt, Incompatible):
            continue
        found.update((item, None) for item in _stretches(raw[start:], each))
    return tuple(found)[:MAX_TRACES]


def _stretches(raw: memoryview, most: int) -> Iterator[bytes]:
    """Up to ``most`` stretches at even steps, the end first."""
    last = len(raw) - TRACE_BYTES
    if last < 0:
        return
    places = {last - last * i // most for i in range(most)}
    for place in sorted(places, reverse=True):
        stretch = bytes(raw[place : place + TRACE_BYTES])
        if len(set(stretch)) >= LEAST_VARIETY:
            yield stretch


def find_traces(
    store: Store, traces: Sequence[bytes | Mark], *, advance: Callable[[int], None] = lambda _: None
) -> Iterator[Trace]:
    """Every file of the store that holds one of ``traces``; ``advance`` is told bytes searched.

    Of what is gone, a ``Mark`` stands for a stretch.
    """
    for path in _files(store.root):
        digest = _digest_of(store, path)
        if _is_in_file(path, traces, advance) or _is_in_raw(store, path, digest, traces):
            yield Trace(os.fspath(path.relative_to(store.root)), digest)


def _files(folder: Path) -> Iterator[Path]:
    for parent, folders, names in durable.walk(folder):
        folders.sort()
        yield from (Path(parent, name) for name in sorted(names))


def _digest_of(store: Store, path: Path) -> Digest | None:
    if path.parent.parent != store.objects.folder:
        return None
    name = f"{PREFIX}{path.parent.name}{path.name}"
    return name if is_digest(name) else None


def _is_in_file(path: Path, traces: Sequence[bytes | Mark], advance: Callable[[int], None]) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    tail = b""
    with durable.translated(path), open(path, "rb", opener=durable.plain) as file:
        while block := file.read(BLOCK_BYTES):
            advance(len(block))
            if _holds(tail + block, traces):
                return True
            tail = block[-(TRACE_BYTES - 1) :]
    return False


def _is_in_raw(
    store: Store, path: Path, digest: Digest | None, traces: Sequence[bytes | Mark]
) -> bool:
    if digest is None or path.is_symlink() or not path.is_file():
        return False
    with durable.translated(path), open(path, "rb", opener=durable.plain) as file:
        if file.read(5)[4:5] not in (bytes([codec]) for codec in _COMPRESSED):
            return False
    try:
        return _holds(bytes(store.objects.read(digest, what=short(digest))), traces)
    except (Corrupt, Incompatible):
        return False


def _holds(data: bytes, traces: Iterable[bytes | Mark]) -> bool:
    return any(trace.is_in(data) if isinstance(trace, Mark) else trace in data for trace in traces)
