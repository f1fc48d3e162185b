"""``kvg context ask`` over a real folder: questions whose answers and places are known.

    python bench/asking.py MODEL_FOLDER [--block-tokens 512] [--blocks 1] > asking.jsonl

Makes a context of ``docs/`` (``--folder``) in a store of its own and puts every question of
``bench/tasks/documents.jsonl`` (``--questions``) to ``kvg context ask``. A line of that file has
``question``, ``answers`` (any of them, as a word, is right), ``path`` and ``phrase``: the words of
the folder that say it, which stand there once. One JSON record for each question:

- ``found``: the grafted block holds the phrase; ``rank``: where the search has that block, or null
- ``cited``: the first citation is the phrase's line or one beside it
- ``right``: the answer is; ``alone``: so is that of the model without any block
- ``equal``: logits after the graft and the question are, byte for byte, those of a plain prefill of
  the same tokens, and so is the answer

and a summary.

    python bench/asking.py --fill docs/choosing.md bench/results/asking.jsonl

puts the summary of a result file between its marks of the page. Who wrote the questions had read
the folder, so words of the text are in them more often than in a stranger's.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "kernels"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.filling import filled
from bench.place import store_in
from kvg.cli.render import json_line
from kvg.flow.asking import Asked, ask_messages
from kvg.flow.bench.setup import setup_of
from kvg.flow.context import ask
from kvg.flow.context.create import ContextRequest, create_context
from kvg.flow.context.search import RANKED, opened_index, rank_blocks
from kvg.flow.context.stored import StoredBlock, StoredContext, read_context
from kvg.flow.records.contexts import ContextMade
from kvg.flow.registered import identified, open_registered, registered_model, tokenizer_of
from kvg.flow.requests import ContextAskRequest
from kvg.flow.settings import Settings
from kvg.model.dtypes import tensor_digest
from kvg.model.session import Session
from kvg.model.text import Tokenizer
from kvg.store import Store
from kvg.verify import verify_artifact

ROOT = Path(__file__).resolve().parent.parent
QUESTIONS = ROOT / "bench/tasks/documents.jsonl"
NAME = "documents"
BESIDE = 1
"""Lines by which a citation may be off: a sentence begins on the line before its words."""
Question = dict[str, Any]


def questions(path: Path) -> list[Question]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def line_of(text: str, phrase: str) -> int:
    """The line, from 1, on which ``phrase`` begins, which stands in ``text`` once."""
    if text.count(phrase) != 1:
        raise SystemExit(f"{phrase}: stands there {text.count(phrase)} times")
    return text.count("\n", 0, text.index(phrase)) + 1


def is_right(said: str, answers: Sequence[str]) -> bool:
    """Whether one of ``answers`` is in what was said, as a word."""
    return any(re.search(rf"(?<!\w){re.escape(a)}(?!\w)", said, re.IGNORECASE) for a in answers)


def is_near(citation: str, path: str, line: int) -> bool:
    """Whether ``path:line`` of a citation is that line, or one beside it."""
    cited, _, number = citation.rpartition(":")
    return cited == path and abs(int(number) - line) <= BESIDE


def holds(block: StoredBlock, path: str, line: int) -> bool:
    return any(p.path == path and p.line <= line < p.line + p.n_lines for p in block.parts)


class Bench:
    """A context of one folder, and the model that is asked about it."""

    def __init__(self, store: Store, settings: Settings, folder: Path) -> None:
        self.store, self.settings, self.folder = store, settings, folder
        self.model = registered_model(store, "model")
        files = identified(store, settings, self.model)
        self.session: Session = open_registered(settings, self.model, files, reference="invariant")
        self.tokenizer: Tokenizer = tokenizer_of(settings, self.model, files)
        ask.open_engine = lambda *_: self.session  # loaded once

    def rows(self, asked: Sequence[Question], blocks: int, tokens: int) -> Iterator[dict[str, Any]]:
        context = read_context(self.store, NAME)
        for number, question in enumerate(asked):
            yield self.row(context, number, question, blocks, tokens)

    def row(
        self, context: StoredContext, number: int, question: Question, blocks: int, tokens: int
    ) -> dict[str, Any]:
        line = line_of((self.folder / question["path"]).read_text("utf-8"), question["phrase"])
        path = f"{self.folder.name}/{question['path']}"
        text, answers = question["question"], question["answers"]
        with opened_index(self.store, context) as index:
            ranked = rank_blocks(index.search(text, limit=RANKED))
        ranks = [n for n, block in enumerate(ranked, 1) if holds(context.block(block), path, line)]
        began = time.perf_counter()
        request = ContextAskRequest(NAME, text, blocks, tokens)
        answer = ask.ask_context(self.store, self.settings, request)
        seconds = time.perf_counter() - began
        chosen = next(block for block in context.blocks if block.ref == answer.ref)
        alone, _ = ask_messages(self.session, self.tokenizer, ask.messages_of(text)).answer(tokens)
        return {
            "type": "asking-row",
            "number": number,
            "question": text,
            "place": f"{path}:{line}",
            "ref": answer.ref,
            "rank": ranks[0] if ranks else None,
            "found": holds(chosen, path, line),
            "citations": list(answer.citations),
            "cited": bool(answer.citations) and is_near(answer.citations[0], path, line),
            "said": answer.text,
            "right": is_right(answer.text, answers),
            "said_alone": alone,
            "right_alone": is_right(alone, answers),
            "equal": self.is_equal(chosen, text, answer.text, tokens),
            "seconds": seconds,
        }

    def is_equal(self, block: StoredBlock, text: str, said: str, tokens: int) -> bool:
        """Whether a prefill of block and question has the graft's logits and says the same."""
        verified = verify_artifact(self.store, block.digest)
        grafted = ask_messages(
            self.session, self.tokenizer, ask.messages_of(text), exemplar=verified
        )
        slot, last = self.session.slot(), len(grafted.ids) - 1
        logits = self.session.prefill(slot, grafted.ids, [last]).logits[last]
        fresh = Asked(self.session, self.tokenizer, slot, grafted.ids, logits)
        is_same = tensor_digest(logits) == tensor_digest(grafted.logits)
        return is_same and fresh.answer(tokens)[0] == said


def summary(
    rows: Sequence[dict[str, Any]], made: ContextMade, asked: argparse.Namespace
) -> dict[str, Any]:
    return {
        "type": "asking-summary",
        "questions": len(rows),
        "context_tokens": made.tokens,
        "context_blocks": made.blocks,
        "block_tokens": asked.block_tokens,
        "blocks": asked.blocks,
        **{
            name: sum(row[name] for row in rows)
            for name in ("found", "cited", "right", "right_alone", "equal")
        },
    }


def records(place: Path, asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Everything, in a store in ``place``."""
    store, settings = store_in(place, asked.model, cwd=asked.folder.absolute().parent)
    folder = Path(asked.folder.name)
    request = ContextRequest(NAME, (folder,), block_tokens=asked.block_tokens)
    *_, made = create_context(store, settings, request)
    bench = Bench(store, settings, settings.cwd / folder)
    yield json.loads(json_line(setup_of("asking", bench.model, bench.session)))
    rows = []
    for row in bench.rows(questions(asked.questions), asked.blocks, asked.max_tokens):
        rows.append(row)
        yield row
    yield summary(rows, made, asked)


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The summary of a result file as a table of a page."""
    row = next(row for row in rows if row["type"] == "asking-summary")
    names = {
        "found": "the grafted block holds the answer",
        "cited": "the first citation is its line, or one beside it",
        "right": "the answer is right",
        "right_alone": "so is that of the model alone",
        "equal": "logits and answer as by plain prefill, byte for byte",
    }
    head = f"{row['context_tokens']:,} tokens in {row['context_blocks']} blocks of at most "
    lines = [f"| {head}{row['block_tokens']:,} | |", "|---|---|"]
    lines += [f"| {said} | {row[name]} of {row['questions']} |" for name, said in names.items()]
    return "".join(f"{line}\n" for line in lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, help="model folder; with --fill the result file")
    parser.add_argument("--fill", type=Path, metavar="PAGE")
    parser.add_argument("--folder", type=Path, default=ROOT / "docs")
    parser.add_argument("--questions", type=Path, default=QUESTIONS)
    parser.add_argument("--block-tokens", type=int, default=512)
    parser.add_argument("--blocks", type=int, default=1)
    parser.add_argument("--max-tokens", type=int, default=24)
    asked = parser.parse_args()
    if asked.fill is not None:
        rows = [json.loads(line) for line in asked.model.read_text("utf-8").splitlines()]
        asked.fill.write_text(filled(asked.fill.read_text("utf-8"), "asking", table(rows)), "utf-8")
        return 0
    with tempfile.TemporaryDirectory() as name:
        for row in records(Path(name), asked):
            print(json.dumps(row, ensure_ascii=False), flush=True)
            if row["type"] == "asking-row":
                marks = " ".join(
                    f"{k}:{'yes' if row[k] else 'no '}" for k in ("found", "cited", "right")
                )
                print(f"{marks}  {row['question']}  {row['said']!r}", file=sys.stderr)
    print(
        f"of {row['questions']} questions: block found {row['found']}, line cited {row['cited']}, "
        f"right {row['right']}, right without a block {row['right_alone']}, "
        f"equal to plain prefill {row['equal']}",
        file=sys.stderr,
    )
    return 0 if row["equal"] == row["questions"] else 11


if __name__ == "__main__":
    sys.exit(main())
