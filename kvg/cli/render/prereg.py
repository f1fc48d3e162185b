"""Renderers of preregistrations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from kvg.cli.render import Renderer, View
from kvg.cli.render.words import brief, count, when
from kvg.flow.records.prereg import Prereg, PreregSample, PreregSummary


def preregistration(record: Prereg, view: View) -> Iterator[str]:
    """The bare digest for a script; for a person what is expected."""
    if not view.person:
        yield record.digest + "\n"
        return
    place = "not in this store's log"
    if record.log_index is not None and record.time is not None:
        place = f"log entry {record.log_index:,}, {when(record.time)}"
    yield f"{record.digest}  {count(record.samples, 'sample')}  {place}\n"
    for item in record.artifacts:
        yield (
            f"  {brief(item.manifest)}  {count(item.count, 'token')}  "
            f"{count(len(item.pages), 'page')}  {item.architecture} {item.dtype}  "
            f"{item.reference} engine {brief(item.engine)}\n"
        )
        if view.verbose:
            for prompt, logits in zip(item.prompts, item.logits, strict=True):
                yield f"    prompt {brief(prompt)}  logits {logits}\n"


def prereg_sample(record: PreregSample, view: View) -> Iterator[str]:
    if record.equal and not view.verbose:
        return
    mark = "as expected" if record.equal else view.terminal.out("differs", "red")
    yield (
        f"{brief(record.manifest)}  prompt {brief(record.prompt_digest)}  {mark}  expected "
        f"{brief(record.expected)}  grafted {brief(record.grafted)}  fresh {brief(record.fresh)}\n"
    )


def prereg_summary(record: PreregSummary, view: View) -> Iterator[str]:
    line = (
        f"{record.equal} of {record.samples} as expected, grafted and fresh; "
        f"{record.pages_equal} of {record.pages} pages equal"
    )
    if record.log_index is None:
        line += "; not in this store's log"
    yield view.terminal.out(line, "red" if record.exit_code else "green") + "\n"


RENDERERS = cast(
    "dict[str, Renderer]",
    {
        "preregistration": preregistration,
        "prereg-sample": prereg_sample,
        "prereg-summary": prereg_summary,
    },
)
