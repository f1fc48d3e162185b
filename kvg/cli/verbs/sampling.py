"""The options that ``ask`` and ``graft`` share."""

from typing import Annotated

from kvg.cli.declare import Option
from kvg.cli.values import known_gates
from kvg.flow.requests import Sampling

MaxTokens = Annotated[
    int, Option("--max-tokens", metavar="N", min=0, help="Tokens to write at most; 256.")
]
Temperature = Annotated[
    float, Option("--temperature", metavar="X", min=0, help="0 takes the likeliest; 0.")
]
TopP = Annotated[
    float, Option("--top-p", metavar="X", help="Sample from this much probability; 1.")
]
Seed = Annotated[int | None, Option("--seed", metavar="N", help="Seed of the sampling.")]
Stop = Annotated[list[str] | None, Option("--stop", metavar="S", help="Stop before this text.")]
Stream = Annotated[bool, Option("--stream", help="Write the text as it comes.")]
Require = Annotated[
    list[str] | None,
    Option(
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
