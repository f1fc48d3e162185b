"""A disk that may lose power, and what a folder can hold afterwards: by what was synced.

``Recorder`` notes the system calls by which one process changes a folder. ``states`` replays them
up to each point and gives the folders that a loss of power there may leave behind. What POSIX
promises is kept and nothing more (as in Pillai et al., "All File Systems Are Not Created Equal",
OSDI 2014):

- the bytes of a file are durable once the file was synced; until then there may be nothing, a
  beginning, zeros, or all of them;
- a name is durable once its folder was synced; until then each change of a name may be there or
  not, whatever became of others, also of the other half of the same rename;
- changes of one and the same name keep their order.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

FOLDER = "folder"
Tree = dict[str, "bytes | None"]
"""What is there, by path under the root: the bytes of files, None for folders."""


@dataclass
class Node:
    """A file or a folder. ``durable`` is what a loss of power leaves, ``late`` what came after."""

    is_folder: bool
    durable: bytes = b""
    late: bytes | None = None
    names: dict[str, Node] = field(default_factory=dict)
    changes: list[tuple[str, Node | None]] = field(default_factory=list)

    def now(self) -> bytes:
        return self.durable if self.late is None else self.late

    def lookup(self, name: str) -> Node | None:
        for changed, node in reversed(self.changes):
            if changed == name:
                return node
        return self.names.get(name)

    def sync(self) -> None:
        if self.is_folder:
            for name, node in self.changes:
                if node is None:
                    self.names.pop(name, None)
                else:
                    self.names[name] = node
            self.changes.clear()
        elif self.late is not None:
            self.durable, self.late = self.late, None


Step = tuple[str, tuple[object, ...]]


def _whole(path: object, dir_fd: int | None) -> object:
    """``path``, also where it is one of the folder ``dir_fd``."""
    if dir_fd is None or not isinstance(path, str | os.PathLike):
        return path
    return os.path.join(os.readlink(f"/proc/self/fd/{dir_fd}"), os.fspath(path))


class Recorder:
    """Notes every change under ``root`` while the block of ``recording`` runs."""

    def __init__(self, root: Path) -> None:
        self.root = os.path.realpath(root)
        self.steps: list[Step] = []
        self._open: dict[int, str] = {}
        self._real = {name: getattr(os, name) for name in _WRAPPED}

    @contextmanager
    def recording(self) -> Iterator[None]:
        with mock.patch.multiple(os, **{name: self._wrapped(name) for name in _WRAPPED}):
            yield

    def _wrapped(self, name: str) -> Callable[..., object]:
        note, real = getattr(self, f"on_{name}"), self._real[name]

        def call(*args: object, **kwargs: object) -> object:
            return note(real, *args, **kwargs)

        return call

    def _under(self, path: object) -> str | None:
        """``path`` relative to the root; None where it is elsewhere."""
        if not isinstance(path, str | os.PathLike):
            return None
        text = os.path.abspath(os.fspath(path))
        return os.path.relpath(text, self.root) if text.startswith(self.root + os.sep) else None

    def _note(self, kind: str, *what: object) -> None:
        self.steps.append((kind, what))

    def on_open(
        self,
        real: Callable[..., int],
        path: object,
        flags: int,
        *rest: object,
        dir_fd: int | None = None,
    ) -> int:
        path = _whole(path, dir_fd)
        where = self._under(path)
        is_new = where is not None and not os.path.lexists(os.fspath(path))  # type: ignore[call-overload]
        fd = real(path, flags, *rest)
        self._open.pop(fd, None)
        if where is not None:
            self._open[fd] = where
            if is_new:
                self._note("create", where)
        return fd

    def on_close(self, real: Callable[..., None], fd: int) -> None:
        self._open.pop(fd, None)
        real(fd)

    def on_write(self, real: Callable[..., int], fd: int, data: bytes) -> int:
        at = os.lseek(fd, 0, os.SEEK_CUR) if fd in self._open else 0
        n = real(fd, data)
        if fd in self._open:
            self._note("write", self._open[fd], at, bytes(memoryview(data)[:n]))
        return n

    def on_ftruncate(self, real: Callable[..., None], fd: int, size: int) -> None:
        real(fd, size)
        if fd in self._open:
            self._note("truncate", self._open[fd], size)

    def on_fsync(self, real: Callable[..., None], fd: int) -> None:
        real(fd)
        if fd in self._open:
            self._note("sync", self._open[fd])

    def on_mkdir(
        self,
        real: Callable[..., None],
        path: object,
        *rest: object,
        dir_fd: int | None = None,
    ) -> None:
        path = _whole(path, dir_fd)
        real(path, *rest)
        if (where := self._under(path)) is not None:
            self._note("mkdir", where)

    def on_unlink(
        self, real: Callable[..., None], path: object, *, dir_fd: int | None = None
    ) -> None:
        path = _whole(path, dir_fd)
        real(path)
        if (where := self._under(path)) is not None:
            self._note("remove", where)

    def on_rmdir(self, real: Callable[..., None], path: object) -> None:
        self.on_unlink(real, path)

    def on_rename(
        self,
        real: Callable[..., None],
        path: object,
        target: object,
        *,
        src_dir_fd: int | None = None,
        dst_dir_fd: int | None = None,
    ) -> None:
        path, target = _whole(path, src_dir_fd), _whole(target, dst_dir_fd)
        real(path, target)
        before, after = self._under(path), self._under(target)
        assert (before is None) is (after is None), (path, target)
        if before is None or after is None:
            return
        self._note("rename", before, after)
        self._open = {
            fd: after + name.removeprefix(before) if _is_in(name, before) else name
            for fd, name in self._open.items()
        }


_WRAPPED = ("open", "close", "write", "ftruncate", "fsync", "mkdir", "unlink", "rmdir", "rename")


def _is_in(name: str, folder: str) -> bool:
    return name == folder or name.startswith(folder + os.sep)


class Disk:
    """A folder as the recorded steps leave it: what is durable, and what is still under way."""

    def __init__(self, root: Path) -> None:
        self._top = _read(root)

    def apply(self, step: Step) -> None:
        kind, what = step
        path = str(what[0])
        if kind == "create":
            self._change(path, Node(is_folder=False))
        elif kind == "mkdir":
            self._change(path, Node(is_folder=True))
        elif kind == "remove":
            self._change(path, None)
        elif kind == "rename":
            node = self._node(path)
            self._change(path, None)
            self._change(str(what[1]), node)
        elif kind == "write":
            _, at, data = what
            assert isinstance(at, int) and isinstance(data, bytes)
            node = self._node(path)
            now = node.now().ljust(at, b"\0")
            node.late = now[:at] + data + now[at + len(data) :]
        elif kind == "truncate":
            (_, size) = what
            assert isinstance(size, int)
            node = self._node(path)
            node.late = node.now()[:size].ljust(size, b"\0")
        elif kind == "sync":
            self._node(path).sync()
        else:
            raise AssertionError(kind)

    def after_power_loss(self, most: int, choice: random.Random) -> Iterator[Tree]:
        """Folders that may be found after a loss of power now: every one if they are few, else
        ``most`` of them, with nothing and with all of what was under way among them."""
        options = list(_options(self._top))
        total = 1
        for _, choices in options:
            total *= len(choices)
        if total <= most:
            picks: Iterator[tuple[object, ...]] = itertools.product(*(c for _, c in options))
        else:
            ends = [tuple(c[i] for _, c in options) for i in (0, -1)]
            some = [tuple(choice.choice(c) for _, c in options) for _ in range(most - 2)]
            picks = iter(ends + some)
        for pick in picks:
            chosen = {key: value for (key, _), value in zip(options, pick, strict=True)}
            tree: Tree = {}
            _build(self._top, "", chosen, tree)
            yield tree

    def _change(self, path: str, node: Node | None) -> None:
        folder, name = os.path.split(path)
        self._node(folder).changes.append((name, node))

    def _node(self, path: str) -> Node:
        node = self._top
        for part in [part for part in path.split(os.sep) if part not in ("", ".")]:
            found = node.lookup(part)
            assert found is not None, path
            node = found
        return node


Key = tuple[int, str]


def _options(top: Node) -> Iterator[tuple[Key, list[object]]]:
    """What may have become of each thing under way: how many changes of a name, which bytes."""
    seen: set[int] = set()
    waiting = [top]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if node.late is not None:
            half = node.late[: len(node.late) // 2]
            zeros = bytes(len(node.late))
            found = dict.fromkeys((node.durable, half, zeros, node.late))
            yield (id(node), ""), list(found)
        for name in sorted({name for name, _ in node.changes}):
            n = sum(1 for changed, _ in node.changes if changed == name)
            yield (id(node), name), list(range(n + 1))
        waiting += list(node.names.values())
        waiting += [changed for _, changed in node.changes if changed is not None]


def _build(node: Node, path: str, chosen: dict[Key, object], tree: Tree) -> None:
    if not node.is_folder:
        data = chosen.get((id(node), ""), node.durable)
        assert isinstance(data, bytes)
        tree[path] = data
        return
    if path:
        tree[path] = None
    names: dict[str, Node | None] = dict(node.names)
    done: dict[str, int] = {}
    for name, changed in node.changes:
        done[name] = done.get(name, 0) + 1
        most = chosen[(id(node), name)]
        assert isinstance(most, int)
        if done[name] <= most:
            names[name] = changed
    for name, found in names.items():
        if found is not None:
            _build(found, os.path.join(path, name), chosen, tree)


def _read(path: Path) -> Node:
    if not path.is_dir():
        return Node(is_folder=False, durable=path.read_bytes())
    node = Node(is_folder=True)
    node.names = {entry.name: _read(entry) for entry in path.iterdir()}
    return node


def write(tree: Tree, folder: Path) -> None:
    """Make ``folder``, which is not there, hold ``tree``; nobody else may read it."""
    folder.mkdir(mode=0o700)
    for path, data in sorted(tree.items()):
        if data is None:
            (folder / path).mkdir(mode=0o700)
        else:
            (folder / path).touch(mode=0o600)
            (folder / path).write_bytes(data)


def states(disk: Disk, steps: list[Step], *, most: int = 64) -> list[Tree]:
    """Every different folder that a loss of power at any point of ``steps`` may leave.

    ``most`` bounds them for each point. ``disk`` is as it was before them.
    """
    choice = random.Random(0)
    found: dict[str, Tree] = {}
    for step in (None, *steps):
        if step is not None:
            disk.apply(step)
        for tree in disk.after_power_loss(most, choice):
            label = hashlib.sha256()
            for path, data in sorted(tree.items()):
                label.update(
                    f"{path}\0{data is None}\0{len(data or b'')}\0".encode() + (data or b"")
                )
            found.setdefault(label.hexdigest(), tree)
    return list(found.values())


def tried(
    record_property: Callable[[str, object], None], verb: str, n_states: int, n_tried: int
) -> None:
    """Have it told and recorded on how many of the folders that may be left ``verb`` was tried."""
    record_property("power loss matrix", (verb, f"{n_states} states", n_tried))
    record_property(
        "record", {"type": "power-loss", "verb": verb, "states": n_states, "tried": n_tried}
    )
