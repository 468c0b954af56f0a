"""Reading a space from its text, e.g. ``Box(low=[0.0, -inf], high=1, dtype=np.float32)``.

The text looks like a Python call, so Python's own parser makes the syntax tree; the tree
is then read node by node against what a space may consist of. Nothing is evaluated.
"""

from __future__ import annotations

import ast
from typing import Any

import numpy as np

from palaestrai_mosaik.errors import SpaceError, did_you_mean

from .spaces import Box, Discrete, MultiBinary, MultiDiscrete, Space, Tuple

_KINDS: dict[str, type[Space]] = {
    "Box": Box,
    "Discrete": Discrete,
    "MultiDiscrete": MultiDiscrete,
    "MultiBinary": MultiBinary,
    "Tuple": Tuple,
}
#: arguments in positional order, then how many of them are mandatory
_ARGUMENTS: dict[str, tuple[tuple[str, ...], int]] = {
    "Box": (("low", "high", "shape", "dtype"), 2),
    "Discrete": (("n", "start"), 1),
    "MultiDiscrete": (("nvec",), 1),
    "MultiBinary": (("n",), 1),
}
_DTYPES: dict[str, type[np.generic]] = {
    **{t.__name__: t for t in (np.float16, np.float32, np.float64)},
    **{t.__name__: t for t in (np.int8, np.int16, np.int32, np.int64)},
    **{t.__name__: t for t in (np.uint8, np.uint16, np.uint32, np.uint64)},
    **{"half": np.float16, "single": np.float32, "double": np.float64, "float": np.float64, "int": np.int64},
}
_NUMPY = ("np", "numpy")
#: longer texts are shortened in messages
_SHOWN = 100


class _Reader:
    """Reads one text; keeps it to say where something is wrong."""

    def __init__(self, text: str):
        self.text = text

    def error(self, message: str, node: ast.AST | None = None) -> SpaceError:
        shown = self.text if len(self.text) <= _SHOWN else self.text[:_SHOWN] + "..."
        place = ""
        if isinstance(node, ast.expr | ast.keyword):
            line = f"line {node.lineno}, " if node.lineno > 1 else ""
            place = f"{line}column {node.col_offset + 1}: "
        return SpaceError(f"cannot read the space {shown!r}: {place}{message}")

    def read(self) -> Space:
        try:
            tree = ast.parse(self.text.strip(), mode="eval")
        except SyntaxError as error:
            place = f" at column {error.offset}" if error.offset else ""
            raise self.error(f"{error.msg}{place}; expected {_expected()}") from error
        except (ValueError, RecursionError, MemoryError) as error:
            raise self.error(f"{str(error) or type(error).__name__}; expected {_expected()}") from error
        try:
            return self.space(tree.body)
        except RecursionError as error:
            raise self.error("nested too deeply") from error

    def space(self, node: ast.expr) -> Space:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            raise self.error(f"found {ast.unparse(node)!r}, expected {_expected()}", node)
        name = node.func.id
        if name not in _KINDS:
            raise self.error(
                f"unknown space {name!r}{did_you_mean(name, _KINDS)}; allowed: {', '.join(_KINDS)}", node
            )
        try:
            if name == "Tuple":
                return Tuple(*self.members(node))
            return _KINDS[name](**self.arguments(name, node))
        except SpaceError as error:
            if str(error).startswith("cannot read the space"):
                raise
            raise self.error(str(error), node) from error

    def members(self, node: ast.Call) -> list[Space]:
        """Read the spaces of a Tuple, given one by one or as one list or tuple."""
        if node.keywords:
            raise self.error(f"a Tuple takes spaces only, not {node.keywords[0].arg}=", node.keywords[0])
        nodes = node.args
        if len(nodes) == 1 and isinstance(nodes[0], ast.List | ast.Tuple):
            nodes = nodes[0].elts
        return [self.space(member) for member in nodes]

    def arguments(self, name: str, node: ast.Call) -> dict[str, Any]:
        names, mandatory = _ARGUMENTS[name]
        allowed = f"allowed: {', '.join(names)}"
        if len(node.args) > len(names):
            raise self.error(f"too many arguments for {name}; {allowed}", node.args[len(names)])
        found: dict[str, ast.expr] = dict(zip(names, node.args, strict=False))
        for keyword in node.keywords:
            key = keyword.arg
            if key not in names:
                hint = did_you_mean(str(key), names)
                raise self.error(f"unknown argument {key!r} of {name}{hint}; {allowed}", keyword)
            if key in found:
                raise self.error(f"argument {key!r} is given twice", keyword)
            found[key] = keyword.value
        for key in names[:mandatory]:
            if key not in found:
                raise self.error(f"{name} lacks {key!r}; {allowed}", node)
        return {
            key: self.dtype(value) if key == "dtype" else self.numbers(value) for key, value in found.items()
        }

    def numbers(self, node: ast.expr) -> Any:
        """Read a number, or lists and tuples of numbers to any depth."""
        if isinstance(node, ast.List | ast.Tuple):
            return [self.numbers(element) for element in node.elts]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            value = self.number(node.operand)
            return -value if isinstance(node.op, ast.USub) else value
        return self.number(node)

    def number(self, node: ast.expr) -> float | int:
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            return node.value  # type: ignore[return-value]
        if _plain_name(node) in ("inf", "Infinity"):
            return np.inf
        raise self.error(f"found {ast.unparse(node)!r}, expected a number, inf, or a list of these", node)

    def dtype(self, node: ast.expr) -> type[np.generic]:
        name = node.value if isinstance(node, ast.Constant) else _plain_name(node)
        if name not in _DTYPES:
            found = ast.unparse(node)
            hint = did_you_mean(str(name), _DTYPES)
            raise self.error(f"unknown dtype {found!r}{hint}; allowed: {', '.join(_DTYPES)}", node)
        return _DTYPES[name]


def _plain_name(node: ast.expr) -> str | None:
    """Return ``x`` for ``x`` and ``np.x``, else None."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in _NUMPY:
        return node.attr
    return None


def _expected() -> str:
    return f"one of {', '.join(_KINDS)} with its arguments in parentheses"


def parse_space(text: str) -> Space:
    """Return the space that ``text`` describes.

    Raises
    ------
    SpaceError
        If the text cannot be read; names the column, what was found and what is allowed.
    """
    if not isinstance(text, str):
        raise SpaceError(f"the text of a space must be a string, found {text!r}")
    return _Reader(text).read()
