"""Requests and records cross the socket and are what they were."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from kvg.digest import sha256
from kvg.errors import RemoteFailed, UsageError
from kvg.flow.records import computed
from kvg.flow.records.wire import encode_record, parse_record
from kvg.flow.requests import (
    AskRequest,
    DepositRequest,
    GraftRequest,
    LogitsRequest,
    ReplayRequest,
    Sampling,
)
from kvg.flow.wire import CHECKS, encode_request, parse_body, parse_request

DIGEST = sha256(b"")
REQUESTS = (
    GraftRequest("r"),
    GraftRequest("r@{1}", prompt="π ", sampling=Sampling(3, 0.7, 0.9, 4, ("a", "b")), stream=True),
    GraftRequest("r", texts=("a", "", "b"), at=3, cut=4, require=("tests",), or_fresh="m"),
    GraftRequest("r", messages=({"role": "user", "content": "x"},)),
    AskRequest("r", "what?", Sampling(0), True, 7, ("x",)),
    LogitsRequest("r", "m", "p", True, "scheduled", Path("/x/y")),
    ReplayRequest(("a", "b"), 3, None, "invariant", True, "k", ("p",)),
    ReplayRequest((), slot=True),
    DepositRequest(
        "r",
        slot=True,
        cut_points=(1, 2),
        depends=(Path("/a"), Path("/b")),
        valid_until=9,
        gates=("g",),
        family=Path("/f"),
        no_source=True,
    ),
)
RECORDS = (
    computed.TextPiece("π\n"),
    computed.Logits(DIGEST, "BF16", (512,), "invariant", "grafted", 1.25),
    computed.Replay("r", DIGEST, DIGEST, DIGEST, False, math.inf, True, 0.5, 1e-300),
    computed.ReplaySummary(1, 0, math.inf, 1.0, 2, 1),
    computed.Deposited(
        "r", DIGEST, False, 1, 1, 1, 1, 1, 1, 0.1, 0.2, ("a",), None, None, "cpu", "F32"
    ),
)


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda r: type(r).__name__)
def test_requests(request_: object) -> None:
    crossed = json.loads(json.dumps(encode_request(request_)))  # type: ignore[arg-type]
    assert parse_request(type(request_), crossed) == request_


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: r.type)
def test_records(record: computed.Record) -> None:
    found = parse_record(json.loads(json.dumps(encode_record(record))))
    assert found == record and found.exit_code == record.exit_code


def test_a_record_with_a_number_that_is_none() -> None:
    record = computed.Replay("r", DIGEST, DIGEST, DIGEST, False, math.nan, True, 0.5, 0.0)
    found = parse_record(json.loads(json.dumps(encode_record(record))))
    assert math.isnan(found.kl)  # type: ignore[attr-defined]


@pytest.mark.parametrize("line", [{}, {"type": "x"}, {"type": "text"}, {"type": "text", "y": 1}])
def test_what_is_no_record(line: dict) -> None:
    with pytest.raises(RemoteFailed):
        parse_record(line)


def test_only_what_is_named_crosses() -> None:
    """No field of a request goes over unseen: it either crosses or is read before."""
    stays = {"prompt_file", "chat", "prompts", "stdin", "files", "text"}
    for kind, checks in CHECKS.items():
        fields = set(kind.__dataclass_fields__)  # type: ignore[attr-defined]
        assert fields - checks.keys() <= stays, kind
        assert checks.keys() <= fields


@pytest.mark.parametrize("value", [b'{"a": 1, "a": 2}', b"[" * 10**5, b"3", b"\xff", b"nul"])
def test_bodies(value: bytes) -> None:
    with pytest.raises(UsageError):
        parse_body(value)
