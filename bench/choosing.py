"""Graft, LoRA or RAG: the same questions to the same model in each of these ways.

    python bench/choosing.py MODEL_FOLDER [--questions 20] [--steps 60] > choosing.jsonl

Three tasks. ``handbook``: facts of one text that fits the window; ``archive``: facts of a text of
several windows; ``skill``: the form of an answer, from solved examples (bench/tasks/words.jsonl).
Each is asked of the model alone, after a graft, of the model with a LoRA adapter (peft, trained
here), and with the passages that TF-IDF finds in the prompt.

- graft: the whole text, or the examples; of the archive as much as fits
- lora: rank 8 on the attention's projections, ``--steps`` steps on the facts or examples
- rag: the three nearest passages, or five nearest examples, before the question

An answer is right when the key is in it as a word. One JSON record for each task and way: right
answers, seconds to prepare once, seconds for an answer, tokens computed for each. What it was
measured on comes first; a table on standard error.

    python bench/choosing.py --fill docs/choosing.md bench/results/choosing.jsonl

puts the table of a result file between the two marks of the page; a test compares them.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "kernels"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.filling import filled
from bench.place import store_in
from kvg import canon
from kvg.cli.render import json_line
from kvg.flow.asking import Asked, ask_messages
from kvg.flow.bench.library import Library, Task, open_library, read_tasks
from kvg.flow.bench.setup import setup_of
from kvg.flow.deposit import deposit
from kvg.flow.model_add import model_add
from kvg.flow.registered import identified, open_registered, registered_model
from kvg.flow.requests import DepositRequest, ModelAddRequest
from kvg.objects.verified import Verified
from kvg.verify import verify_artifact

ROOT = Path(__file__).resolve().parent.parent
ANSWER_TOKENS = 16
HANDBOOK, ARCHIVE = 40, 1200
"""Facts of the text that fits the window, and of the one that does not."""
SYLLABLES = ("ba", "do", "ki", "lu", "mer", "nor", "pa", "ri", "sul", "ta", "ven", "zo")
Pair = tuple[str, str]


def facts(count: int, seed: int) -> list[tuple[str, Task]]:
    """Sentences that no model has read, each with the question it answers."""
    chance, found = random.Random(seed), {}
    while len(found) < count:
        name = "".join(chance.choices(SYLLABLES, k=3)).capitalize()
        found.setdefault(name, str(chance.randrange(1000, 10_000)))
    return [
        (f"The room number of {name} is {code}.", Task(f"What is the room number of {name}?", code))
        for name, code in found.items()
    ]


def nearest(passages: Sequence[str]) -> Callable[[str, int], list[str]]:
    """The passages most like a question, by TF-IDF over words."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectoriser = TfidfVectorizer()
    rows = vectoriser.fit_transform(passages)

    def find(question: str, most: int) -> list[str]:
        scores = (rows @ vectoriser.transform([question]).T).toarray()[:, 0]
        return [passages[at] for at in (-scores).argsort(kind="stable")[:most]]

    return find


def train(model: Path, pairs: Sequence[Pair], steps: int, folder: Path) -> None:
    """Write a LoRA adapter that was shown ``pairs``: loss on the answers alone."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(model), local_files_only=True)
    torch.manual_seed(7)
    base = AutoModelForCausalLM.from_pretrained(str(model), dtype=torch.float32)
    module = get_peft_model(
        base,
        LoraConfig(
            r=8,
            lora_alpha=16,
            target_modules=["q_proj", "k_proj", "v_proj", "o_proj"],
            task_type="CAUSAL_LM",
        ),
    )
    module.train()
    optimiser = torch.optim.AdamW([p for p in module.parameters() if p.requires_grad], lr=1e-3)
    chance = random.Random(7)
    for _ in range(steps):
        losses = []
        for question, answer in chance.sample(list(pairs), min(4, len(pairs))):
            asked = tokenizer.apply_chat_template(
                [{"role": "user", "content": question}], add_generation_prompt=True, tokenize=False
            )
            given = tokenizer(asked, add_special_tokens=False)["input_ids"]
            told = tokenizer(answer, add_special_tokens=False)["input_ids"]
            told = [*told, tokenizer.eos_token_id]
            ids = torch.tensor([[*given, *told]])
            labels = torch.tensor([[*([-100] * len(given)), *told]])
            losses.append(module(input_ids=ids, labels=labels).loss)
        torch.stack(losses).mean().backward()
        optimiser.step()
        optimiser.zero_grad()
    module.save_pretrained(folder)


class Bench:
    """One model, asked in every way."""

    def __init__(self, library: Library, model: Path, steps: int) -> None:
        self.library = library
        self.model = model
        self.steps = steps

    def rows(
        self,
        name: str,
        tasks: Sequence[Task],
        graft: str | list[Pair],
        pairs: Sequence[Pair],
        passages: Sequence[str],
        most: int,
    ) -> Iterator[dict[str, object]]:
        """A record for each way. ``graft`` is the text or the solved examples to deposit."""
        yield self.row(name, "alone", 0.0, tasks, self._alone)
        began = time.perf_counter()
        verified = self._deposited(name, graft)
        prepared = time.perf_counter() - began
        lib = self.library

        def grafted(task: Task) -> Asked:
            messages = ({"role": "user", "content": task.text},)
            return ask_messages(lib.session, lib.tokenizer, messages, exemplar=verified)

        held = len(verified.ids)
        yield self.row(name, "graft", prepared, tasks, grafted, held)
        began = time.perf_counter()
        tuned = self._tuned(name, pairs)
        yield self.row(name, "lora", time.perf_counter() - began, tasks, tuned)
        began = time.perf_counter()
        find = nearest(passages)
        prepared = time.perf_counter() - began

        def retrieved(task: Task) -> Asked:
            text = "\n".join([*find(task.text, most), "", task.text])
            return self._alone(Task(text, task.answer))

        yield self.row(name, "rag", prepared, tasks, retrieved)

    def row(
        self,
        name: str,
        way: str,
        prepare_s: float,
        tasks: Sequence[Task],
        ask: Callable[[Task], Asked],
        held: int = 0,
    ) -> dict[str, object]:
        """Ask every task; ``held`` tokens of each prompt were not computed."""
        right, tokens = [], []
        began = time.perf_counter()
        for task in tasks:
            asked = ask(task)
            text, _ = asked.answer(ANSWER_TOKENS)
            right.append(task.is_right(text))
            tokens.append(len(asked.ids) - held)
        seconds = time.perf_counter() - began
        return {
            "type": "choosing-row",
            "task": name,
            "way": way,
            "questions": len(tasks),
            "right": sum(right),
            "rights": right,
            "prepare_s": prepare_s,
            "answers_s": seconds,
            "answer_s": seconds / len(tasks),
            "tokens": tokens,
        }

    def _alone(self, task: Task) -> Asked:
        messages = ({"role": "user", "content": task.text},)
        return ask_messages(self.library.session, self.library.tokenizer, messages)

    def _deposited(self, name: str, graft: str | list[Pair]) -> Verified:
        lib = self.library
        messages = (
            [{"role": "user", "content": graft}, {"role": "assistant", "content": "Understood."}]
            if isinstance(graft, str)
            else [
                {"role": role, "content": text}
                for pair in graft
                for role, text in zip(("user", "assistant"), pair, strict=True)
            ]
        )
        (lib.settings.cwd / "block.json").write_bytes(canon.encode(messages))
        made = deposit(lib.store, lib.settings, DepositRequest(name, chat=Path("block.json")))
        return verify_artifact(lib.store, made.digest)

    def _tuned(self, name: str, pairs: Sequence[Pair]) -> Callable[[Task], Asked]:
        """How the model with an adapter trained on ``pairs`` is asked."""
        lib, folder = self.library, self.library.settings.cwd / f"adapter-{name}"
        train(self.model, pairs, self.steps, folder)
        request = ModelAddRequest(f"lora-{name}", self.model, adapter=folder)
        model_add(lib.store, lib.settings, request)
        model = registered_model(lib.store, f"lora-{name}")
        files = identified(lib.store, lib.settings, model)
        session = open_registered(lib.settings, model, files, reference="invariant")

        def ask(task: Task) -> Asked:
            return ask_messages(session, lib.tokenizer, ({"role": "user", "content": task.text},))

        return ask


def records(library: Library, asked: argparse.Namespace) -> Iterator[dict[str, object]]:
    bench, most = Bench(library, asked.model.absolute(), asked.steps), asked.questions
    window = library.session.model.window - 256
    for name, count in (("handbook", HANDBOOK), ("archive", ARCHIVE)):
        known = facts(count, count)
        sentences = [sentence for sentence, _ in known]
        text = "\n".join(sentences)
        fitting = text[: library.tokenizer.prefix(text, window)]
        pairs = [(task.text, task.answer) for _, task in known]
        chosen = [task for _, task in random.Random(1).sample(known, most)]
        yield from bench.rows(name, chosen, fitting, pairs, sentences, 3)
    blocks, tasks = read_tasks(library.settings, ROOT / "bench/tasks/words.jsonl")
    family = next(block for block in blocks if block.name == "plurals")
    own = [task for task in tasks if task.family == family.family][:most]
    shots = list(family.shots)
    yield from bench.rows("skill", own, shots, shots, [f"{q}\n{a}" for q, a in shots], 5)


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows of a result file as a table of a page: a line for each task and way."""
    lines = [
        "| task | way | right | once, s | an answer, s | tokens computed for an answer |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        if row["type"] == "choosing-row":
            tokens = sorted(row["tokens"])
            lines.append(
                f"| {row['task']} | {row['way']} | {row['right']} of {row['questions']} "
                f"| {row['prepare_s']:.1f} | {row['answer_s']:.2f} "
                f"| {tokens[len(tokens) // 2]:,} |"
            )
    return "".join(f"{line}\n" for line in lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, help="model folder; with --fill the result file")
    parser.add_argument("--questions", type=int, default=20)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--fill", type=Path, metavar="PAGE")
    asked = parser.parse_args()
    if asked.fill is not None:
        rows = [json.loads(line) for line in asked.model.read_text("utf-8").splitlines()]
        asked.fill.write_text(
            filled(asked.fill.read_text("utf-8"), "choosing", table(rows)), "utf-8"
        )
        return 0
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        store, settings = store_in(place, asked.model)
        with open_library(store, settings, "model", ()) as library:
            print(json_line(setup_of("choosing", library.model, library.session)), flush=True)
            for row in records(library, asked):
                print(json.dumps(row), flush=True)
                print(
                    f"{row['task']:<9} {row['way']:<6} "
                    f"{row['right']:>3} of {row['questions']} right  "
                    f"prepare {row['prepare_s']:8.1f} s  an answer {row['answer_s']:6.2f} s",
                    file=sys.stderr,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
