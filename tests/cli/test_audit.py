"""``kvg audit`` as text, JSON and a page."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from kvg.digest import sha256
from kvg.flow.records.bench import RestoreRow
from kvg.flow.records.wire import encode_record
from kvg.objects.statement import FAILED, PASSED, Resource, TestResult, encode_test_result
from kvg.signing.cosignature import encode_witness
from kvg.store import Store
from kvg.trust import Keyring
from tests.artifacts import attest, deposit, key_of
from tests.cli.conftest import Run, Stored
from tests.verify.test_corruption import WITNESS, cosigned


@pytest.fixture
def rich(stored: Stored, kvg: Run) -> Stored:
    """An artifact with a gate, a replay by a stranger to the store, and a failed one."""
    key = stored.store.keyring.load("first")  # type: ignore[union-attr]
    gone = sha256(b"evidence that is not in the store")
    gate = TestResult(PASSED, "test:pytest", evidence=(Resource("report", gone),))
    deposit(stored.store, key, ref="tested", ids=range(60, 90), gates=[gate])
    failed = deposit(stored.store, key, ref="bad", ids=range(30, 50))
    payload = encode_test_result(failed.digest, TestResult(FAILED, "replay"))
    attest(stored.store, key, failed.digest, payload)
    deposit(stored.store, key_of("mallory"), ref="strange", ids=range(70, 99))
    deposit(stored.store, key, ref=None, ids=range(10, 20))
    return stored


@pytest.mark.parametrize(
    "line",
    [
        ("audit", "--html"),
        ("bundle", "create"),
        ("lock", "--file"),
    ],
)
def test_nothing_is_written_into_a_store(
    stored: Stored, kvg: Run, tmp_path: Path, line: tuple[str, ...]
) -> None:
    root, name = stored.store.root, "trust.json"
    (tmp_path / "way").symlink_to(root)
    before = {path: path.read_bytes() for path in root.iterdir() if path.is_file()}
    for target in (
        root / name,
        tmp_path / "way" / name,
        root / "tmp" / name,
        root / "peers" / name,
    ):
        refused = kvg(*line, str(target))
        assert refused.code == 2 and "inside the store" in refused.err, refused
        assert "hint" in refused.err
    assert kvg(*line, str(tmp_path)).code == 2
    assert {path: path.read_bytes() for path in before} == before


def test_how_much_of_the_log_is_not_shown_is_said(rich: Stored, kvg: Run) -> None:
    for n in range(12):
        kvg("tag", f"t{n}", "demo")
    entries = len(kvg("audit", "--json").record["timeline"])
    assert f"and {entries - 10} before those: kvg audit -v\n" in kvg("audit").out
    assert "before those" not in kvg("audit", "-v").out


def test_everything_at_once(rich: Stored, kvg: Run) -> None:
    done = kvg("audit", "--json")
    record = done.record
    assert done.code == 6 and not record["signatures_ok"] and record["bytes_ok"]
    by_ref = {item["refs"][0]: item for item in record["artifacts"] if item["refs"]}
    assert set(by_ref) == {"demo", "tested", "bad", "strange"}
    assert {ref for ref, item in by_ref.items() if item["stands"]} == {"demo", "tested"}
    assert by_ref["tested"]["gates"] == ["test:pytest"]
    assert by_ref["bad"]["failed"] == ["replay"] and by_ref["strange"]["depositors"] == []
    assert len(record["artifacts"]) == 5 and record["log_size"] == len(record["timeline"])
    assert record["growth"][-1][1] == record["log_size"]
    told = " ".join(record["unchecked"])
    for words in ("no page was computed again", "no gate", "does not have", "no name",
                  "nobody cosigned it", "writers' clocks"):  # fmt: skip
        assert words in told, words


def test_as_text(rich: Stored, kvg: Run) -> None:
    out = kvg("audit").out
    at = [out.index(f"\n{name}\n") for name in ("findings", "artifacts", "trust", "not checked")]
    assert at == sorted(at)
    assert "signatures NOT ok" in out and "failed: replay" in out
    assert "test:pytest PASSED" in kvg("audit", "-v").out


def test_a_whole_store_is_code_0(stored: Stored, kvg: Run) -> None:
    assert kvg("audit").code == 0
    assert kvg("audit", "--json").record["findings"] == []


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.chmod(0o644)
    path.write_bytes(data)


def roll_back(root: Path) -> None:
    """The log goes back to where it was before its newest entry, which this user saw."""
    checkpoint = (root / "log" / "checkpoint").read_bytes()
    store = Store.open(root, keyring=Keyring(Path.home() / ".local/share/kvg/keys"))
    store.set_ref("later", store.refs()["demo"])
    store.close()
    (root / "log" / "checkpoint").write_bytes(checkpoint)


def newest(root: Path, name: str) -> Path:
    folder = root / "log" / "tile" / name / "000.p"
    return max(folder.iterdir(), key=lambda path: int(path.name))


LOGLESS: dict[str, Callable[[Path], object]] = {
    "checkpoint": lambda root: flip(root / "log" / "checkpoint"),
    "verifier": lambda root: flip(root / "log" / "verifier"),
    "tile/0": lambda root: flip(newest(root, "0")),
    "config.toml": lambda root: (root / "config.toml").write_bytes(b"\xff= [["),
    "rolled back": roll_back,
}
"""Damages, by what the finding says, without whose repair nobody can tell what the log says."""

ASIDE: dict[str, Callable[[Path], object]] = {
    "log/cosigned": lambda root: flip(root / "log" / "cosigned"),
    "cosigned: missing": lambda root: (root / "log" / "cosigned").unlink(),
    "format": lambda root: flip(root / "format"),
}
"""Damages of files that no artifact rests on."""

LOGGED: dict[str, Callable[[Path], object]] = {
    **ASIDE,
    "trust.json": lambda root: flip(root / "trust.json"),
    "tile/entries": lambda root: flip(newest(root, "entries")),
}


@pytest.fixture
def witnessed(stored: Stored, kvg: Run) -> Stored:
    """A witness cosigned the log, which has grown since."""
    cosigned(stored.store.log)
    stored.store.config.set("store.witnesses", (encode_witness(WITNESS),))
    deposit(stored.store, stored.store.keyring.load("first"), ref="two", ids=range(40, 70))  # type: ignore[union-attr]
    assert kvg("audit").code == 0  # and this user has seen it
    return stored


def damaged(witnessed: Stored, kvg: Run, damage: Callable[[Path], object], name: str) -> dict:
    """What an audit says of the damaged store, as a record; as text and as a page it says so, too.

    Whatever the damage, both artifacts are told.
    """
    witnessed.store.close()
    damage(witnessed.store.root)
    done = kvg("audit", "--json", "--html", "a.html")
    record = done.record
    assert done.code in (5, 6) and done.err == ""
    assert name in record["findings"][0]["message"]
    found = {item["refs"][0]: item for item in record["artifacts"]}
    assert set(found) == {"demo", "two"} and record["objects"] > 10
    assert found["demo"]["digest"] == witnessed.digest and found["demo"]["tokens"] == 27
    page, text = Path("a.html").read_text(), kvg("audit")
    assert text.code == done.code
    assert all(name in page and name in text.out for name in (name, "demo", "two"))
    return record


@pytest.mark.parametrize("name", LOGGED)
def test_beside_a_damaged_file_the_log_is_told(
    witnessed: Stored, kvg: Run, home: Path, name: str
) -> None:
    record = damaged(witnessed, kvg, LOGGED[name], name)
    assert record["log_size"] > 3 and record["root"] and record["verifier"]
    assert {item["stands"] for item in record["artifacts"]} == {name in ASIDE}
    is_signed = name != "tile/entries"
    assert all(bool(item["depositors"]) == is_signed for item in record["artifacts"])
    assert bool(record["timeline"]) == bool(record["growth"]) == is_signed
    assert len(record["keys"]) == 1 and record["trust_version"] == 1
    told = " ".join(record["unchecked"])
    assert "nobody cosigned" not in told
    assert ("that can't be read are not listed" in told) != is_signed
    assert ("trust.json can't be relied on" in told) == (name == "trust.json")


@pytest.mark.parametrize("name", LOGLESS)
def test_without_a_log_the_objects_are_told(
    witnessed: Stored, kvg: Run, home: Path, name: str
) -> None:
    record = damaged(witnessed, kvg, LOGLESS[name], name)
    assert not record["signatures_ok"] and not record["timeline"]
    assert not any(item["stands"] or item["depositors"] for item in record["artifacts"])
    assert "The log can't be read" in record["unchecked"][1]
    assert "nobody cosigned" not in " ".join(record["unchecked"])
    assert record["keys"] == [] and record["trust_version"] is None and not record["thresholds"]
    assert "no replay" not in " ".join(record["unchecked"])


def test_a_damaged_object_is_named_though_the_log_is_gone(
    witnessed: Stored, kvg: Run, home: Path
) -> None:
    store = witnessed.store
    pages = [page.digest for page in store.manifest(witnessed.digest).pages]
    store.close()
    flip(store.objects.stored_path(pages[0]))
    store.objects.stored_path(pages[1]).unlink()
    flip(store.root / "log" / "checkpoint")
    record = kvg("audit", "--json").record
    told = {item["object"]: item["message"] for item in record["findings"]}
    assert set(told) == {"log", *pages[:2]} and "demo: page" in told[pages[1]]
    assert not record["bytes_ok"]


def test_witnesses_without_a_word_are_told(stored: Stored, kvg: Run) -> None:
    stored.store.config.set("store.witnesses", (encode_witness(WITNESS),))
    record = kvg("audit", "--json").record
    assert any("names witness.example" in sentence for sentence in record["unchecked"])


class Reader(HTMLParser):
    """Notes tags, their attributes and the sections' ids."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_the_page_is_self_contained(rich: Stored, kvg: Run) -> None:
    assert kvg("audit", "--html", "audit.html", "-q").code == 6
    text = Path("audit.html").read_text()
    reader = Reader()
    reader.feed(text)
    sections = [attrs["id"] for tag, attrs in reader.tags if tag == "section"]
    assert {"findings", "unchecked", "artifacts", "sizes", "growth", "log"} <= set(sections)
    for tag, attrs in reader.tags:
        assert not {"src", "href", "action", "style", "onclick"} & set(attrs), (tag, attrs)
        assert tag not in ("link", "img", "iframe", "form")
    assert (
        "url(" not in text
        and "@import" not in text
        and "http" not in re.sub(r'http-equiv="', "", text).replace("https://", "")
    )
    policy = next(a["content"] for t, a in reader.tags if a.get("http-equiv"))
    assert policy is not None and "default-src 'none'" in policy
    assert text.count("<svg") == 2 and "prefers-color-scheme: dark" in text
    for name in ("demo", "tested", "bad", "strange", rich.digest):
        assert name in text


def test_names_from_the_store_are_only_text(rich: Stored, kvg: Run) -> None:
    from kvg.cli.render.audit_page import bars, page_of
    from kvg.flow.audit import audit
    from kvg.flow.settings import Settings

    hostile = "<script>alert(1)</script>\"'&"
    settings = Settings(Path.cwd(), Path("keys"), Path("cache"), Path("config"))
    record = audit(rich.store, settings)
    from dataclasses import replace

    item = replace(record.artifacts[0], refs=(hostile,), gates=(hostile,))
    text = page_of(replace(record, artifacts=(item,), store=hostile, unchecked=(hostile,)))
    assert "<script>alert" not in text and text.count("<script>") == 1
    assert "<script>" not in bars((item,))


def test_an_empty_store(kvg: Run) -> None:
    kvg("init")
    assert kvg("audit", "--html", "audit.html").code == 0
    assert "No artifact." in Path("audit.html").read_text()


RESULTS = Path(__file__).resolve().parents[2] / "bench" / "results"


def test_published_figures_stand_with_the_digests_behind_them(
    stored: Stored, kvg: Run, home: Path
) -> None:
    done = kvg("audit", "--results", str(RESULTS), "--html", "a.html", "--json")
    figures = done.record["results"]
    exact = [item for item in figures if item["kind"] == "exactness-summary"]
    assert all(item["figures"]["equal"] == item["figures"]["runs"] for item in exact)
    exact = [item for item in exact if Path(item["file"]).name == "exactness.jsonl"]
    assert len(exact) == 1 and exact[0]["figures"]["equal"] == exact[0]["figures"]["runs"]
    assert exact[0]["digest"] == sha256((RESULTS / "exactness.jsonl").read_bytes())
    assert exact[0]["samples"] == exact[0]["figures"]["runs"]
    text = (RESULTS / "exactness.jsonl").read_text()
    assert exact[0]["digests"] and all(digest in text for digest in exact[0]["digests"])
    by_kind = {(Path(item["file"]).name, item["kind"]) for item in figures}
    for name, kind in (
        ("accuracy.jsonl", "accuracy-row"),
        ("similarity.jsonl", "select-row"),
        ("prereg-classes.jsonl", "prereg-summary"),
        ("capability.jsonl", "capability-summary"),
        ("select.jsonl", "select-time"),
    ):
        assert (name, kind) in by_kind
    assert not {kind for _, kind in by_kind} & {"bench-machine", "own", "capability-run"}
    assert all(item["digests"] for item in figures if item["samples"])
    page = Path("a.html").read_text()
    assert exact[0]["digests"][0] in page and "Published figures" in page
    assert any("nothing was measured again" in sentence for sentence in done.record["unchecked"])
    assert "exactness-summary: samples" in kvg("audit", "--results", str(RESULTS)).out
    assert "results" not in "".join(kvg("audit", "--json").record["unchecked"])


def test_restore_against_prefill_is_drawn(stored: Stored, kvg: Run, home: Path) -> None:
    """From the very records that ``kvg bench restore`` gives."""
    rows = [
        RestoreRow(n, form, cache, 3, 1, 1, n * 2.5, 1.0, 2.0, 37.0, 40 + n / 100, 9.0, True, ())
        for n in (256, 1024, 7900)
        for form in ("raw", "planes")
        for cache in ("warm", "cold")
    ]
    Path("r.jsonl").write_text("".join(json.dumps(encode_record(row)) + "\n" for row in rows))
    assert kvg("audit", "--results", "r.jsonl", "--html", "a.html").code == 0
    page = Path("a.html").read_text()
    drawn = page[page.index('id="restore"') : page.index('id="growth"')]
    assert drawn.count("<polyline") == 2 and "graft to first token" in drawn
    assert drawn.count("<circle") == 6 and "Grafts: form raw, cache warm." in drawn
    assert "19,750 ms" in drawn


def test_what_is_not_there_has_no_picture(stored: Stored, kvg: Run, home: Path) -> None:
    Path("r.jsonl").write_text('{"type": "fuzz", "decoder": "page", "failures": 0}\n')
    assert kvg("audit", "--results", "r.jsonl", "--html", "a.html").code == 0
    page = Path("a.html").read_text()
    assert 'id="restore"' not in page and "0 digests" not in page
    assert "names no digest of what is behind it" in page


def test_a_long_name_leaves_room_for_what_stands_beside_it(
    stored: Stored, kvg: Run, home: Path
) -> None:
    name = "context/" + "x" * 80 + "/0001"
    assert kvg("tag", name, "demo").code == kvg("rm", "demo").code == 0
    assert kvg("audit", "--html", "a.html").code == 0
    page = Path("a.html").read_text()
    drawn = page[page.index('id="sizes"') : page.index('id="said"')]
    (label,) = re.findall(r"</title>([^<]*) {2}[0-9.]+ KiB</text>", drawn)
    assert len(label) == 40 and label.endswith("x/0001") and "…" in label and name in drawn
    assert re.search(r'<td data-name="digest" class="long"><code>sha256:', page)
    assert re.search(r'<td data-name="tokens" class="num">', page)


def test_figures_in_a_document_are_shown_too(stored: Stored, kvg: Run, home: Path) -> None:
    folder = Path("figures")
    folder.mkdir()
    machine, copied = {"cpu": "x"}, {"kvg_seconds": 2.5, "runs": [2.5]}
    whole = {"schema": "s/1", "runs": 3, "machine": machine, "directory, codec 0": copied}
    (folder / "exchange.json").write_text(json.dumps(whole, indent=1))
    found = kvg("audit", "--results", "figures", "--json").record["results"]
    assert [(figure["kind"], figure["figures"]) for figure in found] == [
        ("exchange", {"schema": "s/1", "runs": 3}),
        ("directory, codec 0", {"kvg_seconds": 2.5}),
    ]
    (folder / "exchange.json").write_text("[1]")
    assert kvg("audit", "--results", "figures").code == 5


@pytest.mark.parametrize("words", [("audit", "--html"), ("bundle", "create")])
def test_standard_output_is_no_file(
    stored: Stored, kvg: Run, home: Path, words: tuple[str, ...]
) -> None:
    done = kvg(*words, "-")
    assert done.code == 2 and "standard output" in done.err
    assert not Path("-").exists()


@pytest.mark.parametrize(
    "data",
    [
        b"not json\n",
        b"[1]\n",
        b'{"a": 1}\n\xff\n',
        b"[" * 9999,
        b'{"type": "x-row", "type": "x"}\n',
        b'{"type": "x", "a": {"b": 1, "b": 1}}\n',
        b'{"type": "x", "a": NaN}\n',
        b'{"type": "x", "a": [-Infinity]}\n',
        b'{"type": "x", "a": 1e999}\n',
    ],
)
def test_what_is_no_file_of_results(stored: Stored, kvg: Run, home: Path, data: bytes) -> None:
    Path("r.jsonl").write_bytes(data)
    assert kvg("audit", "--results", "r.jsonl").code == 5
    assert kvg("audit", "--results", "none.jsonl").code == 3
    Path("empty").mkdir()
    assert kvg("audit", "--results", "empty").code == 3
    os.mkfifo("empty/pipe.jsonl")
    for place in ("empty", "empty/pipe.jsonl"):
        done = kvg("audit", "--results", place)
        assert done.code == 5 and "plain file" in done.out


@pytest.mark.parametrize(
    "row",
    [
        '{"tokens": -5, "prefill_ms": 1, "first_token_ms": 2}',
        '{"tokens": 1' + "0" * 400 + ', "prefill_ms": 1, "first_token_ms": 2}',
        '{"tokens": 5e-324, "prefill_ms": 1e308, "first_token_ms": 5e-324}',
        '{"tokens": true, "prefill_ms": [], "first_token_ms": {}}',
        '{"x": "</script><b>", "y": "<img src=x onerror=alert(1)>"}',
        '{"x": "\\u001b[2J\\u202e"}',
    ],
)
def test_no_number_and_no_word_of_others_is_too_odd(
    stored: Stored, kvg: Run, home: Path, row: str
) -> None:
    Path("r.jsonl").write_text(f"{row}\n")
    done = kvg("audit", "--results", "r.jsonl", "--html", "a.html")
    assert done.code == 0, done.err
    assert "\x1b" not in done.out and "\u202e" not in done.out
    page = Path("a.html").read_text()
    assert not set(page) & set("\x1b\x9b\x07\u202e\u2066")
    assert "nan" not in page[page.index("<main>") :].split("Published figures")[0]
    assert "<b>" not in page.split("</ul>")[-1] and "<img" not in page


@pytest.mark.parametrize("put", ["link", "pipe", "dangling"])
@pytest.mark.parametrize("line", [("audit", "--html"), ("lock", "--file"), ("bundle", "create")])
def test_nothing_but_a_plain_file_is_replaced(
    stored: Stored, kvg: Run, home: Path, put: str, line: tuple[str, ...]
) -> None:
    """As root, a file named with care can be a device that the whole machine uses."""
    path = Path("out")
    if put == "pipe":
        os.mkfifo(path)
    else:
        if put == "link":
            Path("file").write_text("mine")
        path.symlink_to("file")
    before = os.lstat(path)
    done = kvg(*line, "out")
    assert done.code == 2 and "would be replaced" in done.err and "hint" in done.err, done
    after = os.lstat(path)
    assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)
    assert Path("file").exists() is (put == "link")


@pytest.mark.parametrize("odd", ["\x1b[2J\x1b]0;mine\x07", "\u202egpj", "a\nb", "\x9b31m"])
@pytest.mark.parametrize(
    "line", [("show", "odd"), ("ls",), ("audit", "-v"), ("log", "odd"), ("verify", "odd")]
)
def test_words_of_others_do_nothing_to_a_terminal(
    stored: Stored, kvg: Run, odd: str, line: tuple[str, ...]
) -> None:
    key = stored.store.keyring.load("first")  # type: ignore[union-attr]
    said = TestResult(PASSED, f"test:{odd}", evidence=(Resource(odd, sha256(b"gone")),))
    deposit(stored.store, key, ref="odd", ids=range(60, 90), gates=[said])
    for tty in (False, True):
        done = kvg(*line, "--color", "never", tty=tty)
        assert done.code == 0, done.err
        assert not set(done.out + done.err) & set("\x1b\x9b\x07\u202e")


def test_half_a_surrogate_pair_is_no_text(stored: Stored, kvg: Run, home: Path) -> None:
    key = stored.store.keyring.load("first")  # type: ignore[union-attr]
    made = deposit(stored.store, key, ref="odd", ids=range(60, 90))
    payload = encode_test_result(made.digest, TestResult(PASSED, "test:QQ"))
    attest(stored.store, key, made.digest, payload.replace(b"QQ", rb"\ud800"))
    assert kvg("verify", "odd").code == 5 and kvg("verify", "demo").code == 0
    for line in (("show", "odd"), ("ls",), ("log", "odd"), ("fsck",), ("gc",)):
        assert kvg(*line).code in (0, 5), line
    assert kvg("audit", "--html", "a.html").code == 5 and Path("a.html").stat().st_size
    Path("r.jsonl").write_text('{"x": "\\ud800"}\n')
    refused = kvg("audit", "--results", "r.jsonl")
    assert refused.code == 5 and "line 1" in refused.out


def test_one_bad_file_of_results_is_named_and_the_others_are_shown(
    stored: Stored, kvg: Run, home: Path
) -> None:
    folder = Path("figures")
    folder.mkdir()
    (folder / "a.jsonl").write_text('{"type": "a-summary", "wrong": 0}\n')
    (folder / "b.jsonl").write_bytes(b"{broken\n")
    (folder / "c.json").mkdir()
    (folder / "d.jsonl").write_text('{"type": "d-summary", "wrong": 1}\n')
    done = kvg("audit", "--results", "figures", "--html", "a.html", "--json")
    assert done.code == 5
    assert [figure["kind"] for figure in done.record["results"]] == ["a-summary", "d-summary"]
    named = {item["object"]: item["message"] for item in done.record["findings"]}
    assert set(named) == {"figures/b.jsonl", "figures/c.json"}
    assert done.record["bytes_ok"] and all(item["stands"] for item in done.record["artifacts"])
    page = Path("a.html").read_text()
    assert "figures/b.jsonl" in page and "d-summary" in page


ODD = "\x1b[2J\u202egnp\nfindings: none"


def test_no_name_reaches_the_page_as_it_is(stored: Stored, kvg: Run, home: Path) -> None:
    """Of a gate, of a file of results, of what lies in the store."""
    key = stored.store.keyring.load("first")  # type: ignore[union-attr]
    said = TestResult(PASSED, f"test:{ODD}", evidence=(Resource(ODD, sha256(b"gone")),))
    deposit(stored.store, key, ref="odd", ids=range(60, 90), gates=[said])
    Path("r").mkdir()
    (Path("r") / f"{ODD.replace('/', '')}.jsonl").write_text("{broken")
    (Path("r") / "good.jsonl").write_text(json.dumps({"type": ODD, ODD: ODD}) + "\n")
    done = kvg("audit", "-v", "--results", "r", "--html", "a.html")
    assert done.code == 5, done.err
    page = Path("a.html").read_text()
    for text in (page, done.out, done.err):
        assert not set(text) & set("\x1b\x9b\x07\u202e\u2066")
        assert "\nfindings: none" not in text
    assert "\\x1b[2J\\u202egnp" in page


def test_who_signed_and_is_revoked_is_named(stored: Stored, kvg: Run, home: Path) -> None:
    """By an earlier key alone; by a stranger, who is only said to have signed."""
    keyring = stored.store.keyring
    assert keyring is not None
    gone = keyring.load("first").public.keyid
    assert kvg("key", "new", "second").code == 0
    assert kvg("trust", "add", "second", "--role", "depositor", "--role", "publisher").code == 0
    assert kvg("trust", "revoke", "first", "--size", "0", "--key", "second").code == 0
    stranger = key_of("mallory")
    deposit(stored.store, stranger, ref="strange", ids=range(70, 99))
    done = kvg("audit", "--html", "a.html")
    assert f"signed by {gone[:6]}, who is revoked" in done.out, done.out
    assert f"it says {stranger.public.keyid[:6]}, whom nobody trusts here" in done.out
    assert "signed by nobody" not in done.out
    assert f"{gone[:12]}, who is revoked" in Path("a.html").read_text()
    record = kvg("audit", "--json").record
    demo = next(item for item in record["artifacts"] if item["refs"] == ["demo"])
    assert demo["depositors"] == [] and demo["revoked"] == [gone]
    assert {tuple(said["revoked"]) for said in demo["said"]} == {(gone,)}
