"""Contexts: made, resumed, updated, searched, asked; every block exact, each place found."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvg.errors import Conflict, NotFound, Untrusted, UsageError
from kvg.flow.context import create
from kvg.flow.context.ask import ask_context
from kvg.flow.context.corpus import _text as read_text
from kvg.flow.context.corpus import read_corpus
from kvg.flow.context.create import ContextRequest, create_context
from kvg.flow.context.places import find_place, list_contexts, show_context
from kvg.flow.context.search import search_context
from kvg.flow.context.stored import read_context, slice_text
from kvg.flow.forget import forget
from kvg.flow.gc import gc
from kvg.flow.records import Finding
from kvg.flow.records.contexts import ContextBlock, ContextMade
from kvg.flow.replay import replay
from kvg.flow.requests import ContextAskRequest, ReplayRequest
from kvg.flow.trust import trust_add, trust_revoke
from kvg.report import SilentReport
from kvg.store.layout import SEARCH
from kvg.trust.keyring import Keyring
from tests import models
from tests.flow.conftest import Ran

BLOCK = 120


def topic(n: int) -> str:
    return f"# Topic {n}\n\n" + f"The zebra{n} stands beside the lake number {n}.\n" * 6


@pytest.fixture
def corpus(user: models.User) -> Path:
    folder = user.folder / "docs"
    (folder / "sub").mkdir(parents=True)
    for n in range(4):
        (folder / f"{n}.md").write_text(topic(n))
    (folder / "sub" / "last.md").write_text(topic(9))
    (folder / "picture.bin").write_bytes(b"\0\xff")
    (folder / ".hidden").write_text("not read")
    (folder / "link.md").symlink_to(folder / "0.md")
    return folder


def make(
    user: models.User, *paths: str, block: int = BLOCK, name: str = "docs"
) -> tuple[list[ContextBlock], ContextMade]:
    request = ContextRequest(
        name, tuple(map(Path, paths or ("docs",))), block_tokens=block, page_tokens=32
    )
    *blocks, made = create_context(user.store, user.settings, request)
    assert isinstance(made, ContextMade)
    return blocks, made  # type: ignore[return-value]


def text_of(user: models.User) -> dict[str, str]:
    found = read_context(user.store, "docs")
    texts: dict[str, str] = {}
    for block in found.blocks:
        for part in block.parts:
            texts[part.path] = texts.get(part.path, "") + slice_text(user.store, block, part)
    return texts


def test_all_of_the_corpus_in_blocks_that_fit(user: models.User, corpus: Path) -> None:
    blocks, made = make(user)
    assert made.blocks == len(blocks) > 4 and made.computed == made.blocks
    assert made.tokens == sum(block.tokens for block in blocks)
    assert 0 < made.tokens - made.tokens_computed < made.tokens / 5  # pages of equal beginnings
    assert all(block.tokens <= BLOCK for block in blocks)
    assert [block.start for block in blocks] == [
        sum(item.tokens for item in blocks[:n]) for n in range(len(blocks))
    ]
    names = [f"docs/{n}.md" for n in range(4)]
    assert text_of(user) == {
        **{name: topic(n) for n, name in enumerate(names)},
        "docs/sub/last.md": topic(9),
    }
    (entry,) = list_contexts(user.store)
    assert (entry.blocks, entry.tokens, entry.files) == (made.blocks, made.tokens, 5)


def test_every_block_replays_exact(user: models.User, corpus: Path) -> None:
    blocks, _ = make(user)
    refs = tuple(block.ref for block in blocks[:2])
    *_, summary = replay(user.store, user.settings, ReplayRequest(refs, samples=1))
    assert summary.exit_code == 0


def test_again_computes_nothing_and_logs_nothing(user: models.User, corpus: Path) -> None:
    before, _ = make(user)
    size = user.store.log.size
    after, made = make(user)
    assert (made.computed, made.kept, made.tokens_computed) == (0, len(before), 0)
    assert [block.digest for block in after] == [block.digest for block in before]
    assert user.store.log.size == size


def test_an_update_computes_only_what_changed(user: models.User, corpus: Path) -> None:
    before, _ = make(user)
    old = topic(2)
    (corpus / "2.md").write_text(old.replace("lake number 2", "sea number 2", 1))
    after, made = make(user)
    assert 0 < made.tokens_computed < made.tokens / 2
    assert text_of(user)["docs/2.md"] == (corpus / "2.md").read_text()
    same = {block.digest for block in before} & {block.digest for block in after}
    assert len(same) >= made.kept >= len(before) - 3
    (corpus / "3.md").unlink()
    shutil.rmtree(corpus / "sub")
    shorter, made = make(user)
    assert made.removed == len(after) - len(shorter) > 0
    assert set(text_of(user)) == {f"docs/{n}.md" for n in range(3)}
    assert user.store.ref(f"docs/{len(shorter) + 1:04}") is None


def test_lines_that_moved_are_said_anew_and_nothing_is_computed(
    user: models.User, corpus: Path
) -> None:
    blocks, _ = make(user, "docs/0.md")
    (corpus / "0.md").write_text("\n" * 5 + topic(0))
    moved, made = make(user, "docs/0.md")
    assert made.tokens_computed <= 10 and made.kept == len(blocks)
    shown = [block for block in moved if block.digest in {item.digest for item in blocks}]
    old = {block.digest: block.parts[0]["line"] for block in blocks}
    assert all(block.parts[0]["line"] == old[block.digest] + 5 for block in shown)  # type: ignore[operator]
    found = read_context(user.store, "docs")
    assert [block.parts[0].line for block in found.blocks] == [
        block.parts[0]["line"] for block in moved
    ]


def test_the_same_text_in_two_places_keeps_both(user: models.User, tiny: dict[str, Path]) -> None:
    for name in ("a", "b"):
        (user.folder / f"{name}.md").write_text(topic(1))
    (n_tokens,) = models.tokenizer(tiny["llama"]).counts([topic(1)])
    blocks, _ = make(user, "a.md", "b.md", block=n_tokens)
    assert len(blocks) == 2 and blocks[0].digest == blocks[1].digest
    assert text_of(user) == {"a.md": topic(1), "b.md": topic(1)}
    size = user.store.log.size
    make(user, "a.md", "b.md", block=n_tokens)
    assert user.store.log.size == size


def test_a_stopped_run_goes_on(
    user: models.User, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = create.build_from
    calls = []

    def build(*args: Any) -> object:
        if len(calls) == 3:
            raise KeyboardInterrupt
        calls.append(1)
        return built(*args)

    with monkeypatch.context() as patch:
        patch.setattr(create, "build_from", build)
        with pytest.raises(KeyboardInterrupt):
            make(user)
    assert user.store.refs() == {}
    blocks, made = make(user)
    assert made.computed == len(blocks) - 3


def test_gc_keeps_a_context_and_what_it_says(user: models.User, corpus: Path) -> None:
    make(user)
    gc(user.store, user.settings)
    assert text_of(user)["docs/0.md"] == topic(0)
    _, made = make(user)
    assert made.tokens_computed == 0


def test_places(user: models.User, corpus: Path) -> None:
    blocks, made = make(user)
    for block in blocks:
        for offset in (block.start, block.start + block.tokens - 1):
            place = find_place(user.store, user.settings, "docs", str(offset))
            assert (place.ref, place.start) == (block.ref, block.start)
    place = find_place(user.store, user.settings, "docs", "last.md:5")
    assert place.path == "docs/sub/last.md" and place.number > 1
    assert any(
        part["path"] == place.path and part["line"] <= 5 < part["line"] + part["lines"]  # type: ignore[operator]
        for part in place.parts
    )
    for wrong in (str(made.tokens), "docs/0.md:999", "nothing.md:1"):
        with pytest.raises(NotFound):
            find_place(user.store, user.settings, "docs", wrong)
    for wrong in ("-1", "docs/0.md", "docs/0.md:x", "docs/0.md:0", ""):
        with pytest.raises(UsageError):
            find_place(user.store, user.settings, "docs", wrong)


def test_search_finds_the_place_and_its_index_is_a_cache(user: models.User, corpus: Path) -> None:
    make(user)
    (first, *_) = search_context(user.store, user.settings, "docs", "zebra3")
    assert first.path == "docs/3.md"
    block = find_place(user.store, user.settings, "docs", f"{first.path}:{first.line}")
    assert block.ref == first.ref
    (index,) = (user.store.root / SEARCH).iterdir()
    for damage in (b"", b"nonsense" * 999, index.read_bytes()[:5000]):
        index.chmod(0o644)
        index.write_bytes(damage)
        assert next(search_context(user.store, user.settings, "docs", "zebra3")) == first
    (corpus / "3.md").write_text(topic(3).replace("zebra3", "okapi"))
    make(user)
    assert not list(search_context(user.store, user.settings, "docs", "zebra3"))
    assert next(search_context(user.store, user.settings, "docs", "okapi")).path == "docs/3.md"


def test_what_is_forgotten_is_in_no_index(user: models.User, corpus: Path) -> None:
    make(user)
    hit = next(search_context(user.store, user.settings, "docs", "zebra3"))
    ready = user.with_settings(assume_yes=True)
    list(forget(ready.store, ready.settings, [hit.ref]))
    assert not (user.store.root / SEARCH).exists()


@pytest.mark.parametrize("which", [0, 2, 3])
def test_a_block_that_is_gone_takes_no_other_with_it(
    user: models.User, corpus: Path, which: int
) -> None:
    """What is left is found where it stands; what is gone is told, and made anew when asked for."""
    blocks, _ = make(user)
    assert n_gone(user) == 0
    report = Told()
    ready = user.with_settings(assume_yes=True, report=report)
    lost = blocks[which]
    left = [item for item in blocks if item is not lost]
    list(forget(ready.store, ready.settings, [lost.ref]))
    (entry,) = list_contexts(user.store)
    assert (entry.blocks, entry.gone) == (len(left), 1)
    start = 0
    for item in left:
        line = f"{item.parts[0]['path']}:{item.parts[0]['line']}"
        for place in (line, str(start), str(start + item.tokens - 1)):
            assert find_place(user.store, ready.settings, "docs", place).ref == item.ref
        start += item.tokens
    assert entry.tokens == start
    report.notices.clear()
    hits = list(search_context(user.store, ready.settings, "docs", "lake", limit=99))
    assert {hit.ref for hit in hits} == {item.ref for item in left}
    assert len(report.notices) == 1 and lost.ref in report.notices[0]
    _, made = make(user)
    assert made.kept == len(left)
    assert [text_of(user)[f"docs/{n}.md"] for n in range(4)] == [topic(n) for n in range(4)]
    assert n_gone(user) == 0


def test_a_block_that_nobody_trusted_placed_takes_no_other_with_it(
    user: models.User, corpus: Path
) -> None:
    """Another artifact under the ref of a block is none, and is left alone."""
    blocks, _ = make(user)
    lost = blocks[2]
    make(user, "docs/3.md", name="other")
    user.store.set_ref(lost.ref, user.store.ref("other/0001"))
    (entry, _) = list_contexts(user.store)
    assert (entry.context, entry.blocks, entry.gone) == ("docs", len(blocks) - 1, 1)
    with pytest.raises(Conflict, match=lost.ref):
        make(user)


def test_a_context_whose_signer_is_revoked_is_named_and_made_anew(
    user: models.User, corpus: Path
) -> None:
    blocks, _ = make(user)
    keyring = Keyring(user.settings.keys)
    (old,) = (info.name for info in keyring.list())
    keyring.new("new")
    ready = user.with_settings(assume_yes=True)
    trust_add(ready.store, ready.settings, "new", (), [old])
    trust_revoke(ready.store, ready.settings, old, ["new"], size=0)
    asked = ContextAskRequest("docs", "lake")
    for ask in (
        lambda: list(show_context(user.store, "docs")),
        lambda: find_place(user.store, user.settings, "docs", "0"),
        lambda: list(search_context(user.store, user.settings, "docs", "lake")),
        lambda: ask_context(user.store, user.settings, asked),
    ):
        with pytest.raises(Untrusted, match=r"docs: what its blocks hold is signed by .* revoked"):
            ask()
    (found,) = list_contexts(user.store)
    assert isinstance(found, Finding) and (found.exit_code, found.object) == (6, "docs")
    request = ContextRequest("docs", (Path("docs"),), block_tokens=BLOCK, key="new")
    *_, made = create_context(user.store, user.settings, request)
    assert made.blocks == len(blocks)
    (entry,) = list_contexts(user.store)
    assert (entry.context, entry.blocks, entry.gone) == ("docs", len(blocks), 0)


def n_gone(user: models.User) -> int:
    return sum(entry.gone for entry in list_contexts(user.store))


def test_ask_grafts_the_block_that_has_the_words(user: models.User, corpus: Path) -> None:
    make(user)
    request = ContextAskRequest("docs", "Where is zebra3?", max_tokens=6)
    answer = ask_context(user.store, user.settings, request)
    assert answer.exact and len(answer.candidates) == 1
    for cited, passage in zip(answer.citations, answer.passages, strict=True):
        path, _, line = cited.rpartition(":")
        rows = (user.folder / path).read_text().split("\n")
        assert path == "docs/3.md" and "zebra3" in rows[int(line) - 1]
        begin, _, first = passage.rpartition(":")
        assert begin == path and int(first) <= int(line)
    assert answer.ref == next(search_context(user.store, user.settings, "docs", "zebra3")).ref
    cited = find_place(user.store, user.settings, "docs", answer.citations[0])
    assert cited.ref == answer.ref
    with pytest.raises(NotFound):
        ask_context(user.store, user.settings, ContextAskRequest("docs", "xylophone?"))


def test_of_several_blocks_counting_chooses(user: models.User, corpus: Path) -> None:
    make(user)
    request = ContextAskRequest("docs", "the lake", blocks=3, max_tokens=6)
    answer = ask_context(user.store, user.settings, request)
    assert [item.rank for item in answer.candidates] == [1, 2, 3]
    best = min(
        answer.candidates,
        key=lambda item: (not item.ended, -item.supported, -item.agreeing, item.rank),
    )
    assert (answer.ref, answer.text) == (best.ref, best.text)


def test_a_ref_in_the_way_is_left_alone(user: models.User, corpus: Path) -> None:
    make(user)
    digest = user.store.ref("docs/0001")
    user.store.set_ref("other/0001", digest)
    request = ContextRequest("other", (Path("docs"),), block_tokens=BLOCK)
    with pytest.raises(Conflict):
        list(create_context(user.store, user.settings, request))
    assert user.store.ref("other/0001") == digest
    assert [item.context for item in list_contexts(user.store)] == ["docs"]


def test_a_dry_run_stores_nothing(user: models.User, corpus: Path) -> None:
    dry = user.with_settings(dry_run=True)
    request = ContextRequest("docs", (Path("docs"),), block_tokens=BLOCK, page_tokens=32)
    planned = list(create_context(dry.store, dry.settings, request))
    assert user.store.log.size == 0 and not list(user.store.objects.all())
    blocks, _ = make(user)
    assert [(item.ref, item.tokens) for item in planned] == [  # type: ignore[union-attr]
        (item.ref, item.tokens) for item in blocks
    ]
    again = list(create_context(dry.store, dry.settings, request))
    assert [item.digest for item in again] == [item.digest for item in blocks]  # type: ignore[union-attr]
    assert all(item.tokens_computed == 0 for item in again)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "paths", [(), ("nothing",), ("docs/picture.bin",), ("docs", "docs/0.md"), ("empty",)]
)
def test_bad_input_is_refused(user: models.User, corpus: Path, paths: tuple[str, ...]) -> None:
    (user.folder / "empty").mkdir()
    with pytest.raises((UsageError, NotFound)):
        list(
            create_context(user.store, user.settings, ContextRequest("d", tuple(map(Path, paths))))
        )
    assert user.store.refs() == {}


def test_what_is_no_plain_file_is_refused_by_name_and_not_waited_for(user: models.User) -> None:
    folder = user.folder / "odd"
    folder.mkdir()
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(folder / "socket"))
    (folder / "link").symlink_to("pipe")
    for name in ("pipe", "socket", "link"):
        with pytest.raises(UsageError, match=f"odd/{name}: not a plain file"):
            read_corpus(user.settings, [Path("odd", name)])
    with pytest.raises(UsageError, match="no text"):
        read_corpus(user.settings, [Path("odd")])


class Told(SilentReport):
    """Keeps its notices."""

    def __init__(self) -> None:
        self.notices: list[str] = []

    def notice(self, text: str) -> None:
        self.notices.append(text)

    warning = notice


def test_what_has_no_name_or_goes_is_passed_over(
    user: models.User, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (corpus / os.fsdecode(b"\xff.txt")).write_text("its name is no text")
    (corpus / "going.txt").write_text("it goes while the folder is read")
    read = read_text

    def vanish(path: Path) -> str | None:
        if path.name == "going.txt":
            path.unlink()
        return read(path)

    monkeypatch.setattr("kvg.flow.context.corpus._text", vanish)
    report = Told()
    made = user.with_settings(report=report)
    files = read_corpus(made.settings, [Path("docs")])
    assert [file.path for file in files] == [f"docs/{n}.md" for n in range(4)] + [
        "docs/sub/last.md"
    ]
    assert "2 files" in report.notices[0] and "picture.bin" in report.notices[0]


@pytest.mark.parametrize("command", [("deposit", "x"), ("context", "create", "x")])
def test_a_named_file_whose_name_is_no_text_is_refused(
    kvg: Callable[..., Ran], corpus: Path, command: tuple[str, ...]
) -> None:
    name = os.fsdecode(b"\xff.txt")
    Path(corpus.parent, name).write_text("it cannot be signed for")
    ran = kvg(*command, name)
    assert ran.code == 2 and "rename it" in ran.err


def test_a_deep_folder(user: models.User) -> None:
    here = os.open(user.folder, os.O_RDONLY)
    try:
        for _ in range(1200):
            os.mkdir("d", dir_fd=here)
            inner = os.open("d", os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = inner
        os.close(os.open("f.txt", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    finally:
        os.close(here)
    (user.folder / "d" / "a.txt").write_text("near")
    assert [file.path for file in read_corpus(user.settings, [Path("d")])] == ["d/a.txt"]
    subprocess.run(["rm", "-r", user.folder / "d"], check=True)


def test_names_and_text_of_files_leave_a_terminal_alone(
    kvg: Callable[..., Ran], corpus: Path
) -> None:
    name = "new\nline \x1b[31m.md"
    (corpus / name).write_text("# Quagga\n\nThe quagga grazes alone.\n")
    assert kvg("context", "create", "docs", "docs", "--block-tokens", str(BLOCK)).code == 0
    for words in (("search", "docs", "quagga"), ("ask", "docs", "quagga?"), ("show", "docs")):
        ran = kvg("context", *words)
        named = [line for line in ran.out.splitlines() if "docs/" in line]
        assert not any("\x1b" in line for line in named), words
        assert any("docs/new\\nline \\x1b[31m.md:1" in line for line in named), words


def test_the_command_line(kvg: Callable[..., Ran], corpus: Path) -> None:
    done = kvg("context", "create", "docs", "docs", "--block-tokens", "120", "--json")
    assert done.code == 0
    *blocks, made = map(json.loads, done.out.splitlines())
    assert made["type"] == "context-made" and made["blocks"] == len(blocks)
    assert [item["type"] for item in blocks] == ["context-block"] * len(blocks)
    assert kvg("context", "list").out.startswith("docs  ")
    assert len(kvg("context", "show", "docs").out.splitlines()) == len(blocks) + 1
    assert kvg("context", "at", "docs", "docs/3.md:2").out.strip() in [b["ref"] for b in blocks]
    moved = kvg("context", "at", "docs", "0", "--prompt", "so", "--max-tokens", "3", "--json")
    assert json.loads(moved.out)["exact"] is True
    found = kvg("context", "search", "docs", "zebra1")
    assert found.code == 0 and found.out.startswith("docs/1.md:")
    asked = kvg("context", "ask", "docs", "Where is zebra1?", "--max-tokens", "4")
    assert asked.code == 0 and "[docs/1.md:" in asked.out and "exact" in asked.err
    assert kvg("context", "show", "nothing").code == 3
    assert kvg("context", "create", "Bad Name", "docs").code == 2
