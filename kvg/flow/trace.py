"""Traces: what a model computed for a problem once, stored with the answer that passed its gates.

The same text again is answered from there, at no token; or the tokens stand as an exact draft that
one forward pass confirms.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

from kvg.digest import Digest, sha256, short
from kvg.errors import Corrupt
from kvg.flow.building import build_slot
from kvg.flow.deposit import BUILDER, sign_and_record, timestamp
from kvg.flow.freshness import stale_reason
from kvg.flow.requests import PAGE_TOKENS
from kvg.flow.reuse import Plan
from kvg.flow.selfproof import prove_itself
from kvg.objects.contract import contract_of
from kvg.objects.statement import Provenance, Resource
from kvg.objects.tokens import first_difference
from kvg.verify.judgement import (
    ANSWER,
    PROBLEM,
    about,
    amount,
    answered_in,
    judge,
    required_gates,
)
from kvg.verify.traced import deposits, trace_ref

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kvg.flow.asking import Asked
    from kvg.flow.choice import PassedOver
    from kvg.flow.registered import RegisteredModel
    from kvg.flow.settings import Settings
    from kvg.gates import GateOutcome
    from kvg.model.folder import ModelFiles
    from kvg.model.session import Session
    from kvg.objects.contract import Contract
    from kvg.objects.verified import Verified
    from kvg.problem.family import Family
    from kvg.signing.keys import PrivateKey
    from kvg.store import Store

MAX_ANSWER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Trace:
    """A verified trace of one text: ``gates`` passed on its answer to that text, ``parent`` was
    grafted before it was asked, ``attestation`` is the newest that says where it came from."""

    verified: Verified
    answer: str
    gates: tuple[str, ...]
    parent: Digest | None
    attestation: Digest


def find_trace(
    store: Store,
    settings: Settings,
    family: Digest,
    text: str,
    passed_over: PassedOver,
    *,
    require: Sequence[str] = (),
) -> Trace | None:
    """The newest trace of exactly ``text`` that counts and is fresh; those newer are noted.

    It counts when it stands up to verification, says that it is of this text and family, and
    passed gates. Raises ``Untrusted``, ``Corrupt`` where there are some and nothing counts.
    """
    from kvg.flow.choice import UNFIT

    ref = trace_ref(family, text)
    for digest in _once_named(store, ref):
        name = f"trace {short(digest)}"
        try:
            found = _trace(store, settings, digest, ref, family, text, require)
        except UNFIT as error:
            passed_over.note_error(name, error)
            continue
        if isinstance(found, Trace):
            return found
        if found is not None:
            passed_over.note(name, found)
    passed_over.check()
    return None


def _once_named(store: Store, ref: str) -> Iterator[Digest]:
    """What ``ref`` is and was, the newest first, as far as it was not removed and is here."""
    newest = store.ref(ref)
    if newest is None:
        return
    yield newest
    moves = takewhile(lambda digest: digest is not None, (m.digest for m in store.history(ref)))
    for digest in dict.fromkeys(moves):
        if digest is not None and digest != newest and store.objects.has(digest):
            yield digest


def _trace(
    store: Store,
    settings: Settings,
    digest: Digest,
    ref: str,
    family: Digest,
    text: str,
    require: Sequence[str],
) -> Trace | str | None:
    """The trace, or why it is stale; None where it is none of ``text``."""
    from kvg.verify import verify_artifact

    verified, problem = verify_artifact(store, digest, ref=ref), sha256(text.encode("utf-8"))
    opened, trust = judge(store, digest, what=ref).opened, store.trust
    told = [
        (item.envelope, answer)
        for item, said in deposits(opened)
        for asked, answer in (answered_in(said),)
        if said.family == family and asked == problem and answer is not None
    ]
    if not told:
        return None
    attestation, answer = told[-1]
    found = amount(about(opened, problem, answer), trust)
    if found.provenance is None or not found.gates:
        return None
    found.check_deposited(trust, what=ref)
    found.check_required(required_gates(store, require), what=ref)
    stale = stale_reason(store, settings.cwd, contract_of(found.provenance))
    if stale is not None:
        return stale
    raw = store.objects.read(answer, what=f"{ref}: answer", limit=MAX_ANSWER_BYTES)
    try:
        words = bytes(raw).decode("utf-8")
    except UnicodeDecodeError:
        raise Corrupt(f"{ref}: the answer {short(answer)} is not UTF-8") from None
    return Trace(verified, words, found.gates, found.provenance.parent, attestation)


@dataclass(frozen=True, slots=True)
class Learned:
    """What a model computed, to be kept: the question, what it generated, and what it passed."""

    text: str
    answer: str
    family: Family
    asked: Asked
    generated: tuple[int, ...]
    outcomes: tuple[GateOutcome, ...]
    exemplar: Digest | None
    method: Digest | None
    started: float


def deposit_trace(
    store: Store,
    settings: Settings,
    model: RegisteredModel,
    files: ModelFiles,
    learned: Learned,
    contract: Contract,
    key: PrivateKey,
) -> Digest:
    """Store the slot as the session built it, and name it after its text; its digest.

    Raises ``GateFailed`` when it does not prove itself, ``Conflict``, ``NoSpace``.
    """
    asked, family = learned.asked, learned.family
    session, ids = asked.session, (*asked.ids, *learned.generated)
    session.check_window(len(ids))
    if asked.slot.length < len(ids):
        missing = ids[asked.slot.length :]
        session.run(asked.slot, missing, [len(missing) - 1])
    asked.slot.truncate(len(ids))
    plan = Plan(files.identity, session.engine, session.model.groups, PAGE_TOKENS, ids, ())
    ref = trace_ref(family.digest, learned.text)
    before = store.ref(ref)
    parts = ((PROBLEM, learned.text.encode("utf-8")), (ANSWER, learned.answer.encode("utf-8")))
    with store.pending() as pending:
        built = build_slot(settings, pending, session, asked.slot, plan, len(ids))
        for _, data in parts:
            pending.put(data)
        pending.put(family.document)
        provenance = _provenance(
            tuple(Resource(name, sha256(data)) for name, data in parts),
            model,
            files,
            session,
            learned,
            contract,
        )
        outcomes = (
            *prove_itself(store, session, built.manifest, ids, jobs=settings.jobs),
            *learned.outcomes,
        )
        sign_and_record(
            store,
            pending,
            built.manifest,
            provenance,
            outcomes,
            ref,
            before,
            key,
            jobs=settings.jobs,
        )
    return built.manifest.digest


def _provenance(
    source: tuple[Resource, ...],
    model: RegisteredModel,
    files: ModelFiles,
    session: Session,
    learned: Learned,
    contract: Contract,
) -> Provenance:
    from kvg.model.versions import kernels_version, library_versions

    return Provenance(
        source=source,
        family=learned.family.digest,
        method=learned.method,
        parent=learned.exemplar,
        cut_points=(),
        valid_until=contract.valid_until,
        depends=contract.depends,
        kind="ids",
        device_class=session.model.device.type,
        kernels=kernels_version(),
        libraries=library_versions(),
        model=Resource(model.name, files.identity.fingerprint),
        tokenizer=Resource("tokenizer", files.tokenizer) if files.tokenizer else None,
        template=Resource("chat template", files.template) if files.template else None,
        builder=BUILDER,
        started=timestamp(learned.started),
        finished=timestamp(time.time()),
        schema_version=contract.schema_version,
    )


def confirm(
    session: Session,
    verified: Verified,
    question: Sequence[int],
    exemplar: Verified | None,
) -> Mapping[str, object]:
    """How far one forward pass over a trace's tokens gives those tokens again.

    ``question`` are the ids that this text has now, after those of ``exemplar``. Token by token
    decoding would give the same bits: the stored tokens that come out are exactly what the model
    would have generated. Raises ``Incompatible`` when the exemplar is not of this engine.
    """
    from kvg.model.dtypes import tensor_digest
    from kvg.model.session import lowest_maximum

    began = time.perf_counter()
    head = exemplar.ids if exemplar is not None else ()
    asked = (*head, *question)
    ids = verified.ids
    n_drafted = max(0, len(ids) - len(asked))
    unlike = first_difference(asked, ids[: len(asked)])
    if unlike is not None:
        stored = ids[unlike] if unlike < len(ids) else None
        asked_for = asked[unlike] if unlike < len(asked) else None
        return _draft(n_drafted, 0, (unlike, stored, asked_for), False, 0, began)
    slot = session.slot()
    first = 0
    if exemplar is not None:
        session.check_engine(exemplar)
        session.restore(slot, exemplar)
        first = len(head) - 1
        slot.truncate(first)
    session.check_window(len(ids))
    rows = range(len(asked) - 1 - first, len(ids) - first)
    logits = session.run(slot, ids[first:], list(rows))
    computed = [lowest_maximum(row) for row in logits[:-1]]
    wrong = first_difference(computed, ids[len(asked) :])
    is_same = tensor_digest(logits[-1]) == verified.manifest.witnesses[-1].logits
    difference = None
    if wrong is not None:
        difference = (len(asked) + wrong, ids[len(asked) + wrong], computed[wrong])
    confirmed = n_drafted if wrong is None else wrong
    return _draft(n_drafted, confirmed, difference, is_same, 1, began)


def _draft(
    tokens: int,
    confirmed: int,
    difference: tuple[int, int | None, int | None] | None,
    witness_equal: bool,
    passes: int,
    began: float,
) -> Mapping[str, object]:
    names = ("position", "stored", "computed")
    return {
        "tokens": tokens,
        "confirmed": confirmed,
        "first_difference": None
        if difference is None
        else dict(zip(names, difference, strict=True)),
        "witness_equal": witness_equal,
        "forward_passes": passes,
        "ms": (time.perf_counter() - began) * 1e3,
    }
