"""Who says what about an artifact, and whether it is enough.

Rules:

- an envelope counts only if this store's log holds it for this artifact, under a signed checkpoint;
- a signature counts if a trusted key made it, over a statement about this very manifest, and the
  key was not revoked before that position in the log, or before one that is proved in another;
- distinct depositors' keys over all provenance statements meet the depositor's threshold;
- distinct verifiers' keys over all replays that passed on every page that the manifest has meet
  the verifier's;
- a gate passed if a depositor or a verifier says so, and a trusted ``FAILED`` blocks;
- statements of kinds that this kvg does not know, and those of unknown keys, count for nothing.

What this does **not** do: it reads no page, and can't say whether the pages are true.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from kvg.digest import Digest, short
from kvg.errors import Corrupt, Incompatible, Unreadable, Untrusted, UsageError
from kvg.frozen import frozen
from kvg.log.entry import AttestationEntry, parse_entry
from kvg.objects.contract import Contract, contract_of, contract_of_proof, strictest
from kvg.objects.statement import (
    FAILED,
    NO_SANDBOX,
    PASSED,
    Provenance,
    Resource,
    Statement,
    TestResult,
    parse_statement,
)
from kvg.signing.dsse import Envelope, parse_envelope, signers
from kvg.trust import DEPOSITOR, VERIFIER, TrustFile

if TYPE_CHECKING:
    from kvg.log.log import Log
    from kvg.store import LoggedAttestation, Store

REPLAY = "replay"
"""The name of the gate that a verifier's replay on every page passes."""

PROBLEM, ANSWER = "problem", "answer"
"""What the sources of a trace are called."""

FINITE, ROUND_TRIP, WITNESS = "finite", "round-trip", "witness"
ALWAYS = frozenset({FINITE, ROUND_TRIP, WITNESS})
"""What every deposit proves of itself: it says nothing of whether the text is right."""

SEEDS = "seeds"
PRESETS = (SEEDS,)
"""Names that stand for several requirements."""

_PAGES = "pages "
"""What a replay's word of its pages begins with."""

REQUIRE_KEY = "deposit.require"
MAX_ENVELOPE_BYTES = 16 << 20


@frozen
class Opened:
    """One envelope: where the log holds it, what trusted keys signed in it, who else claims to.

    ``statement`` is None when no trusted key signed it or it is of an unknown kind.
    ``is_whole_replay``: it is that a replay passed on every page of the manifest.
    """

    index: int
    envelope: Digest
    size: int
    statement: Statement | None
    signers: tuple[str, ...]
    others: tuple[str, ...]
    revoked: tuple[str, ...]
    is_whole_replay: bool = False


@frozen
class Judgement:
    """What trusted keys say of one artifact. ``depositors`` and ``verifiers`` are key ids.

    ``checks`` are those of ``ALWAYS`` that passed, ``gates`` all others; ``unenclosed`` those of
    ``gates`` that were never seen to pass in a sandbox. ``provenance`` is what the first deposit
    says, on the terms of ``contract``: the strictest of what those depositors said last who spoke
    last, as many as the threshold asks for.
    """

    depositors: tuple[str, ...]
    verifiers: tuple[str, ...]
    gates: tuple[str, ...]
    checks: tuple[str, ...]
    failed: tuple[str, ...]
    provenance: Provenance | None
    resources: tuple[Resource, ...]
    opened: tuple[Opened, ...]
    unenclosed: tuple[str, ...] = ()
    contract: Contract = Contract()

    def check_signed(self, trust: TrustFile, *, what: str) -> None:
        """Raise ``Untrusted`` unless the thresholds are met and no trusted key says FAILED."""
        self.check_deposited(trust, what=what)
        self._check_replayed(trust, what=what)
        self._check_none_failed(self.failed, what=what)

    def check_replayable(self, trust: TrustFile, *, what: str) -> None:
        """As ``check_signed`` but for what a replay says, which another one is there to settle."""
        self.check_deposited(trust, what=what)
        self._check_none_failed([gate for gate in self.failed if gate != REPLAY], what=what)

    def check_deposited(self, trust: TrustFile, *, what: str) -> None:
        """Raise ``Untrusted`` unless enough trusted depositors signed."""
        needed = trust.threshold(DEPOSITOR)
        if len(self.depositors) < needed:
            raise Untrusted(
                f"{what}: signed by {len(self.depositors)} of {needed} trusted depositors needed"
                f"{self._told()}",
                hint=self.hint(),
            )

    def _check_replayed(self, trust: TrustFile, *, what: str) -> None:
        needed = trust.threshold(VERIFIER)
        if len(self.verifiers) < needed:
            raise Untrusted(
                f"{what}: replayed by {len(self.verifiers)} of {needed} trusted verifiers needed",
                hint=_replay_hint(trust, needed, what),
            )

    def _check_none_failed(self, failed: Sequence[str], *, what: str) -> None:
        if failed:
            raise Untrusted(
                f"{what}: a trusted key says that {', '.join(failed)} failed",
                hint=f"kvg show {what}",
            )

    def check_required(self, require: Iterable[str], *, what: str) -> None:
        """Raise ``Untrusted`` unless every required gate passed."""
        missing = unmet(require, (*self.gates, *self.checks))
        if missing:
            from kvg.problem.method import as_required

            raise Untrusted(
                f"{what}: required gates not met: {', '.join(missing)}; "
                f"gates: {', '.join(map(as_required, self.gates)) or 'none'}",
                hint="have it pass that, by --gate where it was made, or ask for less: --require",
            )

    @property
    def revoked(self) -> tuple[str, ...]:
        """The keys whose signatures would count, had they not been revoked before."""
        return tuple(sorted({keyid for item in self.opened for keyid in item.revoked}))

    @property
    def others(self) -> tuple[str, ...]:
        """The keys that nobody trusts here and that envelopes name: none was looked at."""
        return tuple(sorted({keyid for item in self.opened for keyid in item.others}))

    def _told(self) -> str:
        told = [f"{keyid[:12]} is revoked" for keyid in self.revoked]
        told += [f"{keyid[:12]} is not trusted" for keyid in self.others]
        if not self.opened:
            told.append("it has no attestation in this store's log")
        return f": {'; '.join(told)}" if told else ""

    def hint(self) -> str:
        """What to do where too few keys that count have signed."""
        if self.others:
            return f"if you trust that key: kvg trust add {self.others[0][:12]}"
        again = "make it again with a key that counts: --key NAME"
        return again if self.revoked else "kvg trust list"


def judge(store: Store, digest: Digest, *, what: str) -> Judgement:
    """What the envelopes that the log holds for ``digest`` amount to.

    Raises ``Corrupt`` when an envelope or the log is damaged, ``Untrusted`` when the log or the
    trust file is not what was signed.
    """
    from kvg.store.vouching import vouch

    vouch(store, digest)
    trust, log = store.trust, store.log
    opened = tuple(
        open_attestation(store, digest, item, trust, log, what=what)
        for item in store.attestations(digest)
    )
    return amount(opened, trust)


def open_attestation(
    store: Store,
    digest: Digest,
    item: LoggedAttestation,
    trust: TrustFile,
    log: Log,
    *,
    what: str,
) -> Opened:
    """One envelope, checked against the log, the trust file and its subject."""
    name = f"{what}: attestation {short(item.envelope)}"
    _check_logged(log, digest, item, name)
    raw = store.objects.read(item.envelope, what=name, limit=MAX_ENVELOPE_BYTES)
    try:
        envelope = parse_envelope(bytes(raw), what=name)
    except Incompatible:  # a payload of a type that this kvg does not know
        return Opened(item.index, item.envelope, raw.nbytes, None, (), (), ())
    by = tuple(key.keyid for key in signers(envelope, [key.public for key in trust.keys]))
    counted = tuple(
        keyid
        for keyid in by
        if trust.counts(keyid, log.origin, item.index)
        or _counts_elsewhere(store, trust, keyid, digest, item)
    )
    statement = parse_envelope_statement(envelope, digest, name) if counted else None
    return Opened(
        item.index,
        item.envelope,
        raw.nbytes,
        statement,
        counted,
        tuple(s.keyid for s in envelope.signatures if trust.find(s.keyid) is None),
        tuple(keyid for keyid in by if keyid not in counted),
        is_whole_replay(statement, lambda: _n_pages(store, digest)),
    )


def _counts_elsewhere(
    store: Store, trust: TrustFile, keyid: str, digest: Digest, item: LoggedAttestation
) -> bool:
    """Whether the signature of a revoked key counts by a position in another's log."""
    from kvg.verify.positions import counts, index_in

    return counts(trust, keyid, partial(index_in, store, digest, item.envelope))


def _check_logged(log: Log, digest: Digest, item: LoggedAttestation, name: str) -> None:
    """The index only says where to look: the entry itself is read, under the checkpoint."""
    raw = next(iter(log.read(item.index, item.index + 1)), b"") if item.index < log.size else b""
    entry = parse_entry(raw, what=f"log entry {item.index}") if raw else None
    is_it = (
        isinstance(entry, AttestationEntry)
        and entry.subject == digest
        and entry.envelope == item.envelope
    )
    if not is_it:
        raise Corrupt(f"{name}: not in the log at {item.index}", hint="kvg reindex")


def parse_envelope_statement(envelope: Envelope, digest: Digest, name: str) -> Statement | None:
    """The statement in ``envelope``, None when of an unknown kind; its signatures are the caller's.

    Raises ``Untrusted`` when it is about another artifact than ``digest``, ``Corrupt``.
    """
    try:
        statement = parse_statement(envelope.payload, what=name)
    except Incompatible:
        return None
    if statement.subject != digest:
        raise Untrusted(f"{name}: is about {short(statement.subject)}, not this artifact")
    return statement


class _Terms:
    """What each depositor said last of how long it holds, of deposits and of a method's proofs."""

    def __init__(self) -> None:
        self._said: dict[str, Contract] = {}

    def say(self, by: Iterable[str], contract: Contract) -> None:
        for keyid in sorted(by):
            self._said.pop(keyid, None)
            self._said[keyid] = contract

    def in_force(self, needed: int) -> Contract:
        """The strictest of what the last ``needed`` depositors said."""
        return strictest([*self._said.values()][-max(1, needed) :])


def _on_terms(first: Provenance | None, contract: Contract) -> Provenance | None:
    """``first`` on the terms of ``contract``: its origin stays, how long it holds does not."""
    if first is None:
        return None
    return replace(
        first,
        valid_until=contract.valid_until,
        depends=contract.depends,
        schema_version=contract.schema_version,
    )


def amount(opened: Sequence[Opened], trust: TrustFile) -> Judgement:
    """What ``opened`` come to, taken together."""
    depositors: set[str] = set()
    verifiers: set[str] = set()
    passed: set[str] = set()
    enclosed: set[str] = set()
    failed: set[str] = set()
    provenance: Provenance | None = None
    terms, proved = _Terms(), _Terms()
    resources: list[Resource] = []
    depositor_ids = {key.keyid for key in trust.keys_for(DEPOSITOR)}
    verifier_ids = {key.keyid for key in trust.keys_for(VERIFIER)}
    for item in opened:
        if item.statement is None:
            continue
        predicate, by = item.statement.predicate, set(item.signers)
        if isinstance(predicate, Provenance):
            if by & depositor_ids:
                depositors |= by & depositor_ids
                provenance = provenance or predicate
                terms.say(by & depositor_ids, contract_of(predicate))
        elif by & (depositor_ids | verifier_ids):
            resources += [*predicate.configuration, *predicate.evidence]
            _sort(predicate, passed, failed)
            if predicate.result == PASSED and predicate.sandbox != NO_SANDBOX:
                enclosed.add(predicate.gate)
            if is_proof(predicate):
                proved.say(by & depositor_ids, contract_of_proof(predicate))
            if item.is_whole_replay:
                verifiers |= by & verifier_ids
    is_method = provenance is None
    contract = (proved if is_method else terms).in_force(trust.threshold(DEPOSITOR))
    return Judgement(
        tuple(sorted(depositors)),
        tuple(sorted(verifiers)),
        tuple(sorted(passed - ALWAYS)),
        tuple(sorted(passed & ALWAYS)),
        tuple(sorted(failed)),
        _on_terms(provenance, contract),
        tuple(resources),
        tuple(opened),
        tuple(sorted(passed - enclosed - ALWAYS)),
        contract,
    )


def about(opened: Sequence[Opened], problem: Digest, answer: Digest) -> tuple[Opened, ...]:
    """Those of ``opened`` that speak of ``answer`` as the answer to ``problem``, and those of the
    artifact whatever it answers.

    One artifact may answer several problems, where a model is asked by the wording alone. A gate
    that does not say what it looked at counts where nothing else can have been meant.
    """
    said = [item.statement.predicate for item in opened if item.statement is not None]
    answered = {answered_in(part) for part in said if isinstance(part, Provenance)}
    wanted = (problem, answer)

    def is_of(item: Opened) -> bool:
        predicate = item.statement.predicate if item.statement is not None else None
        if isinstance(predicate, Provenance):
            return answered_in(predicate) == wanted
        if predicate is None or predicate.gate in ALWAYS or predicate.gate == REPLAY:
            return True
        return predicate.judged == wanted or (
            predicate.judged == (None, None) and answered == {wanted}
        )

    return tuple(item for item in opened if is_of(item))


def answered_in(said: Provenance) -> tuple[Digest | None, Digest | None]:
    """The problem and the answer among the sources of a deposit; None for what is not there."""
    parts = {part.name: part.digest for part in said.source or ()}
    return parts.get(PROBLEM), parts.get(ANSWER)


def _replay_hint(trust: TrustFile, needed: int, what: str) -> str:
    """What to do for more replays that count: first there have to be keys whose word counts."""
    keys = trust.standing_keys(VERIFIER)
    if len(keys) < needed:
        return f"kvg trust add KEY --role verifier, then kvg replay {what} --sign --key KEY"
    names = ", ".join(sorted(key.keyid[:12] for key in keys))
    return f"kvg replay {what} --sign --key KEY, by a key that is a verifier: {names}"


def said_pages(equal: int, n_pages: int) -> str:
    """How a replay says how many of the artifact's pages were equal."""
    return f"{_PAGES}{equal} of {n_pages}"


def is_whole_replay(statement: Statement | None, n_pages: Callable[[], int | None]) -> bool:
    """Whether ``statement`` is that a replay passed and found every page of the artifact equal.

    ``n_pages`` gives how many that has, None where its manifest can't be read; it is asked of a
    replay that passed alone.
    """
    outcome = statement.predicate if statement is not None else None
    if not isinstance(outcome, TestResult) or (outcome.gate, outcome.result) != (REPLAY, PASSED):
        return False
    needed = n_pages()
    said = [item.name for item in outcome.configuration if item.name.startswith(_PAGES)]
    return needed is not None and needed > 0 and said == [said_pages(needed, needed)]


def _n_pages(store: Store, digest: Digest) -> int | None:
    try:
        return len(store.manifest(digest).pages)
    except (Corrupt, Incompatible, Unreadable):
        return None


def is_proof(outcome: TestResult) -> bool:
    """Whether ``outcome`` is that a method passed its proof."""
    from kvg.problem.method import METHOD_GATE

    return outcome.gate == METHOD_GATE and outcome.result == PASSED


def _sort(outcome: TestResult, passed: set[str], failed: set[str]) -> None:
    if outcome.result == PASSED:
        passed.add(outcome.gate)
    elif outcome.result == FAILED:
        failed.add(outcome.gate)


def required_gates(store: Store, require: Iterable[str] = ()) -> tuple[str, ...]:
    """The store's policy and ``require`` together, presets spelled out, in order, once each."""
    return spelled_out((*store.config.words(REQUIRE_KEY), *require))


def spelled_out(require: Iterable[str]) -> tuple[str, ...]:
    """``require`` with what each preset stands for, in order, once each."""
    spelled = (_seeds() if name == SEEDS else (name,) for name in require)
    return tuple(dict.fromkeys(one for names in spelled for one in names))


def _seeds() -> tuple[str, ...]:
    """What the preset asks for; ``|`` separates alternatives."""
    from kvg.gates.spec import CONSISTENCY, FORMAL, TEST
    from kvg.gates.spec import SEEDS as N_SEEDS

    return (f"{FORMAL}|{TEST}", f"{CONSISTENCY}:{N_SEEDS}")


def unmet(require: Iterable[str], gates: Iterable[str]) -> tuple[str, ...]:
    """Those of ``require`` that ``gates`` do not meet."""
    passed = tuple(gates)
    return tuple(name for name in require if not is_gate_met(name, passed))


def check_requirement(requirement: str, *, what: str) -> None:
    """Raise ``UsageError`` unless ``requirement`` is a preset or a gate that a deposit can pass."""
    from kvg.gates.spec import CONSISTENCY, KINDS, is_count
    from kvg.problem.method import PROGRAM_GATE

    if requirement in PRESETS:
        return
    kinds = dict.fromkeys(kind.proves for kind in KINDS.values())
    gates = (f"{kind.proves}:{name}" for name, kind in KINDS.items() if kind.proves != CONSISTENCY)
    known = (*kinds, *gates, PROGRAM_GATE, *sorted(ALWAYS))
    for name in requirement.split("|"):
        kind, _, seeds = name.partition(":")
        if name not in known and not (kind == CONSISTENCY and is_count(seeds)):
            raise UsageError(
                f"{what} {name}: no gate that a deposit can pass",
                hint=f"one of {', '.join((*PRESETS, *known))}, consistency:K; a|b for one of two",
            )


def is_gate_met(requirement: str, gates: Iterable[str]) -> bool:
    """Whether a gate passed that ``requirement`` asks for: its whole name, or the kind before
    its first colon; ``consistency:K`` for K seeds or more, ``a|b`` for one of two. A method's proof
    is a test, too."""
    from kvg.problem.method import METHOD_GATE, PROGRAM_GATE

    wanted = set(requirement.split("|"))
    names = (*gates,)
    if METHOD_GATE in names:
        names = (*names, PROGRAM_GATE)
    return any(
        name in wanted or name.partition(":")[0] in wanted or _are_enough(name, wanted)
        for name in names
    )


def _are_enough(gate: str, wanted: Iterable[str]) -> bool:
    """Whether ``gate`` is the agreement of as many seeds as one of ``wanted`` asks for, or more."""
    from kvg.gates.spec import CONSISTENCY, is_count

    kind, _, agreed = gate.partition(":")
    if kind != CONSISTENCY or not is_count(agreed):
        return False
    asked = (name.partition(":") for name in wanted)
    return any(
        other == kind and is_count(seeds) and int(agreed) >= int(seeds) for other, _, seeds in asked
    )
