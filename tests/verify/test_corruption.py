"""The corruption matrix: every kind of file, every region of it, flipped, cut, zeroed, swapped.

Each time ``fsck`` names that file with exit 5 or 6 and nothing else, and what does not rest on the
file still verifies byte for byte.

What can't be told by its nature: that ``config.toml`` says something else that it may say, since it
is the user's to edit; what ``index.lmdb`` holds in pages that nothing reads; lines of strangers on
the checkpoint or the receipt of another's log, whose keys nobody has here.
"""

from __future__ import annotations

import os
import re
import shutil
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import pytest

from kvg.digest import Digest, hex_of
from kvg.errors import Corrupt, Incompatible, KvgError, NoSpace, Untrusted
from kvg.flow.exchange.publishers import sign_publisher
from kvg.log import entry as entries
from kvg.log import log as log_files_of
from kvg.log import merkle
from kvg.log import rekey as rekeys
from kvg.log.log import Log
from kvg.objects.statement import Resource, TestResult, encode_provenance
from kvg.signing.cosignature import Witness, cosign, encode_witness
from kvg.signing.dsse import sign_envelope
from kvg.signing.note import parse_note
from kvg.store import RefMove, Store, quota
from kvg.store import peers as peer_names
from kvg.store.forget import plan_forget, remove_for_good
from kvg.store.lmdb_file import close_file
from kvg.store.quota import QUOTA_KEY
from kvg.store.rekey import rekey
from kvg.store.wanted import encode_wanted, keep_wanted, mark_of
from kvg.trust import sign_trust
from kvg.verify import verify_artifact
from kvg.verify.findings import Finding
from kvg.verify.fsck import fsck
from tests import artifacts as a
from tests.store.faults import quick_folder

SOURCES = (b"A handbook about files, long enough to be told from others.", b"Another handbook.")
REGIONS = 24
EVE = a.key_of("witness")
WITNESS = Witness("witness.example", EVE.public)


@dataclass(frozen=True)
class Made:
    """The store of the matrix and the artifact that nothing is done to."""

    folder: Path
    files: dict[str, str]
    twins: dict[str, Path]
    bystander: Digest


def made_artifact(store: Store, ref: str, ids: range, source: bytes) -> Digest:
    key = a.key_of("alice")
    with store.pending() as pending:
        digest, _ = a.put_all(pending, ids)
        named = Resource("handbook.md", pending.put(source).digest)
        log = Resource("log", pending.put(b"evidence of " + source).digest)
        said = replace(a.provenance(), source=(named,))
        payloads = [
            encode_provenance(digest, said),
            a.encode_test_result(digest, TestResult("PASSED", "test:unit", evidence=(log,))),
        ]
        envelopes = [pending.put(sign_envelope(item, [key])).digest for item in payloads]
        store.record(digest, envelopes, refs=[RefMove(ref, digest)], now=a.NOW)
    return digest


def make(folder: Path) -> tuple[Store, dict[str, str], Digest]:
    """A store with a file of every kind: kind to path. Its log has full tiles and partial ones."""
    store, _ = a.make_store(folder)
    digest = made_artifact(store, "demo", range(5, 32), SOURCES[0])
    for codec, start in ((1, 300), (2, 400)):
        store.config.set("store.codec", codec)
        made_artifact(store, f"codec{codec}", range(start, start + 12), SOURCES[1])
    store.config.set("store.codec", 0)
    bystander = made_artifact(store, "bystander", range(100, 127), SOURCES[1])
    forgotten = a.deposit(store, a.key_of("alice"), ref="forgotten", ids=range(500, 509)).digest
    remove_for_good(store, plan_forget(store, forgotten), now=a.NOW)
    trusting = store.trust.with_key(EVE.public, ["verifier"])
    store.set_trust(sign_trust(trusting, [a.key_of("alice")]))
    store.publish([RefMove("moving", None if i % 2 else bystander) for i in range(300)])
    changed = rekey(store, now=a.NOW).index + 1
    cosigned(store.log)
    store.config.set("store.witnesses", (encode_witness(WITNESS),))
    a.deposit(store, a.key_of("alice"), ref="last", ids=range(200, 209))
    store.close()
    manifest = store.manifest(digest)
    provenance, gate = (item.envelope for item in store.attestations(digest))
    store.close()

    def path(item: Digest) -> str:
        return str(store.objects.stored_path(item).relative_to(store.root))

    def first_page(ref: str) -> str:
        return path(store.manifest(store.refs()[ref]).pages[0].digest)

    files = {
        "page, raw": path(manifest.pages[0].digest),
        "page, partial": path(manifest.pages[-1].digest),
        "page, zstd": first_page("codec1"),
        "page, byte planes": first_page("codec2"),
        "token ids": path(manifest.tokens.digest),
        "manifest": path(digest),
        "attestation, deposit": path(provenance),
        "attestation, gate": path(gate),
        "source": path(a.sha256(SOURCES[0])),
        "evidence": path(a.sha256(b"evidence of " + SOURCES[0])),
        "trust version": path(store.trust_versions()[0][1]),
        "trust version, newest": path(store.trust_versions()[1][1]),
        "trust.json": "trust.json",
        "checkpoint": "log/checkpoint",
        "verifier": "log/verifier",
        "cosigned": "log/cosigned",
        "word of a witness": f"log/{log_files_of.word_name(WITNESS.name, WITNESS.key_hash)}",
        "change of key": f"log/rekey/{changed}",
        "first key": "log/rekey/first",
    }
    keep_wanted(store, digest, map(mark_of, SOURCES))
    files["what to look for"] = f"forgotten/{hex_of(digest)}.wanted"
    files["note of a removal"] = f"forgotten/{hex_of(forgotten)}"
    files.update(log_files(store.root))
    files.update(peer_files(store, folder / "peer"))
    store.close()
    return store, files, bystander


def cosigned(log: Log) -> None:
    """A witness cosigns the checkpoint of ``log`` as it stands."""
    text = parse_note(log.note, what="it").text
    log.add_cosignatures(log.note, [cosign(text, WITNESS.name, EVE, time=a.NOW)])


def peer_files(store: Store, folder: Path) -> dict[str, str]:
    """What the store keeps of another's log, with a receipt and the word of its publisher."""
    other, key = a.make_store(folder, label="alice")
    made = a.deposit(other, key)
    cosigned(other.log)
    other.set_ref("more", made.digest)
    log, peers = other.log, store.peers
    line = (log.folder / "verifier").read_bytes()
    vouched = sign_publisher(log.origin, log.verifier, [key])
    peers.take(log.origin, line, log.note, log.source, publisher=vouched)
    index = made.published.index_of(made.envelopes[0])
    assert index is not None
    peers.keep_receipts(log.origin, [(made.envelopes[0], log.receipt(index))])
    peers.note_seen(log.origin, log.note, remote="origin")
    other.close()
    width, origin = log.size, f"peers/{log.origin}"
    return {
        "peer, checkpoint": f"{origin}/checkpoint",
        "peer, verifier": f"{origin}/verifier",
        "peer, cosigned": f"{origin}/cosigned",
        "peer, publisher": f"{origin}/publisher",
        "peer, receipt": f"{origin}/receipts/{hex_of(made.envelopes[0])}",
        "peer, seen": f"{origin}/seen/origin",
        "peer, hash tile": f"{origin}/tile/0/000.p/{width}",
        "peer, entry bundle": f"{origin}/tile/entries/000.p/{width}",
    }


def log_files(root: Path) -> dict[str, str]:
    """One of each kind of tile: full, the partial that counts, and one kept for older readers."""
    found = {
        "hash tile, full": "log/tile/0/000",
        "entry bundle, full": "log/tile/entries/000",
        "hash tile, level 1": "log/tile/1/000.p/1",
    }
    for kind, name in (("hash tile", "0"), ("entry bundle", "entries")):
        folder = root / "log" / "tile" / name / "001.p"
        widths = sorted(int(item) for item in os.listdir(folder))
        found[f"{kind}, partial"] = f"log/tile/{name}/001.p/{widths[-1]}"
        found[f"{kind}, older partial"] = f"log/tile/{name}/001.p/{widths[0]}"
    return found


KINDS = (
    "page, raw",
    "page, partial",
    "page, zstd",
    "page, byte planes",
    "token ids",
    "manifest",
    "attestation, deposit",
    "attestation, gate",
    "source",
    "evidence",
    "trust version",
    "trust version, newest",
    "trust.json",
    "checkpoint",
    "verifier",
    "cosigned",
    "word of a witness",
    "change of key",
    "first key",
    "what to look for",
    "note of a removal",
    "peer, checkpoint",
    "peer, verifier",
    "peer, cosigned",
    "peer, publisher",
    "peer, receipt",
    "peer, seen",
    "peer, hash tile",
    "peer, entry bundle",
    "hash tile, full",
    "hash tile, level 1",
    "hash tile, partial",
    "hash tile, older partial",
    "entry bundle, full",
    "entry bundle, partial",
    "entry bundle, older partial",
)


@pytest.fixture(autouse=True)
def remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """What depends on bytes alone is computed once for the same bytes of the log."""
    known, parse = READ, entries.parse_entry

    def parse_once(data: bytes, *, what: str) -> entries.Entry:
        raw = bytes(data)
        if raw not in known:
            known[raw] = parse(raw, what=what)
        return known[raw]

    monkeypatch.setattr(entries, "parse_entry", parse_once)
    monkeypatch.setattr(merkle, "leaf_hash", leaf_hash)
    monkeypatch.setattr(merkle, "node_hash", node_hash)


READ: dict[bytes, entries.Entry] = {}
leaf_hash = lru_cache(maxsize=1 << 15)(merkle.leaf_hash)
node_hash = lru_cache(maxsize=1 << 15)(merkle.node_hash)


@pytest.fixture(scope="module")
def made() -> Iterator[Made]:
    with quick_folder() as folder:
        store, files, bystander = make(folder / "s")
        assert set(files) == set(KINDS)
        other, theirs, _ = make(folder / "other")
        twins = {kind: other.root / name for kind, name in theirs.items()}
        for kind, twin in (
            ("page, raw", "page, partial"),
            ("token ids", "source"),
            ("manifest", "attestation, gate"),
            ("attestation, deposit", "manifest"),
            ("source", "page, raw"),
            ("trust version", "manifest"),
            ("trust version, newest", "trust version"),
        ):
            twins[kind] = store.root / files[twin]
        twins["what to look for"] = folder / "of another artifact"
        others = encode_wanted(map(mark_of, SOURCES), of=hex_of(bystander))
        twins["what to look for"].write_bytes(others)
        twins["trust.json"] = folder / "of an older version"
        versions = Store.open(store.root).trust_versions()
        twins["trust.json"].write_bytes(store.objects.read(versions[0][1], what="trust file"))
        twins["note of a removal"] = folder / "of another entry"
        twins["note of a removal"].write_bytes(b"1")
        yield Made(folder / "s", files, twins, bystander)


def damages(data: bytes, twin: bytes) -> Iterator[tuple[str, bytes]]:
    """Every region flipped and zeroed, cut at several places, grown, emptied, swapped."""
    size = len(data)
    places = sorted({*range(0, min(size, 72), 6), *(size * i // REGIONS for i in range(REGIONS))})
    places += [size - 1]
    for place in places:
        yield f"flipped at {place}", data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :]
        stretch = data[place : place + 16]
        if stretch.strip(b"\0"):
            yield f"zeroed at {place}", data[:place] + bytes(len(stretch)) + data[place + 16 :]
    for kept in sorted({0, 1, size // 3, size // 2, size - 1}):
        yield f"cut at {kept}", data[:kept]
    yield "zeroed", bytes(size)
    yield "grown", data + b"\0"
    yield "doubled", data + data
    if twin != data:
        yield "swapped", twin


def look(folder: Path) -> list[Finding]:
    """What is wrong with the store, as ``kvg fsck`` would list it."""
    try:
        store = Store.open(folder)
        found = [item for item in fsck(store) if isinstance(item, Finding)]
        store.close()
        return found
    except KvgError as error:
        return [Finding(error.code, error.kind, "store", error.message)]


def is_named(finding: Finding, name: str) -> bool:
    if name.startswith("objects/"):
        return hex_of(Digest(finding.object)) == name.removeprefix("objects/").replace("/", "")
    if name == "log/verifier":  # a whole one of another log: it and the checkpoint disagree
        return finding.object == "log"
    if name.startswith("peers/"):
        origin = "/".join(name.split("/")[:2])
        return finding.object in (name, origin)
    short = name.removeprefix("log/")
    return short in finding.message or short in finding.object


def check_bystander(made: Made) -> None:
    store = Store.open(made.folder)
    artifact = verify_artifact(store, made.bystander)
    for page in artifact.manifest.pages:
        artifact.read_page(page)
    store.close()


def write(path: Path, data: bytes) -> None:
    path.chmod(0o644)
    path.write_bytes(data)


@pytest.mark.parametrize("kind", KINDS)
def test_every_region_of_every_file(
    made: Made, kind: str, record_property: Callable[[str, object], None]
) -> None:
    name = made.files[kind]
    path = made.folder / ".kvg" / name
    whole, points = path.read_bytes(), 0
    twin = made.twins[kind].read_bytes()
    try:
        for what, data in damages(whole, twin):
            write(path, data)
            findings = look(made.folder)
            where = f"{name} {what}: {findings}"
            assert findings, where
            assert {finding.code for finding in findings} <= {Corrupt.code, Untrusted.code}, where
            assert any(is_named(finding, name) for finding in findings), where
            if name.startswith("objects/") and not kind.startswith("trust version"):
                assert all(is_named(finding, name) for finding in findings), where
            if name.startswith("peers/"):
                assert all(is_named(finding, name) for finding in findings), where
            if rests_not_on(kind):
                check_bystander(made)
            points += 1
    finally:
        write(path, whole)
    assert look(made.folder) == []
    record_property("corruption matrix", (kind, f"{len(whole)} bytes", points))


def rests_not_on(kind: str) -> bool:
    """Whether an artifact can be verified without a sound file of this kind."""
    objects = ("page", "token", "manifest", "attestation", "source", "evidence")
    return kind.startswith(
        (*objects, "peer", "cosigned", "word of", "what to", "note of")
    ) or kind.endswith("older partial")


ELSEWHERE = (
    r"format|config\.toml|lock|index\.lmdb/(data|lock)\.mdb",  # below, and in test_not_plain
    r"reserve/[0-7]",  # means nothing, whatever it holds
    r"usage",  # a cache; below
)


def test_every_file_of_a_store_has_its_row(made: Made) -> None:
    """What a verb writes, and what a log keeps by a name of its own, is in the matrix."""
    root = made.folder / ".kvg"
    rows = {re.sub(r"[0-9]+$", "N", name) for name in made.files.values()}
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        name = str(path.relative_to(root))
        if name.startswith("objects/") or any(re.fullmatch(item, name) for item in ELSEWHERE):
            continue
        assert re.sub(r"[0-9]+$", "N", name) in rows, name
    kept = {log_files_of.CHECKPOINT, log_files_of.COSIGNED, log_files_of.VERIFIER, rekeys.FIRST}
    assert {f"log/{name}" for name in kept} <= set(made.files.values())
    beside = {peer_names.PUBLISHER, peer_names.RECEIPTS, peer_names.SEEN}
    assert beside <= {name.split("/")[2] for name in made.files.values() if name[:5] == "peers"}


def test_the_file_that_says_it_is_a_store(made: Made) -> None:
    path = made.folder / ".kvg" / "format"
    whole = path.read_bytes()
    try:
        for _, data in damages(whole, b"kvg-store 2\n"):
            write(path, data)
            (finding,) = look(made.folder)
            assert finding.code in (Corrupt.code, Incompatible.code) and "kvg" in finding.message
    finally:
        write(path, whole)


def test_the_key_that_the_configuration_pins(made: Made) -> None:
    """The rest of the configuration is the user's to edit; this line is not.

    Another kind of key in it is one that this kvg does not know: exit 7.
    """
    path = made.folder / ".kvg" / "config.toml"
    whole = path.read_bytes()
    start = whole.index(b'log = "') + 7
    stop = whole.index(b'"', start)
    try:
        for place in range(start, stop):
            write(path, whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
            findings = look(made.folder)
            codes = {finding.code for finding in findings}
            assert codes and codes <= {Corrupt.code, Untrusted.code, Incompatible.code}
    finally:
        write(path, whole)


def test_the_rest_of_the_configuration(
    made: Made, record_property: Callable[[str, object], None]
) -> None:
    """It is named, or it is one that a user may have written; nothing else is ever blamed for it.

    The pinned key, and whose word counts as a witness's, are judged by what they are for: another
    log, or another witness, is told where those are.
    """
    path = made.folder / ".kvg" / "config.toml"
    whole, told, passed = path.read_bytes(), 0, 0
    twin = made.twins["checkpoint"].parents[1] / "config.toml"
    try:
        for what, data in damages(whole, twin.read_bytes()):
            write(path, data)
            findings = look_damaged(made.folder)
            assert {finding.code for finding in findings} <= {
                Corrupt.code,
                Untrusted.code,
                Incompatible.code,
            }, what
            if not findings:
                assert tomllib.loads(data.decode("utf-8")), what
                assert Store.open(made.folder).config.get("store.log"), what
                check_bystander(made)
            told, passed = told + bool(findings), passed + (not findings)
    finally:
        write(path, whole)
    assert look(made.folder) == []
    record_property("corruption matrix", ("config.toml", f"{len(whole)} bytes", told + passed))
    assert told > 2 * passed


def look_damaged(folder: Path) -> list[Finding]:
    """As ``look``, where the configuration may be what is damaged, as ``kvg fsck`` opens it."""
    store = Store(folder / ".kvg", is_damaged=True)
    found = [item for item in fsck(store) if isinstance(item, Finding)]
    store.close()
    return found


def test_the_sum_of_the_quota_is_never_believed(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """It is a cache, of which nobody tells: a damaged one is taken anew before a put."""
    stores = [a.make_store(tmp_path / name)[0] for name in ("s", "other")]
    for store in stores:
        store.config.set(QUOTA_KEY, store.quota.used() + 10_000)
        store.objects.put(SOURCES[0])
    store, path = stores[0], stores[0].root / quota.FILE
    whole, points = path.read_bytes(), 0
    for what, data in damages(whole, (stores[1].root / quota.FILE).read_bytes()):
        path.write_bytes(data)
        assert look(tmp_path / "s") == [], what
        assert not store.quota.reserve(0, is_counted=False), what
        put = store.objects.put(what.encode())
        assert put.new and store.quota.reserve(0, is_counted=False), what
        assert int(path.read_bytes()[37:57]) == store.quota.used(), what
        with pytest.raises(NoSpace):
            store.objects.put(bytes(10_000))
        with store.lock.exclusive():
            store.objects.remove(put.digest)
        points += 1
    record_property("corruption matrix", ("sum of the quota", f"{len(whole)} bytes", points))


def test_the_index_is_found_out_or_does_no_harm(
    made: Made, record_property: Callable[[str, object], None]
) -> None:
    """Each in a process of its own: what LMDB does with a page that it trusts is its affair."""
    path = made.folder / ".kvg" / "index.lmdb" / "data.mdb"
    store = Store.open(made.folder)
    refs = store.refs()
    store.close()
    whole, points = path.read_bytes(), 0
    twin = made.twins["checkpoint"].parents[1] / "index.lmdb" / "data.mdb"
    for what, data in damages(whole, twin.read_bytes()):
        write(path, data)
        close_file(path.parent)
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                findings = look(made.folder)
                is_right = {finding.object for finding in findings} <= {"index.lmdb"}
                same = Store.open(made.folder).refs() == refs
                status = 0 if is_right and same else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, what
        points += 1
    shutil.rmtree(path.parent)
    assert look(made.folder) == []
    record_property("corruption matrix", ("index", f"{len(whole)} bytes", points))


def test_field_s30_a_log_that_went_back_is_found_by_its_index(tmp_path: Path) -> None:
    store, key = a.make_store(tmp_path)
    a.deposit(store, key)
    checkpoint = (store.root / "log" / "checkpoint").read_bytes()
    a.deposit(store, key, ref="later", ids=range(9))
    store.close()
    (store.root / "log" / "checkpoint").write_bytes(checkpoint)
    findings = look(tmp_path)
    assert [finding.code for finding in findings] == [Untrusted.code]
    assert "rolled back" in findings[0].message
