"""The user and the quick sessions of the flow tests."""

from __future__ import annotations

from tests.flow.conftest import kvg, quick, user

__all__ = ["kvg", "quick", "user"]
