"""The one taxonomy of failures.

Each class owns its exit code; the command line, the man page and the help are made from this
module. Library code raises these and nothing else on bad input; it never prints and never exits.
"""

from __future__ import annotations

from typing import ClassVar


def without_login(text: str) -> str:
    """``text`` without what stands between the scheme of an address in it and its last ``@``."""
    if "://" not in text or "@" not in text:
        return text
    import re

    return re.sub(r"(?<!\bs3)(?<!\bfile)://\S*@", "://…@", text)


class KvgError(Exception):
    """A failure that kvg expects: a message that names the object, and a hint of what to do next.

    ``message`` is lower case, without a full stop. ``hint`` is a command or a sentence, or None.
    """

    code: ClassVar[int] = 1
    kind: ClassVar[str] = "failure"
    meaning: ClassVar[str] = "anything without a code of its own"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        """A name and password in an address among the words are left out, wherever they came from:
        what is one argument too far, or in the place of another, is shown in an error."""
        message = without_login(message)
        super().__init__(message)
        self.message = message
        self.hint = None if hint is None else without_login(hint)


class Unreadable(KvgError):
    """A file that the disk, or who owns it, does not give: nothing is known of what is in it."""


class UsageError(KvgError):
    code = 2
    kind = "usage"
    meaning = "bad command line; empty text"


class NotFound(KvgError):
    code = 3
    kind = "not-found"
    meaning = "no such store, ref, object, key, model; a cache miss"


class Conflict(KvgError):
    code = 4
    kind = "conflict"
    meaning = "a ref moved (push and pull are fast-forward only); a lock was not had in --lock-wait"


class Corrupt(KvgError):
    code = 5
    kind = "corrupt"
    meaning = "bytes do not match their digest, or are malformed; objects missing"


class Untrusted(KvgError):
    code = 6
    kind = "untrusted"
    meaning = (
        "unsigned, bad signature, unknown or revoked key, threshold or required gate not met, "
        "log rolled back or forked"
    )


class Incompatible(KvgError):
    code = 7
    kind = "incompatible"
    meaning = (
        "other model, tokenizer, engine, position, layout or format version; text past the "
        "window; self-check or witness failed; torch or device absent"
    )


class GateFailed(KvgError):
    code = 8
    kind = "rejected"
    meaning = "a gate refused the deposit, or no sandbox can be had"


class RemoteFailed(KvgError):
    code = 9
    kind = "remote"
    meaning = "unreachable or refused; a retry may help"


class NoSpace(KvgError):
    code = 10
    kind = "no-space"
    meaning = "disk or quota"


class Inexact(KvgError):
    code = 11
    kind = "inexact"
    meaning = "a replay did not give the same bytes"


class Bug(KvgError):
    code = 70
    kind = "bug"
    meaning = "an unexpected error; traceback only with --debug"


class Interrupted(KvgError):
    code = 130
    kind = "interrupted"
    meaning = "stopped by Ctrl-C; the store is whole"


KINDS: tuple[type[KvgError], ...] = (
    KvgError,
    UsageError,
    NotFound,
    Conflict,
    Corrupt,
    Untrusted,
    Incompatible,
    GateFailed,
    RemoteFailed,
    NoSpace,
    Inexact,
    Bug,
    Interrupted,
)
"""Every kind, in the order of the exit code table."""

AGAIN = "run it again: what is done is kept"
"""The hint where nothing else helps against what a remote, or the way to it, did."""

SEVERITY: tuple[int, ...] = (6, 5, 11, 7, 8, 4, 10, 9, 3, 1)
"""Exit codes of findings, the most severe first: of several that are found, the first decides."""


def most_severe(codes: list[int]) -> int:
    """The exit code that decides among ``codes``; 0 when there are none."""
    present = set(codes)
    return next((code for code in SEVERITY if code in present), 1 if present - {0} else 0)
