"""Tasks with an answer key, and a library of blocks of solved examples to graft before them.

The file is JSON Lines: ``{"block": NAME, "shots": [[question, answer], …]}`` and
``{"task": question, "answer": key}``. A task is held out: it is in no block. It gets the block
whose questions are of its family, by exact structure, or none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal, cast

from kvg import canon
from kvg.digest import Digest, Sha256Stream
from kvg.errors import Corrupt, UsageError
from kvg.flow.bench.setup import check_declared
from kvg.flow.registered import registered_model
from kvg.flow.requests import DepositRequest, ModelAddRequest
from kvg.flow.settings import Settings, keyring_of
from kvg.frozen import frozen
from kvg.problem.family import parse_problem
from kvg.report import SilentReport

if TYPE_CHECKING:
    from kvg.flow.asking import Asked
    from kvg.flow.registered import RegisteredModel
    from kvg.model.folder import ModelFiles
    from kvg.model.session import Session
    from kvg.model.text import Tokenizer
    from kvg.objects.verified import Verified
    from kvg.store import Store

_WORD = r"(?<![\w]){}(?![\w])"
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:/\d+)?")
_ZERO = re.compile(r"/0+$")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_NUMBERS = re.compile(rf"\[{_NUMBER.pattern}(?:, {_NUMBER.pattern})*\]")


@frozen
class Task:
    """A question, and the key that nothing but the count of right answers sees."""

    text: str
    answer: str

    @property
    def family(self) -> Digest:
        return parse_problem(self.text).family.digest

    def is_right(self, said: str) -> bool:
        """Whether the last number is the key, or the last ones are those of a list; of another
        key whether its words are in what was said."""
        if _NUMBER.fullmatch(self.answer) or _NUMBERS.fullmatch(self.answer):
            wanted = _numbers(self.answer)
            return _numbers(_THOUSANDS.sub("", said))[-len(wanted) :] == wanted
        pattern = _WORD.format(re.escape(self.answer))
        return re.search(pattern, said, re.IGNORECASE) is not None


def _numbers(text: str) -> list[Fraction | None]:
    """The numbers in ``text``, exactly; None for one that is divided by 0."""
    return [None if _ZERO.search(word) else Fraction(word) for word in _NUMBER.findall(text)]


@frozen
class Block:
    """Solved examples of one family, as a chat."""

    name: str
    shots: tuple[tuple[str, str], ...]

    @property
    def family(self) -> Digest:
        return parse_problem(self.shots[0][0]).family.digest

    def messages(self) -> canon.Json:
        return [
            {"role": role, "content": content}
            for shot in self.shots
            for role, content in zip(("user", "assistant"), shot, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Library:
    """A store of its own with every block, and a session of the model."""

    store: Store
    settings: Settings
    model: RegisteredModel
    files: ModelFiles
    session: Session
    tokenizer: Tokenizer
    blocks: Mapping[Digest, Verified]

    def ask(self, text: str, *, grafted: bool) -> Asked:
        """The question in a slot, after the block of its family, if there is one."""
        from kvg.flow.asking import ask_messages

        exemplar = self.blocks.get(parse_problem(text).family.digest) if grafted else None
        messages = ({"role": "user", "content": text},)
        return ask_messages(self.session, self.tokenizer, messages, exemplar=exemplar)

    def weights(self) -> Digest:
        """The digest over the bytes of every weight in memory, by name."""
        from kvg.model.dtypes import tensor_digest

        stream = Sha256Stream()
        for name, weight in sorted(self.session.model.module.state_dict().items()):
            stream.update(f"{name} {tensor_digest(weight)}\n".encode())
        return stream.digest()


def read_tasks(settings: Settings, path: Path) -> tuple[tuple[Block, ...], tuple[Task, ...]]:
    """The blocks and tasks of a file. Raises ``UsageError`` naming the line, ``NotFound``."""
    from kvg.flow.sources import parse_text, read_part

    name, data = read_part(settings, path)
    found: list[Block | Task] = []
    for number, line in enumerate(parse_text(data, what=name).splitlines(), 1):
        if line.strip():
            found.append(_read_line(line, what=f"{name} line {number}"))
    tasks = tuple(item for item in found if isinstance(item, Task))
    if not tasks:
        raise UsageError(f"{name}: no task", hint='{"task": "…", "answer": "…"}')
    return tuple(item for item in found if isinstance(item, Block)), tasks


def _read_line(line: str, *, what: str) -> Block | Task:
    try:
        value = canon.parse_json(line.encode(), what=what)
    except Corrupt as error:
        raise UsageError(error.message) from None
    if isinstance(value, Mapping) and set(value) == {"task", "answer"}:
        text, answer = value["task"], value["answer"]
        if isinstance(text, str) and isinstance(answer, str) and answer.strip():
            return Task(text, answer)
    if isinstance(value, Mapping) and set(value) == {"block", "shots"}:
        name, shots = value["block"], value["shots"]
        if isinstance(name, str) and isinstance(shots, Sequence) and shots:
            pairs = tuple(_pair(shot, what) for shot in shots)
            if len({parse_problem(text).family.digest for text, _ in pairs}) != 1:
                raise UsageError(f"{what}: the shots are of more than one family")
            return Block(name, pairs)
    raise UsageError(f"{what}: neither a task nor a block", hint='{"task": "…", "answer": "…"}')


def _pair(shot: canon.Json, what: str) -> tuple[str, str]:
    if isinstance(shot, Sequence) and len(shot) == 2:
        text, answer = shot
        if isinstance(text, str) and isinstance(answer, str):
            return text, answer
    raise UsageError(f"{what}: a shot is no pair of question and answer")


@contextmanager
def open_library(
    store: Store,
    settings: Settings,
    name: str | None,
    blocks: Sequence[Block],
    *,
    n_tokens: int = 1,
) -> Iterator[Library]:
    """A library in a temporary store, by the model called ``name`` in ``store``.

    Texts of ``n_tokens`` will go into its window: that is looked at first. Raises ``NotFound``,
    ``Incompatible``.
    """
    from kvg.flow.deposit import deposit
    from kvg.flow.model_add import model_add
    from kvg.flow.registered import check_torch, identified, open_registered, tokenizer_of
    from kvg.store import Store as OwnStore
    from kvg.verify import verify_artifact

    check_torch()
    given = registered_model(store, name)
    check_declared(given, n_tokens)
    with TemporaryDirectory(prefix="kvg-bench-") as folder:
        own = replace(
            settings,
            cwd=Path(folder),
            keys=Path(folder) / "keys",
            store_path=None,
            key_file=None,
            dry_run=False,
            report=SilentReport(),
        )
        kept = OwnStore.init(Path(folder), keyring=keyring_of(own))
        dtype = cast("Literal['BF16', 'F16', 'F32']", given.dtype)
        model_add(
            kept,
            own,
            ModelAddRequest(given.name, given.path, dtype=dtype, adapter=given.adapter),
        )
        model = registered_model(kept, given.name)
        files = identified(kept, own, model)
        found: dict[Digest, Verified] = {}
        for block in blocks:
            (own.cwd / "block.json").write_bytes(canon.encode(block.messages()))
            made = deposit(kept, own, DepositRequest(block.name, chat=Path("block.json")))
            found[block.family] = verify_artifact(kept, made.digest)
        session = open_registered(own, model, files, reference="invariant")
        session.check_window(n_tokens)
        yield Library(kept, own, model, files, session, tokenizer_of(own, model, files), found)
        kept.close()
