"""``kvg context``."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from kvg.cli.declare import Argument, Context, Option
from kvg.cli.invocation import invocation
from kvg.cli.verbs.sampling import MaxTokens, Require, Seed, Stop, Temperature, sampling
from kvg.cli.verbs.seating import SessionName, SlotNumber, check_seat
from kvg.flow.records import Record
from kvg.flow.requests import MAX_NEW_TOKENS, ContextAskRequest, ContextAtRequest

Name = Annotated[str, Argument(metavar="NAME", help="The context.")]


def create(
    ctx: Context,
    name: Name,
    paths: Annotated[list[Path], Argument(metavar="PATH…", help="Folders and files.")],
    model: Annotated[str | None, Option("--model", metavar="M", help="A registered model.")] = None,
    room: Annotated[
        int,
        Option("--room", metavar="N", min=0, help="Tokens left for what follows; 512."),
    ] = 512,
    block_tokens: Annotated[
        int | None, Option("--block-tokens", metavar="N", help="The most of one block.")
    ] = None,
    page_tokens: Annotated[
        int, Option("--page-tokens", metavar="N", min=1, help="Tokens of a page; 256.")
    ] = 256,
    key: Annotated[str | None, Option("--key", metavar="KEY", help="The key that signs.")] = None,
) -> Iterable[Record]:
    """Cut a corpus into blocks that fit the window, and deposit them.

    Blocks end at files, sections, paragraphs or lines, and are refs NAME/0001, NAME/0002, … Run
    again, it goes on where it was stopped, and computes only what changed. As many blocks as --jobs
    says are computed at a time, each by one thread: eight at most, and only as many as half of the
    free memory holds; the model is in memory once. kvg gc between a stopped run and the next
    removes what was computed.
    """
    from kvg.flow.context.create import ContextRequest, create_context

    run = invocation(ctx)
    request = ContextRequest(name, tuple(paths), model, room, block_tokens, page_tokens, key)
    return create_context(run.store, run.settings, request)


def list_(ctx: Context) -> Iterable[Record]:
    """List the contexts."""
    from kvg.flow.context.places import list_contexts

    return list_contexts(invocation(ctx).store)


def show(ctx: Context, name: Name) -> Iterable[Record]:
    """Show the blocks of a context and what is in them."""
    from kvg.flow.context.places import show_context

    return show_context(invocation(ctx).store, name)


def at(
    ctx: Context,
    name: Name,
    place: Annotated[
        str, Argument(metavar="PLACE", help="A token of the context from 0, or PATH:LINE.")
    ],
    prompt: Annotated[
        str | None,
        Option("--prompt", metavar="T", help="Move the window there and go on with this."),
    ] = None,
    max_tokens: MaxTokens = MAX_NEW_TOKENS,
    temperature: Temperature = 0.0,
    seed: Seed = None,
    stop: Stop = None,
    require: Require = None,
    session: SessionName = None,
    slot: SlotNumber = None,
) -> Iterable[Record]:
    """Find the block that holds a place, and move the window there.

    Without a prompt it prints the block's ref, which kvg graft and kvg ask take; with --session the
    window of that session is moved there as well, and with --slot it stays there, to go on from.
    """
    check_seat(session, slot)
    run = invocation(ctx)
    if prompt is None and session is None:
        from kvg.flow.context.places import find_place

        return [find_place(run.store, run.settings, name, place)]
    chosen = sampling(max_tokens, temperature, 1.0, seed, stop)
    request = ContextAtRequest(name, place, prompt, chosen, tuple(require or ()))
    if session is not None:
        from kvg.flow.through import compute

        return compute(run.link(session), request, slot)
    from kvg.flow.context.move import move_context

    return move_context(run.store, run.settings, request)


def search(
    ctx: Context,
    name: Name,
    words: Annotated[str, Argument(metavar="WORDS", help="What to look for.")],
    limit: Annotated[int, Option("--limit", metavar="N", min=1, help="Passages at most; 5.")] = 5,
) -> Iterable[Record]:
    """Find passages by their words.

    The best come first, each with its best line; any of the words counts, and words of the path.
    Words that stand in every English text count only where there is no other; a word that stands
    nowhere is found in its other forms, and as part of a name.
    """
    from kvg.flow.context.search import search_context

    run = invocation(ctx)
    return search_context(run.store, run.settings, name, words, limit=limit)


def ask(
    ctx: Context,
    name: Name,
    question: Annotated[str, Argument(metavar="QUESTION", help="The question.")],
    blocks: Annotated[int, Option("--blocks", metavar="N", min=1, help="Blocks to try; 1.")] = 1,
    max_tokens: MaxTokens = MAX_NEW_TOKENS,
    stop: Stop = None,
    require: Require = None,
    session: SessionName = None,
) -> Record:
    """Search, graft the one best block, and answer with citations.

    The block is that of the best passage; the question follows its text through the model's chat
    template. A citation is the line that has most of the question's words, and where its passage
    begins. Small models answer better from small blocks (kvg context create --block-tokens 512).

    Of several blocks the answer is chosen by counting: it came to an end by itself, more of its
    words stand in its block, more blocks say the same, the search ranks it higher.
    """
    run = invocation(ctx)
    request = ContextAskRequest(
        name, question, blocks, max_tokens, tuple(stop or ()), tuple(require or ())
    )
    if session is not None:
        from kvg.flow.through import compute_one

        return compute_one(run.link(session), request, None)
    from kvg.flow.context.ask import ask_context

    return ask_context(run.store, run.settings, request)


COMMANDS = {
    "create": create,
    "list": list_,
    "show": show,
    "at": at,
    "search": search,
    "ask": ask,
}
EXAMPLES = {
    "create": """
    $ kvg context create docs docs/ README.md
    $ kvg context create stdlib /usr/lib/python3.11 --room 64
    """,
    "list": """
    $ kvg context list
    docs  6 blocks  41,220 tokens, at most 7,680 in one  18 files
    """,
    "show": """
    $ kvg context show docs --json
    """,
    "at": """
    $ kvg context at docs docs/formats.md:120
    $ kvg context at docs 20000 --prompt "In short:"
    $ kvg context at docs 20000 --session desk --slot 0
    """,
    "search": """
    $ kvg context search docs "rotary angles"
    """,
    "ask": """
    $ kvg context ask docs "What is a witness?"
    $ kvg context ask docs "What is a witness?" --blocks 3 --json
    $ kvg context ask docs "What is a witness?" --session desk
    """,
}
