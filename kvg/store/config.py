"""``config.toml``: models, remotes, defaults. Read with tomllib; edits keep comments and order.

A key is ``SECTION.KEY``, or ``model.NAME.KEY`` and ``remote.NAME.KEY``, where NAME may hold dots.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, TypeAlias

from kvg import durable
from kvg.errors import Corrupt, KvgError, NotFound, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from tomlkit import TOMLDocument

    from kvg.locking import Lock

Value: TypeAlias = str | int | bool | tuple[str, ...]
Tree: TypeAlias = "Mapping[str, Value | Tree]"
NAMED_SECTIONS = ("model", "remote")
"""Sections that hold one table per name."""

KNOWN: tuple[str, ...] = (
    "core.color",
    "core.device",
    "core.jobs",
    "core.lock-wait",
    "core.progress",
    "default.model",
    "deposit.require",
    "freshness.schema",
    "store.codec",
    "store.log",
    "store.quota",
    "store.shared",
    "store.witnesses",
)
"""Every key that means something, but for those of ``NAMED_SECTIONS``."""

KIND_OF: Mapping[str, type[Value]] = {
    "default.model": str,
    "deposit.require": tuple,
    "store.codec": int,
    "store.log": str,
    "store.quota": int,
    "store.shared": str,
    "store.witnesses": tuple,
}
"""What the keys of a store hold; where a tuple of strings does, one string does as well."""

KNOWN_OF: Mapping[str, tuple[str, ...]] = {
    "model": ("adapter", "architecture", "dtype", "fingerprint", "parameters", "path"),
    "remote": ("codec", "filter", "pages", "url"),
}
"""The keys of each table of ``NAMED_SECTIONS``."""

MAX_FILE_BYTES = 1 << 20
_LOGIN = re.compile(r"https?://[^/]*@", re.IGNORECASE)
_MAX_DIGITS = 18


def holds_login(value: Value) -> bool:
    """Whether ``value`` is an address with a name and password, or a token, in it."""
    return isinstance(value, str) and _LOGIN.match(value) is not None


class Config:
    """One configuration file. A file that is not there is an empty one.

    Reading never changes it; each change rereads the file under the store's lock and replaces it
    in one step. One that holds a login is readable by its owner (in a shared store by the group)
    alone.
    """

    def __init__(
        self,
        path: Path,
        *,
        staging: Path | None = None,
        lock: Lock | None = None,
        is_damaged: bool = False,
    ) -> None:
        """Read ``path``. ``staging``: folder on the same file system for the new file on a change.

        Raises ``Corrupt`` when the file is not TOML of strings, integers, booleans and lists of
        strings; where ``is_damaged`` may be, it is then read as empty, with that as its ``fault``.
        """
        self.path = path
        self.fault: Corrupt | None = None
        self._staging = staging or path.parent
        self._lock = lock
        self._tree: Tree = {}
        try:
            self._tree = _read_tree(path)
        except Corrupt as error:
            if not is_damaged:
                raise
            self.fault = error

    def reread(self) -> None:
        """Take up what the file says by now. Raises ``Corrupt``."""
        self._tree = _read_tree(self.path)

    @staticmethod
    def top_level(path: Path) -> Tree:
        """Everything in another TOML file of the kinds that a configuration may hold."""
        return _read_tree(path)

    def get(self, key: str) -> Value | None:
        """The value of the dotted ``key``, None when it is not set."""
        found: Value | Tree | None = self._tree
        for part in split_key(key):
            found = found.get(part) if isinstance(found, Mapping) else None
        if isinstance(found, Mapping):
            raise UsageError(f"{key}: a section, not a key", hint="kvg config list")
        return found

    def text(self, key: str, default: str | None = None) -> str | None:
        """The string at ``key``. Raises ``Corrupt`` when it is set to something else."""
        value = self.get(key)
        if value is None:
            return default
        if not isinstance(value, str):
            raise _wrong(self.path, key, "a string")
        return value

    def number(self, key: str, default: int) -> int:
        """The integer at ``key``. Raises ``Corrupt`` when it is set to something else."""
        value = self.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int):
            raise _wrong(self.path, key, "an integer")
        return value

    def switch(self, key: str, default: bool) -> bool:
        """The boolean at ``key``. Raises ``Corrupt`` when it is set to something else."""
        value = self.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise _wrong(self.path, key, "true or false")
        return value

    def words(self, key: str) -> tuple[str, ...]:
        """The list of strings at ``key`` (one string counts as a list of one); empty if unset."""
        value = self.get(key)
        if value is None:
            return ()
        if isinstance(value, str):
            return (value,)
        if not isinstance(value, tuple):
            raise _wrong(self.path, key, "a list of strings")
        return value

    def names(self, section: str) -> tuple[str, ...]:
        """The names of the tables of ``section``, in the file's order: models, remotes."""
        tree = self._tree.get(section)
        if not isinstance(tree, Mapping):
            return ()
        return tuple(name for name, value in tree.items() if isinstance(value, Mapping))

    def table(self, section: str, name: str) -> Mapping[str, Value]:
        """What is set for one model or remote. Raises ``NotFound``."""
        tree = self._tree.get(section)
        found = tree.get(name) if isinstance(tree, Mapping) else None
        if not isinstance(found, Mapping):
            raise NotFound(f"{name}: no such {section}", hint=f"kvg {section} list")
        return {key: value for key, value in found.items() if not isinstance(value, Mapping)}

    def items(self) -> Iterator[tuple[str, Value]]:
        """Every dotted key with its value."""
        yield from _flatten(self._tree, "")

    def unknown(self) -> Iterator[tuple[str, str | None]]:
        """Every key that means nothing, e.g. a misspelt one, with the nearest that does."""
        for key, _ in self.items():
            section, _, rest = key.partition(".")
            last = rest.rpartition(".")[2]
            if key in KNOWN or ("." in rest and last in KNOWN_OF.get(section, ())):
                continue
            from difflib import get_close_matches

            known = KNOWN
            if section in KNOWN_OF:
                table = key[: -len(last)]
                known = tuple(table + name for name in KNOWN_OF[section])
            yield key, next(iter(get_close_matches(key, known, n=1)), None)

    def misfits(self) -> Iterator[Corrupt]:
        """What is wrong with each key of a store that is set to a value of another kind."""
        for key, kind in KIND_OF.items():
            try:
                if kind is int:
                    self.number(key, 0)
                elif kind is str:
                    self.text(key)
                else:
                    self.words(key)
            except Corrupt as error:
                yield error

    def set(self, key: str, value: Value) -> None:
        """Set the dotted ``key``, durably."""
        self.change({key: value})

    def unset(self, key: str) -> None:
        """Remove the dotted ``key``, durably; one that is not set is no failure."""
        self.change({key: None})

    def change(self, changes: Mapping[str, Value | None]) -> None:
        """Set several keys in one step; None removes a key."""
        with self._edit() as document:
            for key, value in changes.items():
                _put(document.document, split_key(key), value)

    def set_table(self, section: str, name: str, values: Mapping[str, Value]) -> None:
        """Replace the table of one model or remote, in one step."""
        with self._edit() as document:
            _put(document.document, (section, name), None)
            for key, value in values.items():
                _put(document.document, (section, name, key), value)

    def remove_table(self, section: str, name: str) -> None:
        """Remove the table of one model or remote. Raises ``NotFound``."""
        self.table(section, name)
        with self._edit() as document:
            _put(document.document, (section, name), None)

    def _edit(self) -> _Edit:
        return _Edit(self)

    def _locked(self) -> AbstractContextManager[None]:
        return self._lock.exclusive() if self._lock is not None else nullcontext()

    def _store(self, text: str) -> None:
        tree = _parse_tree(text, self.path)
        is_private = any(holds_login(value) for _, value in _flatten(tree, ""))
        durable.make_dir(self._staging)
        durable.replace(
            self.path,
            [text.encode("utf-8")],
            staging=self._staging,
            mode=0o600 if is_private else 0o644,
        )
        self._tree = _read_tree(self.path)


class _Edit:
    """One change of the file: lock, reread, edit, replace."""

    document: TOMLDocument

    def __init__(self, config: Config) -> None:
        self._config = config
        self._lock = config._locked()

    def __enter__(self) -> _Edit:
        import tomlkit

        self._lock.__enter__()
        try:
            self.document = tomlkit.parse(_read_text(self._config.path))
        except ValueError as error:
            self._lock.__exit__(None, None, None)
            raise Corrupt(f"{self._config.path}: not TOML: {error}") from None
        except BaseException:
            self._lock.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        import tomlkit

        try:
            if kind is None:
                self._config._store(tomlkit.dumps(self.document))
        finally:
            self._lock.__exit__(None, None, None)


def split_key(key: str) -> tuple[str, ...]:
    """The parts of a dotted key. Raises ``UsageError``."""
    section, _, rest = key.partition(".")
    if section in NAMED_SECTIONS and "." in rest:
        name, _, last = rest.rpartition(".")
        parts: tuple[str, ...] = (section, name, last)
    else:
        parts = tuple(key.split("."))
    if len(parts) < 2 or not all(parts):
        raise UsageError(f"{key}: not a key", hint="a key is SECTION.KEY, e.g. store.codec")
    return parts


def parse_value(text: str) -> Value:
    """What a person typed as a value: ``true``, ``false``, an integer, a list, else a string."""
    if text in ("true", "false"):
        return text == "true"
    try:
        return int(text)
    except ValueError:
        pass
    if text.startswith("["):
        import tomllib

        try:
            found = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            return text
        if isinstance(found, list) and all(isinstance(item, str) for item in found):
            return tuple(found)
    return text


def _wrong(path: Path, key: str, wanted: str) -> Corrupt:
    return Corrupt(f"{path}: {key} is not {wanted}", hint=f"edit {path}")


def _read_text(path: Path) -> str:
    try:
        with durable.translated(path), open(path, "rb", opener=durable.plain) as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except NotFound:
        return ""
    if len(data) > MAX_FILE_BYTES:
        raise Corrupt(f"{path}: larger than a configuration can be")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise Corrupt(f"{path}: not UTF-8") from None


def _read_tree(path: Path) -> Tree:
    return _parse_tree(_read_text(path), path)


def _parse_tree(text: str, path: Path) -> Tree:
    plain = parse_plain(text)
    if plain is not None:
        return plain
    import tomllib

    try:
        return _tree_of(tomllib.loads(text), path, "")
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise Corrupt(f"{path}: not TOML: {error}", hint=f"edit {path}") from None


def parse_plain(text: str) -> Tree | None:
    """What tomllib finds in ``text``, at a small part of its price; None where it has to be asked.

    Takes the lines that kvg itself writes: ``[table]`` headers, the last part quoted or not, and
    ``key = value`` with strings that need no escape, integers and booleans.
    """
    root: dict[str, Value | Tree] = {}
    table, headers = root, set()
    for line in text.split("\n"):
        if line.startswith("[") and line.endswith("]"):
            parts = _plain_parts(line[1:-1])
            found = None if parts is None or parts in headers else _plain_table(root, parts)
            if found is None:
                return None
            headers.add(parts)
            table = found
        elif line:
            key, _, written = line.partition(" = ")
            value = _plain_value(written)
            if value is None or not _is_bare(key) or key in table:
                return None
            table[key] = value
    return root


def _plain_parts(header: str) -> tuple[str, ...] | None:
    bare, _, quoted = header.partition('."')
    parts = tuple(bare.split("."))
    if not all(map(_is_bare, parts)):
        return None
    if not quoted:
        return parts if bare == header else None
    name = _plain_value('"' + quoted)
    return (*parts, name) if isinstance(name, str) else None


def _plain_table(
    root: dict[str, Value | Tree], parts: Sequence[str]
) -> dict[str, Value | Tree] | None:
    table = root
    for part in parts:
        inner = table.setdefault(part, {})
        if not isinstance(inner, dict):
            return None
        table = inner
    return table


def _plain_value(written: str) -> Value | None:
    if written in ("true", "false"):
        return written == "true"
    if written.isascii() and written.isdigit() and (written[0] != "0" or written == "0"):
        return int(written) if len(written) <= _MAX_DIGITS else None
    inside = written[1:-1]
    is_plain = len(written) > 1 and written[0] == written[-1] == '"' and inside.isprintable()
    return inside if is_plain and '"' not in inside and "\\" not in inside else None


def _is_bare(key: str) -> bool:
    return key.isascii() and key.replace("-", "").replace("_", "").isalnum()


def _tree_of(found: Mapping[str, object], path: Path, prefix: str) -> Tree:
    return {key: _value_of(value, path, prefix + key) for key, value in found.items()}


def _value_of(value: object, path: Path, key: str) -> Value | Tree:
    if isinstance(value, dict):
        return _tree_of(value, path, key + ".")
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    if isinstance(value, str | int):
        return value
    raise Corrupt(
        f"{path}: {key} is {type(value).__name__}, not a string, integer, boolean or list"
    )


def _flatten(tree: Tree, prefix: str) -> Iterator[tuple[str, Value]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _put(document: TOMLDocument, parts: tuple[str, ...], value: Value | None) -> None:
    import tomlkit
    from tomlkit.container import Container
    from tomlkit.items import Table

    table: TOMLDocument | Table | Container = document
    for part in parts[:-1]:
        if part not in table:
            if value is None:
                return
            table.add(part, tomlkit.table(is_super_table=part != parts[-2]))
        inner = table[part]
        if not isinstance(inner, Table | Container):
            raise KvgError(f"{'.'.join(parts)}: {part} is a value, not a section")
        table = inner
    if value is None:
        table.pop(parts[-1], None)
    else:
        table[parts[-1]] = list(value) if isinstance(value, tuple) else value
