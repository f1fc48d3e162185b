"""A remote's copy of this store's log whose checkpoint is gone, or proves nothing any more.

Nothing there can be proved without it, not even by whoever wrote it; and nobody else can bring it
back. What the log there held beyond this store's own, by another copy of the store, is told when
that one pushes again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvg.errors import Corrupt
from kvg.flow.exchange.alive import announced
from kvg.flow.exchange.reading import MAX_LINE_BYTES
from kvg.flow.exchange.sending import send_log, verifier_line
from kvg.remote.layout import CHECKPOINT, VERIFIER
from kvg.signing.note import is_note_signed, parse_note

if TYPE_CHECKING:
    from kvg.flow.exchange.places import Place
    from kvg.remote import Remote
    from kvg.report import Report
    from kvg.store import Store


def restore_checkpoint(store: Store, place: Place, remote: Remote, report: Report) -> None:
    """Put this store's log back on ``remote``, where it was under the key that it has here and its
    checkpoint is gone, is no note, or is not signed by that key.

    A checkpoint that is signed stands, whatever it says; so does all that lies there under another
    key, which the log may have been given since by another copy of the store.
    Raises ``Conflict`` where another process does the same.
    """
    log = store.log
    files, what = remote.log(log.origin), f"log {log.origin} on {place.name}"
    if files.read(VERIFIER, MAX_LINE_BYTES) != verifier_line(log):
        return
    note, how = files.read(CHECKPOINT, MAX_LINE_BYTES), "is gone"
    if note is not None:
        try:
            if is_note_signed(parse_note(note, what=what), log.origin, log.verifier):
                return
            how = "is not signed by its key"
        except Corrupt:
            how = "cannot be read"
    report.warning(f"{what}: its checkpoint {how}; the log is put there again from this store")
    with announced(remote, log.origin):
        send_log(remote, log, 0, note)
