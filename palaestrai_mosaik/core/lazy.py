"""Public names that are imported on first access (PEP 562), so that importing their package takes no time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(module: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Build the ``__getattr__`` and ``__dir__`` of a module.

    Args:
        module: its ``__name__``.
        homes: public name -> the module that defines it, below this package. A home with the last part ``name`` is
            itself what the name stands for.
    """

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home = import_module(f"palaestrai_mosaik.{homes[name]}")
        return home if homes[name].endswith(f".{name}") else getattr(home, name)

    def names() -> list[str]:
        return sorted({*vars(sys.modules[module]), *homes})

    return find, names
