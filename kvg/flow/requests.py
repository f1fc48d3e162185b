"""What a flow is asked to do: the arguments of a verb, checked, without where they came from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias

from kvg.errors import UsageError
from kvg.flow.settings import check_text
from kvg.frozen import frozen

Reference: TypeAlias = Literal["invariant", "scheduled"]
"""The definition of 'fresh' that exactness is measured against."""

PAGE_TOKENS = 256
MAX_NEW_TOKENS = 256
MAX_PAGE_TOKENS = 1 << 20
MIN_TEMPERATURE = 1e-6


@frozen
class Sampling:
    """How the next token is chosen. Temperature 0 takes the lowest id among the maxima.

    ``max_tokens`` counts generated tokens and may be 0; ``stop`` texts are not part of the output.
    """

    max_tokens: int = MAX_NEW_TOKENS
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.max_tokens < 0:
            raise UsageError(f"--max-tokens {self.max_tokens}: less than 0")
        if not 0.0 <= self.temperature < float("inf"):
            raise UsageError(f"--temperature {self.temperature}: not a number from 0 up")
        if not 0.0 < self.top_p <= 1.0:
            raise UsageError(f"--top-p {self.top_p}: not in (0, 1]")
        if 0.0 < self.temperature < MIN_TEMPERATURE:
            raise UsageError(
                f"--temperature {self.temperature}: too small to divide by",
                hint=f"0, or {MIN_TEMPERATURE} and more",
            )
        if any(not text for text in self.stop):
            raise UsageError("--stop: empty text")
        for text in self.stop:
            check_text(text, what="--stop")


@frozen
class DepositRequest:
    """Build and store the artifact of one text under ``ref``.

    Exactly one of ``files``, ``text``, ``chat``, ``stdin`` (the bytes that came on standard input)
    and ``slot`` (what the numbered slot of a resident session holds) is the source. ``model`` None
    is the store's default. ``key`` None is the first key. ``parent`` names the ref or digest this
    one descends from. ``valid_until`` is Unix time in seconds. ``depends`` are files whose digests
    are attested, ``schema_version`` names what their content holds to. ``no_source`` keeps the text
    itself and its name out of the attestation. ``gates`` are specs of checks that all have to pass
    first. ``family`` is a file with the problem that the text answers.
    """

    ref: str
    model: str | None = None
    files: tuple[Path, ...] = ()
    text: str | None = None
    chat: Path | None = None
    stdin: bytes | None = None
    parent: str | None = None
    reference: Reference | None = None
    page_tokens: int = PAGE_TOKENS
    cut_points: tuple[int, ...] = ()
    key: str | None = None
    no_source: bool = False
    valid_until: int | None = None
    depends: tuple[Path, ...] = ()
    gates: tuple[str, ...] = ()
    no_sandbox: bool = False
    family: Path | None = None
    schema_version: str | None = None
    slot: bool = False

    def __post_init__(self) -> None:
        sources = (
            bool(self.files),
            self.text is not None,
            self.chat is not None,
            self.stdin is not None,
            self.slot,
        )
        if sum(sources) != 1:
            raise UsageError(
                f"{self.ref}: give exactly one of FILE…, --text, --chat, --slot or -",
                hint="kvg deposit NAME FILE",
            )
        if not 1 <= self.page_tokens <= MAX_PAGE_TOKENS:
            raise UsageError(f"--page-tokens {self.page_tokens}: not 1 to {MAX_PAGE_TOKENS}")
        if self.text is not None:
            check_text(self.text, what="--text")
        if any(a >= b for a, b in zip((0, *self.cut_points), self.cut_points, strict=False)):
            raise UsageError("--cut-points: not ascending numbers from 1 up")


@frozen
class GraftRequest:
    """Restore ``ref`` and continue raw text.

    At most one of ``prompt``, ``prompt_file``, ``chat`` (a JSON file of messages rendered by the
    template), ``prompts`` (JSON Lines of ``{"prompt": …}``) and ``stdin``, or what is in such files
    as ``texts`` or ``messages``; none is an empty prompt. ``at`` is the position asked for: any
    but the artifact's own is Incompatible, except in a slot that holds it and expects that. ``cut``
    grafts only the first ``cut`` tokens, a stored cut point. ``or_fresh`` names the model that
    computes the answer on a cache miss. ``stream`` yields pieces of text as they come.
    """

    ref: str
    prompt: str | None = None
    prompt_file: Path | None = None
    chat: Path | None = None
    prompts: Path | None = None
    stdin: bytes | None = None
    texts: tuple[str, ...] | None = None
    messages: tuple[Mapping[str, str], ...] | None = None
    sampling: Sampling = Sampling()
    stream: bool = False
    at: int | None = None
    cut: int | None = None
    require: tuple[str, ...] = ()
    or_fresh: str | None = None

    def __post_init__(self) -> None:
        read = (self.texts, self.messages)
        given = (self.prompt, self.prompt_file, self.chat, self.prompts, self.stdin, *read)
        if sum(item is not None for item in given) > 1:
            raise UsageError(
                f"{self.ref}: give at most one of --prompt, --prompt-file, --chat, --prompts or -",
                hint="kvg graft REF --prompt TEXT",
            )
        for text in (self.prompt or "", *(self.texts or ())):
            check_text(text, what="prompt")


@frozen
class AskRequest:
    """Graft ``ref`` and answer ``question`` through the model's chat template.

    ``at`` is as in ``GraftRequest``.
    """

    ref: str
    question: str
    sampling: Sampling = Sampling()
    stream: bool = False
    at: int | None = None
    require: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.question.strip():
            raise UsageError(f"{self.ref}: empty question", hint='kvg ask REF "What …?"')
        check_text(self.question, what="question")


@frozen
class LogitsRequest:
    """The raw logits after ids(``ref``) + ids(``prompt``), or of the prompt alone without a ref.

    ``fresh`` computes without the store's pages. ``out`` receives a safetensors file.
    """

    ref: str | None = None
    model: str | None = None
    prompt: str | None = None
    fresh: bool = False
    reference: Reference | None = None
    out: Path | None = None

    def __post_init__(self) -> None:
        if self.ref is None and not self.prompt:
            raise UsageError(
                "logits: neither a ref nor a prompt", hint="kvg logits REF --prompt TEXT"
            )
        check_text(self.prompt or "", what="prompt")


@frozen
class ReplayRequest:
    """Compare graft against fresh, bit for bit, on ``samples`` prompts for each of ``refs``.

    ``prompts`` is a file of JSON Lines with prompts of one's own, ``texts`` are such prompts.
    ``sign`` attests the result with ``key`` (None: the first key). ``slot``: what a numbered slot
    of a resident session holds is compared, which begins with ``refs`` if they are given.
    """

    refs: tuple[str, ...]
    samples: int = 5
    prompts: Path | None = None
    reference: Reference | None = None
    sign: bool = False
    key: str | None = None
    texts: tuple[str, ...] | None = None
    slot: bool = False

    def __post_init__(self) -> None:
        if not self.refs and not self.slot:
            raise UsageError("replay: no ref", hint="kvg replay REF")
        if self.samples < 1:
            raise UsageError(f"--samples {self.samples}: less than 1")


@frozen
class ModelAddRequest:
    """Register the local model in the folder (or file) ``path`` as ``name``.

    ``gguf`` is the name of a GGUF file in ``path`` or its path; ``dtype`` one
    of ``BF16``, ``F16``, ``F32`` (None: the model's own). ``no_cache`` hashes the weights again.
    ``adapter`` is the folder of a PEFT adapter that joins the model.
    """

    name: str
    path: Path
    gguf: Path | None = None
    dtype: Literal["BF16", "F16", "F32"] | None = None
    no_cache: bool = False
    adapter: Path | None = None


@frozen
class DoctorRequest:
    """Look at this machine; ``require_exact`` fails unless exact grafts are possible on it."""

    require_exact: bool = False
    model: str | None = None


@frozen
class ContextAtRequest:
    """Move the window to ``place`` of context ``name``: a token's number from 0, or ``PATH:LINE``.

    ``prompt`` goes on from there; without one the window is moved and nothing is generated.
    """

    name: str
    place: str
    prompt: str | None = None
    sampling: Sampling = Sampling()
    require: tuple[str, ...] = ()


@frozen
class ContextAskRequest:
    """Answer ``question``, greedily, from the best of the ``blocks`` blocks that the search ranks
    first, in at most ``max_tokens`` tokens and before any of the ``stop`` texts."""

    name: str
    question: str
    blocks: int = 1
    max_tokens: int = MAX_NEW_TOKENS
    stop: tuple[str, ...] = ()
    require: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.question.strip():
            raise UsageError(f"{self.name}: empty question", hint='kvg context ask NAME "What …?"')
        if self.blocks < 1:
            raise UsageError(f"--blocks {self.blocks}: less than 1")
        if self.max_tokens < 0:
            raise UsageError(f"--max-tokens {self.max_tokens}: less than 0")
