"""``kvg log``: receipts checked elsewhere, checkpoints, witnesses, a log that went back."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kvg.errors import Untrusted
from kvg.log.checkpoint import sign_checkpoint
from kvg.signing.cosignature import Witness, cosign, encode_witness
from kvg.signing.note import encode_signature, encode_verifier, parse_note
from kvg.store import Store
from tests.artifacts import deposit, key_of
from tests.cli.conftest import Run, Stored

EVE = key_of("witness")
WITNESS = Witness("witness.example", EVE.public)


def cosignature(note: str) -> bytes:
    text = parse_note(note.encode(), what="it").text
    return encode_signature(cosign(text, WITNESS.name, EVE, time=1_764_432_000))


def test_receipts_are_checked_elsewhere(
    stored: Stored, kvg: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proof = tmp_path / "proof"
    proof.write_text(kvg("log", "demo", "--receipt").out)
    own = kvg("log", "--check", str(proof), "--json").records
    assert [item["entry"] for item in own] == ["ref", "attestation"]
    verifier = kvg("log", "--checkpoint", "--json").record["verifier"]
    one = tmp_path / "one"
    one.write_text(kvg("log", "demo", "--receipt", "--json").records[0]["receipt"])
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    found = kvg("log", "--check", str(one), "--verifier", verifier, "--json").record
    assert found["ref"] == "demo" and found["digest"] == stored.digest
    assert found["origin"] == stored.store.log.origin and found["size"] == stored.store.log.size
    assert (
        "ref  demo: proved to be entry"
        in kvg("log", "--check", str(one), "--verifier", verifier).out
    )
    assert kvg("log", "--check", str(one)).code == 3  # neither a key nor a store
    other = encode_witness(WITNESS)
    assert kvg("log", "--check", str(one), "--verifier", other).code == 7


def test_a_file_with_a_receipt_that_is_cut_or_altered(
    stored: Stored, kvg: Run, tmp_path: Path
) -> None:
    """What is whole in it is not taken for all of it."""
    proof = tmp_path / "proof"
    text = kvg("log", "demo", "--receipt").out
    second = text.rindex("c2sp.org/tlog-proof@v1")
    altered = text[:second] + text[second:].replace("@v1", "@v2", 1)
    for spoilt in (altered, *(text[:end] for end in range(second + 12, len(text) - 1, 97))):
        proof.write_text(spoilt)
        done = kvg("log", "--check", str(proof))
        assert done.code == 5 and "cut or altered" in done.err, spoilt[second:]


def test_a_receipt_that_proves_nothing(stored: Stored, kvg: Run, tmp_path: Path) -> None:
    from kvg.signing.note import encode_verifier

    good = kvg("log", "demo", "--receipt", "--json").records[0]["receipt"]
    path = tmp_path / "proof"
    lines = good.split("\n")
    foreign_text = kvg("log", "demo", "--receipt", "--json").records[1]["receipt"]
    foreign = foreign_text.split("\n")
    for code, text in (
        (6, "\n".join([lines[0], foreign[1], *lines[2:]])),  # another entry
        (5, good.replace("index 2", "index 1")),  # whose proof is longer
        (6, foreign_text.replace("index 1", "index 0")),
        (6, "\n".join([lines[0], *lines[2:]])),  # none
        (5, good.replace("index 2", "index x")),
        (5, "nothing of the kind\n"),
        (5, ""),
    ):
        path.write_text(text)
        assert kvg("log", "--check", str(path)).code == code, text
    path.write_text(good)
    stranger = encode_verifier(stored.store.log.origin, EVE.public)
    assert kvg("log", "--check", str(path), "--verifier", stranger).code == 6
    elsewhere = encode_verifier("kvg-other", stored.store.log.verifier)
    assert kvg("log", "--check", str(path), "--verifier", elsewhere).code == 6


def test_a_witness_cosigns(stored: Stored, kvg: Run, tmp_path: Path) -> None:
    shown = kvg("log", "--checkpoint")
    assert shown.out == stored.store.log.note.decode() and "witnessed by nobody" in shown.err
    answer = tmp_path / "answer"
    answer.write_bytes(cosignature(shown.out))
    assert kvg("log", "--cosigned", str(answer)).code == 6  # of whom nobody said that they count
    taken = kvg("log", "--cosigned", str(answer), "--witness", encode_witness(WITNESS), "--json")
    (witness,) = taken.record["witnesses"]
    assert witness["name"] == "witness.example" and witness["size"] == stored.store.log.size
    assert "witnessed at size" in kvg("log", "--checkpoint").err
    assert cosignature(shown.out) in stored.store.log.note
    assert kvg("verify").code == 0
    size = stored.store.log.size
    kvg("tag", "later", "demo")  # the log grows; what was cosigned is kept
    (witness,) = kvg("log", "--checkpoint", "--json").record["witnesses"]
    assert witness["size"] == size < stored.store.log.size
    whole = tmp_path / "whole"
    whole.write_bytes(stored.store.log.note + cosignature(stored.store.log.note.decode()))
    (witness,) = kvg("log", "--cosigned", str(whole), "--json").record["witnesses"]
    assert witness["size"] == stored.store.log.size
    whole.write_bytes(shown.out.encode() + cosignature(shown.out))  # an older one changes nothing
    (witness,) = kvg("log", "--cosigned", str(whole), "--json").record["witnesses"]
    assert witness["size"] == stored.store.log.size


def test_a_witness_cosigned_before_a_change_of_key(
    stored: Stored, kvg: Run, tmp_path: Path
) -> None:
    """What the key of then signed counts, taken up before it or after."""
    note, size = stored.store.log.note.decode(), stored.store.log.size
    key = stored.store.log_key()
    paper = tmp_path / "paper"
    paper.write_bytes(note.encode() + cosignature(note))
    assert kvg("key", "rekey", "-q").code == 0
    who = ("--witness", encode_witness(WITNESS))
    assert kvg("log", "--cosigned", str(paper), *who).code == 0
    assert kvg("key", "rekey", "-q").code == 0
    (witness,) = kvg("log", "--checkpoint", "--json").record["witnesses"]
    assert witness["size"] == size and kvg("fsck").code == 0
    assert "nobody cosigned" not in kvg("audit").out
    late = Store.open(stored.store.root).log.checkpoint
    forged = sign_checkpoint(late, key)  # by a key that was replaced
    paper.write_bytes(forged + cosignature(forged.decode()))
    assert kvg("log", "--cosigned", str(paper)).code == 6


def test_the_newer_word_of_a_witness_is_kept(stored: Stored, kvg: Run, tmp_path: Path) -> None:
    other = Witness("second.example", key_of("second").public)
    for witness in (WITNESS, other):
        told = kvg("log", "--witness", encode_witness(witness))
        assert told.code == 0 and told.out == stored.store.log.note.decode()
    assert len(Store.open(stored.store.root).config.words("store.witnesses")) == 2
    note = stored.store.log.note.decode()
    answer = tmp_path / "answer"

    def take(who: str, key: str, time: int, *, whole: bool) -> dict[str, int]:
        line = encode_signature(
            cosign(parse_note(note.encode(), what="it").text, who, key_of(key), time=time)
        )
        answer.write_bytes((note.encode() if whole else b"") + line)
        done = kvg("log", "--cosigned", str(answer), "--json")
        assert done.code == 0, done
        return {item["name"]: item["time"] for item in done.record["witnesses"]}

    first = WITNESS.name
    assert take(first, "witness", 1000, whole=False) == {first: 1000}
    for whole in (False, True):
        assert take(first, "witness", 900, whole=whole) == {first: 1000}
    assert take(first, "witness", 1100, whole=True) == {first: 1100}
    kvg("tag", "later", "demo")  # what is cosigned is an older checkpoint now
    both = {first: 1100, other.name: 50}
    assert take(other.name, "second", 50, whole=True) == both
    assert take(first, "witness", 1000, whole=True) == both
    both[first] = 1 << 62
    assert take(first, "witness", 1 << 62, whole=True) == both
    line = encode_signature(
        cosign(parse_note(note.encode(), what="it").text, first, EVE, time=1 << 62)
    )
    answer.write_bytes(note.encode() + line)
    assert "from now" in kvg("log", "--cosigned", str(answer)).err
    shown = kvg("log", "--checkpoint").err
    assert "by its own clock" in shown and str(1 << 62) in shown
    assert kvg("audit").out.count("witnessed at size") == 2
    assert kvg("audit", "--html", str(tmp_path / "a.html")).code == 0
    assert "by its own clock" in (tmp_path / "a.html").read_text()


def test_each_witness_has_its_newest_word_with_its_size(
    stored: Stored, kvg: Run, tmp_path: Path
) -> None:
    other, paper = Witness("second.example", key_of("second").public), tmp_path / "paper"
    paper.write_bytes(cosignature(kvg("log", "--checkpoint").out))
    who = encode_witness(WITNESS)
    first = kvg("log", "--cosigned", str(paper), "--witness", who, "--json").record
    assert first["silent"] == []
    size = first["size"]
    kvg("tag", "later", "demo")
    note = parse_note(kvg("log", "--checkpoint").out.encode(), what="it").text
    paper.write_bytes(encode_signature(cosign(note, other.name, key_of("second"), time=1)))
    done = kvg("log", "--cosigned", str(paper), "--witness", encode_witness(other), "--json")
    said = {word["name"]: word["size"] for word in done.record["witnesses"]}
    assert said == {WITNESS.name: size, other.name: size + 1} and done.record["silent"] == []
    third = Witness("third.example", key_of("third").public)
    assert kvg("log", "--witness", encode_witness(third)).code == 0
    shown = kvg("log", "--checkpoint").err
    assert f"size {size} by {WITNESS.name}" in shown and f"size {size + 1} by {other.name}" in shown
    assert f"no word of {third.name}" in shown
    told = kvg("audit", "--json").record
    assert {word["name"]: word["size"] for word in told["witnesses"]} == said
    unchecked = " ".join(told["unchecked"])
    assert f"names {third.name}, and" in unchecked and "nobody cosigned" not in unchecked
    assert kvg("fsck").code == 0
    words = sorted((stored.store.root / "log" / "witnessed").iterdir())
    assert len(words) == 2
    for path in words:  # each is missed, and comes back from the user's own memory of it
        whole = path.read_bytes()
        is_older = f"\n{size}\n" in whole.decode()
        for spoilt in (None, whole[:-9], whole.replace(b"\n", b"\n\n", 1)):
            path.unlink()
            if spoilt is not None:
                path.write_bytes(spoilt)
            if spoilt is not None or is_older:  # the newest of all is in the file beside it, too
                assert kvg("fsck").code in (5, 6), path
                assert kvg("fsck", "--repair").code in (5, 6)
                assert path.read_bytes() == whole
            assert kvg("fsck").code == 0
            path.write_bytes(whole)


def test_an_option_that_would_change_nothing_is_refused(
    stored: Stored, kvg: Run, tmp_path: Path
) -> None:
    assert kvg("log", "--verifier", encode_verifier("x", EVE.public)).code == 2
    proof = tmp_path / "proof"
    proof.write_text(kvg("log", "--receipt").out)
    refused = kvg("log", "--check", str(proof), "--witness", encode_witness(WITNESS))
    assert refused.code == 2 and "--witness" in refused.err
    assert kvg("log", "--witness", "nonsense").code == 5
    assert not Store.open(stored.store.root).config.words("store.witnesses")


def test_a_forged_cosignature_is_refused(stored: Stored, kvg: Run, tmp_path: Path) -> None:
    shown = kvg("log", "--checkpoint").out
    other = shown.replace(f"\n{stored.store.log.size}\n", "\n99\n", 1)
    answer = tmp_path / "answer"
    who = encode_witness(WITNESS)
    for data in (cosignature(other), other.encode() + cosignature(other)):
        answer.write_bytes(data)
        assert kvg("log", "--cosigned", str(answer), "--witness", who).code == 6
    assert not (stored.store.root / "log/cosigned").exists()
    assert kvg("config", "get", "store.witnesses").code == 3


def test_a_log_that_went_back_between_runs(stored: Stored, kvg: Run, home: Path) -> None:
    shutil.copytree(".kvg", "older")
    assert kvg("tag", "v1", "demo").code == 0
    assert kvg("ls").code == 0
    shutil.rmtree(".kvg")
    shutil.move("older", ".kvg")
    refused = kvg("ls")
    assert refused.code == 6 and "rolled back from size" in refused.err
    assert kvg("verify").code == 6
    seen = home / ".local/share/kvg/keys/logs" / f"{stored.store.log.origin}.seen"
    assert str(seen) in refused.err
    seen.unlink()  # the way back that the hint names
    assert kvg("ls").code == 0


def test_a_fork_between_runs(stored: Stored, kvg: Run) -> None:
    shutil.copytree(".kvg", "fork")
    kvg("tag", "v1", "demo")
    seen = Store.open(Path("fork"))
    seen.keyring = stored.store.keyring
    other = Store.open(Path("fork"))
    key = stored.store.log_key()
    from kvg.log.entry import PinEntry

    for on in (True, False, True):
        other.publish([PinEntry(5, stored.digest, on)], key=key)
    with pytest.raises(Untrusted, match="forked at or before"):
        _ = seen.log


def test_what_was_seen_is_remembered_for_a_store_made_elsewhere(
    stored: Stored, kvg: Run, home: Path
) -> None:
    deposit(stored.store, None, ref="more", ids=range(3, 9))
    assert kvg("ls").code == 0
    keys = home / ".local/share/kvg/keys"
    shutil.rmtree(keys)
    assert kvg("ls").code == 0
    assert (keys / "logs" / f"{stored.store.log.origin}.seen").stat().st_mode & 0o777 == 0o600
