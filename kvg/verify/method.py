"""Whether a stored method counts: proved, by enough trusted keys, in this store's log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvg.digest import Digest, short
from kvg.errors import Corrupt, NotFound, Untrusted
from kvg.frozen import frozen
from kvg.objects.statement import PASSED, TestResult
from kvg.problem.method import MAX_PROGRAM_BYTES, METHOD_GATE, Method, parse_method
from kvg.trust import DEPOSITOR
from kvg.verify.judgement import judge

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvg.store import Store
    from kvg.verify.judgement import Judgement, Opened

MAX_METHOD_BYTES = 4 << 20


@frozen
class VerifiedMethod:
    """A method whose statement counts. ``attestation`` is the envelope that says it was proved,
    ``proof`` what it says."""

    digest: Digest
    method: Method
    program: bytes
    attestation: Digest
    signers: tuple[str, ...]
    proof: TestResult


class Verdicts:
    """Verdicts of this process. Each holds for one trust file and one position of the log."""

    def __init__(self) -> None:
        self._at: tuple[object, ...] = ()
        self._found: dict[Digest, VerifiedMethod] = {}

    def verify(self, store: Store, digest: Digest) -> VerifiedMethod:
        """As ``verify_method``; again only after the log or the trust file has changed."""
        log = store.log
        at = (store.root, log.origin, log.size, log.root, store.trust.version)
        if at != self._at:
            self._at, self._found = at, {}
        if digest not in self._found:
            self._found[digest] = verify_method(store, digest)
        return self._found[digest]


def verify_method(store: Store, digest: Digest) -> VerifiedMethod:
    """The method ``digest``, after checking, in this order:

    - the log's checkpoint is signed, and the trust file is the one it names;
    - as many distinct trusted depositors as the threshold asks for say that it passed its proof,
      in statements that the log holds, and no trusted key says that it failed;
    - the document and the program have their digests.

    The proof is **not** run again. Raises ``Untrusted``, ``Corrupt``, ``Incompatible``.
    """
    what = f"method {short(digest)}"
    judgement = judge(store, digest, what=what)
    proofs = [(item, said) for item in judgement.opened if (said := _proof(item)) is not None]
    depositors = {key.keyid for key in store.trust.keys_for(DEPOSITOR)}
    by = {keyid for item, _ in proofs for keyid in item.signers} & depositors
    needed = max(1, store.trust.threshold(DEPOSITOR))
    if len(by) < needed or METHOD_GATE not in judgement.gates:
        raise Untrusted(
            f"{what}: proved by {len(by)} of {needed} trusted depositors needed",
            hint=_hint(judgement),
        )
    if judgement.failed:
        raise Untrusted(f"{what}: a trusted key says that {', '.join(judgement.failed)} failed")
    raw = store.objects.read(digest, what=what, limit=MAX_METHOD_BYTES)
    method = parse_method(bytes(raw), what=what)
    program = store.objects.read(method.program, what=f"{what}: program", limit=MAX_PROGRAM_BYTES)
    newest, said = proofs[-1]
    signers = tuple(sorted(by))
    return VerifiedMethod(digest, method, bytes(program), newest.envelope, signers, said)


def newest_method(
    store: Store, family: Digest, verify: Callable[[Store, Digest], VerifiedMethod]
) -> VerifiedMethod:
    """The newest method of ``family`` that counts. Raises ``NotFound`` when it has none at all,
    and what is wrong with the newest when none counts."""
    members = [item for item in store.family_members(family) if item.is_method]
    if not members:
        raise NotFound(f"family {short(family)}: no method", hint="kvg method add")
    newest: Corrupt | Untrusted | None = None
    for member in reversed(members):
        try:
            return verify(store, member.digest)
        except (Corrupt, Untrusted) as error:
            newest = newest or error
    raise newest or NotFound(f"family {short(family)}: no method")


def _proof(item: Opened) -> TestResult | None:
    said = item.statement.predicate if item.statement is not None else None
    if isinstance(said, TestResult) and said.gate == METHOD_GATE and said.result == PASSED:
        return said
    return None


def _hint(judgement: Judgement) -> str:
    others = sorted({keyid for item in judgement.opened for keyid in item.others})
    return f"if you trust that key: kvg trust add {others[0][:12]}" if others else "kvg trust list"
