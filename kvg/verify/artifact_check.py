"""One artifact, fully checked: every byte, the signatures, the gates. No model."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kvg.digest import Digest, raw_of, sha256, short
from kvg.errors import Corrupt, KvgError, Untrusted
from kvg.frozen import frozen
from kvg.objects.manifest import Manifest, Page, check_sizes
from kvg.objects.page import check_page_head, data_start
from kvg.objects.tokens import SIZE_BYTES
from kvg.parallel import in_order
from kvg.verify.findings import Finding, Notes, finding_of

if TYPE_CHECKING:
    from kvg.forked import Forked
    from kvg.objects.layout import Group
    from kvg.store import Store
    from kvg.trust import TrustFile
    from kvg.verify.judgement import Judgement


LEAST_PARALLEL_BYTES = 32 << 20
"""From so many bytes on, pages are checked by several threads, or processes."""


class PageUse(NamedTuple):
    """All that a manifest says of an object that is to be a page: where the same is said again,
    one look at the object answers both."""

    digest: Digest
    size: int
    blake3: str
    n_tokens: int
    group: Group

    @property
    def key(self) -> bytes:
        """32 bytes that stand for it."""
        return raw_of(sha256(repr(self).encode()))


def use_of(manifest: Manifest, page: Page) -> PageUse:
    """What ``manifest`` says of ``page``."""
    group = manifest.group(page.group)
    return PageUse(page.digest, page.size, page.blake3, page.n_tokens, group)


@frozen
class ArtifactCheck:
    """One artifact or method: its faults, and what was found good: digest to raw bytes, and its
    pages as what it uses them."""

    digest: Digest
    findings: tuple[Finding, ...]
    objects: Mapping[Digest, int]
    bytes_ok: bool
    signatures_ok: bool
    policy_ok: bool
    gates: tuple[str, ...]
    signers: tuple[str, ...]
    absent: frozenset[Digest] = frozenset()
    """Pages that a remote keeps until they are read: nothing is said of them."""
    pages: frozenset[PageUse] = frozenset()


@frozen
class ArtifactRequest:
    """How artifacts are checked.

    ``require``: gates that have to be passed. ``with_blake3``: False takes the SHA-256 of a page
    alone, which says as much of the bytes; whether a graft, which looks at the BLAKE3, will find
    what the manifest says of that is then left to the graft.
    """

    store: Store
    require: Sequence[str] = ()
    with_blake3: bool = True
    threads: int = 1


def check_artifact(
    asked: ArtifactRequest, digest: Digest, *, ref: str | None = None
) -> ArtifactCheck:
    """Every byte of one artifact, its signatures, its gates."""
    with ArtifactBegun(asked, digest, ref=ref) as begun:
        return begun.end()


class ArtifactBegun:
    """An artifact whose pages are read from now on, by forked processes where that can be.

    Close it.
    """

    def __init__(
        self,
        asked: ArtifactRequest,
        digest: Digest,
        *,
        ref: str | None = None,
        checked: Container[PageUse] = (),
    ) -> None:
        """Pages in ``checked`` were found good, as just that, and are not read again."""
        self.digest = digest
        self.target = (ref, digest)
        self._asked = asked
        self._what = ref or short(digest)
        self._notes = Notes()
        self._manifest = check_manifest(asked.store, digest, self._what, self._notes)
        self._absent = frozenset(_absent(asked.store, self._manifest))
        self._left: list[Page] = []
        self._good: set[PageUse] = set()
        self._forked: Forked | None = None
        if self._manifest is not None:  # the rest is looked at while pages are read
            self._how = PageCheck(asked.store, self._manifest, self._what, asked.with_blake3)
            self._left = list(self._pages(self._manifest, checked))
            self._forked = _begin_forked(self._how, self._left, threads=asked.threads)

    def close(self) -> None:
        """End what is still being read."""
        if self._forked is not None:
            self._forked.close()

    def __enter__(self) -> ArtifactBegun:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def end(self) -> ArtifactCheck:
        """What there is to say of it."""
        store, what = self._asked.store, self._what
        self._check_ref()
        if self._manifest is not None:
            check_ids(store, self.digest, self._manifest, what, self._notes)
        signed = Notes()
        judgement = judged(store, self.digest, what, signed)
        self._check_pages()

        def check_signed(judgement: Judgement, trust: TrustFile) -> None:
            judgement.check_signed(trust, what=what)

        return concluded(
            self._asked,
            self.digest,
            what,
            self._notes,
            judgement,
            signed,
            check_signed,
            self._absent,
            frozenset(self._good),
        )

    def _check_ref(self) -> None:
        """What else the log says than the index, and what is wrong with it, ``judged`` sees."""
        from kvg.store.vouching import TurnedRef, vouch

        try:
            vouch(self._asked.store, self.digest, ref=self.target[0])
        except TurnedRef as error:
            self._notes.findings.append(finding_of(error, self._what))
        except KvgError:
            return

    def _pages(self, manifest: Manifest, checked: Container[PageUse]) -> Iterator[Page]:
        """The pages that are to be read, each once for each thing that it is said to be."""
        for use, page in {use_of(manifest, page): page for page in manifest.pages}.items():
            if use in checked:
                self._notes.saw(page.digest, page.size)
            elif page.digest not in self._absent:
                yield page

    def _check_pages(self) -> None:
        """Every page that was not found good in a forked process, several at once if many."""
        good = frozenset[int]() if self._forked is None else self._forked.good()
        for item in good:
            self._saw(self._left[item])
        left = [page for item, page in enumerate(self._left) if item not in good]
        n_at_once = _at_once(left, self._asked.threads)
        at_each = max(1, self._asked.threads // n_at_once)

        def check(page: Page) -> Notes:
            own = Notes()
            with noting_part(own, self._asked.store, page.digest, self.digest):
                self._how.check(page, threads=at_each)
            return own

        for page, own in zip(left, in_order(check, left, threads=n_at_once), strict=True):
            self._notes.add(own)
            if not own.findings:
                self._saw(page)

    def _saw(self, page: Page) -> None:
        if self._manifest is not None:
            self._notes.saw(page.digest, page.size)
            self._good.add(use_of(self._manifest, page))


@frozen
class PageCheck:
    """How the pages of an artifact, named ``what``, are checked: see ``ArtifactRequest``."""

    store: Store
    manifest: Manifest
    what: str
    with_blake3: bool

    def check(self, page: Page, *, threads: int = 1, is_mapped: bool = False) -> None:
        """Every byte of a page. ``is_mapped``: see ``ObjectFiles.check``. Raises ``Corrupt``."""
        name = f"{self.what}: page {page.group} [{page.start}, {page.end})"
        group = self.manifest.group(page.group)
        found = self.store.objects.check(
            page.digest,
            size=page.size,
            what=name,
            head_bytes=data_start(group, page.n_tokens),
            with_blake3=self.with_blake3,
            threads=threads,
            is_mapped=is_mapped,
        )
        if found.blake3 not in (page.blake3, None):
            raise Corrupt(f"{name}: bytes do not match the BLAKE3 of the manifest")
        check_page_head(found.head, page.size, group, page.n_tokens, what=name)

    def is_good(self, page: Page) -> bool:
        """Whether nothing is wrong with a page. Only in a process that may die of it."""
        try:
            self.check(page, is_mapped=True)
        except KvgError:
            return False
        return True


def _at_once(pages: Sequence[Page], threads: int) -> int:
    """How many pages are checked at a time, of ``threads`` that there may be."""
    is_much = sum(page.size for page in pages) >= LEAST_PARALLEL_BYTES
    return max(1, min(threads, len(pages))) if is_much else 1


def _begin_forked(how: PageCheck, pages: Sequence[Page], *, threads: int) -> Forked | None:
    """Have the pages read from now on, by processes of their own; None where that does not pay."""
    processes = _at_once(pages, threads)
    if processes == 1:
        return None
    from kvg.forked import Forked, can_fork

    if not can_fork():
        return None
    try:
        return Forked(lambda item: how.is_good(pages[item]), len(pages), processes=processes)
    except OSError:
        return None  # there is not even a pipe to be had


def concluded(
    asked: ArtifactRequest,
    digest: Digest,
    what: str,
    notes: Notes,
    judgement: Judgement | None,
    signed: Notes,
    check_signed: Callable[[Judgement, TrustFile], None],
    absent: frozenset[Digest] = frozenset(),
    pages: frozenset[PageUse] = frozenset(),
) -> ArtifactCheck:
    """What ``notes`` of its bytes, the judgement of its statements and ``signed``, the notes of
    that, come to."""
    from kvg.verify.judgement import required_gates

    bytes_ok = not notes.findings
    notes.add(signed)
    signatures_ok = policy_ok = judgement is not None
    under = judgement
    if judgement is not None:
        _check_resources(asked.store, judgement, what, notes)
    bytes_ok = bytes_ok and not notes.has("corrupt")
    if judgement is not None:
        from kvg.verify.traced import said_under

        signatures_ok = _holds(notes, what, lambda: check_signed(judgement, asked.store.trust))
        under = said_under(what, judgement, asked.store.trust)
        gates = required_gates(asked.store, asked.require)
        policy_ok = _holds(notes, what, partial(under.check_required, gates, what=what))
    return ArtifactCheck(
        digest,
        tuple(notes.findings),
        notes.objects,
        bytes_ok,
        signatures_ok,
        policy_ok,
        under.gates if under else (),
        under.depositors if under else (),
        absent,
        pages,
    )


def _holds(notes: Notes, name: str, check: Callable[[], None]) -> bool:
    before = len(notes.findings)
    with notes.noting(name):
        check()
    return len(notes.findings) == before


def check_manifest(store: Store, digest: Digest, what: str, notes: Notes) -> Manifest | None:
    """The manifest of an artifact, checked; None when it can't be had."""
    manifest: Manifest | None = None
    with notes.noting(digest):
        manifest, size_bytes = store.sized_manifest(digest, what=what)
        notes.saw(digest, size_bytes)
        check_sizes(manifest, what=what)
    return manifest


def check_ids(store: Store, artifact: Digest, manifest: Manifest, what: str, notes: Notes) -> None:
    """Check that the token ids of an artifact are there, and as many as it says."""
    digest, size_bytes = manifest.tokens.digest, SIZE_BYTES * manifest.count
    with noting_part(notes, store, digest, artifact):
        store.objects.read(digest, size=size_bytes, what=f"{what}: token ids")
        notes.saw(digest, size_bytes)


@contextmanager
def noting_part(notes: Notes, store: Store, part: Digest, artifact: Digest) -> Iterator[None]:
    """Turn a kvg error inside into a finding about ``part``, or about the ``artifact`` that names
    it, where it is sound itself and is only not what the artifact says."""
    own = Notes()
    with own.noting(part):
        yield
    if any(item.kind == Corrupt.kind for item in own.findings) and _is_sound(store, part):
        hint = f"no copy mends it, its manifest says so: kvg forget {short(artifact)}"
        own.findings = [replace(item, object=artifact, hint=hint) for item in own.findings]
    notes.add(own)


def _is_sound(store: Store, digest: Digest) -> bool:
    """Whether the object is there and has the bytes of its digest."""
    try:
        store.objects.read(digest, what=short(digest))
    except KvgError:
        return False
    return True


def _absent(store: Store, manifest: Manifest | None) -> Iterator[Digest]:
    """The pages that a remote keeps until they are read."""
    if manifest is not None and store.is_partial:
        yield from (page.digest for page in manifest.pages if not store.objects.has(page.digest))


def judged(store: Store, digest: Digest, what: str, notes: Notes) -> Judgement | None:
    """What the statements about it say; None, with the reasons in ``notes``, where they are bad."""
    from kvg.verify.judgement import judge

    judgement: Judgement | None = None
    try:
        judgement = judge(store, digest, what=what)
    except (Corrupt, Untrusted) as error:
        before = len(notes.findings)
        for item in attestations(store, digest):
            with notes.noting(item):
                store.objects.read(item, what=f"{what}: attestation")
        if len(notes.findings) == before:
            notes.findings.append(finding_of(error, digest))
    else:
        for opened in judgement.opened:
            notes.saw(opened.envelope, opened.size)
    return judgement


def attestations(store: Store, digest: Digest) -> tuple[Digest, ...]:
    """The envelopes of the statements about it; none where the log can't be read."""
    try:
        return tuple(item.envelope for item in store.attestations(digest))
    except (Corrupt, Untrusted):
        return ()


def _check_resources(store: Store, judgement: Judgement, what: str, notes: Notes) -> None:
    """Sources, which a deposit that names them stores, and evidence and files that lie here too."""
    said = list(judgement.resources)
    provenance = judgement.provenance
    sources = (provenance.source or ()) if provenance is not None else ()
    if provenance is not None:
        said += [*sources, *provenance.depends]
    for resource in said:
        digest = resource.digest
        if digest is None or notes.is_known(digest):
            continue
        if resource not in sources and not store.objects.has(digest):
            continue
        with notes.noting(digest):
            raw = store.objects.read(digest, what=f"{what}: {resource.name}")
            notes.saw(digest, raw.nbytes)
