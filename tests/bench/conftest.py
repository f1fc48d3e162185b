"""The user, the quick sessions and the command line of the flow tests."""

from __future__ import annotations

from tests.flow.conftest import kvg, quick, user

__all__ = ["kvg", "quick", "user"]
