"""Edits get past what guards a form: checksums, signatures, digests."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from kvg.codec import parse_header
from kvg.errors import Corrupt, KvgError
from kvg.remote.bundle import BLOBS, Bundle
from kvg.signing.note import is_note_signed, parse_note
from tests import editing
from tests.fuzzing import LOG_KEY, NAMES, Given, folder_in_memory, targets

TIMES = 60


@pytest.fixture(scope="module")
def given_() -> Iterator[Given]:
    with folder_in_memory() as folder:
        yield Given(folder)


def test_the_documents_are_the_same_every_time(given_: Given) -> None:
    """Those that are read in the place of one of them; a bundle says when it was made."""
    with folder_in_memory() as folder:
        again, first = targets(Given(folder)), targets(given_)
        assert all(again[name].seeds == first[name].seeds for name in NAMES if name != "bundle")


def test_a_blob_that_was_edited_is_named_anew_up_to_the_index(given_: Given) -> None:
    good, path = given_.bundle(), given_.folder / "edited.tar"
    random, whole = Random(0), 0
    for _ in range(TIMES):
        data = editing.edit_bundle(good, random)
        path.write_bytes(data)
        members = editing.members_of(data)
        if not members or members.keys() == editing.members_of(good).keys():
            continue
        try:
            bundle = Bundle(path)
        except KvgError:
            continue
        whole += all(bundle.blob_is_good(digest) for digest in bundle.blobs) and not bundle.absent
        bundle.close()
    assert whole > TIMES // 10


def test_blobs_that_name_one_another_come_to_an_end() -> None:
    one, two = f"{BLOBS}{'1' * 64}", f"{BLOBS}{'2' * 64}"
    members = {
        one: b"2" * 64,
        two: b"1" * 64,
        "index.json": b'{"digest":"sha256:' + b"1" * 64 + b'"}',
    }
    editing.put_member(members, one, b"2" * 64 + b" ", 0)
    assert len(members) == 3 and b"1" * 64 not in members["index.json"]


def test_a_header_that_was_edited_has_its_checksum() -> None:
    vectors = json.loads((Path(__file__).parent / "vectors/kvz1.json").read_text())["kvz1"]
    good, random, messages = base64.b64decode(vectors[0]["stored_b64"]), Random(0), set[str]()
    for _ in range(TIMES):
        try:
            parse_header(editing.edit_stored(good, random), what="it")
        except Corrupt as error:
            messages.add(error.message.partition(": ")[2])
    assert any(message.startswith("malformed header") for message in messages)
    assert editing.edit_stored(b"", random) != b"" or editing.edit_stored(b"KVZ1", random)


def test_a_note_that_was_edited_is_signed(given_: Given) -> None:
    good, random, signed = given_.store.log.note, Random(0), 0
    edit = editing.editor_of_notes(LOG_KEY)
    for _ in range(TIMES):
        try:
            note = parse_note(edit(good, random), what="it")
        except KvgError:
            continue
        is_other = note.text != parse_note(good, what="it").text
        name = note.signatures[0].name if note.signatures else ""
        signed += is_other and is_note_signed(note, name, LOG_KEY.public)
    assert signed > TIMES // 10


@pytest.mark.parametrize("data", [b"", b"3", b'"x"', b"[[[[", b"\xff", b"[" * 5000])
def test_what_is_no_document_is_edited_as_bytes(data: bytes) -> None:
    for seed in range(5):
        assert isinstance(editing.edit_json(data, Random(seed)), bytes)
