"""Every operator, its CPU form and its Triton form in the interpreter, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvg.errors import Incompatible

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


def run(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(ROOT), str(ROOT / "kernels")])
    return subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def interpreted(*given: str, **variables: str) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("triton", reason="triton is not installed")
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    return run("-m", "pytest", *options, *given, TRITON_INTERPRET="1", **variables)


def test_operators_in_the_interpreter() -> None:
    done = interpreted(*(str(path) for path in sorted(HERE.glob("interpreted_*.py"))))
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_blas_the_processor_gets_does_not_matter() -> None:
    """The kernels of OpenBLAS for AVX2, whose last rows of a tile have an order of their own."""
    file = str(HERE / "interpreted_contracts.py")
    done = interpreted(file, "-k", "test_linear_rows or test_bmm", OPENBLAS_CORETYPE="Haswell")
    assert done.returncode == 0, done.stdout + done.stderr


def test_kernels_compile_for_gpus() -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    done = run(str(HERE / "compile_ahead.py"), TRITON_INTERPRET="0")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_call_chooses_no_binary() -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    done = run(str(HERE / "one_binary.py"), TRITON_INTERPRET="0")
    assert done.returncode == 0, done.stdout + done.stderr


def test_everything_works_where_triton_is_absent() -> None:
    done = run("-c", WITHOUT_TRITON)
    assert done.returncode == 0, done.stdout + done.stderr


def test_gpu_check_says_when_there_is_no_gpu() -> None:
    done = run("bench/gpu_check.py", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == Incompatible.code, done.stdout + done.stderr
    assert (done.stdout, done.stderr) == ("", "no CUDA device: nothing was checked\n")


WITHOUT_TRITON = """
import sys
sys.modules["triton"] = None
import torch
from kvg_kernels.attention import AttentionSpec, attention, paged_attention
from kvg_kernels.bmm import baddbmm, bmm
from kvg_kernels.linear import linear
from kvg_kernels.pages import PageLayout, page_gather, page_scatter
from kvg_kernels.planes import join_planes, split_planes
from kvg_kernels.pointwise import pointwise
from kvg_kernels.rms_norm import rms_norm
from kvg_kernels.softmax import softmax

x = torch.ones(3, 32)
linear(x, torch.ones(8, 32)), rms_norm(x, None, 1e-6), softmax(x), pointwise(torch.exp, x)
bmm(x[None], x.T[None]), baddbmm(torch.ones(1, 3, 3), x[None], x.T[None])
layout = PageLayout(n_layers=1, kv_heads=1, page_tokens=256, k_dim=16, v_dim=16)
pool = torch.zeros(2, layout.slot_elements)
page_scatter(torch.ones(layout.page_elements(3)), pool, 1, layout, 3)
assert page_gather(pool, 1, layout, 3).eq(1).all()
query = torch.ones(1, 2, 1, 16)
paged_attention(query, pool, torch.tensor([[1]]), [2], AttentionSpec(scale=0.25), layout, 0)
attention(query[0], torch.ones(1, 256, 16), torch.ones(1, 256, 16), 2, AttentionSpec(scale=0.25))
assert join_planes(*split_planes(torch.arange(7, dtype=torch.uint8), 2)).tolist() == list(range(7))
assert not any(name.startswith("triton.") for name in sys.modules)
"""
