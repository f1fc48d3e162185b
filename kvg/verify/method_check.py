"""One method, fully checked: its document, its parts, the signatures, the gates.

The proof is not run again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvg.digest import Digest, short
from kvg.objects.statement import TestResult
from kvg.verify.artifact_check import (
    ArtifactCheck,
    ArtifactRequest,
    attestations,
    concluded,
    judged,
)
from kvg.verify.findings import Notes

if TYPE_CHECKING:
    from kvg.problem.method import Method
    from kvg.store import Store
    from kvg.trust import TrustFile
    from kvg.verify.judgement import Judgement


def check_method(asked: ArtifactRequest, digest: Digest) -> ArtifactCheck:
    """Every byte of all that a method is made of, its signatures, its gates."""
    from kvg.verify.method import proved_by

    store, what, notes, signed = asked.store, method_name(digest), Notes(), Notes()
    method = check_document(store, digest, what, notes)
    for name, part in needed_by(store, digest, method):
        with notes.noting(part):
            notes.saw(part, store.objects.read(part, what=f"{what}: {name}").nbytes)
    judgement = judged(store, digest, what, signed)

    def check_signed(judgement: Judgement, trust: TrustFile) -> None:
        proved_by(judgement, trust, what=what)

    return concluded(asked, digest, what, notes, judgement, signed, check_signed)


def method_name(digest: Digest) -> str:
    """What messages call a method."""
    return f"method {short(digest)}"


def check_document(store: Store, digest: Digest, what: str, notes: Notes) -> Method | None:
    """The document of a method, checked; None when it can't be had."""
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
    for envelope in attestations(store, digest):
        said = said_in(store, envelope)
        if isinstance(said, TestResult) and said.gate == METHOD_GATE:
            yield from ((item.name, item.digest) for item in said.evidence if item.digest)
