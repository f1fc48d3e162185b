"""The example of gated answers."""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path

import pytest

from tests.examples.test_scripts import run
from tests.models import make_model


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")
def test_gates(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model", "llama")
    lines = run("gates.sh", tmp_path, str(model))
    assert [line.split("  ")[1] for line in lines[:5]] == [*["PASSED"] * 3, *["FAILED"] * 2]
    digests = [line for line in lines if line.startswith("sha256:")]
    assert len(set(digests)) == 3
    assert any(line.startswith("3 artifacts: bytes ok, signature ok, policy ok") for line in lines)


GATES = Path(__file__).parents[2] / "examples" / "gates"
CONTRACT = (GATES / "contract.txt").read_text("utf-8")
LOCK = "click==8.1.0\nrich==15.0.0\ntorch==2.0 ; python_version < '3.12'\ntorch==2.1\n"


def refusal(
    monkeypatch: pytest.MonkeyPatch, folder: Path, script: str, text: str, answer: str
) -> str:
    """Why a checker of the examples refuses ``answer``; empty where it does not."""
    (folder / "text.txt").write_text(text, "utf-8")
    (folder / "answer.txt").write_text(answer, "utf-8")
    monkeypatch.chdir(folder)
    try:
        runpy.run_path(str(GATES / script))
    except SystemExit as ended:
        return str(ended.code)
    return ""


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        ("rich==15.0.0\n", ""),
        ("Rich==15.0.0", ""),
        ("rich==0.1", "rich is locked at 15.0.0, not 0.1"),
        ("rich==0.1\nrich==15.0.0", "nothing else"),
        ("Use rich 0.1, not this:\nrich==15.0.0", "nothing else"),
        ("rich==15.0.0 ; python_version < '3'", "nothing else"),
        ("torch==2.1", "torch is locked at 2.0 and 2.1, not 2.1"),
        ("flask==1", "flask is locked at nothing"),
    ],
)
def test_a_pin_is_the_one_that_is_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, named: str
) -> None:
    said = refusal(monkeypatch, tmp_path, "check_pin.py", LOCK, answer)
    assert bool(said) == bool(named) and named in said


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        ((GATES / "contract-summary.txt").read_text("utf-8"), ""),
        ("At 84.50 euro, 15% in advance.", ""),
        ("No figure at all.", "no figure"),
        ("½ of 84.50 euro.", "½"),
        ("24e2 months.", "24e2"),
        ("Twenty-five weeks of 2%.", "twenty-five"),
        ("84.50 billion euro.", "billion"),
        ("1 housing at 84.50.", "1"),
        ("-84.50 euro.", "-84.50"),
        ("24‰ a week.", "24‰"),
        ("٢٤ months, and 24.", "٢٤"),
        ("At 84.50 euro for one year.", "one"),
        ("At 84.50 euro by the ninetieth day.", "ninetieth"),
        ("84.50 euro, dozens of them.", "dozens"),
        ("84.50 euro twice a year.", "twice"),
        ("84.50 euro, by the first of the month.", "first"),
        ("84.50 euro, fourfold.", "fourfold"),
    ],
)
def test_a_figure_is_one_of_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, named: str
) -> None:
    said = refusal(monkeypatch, tmp_path, "check_figures.py", CONTRACT, answer)
    assert bool(said) == bool(named) and named in said
