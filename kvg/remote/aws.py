"""Where S3 is and who one is there, said as to the AWS tools: variables, else ``~/.aws``.

https://docs.aws.amazon.com/sdkref/latest/guide/file-format.html
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kvg.errors import UsageError

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
_IN_FILES: Final = {
    "access_key_id": "aws_access_key_id",
    "secret_access_key": "aws_secret_access_key",
    "session_token": "aws_session_token",
    "region": "region",
    "endpoint": "endpoint_url",
}
_LOGIN: Final = ("access_key_id", "secret_access_key", "session_token")


def settings_of(access: Access) -> dict[str, str]:
    """What is known of S3, under the names that obstore has for it.

    A login comes whole from one place: the variables, or the profile. Raises ``UsageError`` on a
    profile that is named and not there, and on files that can't be read.
    """
    found = {
        name: value
        for name, variables in _VARIABLES.items()
        if (value := _first(access, variables)) is not None
    }
    profile = _profile(access)
    has_login = any(
        name in found for name in ("access_key_id", "web_identity_token_file", "skip_signature")
    )
    for name, key in _IN_FILES.items():
        if key in profile and not (has_login and name in _LOGIN):
            found.setdefault(name, profile[key])
    return found


def _first(access: Access, variables: tuple[str, ...]) -> str | None:
    return next((value for name in variables if (value := access.get(name))), None)


def _profile(access: Access) -> Mapping[str, str]:
    """What the files say of the profile in force."""
    name = access.get("AWS_PROFILE") or access.get("AWS_DEFAULT_PROFILE")
    folder = None if access.home is None else access.home / ".aws"
    merged: dict[str, str] = {}
    is_there = False
    for variable, file, prefix in (
        ("AWS_CONFIG_FILE", "config", "profile "),
        ("AWS_SHARED_CREDENTIALS_FILE", "credentials", ""),
    ):
        own = access.get(variable)
        path = Path(own).expanduser() if own else folder and folder / file
        section = name or "default"
        if prefix and section != "default":
            section = prefix + section
        part = _section(path, section) if path else None
        is_there = is_there or part is not None
        merged.update(part or {})
    if name is not None and not is_there:
        raise UsageError(f"AWS_PROFILE={name}: no such profile", hint="aws configure list-profiles")
    return merged


def _section(path: Path, section: str) -> Mapping[str, str] | None:
    if not path.is_file():
        return None
    import configparser

    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, configparser.Error):
        raise UsageError(f"{path}: can't be read", hint="aws configure") from None
    return dict(parser.items(section)) if parser.has_section(section) else None
