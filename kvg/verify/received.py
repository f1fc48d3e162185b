"""What attestations that came from elsewhere amount to, before anything of them is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from kvg.digest import Digest, short
from kvg.objects.statement import Statement
from kvg.signing.dsse import parse_envelope, signers
from kvg.trust import TrustFile
from kvg.verify.judgement import (
    Judgement,
    Opened,
    amount,
    is_whole_replay,
    parse_envelope_statement,
)
from kvg.verify.positions import Elsewhere, counts


def judge_received(
    trust: TrustFile,
    digest: Digest,
    envelopes: Iterable[tuple[str, int, Digest, bytes]],
    *,
    n_pages: int,
    what: str,
    elsewhere: Callable[[Digest, str], int | None] = lambda _, __: None,
) -> Judgement:
    """What (log, position in it, digest, bytes) of each envelope come to by ``trust``.

    The caller has read the positions from those logs under checked checkpoints, and has checked the
    bytes against their digests; ``n_pages`` are those of the manifest. A revoked key counts by its
    position there, or in another log where ``elsewhere`` says of an envelope that it is. Raises
    ``Corrupt`` on a malformed envelope, ``Untrusted`` on one that is about another artifact.
    """
    opened = tuple(
        _open(
            trust,
            digest,
            origin,
            index,
            name,
            data,
            n_pages=n_pages,
            what=what,
            elsewhere=partial(elsewhere, name),
        )
        for origin, index, name, data in envelopes
    )
    return amount(opened, trust)


def _open(
    trust: TrustFile,
    digest: Digest,
    origin: str,
    index: int,
    name: Digest,
    data: bytes,
    *,
    n_pages: int,
    what: str,
    elsewhere: Elsewhere,
) -> Opened:
    label = f"{what}: attestation {short(name)}"
    envelope = parse_envelope(data, what=label)
    by = tuple(key.keyid for key in signers(envelope, [key.public for key in trust.keys]))
    counted = tuple(
        keyid
        for keyid in by
        if trust.counts(keyid, origin, index) or counts(trust, keyid, elsewhere)
    )
    statement: Statement | None = None
    if counted:
        statement = parse_envelope_statement(envelope, digest, label)
    return Opened(
        index,
        name,
        len(data),
        statement,
        counted,
        tuple(s.keyid for s in envelope.signatures if trust.find(s.keyid) is None),
        tuple(keyid for keyid in by if keyid not in counted),
        is_whole_replay(statement, lambda: n_pages),
    )
