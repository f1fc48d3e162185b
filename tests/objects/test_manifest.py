from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from kvg.canon import encode
from kvg.digest import Digest, sha256
from kvg.errors import Corrupt, Incompatible
from kvg.objects import manifest as m
from kvg.objects.page import page_size

D = [sha256(bytes([i])) for i in range(40)]


def _spec(index: int, window: int | None = None, heads: int = 2, dtype: str = "F32") -> m.LayerSpec:
    return m.LayerSpec(index, "attention", heads, 4, 4, dtype, window)


def _build(
    count: int, page_tokens: int, windows: list[int | None], cuts: tuple[int, ...] = ()
) -> m.Manifest:
    groups = m.group_layers([_spec(i, window) for i, window in enumerate(windows)])
    pages = tuple(
        m.Page(
            group.name,
            a,
            b,
            sha256(f"{group.name} {a}".encode()),
            "0" * 64,
            page_size(group, b - a),
        )
        for group in groups
        for a, b in m.needed_pages(group, page_tokens, count, cuts)
    )
    return m.Manifest(
        model=m.Model(D[1], "TinyForCausalLM", "F32"),
        engine=m.Engine(D[2], "scheduled", m.Schedule(page_tokens, "sdpa", 2)),
        tokens=m.Tokens(D[3], count),
        layout=m.Layout(page_tokens, groups),
        pages=pages,
        witnesses=tuple(m.Witness(end - 1, D[4], "F32", (10,), 9) for end in (*cuts, count)),
    )


def test_vector(manifest_vectors: dict[str, Any], manifest: m.Manifest) -> None:
    vector = manifest_vectors["manifest"]
    assert m.encode_manifest(manifest).decode() == vector["canonical"]
    assert manifest.digest == vector["digest"]
    assert json.loads(m.encode_manifest(manifest)) == vector["value"]
    assert manifest.count == 300
    assert manifest.cuts == ()
    assert manifest.group("sliding-128").window == 128
    assert [p.n_tokens for p in manifest.pages_of("full")] == [256, 44]


def test_refused_vectors(manifest_vectors: dict[str, Any]) -> None:
    assert len(manifest_vectors["refused"]) == 10
    for vector in manifest_vectors["refused"]:
        with pytest.raises(Corrupt, match=r"^artifact a: "):
            m.parse_manifest(vector["text"].encode(), what="artifact a")


def test_engine_vector(manifest_vectors: dict[str, Any]) -> None:
    vector = manifest_vectors["engine"]
    probe = vector["value"]["probe"]
    assert m.engine_fingerprint("invariant", None, probe) == vector["fingerprint"]


def test_another_version_is_incompatible(manifest_vectors: dict[str, Any]) -> None:
    text = manifest_vectors["manifest"]["canonical"]
    with pytest.raises(Incompatible):
        m.parse_manifest(text.replace("kvg.manifest/1", "kvg.manifest/2").encode(), what="a")
    with pytest.raises(Corrupt):
        m.parse_manifest(text.replace("kvg.manifest/1", "other").encode(), what="a")


def _set(path: str, new: Any) -> Any:
    """A change of a manifest's value: ``path`` is dotted, numbers index arrays."""

    def change(value: Any) -> None:
        *steps, last = [int(s) if s.isdigit() else s for s in path.split(".")]
        for step in steps:
            value = value[step]
        value[last] = new

    return pytest.param(change, id=f"{path}={new!r}"[:40])


@pytest.mark.parametrize(
    "change",
    [
        _set("model.dtype", "F64"),
        _set("model.architecture", ""),
        _set("model.architecture", "a\nb"),
        _set("model.fingerprint", "sha256:00"),
        _set("model.fingerprint", "SHA256:" + "0" * 64),
        _set("engine.reference", "approximate"),
        _set("engine.reference", "scheduled"),
        _set("engine.schedule", {"page_tokens": 256, "attention": "sdpa", "threads": 2}),
        _set("tokens.count", 0),
        _set("tokens.count", True),
        _set("tokens.count", 299),
        _set("positions", [1, 300]),
        _set("positions", [0, 300, 300]),
        _set("layout.page_tokens", 0),
        _set("layout.page_tokens", 128),
        _set("layout.groups", []),
        _set("layout.groups.0.kind", "state"),
        _set("layout.groups.0.name", "full-2"),
        _set("layout.groups.0.layers", [2, 0]),
        _set("layout.groups.0.layers", [0, 0]),
        _set("layout.groups.0.layers", [0, 1]),
        _set("layout.groups.0.layers", []),
        _set("layout.groups.0.layers", [-1, 2]),
        _set("layout.groups.0.layers", [0, 10000]),
        _set("layout.groups.0.layers", [4, 5]),
        _set("layout.groups.0.kv_heads", 0),
        _set("layout.groups.0.k_dim", 0),
        _set("layout.groups.0.dtype", "I8"),
        _set("layout.groups.1.window", None),
        _set("layout.groups.1.window", 0),
        _set("layout.groups.1.window", 64),
        _set("pages.0.group", "other"),
        _set("pages.0.positions", [0, 255]),
        _set("pages.0.positions", [256, 0]),
        _set("pages.0.positions", [0]),
        _set("pages.0.digest", "md5:1"),
        _set("pages.0.blake3", "0" * 63),
        _set("pages.0.blake3", "F" * 64),
        _set("pages.0.blake3", None),
        _set("pages.0.size", 0),
        _set("witnesses", []),
        _set("witnesses.0.position", 298),
        _set("witnesses.0.next_token", 49152),
        _set("witnesses.0.shape", [1, 49152]),
        _set("witnesses.0.shape", []),
        _set("witnesses.0.dtype", "bf16"),
        _set("pages", None),
        _set("pages", {}),
        _set("model", []),
        _set("tokens", "x"),
    ],
)
def test_one_wrong_field_is_corrupt(manifest_vectors: dict[str, Any], change: Any) -> None:
    value = json.loads(manifest_vectors["manifest"]["canonical"])
    change(value)
    with pytest.raises(Corrupt, match=r"^artifact a: "):
        m.parse_manifest(encode(value), what="artifact a")


def test_witnesses_ascend_and_agree(manifest: m.Manifest) -> None:
    end = manifest.witnesses[0]
    early = replace(end, position=100)
    assert replace(manifest, witnesses=(early, end)).cuts == (101,)
    for wrong in [(end, early), (end, end), (early,), (replace(early, dtype="F32"), end)]:
        with pytest.raises(Corrupt, match="witnesses"):
            replace(manifest, witnesses=wrong)


def test_huge_counts_cost_nothing(manifest_vectors: dict[str, Any]) -> None:
    value = json.loads(manifest_vectors["manifest"]["canonical"])
    value["tokens"]["count"] = 2**53 - 1
    value["positions"] = [0, 2**53 - 1]
    value["layout"]["page_tokens"] = 1
    value["witnesses"][0]["position"] = 2**53 - 2
    with pytest.raises(Corrupt, match="needed"):
        m.parse_manifest(encode(value), what="a")


@given(
    st.integers(1, 60),
    st.integers(1, 12),
    st.lists(st.sampled_from([None, 1, 3, 8, 100]), min_size=1, max_size=4),
    st.sets(st.integers(1, 59), max_size=3),
)
def test_built_manifests_round_trip(
    count: int, page_tokens: int, windows: list[int | None], cuts: set[int]
) -> None:
    manifest = _build(count, page_tokens, windows, tuple(sorted(c for c in cuts if c < count)))
    data = m.encode_manifest(manifest)
    assert m.parse_manifest(memoryview(data), what="a") == manifest
    assert manifest.digest == sha256(data)
    m.check_sizes(manifest, what="a")


@given(
    st.integers(1, 100),
    st.integers(1, 16),
    st.none() | st.integers(1, 120),
    st.sets(st.integers(1, 99), max_size=4),
)
def test_needed_pages_are_those_of_the_rule(
    count: int, page_tokens: int, window: int | None, cuts: set[int]
) -> None:
    cuts = {cut for cut in cuts if cut < count}
    group = m.group_layers([_spec(0, window)])[0]
    kept = set()
    for end in {*cuts, count}:
        first = 0 if window is None else max(0, end - window)
        kept |= {position // page_tokens for position in range(first, end)}
    assert m.needed_pages(group, page_tokens, count, cuts) == tuple(
        (page * page_tokens, min((page + 1) * page_tokens, count)) for page in sorted(kept)
    )


def test_sizes_are_checked_apart(manifest: m.Manifest) -> None:
    right = _build(300, 256, [None, 128])
    m.check_sizes(right, what="a")
    wrong = replace(right, pages=(replace(right.pages[0], size=7), *right.pages[1:]))
    with pytest.raises(Corrupt, match=r"^a: page sha256:.* size 7, expected"):
        m.check_sizes(wrong, what="a")


@pytest.mark.parametrize("change", [{"blake3": "1" * 64}, {}])
def test_one_object_is_not_two_different_pages(change: dict[str, str]) -> None:
    right = _build(300, 256, [None, 512])
    first, other = right.pages[0], next(p for p in right.pages if p.group != right.pages[0].group)
    twice = replace(other, digest=first.digest, **change)
    pages = tuple(twice if page is other else page for page in right.pages)
    with pytest.raises(Corrupt, match="is to be two different pages"):
        m.check_sizes(replace(right, pages=pages), what="a")
    same = [replace(page, digest=first.digest, blake3=first.blake3) for page in right.pages[:1]]
    m.check_sizes(replace(right, pages=(*same, *right.pages[1:])), what="a")


def test_groups_follow_the_naming_rule() -> None:
    specs = [_spec(5), _spec(0, 512), _spec(1), _spec(2, 512, 4), _spec(3, 1024), _spec(4, 512)]
    groups = m.group_layers([*specs, _spec(6, None, 8)])
    assert [(g.name, g.layers) for g in groups] == [
        ("sliding-512", (0, 4)),
        ("full", (1, 5)),
        ("sliding-512-2", (2,)),
        ("sliding-1024", (3,)),
        ("full-2", (6,)),
    ]
    m.Layout(256, groups)


def test_groups_of_equal_layers_are_one(manifest: m.Manifest) -> None:
    a, b = m.group_layers([_spec(0), _spec(1, 8)])
    with pytest.raises(Corrupt, match="equal in all but number"):
        m.Layout(16, (a, replace(a, name="full-2", layers=(1,))))
    with pytest.raises(Corrupt, match="order"):
        m.Layout(16, (b, a))
    with pytest.raises(Corrupt, match="two groups"):
        m.Layout(16, (a, replace(b, layers=(0, 1))))


def test_recurrent_layers_are_refused() -> None:
    with pytest.raises(Corrupt, match="kind 'state'"):
        m.group_layers([replace(_spec(0), kind="state")])


def test_model_fingerprint_is_the_documented_one() -> None:
    config = {"rope_theta": 10000.0, "nested": [{"eps": 1e-06, "on": True}], "n": 3, "x": None}
    expected = rfc8785.dumps(
        {
            "schema": "kvg.model/1",
            "architecture": "TinyForCausalLM",
            "config": {
                "rope_theta": "10000.0",
                "nested": [{"eps": "1e-06", "on": True}],
                "n": 3,
                "x": None,
            },
            "weights": {"w": D[0]},
            "dtype": "BF16",
            "adapters": None,
        }
    )
    found = m.model_fingerprint("TinyForCausalLM", config, {"w": D[0]}, "BF16")
    assert found == sha256(expected)
    assert found != m.model_fingerprint("TinyForCausalLM", config, {"w": D[0]}, "BF16", [D[1]])


def test_engine_fingerprints_differ_by_schedule() -> None:
    one = m.engine_fingerprint("scheduled", m.Schedule(256, "sdpa", 1), D[0])
    two = m.engine_fingerprint("scheduled", m.Schedule(256, "sdpa", 2), D[0])
    assert len({one, two, m.engine_fingerprint("invariant", None, D[0])}) == 3


def _strict(data: bytes) -> None:
    """Either refused in the taxonomy's words, or exactly what the encoder writes."""
    try:
        found = m.parse_manifest(data, what="a")
    except (Corrupt, Incompatible) as error:
        assert error.message.startswith("a: ")
    else:
        assert m.encode_manifest(found) == data


@given(st.binary(max_size=200))
def test_arbitrary_bytes(data: bytes) -> None:
    _strict(data)


@settings(max_examples=300)
@given(data=st.data())
def test_mutated_bytes(data: st.DataObject) -> None:
    raw = bytearray(m.encode_manifest(_build(20, 8, [None, 8], (5,))))
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(raw)))
        stop = data.draw(st.integers(start, min(len(raw), start + 8)))
        raw[start:stop] = data.draw(st.binary(max_size=8) | st.sampled_from([b"0", b"null", b"9"]))
    _strict(bytes(raw))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(st.sampled_from(range(8)), JSON)
def test_any_json_in_any_field(index: int, new: Any) -> None:
    value = json.loads(m.encode_manifest(_build(20, 8, [None])))
    value[sorted(value)[index]] = new
    _strict(encode(value))


def test_digest_type_is_a_string() -> None:
    assert isinstance(Digest(D[0]), str)
