"""Code that Python cannot look into is refused before it runs, wherever a model reaches it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import lmdb.cpython
import pytest
import torch
from torch import nn
from torch.nn import functional
from transformers import AutoModelForCausalLM

from kvg.errors import Incompatible
from kvg.model.compiled import check_interpreted
from kvg.model.loader import adopt_model

LONG = 64
"""Tokens from which the modules here take another way: more than any check runs."""


@torch.jit.script
def scripted(x: torch.Tensor) -> torch.Tensor:
    return x - x.mean(1, keepdim=True)


def plain(x: torch.Tensor) -> torch.Tensor:
    return x * 2


compiled = torch.compile(plain, backend="eager")
not_compiled = torch.compiler.disable(plain)
elsewhere = ModuleType("elsewhere")
elsewhere.scripted = scripted  # type: ignore[attr-defined]


def helper(x: torch.Tensor) -> torch.Tensor:
    return inner_helper(x)


def inner_helper(x: torch.Tensor) -> torch.Tensor:
    return scripted(x)


def wrapped(forward: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """As the decorators of transformers: a module's own code lies in a closure."""

    @functools.wraps(forward)
    def call(self: nn.Module, *args: torch.Tensor) -> torch.Tensor:
        return forward(self, *args)

    return call


class Doubling(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


class Global(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return scripted(x) if x.shape[1] > LONG else x


class OfAnotherModule(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return elsewhere.scripted(x) if x.shape[1] > LONG else x


class Helped(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return helper(x) if x.shape[1] > LONG else x


class Inherited(Global):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x)


class Decorated(nn.Module):
    @wrapped
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.long(x) if x.shape[1] > LONG else x

    def long(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([scripted(part) for part in x])


class OfTheClass(nn.Module):
    table = (None, scripted)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.table[1](x) if x.shape[1] > LONG else x  # type: ignore[misc]


class Default(nn.Module):
    def forward(
        self, x: torch.Tensor, change: Callable[[torch.Tensor], torch.Tensor] = scripted
    ) -> torch.Tensor:
        return change(x) if x.shape[1] > LONG else x


class Compiled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return compiled(x) if x.shape[1] > LONG else x


class Extension(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * len(lmdb.cpython.version())


class Holder(nn.Module):
    """Holds something under a name that its code never says."""

    def __init__(self, held: object) -> None:
        super().__init__()
        self.held = held

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class Caller:
    """No module, but what calls it calls compiled code."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return scripted(x)


class Called(Doubling):
    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return scripted(super().__call__(x))


class Plain:
    def __init__(self, held: object) -> None:
        self.held = held


@functools.lru_cache
def found() -> Callable[..., torch.Tensor]:
    return scripted


def hooked(hook: Callable[..., object]) -> nn.Module:
    module = Doubling()
    module.register_forward_hook(hook)
    return module


def made_at_once() -> nn.Module:
    module = Doubling()
    module.compile(backend="eager")
    return module


SCRIPT, COMPILE = r"TorchScript \(.*\)", r"code made by torch.compile \(.*\)"
REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "a scripted module": (lambda: torch.jit.script(Doubling()), SCRIPT),
    "a traced module": (lambda: torch.jit.trace(Doubling(), torch.ones(1, 2)), SCRIPT),
    "a global": (Global, SCRIPT),
    "a name in another module": (OfAnotherModule, SCRIPT),
    "a helper's helper": (Helped, SCRIPT),
    "the forward of a base class": (Inherited, SCRIPT),
    "a method behind a decorator": (Decorated, SCRIPT),
    "a class attribute": (OfTheClass, SCRIPT),
    "a default": (Default, SCRIPT),
    "an attribute": (lambda: Holder(scripted), SCRIPT),
    "a list": (lambda: Holder([plain, {"f": functools.partial(scripted)}]), SCRIPT),
    "a module that is not registered": (lambda: Holder([torch.jit.script(Doubling())]), SCRIPT),
    "a module's module that is not": (lambda: Holder([nn.Sequential(Global())]), SCRIPT),
    "a hook": (lambda: hooked(lambda module, args, out: scripted(out)), SCRIPT),
    "an object that is called": (lambda: Holder(Caller()), SCRIPT),
    "an object's attribute": (lambda: Holder(Plain([scripted])), SCRIPT),
    "a call of a class of its own": (Called, SCRIPT),
    "a function that remembers": (lambda: hooked(lambda m, args, out: found()(out)), SCRIPT),
    "a compiled module": (lambda: torch.compile(Doubling(), backend="eager"), COMPILE),
    "a module compiled in place": (made_at_once, COMPILE),
    "a compiled function": (Compiled, COMPILE),
    "a C extension": (Extension, r"a C extension \(lmdb\.cpython\.version\)"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_compiled_code_is_refused_by_name(what: str) -> None:
    make, kind = REFUSED[what]
    part = make()
    name = type(part).__name__
    with pytest.raises(Incompatible, match=rf"^m: module 1 \({name}\) runs {kind}: ") as caught:
        check_interpreted(nn.Sequential(nn.Linear(2, 2), part), what="m")
    assert caught.value.code == 7 and caught.value.hint


INTERPRETED: dict[str, Callable[[], nn.Module]] = {
    "plain code": Doubling,
    "torch's own functions": lambda: hooked(lambda module, args, out: functional.silu(out)),
    "what is never compiled": lambda: hooked(lambda module, args, out: not_compiled(out)),
    "the standard library": lambda: Holder([len, functools.reduce, str.join]),
}


@pytest.mark.parametrize("what", INTERPRETED)
def test_what_is_interpreted_passes(what: str) -> None:
    check_interpreted(nn.Sequential(INTERPRETED[what]()), what="m")


def test_a_hook_of_all_modules_is_looked_at() -> None:
    hook = nn.modules.module.register_module_forward_hook(lambda m, args, out: scripted(out))
    try:
        with pytest.raises(Incompatible, match=SCRIPT):
            check_interpreted(Doubling(), what="it")
    finally:
        hook.remove()
    check_interpreted(Doubling(), what="it")


def test_a_model_is_refused_as_it_is_loaded(tiny: dict[str, Path]) -> None:
    """Its few probed tokens never come to the compiled branch. Scheduled takes it."""
    module = AutoModelForCausalLM.from_pretrained(tiny["llama"], dtype=torch.float32)
    module.model.layers[1].mlp = nn.Sequential(module.model.layers[1].mlp, Global())
    where = r"module model\.layers\.1\.mlp\.1 \(Global\) runs TorchScript"
    with pytest.raises(Incompatible, match=where):
        adopt_model(module, device="cpu", attention="kvg_invariant", what="m")
    adopt_model(module, device="cpu", attention="sdpa", what="m")
