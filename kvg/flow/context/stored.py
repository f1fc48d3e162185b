"""A context as it lies in a store: refs ``NAME/0001``, …, and where each block's text came from.

There is no further document: a block is an artifact under a ref of the log, and what it holds is
in its signed provenance, one source for each file with the URI ``kvg:NAME#line=A,B`` (RFC 5147).
A block that two contexts share, or whose lines moved, has a provenance for each. Where a block was
forgotten or removed there is a gap, and those behind it keep their numbers.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from kvg.digest import Digest, sha256
from kvg.errors import NotFound, Untrusted, UsageError
from kvg.frozen import frozen
from kvg.objects.statement import Provenance, Resource
from kvg.signing.dsse import parse_envelope
from kvg.trust import DEPOSITOR
from kvg.verify.judgement import MAX_ENVELOPE_BYTES, judge, parse_envelope_statement

if TYPE_CHECKING:
    from kvg.flow.context.cutting import Part
    from kvg.report import Report
    from kvg.store import Store

_REF = re.compile(r"(.+)/(\d{4,})")
_URI = re.compile(r"kvg:([^#]+)#line=(\d{1,15}),(\d{1,15})", re.ASCII)
MAX_SLICE_BYTES = 1 << 30
NAMED = 3
"""Blocks that are gone that a warning names."""


@frozen
class StoredPart:
    """A stretch of one file: ``line`` is its first line, from 1; ``digest`` is of its text."""

    path: str
    line: int
    n_lines: int
    digest: Digest


@frozen
class StoredBlock:
    """One block, which begins at token ``start`` of what its context has."""

    number: int
    ref: str
    digest: Digest
    start: int
    tokens: int
    model: Digest
    parts: tuple[StoredPart, ...]

    @property
    def end(self) -> int:
        return self.start + self.tokens


@frozen
class StoredContext:
    """All blocks of a context that are there, in order."""

    name: str
    blocks: tuple[StoredBlock, ...]

    def block(self, number: int) -> StoredBlock:
        """The block that has this number; there has to be one."""
        return self.blocks[bisect_left(self.blocks, number, key=lambda block: block.number)]

    @property
    def n_gone(self) -> int:
        """How many blocks before its last are gone."""
        return self.blocks[-1].number - len(self.blocks)

    def gone(self) -> Iterator[str]:
        """The refs of the blocks that are gone, in order."""
        there = {block.number for block in self.blocks}
        numbers = range(1, self.blocks[-1].number)
        return (block_ref(self.name, number) for number in numbers if number not in there)

    @property
    def tokens(self) -> int:
        return self.blocks[-1].end

    @property
    def paths(self) -> tuple[str, ...]:
        """Every file, each once, in order."""
        return tuple(dict.fromkeys(part.path for block in self.blocks for part in block.parts))

    @property
    def mark(self) -> str:
        """Changes whenever a block or its place does."""
        rows = (
            f"{block.number} {block.digest} {part.digest} {part.line} {part.path}"
            for block in self.blocks
            for part in block.parts
        )
        return sha256("\n".join(rows).encode("utf-8", "surrogateescape"))

    def at_token(self, offset: int) -> StoredBlock:
        """The block that holds the token ``offset``. Raises ``NotFound`` past the end."""
        if not 0 <= offset < self.tokens:
            raise NotFound(
                f"{self.name}: no token {offset:,}: it has {self.tokens:,}",
                hint=f"kvg context show {self.name}",
            )
        return self.blocks[bisect_right([block.start for block in self.blocks], offset) - 1]

    def at_line(self, path: str, line: int) -> StoredBlock:
        """The first block that holds ``line`` of ``path``. Raises ``NotFound``, ``UsageError``."""
        whole = self.whole_path(path)
        for block in self.blocks:
            for part in block.parts:
                if part.path == whole and part.line <= line < part.line + part.n_lines:
                    return block
        raise NotFound(f"{self.name}: {whole} has no line {line:,}")

    def whole_path(self, path: str) -> str:
        """The one path that is or ends with ``path``. Raises ``NotFound``, ``UsageError``."""
        paths = self.paths
        if path in paths:
            return path
        found = [item for item in paths if item.endswith(f"/{path}")]
        if len(found) > 1:
            raise UsageError(f"{path}: stands for {len(found)} files", hint=", ".join(found[:3]))
        if not found:
            raise NotFound(f"{self.name}: no file {path}", hint=f"kvg context show {self.name}")
        return found[0]


def described(parts: Iterable[StoredPart]) -> tuple[dict[str, object], ...]:
    """What a block holds, as records say it."""
    return tuple({"path": p.path, "line": p.line, "lines": p.n_lines} for p in parts)


def block_ref(name: str, number: int) -> str:
    """The ref of a context's block; blocks are numbered from 1."""
    return f"{name}/{number:04}"


def source_of(name: str, part: Part) -> Resource:
    """How a provenance names ``part`` of a block of context ``name``."""
    first = part.line - 1
    uri = f"kvg:{name}#line={first},{first + part.n_lines}"
    return Resource(part.path, sha256(part.text.encode("utf-8")), uri)


def names_of(store: Store) -> Iterator[str]:
    """The name of every context, ascending, also of those whose signers are all revoked."""
    for name, refs in sorted(_numbered(store).items()):
        digests = [digest for _, digest in sorted(refs.items())]
        if any(placements(store, name, digest) for digest in digests) or any(
            lapsed(store, name, digest) for digest in digests
        ):
            yield name


def block_refs(store: Store, name: str) -> dict[str, Digest]:
    """Every ref that a block of a context ``name`` would have, whatever it stands for, in order."""
    refs = _numbered(store).get(name, {})
    return {block_ref(name, number): refs[number] for number in sorted(refs)}


def _numbered(store: Store) -> dict[str, dict[int, Digest]]:
    """What the refs stand for that have the form of a block's, by context and number."""
    found: dict[str, dict[int, Digest]] = {}
    for ref, digest in store.refs().items():
        parts = _REF.fullmatch(ref)
        if parts and ref == block_ref(parts[1], int(parts[2])) != block_ref(parts[1], 0):
            found.setdefault(parts[1], {})[int(parts[2])] = digest
    return found


def read_context(store: Store, name: str, report: Report | None = None) -> StoredContext:
    """The context ``name``; trusted keys signed what its blocks hold. ``report`` is told of blocks
    that are gone.

    Raises ``NotFound``, ``Untrusted``, ``Corrupt``.
    """
    found = find_context(store, name)
    if found is None:
        check_lapsed(store, name)
        raise NotFound(f"{name}: no such context", hint="kvg context list")
    if report is not None and found.n_gone:
        more = f" and {found.n_gone - NAMED} more" if found.n_gone > NAMED else ""
        report.warning(
            f"{', '.join(islice(found.gone(), NAMED))}{more}: no block of {name} any more, so that "
            f"nothing is found of what it held: kvg context create {name} makes it anew"
        )
    return found


def find_context(store: Store, name: str) -> StoredContext | None:
    """As ``read_context``; None where there is none."""
    refs = _numbered(store).get(name, {})
    times = Counter(refs.values())
    seen: Counter[Digest] = Counter()
    blocks: list[StoredBlock] = []
    start = 0
    for number, digest in sorted(refs.items()):
        held = placements(store, name, digest)[-times[digest] :]
        if not held:
            continue
        parts = held[min(seen[digest], len(held) - 1)]
        seen[digest] += 1
        ref = block_ref(name, number)
        manifest = store.manifest(digest, what=ref)
        tokens, model = manifest.count, manifest.model.fingerprint
        blocks.append(StoredBlock(number, ref, digest, start, tokens, model, parts))
        start += tokens
    return StoredContext(name, tuple(blocks)) if blocks else None


def check_lapsed(store: Store, name: str) -> None:
    """Raise ``Untrusted`` where ``name`` was a context, and who placed its blocks is revoked."""
    for ref, digest in block_refs(store, name).items():
        for keyid in lapsed(store, name, digest):
            raise Untrusted(
                f"{name}: what its blocks hold is signed by {keyid[:12]}, which is revoked: {ref}",
                hint=f"kvg context create {name} PATH… --key KEY signs it anew",
            )


def lapsed(store: Store, name: str, digest: Digest) -> tuple[str, ...]:
    """The revoked keys, once trusted here, that placed the artifact in the context ``name``."""
    found: dict[str, None] = {}
    for item in judge(store, digest, what=name).opened:
        if not item.revoked:
            continue
        raw = store.objects.read(item.envelope, what=name, limit=MAX_ENVELOPE_BYTES)
        statement = parse_envelope_statement(parse_envelope(bytes(raw), what=name), digest, name)
        said = statement.predicate if statement is not None else None
        if isinstance(said, Provenance) and _whole_parts(name, said):
            found.update(dict.fromkeys(item.revoked))
    return tuple(found)


def _whole_parts(name: str, said: Provenance) -> tuple[StoredPart, ...]:
    """Where ``said`` places all that it is of in the context ``name``; else nothing."""
    sources = said.source or ()
    parts = tuple(_parts(name, sources))
    return parts if len(parts) == len(sources) else ()


def placements(store: Store, name: str, digest: Digest) -> tuple[tuple[StoredPart, ...], ...]:
    """What provenances that count say the artifact holds in context ``name``, the newest last.

    One that stands in a context n times has its last n places there, in order.
    """
    trusted = {key.keyid for key in store.trust.keys_for(DEPOSITOR)}
    found = []
    for item in judge(store, digest, what=name).opened:
        said = item.statement.predicate if item.statement is not None else None
        if isinstance(said, Provenance) and trusted.intersection(item.signers):
            found.append(_whole_parts(name, said))
    return tuple(parts for parts in found if parts)


def placed(name: str, parts: Iterable[Part]) -> tuple[StoredPart, ...]:
    """``parts`` as ``placements`` gives them once they are signed."""
    return tuple(_parts(name, (source_of(name, part) for part in parts)))


def _parts(name: str, sources: Iterable[Resource]) -> Iterator[StoredPart]:
    for source in sources:
        found = _URI.fullmatch(source.uri or "")
        if found and found[1] == name and source.digest is not None:
            first, last = int(found[2]), int(found[3])
            if first < last:
                yield StoredPart(source.name, first + 1, last - first, source.digest)


def slice_text(store: Store, block: StoredBlock, part: StoredPart) -> str:
    """The text of ``part``, checked. Raises ``Corrupt``, ``UsageError``."""
    from kvg.flow.sources import parse_text

    what = f"{block.ref}: {part.path}"
    raw = store.objects.read(part.digest, what=what, limit=MAX_SLICE_BYTES)
    return parse_text(bytes(raw), what=what)
