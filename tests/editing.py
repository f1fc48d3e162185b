"""Ways to edit a document by chance, so that what reads it gets past its first look.

Each takes the document's bytes, of whatever form they are by now, and a source of chance. Where a
form has checksums, signatures or digests over what was edited, half of the edits make them right
again.
"""

from __future__ import annotations

import copy
import io
import json
import tarfile
from collections.abc import Callable
from random import Random
from typing import Any

from blake3 import blake3

from kvg.digest import hex_of, sha256
from kvg.errors import KvgError
from kvg.remote.bundle import BLOBS, END, encode_member, padding
from kvg.signing.keys import PrivateKey
from kvg.signing.note import parse_note, sign_note

Edit = Callable[[bytes, Random], bytes]

JUNK: tuple[Any, ...] = (
    None, True, 0, -1, 1, 2**31, 2**53 - 1, 2**53, 10**40, "", "\0", "../..", "sha256:", "é" * 3,
    "sha256:" + "0" * 64, "x" * 5000, [], {}, [[]], [0] * 50, {"a": 1}, "kvg.manifest/2",
)  # fmt: skip


def edit_bytes(data: bytes, random: Random) -> bytes:
    out = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 5))):
        at = random.randrange(len(out) + 1)
        kind = random.randrange(6)
        if kind == 0 and at < len(out):
            out[at] ^= 1 << random.randrange(8)
        elif kind == 1 and at < len(out):
            out[at] = random.choice((0, 1, 0x7F, 0x80, 0xFF, 0x22, 0x5C))
        elif kind == 2:
            del out[at : at + random.choice((1, 2, 8, len(out)))]
        elif kind == 3:
            out[at:at] = random.randbytes(random.choice((1, 2, 8, 64)))
        elif kind == 4:
            start = random.randrange(len(out) + 1)
            out[at:at] = out[start : start + 40]
        else:
            out[at : at + 4] = random.choice((0, 1, 2**31, 2**32 - 1)).to_bytes(4, "little")
    return bytes(out)


def edit_json(data: bytes, random: Random) -> bytes:
    """One or two values of the document replaced, dropped, doubled or moved; still canonical.

    What is no JSON object or list is edited as bytes.
    """
    try:
        root = json.loads(data)
        return (
            edit_values(root, random) if isinstance(root, dict | list) else edit_bytes(data, random)
        )
    except (ValueError, RecursionError):
        return edit_bytes(data, random)


def edit_values(root: Any, random: Random) -> bytes:
    for _ in range(random.choice((1, 1, 2))):
        places = list(walk(root))
        if not places:
            break
        node, key = random.choice(places)
        kind = random.randrange(4)
        if kind == 0:
            node[key] = copy.deepcopy(random.choice(JUNK))
        elif kind == 1:
            del node[key]
        elif kind == 2 and isinstance(node, list):
            node.insert(key, copy.deepcopy(node[key]))
        else:
            other, at = random.choice(places)
            node[key] = copy.deepcopy(other[at])
    return json.dumps(root, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def walk(node: Any) -> list[tuple[Any, Any]]:
    keys = list(node) if isinstance(node, dict) else range(len(node))
    out = []
    for key in keys:
        out.append((node, key))
        if isinstance(node[key], dict | list):
            out += walk(node[key])
    return out


def edit_document(data: bytes, random: Random) -> bytes:
    """As values of JSON, mostly."""
    return edit_json(data, random) if random.random() < 0.6 else edit_bytes(data, random)


def edit_stored(data: bytes, random: Random) -> bytes:
    """A stored form; its header's checksum."""
    end = (
        64 + int.from_bytes(data[20:24], "little") * (4 + 8 * data[5] + 32) if len(data) > 24 else 0
    )
    if not 0 < end <= len(data) - 32 or random.random() < 0.5:
        return edit_bytes(data, random)
    head = bytearray(data[:end])
    head[random.randrange(end)] = random.choice((0, 1, 2, 3, 0x7F, 0xFF))
    return bytes(head) + blake3(bytes(head)).digest() + data[end + 32 :]


def editor_of_notes(key: PrivateKey) -> Edit:
    """Of notes that ``key`` signs; its signature."""

    def edit(data: bytes, random: Random) -> bytes:
        if random.random() < 0.5:
            return edit_bytes(data, random)
        try:
            note = parse_note(data, what="it")
            text = edit_bytes(note.text.encode(), random).decode("utf-8", "replace")
            return sign_note(text, [(note.signatures[0].name, key)])
        except (KvgError, ValueError):
            return edit_bytes(data, random)

    return edit


def edit_bundle(data: bytes, random: Random) -> bytes:
    """A bundle; the digest of the blob that was edited, in all that name it, and theirs."""
    members = members_of(data) if random.random() < 0.7 else {}
    if not members:
        return edit_bytes(data, random)
    name = random.choice(sorted(members))
    put_member(members, name, edit_document(members[name], random), 0)
    parts = (
        part
        for name, body in members.items()
        for part in (encode_member(name, len(body)), body, padding(len(body)))
    )
    return b"".join(parts) + END


def members_of(data: bytes) -> dict[str, bytes]:
    """What is in a tar of plain files; nothing where it is none."""
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
            files = ((member.name, tar.extractfile(member)) for member in tar)
            return {name: file.read() for name, file in files if file is not None}
    except (tarfile.TarError, OSError, ValueError, OverflowError, EOFError):
        return {}


DEEPEST = 8
"""As many blobs name one another in turn; an edited one may name itself in the end."""


def put_member(members: dict[str, bytes], name: str, data: bytes, depth: int) -> None:
    """Put ``data`` in the place of ``name``; a blob is named by its digest then, everywhere."""
    del members[name]
    if not name.startswith(BLOBS):
        members[name] = data
        return
    old, new = name.removeprefix(BLOBS).encode(), hex_of(sha256(data)).encode()
    members[BLOBS + new.decode()] = data
    if old == new or depth == DEEPEST:
        return
    for other in [other for other, text in members.items() if old in text]:
        if (text := members.get(other)) is not None:
            told = with_size(text.replace(old, new), new.decode(), len(data))
            put_member(members, other, told, depth + 1)


def with_size(text: bytes, digits: str, size: int) -> bytes:
    """``text`` with ``size`` beside each mention of the digest, where it is JSON."""
    try:
        root = json.loads(text)
        for node, key in walk(root) if isinstance(root, dict | list) else []:
            if key == "digest" and str(node[key]).endswith(digits):
                node["size"] = size
        return json.dumps(root, sort_keys=True, separators=(",", ":")).encode()
    except (ValueError, RecursionError):
        return text
