"""Where a gate runs: its enclosure, limits, and the files that it is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Final

from kvg import durable
from kvg.canon import Json
from kvg.digest import sha256
from kvg.errors import NotFound, UsageError
from kvg.frozen import frozen
from kvg.gates.outcome import log_text
from kvg.objects.statement import Resource, sandbox_resource
from kvg.sandbox import Enclosure, Job, Limits, Outcome, run, start
from kvg.sandbox.enclosure import check_kept, python_folders

MAX_FILE_BYTES: Final = 16 << 20
GATE_LIMITS: Final = Limits(wall_s=120.0, cpu_s=110)


@frozen
class Place:
    """``folder`` is what names of files are relative to; ``hidden`` is never seen inside."""

    enclosure: Enclosure
    folder: Path
    hidden: tuple[Path, ...] = ()
    limits: Limits = field(default_factory=lambda: GATE_LIMITS)

    def run(
        self,
        argv: tuple[str, ...],
        files: Mapping[str, bytes],
        *,
        stdin: bytes = b"",
        readable: tuple[Path, ...] = (),
        answer: bytes | None = None,
        kept: tuple[Path, ...] = (),
    ) -> Outcome:
        """One fresh call. This Python can always be run in it.

        There ``import answer`` gives the functions and values of the program ``answer``, computed
        apart, where ``kept`` is not seen. Where that was stopped at a limit, the call was.
        """
        job = Job(
            argv,
            files=files,
            stdin=stdin,
            readable=(*python_folders(), *readable),
            hidden=self.hidden,
            limits=self.limits,
        )
        return run(job, self.enclosure) if answer is None else self._run_beside(job, answer, kept)

    def _run_beside(self, job: Job, answer: bytes, kept: tuple[Path, ...]) -> Outcome:
        from kvg.gates.apart import MODULE, Apart

        apart = Apart(self.enclosure, replace(job, hidden=(*job.hidden, *kept)), answer)
        try:
            files = {**job.files, MODULE: apart.stand_in()}
            started = start(replace(job, files=files, fds=apart.fds), self.enclosure)
            apart.begin()
            outcome = started.finish(job.stdin)
        finally:
            beside = apart.end()
        if beside is None:
            return outcome
        stderr = outcome.stderr + b"\nanswer: " + beside.stderr if beside.stderr else outcome.stderr
        stopped = outcome.stopped or (None if outcome.is_done else beside.stopped)
        return replace(outcome, stderr=stderr, stopped=stopped)

    def read(self, name: str) -> bytes:
        """A file that belongs to a gate. Raises ``NotFound``, ``UsageError``."""
        path = self.folder / name
        if not durable.is_file(path):
            raise NotFound(
                f"{name}: no such file", hint="a gate's file is found from where you are"
            )
        if any(path.resolve().is_relative_to(folder.resolve()) for folder in self.hidden):
            raise UsageError(
                f"{name}: lies in a folder of keys or of a store, which no gate is shown",
                hint="give the gate a copy elsewhere, if it may be seen by what is judged",
            )
        if self.enclosure.program is not None:
            check_kept(path, name)
        with durable.translated(path), open(path, "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise UsageError(f"{name}: larger than a gate's file may be")
        return data

    def configuration(self, files: Mapping[str, bytes]) -> tuple[Resource, ...]:
        """What the outcome depends on beside text and answer: for what is attested."""
        parts = [Resource(name, sha256(data)) for name, data in sorted(files.items())]
        return (*parts, sandbox_resource(self.enclosure.name))


def call_record(outcome: Outcome) -> Json:
    """One call, for evidence. Times are left out: they differ between runs."""
    return {
        "status": outcome.status,
        "stopped": outcome.stopped,
        "enclosure": outcome.enclosure,
        "stdout": log_text(outcome.stdout),
        "stderr": log_text(outcome.stderr),
    }
