from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvg import durable
from kvg.errors import Conflict, Corrupt, KvgError, NoSpace, NotFound, Untrusted, UsageError
from kvg.log import merkle, tiles
from kvg.log.log import KEPT_PARTIALS, Log
from kvg.log.rekey import MARK
from kvg.signing.keys import PrivateKey

ORIGIN = "store.example/kvg"


def _entries(start: int, stop: int, label: bytes = b"entry") -> list[bytes]:
    return [b"%s-%d" % (label, i) for i in range(start, stop)]


def _open(log: Log) -> Log:
    return Log.open(log.folder, staging=log._staging)


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_the_vectors_log(vectors: dict[str, Any], log: Log, key: PrivateKey) -> None:
    for text in vectors["rfc6962"]["entries_utf8"]:
        log.append([text.encode()], key)
        assert log.root.hex() == vectors["rfc6962"]["roots_hex"][log.size]
    assert log.note.decode() == vectors["checkpoint"]["note"]
    for case in vectors["rfc6962"]["consistency"]:
        if case["to"] == log.size:
            assert [n.hex() for n in log.consistency_proof(case["from"])] == case["proof_hex"]
    for case in vectors["rfc6962"]["inclusion"]:
        if case["size"] == log.size:
            assert [n.hex() for n in log.inclusion_proof(case["index"])] == case["proof_hex"]


def test_a_new_log_is_empty(log: Log, key: PrivateKey) -> None:
    assert (log.origin, log.size, log.root) == (ORIGIN, 0, merkle.EMPTY_ROOT)
    assert log.verifier == key.public
    assert list(log.read()) == []
    assert log.append([], key) == 0
    log.check()
    assert [path.name for path in _files(log.folder)] == ["checkpoint", "verifier"]


def test_a_log_is_not_made_twice(log: Log, key: PrivateKey, staging: Path) -> None:
    with pytest.raises(Conflict, match=str(log.folder)):
        Log.create(log.folder, origin="other", key=key, staging=staging)
    with pytest.raises(UsageError):
        Log.create(log.folder / "x", origin="two words", key=key, staging=staging)


@pytest.mark.parametrize(
    "steps", [[1], [255], [256], [257], [1, 254, 1, 1], [300, 300], [256, 256], [1] * 40, [1000, 7]]
)
def test_appending_in_any_steps_gives_one_log(
    log: Log, key: PrivateKey, steps: list[int], tmp_path: Path, staging: Path
) -> None:
    total = sum(steps)
    start = 0
    for n in steps:
        assert log.append(_entries(start, start + n), key) == start
        start += n
    opened = Log.open(log.folder, staging=staging, verifier=key.public)
    assert opened.root == merkle.root_of([merkle.leaf_hash(x) for x in _entries(0, total)])
    assert list(opened.read()) == _entries(0, total)
    assert list(opened.read(total // 2, total)) == _entries(total // 2, total)
    opened.check()
    at_once = Log.create(tmp_path / "b", origin=ORIGIN, key=key, staging=staging)
    at_once.append(_entries(0, total), key)
    assert at_once.note == opened.note


def test_the_files_are_those_of_the_specification(log: Log, key: PrivateKey) -> None:
    log.append(_entries(0, 70_000), key)
    names = {str(path.relative_to(log.folder)) for path in _files(log.folder)}
    expected = {"checkpoint", "verifier", "tile/0/273.p/112", "tile/entries/273.p/112"}
    expected |= {"tile/1/000", "tile/1/001.p/17", "tile/2/000.p/1"}
    expected |= {f"tile/{kind}/{n:03d}" for kind in ("0", "entries") for n in range(273)}
    assert names == expected
    assert (log.folder / "tile/1/000").stat().st_size == 8192
    log.check()


def test_prefixes_are_recognised(log: Log, key: PrivateKey) -> None:
    roots = [log.root]
    for i in range(20):
        log.append(_entries(i, i + 1), key)
        roots.append(log.root)
    for size, root in enumerate(roots):
        assert log.is_extension_of(size, root)
        assert log.root_at(size) == root
        assert not log.is_extension_of(size, bytes(32))
    assert not log.is_extension_of(21, roots[20])
    assert not log.is_extension_of(-1, roots[0])
    for size in (-1, 21):
        with pytest.raises(UsageError):
            log.root_at(size)
    for old in (0, 21):
        with pytest.raises(UsageError):
            log.consistency_proof(old)


@pytest.mark.parametrize(("start", "stop"), [(-1, 2), (2, 1), (0, 4), (4, None)])
def test_ranges_outside_the_log_are_refused(
    log: Log, key: PrivateKey, start: int, stop: int | None
) -> None:
    log.append(_entries(0, 3), key)
    with pytest.raises(UsageError, match="of 3"):
        log.read(start, stop)


def test_another_key_may_not_append(log: Log, key: PrivateKey, other_key: PrivateKey) -> None:
    with pytest.raises(Untrusted, match="is not its key"):
        log.append([b"a"], other_key)
    with pytest.raises(Untrusted, match="expected"):
        Log.open(log.folder, staging=log._staging, verifier=other_key.public)
    assert _open(log).size == 0


def test_entries_of_64_kib_are_refused_whole(log: Log, key: PrivateKey) -> None:
    with pytest.raises(UsageError, match="65536"):
        log.append([b"a", bytes(65536)], key)
    assert _open(log).size == 0
    log.append([bytes(65535), b""], key)
    assert list(_open(log).read()) == [bytes(65535), b""]


def test_a_writer_starts_from_what_another_wrote(log: Log, key: PrivateKey) -> None:
    other = _open(log)
    other.append(_entries(0, 300), key)
    assert log.append(_entries(300, 301), key) == 300
    assert list(_open(log).read()) == _entries(0, 301)


def test_a_rollback_or_fork_under_an_open_log_is_untrusted(
    log: Log, key: PrivateKey, tmp_path: Path, staging: Path
) -> None:
    log.append(_entries(0, 2), key)
    early = (log.folder / "checkpoint").read_bytes()
    log.append(_entries(2, 3), key)
    (log.folder / "checkpoint").write_bytes(early)
    for act in (log.refresh, lambda: log.append([b"x"], key)):
        with pytest.raises(Untrusted, match="rolled back from size 3 to 2"):
            act()
    fork = Log.create(tmp_path / "fork", origin=ORIGIN, key=key, staging=staging)
    fork.append(_entries(0, 4, b"fork"), key)
    for path in _files(fork.folder):
        target = log.folder / path.relative_to(fork.folder)
        target.unlink(missing_ok=True)
        target.write_bytes(path.read_bytes())
    with pytest.raises(Untrusted, match="forked"):
        log.refresh()


def test_readers_of_earlier_checkpoints_go_on(log: Log, key: PrivateKey) -> None:
    readers = []
    for i in range(300):
        readers.append((i, _open(log)))
        log.append(_entries(i, i + 1), key)
    for size, reader in readers:
        assert list(reader.read()) == _entries(0, size)
        reader.check()


def test_old_partial_tiles_are_tidied(log: Log, key: PrivateKey) -> None:
    for i in range(250):
        log.append(_entries(i, i + 1), key)
    for name in ("tile/0/000", "tile/entries/000"):
        widths = tiles.FolderSource(log.folder).widths(name)
        assert KEPT_PARTIALS <= len(widths) <= 16
        assert widths[-KEPT_PARTIALS:] == [247, 248, 249, 250]
    log.append(_entries(250, 260), key)
    assert list(tiles.FolderSource(log.folder).widths("tile/0/000")) == []
    assert list(tiles.FolderSource(log.folder).widths("tile/0/001")) == [4]


def test_failing_to_tidy_fails_nothing(log: Log, key: PrivateKey) -> None:
    log.append(_entries(0, 255), key)

    def refuse(step: str, path: str) -> None:
        if step == "unlink":
            raise OSError("no")

    durable.set_hook(refuse)
    assert log.append(_entries(255, 256), key) == 255
    durable.set_hook(None)
    assert _open(log).size == 256
    _open(log).check()


class Crash(BaseException):
    """The process ends here."""


def _steps(act: Callable[[], object]) -> int:
    seen: list[str] = []
    durable.set_hook(lambda step, path: seen.append(step))
    try:
        act()
    finally:
        durable.set_hook(None)
    return len(seen)


def _crash_at(number: int, act: Callable[[], object], failure: BaseException) -> None:
    left = [number]

    def hook(step: str, path: str) -> None:
        if left[0] == 0:
            raise failure
        left[0] -= 1

    durable.set_hook(hook)
    try:
        act()
    finally:
        durable.set_hook(None)


SETUPS = [(0, 1), (3, 2), (254, 1), (255, 1), (255, 3), (256, 1), (250, 300), (17, 1), (511, 2)]


def _prepared(folder: Path, staging: Path, key: PrivateKey, size: int) -> Log:
    log = Log.create(folder, origin=ORIGIN, key=key, staging=staging)
    if size:
        log.append(_entries(0, max(1, size - 20)), key)
    for i in range(log.size, size):
        log.append(_entries(i, i + 1), key)
    return log


DISK_FULL = OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("size", "more", "failure"),
    [*((size, more, Crash()) for size, more in SETUPS), (3, 2, DISK_FULL), (255, 1, DISK_FULL)],
)
def test_a_crash_at_any_step_of_append(
    tmp_path: Path, staging: Path, key: PrivateKey, size: int, more: int, failure: BaseException
) -> None:
    new = _entries(size, size + more, b"new")
    log = _prepared(tmp_path / "whole", staging, key, size)
    n_steps = _steps(lambda: log.append(new, key))
    assert n_steps >= 12
    for number in range(n_steps):
        log = _prepared(tmp_path / str(number), staging, key, size)
        reader, before = _open(log), log.note
        try:
            _crash_at(number, lambda log=log: log.append(new, key), failure)  # type: ignore[misc]
        except (Crash, NoSpace):
            pass
        opened = _open(log)
        opened.check()
        assert opened.size in (size, size + more)
        assert (opened.note == before) == (opened.size == size)
        wanted = _entries(0, size) + (new if opened.size > size else [])
        assert list(opened.read()) == wanted
        assert list(reader.read()) == _entries(0, size)
        again = _entries(0, more + 2, b"again")
        target = log if number % 2 else opened
        assert target.append(again, key) == len(wanted)
        after = _open(log)
        after.check()
        assert list(after.read()) == wanted + again
        assert after.root == merkle.root_of([merkle.leaf_hash(x) for x in after.read()])
        assert list(staging.iterdir()) == []


def test_a_crash_at_any_step_of_create(tmp_path: Path, staging: Path, key: PrivateKey) -> None:
    def create(folder: Path) -> Log:
        return Log.create(folder, origin=ORIGIN, key=key, staging=staging)

    for number in range(_steps(lambda: create(tmp_path / "whole"))):
        folder = tmp_path / str(number)
        with pytest.raises(Crash):
            _crash_at(number, lambda folder=folder: create(folder), Crash())  # type: ignore[misc]
        try:
            opened = create(folder)
        except Conflict:
            opened = Log.open(folder, staging=staging, verifier=key.public)
        opened.check()
        assert opened.append([b"a"], key) == 0


@pytest.mark.parametrize("first", [1, 5, 60])
def test_what_a_crash_left_never_misleads_later_readers(
    tmp_path: Path, staging: Path, key: PrivateKey, first: int
) -> None:
    """A wide leftover, then a slow climb past it: readers of every size are served."""
    log = _prepared(tmp_path / "log", staging, key, 200)
    wide = _entries(0, first + 57, b"left")

    def hook(step: str, path: str) -> None:
        if path.endswith("checkpoint"):
            raise Crash

    durable.set_hook(hook)
    with pytest.raises(Crash):
        log.append(wide, key)
    durable.set_hook(None)
    readers = []
    for i in range(200, 330):
        log.append(_entries(i, i + 1), key)
        readers.append(_open(log))
    for reader in readers:
        assert list(reader.read()) == _entries(0, reader.size)
        reader.check()


@pytest.mark.parametrize("size", [1, 6, 258])
def test_every_flipped_byte_is_detected_or_harmless(
    tmp_path: Path, staging: Path, key: PrivateKey, size: int
) -> None:
    log = _prepared(tmp_path / "log", staging, key, size)
    wanted = list(log.read())
    for path in _files(log.folder):
        path.chmod(0o644)
        data = path.read_bytes()
        for index in range(0, len(data), max(1, len(data) // 150)):
            path.write_bytes(data[:index] + bytes([data[index] ^ 0x41]) + data[index + 1 :])
            try:
                opened = _open(log)
                opened.check()
            except (Corrupt, Untrusted) as error:
                assert str(log.folder) in error.message
                where = str(path.relative_to(log.folder))
                assert where in error.message or path.name == "verifier"
            else:
                assert list(opened.read()) == wanted, path
                pytest.fail(f"byte {index} of {path} does not matter")
        path.write_bytes(data)
    _open(log).check()


def test_every_file_that_is_gone_or_cut_is_noticed(
    tmp_path: Path, staging: Path, key: PrivateKey
) -> None:
    log = Log.create(tmp_path / "log", origin=ORIGIN, key=key, staging=staging)
    log.append(_entries(0, 300), key)
    for path in _files(log.folder):
        path.chmod(0o644)
        data = path.read_bytes()
        for wrong in (None, b"", data[:-1], data[: len(data) // 2], data * 70):
            path.unlink()
            if wrong is not None:
                path.write_bytes(wrong)
            with pytest.raises((Corrupt, Untrusted), match=str(path.name)):
                _open(log).check()
            path.write_bytes(data)
    _open(log).check()


def test_a_corrupt_log_takes_no_entry(log: Log, key: PrivateKey) -> None:
    log.append(_entries(0, 3), key)
    for name in ("tile/0/000.p/3", "tile/entries/000.p/3"):
        path = log.folder / name
        path.chmod(0o644)
        data = path.read_bytes()
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        before = _files(log.folder)
        with pytest.raises(Corrupt, match=name):
            _open(log).append([b"x"], key)
        assert _files(log.folder) == before
        path.write_bytes(data)


def test_no_folder_is_not_found(tmp_path: Path, staging: Path) -> None:
    with pytest.raises(NotFound, match="no log there"):
        Log.open(tmp_path / "none", staging=staging)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads and writes everything")
def test_a_folder_without_permission_is_told(log: Log, key: PrivateKey) -> None:
    log.folder.chmod(0)
    try:
        with pytest.raises(KvgError, match="permission denied"):
            _open(log)
    finally:
        log.folder.chmod(0o755)


def test_checking_a_large_log_keeps_few_tiles(log: Log, key: PrivateKey) -> None:
    log.append(_entries(0, 40_000), key)
    opened = _open(log)
    opened.check()
    assert len(opened.tiles._cached) <= 64


ANY_ENTRY = st.binary(max_size=20).filter(lambda entry: MARK not in entry)
"""What says that it changes the log's key would have to do so."""


@settings(
    max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(st.lists(st.lists(ANY_ENTRY, max_size=90), max_size=8))
def test_any_history(tmp_path_factory: Any, key: PrivateKey, history: list[list[bytes]]) -> None:
    folder = tmp_path_factory.mktemp("log")
    log = Log.create(folder / "log", origin=ORIGIN, key=key, staging=folder)
    frontier = merkle.Frontier()
    for entries in history:
        log.append(entries, key)
        for entry in entries:
            frontier.append(merkle.leaf_hash(entry))
        assert (log.size, log.root) == (frontier.size, frontier.root())
    _open(log).check()
    assert list(_open(log).read()) == [entry for entries in history for entry in entries]


@pytest.mark.parametrize("name", ["checkpoint", "verifier", "tile/0/000.p/2", "tile/entries"])
def test_a_folder_or_file_in_the_wrong_place_is_corrupt(
    log: Log, key: PrivateKey, name: str
) -> None:
    log.append([b"a", b"b"], key)
    path = log.folder / name
    path.rename(log.folder / "away")
    if name == "tile/entries":
        path.write_bytes(b"")
    else:
        path.mkdir()
    with pytest.raises(Corrupt, match=r"missing|not a plain file"):
        _open(log).check()
