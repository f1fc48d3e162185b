"""What follows a graft: raw text, chat messages, a file of prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kvg.errors import UsageError
from kvg.flow.requests import AskRequest, GraftRequest
from kvg.flow.settings import Settings, check_text
from kvg.flow.sources import check_messages, parse_chat, parse_text, read_part

if TYPE_CHECKING:
    from kvg.model.text import Tokenizer


PROMPT_HINT = '{"prompt": "…"} on each line'


def prompts_of(
    settings: Settings, request: GraftRequest | AskRequest, tokenizer: Tokenizer
) -> tuple[tuple[int, ...], ...]:
    """The token ids of every prompt of ``request``; a prompt gets no special tokens.

    Raises ``UsageError``, ``NotFound``, ``Incompatible``.
    """
    if isinstance(request, AskRequest):
        text = tokenizer.render_more([{"role": "user", "content": request.question}])
        return (tuple(tokenizer.encode_more(text)),)
    if request.chat is not None:
        return (_message_ids(chat_messages(settings, request.chat), tokenizer),)
    if request.messages is not None:
        return (_message_ids(request.messages, tokenizer),)
    return tuple(
        tuple(tokenizer.encode_more(text)) if text else ()
        for text in prompt_texts(settings, request)
    )


def has_messages(request: GraftRequest | AskRequest) -> bool:
    """Whether what follows goes through the chat template."""
    if isinstance(request, AskRequest):
        return True
    return request.chat is not None or request.messages is not None


def prompt_texts(settings: Settings, request: GraftRequest) -> tuple[str, ...]:
    """The prompts of ``request`` as text; one empty prompt when there is none."""
    if request.prompt is not None:
        return (request.prompt,)
    if request.stdin is not None:
        return (parse_text(request.stdin, what="standard input"),)
    if request.prompt_file is not None:
        name, data = read_part(settings, request.prompt_file)
        return (parse_text(data, what=name),)
    if request.prompts is not None:
        return read_prompts(settings, request.prompts)
    if request.texts is not None:
        return request.texts
    return ("",)


def read_prompts(settings: Settings, path: Path) -> tuple[str, ...]:
    """The prompts of a file of JSON Lines: ``{"prompt": "…"}`` or a bare string on each line."""
    name, data = read_part(settings, path)
    texts = []
    for number, line in enumerate(parse_text(data, what=name).split("\n"), 1):
        if not line.strip():
            continue
        value = parse_chat(line.encode(), what=f"{name} line {number}", hint=PROMPT_HINT)
        known = not isinstance(value, dict) or value.keys() <= {"prompt"}
        text = value.get("prompt") if isinstance(value, dict) else value
        if not isinstance(text, str) or not known:
            raise UsageError(
                f"{name} line {number}: not a prompt and nothing else",
                hint=PROMPT_HINT,
            )
        check_text(text, what=f"{name} line {number}")
        texts.append(text)
    if not texts:
        raise UsageError(f"{name}: no prompts", hint=PROMPT_HINT)
    return tuple(texts)


def chat_messages(settings: Settings, path: Path) -> tuple[Mapping[str, str], ...]:
    """The messages of a JSON file. Raises ``UsageError``, ``NotFound``."""
    name, data = read_part(settings, path)
    return check_messages(parse_chat(data, what=name), what=name)


def _message_ids(messages: Sequence[Mapping[str, str]], tokenizer: Tokenizer) -> tuple[int, ...]:
    return tuple(tokenizer.encode_more(tokenizer.render_more(messages)))
