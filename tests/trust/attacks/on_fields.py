"""Every field of every signed document, edited under the signature that it bears."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from kvg import canon
from kvg.digest import sha256
from kvg.errors import Corrupt, Incompatible, KvgError, Untrusted
from kvg.flow.exchange.publishers import check_publisher, sign_publisher
from kvg.log.log import Log
from kvg.log.receipts import check_receipt, parse_receipt
from kvg.objects.statement import (
    PASSED,
    Resource,
    TestResult,
    encode_provenance,
    encode_test_result,
)
from kvg.signing.cosignature import Witness, cosign, cosigned_at
from kvg.signing.dsse import sign_envelope
from kvg.signing.note import encode_signature, parse_note
from kvg.trust import PUBLISHER, VERIFIER, Revocation, TrustFile, bootstrap_trust, encode_trust
from kvg.trust.policy import check_succession, parse_trust, sign_trust
from tests import artifacts as a
from tests.trust.attacks.world import ALICE, BOB, MALLORY, ROWS, World

Path = tuple[str | int, ...]


def leaves(value: Any, path: Path = ()) -> Iterator[Path]:
    """Where every value stands that holds no others."""
    if isinstance(value, dict | list) and value:
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from leaves(value[key], (*path, key))
    else:
        yield path


def with_edit(data: bytes, path: Path) -> bytes:
    """The document with another value of the same kind at ``path``."""
    root: Any = json.loads(data)
    node = root
    for step in path[:-1]:
        node = node[step]
    node[path[-1]] = another(node[path[-1]])
    return canon.encode(root)


def another(value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, str) and value.endswith("="):
        return ("B" if value[0] == "A" else "A") + value[1:]
    if isinstance(value, str) and value:
        return value[:-1] + ("1" if value[-1] == "0" else "0")
    return "0"


def add(name: str, error: type[KvgError], attack: Callable[[World], object]) -> None:
    ROWS.append((name, error, attack))


def dotted(path: Path) -> str:
    return ".".join(map(str, path))


# The statements: of a deposit, and of a gate.

UNSIGNED = a.build(range(80, 99))[0].digest
PROVENANCE = encode_provenance(
    UNSIGNED,
    replace(
        a.provenance("https://example.org/a"),
        family=sha256(b"family"),
        method=sha256(b"method"),
        parent=sha256(b"parent"),
        cut_points=(13,),
        valid_until=2_000_000_000,
        depends=(Resource("other.md", sha256(b"other")),),
        template=Resource("template", sha256(b"template")),
        schema_version="1",
    ),
)
MADE = a.build(range(5, 32))[0].digest
RESULT = encode_test_result(
    MADE,
    TestResult(PASSED, "formal", (Resource("spec", sha256(b"s"), "file:///s"),),
               (Resource("log", sha256(b"e"), "file:///e"),), "https://example.org"),
)  # fmt: skip


def swapped(payload: bytes, path: Path) -> bytes:
    """Alice's envelope, its payload edited."""
    from kvg.signing import base64

    envelope = json.loads(sign_envelope(payload, [ALICE]))
    envelope["payload"] = base64.encode(with_edit(payload, path))
    return json.dumps(envelope).encode()


def on_provenance(path: Path) -> Callable[[World], object]:
    def attack(w: World) -> None:
        made = w.unsigned()
        assert made.digest == UNSIGNED
        w.record(made.digest, swapped(PROVENANCE, path))
        w.graft()

    return attack


def on_result(path: Path) -> Callable[[World], object]:
    def attack(w: World) -> None:
        assert w.made.digest == MADE
        w.store.config.set("deposit.require", ("formal",))
        w.record(MADE, swapped(RESULT, path))
        w.graft()

    return attack


for _path in leaves(json.loads(PROVENANCE)):
    add(f"provenance {dotted(_path)} is edited", Untrusted, on_provenance(_path))
for _path in leaves(json.loads(RESULT)):
    add(f"test result {dotted(_path)} is edited", Untrusted, on_result(_path))


# The trust file, as somebody could put it who may write to the log as well.


def rich(first: TrustFile) -> TrustFile:
    made = first.with_key(BOB.public, [PUBLISHER, VERIFIER]).with_threshold(VERIFIER, 1)
    made = made.with_revocation(Revocation(BOB.public.keyid, "kvg-x", 7))
    return sign_trust(replace(made, version=2), [ALICE])


FIRST = bootstrap_trust(ALICE)


def on_trust(path: Path) -> Callable[[World], object]:
    def attack(_: World) -> None:
        check_succession(FIRST, parse_trust(with_edit(encode_trust(rich(FIRST)), path)))

    return attack


def trust_error(path: Path) -> type[KvgError]:
    """What is no trust file any more fails before a signature is looked at."""
    if path[0] == "schema":
        return Incompatible
    return Corrupt if path[0] == "keys" else Untrusted


for _path in leaves(json.loads(encode_trust(rich(FIRST)))):
    add(f"trust file {dotted(_path)} is edited", trust_error(_path), on_trust(_path))


# Signed notes, line by line: text and signatures.


def note_with_edit(note: bytes, number: int) -> bytes:
    lines = note.decode().split("\n")
    middle = len(lines[number]) // 2
    old = lines[number][middle]
    new = "1" if old == "0" else "0" if old.isdigit() else "B" if old == "A" else "A"
    lines[number] = lines[number][:middle] + new + lines[number][middle + 1 :]
    return "\n".join(lines).encode()


def on_checkpoint(number: int) -> Callable[[World], object]:
    def attack(w: World) -> None:
        w.overwrite(w.log("checkpoint"), note_with_edit(w.log("checkpoint").read_bytes(), number))
        w.graft()

    return attack


def on_publisher(number: int) -> Callable[[World], object]:
    def attack(w: World) -> None:
        log = w.store.log
        note = note_with_edit(sign_publisher(log.origin, log.verifier, [ALICE]), number)
        check_publisher(
            w.store.trust, note, log.origin, log.verifier, where="there", hint=lambda _: ""
        )

    return attack


def on_rekey(number: int) -> Callable[[World], object]:
    """Who knows the log's first key follows it to the second by the edited word of both."""

    def attack(w: World) -> None:
        from kvg.store.rekey import rekey

        first = w.store.log.verifier
        rekey(w.store, now=a.NOW)
        (path,) = (p for p in w.log("rekey").iterdir() if p.name != "first")
        w.overwrite(path, note_with_edit(path.read_bytes(), number))
        Log.open(w.log(""), verifier=first, staging=w.store.staging)

    return attack


def on_cosigned(number: int) -> Callable[[World], object]:
    """The checkpoint that is kept for the witness's word: another's text, or not quite its word."""

    def attack(w: World) -> None:
        witness = Witness("witness.example", MALLORY.public)
        note = w.store.log.note
        text = parse_note(note, what="it").text
        line = encode_signature(cosign(text, witness.name, MALLORY, time=1_700_000_000))
        w.overwrite(w.log("cosigned"), note_with_edit(note + line, number))
        whole = parse_note(w.again().log.cosigned, what="it")
        if cosigned_at(whole, witness) is None:
            raise Untrusted("it: not cosigned by the witness")

    return attack


def on_receipt(number: int) -> Callable[[World], object]:
    def attack(w: World) -> None:
        log = w.store.log
        receipt = parse_receipt(note_with_edit(log.receipt(1), number), what="it")
        entry = next(iter(log.read(1, 2)))
        check_receipt(receipt, entry, origin=log.origin, verifier=log.verifier, what="it")

    return attack


for _number, _what in enumerate(("origin", "size", "root", None, "signature")):
    if _what is not None:
        add(f"checkpoint line {_what} is edited", Untrusted, on_checkpoint(_number))
        add(f"rekeyed checkpoint line {_what} is edited", Untrusted, on_rekey(_number))
        add(f"cosigned checkpoint line {_what} is edited", Untrusted, on_cosigned(_number))
add("rekeyed checkpoint line second signature is edited", Untrusted, on_rekey(5))
add("cosigned checkpoint line cosignature is edited", Untrusted, on_cosigned(5))
for _number, _what, _error in (
    (0, "kind", Corrupt),
    (1, "log key", Untrusted),
    (3, "signature", Untrusted),
):
    add(f"publisher's note line {_what} is edited", _error, on_publisher(_number))
for _number, _what, _error in (
    (0, "kind", Corrupt),
    (1, "index", Corrupt),
    (2, "first hash", Untrusted),
    (4, "last hash", Untrusted),
    (6, "origin", Untrusted),
    (7, "size", Corrupt),
    (8, "root", Untrusted),
    (10, "signature", Untrusted),
):
    add(f"receipt line {_what} is edited", _error, on_receipt(_number))
