from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvg.digest import hex_of, sha256
from kvg.errors import Corrupt, Incompatible
from kvg.objects import statement as s

SUBJECT = sha256(b"manifest")
PROVENANCE = s.Provenance(
    source=(s.Resource("a.md", sha256(b"a"), "file:a.md"), s.Resource("b.md")),
    family=sha256(b"f"),
    method=None,
    parent=sha256(b"p"),
    cut_points=(10, 20),
    valid_until=1_800_000_000,
    depends=(s.Resource("spec", sha256(b"d")),),
    kind="chat",
    device_class="cpu avx512",
    kernels="1",
    libraries={"torch": "2.13.0"},
    model=s.Resource("smollm2", sha256(b"m")),
    tokenizer=s.Resource("tokenizer.json", sha256(b"t")),
    template=None,
    builder="https://kvg.dev/kvg@0.1.0",
    started="2026-01-01T00:00:00Z",
    finished="2026-01-01T00:00:09Z",
)
BARE = replace(
    PROVENANCE,
    source=None,
    family=None,
    parent=None,
    cut_points=(),
    valid_until=None,
    depends=(),
    kind="ids",
    libraries={},
    tokenizer=None,
)
RESULT = s.TestResult(
    result="PASSED",
    gate="pytest",
    configuration=(s.Resource("command", None, "exec:pytest"),),
    evidence=(s.Resource("output", sha256(b"out")),),
    url="https://ci.example/1",
)


@pytest.mark.parametrize("provenance", [PROVENANCE, BARE, replace(BARE, source=())])
def test_provenance_round_trips(provenance: s.Provenance) -> None:
    payload = s.encode_provenance(SUBJECT, provenance)
    assert s.parse_statement(payload, what="a") == s.Statement(SUBJECT, provenance)


@pytest.mark.parametrize("result", ["PASSED", "FAILED", "WARNED"])
def test_test_results_round_trip(result: s.Result) -> None:
    for outcome in (replace(RESULT, result=result), s.TestResult(result, "witness")):
        payload = s.encode_test_result(SUBJECT, outcome)
        assert s.parse_statement(payload, what="a") == s.Statement(SUBJECT, outcome)


def test_provenance_is_slsa() -> None:
    value = json.loads(s.encode_provenance(SUBJECT, PROVENANCE))
    assert value["_type"] == "https://in-toto.io/Statement/v1"
    assert value["subject"] == [{"name": "kvg", "digest": {"sha256": hex_of(SUBJECT)}}]
    assert value["predicateType"] == "https://slsa.dev/provenance/v1"
    definition = value["predicate"]["buildDefinition"]
    assert set(definition) == {
        "buildType",
        "externalParameters",
        "internalParameters",
        "resolvedDependencies",
    }
    names = [item["name"] for item in definition["resolvedDependencies"]]
    assert names == ["smollm2", "tokenizer.json", "a.md", "b.md"]
    assert value["predicate"]["runDetails"]["builder"]["id"] == PROVENANCE.builder


def test_test_result_is_in_totos() -> None:
    value = json.loads(s.encode_test_result(SUBJECT, replace(RESULT, result="FAILED")))
    predicate = value["predicate"]
    assert value["predicateType"] == "https://in-toto.io/attestation/test-result/v0.1"
    assert predicate["result"] == "FAILED"
    assert predicate["failedTests"] == ["pytest"]
    assert predicate["passedTests"] == predicate["warnedTests"] == []
    assert set(predicate) == {
        "result",
        "configuration",
        "url",
        "passedTests",
        "warnedTests",
        "failedTests",
    }


def test_unknown_fields_of_others_are_passed_over() -> None:
    value = json.loads(s.encode_provenance(SUBJECT, PROVENANCE))
    value["subject"][0]["digest"]["sha512"] = "00"
    value["predicate"]["runDetails"]["byproducts"] = [{"name": "log"}]
    value["predicate"]["buildDefinition"]["resolvedDependencies"].append({"uri": "git+x"})
    payload = json.dumps(value, indent=2).encode()
    assert s.parse_statement(payload, what="a").predicate == PROVENANCE


def _changed(path: str, new: Any, payload: bytes) -> bytes:
    value = json.loads(payload)
    at = value
    *steps, last = [int(x) if x.isdigit() else x for x in path.split(".")]
    for step in steps:
        at = at[step]
    at[last] = new
    return json.dumps(value).encode()


@pytest.mark.parametrize(
    ("path", "new"),
    [
        ("subject", []),
        ("subject.0.digest", {}),
        ("subject.0.digest", {"sha256": "0"}),
        ("subject.0.digest", None),
        ("predicate", None),
        ("predicate.buildDefinition", 1),
        ("predicate.buildDefinition.resolvedDependencies", []),
        ("predicate.buildDefinition.externalParameters.kind", "pdf"),
        ("predicate.buildDefinition.externalParameters.cutPoints", [2, 1]),
        ("predicate.buildDefinition.externalParameters.cutPoints", [0]),
        ("predicate.buildDefinition.externalParameters.family", "x"),
        ("predicate.buildDefinition.externalParameters.source", [{}]),
        ("predicate.buildDefinition.internalParameters.libraries", {"torch": 2}),
        ("predicate.runDetails.builder", {}),
        ("predicate.runDetails.metadata.startedOn", 7),
    ],
)
def test_malformed_provenance_is_corrupt(path: str, new: Any) -> None:
    payload = _changed(path, new, s.encode_provenance(SUBJECT, PROVENANCE))
    with pytest.raises(Corrupt, match=r"^envelope e: "):
        s.parse_statement(payload, what="envelope e")


@pytest.mark.parametrize(
    ("path", "new"),
    [
        ("predicate.result", "OK"),
        ("predicate.passedTests", []),
        ("predicate.passedTests", ["a", "b"]),
        ("predicate.passedTests", [""]),
        ("predicate.configuration", None),
        ("predicate.url", 1),
    ],
)
def test_malformed_test_result_is_corrupt(path: str, new: Any) -> None:
    payload = _changed(path, new, s.encode_test_result(SUBJECT, RESULT))
    with pytest.raises(Corrupt, match=r"^envelope e: "):
        s.parse_statement(payload, what="envelope e")


@pytest.mark.parametrize(
    ("path", "new"),
    [
        ("_type", "https://in-toto.io/Statement/v2"),
        ("predicateType", "https://spdx.dev/Document"),
        ("predicate.buildDefinition.buildType", "https://example.com/make"),
    ],
)
def test_statements_of_other_kinds_are_incompatible(path: str, new: str) -> None:
    payload = _changed(path, new, s.encode_provenance(SUBJECT, PROVENANCE))
    with pytest.raises(Incompatible, match=r"^envelope e: "):
        s.parse_statement(payload, what="envelope e")


def test_two_models_are_corrupt() -> None:
    value = json.loads(s.encode_provenance(SUBJECT, PROVENANCE))
    parts = value["predicate"]["buildDefinition"]["resolvedDependencies"]
    parts.append(parts[0])
    with pytest.raises(Corrupt, match="two of role model"):
        s.parse_statement(json.dumps(value).encode(), what="a")


def test_a_statement_about_two_manifests_is_corrupt() -> None:
    value = json.loads(s.encode_test_result(SUBJECT, RESULT))
    value["subject"] *= 2
    with pytest.raises(Corrupt, match="expected one"):
        s.parse_statement(json.dumps(value).encode(), what="a")


def test_duplicate_keys_are_corrupt() -> None:
    payload = s.encode_test_result(SUBJECT, RESULT)
    with pytest.raises(Corrupt, match="duplicate"):
        s.parse_statement(payload[:-1] + b',"subject":[]}', what="a")


def test_the_vectors_statement_is_read(vectors: dict[str, Any]) -> None:
    """A result without a configuration or a test's name is not one of kvg's."""
    payload = base64.b64decode(vectors["dsse_envelope"]["envelope"]["payload"])
    with pytest.raises(Corrupt):
        s.parse_statement(payload, what="a")


@given(st.binary(max_size=100))
def test_arbitrary_bytes(data: bytes) -> None:
    with pytest.raises((Corrupt, Incompatible), match=r"^a: "):
        s.parse_statement(data, what="a")


@given(data=st.data(), payload=st.sampled_from([PROVENANCE, RESULT]))
def test_mutated_bytes(data: st.DataObject, payload: s.Provenance | s.TestResult) -> None:
    raw = bytearray(
        s.encode_provenance(SUBJECT, payload)
        if isinstance(payload, s.Provenance)
        else s.encode_test_result(SUBJECT, payload)
    )
    start = data.draw(st.integers(0, len(raw)))
    raw[start : start + data.draw(st.integers(0, 6))] = data.draw(st.binary(max_size=6))
    try:
        s.parse_statement(raw, what="a")
    except (Corrupt, Incompatible) as error:
        assert error.message.startswith("a: ")
