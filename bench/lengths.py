"""Every length on a model of sliding and full layers: deposited, grafted at its end and at a cut.

    python bench/lengths.py [--lengths 1:1100] > lengths.jsonl

A tiny random Gemma 3 of one layer with a window of 512 and one that sees everything. For each
length a text of so many tokens goes through whole flows, as commands do: a deposit with one cut
point, a graft to its end, one to the cut, each held against its witness, and a replay, which
computes the logits after a prompt and every page afresh. One JSON record a length, then the sums.
The exit status is 1 after a mismatch.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kvg import api
from kvg.flow.records import ReplaySummary
from kvg.model import opening
from kvg.model.session import Session
from tests import models

WINDOW = 512
STRIDE = 7919
"""Cut points are drawn by multiples of this prime, so that they fall anywhere in their texts."""


def open_once() -> None:
    """From now on every flow gets the session that the first one opened."""
    held: dict[object, Session] = {}
    open_anew = opening.open_session

    def open_session(folder: Path, **how: Any) -> Session:  # noqa: ANN401  passed on
        key = (folder, how["reference"], how["schedule"])
        if key not in held:
            held[key] = open_anew(folder, **how)
        return held[key]

    opening.open_session = open_session


def measured(user: models.User, length: int) -> dict[str, object]:
    """What the flows say of a text of ``length`` tokens."""
    cut = 1 + STRIDE * length % (length - 1) if length > 1 else None
    text = models.text_of(user.folder / "model", length)
    cuts = () if cut is None else (cut,)
    here, ref = user.settings, f"of-{length}"
    made = api.deposit(user.store, here, api.DepositRequest(ref, text=text, cut_points=cuts))
    one = api.Sampling(max_tokens=1)
    grafts = [api.GraftRequest(ref, prompt=" so", sampling=one)]
    if cut is not None:
        grafts.append(api.GraftRequest(ref, prompt=" so", sampling=one, cut=cut))
    exact = [found.exact for asked in grafts for found in api.graft(user.store, here, asked)]
    replayed = api.replay(user.store, here, api.ReplayRequest((ref,), samples=1))
    (summary,) = (record for record in replayed if isinstance(record, ReplaySummary))
    return {
        "type": "length",
        "length": made.tokens,
        "cut": cut,
        "manifest": str(made.digest),
        "exact": exact[0],
        "cut_exact": exact[1] if cut is not None else None,
        "replays": summary.samples,
        "replays_equal": summary.equal,
        "pages": summary.pages,
        "pages_equal": summary.pages_equal,
    }


def records(lengths: range) -> Iterator[dict[str, object]]:
    """A record for each length."""
    with tempfile.TemporaryDirectory() as folder:
        user = models.User.make(Path(folder))
        models.write_model(user.folder / "model", models.sliding_and_full(window=WINDOW))
        user.add("tiny", user.folder / "model")
        open_once()
        for length in lengths:
            found = measured(user, length)
            if found["length"] != length:
                raise SystemExit(f"a text of {found['length']} tokens in place of {length}")
            yield found


def is_wrong(record: dict[str, object]) -> bool:
    """Whether anything differed."""
    equal = (
        record["replays"] == record["replays_equal"] and record["pages"] == record["pages_equal"]
    )
    return not (record["exact"] is True and record["cut_exact"] is not False and equal)


def main(args: list[str] | None = None) -> int:
    """The program. Returns its exit status."""
    parser = argparse.ArgumentParser(description="Every length, deposited and grafted.")
    parser.add_argument("--lengths", default="1:1100", metavar="FIRST:LAST")
    first, _, last = parser.parse_args(args).lengths.partition(":")
    span = {"first": int(first), "last": int(last)}
    print(json.dumps({"type": "lengths-setup", "window": WINDOW, "stride": STRIDE, **span}))
    found = []
    for record in records(range(int(first), int(last) + 1)):
        found.append(record)
        print(json.dumps(record), flush=True)
    wrong = sum(map(is_wrong, found))
    cuts = sum(record["cut"] is not None for record in found)
    print(
        json.dumps({"type": "lengths-summary", "lengths": len(found), "cuts": cuts, "wrong": wrong})
    )
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
