"""The digests of a model's weights, read from its safetensors files without loading them.

What counts is the bytes as loaded, whatever the sharding: a tensor stored in another dtype than
the one asked for is converted first, by the one rule that loading uses.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kvg import canon, durable
from kvg.crew import Crew
from kvg.digest import Digest, Sha256Stream, parse_digest, sha256
from kvg.errors import Corrupt, Incompatible, NotFound
from kvg.report import Report

MAX_HEADER_BYTES = 100 << 20
PIECE_BYTES = 4 << 20
FLOAT_WIDTHS = {"BF16": 2, "F16": 2, "F32": 4, "F64": 8}
"""Bytes of an element."""
FLOAT_DTYPES = tuple(FLOAT_WIDTHS)
DAMAGED = "the file is cut short or damaged: copy it again"
TIED = {"lm_head.weight": ("model.embed_tokens.weight", "transformer.wte.weight")}
"""An output layer that a config ties to the embedding: one tensor under two names."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of a safetensors file: bytes [start, end) of ``path``."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    path: Path
    start: int
    end: int

    @property
    def n_elements(self) -> int:
        n = 1
        for size in self.shape:
            n *= size
        return n


def weight_files(folder: Path) -> tuple[Path, ...]:
    """The safetensors files of the model in ``folder``, by name. Raises ``NotFound``."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        names = _indexed_files(index)
        missing = [name for name in names if not (folder / name).is_file()]
        if missing:
            raise NotFound(f"{folder / missing[0]}: named in {index.name} but not there")
        return tuple(folder / name for name in names)
    there = durable.names_in(folder)
    found = tuple(folder / name for name in there if name.endswith(".safetensors"))
    if not found:
        is_other = any(name.endswith(".bin") for name in there)
        hint = "convert it to safetensors" if is_other else "give a folder with *.safetensors"
        raise NotFound(f"{folder}: no *.safetensors files", hint=hint)
    return found


def stored_tensors(path: Path) -> tuple[StoredTensor, ...]:
    """The tensors of one safetensors file, by name. Raises ``Corrupt`` naming ``path``."""
    with durable.translated(path), open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(MAX_HEADER_BYTES, size - 8):
            raise Corrupt(f"{path}: not a safetensors file", hint=DAMAGED)
        raw = file.read(length)
    try:
        header = json.loads(raw, object_pairs_hook=canon.unique)
        found = [
            _stored_tensor(path, name, entry, 8 + length, size)
            for name, entry in header.items()
            if name != "__metadata__"
        ]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Corrupt(f"{path}: malformed safetensors header", hint=DAMAGED) from None
    return tuple(sorted(found, key=lambda tensor: tensor.name))


def weight_digests(
    folder: Path,
    *,
    dtype: str,
    known: Mapping[Path, Mapping[str, Digest]],
    jobs: int,
    report: Report,
) -> dict[Path, dict[str, Digest]]:
    """The digest of every tensor as loaded in ``dtype``, by file and canonical name.

    ``known`` are files that need no hashing again.
    """
    files = weight_files(folder)
    by_file = {path: stored_tensors(path) for path in files if path not in known}
    names = [tensor.name for tensors in by_file.values() for tensor in tensors]
    if len(names) != len(set(names)):
        raise Corrupt(f"{folder}: a tensor is in two files")
    total = sum(t.end - t.start for tensors in by_file.values() for t in tensors)
    out: dict[Path, dict[str, Digest]] = {
        path: dict(known[path]) for path in files if path in known
    }
    with report.task("hash weights", total, "B") as task, Crew(jobs) as pool:
        for path, tensors in by_file.items():
            digests = pool.map(lambda tensor: digest_as(tensor, dtype), tensors)
            out[path] = {}
            for tensor, digest in zip(tensors, digests, strict=True):
                out[path][tensor.name] = digest
                task.advance(tensor.end - tensor.start)
    return out


def digest_as(tensor: StoredTensor, dtype: str) -> Digest:
    """The digest of the bytes of ``tensor`` as loaded in ``dtype``."""
    if tensor.dtype not in FLOAT_DTYPES or tensor.dtype == dtype:
        return _digest_pieces(raw_pieces(tensor))
    return _digest_pieces(_converted(tensor, dtype))


def merged(by_file: Mapping[Path, Mapping[str, Digest]], *, tied: bool) -> dict[str, Digest]:
    """All tensors of a model by name; an output layer tied to the embedding is left out."""
    weights = {name: digest for part in by_file.values() for name, digest in part.items()}
    if tied:
        for name, embeddings in TIED.items():
            if any(embedding in weights for embedding in embeddings):
                weights.pop(name, None)
    return weights


def encode_digests(digests: Mapping[str, Digest]) -> bytes:
    """``digests`` as bytes for a cache."""
    return canon.encode(digests)


def decode_digests(data: bytes) -> dict[str, Digest]:
    """What ``encode_digests`` wrote. Raises ``Corrupt``."""
    value = canon.decode(data, what="fingerprint cache")
    if not isinstance(value, Mapping):
        raise Corrupt("fingerprint cache: not an object")
    return {name: parse_digest(item, what=f"weight {name}") for name, item in value.items()}


def cache_key(path: Path, dtype: str) -> bytes | None:
    """What names the content of ``path`` for a cache, or None when it is too young to trust.

    (path, device, inode, size, mtime, ctime, dtype): a file changed within the resolution of
    its time stamps could look unchanged, so one younger than two seconds has no key.
    """
    stat = path.stat()
    parts = (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
    if time.time_ns() - max(stat.st_mtime_ns, stat.st_ctime_ns) < 2_000_000_000:
        return None
    text = "\x00".join([str(path), *map(str, parts), dtype])
    return bytes.fromhex(sha256(os.fsencode(text))[7:])


def _indexed_files(index: Path) -> tuple[str, ...]:
    try:
        with open(index, "rb") as file:
            named = json.load(file, object_pairs_hook=canon.unique)["weight_map"].values()
        names = tuple(sorted({str(name) for name in named}))
    except (OSError, ValueError, KeyError, AttributeError, RecursionError):
        raise Corrupt(f"{index}: malformed") from None
    if any("/" in name or name.startswith(".") for name in names):
        raise Corrupt(f"{index}: names a file outside its folder")
    return names


def _stored_tensor(
    path: Path, name: str, entry: Mapping[str, object], data_start: int, size: int
) -> StoredTensor:
    begin, end = (int(n) for n in entry["data_offsets"])  # type: ignore[attr-defined]
    shape = tuple(int(n) for n in entry["shape"])  # type: ignore[attr-defined]
    if not 0 <= begin <= end <= size - data_start:
        raise Corrupt(f"{path}: tensor {name[:80]} lies outside the file", hint=DAMAGED)
    found = StoredTensor(
        name, str(entry["dtype"]), shape, path, data_start + begin, data_start + end
    )
    width = FLOAT_WIDTHS.get(found.dtype)
    if width is not None and end - begin != width * found.n_elements:
        raise Corrupt(
            f"{path}: tensor {name[:80]} has {end - begin} bytes, its shape says "
            f"{width * found.n_elements}",
            hint=DAMAGED,
        )
    return found


def _digest_pieces(pieces: Iterator[bytes]) -> Digest:
    hasher = Sha256Stream()
    for piece in pieces:
        hasher.update(piece)
    return hasher.digest()


def raw_pieces(tensor: StoredTensor) -> Iterator[bytes]:
    """The bytes of ``tensor`` as stored, in pieces of whole elements. Raises ``Corrupt``."""
    with durable.translated(tensor.path), open(tensor.path, "rb") as file:
        file.seek(tensor.start)
        left = tensor.end - tensor.start
        while left:
            piece = file.read(min(PIECE_BYTES, left))
            if not piece:
                raise Corrupt(f"{tensor.path}: ends inside tensor {tensor.name}")
            left -= len(piece)
            yield piece


def _converted(tensor: StoredTensor, dtype: str) -> Iterator[bytes]:
    """The bytes of ``tensor`` after the cast that loading does. Needs torch."""
    try:
        import torch
    except ImportError:
        raise Incompatible(
            f"{tensor.path}: stored in {tensor.dtype}, asked for in {dtype}: the cast needs torch",
            hint="pip install 'kvg[model]'",
        ) from None
    kinds = {
        "BF16": torch.bfloat16,
        "F16": torch.float16,
        "F32": torch.float32,
        "F64": torch.float64,
    }
    for piece in raw_pieces(tensor):
        values = torch.frombuffer(bytearray(piece), dtype=kinds[tensor.dtype])
        yield values.to(kinds[dtype]).view(torch.uint8).numpy().tobytes()
