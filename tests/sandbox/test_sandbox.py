"""The sandbox against what wants out of it, or wants more than it may have."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from kvg.errors import GateFailed, UsageError
from kvg.sandbox import Enclosure, Job, Limits, find_enclosure, no_enclosure, run
from kvg.sandbox.enclosure import python_folders
from kvg.sandbox.process import python_argv
from tests.sandbox.conftest import RunPython

MIB = 1 << 20


def test_what_it_is_given_and_what_it_says(run_python: RunPython) -> None:
    done = run_python(
        "import os, sys\n"
        "print(open('input.txt').read(), sys.stdin.read(), os.getcwd(), sorted(os.listdir('.')))\n"
        "print('aside', file=sys.stderr)\n"
    )
    assert done.is_done and done.reason == "" and done.enclosure == "bubblewrap"
    assert done.stdout == b"given typed /tmp ['input.txt', 'main.py']\n"
    assert done.stderr == b"aside\n"


def test_a_user_of_its_own_without_rights(run_python: RunPython) -> None:
    done = run_python(
        "import os\nprint(os.getuid(), os.getpid())\n"
        "print([l for l in open('/proc/self/status') if l.startswith('CapEff')])\n"
        "try: os.setuid(0)\nexcept OSError as e: print(e.errno)\n"
    )
    uid = int(done.stdout.split()[0])
    assert uid not in (0, os.getuid()) and b"0000000000000000" in done.stdout
    assert not done.stdout.endswith(b"]\n"), "it could become root"


def test_nothing_is_kept_between_calls(run_python: RunPython) -> None:
    code = (
        "import os\nprint(sorted(os.listdir('/tmp')), os.listdir('/dev/shm'))\n"
        "open('/tmp/left', 'w')\nopen('/dev/shm/left', 'w')\n"
    )
    first, second = run_python(code), run_python(code)
    assert first.is_done and first.stdout == second.stdout


def test_the_variables_of_the_host_are_not_seen(
    run_python: RunPython, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVG_PASSPHRASE_FD", "3")
    monkeypatch.setenv("SECRET", "s")
    done = run_python("import os\nprint(*sorted(os.environ))")
    assert b"SECRET" not in done.stdout and b"KVG" not in done.stdout


def test_a_fork_bomb(run_python: RunPython) -> None:
    began = time.monotonic()
    done = run_python(
        "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass\n",
        limits=Limits(wall_s=5, processes=24),
    )
    assert done.stopped in ("processes", "time", "cpu")
    assert not done.is_done and done.reason.startswith("over the limit on ")
    assert time.monotonic() - began < 60
    probe = run_python(
        "import os, time\nn = 0\ntry:\n    while n < 200:\n        n += 1\n"
        "        if os.fork() == 0:\n            time.sleep(9)\nexcept OSError:\n    print(n)\n",
        limits=Limits(wall_s=5, processes=24),
    )
    assert probe.stdout == b"" or int(probe.stdout.split()[0]) <= 24


def test_a_memory_hog(run_python: RunPython) -> None:
    limits = Limits(wall_s=20, memory_bytes=128 * MIB)
    grows = "kept = []\nwhile True: kept.append(bytearray(b'x') * (8 << 20))\n"
    assert run_python(grows, limits=limits).reason == "over the limit on memory"
    at_once = "kept = b'x' * (1 << 40)\n"
    assert run_python(at_once, limits=limits).reason == "over the limit on memory"
    shared = (
        "import os\nfor n in range(4): os.fork()\n"
        "kept = bytearray(b'x') * (24 << 20)\nimport time; time.sleep(9)\n"
    )
    assert run_python(shared, limits=limits).reason == "over the limit on memory"


def test_time_that_is_slept_and_time_that_is_used(run_python: RunPython) -> None:
    sleeps = run_python("import time; time.sleep(60)", limits=Limits(wall_s=0.5))
    assert sleeps.reason == "over the limit on time"
    works = run_python("while True: pass", limits=Limits(wall_s=20, cpu_s=1))
    assert works.reason == "over the limit on cpu"
    closes = run_python(
        "import os, time\nos.close(1); os.close(2)\ntime.sleep(60)", limits=Limits(wall_s=0.5)
    )
    assert closes.reason == "over the limit on time"


def test_nothing_outlives_a_call(run_python: RunPython) -> None:
    done = run_python(
        "import os\n"
        "if os.fork() == 0:\n    os.setsid()\n    os.close(1); os.close(2)\n"
        "    os.execv('/usr/bin/sleep', ['sleep', '3600.5'])\n"
        "print('done')\n"
    )
    assert done.stdout == b"done\n"
    assert not _runs("3600.5")


def _runs(word: str) -> bool:
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and word.encode() in (entry / "cmdline").read_bytes():
                return True
        except OSError:
            continue
    return False


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_an_endless_printer(run_python: RunPython, stream: str) -> None:
    limits = Limits(wall_s=20, output_bytes=100_000)
    code = f"import sys\nwhile True: print('again and again', file=sys.{stream})"
    done = run_python(code, limits=limits)
    assert done.reason == "over the limit on output"
    assert len(done.stdout) + len(done.stderr) == 100_000


@pytest.mark.parametrize(
    "code",
    [
        "import socket; socket.create_connection(('1.1.1.1', 80), 2)",
        "import socket; socket.create_connection(('127.0.0.1', 22), 2)",
        "import urllib.request as u; u.urlopen('http://example.org', timeout=2)",
    ],
)
def test_a_network_call(run_python: RunPython, code: str) -> None:
    done = run_python(code)
    assert not done.is_done
    assert any(word in done.reason for word in ("unreachable", "refused", "resolution", "resolve"))


@pytest.mark.parametrize(
    "path", ["/x", "/usr/x", "/etc/x", "/dev/x", "/proc/sys/kernel/hostname", "/tmp/main.py"]
)
def test_a_write_outside(run_python: RunPython, path: str) -> None:
    done = run_python(f"open({path!r}, 'a').write('x')")
    assert not done.is_done
    assert "Error" in done.reason


def test_a_write_into_python_itself(run_python: RunPython) -> None:
    done = run_python("import os; open(os.__file__, 'a')")
    assert not done.is_done
    assert "Read-only" in done.reason or "denied" in done.reason


@pytest.mark.parametrize(
    "code",
    [
        "f = open('/tmp/big', 'wb')\nwhile True: f.write(bytes(1 << 20))",
        "n = 0\nwhile True:\n    open(f'/tmp/f{n}', 'wb').write(bytes(1 << 20)); n += 1",
        "n = 0\nwhile True:\n    open(f'/dev/shm/f{n}', 'wb').write(bytes(1 << 20)); n += 1",
        "kept = [open('input.txt') for _ in range(10_000)]",
    ],
)
def test_too_many_files_or_too_large_ones(run_python: RunPython, code: str) -> None:
    done = run_python(code, limits=Limits(wall_s=20, file_bytes=32 * MIB))
    assert done.reason == "over the limit on files"


def test_a_read_of_the_key_folder(run_python: RunPython, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.mkdir()
    (keys / "a.pem").write_text("secret")
    done = run_python(f"print(open({str(keys / 'a.pem')!r}).read())")
    assert not done.is_done and "No such file" in done.reason and b"secret" not in done.stdout


def test_a_hidden_folder_inside_a_readable_one(enclosure: Enclosure, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.mkdir()
    (keys / "a.pem").write_text("secret")
    (tmp_path / "shown.txt").write_text("shown")
    code = (
        f"import os\nprint(open({str(tmp_path)!r} + '/shown.txt').read(), "
        f"os.listdir({str(keys)!r}))"
    )
    job = Job(
        python_argv("main.py"),
        files={"main.py": code.encode()},
        readable=(*python_folders(), tmp_path),
        hidden=(keys,),
    )
    tmp_path.chmod(0o755)
    done = run(job, enclosure)
    assert done.stdout == b"shown []\n", done.stderr


@pytest.mark.parametrize("way", ["through another folder", "from here", "a link elsewhere"])
def test_this_python_however_it_was_called(
    run_python: RunPython, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    link = tmp_path / "py"
    link.symlink_to(sys.executable)
    monkeypatch.chdir(tmp_path)
    here = os.path.relpath(sys.executable, tmp_path)
    ways = {"through another folder": f"{tmp_path}/{here}", "from here": here}
    monkeypatch.setattr(sys, "executable", ways.get(way, str(link)))
    done = run_python("print('runs')")
    assert done.stdout == b"runs\n", done.stderr


def test_a_program_that_is_not_seen_inside_is_no_verdict(
    enclosure: Enclosure, tmp_path: Path
) -> None:
    program = tmp_path / "prover"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    with pytest.raises(GateFailed, match=f"{program}: can't be run in the sandbox"):
        run(Job((str(program),)), enclosure)
    with pytest.raises(GateFailed, match="/nowhere/prover: can't be run: No such file"):
        run(Job(("/nowhere/prover",)), no_enclosure())


def test_other_processes_are_not_seen(run_python: RunPython) -> None:
    done = run_python("import os\nprint(sum(name.isdecimal() for name in os.listdir('/proc')))")
    assert int(done.stdout) <= 3
    done = run_python(f"import os\nos.kill({os.getpid()}, 9)")
    assert not done.is_done


def test_without_bubblewrap_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(GateFailed, match="bubblewrap is not installed") as raised:
        find_enclosure()
    assert raised.value.hint is not None and "bubblewrap" in raised.value.hint
    assert raised.value.code == 8


def test_a_broken_bubblewrap_is_no_verdict(tmp_path: Path) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text(
        "#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n"
    )
    broken.chmod(0o755)
    with pytest.raises(GateFailed, match="No permissions"):
        run(Job(("/usr/bin/true",)), Enclosure("bubblewrap", str(broken)))


def test_no_enclosure_keeps_the_limits_and_says_so() -> None:
    job = Job(
        (sys.executable, "-I", "main.py"),
        files={"main.py": b"print(open('main.py').read()[:5])\nwhile True: pass"},
        limits=Limits(wall_s=20, cpu_s=1),
    )
    done = run(job, no_enclosure())
    assert done.enclosure == "none" and done.reason == "over the limit on cpu"


@pytest.mark.parametrize("name", ["", "..", "a/b", "a\0b"])
def test_names_of_files_are_plain(name: str) -> None:
    with pytest.raises(UsageError):
        Job(("/usr/bin/true",), files={name: b""})


def test_limits_are_positive() -> None:
    with pytest.raises(UsageError):
        Limits(wall_s=0)


HOARDS = {
    "memory files": """
import os
for n in range(100):
    fd = os.memfd_create(str(n))
    for _ in range(8):
        os.write(fd, bytes(4 << 20))
""",
    "a segment that nobody maps": """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
for n in range(100):
    segment = libc.shmget(0, 32 << 20, 0o1600)
    if segment < 0:
        raise OSError(ctypes.get_errno(), "shmget")
    address = libc.shmat(segment, None, 0)
    ctypes.memset(address, 1, 32 << 20)
    libc.shmdt(ctypes.c_void_p(address))
""",
    "a file system of its own": """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
if libc.unshare(0x10000000 | 0x20000) or libc.mount(b"x", b"/tmp", b"tmpfs", 0, None):
    raise OSError(ctypes.get_errno(), "mount")
for n in range(100):
    with open(f"/tmp/{n}", "wb") as file:
        file.write(bytes(32 << 20))
""",
    "one by way of clone": """
import ctypes, signal
libc = ctypes.CDLL(None, use_errno=True)
pid = libc.syscall({"x86_64": 56}.get(__import__("os").uname().machine, 220),
                   ctypes.c_ulong(0x10000000 | 0x20000 | signal.SIGCHLD), None, None, None, None)
if pid < 0:
    raise OSError(ctypes.get_errno(), "clone")
if pid == 0:
    if libc.mount(b"x", b"/tmp", b"tmpfs", 0, None):
        __import__("os")._exit(3)
    for n in range(100):
        with open(f"/tmp/{n}", "wb") as file:
            file.write(bytes(32 << 20))
    __import__("os")._exit(0)
status = __import__("os").waitpid(pid, 0)[1]
assert status == 0, status
""",
}


HOARDS["files that are empty"] = """
import os
for n in range(900_000):
    os.mknod(f"/tmp/{n}")
"""
HOARDS["access lists"] = """
import os, struct
entries = struct.pack("<HHI", 2, 7, os.getuid()) * 8000
acl = struct.pack("<IHHI", 2, 1, 7, 0xFFFFFFFF) + entries
acl += b"".join(struct.pack("<HHI", tag, 7, 0xFFFFFFFF) for tag in (4, 16, 32))
for n in range(3_000):
    os.mknod(f"/tmp/{n}")
    os.setxattr(f"/tmp/{n}", "system.posix_acl_access", acl)
"""
HOARDS["sockets of the machine's own"] = """
import socket
socket.socket(40, socket.SOCK_STREAM)
"""


@pytest.mark.parametrize("code", HOARDS.values(), ids=HOARDS)
def test_memory_that_belongs_to_no_process(run_python: RunPython, code: str) -> None:
    """Three gigabytes of it, where 128 MiB may be had: what holds them can't be had at all."""
    done = run_python(
        f"{code}\nprint('kept', flush=True)\n", limits=Limits(wall_s=20, memory_bytes=128 * MIB)
    )
    assert b"kept" not in done.stdout and not done.is_done


def test_what_a_checker_needs_of_the_kernel_is_there(run_python: RunPython) -> None:
    done = run_python(
        "import os, subprocess, threading, tempfile\n"
        "thread = threading.Thread(target=print, args=('thread',)); thread.start(); thread.join()\n"
        "print(subprocess.run(['/bin/echo', 'process'], capture_output=True).stdout)\n"
        "pid = os.fork()\nif pid == 0: os._exit(0)\nprint(os.waitpid(pid, 0)[1])\n"
        "with tempfile.TemporaryFile() as file: file.write(b'x')\n"
    )
    assert done.is_done, done
    assert done.stdout == b"thread\nb'process\\n'\n0\n"
