"""What every program in a sandbox can read: the programs of this system, and nobody's files."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from kvg.errors import UsageError
from kvg.sandbox import Enclosure, Job, run
from kvg.sandbox.enclosure import check_kept, is_seen, parts_of, python_folders
from kvg.sandbox.process import python_argv
from tests.sandbox.conftest import RunPython

LIST = "import os\nprint(sorted(name for name in os.listdir({!r})))"
PROGRAMS = {"bin", "sbin", "lib", "lib32", "lib64", "libexec", "share", "pyvenv.cfg"}


@pytest.mark.parametrize("folder", ["/usr", "/usr/local"])
def test_of_usr_only_what_programs_are_made_of(run_python: RunPython, folder: str) -> None:
    done = run_python(LIST.format(folder))
    assert set(eval(done.stdout)) <= PROGRAMS | {"local"}, done.stderr  # noqa: S307


def test_nothing_beside_an_environment_of_python(run_python: RunPython) -> None:
    for prefix in {sys.prefix, sys.base_prefix}:
        done = run_python(LIST.format(prefix))
        assert set(eval(done.stdout)) <= PROGRAMS | {"local"}, done.stderr  # noqa: S307


def test_a_project_around_an_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("bin/python", "lib/python3/os.py", "pyvenv.cfg", "checks.py", "tests/key.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert [path.name for path in parts_of([tmp_path])] == ["bin", "lib", "pyvenv.cfg"]
    assert set(parts_of([tmp_path])) <= set(python_folders())
    assert is_seen(tmp_path / "lib/python3/os.py")
    assert not is_seen(tmp_path / "checks.py") and not is_seen(tmp_path / "tests/key.py")
    check_kept(tmp_path / "checks.py", "checks.py")
    (tmp_path / "link.py").symlink_to(tmp_path / "lib/python3/os.py")
    with pytest.raises(UsageError, match=r"link\.py: lies among the programs"):
        check_kept(tmp_path / "link.py", "link.py")


def test_a_hidden_file_can_not_be_read(enclosure: Enclosure, tmp_path: Path) -> None:
    shown, key = tmp_path / "bin", tmp_path / "bin" / "check"
    shown.mkdir()
    key.write_text("secret")
    os.chmod(tmp_path, 0o755)
    code = f"print(repr(open({str(key)!r}).read()))"
    job = Job(
        python_argv("main.py"),
        files={"main.py": code.encode()},
        readable=(*python_folders(), shown),
        hidden=(key,),
    )
    done = run(job, enclosure)
    assert done.stdout == b"" and "Permission" in done.reason
