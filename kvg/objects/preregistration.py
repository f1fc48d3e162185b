"""Preregistrations: what a run is expected to give, written down and logged before it is run.

Canonical JSON. It stands alone: inputs, model, engine and outputs are named by their digests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvg import canon
from kvg.canon import Json
from kvg.digest import Buffer, Digest, parse_digest
from kvg.errors import Corrupt
from kvg.frozen import frozen
from kvg.objects.computation import (
    Engine,
    Model,
    engine_value,
    model_value,
    read_engine,
    read_model,
)
from kvg.objects.fields import check_digest, check_int

SCHEMA: Final = "kvg.prereg/1"
_RUN_KEYS = ("manifest", "model", "engine", "tokens", "pages", "samples")


@frozen
class ExpectedLogits:
    """After an artifact's text and the token ids ``prompt`` (their digest) come ``logits``."""

    prompt: Digest
    count: int
    logits: Digest

    def __post_init__(self) -> None:
        check_digest(self.prompt, "sample.prompt")
        check_int(self.count, "sample.count", least=1)
        check_digest(self.logits, "sample.logits")


@frozen
class ExpectedRun:
    """What ``engine`` is to compute of one artifact: its pages, and logits after prompts."""

    manifest: Digest
    model: Model
    engine: Engine
    tokens: Digest
    count: int
    pages: tuple[Digest, ...]
    samples: tuple[ExpectedLogits, ...]

    def __post_init__(self) -> None:
        check_digest(self.manifest, "run.manifest")
        check_digest(self.tokens, "run.tokens")
        check_int(self.count, "run.count", least=1)
        for page in self.pages:
            check_digest(page, "run.page")
        if not self.samples:
            raise Corrupt("run.samples: none")


@frozen
class Preregistration:
    """One or more expected runs, each of another artifact."""

    runs: tuple[ExpectedRun, ...]

    def __post_init__(self) -> None:
        if not self.runs:
            raise Corrupt("runs: none")
        if len({run.manifest for run in self.runs}) != len(self.runs):
            raise Corrupt("runs: an artifact twice")


def encode_preregistration(found: Preregistration) -> bytes:
    """The canonical bytes of ``found``."""
    return canon.encode({"schema": SCHEMA, "runs": [_run_value(run) for run in found.runs]})


def parse_preregistration(data: Buffer, *, what: str) -> Preregistration:
    """The preregistration whose canonical bytes are ``data``.

    Raises ``Incompatible`` on another schema version, ``Corrupt`` naming ``what``.
    """
    value = canon.decode(bytes(data), what=what)
    canon.check_schema(value, SCHEMA, what=what)
    try:
        fields = canon.take(value, ("schema", "runs"), what="preregistration")
        runs = canon.as_list(fields["runs"], what="runs")
        return Preregistration(tuple(_read_run(run) for run in runs))
    except Corrupt as error:
        raise Corrupt(f"{what}: {error.message}", hint=error.hint) from None


def _run_value(run: ExpectedRun) -> Json:
    return {
        "manifest": run.manifest,
        "model": model_value(run.model),
        "engine": engine_value(run.engine),
        "tokens": {"digest": run.tokens, "count": run.count},
        "pages": list(run.pages),
        "samples": [
            {"prompt": item.prompt, "count": item.count, "logits": item.logits}
            for item in run.samples
        ],
    }


def _read_run(value: Json) -> ExpectedRun:
    run = canon.take(value, _RUN_KEYS, what="run")
    tokens = canon.take(run["tokens"], ("digest", "count"), what="run.tokens")
    return ExpectedRun(
        manifest=parse_digest(run["manifest"], what="run.manifest"),
        model=read_model(run["model"]),
        engine=read_engine(run["engine"]),
        tokens=parse_digest(tokens["digest"], what="run.tokens"),
        count=canon.as_int(tokens["count"], what="run.count"),
        pages=_digests(canon.as_list(run["pages"], what="run.pages"), "run.page"),
        samples=tuple(
            _read_sample(item) for item in canon.as_list(run["samples"], what="run.samples")
        ),
    )


def _read_sample(value: Json) -> ExpectedLogits:
    sample = canon.take(value, ("prompt", "count", "logits"), what="sample")
    return ExpectedLogits(
        prompt=parse_digest(sample["prompt"], what="sample.prompt"),
        count=canon.as_int(sample["count"], what="sample.count"),
        logits=parse_digest(sample["logits"], what="sample.logits"),
    )


def _digests(values: Sequence[Json], what: str) -> tuple[Digest, ...]:
    return tuple(parse_digest(value, what=what) for value in values)
