"""Code that a forward pass can run and that nothing in Python can look into.

The mode that sees operators sees what Python calls. TorchScript, what ``torch.compile`` made, and
functions of C extensions call the library past it: over the few tokens of a probe their operators
show, but a branch that only longer texts take would not. So what is compiled is refused before
anything runs, wherever a forward pass can be seen to reach it.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType

import torch

from kvg.errors import Incompatible

INTERPRETED = frozenset({*sys.stdlib_module_names, "torch", "numpy", "kvg", "kvg_kernels"})
"""Packages whose functions are not looked into: what they call of torch, the mode sees."""
_SCRIPTED = (torch.jit.ScriptModule, torch.jit.ScriptFunction, torch.ScriptMethod)
Reached = tuple[object, object]
"""Something that code reaches, and the object it is a method of."""


def check_interpreted(model: torch.nn.Module, *, what: str) -> None:
    """Raise ``Incompatible``, naming a module and its class, when its forward pass is compiled.

    Looks at every module, at what it holds (hooks too), and at what its code mentions: globals,
    names in other Python modules and classes, closures, defaults, attributes, and so on from
    function to function. What code finds by a name that it makes as it runs is not seen here.
    """
    reach = _Reach(model)
    for name, module in model.named_modules():
        found = reach.compiled_part(module)
        if found is not None:
            where = f"module {name} ({type(module).__name__})" if name else type(module).__name__
            raise Incompatible(
                f"{what}: {where} runs {found}: which operators that calls cannot be seen",
                hint="use --reference scheduled for this model, or give it in plain Python",
            )


def compiled_kind(value: object) -> str | None:
    """What compiled code ``value`` is, in words; None for anything else."""
    if isinstance(value, torch.jit.ScriptModule):
        return f"TorchScript ({type(value).__name__} {value.original_name})"
    if isinstance(value, _SCRIPTED):
        return f"TorchScript ({type(value).__name__} {value.name})"
    if isinstance(value, torch.nn.Module) and _is_compiled_module(value):
        return f"code made by torch.compile ({type(value).__name__})"
    if isinstance(value, FunctionType) and _is_compiled_function(value):
        return f"code made by torch.compile ({value.__qualname__})"
    if isinstance(value, BuiltinFunctionType) and not _is_known(value.__module__ or "torch"):
        return f"a C extension ({value.__module__}.{value.__name__})"
    return None


def _is_compiled_module(module: torch.nn.Module) -> bool:
    # The class is looked up by name: to import where it is defined takes a second.
    names = {kind.__name__ for kind in type(module).__mro__}
    return "OptimizedModule" in names or module._compiled_call_impl is not None


def _is_compiled_function(function: FunctionType) -> bool:
    marks = vars(function)
    return "_torchdynamo_orig_callable" in marks and not marks.get("_torchdynamo_disable")


def _is_known(module_name: object) -> bool:
    return str(module_name).split(".")[0] in INTERPRETED


class _Reach:
    """What was looked at already: a helper that many modules share is looked at once for each."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._seen: set[tuple[int, int]] = {_key(module, None) for module in model.modules()}

    def compiled_part(self, module: torch.nn.Module) -> str | None:
        """What compiled code a call of ``module`` runs, in words; None where none is found."""
        found = compiled_kind(module)
        waiting = [] if found else [*_called(module), *_global_hooks()]
        while waiting and found is None:
            value, owner = _unbound(*waiting.pop())
            if _key(value, owner) not in self._seen:
                self._seen.add(_key(value, owner))
                found = compiled_kind(value)
                waiting += _reached(value, owner)
        return found


def _global_hooks() -> Iterator[Reached]:
    """What every module's call runs, whichever model it is of."""
    shared = torch.nn.modules.module
    for hooks in (shared._global_forward_hooks, shared._global_forward_pre_hooks):
        yield from ((hook, None) for hook in hooks.values())


def _key(value: object, owner: object) -> tuple[int, int]:
    """Both live as long as the model does; a module is the same one whoever holds it."""
    return id(value), id(None if isinstance(value, torch.nn.Module) else owner)


def _unbound(value: object, owner: object) -> Reached:
    """The function of a method, which is made anew each time it is asked for, and its object."""
    return (value.__func__, value.__self__) if isinstance(value, MethodType) else (value, owner)


def _called(module: torch.nn.Module) -> Iterator[Reached]:
    """The forward pass of ``module``, and all that it and its classes hold: hooks too."""
    yield module.forward, module
    yield from _of_object(module)
    yield from ((value, module) for value in vars(module).values())
    for part in type(module).__mro__:
        yield from ((value, module) for value in vars(part).values() if compiled_kind(value))


def _reached(value: object, owner: object) -> Iterator[Reached]:
    """What a call of ``value`` may call, each with the object that it is a method of.

    ``owner`` is the object that ``value`` is a method of.
    """
    if isinstance(value, torch.nn.Module):
        yield from _called(value)
        yield from ((child, None) for child in value.children())
    elif isinstance(value, staticmethod | classmethod):
        yield value.__func__, owner
    elif isinstance(value, property):
        yield value.fget, owner
    elif isinstance(value, functools.partial):
        yield from ((part, owner) for part in (value.func, *value.args, *value.keywords.values()))
    elif isinstance(value, dict):
        yield from ((item, owner) for item in value.values())
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((item, owner) for item in value)
    elif isinstance(value, FunctionType) and not _is_known(value.__module__):
        yield from _mentioned(value, owner)
    elif not _is_known(type(value).__module__) and not isinstance(value, type | ModuleType):
        yield from _of_object(value)
    elif hasattr(value, "__wrapped__"):  # functools.lru_cache
        yield value.__wrapped__, owner


def _of_object(value: object) -> Iterator[Reached]:
    """What an object of a class of the model's own holds, and what a call of it runs."""
    yield from ((item, value) for item in getattr(value, "__dict__", {}).values())
    for part in type(value).__mro__:
        if not _is_known(part.__module__) and "__call__" in vars(part):
            yield vars(part)["__call__"], value


def _mentioned(function: FunctionType, owner: object) -> Iterator[Reached]:
    """What the code of ``function``, a method of ``owner``, mentions by name or holds."""
    names = _names(function.__code__)
    for value in (*_held(function), *_static(function.__globals__, names)):
        yield value, owner
        yield from ((found, value) for found in _attributes(value, names))
    yield from ((found, owner) for found in _attributes(owner, names))


def _held(function: FunctionType) -> Iterator[object]:
    """What ``function`` was made with: its closure, its defaults, what it wraps."""
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # an empty cell
            yield cell.cell_contents
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    yield from vars(function).values()


def _names(code: CodeType) -> set[str]:
    """Every name that ``code`` and the functions inside it mention."""
    inner = [const for const in code.co_consts if isinstance(const, CodeType)]
    return set(code.co_names).union(*(_names(part) for part in inner))


def _attributes(value: object, names: set[str]) -> Iterator[object]:
    """What ``value`` and its classes call by one of ``names``; no code of its runs for that."""
    if isinstance(value, ModuleType) and _is_known(value.__name__):
        return
    kind = value if isinstance(value, type) else type(value)
    for owner in (value, *kind.__mro__):
        if not (isinstance(owner, type) and _is_known(owner.__module__)):
            yield from _static(getattr(owner, "__dict__", {}), names)


def _static(table: Mapping[str, object], names: set[str]) -> Iterator[object]:
    return (table[name] for name in names if name in table)
