"""Where S3 is and who one is there, said as to the AWS tools: variables, else ``~/.aws``.

https://docs.aws.amazon.com/sdkref/latest/guide/file-format.html
"""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kvg.errors import RemoteFailed, UsageError

if TYPE_CHECKING:
    from kvg.remote.access import Access

_VARIABLES: Final = {
    "access_key_id": ("AWS_ACCESS_KEY_ID",),
    "secret_access_key": ("AWS_SECRET_ACCESS_KEY",),
    "session_token": ("AWS_SESSION_TOKEN",),
    "region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
    "endpoint": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    "web_identity_token_file": ("AWS_WEB_IDENTITY_TOKEN_FILE",),
    "role_arn": ("AWS_ROLE_ARN",),
    "role_session_name": ("AWS_ROLE_SESSION_NAME",),
    "container_credentials_relative_uri": ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",),
    "container_credentials_full_uri": ("AWS_CONTAINER_CREDENTIALS_FULL_URI",),
    "container_authorization_token_file": ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",),
    "skip_signature": ("AWS_SKIP_SIGNATURE",),
}
_ENDPOINT: Final = "endpoint_url"
_IN_FILES: Final = {
    "access_key_id": "aws_access_key_id",
    "secret_access_key": "aws_secret_access_key",
    "session_token": "aws_session_token",
    "region": "region",
    "endpoint": _ENDPOINT,
}
_LOGIN: Final = ("access_key_id", "secret_access_key", "session_token")
_SAID: Final = {
    "access_key_id": "AccessKeyId",
    "secret_access_key": "SecretAccessKey",
    "session_token": "SessionToken",
}
_FOLLOWED_ELSEWHERE: Final = (
    "role_arn",
    "source_profile",
    "credential_source",
    "web_identity_token_file",
    "sso_session",
    "sso_start_url",
    "login_session",
)
PROCESS_S: Final = 60.0
MAX_SAID_BYTES: Final = 1 << 20


def settings_of(access: Access) -> dict[str, str]:
    """What is known of S3, under the names that obstore has for it.

    A login comes whole from one place: the variables, or the profile. Raises ``UsageError`` on a
    profile that is named and not there or needs the AWS tools themselves, and on files that can't
    be read; ``RemoteFailed`` where a profile's program gives no login.
    """
    found = {
        name: value
        for name, variables in _VARIABLES.items()
        if (value := _first(access, variables)) is not None
    }
    files = _Files(access)
    profile = files.profile()
    has_login = any(
        name in found for name in ("access_key_id", "web_identity_token_file", "skip_signature")
    )
    for name, key in _IN_FILES.items():
        if key in profile and not (has_login and name in _LOGIN):
            found.setdefault(name, profile[key])
    own = files.service_endpoint(profile)
    if own is not None and access.get("AWS_ENDPOINT_URL_S3") is None:
        found["endpoint"] = own  # that of a service goes before that of all
    if access.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS") == "true":
        found.pop("endpoint", None)
    if not has_login and "access_key_id" not in found:
        found.update(_by_other_ways(profile))
    return found


def _by_other_ways(profile: Mapping[str, str]) -> dict[str, str]:
    """The login of a profile that holds none itself. Raises ``UsageError`` for what only the AWS
    tools can follow: another's login is never taken in its place."""
    program = profile.get("credential_process")
    if program is not None:
        return _ask(program)
    for key in _FOLLOWED_ELSEWHERE:
        if key in profile:
            raise UsageError(
                f"s3: the profile has its login by {key}, which the AWS tools follow",
                hint='eval "$(aws configure export-credentials --format env)", then again',
            )
    return {}


def _ask(program: str) -> dict[str, str]:
    """What the ``credential_process`` of a profile says. Raises ``RemoteFailed``; no error shows
    what it said."""
    try:
        done = subprocess.run(
            shlex.split(program),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            timeout=PROCESS_S,
            check=False,
        )
        said = json.loads(done.stdout[:MAX_SAID_BYTES]) if done.returncode == 0 else None
    except (OSError, ValueError, RecursionError, subprocess.TimeoutExpired):
        said = None
    found = said if isinstance(said, dict) and said.get("Version") == 1 else {}
    keys = {name: found.get(key) for name, key in _SAID.items()}
    login = {name: value for name, value in keys.items() if isinstance(value, str) and value}
    if not {"access_key_id", "secret_access_key"} <= login.keys():
        raise RemoteFailed("s3: the profile's credential_process gave no login", hint=program)
    return login


def _first(access: Access, variables: tuple[str, ...]) -> str | None:
    return next((value for name in variables if (value := access.get(name))), None)


class _Files:
    """The files that the AWS tools keep profiles in."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def profile(self) -> Mapping[str, str]:
        """What they say of the profile in force. Raises ``UsageError`` on one that is not there."""
        name = self._access.get("AWS_PROFILE") or self._access.get("AWS_DEFAULT_PROFILE")
        section = name or "default"
        in_config = section if section == "default" else f"profile {section}"
        parts = [
            _section(self._path("AWS_CONFIG_FILE", "config"), in_config),
            _section(self._path("AWS_SHARED_CREDENTIALS_FILE", "credentials"), section),
        ]
        found = [part for part in parts if part is not None]
        if name is not None and not found:
            raise UsageError(
                f"AWS_PROFILE={name}: no such profile", hint="aws configure list-profiles"
            )
        return {key: value for part in found for key, value in part.items()}

    def service_endpoint(self, profile: Mapping[str, str]) -> str | None:
        """The endpoint of S3 in the section ``services`` that a profile names."""
        name = profile.get("services")
        path = self._path("AWS_CONFIG_FILE", "config")
        said = None if name is None else _section(path, f"services {name}")
        lines = (said or {}).get("s3", "").splitlines()
        parts = (line.partition("=") for line in lines)
        return next((value.strip() for key, _, value in parts if key.strip() == _ENDPOINT), None)

    def _path(self, variable: str, file: str) -> Path | None:
        own = self._access.get(variable)
        if own:
            return Path(own).expanduser()
        return None if self._access.home is None else self._access.home / ".aws" / file


def _section(path: Path | None, section: str) -> Mapping[str, str] | None:
    if path is None or not path.is_file():
        return None
    import configparser

    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, configparser.Error):
        raise UsageError(f"{path}: can't be read", hint="aws configure") from None
    return dict(parser.items(section)) if parser.has_section(section) else None
