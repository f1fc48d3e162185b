"""What is done to manifests."""

from __future__ import annotations

import json

from kvg import canon
from kvg.errors import Corrupt, Incompatible, Untrusted
from kvg.objects.manifest import encode_manifest, parse_manifest
from kvg.signing.dsse import parse_envelope
from tests.trust.attacks.world import OTHER, ROWS, World, edited, refused

for _field, _path, _value in (
    ("model", ("model", "fingerprint"), OTHER),
    ("dtype", ("model", "dtype"), "F16"),
    ("engine", ("engine", "fingerprint"), OTHER),
    ("reference", ("engine", "reference"), "scheduled"),
    ("tokens", ("tokens", "digest"), OTHER),
    ("count", ("tokens", "count"), 26),
    ("positions", ("positions",), [1, 27]),
    ("page_tokens", ("layout", "page_tokens"), 16),
    ("window", ("layout", "groups", 1, "window"), 4),
    ("page", ("pages", 0, "digest"), OTHER),
    ("blake3", ("pages", 0, "blake3"), "7" * 64),
    ("witness", ("witnesses", 0, "logits"), OTHER),
    ("next_token", ("witnesses", 0, "next_token"), 4),
):

    def _edit(w: World, path: tuple[str | int, ...] = _path, value: object = _value) -> None:
        w.put_under(w.made.digest, edited(encode_manifest(w.made.manifest), *path, value=value))
        w.graft()

    _edit.__name__ = f"manifest_field_{_field}_is_edited"
    ROWS.append((_edit.__name__, Corrupt, _edit))


@refused(Untrusted)
def an_edited_manifest_under_its_own_digest_is_signed_by_nobody(w: World) -> None:
    raw = edited(encode_manifest(w.made.manifest), "model", "fingerprint", value=OTHER)
    with w.store.pending() as pending:
        digest = pending.put(raw).digest
        w.store.set_ref("demo", digest)
    w.graft()


@refused(Corrupt)
def a_manifest_is_written_in_another_spelling(w: World) -> None:
    value = json.loads(encode_manifest(w.made.manifest))
    parse_manifest(json.dumps(value, indent=1).encode(), what="it")


@refused(Corrupt)
def a_manifest_has_a_key_more(w: World) -> None:
    parse_manifest(edited(encode_manifest(w.made.manifest), "extra", value=1), what="it")


@refused(Corrupt)
def a_manifest_has_a_key_twice(w: World) -> None:
    raw = encode_manifest(w.made.manifest)
    parse_manifest(raw.replace(b'{"engine"', b'{"engine":1,"engine"', 1), what="it")


@refused(Corrupt)
def a_manifest_names_a_billion_pages(w: World) -> None:
    count = 256 * 10**9
    raw = edited(encode_manifest(w.made.manifest), "tokens", "count", value=count)
    raw = edited(raw, "positions", value=[0, count])
    parse_manifest(edited(raw, "witnesses", 0, "position", value=count - 1), what="it")


@refused(Corrupt)
def a_manifest_lists_a_page_twice(w: World) -> None:
    value = json.loads(encode_manifest(w.made.manifest))
    value["pages"].insert(0, value["pages"][0])
    parse_manifest(canon.encode(value), what="it")


@refused(Corrupt)
def a_manifest_leaves_out_a_page(w: World) -> None:
    value = json.loads(encode_manifest(w.made.manifest))
    del value["pages"][1]
    parse_manifest(canon.encode(value), what="it")


@refused(Incompatible)
def a_manifest_is_of_another_version(w: World) -> None:
    raw = edited(encode_manifest(w.made.manifest), "schema", value="kvg.manifest/2")
    parse_manifest(raw, what="it")


@refused(Corrupt)
def a_manifest_is_json_a_hundred_thousand_deep(w: World) -> None:
    parse_manifest(b"[" * 100_000, what="it")


@refused(Corrupt)
def an_envelope_is_json_a_hundred_thousand_deep(w: World) -> None:
    parse_envelope(b'{"payload":' * 100_000, what="it")


@refused(Corrupt)
def a_number_is_past_what_json_carries(w: World) -> None:
    raw = encode_manifest(w.made.manifest).replace(b'"count":27', b'"count":9007199254740993')
    parse_manifest(raw, what="it")
