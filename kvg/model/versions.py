"""Which versions of kernels and libraries compute here, as an attestation names them."""

from __future__ import annotations

from importlib.metadata import version

import torch
import transformers

import kvg_kernels
from kvg import __version__
from kvg.objects.computation import PROBE_VERSION


def kernels_version() -> str:
    """The version of kvg's own operators, and that of the probe that named the engine."""
    return f"{kvg_kernels.VERSION} {PROBE_VERSION}"


def library_versions(*, with_adapter: bool = False) -> dict[str, str]:
    """The libraries that take part in a computation, by name; peft only ``with_adapter``."""
    return {
        "kvg": __version__,
        "torch": str(torch.__version__),
        "transformers": transformers.__version__,
        **({"peft": version("peft")} if with_adapter else {}),
    }


def compute_threads() -> int:
    """How many threads an operator may use."""
    return torch.get_num_threads()
