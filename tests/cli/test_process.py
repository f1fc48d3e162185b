"""What only a process of its own shows: pipes, signals, start-up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import artifacts as a

PROGRAM = [sys.executable, "-c", "from kvg.cli.main import run; run()"]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def env(home: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'kernels'}"}


def test_field_s26_a_closed_pipe_ends_quietly(env: dict[str, str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    subprocess.run([*PROGRAM, "init"], env=env, check=True, capture_output=True)
    streams = (["log"], ["verify"], ["config", "list"], ["key", "list", "--json"])
    for argv in (["help"], ["--help"], ["version"], *streams):
        done = subprocess.run([*PROGRAM, *argv], stdout=writer, stderr=subprocess.PIPE, env=env)
        assert (done.returncode, done.stderr) == (0, b""), argv
    os.close(writer)


def test_a_closed_pipe_loses_no_verdict(env: dict[str, str]) -> None:
    """Each line is written as it comes, as in a long run, and the first finds nobody."""
    store, key = a.make_store(Path.cwd())
    made = a.deposit(store, key)
    page = store.objects.stored_path(made.manifest.pages[0].digest)
    page.chmod(0o644)
    page.write_bytes(page.read_bytes()[:-1])
    reader, writer = os.pipe()
    os.close(reader)
    env = {**env, "PYTHONUNBUFFERED": "1"}
    for argv, code in ((["verify"], 5), (["fsck", "--json"], 5), (["ls"], 0)):
        done = subprocess.run([*PROGRAM, *argv], stdout=writer, stderr=subprocess.PIPE, env=env)
        assert done.returncode == code and b"error" not in done.stderr, argv
    os.close(writer)


def test_a_full_output_is_an_error(env: dict[str, str]) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    with open("/dev/full", "wb") as full:
        done = subprocess.run([*PROGRAM, "help"], stdout=full, stderr=subprocess.PIPE, env=env)
    assert done.returncode == 10 and b"no space" in done.stderr


def test_interrupt(env: dict[str, str]) -> None:
    slow = "import time, kvg.flow.status as s; s.status = lambda store: time.sleep(60)\n"
    code = slow + "from kvg.cli.main import run; run()"
    subprocess.run([*PROGRAM, "init"], env=env, check=True, capture_output=True)
    child = subprocess.Popen(
        [sys.executable, "-c", code, "status"], env=env, stderr=subprocess.PIPE
    )
    time.sleep(1.5)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=20)
    assert child.returncode == 130 and err == b"error: interrupted\n"


def test_an_interrupt_beside_another_is_told_once(env: dict[str, str]) -> None:
    """A terminal and ``timeout`` send two at a time."""
    code = (
        "import builtins, os, signal, kvg.flow.status as s\n"
        "def interrupt(*_): os.kill(os.getpid(), signal.SIGINT)\n"
        "real = builtins.print\n"
        "def telling(*said, **more):\n"
        "    interrupt()\n"
        "    real(*said, **more)\n"
        "builtins.print = telling\n"
        "s.status = interrupt\n"
        "from kvg.cli.main import run; run()"
    )
    subprocess.run([*PROGRAM, "init"], env=env, check=True, capture_output=True)
    done = subprocess.run([sys.executable, "-c", code, "status"], env=env, capture_output=True)
    assert (done.returncode, done.stderr) == (130, b"error: interrupted\n")


def test_field_s27_no_bars_unless_on_a_terminal(env: dict[str, str]) -> None:
    code = (
        "import kvg.cli.reporting as r\n"
        "r.DELAY_S = 0\n"
        "from kvg.cli import declare, invocation\n"
        "from kvg.cli.verbs import status\n"
        "def slow(ctx: declare.Context):\n"
        "    with invocation.invocation(ctx).report.task('work', 3, 'steps') as task:\n"
        "        import time; time.sleep(0.3)  # before the first step is done\n"
        "        for _ in range(3): task.advance(1)\n"
        "status.COMMANDS['status'] = slow\n"
        "from kvg.cli.main import run; run()"
    )
    argv = [sys.executable, "-c", code, "status"]
    piped = subprocess.run(argv, env=env, capture_output=True)
    assert (piped.returncode, piped.stdout, piped.stderr) == (0, b"", b"")
    shown = on_terminal(argv, env)
    assert b"work" in shown and b"0/3" in shown
    for quiet in ({"CI": "true"}, {"TERM": "dumb"}):
        assert on_terminal(argv, {**env, **quiet}) == b""
    assert on_terminal([*argv, "--no-progress"], env) == b""
    assert on_terminal([*argv, "--json"], env) == b""


def on_terminal(argv: list[str], env: dict[str, str]) -> bytes:
    """Standard error of ``argv`` when it is a terminal."""
    import pty

    leader, follower = pty.openpty()
    child = subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL, stderr=follower)
    os.close(follower)
    shown = b""
    while True:
        try:
            part = os.read(leader, 4096)
        except OSError:
            break
        if not part:
            break
        shown += part
    os.close(leader)
    assert child.wait(timeout=30) == 0
    return shown


@pytest.mark.parametrize(
    "argv",
    [
        ["version"],
        ["--help"],
        ["deposit", "--help"],
        ["graft", "--help"],
        ["status"],
        ["ls"],
        ["log"],
        ["verify"],
        ["key", "list"],
        ["trust", "list"],
        ["config", "list"],
        ["model", "list"],
        ["reindex"],
        ["nonsense"],
    ],
    ids=" ".join,
)
def test_no_model_no_torch(env: dict[str, str], argv: list[str]) -> None:
    subprocess.run([*PROGRAM, "init"], env=env, check=True, capture_output=True)
    heavy = ("torch", "transformers", "numpy", "pydantic", "rich", "huggingface_hub", "triton")
    code = (
        "import sys\n"
        "from kvg.cli.main import main\n"
        "main(sys.argv[1:])\n"
        f"print([m for m in {heavy!r} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, *argv], env=env, capture_output=True)
    assert done.stderr.splitlines()[-1] == b"[]"


def test_importing_the_frame_is_light(env: dict[str, str]) -> None:
    code = "import kvg.cli.main, sys; print('typer' in sys.modules, 'json' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=True)
    assert done.stdout == b"False False\n"


def test_closed_outputs_are_no_failure(env: dict[str, str]) -> None:
    subprocess.run([*PROGRAM, "init"], env=env, check=True, capture_output=True)
    words = " ".join(f"'{word}'" for word in [*PROGRAM, "status"])
    done = subprocess.run(["sh", "-c", f"{words} >&- 2>&-"], env=env, check=False)
    assert done.returncode == 0
    done = subprocess.run(
        ["sh", "-c", f"{words} >&-"], env=env, stderr=subprocess.PIPE, check=False
    )
    assert done.returncode == 0 and done.stderr == b""
