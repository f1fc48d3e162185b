"""The listing, by which those find refs who read over the web: it is written last."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvg.remote.file_remote import FileRemote
from tests.exchange.conftest import Person


@pytest.mark.parametrize("delete", [False, True])
def test_a_push_killed_before_its_listing_is_gone_on_with(
    alice: Person, share: Path, monkeypatch: pytest.MonkeyPatch, delete: bool
) -> None:
    """Who reads by a web server goes by the listing, which is written last."""
    alice.deposit("demo")
    if delete:
        alice.push()
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(FileRemote, "publish_listing", killed)
        patch.setattr(FileRemote, "withdraw", killed)
        alice.push("demo", delete=True) if delete else alice.push()
    assert (b'"demo"' in listing(share)) is delete
    again = alice.push("demo", delete=True) if delete else alice.push()
    assert again.codes == ([3] if delete else [])
    assert again.states == ({} if delete else {"demo": "unchanged"})
    assert (b'"demo"' in listing(share)) is not delete
    assert not any((share / "pushing").iterdir())


class Killed(BaseException):
    pass


def killed(*_: object) -> None:
    raise Killed


def listing(share: Path) -> bytes:
    path = share / "listing.json"
    return path.read_bytes() if path.exists() else b""
