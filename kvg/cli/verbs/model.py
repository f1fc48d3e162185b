"""``kvg model``."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from kvg.cli.declare import Argument, Context, Option
from kvg.cli.invocation import invocation
from kvg.cli.values import parse_dtype
from kvg.flow.records import Record

Name = Annotated[str, Argument(metavar="NAME", help="The model's name here.")]


def add(
    ctx: Context,
    name: Name,
    path: Annotated[Path, Argument(metavar="PATH", help="The folder of the model.")],
    gguf: Annotated[
        Path | None, Option("--gguf", metavar="FILE", help="Take the weights from this GGUF.")
    ] = None,
    adapter: Annotated[
        Path | None,
        Option("--adapter", metavar="DIR", help="Add the PEFT (LoRA) adapter in DIR."),
    ] = None,
    dtype: Annotated[
        str | None,
        Option("--dtype", metavar="BF16|F16|F32", help="Compute in this; the model's own."),
    ] = None,
    no_cache: Annotated[bool, Option("--no-cache", help="Hash the weights again.")] = False,
) -> Record:
    """Register a local model and its fingerprint.

    The fingerprint covers the configuration and every weight as loaded, and those of an adapter.
    The first model is the default.
    """
    from kvg.flow.model_add import model_add
    from kvg.flow.requests import ModelAddRequest

    run = invocation(ctx)
    request = ModelAddRequest(
        name, path, gguf, None if dtype is None else parse_dtype(dtype), no_cache, adapter
    )
    return model_add(run.store, run.settings, request)


def list_(ctx: Context) -> Iterable[Record]:
    """List the registered models."""
    from kvg.flow.model import list_models

    return list_models(invocation(ctx).store)


def show(ctx: Context, name: Name) -> Record:
    """Show one registered model.

    With its folder and its fingerprint.
    """
    from kvg.flow.model import show_model

    run = invocation(ctx)
    run.given.verbose = True
    return show_model(run.store, name)


def default(ctx: Context, name: Name) -> Record:
    """Choose the model that is used without --model."""
    from kvg.flow.model import set_default_model

    run = invocation(ctx)
    return set_default_model(run.store, run.settings, name)


COMMANDS = {"add": add, "list": list_, "show": show, "default": default}
EXAMPLES = {
    "add": """
    $ kvg model add smol ~/models/smollm2
    smol  llama 135M BF16 cpu  (default)
    $ kvg model add gem ~/models/gemma --dtype BF16
    $ kvg model add tuned ~/models/smollm2 --adapter ~/adapters/legal
    $ kvg model add q8 ~/models/smollm2 --gguf smollm2-q8_0.gguf
    """,
    "list": """
    $ kvg model list
    """,
    "show": """
    $ kvg model show smol --json | jq -r .fingerprint
    """,
    "default": """
    $ kvg model default gem
    """,
}
