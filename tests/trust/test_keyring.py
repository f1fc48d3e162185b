from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from kvg.errors import Conflict, Corrupt, NotFound, Untrusted, UsageError
from kvg.signing.keys import encode_private, parse_public
from kvg.trust import Keyring
from kvg.trust.keyring import load_file
from tests.artifacts import key_of, make_store
from tests.store.faults import hooked


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_field_s21_a_key_is_private_from_its_creation(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        keyring = Keyring(tmp_path / "data" / "keys")
        key = keyring.new("alice")
    finally:
        os.umask(old)
    assert mode(keyring.folder) == 0o700
    assert mode(keyring.folder / "alice.pem") == 0o600
    assert sorted(os.listdir(keyring.folder)) == ["alice.pem", "alice.pub"]
    text = (keyring.folder / "alice.pub").read_text(encoding="utf-8")
    assert text.startswith("ssh-ed25519 ") and text.endswith(" alice\n")
    assert parse_public(text, what="it") == key.public


@pytest.mark.parametrize("loose", [0o640, 0o604, 0o660, 0o644])
def test_field_s21_a_loose_key_is_refused(tmp_path: Path, loose: int) -> None:
    keyring = Keyring(tmp_path / "keys")
    keyring.new("alice")
    path = keyring.folder / "alice.pem"
    path.chmod(loose)
    with pytest.raises(Untrusted, match="others can read") as error:
        keyring.load("alice")
    assert error.value.hint == f"chmod 600 {path}"
    path.chmod(0o400)
    keyring.load("alice")


def test_keys_never_lie_under_a_store(tmp_path: Path) -> None:
    store, _ = make_store(tmp_path)
    for folder in (store.root / "keys", store.root / "a" / "b", tmp_path / "x" / ".kvg" / "keys"):
        keyring = Keyring(folder)
        with pytest.raises(Untrusted, match="never lie under a store"):
            keyring.new("alice")
        with pytest.raises(Untrusted):
            keyring.new_log_key("kvg-x")
        assert not folder.exists()
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "format").write_bytes(b"kvg-store 1\n")
    (tmp_path / "bare" / "k.pem").write_bytes(encode_private(key_of("x"), None))
    (tmp_path / "bare" / "k.pem").chmod(0o600)
    with pytest.raises(Untrusted):
        load_file(tmp_path / "bare" / "k.pem", None)


def test_a_link_does_not_hide_a_store(tmp_path: Path) -> None:
    store, _ = make_store(tmp_path / "s")
    (tmp_path / "keys").symlink_to(store.root)
    with pytest.raises(Untrusted):
        Keyring(tmp_path / "keys").new("alice")


def test_list_and_find(tmp_path: Path) -> None:
    keyring = Keyring(tmp_path / "keys")
    assert keyring.list() == ()
    alice, bob = keyring.new("alice"), keyring.new("bob", b"secret")
    keyring.new_log_key("kvg-x")
    infos = keyring.list()
    assert [(info.name, info.keyid, info.encrypted) for info in infos] == [
        ("alice", alice.public.keyid, False),
        ("bob", bob.public.keyid, True),
    ]
    assert keyring.find("bob") == infos[1]
    assert keyring.find(alice.public.keyid[:6]) == infos[0]
    for text in ("carol", alice.public.keyid[:5], "0" * 64, "", "../alice"):
        with pytest.raises(NotFound):
            keyring.find(text)


def test_passphrases(tmp_path: Path) -> None:
    keyring = Keyring(tmp_path / "keys")
    key = keyring.new("bob", b"secret")
    assert keyring.load("bob", lambda: b"secret").public == key.public
    with pytest.raises(Untrusted, match="wrong passphrase"):
        keyring.load("bob", lambda: b"guess")
    with pytest.raises(Untrusted, match="encrypted") as error:
        keyring.load("bob")
    assert "KVG_PASSPHRASE_FILE" in (error.value.hint or "")


def test_a_plain_key_asks_for_nothing(tmp_path: Path) -> None:
    keyring = Keyring(tmp_path / "keys")
    keyring.new("alice")

    def ask() -> bytes:
        raise AssertionError("asked")

    keyring.load("alice", ask)


def test_import(tmp_path: Path) -> None:
    keyring = Keyring(tmp_path / "keys")
    key = key_of("x")
    assert keyring.import_("plain", encode_private(key, None)).public == key.public
    assert keyring.import_("safe", encode_private(key, b"pw"), lambda: b"pw").public == key.public
    assert not keyring.info("plain").encrypted and keyring.info("safe").encrypted
    assert keyring.load("safe", lambda: b"pw").public == key.public
    with pytest.raises(Untrusted):
        keyring.import_("other", encode_private(key, b"pw"))
    with pytest.raises(Corrupt):
        keyring.import_("other", b"not a key")
    assert sorted(info.name for info in keyring.list()) == ["plain", "safe"]


def test_names(tmp_path: Path) -> None:
    keyring = Keyring(tmp_path / "keys")
    keyring.new("alice")
    with pytest.raises(Conflict):
        keyring.new("alice")
    for name in ("", "../x", "a/b", ".x", "a b", "x" * 101, "é"):
        with pytest.raises(UsageError):
            keyring.new(name)


def test_a_key_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "secret.pem"
    path.write_bytes(encode_private(key_of("x"), None))
    path.chmod(0o600)
    assert load_file(path, None).public == key_of("x").public
    with pytest.raises(NotFound):
        load_file(tmp_path / "none.pem", None)
    (tmp_path / "folder").mkdir()
    with pytest.raises(Untrusted, match="not a plain file"):
        load_file(tmp_path / "folder", None)


def test_log_keys(tmp_path: Path) -> None:
    keyring = Keyring(tmp_path / "keys")
    key = keyring.new_log_key("kvg-x")
    assert keyring.new_log_key("kvg-x").public == key.public
    assert keyring.log_key("kvg-x").public == key.public == keyring.log_public("kvg-x")
    assert mode(keyring.folder / "logs") == 0o700
    assert keyring.log_public("kvg-y") is None
    with pytest.raises(NotFound):
        keyring.log_key("kvg-y")
    with pytest.raises(UsageError):
        keyring.new_log_key("../x")


def test_what_is_remembered_of_others_is_whole_or_not_there(tmp_path: Path) -> None:
    """A name in the folder is that of a log: nothing half written lies there at any step."""
    ring = Keyring(tmp_path / "keys")
    names: list[tuple[str, ...]] = []

    def look(_name: str, _path: str) -> None:
        names.append(ring.seen_peers("kvg-own"))

    with hooked(look):
        assert ring.keep_peer("kvg-own", "kvg-other", b"x" * 9)
    assert set(names) <= {(), ("kvg-other",)} and len(names) > 3
    assert ring.seen_peer("kvg-own", "kvg-other") == b"x" * 9
    assert ring.seen_peers("kvg-other") == () and ring.seen_peer("kvg-own", "kvg-x") is None
