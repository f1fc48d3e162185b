"""How many positions a model was made for, and whether a text fits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kvg.errors import Incompatible

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

UNLIMITED = 2**20
"""Positions of a model whose config names no limit."""


def window_of(config: PreTrainedConfig) -> int:
    """The number of positions that a model of ``config`` was made for."""
    return int(getattr(config.get_text_config(), "max_position_embeddings", 0) or UNLIMITED)


def declared_window(folder: Path) -> int | None:
    """The window of the model in ``folder``, by its config alone; None where it cannot be read."""
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return window_of(config)


def check_fits(n_tokens: int, window: int) -> None:
    """Raise ``Incompatible`` when ``n_tokens`` do not fit ``window``."""
    if n_tokens > window:
        raise Incompatible(
            f"{n_tokens:,} tokens: past the model's window of {window:,}",
            hint="cut the text into parts that fit",
        )
