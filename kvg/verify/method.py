"""Whether a stored method counts: proved, by enough trusted keys, in this store's log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvg.digest import Digest, short
from kvg.errors import Corrupt, Incompatible, KvgError, NotFound, Untrusted
from kvg.frozen import frozen
from kvg.objects.statement import TestResult
from kvg.problem.method import (
    CHECKER,
    MAX_PROGRAM_BYTES,
    METHOD_GATE,
    PROGRAM,
    Method,
    parse_method,
)
from kvg.trust import DEPOSITOR, TrustFile
from kvg.verify.judgement import is_proof, judge, required_gates

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kvg.objects.contract import Contract
    from kvg.store import Store
    from kvg.verify.judgement import Judgement, Opened

MAX_METHOD_BYTES = 4 << 20


@frozen
class VerifiedMethod:
    """A method whose statement counts. ``attestation`` is the envelope that says it was proved,
    ``proof`` what it says, ``contract`` until when it holds."""

    digest: Digest
    method: Method
    program: bytes
    checker: bytes
    attestation: Digest
    signers: tuple[str, ...]
    proof: TestResult
    contract: Contract


class Verdicts:
    """Verdicts of this process. Each holds for one trust file and one position of the log."""

    def __init__(self) -> None:
        self._at: tuple[object, ...] = ()
        self._found: dict[Digest, VerifiedMethod] = {}

    def verify(
        self, store: Store, digest: Digest, *, require: Sequence[str] = ()
    ) -> VerifiedMethod:
        """As ``verify_method``; again only after the log, the trust file or what is required has
        changed."""
        log, required = store.log, required_gates(store, require)
        at = (store.root, log.origin, log.size, log.root, store.trust.version, required)
        if at != self._at:
            self._at, self._found = at, {}
        if digest not in self._found:
            self._found[digest] = verify_method(store, digest, require=require)
        return self._found[digest]


def verify_method(store: Store, digest: Digest, *, require: Sequence[str] = ()) -> VerifiedMethod:
    """The method ``digest``, after checking, in this order:

    - the log's checkpoint is signed, and the trust file is the one it names;
    - as many distinct trusted depositors as the threshold asks for say that it passed its proof,
      in statements that the log holds, and no trusted key says that it failed;
    - the store's required gates and those of ``require`` passed;
    - the document, the program and the checker are there and have their digests.

    The proof is **not** run again. Raises ``Untrusted``, ``Corrupt``, ``Incompatible``.
    """
    what = f"method {short(digest)}"
    judgement = judge(store, digest, what=what)
    newest, said, signers = proved_by(judgement, store.trust, what=what)
    judgement.check_required(required_gates(store, require), what=what)
    method = read_method(store, digest, what=what)
    program = _read_source(store, method.program, f"{what}: {PROGRAM}")
    checker = _read_source(store, method.checker, f"{what}: {CHECKER}")
    return VerifiedMethod(
        digest, method, program, checker, newest.envelope, signers, said, judgement.contract
    )


def proved_by(
    judgement: Judgement, trust: TrustFile, *, what: str
) -> tuple[Opened, TestResult, tuple[str, ...]]:
    """The newest envelope of a trusted depositor that says that a method passed its proof, what it
    says, and the depositors who say so. Raises ``Untrusted`` where they do not suffice, or where a
    trusted key says that it failed."""
    depositors = {key.keyid for key in trust.keys_for(DEPOSITOR)}
    proofs = [
        (item, said)
        for item in judgement.opened
        if (said := _proof(item)) is not None and depositors.intersection(item.signers)
    ]
    by = {keyid for item, _ in proofs for keyid in item.signers} & depositors
    needed = max(1, trust.threshold(DEPOSITOR))
    if len(by) < needed or METHOD_GATE not in judgement.gates:
        raise Untrusted(
            f"{what}: proved by {len(by)} of {needed} trusted depositors needed",
            hint=judgement.hint(),
        )
    if judgement.failed:
        raise Untrusted(f"{what}: a trusted key says that {', '.join(judgement.failed)} failed")
    return (*proofs[-1], tuple(sorted(by)))


def read_method(store: Store, digest: Digest, *, what: str) -> Method:
    """The document ``digest``, its bytes checked. Raises ``Corrupt``, ``Incompatible``."""
    raw = store.objects.read(digest, what=what, limit=MAX_METHOD_BYTES)
    return parse_method(bytes(raw), what=what)


def _read_source(store: Store, digest: Digest, what: str) -> bytes:
    return bytes(store.objects.read(digest, what=what, limit=MAX_PROGRAM_BYTES))


def newest_method(
    store: Store, family: Digest, verify: Callable[[Store, Digest], VerifiedMethod]
) -> VerifiedMethod:
    """The newest method of ``family`` that counts. Raises ``NotFound`` when it has none at all,
    and what is wrong with the newest when none counts."""
    members = [item for item in store.family_members(family) if item.is_method]
    if not members:
        raise NotFound(f"family {short(family)}: no method", hint="kvg method add")
    newest: KvgError | None = None
    for member in reversed(members):
        try:
            found = verify(store, member.digest)
        except (Corrupt, Incompatible, Untrusted) as error:
            newest = newest or error
            continue
        if found.method.family == family:
            return found
    raise newest or NotFound(f"family {short(family)}: no method")


def _proof(item: Opened) -> TestResult | None:
    said = item.statement.predicate if item.statement is not None else None
    return said if isinstance(said, TestResult) and is_proof(said) else None
