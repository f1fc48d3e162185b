"""The attack table: what somebody does who can write to a store, and how it is refused.

Each row is a function that tampers and then reads as a graft does; the decorator names the class
that must come out, exactly. What a signed lie in the pages' values is found by is in
``tests/flow/test_recompute.py`` and ``tests/flow/test_graft.py``, for it takes a model.
"""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import zstandard
from blake3 import blake3

from kvg import canon, codec
from kvg.digest import Digest, sha256
from kvg.errors import Corrupt, Incompatible, KvgError, NotFound, Untrusted, UsageError
from kvg.log.entry import AttestationEntry
from kvg.log.receipts import check_receipt, parse_receipt
from kvg.objects.manifest import encode_manifest, parse_manifest
from kvg.objects.page import check_finite
from kvg.objects.statement import (
    FAILED,
    PASSED,
    Resource,
    TestResult,
    encode_provenance,
    encode_test_result,
)
from kvg.signing.dsse import parse_envelope, sign_envelope
from kvg.signing.keys import PrivateKey, encode_private
from kvg.signing.note import encode_verifier
from kvg.store import RefMove, Store
from kvg.trust import (
    DEPOSITOR,
    PUBLISHER,
    VERIFIER,
    Revocation,
    TrustFile,
    bootstrap_trust,
    encode_trust,
    parse_trust,
    sign_trust,
)
from kvg.verify import verify_artifact
from tests import artifacts as a

ALICE, BOB, MALLORY = (a.key_of(name) for name in ("alice", "bob", "mallory"))


@dataclass(frozen=True)
class World:
    """A store with two good artifacts, ``demo`` and ``other``, signed by Alice."""

    folder: Path
    store: Store
    made: a.Made
    other: a.Made

    def again(self) -> Store:
        """The store as the next process opens it."""
        return Store.open(self.store.root, keyring=a.make_keyring(self.folder))

    def graft(self, digest: Digest | None = None) -> None:
        """Read as a graft does: verify, then every page, each checked as it is loaded."""
        store = self.again()
        verified = verify_artifact(store, digest or store.resolve("demo").digest, ref="demo")
        for page in verified.manifest.pages:
            verified.read_page(page)

    def overwrite(self, path: Path, data: bytes) -> None:
        path.unlink(missing_ok=True)
        path.write_bytes(data)

    def put_under(self, digest: Digest, raw: bytes) -> None:
        """A well-formed object file that claims to be ``digest`` and holds ``raw``."""
        stored = codec.encode(raw, digest=digest, codec=0)
        self.overwrite(self.path(digest), b"".join(map(bytes, stored.parts())))

    def path(self, digest: Digest) -> Path:
        return self.store.objects.stored_path(digest)

    def log(self, name: str) -> Path:
        return self.store.root / "log" / name

    def trusting(self, change: Callable[[TrustFile], TrustFile], *keys: PrivateKey) -> None:
        """Try to make ``change`` to the trust file, signed by ``keys``."""
        self.store.set_trust(sign_trust(change(self.store.trust), keys))

    def record(self, subject: Digest, *envelopes: bytes) -> None:
        """Log envelopes that somebody made, as a writer of the store can."""
        with self.store.pending() as pending:
            digests = [pending.put(envelope).digest for envelope in envelopes]
            self.store.record(subject, digests, now=a.NOW)

    def unsigned(self) -> a.Made:
        return a.deposit(self.store, None, ref="demo", ids=range(80, 99))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, a.Made, a.Made]:
    folder = tmp_path_factory.mktemp("template")
    store, key = a.make_store(folder)
    made = a.deposit(store, key, ref="demo", gates=[TestResult(PASSED, "test")])
    other = a.deposit(store, key, ref="other", ids=range(40, 67))
    store.close()
    return folder, made, other


@pytest.fixture
def world(
    template: tuple[Path, a.Made, a.Made], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> World:
    monkeypatch.setattr("os.fsync", lambda fd: None)
    source, made, other = template
    folder = tmp_path / "world"
    shutil.copytree(source, folder)
    store = Store.open(folder / ".kvg", keyring=a.make_keyring(folder))
    return World(folder, store, made, other)


Attack = Callable[[World], object]
ROWS: list[tuple[str, type[KvgError], Attack]] = []


def refused(error: type[KvgError]) -> Callable[[Attack], Attack]:
    """Add a row to the table."""

    def add(attack: Attack) -> Attack:
        ROWS.append((attack.__name__, error, attack))
        return attack

    return add


def edited(data: bytes, *path: str | int, value: object) -> bytes:
    """Canonical bytes of ``data`` with one field changed."""
    root: Any = json.loads(data)
    node = root
    for step in path[:-1]:
        node = node[step]
    node[path[-1]] = value
    return canon.encode(root)


# The manifest's fields.

_OTHER = "sha256:" + "7" * 64
for _field, _path, _value in (
    ("model", ("model", "fingerprint"), _OTHER),
    ("dtype", ("model", "dtype"), "F16"),
    ("engine", ("engine", "fingerprint"), _OTHER),
    ("reference", ("engine", "reference"), "scheduled"),
    ("tokens", ("tokens", "digest"), _OTHER),
    ("count", ("tokens", "count"), 26),
    ("positions", ("positions",), [1, 27]),
    ("page_tokens", ("layout", "page_tokens"), 16),
    ("window", ("layout", "groups", 1, "window"), 4),
    ("page", ("pages", 0, "digest"), _OTHER),
    ("blake3", ("pages", 0, "blake3"), "7" * 64),
    ("witness", ("witnesses", 0, "logits"), _OTHER),
    ("next_token", ("witnesses", 0, "next_token"), 4),
):

    def _edit(w: World, path: tuple[str | int, ...] = _path, value: object = _value) -> None:
        w.put_under(w.made.digest, edited(encode_manifest(w.made.manifest), *path, value=value))
        w.graft()

    _edit.__name__ = f"manifest_field_{_field}_is_edited"
    ROWS.append((_edit.__name__, Corrupt, _edit))


@refused(Untrusted)
def an_edited_manifest_under_its_own_digest_is_signed_by_nobody(w: World) -> None:
    raw = edited(encode_manifest(w.made.manifest), "model", "fingerprint", value=_OTHER)
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


# Pages, objects.


@refused(Corrupt)
def two_pages_are_swapped(w: World) -> None:
    one, two = (w.path(page.digest) for page in w.made.manifest.pages[:2])
    first, second = one.read_bytes(), two.read_bytes()
    w.overwrite(one, second)
    w.overwrite(two, first)
    w.graft()


@refused(Corrupt)
def a_page_holds_the_page_of_another_artifact(w: World) -> None:
    raw = bytes(w.store.objects.read(w.other.manifest.pages[0].digest, what="it"))
    w.put_under(w.made.manifest.pages[0].digest, raw)
    w.graft()


@refused(Corrupt)
def a_manifest_is_used_as_a_page(w: World) -> None:
    w.put_under(w.made.manifest.pages[0].digest, encode_manifest(w.made.manifest))
    w.graft()


@refused(Corrupt)
def a_page_is_used_as_a_manifest(w: World) -> None:
    page = w.made.manifest.pages[0].digest
    w.store.publish([AttestationEntry(a.NOW, page, w.made.envelopes[0])])
    w.graft(page)


@refused(Corrupt)
def one_bit_of_a_page_is_flipped(w: World) -> None:
    path = w.path(w.made.manifest.pages[0].digest)
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    w.overwrite(path, bytes(raw))
    w.graft()


@refused(Corrupt)
def a_page_is_cut_short(w: World) -> None:
    path = w.path(w.made.manifest.pages[0].digest)
    w.overwrite(path, path.read_bytes()[:-1])
    w.graft()


@refused(Corrupt)
def the_token_ids_are_those_of_another_artifact(w: World) -> None:
    raw = bytes(w.store.objects.read(w.other.manifest.tokens.digest, what="it"))
    w.put_under(w.made.manifest.tokens.digest, raw)
    w.graft()


@refused(Corrupt)
def a_page_is_missing(w: World) -> None:
    w.path(w.made.manifest.pages[0].digest).unlink()
    w.graft()


@refused(Corrupt)
def a_payload_holds_nan(w: World) -> None:
    check_finite(struct.pack("<4H", 0, 0x3F80, 0x7FC0, 0), "BF16", what="page")


@refused(Corrupt)
def a_payload_holds_infinity(w: World) -> None:
    check_finite(struct.pack("<2I", 0, 0xFF800000), "F32", what="page")


# The stored form.


def forged(w: World, offset: int, form: str, value: int) -> None:
    """One field of a page's stored header is a lie, under a header checksum that is right."""
    path = w.path(w.made.manifest.pages[0].digest)
    raw = bytearray(path.read_bytes())
    (n_frames,) = struct.unpack_from("<I", raw, 20)
    end = 64 + n_frames * (4 + 8 * raw[5] + 32)
    struct.pack_into(form, raw, offset, value)
    raw[end : end + 32] = blake3(bytes(raw[:end])).digest()
    w.overwrite(path, bytes(raw))
    w.graft()


@refused(Corrupt)
def the_raw_size_is_a_lie(w: World) -> None:
    forged(w, 8, "<Q", 1 << 60)


@refused(Corrupt)
def the_number_of_frames_is_a_lie(w: World) -> None:
    forged(w, 20, "<I", 0xFFFFFFFF)


@refused(Corrupt)
def the_size_of_a_frame_is_a_lie(w: World) -> None:
    forged(w, 64, "<I", 1)


@refused(Corrupt)
def the_place_of_the_data_is_a_lie(w: World) -> None:
    forged(w, 24, "<I", 64)


@refused(Corrupt)
def the_reserved_field_is_used(w: World) -> None:
    forged(w, 28, "<I", 1)


@refused(Incompatible)
def the_codec_is_the_reserved_one(w: World) -> None:
    forged(w, 4, "<B", 3)


@refused(Corrupt)
def the_padding_carries_something(w: World) -> None:
    path = w.path(w.made.manifest.pages[0].digest)
    raw = bytearray(path.read_bytes())
    (data_offset,) = struct.unpack_from("<I", raw, 24)
    raw[data_offset - 1] = 1
    w.overwrite(path, bytes(raw))
    w.graft()


@refused(Corrupt)
def something_follows_the_last_frame(w: World) -> None:
    path = w.path(w.made.manifest.pages[0].digest)
    w.overwrite(path, path.read_bytes() + b"\0")
    w.graft()


def bomb(w: World, n_codec: int, planes: int) -> None:
    """A frame that inflates to 64 MiB where the header says 8 bytes, every checksum right."""
    digest = w.made.manifest.pages[0].digest
    packed = zstandard.ZstdCompressor().compress(bytes(64 << 20))
    head = struct.pack("<4sBBHQIIII", b"KVZ1", n_codec, planes, 0, 8, 8 << 20, 1, 0, 0)
    head += bytes.fromhex(digest.removeprefix("sha256:"))
    head += struct.pack("<I", 8) + struct.pack("<II", len(packed), 1) * planes
    body = packed * planes
    head += blake3(body).digest()
    end = len(head) + 32
    head = head[:24] + struct.pack("<I", end) + head[28:]
    w.overwrite(w.path(digest), head + blake3(head).digest() + body)
    codec.decode(w.path(digest).read_bytes(), digest=digest, size=8, what="bomb")


@refused(Corrupt)
def a_zstd_frame_is_a_bomb(w: World) -> None:
    bomb(w, 1, 1)


@refused(Corrupt)
def a_plane_is_a_bomb(w: World) -> None:
    bomb(w, 2, 2)


# Envelopes, thresholds.


@refused(Untrusted)
def nobody_signed(w: World) -> None:
    w.unsigned()
    w.graft()


@refused(Untrusted)
def a_stranger_signed(w: World) -> None:
    a.deposit(w.store, MALLORY, ref="demo", ids=range(80, 99))
    w.graft()


@refused(Untrusted)
def a_stranger_signs_under_anothers_key_id(w: World) -> None:
    made = w.unsigned()
    envelope = json.loads(sign_envelope(encode_provenance(made.digest, a.provenance()), [MALLORY]))
    envelope["signatures"][0]["keyid"] = ALICE.public.keyid
    w.record(made.digest, json.dumps(envelope).encode())
    w.graft()


@refused(Untrusted)
def the_signature_was_made_for_another_artifact(w: World) -> None:
    made = w.unsigned()
    w.record(made.digest, bytes(w.store.objects.read(w.made.envelopes[0], what="it")))
    w.graft()


def with_envelope(w: World, change: Callable[[dict[str, Any]], object]) -> None:
    """An artifact whose only envelope is Alice's, edited."""
    made = w.unsigned()
    payload = encode_provenance(made.digest, a.provenance())
    envelope = json.loads(sign_envelope(payload, [ALICE]))
    change(envelope)
    w.record(made.digest, json.dumps(envelope).encode())
    w.graft()


@refused(Untrusted)
def the_payload_is_edited(w: World) -> None:
    import base64

    def change(envelope: dict[str, Any]) -> None:
        payload = base64.b64decode(envelope["payload"]).replace(b"handbook.md", b"handbook.mq")
        envelope["payload"] = base64.b64encode(payload).decode()

    with_envelope(w, change)


@refused(Untrusted)
def the_payload_type_is_edited(w: World) -> None:
    with_envelope(w, lambda envelope: envelope.update(payloadType="application/json"))


@refused(Untrusted)
def the_signature_is_dropped(w: World) -> None:
    other = json.loads(sign_envelope(b"{}", [MALLORY]))["signatures"]
    with_envelope(w, lambda envelope: envelope.update(signatures=other))


@refused(Untrusted)
def the_signature_is_that_of_another_payload(w: World) -> None:
    other = json.loads(sign_envelope(b"{}", [ALICE]))["signatures"]
    with_envelope(w, lambda envelope: envelope.update(signatures=other))


@refused(Corrupt)
def an_envelope_that_is_logged_is_edited(w: World) -> None:
    raw = bytes(w.store.objects.read(w.made.envelopes[0], what="it"))
    w.put_under(w.made.envelopes[0], raw.replace(b"signatures", b"signatureS"))
    w.graft()


@refused(Corrupt)
def an_envelope_that_is_logged_is_removed(w: World) -> None:
    w.path(w.made.envelopes[0]).unlink()
    w.graft()


@refused(Untrusted)
def one_key_signs_twice_towards_a_threshold(w: World) -> None:
    w.trusting(lambda t: t.with_key(BOB.public, [DEPOSITOR]), ALICE)
    w.trusting(lambda t: t.with_threshold(DEPOSITOR, 2), ALICE)
    payload = encode_provenance(w.made.digest, a.provenance())
    envelope = json.loads(sign_envelope(payload, [ALICE]))
    envelope["signatures"] *= 2
    w.record(w.made.digest, json.dumps(envelope).encode(), sign_envelope(payload, [ALICE]))
    w.graft()


@refused(Untrusted)
def a_verifier_signs_a_deposit(w: World) -> None:
    w.trusting(lambda t: t.with_key(BOB.public, [VERIFIER]), ALICE)
    a.deposit(w.store, BOB, ref="demo", ids=range(80, 99))
    w.graft()


@refused(Untrusted)
def one_verifier_replays_twice_towards_a_threshold(w: World) -> None:
    w.trusting(lambda t: t.with_key(BOB.public, [VERIFIER]), ALICE)
    w.trusting(lambda t: t.with_threshold(VERIFIER, 2), ALICE)
    for pages in ("pages 6 of 6", "pages 7 of 7"):
        said = TestResult(PASSED, "replay", configuration=(Resource(pages),))
        a.attest(w.store, BOB, w.made.digest, encode_test_result(w.made.digest, said))
    w.graft()


@refused(Untrusted)
def a_replay_saw_only_some_pages(w: World) -> None:
    w.trusting(lambda t: t.with_key(BOB.public, [VERIFIER]), ALICE)
    w.trusting(lambda t: t.with_threshold(VERIFIER, 1), ALICE)
    said = TestResult(PASSED, "replay", configuration=(Resource("pages 5 of 6"),))
    a.attest(w.store, BOB, w.made.digest, encode_test_result(w.made.digest, said))
    w.graft()


@refused(Untrusted)
def a_trusted_key_says_that_a_replay_failed(w: World) -> None:
    w.trusting(lambda t: t.with_key(BOB.public, [VERIFIER]), ALICE)
    said = encode_test_result(w.made.digest, TestResult(FAILED, "replay"))
    a.attest(w.store, BOB, w.made.digest, said)
    w.graft()


@refused(Untrusted)
def a_stranger_says_that_the_required_gate_passed(w: World) -> None:
    w.store.config.set("deposit.require", ("formal",))
    said = encode_test_result(w.made.digest, TestResult(PASSED, "formal"))
    a.attest(w.store, MALLORY, w.made.digest, said)
    w.graft()


@refused(Untrusted)
def a_revoked_key_signs(w: World) -> None:
    w.trusting(lambda t: t.with_key(BOB.public, [DEPOSITOR]), ALICE)
    place = Revocation(BOB.public.keyid, w.store.log.origin, w.store.log.size)
    w.trusting(lambda t: t.with_revocation(place), ALICE)
    a.deposit(w.store, BOB, ref="demo", ids=range(80, 99))
    w.graft()


@refused(Untrusted)
def a_revoked_key_is_dated_by_another_log(w: World) -> None:
    w.trusting(lambda t: t.with_key(BOB.public, [DEPOSITOR]), ALICE)
    a.deposit(w.store, BOB, ref="demo", ids=range(80, 99))
    place = Revocation(BOB.public.keyid, "kvg-elsewhere", 10_000)
    w.trusting(lambda t: t.with_revocation(place), ALICE)
    w.graft()


# The trust file.

for _field, _path, _value in (
    ("version", ("version",), 2),
    ("bootstrap", ("bootstrap",), MALLORY.public.keyid),
    ("roles", ("keys", 0, "roles"), ["depositor", "publisher", "verifier"]),
    ("thresholds", ("thresholds",), {"depositor": 1}),
    ("revoked", ("revoked",), [{"keyid": "0" * 64, "origin": "kvg-x", "size": 1}]),
    ("signatures", ("signatures",), []),
):

    def _edit_trust(w: World, path: tuple[str | int, ...] = _path, value: object = _value) -> None:
        path_ = w.store.root / "trust.json"
        w.overwrite(path_, edited(path_.read_bytes(), *path, value=value))
        w.graft()

    _edit_trust.__name__ = f"trust_field_{_field}_is_edited"
    ROWS.append((_edit_trust.__name__, Untrusted, _edit_trust))


@refused(Untrusted)
def the_trust_file_is_mallorys_own(w: World) -> None:
    w.overwrite(w.store.root / "trust.json", encode_trust(bootstrap_trust(MALLORY)))
    w.graft()


@refused(Corrupt)
def the_trust_file_is_json_very_deep(w: World) -> None:
    parse_trust(b'{"keys":' * 50_000)


@refused(Untrusted)
def a_key_adds_itself(w: World) -> None:
    w.trusting(lambda t: t.with_key(MALLORY.public, [PUBLISHER]), MALLORY)


@refused(Untrusted)
def a_depositor_makes_itself_a_publisher(w: World) -> None:
    w.trusting(lambda t: t.with_key(BOB.public, [DEPOSITOR]), ALICE)
    w.trusting(lambda t: t.with_key(BOB.public, [PUBLISHER]), BOB)


@refused(Untrusted)
def the_threshold_is_lowered_by_one_of_two(w: World) -> None:
    w.trusting(lambda t: t.with_key(BOB.public, [PUBLISHER]), ALICE)
    w.trusting(lambda t: t.with_threshold(PUBLISHER, 2), ALICE, BOB)
    w.trusting(lambda t: t.with_threshold(PUBLISHER, 1), ALICE, ALICE)


@refused(Untrusted)
def a_trust_version_is_skipped(w: World) -> None:
    w.trusting(lambda t: t.with_threshold(VERIFIER, 1).with_threshold(VERIFIER, 0), ALICE)


@refused(Untrusted)
def an_older_trust_file_is_published_again(w: World) -> None:
    old = w.store.trust
    w.trusting(lambda t: t.with_threshold(VERIFIER, 1), ALICE)
    w.store.set_trust(old)


@refused(Untrusted)
def a_revoked_publisher_signs_a_change(w: World) -> None:
    w.trusting(lambda t: t.with_key(BOB.public, [PUBLISHER]), ALICE)
    place = Revocation(BOB.public.keyid, w.store.log.origin, 1)
    w.trusting(lambda t: t.with_revocation(place), ALICE)
    w.trusting(lambda t: t.with_threshold(VERIFIER, 1), BOB)


@refused(UsageError)
def the_last_publisher_is_taken_away(w: World) -> None:
    w.trusting(lambda t: t.without_key(ALICE.public.keyid), ALICE)


# The log.

for _field, _line, _value in (
    ("origin", 0, "kvg-" + "0" * 32),
    ("size", 1, "2"),
    ("root", 2, "qqlAJmTxpB9A67xSyZk+tmrrNmYClY/fqig7ceZNsSM="),
):

    def _edit_checkpoint(w: World, line: int = _line, value: str = _value) -> None:
        lines = w.log("checkpoint").read_text().split("\n")
        lines[line] = value
        w.overwrite(w.log("checkpoint"), "\n".join(lines).encode())
        w.graft()

    _edit_checkpoint.__name__ = f"checkpoint_{_field}_is_edited"
    ROWS.append((_edit_checkpoint.__name__, Untrusted, _edit_checkpoint))


@refused(Corrupt)
def the_checkpoint_bears_no_signature(w: World) -> None:
    text = w.log("checkpoint").read_text()
    w.overwrite(w.log("checkpoint"), text.partition("—")[0].encode())
    w.graft()


@refused(Untrusted)
def the_log_is_mallorys_own(w: World) -> None:
    a.make_store(w.folder / "theirs", label="mallory")
    shutil.rmtree(w.store.root / "log")
    shutil.copytree(w.folder / "theirs/.kvg/log", w.store.root / "log")
    w.graft()


@refused(Untrusted)
def the_verifier_line_is_another(w: World) -> None:
    line = encode_verifier(w.store.log.origin, MALLORY.public)
    w.overwrite(w.log("verifier"), f"{line}\n".encode())
    w.graft()


@refused(Untrusted)
def the_pinned_verifier_is_another(w: World) -> None:
    line = encode_verifier(w.store.log.origin, MALLORY.public)
    w.store.config.set("store.log", line)
    w.overwrite(w.log("verifier"), f"{line}\n".encode())
    w.graft()


@refused(Untrusted)
def the_log_goes_back_and_the_ref_to_an_older_artifact(w: World) -> None:
    shutil.copytree(w.store.root, w.folder / "older")
    w.store.set_ref("demo", w.other.digest)
    w.graft()
    shutil.rmtree(w.store.root)
    shutil.move(w.folder / "older", w.store.root)
    w.graft()


@refused(Untrusted)
def the_log_is_forked_by_its_own_key(w: World) -> None:
    shutil.copytree(w.store.root, w.folder / "fork")
    fork = Store.open(w.folder / "fork")
    key = w.store.log_key()
    w.store.set_ref("demo", w.other.digest)
    w.graft()
    for n in range(3):
        fork.publish([RefMove(f"x{n}", w.made.digest)], key=key)
    shutil.rmtree(w.store.root)
    shutil.move(w.folder / "fork", w.store.root)
    w.graft()


@refused(Untrusted)
def the_logs_old_key_signs_after_it_was_replaced(w: World) -> None:
    from kvg.store.rekey import rekey

    old = w.store.log_key()
    rekey(w.store, now=a.NOW)
    w.again().publish([RefMove("x", w.made.digest)], key=old)


@refused(Untrusted)
def a_stranger_appends_to_the_log(w: World) -> None:
    w.store.publish([RefMove("x", w.made.digest)], key=MALLORY)


@refused(Corrupt)
def a_tile_of_hashes_is_cut_short(w: World) -> None:
    (path,) = (p for p in w.log("tile/0").rglob("*") if p.name == str(w.store.log.size))
    w.overwrite(path, path.read_bytes()[:-32])
    w.graft()


@refused(Corrupt)
def an_entry_of_the_log_is_edited(w: World) -> None:
    for path in w.log("tile/entries").rglob("*"):
        if path.is_file():
            w.overwrite(path, path.read_bytes().replace(b'"demo"', b'"demO"'))
    shutil.rmtree(w.store.root / "index.lmdb")
    w.graft()


@refused(Corrupt)
def the_log_holds_an_envelope_for_another_artifact(w: World) -> None:
    receipt = w.store.log.receipt(1)
    parse_receipt(receipt.replace(b"index 1\n", b"index 99\n"), what="it")


@refused(Untrusted)
def a_receipt_is_shown_for_another_entry(w: World) -> None:
    log = w.store.log
    receipt = parse_receipt(log.receipt(1), what="it")
    entry = next(iter(log.read(2, 3)))
    check_receipt(receipt, entry, origin=log.origin, verifier=log.verifier, what="it")


@refused(Untrusted)
def a_receipt_is_of_another_log(w: World) -> None:
    log = w.store.log
    receipt = parse_receipt(log.receipt(1), what="it")
    entry = next(iter(log.read(1, 2)))
    check_receipt(receipt, entry, origin="kvg-other", verifier=log.verifier, what="it")


@refused(Untrusted)
def a_receipt_is_signed_by_a_stranger(w: World) -> None:
    log = w.store.log
    receipt = parse_receipt(log.receipt(1), what="it")
    entry = next(iter(log.read(1, 2)))
    check_receipt(receipt, entry, origin=log.origin, verifier=MALLORY.public, what="it")


# Names, keys, files.


@refused(UsageError)
def a_ref_climbs_out_of_its_folder(w: World) -> None:
    w.store.set_ref("a/../../b", w.made.digest)


@refused(UsageError)
def a_ref_begins_with_a_dot(w: World) -> None:
    w.store.set_ref(".hidden", w.made.digest)


@refused(UsageError)
def a_ref_holds_a_control_character(w: World) -> None:
    w.store.set_ref("a\x1b[2Jb", w.made.digest)


@refused(UsageError)
def a_key_has_a_path_for_a_name(w: World) -> None:
    a.make_keyring(w.folder).new("../../escape")


@refused(Untrusted)
def a_key_is_readable_by_others(w: World) -> None:
    ring = a.make_keyring(w.folder)
    ring.new("mine")
    (ring.folder / "mine.pem").chmod(0o644)
    ring.load("mine")


@refused(Untrusted)
def a_key_lies_under_a_store(w: World) -> None:
    from kvg.trust.keyring import load_file

    path = w.store.root / "key.pem"
    path.write_bytes(encode_private(MALLORY, None))
    path.chmod(0o600)
    load_file(path, None)


@refused(Untrusted)
def a_key_lies_under_a_store_behind_a_link(w: World) -> None:
    from kvg.trust import Keyring

    (w.store.root / "keys").mkdir()
    (w.folder / "innocent").symlink_to(w.store.root / "keys")
    Keyring(w.folder / "innocent").new("mine")


@refused(Untrusted)
def a_key_is_a_pipe(w: World) -> None:
    import os

    from kvg.trust.keyring import load_file

    os.mkfifo(w.folder / "key.pem", 0o600)
    writer = os.open(w.folder / "key.pem", os.O_RDWR)
    try:
        load_file(w.folder / "key.pem", None)
    finally:
        os.close(writer)


@refused(NotFound)
def a_store_is_an_empty_folder_of_that_name(w: World) -> None:
    shutil.rmtree(w.store.root)
    w.store.root.mkdir()
    w.graft()


for _folder in ("objects", "log", "peers", "tmp", "index.lmdb"):

    def _link_folder(w: World, name: str = _folder) -> None:
        shutil.move(w.store.root / name, w.folder / "elsewhere")
        (w.store.root / name).symlink_to(w.folder / "elsewhere")
        w.graft()

    _link_folder.__name__ = f"the_stores_{_folder}_is_a_link"
    ROWS.append((_link_folder.__name__, Corrupt, _link_folder))


def _link_prefix(w: World, digest: Digest) -> None:
    """The folder of ``digest`` in ``objects`` leads out of the store."""
    folder = w.path(digest).parent
    if folder.exists():
        shutil.move(folder, w.folder / "elsewhere")
    else:
        (w.folder / "elsewhere").mkdir()
    folder.symlink_to(w.folder / "elsewhere")


@refused(Corrupt)
def an_object_would_be_written_through_a_link(w: World) -> None:
    digest = sha256(b"new")
    _link_prefix(w, digest)
    with w.store.pending() as pending:
        pending.put(b"new")


@refused(Corrupt)
def an_object_would_be_removed_through_a_link(w: World) -> None:
    from kvg.store.sweep import sweep

    digest = sha256(b"garbage")
    with w.store.pending() as pending:
        pending.put(b"garbage")
    _link_prefix(w, digest)
    try:
        sweep(w.store)
    finally:
        assert w.path(digest).exists()


@refused(Incompatible)
def the_store_is_of_a_later_format(w: World) -> None:
    w.overwrite(w.store.root / "format", b"kvg-store 2\n")
    w.graft()


# The run.


@pytest.mark.parametrize(
    ("error", "attack"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_is_refused(world: World, error: type[KvgError], attack: Attack) -> None:
    with pytest.raises(KvgError) as caught:
        attack(world)
    assert type(caught.value) is error, caught.value
    assert caught.value.message and "\n" not in caught.value.message


def test_the_table_is_as_long_as_it_says() -> None:
    names = [name for name, _, _ in ROWS]
    assert len(names) >= 50 and len(set(names)) == len(names)


def test_the_world_is_good_before_it_is_attacked(world: World) -> None:
    world.graft()
    world.graft(world.other.digest)


def test_an_alien_index_is_not_believed(world: World) -> None:
    """The index is a cache: another store's, or junk, changes no answer."""
    other, key = a.make_store(world.folder / "theirs", label="mallory")
    a.deposit(other, key, ref="demo", ids=range(70, 90))
    other.close()
    alien = (world.folder / "theirs/.kvg/index.lmdb/data.mdb").read_bytes()
    for data in (alien, alien[:4096], b"junk" * 5000, b""):
        world.store.close()
        world.overwrite(world.store.root / "index.lmdb/data.mdb", data)
        assert world.again().resolve("demo").digest == world.made.digest
        world.graft()
