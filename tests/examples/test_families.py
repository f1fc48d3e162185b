"""The example of nine families: every method proves itself, and every answer is the oracle's."""

from __future__ import annotations

import json
import shutil
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from rechecking.files import check_rows

EXAMPLE = Path(__file__).parents[2] / "examples" / "families.py"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")
def test_nine_families(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    spec = spec_from_file_location("families_example", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    assert module.main(3, is_json=True) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    check_rows(rows, "families.jsonl")
    assert rows[-1]["right"] == rows[-1]["instances"] == 27 and rows[-1]["tokens_generated"] == 0
    assert module.print_tasks(2) == 0
    tasks = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(tasks) == 18 and all(set(task) == {"task", "answer"} for task in tasks)

    monkeypatch.setattr(module, "ORACLES", dict(sorted(module.ORACLES.items())[:1]))
    assert module.main(3) == 0
    assert "3 of 3 right; an empty store: 0 hits" in capsys.readouterr().out
