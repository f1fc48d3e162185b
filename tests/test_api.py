"""The Python interface: every name is there, costs nothing before it is used, and works."""

from __future__ import annotations

import inspect
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kvg import api
from kvg.flow.records import Graft
from tests import models


def test_every_name_is_there_and_says_what_it_is() -> None:
    assert set(api.__all__) == {*api._HOMES, "settings"} and list(api.__all__) == sorted(
        api.__all__
    )
    for name in api.__all__:
        found = getattr(api, name)
        assert inspect.getdoc(found), name
    with pytest.raises(AttributeError):
        _ = api.nonsense
    assert api.__doc__ is not None
    for seed in ("commitVerifiedTraceKV", "graftIntoContext", "VerificationArtifact", "REJECTED"):
        assert seed in api.__doc__


def test_nothing_heavy_is_imported_before_it_is_used() -> None:
    program = (
        "import sys\nfrom kvg import api\n"
        "for name in api.__all__: getattr(api, name)\n"
        "print(*sorted({'torch', 'transformers', 'typer', 'rich', 'lmdb'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=models.program_env(Path("/nonexistent")),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == []


def test_the_first_minutes(tmp_path: Path, tiny: dict[str, Path]) -> None:
    here = api.settings(tmp_path, keys=tmp_path / "keys")
    api.init(here, None, bare=False)
    store = api.open_store(here)
    api.model_add(store, here, api.ModelAddRequest("tiny", tiny["llama"]))
    made = api.deposit(store, here, api.DepositRequest("a", text=models.real_text()[:600]))
    sampling = api.Sampling(max_tokens=4)
    (found,) = api.graft(store, here, api.GraftRequest("a", prompt="In ", sampling=sampling))
    assert isinstance(found, Graft)
    assert found.exact and found.digest == made.digest and found.new_tokens == 4
    assert [entry.ref for entry in api.ls(store, here)] == ["a"]
    assert api.show(store, "a").verification["unitTestPass"] is None
    assert api.status(store).refs == 1


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")
def test_the_flywheel(tmp_path: Path) -> None:
    here = api.settings(tmp_path, keys=tmp_path / "keys")
    api.init(here, None, bare=False)
    store = api.open_store(here)
    (tmp_path / "p.py").write_text("def solve(a, b): return a * b\n")
    (tmp_path / "c.py").write_text("def check(answer, a, b): return answer == sum([b] * a)\n")
    text = "Multiply 6 by 7."
    assert api.solve(store, here, text).exit_code == 3
    added = api.add_method(store, here, api.MethodRequest(text, Path("p.py"), Path("c.py")))
    found = api.solve(store, here, "Multiply 12 by 31.")
    assert (found.answer, found.method, found.tokens_generated) == ("372", added.method, 0)
    (result,) = api.run_gates(here, ["python-assert:int(answer) == 42"], text.encode(), b"42")
    assert result.result == "PASSED"
