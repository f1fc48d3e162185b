"""What remotes may know of the user's surroundings: variables and the home folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Final

from kvg.frozen import frozen

PROXIES: Final = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
VARIABLES: Final = (
    "DOCKER_CONFIG",
    "KVG_SSH_COMMAND",
    *PROXIES,
    *(name.upper() for name in PROXIES),
)
PREFIXES: Final = ("AWS_",)
"""Variables, by name or beginning, that remotes go by."""


@frozen
class Access:
    """``variables`` are those of other tools that say how to reach a place; ``home`` has the files
    that these tools keep their logins in. Without either nothing but the address is known."""

    variables: Mapping[str, str] = field(default_factory=dict)
    home: Path | None = None

    def get(self, name: str) -> str | None:
        """The variable ``name``; None where it is unset or empty."""
        return self.variables.get(name) or None


def access_of(environment: Mapping[str, str], home: Path | None) -> Access:
    """What of ``environment`` matters to remotes."""
    kept = {
        name: value
        for name, value in environment.items()
        if name in VARIABLES or name.startswith(PREFIXES)
    }
    return Access(kept, home)
