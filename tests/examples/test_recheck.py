"""``examples/recheck.py`` agrees with kvg on what is whole, and finds whatever was edited."""

from __future__ import annotations

import ast
import base64
import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from kvg import canon
from kvg.digest import Digest, sha256
from kvg.flow.log import log
from kvg.objects.statement import FAILED, PASSED, TestResult, encode_provenance
from kvg.signing.dsse import sign_envelope
from kvg.signing.keys import encode_private, encode_public, parse_public
from kvg.signing.note import encode_verifier
from kvg.store import Store
from kvg.trust import Keyring
from tests import artifacts as a

REPO = Path(__file__).parents[2]
SCRIPT = REPO / "examples/recheck.py"
RESULTS = REPO / "bench/results"


def recheck(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", str(SCRIPT), *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def export(folder: Path, gate: TestResult | None = None) -> list[object]:
    """An artifact as the script's description has it exported, and the words to check it with."""
    store, key = a.make_store(folder / "made")
    made = a.deposit(store, key, cuts=(13,), gates=[gate] if gate else [])
    return write_export(folder, store, made)


def write_export(
    folder: Path, store: Store, made: a.Made, more: Sequence[Digest] = ()
) -> list[object]:
    """The artifact ``made`` and the objects ``more``, and the words to check it with."""
    out, key = folder / "out", a.key_of("alice")
    out.mkdir()
    named = {made.digest, made.manifest.tokens.digest, *made.envelopes, *more}
    for digest in named | {page.digest for page in made.manifest.pages}:
        (out / digest.removeprefix("sha256:")).write_bytes(store.objects.read(digest, what="it"))
    receipts = [entry.receipt or "" for entry in log(store, "demo", receipt=True)]
    (out / "receipts").write_text("".join(receipts))
    (folder / "key.pub").write_text(encode_public(key.public, "openssh", "key"))
    verifier = encode_verifier(store.log.origin, store.log.verifier)
    return [out, "--digest", made.digest, "--key", folder / "key.pub", "--log", verifier]


def test_it_imports_nothing_of_kvg() -> None:
    allowed = {"blake3", "cryptography", "safetensors", "rechecking", *sys.stdlib_module_names}
    parts = sorted((REPO / "examples/rechecking").glob("*.py"))
    assert len(parts) > 3
    for path in (SCRIPT, *parts):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [n.name for n in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or "."] if isinstance(node, ast.ImportFrom) else []
            assert {name.split(".")[0] for name in names} <= allowed


def test_a_whole_artifact(tmp_path: Path) -> None:
    words = export(tmp_path, TestResult(PASSED, "test:pytest"))
    done = recheck(*words)
    assert done.returncode == 0, done.stderr
    assert "27 token ids" in done.stdout and "log: holds 2 statements" in done.stdout
    assert "1 keys; gates passed: test:pytest" in done.stdout


def test_an_edited_byte_in_any_file_fails(tmp_path: Path) -> None:
    words = export(tmp_path)
    files = sorted((tmp_path / "out").iterdir())
    assert len(files) > 8
    for path in files:
        good = path.read_bytes()
        bad = bytearray(good)
        bad[len(bad) // 2] ^= 1
        path.write_bytes(bad)
        done = recheck(*words)
        assert done.returncode == 1 and "WRONG" in done.stderr, path
        path.write_bytes(good)
    assert recheck(*words).returncode == 0


@pytest.mark.parametrize("result", [PASSED, FAILED])
@pytest.mark.parametrize("how", ["deleted", "flipped", "emptied"])
def test_a_statement_that_the_log_holds_has_to_be_there(
    tmp_path: Path, how: str, result: str
) -> None:
    """One that says FAILED would otherwise be gone without a word."""
    words = export(tmp_path, TestResult(result, "test:pytest"))
    (path,) = (
        path
        for path in (tmp_path / "out").iterdir()
        if path.name != "receipts" and "test-result" in said(path.read_bytes())
    )
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.unlink() if how == "deleted" else path.write_bytes(raw if how == "flipped" else b"")
    done = recheck(*words)
    assert done.returncode == 1 and "WRONG" in done.stderr and "proved" not in done.stdout
    assert path.name in done.stderr, done.stderr


def said(data: bytes) -> str:
    """The statement in an envelope; nothing for another file."""
    if not data.startswith(b"{") or b'"payloadType"' not in data:
        return ""
    return base64.b64decode(json.loads(data)["payload"]).decode()


def test_a_failed_check_counts_without_its_receipt(tmp_path: Path) -> None:
    """Its signature is all it takes: a receipt that was cut does not take it away."""
    words = export(tmp_path, TestResult(FAILED, "test:pytest"))
    path = tmp_path / "out" / "receipts"
    whole = path.read_text()
    parts = ["c2sp.org" + part for part in whole.split("c2sp.org")[1:] if part.startswith("/tlog")]
    assert len(parts) > 2
    for number in range(len(parts)):
        path.write_text("".join(parts[:number] + parts[number + 1 :]))
        done = recheck(*words)
        assert done.returncode == 1 and "WRONG" in done.stderr, number
        path.write_text("".join([*parts[:number], parts[number][9:], *parts[number + 1 :]]))
        done = recheck(*words)
        assert done.returncode == 1 and "WRONG" in done.stderr, number


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("page_tokens", -8),
        ("page_tokens", 0),
        ("page_tokens", True),
        ("groups", []),
        ("layers", []),
        ("layers", [0, 0]),
        ("twin", None),
        ("window", 0),
        ("kv_heads", 0),
    ],
)
def test_a_layout_that_needs_no_page_is_none(tmp_path: Path, path: str, value: object) -> None:
    """Signed by a key that is believed, and still no artifact."""
    words = export(tmp_path)
    out, key = tmp_path / "out", a.key_of("alice")
    digest = str(words[2])
    manifest = json.loads((out / digest.removeprefix("sha256:")).read_bytes())
    layout = manifest["layout"]
    if path in layout:
        layout[path] = value
        manifest["pages"] = []
    elif path == "twin":
        layout["groups"].append({**layout["groups"][0], "layers": [77]})
    else:
        layout["groups"][0][path] = value
    raw = canon.encode(manifest)
    made = sha256(raw)
    (out / "other").write_bytes(raw)
    (out / "signed").write_bytes(sign_envelope(encode_provenance(made, a.provenance()), [key]))
    done = recheck(out, "--digest", made, "--key", tmp_path / "key.pub")
    assert done.returncode == 1 and "WRONG" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("text", ["ssh-foo AAAA", "ssh-dss AAAAB3NzaC1kc3M=", "", "a+b+c", "\xff"])
def test_what_is_no_key_is_told(tmp_path: Path, text: str) -> None:
    words = export(tmp_path)
    (tmp_path / "key.pub").write_text(text, encoding="latin-1")
    done = recheck(*words)
    assert done.returncode == 1 and "Traceback" not in done.stderr and "WRONG" in done.stderr


def test_without_the_receipts(tmp_path: Path) -> None:
    words = export(tmp_path)
    (tmp_path / "out/receipts").unlink()
    done = recheck(*words)
    assert done.returncode == 1 and "out/receipts: missing" in done.stderr
    assert recheck(*words[:-2]).returncode == 0


@pytest.mark.parametrize("piece", ["", "x\n", "x\n\n", "x\n\nx\n\n"])
def test_no_receipts_take_more_than_their_length(tmp_path: Path, piece: str) -> None:
    """Looked at from every head to the end they would take minutes."""
    words = export(tmp_path)
    with open(tmp_path / "out" / "receipts", "a") as file:
        file.write(f"c2sp.org/tlog-proof@v1\n{piece}" * (1 << 17))
    done = recheck(*words)
    assert done.returncode == 1 and "something among them is none" in done.stderr


def test_who_did_not_sign(tmp_path: Path) -> None:
    words = export(tmp_path)
    other = tmp_path / "other.pub"
    other.write_text(encode_public(a.key_of("mallory").public, "pem", "other"))
    assert "0 of 1 keys" in recheck(*words[:3], "--key", other).stderr
    assert "1 of 2 keys" in recheck(*words, "--key", other, "--threshold", 2).stderr
    stranger = encode_verifier("kvg-other", a.key_of("mallory").public)
    assert recheck(*words[:-1], stranger).returncode == 1
    (tmp_path / "out/receipts").write_text("")
    assert "0 of 1 keys" in recheck(*words).stderr
    assert recheck(*words[:2], "sha256:" + "0" * 64, *words[3:]).returncode == 1


@pytest.mark.parametrize("form", ["pem", "openssh", "note"])
def test_every_form_of_a_public_key(tmp_path: Path, form: str) -> None:
    words = export(tmp_path)
    path = tmp_path / "key.pub"
    public = parse_public(path.read_text(), what="it")
    line = encode_public(public, form, "alice")
    path.write_text(line)
    assert recheck(*words).returncode == 0, recheck(*words).stderr
    path.write_text(encode_public(a.key_of("mallory").public, form, "alice"))
    assert "0 of 1 keys" in recheck(*words).stderr
    if form == "note":
        path.write_text(line.replace("alice+", "bob+"))
        assert "does not match its hash" in recheck(*words).stderr


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
def test_the_recipe_as_it_is_written(tmp_path: Path) -> None:
    """The export of the docstring, to the letter but for the names of ref and key; the check."""
    description = ast.get_docstring(ast.parse(SCRIPT.read_text())) or ""
    lines = description.splitlines()
    start = next(n for n, line in enumerate(lines) if line == "    mkdir out")
    recipe = "\n".join(itertools.takewhile(lambda line: not line or line[0] == " ", lines[start:]))
    check = next(line.strip() for line in lines if "recheck.py out --digest" in line)
    assert recipe.count("kvg ") == 7
    store, key = a.make_store(tmp_path / "store")
    made = a.deposit(store, key, gates=[TestResult(PASSED, "test:pytest")])
    store.close()
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, words in (
        ("kvg", [sys.executable, "-c", "'from kvg.cli.main import run; run()'"]),
        ("python", [sys.executable]),
    ):
        (folder / name).write_text(f'#!/bin/sh\nexec {" ".join(words)} "$@"\n')
        (folder / name).chmod(0o755)
    shutil.copy(SCRIPT, tmp_path)
    shutil.copytree(SCRIPT.parent / "rechecking", tmp_path / "rechecking")
    env = {
        **os.environ,
        "PATH": f"{folder}:{os.environ['PATH']}",
        "PYTHONPATH": str(REPO),
        "KVG_STORE": str(store.root),
        "XDG_DATA_HOME": str(tmp_path / "data"),
    }
    keys = tmp_path / "data/kvg/keys"
    Keyring(keys).import_("mine", encode_private(key, None))
    script = "set -eu\n" + recipe.replace(" REF", " demo").replace(" KEY ", " mine ")
    script += f"\n{check}\n".replace("sha256:…", made.digest)
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "log: holds" in done.stdout and "gates passed: test:pytest" in done.stdout


def test_a_failed_check_is_told(tmp_path: Path) -> None:
    words = export(tmp_path, TestResult(FAILED, "test:pytest"))
    assert "says that a check failed" in recheck(*words).stderr


SPELLINGS = {
    "after a line end": lambda raw: b"\n" + raw,
    "spread": lambda raw: json.dumps(json.loads(raw), indent=2).encode(),
    "an escape in a key": lambda raw: raw.replace(b"payloadType", b"payload\\u0054ype"),
    "escapes in all keys": lambda raw: raw.replace(b'"p', b'"\\u0070').replace(b'"s', b'"\\u0073'),
    "another field": lambda raw: raw.replace(b"{", b'{"note":[1.5],', 1),
}


@pytest.mark.parametrize("how", SPELLINGS)
@pytest.mark.parametrize("is_proved", [True, False])
def test_a_failed_check_is_told_however_its_envelope_is_written(
    tmp_path: Path, how: str, is_proved: bool
) -> None:
    """Only the payload is signed: whoever keeps the store writes the rest as he likes."""
    words = exported_with(tmp_path, SPELLINGS[how], is_proved=is_proved)
    done = recheck(*words)
    assert done.returncode == 1 and "says that a check failed" in done.stderr, done.stdout


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (lambda _: b"what is no JSON", "not JSON"),
        (lambda raw: raw.decode().encode("utf-16"), "not JSON"),
        (lambda raw: b"[" + raw + b"]", "not a JSON object"),
        (lambda raw: raw.replace(b"payloadType", b"payloadtype"), "no payloadType"),
        (lambda raw: raw.replace(b"in-toto", b"in-toto2"), "no statement"),
        (lambda raw: raw.replace(b"{", b'{"payloadType":"x",', 1), "appears twice"),
        (lambda raw: b"[" * 100_000, "not JSON"),
    ],
)
def test_what_a_receipt_proves_and_is_no_envelope_is_told(
    tmp_path: Path, edit: Callable[[bytes], bytes], told: str
) -> None:
    """It may have been a word against the artifact."""
    words = exported_with(tmp_path, edit, is_proved=True)
    done = recheck(*words)
    assert done.returncode == 1 and told in done.stderr, done.stderr or done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("subjects", "is_proved"), [("another's", True), ("two", True), ("two", False), ("none", True)]
)
def test_a_statement_about_it_is_about_it_alone(
    tmp_path: Path, subjects: str, is_proved: bool
) -> None:
    def edit(raw: bytes) -> bytes:
        said = json.loads(base64.b64decode(json.loads(raw)["payload"]))
        other = [{"name": "kvg", "digest": {"sha256": "0" * 64}}]
        about = {"another's": other, "two": said["subject"] + other, "none": []}
        said["subject"] = about[subjects]
        return sign_envelope(json.dumps(said).encode(), [a.key_of("bob")])

    done = recheck(*exported_with(tmp_path, edit, is_proved=is_proved))
    assert done.returncode == 1 and "not about this manifest alone" in done.stderr, done.stdout


def exported_with(folder: Path, edit: Callable[[bytes], bytes], *, is_proved: bool) -> list[object]:
    """An exported artifact with an envelope in which bob says FAILED, edited; bob's key counts.

    ``is_proved``: it is in the log, with its receipt.
    """
    store, key = a.make_store(folder / "made")
    made, bob = a.deposit(store, key), a.key_of("bob")
    failed = a.encode_test_result(made.digest, TestResult(FAILED, "replay"))
    raw = edit(sign_envelope(failed, [bob]))
    with store.pending() as pending:
        envelope = pending.put(raw).digest
        if is_proved:
            store.record(made.digest, [envelope], now=a.NOW)
    words = write_export(folder, store, made, [envelope])
    (folder / "bob.pub").write_text(encode_public(bob.public, "openssh", "bob"))
    return [*words, "--key", folder / "bob.pub"]


def test_the_results() -> None:
    done = recheck("--results", RESULTS)
    assert done.returncode == 0, done.stderr
    assert "every sum holds" in done.stdout


@pytest.mark.parametrize(
    ("file", "kind", "field"),
    [
        ("exactness.jsonl", "exactness-run", "logits"),
        ("exactness.jsonl", "exactness-run", "expected_state"),
        ("exactness.jsonl", "exactness-run", "equal"),
        ("exactness.jsonl", "exactness-run", "input"),
        ("exactness.jsonl", "exactness-row", "equal"),
        ("exactness.jsonl", "exactness-summary", "equal"),
        ("own-position.jsonl", "logits-moved", "grafted"),
        ("own-position.jsonl", "keys-moved", "elements_equal"),
        ("own-position.jsonl", "own-position-summary", "kl_max"),
        ("own-position.jsonl", "own-position-summary", "keys_equal"),
        ("select.jsonl", "select-batch", "wrong"),
        ("select.jsonl", "select-summary", "present"),
        ("similarity.jsonl", "select-row", "wrong"),
        ("acceptance.jsonl", "acceptance-run", "accepted"),
        ("acceptance.jsonl", "acceptance-summary", "matching"),
        ("recurring.jsonl", "recurring-run", "tokens_grafted"),
        ("recurring.jsonl", "recurring-summary", "solved_alone"),
        ("capability.jsonl", "capability-run", "said"),
        ("capability.jsonl", "capability-run", "right"),
        ("capability.jsonl", "capability-summary", "tokens_grafted"),
    ],
)
def test_an_edited_row_fails(tmp_path: Path, file: str, kind: str, field: str) -> None:
    lines = (RESULTS / file).read_text().splitlines()
    number = next(n for n, line in enumerate(lines) if json.loads(line)["type"] == kind)
    row = json.loads(lines[number])
    old = row[field]
    if isinstance(old, str):
        row[field] = old[:-1] + ("1" if old[-1] == "0" else "0")
    elif isinstance(old, list):
        row[field] = [*old, 16]
    else:
        row[field] = not old if isinstance(old, bool) else old + 1
    lines[number] = json.dumps(row)
    path = tmp_path / file
    path.write_text("\n".join(lines) + "\n")
    done = recheck("--results", path)
    assert done.returncode == 1 and "WRONG" in done.stderr
    assert "nothing pins" not in done.stderr  # it is the row that is told


@pytest.mark.parametrize("how", ["an edited string", "a dropped record"])
def test_without_sums_nothing_pins_the_records(tmp_path: Path, how: str) -> None:
    """What no other record tells of would pass: of a folder and of a file."""
    place = tmp_path / "results"
    shutil.copytree(RESULTS, place)
    path = place / "fuzz.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    row = json.loads(lines[0])
    row["decoder"] = row["decoder"] + "x" if "decoder" in row else row["type"]
    lines[0] = json.dumps(row) + "\n"
    path.write_text("".join(lines if how == "an edited string" else lines[1:]))
    assert recheck("--results", place).returncode == 1
    (place / "SHA256SUMS").unlink()
    for asked in (place, path):
        done = recheck("--results", asked)
        assert done.returncode == 1 and "nothing pins the records" in done.stderr


def test_a_dropped_row_fails(tmp_path: Path) -> None:
    shutil.copy(RESULTS / "exactness.jsonl", tmp_path)
    path = tmp_path / "exactness.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:5] + lines[6:]) + "\n")
    assert recheck("--results", tmp_path).returncode == 1


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
def test_what_is_no_number_fails(tmp_path: Path, number: str) -> None:
    path = tmp_path / "exactness.jsonl"
    path.write_text(f'{{"type": "x", "a": {number}}}\n')
    done = recheck("--results", path)
    assert done.returncode == 1 and f"{number} is no number" in done.stderr
