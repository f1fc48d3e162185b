"""The frame: help, global options, exit codes, errors, colour."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvg import __version__
from kvg.cli import man
from kvg.cli.group import SubverbGroup, VerbCommand, build_root
from kvg.cli.help import exit_code_rows
from kvg.cli.render import _HOMES, json_line, renderer
from kvg.cli.table import MISTAKES, VERBS
from kvg.errors import KINDS, KvgError, most_severe
from kvg.flow import records
from tests.cli.conftest import Run


def every_command() -> list[VerbCommand]:
    found = []
    for verb in VERBS:
        command = build_root().find(verb.name)
        if isinstance(command, SubverbGroup):
            found += [command.find(name) for name, _ in verb.subverbs]
        else:
            found.append(command)
    return found


@pytest.mark.parametrize("command", every_command(), ids=lambda c: " ".join(c.path))
def test_every_verb_has_help_examples_and_one_summary(command: VerbCommand, kvg: Run) -> None:
    result = kvg(*command.path, "--help")
    assert result.code == 0
    assert result.out.startswith(f"kvg {' '.join(command.path)}: ")
    assert "--json" in result.out
    if not command.verb.hidden:
        assert "examples:\n  $ " in result.out
        assert command.examples.count("$") >= 1
    first_line = (command.help or "").strip().split("\n")[0]
    assert first_line.rstrip(".").lower() == command.summary.lower()


@pytest.mark.parametrize("command", every_command(), ids=lambda c: " ".join(c.path))
def test_no_option_hides_a_global_one(command: VerbCommand) -> None:
    names = [param.name for param in command.params]
    spellings = [opt for param in command.params for opt in param.opts if opt.startswith("-")]
    assert len(names) == len(set(names))
    assert len(spellings) == len(set(spellings))


@pytest.mark.parametrize("command", every_command(), ids=lambda c: " ".join(c.path))
def test_every_option_of_every_verb_is_explained(command: VerbCommand) -> None:
    for param in command.params:
        assert param.help, f"{command.path}: {param.name}"


def test_root_help_lists_the_everyday_verbs_first(kvg: Run) -> None:
    text = kvg("--help").out
    assert kvg().out == text
    assert text.index("everyday:") < text.index("naming and upkeep:") < text.index("measure:")
    assert "__complete" not in text


def test_exit_code_table_is_made_from_the_errors(kvg: Run) -> None:
    rows = dict(exit_code_rows())
    assert {int(code) for code in rows} == {0, *(kind.code for kind in KINDS)}
    text = kvg("help", "exit-codes").out
    for kind in KINDS:
        assert f"{kind.code:<4}" in text and kind.kind in text


def test_codes_of_kinds_are_distinct_and_in_order() -> None:
    codes = [kind.code for kind in KINDS]
    assert codes == sorted(set(codes))
    assert most_severe([1, 5, 6]) == 6
    assert most_severe([]) == 0
    assert most_severe([0, 0]) == 0


@pytest.mark.parametrize("where", [0, 1, 2])
def test_global_options_stand_before_and_after_the_verb(kvg: Run, where: int) -> None:
    argv = ["key", "list"]
    argv.insert(where, "--json")
    assert kvg(*argv).code == 0
    argv = ["version", "--json"] if where else ["--json", "version"]
    assert kvg(*argv).record["type"] == "version"


def test_version_as_a_flag(kvg: Run) -> None:
    assert kvg("--version").out == kvg("version").out
    assert kvg("--version", "--json").record["version"] == __version__


def test_run_as_if_started_elsewhere(kvg: Run) -> None:
    Path("a/b").mkdir(parents=True)
    assert kvg("-C", "a", "init").code == 0
    assert kvg("-C", "a", "-C", "b", "status").code == 0
    assert kvg("status", "-C", "a").code == 0
    assert kvg("status").code == 3
    assert kvg("-C", "nowhere", "version").code == 3
    assert Path("a/.kvg").is_dir() and Path.cwd().name == "work"


def test_store_by_flag_environment_and_search(
    kvg: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        kvg("init", name)
    assert "two" in kvg("status", "-v", "--store", "two").out
    monkeypatch.setenv("KVG_STORE", "one")
    assert "/one/.kvg" in kvg("status", "-v").out
    assert "/two/.kvg" in kvg("--store", "two/.kvg", "status", "-v").out
    monkeypatch.setenv("KVG_STORE", "three")
    assert kvg("status").code == 3


@pytest.mark.parametrize(
    "argv",
    [
        ["nonsense"],
        ["key", "nonsense"],
        ["key"],
        ["show"],
        ["show", "a", "b"],
        ["version", "--nonsense"],
        ["version", "--jobs", "none"],
        ["version", "--jobs", "0"],
        ["version", "--color", "pink"],
        ["version", "--store"],
        ["version", "--dry-run"],
        ["rev-parse", "Not A Name"],
        ["ask", "demo", "  "],
        ["deposit"],
        ["deposit", "ref", "--text", "a", "--chat", "b"],
        ["deposit", "--text", "a"],
        ["graft", "demo", "not a dash"],
        ["logits"],
        ["log", "--since", "whenever"],
    ],
    ids=" ".join,
)
def test_usage_errors_are_errors_like_all_others(kvg: Run, argv: list[str]) -> None:
    kvg("init")
    result = kvg(*argv)
    assert (result.code, result.raw) == (2, b"")
    first, *rest = result.err.splitlines()
    assert first.startswith("error: ") and not first.endswith(".")
    assert all(line.startswith("hint: ") for line in rest)
    as_json = kvg("--json", *argv)
    assert as_json.code == 2 and as_json.raw == b""
    assert as_json.error["kind"] == "usage" and as_json.error["code"] == 2
    assert as_json.error["type"] == "error" and as_json.error["schema_version"] == 1
    assert set(as_json.error) >= {"message", "hint"}


def test_common_mistakes_name_the_command_to_run(kvg: Run) -> None:
    assert "hint: kvg deposit" in kvg("depsoit").err
    assert "hint: kvg key list" in kvg("key", "lst").err
    names = {verb.name for verb in VERBS}
    for mistake, command in MISTAKES.items():
        assert mistake not in names
        assert command.split()[1] in names
        assert f"hint: {command}" in kvg(mistake).err


def test_field_s28_stdout_is_json_only(kvg: Run) -> None:
    kvg("init")
    result = kvg("key", "new", "first", "--json")
    assert result.record["type"] == "key"
    kinds = result.err.splitlines()
    assert kinds and all('"type": "notice"' in line for line in kinds)


def test_notices_before_an_error_stay_in_the_one_json_object(kvg: Run) -> None:
    kvg("init")
    result = kvg("trust", "add", "nothing-of-the-kind", "--json")
    assert result.code == 3 and result.error["kind"] == "not-found"


def test_an_unexpected_error_is_a_bug_without_traceback(
    kvg: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("by nought")

    monkeypatch.setattr("kvg.flow.status.status", broken)
    kvg("init")
    result = kvg("status")
    assert result.code == 70 and "Traceback" not in result.err and "by nought" in result.err
    assert "Traceback" in kvg("status", "--debug").err


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        ImportError("/lib/_rust.abi3.so: failed to map segment from shared object"),
        ImportError("libtorch_cpu.so: cannot allocate memory in static TLS block"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."),
    ],
)
def test_out_of_memory_is_no_space(
    kvg: Run, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def starved(*_: object) -> None:
        raise error

    monkeypatch.setattr("kvg.flow.status.status", starved)
    kvg("init")
    result = kvg("status")
    assert result.code == 10 and "out of memory" in result.err


def test_torch_absent_says_what_to_install(kvg: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*_: object) -> None:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr("kvg.flow.status.status", absent)
    kvg("init")
    result = kvg("status")
    assert result.code == 7 and "kvg[model]" in result.err


def test_interrupt_is_130(kvg: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("kvg.flow.status.status", interrupted)
    kvg("init")
    assert kvg("status").code == 130
    assert kvg("status", "--json").error["kind"] == "interrupted"


def test_a_full_disk_is_no_space(kvg: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "somewhere")

    monkeypatch.setattr("kvg.flow.status.status", full)
    kvg("init")
    result = kvg("status")
    assert result.code == 10 and "somewhere" in result.err


@pytest.mark.parametrize(
    ("argv", "env", "tty", "colored"),
    [
        ([], {}, True, True),
        ([], {}, False, False),
        ([], {"NO_COLOR": "1"}, True, False),
        ([], {"NO_COLOR": ""}, True, True),
        ([], {"FORCE_COLOR": "1"}, False, True),
        ([], {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False, False),
        ([], {"TERM": "dumb"}, True, False),
        (["--color", "always"], {"NO_COLOR": "1"}, False, True),
        (["--color", "never"], {"FORCE_COLOR": "1"}, True, False),
    ],
)
def test_colour(
    kvg: Run,
    monkeypatch: pytest.MonkeyPatch,
    argv: list[str],
    env: dict[str, str],
    tty: bool,
    colored: bool,
) -> None:
    kvg("init")
    kvg("key", "new", "first")
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert ("\x1b[" in kvg("key", "list", *argv, tty=tty).out) == colored
    assert ("\x1b[" in kvg("show", "nothing", *argv, tty=tty).err) == colored


def test_man_pages_are_up_to_date(home: Path) -> None:
    folder = Path(man.__file__).parents[2] / "man"
    if not folder.is_dir():
        pytest.skip("no man pages beside an installed kvg")
    assert man.drift(folder) == []


def test_man_pages_say_what_the_help_says(home: Path, tmp_path: Path) -> None:
    man.write(tmp_path)
    names = {path.name for path in tmp_path.glob("*.1")}
    assert {"kvg.1", "kvg-deposit.1", "kvg-key.1", "kvg-key-new.1"} <= names
    text = (tmp_path / "kvg.1").read_text()
    assert ".SH EXIT CODES" in text and "log rolled back or forked" in text
    (tmp_path / "kvg-gone.1").write_text("old")
    (tmp_path / "kvg.1").write_text("changed")
    assert man.drift(tmp_path) == ["kvg-gone.1", "kvg.1"]
    man.write(tmp_path)
    assert man.drift(tmp_path) == []


def test_every_record_has_a_renderer() -> None:
    kinds = {
        getattr(records, name).type
        for name in records.__all__
        if name not in ("SCHEMA_VERSION", "Record")
    }
    assert kinds == set(_HOMES)
    for kind in kinds:
        assert callable(renderer(kind))


def test_json_has_no_nan() -> None:
    record = records.Replay("r", "sha256:", "a", "b", False, float("nan"), True, float("inf"), 0.5)
    line = json_line(record)
    assert '"kl": null' in line and '"max_abs_diff": null' in line and '"top2_gap": 0.5' in line


def test_errors_without_hint_are_one_line() -> None:
    assert KvgError("message").hint is None


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RuntimeError("can't start new thread"), "no thread could be started"),
        (BrokenPipeError(32, "Broken pipe"), "Broken pipe"),
    ],
)
def test_what_the_system_refuses_is_a_failure_and_no_bug(
    kvg: Run, monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
) -> None:
    """A pipe to something else than standard output, too: what was to be done is not done."""

    def refused(*_: object) -> None:
        raise error

    monkeypatch.setattr("kvg.flow.status.status", refused)
    kvg("init")
    result = kvg("status")
    assert result.code == 1 and said in result.err
