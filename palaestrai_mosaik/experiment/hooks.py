"""Misspelt optional methods of users' classes.

Nothing calls such a method, and the class runs without it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from types import CodeType, FunctionType
from typing import Any

#: packages with contracts; misspellings in their own classes are not the user's concern
_FRAMEWORKS = ("palaestrai_mosaik", "palaestrai", "mosaik_api_v3", "mosaik_api")
#: the least similarity (0 to 1) of a method's name and a hook's, without case and underscores
_NEAR = 0.78


def misspelt_hooks(cls: type) -> dict[str, str]:
    """Find the methods of a class that nothing calls, and that have nearly the name of a hook.

    A hook is a public method of the class's contract: the nearest base class from this package, from palaestrAI
    or from mosaik. Hooks that the class overrides are not considered, nor are methods that another method of the
    class refers to.

    Args:
        cls: the class; an adapter for a class of palaestrAI is replaced by that class.

    Returns:
        The name of the hook by the name of the method.
    """
    cls = getattr(cls, "wrapped_class", cls)
    contract = next((base for base in cls.__mro__ if _is_framework(base)), None)
    if contract is None:
        return {}
    written = [base for base in cls.__mro__ if issubclass(base, contract) and not _is_framework(base)]
    overridden = {name for base in written for name in vars(base)}
    used = {name for base in written for value in vars(base).values() for name in _names_in(value)}
    methods = [name for base in written for name, value in vars(base).items() if _is_method(value)]
    hooks = [
        name
        for name in dir(contract)
        if not name.startswith("_")
        and name not in overridden
        and _is_method(inspect.getattr_static(contract, name))
    ]
    near = {
        name: nearest_hook(name, hooks)
        for name in methods
        if not (name.startswith("_") or hasattr(contract, name) or name in used)
    }
    return {name: hook for name, hook in near.items() if hook}


def nearest_hook(name: str, hooks: Sequence[str]) -> str:
    """Return the hook with a name most similar to ``name``; ``""`` if none is similar enough."""
    similarity, hook = max(((_similarity(name, hook), hook) for hook in hooks), default=(0.0, ""))
    return hook if similarity >= _NEAR else ""


def _is_framework(cls: type) -> bool:
    return cls.__module__.partition(".")[0] in _FRAMEWORKS


def _is_method(value: Any) -> bool:
    return isinstance(value, FunctionType | classmethod | staticmethod)


def _similarity(name: str, hook: str) -> float:
    a, b = (text.lower().replace("_", "") for text in (name, hook))
    return SequenceMatcher(None, a, b).ratio()


def _names_in(value: Any) -> Iterator[str]:
    """Yield the names that the code of a method or property refers to."""
    if isinstance(value, property):
        functions = [value.fget, value.fset, value.fdel]
    else:
        functions = [getattr(value, "__func__", value)]
    codes = [function.__code__ for function in functions if isinstance(function, FunctionType)]
    while codes:
        code = codes.pop()
        yield from code.co_names
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
