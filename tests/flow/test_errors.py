"""What goes wrong ends in one clear error with its code; the store stays whole."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kvg import durable
from kvg.store import Store
from tests import models

Kvg = Callable[..., object]


@pytest.fixture
def folder(user: models.User, tiny: dict[str, Path]) -> Path:
    """A copy of the tiny model that a test may change, registered in place of it."""
    copy = user.folder / "model"
    shutil.copytree(tiny["llama"], copy)
    user.add("tiny", copy)
    return copy


@pytest.fixture
def made(kvg: Kvg, folder: Path) -> Kvg:
    (folder.parent / "t.md").write_text(models.text_of(folder, 300))
    ran = kvg("deposit", "t.md")
    assert ran.code == 0, ran.err
    return kvg


def check_refused(ran, code: int, *words: str) -> None:  # type: ignore[no-untyped-def]
    """One error with ``code`` that says ``words``, and nothing on standard output."""
    assert ran.code == code, (ran.out, ran.err)
    assert ran.out == ""
    assert ran.err.count("error: ") == 1
    assert "Traceback" not in ran.err
    for word in words:
        assert word in ran.err


GRAFT = ("graft", "t", "--prompt", " so", "--max-tokens", "3")


def test_it_works_before(made: Kvg) -> None:
    assert made(*GRAFT).code == 0


NO_TEXT = os.fsdecode(b"name\xff")


@pytest.mark.parametrize(
    "words",
    [
        ("deposit", "x", NO_TEXT),
        ("deposit", "x", "--chat", NO_TEXT),
        ("deposit", "x", "t.md", "--depends", NO_TEXT),
        ("deposit", "x", "t.md", "--family", NO_TEXT),
        ("deposit", "x", "t.md", "--gate", f"cmd:cat {NO_TEXT}"),
        ("model", "add", "x", "model\udcff"),
    ],
    ids=lambda words: words[0] + words[-2],
)
def test_a_file_whose_name_is_no_text(
    made: Kvg, user: models.User, folder: Path, words: tuple[str, ...]
) -> None:
    (user.folder / NO_TEXT).write_text('[{"role": "user", "content": "x"}]')
    (user.folder / "t.md").write_text("another text")
    shutil.copytree(folder, user.folder / "model\udcff")
    check_refused(made(*words), 2, "\\udcff", "rename")


def test_no_such_ref(made: Kvg) -> None:
    check_refused(made("graft", "nope"), 3, "nope")
    check_refused(made("logits", "nope"), 3, "nope")
    check_refused(made("replay", "nope"), 3, "nope")


def test_the_model_is_not_registered(made: Kvg, user: models.User, tiny: dict[str, Path]) -> None:
    user.add("tiny", tiny["qwen3"])
    check_refused(made(*GRAFT), 7, "LlamaForCausalLM")
    check_refused(made("logits", "t", "--model", "tiny"), 7, "sha256:")


def test_other_weights_of_the_same_shape(made: Kvg, user: models.User, tmp_path: Path) -> None:
    user.add("tiny", models.make_model(tmp_path / "seed1", "llama", seed=1))
    check_refused(made(*GRAFT), 7, "no registered model")


def test_another_dtype_of_the_same_model(made: Kvg, user: models.User, folder: Path) -> None:
    user.add("tiny", folder, "F32")
    check_refused(made(*GRAFT), 7, "BF16")


def test_another_tokenizer_matters_to_text_alone(made: Kvg, folder: Path) -> None:
    path = folder / "tokenizer.json"
    value = json.loads(path.read_text())
    value["model"]["merges"] = value["model"]["merges"][:-1]
    path.write_text(json.dumps(value))
    check_refused(made(*GRAFT), 7, "tokenizer")
    assert made("graft", "t", "--max-tokens", "1").code == 0


def test_another_chat_template_matters_to_messages_alone(made: Kvg, folder: Path) -> None:
    (folder.parent / "c.json").write_text('[{"role": "user", "content": "Hello there"}]')
    assert made("deposit", "c", "--chat", "c.json").code == 0
    assert made("ask", "c", "What?", "--max-tokens", "1").code == 0
    changed = models.CHAT_TEMPLATE.replace("message.content", "message.content | upper")
    (folder / "chat_template.jinja").write_text(changed)
    for ref in ("c", "t"):  # a text attests the template too: somebody may ask about it
        check_refused(made("ask", ref, "What?", "--max-tokens", "1"), 7, "chat template")
    check_refused(made("graft", "c", "--chat", "c.json", "--max-tokens", "1"), 7, "chat template")
    assert made("graft", "c", "--prompt", " so", "--max-tokens", "1").code == 0


def test_of_two_models_with_one_set_of_weights_the_one_with_the_tokenizer(
    made: Kvg, folder: Path, user: models.User
) -> None:
    other = user.folder / "other"
    shutil.copytree(folder, other)
    path = other / "tokenizer.json"
    value = json.loads(path.read_text())
    value["model"]["merges"] = value["model"]["merges"][:-1]
    path.write_text(json.dumps(value))
    user.add("zz", other)
    assert made("deposit", "o", "--text", "so it is", "--model", "zz").code == 0
    for ref in ("o", "t"):
        assert made("graft", ref, "--prompt", " so", "--max-tokens", "1").code == 0


BAD = "so \udcff it is"


@pytest.mark.parametrize(
    "argv",
    [
        ("deposit", "u", "--text", BAD),
        ("ask", "t", BAD),
        ("graft", "t", "--prompt", BAD),
        ("graft", "t", "--stop", BAD),
        ("graft", "t", "--prompts", "p.jsonl"),
        ("graft", "t", "--chat", "c.json"),
        ("deposit", "u", "--chat", "c.json"),
        ("replay", "t", "--prompts", "p.jsonl"),
        ("logits", "t", "--prompt", BAD),
    ],
)
def test_what_is_no_unicode_text(made: Kvg, folder: Path, argv: tuple[str, ...]) -> None:
    (folder.parent / "p.jsonl").write_text('{"prompt": "a\\ud800b"}\n')
    (folder.parent / "c.json").write_text('[{"role": "user", "content": "a\\ud800b"}]')
    check_refused(made(*argv), 2, "not Unicode text")


def test_prompts_of_a_file(made: Kvg, folder: Path) -> None:
    """Line ends of JSON Lines are LF alone; an empty prompt asks what follows the text itself."""
    lines = ['{"prompt":"a\u2028b"}', '"c\x85d"', '{"prompt":""}']
    (folder.parent / "p.jsonl").write_text("\n".join(lines) + "\r\n", encoding="utf-8")
    for reference in ("invariant", "scheduled"):
        made("deposit", f"r/{reference}", "t.md", "--reference", reference)
        ran = made("replay", f"r/{reference}", "--prompts", "p.jsonl", "--json")
        records = [json.loads(line) for line in ran.out.splitlines()]
        assert ran.code == 0 and records[-1]["samples"] == records[-1]["equal"] == 3
        fresh = made("logits", f"r/{reference}", "--fresh", "--json")
        assert records[2]["grafted"] == json.loads(fresh.out)["digest"]
    check_refused(made("replay", "t", "--prompts", "t.md"), 2, '{"prompt"')


@pytest.mark.parametrize(
    "options",
    [
        ("--page-tokens", "9" * 25),
        ("--page-tokens", "0"),
        ("--cut-points", "\u0663"),
        ("--cut-points", "1_0"),
        ("--cut-points", "1,,2"),
        ("--valid-until", "2001-01-01"),
    ],
)
def test_values_that_mean_nothing(made: Kvg, options: tuple[str, ...]) -> None:
    check_refused(made("deposit", "u", "t.md", *options), 2, options[0])


def test_a_temperature_too_small_to_divide_by(made: Kvg) -> None:
    check_refused(made(*GRAFT, "--temperature", "1e-320"), 2, "--temperature")


def test_an_edited_config(made: Kvg, folder: Path) -> None:
    path = folder / "config.json"
    value = json.loads(path.read_text())
    value["rms_norm_eps"] = 1e-5
    path.write_text(json.dumps(value))
    check_refused(made(*GRAFT), 7, "not those that were registered")


@pytest.mark.parametrize("age_s", [0, 60])
def test_a_changed_weight_with_its_time_put_back(
    made: Kvg, folder: Path, monkeypatch: pytest.MonkeyPatch, age_s: int
) -> None:
    import time

    now = time.time_ns
    monkeypatch.setattr("kvg.model.weights.time.time_ns", lambda: now() + age_s * 10**9)
    assert made(*GRAFT).code == 0  # remembers the fingerprint when the file is old enough
    path = folder / "model.safetensors"
    before = path.stat()
    with open(path, "r+b") as file:
        file.seek(before.st_size - 4001)
        byte = file.read(1)
        file.seek(before.st_size - 4001)
        file.write(bytes([byte[0] ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    check_refused(made(*GRAFT), 7, "not those that were registered")


def test_a_position_that_is_not_its_own(made: Kvg) -> None:
    check_refused(made(*GRAFT, "--at", "1"), 7, "own position is 0", "rotary")
    check_refused(made(*GRAFT, "--cut", "100"), 7, "no cut point at 100")
    check_refused(made(*GRAFT, "--cut", "5000"), 7, "no cut point at 5000", "leave out --cut")
    assert made(*GRAFT, "--at", "0").code == 0


def test_the_model_folder_is_gone(made: Kvg, folder: Path) -> None:
    shutil.rmtree(folder)
    check_refused(made(*GRAFT), 3, "no such model folder")
    check_refused(made("deposit", "u", "--text", "more"), 3, "no such model folder")


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_model_file_is_gone(made: Kvg, folder: Path, name: str) -> None:
    (folder / name).unlink()
    ran = made(*GRAFT)
    check_refused(ran, 7 if name == "tokenizer.json" else 3)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
@pytest.mark.parametrize("data", [b"", b"\x00" * 64, b"{", b"[]"])
def test_a_model_file_is_garbage(made: Kvg, folder: Path, name: str, data: bytes) -> None:
    (folder / name).write_bytes(data)
    ran = made(*GRAFT)
    assert ran.code in (5, 7), (ran.code, ran.err)
    check_refused(ran, ran.code)


def test_empty_text(made: Kvg, folder: Path) -> None:
    (folder.parent / "empty.md").write_text("")
    check_refused(made("deposit", "empty.md"), 2, "empty")
    check_refused(made("deposit", "e", "--text", ""), 2, "empty")


def test_text_past_the_window(made: Kvg, folder: Path) -> None:
    (folder.parent / "long.md").write_text(models.text_of(folder, models.POSITIONS + 1))
    check_refused(made("deposit", "long.md"), 7, "2,049 tokens", "window of 2,048")
    (folder.parent / "prompt.txt").write_text(models.text_of(folder, models.POSITIONS - 299))
    check_refused(made("graft", "t", "--prompt-file", "prompt.txt"), 7, "window")
    (folder.parent / "just.md").write_text(models.text_of(folder, models.POSITIONS))
    assert made("deposit", "just.md").code == 0
    ran = made("graft", "just", "--json", "--max-tokens", "1")
    assert ran.code == 0
    check_refused(made("replay", "just"), 2, "no prompt fits")


def test_a_file_that_is_not_utf_8(made: Kvg, folder: Path) -> None:
    (folder.parent / "latin.md").write_bytes("Größe".encode("latin-1"))
    check_refused(made("deposit", "latin.md"), 2, "latin.md", "not UTF-8 at byte 2")
    check_refused(made("deposit", "missing.md"), 3, "missing.md")


def test_a_parent_that_is_none(made: Kvg, folder: Path) -> None:
    check_refused(made("deposit", "u", "--text", "something else", "--parent", "t"), 7, "first at")


def contents(store: Store) -> tuple[dict[str, str], int]:
    return dict(store.refs()), store.log.size


def check_whole(kvg: Kvg, user: models.User, before: tuple[dict[str, str], int]) -> None:
    """Nothing new is visible, nothing half written lies about, and all that is there is right."""
    fresh = Store.open(user.store.root, keyring=user.store.keyring)
    assert contents(fresh) == before
    for digest in fresh.objects.all():
        fresh.objects.read(digest, what=digest)
    assert not [path.name for path in fresh.staging.iterdir() if path.name.startswith("partial")]
    assert kvg("verify").code == 0


@pytest.fixture
def failing() -> Iterator[Callable[..., None]]:
    """Raise an error at step ``n`` of those called ``name`` on a path with ``part`` in it."""

    def install(error: BaseException, name: str, part: str, n: int = 1) -> None:
        seen = [0]

        def hook(step: str, path: str) -> None:
            if step == name and part in path:
                seen[0] += 1
                if seen[0] == n:
                    raise error

        durable.set_hook(hook)

    yield install
    durable.set_hook(None)


MOMENTS = [
    ("write", "objects/", 1),
    ("write", "objects/", 4),
    ("rename", "objects/", 2),
    ("write", "log/", 1),
]
ERRORS = {
    "denied": (PermissionError(errno.EACCES, "Permission denied"), 1, "permission denied"),
    "read-only": (OSError(errno.EROFS, "Read-only file system"), 1, "read-only"),
    "full": (OSError(errno.ENOSPC, "No space left on device"), 10, "no space"),
    "ctrl-c": (KeyboardInterrupt(), 130, "interrupted"),
}


@pytest.mark.parametrize(("error", "code", "word"), ERRORS.values(), ids=ERRORS)
@pytest.mark.parametrize(("name", "part", "n"), MOMENTS)
def test_writing_fails(
    made: Kvg,
    user: models.User,
    failing: Callable[..., None],
    error: BaseException,
    code: int,
    word: str,
    name: str,
    part: str,
    n: int,
) -> None:
    before = contents(user.store)
    failing(error, name, part, n)
    ran = made("deposit", "u", "--text", "Another text, quite short.")
    check_refused(ran, code, word)
    durable.set_hook(None)
    check_whole(made, user, before)
    assert made("deposit", "u", "--text", "Another text, quite short.").code == 0
    assert made("graft", "u", "--max-tokens", "1").code == 0


def test_ctrl_c_during_prefill(
    made: Kvg, user: models.User, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(user.store)
    session = models.session(folder)
    layer = session.model.module.model.layers[1]

    def interrupt(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    hook = layer.register_forward_pre_hook(interrupt)
    try:
        ran = made("deposit", "u", "--text", "Another text")
    finally:
        hook.remove()
    check_refused(ran, 130, "interrupted")
    check_whole(made, user, before)
    assert made("deposit", "u", "--text", "Another text").code == 0


INTERRUPTED = """
import os, signal, sys
from kvg import durable
from kvg.cli.main import main
seen = 0
def hook(step, path):
    global seen
    if step == "write" and "objects/" in path:
        seen += 1
        if seen == 2:
            os.kill(os.getpid(), signal.SIGINT)
durable.set_hook(hook)
sys.exit(main(["--store", sys.argv[1], "deposit", "u", "--text", "Another text " * 200]))
"""


@pytest.mark.slow
def test_ctrl_c_during_writing_in_a_process(made: Kvg, user: models.User) -> None:
    before = contents(user.store)
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(user.folder)],
        cwd=user.folder,
        env=models.program_env(user.folder, XDG_DATA_HOME=str(user.folder / "data")),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 130, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    check_whole(made, user, before)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mount: not permitted here, so no small disk")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=False)


def test_a_full_disk(made: Kvg, folder: Path, small_disk: Path) -> None:
    text = folder.parent / "full.md"
    text.write_text(models.text_of(folder, 1500))
    at = ("--store", str(small_disk))
    assert made("init", str(small_disk)).code == 0
    added = made("model", "add", "tiny", str(folder), *at)
    assert (added.code, " cpu  (default)" in added.out) == (0, True)
    filler = small_disk / "filler"
    free = os.statvfs(small_disk)
    filler.write_bytes(bytes(max(0, free.f_bavail * free.f_bsize - 300_000)))
    check_refused(made("deposit", str(text), *at), 10, "no space left")
    store = Store.open(small_disk)
    assert store.refs() == {}
    for digest in store.objects.all():
        store.objects.read(digest, what=digest)
    assert made("verify", *at).code == 0
    filler.unlink()
    assert made("deposit", str(text), *at).code == 0
    assert made("graft", "full", "--max-tokens", "1", *at).code == 0
    nothing = made("graft", "full", "--max-tokens", "0", *at)
    assert (nothing.code, nothing.out) == (0, "")
