"""What is attested about a manifest: in-toto statements, the payloads of DSSE envelopes.

Statements are a foreign format, read by its own rules: unknown fields are passed over. Written
ones are canonical JSON. Sources: in-toto Statement v1, SLSA Provenance v1, in-toto test-result
v0.1. Where the last two leave room, kvg marks a resource's part by its ``annotations.role``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

from kvg import canon
from kvg.canon import Json
from kvg.digest import PREFIX, Buffer, Digest, hex_of, is_digest, parse_digest
from kvg.errors import Corrupt, Incompatible
from kvg.frozen import frozen

STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
PROVENANCE_TYPE: Final = "https://slsa.dev/provenance/v1"
TEST_RESULT_TYPE: Final = "https://in-toto.io/attestation/test-result/v0.1"
BUILD_TYPE: Final = "https://kvg.dev/deposit/v1"
SUBJECT_NAME: Final = "kvg"
MAX_SIZE_BYTES: Final = 16 << 20

REJECTION_GATE: Final = "deposit"
"""The name of the gate that a rejected deposit failed: what it is about is no artifact."""

Kind: TypeAlias = Literal["text", "chat", "ids"]
Result: TypeAlias = Literal["PASSED", "FAILED", "WARNED"]
PASSED: Final = "PASSED"
FAILED: Final = "FAILED"
WARNED: Final = "WARNED"


@frozen
class Resource:
    """Something a statement points at: a name, and where known its digest and its URI."""

    name: str
    digest: Digest | None = None
    uri: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise Corrupt("resource: no name")
        if self.digest is not None and not is_digest(self.digest):
            raise Corrupt(f"resource {self.name[:80]}: not a digest: {str(self.digest)[:80]!r}")


@frozen
class Provenance:
    """Where a deposit came from and what made it.

    ``source`` None: the depositor does not say. ``valid_until`` is in seconds since 1970;
    ``started`` and ``finished`` are RFC 3339 UTC, the depositor's word and nothing more.
    """

    source: tuple[Resource, ...] | None
    family: Digest | None
    method: Digest | None
    parent: Digest | None
    cut_points: tuple[int, ...]
    valid_until: int | None
    depends: tuple[Resource, ...]
    kind: Kind
    device_class: str
    kernels: str
    libraries: Mapping[str, str]
    model: Resource
    tokenizer: Resource | None
    template: Resource | None
    builder: str
    started: str
    finished: str
    schema_version: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in ("text", "chat", "ids"):
            raise Corrupt(f"provenance: kind {str(self.kind)[:40]!r} is not text, chat or ids")
        if list(self.cut_points) != sorted(set(self.cut_points)):
            raise Corrupt("provenance: cut points do not ascend")


SANDBOX = "sandbox: "
"""How the resource begins that says in which enclosure a check ran."""

NO_SANDBOX = "none"
"""What it says where there was none."""


def sandbox_resource(enclosure: str) -> Resource:
    """What says that a check ran in the enclosure of this name."""
    return Resource(f"{SANDBOX}{enclosure}")


JUDGED_PROBLEM, JUDGED_ANSWER = "judged problem", "judged answer"
"""The resources that say what a gate looked at: an artifact may answer several problems."""


def judged_resources(problem: Digest | None, answer: Digest) -> tuple[Resource, ...]:
    """What says that ``answer`` was judged, as the answer to ``problem`` where there was one."""
    asked = () if problem is None else (Resource(JUDGED_PROBLEM, problem),)
    return (*asked, Resource(JUDGED_ANSWER, answer))


@frozen
class TestResult:
    """The outcome of one gate or replay, with its configuration and its evidence."""

    __test__ = False  # not a test case, whatever its name

    result: Result
    gate: str
    configuration: tuple[Resource, ...] = ()
    evidence: tuple[Resource, ...] = ()
    url: str | None = None

    def __post_init__(self) -> None:
        if self.result not in _LISTS:
            raise Corrupt(f"test result: {str(self.result)[:40]!r} is not a result")
        if not isinstance(self.gate, str) or not self.gate:
            raise Corrupt("test result: no gate")

    @property
    def sandbox(self) -> str | None:
        """The enclosure that it ran in, ``none`` where there was none, None where it is not said:
        then no program ran that kvg did not bring."""
        said = [item.name for item in self.configuration if item.name.startswith(SANDBOX)]
        return said[0].removeprefix(SANDBOX) if said else None

    @property
    def judged(self) -> tuple[Digest | None, Digest | None]:
        """The problem and the answer that were looked at; None for what is not said."""
        said = {item.name: item.digest for item in self.configuration}
        return said.get(JUDGED_PROBLEM), said.get(JUDGED_ANSWER)


@frozen
class Statement:
    """What was said (``predicate``) of the manifest ``subject``."""

    subject: Digest
    predicate: Provenance | TestResult


def encode_provenance(manifest: Digest, provenance: Provenance) -> bytes:
    """The canonical in-toto statement that ``manifest`` came about as ``provenance`` says."""
    return _encode(manifest, PROVENANCE_TYPE, _provenance_value(provenance))


def encode_test_result(manifest: Digest, outcome: TestResult) -> bytes:
    """The canonical in-toto statement that a test of ``manifest`` came out as ``outcome``."""
    return _encode(manifest, TEST_RESULT_TYPE, _test_result_value(outcome))


def parse_statement(payload: Buffer, *, what: str) -> Statement:
    """The statement in a verified envelope's ``payload``.

    Raises ``Incompatible`` on a predicate or build that this kvg does not know, ``Corrupt``
    naming ``what`` on anything malformed or about more than one manifest.
    """
    if memoryview(payload).nbytes > MAX_SIZE_BYTES:
        raise Corrupt(f"{what}: larger than any statement")
    value = canon.parse_json(bytes(payload), what=what)
    try:
        return _read_statement(value)
    except (Corrupt, Incompatible) as error:
        raise type(error)(f"{what}: {error.message}", hint=error.hint) from None


def _encode(manifest: Digest, predicate_type: str, predicate: Json) -> bytes:
    subject: Json = [{"name": SUBJECT_NAME, "digest": {"sha256": hex_of(manifest)}}]
    return canon.encode(
        {
            "_type": STATEMENT_TYPE,
            "subject": subject,
            "predicateType": predicate_type,
            "predicate": predicate,
        }
    )


def _provenance_value(provenance: Provenance) -> Json:
    source, parts = provenance.source, _parts_of(provenance)
    return {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": {
                "kind": provenance.kind,
                "source": None if source is None else _descriptors(source),
                "family": provenance.family,
                "method": provenance.method,
                "parent": provenance.parent,
                "cutPoints": list(provenance.cut_points),
                "validUntil": provenance.valid_until,
                "depends": _descriptors(provenance.depends),
                **_schema_value(provenance),
            },
            "internalParameters": {
                "deviceClass": provenance.device_class,
                "kernels": provenance.kernels,
                "libraries": dict(provenance.libraries),
            },
            "resolvedDependencies": [
                _descriptor(resource, role) for role, resource in parts if resource is not None
            ],
        },
        "runDetails": {
            "builder": {"id": provenance.builder},
            "metadata": {
                "startedOn": provenance.started,
                "finishedOn": provenance.finished,
            },
        },
    }


def _schema_value(provenance: Provenance) -> dict[str, Json]:
    version = provenance.schema_version
    return {} if version is None else {"schemaVersion": version}


def _parts_of(provenance: Provenance) -> list[tuple[str, Resource | None]]:
    return [
        ("model", provenance.model),
        ("tokenizer", provenance.tokenizer),
        ("template", provenance.template),
        *(("source", resource) for resource in provenance.source or ()),
    ]


_LISTS: Final[Mapping[str, str]] = {
    PASSED: "passedTests",
    WARNED: "warnedTests",
    FAILED: "failedTests",
}


def _test_result_value(outcome: TestResult) -> Json:
    value: dict[str, Json] = {
        "result": outcome.result,
        "configuration": [
            *(_descriptor(resource, "configuration") for resource in outcome.configuration),
            *(_descriptor(resource, "evidence") for resource in outcome.evidence),
        ],
    }
    for result, name in _LISTS.items():
        value[name] = [outcome.gate] if result == outcome.result else []
    if outcome.url is not None:
        value["url"] = outcome.url
    return value


def _descriptors(resources: Iterable[Resource]) -> list[Json]:
    return [_descriptor(resource, None) for resource in resources]


def _descriptor(resource: Resource, role: str | None) -> Json:
    value: dict[str, Json] = {"name": resource.name}
    if resource.digest is not None:
        value["digest"] = {"sha256": hex_of(resource.digest)}
    if resource.uri is not None:
        value["uri"] = resource.uri
    if role is not None:
        value["annotations"] = {"role": role}
    return value


def _read_statement(value: Json) -> Statement:
    top = _object(value, "statement")
    if top.get("_type") != STATEMENT_TYPE:
        raise Incompatible(f"statement type {str(top.get('_type'))[:80]!r}", hint="update kvg")
    subject = _read_subject(top.get("subject"))
    predicate_type, predicate = top.get("predicateType"), _object(top.get("predicate"), "predicate")
    if predicate_type == PROVENANCE_TYPE:
        return Statement(subject, _read_provenance(predicate))
    if predicate_type == TEST_RESULT_TYPE:
        return Statement(subject, _read_test_result(predicate))
    raise Incompatible(f"predicate type {str(predicate_type)[:80]!r}", hint="update kvg")


def _read_subject(value: Json) -> Digest:
    subjects = canon.as_list(value, what="subject")
    if len(subjects) != 1:
        raise Corrupt(f"subject: {len(subjects)} of them, expected one")
    digest = _read_digest(_object(subjects[0], "subject").get("digest"), "subject")
    if digest is None:
        raise Corrupt("subject: no sha256")
    return digest


def _read_provenance(predicate: Mapping[str, Json]) -> Provenance:
    definition = _object(predicate.get("buildDefinition"), "buildDefinition")
    if definition.get("buildType") != BUILD_TYPE:
        raise Incompatible(f"build type {str(definition.get('buildType'))[:80]!r}")
    outer = _object(definition.get("externalParameters"), "externalParameters")
    inner = _object(definition.get("internalParameters"), "internalParameters")
    details = _object(predicate.get("runDetails"), "runDetails")
    metadata = _object(details.get("metadata"), "metadata")
    parts = _read_parts(definition.get("resolvedDependencies"))
    model, source, until = parts.get("model"), outer.get("source"), outer.get("validUntil")
    version = outer.get("schemaVersion")
    if model is None:
        raise Corrupt("resolvedDependencies: no model")
    return Provenance(
        source=None if source is None else _read_resources(source, "source"),
        family=_optional_digest(outer.get("family"), "family"),
        method=_optional_digest(outer.get("method"), "method"),
        parent=_optional_digest(outer.get("parent"), "parent"),
        cut_points=_read_cut_points(outer.get("cutPoints")),
        valid_until=None if until is None else canon.as_int(until, what="validUntil"),
        depends=_read_resources(outer.get("depends"), "depends"),
        kind=_read_kind(outer.get("kind")),
        device_class=canon.as_str(inner.get("deviceClass"), what="deviceClass"),
        kernels=canon.as_str(inner.get("kernels"), what="kernels"),
        libraries=_read_libraries(inner.get("libraries")),
        model=model,
        tokenizer=parts.get("tokenizer"),
        template=parts.get("template"),
        builder=canon.as_str(_object(details.get("builder"), "builder").get("id"), what="builder"),
        started=canon.as_str(metadata.get("startedOn"), what="startedOn"),
        finished=canon.as_str(metadata.get("finishedOn"), what="finishedOn"),
        schema_version=None if version is None else canon.as_str(version, what="schemaVersion"),
    )


def _read_parts(value: Json) -> dict[str, Resource]:
    """The resources of a provenance that can be there once, by role."""
    parts: dict[str, Resource] = {}
    for item in canon.as_list(value, what="resolvedDependencies"):
        role = _role(item)
        if role not in ("model", "tokenizer", "template"):
            continue
        if role in parts:
            raise Corrupt(f"resolvedDependencies: two of role {role}")
        parts[role] = _read_resource(item, "resolvedDependencies")
    return parts


def _read_test_result(predicate: Mapping[str, Json]) -> TestResult:
    result, url = _read_result(predicate.get("result")), predicate.get("url")
    named = canon.as_list(predicate.get(_LISTS[result]), what=_LISTS[result])
    if len(named) != 1:
        raise Corrupt(f"{_LISTS[result]}: {len(named)} of them, expected one gate")
    resources = canon.as_list(predicate.get("configuration"), what="configuration")
    evidence = [item for item in resources if _role(item) == "evidence"]
    configuration = [item for item in resources if _role(item) != "evidence"]
    return TestResult(
        result=result,
        gate=canon.as_str(named[0], what="gate"),
        configuration=_read_resources(configuration, "configuration"),
        evidence=_read_resources(evidence, "evidence"),
        url=None if url is None else canon.as_str(url, what="url"),
    )


def _read_result(value: Json) -> Result:
    if value == "PASSED":
        return "PASSED"
    if value == "FAILED":
        return "FAILED"
    if value == "WARNED":
        return "WARNED"
    raise Corrupt(f"result: {str(value)[:40]!r} is not a result")


def _read_kind(value: Json) -> Kind:
    if value == "text":
        return "text"
    if value == "chat":
        return "chat"
    if value == "ids":
        return "ids"
    raise Corrupt(f"kind: {str(value)[:40]!r} is not text, chat or ids")


def _read_cut_points(value: Json) -> tuple[int, ...]:
    items: Sequence[Json] = canon.as_list(value, what="cutPoints")
    return tuple(canon.as_int(item, what="cutPoints", least=1) for item in items)


def _read_libraries(value: Json) -> dict[str, str]:
    return {
        name: canon.as_str(version, what=f"library {name[:80]}")
        for name, version in _object(value, "libraries").items()
    }


def _read_resources(value: Json, what: str) -> tuple[Resource, ...]:
    return tuple(_read_resource(item, what) for item in canon.as_list(value, what=what))


def _read_resource(value: Json, what: str) -> Resource:
    item = _object(value, what)
    uri = item.get("uri")
    return Resource(
        name=canon.as_str(item.get("name"), what=f"{what} name"),
        digest=_read_digest(item.get("digest"), what),
        uri=None if uri is None else canon.as_str(uri, what=f"{what} uri"),
    )


def _read_digest(value: Json, what: str) -> Digest | None:
    """The sha256 of an in-toto digest set, None where the set is absent or has none."""
    found = None if value is None else _object(value, what).get("sha256")
    if found is None:
        return None
    return parse_digest(PREFIX + canon.as_str(found, what=f"{what} sha256"), what=what)


def _optional_digest(value: Json, what: str) -> Digest | None:
    return None if value is None else parse_digest(value, what=what)


def _role(value: Json) -> Json:
    annotations = _object(value, "resource").get("annotations")
    return annotations.get("role") if isinstance(annotations, Mapping) else None


def _object(value: Json, what: str) -> Mapping[str, Json]:
    if not isinstance(value, Mapping):
        raise Corrupt(f"{what}: not an object")
    return value
