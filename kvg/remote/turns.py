"""Taking turns in a container registry, which replaces a tag without a condition.

Each publisher has a mark there, a small image manifest under a tag of its own. Who wants to move
tags marks that it does, and then looks at the marks of all others:

- none: it is its turn, until it marks that it is done;
- all are of logs whose names come after its own: it waits until they are done, its mark standing;
- else it takes its mark back, waits, and begins anew.

Of two at once at least one sees the other's mark, so that never both have their turn. A mark that
nothing renews for ``WATCH_S``, by the clock of who watches, is of a push that was killed; it counts
no more. A registry that shows a tag only some time after it was put keeps nobody apart: what lies
under a tag is looked at once more after each move.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Final

from kvg.digest import sha256
from kvg.errors import Corrupt, RemoteFailed
from kvg.remote import oci
from kvg.remote.layout import HeldUp
from kvg.remote.registry_log import empty, put_image, tagged_image

if TYPE_CHECKING:
    from kvg.remote.distribution import Registry

TURN_TAG: Final = "_kvg.turn."
WATCH_S = 60.0
PATIENCE_S = 600.0
"""How long one waits for others that go on moving tags."""

LOOK_S = 0.2
_MOVING: Final = "dev.kvg.moving"

REMOVALS_TAG: Final = "_kvg.removals"
_REMOVING: Final = "dev.kvg.removing"
_UNDER_WAY: Final = " under way"


class Turn:
    """The turn of one publisher. Safe for threads."""

    def __init__(self, registry: Registry, origin: str) -> None:
        self._registry = registry
        self._tag = _tag_of(origin)
        self._guard = threading.Lock()
        self._is_had = False

    def take(self) -> bool:
        """Wait for the turn; whether it came now, and was not had already. Raises ``HeldUp`` when
        it does not come."""
        with self._guard:
            if self._is_had:
                return False
            watch = _Watch(self._registry, self._tag)
            end = time.monotonic() + PATIENCE_S
            self._mark(is_moving=True)
            while others := watch.moving():
                if min(others) < self._tag:
                    self._mark(is_moving=False)
                    self._wait(watch, end)
                    self._mark(is_moving=True)
                elif time.monotonic() > end:
                    self._give_up()
                else:
                    time.sleep(LOOK_S)
            self._is_had = True
            return True

    def renew(self) -> None:
        """Show others that this push lives, where it has its turn."""
        with self._guard:
            if self._is_had:
                self._mark(is_moving=True)

    def end(self) -> None:
        """Let others have theirs; again is harmless."""
        with self._guard:
            if self._is_had:
                self._is_had = False
                self._mark(is_moving=False)

    def _wait(self, watch: _Watch, end: float) -> None:
        while watch.moving():
            if time.monotonic() > end:
                self._give_up()
            time.sleep(LOOK_S)

    def _give_up(self) -> None:
        self._mark(is_moving=False)
        raise HeldUp(
            f"{self._registry.url}: others have been moving tags for {PATIENCE_S:.0f} s",
            hint="push again later",
        )

    def _mark(self, *, is_moving: bool) -> None:
        said = os.urandom(8).hex() if is_moving else "no"
        image = oci.Image(oci.TURN, empty(), (empty(),), annotations=((_MOVING, said),))
        put_image(self._registry, self._tag, image)


class _Watch:
    """The marks of all others, and for how long each has been the same."""

    def __init__(self, registry: Registry, own: str) -> None:
        self._registry = registry
        self._own = own
        self._seen: dict[str, tuple[str, float]] = {}

    def moving(self) -> list[str]:
        """The tags of those whose turn it is, or who wait for it, and who live."""
        now, found = time.monotonic(), []
        for tag in self._registry.tags() or ():
            if not tag.startswith(TURN_TAG) or tag == self._own:
                continue
            said = self._said(tag)
            known, since = self._seen.get(tag, ("", now))
            since = since if said == known else now
            self._seen[tag] = (said, since)
            if said != "no" and now - since < WATCH_S:
                found.append(tag)
        return found

    def _said(self, tag: str) -> str:
        try:
            image = tagged_image(self._registry, tag, oci.TURN)
        except Corrupt:
            return "no"  # nobody's mark
        except RemoteFailed:
            return "unreadable"  # as it is replaced just now, in some registries
        return "no" if image is None else dict(image.annotations).get(_MOVING, "no")


def _tag_of(origin: str) -> str:
    return TURN_TAG + sha256(origin.encode("utf-8")).partition(":")[2][:32]


class Removals:
    """What says that blobs were removed from a registry: who found one there before can't rely on
    it. Safe for threads.

    A removal has the turn, and leaves a mark before it looks at what others need and another once
    it is over. Who pushes looks at the mark before all else, and once more when its turn has come:
    where it is another, or one that a removal which was killed has left, what was seen there may be
    gone.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._seen = self._said()

    def check(self) -> None:
        """Call it when the turn has come. Raises ``HeldUp`` where something may have gone."""
        now = self._said()
        if now.endswith(_UNDER_WAY):  # nobody has the turn but this one: it was killed
            self.note(is_over=True)
        if now != self._seen or now.endswith(_UNDER_WAY):
            raise HeldUp(
                f"{self._registry.url}: something was removed there meanwhile, which this may need",
                hint="run it again",
            )

    def note(self, *, is_over: bool) -> None:
        """Leave a mark that no other was like."""
        said = os.urandom(8).hex() + ("" if is_over else _UNDER_WAY)
        image = oci.Image(oci.TURN, empty(), (empty(),), annotations=((_REMOVING, said),))
        put_image(self._registry, REMOVALS_TAG, image)

    def _said(self) -> str:
        image = tagged_image(self._registry, REMOVALS_TAG, oci.TURN)
        return "" if image is None else dict(image.annotations).get(_REMOVING, "")
