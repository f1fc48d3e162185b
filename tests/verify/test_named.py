"""Damage that takes something away without a trace is named: by ``verify`` and by ``fsck``."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kvg.cli.layers import OPTIONS
from kvg.errors import Corrupt, Incompatible
from kvg.signing.cosignature import Witness, cosign, encode_witness
from kvg.signing.note import parse_note
from kvg.store import Store
from kvg.store.config import KNOWN
from kvg.verify.check import check_store
from kvg.verify.findings import Finding
from kvg.verify.fsck import FsckSummary, fsck
from tests import artifacts as a

WITNESS = Witness("witness.example", a.key_of("witness").public)


def made(tmp_path: Path) -> Path:
    store, key = a.make_store(tmp_path)
    a.deposit(store, key)
    store.close()
    return store.root


def opened(root: Path) -> Store:
    return Store.open(root, keyring=a.make_keyring(root.parent))


def both(root: Path) -> tuple[list[Finding], list[Finding]]:
    """What fsck and verify find."""
    said = [[*fsck(opened(root))], [*check_store(opened(root))]]
    assert isinstance(said[0][-1], FsckSummary)
    one, two = ([item for item in found if isinstance(item, Finding)] for found in said)
    assert said[0][-1].faults == len(one)
    return one, two


def test_every_byte_of_what_a_witness_signed(tmp_path: Path) -> None:
    root = made(tmp_path)
    store = opened(root)
    text = parse_note(store.log.note, what="it").text
    store.config.set("store.witnesses", (encode_witness(WITNESS),))
    line = cosign(text, WITNESS.name, a.key_of("witness"), time=1_764_432_000)
    store.log.add_cosignatures(store.log.note, [line])
    assert both(root) == ([], [])
    for name in ("cosigned", "checkpoint"):
        path = root / "log" / name
        whole = path.read_bytes()
        cuts = [0, len(whole) // 2, len(whole) - 1, whole.rindex("—".encode())]
        if name == "checkpoint":
            del cuts[-1]  # without the line it is what the log itself signed
        spoilt = [whole[:at] for at in cuts] + [whole + b"\0", whole + whole]
        for at in range(len(whole)):
            spoilt.append(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        for data in spoilt:
            path.write_bytes(data)
            for found in both(root):
                assert found and {item.code for item in found} <= {5, 6}, data
                assert any(name in item.message for item in found), found
        path.write_bytes(whole)
    assert both(root) == ([], [])


def test_a_misspelt_setting_turns_nothing_off_unseen(tmp_path: Path) -> None:
    root = made(tmp_path)
    path = root / "config.toml"
    whole = path.read_text()
    for line, key, near in (
        ('[deposit]\nsequire = "test:unit"\n', "deposit.sequire", "deposit.require"),
        ('[depozit]\nrequire = "test:unit"\n', "depozit.require", "deposit.require"),
        ('[remote.x]\nurl = "file:///x"\npges = false\n', "remote.x.pges", "remote.x.pages"),
        ("[store.more]\nquota = 3\n", "store.more.quota", "store.quota"),
    ):
        path.write_text(whole + line)
        for found in both(root):
            (item,) = found
            assert item.object == "config.toml" and key in item.message and item.code == 5
            assert item.hint is not None and near in item.hint
    path.write_text(whole + '[model."a.b"]\npath = "/x"\n[remote."c.d"]\npages = false\n')
    assert both(root) == ([], [])


def test_what_may_be_set_is_known() -> None:
    assert {option.key for option in OPTIONS} <= set(KNOWN)


@pytest.mark.parametrize("data", [b"kvg-store 1", b"kvg-store 1\n\0", b"kvg-store 1 \n", b"", b"x"])
def test_a_damaged_format_line_is_not_another_version(tmp_path: Path, data: bytes) -> None:
    root = made(tmp_path)
    (root / "format").write_bytes(data)
    with pytest.raises(Corrupt, match="format: not the format line") as error:
        Store.open(root)
    assert error.value.hint is not None and "kvg-store 1" in error.value.hint
    (root / "format").write_bytes(b"kvg-store 12\n")
    with pytest.raises(Incompatible, match="kvg-store 12"):
        Store.open(root)


def test_a_log_that_is_gone(tmp_path: Path) -> None:
    root = made(tmp_path)
    shutil.rmtree(root / "log")
    for found in both(root):
        assert {item.code for item in found} == {5}
        assert any(item.hint and "copy of the store" in item.hint for item in found)
    with pytest.raises(Corrupt, match="log: missing"):
        opened(root).refs()


def test_a_trust_file_that_is_gone(tmp_path: Path) -> None:
    root = made(tmp_path)
    (root / "trust.json").unlink()
    for found in both(root):
        assert [(item.object, item.code) for item in found] == [("trust.json", 5)]


@pytest.mark.parametrize("how", ["flipped", "emptied", "deleted", "swapped"])
def test_the_key_of_the_log(tmp_path: Path, how: str) -> None:
    root = made(tmp_path)
    store = opened(root)
    path = a.make_keyring(tmp_path).log_path(store.log.origin)
    data = path.read_bytes()
    if how == "deleted":
        path.unlink()
    elif how == "swapped":
        other, _ = a.make_store(tmp_path / "other")
        path.write_bytes(a.make_keyring(tmp_path / "other").log_path(other.log.origin).read_bytes())
    else:
        at = len(data) // 2
        path.write_bytes(b"" if how == "emptied" else data[:at] + b"!" + data[at + 1 :])
    found, _ = both(root)
    assert [(item.object, item.code) for item in found] == [(str(path), Corrupt.code)]
    assert found[0].hint is not None and "backup" in found[0].hint


def test_folders_that_are_gone_are_made_again(tmp_path: Path) -> None:
    root = made(tmp_path)
    shutil.rmtree(root / "tmp")
    by_fsck, by_verify = both(root)
    assert [item.message for item in by_fsck] == ["tmp: missing"] and by_verify == []
    a.deposit(opened(root), a.key_of("alice"), ref="more", ids=range(9))
    assert both(root) == ([], []) and (root / "tmp").is_dir()
