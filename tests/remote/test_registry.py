"""Container registries: logins, tags, redirects, and stock clients."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from kvg.digest import sha256
from kvg.errors import Conflict, Corrupt, KvgError, NotFound, RemoteFailed, UsageError
from kvg.remote import Access, oci, open_remote, web
from kvg.remote.distribution import Registry, is_kin, parse_challenge
from kvg.remote.docker_login import login_for
from kvg.remote.registry import is_ref_tag, tag_of
from tests.remote.programs import PASSWORD, USER, Oci, registry


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oci]:
    with registry(tmp_path_factory.mktemp("registry"), login=True) as server:
        yield server


def test_blobs_and_manifests(guarded: Oci) -> None:
    place = Registry(guarded.url("team/kv"), guarded.access)
    assert place.tags() is None
    data = bytes(range(256)) * 9000
    digest = sha256(data)
    assert not place.has_blob(digest)
    place.put_blob(digest, [data[:7], data[7:]])
    assert place.has_blob(digest)
    for start in (0, 1, len(data) - 1, len(data), len(data) + 9):
        got = b"".join(place.blob(digest, start=start, limit=100))
        assert got == data[start : start + 100]
    with pytest.raises(NotFound):
        list(place.blob(sha256(b"none"), start=0, limit=1))
    with pytest.raises(RemoteFailed):
        place.put_blob(sha256(b"another"), [b"these bytes"])
    assert place.manifest("latest") is None


def test_without_the_login_it_is_refused_and_said_how(guarded: Oci) -> None:
    for access in (Access(), Access({"DOCKER_CONFIG": "/nonexistent"})):
        with pytest.raises(RemoteFailed) as told:
            open_remote(guarded.url("team/kv"), cwd=Path(), access=access).check()
        assert told.value.hint == f"docker login {guarded.host}"


def test_a_wrong_login_is_never_shown(guarded: Oci, tmp_path: Path) -> None:
    import base64

    auth = base64.b64encode(b"reader:wrong-secret").decode()
    (tmp_path / "config.json").write_text(json.dumps({"auths": {guarded.host: {"auth": auth}}}))
    access = Access({"DOCKER_CONFIG": str(tmp_path)})
    with pytest.raises(RemoteFailed) as told:
        open_remote(guarded.url("team/kv"), cwd=tmp_path, access=access).check()
    assert "wrong-secret" not in f"{told.value.message}{told.value.hint}" and auth not in repr(told)
    assert "wrong-secret" not in repr(login_for(guarded.host, access))


def test_logins_as_docker_has_them(guarded: Oci, tmp_path: Path, monkeypatch: object) -> None:
    found = login_for(guarded.host, guarded.access)
    assert found is not None and (found.user, found.password) == (USER, PASSWORD)
    assert login_for("other.example.org", guarded.access) is None
    program = tmp_path / "docker-credential-test"
    program.write_text(
        "#!/bin/sh\nread server\n"
        'test "$server" = known.example.org || exit 1\n'
        'echo \'{"Username": "me", "Secret": "of the helper"}\'\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (tmp_path / "config.json").write_text('{"credsStore": "test"}')
    access = Access({"DOCKER_CONFIG": str(tmp_path)})
    helped = login_for("known.example.org", access)
    assert helped is not None and helped.password == "of the helper"
    assert login_for("unknown.example.org", access) is None
    (tmp_path / "config.json").write_text('{"credHelpers": {"h": "absent"}}')
    with pytest.raises(RemoteFailed):
        login_for("h", access)
    (tmp_path / "config.json").write_text("no json")
    with pytest.raises(RemoteFailed):
        login_for("h", access)


@pytest.mark.parametrize(
    ("name", "tag"), [("demo", "demo"), ("docs/a.b/c", "docs..a.b..c"), ("a-b", "a-b")]
)
def test_tags_of_refs(name: str, tag: str) -> None:
    assert tag_of(name, "it") == tag and is_ref_tag(tag)


@pytest.mark.parametrize("name", ["x" * 129, "sha256-" + "0" * 64, "-a"])
def test_refs_that_can_be_no_tag(name: str) -> None:
    with pytest.raises(Conflict):
        tag_of(name, "it")


@pytest.mark.parametrize("name", ["../x", "A", "a//b", ".a"])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(Corrupt):
        tag_of(name, "it")


@pytest.mark.parametrize(
    "url", ["oci://", "oci://host", "oci://host/", "oci://me:pw@host/x", "oci://h/X", "oci://h/a?b"]
)
def test_addresses(url: str) -> None:
    with pytest.raises(UsageError) as told:
        open_remote(url, cwd=Path())
    assert "pw" not in told.value.message or "me:pw" not in told.value.message


@pytest.mark.parametrize(
    ("token_server", "place", "wanted"),
    [
        ("https://auth.docker.io", "https://registry-1.docker.io", True),
        ("https://ghcr.io", "https://ghcr.io", True),
        ("https://gitlab.com", "https://registry.gitlab.com", True),
        ("https://auth.example.org", "https://example.org", True),
        ("https://example.org:5001", "https://example.org:5000", True),
        ("http://127.0.0.1:5000", "http://127.0.0.1:5000", True),
        ("http://127.0.0.1:5001", "http://127.0.0.1:5000", False),
        ("http://example.org", "https://example.org", False),
        ("https://evil.org", "https://registry.example.org", False),
        ("https://evil.co.uk", "https://registry.victim.co.uk", False),
        ("https://evil.github.io", "https://victim.github.io", False),
        ("https://evildocker.io", "https://registry-1.docker.io", False),
        ("https://evil-gitlab.com", "https://gitlab.com", False),
        ("https://io", "https://docker.io", False),
        ("https://127.0.0.2", "https://127.0.0.1", False),
        ("https://localhost", "https://host", False),
    ],
)
def test_who_may_be_sent_the_login(token_server: str, place: str, wanted: bool) -> None:
    found = (web.target_of(url, base="") for url in (token_server, place))
    one, other = (target.host for target in found if target is not None)
    assert is_kin(one, other) is wanted


Handle = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def lying(handle: Handle) -> Iterator[tuple[str, list[tuple[str, str, dict[str, str]]]]]:
    """A server that answers as ``handle`` does; yields its address and what it was asked."""
    asked: list[tuple[str, str, dict[str, str]]] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked.append((self.command, self.path, dict(self.headers)))
            handle(self)

        do_HEAD = do_POST = do_PUT = do_GET

        def log_message(self, *args: object) -> None:
            return None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        server.server_close()


def answer(status: int, body: bytes = b"", **headers: str) -> Handle:
    def handle(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return handle


def config(folder: Path, host: str) -> Access:
    import base64

    auth = base64.b64encode(b"me:the-secret").decode()
    (folder / "config.json").write_text(json.dumps({"auths": {host: {"auth": auth}}}))
    return Access({"DOCKER_CONFIG": str(folder)})


def test_the_login_goes_to_no_other_host(tmp_path: Path) -> None:
    with lying(answer(200, b'{"token":"t"}')) as (other, stolen):
        realm = f'Bearer realm="http://localhost:{other.rpartition(":")[2]}/token",service="x"'
        with lying(answer(401, WWW_Authenticate=realm)) as (host, _):
            remote = open_remote(
                f"oci://{host}/team/kv", cwd=tmp_path, access=config(tmp_path, host)
            )
            with pytest.raises(RemoteFailed, match="another host") as told:
                remote.check()
        assert stolen == []
        assert "the-secret" not in f"{told.value.message}{told.value.hint}"


def test_a_blob_on_another_host_gets_no_login(tmp_path: Path) -> None:
    with lying(answer(206, b"data", Content_Range="bytes 0-3/4")) as (other, asked):

        def handle(handler: BaseHTTPRequestHandler) -> None:
            if "Authorization" not in handler.headers:
                answer(401, WWW_Authenticate='Basic realm="x"')(handler)
            else:
                answer(307, Location=f"http://{other}/blob?signature=x")(handler)

        with lying(handle) as (host, own):
            place = Registry(f"oci://{host}/team/kv", config(tmp_path, host))
            assert b"".join(place.blob(sha256(b"data"), start=0, limit=10)) == b"data"
    assert any("Authorization" in headers for *_, headers in own)
    assert [path for _, path, _ in asked] == ["/blob?signature=x"]
    assert not any("Authorization" in headers for *_, headers in asked)


def test_a_challenge_takes_no_more_than_its_length() -> None:
    """Tried from every letter, a name of a million takes an hour."""
    assert parse_challenge('Bearer realm="https://a/b?c",service="s, t", x="",y=z') == (
        "bearer",
        {"realm": "https://a/b?c", "service": "s, t", "x": ""},
    )
    code = "from kvg.remote.distribution import *; print(parse_challenge('Bearer ' + 'a' * 10**6))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.stdout == "('bearer', {})\n", done.stderr


LIES: dict[str, Handle] = {
    "no json": answer(200, b"<html>"),
    "duplicate keys": answer(200, b'{"tags":["a"],"tags":[]}'),
    "tags of another kind": answer(200, b'{"tags":[7]}'),
    "a server that fails": answer(500, b"oh"),
    "redirects in a circle": answer(307, Location="/v2/team/kv/tags/list"),
    "a challenge of no kind": answer(401, WWW_Authenticate="Strange x"),
    "a list without an end": answer(200, b'{"tags":["a"]}', Link='</v2/x?n=1>; rel="next"'),
    "cut": answer(200, b'{"tags":'),
}


@pytest.mark.parametrize("name", LIES)
def test_a_registry_that_lies(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvg.remote.distribution.MAX_PAGES", 5)
    with lying(LIES[name]) as (host, _):
        remote = open_remote(f"oci://{host}/team/kv", cwd=tmp_path)
        with pytest.raises(KvgError) as told:
            remote.check()
        assert told.value.code in (5, 9)


def test_a_manifest_that_is_another(tmp_path: Path) -> None:
    with lying(answer(200, b"{}")) as (host, _):
        place = Registry(f"oci://{host}/team/kv", Access())
        with pytest.raises(Corrupt):
            place.manifest(sha256(b"other"))


def test_an_upload_sent_to_another_host(tmp_path: Path) -> None:
    with (
        lying(answer(201)) as (other, asked),
        lying(answer(202, Location=f"http://{other}/upload")) as (host, _),
    ):
        place = Registry(f"oci://{host}/team/kv", Access())
        with pytest.raises(RemoteFailed, match="another host"):
            place.put_blob(sha256(b"x"), [b"x"])
    assert asked == []


def test_a_body_that_is_cut_is_no_body(tmp_path: Path) -> None:
    """A manifest cut short must not pass for another program's."""

    def handle(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "400")
        handler.end_headers()
        handler.wfile.write(b'{"schemaVersion":2,')
        handler.close_connection = True

    with lying(handle) as (host, _):
        remote = open_remote(f"oci://{host}/team/kv", cwd=tmp_path)
        with pytest.raises(RemoteFailed, match="promised"):
            remote.pointer("demo")
        with pytest.raises(RemoteFailed, match="promised"):
            list(Registry(f"oci://{host}/team/kv", Access()).blob(sha256(b""), start=0, limit=999))


@pytest.mark.parametrize(("refusals", "is_put"), [(0, True), (3, True), (4, False)])
def test_a_manifest_refused_while_another_uploads_the_same_blob(
    monkeypatch: pytest.MonkeyPatch, refusals: int, is_put: bool
) -> None:
    monkeypatch.setattr("kvg.remote.distribution.MANIFEST_PAUSES_S", (0.0, 0.0, 0.0))
    seen: list[str] = []

    def handle(handler: BaseHTTPRequestHandler) -> None:
        handler.rfile.read(int(handler.headers["Content-Length"]))
        seen.append(handler.path)
        answer(400 if len(seen) <= refusals else 201)(handler)

    with lying(handle) as (host, _):
        place = Registry(f"oci://{host}/team/kv", Access())
        if is_put:
            assert not place.put_manifest("tag", b"{}", "a/b")
        else:
            with pytest.raises(RemoteFailed, match="refused with 400"):
                place.put_manifest("tag", b"{}", "a/b")
    assert len(seen) == min(refusals + 1, 4)


NOWHERE = ("http://[::1", "/\u00e9", "/a b", "http://a..b/x", "")


@pytest.mark.parametrize("location", NOWHERE)
def test_answers_that_lead_nowhere(tmp_path: Path, location: str) -> None:
    """Where a blob is, where it goes, what a list goes on with, and who gives tokens."""
    with lying(answer(307, Location=location)) as (host, _):
        place = Registry(f"oci://{host}/team/kv", Access())
        with pytest.raises(RemoteFailed):
            list(place.blob(sha256(b"x"), start=0, limit=9))
    with lying(answer(202, Location=location)) as (host, _):
        place = Registry(f"oci://{host}/team/kv", Access())
        with pytest.raises(RemoteFailed):
            place.put_blob(sha256(b"x"), [b"x"])
    answers = [answer(401, WWW_Authenticate=f'Bearer realm="{location}"')]
    if location:
        answers.append(answer(200, b'{"tags":["a"]}', Link=f'<{location}>; rel="next"'))
    for handle in answers:
        with lying(handle) as (host, _), pytest.raises(RemoteFailed, match=r"nowhere|of nobody"):
            Registry(f"oci://{host}/team/kv", Access()).tags()


def test_tags_longer_than_any_are_refused(tmp_path: Path) -> None:
    body = json.dumps({"tags": ["a", "b" * 129]}).encode()
    with lying(answer(200, body)) as (host, _), pytest.raises(Corrupt, match="128 characters"):
        Registry(f"oci://{host}/team/kv", Access()).tags()


def test_tags_that_take_too_much_memory_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvg.remote.files.MAX_NAMES_BYTES", 10_000)
    numbers = iter(range(10**6))

    def handle(handler: BaseHTTPRequestHandler) -> None:
        more = {"Link": f'</v2/team/kv/tags/list?n=1&x={next(numbers)}>; rel="next"'}
        tags = [f"tag{next(numbers)}" for _ in range(10)]
        answer(200, json.dumps({"tags": tags}).encode(), **more)(handler)

    with lying(handle) as (host, asked), pytest.raises(Corrupt, match="without an end"):
        Registry(f"oci://{host}/team/kv", Access()).tags()
    assert 10 < len(asked) < 20


def test_manifests_that_take_too_much_memory_are_refused(
    guarded: Oci, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Registry(guarded.url("team/large"), guarded.access)
    place.put_blob(oci.describe(b"{}", oci.EMPTY).digest, [b"{}"])
    empty = oci.describe(b"{}", oci.EMPTY)
    for number in range(8):
        notes = tuple((f"note{number}.{i}", "x" * 100) for i in range(40))
        image = oci.Image(oci.ARTIFACT, empty, (empty,), None, notes)
        place.put_manifest(f"tag{number}", oci.encode_image(image), oci.IMAGE)

    def refs() -> tuple[str, ...]:
        remote = open_remote(guarded.url("team/large"), cwd=tmp_path, access=guarded.access)
        return remote.refs()

    assert len(refs()) == 8
    monkeypatch.setattr("kvg.remote.registry.MAX_KEPT_BYTES", 20_000)
    with pytest.raises(Corrupt, match="20,000 bytes"):
        refs()
