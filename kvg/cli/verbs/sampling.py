"""The options that ``ask`` and ``graft`` share."""

from typing import Annotated

import typer

from kvg.cli.values import known_gates
from kvg.flow.requests import Sampling

MaxTokens = Annotated[
    int, typer.Option("--max-tokens", metavar="N", min=0, help="Tokens to write at most; 256.")
]
Temperature = Annotated[
    float, typer.Option("--temperature", metavar="X", min=0, help="0 takes the likeliest; 0.")
]
TopP = Annotated[
    float, typer.Option("--top-p", metavar="X", help="Sample from this much probability; 1.")
]
Seed = Annotated[int | None, typer.Option("--seed", metavar="N", help="Seed of the sampling.")]
Stop = Annotated[
    list[str] | None, typer.Option("--stop", metavar="S", help="Stop before this text.")
]
Stream = Annotated[bool, typer.Option("--stream", help="Write the text as it comes.")]
Require = Annotated[
    list[str] | None,
    typer.Option(
        "--require",
        metavar="GATE",
        callback=known_gates,
        help="Refuse what is stored without this gate.",
    ),
]


def sampling(
    max_tokens: int, temperature: float, top_p: float, seed: int | None, stop: list[str] | None
) -> Sampling:
    """The sampling asked for. Raises ``UsageError``."""
    return Sampling(max_tokens, temperature, top_p, seed, tuple(stop or ()))
