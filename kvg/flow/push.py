"""``kvg push``: bring refs, and all they need, to a remote."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

from kvg.digest import Digest
from kvg.errors import Conflict, Corrupt, KvgError, NotFound, RemoteFailed, UsageError
from kvg.flow.exchange.alive import announced
from kvg.flow.exchange.begun import Begun
from kvg.flow.exchange.holding import hold_back
from kvg.flow.exchange.left_out import note_left_out, note_taken_off, taken_off
from kvg.flow.exchange.parallel import in_order
from kvg.flow.exchange.places import check_not_own, find_place, opened
from kvg.flow.exchange.publishers import sign_publisher, vouching
from kvg.flow.exchange.reading import (
    MAX_LINE_BYTES,
    REFUSED,
    NoValue,
    Reader,
    told,
)
from kvg.flow.exchange.restoring import restore_checkpoint
from kvg.flow.exchange.sending import (
    Form,
    Outgoing,
    Sender,
    Sent,
    is_cosigned_anew,
    new_attestations,
    plan,
    read_publisher,
    send_log,
    send_publisher,
)
from kvg.flow.exchange.step import Step, check_forward, pull_first, worthless
from kvg.flow.exchange.supplying import absent, supply
from kvg.flow.exchange.telling import counted
from kvg.flow.records.exchange import Transfer, TransferRef
from kvg.flow.records.findings import Finding
from kvg.flow.settings import signing_key
from kvg.log.growth import log_files
from kvg.remote.address import is_registry
from kvg.remote.file_remote import FileRemote
from kvg.remote.layout import CHECKPOINT, Expected, InTheWay, MalformedPointer, Pointer
from kvg.remote.tree import Tree
from kvg.store import ANY, RefMove, check_ref_name
from kvg.trust import PUBLISHER

if TYPE_CHECKING:
    from kvg.flow.exchange.places import Place
    from kvg.flow.exchange.registering import ArtifactSender
    from kvg.flow.records import Record
    from kvg.flow.settings import Settings
    from kvg.remote import Remote
    from kvg.store import Store


def push(
    store: Store,
    settings: Settings,
    remote: str | None = None,
    refs: Sequence[str] = (),
    *,
    delete: bool = False,
    read_back: bool = False,
) -> Iterator[Record]:
    """Bring ``refs`` (all of the store's own without any) to ``remote``, fast-forward only.

    Objects first, only those that are missing; then the log; pointers last, each by
    compare-and-swap. Yields what is wrong with single refs while the others go, then the
    ``transfer``. ``delete`` takes ``refs`` off the remote.

    That an object is there, under a header of its own and as long as that says, is asked of refs
    that go and of those that are named. Refs that stay where they are, where none is named, are
    not looked into. ``read_back`` reads every byte of them all, and puts anew what is damaged.
    Raises ``NotFound``, ``UsageError``, ``RemoteFailed``, ``Untrusted``.
    """
    place = find_place(store, remote)
    for name in refs:
        _check_own(store, name, delete=delete)
    if delete and not refs:
        raise UsageError(
            "--delete: needs the refs to take off", hint="kvg push origin --delete REF"
        )
    with opened(place, settings) as there, store.exchange.exclusive():
        if not there.is_writable:
            raise RemoteFailed(
                f"{place.name}: {there.url} can only be read", hint="kvg remote set NAME URL"
            )
        check_not_own(store, place, there)
        work = Push(store, settings, place, there)
        yield from counted(work.delete(refs) if delete else work.run(refs, read_back=read_back))


def _check_own(store: Store, name: str, *, delete: bool) -> None:
    check_ref_name(name)
    if store.is_tracking(name):
        raise UsageError(f"{name}: says what a remote had", hint="push the ref itself")
    if not delete and store.ref(name) is None:
        raise NotFound(f"{name}: no such ref", hint="kvg ls")


class Push:
    """One push, under ``store.exchange``."""

    def __init__(self, store: Store, settings: Settings, place: Place, remote: Remote) -> None:
        self._store = store
        self._settings = settings
        self._place = place
        self._remote = remote
        self._reader = Reader(
            store, place, remote, keep=not settings.dry_run, report=settings.report
        )
        self._began = time.monotonic()
        self._sent = Sent()
        self._begun = Begun(store, place)
        self._broken: set[Digest] = set()
        self._there: frozenset[str] = frozenset()
        self._own = store.log.origin

    def run(self, refs: Sequence[str], *, read_back: bool) -> Iterator[Record]:
        """See ``push``."""
        is_there = self._is_there()
        report = self._settings.report
        if is_there and not self._settings.dry_run:
            restore_checkpoint(self._store, self._place, self._remote, report)
        steps: list[Step] = []
        for found in self._steps(refs, is_there=is_there):
            if isinstance(found, Finding):
                yield found
            else:
                steps.append(found)
        if self._settings.dry_run:
            if read_back:
                report.notice("--verify reads nothing back in a dry run")
            yield from self._dry(steps, refs, is_there=is_there)
            return
        done: list[TransferRef] = [step.done() for step in steps if step.state == "unchanged"]
        old_note, old_size, fresh = self._own_there(is_there)
        log = self._store.log
        going = [step for step in steps if step.state != "unchanged"]
        same = [step for step in steps if step.state == "unchanged"]
        late = [step for step in same if self._is_late(step.name, step.expected)]
        named_late = {step.name for step in late}
        updated = [step for step in same if step.digest in fresh or step.name in named_late]
        kept = {step.name for step in updated}
        checked = [step for step in same if step.name not in kept]
        checked = checked if read_back else self._lost(checked if refs else ())
        is_cosigned = is_there and old_note is not None and is_cosigned_anew(self._remote, log)
        is_behind = not refs and old_size < log.size and self._has_late_removed()
        if going or updated or checked or is_cosigned or is_behind or self._is_cut(is_there):
            chosen = (*going, *updated, *checked)
            note = self._publisher_note(is_there)
            self._tell(old_note)
            self._remote.make()
            with announced(self._remote, self._store.log.origin):
                yield from self._send(chosen, read_back=read_back)
                going = [step for step in going if step.digest not in self._broken]
                self._remote.renew(self._store.log.origin)
                moving = (*going, *late)
                self._publish(old_note, old_size, note, steps, moving, is_there=is_there)
                told_again = updated if is_registry(self._place.url) else late
                yield from self._moved((*going, *told_again), done)
                self._remote.publish_listing()
                self._remote.renew(self._store.log.origin)
            self._begun.end()
        self._track(done)
        yield self._transfer(done)

    def _is_cut(self, is_there: bool) -> bool:
        """Whether an earlier push of this store was killed there: what it had moved may be seen by
        nobody who goes by the listing."""
        remote = self._remote
        return is_there and isinstance(remote, FileRemote) and remote.is_cut(self._own)

    def _is_late(self, name: str, pointer: Expected) -> bool:
        """Whether ``pointer``, there, is at an entry of this store's log that a later one of
        ``name`` followed: who knows that one can't believe it."""
        if not isinstance(pointer, Pointer) or pointer.origin != self._own:
            return False
        newest = self._reader.newest.get(name)
        return newest is not None and pointer.index < newest.index

    def _has_late_removed(self) -> bool:
        """Whether refs that were removed here stay there, and the log there does not say so."""
        newest = self._reader.newest
        gone = [name for name in self._there if name in newest and newest[name].digest is None]
        pointers = self._remote.pointers(gone) if gone else {}
        return any(
            not isinstance(pointer, Corrupt) and self._is_late(name, pointer)
            for name, pointer in pointers.items()
        )

    def _is_there(self) -> bool:
        try:
            self._remote.check()
        except NotFound:
            return False
        return True

    def _steps(self, refs: Sequence[str], *, is_there: bool) -> Iterator[Step | Finding]:
        newest = self._reader.newest
        own = {
            name: digest
            for name in self._store.own_names(newest)
            if (digest := newest[name].digest) is not None
        }
        there = frozenset(self._remote.refs()) if is_there else frozenset()
        self._there = there
        chosen = tuple(dict.fromkeys(refs) if refs else self._not_taken_off(sorted(own)))
        self._reader.look(name for name in chosen if name in there)
        tree = Tree(there) if self._remote.keeps_folders else None
        for name in chosen:
            try:
                self._place.check_trackable(name)
                self._remote.check_ref(name)
                self._check_place(name, tree)
                step = self._step(name, own[name], is_there=name in there)
                check_forward(self._store, self._place, self._reader, step)
            except (*REFUSED, UsageError) as error:
                yield told(error, name)
            else:
                yield step

    def _check_place(self, name: str, tree: Tree | None) -> None:
        """Raise ``Conflict`` where ``name`` can't lie among the names there."""
        blocker = None if tree is None else tree.add(name)
        if blocker is not None:
            raise Conflict(
                f"{name}: {self._place.name} keeps refs as files, and {blocker} is in its way",
                hint=f"kvg mv {name} OTHER",
            )

    def _not_taken_off(self, names: Sequence[str]) -> Sequence[str]:
        """``names`` without what somebody took off the remote, and that did not move here since."""
        newest, place = self._reader.newest, self._place
        left: set[str] = set()
        gone = taken_off(self._store, place.name) - self._there
        for name in sorted(gone.intersection(names)):
            seen = newest.get(place.tracking(name))
            if seen is not None and newest[name].index < seen.index:
                left.add(name)
                self._settings.report.notice(
                    f"{name}: was taken off {place.name}, and is left so; to put it back: "
                    f"kvg push {place.name} {name}"
                )
        return [name for name in names if name not in left] if left else names

    def _step(self, name: str, digest: Digest, *, is_there: bool) -> Step:
        if not is_there:
            return Step(name, digest, None)
        try:
            return Step(name, digest, self._reader.ref(name))
        except (MalformedPointer, NoValue) as error:
            self._settings.report.warning(f"{error.message}; it is replaced")
            return Step(name, digest, None, worthless(error))

    def _lost(self, steps: Sequence[Step]) -> list[Step]:
        """Those of ``steps`` of which the remote has lost an object."""
        lost: list[Step] = []
        for step in steps:
            objects = plan(self._store, [step.digest]).objects()
            if self._remote.missing(objects):
                lost.append(step)
        return lost

    def _own_there(self, is_there: bool) -> tuple[bytes | None, int, frozenset[Digest]]:
        """This store's log there: its checkpoint and size, and what is said since that."""
        log = self._store.log
        files = self._remote.log(log.origin)
        note = files.read(CHECKPOINT, MAX_LINE_BYTES) if is_there else None
        size = 0 if note is None else self._reader.check_own(note)
        return note, size, frozenset(new_attestations(log, size))

    def _publisher_note(self, is_there: bool) -> bytes | None:
        """A new note that vouches for this store's log; None where one that counts is there."""
        log = self._store.log
        keys = self._store.trust.keys_for(PUBLISHER)
        try:
            note = read_publisher(self._remote, log.origin) if is_there else None
            if note is not None and vouching(note, log.origin, log.verifier, keys):
                return None
        except REFUSED:
            pass  # whatever lies there is replaced
        key = signing_key(self._settings, self._store)
        return sign_publisher(log.origin, log.verifier, [key])

    def _tell(self, old_note: bytes | None) -> None:
        if old_note is None:
            self._settings.report.notice(
                f"whoever can read {self._place.name} can read the token ids, and so the texts, "
                "of what is pushed there"
            )

    def _send(self, steps: Sequence[Step], *, read_back: bool) -> Iterator[Finding]:
        """Send the objects of ``steps``; yields what is damaged here, and notes which refs."""
        names = {step.digest: step.name for step in steps}
        whole: list[Outgoing] = []
        for digest, name in names.items():
            try:
                planned = plan(self._store, [digest])
                self._supply(planned, name)
                whole.append(planned)
            except (*REFUSED, RemoteFailed) as error:
                self._broken.add(digest)
                yield told(error, name)
        outgoing = merge(whole)
        objects = outgoing.objects()
        sender = self._sender()
        with self._settings.report.task("push", len(objects), "objects") as task:
            self._sent = sender.send(outgoing, self._begun, task=task, read_back=read_back)
        for digest, failure in self._sent.failed.items():
            yield told(failure, digest)
        for artifact in outgoing.artifacts:
            if not self._sent.failed.keys().isdisjoint(artifact.objects()):
                self._broken.add(artifact.digest)

    def _supply(self, planned: Outgoing, name: str) -> None:
        """Bring pages that another remote keeps until they are read, if this one lacks them."""
        if not self._store.is_partial:
            return
        for artifact in planned.artifacts:
            gone = absent(self._store, artifact.manifest)
            if gone and (is_registry(self._place.url) or self._remote.missing(gone)):
                supply(self._store, self._settings, artifact.manifest, name)

    def _sender(self) -> Sender | ArtifactSender:
        if not is_registry(self._place.url):
            return Sender(self._store, self._settings, self._place, self._remote)
        from kvg.flow.exchange.registering import ArtifactSender
        from kvg.remote.registry import RegistryRemote

        if not isinstance(self._remote, RegistryRemote):
            raise RemoteFailed(f"{self._place.name}: no registry")
        return ArtifactSender(self._store, self._settings, self._remote)

    def _publish(
        self,
        old_note: bytes | None,
        old_size: int,
        note: bytes | None,
        steps: Sequence[Step],
        going: Sequence[Step],
        *,
        is_there: bool,
    ) -> None:
        """The log, who vouches for it, and the keys to check both and the artifacts with."""
        log = self._store.log
        if note is not None:
            send_publisher(self._remote, log.origin, note)
        if is_there:
            hold_back(
                self._store,
                self._place,
                self._remote,
                log,
                moving={step.name for step in going},
                known={step.name: step.there.pointer for step in steps if step.there is not None},
            )
        self._sent.bytes += send_log(self._remote, log, old_size, old_note)
        for keyid, text in offered_keys(self._store).items():
            self._remote.offer(keyid, text)

    def _moved(self, steps: Sequence[Step], done: list[TransferRef]) -> Iterator[Finding]:
        """Move the pointers of ``steps``; what moved comes to ``done``, noted on a failure."""
        try:
            for told_of in self._move(steps):
                if isinstance(told_of, Finding):
                    yield told_of
                elif told_of.state != "unchanged":
                    done.append(told_of)
        except KvgError:
            self._track(done)
            raise

    def _move(self, steps: Sequence[Step]) -> Iterator[TransferRef | Finding]:
        newest, log = self._reader.newest, self._store.log

        def move(step: Step) -> TransferRef | Finding:
            pointer = Pointer(log.origin, newest[step.name].index)
            if (
                step.state == "unchanged"
                and step.there is not None
                and not self._is_late(step.name, step.there.pointer)
            ):
                pointer = step.there.pointer
            try:
                self._remote.move(step.name, pointer, expect=step.expected, value=step.digest)
            except InTheWay as error:
                return told(error, step.name)
            except Conflict as error:
                error.hint = pull_first(self._place, step.name)
                return told(error, step.name)
            return step.done()

        return in_order(move, steps, jobs=self._settings.jobs, are_small=True)

    def _track(self, done: Sequence[TransferRef]) -> None:
        """Note what the remote has now, in this store's log."""
        moves = [
            RefMove(self._place.tracking(item.ref), item.digest, ANY)
            for item in done
            if item.state in ("new", "moved", "unchanged", "deleted")
            and self._place.is_trackable(item.ref)
        ]
        newest = self._reader.newest
        known = {name: move.digest for name, move in newest.items()}
        moves = [move for move in moves if known.get(move.name) != move.digest]
        if moves:
            self._store.publish(moves)
        off = {item.ref for item in done if item.state == "deleted"}
        names = [item.ref for item in done]
        note_left_out(self._store, self._place.name, (), looked_at=names)
        there = [name for name in names if name not in off]
        note_taken_off(self._store, self._place.name, gone=off, there=there)

    def _dry(
        self, steps: Sequence[Step], refs: Sequence[str], *, is_there: bool
    ) -> Iterator[Record]:
        self._settings.tell_dry_run()
        going = [step for step in steps if step.state != "unchanged"]
        same = [step for step in steps if step.state == "unchanged"]
        whole: list[Outgoing] = []
        for step in (*going, *self._lost(same if refs else ())):
            try:
                whole.append(plan(self._store, [step.digest]))
            except REFUSED as error:
                yield told(error, step.name)
        outgoing = merge(whole)
        objects = outgoing.objects()
        missing = self._remote.missing(objects) if is_there else frozenset(objects)
        self._sent.objects, self._sent.skipped = len(missing), len(objects) - len(missing)
        try:
            here = frozenset(digest for digest in missing if self._store.objects.has(digest))
            self._sent.bytes = self._sender().measure(outgoing, here)
            if self._store.is_partial:  # brought first, and no longer than they are raw
                gone = [outgoing.forms.get(d, Form()).size or 0 for d in missing if d not in here]
                self._sent.bytes += sum(gone)
        except Corrupt as error:
            yield told(error, self._place.name)
        if going:
            size = self._own_there(is_there)[1]
            files = log_files(self._store.log.tiles, size)
            self._sent.bytes += sum(len(data) for _, data in files)
        yield self._transfer([step.done() for step in steps])

    def _transfer(self, done: Sequence[TransferRef]) -> Transfer:
        return Transfer(
            direction="push",
            remote=self._place.name,
            refs=tuple(sorted(done, key=lambda item: item.ref)),
            objects_sent=self._sent.objects,
            objects_skipped=self._sent.skipped,
            bytes=self._sent.bytes,
            resumed=self._sent.resumed,
            seconds=time.monotonic() - self._began,
            dry_run=self._settings.dry_run,
            read_back=self._sent.read_back,
        )

    def delete(self, refs: Sequence[str]) -> Iterator[Record]:
        """Take ``refs`` off the remote, where they are as this store last saw them."""
        done: list[TransferRef] = []
        is_dry, is_there = self._settings.tell_dry_run(), self._is_there()
        is_cut = self._is_cut(is_there)
        with announced(self._remote, self._own) if is_there and not is_dry else nullcontext():
            for name in dict.fromkeys(refs):
                try:
                    found = self._deleted(name)
                except REFUSED as error:
                    yield told(error, name)
                else:
                    done.append(found)
            if (done or is_cut) and not is_dry:
                self._remote.publish_listing()
        if not is_dry:
            self._track(done)
        yield self._transfer(done)

    def _deleted(self, name: str) -> TransferRef:
        try:
            found = self._reader.ref(name) if self._is_there() else None
        except (MalformedPointer, NoValue) as error:
            if not self._settings.dry_run:
                self._remote.move(name, None, expect=worthless(error))
            return TransferRef(name, None, None, "deleted")
        if found is None:
            raise NotFound(f"{name}: not on {self._place.name}", hint="kvg remote show")
        tracked = self._place.tracking(name)
        if self._place.is_trackable(name) and self._store.ref(tracked) != found.digest:
            raise Conflict(
                f"{name}: moved on {self._place.name} since it was last seen here",
                hint=f"kvg fetch {self._place.name} {name}, then look at it",
            )
        if not self._settings.dry_run:
            self._remote.move(name, None, expect=found.pointer)
        return TransferRef(name, None, found.digest, "deleted")


def merge(parts: Sequence[Outgoing]) -> Outgoing:
    """Several artifacts as one lot."""
    forms = {digest: form for part in parts for digest, form in part.forms.items()}
    return Outgoing(tuple(item for part in parts for item in part.artifacts), forms)


def offered_keys(store: Store) -> dict[str, str]:
    """The trusted publishers' and depositors' keys, by id, as lines to put on offer."""
    from kvg.signing.keys import encode_public

    return {
        key.keyid: encode_public(key.public, "openssh", key.keyid[:12])
        for key in store.trust.keys
        if not store.trust.revocations(key.keyid)
    }
