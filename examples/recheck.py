#!/usr/bin/env python3
"""Check an exported artifact, and the scores in bench/results, without kvg.

Needs Python 3.11, cryptography, blake3, safetensors and the folder rechecking beside it; no torch,
no model, no store, no network.
Written from the description of the formats (docs/formats.md) alone: nothing of kvg is imported, so
it does not share kvg's mistakes.

Export, with the objects as plain files whose names do not matter:

    mkdir out
    kvg cat REF > out/manifest
    for o in $(jq -r '.tokens.digest, .pages[].digest' out/manifest); do
        kvg cat $o > out/${o#sha256:}
    done
    for o in $(kvg show REF --json | jq -r '.attestations[].digest'); do
        kvg cat $o > out/${o#sha256:}
    done
    kvg log REF --receipt --json | jq -rj '.receipt' > out/receipts
    kvg key export KEY > depositor.pub
    kvg log --checkpoint --json | jq -r .verifier > log.verifier

Check, on any machine; get the two keys from somebody you believe, not from the folder:

    python recheck.py out --digest sha256:… --key depositor.pub --log "$(cat log.verifier)"
    python recheck.py --results bench/results

What it proves: every byte is what the manifest names, enough of the keys signed statements about
this manifest, none of them says that a check failed, and the log holds those statements; every
statement that a receipt proves is there, whoever signed it. What it does not: that no statement was
left out together with its receipt (have the receipts from whom you have the log's key), and that
the pages are what the model computes (kvg replay, kvg verify --recompute).
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import re
import struct
import sys
from array import array
from pathlib import Path

from blake3 import blake3
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_public_key,
    load_ssh_public_key,
)
from safetensors import deserialize

sys.path.insert(0, str(Path(__file__).resolve().parent))
from rechecking.files import check_results
from rechecking.rows import Wrong, need, parse

HEAD = "c2sp.org/tlog-proof@v1\n"
RECEIPT = re.compile(r"(?:.+\n)+\n(?:.+\n)+\n(?:— .+\n)+\s*")
MAX_RECEIPT = 1 << 20
STATEMENT = "application/vnd.in-toto+json"
TEST_RESULT = "https://in-toto.io/attestation/test-result/v0.1"
EXPONENT = {"BF16": ("H", 0x7F80), "F16": ("H", 0x7C00), "F32": ("I", 0x7F800000)}


def digest_of(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


# ------------------------------------------------------------------------------- the artifact


def check_artifact(objects: dict[str, bytes], digest: str) -> dict:
    """The manifest, after checking it, the token ids and every page."""
    raw = take(objects, digest, "manifest")
    manifest = parse(raw, "manifest")
    again = json.dumps(manifest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    need(again.encode() == raw, "manifest: not in its canonical form")
    need(manifest["schema"] == "kvg.manifest/1", "manifest: of another version")
    count = manifest["tokens"]["count"]
    need(manifest["positions"] == [0, count], "manifest: positions are not those of its tokens")
    ids = take(objects, manifest["tokens"]["digest"], "token ids")
    need(len(ids) == 4 * count, "token ids: not as many as the manifest says")
    check_layout(manifest["layout"])
    groups = {group["name"]: group for group in manifest["layout"]["groups"]}
    spans = {name: [] for name in groups}
    for page in manifest["pages"]:
        check_page(take(objects, page["digest"], name_of(page)), page, groups[page["group"]])
        spans[page["group"]].append(tuple(page["positions"]))
    cuts = [witness["position"] + 1 for witness in manifest["witnesses"]]
    need(bool(cuts) and cuts == sorted(set(cuts)) and cuts[0] > 0 and cuts[-1] == count,
         "manifest: witnesses")  # fmt: skip
    for name, group in groups.items():
        wanted = needed(group, manifest["layout"]["page_tokens"], cuts)
        need(spans[name] == wanted, f"group {name}: other pages than its visibility needs")
    return manifest


def check_layout(layout: dict) -> None:
    """That it can hold something, and each layer once: what is in no group needs no page."""
    groups, seen = layout["groups"], []
    for group in groups:
        sizes = [group["kv_heads"], group["k_dim"], group["v_dim"]]
        sizes += [] if group["window"] is None else [group["window"]]
        need(all(is_count(size) for size in sizes), f"group {group['name']}: sizes")
        need(bool(group["layers"]), f"group {group['name']}: no layer")
        seen += group["layers"]
    need(is_count(layout["page_tokens"]), "manifest: tokens of a page")
    need(bool(groups), "manifest: no group of layers")
    need(len({group["name"] for group in groups}) == len(groups), "manifest: a group twice")
    need(len(set(seen)) == len(seen), "manifest: a layer twice")


def is_count(value: object) -> bool:
    return type(value) is int and value > 0


def name_of(page: dict) -> str:
    return f"page {page['group']} {page['positions']}"


def take(objects: dict[str, bytes], digest: str, what: str) -> bytes:
    need(digest in objects, f"{what}: no file has digest {digest}")
    return objects[digest]


def needed(group: dict, size: int, cuts: list[int]) -> list[tuple[int, int]]:
    """The pages of a group: those that some end still sees, and up to the last end."""
    count, window = cuts[-1], group["window"]
    out = []
    for start in range(0, count, size):
        end = min(start + size, count)
        if window is None or any(end > max(0, cut - window) and start < cut for cut in cuts):
            out.append((start, end))
    return out


def check_page(raw: bytes, page: dict, group: dict) -> None:
    what, (start, end) = name_of(page), page["positions"]
    need(len(raw) == page["size"], f"{what}: {len(raw)} bytes, not {page['size']}")
    need(blake3(raw).hexdigest() == page["blake3"], f"{what}: another BLAKE3")
    shapes = {}
    for layer in group["layers"]:
        for part, dim in (("k", group["k_dim"]), ("v", group["v_dim"])):
            shapes[f"L{layer:04}.{part}"] = [group["kv_heads"], end - start, dim]
    try:
        tensors = dict(deserialize(raw))
    except Exception as error:  # noqa: BLE001 - whatever the library refuses is wrong here
        raise Wrong(f"{what}: not a safetensors file: {error}") from None
    need({n: t["shape"] for n, t in tensors.items()} == shapes, f"{what}: other tensors")
    for name, tensor in tensors.items():
        need(tensor["dtype"] == group["dtype"], f"{what}: {name} is {tensor['dtype']}")
        need(is_finite(tensor["data"], group["dtype"]), f"{what}: {name} holds NaN or infinity")


def is_finite(data: bytes, dtype: str) -> bool:
    code, exponent = EXPONENT[dtype]
    words = array(code, bytes(data))
    if sys.byteorder == "big":
        words.byteswap()
    return all(word & exponent != exponent for word in set(words))


# ----------------------------------------------------------------------------- who signed what


def read_key(text: str) -> Ed25519PublicKey:
    """A public key as PEM, as a line of OpenSSH, or as a signed note's verifier line."""
    if "BEGIN" not in text and not text.startswith("ssh-"):
        return read_verifier(text)[1]
    load = load_pem_public_key if "BEGIN" in text else load_ssh_public_key
    key = load(text.encode())
    need(isinstance(key, Ed25519PublicKey), "a key that is not Ed25519")
    return key


def read_verifier(line: str) -> tuple[str, Ed25519PublicKey, bytes]:
    """The name, the key and its hash of ``name+hash+key`` (c2sp.org/signed-note)."""
    name, key_hash, encoded = line.strip().split("+", 2)
    raw = decode64(encoded)
    need(raw[:1] == b"\x01" and len(raw) == 33, f"key {name}: not an Ed25519 verifier")
    expected = hashlib.sha256(name.encode() + b"\n" + raw).digest()[:4]
    need(expected.hex() == key_hash, f"key {name}: does not match its hash")
    return name, Ed25519PublicKey.from_public_bytes(raw[1:]), expected


def keyid_of(key: Ed25519PublicKey) -> str:
    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()


def is_signed(key: Ed25519PublicKey, signature: bytes, message: bytes) -> bool:
    try:
        key.verify(signature, message)
    except InvalidSignature:
        return False
    return True


def decode64(text: str) -> bytes:
    return base64.b64decode(text.replace("-", "+").replace("_", "/"))


def statements(
    objects: dict[str, bytes], digest: str, keys: list, proved: set[str]
) -> list[tuple[str, str, dict]]:
    """(envelope, key id, statement) of every valid signature over a statement on ``digest``.

    ``proved``: what the log holds as envelopes about it. Each of these has to be one.
    """
    out = []
    for name, raw in objects.items():
        if name in proved or is_envelope(raw):
            kind, payload, signatures = read_envelope(raw, f"envelope {name}")
            said = said_about(digest, kind, payload, f"envelope {name}", name in proved)
            message = f"DSSEv1 {len(kind)} {kind} {len(payload)} ".encode() + payload
            for key in keys:
                if said and any(is_signed(key, made, message) for made in signatures):
                    out.append((name, keyid_of(key), said))
    return out


def said_about(digest: str, kind: str, payload: bytes, what: str, is_proved: bool) -> dict | None:
    """The statement, when it is about ``digest`` as it has to be where ``is_proved``."""
    if kind != STATEMENT:
        need(not is_proved, f"{what}: of type {kind}, no statement")
        return None
    said = parse(payload, f"{what}: statement")
    about = [subject["digest"].get("sha256") for subject in said["subject"]]
    is_about = digest.removeprefix("sha256:") in about
    if is_proved or is_about:
        need(is_about and len(about) == 1, f"{what}: not about this manifest alone")
    return said if is_about else None


def is_envelope(raw: bytes) -> bool:
    """Whether it is written as one: only the payload is signed, the rest may be spelled anyhow."""
    try:
        value = json.loads(raw.decode())
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and "payloadType" in value


def read_envelope(raw: bytes, what: str) -> tuple[str, bytes, list[bytes]]:
    """The type, the payload and the signatures (https://github.com/secure-systems-lab/dsse)."""
    envelope = parse(raw, what)
    for name in ("payloadType", "payload", "signatures"):
        need(name in envelope, f"{what}: no {name}")
    signatures = [decode64(item["sig"]) for item in envelope["signatures"]]
    return envelope["payloadType"], decode64(envelope["payload"]), signatures


def check_failed(found: list[tuple[str, str, dict]]) -> None:
    """Raise where one of the keys says FAILED, wherever it says so."""
    for _, keyid, said in found:
        if said["predicateType"] == TEST_RESULT:
            result = said["predicate"]["result"]
            need(result in ("PASSED", "WARNED"), f"{keyid[:12]} says that a check failed")


def check_said(found: list[tuple[str, str, dict]], threshold: int) -> list[str]:
    """Raise unless enough keys signed the deposit; the gates that passed."""
    depositors, gates = set(), set()
    for _, keyid, said in found:
        kind, predicate = said["predicateType"], said["predicate"]
        if kind == "https://slsa.dev/provenance/v1":
            depositors.add(keyid)
        elif kind == TEST_RESULT:
            gates.update(predicate.get("passedTests", []))
    need(len(depositors) >= threshold, f"deposit signed by {len(depositors)} of {threshold} keys")
    return sorted(gates)


# ------------------------------------------------------------------------------------- the log


def check_receipts(text: str, verifier: str, digest: str) -> set[str]:
    """The envelopes that the log holds for ``digest``, each proved to be there."""
    name, key, expected = read_verifier(verifier)
    held, (before, *receipts) = set(), text.split(HEAD)
    whole = all(len(part) <= MAX_RECEIPT and RECEIPT.fullmatch(part) for part in receipts)
    need(whole and not before.strip(), "receipts: something among them is none")
    for receipt in receipts:
        entry = check_receipt(HEAD + receipt.rstrip(), name, expected, key)
        if entry["type"] == "attestation" and entry["subject"] == digest:
            held.add(entry["envelope"])
    return held


def check_receipt(receipt: str, name: str, key_hash: bytes, key: Ed25519PublicKey) -> dict:
    head, body, tail = receipt.split("\n\n", 2)
    fields = head.split("\n")
    entry = decode64(fields[1].removeprefix("extra "))
    index = int(fields[2].removeprefix("index "))
    origin, size, root = body.split("\n")[:3]
    need(origin == name, f"receipt: of the log {origin}")
    mine = [line.split(" ") for line in tail.splitlines()]
    mine = [decode64(words[2]) for words in mine if words[1] == name]
    signed = [raw[4:] for raw in mine if raw[:4] == key_hash]
    need(bool(signed) and all(is_signed(key, sig, f"{body}\n".encode()) for sig in signed),
         "receipt: its checkpoint is not signed by the log")  # fmt: skip
    found = root_of(entry, index, int(size), [decode64(line) for line in fields[3:]])
    need(found == decode64(root), f"receipt: entry {index} is not in the log")
    return parse(entry, f"log entry {index}")


def root_of(entry: bytes, index: int, size: int, proof: list[bytes]) -> bytes | None:
    """The root that an inclusion proof gives (RFC 9162, 2.1.3.2); None when it does not fit."""
    need(0 <= index < size, f"receipt: index {index} of {size}")
    node, last, found = index, size - 1, hashlib.sha256(b"\0" + entry).digest()
    for step in proof:
        if last == 0:
            return None
        if node & 1 or node == last:
            found = hashlib.sha256(b"\1" + step + found).digest()
            while node and not node & 1:
                node, last = node >> 1, last >> 1
        else:
            found = hashlib.sha256(b"\1" + found + step).digest()
        node, last = node >> 1, last >> 1
    return found if last == 0 else None


MALFORMED = (
    UnsupportedAlgorithm,
    KeyError,
    TypeError,
    ValueError,
    IndexError,
    AttributeError,
    ArithmeticError,
    struct.error,
)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="check an exported artifact without kvg")
    parser.add_argument("folder", nargs="?", type=Path, help="the exported objects")
    parser.add_argument("--digest", help="the artifact's digest, from somebody you believe")
    parser.add_argument("--key", action="append", default=[], type=Path, help="a public key")
    parser.add_argument("--threshold", type=int, default=1, help="how many keys must have signed")
    parser.add_argument("--log", help="the log's verifier line")
    parser.add_argument("--results", type=Path, help="results, a file or folder, with its sums")
    given = parser.parse_args(argv)
    if given.results is None and not (given.folder and given.digest and given.key):
        parser.error("give FOLDER, --digest and --key, or --results")
    if given.threshold < 1:
        parser.error("--threshold: at least 1")
    try:
        if given.results is not None:
            n_rows = check_results(given.results)
            print(
                f"results: {n_rows:,} rows recounted, every sum holds; as SHA256SUMS tells of them"
            )
        if given.folder is not None:
            check_export(given)
    except Wrong as error:
        print(f"WRONG: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except MALFORMED as error:
        print(f"WRONG: malformed: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


def check_export(given: argparse.Namespace) -> None:
    files = {path.name: path.read_bytes() for path in given.folder.iterdir() if path.is_file()}
    objects = {digest_of(data): data for data in files.values()}
    manifest = check_artifact(objects, given.digest)
    print(f"bytes: manifest, {manifest['tokens']['count']:,} token ids, "
          f"{len(manifest['pages'])} pages: SHA-256 and BLAKE3 hold, values finite")  # fmt: skip
    keys = [read_key(path.read_text()) for path in given.key]
    held: set[str] = set()
    if given.log is not None:
        need("receipts" in files, f"{given.folder / 'receipts'}: missing; kvg log REF --receipt "
             "gives what --log is checked against")  # fmt: skip
        held = check_receipts(files["receipts"].decode(), given.log, given.digest)
        for envelope in sorted(held):
            take(objects, envelope, "a statement that the log holds about it")
    found = statements(objects, given.digest, keys, held)
    check_failed(found)
    if given.log is not None:
        found = [item for item in found if item[0] in held]
        print(f"log: holds {len(held)} statements about it, each here and proved by a receipt")
    gates = check_said(found, given.threshold)
    print(f"signatures: {len({keyid for _, keyid, _ in found})} keys; "
          f"gates passed: {', '.join(gates) or 'none'}")  # fmt: skip
    print("truth: not recomputed; that takes the model")


if __name__ == "__main__":
    sys.exit(main())
