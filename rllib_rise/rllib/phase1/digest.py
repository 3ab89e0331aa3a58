"""A name for any value, by what it consists of.

Two values have the same name if the same code would do the same with them. So values count by
content, classes and functions by their code: by that of their file where they can be imported, else
(lambdas, closures, what a script defines) by their own and by all they refer to.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import sys
import types
from collections.abc import Mapping, Set
from functools import cache, cached_property, partial
from typing import Any

import numpy as np
import torch

# Of a class: what Python adds by itself.
_NO_CONTENT = (
    "__dict__",
    "__weakref__",
    "__doc__",
    "__module__",
    "__annotations__",
    "__slotnames__",
    "_abc_impl",
)


class UndescribableError(TypeError):
    """A value whose content cannot be told."""


def digest(value: Any) -> str:
    """A name for any value, the same in all processes."""
    try:
        text = _text(_describe(value, (), {}))
    except UndescribableError:
        raise
    except Exception as error:
        raise UndescribableError(f"a value cannot be described: {error}") from error
    return _sha(text.encode())[:24]


# What was described already, by id; the value itself is kept so that its id stays its own.
_Memo = dict[int, tuple[Any, str]]


def _describe(value: Any, above: tuple[int, ...], memo: _Memo) -> Any:
    """Something that JSON can write: the value, or a digest of all it consists of.

    Args:
        value: Anything.
        above: The ids of what it is a part of.
        memo: What was described before.
    """
    if value is None or type(value) in (bool, int, float, str):
        return value
    if id(value) in above:
        return {"again": len(above) - above.index(id(value))}
    if id(value) not in memo:
        content = _content(value, (*above, id(value)), memo)
        memo[id(value)] = value, _sha(_text(content).encode())
    return {"digest": memo[id(value)][1]}


def _content(value: Any, inside: tuple[int, ...], memo: _Memo) -> Any:
    """What a value consists of."""

    def each(values: Any) -> list[Any]:
        return [_describe(item, inside, memo) for item in values]

    match value:
        case torch.Tensor():
            return {"tensor": each((value.detach().cpu().numpy(),))}
        case np.ndarray() if value.dtype != object:
            content = _sha(np.ascontiguousarray(value).tobytes())
            return {"array": [str(value.dtype), list(value.shape), content]}
        case bytes() | bytearray():
            return {"bytes": _sha(value)}
        case Mapping():
            return {"mapping": sorted((each(item) for item in value.items()), key=_text)}
        case list() | tuple():
            return {type(value).__name__: each(value)}
        case Set():
            return {"set": sorted(each(value), key=_text)}
        case partial():
            return {"partial": each((value.func, value.args, value.keywords))}
        case types.MethodType():
            return {"method": each((value.__func__, value.__self__))}
        case types.ModuleType():
            return {"module": value.__name__}
        case types.CodeType():
            parts = (value.co_code, value.co_consts, value.co_names, value.co_varnames)
            return {"code": each(parts)}
        case property():
            return {"property": each((value.fget, value.fset, value.fdel))}
        case classmethod() | staticmethod():
            return {type(value).__name__: each((value.__func__,))}
        case cached_property():
            return {"cached_property": each((value.func,))}
        case types.BuiltinFunctionType() if not isinstance(value.__self__, types.ModuleType):
            return {"method": each((value.__name__, value.__self__))}
        case type() | types.FunctionType() | types.BuiltinFunctionType():
            if _importable(value):
                return {"name": _name(value), "sources": _sources(value)}
            return _describe_own_code(value, each)
    if hasattr(value, "__wrapped__") and callable(value):  # functools.cache
        return {"wrapper": each((type(value), value.__wrapped__))}
    try:
        # As a pickle would see it: what makes the object, and its state.
        parts = value.__reduce_ex__(4)
    except Exception as error:
        raise UndescribableError(f"{value!r} cannot be described: {error}") from error
    if isinstance(parts, str):
        return {"name": parts}
    return {"object": each(list(part) if _is_iterator(part) else part for part in parts)}


def _describe_own_code(value: Any, each: Any) -> Any:
    """A class or function that only this process has."""
    if isinstance(value, type):
        body = {name: item for name, item in vars(value).items() if name not in _NO_CONTENT}
        return {"class": [value.__qualname__, *each((value.__bases__, body))]}
    if not isinstance(value, types.FunctionType):
        return {"name": _name(value)}
    code = value.__code__
    known = value.__globals__
    referred = {name: known[name] for name in sorted(_names(code)) if name in known}
    cells = [_inside(cell) for cell in value.__closure__ or ()]
    parts = (code, value.__defaults__, value.__kwdefaults__, cells, referred)
    return {"function": each(parts)}


def _names(code: types.CodeType) -> set[str]:
    inner = [const for const in code.co_consts if isinstance(const, types.CodeType)]
    return set(code.co_names).union(*(_names(const) for const in inner))


def _inside(cell: Any) -> Any:
    try:
        return [cell.cell_contents]
    except ValueError:  # a name that is not yet bound
        return []


def _is_iterator(value: Any) -> bool:
    return hasattr(value, "__next__")


def _name(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"


def _importable(value: Any) -> bool:
    """Whether other processes find the very same thing under its name."""
    module = sys.modules.get(value.__module__ or "")
    if module is None or value.__module__ == "__main__":
        return False
    found: Any = module
    for part in value.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is value


def _sources(value: Any) -> list[str | None]:
    """Digests of the files with the code: for classes, those of their bases too."""
    owners = value.__mro__ if isinstance(value, type) else (value,)
    return [_source_digest(owner.__module__) for owner in owners]


@cache
def _source_digest(module_name: str) -> str | None:
    """Of the file that defines a module; None for what has none."""
    try:
        source = inspect.getsource(sys.modules[module_name])
    except (OSError, TypeError, KeyError):
        return None
    return _sha(source.encode())


def _sha(content: bytes | bytearray) -> str:
    return hashlib.sha256(content).hexdigest()


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
