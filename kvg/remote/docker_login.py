"""Logins to container registries, as docker keeps them: ``config.json`` and its helpers.

https://docs.docker.com/reference/cli/docker/login/#credential-helper-protocol
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kvg import canon
from kvg.errors import Corrupt, RemoteFailed
from kvg.frozen import frozen
from kvg.signing import base64

if TYPE_CHECKING:
    from kvg.canon import Json
    from kvg.remote.access import Access

MAX_CONFIG_BYTES: Final = 1 << 20
HELPER_S: Final = 30.0
TOKEN_USER: Final = "<token>"


@frozen
class Login:
    """A name and its password."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"Login({self.user!r}, …)"

    @property
    def basic(self) -> str:
        """The value of an ``Authorization`` header."""
        pair = f"{self.user}:{self.password}".encode()
        return f"Basic {base64.encode(pair)}"


def login_for(server: str, access: Access) -> Login | None:
    """The login for ``server`` (host, and port where one is given); None where there is none.

    Raises ``RemoteFailed`` on a configuration that can't be read and a helper that fails.
    """
    path = config_path(access)
    config = {} if path is None else _read(path)
    helper = _helper(config, server)
    if helper is not None:
        return _ask(helper, server)
    auths = config.get("auths")
    for key, said in auths.items() if isinstance(auths, Mapping) else ():
        if _server_of(key) == server and isinstance(said, Mapping):
            return _parsed(said, f"{path}: {key}")
    return None


def config_path(access: Access) -> Path | None:
    """Where docker's configuration lies."""
    folder = access.get("DOCKER_CONFIG")
    if folder is not None:
        return Path(folder) / "config.json"
    return None if access.home is None else access.home / ".docker" / "config.json"


def _read(path: Path) -> Mapping[str, Json]:
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_CONFIG_BYTES)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise RemoteFailed(f"{path}: {(error.strerror or '').lower()}") from None
    try:
        found = canon.parse_json(data, what=str(path))
    except Corrupt as error:
        raise RemoteFailed(error.message, hint="docker login writes it anew") from None
    return found if isinstance(found, Mapping) else {}


def _server_of(key: str) -> str:
    """The server that an entry is about; old ones are whole addresses."""
    return key.removeprefix("https://").removeprefix("http://").partition("/")[0]


def _helper(config: Mapping[str, Json], server: str) -> str | None:
    helpers = config.get("credHelpers")
    own = helpers.get(server) if isinstance(helpers, Mapping) else None
    found = own if isinstance(own, str) else config.get("credsStore")
    return found if isinstance(found, str) and re.fullmatch(r"[A-Za-z0-9._-]+", found) else None


def _ask(helper: str, server: str) -> Login | None:
    program = f"docker-credential-{helper}"
    try:
        done = subprocess.run(
            [program, "get"],
            input=server.encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=HELPER_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        raise RemoteFailed(f"{program}: does not run", hint=f"docker login {server}") from None
    if done.returncode:
        return None  # it has none
    try:
        found = canon.parse_json(done.stdout[:MAX_CONFIG_BYTES], what=program)
    except Corrupt:
        raise RemoteFailed(f"{program}: answers what is no login") from None
    user, secret = (
        found.get(key) if isinstance(found, Mapping) else None for key in ("Username", "Secret")
    )
    if not isinstance(user, str) or not isinstance(secret, str):
        raise RemoteFailed(f"{program}: answers what is no login")
    return _usable(Login(user, secret), server)


def _parsed(said: Mapping[str, Json], what: str) -> Login | None:
    auth = said.get("auth")
    if not isinstance(auth, str) or not auth:
        return None
    try:
        user, mark, password = base64.decode(auth, what=what).decode("utf-8").partition(":")
    except (Corrupt, UnicodeDecodeError):
        raise RemoteFailed(f"{what}: no login", hint="docker login writes it anew") from None
    return _usable(Login(user, password), what) if mark else None


def _usable(login: Login, what: str) -> Login:
    if login.user == TOKEN_USER:
        raise RemoteFailed(f"{what}: an identity token, which kvg can't use", hint="docker login")
    return login
