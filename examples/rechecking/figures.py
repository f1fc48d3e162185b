"""For each benchmark: every figure that follows from its rows, recounted."""

from __future__ import annotations

import hashlib
import math
from collections import Counter, defaultdict

from rechecking.rows import Row, Rows, Table, expect, median, need, same, slope_of
from rechecking.shapes import VERSION

NORMAL_95 = 1.96
"""As bench/accuracy.py has it."""

EXACT_95 = 1.959964
"""As kvg bench context has it."""


def check_exactness(table: Table) -> None:
    runs, what = table.of("exactness-run"), table.what
    table.grid(runs, "sample", "length", "threads", "batch", "split")
    inputs = defaultdict(set)
    for run in runs:
        told = (run["logits"], run["state"])
        equal = told == (run["expected_logits"], run["expected_state"])
        expect(run, what, equal=equal)
        seen = (run["input"], run["expected_logits"], run["expected_state"])
        inputs[run["sample"], run["length"]].add(seen)
    for place, seen in inputs.items():
        need(len(seen) == 1, f"{what}: sample {place} has several inputs or expected outputs")
    need(len({s[0] for seen in inputs.values() for s in seen}) == len(inputs), f"{what}: an input "
         "that serves two samples")  # fmt: skip
    rows = table.of("exactness-row")
    table.grid(rows, "length", "split")
    need({(r["length"], r["split"]) for r in rows} == {(r["length"], r["split"]) for r in runs},
         f"{what}: rows of other runs")  # fmt: skip
    for row in rows:
        mine = table.of("exactness-run", length=row["length"], split=row["split"])
        expect(row, what, runs=len(mine), equal=sum(r["equal"] for r in mine))
    expect(table.one("exactness-summary"), what, samples=len({r["sample"] for r in runs}),
           runs=len(runs), equal=sum(r["equal"] for r in runs))  # fmt: skip


def check_lengths(table: Table) -> None:
    what, rows, setup = table.what, table.of("length"), table.one("lengths-setup")
    need([r["length"] for r in rows] == list(range(setup["first"], setup["last"] + 1)),
         f"{what}: not every length")  # fmt: skip
    need(len({r["manifest"] for r in rows}) == len(rows), f"{what}: a manifest twice")
    wrong = 0
    for row in rows:
        n = row["length"]
        expect(row, what, cut=1 + setup["stride"] * n % (n - 1) if n > 1 else None)
        need((row["cut"] is None) == (row["cut_exact"] is None), f"{what}: {n}: a cut, or none")
        # 256 tokens a page: one layer keeps all, the other what its window reaches from the end
        # and from the cut
        ends, reach = {n, row["cut"] or n}, setup["window"]
        kept = {at // 256 for end in ends for at in range(max(0, end - reach), end)}
        expect(row, what, pages=-(-n // 256) + len(kept))
        need(row["replays"] > 0, f"{what}: {n}: no replay")
        same_pages = row["pages_equal"] == row["pages"]
        same_replays = row["replays_equal"] == row["replays"]
        exact = row["exact"] and row["cut_exact"] is not False
        wrong += not (exact and same_pages and same_replays)
    cuts = sum(r["cut"] is not None for r in rows)
    expect(table.one("lengths-summary"), what, lengths=len(rows), cuts=cuts, wrong=wrong)


def check_moved(table: Table) -> None:
    what, own = table.what, table.of("logits-moved", offset=0)
    need(len(own) == 1 and own[0]["arithmetic"] == "none", f"{what}: not one own position")
    for row in table.of("logits-moved"):
        equal = row["fresh"] == row["grafted"]
        expect(row, what, equal=equal)
        zero = row["kl"] == 0 and row["max_abs_diff"] == 0 and row["max_ulp"] == 0
        need(zero and row["argmax_equal"] if equal else row["max_ulp"] > 0,
             f"{what}: offset {row['offset']}: digests and distances disagree")  # fmt: skip
    sizes = {row["elements"] for row in table.of("keys-moved")}
    need(len(sizes) == 1, f"{what}: keys of several sizes")
    for row in table.of("keys-moved"):
        expect(row, what, equal=row["fresh"] == row["moved"])
        need(row["elements_equal"] <= row["elements"], f"{what}: elements_equal")
        whole = row["elements_equal"] == row["elements"]
        need(row["equal"] is whole is (row["max_ulp"] == 0), f"{what}: equal, or how many are")
        need(row["first_layer_equal"] or not whole, f"{what}: first_layer_equal")
    kinds = [row["arithmetic"] for row in table.of("own-position-summary")]
    moved = [row for row in table.of("logits-moved") if row["offset"]]
    for rows in (moved, table.of("keys-moved")):
        table.grid(rows, "arithmetic", "offset")
        need({row["arithmetic"] for row in rows} == set(kinds), f"{what}: other arithmetics")
    need(len(set(kinds)) == len(kinds), f"{what}: a summary twice")
    for row in table.of("own-position-summary"):
        keys = table.of("keys-moved", arithmetic=row["arithmetic"])
        logits = table.of("logits-moved", arithmetic=row["arithmetic"])
        at = [r["offset"] for r in logits]
        need(at == [1 << n for n in range(len(at))], f"{what}: offsets of logits")
        at = [r["offset"] for r in keys]
        step = at[1] - at[0] if len(at) > 1 else 1
        need(at == [1 + n * step for n in range(len(at))], f"{what}: offsets of keys")
        expect(
            row,
            f"{what}: {row['arithmetic']}",
            own_exact=all(r["equal"] for r in own),
            key_offsets=len(keys),
            keys_equal=[r["offset"] for r in keys if r["equal"]],
            first_layer_equal=[r["offset"] for r in keys if r["first_layer_equal"]],
            elements_equal=sum(r["elements_equal"] for r in keys)
            / sum(r["elements"] for r in keys),
            keys_max_ulp=max(r["max_ulp"] for r in keys),
            logits_offsets=len(logits),
            logits_equal=[r["offset"] for r in logits if r["equal"]],
            kl_max=max(r["kl"] for r in logits),
            logits_max_ulp=max(r["max_ulp"] for r in logits),
        )


def check_accuracy(table: Table) -> None:
    """The error of each model and dtype, pooled, and the ratio of the two with its interval."""
    rows, what = table.of("accuracy-row"), table.what
    table.grid(rows, "model", "dtype")
    texts = table.of("accuracy")
    table.grid(texts, "model", "dtype", "execution", "sample")
    need({row["execution"] for row in texts} == {"sdpa", "invariant"}, f"{what}: executions")
    need({(r["model"], r["dtype"]) for r in texts} == {(r["model"], r["dtype"]) for r in rows},
         f"{what}: rows of other texts")  # fmt: skip
    need(len({row["tokens"] for row in texts}) == 1, f"{what}: texts of several lengths")
    for row in texts:
        hits = row["argmax_rate"] * row["tokens"]
        need(hits == round(hits) <= row["tokens"], f"{what}: argmax_rate")
        need(row["rms"] <= row["largest"], f"{what}: an error on average above the largest")
    for row in rows:
        own = table.of("accuracy", model=row["model"], dtype=row["dtype"])
        by = {e: {r["sample"]: r for r in own if r["execution"] == e}
              for e in ("sdpa", "invariant")}  # fmt: skip
        inputs = {e: {n: r["input"] for n, r in mine.items()} for e, mine in by.items()}
        need(inputs["sdpa"] == inputs["invariant"], f"{what}: other inputs")
        logs = [math.log(by["invariant"][n]["rms"] / r["rms"]) for n, r in by["sdpa"].items()]
        middle = sum(logs) / len(logs)
        spread = math.sqrt(sum((x - middle) ** 2 for x in logs) / (len(logs) - 1))
        reach = NORMAL_95 * spread / math.sqrt(len(logs))
        pooled = {
            f"rms_{e}": math.sqrt(sum(r["rms"] ** 2 for r in mine.values()) / len(mine))
            for e, mine in by.items()
        }
        expect(row, what, texts=len(logs), ratio=math.exp(middle), **pooled,
               ratio_low=math.exp(middle - reach), ratio_high=math.exp(middle + reach))  # fmt: skip


def check_speed(table: Table) -> None:
    for row in table.of("speed-row"):
        pairs = row["pairs_ms"]
        ratios = sorted(b / a for a, b in pairs)
        expect(
            row,
            table.what,
            repeats=len(pairs),
            stock_ms=median([a for a, _ in pairs]),
            invariant_ms=median([b for _, b in pairs]),
            ratio=median(ratios),
            ratio_low=ratios[len(ratios) // 4],
            ratio_high=ratios[-1 - len(ratios) // 4],
        )
        spent = row.get("pairs_cpu_ms")
        need((spent is None) is (row.get("ratio_cpu") is None), f"{table.what}: ratio_cpu of what?")
        if spent is not None:
            need(len(spent) == len(pairs), f"{table.what}: number of pairs")
            expect(row, table.what, ratio_cpu=median([b / a for a, b in spent]))


def check_prefill(table: Table) -> None:
    what, operators = table.what, table.of("prefill-operator")
    places = {(row["execution"], row["operator"]) for row in operators}
    need(len(places) == len(operators), f"{what}: an operator twice")
    table.grid(table.of("prefill-call"), "form", "keys")
    need({r["execution"] for r in operators} == {"invariant", "stock"}, f"{what}: executions")
    for row in operators:
        whole = table.of("prefill-sum", execution=row["execution"])
        need(len(whole) == 1, f"{what}: not one sum for each execution")
        expect(row, what, share=row["seconds"] / whole[0]["seconds"])
    for row in table.of("prefill-call"):
        expect(row, what, best_ms=min(row["runs_ms"]), median_ms=median(row["runs_ms"]))


def check_select(table: Table) -> None:
    what, batches = table.what, table.of("select-batch")
    first = 0
    for batch in batches:
        expect(batch, what, first=first)
        need(max(batch["present"], batch["wrong"]) <= batch["count"], f"{what}: a batch")
        first += batch["count"]
    present = sum(b["present"] for b in batches)
    expect(table.one("select-summary"), what, lookups=first, present=present,
           absent=first - present, wrong=sum(b["wrong"] for b in batches))  # fmt: skip
    wholes = {name: [r["median_us"] for r in table.of("select-time") if r["what"] == name]
              for name in (SOLVE_STEPS[0], COLD_STEPS[0])}  # fmt: skip
    need(all(len(found) <= 1 for found in wholes.values()), f"{what}: several whole solves")
    if all(row["what"] != COLD_STEPS[-1] for row in table.of("select-time")):
        del wholes[COLD_STEPS[0]]  # of a run that did not tell the steps of the command
    for row in table.of("select-time"):
        times = [ns for ns, count in row["times_ns"] for _ in range(count)]
        need(times == sorted(times), f"{what}: times are not in order")
        steps = next((s for s in (SOLVE_STEPS, COLD_STEPS) if row["what"] in s), ("",))
        whole = wholes.get(steps[0], [])
        expect(row, what, runs=len(times), median_us=median(times) / 1e3,
               p99_us=times[min(len(times) - 1, len(times) * 99 // 100)] / 1e3,
               share=row["median_us"] / whole[0] if whole else None)  # fmt: skip


SOLVE_STEPS = ("solve, warm process", "canonicalise", "look up", "verify", "run")
COLD_STEPS = ("kvg solve, cold", "interpreter start", "beyond interpreter start",
              *(f"cold: {name}" for name in SOLVE_STEPS[1:]))  # fmt: skip


def check_similarity(table: Table) -> None:
    for row in table.of("select-row"):
        counts = Counter(row["outcomes"])
        need(set(counts) <= set("rnwm"), f"{table.what}: an outcome that is none of r n w m")
        n = counts.total()
        expect(row, f"{table.what}: {row['selector']}", lookups=n, wrong=counts["w"],
               missed=counts["m"], wrong_rate=counts["w"] / n)  # fmt: skip


def check_acceptance(table: Table) -> None:
    runs, what = table.of("acceptance-run"), table.what
    table.numbered(runs, "task")
    for run in runs:
        taken = (run["artifact"], run["said"], run["matches"])
        need(all(x is not None for x in taken) if run["accepted"] else taken[0] is taken[2] is None,
             f"{what}: task {run['task']}: accepted, or not?")  # fmt: skip
        need(run["accepted"] is (run["reason"] is None), f"{what}: task {run['task']}: reason")
    expect(table.one("acceptance-summary"), what, asked=len(runs),
           accepted=sum(r["accepted"] for r in runs),
           matching=sum(r["matches"] is True for r in runs))  # fmt: skip


def check_said(rows: Rows, what: str) -> None:
    for row in rows:
        expect(row, what, output="sha256:" + hashlib.sha256(row["said"].encode()).hexdigest())


def check_capability(table: Table) -> None:
    ways = {way: table.of("capability-run", way=way) for way in ("alone", "grafted")}
    runs, what, found = table.of("capability-run"), table.what, dict[str, object]()
    check_said(runs, what)
    need(len(runs) == sum(map(len, ways.values())), f"{what}: another way")
    for way, mine in ways.items():
        table.numbered(mine, "task")
        need(way == "grafted" or all(r["block"] is None for r in mine), f"{what}: a block alone")
        found[f"right_{way}"] = sum(r["right"] for r in mine)
        found[f"tokens_{way}"] = sum(r["tokens"] for r in mine)
    need([r["input"] for r in ways["alone"]] == [r["input"] for r in ways["grafted"]],
         f"{what}: the two ways had other tasks")  # fmt: skip
    row = table.one("capability-summary")
    expect(row, what, tasks=len(ways["alone"]), **found, weights_after=row["weights_before"],
           routed=sum(r["block"] is not None for r in ways["grafted"]))  # fmt: skip


def check_recurring(table: Table) -> None:
    runs, what = table.of("recurring-run"), table.what
    table.numbered(runs, "problem")
    check_said(runs, what)
    row = table.one("recurring-summary")
    need(max(r["tokens_alone"] for r in runs) <= row["budget"], f"{what}: over the budget")
    names = ("solved_alone", "right_grafted", "tokens_alone", "tokens_grafted",
             "cpu_s_alone", "cpu_s_deposit", "cpu_s_grafted")  # fmt: skip
    sums = {name: sum(r[name] for r in runs) for name in names}
    factor = sums["tokens_alone"] / sums["tokens_grafted"]
    expect(row, what, problems=len(runs), factor=factor, **sums)


def check_families(table: Table) -> None:
    rows, what = table.of("families-answer"), table.what
    table.grid(rows, "name", "number")
    of_name = {(row["name"], row["family"]) for row in rows}
    names = {row["name"] for row in rows}
    need(len(of_name) == len(names) == len({family for _, family in of_name}), f"{what}: families")
    need(len({row["text"] for row in rows}) == len(rows), f"{what}: a problem twice")
    for row in rows:
        is_hit = row["status"] == "HIT"
        need(is_hit is (row["method"] is not None), f"{what}: an answer without a method")
        expect(row, what, right=is_hit and row["answer"] == row["oracle"])
    expect(table.one("families-summary"), what, instances=len(rows),
           right=sum(r["right"] for r in rows),
           tokens_generated=sum(r["tokens_generated"] for r in rows),
           hits_of_empty_store=sum(r["empty_store"] == "HIT" for r in rows))  # fmt: skip


def check_prereg(table: Table) -> None:
    what, classes = table.what, table.of("class")
    names = [row["class"] for row in classes]
    need(len(set(names)) == len(names), f"{what}: a class twice")
    for kind in ("prereg-sample", "prereg-summary", "own", "foreign"):
        need({row["class"] for row in table.of(kind)} == set(names), f"{what}: {kind}: of others")
    for row in classes:
        check_class(table, row)
    for row in table.of("foreign"):
        need(row["prereg_of"] in names and row["prereg_of"] != row["class"], f"{what}: foreign")
    table.grid(table.of("foreign"), "class")
    for kind, code in (("own", 0), ("foreign", 7)):
        for row in table.of(kind):
            expect(row, what, exit=code)


def check_class(table: Table, row: Row) -> None:
    """One class of machines: what was promised, and what its replay gave."""
    what, said = f"{table.what}: {row['class']}", row["prereg"]
    need(said.keys() == {"type", VERSION, "digest", "artifacts", "samples", "log_index", "time"},
         f"{what}: prereg: other fields")  # fmt: skip
    need(said["type"] == "preregistration" and said[VERSION] == 1, f"{what}: prereg: its kind")
    (promised,) = said["artifacts"]
    need(promised.keys() == {"manifest", "model", "architecture", "dtype", "engine", "reference",
                             "tokens", "count", "pages", "prompts", "logits"},
         f"{what}: prereg: artifact: other fields")  # fmt: skip
    expect(row, what, tokens=promised["count"], manifest=promised["manifest"])
    samples = table.of("prereg-sample", **{"class": row["class"]})
    for sample in samples:
        digests = {sample["expected"], sample["grafted"], sample["fresh"]}
        expect(sample, what, equal=len(digests) == 1, manifest=row["manifest"])
    told = [(s["prompt_digest"], s["expected"]) for s in samples]
    need(told == list(zip(promised["prompts"], promised["logits"], strict=True)),
         f"{what}: samples of other prompts or logits")  # fmt: skip
    same(said["samples"], len(samples), f"{what}: prereg: samples")
    (end,) = table.of("prereg-summary", **{"class": row["class"]})
    n_pages = len(promised["pages"])
    expect(end, what, digest=said["digest"], log_index=said["log_index"], samples=len(samples),
           equal=sum(s["equal"] for s in samples), pages=n_pages, pages_equal=n_pages)  # fmt: skip


def check_fuzz(table: Table) -> None:
    names = [row["decoder"] for row in table.of("fuzz")]
    need(len(set(names)) == len(names), f"{table.what}: a decoder twice")
    for row in table.of("fuzz"):
        expect(row, table.what, failures=0)
        need(row["accepted"] <= row["executions"], f"{table.what}: accepted")


def check_guided(table: Table) -> None:
    runs, kept, what = table.of("fuzz-guided"), table.of("fuzz-corpus"), table.what
    table.grid(runs, "decoder", "way")
    need(sorted({r["decoder"] for r in runs}) == sorted(r["decoder"] for r in kept),
         f"{what}: a corpus of another decoder, or one twice")  # fmt: skip
    for row in runs:
        expect(row, what, failures=0)
        need(row["accepted"] <= row["executions"], f"{what}: accepted")
    for row in kept:
        need(row["lines"] >= row["lines_good"], f"{what}: a corpus that reaches less than nothing")
        need((row["files"] == 0) is (row["bytes"] == 0), f"{what}: files without bytes")


def check_stress(table: Table) -> None:
    expect(table.one("stress"), table.what, lost=0, wrong=0)


def check_crash(table: Table) -> None:
    struck, lost, what = table.of("crash"), table.of("power-loss"), table.what
    kinds = Counter[str]()
    seen: set[tuple[str, str]] = set()
    for row in struck:
        expect(row, what, points=sum(row["kinds"].values()))
        need(row["states"] <= row["points"], f"{what}: {row['verb']}: more states than faults")
        need(all(n <= row["steps"] for n in row["kinds"].values()),
             f"{what}: {row['verb']}: a fault at no step")  # fmt: skip
        need(seen.isdisjoint((row["verb"], kind) for kind in row["kinds"]),
             f"{what}: {row['verb']}: a kind of fault in two rows")  # fmt: skip
        seen.update((row["verb"], kind) for kind in row["kinds"])
        kinds.update(row["kinds"])
    table.grid(lost, "verb")
    for row in lost:
        need(row["tried"] <= row["states"], f"{what}: {row['verb']}: tried on more than there are")
    row = table.one("crash-summary")
    need(dict(kinds) == row["kinds"], f"{what}: kinds of faults")
    expect(row, what, verbs=len({r["verb"] for r in struck}), points=sum(kinds.values()),
           power_verbs=len(lost), power_states=sum(r["states"] for r in lost),
           power_tried=sum(r["tried"] for r in lost))  # fmt: skip


def check_store(table: Table) -> None:
    what = table.what
    for row in table.of("verify"):
        best = min(row["runs"], key=lambda run: run["seconds"])
        rate, most = row["bytes"] / best["seconds"] / 1e9, max(row["sha256_runs_gb_per_s"])
        expect(row, what, **best, gb_per_s=round(rate, 3), sha256_all_cores_gb_per_s=most,
               ratio=round(rate / most, 3))  # fmt: skip
        start = min(row["start_runs"])
        rate = row["bytes"] / (best["seconds"] - start) / 1e9
        expect(row, what, start_seconds=start, ratio_without_start=round(rate / most, 3))
    table.grid(table.of("growth"), "command", "artifacts")


WAYS = sorted(["kvg, raw", "kvg, planes", "transformers, safetensors", "transformers, torch.save",
               "llama.cpp"])  # fmt: skip


def check_restore(table: Table) -> None:
    what, rows = table.what, table.of("restore-row")
    table.grid(rows, "tokens", "form", "cache")
    for row in rows:
        runs = sorted(row["runs_ms"], key=lambda run: run[2])
        verify, restore, first = runs[(len(runs) - 1) // 2]
        expect(row, what, repeats=len(runs), verify_ms=verify, restore_ms=restore,
               token_ms=first - verify - restore, first_token_ms=first,
               factor=row["prefill_ms"] / first)  # fmt: skip
    for row in table.of("restore-stage"):
        walls, spent = (list(part) for part in zip(*row["runs_ms"], strict=True))
        having = {name: row[name] for name in ("tokens", "form", "threads")}
        alone = [r["ms"] for r in table.of("restore-stage", **having)
                 if r["stage"] not in ("restore", "unverified")]  # fmt: skip
        share = max(alone) / row["ms"] if row["stage"] == "restore" else None
        expect(row, what, repeats=len(walls), ms=min(walls), cpu_ms=min(spent), share=share)
    pairs = {(r["form"], r["threads"]) for r in table.of("restore-stage")}
    forms = {r["form"] for r in rows}
    need({form for form, _ in pairs} == forms, f"{what}: stages of other forms than the grafts")
    for form, threads in pairs:
        of = {"form": form, "threads": threads}
        names = [r["stage"] for r in table.of("restore-stage", **of)]
        need(len(names) == len(set(names)), f"{what}: a stage twice")
        need({"read", "hash", "copy", "restore"} <= set(names), f"{what}: a stage is missing")
        is_straight = "unverified" in names
        need(
            len(table.of("restore-verified", **of)) == is_straight, f"{what}: verified, unverified"
        )
        parts = table.of("restore-part", form=form)
        need(bool(parts) == is_straight, f"{what}: the parts of a restore")
    ways = [r["way"] for kind in ("restore-other", "restore-skipped") for r in table.of(kind)]
    need(sorted(ways) == WAYS, f"{what}: other ways to keep a state than there are")
    for row in table.of("restore-other"):
        loads, wholes = (list(part) for part in zip(*row["runs_ms"], strict=True))
        expect(row, what, repeats=len(wholes), load_ms=median(loads), first_token_ms=median(wholes))
    for row in table.of("restore-verified"):
        having = {name: row[name] for name in ("tokens", "form", "threads")}
        both = {r["stage"]: r["ms"] for r in table.of("restore-stage", **having)}
        need({"restore", "unverified"} <= both.keys(), f"{what}: a stage is missing")
        expect(row, what, verified_ms=both["restore"], unverified_ms=both["unverified"],
               cost=both["restore"] / both["unverified"] - 1)  # fmt: skip
    for row in table.of("restore-part"):
        having = {name: row[name] for name in ("tokens", "form")}
        parts = {r["part"]: r["ms"] for r in table.of("restore-part", **having)}
        need(len(parts) == len(table.of("restore-part", **having)), f"{what}: a part twice")
        total = sum(ms for part, ms in parts.items() if part != "total")
        if row["part"] == "total":
            expect(row, what, ms=total)
        expect(row, what, share=row["ms"] / total)
    row = table.one("restore-summary")
    longest = max(r["tokens"] for r in rows)
    of = {(r["form"], r["cache"]): r["factor"] for r in rows if r["tokens"] == longest}
    expect(row, what, tokens=longest, factor_raw=of["raw", "warm"],
           factor_planes=of["planes", "warm"], factor_raw_kept=of["raw", "kept"],
           factor_planes_kept=of["planes", "kept"],
           exact=all(r["exact"] for r in rows))  # fmt: skip


def check_stored(table: Table) -> None:
    what = table.what
    row = table.one("store-deposit")
    runs = sorted(row["runs_ms"], key=lambda run: run[1] / run[0])
    prefill, store = runs[(len(runs) - 1) // 2]
    expect(row, what, repeats=len(runs), prefill_ms=prefill, store_ms=store,
           overhead=store / prefill)  # fmt: skip
    table.grid(table.of("store-row"), "form")
    for row in table.of("store-row"):
        verify, alone = (min(part) for part in zip(*row["runs_ms"], strict=True))
        expect(row, what, repeats=len(row["runs_ms"]), verify_ms=verify, sha256_ms=alone,
               share=alone / verify)  # fmt: skip


def check_energy(table: Table) -> None:
    for row in table.of("energy-row"):
        wall, cpu = (sum(part) / 1e3 for part in zip(*row["runs_ms"], strict=True))
        runs = len(row["runs_ms"])
        expect(row, table.what, runs=runs, seconds=wall / runs, cpu_seconds=cpu / runs)
        need((row["joules"] is None) is (row["counter"] is None), f"{table.what}: joules of what?")
        need(row["tokens_computed"] <= row["tokens"], f"{table.what}: tokens_computed")


def check_choosing(table: Table) -> None:
    rows, what = table.of("choosing-row"), table.what
    table.grid(rows, "task", "way")
    for row in rows:
        n = len(row["rights"])
        need(len(row["tokens"]) == n, f"{what}: an answer without its tokens")
        expect(row, what, questions=n, right=sum(row["rights"]), answer_s=row["answers_s"] / n)


def check_asking(table: Table) -> None:
    rows, what = table.of("asking-row"), table.what
    table.numbered(rows, "number")
    table.grid(rows, "question")
    most = table.one("asking-summary")["blocks"]
    for row in rows:
        need(not row["found"] or 1 <= (row["rank"] or 0) <= most, f"{what}: found, and not tried")
    names = ("found", "cited", "right", "right_alone", "equal")
    expect(table.one("asking-summary"), what, questions=len(rows),
           **{name: sum(row[name] for row in rows) for name in names})  # fmt: skip


def check_session(table: Table) -> None:
    what, row = table.what, table.one("session-start")
    found: dict[str, Row] = {}
    for name in ("typer", "graft", "first_token"):
        runs = row[f"{name}_runs_ms"]
        found[f"{name}_ms"] = {"least": min(runs), "median": median(runs)}
        same(row["runs"], len(runs), f"{what}: runs")
    graft, typer = found["graft_ms"], found["typer_ms"]
    found["ratio"] = {name: graft[name] / typer[name] for name in typer}
    for name, values in found.items():
        need(row[name].keys() == values.keys(), f"{what}: {name}: fields")
        for key, value in values.items():
            same(row[name][key], value, f"{what}: {name}: {key}")
    row = table.one("session-deposit")
    need(all(len(run) == 4 for run in row["runs_ms"]), f"{what}: runs_ms: not four of each")
    wall = [run[1] / run[0] - 1 for run in row["runs_ms"]]
    cpu = [run[3] / run[2] - 1 for run in row["runs_ms"]]
    columns = [median(column) for column in zip(*row["runs_ms"], strict=True)]
    expect(row, what, repeats=len(row["runs_ms"]), prefill_ms=columns[0], deposit_ms=columns[1],
           overhead=median(wall), overhead_cpu=median(cpu))  # fmt: skip


def check_abreast(table: Table) -> None:
    row, what = table.one("context-abreast"), table.what
    for name, found in (("ratio", ""), ("ratio_cpu", "cpu_")):
        pairs = zip(row[f"abreast_{found}s"], row[f"alone_{found}s"], strict=True)
        expect(row, what, rounds=len(row["alone_s"]), **{name: median([a / b for a, b in pairs])})


def check_context(table: Table) -> None:
    runs, what = table.of("context-access"), table.what
    table.numbered(runs, "number")
    times = sorted(r["first_token_ms"] for r in runs)
    again = [r for r in runs if r["replayed"] is not None]
    slope, error = slope_of([r["offset"] / 1e6 for r in runs], [r["first_token_ms"] for r in runs])
    memory = [r["memory_bytes"] for r in runs]
    row = table.one("context-bench-summary")
    for made in table.of("context-made"):
        expect(made, what, **{name: row[name] for name in ("context", "blocks", "tokens")})
        expect(made, what, computed=made["blocks"] - made["kept"])
    need(all(1 <= r["block"] <= row["blocks"] and r["offset"] < row["tokens"] for r in runs),
         f"{what}: an access outside of the context")  # fmt: skip
    expect(
        row,
        what,
        accesses=len(runs),
        median_ms=median(times),
        p99_ms=times[min(len(times) - 1, len(times) * 99 // 100)],
        slope_ms=slope,
        slope_low=slope - EXACT_95 * error,
        slope_high=slope + EXACT_95 * error,
        growth_bytes=max(memory) - memory[0],
        replayed=len(again),
        equal=sum(r["logits"] == r["replayed"] for r in again),
    )
