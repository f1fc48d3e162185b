"""Text to token ids and back, by the model's own tokenizer and chat template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from transformers import AutoTokenizer, PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from kvg.errors import Incompatible

Message = Mapping[str, str]
"""One turn of a chat: ``role`` and ``content``."""

_STAND_IN = "kvg stand-in"


class Tokenizer:
    """The tokenizer and chat template of one model folder."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, *, what: str) -> None:
        self._tokenizer = tokenizer
        self._what = what

    @classmethod
    def load(cls, folder: Path) -> Tokenizer:
        """The tokenizer in ``folder``. Raises ``Incompatible`` when there is none."""
        transformers_logging.set_verbosity_error()
        try:
            found = AutoTokenizer.from_pretrained(
                str(folder), local_files_only=True, trust_remote_code=False
            )
        except (OSError, ValueError, KeyError, ImportError, TypeError, AttributeError):
            raise Incompatible(
                f"{folder}: no tokenizer that transformers can load",
                hint="text needs tokenizer.json beside config.json",
            ) from None
        return cls(found, what=str(folder))

    def encode(self, text: str) -> list[int]:
        """The ids of ``text`` with the tokenizer's own special tokens, nothing stripped."""
        return self._ids(text, special=True)

    def encode_more(self, text: str) -> list[int]:
        """The ids of ``text`` that goes on after something: no special tokens are added."""
        return self._ids(text, special=False)

    def counts(self, texts: Sequence[str]) -> list[int]:
        """How many ids ``encode`` gives for each text."""
        if not texts:
            return []
        found = self._tokenizer(list(texts), add_special_tokens=True)["input_ids"]
        return [len(ids) for ids in found]

    def prefix(self, text: str, n_tokens: int) -> int:
        """How many characters at the start of ``text`` its first ``n_tokens`` ids are, at most.

        It ends between two ids, and where a character ends; at least one character.
        """
        ids = self._ids(text, special=False)
        for end in range(min(n_tokens, len(ids)), 0, -1):
            begun = self.decode(ids[:end])
            if begun and text.startswith(begun) and len(self._ids(begun, special=True)) <= n_tokens:
                return len(begun)
        return 1

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ``ids`` without special tokens."""
        text = self._tokenizer.decode(
            list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return str(text)

    def render(self, messages: Sequence[Message], *, answer: bool = False) -> str:
        """``messages`` through the chat template; with the generation prompt for an ``answer``."""
        return self._render(messages, answer=answer)

    def render_asked(self, messages: Sequence[Message]) -> str:
        """``messages`` through the chat template, with the generation prompt after them."""
        return self._render(messages, answer=True)

    def render_more(self, messages: Sequence[Message]) -> str:
        """What the template writes for ``messages`` that go on after earlier turns.

        With the generation prompt, so that the model answers next. Raises ``Incompatible`` when
        the template does not write turns one after the other.
        """
        for before in (
            [{"role": "system", "content": _STAND_IN}],
            [{"role": "user", "content": _STAND_IN}, {"role": "assistant", "content": _STAND_IN}],
        ):
            try:
                head = self._render(before, answer=False)
                whole = self._render([*before, *messages], answer=True)
            except Incompatible:
                continue
            if whole.startswith(head):
                return whole[len(head) :]
        raise Incompatible(
            f"{self._what}: the chat template rewrites earlier turns when more follow",
            hint="use kvg graft --prompt with the text that the model expects",
        )

    def turn_end(self) -> str:
        """What the chat template writes behind an answer, before the next turn."""
        messages = [{"role": "user", "content": "…"}, {"role": "assistant", "content": _STAND_IN}]
        return self._render(messages, answer=False).rpartition(_STAND_IN)[2]

    def _ids(self, text: str, *, special: bool) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=special)["input_ids"])

    def _render(self, messages: Sequence[Message], *, answer: bool) -> str:
        from jinja2.exceptions import TemplateError

        if not self._tokenizer.chat_template:
            raise Incompatible(
                f"{self._what}: no chat template", hint="use kvg graft --prompt instead"
            )
        try:
            text = self._tokenizer.apply_chat_template(
                [dict(message) for message in messages],
                tokenize=False,
                add_generation_prompt=answer,
            )
        except (TemplateError, TypeError, KeyError, ValueError) as error:
            raise Incompatible(f"{self._what}: the chat template refused: {error}") from None
        return str(text)
