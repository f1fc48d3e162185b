"""What a check finds wrong, and what it has seen on its way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from kvg.digest import Digest
from kvg.errors import Corrupt, Incompatible, KvgError, NotFound, Unreadable, Untrusted
from kvg.frozen import frozen

UNREADABLE = (Corrupt, Incompatible, NotFound, Unreadable, Untrusted)
"""What is raised where something can't be read as what it should be."""


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


def finding_of(error: KvgError, name: str) -> Finding:
    """``error`` as a finding about the object ``name``."""
    return Finding(error.code, error.kind, name, error.message, error.hint)


class Notes:
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
            if type(error) not in (KvgError, Unreadable):
                raise
            self.findings.append(finding_of(error, name))  # what the disk or its owner refuses

    def saw(self, digest: Digest, size_bytes: int) -> None:
        self.objects[digest] = size_bytes

    def add(self, other: Notes) -> None:
        self.findings += other.findings
        self.objects |= other.objects

    def is_known(self, digest: Digest) -> bool:
        """Whether something was found out about ``digest``, good or bad."""
        return digest in self.objects or any(item.object == digest for item in self.findings)

    def has(self, *kinds: str) -> bool:
        return any(finding.kind in kinds for finding in self.findings)
