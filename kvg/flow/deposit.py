"""``kvg deposit``: compute a text once, sign what was computed, store it under a ref."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from kvg import __version__
from kvg.digest import Digest
from kvg.errors import UsageError
from kvg.flow.attested import attested
from kvg.flow.building import Built, build, build_slot
from kvg.flow.freshness import contract_for, stale_reason
from kvg.flow.gated import attest_gates, check_answers, pass_gates
from kvg.flow.records.computed import Deposited, DepositPlan
from kvg.flow.registered import (
    RegisteredModel,
    away,
    check_torch,
    identified,
    open_registered,
    registered_model,
    tokenizer_of,
)
from kvg.flow.requests import DepositRequest
from kvg.flow.reuse import Plan, check_parent, find_reuse, find_same
from kvg.flow.selfproof import prove_itself
from kvg.flow.settings import Settings, attesting_key, keyring_of
from kvg.flow.sources import Source, parse_text, read_part, read_source
from kvg.gates.spec import CONSISTENCY
from kvg.objects.contract import Contract, contract_of
from kvg.objects.manifest import Manifest
from kvg.objects.page import page_size
from kvg.objects.statement import Provenance, Resource, encode_provenance
from kvg.problem.family import parse_problem
from kvg.store import RefMove

if TYPE_CHECKING:
    from kvg.gates import GateOutcome
    from kvg.model.folder import ModelFiles
    from kvg.model.session import Session
    from kvg.model.text import Tokenizer
    from kvg.signing.keys import PrivateKey
    from kvg.store import Pending, Published, Store

BUILDER = f"https://kvg.dev/kvg@{__version__}"
NEAR_START = 400
"""Characters at the start of a text in which a date would keep later texts from reusing it."""
_DAY = r"[0-3]?\d(?:st|nd|rd|th)?"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\.?"
_YEAR = r"(?:19|20)\d\d"
_MOMENT = re.compile(
    "|".join(
        (
            rf"\b{_YEAR}([-/.])[01]?\d\1[0-3]?\d\b",
            rf"\b[0-3]?\d([/.])[0-3]?\d\2{_YEAR}\b",
            rf"\b{_DAY}(?: of)? {_MONTH}(?:,? {_YEAR})?(?!\w)",
            rf"\b{_MONTH} {_DAY}\b(?:,? {_YEAR}\b)?",
            rf"\b{_MONTH} {_YEAR}\b",
            r"\b[012]?\d:[0-5]\d(?::[0-5]\d)?\b",
            r"\b[01]?\d ?[AaPp]\.?[Mm]\b",
        )
    )
)
"""Dates and times of day, as they are written in English or in numbers."""


def deposit(store: Store, settings: Settings, request: DepositRequest) -> Deposited:
    """Deposit what ``request`` says and move its ref.

    A text whose ids are stored computes nothing. Nothing is visible before all of it is durable.
    Raises ``UsageError``, ``NotFound``, ``Incompatible``, ``NoSpace``, ``Conflict``, ``Untrusted``,
    and ``GateFailed``; then nothing is left but the evidence.
    """
    store.check_own_name(request.ref)
    source = read_source(settings, request)
    contract = contract_for(
        store, settings, request.valid_until, request.depends, request.schema_version
    )
    problem = _problem(settings, request)
    opened = cache(lambda: open_model(store, settings, request))
    with _waiting(settings, request):
        outcomes = pass_gates(store, settings, request, source, problem, lambda: opened().asked)
    model, files, session, tokenizer = opened()
    ids = tuple(source.ids(tokenizer, what=request.ref))
    _warn_of_moments(settings, source, request.ref)
    before = store.ref(request.ref)
    with store.pending() as pending:
        parent = _parent(store, settings, request, ids)
        session.check_window(len(ids))
        plan = plan_of(session, files, request, ids)
        same = find_same(store, plan)
        if same is not None:
            check_answers(store, same, source, problem, what=request.ref)

        def said(started: float) -> Provenance:
            made = provenance_of(request, source, contract, model, files, session, parent, started)
            if problem is None:
                return made
            family = parse_problem(problem).family.document
            return replace(made, family=pending.put(family).digest)

        if same is not None:
            is_renewed = _is_renewed(store, settings, request.ref, same, contract)
            renewed = said(time.time()) if is_renewed else None
            return _unchanged(
                store, settings, request, session, pending, outcomes, renewed, same, before
            )
        key = attesting_key(settings, store, request.key)
        started = time.time()
        built_began = time.perf_counter()
        if request.slot:
            built = _build_slot(store, settings, session, pending, plan, parent)
        else:
            built = build(store, settings, session, pending, plan, parent)
        provenance = said(started)
        if not request.no_source and source.kind != "ids":
            for _, data in source.parts:
                pending.put(data)
        outcomes = (
            *prove_itself(store, session, built.manifest, ids, jobs=settings.jobs),
            *outcomes,
        )
        with away(settings):
            published, envelope = sign_and_record(
                store,
                pending,
                built.manifest,
                provenance,
                outcomes,
                request.ref,
                before,
                key,
                jobs=settings.jobs,
            )
        store_ms = (time.perf_counter() - built_began) * 1e3 - built.prefill_ms
        return deposited(store, request.ref, session, pending, built, envelope, published, store_ms)


def plan_deposit(store: Store, settings: Settings, request: DepositRequest) -> DepositPlan:
    """What ``deposit`` would have to compute. Nothing is written, no gate runs.

    Raises as ``deposit`` does before it computes.
    """
    store.check_own_name(request.ref)
    source = read_source(settings, request)
    contract_for(store, settings, request.valid_until, request.depends, request.schema_version)
    problem = _problem(settings, request)
    gates = tuple(spec.partition(":")[0] for spec in request.gates)
    settings.tell_dry_run()
    _, files, session, tokenizer = open_model(store, settings, request)
    ids = tuple(source.ids(tokenizer, what=request.ref))
    parent = _parent(store, settings, request, ids)
    session.check_window(len(ids))
    plan = plan_of(session, files, request, ids)
    same = find_same(store, plan)
    if same is not None:
        check_answers(store, same, source, problem, what=request.ref)
    reuse = find_reuse(store, plan, parent=parent) if same is None else None
    taken = reuse.n_tokens if reuse else 0
    spans = [(group, *span) for group in plan.groups for span in plan.spans(group)]
    return DepositPlan(
        ref=request.ref,
        digest=same,
        unchanged=same is not None,
        tokens=plan.count,
        tokens_computed=0 if same is not None else plan.count - taken,
        pages=len(spans),
        bytes_raw=sum(page_size(group, end - start) for group, start, end in spans)
        + 4 * plan.count,
        gates=gates,
        device=str(session.model.device),
        dtype=session.model.dtype,
    )


class OpenedModel(NamedTuple):
    """A registered model, its files as they are now, and a session of it."""

    model: RegisteredModel
    files: ModelFiles
    session: Session
    tokenizer: Tokenizer

    @property
    def asked(self) -> tuple[Session, Tokenizer]:
        return self.session, self.tokenizer


def open_model(store: Store, settings: Settings, request: DepositRequest) -> OpenedModel:
    """The model that ``request`` names, and a session of it by the reference that it asks for.

    Raises ``NotFound``, ``Incompatible``.
    """
    check_torch()
    model = registered_model(store, _model_name(settings, request))
    files = identified(store, settings, model)
    tokenizer = tokenizer_of(settings, model, files)
    session = _open(settings, model, files, request)
    return OpenedModel(model, files, session, tokenizer)


def sign_and_record(
    store: Store,
    pending: Pending,
    manifest: Manifest,
    provenance: Provenance,
    outcomes: Sequence[GateOutcome],
    ref: str,
    before: Digest | None,
    key: PrivateKey,
    *,
    jobs: int = 1,
) -> tuple[Published, Digest]:
    """Sign where a stored artifact came from and what it passed, log that and move ``ref``.

    Returns what was published, and the envelope of the provenance.
    """
    from kvg.signing.dsse import sign_envelope

    payload = encode_provenance(manifest.digest, provenance)
    envelope = pending.put(sign_envelope(payload, [key])).digest
    gates = attest_gates(pending, outcomes, manifest.digest, key, jobs=jobs)
    move = RefMove(ref, manifest.digest, before)
    return store.record(manifest.digest, [envelope, *gates], refs=[move]), envelope


def _open(
    settings: Settings, model: RegisteredModel, files: ModelFiles, request: DepositRequest
) -> Session:
    reference = request.reference or "invariant"
    schedule = None
    if reference == "scheduled":
        from kvg.model.opening import default_schedule

        schedule = default_schedule(request.page_tokens)
    return open_registered(settings, model, files, reference=reference, schedule=schedule)


def plan_of(
    session: Session, files: ModelFiles, request: DepositRequest, ids: tuple[int, ...]
) -> Plan:
    """What an artifact of ``ids`` comes to in ``session``. Raises ``UsageError``."""
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


def _waiting(settings: Settings, request: DepositRequest) -> AbstractContextManager[None]:
    """Others go on in a resident session while gates run that need no model."""
    needs_model = any(spec.partition(":")[0] == CONSISTENCY for spec in request.gates)
    return nullcontext() if needs_model else away(settings)


def _model_name(settings: Settings, request: DepositRequest) -> str | None:
    if request.model is None and settings.seat is not None:
        return settings.seat.resident.model.name
    return request.model


def _build_slot(
    store: Store,
    settings: Settings,
    session: Session,
    pending: Pending,
    plan: Plan,
    parent: Digest | None,
) -> Built:
    """Put the state of a conversation as it stands: nothing but its witnesses is computed."""
    from kvg.flow.resident import check_decodes_as_prefill, read_on

    if settings.seat is None:
        raise UsageError("--slot: no session was named", hint="give --session S")
    check_decodes_as_prefill(session.engine)
    held = settings.seat.conversation()
    n_unread = len(held.unread)
    read_on(session, held)
    reuse = find_reuse(store, plan, parent=parent)
    return build_slot(settings, pending, session, held.slot, plan, n_unread, reuse)


def _parent(
    store: Store, settings: Settings, request: DepositRequest, ids: Sequence[int]
) -> Digest | None:
    """The digest of the artifact that this text goes on from, verified.

    A conversation goes on from what was grafted into its slot, if that is all in it.
    """
    from kvg.verify import verify_artifact

    if request.parent is not None:
        digest = store.resolve(request.parent).digest
    elif request.slot and settings.seat is not None:
        held = settings.seat.conversation()
        digest = held.digest
        if store.manifest(digest).count != held.end:
            return None
    else:
        return None
    check_parent(verify_artifact(store, digest), ids)
    return digest


def provenance_of(
    request: DepositRequest,
    source: Source,
    contract: Contract,
    model: RegisteredModel,
    files: ModelFiles,
    session: Session,
    parent: Digest | None,
    started: float,
) -> Provenance:
    """What is signed about where the artifact came from; ``started`` is Unix time in seconds."""
    from kvg.model.versions import kernels_version, library_versions

    template = files.template
    return Provenance(
        source=None if request.no_source or source.kind == "ids" else source.resources(),
        family=None,
        method=None,
        parent=parent,
        cut_points=request.cut_points,
        valid_until=contract.valid_until,
        depends=contract.depends,
        kind=source.kind,
        device_class=session.model.device.type,
        kernels=kernels_version(),
        libraries=library_versions(with_adapter=model.adapter is not None),
        model=Resource(model.name, files.identity.fingerprint),
        tokenizer=Resource("tokenizer", files.tokenizer) if files.tokenizer else None,
        template=Resource("chat template", template) if template else None,
        builder=BUILDER,
        started=timestamp(started),
        finished=timestamp(time.time()),
        schema_version=contract.schema_version,
    )


def _problem(settings: Settings, request: DepositRequest) -> str | None:
    """The problem that the text answers, out of its file."""
    if request.family is None:
        return None
    name, data = read_part(settings, request.family)
    return parse_text(data, what=name)


def _is_renewed(
    store: Store, settings: Settings, ref: str, digest: Digest, contract: Contract
) -> bool:
    """Whether what is there is to hold on other terms of freshness than it does."""
    before = contract_of(attested(store, digest).provenance)
    if contract not in (Contract(), before):
        return True
    reason = stale_reason(store, settings.cwd, before)
    if reason is not None:
        settings.report.notice(
            f"{ref}: {reason}; --valid-until, --depends or --schema-version gives it new terms"
        )
    return False


def _unchanged(
    store: Store,
    settings: Settings,
    request: DepositRequest,
    session: Session,
    pending: Pending,
    outcomes: tuple[GateOutcome, ...],
    renewed: Provenance | None,
    digest: Digest,
    before: Digest | None,
) -> Deposited:
    """The record of a deposit that was there; the ref is moved to it when it was elsewhere, and
    what gates said of it now is added, and new terms."""
    from kvg.signing.dsse import sign_envelope

    manifest = store.manifest(digest)
    if request.key is not None:
        keyring_of(settings).find(request.key)
    if not settings.dry_run:
        envelopes: list[Digest] = []
        if renewed is not None or outcomes:
            key = attesting_key(settings, store, request.key)
            envelopes = [*attest_gates(pending, outcomes, digest, key)]
            if renewed is not None:
                payload = encode_provenance(digest, renewed)
                envelopes.append(pending.put(sign_envelope(payload, [key])).digest)
        store.record(digest, envelopes, refs=[RefMove(request.ref, digest, before)])
    newest, found = store.attestations(digest)[0], attested(store, digest)
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
        gates=found.gates,
        attestation=newest.envelope,
        log_index=newest.index,
        device=str(session.model.device),
        dtype=session.model.dtype,
        unenclosed=found.unenclosed,
    )


def deposited(
    store: Store,
    ref: str,
    session: Session,
    pending: Pending,
    built: Built,
    envelope: Digest,
    published: Published,
    store_ms: float,
) -> Deposited:
    """The record of an artifact that is now stored and named."""
    manifest = built.manifest
    found = attested(store, manifest.digest)
    return Deposited(
        ref=ref,
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
        gates=found.gates,
        attestation=envelope,
        log_index=published.index_of(envelope),
        device=str(session.model.device),
        dtype=session.model.dtype,
        unenclosed=found.unenclosed,
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


def timestamp(seconds: float) -> str:
    """A moment as statements have it: RFC 3339, UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
