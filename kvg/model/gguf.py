"""Importing a GGUF file: its weights as transformers dequantizes them, in an ordinary folder."""

from __future__ import annotations

import shutil
from pathlib import Path

from kvg import durable
from kvg.digest import Sha256Stream, hex_of
from kvg.errors import Incompatible
from kvg.report import Report

PIECE_BYTES = 8 << 20
DONE = "imported"


def import_gguf(path: Path, *, cache: Path, report: Report) -> Path:
    """The folder in ``cache`` that holds what ``path`` imports to, made when it is not there.

    The folder is named by the digest of the file, so another file never meets an old import.
    Raises ``Incompatible`` when transformers cannot read it or the extra is missing.
    """
    folder = cache / _content_name(path, report)
    if (folder / DONE).is_file():
        return folder
    if folder.exists():
        shutil.rmtree(folder)
    durable.make_dir(folder)
    _convert(path, folder)
    durable.write_new(folder / DONE, [f"{path.name}\n".encode()], staging=folder)
    return folder


def _content_name(path: Path, report: Report) -> str:
    hasher = Sha256Stream()
    with (
        durable.translated(path),
        open(path, "rb") as file,
        report.task(f"hash {path.name}", path.stat().st_size, "B") as task,
    ):
        while piece := file.read(PIECE_BYTES):
            hasher.update(piece)
            task.advance(len(piece))
    return hex_of(hasher.digest())


def _convert(path: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    source, name = str(path.parent), path.name
    try:
        model = AutoModelForCausalLM.from_pretrained(
            source, gguf_file=name, dtype=torch.bfloat16, **_dequantize()
        )
        tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=name)
        for leftover in ("quantization_config", "_pre_quantization_dtype"):
            model.config.__dict__.pop(leftover, None)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    except ImportError:
        raise Incompatible(f"{path}: reading GGUF needs more", hint="pip install 'kvg[gguf]'") from None
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
