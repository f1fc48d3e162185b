"""Receipts from elsewhere: whatever a file holds, the time to look at it grows with its length."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEAD = "c2sp.org/tlog-proof@v1\n"
HOSTILE = {
    "heads": (HEAD, 1),
    "heads with a line": (HEAD + "x\n", 1),
    "heads with a body": (HEAD + "x\n\n", 1),
    "heads without a signature": (HEAD + "x\n\nx\n\n", 1),
    "one head of many lines": ("x\n", 0),
    "one line without an end": ("x", 0),
    "many signatures": ("\N{EM DASH} x\n", 0),
}
BEFORE = {"many signatures": HEAD + "x\n\nx\n\n"}

CHECK = """
import sys
sys.path.insert(0, sys.argv[1])
from kvg.errors import Corrupt
from kvg.flow.receipt import check_receipts
from tests.flow.test_receipt import hostile

for name, text in hostile():
    try:
        list(check_receipts(text.encode(), "kvg+00000000+AA", lambda: None))
    except Corrupt as error:
        print(name, error.message, sep=": ")
"""


def hostile(n_bytes: int = 4 << 20) -> list[tuple[str, str]]:
    """Texts that are no receipt anywhere, and begin as one often or for long."""
    return [
        (name, BEFORE.get(name, "" if many else HEAD) + piece * (n_bytes // len(piece.encode())))
        for name, (piece, many) in HOSTILE.items()
    ]


def test_no_text_takes_more_than_its_length() -> None:
    """Looked at from every head to the end, each of these would take minutes."""
    done = subprocess.run(
        [sys.executable, "-c", CHECK, str(ROOT)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=ROOT,
    )
    told = [line.partition(": ") for line in done.stdout.splitlines()]
    assert [name for name, *_ in told] == list(HOSTILE), done.stderr
    *others, (*_, signatures) = told
    assert {what for *_, what in others} == {"no receipt in the file"}
    assert signatures == "a receipt in the file is cut or altered"
