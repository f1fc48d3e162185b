"""Inputs that lie where a test wants them, and outputs that show what was left unwritten."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch


def _made(*shape: int, dtype: torch.dtype = torch.float32, skip: int = 0) -> torch.Tensor:
    """Normal values, ``skip`` elements past a 64-byte boundary; the same for the same shape."""
    generator = torch.Generator().manual_seed(sum(i * n for i, n in enumerate(shape, 1)))
    values = torch.randn(shape, generator=generator).to(dtype)
    flat = torch.empty(values.numel() + 64, dtype=dtype)
    lead = (-flat.data_ptr() % 64) // flat.element_size() + skip
    view = flat[lead : lead + values.numel()].view(shape)
    view.copy_(values)
    return view


@pytest.fixture(scope="session")
def made() -> Callable[..., torch.Tensor]:
    return _made


@pytest.fixture
def nan_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every buffer that an operator takes uninitialised holds NaN."""
    stock = torch.Tensor.new_empty

    def new_empty(tensor: torch.Tensor, *args: object, **kwargs: object) -> torch.Tensor:
        return stock(tensor, *args, **kwargs).fill_(float("nan"))  # type: ignore[arg-type]

    monkeypatch.setattr(torch.Tensor, "new_empty", new_empty)


@pytest.fixture(params=[1, 2])
def n_threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)
