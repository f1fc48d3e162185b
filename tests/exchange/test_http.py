"""Over a web server: cut at many places, redirected, refused; and what a resume moves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kvg import codec as kvz
from kvg.digest import Digest, sha256, shake256
from kvg.errors import RemoteFailed
from kvg.remote import open_remote
from kvg.remote.layout import object_name
from tests.exchange.conftest import Person
from tests.remote.servers import Misbehave, Server, StaticHandler, serving


def test_clone_and_pull_over_http(alice: Person, bob: Person, share: Path) -> None:
    digest = alice.deposit("docs/demo")
    alice.push()
    with serving(share) as server:
        assert bob.clone(server.url, alice).states == {"docs/demo": "new"}
        assert bob.store.ref("docs/demo") == digest
        newer = alice.deposit("docs/demo", range(40))
        alice.push()
        assert bob.pull().states == {"docs/demo": "moved"}
        assert bob.store.ref("docs/demo") == newer
        with pytest.raises(RemoteFailed, match="only be read"):
            bob.push()


@contextmanager
def cutting(share: Path, after: int) -> Iterator[Server]:
    """A server that breaks every connection once ``after`` bytes of bodies were sent in all."""
    left = after

    def cut(handler: StaticHandler, path: str, data: bytes) -> bool:
        nonlocal left
        if handler.command != "GET":
            return False
        if len(data) <= left:
            left -= len(data)
            return False
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data[:left])
        left = 0
        handler.close_connection = True
        return True

    with serving(share, misbehave=cut) as server:
        yield server


def test_cut_after_any_number_of_bytes(alice: Person, bob: Person, share: Path) -> None:
    """Nothing partial is seen, and each try begins where the last one ended."""
    digest = alice.deposit("demo")
    alice.push()
    bob.init().add("http://127.0.0.1:1")
    from tests.exchange.test_exchange import _trusting

    bob.store.set_trust(_trusting(bob, alice))
    moved, tries, budget = 0, 0, 2_000
    while bob.store.ref("demo") is None:
        tries += 1
        with cutting(share, budget) as server:
            bob.store.config.set_table("remote", "origin", {"url": server.url})
            try:
                outcome = bob.pull()
                assert outcome.findings or outcome.states == {"demo": "new"}
            except RemoteFailed:
                pass
        if bob.store.ref("demo") is None:
            assert bob.store.refs() == {} and bob.store.artifacts() == ()
        moved = sum(1 for _ in (bob.store.staging / "quarantine").rglob("??/*"))
        budget += 350
        assert tries < 40
    assert tries > 3 and moved == 0
    assert bob.store.ref("demo") == digest


def big_object(share: Path, size: int) -> Digest:
    raw = shake256(b"big", size)
    digest = sha256(raw)
    remote = open_remote(str(share), cwd=share.parent)
    remote.make()
    remote.put(digest, list(kvz.encode(raw, digest=digest, codec=kvz.RAW).parts()))
    return digest


def test_long_object_goes_on_at_the_last_whole_frame(bob: Person, share: Path) -> None:
    from kvg.flow.exchange.receiving import Receiver, Wanted
    from kvg.report import SilentTask

    size = 3 * kvz.FRAME_SIZE + 12345
    digest = big_object(share, size)
    bob.init()
    cut_at = 2 * kvz.FRAME_SIZE + 500_000

    def cut(handler: StaticHandler, path: str, data: bytes) -> bool:
        if not path.endswith(object_name(digest)) or handler.command != "GET":
            return False
        first = int(handler.headers["Range"].removeprefix("bytes=").split("-")[0])
        handler.send_response(206)
        handler.send_header("Content-Range", f"bytes {first}-{len(data) - 1}/{len(data)}")
        handler.send_header("Content-Length", str(len(data) - first))
        handler.end_headers()
        handler.wfile.write(data[first : max(cut_at, first)])
        handler.close_connection = True
        return True

    def receive(misbehave: Misbehave | None) -> tuple[Receiver, int]:
        with serving(share, misbehave=misbehave) as server, bob.store.pending() as pending:
            remote = open_remote(server.url, cwd=share)
            receiver = Receiver(bob.store, bob.settings, remote, pending, SilentTask())
            try:
                receiver._need(Wanted(digest, "big", size=size))
            finally:
                remote.close()
            return receiver, server.sent

    with pytest.raises(RemoteFailed):
        receive(cut)
    receiver, sent = receive(None)
    assert receiver.counts.resumed == 1
    assert sent < size - 2 * kvz.FRAME_SIZE + 10_000
    assert receiver.counts.bytes == sent


def test_redirects_to_another_host_are_refused(alice: Person, bob: Person, share: Path) -> None:
    """And the login does not go there."""
    alice.deposit("demo")
    alice.push()

    with serving(share) as other:

        def redirect(handler: StaticHandler, path: str, data: bytes) -> bool:
            handler.send_response(302)
            handler.send_header("Location", f"{other.url}{path}")
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return True

        with serving(share, misbehave=redirect) as server:
            url = server.url.replace("http://", "http://me:secret@")
            with pytest.raises(RemoteFailed) as refused:
                bob.clone(url, alice)
        assert f"another host, {other.url}" in refused.value.message
        assert "secret" not in refused.value.message + (refused.value.hint or "")
        assert other.asked == []


def test_login_goes_to_its_host_only_and_redirects_there_work(
    alice: Person, bob: Person, share: Path
) -> None:
    alice.deposit("demo")
    alice.push()

    def move(handler: StaticHandler, path: str, data: bytes) -> bool:
        if handler.headers["Authorization"] != "Basic bWU6c2VjcmV0":
            handler.send_error(401)
            return True
        if not path.endswith("?moved"):
            handler.send_response(302)
            handler.send_header("Location", f"{path}?moved")
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return True
        return False

    with serving(share, misbehave=move) as server:
        with pytest.raises(RemoteFailed, match="401"):
            bob.clone(server.url, alice)
        bob.clone(server.url.replace("http://", "http://me:secret@"), alice)
        assert bob.store.ref("demo") is not None


def test_server_errors_are_the_remotes(alice: Person, bob: Person, share: Path) -> None:
    alice.deposit("demo")
    alice.push()

    def fail(handler: StaticHandler, path: str, data: bytes) -> bool:
        handler.send_error(503)
        return True

    with serving(share, misbehave=fail) as server, pytest.raises(RemoteFailed, match="503"):
        bob.clone(server.url, alice)
    with pytest.raises(RemoteFailed):
        bob.clone(server.url, alice)


@pytest.mark.parametrize("location", ["http://[::1", "/\u00e9", "/a b", "http://a..b/x", ""])
def test_redirects_to_no_address_are_the_remotes(
    bob: Person, share: Path, tmp_path: Path, location: str
) -> None:
    def redirect(handler: StaticHandler, path: str, data: bytes) -> bool:
        handler.send_response(302)
        handler.send_header("Location", location)
        handler.send_header("Content-Length", "0")
        handler.end_headers()
        return True

    open_remote(str(share), cwd=tmp_path).make()
    with (
        serving(share, misbehave=redirect) as server,
        pytest.raises(RemoteFailed, match="no address"),
    ):
        bob.clone(server.url)


def test_a_clone_is_never_named_by_a_login() -> None:
    from kvg.flow.clone import _name_of

    for url in ("https://bob:s3cret@h", "https://bob:s3cret@h/", "https://bob:s3cret@h:81"):
        assert _name_of(url) == "h"
    assert _name_of("https://bob:s3cret@h/team/") == "team"
    assert _name_of("s3://bucket") == "bucket"
    assert _name_of("/srv/kv/.kvg") == "kv"


@pytest.mark.parametrize("length", ["-1", "x", "1e3"])
def test_a_length_that_is_none_is_refused_at_once(share: Path, tmp_path: Path, length: str) -> None:
    """Where it was taken for no length at all, the end was waited for."""

    def lie(handler: StaticHandler, path: str, data: bytes) -> bool:
        handler.send_response(200)
        handler.send_header("Content-Length", length)
        handler.end_headers()
        handler.wfile.flush()
        handler.rfile.read(1)  # until the other side hangs up
        return True

    open_remote(str(share), cwd=tmp_path).make()
    with (
        serving(share, misbehave=lie) as server,
        pytest.raises(RemoteFailed, match="no length"),
    ):
        open_remote(server.url, cwd=tmp_path).check()
