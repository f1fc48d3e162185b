"""The proxy that a web server or a registry is reached by, as curl and others are told of it.

    http_proxy, https_proxy, all_proxy    [http://][NAME:PASSWORD@]HOST[:PORT]; in capitals, too
    no_proxy                              hosts and domains that are reached without

This machine is never reached by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from kvg.errors import UsageError
from kvg.frozen import frozen
from kvg.remote.address import LOCAL, is_host

if TYPE_CHECKING:
    from kvg.remote.access import Access
    from kvg.remote.web import Host

PORT: Final = 80
BYPASS: Final = "no_proxy"


@frozen
class Proxy:
    """A proxy, reached over plain HTTP. ``headers`` are its login."""

    host: str
    port: int
    headers: Mapping[str, str]

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def proxy_for(host: Host, access: Access) -> Proxy | None:
    """The proxy by which ``host`` is reached; None for none. Raises ``UsageError``."""
    names = (f"{host.scheme}_proxy", "all_proxy")
    found = next(((name, url) for name in names if (url := _said(name, access))), None)
    if found is None or host.name in LOCAL or _is_bypassed(host, access):
        return None
    return _parsed(*found)


def _said(name: str, access: Access) -> str | None:
    return access.get(name) or access.get(name.upper())


def _is_bypassed(host: Host, access: Access) -> bool:
    """Whether ``no_proxy`` names the host, a domain that it is in, or everything."""
    said = (item.strip().lower().lstrip(".") for item in (_said(BYPASS, access) or "").split(","))
    names = (host.name, f"{host.name}:{host.port}")
    return any(
        item == "*" or any(name == item or name.endswith(f".{item}") for name in names)
        for item in said
        if item
    )


def _parsed(name: str, url: str) -> Proxy:
    """No error shows what ``url`` holds: a password, perhaps."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port, parts = "", None, None
    if parts is None or parts.scheme != "http" or not is_host(host):
        raise UsageError(
            f"{name}: not the address of a proxy that is spoken to over plain http",
            hint=f"{name}=http://HOST:PORT, or {BYPASS} for what is reached without",
        )
    return Proxy(host, port or PORT, _login(parts.username, parts.password))


def _login(user: str | None, password: str | None) -> Mapping[str, str]:
    if user is None:
        return {}
    from kvg.signing import base64

    pair = f"{unquote(user)}:{unquote(password or '')}"
    return {"Proxy-Authorization": f"Basic {base64.encode(pair.encode())}"}
