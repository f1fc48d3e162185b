"""``deposit --dry-run``: what there would be to compute, and nothing done."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvg.errors import Incompatible, NotFound, UsageError
from kvg.flow.deposit import deposit, plan_deposit
from kvg.flow.requests import DepositRequest
from tests import models


def test_a_plan_is_what_the_deposit_then_does(user: models.User, tiny: dict[str, Path]) -> None:
    text = models.text_of(tiny["llama"], 600)
    request = DepositRequest("a", text=text, gates=("cmd:false",), no_sandbox=True)
    objects = set(user.store.objects.all())
    plan = plan_deposit(user.store, user.settings, request)
    assert (plan.digest, plan.unchanged, plan.gates) == (None, False, ("cmd",))
    assert (plan.tokens, plan.tokens_computed) == (600, 600)
    assert set(user.store.objects.all()) == objects and user.store.refs() == {}
    assert not list(user.settings.keys.glob("*.pem"))
    made = deposit(user.store, user.settings, DepositRequest("a", text=text))
    assert (made.pages, made.bytes_raw) == (plan.pages, plan.bytes_raw)
    longer = DepositRequest("b", text=models.text_of(tiny["llama"], 700))
    after = plan_deposit(user.store, user.settings, longer)
    assert after.tokens_computed == deposit(user.store, user.settings, longer).tokens_computed
    again = plan_deposit(user.store, user.settings, DepositRequest("c", text=text))
    assert (again.digest, again.unchanged, again.tokens_computed) == (made.digest, True, 0)
    assert "c" not in user.store.refs()


def test_a_plan_is_refused_as_the_deposit_is(user: models.User, tiny: dict[str, Path]) -> None:
    long = models.text_of(tiny["llama"], models.POSITIONS) * 2
    for request, error in (
        (DepositRequest("A", text="x"), UsageError),
        (DepositRequest("a", text=""), UsageError),
        (DepositRequest("a", files=(Path("none.md"),)), NotFound),
        (DepositRequest("a", text="x", parent="none"), NotFound),
        (DepositRequest("a", text=long), Incompatible),
    ):
        with pytest.raises(error) as planned:
            plan_deposit(user.store, user.settings, request)
        with pytest.raises(error) as done:
            deposit(user.store, user.settings, request)
        assert planned.value.message == done.value.message
