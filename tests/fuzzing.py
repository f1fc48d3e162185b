"""What is fuzzed: every decoder of untrusted bytes, with good documents and ways to edit them.

``targets`` gives for each decoder good documents, how one is edited, and what reads it. Only our
own errors may come out of it, and what is read must be canonical. ``tests/test_fuzz.py`` runs each
a hundred times, ``bench/fuzz.py`` a million times; ``bench/fuzz_guided.py`` is led by what code is
reached.
"""

from __future__ import annotations

import base64
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

from kvg import canon, codec
from kvg.digest import Digest, sha256
from kvg.errors import Bug, KvgError
from kvg.flow import wire
from kvg.flow.bundle import bundle_create
from kvg.flow.requests import (
    AskRequest,
    DepositRequest,
    GraftRequest,
    LogitsRequest,
    ReplayRequest,
    Sampling,
)
from kvg.flow.settings import Settings
from kvg.log.checkpoint import parse_checkpoint
from kvg.log.entry import encode_entry, parse_entry
from kvg.log.receipts import encode_receipt, parse_receipt
from kvg.log.tiles import Tiles, encode_bundle, parse_bundle
from kvg.objects.manifest import encode_manifest, parse_manifest
from kvg.objects.page import check_page
from kvg.objects.preregistration import (
    ExpectedLogits,
    ExpectedRun,
    Preregistration,
    encode_preregistration,
    parse_preregistration,
)
from kvg.objects.statement import PASSED, Resource, TestResult, encode_test_result, parse_statement
from kvg.objects.tokens import decode_ids, encode_ids
from kvg.problem.family import parse_family, parse_problem
from kvg.problem.method import parse_method
from kvg.remote.bundle import Bundle
from kvg.remote.layout import encode_pointer, parse_pointer
from kvg.serve.openai import parse_asked
from kvg.signing.cosignature import Witness, encode_witness, parse_witness
from kvg.signing.dsse import parse_envelope
from kvg.signing.keys import encode_private, encode_public, parse_private, parse_public
from kvg.signing.note import encode_verifier, parse_note, parse_verifier
from kvg.store import Store
from kvg.store.config import Config
from kvg.store.names import parse_ref_at
from kvg.store.wanted import decode_wanted, encode_wanted, mark_of
from kvg.trust import encode_trust, parse_trust
from tests import artifacts as a
from tests.editing import Edit, edit_bundle, edit_bytes, edit_document, edit_stored, editor_of_notes

ALICE = a.key_of("alice")

NAMES = (
    "manifest", "statement", "envelope", "log entry", "trust", "preregistration", "family",
    "method", "pointer", "canonical json", "token ids", "page", "checkpoint", "note", "receipt",
    "entry bundle", "verifier key", "witness key", "public key", "private key", "ref",
    "session request", "chat request", "what to look for",
    "stored form", "log tiles", "bundle", "configuration", "log head",
)  # fmt: skip


@dataclass(frozen=True)
class Decoder:
    """A decoder, good inputs, and the encoder that must give back the bytes of what was read."""

    decode: Callable[[bytes], Any]
    seeds: tuple[bytes, ...]
    encode: Callable[[Any], bytes] | None = None
    is_json: bool = True


@contextmanager
def folder_in_memory() -> Iterator[Path]:
    """A folder whose syncs cost nothing, where the system has one; else any."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


@dataclass(frozen=True)
class Target:
    """What is fuzzed: good documents, how one is edited, and what reads it.

    ``read`` takes bytes in the place of the good document of a number; whether it accepts them.
    """

    seeds: tuple[bytes, ...]
    edit: Edit
    read: Callable[[int, bytes], bool]

    def check(self, random: Random, junk: bytes | None) -> bool:
        """One execution; ``junk`` is read instead of an edited document."""
        number = random.randrange(len(self.seeds))
        return self.read(number, self.edit(self.seeds[number], random) if junk is None else junk)


LOG_KEY = a.key_of("log")


class Given:
    """Good documents of a small store, the same ones every time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with (
            mock.patch("kvg.signing.keys.generate", lambda: LOG_KEY),
            mock.patch("os.urandom", bytes),
        ):
            self.store, key = a.make_store(folder)
        said = TestResult(PASSED, "test", evidence=(Resource("log", sha256(b"e"), "file:///x"),))
        self.made = a.deposit(self.store, key, cuts=(13,), gates=[said])
        self.said = encode_test_result(self.made.digest, said)
        self.page = self.made.manifest.pages[0]
        self.raw_page = bytes(self.store.objects.read(self.page.digest, what="it"))

    def read(self, digest: Digest) -> bytes:
        return bytes(self.store.objects.read(digest, what="it"))

    def parse_page(self, data: bytes) -> bytes:
        check_page(data, self.made.manifest.group("full"), 8, what="it")
        return data

    def bundle(self) -> bytes:
        path = self.folder / "seed.tar"
        own = Settings(self.folder, self.folder / "keys", self.folder / "c", self.folder / "f")
        bundle_create(self.store, own, path)
        return path.read_bytes()


def decoders(given_: Given) -> dict[str, Decoder]:
    made, store = given_.made, given_.store
    envelopes = tuple(given_.read(digest) for digest in made.envelopes)
    payloads = tuple(parse_envelope(raw, what="it").payload for raw in envelopes)
    entries = tuple(store.log.read())
    run = ExpectedRun(made.digest, a.MODEL, a.ENGINE, made.manifest.tokens.digest, 27,
                      (given_.page.digest,),
                      (ExpectedLogits(sha256(b"p"), 3, sha256(b"l")),))  # fmt: skip
    problem = parse_problem("What is 3 + 4 on 2024-02-29 in [1, 2]?", "s0 + s1 > 2")
    return {
        "manifest": Decoder(parsed(parse_manifest), (encode_manifest(made.manifest),),
                            encode_manifest),
        "statement": Decoder(parsed(parse_statement), payloads),
        "envelope": Decoder(parsed(parse_envelope), envelopes),
        "log entry": Decoder(parsed(parse_entry), entries, encode_entry),
        "trust": Decoder(parse_trust, (encode_trust(store.trust),), encode_trust),
        "preregistration": Decoder(parsed(parse_preregistration),
                                   (encode_preregistration(Preregistration((run,))),),
                                   encode_preregistration),
        "family": Decoder(parsed(parse_family), (problem.family.document,),
                          lambda found: found.document),
        "method": Decoder(parsed(parse_method), (method_seed(),), lambda found: found.document),
        "pointer": Decoder(parsed(parse_pointer), (pointer_seed(),), encode_pointer),
        "canonical json": Decoder(lambda data: canon.decode(data, what="it"),
                                  (encode_manifest(made.manifest),), canon.encode),
        "token ids": Decoder(lambda data: decode_ids(data, what="it"), (encode_ids(made.ids),),
                             encode_ids, is_json=False),
        "page": Decoder(given_.parse_page, (given_.raw_page,), is_json=False),
        "checkpoint": Decoder(parsed(parse_checkpoint), (store.log.note,), is_json=False),
        "note": Decoder(parsed(parse_note), (store.log.note,), is_json=False),
        "receipt": Decoder(parsed(parse_receipt), (store.log.receipt(1),), encode_receipt,
                           is_json=False),
        "entry bundle": Decoder(parsed(parse_bundle), (encode_bundle(entries),), encode_bundle,
                                is_json=False),
        "verifier key": Decoder(text(parse_verifier),
                                (encode_verifier("kvg-x", ALICE.public).encode(),),
                                lambda found: encode_verifier(*found).encode(), is_json=False),
        "session request": Decoder(session_request, session_seeds()),
        "chat request": Decoder(lambda data: parse_asked(wire.parse_body(data), is_chat=True),
                                (chat_seed(),)),
        "witness key": Decoder(text(parse_witness),
                               (encode_witness(Witness("w", ALICE.public)).encode(),),
                               lambda found: encode_witness(found).encode(), is_json=False),
        "public key": Decoder(text(parse_public), tuple(
            encode_public(ALICE.public, form, "x").encode() for form in ("pem", "openssh", "note")
        ), is_json=False),
        "private key": Decoder(
            lambda data: parse_private(data, what="it", passphrase=lambda: b"x"),
            (encode_private(ALICE, None),), is_json=False),
        "what to look for": Decoder(
            lambda data: decode_wanted(data, of="0" * 64, what="it"),
            (encode_wanted(map(mark_of, (a.SOURCE, given_.raw_page)), of="0" * 64),),
            lambda found: encode_wanted(found, of="0" * 64)),
        "ref": Decoder(lambda data: parse_ref_at(data.decode("utf-8", "replace")),
                       (b"docs/a@{3}",), is_json=False),
    }  # fmt: skip


def parsed(parse: Callable[..., Any]) -> Callable[[bytes], Any]:
    return lambda data: parse(data, what="it")


def text(parse: Callable[..., Any]) -> Callable[[bytes], Any]:
    return lambda data: parse(data.decode("utf-8", "replace"), what="it")


def method_seed() -> bytes:
    from kvg.problem.method import Method
    from kvg.problem.ranges import read_ranges

    slots = read_ranges(b'[{"least": 1, "most": 9}]', ["int"], what="it")
    return Method(sha256(b"f"), sha256(b"p"), sha256(b"c"), slots).document


def pointer_seed() -> bytes:
    from kvg.remote.layout import Pointer

    return encode_pointer(Pointer("kvg-" + "0" * 32, 7))


def attempt(decode: Callable[[bytes], Any], data: bytes) -> Any:
    """What ``decode`` gives, None when it refuses; anything but our own errors gets out."""
    try:
        return decode(data)
    except KvgError as error:
        assert not isinstance(error, Bug) and error.message
        return None


def session_request(data: bytes) -> Any:
    """A request of each kind, as a session reads it; what was read can be sent again."""
    body = wire.parse_body(data)
    kinds = (GraftRequest, AskRequest, LogitsRequest, ReplayRequest, DepositRequest)
    kind = kinds[len(data) % len(kinds)] if "kind" not in body else kinds[0]
    found = wire.parse_request(kind, body.get("request"))
    sent = json.loads(json.dumps({"request": wire.encode_request(found)}))
    assert wire.parse_request(kind, sent["request"]) == found
    return found


def session_seeds() -> tuple[bytes, ...]:
    sampling = Sampling(9, 0.5, 0.9, 7, ("a", "b"))
    message = {"role": "user", "content": "x"}
    requests = (
        GraftRequest("r", prompt="p", sampling=sampling, at=3, cut=4, require=("tests",)),
        GraftRequest("r", texts=("a", "b"), stream=True),
        GraftRequest("r", messages=(message,), or_fresh="m"),
    )
    return tuple(
        json.dumps({"kind": 0, "request": wire.encode_request(request), "slot": 1}).encode()
        for request in requests
    )


def chat_seed() -> bytes:
    value = {
        "model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}],
        "kvg_ref": "r", "max_tokens": 3, "temperature": 0.5, "top_p": 0.9, "seed": 1,
        "stop": ["a"], "n": 1, "stream": True, "stream_options": {"include_usage": True},
    }  # fmt: skip
    return json.dumps(value).encode()


def targets(given_: Given) -> dict[str, Target]:
    """Every target by its decoder's name."""
    return {
        **{name: decoder_target(decoder) for name, decoder in decoders(given_).items()},
        "stored form": stored_target(),
        "log tiles": tiles_target(given_),
        "bundle": bundle_target(given_),
        "configuration": configuration_target(given_),
        "log head": log_head_target(given_),
    }


def decoder_target(decoder: Decoder) -> Target:
    for seed in decoder.seeds:
        decoder.decode(seed)

    def read(_: int, data: bytes) -> bool:
        found = attempt(decoder.decode, data)
        if found is not None and decoder.encode is not None:
            assert decoder.encode(found) == data
        return found is not None

    return Target(decoder.seeds, edit_document if decoder.is_json else edit_bytes, read)


def stored_target() -> Target:
    vectors = json.loads((Path(__file__).parent / "vectors/kvz1.json").read_text())["kvz1"]
    good = [(base64.b64decode(v["stored_b64"]), v["raw_sha256"]) for v in vectors]
    good = [item for item in good if len(item[0]) < 100_000]

    def read(number: int, data: bytes) -> bool:
        named = Digest(f"sha256:{good[number][1]}")
        found = attempt(
            lambda raw: codec.decode(raw, digest=named, size=None, what="it", limit=1 << 24), data
        )
        assert found is None or sha256(found) == named
        return found is not None

    return Target(tuple(stored for stored, _ in good), edit_stored, read)


class Source:
    """A log's files in memory, one of them edited."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files

    def read(self, name: str, limit: int) -> bytes | None:
        found = self.files.get(name)
        return None if found is None else found[: limit + 1]

    def widths(self, name: str) -> list[int]:
        start = f"{name}.p/"
        return sorted(int(x.removeprefix(start)) for x in self.files if x.startswith(start))


def tiles_target(given_: Given) -> Target:
    """Entries read through tiles of which one was edited are the good ones, or none."""
    log = given_.store.log
    files = {
        str(path.relative_to(log.folder)): path.read_bytes()
        for path in sorted(log.folder.rglob("*"))
        if path.is_file() and "tile" in path.parts
    }
    good, names = list(log.read()), sorted(files)

    def read(number: int, data: bytes) -> bool:
        source = Source({**files, names[number]: data})
        tiles = Tiles(source, log.size, log.root)  # type: ignore[arg-type]
        found = attempt(lambda _: list(tiles.entries(0, log.size)), b"")
        assert found is None or found == good
        return found is not None

    return Target(tuple(files[name] for name in names), edit_bytes, read)


def bundle_target(given_: Given) -> Target:
    seed = given_.bundle()
    path, known = given_.folder / "it.tar", frozenset(given_.store.objects.all())

    def look(data: bytes) -> bool:
        path.write_bytes(data)
        bundle = Bundle(path)
        try:
            is_good = all(bundle.blob_is_good(digest) for digest in bundle.blobs)
            for digest in known - bundle.missing(tuple(known)):
                assert b"".join(bundle.get(digest, limit=1 << 24))
            for name in bundle.refs():
                bundle.pointer(name)
            for origin in bundle.origins():
                bundle.log(origin).read("checkpoint", 1 << 16)
            return is_good
        finally:
            bundle.close()

    assert look(seed) and Bundle(path).artifacts
    return Target((seed,), edit_bundle, lambda _, data: bool(attempt(look, data)))


def configuration_target(given_: Given) -> Target:
    seed = given_.store.config.path.read_bytes()
    seed += b'[deposit]\nrequire = ["seeds"]\n[model.m]\npath = "/m"\nn = 1_0\nb = true\n'
    path = given_.folder / "config.toml"

    def read(_: int, data: bytes) -> bool:
        path.write_bytes(data)
        config = attempt(lambda _: Config(path), b"")
        if config is None:
            return False
        attempt(lambda _: config.words("deposit.require"), b"")
        return attempt(lambda _: list(config.items()), b"") is not None

    return Target((seed,), edit_bytes, read)


def log_head_target(given_: Given) -> Target:
    """What a store reads first, before any signature is known to be good."""
    root, names = given_.store.root, ("log/checkpoint", "log/verifier")
    good = tuple((root / name).read_bytes() for name in names)

    def read(number: int, data: bytes) -> bool:
        path = root / names[number]
        path.write_bytes(data)
        try:
            return attempt(lambda _: Store.open(root).refs(), b"") is not None
        finally:
            path.write_bytes(good[number])

    return Target(good, editor_of_notes(LOG_KEY), read)
