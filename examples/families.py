"""Nine families of problems, answered at no generated token.

Each folder of ``families/`` has one problem, a program, a checker and the ranges of its slots. The
methods are proved and stored; then fresh instances are solved and compared with an oracle that
shares no code with program or checker; then the same is asked of an empty store. Run it with
``python examples/families.py [INSTANCES]``; ends with status 1 unless every answer is right.

``python examples/families.py --tasks [INSTANCES]`` prints the same instances with the oracle's
answers, as tasks for ``kvg bench capability``, which says how many a model gets right alone;
``--json`` has every problem, its answer and the oracle's as JSON Lines.
"""

from __future__ import annotations

import itertools
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from random import Random

from kvg.flow.method import MethodRequest, add_method
from kvg.flow.sandboxed import caller_of
from kvg.flow.settings import Settings, keyring_of
from kvg.flow.solve import HIT, solve
from kvg.problem.family import parse_problem
from kvg.problem.literals import Literal
from kvg.problem.ranges import draw, read_ranges
from kvg.store import Store
from kvg.verify.method import Verdicts

HERE = Path(__file__).resolve().parent / "families"
SEED = 20261129


def main(n_instances: int, *, is_json: bool = False) -> int:
    """Prove, solve, compare; 0 when every answer is right and the empty store has none."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        settings = make_settings(Path(folder))
        store = Store.init(Path(folder, "full"), keyring=keyring_of(settings))
        empty = Store.init(Path(folder, "empty"), keyring=keyring_of(settings))
        for family in sorted(ORACLES):
            add_method(store, settings, request_of(family))
            instances = fresh_instances(family, n_instances)
            mine = list(solve_all(store, settings, family, instances))
            for row, (text, _) in zip(mine, instances, strict=True):
                row["empty_store"] = solve(empty, settings, text).status
            rows += mine
            if is_json:
                for row in mine:
                    del row["ms"]
                    print(json.dumps(row))
            else:
                print_family(family, mine)
    right, hits = (sum(item) for item in zip(*map(counts, rows), strict=True))
    generated = sum(row["tokens_generated"] for row in rows)
    if is_json:
        found = {"instances": len(rows), "right": right, "tokens_generated": generated}
        print(json.dumps({"type": "families-summary", **found, "hits_of_empty_store": hits}))
    else:
        print(f"{'all':<22} {right:>3} of {len(rows)} right; an empty store: {hits} hits")
    return 0 if right == len(rows) and hits == generated == 0 else 1


def print_family(family: str, rows: list[dict]) -> None:
    median = statistics.median(row["ms"] for row in rows)
    print(
        f"{family:<22} {sum(row['right'] for row in rows):>3} of {len(rows)} right, "
        f"{sum(row['tokens_generated'] for row in rows)} tokens generated, median {median:.1f} ms"
    )
    for row in rows:
        if not row["right"]:
            print(f"  {row['text']}: {row['answer']}, not {row['oracle']}")


def counts(row: dict) -> tuple[int, int]:
    """Of one row: whether it is right, and whether the empty store had an answer."""
    return row["right"], row["empty_store"] == HIT


def print_tasks(n_instances: int) -> int:
    """The instances and the oracle's answers, one of each family in turn."""
    families = [
        [(family, *item) for item in fresh_instances(family, n_instances)]
        for family in sorted(ORACLES)
    ]
    for family, text, slots in itertools.chain(*zip(*families, strict=True)):
        answer = ORACLES[family](*(slot.value for slot in slots))
        print(json.dumps({"task": text.strip(), "answer": answer}))
    return 0


def make_settings(folder: Path) -> Settings:
    return Settings(cwd=folder, keys=folder / "keys", cache=folder / "cache", user_config=folder)


def request_of(family: str) -> MethodRequest:
    folder = HERE / family
    return MethodRequest(
        (folder / "problem.txt").read_text(),
        folder / "program.py",
        folder / "checker.py",
        folder / "slots.json",
    )


def fresh_instances(family: str, count: int) -> list[tuple[str, tuple[Literal, ...]]]:
    """Problems with the wording of the family and other values in its slots."""
    folder = HERE / family
    text = (folder / "problem.txt").read_text()
    problem = parse_problem(text)
    ranges = read_ranges((folder / "slots.json").read_bytes(), problem.family.types, what=family)
    random = Random(f"{SEED} {family}")
    found: dict[str, tuple[Literal, ...]] = {}
    while len(found) < count:
        slots = tuple(draw(slot, random) for slot in ranges)
        posed, rest = "", text
        for old, new in zip(problem.slots, slots, strict=True):
            before, _, rest = rest.partition(old.raw)
            posed += before + new.raw
        found[posed + rest] = slots
    return list(found.items())


def solve_all(
    store: Store, settings: Settings, name: str, instances: list[tuple[str, tuple[Literal, ...]]]
) -> Iterator[dict]:
    """A row for each problem: what is answered, what the oracle says, and the milliseconds."""
    verdicts = Verdicts()
    caller = caller_of(settings, store, no_sandbox=False, keep_ready=True)
    for number, (text, slots) in enumerate(instances):
        found = solve(store, settings, text, verdicts=verdicts, caller=caller)
        wanted = ORACLES[name](*(slot.value for slot in slots))
        microseconds = found.canonical_us + found.select_us + (found.verify_us or 0.0)
        yield {
            "type": "families-answer",
            "name": name,
            "number": number,
            "text": text.strip(),
            "family": found.family,
            "method": found.method,
            "status": found.status,
            "answer": found.answer,
            "oracle": wanted,
            "right": found.status == HIT and found.answer == wanted,
            "tokens_generated": found.tokens_generated,
            "ms": microseconds / 1e3 + (found.run_ms or 0.0),
        }
    caller.close()


def series(first, step, terms):
    total, term = 0, first
    for _ in range(terms):
        total, term = total + term, term + step
    return str(total)


def gcd_and_lcm(a, b):
    divisor = next(n for n in range(min(a, b), 0, -1) if a % n == b % n == 0)
    multiple = max(a, b)
    while multiple % a or multiple % b:
        multiple += max(a, b)
    return f"[{divisor}, {multiple}]"


def modular_power(base, exponent, modulus):
    return str(base**exponent % modulus)


def counting(chosen, books):
    return str(sum(1 for _ in itertools.combinations(range(books), chosen)))


def linear_system(one, two):
    rows = [[Fraction(value) for value in row] for row in (one, two)]
    for column in range(2):
        pivot = next((row for row in rows[column:] if row[column] != 0), None)
        if pivot is None:
            return "none"
        rows.remove(pivot)
        rows.insert(column, [value / pivot[column] for value in pivot])
        for other in (row for n, row in enumerate(rows) if n != column):
            factor = other[column]
            for n in range(3):
                other[n] -= factor * rows[column][n]
    return f"[{rows[0][2]}, {rows[1][2]}]"


def date_arithmetic(days, start):
    year, month = (
        (start.year, start.month) if start.month > 2 else (start.year - 1, start.month + 12)
    )
    number = 365 * year + year // 4 - year // 100 + year // 400 + (153 * month - 457) // 5
    number += start.day + days
    year = start.year + days // 365 + 2
    while True:
        for month in range(14, 2, -1):
            first = 365 * year + year // 4 - year // 100 + year // 400 + (153 * month - 457) // 5
            if first < number:
                real = (year, month) if month <= 12 else (year + 1, month - 12)
                return f"{real[0]:04}-{real[1]:02}-{number - first:02}"
        year -= 1


def shortest_path(start, goal, roads):
    best = [0] if start == goal else []

    def walk(place, seen, length):
        for a, b, road in roads:
            for here, there in ((a, b), (b, a)):
                if here == place and there == goal:
                    best.append(length + road)
                elif here == place and there not in seen:
                    walk(there, seen | {there}, length + road)

    walk(start, {start}, 0)
    return str(min(best, default=-1))


def string_transformation(text):
    return " ".join(word.upper() for word in text.split(" ")[::-1])


def unit_conversion(miles, factor, places):
    number = round(Fraction(miles) * Fraction(factor) * 10**places)
    digits = f"{number:0{places + 1}}"
    return f"{digits[:-places]}.{digits[-places:]}" if places else digits


ORACLES = {
    "arithmetic-series": series,
    "counting": counting,
    "date-arithmetic": date_arithmetic,
    "gcd-and-lcm": gcd_and_lcm,
    "linear-system": linear_system,
    "modular-power": modular_power,
    "shortest-path": shortest_path,
    "string-transformation": string_transformation,
    "unit-conversion": unit_conversion,
}


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    n = int(words[0]) if words else 20
    sys.exit(print_tasks(n) if "--tasks" in sys.argv else main(n, is_json="--json" in sys.argv))
