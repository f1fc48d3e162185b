"""S3: parts, conditions, logins as the AWS tools have them."""

from __future__ import annotations

import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from kvg.digest import sha256, shake256
from kvg.errors import Incompatible, NotFound, RemoteFailed, UsageError
from kvg.remote import Access, Pointer, open_remote
from kvg.remote.aws import settings_of
from kvg.remote.layout import object_name
from kvg.remote.s3 import MARKER, PART_BYTES, S3Files, _Translated
from tests.remote.conftest import write_object
from tests.remote.programs import S3, rclone


@pytest.fixture(scope="module")
def lax(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    folder = tmp_path_factory.mktemp("rclone")
    for bucket in ("parts", "lax"):
        (folder / "data" / bucket).mkdir(parents=True)
    with rclone(folder) as server:
        yield server


@pytest.fixture
def strict(s3_server: S3) -> tuple[S3, str]:
    return s3_server, s3_server.bucket(f"kvg-{uuid.uuid4().hex}")


def large() -> bytes:
    return shake256(b"large", 2 * PART_BYTES + 12_345)


def test_large_objects_go_up_in_parts(lax: S3, tmp_path: Path) -> None:
    import obstore

    store = lax.raw("s3://parts")
    files = S3Files("s3://parts/team", lax.access)
    data = large()
    name = object_name(sha256(data))
    files.write(name, [data[:5], data[5:PART_BYTES], data[PART_BYTES:]])
    assert obstore.get(store, f"team/{name}").bytes().to_bytes() == data
    assert (
        b"".join(files.stream(name, start=PART_BYTES - 1, limit=3))
        == (data[PART_BYTES - 1 : PART_BYTES + 2])
    )


def test_parts_on_a_server_with_conditions(strict: tuple[S3, str]) -> None:
    server, bucket = strict
    files, data = S3Files(f"{bucket}/team", server.access), large()
    name = object_name(sha256(data))
    files.write(name, [data])
    assert b"".join(files.stream(name, start=0, limit=len(data) + 1)) == data
    import obstore

    tag = obstore.head(server.raw(bucket), f"team/{name}")["e_tag"]
    assert tag.strip('"').endswith("-3"), tag  # the mark of three parts


def test_a_store_that_heeds_no_conditions_is_not_written_to(lax: S3) -> None:
    remote = open_remote("s3://lax/team", cwd=Path(), access=lax.access)
    with pytest.raises(Incompatible, match="If-None-Match"):
        remote.move("a", Pointer("kvg-1", 1), expect=None)
    assert remote.pointer("a") is None


def test_a_ref_that_was_taken_off_is_not_there(strict: tuple[S3, str]) -> None:
    server, bucket = strict
    remote = open_remote(f"{bucket}/team", cwd=Path(), access=server.access)
    one = Pointer("kvg-1", 1)
    remote.move("a", one, expect=None)
    remote.move("a", None, expect=one)
    assert S3Files(f"{bucket}/team", server.access).read("refs/a", 100) is None
    assert remote.refs() == () and remote.pointer("a") is None
    remote.move("a", one, expect=None)
    assert remote.refs() == ("a",)
    assert len(MARKER) < 40


def test_empty_files(strict: tuple[S3, str]) -> None:
    server, bucket = strict
    files = S3Files(f"{bucket}/team", server.access)
    write_object(server, bucket)("keys/x", b"")
    assert files.read("keys/x", 10) == b""
    assert files.head("keys/x", 10) is not None
    assert list(files.stream("keys/x", start=0, limit=10)) == []
    files.swap("keys/x", b"new", expect=b"")
    assert files.read("keys/x", 10) == b"new"


def test_wrong_logins_and_places_are_told_without_the_secret(strict: tuple[S3, str]) -> None:
    server, bucket = strict
    files = S3Files("s3://no-such-bucket-here/x", server.access)
    with pytest.raises(NotFound, match="no such bucket") as told:
        files.write("format", [b"x"])
    nobody = Access({**server.access.variables, "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9"})
    gone = S3Files(bucket, nobody)
    with pytest.raises(RemoteFailed) as lost:
        gone.read("format", 10)
    for error in (told.value, lost.value):
        assert "test-secret" not in f"{error.message} {error.hint}"


def test_no_login_at_all_is_told_as_such() -> None:
    """Then obstore asks the machine's provider for one, and tells of that."""
    from obstore.exceptions import GenericError

    said = "Generic S3 error: Error performing PUT http://169.254.169.254/latest/api/token in 1ms"
    with pytest.raises(RemoteFailed, match="no credentials") as told, _Translated("s3://b/x", ()):
        raise GenericError(said)
    assert told.value.hint is not None and "AWS_ACCESS_KEY_ID" in told.value.hint


@pytest.mark.parametrize("url", ["s3://", "s3://u:p@bucket/x", "s3://b/x?y", "s3://b/x#y"])
def test_addresses(url: str) -> None:
    with pytest.raises(UsageError):
        open_remote(url, cwd=Path())


def test_logins_as_the_aws_tools_have_them(tmp_path: Path) -> None:
    folder = tmp_path / ".aws"
    folder.mkdir()
    (folder / "credentials").write_text(
        "[default]\naws_access_key_id = one\naws_secret_access_key = s1\n"
        "[team]\naws_access_key_id = two\naws_secret_access_key = s2\naws_session_token = t\n"
    )
    (folder / "config").write_text(
        "[default]\nregion = eu-north-1\n"
        "[profile team]\nregion = us-west-2\nendpoint_url = https://s3.example.org\n"
    )
    assert settings_of(Access({}, tmp_path)) == {
        "access_key_id": "one",
        "secret_access_key": "s1",
        "region": "eu-north-1",
    }
    assert settings_of(Access({"AWS_PROFILE": "team"}, tmp_path)) == {
        "access_key_id": "two",
        "secret_access_key": "s2",
        "session_token": "t",
        "region": "us-west-2",
        "endpoint": "https://s3.example.org",
    }
    own = {"AWS_ACCESS_KEY_ID": "three", "AWS_SECRET_ACCESS_KEY": "s3", "AWS_REGION": "here"}
    assert settings_of(Access({**own, "AWS_PROFILE": "team"}, tmp_path)) == {
        "access_key_id": "three",
        "secret_access_key": "s3",
        "region": "here",
        "endpoint": "https://s3.example.org",
    }
    with pytest.raises(UsageError):
        settings_of(Access({"AWS_PROFILE": "nobody"}, tmp_path))
    assert settings_of(Access()) == {}


CONFIG = """[profile program]
region = here
credential_process = {python} -c "print('{said}')"
[profile role]
role_arn = arn:aws:iam::1:role/x
source_profile = base
[profile sso]
sso_session = x
[profile served]
aws_access_key_id = own
aws_secret_access_key = s
endpoint_url = https://all.example.org
services = mine
[services mine]
ec2 =
  endpoint_url = https://ec2.example.org
s3 =
  endpoint_url = https://s3.example.org
"""
GIVEN = '{"Version": 1, "AccessKeyId": "two", "SecretAccessKey": "s2", "SessionToken": "t"}'


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / ".aws").mkdir()
    return tmp_path


def said_by(home: Path, profile: str, said: str = GIVEN, **more: str) -> dict[str, str]:
    text = CONFIG.format(python=sys.executable, said=said.replace('"', '\\"'))
    (home / ".aws" / "config").write_text(text)
    return settings_of(Access({"AWS_PROFILE": profile, **more}, home))


def test_a_profile_s_program_gives_the_login(home: Path) -> None:
    login = {"access_key_id": "two", "secret_access_key": "s2", "session_token": "t"}
    assert said_by(home, "program") == {"region": "here", **login}
    own = {"AWS_ACCESS_KEY_ID": "three", "AWS_SECRET_ACCESS_KEY": "s3"}
    assert said_by(home, "program", **own)["access_key_id"] == "three"
    for nothing in ("no json s3cret", '{"Version": 2, "AccessKeyId": "s3cret"}', "[]"):
        with pytest.raises(RemoteFailed, match="credential_process") as told:
            said_by(home, "program", nothing)
        assert "s3cret" not in told.value.message


def test_a_service_has_an_endpoint_of_its_own(home: Path) -> None:
    assert said_by(home, "served")["endpoint"] == "https://s3.example.org"
    own = {"AWS_ENDPOINT_URL_S3": "https://own.example.org"}
    assert said_by(home, "served", **own)["endpoint"] == "https://own.example.org"
    assert "endpoint" not in said_by(home, "served", AWS_IGNORE_CONFIGURED_ENDPOINT_URLS="true")


@pytest.mark.parametrize(("profile", "key"), [("role", "role_arn"), ("sso", "sso_session")])
def test_a_login_that_only_the_aws_tools_can_have_is_refused_by_name(
    home: Path, profile: str, key: str
) -> None:
    """No other login is taken in its place, as a machine's own would be."""
    with pytest.raises(UsageError, match=key) as told:
        said_by(home, profile)
    assert "export-credentials" in str(told.value.hint)
    own = {"AWS_ACCESS_KEY_ID": "three", "AWS_SECRET_ACCESS_KEY": "s3"}
    assert said_by(home, profile, **own)["access_key_id"] == "three"


@pytest.mark.parametrize(
    "said",
    [
        {"AWS_ENDPOINT_URL_S3": "http://[::1"},
        {"AWS_ENDPOINT_URL_S3": "http://\u00e9/x"},
        {"AWS_ENDPOINT_URL_S3": "nonsense"},
        {"AWS_ENDPOINT_URL": "ftp://h"},
        {"AWS_SECRET_ACCESS_KEY": "s3cret\n"},
        {"AWS_ACCESS_KEY_ID": "\u00e9"},
    ],
)
def test_settings_that_are_none(said: dict[str, str]) -> None:
    """The library panics at them, which is no exception of Python's."""
    own = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "us-east-1"}
    with pytest.raises(UsageError) as told:
        open_remote("s3://bucket/x", cwd=Path(), access=Access({**own, **said}))
    assert "s3cret" not in told.value.message + str(told.value.hint)


@contextmanager
def answering(
    location: str | None,
    asked: list[str],
    *,
    host: str = "127.0.0.1",
    the_login_alone: bool = False,
) -> Iterator[str]:
    """A server that notes what it is asked, and sends everybody to ``location``."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(f"{self.path} {dict(self.headers)}")
            is_sent = location is not None
            if the_login_alone:
                is_sent = "Authorization" in self.headers
            self.send_response(307 if is_sent else 404)
            if is_sent and location is not None:
                self.send_header("Location", location + self.path)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_PUT = do_GET

        def log_message(self, *_: object) -> None:
            return None

    server = ThreadingHTTPServer((host, 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://{host}:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("the_login_alone", [False, True])
def test_an_endpoint_that_sends_elsewhere_is_refused_and_nobody_learns_the_login(
    the_login_alone: bool,
) -> None:
    """Also one that sends nobody elsewhere but who comes with a login."""
    here: list[str] = []
    there: list[str] = []
    with (
        answering(None, there, host="127.0.0.2") as other,
        answering(other, here, the_login_alone=the_login_alone) as endpoint,
    ):
        access = Access(
            {
                "AWS_ENDPOINT_URL_S3": endpoint,
                "AWS_ACCESS_KEY_ID": "someone",
                "AWS_SECRET_ACCESS_KEY": "hidden",
                "AWS_SESSION_TOKEN": "token-of-mine",
                "AWS_REGION": "here",
            }
        )
        files = S3Files("s3://bucket/team", access)
        for ask in (lambda: files.read("format", 100), lambda: files.write("x", [b"1"])):
            with pytest.raises(RemoteFailed, match="redirects to another host") as told:
                ask()
            assert "AWS_ENDPOINT_URL_S3" in (told.value.hint or "")
    assert there == [] and here
    assert any("token-of-mine" in item for item in here) is the_login_alone
