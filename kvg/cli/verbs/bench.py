"""``kvg bench``."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from kvg.cli.declare import Argument, Context, Option
from kvg.cli.invocation import invocation
from kvg.cli.values import parse_numbers
from kvg.flow.records import Record

Tasks = Annotated[Path, Option("--tasks", metavar="FILE", help="Tasks, in JSON Lines.")]
Plot = Annotated[
    Path | None, Option("--plot", metavar="FILE", help="Draw it, as .png and as .svg.")
]
Gguf = Annotated[
    Path | None, Option("--gguf", metavar="FILE", help="The same model, for llama.cpp.")
]
Model = Annotated[str | None, Option("--model", metavar="M", help="A registered model.")]


def exactness(
    ctx: Context,
    model: Model = None,
    samples: Annotated[
        int, Option("--samples", metavar="N", min=1, help="Texts of each length; 3.")
    ] = 3,
    lengths: Annotated[
        str, Option("--lengths", metavar="N,…", help="Tokens; 16,255,256,257.")
    ] = "16,255,256,257",
    threads: Annotated[
        str | None, Option("--threads", metavar="N,…", help="Compute threads; one and all.")
    ] = None,
    batch: Annotated[
        str, Option("--batch", metavar="N,…", help="Texts side by side; 1,3.")
    ] = "1,3",
    splits: Annotated[
        str,
        Option(
            "--splits",
            metavar="S,…",
            help="Of one-shot, halves, pieces, tokens and graft; all of them.",
        ),
    ] = "one-shot,halves,pieces,tokens,graft",
) -> Iterable[Record]:
    """Compute texts in every way and compare every byte.

    Samples by lengths by threads by batch by splits: the logits of the last position and all pages
    of each run against one fresh pass. With --json every input and output digest. Texts follow
    from the sample's number alone. Exit code 11 on any mismatch. The defaults take about two
    minutes for a model of 135M parameters on two cores.
    """
    from kvg.flow.bench.exactness import ExactnessRequest, bench_exactness

    run = invocation(ctx)
    request = ExactnessRequest(
        model,
        samples,
        parse_numbers(lengths, option="--lengths"),
        parse_numbers(threads, option="--threads"),
        parse_numbers(batch, option="--batch"),
        tuple(splits.split(",")),
    )
    return bench_exactness(run.store, run.settings, request)


def own_position(
    ctx: Context,
    model: Model = None,
    tokens: Annotated[
        int, Option("--tokens", metavar="N", min=2, help="Tokens of the graft; 200.")
    ] = 200,
    prompt_tokens: Annotated[
        int, Option("--prompt-tokens", metavar="N", min=1, help="Tokens after it; 16.")
    ] = 16,
    key_tokens: Annotated[
        int,
        Option("--key-tokens", metavar="N", min=2, help="Tokens whose keys are moved; 4."),
    ] = 4,
    step: Annotated[
        int, Option("--step", metavar="N", min=1, help="Every N-th offset on the keys; 1.")
    ] = 1,
) -> Iterable[Record]:
    """Move a graft to other offsets and see what differs.

    Its keys are turned back and on by the model's own rotary module, in F32 and in the model's
    number format: by every offset below the window on the keys, by powers of two on the logits,
    against a fresh computation at that offset. Offsets with equal bytes are counted and listed;
    none is expected but the graft's own position. docs/own-position.md tells why.
    """
    from kvg.flow.bench.own_position import OwnPositionRequest, bench_own_position

    run = invocation(ctx)
    request = OwnPositionRequest(model, tokens, prompt_tokens, key_tokens, step)
    return bench_own_position(run.store, run.settings, request)


def select(
    ctx: Context,
    families: Annotated[
        int, Option("--families", metavar="N", min=1, help="Families in the store; 4,500.")
    ] = 4_500,
    lookups: Annotated[
        int, Option("--lookups", metavar="N", min=1, help="Look-ups; 100,000.")
    ] = 100_000,
    large: Annotated[
        int, Option("--large", metavar="N", min=0, help="A second index; 1,000,000 families.")
    ] = 1_000_000,
    solves: Annotated[
        int, Option("--solves", metavar="N", min=0, help="Whole solves, warm; 50.")
    ] = 50,
    starts: Annotated[
        int, Option("--starts", metavar="N", min=0, help="Runs of the command; 15.")
    ] = 15,
    plot: Plot = None,
) -> Iterable[Record]:
    """Find the methods of many near twins by exact address.

    A store of its own, in a temporary folder, with families of which each has twins that differ in
    one word, sign, constraint or type; then look-ups of present and absent ones, a digest of what
    was asked and found for each thousand; then times. Exit code 11 when one was wrong.
    bench/similarity.py sets similarity search beside it.
    """
    from kvg.cli.plots import plotted
    from kvg.flow.bench.select import SelectRequest, bench_select

    request = SelectRequest(families, lookups, large, solves, starts)
    return plotted(bench_select(invocation(ctx).settings, request), plot)


def capability(
    ctx: Context,
    tasks: Tasks,
    model: Model = None,
    max_tokens: Annotated[
        int, Option("--max-tokens", metavar="N", min=1, help="Tokens of an answer; 32.")
    ] = 32,
    limit: Annotated[
        int, Option("--limit", metavar="N", min=0, help="The first tasks only; 0 is all.")
    ] = 0,
) -> Iterable[Record]:
    """A model alone, and with one routed block grafted.

    Lines of the file: {"block": NAME, "shots": [[question, answer], …]} and {"task": question,
    "answer": key}. A task gets the block whose questions have its structure. Both ways are greedy;
    the digest of all weights in memory is taken before and after.
    """
    from kvg.flow.bench.capability import CapabilityRequest, bench_capability

    run = invocation(ctx)
    request = CapabilityRequest(tasks, model, max_tokens, limit)
    return bench_capability(run.store, run.settings, request)


def acceptance(
    ctx: Context,
    tasks: Tasks,
    model: Model = None,
    seeds: Annotated[
        int, Option("--seeds", metavar="K", min=2, help="Seeds that have to agree; 88.")
    ] = 88,
    temperature: Annotated[
        float, Option("--temperature", metavar="T", help="How freely they choose; 0.7.")
    ] = 0.7,
    accepted: Annotated[
        int, Option("--accepted", metavar="N", min=0, help="Stop after N; 0 asks all.")
    ] = 0,
) -> Iterable[Record]:
    """How much of what all seeds agree on is right.

    Each task of the file (as for bench capability) goes through kvg solve --learn with the gate
    consistency:K, after the block of its structure; what is accepted is deposited, and compared
    with the key that nothing saw before.
    """
    from kvg.flow.bench.acceptance import AcceptanceRequest, bench_acceptance

    run = invocation(ctx)
    request = AcceptanceRequest(tasks, model, seeds, temperature, accepted)
    return bench_acceptance(run.store, run.settings, request)


def recurring(
    ctx: Context,
    tasks: Tasks,
    model: Model = None,
    budget: Annotated[
        int, Option("--budget", metavar="N", min=1, help="Tokens alone, for each; 2,048.")
    ] = 2_048,
) -> Iterable[Record]:
    """What deposited solutions leave a model to decode.

    Lines of the file: {"problem", "solution", "answer", "check"}. Alone the model tries until it
    ends with the answer or the budget is gone; then the solution, checked by a Python assertion, is
    deposited, and the model gives the answer from the graft.
    """
    from kvg.flow.bench.recurring import RecurringRequest, bench_recurring

    run = invocation(ctx)
    return bench_recurring(run.store, run.settings, RecurringRequest(tasks, model, budget))


def speed(
    ctx: Context,
    model: Model = None,
    lengths: Annotated[
        str, Option("--lengths", metavar="N,…", help="Tokens; 1000,7000.")
    ] = "1000,7000",
    repeats: Annotated[
        int, Option("--repeats", metavar="N", min=1, help="Prefills of each length; 5.")
    ] = 5,
    steps: Annotated[
        int, Option("--steps", metavar="N", min=1, help="Decode steps after each; 16.")
    ] = 16,
) -> Iterable[Record]:
    """Time the invariant reference against stock attention on this machine.

    An unmodified model with transformers' own sdpa attention and cache does the same work, in
    turns with kvg's, so that what else the machine does falls on both. The ratio is the median of
    the pairs' ratios, with its quartiles; below 1 invariant is the quicker one.
    """
    from kvg.flow.bench.speed import SpeedRequest, bench_speed

    run = invocation(ctx)
    request = SpeedRequest(model, parse_numbers(lengths, option="--lengths"), repeats, steps)
    return bench_speed(run.store, run.settings, request)


def restore(
    ctx: Context,
    model: Model = None,
    lengths: Annotated[
        str, Option("--lengths", metavar="N,…", help="Tokens; 256,1000,4000,7900.")
    ] = "256,1000,4000,7900",
    repeats: Annotated[
        int, Option("--repeats", metavar="N", min=1, help="Grafts in each way; 5.")
    ] = 5,
    gguf: Gguf = None,
    plot: Plot = None,
) -> Iterable[Record]:
    """Graft and first token against cold prefill, and where the time goes.

    Each text is grafted from raw pages and from compressed ones, with a warm and a cold cache of
    the system; every page is verified every time. For the longest text: each stage alone, what
    verifying costs, a restore taken apart, and the same text kept by transformers and llama.cpp.
    """
    from kvg.cli.plots import plotted
    from kvg.flow.bench.restore import RestoreRequest, bench_restore

    run = invocation(ctx)
    request = RestoreRequest(model, parse_numbers(lengths, option="--lengths"), repeats, gguf)
    return plotted(bench_restore(run.store, run.settings, request), plot)


def context(
    ctx: Context,
    name: Annotated[str, Argument(metavar="NAME", help="The context.")],
    accesses: Annotated[
        int, Option("--accesses", metavar="N", min=3, help="Tokens to move to; 200.")
    ] = 200,
    plot: Plot = None,
) -> Iterable[Record]:
    """Move the window over a context by chance, time against depth.

    Each access verifies, restores and proves its block. Every tenth is computed afresh and
    compared, bit for bit. kvg context create makes the context.
    """
    from kvg.cli.plots import plotted
    from kvg.flow.bench.context import ContextBenchRequest, bench_context

    run = invocation(ctx)
    request = ContextBenchRequest(name, accesses)
    return plotted(bench_context(run.store, run.settings, request), plot)


def energy(
    ctx: Context,
    model: Model = None,
    length: Annotated[
        int, Option("--length", metavar="N", min=1, help="Tokens of the text; 4000.")
    ] = 4000,
    runs: Annotated[int, Option("--runs", metavar="N", min=1, help="Grafts; 20.")] = 20,
    plot: Plot = None,
) -> Iterable[Record]:
    """What the first token costs by prefill and by graft.

    Joules are read from RAPL and NVML. Where a machine has no counter they are null, beside the
    processor seconds and the tokens that were computed; watts are never assumed.
    """
    from kvg.cli.plots import plotted
    from kvg.flow.bench.energy import EnergyRequest, bench_energy

    run = invocation(ctx)
    request = EnergyRequest(model, length, runs)
    return plotted(bench_energy(run.store, run.settings, request), plot)


def store(
    ctx: Context,
    model: Model = None,
    length: Annotated[
        int, Option("--length", metavar="N", min=1, help="Tokens of a text; 4000.")
    ] = 4000,
    repeats: Annotated[
        int, Option("--repeats", metavar="N", min=1, help="Deposits, and looks; 3.")
    ] = 3,
    plot: Plot = None,
) -> Iterable[Record]:
    """What storing costs over computing, on disk, and to verify.

    Deposits of texts that are new to a store of their own; then the last one in each stored form,
    every byte verified, beside SHA-256 alone. bench/store.py grows a store to many artifacts.
    """
    from kvg.cli.plots import plotted
    from kvg.flow.bench.store import StoreRequest, bench_store

    run = invocation(ctx)
    request = StoreRequest(model, length, repeats)
    return plotted(bench_store(run.store, run.settings, request), plot)


def all_(
    ctx: Context,
    model: Model = None,
    tokens: Annotated[
        int, Option("--tokens", metavar="N", min=32, help="Of the longest text; 4000.")
    ] = 4000,
    repeats: Annotated[
        int, Option("--repeats", metavar="N", min=1, help="Of what is timed; 3.")
    ] = 3,
    plot: Plot = None,
) -> Iterable[Record]:
    """Each of them once, at sizes that take minutes.

    exactness, restore, store, context (over a few blocks of Python's language reference), select,
    energy and speed. Those that need a file of tasks are run on their own. With --plot one picture
    for each that has one, named after it.
    """
    from kvg.cli.plots import plotted
    from kvg.flow.bench.everything import EverythingRequest, bench_all

    run = invocation(ctx)
    request = EverythingRequest(model, tokens, repeats)
    return plotted(bench_all(run.store, run.settings, request), plot)


COMMANDS = {
    "all": all_,
    "store": store,
    "energy": energy,
    "restore": restore,
    "context": context,
    "exactness": exactness,
    "own-position": own_position,
    "capability": capability,
    "acceptance": acceptance,
    "recurring": recurring,
    "select": select,
    "speed": speed,
}
EXAMPLES = {
    "all": """
    $ kvg bench all --plot bench.png
    $ kvg bench all --tokens 1000 --json > all.jsonl
    """,
    "store": """
    $ kvg bench store
    $ kvg bench store --length 1000 --plot store.png --json > store.jsonl
    """,
    "energy": """
    $ kvg bench energy
    $ kvg bench energy --length 1000 --runs 50 --plot energy.png --json
    """,
    "restore": """
    $ kvg bench restore
    $ kvg bench restore --lengths 256,1000 --plot restore.png --json > restore.jsonl
    """,
    "context": """
    $ kvg context create stdlib /usr/lib/python3.11 --room 64
    $ kvg bench context stdlib --plot context.svg
    """,
    "capability": """
    $ kvg bench capability --tasks bench/tasks/words.jsonl
    $ kvg bench capability --tasks bench/tasks/words.jsonl --limit 20 --json
    """,
    "acceptance": """
    $ kvg bench acceptance --tasks bench/tasks/words.jsonl --accepted 88 --temperature 0.5
    """,
    "recurring": """
    $ kvg bench recurring --tasks bench/tasks/eight.jsonl --budget 4096
    """,
    "select": """
    $ kvg bench select
    $ kvg bench select --families 900 --lookups 2000 --large 0 --plot select.png --json
    """,
    "speed": """
    $ kvg bench speed
    $ kvg bench speed --lengths 512 --repeats 9 --json > speed.jsonl
    """,
    "own-position": """
    $ kvg bench own-position
    $ kvg bench own-position --step 16 --json > own-position.jsonl
    """,
    "exactness": """
    $ kvg bench exactness
    $ kvg bench exactness --samples 50 --lengths 64,257,1000 --json > exactness.jsonl
    """,
}
