"""Which computation: the model's mathematics and the engine that ran it, and their fingerprints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

from kvg import canon
from kvg.canon import Json
from kvg.digest import Digest, parse_digest, sha256
from kvg.errors import Corrupt
from kvg.frozen import frozen
from kvg.objects.fields import check_digest, check_dtype, check_int, check_name

MODEL_SCHEMA: Final = "kvg.model/1"
ADAPTER_SCHEMA: Final = "kvg.adapter/1"
ENGINE_SCHEMA: Final = "kvg.engine/1"
PROBE_VERSION: Final = "kvg.probe/2"
"""Which list of operators a probe runs. Another one gives every engine another fingerprint."""

Reference: TypeAlias = Literal["invariant", "scheduled"]
FloatJson: TypeAlias = (
    "bool | int | float | str | Sequence[FloatJson] | Mapping[str, FloatJson] | None"
)
"""Foreign JSON, such as a model's config: with floats."""


@frozen
class Model:
    """Which mathematics: the fingerprint of weights and config, and what they are called."""

    fingerprint: Digest
    architecture: str
    dtype: str

    def __post_init__(self) -> None:
        check_digest(self.fingerprint, "model.fingerprint")
        check_name(self.architecture, "model.architecture")
        check_dtype(self.dtype, "model.dtype")


@frozen
class Schedule:
    """How a scheduled reference cuts its input: pages of ``page_tokens``, backend, threads."""

    page_tokens: int
    attention: str
    threads: int

    def __post_init__(self) -> None:
        check_int(self.page_tokens, "engine.schedule.page_tokens", least=1)
        check_name(self.attention, "engine.schedule.attention")
        check_int(self.threads, "engine.schedule.threads", least=1)


@frozen
class Engine:
    """How it was computed; ``schedule`` is None exactly when the reference is invariant."""

    fingerprint: Digest
    reference: Reference
    schedule: Schedule | None

    def __post_init__(self) -> None:
        check_digest(self.fingerprint, "engine.fingerprint")
        if self.reference not in ("invariant", "scheduled"):
            raise Corrupt("engine.reference: neither invariant nor scheduled")
        if (self.schedule is not None) != (self.reference == "scheduled"):
            raise Corrupt(f"engine.schedule: does not fit reference {self.reference}")


def engine_fingerprint(reference: Reference, schedule: Schedule | None, probe: Digest) -> Digest:
    """The class of machines that compute alike: reference, schedule and measured probe."""
    return sha256(
        canon.encode(
            {
                "schema": ENGINE_SCHEMA,
                "reference": reference,
                "schedule": _schedule_value(schedule),
                "probe": probe,
            }
        )
    )


def model_fingerprint(
    architecture: str,
    config: Mapping[str, FloatJson],
    weights: Mapping[str, Digest],
    dtype: str,
    adapters: Sequence[Digest] = (),
) -> Digest:
    """The identity of a model's mathematics; floats in ``config`` count as their repr.

    ``adapters`` is null in the hashed document where there are none.
    """
    return sha256(
        canon.encode(
            {
                "schema": MODEL_SCHEMA,
                "architecture": architecture,
                "config": _without_floats(config),
                "weights": dict(weights),
                "dtype": dtype,
                "adapters": list(adapters) or None,
            }
        )
    )


def adapter_fingerprint(config: Mapping[str, FloatJson], weights: Mapping[str, Digest]) -> Digest:
    """The identity of what an adapter adds to its model; floats in ``config`` count as their repr.

    Its dtype is that of the model, which the model's fingerprint holds.
    """
    return sha256(
        canon.encode(
            {
                "schema": ADAPTER_SCHEMA,
                "config": _without_floats(config),
                "weights": dict(weights),
            }
        )
    )


def model_value(model: Model) -> Json:
    """The document that ``read_model`` reads."""
    return {
        "fingerprint": model.fingerprint,
        "architecture": model.architecture,
        "dtype": model.dtype,
    }


def engine_value(engine: Engine) -> Json:
    """The document that ``read_engine`` reads."""
    return {
        "fingerprint": engine.fingerprint,
        "reference": engine.reference,
        "schedule": _schedule_value(engine.schedule),
    }


def read_model(value: Json) -> Model:
    model = canon.take(value, ("fingerprint", "architecture", "dtype"), what="model")
    return Model(
        fingerprint=parse_digest(model["fingerprint"], what="model.fingerprint"),
        architecture=canon.as_str(model["architecture"], what="model.architecture"),
        dtype=canon.as_str(model["dtype"], what="model.dtype"),
    )


def read_engine(value: Json) -> Engine:
    engine = canon.take(value, ("fingerprint", "reference", "schedule"), what="engine")
    reference = canon.as_str(engine["reference"], what="engine.reference")
    return Engine(
        fingerprint=parse_digest(engine["fingerprint"], what="engine.fingerprint"),
        reference=_read_reference(reference),
        schedule=_read_schedule(engine["schedule"]),
    )


def _read_reference(text: str) -> Reference:
    if text == "invariant":
        return "invariant"
    if text == "scheduled":
        return "scheduled"
    raise Corrupt(f"engine.reference: {text[:40]!r} is neither invariant nor scheduled")


def _read_schedule(value: Json) -> Schedule | None:
    if value is None:
        return None
    keys = ("page_tokens", "attention", "threads")
    schedule = canon.take(value, keys, what="engine.schedule")
    return Schedule(
        page_tokens=canon.as_int(schedule["page_tokens"], what="engine.schedule.page_tokens"),
        attention=canon.as_str(schedule["attention"], what="engine.schedule.attention"),
        threads=canon.as_int(schedule["threads"], what="engine.schedule.threads"),
    )


def _without_floats(value: FloatJson) -> Json:
    if isinstance(value, float):
        return repr(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Mapping):
        return {key: _without_floats(item) for key, item in value.items()}
    return [_without_floats(item) for item in value]


def _schedule_value(schedule: Schedule | None) -> Json:
    if schedule is None:
        return None
    return {
        "page_tokens": schedule.page_tokens,
        "attention": schedule.attention,
        "threads": schedule.threads,
    }
