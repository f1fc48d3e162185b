"""``kvg fsck`` on names that no terminal should see as they are."""

from __future__ import annotations

import json
import os

from tests.cli.conftest import Run, Stored

NAMES = (b"\x1b[2J", "\u202egnp.exe".encode(), b"\xff\xfe", b"new\nline")


def test_names_of_any_bytes_are_told_escaped_and_moved(kvg: Run, stored: Stored) -> None:
    for name in NAMES:
        with open(os.path.join(os.fsencode(stored.store.root), b"tmp", name), "wb") as file:
            file.write(b"x")
    plain = kvg("fsck")
    assert plain.code == 5
    for text in (plain.out, plain.err):
        assert "\x1b" not in text and "\u202e" not in text
    said = plain.out + plain.err
    assert all(
        word in said for word in ("\\x1b[2J", "\\u202egnp.exe", "\\udcff\\udcfe", "--repair")
    )
    as_json = kvg("--json", "fsck")
    assert as_json.code == 5
    objects = [json.loads(line).get("object") for line in as_json.out.splitlines()]
    assert {f"tmp/{os.fsdecode(name)}" for name in NAMES} <= set(objects)
    assert kvg("fsck", "--repair").code == 5
    assert kvg("fsck").code == 0
