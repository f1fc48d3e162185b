"""How much of a machine one call may use."""

from __future__ import annotations

from kvg.errors import UsageError
from kvg.frozen import frozen

MIB = 1 << 20


@frozen
class Limits:
    """What stops a call. ``memory_bytes`` holds for all its processes together, as they are looked
    at, and twice that for the address space of each; ``file_bytes`` for a file and for ``/tmp``.
    """

    wall_s: float = 10.0
    cpu_s: int = 10
    memory_bytes: int = 768 * MIB
    processes: int = 32
    output_bytes: int = MIB
    file_bytes: int = 64 * MIB
    open_files: int = 128

    def __post_init__(self) -> None:
        for name in self.__match_args__:
            if not getattr(self, name) > 0:
                raise UsageError(f"limit {name}: not above 0")

    def argv(self, *, beyond: int = 0) -> tuple[str, ...]:
        """The limits that the kernel keeps, as a command before the command.

        Files are counted from the number ``beyond``: one that is handed over keeps its number,
        and a number past the limit can be used but not copied.
        """
        wanted = {
            "cpu": f"{self.cpu_s}:{self.cpu_s + 1}",  # first a signal that tells what it was
            "as": f"{2 * self.memory_bytes}",
            "nproc": f"{self.processes}",
            "fsize": f"{self.file_bytes}",
            "nofile": f"{beyond + self.open_files}",
            "core": "0",
        }
        return (*(f"--{name}={value}" for name, value in wanted.items()), "--")
