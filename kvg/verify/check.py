"""The full check: goes on after each fault, names each object, and counts what it looked at."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, ClassVar

from kvg.digest import Digest, short
from kvg.errors import Corrupt, Incompatible, KvgError, NotFound, Untrusted
from kvg.frozen import frozen
from kvg.objects.manifest import Manifest, Page, check_sizes, encode_manifest
from kvg.objects.page import check_page_head, data_start
from kvg.objects.statement import TestResult
from kvg.parallel import in_order
from kvg.store.layout import CONFIG_FILE

if TYPE_CHECKING:
    from kvg.log.log import Log
    from kvg.problem.method import Method
    from kvg.store import Store
    from kvg.trust import TrustFile
    from kvg.verify.judgement import Judgement

TRUST = "trust.json"
LEAST_PARALLEL_BYTES = 32 << 20
"""From so many bytes on, pages are checked by several threads."""


@frozen
class Finding:
    """One fault: the exit code and kind it stands for, the object, and what is wrong with it."""

    type: ClassVar[str] = "finding"
    code: int
    kind: str
    object: str
    message: str
    hint: str | None = None

    @property
    def exit_code(self) -> int:
        return self.code


@frozen
class ArtifactCheck:
    """One artifact or method: its faults, and what was found good: digest to raw bytes."""

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


@frozen
class VerifySummary:
    """Everything that was checked. ``recomputed`` counts pages recomputed from tokens: none here.

    ``objects`` and ``bytes`` (raw) count an object once however many artifacts share it.
    """

    type: ClassVar[str] = "verify-summary"
    artifacts: int
    objects: int
    bytes: int
    bytes_ok: bool
    signatures_ok: bool
    policy_ok: bool
    recomputed: int = 0
    absent: int = 0
    methods: int = 0


class _Notes:
    """What one check gathers as it goes."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.objects: dict[Digest, int] = {}

    @contextmanager
    def noting(self, name: str) -> Iterator[None]:
        """Turn a kvg error inside into a finding about ``name``, and go on."""
        try:
            yield
        except (Corrupt, Incompatible, NotFound, Untrusted) as error:
            self.findings.append(finding_of(error, name))
        except KvgError as error:
            if type(error) is not KvgError:
                raise
            self.findings.append(finding_of(error, name))  # what the disk or its owner refuses

    def saw(self, digest: Digest, size_bytes: int) -> None:
        self.objects[digest] = size_bytes

    def is_known(self, digest: Digest) -> bool:
        """Whether something was found out about ``digest``, good or bad."""
        return digest in self.objects or any(item.object == digest for item in self.findings)

    def has(self, *kinds: str) -> bool:
        return any(finding.kind in kinds for finding in self.findings)


def finding_of(error: KvgError, name: str) -> Finding:
    """``error`` as a finding about the object ``name``."""
    return Finding(error.code, error.kind, name, error.message, error.hint)


def check_artifact(
    store: Store,
    digest: Digest,
    *,
    require: Sequence[str] = (),
    ref: str | None = None,
    checked: Container[Digest] = (),
    with_blake3: bool = True,
    threads: int = 1,
) -> ArtifactCheck:
    """Every byte of one artifact by SHA-256 and BLAKE3, its signatures, its gates. No model.

    Pages in ``checked`` were found good already and are not read again. ``with_blake3``: False
    takes the SHA-256 alone, which says as much of the bytes; whether a graft, which looks at the
    BLAKE3, will find what the manifest says of that is then left to the graft.
    """
    what = ref or short(digest)
    notes = _Notes()
    absent: set[Digest] = set()
    manifest = _check_manifest(store, digest, what, notes)
    if manifest is not None:
        absent.update(_absent(store, manifest))
        _check_pages(store, manifest, what, notes, checked, with_blake3, threads, absent)

    def check_signed(judgement: Judgement, trust: TrustFile) -> None:
        judgement.check_signed(trust, what=what)

    return _concluded(store, digest, what, notes, require, check_signed, frozenset(absent))


def check_method(store: Store, digest: Digest, *, require: Sequence[str] = ()) -> ArtifactCheck:
    """As ``check_artifact``, for all that a method is made of. The proof is not run again."""
    from kvg.verify.method import proved_by

    what, notes = method_name(digest), _Notes()
    method = _check_document(store, digest, what, notes)
    for name, part in needed_by(store, digest, method):
        with notes.noting(part):
            notes.saw(part, store.objects.read(part, what=f"{what}: {name}").nbytes)

    def check_signed(judgement: Judgement, trust: TrustFile) -> None:
        proved_by(judgement, trust, what=what)

    return _concluded(store, digest, what, notes, require, check_signed)


def method_name(digest: Digest) -> str:
    """What messages call a method."""
    return f"method {short(digest)}"


def _check_document(store: Store, digest: Digest, what: str, notes: _Notes) -> Method | None:
    from kvg.verify.method import read_method

    method: Method | None = None
    with notes.noting(digest):
        method = read_method(store, digest, what=what)
        notes.saw(digest, len(method.document))
    return method


def needed_by(store: Store, digest: Digest, method: Method | None) -> Iterator[tuple[str, Digest]]:
    """What there has to be beside a method's document, None where that can't be read: what each is,
    and its digest. A statement's word that it was proved is enough to need the evidence."""
    from kvg.problem.method import METHOD_GATE
    from kvg.store.closure import said_in

    yield from method.parts if method is not None else ()
    for envelope in _attestations(store, digest):
        said = said_in(store, envelope)
        if isinstance(said, TestResult) and said.gate == METHOD_GATE:
            yield from ((item.name, item.digest) for item in said.evidence if item.digest)


def _concluded(
    store: Store,
    digest: Digest,
    what: str,
    notes: _Notes,
    require: Sequence[str],
    check_signed: Callable[[Judgement, TrustFile], None],
    absent: frozenset[Digest] = frozenset(),
) -> ArtifactCheck:
    """What ``notes`` of its bytes and the judgement of its statements come to."""
    from kvg.verify.judgement import required_gates

    bytes_ok = not notes.findings
    judgement = _judged(store, digest, what, notes)
    bytes_ok = bytes_ok and not notes.has("corrupt")
    signatures_ok = policy_ok = judgement is not None
    if judgement is not None:
        _check_resources(store, judgement, what, notes)
        bytes_ok = bytes_ok and not notes.has("corrupt")
        signatures_ok = _holds(notes, what, lambda: check_signed(judgement, store.trust))
        gates = required_gates(store, require)
        policy_ok = _holds(notes, what, lambda: judgement.check_required(gates, what=what))
    return ArtifactCheck(
        digest,
        tuple(notes.findings),
        notes.objects,
        bytes_ok,
        signatures_ok,
        policy_ok,
        judgement.gates if judgement else (),
        judgement.depositors if judgement else (),
        absent,
    )


def _holds(notes: _Notes, name: str, check: Callable[[], None]) -> bool:
    before = len(notes.findings)
    with notes.noting(name):
        check()
    return len(notes.findings) == before


def _check_manifest(store: Store, digest: Digest, what: str, notes: _Notes) -> Manifest | None:
    manifest: Manifest | None = None
    with notes.noting(digest):
        manifest = store.manifest(digest, what=what)
        notes.saw(digest, len(encode_manifest(manifest)))
        check_sizes(manifest, what=what)
    if manifest is not None:
        with notes.noting(manifest.tokens.digest):
            store.ids(manifest, what=what)
            notes.saw(manifest.tokens.digest, 4 * manifest.count)
    return manifest


def _absent(store: Store, manifest: Manifest) -> Iterator[Digest]:
    """The pages that a remote keeps until they are read."""
    if store.is_partial:
        yield from (page.digest for page in manifest.pages if not store.objects.has(page.digest))


def _check_pages(
    store: Store,
    manifest: Manifest,
    what: str,
    notes: _Notes,
    checked: Container[Digest],
    with_blake3: bool,
    threads: int,
    absent: Container[Digest],
) -> None:
    """Every page in neither ``checked`` nor ``absent``, several at once where there is much."""
    pages = {page.digest: page for page in manifest.pages if page.digest not in absent}
    for page in pages.values():
        if page.digest in checked:
            notes.saw(page.digest, page.size)
    left = [page for page in pages.values() if page.digest not in checked]
    is_much = sum(page.size for page in left) >= LEAST_PARALLEL_BYTES
    at_once = max(1, min(threads, len(left))) if is_much else 1

    def check(page: Page) -> _Notes:
        own = _Notes()
        at_each = max(1, threads // at_once)
        _check_page(store, manifest, page, what, own, with_blake3, at_each)
        return own

    for own in in_order(check, left, threads=at_once):
        notes.findings += own.findings
        notes.objects |= own.objects


def _check_page(
    store: Store,
    manifest: Manifest,
    page: Page,
    what: str,
    notes: _Notes,
    with_blake3: bool,
    threads: int,
) -> None:
    name = f"{what}: page {page.group} [{page.start}, {page.end})"
    if page.digest in notes.objects:
        return
    with notes.noting(page.digest):
        group = manifest.group(page.group)
        found = store.objects.check(
            page.digest,
            size=page.size,
            what=name,
            head_bytes=data_start(group, page.n_tokens),
            with_blake3=with_blake3,
            threads=threads,
        )
        if found.blake3 not in (page.blake3, None):
            raise Corrupt(f"{name}: bytes do not match the BLAKE3 of the manifest")
        check_page_head(found.head, page.size, group, page.n_tokens, what=name)
        notes.saw(page.digest, page.size)


def _judged(store: Store, digest: Digest, what: str, notes: _Notes) -> Judgement | None:
    from kvg.verify.judgement import judge

    judgement: Judgement | None = None
    try:
        judgement = judge(store, digest, what=what)
    except (Corrupt, Untrusted) as error:
        before = len(notes.findings)
        for item in _attestations(store, digest):
            with notes.noting(item):
                store.objects.read(item, what=f"{what}: attestation")
        if len(notes.findings) == before:
            notes.findings.append(finding_of(error, digest))
    else:
        for opened in judgement.opened:
            notes.saw(opened.envelope, opened.size)
    return judgement


def _attestations(store: Store, digest: Digest) -> tuple[Digest, ...]:
    try:
        return tuple(item.envelope for item in store.attestations(digest))
    except (Corrupt, Untrusted):
        return ()


def _check_resources(store: Store, judgement: Judgement, what: str, notes: _Notes) -> None:
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


def check_store(
    store: Store,
    digests: Iterable[tuple[str | None, Digest]] | None = None,
    *,
    require: Sequence[str] = (),
    with_blake3: bool = True,
    threads: int = 1,
) -> Iterator[Finding | VerifySummary]:
    """Check the log, the trust file and each artifact or method: (name, digest) of every ref, and
    every method, by default.

    Yields each fault as it is found and, last, the summary. Never stops at a fault.
    ``with_blake3`` as ``check_artifact``.
    """
    common = [*check_log(store), *check_trust(store), *check_config(store)]
    yield from common
    named = list(_standing(store) if digests is None else digests)
    methods = methods_among(store, (digest for _, digest in named))
    good: dict[Digest, int] = {}
    checks: dict[Digest, ArtifactCheck] = {}
    for name, digest in named:
        if digest in checks:
            continue
        if digest in methods:
            check = check_method(store, digest, require=require)
        else:
            check = check_artifact(
                store,
                digest,
                require=require,
                ref=name,
                checked=good,
                with_blake3=with_blake3,
                threads=threads,
            )
        yield from check.findings
        good.update(check.objects)
        checks[digest] = check
    yield VerifySummary(
        len(checks) - len(methods),
        len(good),
        sum(good.values()),
        not any(finding.kind == "corrupt" for finding in common)
        and all(check.bytes_ok for check in checks.values()),
        not common and all(check.signatures_ok for check in checks.values()),
        not common and all(check.policy_ok for check in checks.values()),
        absent=len(frozenset().union(*(check.absent for check in checks.values()))),
        methods=len(methods),
    )


def methods_among(store: Store, digests: Iterable[Digest]) -> frozenset[Digest]:
    """Those of ``digests`` that are methods; what a ref stands for is an artifact."""
    unnamed = frozenset(digests).difference(digest for _, digest in _refs(store))
    return unnamed & store.methods() if unnamed else unnamed


def _standing(store: Store) -> Iterator[tuple[str | None, Digest]]:
    """Every ref, then every method; none when the log can't be read, a finding of its own."""
    refs = _refs(store)
    yield from refs
    with suppress(Corrupt, Incompatible, Untrusted):
        yield from ((None, digest) for digest in sorted(store.methods()))


def _refs(store: Store) -> Sequence[tuple[str, Digest]]:
    try:
        return sorted(store.refs().items())
    except (Corrupt, Incompatible, Untrusted):
        return ()


def check_log(store: Store) -> Iterator[Finding]:
    """Recompute the whole log from its entries; yield what is wrong."""
    try:
        from kvg.store.witnesses import faults

        for fault in (*store.log.faults(), *faults(store)):
            yield finding_of(fault, "log")
    except (Corrupt, Incompatible, NotFound, Untrusted) as error:
        yield finding_of(error, "log")


def check_trust(store: Store) -> Iterator[Finding]:
    """Check every version of the trust file against the one before; yield what is wrong."""
    from kvg.store.trusted import check_versions

    notes = _Notes()
    with notes.noting("trust.json"):
        check_versions(store)
        _ = store.trust
    yield from notes.findings
    yield from _missing_trust(store)


def _missing_trust(store: Store) -> Iterator[Finding]:
    """The trust file, if it is gone: the log has it, so that nothing else would tell.

    A first version that the log ends with may be one whose writing was cut.
    """
    if (store.root / TRUST).exists():
        return
    try:
        versions, log = store.trust_versions(), store.log
        is_cut = len(versions) == 1 and _ends_with_trust(log)
    except (Corrupt, Incompatible, NotFound, Untrusted):
        return  # which the check of the log tells
    if versions and not is_cut:
        text = f"{TRUST}: missing; the log knows version {versions[-1][0]}"
        yield Finding(Corrupt.code, Corrupt.kind, TRUST, text, "kvg fsck --repair")


def _ends_with_trust(log: Log) -> bool:
    from kvg.log.entry import TrustEntry, parse_entry

    last = next(iter(log.read(log.size - 1)))
    return isinstance(parse_entry(last, what="log"), TrustEntry)


def check_config(store: Store) -> Iterator[Finding]:
    """Name what can't be read of the configuration, and what is set to a value of another kind.

    Then every key that means nothing: a misspelt policy is none.
    """
    faults = (store.config.fault,) if store.config.fault else store.config.misfits()
    for fault in faults:
        yield finding_of(fault, CONFIG_FILE)
    for key, near in store.config.unknown():
        hint = f"did you mean {near}?" if near else f"take it out of {store.config.path}"
        text = f"{CONFIG_FILE}: {key}: no such setting"
        yield Finding(Corrupt.code, Corrupt.kind, CONFIG_FILE, text, hint)


def check_objects(store: Store, *, threads: int = 1) -> Iterator[Finding]:
    """Check every object that is there by its own checksums and its digest; yield each fault."""
    for digest in store.objects.all():
        notes = _Notes()
        with notes.noting(digest):
            store.objects.read(digest, what=short(digest), threads=threads)
        yield from notes.findings
