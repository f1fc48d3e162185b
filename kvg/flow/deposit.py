"""``kvg deposit``: compute a text once, sign what was computed, store it under a ref."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kvg import __version__, durable
from kvg.digest import Digest, blake3_hex, sha256
from kvg.errors import UsageError
from kvg.flow.attested import attested
from kvg.flow.gated import attest_gates, pass_gates
from kvg.flow.records.computed import Deposited
from kvg.flow.registered import (
    RegisteredModel,
    check_torch,
    identified,
    open_registered,
    registered_model,
    tokenizer_of,
)
from kvg.flow.requests import DepositRequest
from kvg.flow.reuse import Plan, Reuse, check_parent, find_reuse, find_same
from kvg.flow.settings import Settings, signing_key
from kvg.flow.sources import Source, parse_text, read_source
from kvg.objects.manifest import (
    Group,
    Layout,
    Manifest,
    Page,
    Tokens,
    Witness,
    encode_manifest,
)
from kvg.objects.page import DTYPE_SIZES, data_start
from kvg.objects.statement import Provenance, Resource, encode_provenance
from kvg.objects.tokens import encode_ids
from kvg.store import RefMove, check_ref_name

if TYPE_CHECKING:
    from kvg.gates import GateOutcome
    from kvg.model.folder import ModelFiles
    from kvg.model.session import Session, Slot
    from kvg.signing.keys import PrivateKey
    from kvg.store import Pending, Published, Store

BUILDER = f"https://kvg.dev/kvg@{__version__}"
NEAR_START = 400
"""Characters at the start of a text in which a date would keep later texts from reusing it."""
_MOMENT = re.compile(r"\b(19|20)\d\d-[01]\d-[0-3]\d\b|\b[012]?\d:[0-5]\d(:[0-5]\d)?\b")


@dataclass(frozen=True, slots=True)
class Built:
    """An artifact that was computed and stored, not yet named by the log."""

    manifest: Manifest
    n_computed: int
    prefill_ms: float


def deposit(store: Store, settings: Settings, request: DepositRequest) -> Deposited:
    """Deposit what ``request`` says and move its ref.

    A text whose ids are stored computes nothing. Nothing is visible before all of it is durable.
    Raises ``UsageError``, ``NotFound``, ``Incompatible``, ``NoSpace``, ``Conflict``, ``Untrusted``.
    """
    check_ref_name(request.ref)
    source = read_source(settings, request)
    depends = _depends(settings, request)
    family = _family(settings, request)
    outcomes = pass_gates(store, settings, request, source)
    check_torch()
    model = registered_model(store, request.model)
    files = identified(store, settings, model)
    ids = tuple(source.ids(tokenizer_of(model), what=request.ref))
    _warn_of_moments(settings, source, request.ref)
    before = store.ref(request.ref)
    with store.pending() as pending:
        parent = _parent(store, request, ids)
        session = _open(settings, model, request)
        session.check_window(len(ids))
        plan = _plan(session, files, request, ids)
        same = find_same(store, plan)
        if same is not None:
            return _unchanged(store, settings, request, session, pending, outcomes, same, before)
        key = signing_key(settings, store, request.key)
        started = time.time()
        built_began = time.perf_counter()
        built = _build(store, settings, session, pending, plan, parent)
        provenance = _provenance(request, source, depends, model, files, session, parent, started)
        if family is not None:
            provenance = replace(provenance, family=pending.put(family).digest)
        envelope = _attest(store, pending, source, request, built.manifest, provenance, key)
        gates = attest_gates(pending, outcomes, built.manifest.digest, key)
        published = store.record(
            built.manifest.digest,
            [envelope, *gates],
            refs=[RefMove(request.ref, built.manifest.digest, before)],
        )
        store_ms = (time.perf_counter() - built_began) * 1e3 - built.prefill_ms
        return _deposited(store, request, session, pending, built, envelope, published, store_ms)


def _open(settings: Settings, model: RegisteredModel, request: DepositRequest) -> Session:
    reference = request.reference or "invariant"
    schedule = None
    if reference == "scheduled":
        from kvg.model.opening import default_schedule

        schedule = default_schedule(request.page_tokens)
    return open_registered(settings, model, reference=reference, schedule=schedule)


def _plan(
    session: Session, files: ModelFiles, request: DepositRequest, ids: tuple[int, ...]
) -> Plan:
    beyond = [cut for cut in request.cut_points if cut >= len(ids)]
    if beyond:
        raise UsageError(
            f"--cut-points {beyond[0]}: not before the end of {len(ids)} tokens",
            hint="a cut point lies inside the text",
        )
    return Plan(
        model=files.identity,
        engine=session.engine,
        groups=session.model.groups,
        page_tokens=request.page_tokens,
        ids=ids,
        cuts=request.cut_points,
    )


def _parent(store: Store, request: DepositRequest, ids: Sequence[int]) -> Digest | None:
    """The digest of the artifact that this text goes on from, verified."""
    if request.parent is None:
        return None
    from kvg.verify import verify_artifact

    digest = store.resolve(request.parent).digest
    check_parent(verify_artifact(store, digest), ids)
    return digest


def _build(
    store: Store,
    settings: Settings,
    session: Session,
    pending: Pending,
    plan: Plan,
    parent: Digest | None,
) -> Built:
    """Compute what is not stored yet; put tokens, pages and manifest, in this order."""
    reuse = find_reuse(store, plan, parent=parent)
    slot = session.slot()
    began = time.perf_counter()
    first = _restore(session, slot, reuse) if reuse else 0
    witnesses = _prefill(session, slot, plan, first, reuse)
    prefill_ms = (time.perf_counter() - began) * 1e3
    pages = _put_pages(settings, session, pending, slot, plan, reuse)
    tokens = encode_ids(plan.ids)
    pending.put(tokens)
    manifest = Manifest(
        model=plan.model,
        engine=plan.engine,
        tokens=Tokens(sha256(tokens), plan.count),
        layout=Layout(plan.page_tokens, plan.groups),
        pages=pages,
        witnesses=witnesses,
    )
    pending.put(encode_manifest(manifest))
    return Built(manifest, plan.count - first, prefill_ms)


def _restore(session: Session, slot: Slot, reuse: Reuse) -> int:
    """Put back what is reused. A whole artifact proves itself by its witness first."""
    manifest = reuse.verified.manifest
    session.restore(slot, reuse.verified, cut=reuse.n_tokens)
    if reuse.n_tokens == manifest.count:
        logits, _ = session.resume(slot, reuse.verified.ids[-1], ())
        session.check_witness(reuse.verified, manifest.witnesses[-1], logits)
    return reuse.n_tokens


def _prefill(
    session: Session, slot: Slot, plan: Plan, first: int, reuse: Reuse | None
) -> tuple[Witness, ...]:
    from kvg.model.session import witness_of

    wanted = [cut - 1 for cut in (*plan.cuts, plan.count) if cut > first]
    done = session.prefill(slot, plan.ids[first:], wanted) if first < plan.count else None
    computed = (
        [witness_of(position, done.logits[position], session.model.dtype) for position in wanted]
        if done
        else []
    )
    return (*(reuse.witnesses if reuse else ()), *computed)


def _put_pages(
    settings: Settings,
    session: Session,
    pending: Pending,
    slot: Slot,
    plan: Plan,
    reuse: Reuse | None,
) -> tuple[Page, ...]:
    """Store every page of ``plan``; those taken over are kept, not computed again."""
    taken = {(page.group, page.start): page for page in (reuse.pages if reuse else ())}
    spans = [(group, *span) for group in plan.groups for span in plan.spans(group)]

    def put(item: tuple[Group, int, int]) -> Page:
        group, start, end = item
        page = taken.get((group.name, start))
        if page is not None and pending.keep(page.digest):
            return page
        return _put_page(pending, slot, group, start, end)

    total = plan.count * len(plan.groups)
    pages: list[Page] = []
    with (
        settings.report.task("store pages", total, "tokens") as task,
        ThreadPoolExecutor(max(1, settings.jobs)) as pool,
    ):
        for page in pool.map(put, spans):
            pages.append(page)
            task.advance(page.n_tokens)
    return tuple(pages)


def _put_page(pending: Pending, slot: Slot, group: Group, start: int, end: int) -> Page:
    from kvg.model.state import capture_page

    raw = capture_page(slot.state, group, start, end, what=f"{group.name} [{start}, {end})")
    digest = sha256(raw)
    pending.put(
        raw,
        digest=digest,
        data_start=data_start(group, end - start),
        element=DTYPE_SIZES[group.dtype],
    )
    return Page(group.name, start, end, digest, blake3_hex(raw), len(raw))


def _attest(
    store: Store,
    pending: Pending,
    source: Source,
    request: DepositRequest,
    manifest: Manifest,
    provenance: Provenance,
    key: PrivateKey,
) -> Digest:
    """Sign the provenance and store the envelope, after the source that it names."""
    from kvg.signing.dsse import sign_envelope

    if not request.no_source:
        for _, data in source.parts:
            pending.put(data)
    payload = encode_provenance(manifest.digest, provenance)
    return pending.put(sign_envelope(payload, [key])).digest


def _provenance(
    request: DepositRequest,
    source: Source,
    depends: tuple[Resource, ...],
    model: RegisteredModel,
    files: ModelFiles,
    session: Session,
    parent: Digest | None,
    started: float,
) -> Provenance:
    from kvg.model.versions import kernels_version, library_versions

    template = files.template if source.kind == "chat" else None
    return Provenance(
        source=None if request.no_source else source.resources(),
        family=None,
        method=None,
        parent=parent,
        cut_points=request.cut_points,
        valid_until=request.valid_until,
        depends=depends,
        kind=source.kind,
        device_class=session.model.device.type,
        kernels=kernels_version(),
        libraries=library_versions(with_adapter=model.adapter is not None),
        model=Resource(model.name, files.identity.fingerprint),
        tokenizer=Resource("tokenizer", files.tokenizer) if files.tokenizer else None,
        template=Resource("chat template", template) if template else None,
        builder=BUILDER,
        started=_timestamp(started),
        finished=_timestamp(time.time()),
    )


def _family(settings: Settings, request: DepositRequest) -> bytes | None:
    """The document of the family whose problem is in a file."""
    if request.family is None:
        return None
    from kvg.problem.family import parse_problem

    path = request.family
    with durable.translated(path), open(settings.cwd / path, "rb") as file:
        text = parse_text(file.read(), what=str(path))
    return parse_problem(text).family.document


def _depends(settings: Settings, request: DepositRequest) -> tuple[Resource, ...]:
    found = []
    for path in request.depends:
        with durable.translated(path), open(settings.cwd / path, "rb") as file:
            found.append(Resource(path.name, sha256(file.read())))
    return tuple(found)


def _unchanged(
    store: Store,
    settings: Settings,
    request: DepositRequest,
    session: Session,
    pending: Pending,
    outcomes: tuple[GateOutcome, ...],
    digest: Digest,
    before: Digest | None,
) -> Deposited:
    """The record of a deposit that was there; the ref is moved to it when it was elsewhere, and
    what gates said of it now is added."""
    manifest = store.manifest(digest)
    if not settings.dry_run:
        key = signing_key(settings, store, request.key) if outcomes else None
        gates = attest_gates(pending, outcomes, digest, key) if key else ()
        store.record(digest, gates, refs=[RefMove(request.ref, digest, before)])
    newest = store.attestations(digest)[0]
    return Deposited(
        ref=request.ref,
        digest=digest,
        unchanged=True,
        tokens=manifest.count,
        tokens_computed=0,
        pages=len(manifest.pages),
        new_objects=0,
        bytes_raw=raw_bytes(manifest),
        bytes_stored=stored_bytes(store, manifest, digest),
        prefill_ms=0.0,
        store_ms=0.0,
        gates=attested(store, digest).gates,
        attestation=newest.envelope,
        log_index=newest.index,
        device=str(session.model.device),
        dtype=session.model.dtype,
    )


def _deposited(
    store: Store,
    request: DepositRequest,
    session: Session,
    pending: Pending,
    built: Built,
    envelope: Digest,
    published: Published,
    store_ms: float,
) -> Deposited:
    manifest = built.manifest
    return Deposited(
        ref=request.ref,
        digest=manifest.digest,
        unchanged=False,
        tokens=manifest.count,
        tokens_computed=built.n_computed,
        pages=len(manifest.pages),
        new_objects=pending.new_objects,
        bytes_raw=raw_bytes(manifest),
        bytes_stored=stored_bytes(store, manifest, manifest.digest),
        prefill_ms=built.prefill_ms,
        store_ms=store_ms,
        gates=attested(store, manifest.digest).gates,
        attestation=envelope,
        log_index=published.index_of(envelope),
        device=str(session.model.device),
        dtype=session.model.dtype,
    )


def raw_bytes(manifest: Manifest) -> int:
    """The bytes of an artifact's pages and token ids, each page once."""
    sizes = {page.digest: page.size for page in manifest.pages}
    return sum(sizes.values()) + 4 * manifest.count


def stored_bytes(store: Store, manifest: Manifest, digest: Digest) -> int:
    """The bytes of an artifact's objects as they lie on disk: pages, token ids and manifest."""
    objects = {page.digest for page in manifest.pages} | {manifest.tokens.digest, digest}
    return sum(store.objects.stored_size(item) for item in objects)


def _warn_of_moments(settings: Settings, source: Source, ref: str) -> None:
    """A time stamp near the start makes every later text another one from there on."""
    if source.kind != "text":
        return
    found = _MOMENT.search(source.text(what=ref)[:NEAR_START])
    if found:
        settings.report.warning(
            f"{ref}: {found[0]} stands near the start: a text with another date shares no page"
        )


def _timestamp(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
