"""``kvg bench select``: exact addresses, counted; and what selects inside a process."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from rechecking.files import check_rows

from kvg.cli.render import json_line
from kvg.digest import Digest, raw_of, sha256
from kvg.flow.bench.select import SelectRequest, bench_select, drawn
from kvg.flow.bench.twins import absent_forms, stored_forms
from kvg.flow.method import MethodRequest, add_method
from kvg.flow.records import SelectBatch, SelectSummary, SelectTime
from kvg.flow.solve import HIT, MISS, solve
from kvg.problem.family import parse_problem
from kvg.store.refs import ARTIFACT, MEMBER_BYTES, METHOD
from kvg.store.selector import Selector
from tests import models


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")
def test_small_and_whole(user: models.User) -> None:
    request = SelectRequest(families=18, lookups=1_500, large=500, solves=2, starts=1)
    records = list(bench_select(user.settings, request))
    check_rows([json.loads(json_line(item)) for item in records], "select")
    summary = records[-1]
    assert isinstance(summary, SelectSummary) and summary.exit_code == 0
    assert summary.present + summary.absent == summary.lookups == 1_500
    batches = [item for item in records if isinstance(item, SelectBatch)]
    assert [item.count for item in batches] == [1000, 500]
    times = {item.what: item for item in records if isinstance(item, SelectTime)}
    assert {"look-up", "solve, warm process", "run", "beyond interpreter start"} <= set(times)
    again = [item for item in bench_select(user.settings, request) if isinstance(item, SelectBatch)]
    assert again == batches


def test_every_form_is_a_family_of_its_own() -> None:
    forms = (*stored_forms(4_500), *absent_forms(500))
    found = {
        parse_problem(
            form.wording.format(*("7.5" if k == "d" else "7" for k in form.kinds)), form.constraint
        ).family.digest
        for form in forms
    }
    assert len(forms) == len(found) == 7_000


def test_half_of_what_is_drawn_is_absent() -> None:
    forms = stored_forms(90)
    known = {
        parse_problem(
            form.wording.format(*("7.5" if k == "d" else "7" for k in form.kinds)), form.constraint
        ).family.digest
        for form in forms
    }
    asked = list(drawn(forms, 400))
    for text, constraint, is_stored in asked:
        assert (parse_problem(text, constraint).family.digest in known) == is_stored
    assert 150 < sum(item[2] for item in asked) < 250


def row(kind: bytes, label: str) -> bytes:
    found = kind + bytes(8) + raw_of(sha256(label.encode()))
    assert len(found) == MEMBER_BYTES
    return found


def test_the_newest_method_is_selected() -> None:
    family = sha256(b"family")
    tables = {
        "one": row(METHOD, "a"),
        "two": row(METHOD, "a") + row(METHOD, "b"),
        "after": row(METHOD, "a") + row(ARTIFACT, "x") + row(ARTIFACT, "y"),
        "none": row(ARTIFACT, "x"),
    }
    wanted = {"one": "a", "two": "b", "after": "a", "none": None}
    for name, rows in tables.items():
        selector = Selector({raw_of(family): rows}.get, 0)
        label = wanted[name]
        assert selector.method(family) == (None if label is None else sha256(label.encode()))
        assert selector.find(sha256(b"another")) is None


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")
def test_a_damaged_or_old_view_does_not_answer(user: models.User) -> None:
    text = "Multiply 6 by 7."
    (user.folder / "p.py").write_text("def solve(a, b): return a * b\n")
    (user.folder / "c.py").write_text("def check(answer, a, b): return answer == sum([b] * a)\n")
    request = MethodRequest(text, Path("p.py"), Path("c.py"))
    (user.folder / "q.py").write_text("def solve(a, b): return a + b\n")
    (user.folder / "d.py").write_text("def check(answer, a, b): return answer - a == b\n")
    other = MethodRequest("Add 6 to 7.", Path("q.py"), Path("d.py"))
    added = add_method(user.store, user.settings, request)
    with user.store.index.selecting() as old:
        assert old.method(added.family) == added.method
        found = solve(user.store, user.settings, text, selector=old)
        assert (found.answer, found.method) == ("42", added.method)
        wrong = add_method(user.store, user.settings, other)
        assert solve(user.store, user.settings, "Add 6 to 7.", selector=old).answer == "13"
    size = user.store.log.size
    for method in (wrong.method, Digest("sha256:" + "0" * 64)):
        rows = METHOD + bytes(8) + raw_of(method)
        damaged = Selector({raw_of(added.family): rows}.get, size)
        found = solve(user.store, user.settings, text, selector=damaged)
        assert (found.status, found.answer) == (HIT, "42")
    assert solve(user.store, user.settings, "Divide 6 by 7.", selector=damaged).status == MISS
