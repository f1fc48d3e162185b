"""What a deposit is made of: files, a text, a chat or standard input, as token ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kvg import durable
from kvg.digest import sha256
from kvg.errors import Corrupt, UsageError
from kvg.flow.requests import DepositRequest
from kvg.flow.settings import Settings, check_file_name, check_text
from kvg.objects.statement import Kind, Resource

if TYPE_CHECKING:
    from kvg.model.text import Tokenizer

MAX_SOURCE_BYTES = 1 << 30
CHAT_TYPE_HINT = '[{"role": "user", "content": "…"}]'


@dataclass(frozen=True, slots=True)
class Source:
    """The text of a deposit: its parts as named bytes, and how they become ids."""

    kind: Kind
    parts: tuple[tuple[str, bytes], ...]
    given: tuple[int, ...] | None = None
    """The ids themselves, where they are not made from the parts."""

    def resources(self) -> tuple[Resource, ...]:
        """The parts as an attestation names them."""
        return tuple(Resource(name, sha256(data)) for name, data in self.parts)

    def text(self, *, what: str) -> str:
        """The parts joined in order, with one LF between where the previous lacks one."""
        text = joined(parse_text(data, what=name) for name, data in self.parts)
        if not text:
            raise UsageError(f"{what}: empty text", hint="give a text of at least one character")
        return text

    def ids(self, tokenizer: Tokenizer, *, what: str) -> list[int]:
        """The token ids: as FORMATS of a text or of a chat say. Raises ``UsageError`` for none."""
        if self.given is not None:
            return list(self.given)
        if self.kind == "chat":
            ids = tokenizer.encode_more(tokenizer.render(self.messages()))
        else:
            ids = tokenizer.encode(self.text(what=what))
        if not ids:
            raise UsageError(f"{what}: empty text", hint="give a text of at least one token")
        return ids

    def messages(self) -> tuple[dict[str, str], ...]:
        """The messages of a chat. Raises ``UsageError``."""
        name, data = self.parts[0]
        messages = check_messages(parse_chat(data, what=name), what=name)
        return tuple(dict(message) for message in messages)


def joined(texts: Iterable[str]) -> str:
    """``texts`` in order, with one LF between where the previous lacks one."""
    parts: list[str] = []
    for text in texts:
        if parts and parts[-1] and not parts[-1].endswith("\n"):
            parts.append("\n")
        parts.append(text)
    return "".join(parts)


def read_source(settings: Settings, request: DepositRequest) -> Source:
    """The source that ``request`` names, read and checked as far as it can be without a model.

    Raises ``NotFound``, ``UsageError`` for an empty or a non-UTF-8 text.
    """
    if request.slot:
        return _slot_source(settings)
    if request.chat is not None:
        source = Source("chat", (read_part(settings, request.chat),))
        parse_chat(source.parts[0][1], what=source.parts[0][0])
        return source
    if request.text is not None:
        source = Source("text", (("text", request.text.encode("utf-8", errors="strict")),))
    elif request.stdin is not None:
        source = Source("text", (("stdin", request.stdin),))
    else:
        source = Source("text", tuple(read_part(settings, path) for path in request.files))
    source.text(what=request.ref)
    return source


def _slot_source(settings: Settings) -> Source:
    """What a numbered slot holds: its ids, and their text for gates to look at."""
    if settings.seat is None:
        raise UsageError("--slot: no session was named", hint="give --session S")
    ids = settings.seat.conversation().ids
    text = settings.seat.resident.tokenizer.decode(ids)
    return Source("ids", (("conversation", text.encode()),), ids)


def read_part(settings: Settings, path: Path) -> tuple[str, bytes]:
    """The name and the bytes of one file. Raises ``NotFound`` and ``UsageError``."""
    check_file_name(path.name)
    full = settings.cwd / path
    if full.is_dir():
        raise UsageError(f"{path}: a folder, not a file", hint="give the files in it")
    with durable.translated(path), open(full, "rb") as file:
        data = file.read(MAX_SOURCE_BYTES + 1)
    if len(data) > MAX_SOURCE_BYTES:
        raise UsageError(f"{path}: larger than {MAX_SOURCE_BYTES} bytes")
    return path.name, data


def parse_text(data: bytes, *, what: str) -> str:
    """``data`` as UTF-8. Raises ``UsageError`` that says where it is not."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{what}: not UTF-8 at byte {error.start}", hint="convert it first, e.g. with iconv"
        ) from None


def parse_chat(data: bytes, *, what: str, hint: str = CHAT_TYPE_HINT) -> object:
    """``data`` as JSON of chat messages. Raises ``UsageError`` with ``hint``."""
    from kvg.canon import parse_json

    try:
        return parse_json(parse_text(data, what=what), what=what)
    except Corrupt as error:
        raise UsageError(error.message, hint=hint) from None


def check_messages(value: object, *, what: str) -> tuple[Mapping[str, str], ...]:
    """``value`` as chat messages: a list, or ``{"messages": [...]}``. Raises ``UsageError``."""
    if isinstance(value, Mapping):
        value = value.get("messages")
    if not isinstance(value, list) or not value:
        raise UsageError(f"{what}: not a list of chat messages", hint='[{"role": …, "content": …}]')
    for number, item in enumerate(value):
        if (
            not isinstance(item, Mapping)
            or not isinstance(item.get("role"), str)
            or not isinstance(item.get("content"), str)
        ):
            raise UsageError(f"{what}: message {number} has no role and content of text")
        check_text(item["role"] + item["content"], what=f"{what}: message {number}")
    return tuple({"role": item["role"], "content": item["content"]} for item in value)
