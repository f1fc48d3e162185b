"""Proxies, as other tools are told of them; and logins that would go out for all to read."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from kvg.errors import KvgError, RemoteFailed, UsageError
from kvg.remote import Access, open_remote
from kvg.remote.proxies import Proxy, proxy_for
from kvg.remote.web import Host
from tests.remote.servers import StaticHandler, serving

FAR = Host("https", "kv.example.org", 443)


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({}, None),
        ({"https_proxy": "http://p:3128"}, "p:3128"),
        ({"HTTPS_PROXY": "p"}, "p:80"),
        ({"http_proxy": "http://p"}, None),
        ({"ALL_PROXY": "http://p:1/"}, "p:1"),
        ({"https_proxy": "p", "no_proxy": "other.org, .example.org"}, None),
        ({"https_proxy": "p", "NO_PROXY": "kv.example.org:443"}, None),
        ({"https_proxy": "p", "no_proxy": "*"}, None),
        ({"https_proxy": "p", "no_proxy": "example.net,v.example.org,"}, "p:80"),
    ],
)
def test_which_proxy(variables: dict[str, str], found: str | None) -> None:
    told = proxy_for(FAR, Access(variables))
    assert (None if told is None else str(told)) == found


def test_this_machine_is_reached_by_none() -> None:
    assert proxy_for(Host("http", "127.0.0.1", 80), Access({"http_proxy": "p"})) is None


@pytest.mark.parametrize("url", ["socks5://me:s3cret@p:1", "https://p", "http://", "http://p:x"])
def test_what_is_no_proxy_is_refused_unseen(url: str) -> None:
    with pytest.raises(UsageError) as told:
        proxy_for(FAR, Access({"https_proxy": url}))
    assert "s3cret" not in f"{told.value.message}{told.value.hint}"


def test_a_proxy_s_login() -> None:
    found = proxy_for(FAR, Access({"https_proxy": "http://me:p%40w@p:1"}))
    assert found == Proxy("p", 1, {"Proxy-Authorization": "Basic bWU6cEB3"})


def test_http_goes_by_the_proxy(tmp_path: Path) -> None:
    writer = open_remote(str(tmp_path / "share"), cwd=tmp_path)
    writer.make()

    def fetch_it(handler: StaticHandler) -> None:
        start = "http://kv.example.invalid/team/"
        assert handler.path.startswith(start)
        handler.path = "/" + handler.path.removeprefix(start)
        StaticHandler._answer(handler, is_head=False)

    with serving(tmp_path / "share") as proxy:
        proxy.RequestHandlerClass.func.do_GET = fetch_it  # type: ignore[attr-defined]
        access = Access({"http_proxy": proxy.url.replace("http://", "http://me:pw@")})
        remote = open_remote("http://kv.example.invalid/team", cwd=tmp_path, access=access)
        remote.check()
        remote.close()
    ((_, path, headers), *_) = proxy.asked
    assert path == "/format" and headers["Host"] == "kv.example.invalid"
    assert headers["Proxy-Authorization"] == "Basic bWU6cHc="


@pytest.mark.parametrize("url", ["https://kv.example.invalid/team", "oci://kv.example.invalid/x"])
def test_https_goes_through_a_tunnel(url: str, tmp_path: Path) -> None:
    said: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def refuse() -> None:
            one, _ = server.accept()
            with one:
                said.append(one.recv(1 << 16))
                one.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")

        for _ in range(3):
            threading.Thread(target=refuse, daemon=True).start()
        at = f"127.0.0.1:{server.getsockname()[1]}"
        remote = open_remote(url, cwd=tmp_path, access=Access({"https_proxy": at}))
        with pytest.raises(RemoteFailed, match=f"403 .*by the proxy {at}"):
            remote.check()
    assert said[0].startswith(b"CONNECT kv.example.invalid:443 HTTP/1.")


@pytest.mark.parametrize("host", ["example.org", "10.0.0.1", "localhost.example.org"])
def test_a_login_is_not_sent_for_all_to_read(host: str, tmp_path: Path) -> None:
    with pytest.raises(KvgError) as told:
        open_remote(f"http://alice:s3cret@{host}/x", cwd=tmp_path)
    assert told.value.code == 2 and "https://" in (told.value.hint or "")
    assert "s3cret" not in told.value.message
    open_remote("http://alice:s3cret@127.0.0.1/x", cwd=tmp_path)
    open_remote(f"https://alice:s3cret@{host}/x", cwd=tmp_path)
