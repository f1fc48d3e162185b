"""A context of many windows: made of a corpus, then moved over by chance.

    python bench/context.py MODEL [--tokens 712704] [--accesses 200] [--folder DIR] > context.jsonl
    python bench/context.py --papers [--blocks 88] [--accesses 200] > context-papers.jsonl

The first form takes files of Python's standard library, by name, until they hold ``--tokens``
tokens (87 windows of 8,192), and runs ``kvg context create`` and ``kvg bench context`` over them.
With ``--folder`` the store stays in DIR, and a run that was stopped goes on there.
``--papers`` is the geometry of the published work, 2,854,766 tokens in 88 blocks under a window of
32,768, on a tiny random model whose tokens are bytes. What the model says is of no interest there:
time against depth, memory and exactness are.

One JSON record a line: what ``kvg bench context`` was measured on, what was made (with its bytes
raw and stored), every access, the summary. Progress and a table on standard error; ``--plot FILE``
draws time and memory.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = [sys.executable, "-c", "from kvg.cli.main import run; run()"]
WINDOW, BLOCKS, TOKENS = 32_768, 88, 2_854_766
"""The published geometry."""
MARGIN = 1.005
"""Tokens that are taken beyond those wanted: a file is counted alone, a block as a whole."""


def kvg(folder: Path, *words: str) -> list[dict[str, object]]:
    """The records of one command, which works in ``folder`` and has its home there."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "kernels")])
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("KVG_", "XDG_"))}
    done = subprocess.run(
        [*PROGRAM, *words, "--json"],
        cwd=folder,
        env={**kept, "HOME": str(folder), "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def sources() -> Iterator[tuple[str, str]]:
    """The standard library's own sources by name, as text; its tests and packages left out."""
    top = Path(sysconfig.get_path("stdlib"))
    for path in sorted(top.rglob("*.py")):
        name = path.relative_to(top)
        if {"site-packages", "dist-packages", "test", "tests", "__pycache__"} & set(name.parts):
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except (UnicodeDecodeError, OSError):
            continue
        if text:
            yield name.as_posix(), text


def write_library(folder: Path, model: Path, n_tokens: int) -> None:
    """Files of the standard library in ``folder`` that hold ``n_tokens`` tokens or a few more."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(model), local_files_only=True)
    held = 0
    for name, text in sources():
        if held >= MARGIN * n_tokens:
            return
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        held += len(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
    raise SystemExit(f"the standard library has {held} tokens, not {n_tokens}")


def lengths_of(n_blocks: int) -> list[int]:
    """Tokens of each of the first ``n_blocks`` blocks of the published geometry."""
    return [TOKENS // BLOCKS + (number < TOKENS % BLOCKS) for number in range(n_blocks)]


def write_bytes(folder: Path, lengths: list[int]) -> None:
    """Files of ASCII text of these lengths, each that of one block."""
    folder.mkdir()
    text = "".join(text for _, text in sources() if text.isascii())
    if sum(lengths) > len(text):
        raise SystemExit("the standard library is too short")
    at = 0
    for number, length in enumerate(lengths):
        (folder / f"{number:02}.txt").write_text(text[at : at + length], encoding="ascii")
        at += length


def write_model(folder: Path) -> None:
    """A random model of one layer whose tokens are bytes, with the published window."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: number for number, letter in enumerate(alphabet)}
    raw = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=raw).save_pretrained(folder)
    torch.manual_seed(88)
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=WINDOW,
        bos_token_id=None,
        eos_token_id=None,
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)


def measure(place: Path, model: Path, words: list[str], asked: argparse.Namespace) -> int:
    """Make the context, move over it, print the records; the exit code."""
    if not (place / ".kvg").is_dir():
        kvg(place, "init")
        kvg(place, "model", "add", "model", str(model))
    made = kvg(place, "context", "create", "corpus", "corpus", *words)[-1]
    bench = ["bench", "context", "corpus", "--accesses", str(asked.accesses)]
    if asked.plot is not None:
        bench += ["--plot", str(asked.plot.absolute())]
    setup, *rest = kvg(place, *bench)
    for record in (setup, made, *rest):
        print(json.dumps(record))
    summary = rest[-1]
    mib = float(str(made["bytes_raw"])) / 2**20, float(str(made["bytes_stored"])) / 2**20
    print(
        f"{summary['blocks']} blocks, {summary['tokens']} tokens, "
        f"{summary['windows']:.1f} windows; "
        f"{mib[0]:.0f} MiB raw, {mib[1]:.0f} MiB stored; median {summary['median_ms']:.1f} ms; "
        f"slope [{summary['slope_low']:.2f}, {summary['slope_high']:.2f}] ms for a million tokens; "
        f"memory grew by {float(str(summary['growth_bytes'])) / 2**20:.1f} MiB; "
        f"{summary['equal']} of {summary['replayed']} equal",
        file=sys.stderr,
    )
    return 0 if summary["equal"] == summary["replayed"] else 11


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, nargs="?")
    parser.add_argument("--tokens", type=int, default=87 * 8192)
    parser.add_argument("--block-tokens", type=int)
    parser.add_argument("--papers", action="store_true")
    parser.add_argument("--blocks", type=int, default=BLOCKS)
    parser.add_argument("--accesses", type=int, default=200)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--plot", type=Path)
    asked = parser.parse_args()
    if (asked.model is None) != asked.papers:
        parser.error("MODEL_FOLDER, or --papers")
    with tempfile.TemporaryDirectory() as name:
        place = Path(name) if asked.folder is None else asked.folder.absolute()
        place.mkdir(exist_ok=True)
        corpus = place / "corpus"
        if asked.papers:
            lengths = lengths_of(asked.blocks)
            model = place / "model"
            if not corpus.is_dir():
                write_model(model)
                write_bytes(corpus, lengths)
            return measure(place, model, ["--room", str(WINDOW - max(lengths))], asked)
        if not corpus.is_dir():
            write_library(corpus, asked.model, asked.tokens)
        words = ["--room", "64"]
        if asked.block_tokens is not None:
            words += ["--block-tokens", str(asked.block_tokens)]
        return measure(place, asked.model.absolute(), words, asked)


if __name__ == "__main__":
    sys.exit(main())
