"""Preregistrations as bytes: one spelling, and nothing but it is read."""

from __future__ import annotations

import json

import pytest

from kvg import canon
from kvg.digest import sha256
from kvg.errors import Corrupt, Incompatible
from kvg.objects.manifest import Engine, Model
from kvg.objects.preregistration import (
    ExpectedLogits,
    ExpectedRun,
    Preregistration,
    encode_preregistration,
    parse_preregistration,
)


def made() -> Preregistration:
    names = [sha256(bytes([n])) for n in range(8)]
    run = ExpectedRun(
        manifest=names[0],
        model=Model(names[1], "LlamaForCausalLM", "BF16"),
        engine=Engine(names[2], "invariant", None),
        tokens=names[3],
        count=300,
        pages=(names[4], names[5]),
        samples=(ExpectedLogits(names[6], 7, names[7]),),
    )
    return Preregistration((run,))


def test_what_is_written_is_read() -> None:
    data = encode_preregistration(made())
    assert parse_preregistration(data, what="p") == made()
    assert sha256(data) == sha256(encode_preregistration(parse_preregistration(data, what="p")))


@pytest.mark.parametrize("path", ["runs", "runs.0", "runs.0.tokens", "runs.0.samples.0"])
def test_unknown_and_missing_keys_are_refused(path: str) -> None:
    for change in ("add", "drop"):
        value = json.loads(encode_preregistration(made()))
        at = value
        for part in path.split("."):
            at = at[int(part)] if part.isdecimal() else at[part]
        if not isinstance(at, dict):
            at = value
        if change == "add":
            at["more"] = 1
        else:
            del at[sorted(at)[0]]
        with pytest.raises(Corrupt, match=r"^p: "):
            parse_preregistration(canon.encode(value), what="p")


def test_another_version_is_incompatible() -> None:
    value = {**json.loads(encode_preregistration(made())), "schema": "kvg.prereg/2"}
    with pytest.raises(Incompatible, match=r"kvg\.prereg/2"):
        parse_preregistration(canon.encode(value), what="p")


def test_other_spellings_and_empty_ones_are_refused() -> None:
    data = encode_preregistration(made())
    for bad in (data + b"\n", data.replace(b",", b", ", 1), data[:-1], b"{}", b""):
        with pytest.raises(Corrupt):
            parse_preregistration(bad, what="p")
    with pytest.raises(Corrupt):
        Preregistration(())
    with pytest.raises(Corrupt):
        Preregistration(made().runs * 2)
