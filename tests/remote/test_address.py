"""Addresses: what each is taken for, what is none, and what is never shown of one."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvg.errors import UsageError
from kvg.remote import Access, open_remote
from kvg.remote.address import Address, check_address, parse_address, shown
from kvg.remote.web import Host, Target, target_of

GOOD = {
    "../share": Address("", "../share"),
    "/srv/a:b@c?d": Address("", "/srv/a:b@c?d"),
    "./a:b": Address("", "./a:b"),
    "file:///srv/kv": Address("file", "/srv/kv"),
    "file://localhost/srv/kv": Address("file", "/srv/kv"),
    "file:///srv/a%20b%3Fc": Address("file", "/srv/a b?c"),
    "https://h": Address("https", "", "h"),
    "HTTPS://H/x/": Address("https", "/x", "h"),
    "https://u:p%2Fw@h:81/x": Address("https", "/x", "h", 81, "u", "p/w"),
    "https://u@h/%C3%A9": Address("https", "/%C3%A9", "h", None, "u"),
    "https://[::1]:8080/x": Address("https", "/x", "::1", 8080),
    "https://xn--9ca.example./x": Address("https", "/x", "xn--9ca.example."),
    "ssh://kv@h:22/srv/\u00e9 a": Address("ssh", "/srv/\u00e9 a", "h", 22, "kv"),
    "ssh://h/~/kv": Address("ssh", "/~/kv", "h"),
    "s3://bucket": Address("s3", "", "bucket"),
    "s3://buc.ket-1/a@b/\u00e9/": Address("s3", "a@b/\u00e9", "buc.ket-1"),
    "oci://127.0.0.1:5000/team/kv": Address("oci", "team/kv", "127.0.0.1", 5000),
    "oci+http://h/kv": Address("oci+http", "kv", "h"),
}


@pytest.mark.parametrize("url", GOOD)
def test_what_an_address_says(url: str) -> None:
    assert parse_address(url) == GOOD[url]


TAKEN_FOR_ELSE = [
    *("https:/host/x", "https:host", "http:///x", "ssh:/host/x", "s3:bucket", "file:x"),
    *("git@host:/path", "host:path", "a:b", " https://h/x", "file://srv/x", "file://"),
    *("s3://BUCKET/x", "s3://b//x", "s3://bucket/a//b"),
]
"""What looks like an address of one kind and would be of another, or another place."""

MALFORMED = [
    *("http://[::1/x", "https://[::1/x", "s3://[::1/x", "oci://[::1/x", "ssh://[::1/x"),
    *(
        "https://h/\u00e9",
        "http://h\u00e9/x",
        "http://h \u00e9/x",
        "https://h/a b",
        "https://h/<x>",
    ),
    *(
        "http://a..b/x",
        "ssh://a..b/x",
        "oci://a..b/x",
        "http://-h/x",
        "http://[x]/y",
    ),
    *("https://h:0/x", "https://h:65536/x", "https://h:x/x", "https://h:\uff11/x"),
    *("https://h/../x", "https://h/a/./b", "https://h/%2e%2e/x", "https://h/a//b", "https://h\\x"),
    *("s3://bucket/../x", "s3://bucket/.", "s3://ab/x", "s3://-bucket/x", "s3://bucket/x?y"),
    *("ssh://h", "ssh://h/", "ssh://h/a%00b", "ssh://h/a%0ab", "ssh://-l@h/x", "ssh://%2dl@h/x"),
    *("ssh://@h/x", "oci://h", "oci://h/A", "oci://h/a/../b", "oci://u@h/a", "oci://h/a:tag"),
    *("file:///a%00b", "file:///", "file:///a?b", "file:///a#b", "ftp://h/x", "https://h/x\x1b"),
    f"http://{'a' * 64}/x",
    f"http://{'a.' * 127}/x",
]


@pytest.mark.parametrize("url", [*TAKEN_FOR_ELSE, *MALFORMED])
def test_what_is_no_address_is_refused_with_the_form_of_one(url: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as told:
        open_remote(url, cwd=tmp_path)
    assert told.value.hint and told.value.message.isprintable()


SECRET = "s3cret"
WITH_LOGINS = [
    *(
        f"{kind}://bob:{SECRET}@h/x"
        for kind in ("https", "http", "ssh", "oci", "s3", "ftp", "file")
    ),
    *(f"https://bob:s3c/{SECRET}@h/x", f"https://bob:12/{SECRET}@h/x", f"https://{SECRET}@/x?y=1"),
    *(f"https://h/x?token={SECRET}", f"https://h/x#{SECRET}", f"https://bob:?{SECRET}@h/x"),
    *(f"https://bob:{SECRET}@h/x\x07", f"https:/bob:{SECRET}@h/x", f"https:bob:{SECRET}@h/x"),
    *(f"bob:{SECRET}@h:/x", f"s3://AKIA:{SECRET}@bucket/x", f"s3://AKIA:a/{SECRET}@bucket/x"),
    *(f"https://h/x?a=b@{SECRET}", f"https://bob:{SECRET}@h:x/x", f"https://bob:#{SECRET}@h/x"),
    *(f"https://a@b:{SECRET}@h/x", f"https://bob:{SECRET}@[::1/x", f"oci://h/x?{SECRET}"),
]


@pytest.mark.parametrize("url", WITH_LOGINS)
def test_a_login_is_never_shown(url: str, tmp_path: Path) -> None:
    assert SECRET not in shown(url)
    try:
        remote = open_remote(url, cwd=tmp_path)
    except UsageError as error:
        assert SECRET not in error.message + str(error.hint)
    else:
        assert SECRET not in remote.url
        remote.close()


def test_what_holds_no_login_is_shown_as_it_is() -> None:
    for url in ("/srv/a@b", "../x@y/z?", "https://h:81/x", "s3://bucket/a@b", "file:///a@b"):
        assert shown(url) == url
    assert shown("https://bob:pw@h/x") == "https://h/x"


@pytest.mark.parametrize("text", ["'x", " ", '"'])
def test_an_ssh_command_that_is_none(text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="KVG_SSH_COMMAND"):
        open_remote("ssh://h/x", cwd=tmp_path, access=Access({"KVG_SSH_COMMAND": text}))


def test_where_answers_lead() -> None:
    host, base = Host("http", "h", 80), "http://h/a/b"
    assert target_of("/c?d", base=base) == Target(host, "/c?d")
    assert target_of("c", base=base) == Target(host, "/a/c")
    assert target_of("https://[::1]:8/x", base=base) == Target(Host("https", "::1", 8), "/x")
    for nowhere in ("http://[::1", "/\u00e9", "/a b", "/a\r\nb", "http://a..b/x", "ftp://h/x"):
        assert target_of(nowhere, base=base) is None
    for nowhere in ("http://h:99999/x", "http://h:x/x", "//a..b/x", "file:///etc"):
        assert target_of(nowhere, base=base) is None


def test_an_empty_address() -> None:
    with pytest.raises(UsageError, match="''"):
        check_address("")
