"""What is done with names, keys, files and links."""

from __future__ import annotations

import shutil

from kvg.digest import Digest, sha256
from kvg.errors import Corrupt, Incompatible, NotFound, Untrusted, UsageError
from kvg.signing.keys import encode_private
from tests import artifacts as a
from tests.trust.attacks.world import MALLORY, ROWS, World, refused


@refused(UsageError)
def a_ref_climbs_out_of_its_folder(w: World) -> None:
    w.store.set_ref("a/../../b", w.made.digest)


@refused(UsageError)
def a_ref_begins_with_a_dot(w: World) -> None:
    w.store.set_ref(".hidden", w.made.digest)


@refused(UsageError)
def a_ref_holds_a_control_character(w: World) -> None:
    w.store.set_ref("a\x1b[2Jb", w.made.digest)


@refused(UsageError)
def a_key_has_a_path_for_a_name(w: World) -> None:
    a.make_keyring(w.folder).new("../../escape")


@refused(Untrusted)
def a_key_is_readable_by_others(w: World) -> None:
    ring = a.make_keyring(w.folder)
    ring.new("mine")
    (ring.folder / "mine.pem").chmod(0o644)
    ring.load("mine")


@refused(Untrusted)
def a_key_that_others_could_read_is_taken_in(w: World) -> None:
    from kvg.trust.keyring import read_private

    path = w.folder / "theirs.pem"
    path.write_bytes(encode_private(MALLORY, None))
    path.chmod(0o640)
    read_private(path, missing="no such file")


@refused(Untrusted)
def a_key_lies_under_a_store(w: World) -> None:
    from kvg.trust.keyring import load_file

    path = w.store.root / "key.pem"
    path.write_bytes(encode_private(MALLORY, None))
    path.chmod(0o600)
    load_file(path, None)


@refused(Untrusted)
def a_key_lies_under_a_store_behind_a_link(w: World) -> None:
    from kvg.trust import Keyring

    (w.store.root / "keys").mkdir()
    (w.folder / "innocent").symlink_to(w.store.root / "keys")
    Keyring(w.folder / "innocent").new("mine")


@refused(Untrusted)
def a_key_is_a_pipe(w: World) -> None:
    import os

    from kvg.trust.keyring import load_file

    os.mkfifo(w.folder / "key.pem", 0o600)
    writer = os.open(w.folder / "key.pem", os.O_RDWR)
    try:
        load_file(w.folder / "key.pem", None)
    finally:
        os.close(writer)


@refused(NotFound)
def a_store_is_an_empty_folder_of_that_name(w: World) -> None:
    shutil.rmtree(w.store.root)
    w.store.root.mkdir()
    w.graft()


for _folder in ("objects", "log", "peers", "tmp", "index.lmdb"):

    def _link_folder(w: World, name: str = _folder) -> None:
        shutil.move(w.store.root / name, w.folder / "elsewhere")
        (w.store.root / name).symlink_to(w.folder / "elsewhere")
        w.graft()

    _link_folder.__name__ = f"the_stores_{_folder}_is_a_link"
    ROWS.append((_link_folder.__name__, Corrupt, _link_folder))


def _link_prefix(w: World, digest: Digest) -> None:
    """The folder of ``digest`` in ``objects`` leads out of the store."""
    folder = w.path(digest).parent
    if folder.exists():
        shutil.move(folder, w.folder / "elsewhere")
    else:
        (w.folder / "elsewhere").mkdir()
    folder.symlink_to(w.folder / "elsewhere")


@refused(Corrupt)
def an_object_would_be_written_through_a_link(w: World) -> None:
    digest = sha256(b"new")
    _link_prefix(w, digest)
    with w.store.pending() as pending:
        pending.put(b"new")


@refused(Corrupt)
def an_object_would_be_removed_through_a_link(w: World) -> None:
    from kvg.store.sweep import sweep

    digest = sha256(b"garbage")
    with w.store.pending() as pending:
        pending.put(b"garbage")
    _link_prefix(w, digest)
    try:
        sweep(w.store)
    finally:
        assert w.path(digest).exists()


@refused(Incompatible)
def the_store_is_of_a_later_format(w: World) -> None:
    w.overwrite(w.store.root / "format", b"kvg-store 2\n")
    w.graft()
