"""Importing a GGUF file: its weights as transformers dequantizes them, in an ordinary folder."""

from __future__ import annotations

import contextlib
import io
import shutil
from collections.abc import Mapping
from pathlib import Path

from kvg import canon, durable
from kvg.digest import Digest, Sha256Stream, hex_of
from kvg.errors import Corrupt, Incompatible, NotFound
from kvg.report import Report

PIECE_BYTES = 8 << 20
DONE = "imported.json"
"""Written last: the digest of every file of a finished import."""


def import_gguf(path: Path, *, cache: Path, report: Report) -> Path:
    """The folder in ``cache`` that holds what ``path`` imports to, made when it is not there.

    The folder is named by the digest of the file, so another file never meets an old import.
    Raises ``Incompatible`` when transformers cannot read it or the extra is missing.
    """
    folder = cache / hex_of(file_digest(path, report))
    if is_whole(folder, report):
        return folder
    if folder.exists():
        shutil.rmtree(folder)
    durable.make_dir(folder)
    _convert(path, folder)
    digests = {file.name: file_digest(file, report) for file in sorted(folder.iterdir())}
    durable.write_new(folder / DONE, [canon.encode(digests)], staging=folder)
    return folder


def is_whole(folder: Path, report: Report) -> bool:
    """Whether ``folder`` holds a finished import, every file as it was written then."""
    try:
        digests = canon.decode((folder / DONE).read_bytes(), what=str(folder / DONE))
        if not isinstance(digests, Mapping):
            return False
        return all(file_digest(folder / name, report) == found for name, found in digests.items())
    except (OSError, Corrupt, NotFound):
        return False


def file_digest(path: Path, report: Report) -> Digest:
    """The digest of the file ``path``, read in pieces. Raises ``NotFound``."""
    hasher = Sha256Stream()
    with (
        durable.translated(path),
        open(path, "rb") as file,
        report.task(f"hash {path.name}", path.stat().st_size, "B") as task,
    ):
        while piece := file.read(PIECE_BYTES):
            hasher.update(piece)
            task.advance(len(piece))
    return hasher.digest()


def _convert(path: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    source, name = str(path.parent), path.name
    try:
        # transformers draws its bar here whatever it is told.
        with contextlib.redirect_stderr(io.StringIO()):
            model = AutoModelForCausalLM.from_pretrained(
                source, gguf_file=name, dtype=torch.bfloat16, **_dequantize()
            )
            tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=name)
        for leftover in ("quantization_config", "_pre_quantization_dtype"):
            model.config.__dict__.pop(leftover, None)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    except ImportError:
        raise Incompatible(
            f"{path}: reading GGUF needs more", hint="pip install 'kvg[gguf]'"
        ) from None
    except (OSError, ValueError, KeyError, RuntimeError, TypeError, AttributeError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise Incompatible(f"{path}: transformers cannot import this file: {first[:200]}") from None


def _dequantize() -> dict[str, object]:
    """The argument that asks for plain weights, where this transformers has one."""
    try:
        from transformers import GgufConfig
    except ImportError:
        return {}
    return {"quantization_config": GgufConfig(dequantize=True)}
