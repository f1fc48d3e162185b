"""Names of files in folders: where ``demo`` is a file, ``demo/x`` can be none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


class Tree:
    """Names that can be files beside one another."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names: set[str] = set()
        self._below: dict[str, str] = {}
        """Folders, each with one of the names in it."""
        for name in names:
            self._note(name)

    def add(self, name: str) -> str | None:
        """Note ``name``, unless one that is there stands in its way: that one."""
        blocker = self._below.get(name) or next(
            (folder for folder in folders_of(name) if folder in self._names), None
        )
        if blocker is None:
            self._note(name)
        return blocker

    def _note(self, name: str) -> None:
        self._names.add(name)
        for folder in folders_of(name):
            self._below.setdefault(folder, name)


def folders_of(name: str) -> Iterator[str]:
    """The folders on the way to ``name``, the innermost first."""
    while "/" in name:
        name = name.rpartition("/")[0]
        yield name
