"""Safe expressions over factors or outcomes: ``low < high``, ``algorithm == "ppo" and gain * 2 < 1``.

They have Python's syntax, are parsed by :mod:`ast`, and consist of a fixed set of parts, so that they can look
up, call or import nothing outside of the table in this module. Parts: comparisons
(also ``in``), ``and``, ``or``, ``not``, ``+ - * / // % **``, numbers, strings, ``True``,
``False``, ``None``, lists of those, ``abs``, ``min``, ``max``, and names of factors. A name
with dots is written plainly (``phase_0.agents``); any other name as ``factor["my name"]``.

A factor with levels equals both its level and its level's label. Conditions on inactive factors are undecided
(three-valued logic of Kleene, 1938): ``a == 1 or b == 2`` is true if ``b`` is
2, whether or not ``a`` is active.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from palaestrai_mosaik.core.errors import DocumentError, Problem, did_you_mean
from palaestrai_mosaik.core.printing import shorten

from .model import INACTIVE, Factor, is_number

#: Largest length of an expression, and largest number of bits of a number.
MAX_TEXT = 1000
MAX_BITS = 1024
_MAX_POWER = 64
_MAX_DEPTH = 40

Values = Mapping[str, Any]
_Node = Callable[[Values], Any]

_COMPARE: dict[type, tuple[str, Callable[[Any, Any], bool]]] = {
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
}
_ARITHMETIC: dict[type, tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
    ast.FloorDiv: ("//", operator.floordiv),
    ast.Mod: ("%", operator.mod),
    ast.Pow: ("**", operator.pow),
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {"abs": abs, "min": min, "max": max}
_CONSTANTS = ("True", "False", "None")
_ALLOWED = "comparisons, and/or/not, arithmetic, in, numbers, strings, lists, names of {0}s, abs, min, max"


class _Open(Exception):
    """Raised if a result depends on an inactive factor."""


@dataclass(frozen=True, slots=True)
class _Level:
    """A level in an expression; it equals both its value and its label."""

    value: Any
    label: str


@dataclass(frozen=True)
class Expression:
    """A condition over factors or outcomes; ``names`` are those in it, in order of appearance."""

    text: str
    names: tuple[str, ...]
    _test: _Node = field(repr=False, compare=False)

    @classmethod
    def parse(cls, text: str, names: Iterable[str | Factor], what: str = "factor") -> Expression:
        """Parse an expression.

        Args:
            text: the expression.
            names: names that it may refer to, or factors, which bring the labels of their levels.
            what: word for a name in messages, and before a quoted name: ``factor["a b"]``.

        Raises:
            DocumentError: the expression is invalid, or has an unknown name.
        """
        return _Parser(text, names, what).expression()

    def evaluate(self, values: Values, inactive: bool = False) -> bool:
        """Return whether the condition holds.

        Args:
            values: value of each factor by name; of a factor with levels, the level or its label.
            inactive: the result if inactive factors leave the condition undecided.

        Raises:
            DocumentError: values cannot be compared, or the result cannot be computed.
        """
        try:
            return bool(_value(self._test(values)))
        except _Open:
            return inactive
        except (TypeError, ArithmeticError, ValueError) as error:
            assignments = ", ".join(f"{name} = {values.get(name)!r}" for name in self.names)
            raise _fault(self.text, f"cannot be computed for {assignments}: {error}") from None

    def is_condition(self, values: Values) -> bool:
        """Return whether the result for ``values`` is a boolean, not a number or a text; True if it cannot be computed."""
        try:
            return isinstance(_value(self._test(values)), bool)
        except (_Open, TypeError, ArithmeticError, ValueError):
            return True


def _fault(text: str, message: str) -> DocumentError:
    return DocumentError([Problem(f"the expression {shorten(text, 80)!r} {message}")])


class _Parser:
    """Compiles the syntax tree of an expression into closures."""

    def __init__(self, text: str, names: Iterable[str | Factor], what: str):
        self._text = text
        self._what = what
        self._factors = {name if isinstance(name, str) else name.name: name for name in names}
        self._used: dict[str, None] = {}
        self._depth = 0

    def expression(self) -> Expression:
        if len(self._text) > MAX_TEXT:
            raise _fault(self._text, f"has {len(self._text)} characters; at most {MAX_TEXT} are read")
        try:
            tree = ast.parse(self._text.strip(), mode="eval")
            test = self._node(tree.body)
        except SyntaxError as error:
            raise self._syntax(error) from None
        except (ValueError, RecursionError, MemoryError):
            raise _fault(self._text, "is nested too deeply, or holds what is no text") from None
        return Expression(self._text, tuple(self._used), test)

    def _syntax(self, error: SyntaxError) -> DocumentError:
        where = f" (at character {error.offset})" if error.offset else ""
        return _fault(
            self._text,
            f"is not understood: {error.msg}{where}. A name that is none of Python's is written "
            f'{self._what}["name"]',
        )

    def _refuse(self, node: ast.AST) -> DocumentError:
        part = ast.get_source_segment(self._text.strip(), node) or type(node).__name__
        return _fault(self._text, f"may not hold {part!r}; allowed: {_ALLOWED.format(self._what)}")

    def _node(self, node: ast.AST) -> _Node:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise RecursionError
        for kind, reader in _READERS.items():
            if isinstance(node, kind):
                read = reader(self, node)
                self._depth -= 1
                return read
        raise self._refuse(node)

    def _constant(self, node: ast.Constant) -> _Node:
        value = node.value
        if not isinstance(value, (bool, int, float, str, type(None))):
            raise self._refuse(node)
        if isinstance(value, int):
            _bounded(value)
        return lambda _: value

    def _list(self, node: ast.List | ast.Tuple | ast.Set) -> _Node:
        items = [self._node(item) for item in node.elts]
        return lambda values: [item(values) for item in items]

    def _name(self, node: ast.AST) -> _Node:
        name = self._named(node)
        if name is None:
            raise self._refuse(node)
        return self._factor(name)

    def _named(self, node: ast.AST) -> str | None:
        """Return the name in ``a.b`` or ``factor["a b"]``, or None for any other node."""
        if isinstance(node, ast.Subscript):
            key = node.slice
            quoted = isinstance(node.value, ast.Name) and node.value.id == self._what
            text = key.value if isinstance(key, ast.Constant) else None
            return text if quoted and isinstance(text, str) else None
        return _dotted(node)

    def _factor(self, name: str) -> _Node:
        if name not in self._factors:
            near = did_you_mean(name, [*self._factors, *_FUNCTIONS, *_CONSTANTS])
            listed = ", ".join(self._factors) or "none"
            labelled = {
                label
                for factor in self._factors.values()
                if isinstance(factor, Factor)
                for label in factor.labels
            }
            quoted = f"; a level is text, write {name!r} with its quotes" if name in labelled else near
            what = self._what
            raise _fault(self._text, f"names {name!r}, which is no {what}{quoted}; {what}s: {listed}")
        self._used[name] = None
        factor = self._factors[name]
        if isinstance(factor, str) or factor.kind != "levels" or factor.choice is not None:
            return lambda values: _active(values, name)
        levels, labels = factor.levels, factor.labels

        def level(values: Values) -> Any:
            value = _active(values, name)
            for candidate, label in zip(levels, labels, strict=True):
                if candidate is value or (type(candidate) is type(value) and candidate == value):
                    return _Level(candidate, label)
            return _Level(levels[labels.index(value)], value) if value in labels else value

        return level

    def _bool(self, node: ast.BoolOp) -> _Node:
        parts = [self._node(part) for part in node.values]
        decisive = isinstance(node.op, ast.Or)

        def test(values: Values) -> bool:
            is_open = False
            for part in parts:
                try:
                    if bool(_value(part(values))) is decisive:
                        return decisive
                except _Open:
                    is_open = True
            if is_open:
                raise _Open
            return not decisive

        return test

    def _unary(self, node: ast.UnaryOp) -> _Node:
        part = self._node(node.operand)
        if isinstance(node.op, ast.Not):
            return lambda values: not _value(part(values))
        if isinstance(node.op, ast.USub):
            return lambda values: -_number(part(values))
        if isinstance(node.op, ast.UAdd):
            return lambda values: _number(part(values))
        raise self._refuse(node)

    def _binary(self, node: ast.BinOp) -> _Node:
        if type(node.op) not in _ARITHMETIC:
            raise self._refuse(node)
        symbol, compute = _ARITHMETIC[type(node.op)]
        left, right = self._node(node.left), self._node(node.right)

        def arithmetic(values: Values) -> Any:
            a, b = _number(left(values)), _number(right(values))
            if symbol == "**" and abs(b) > _MAX_POWER:
                raise ValueError(f"the power {b} is beyond {_MAX_POWER}")
            return _bounded(compute(a, b))

        return arithmetic

    def _compare(self, node: ast.Compare) -> _Node:
        written = (node.left, *node.comparators)
        operands = [self._node(part) for part in written]
        tests = [self._comparison(operator_, node) for operator_ in node.ops]
        for kind, left, right in zip(node.ops, written, written[1:], strict=False):
            if isinstance(kind, (ast.Eq, ast.NotEq)):
                self._check_labels(left, [right])
                self._check_labels(right, [left])
            elif isinstance(right, (ast.List, ast.Tuple, ast.Set)):
                self._check_labels(left, right.elts)

        def test(values: Values) -> bool:
            left = operands[0](values)
            for holds, operand in zip(tests, operands[1:], strict=True):
                right = operand(values)
                if not holds(left, right):
                    return False
                left = right
            return True

        return test

    def _check_labels(self, node: ast.expr, operands: Sequence[ast.expr]) -> None:
        """Check that a factor with levels is compared only with its labels, or with levels that are strings."""
        factor = self._factors.get(self._named(node) or "")
        if isinstance(factor, Factor) and factor.kind == "levels":
            allowed = [*factor.labels, *(level for level in factor.levels if isinstance(level, str))]
            for other in operands:
                text = other.value if isinstance(other, ast.Constant) else None
                if isinstance(text, str) and text not in allowed:
                    near = did_you_mean(text, allowed)
                    raise _fault(
                        self._text,
                        f"compares {factor.name!r} with {text!r}, which is none of its levels{near}; levels: "
                        f"{', '.join(factor.labels)}",
                    )

    def _comparison(self, kind: ast.cmpop, node: ast.Compare) -> Callable[[Any, Any], bool]:
        if isinstance(kind, ast.Eq):
            return _equal
        if isinstance(kind, ast.NotEq):
            return lambda a, b: not _equal(a, b)
        if isinstance(kind, (ast.In, ast.NotIn)):
            expected = isinstance(kind, ast.In)
            return lambda a, b: _contains(b, a) is expected
        if type(kind) not in _COMPARE:
            raise self._refuse(node)
        symbol, compare = _COMPARE[type(kind)]
        return lambda a, b: _ordered(symbol, compare, a, b)

    def _call(self, node: ast.Call) -> _Node:
        name = node.func.id if isinstance(node.func, ast.Name) else None
        if name not in _FUNCTIONS or node.keywords:
            raise self._refuse(node)
        function, parts = _FUNCTIONS[name], [self._node(part) for part in node.args]
        count = len(parts)
        if count == 0 or (name == "abs" and count != 1):
            raise _fault(self._text, f"gives {name} {count} values")
        if name == "abs":
            return lambda values: abs(_number(parts[0](values)))
        if count > 1:
            return lambda values: function([_number(part(values)) for part in parts])
        if not isinstance(node.args[0], (ast.List, ast.Tuple)):
            raise _fault(self._text, f"gives {name} one value; it takes several")
        return lambda values: function([_number(item) for item in parts[0](values)])


_READERS: dict[Any, Callable[[_Parser, Any], _Node]] = {
    ast.Constant: _Parser._constant,
    (ast.List, ast.Tuple, ast.Set): _Parser._list,
    (ast.Name, ast.Attribute, ast.Subscript): _Parser._name,
    ast.BoolOp: _Parser._bool,
    ast.UnaryOp: _Parser._unary,
    ast.BinOp: _Parser._binary,
    ast.Compare: _Parser._compare,
    ast.Call: _Parser._call,
}


def _dotted(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        front = _dotted(node.value)
        return None if front is None else f"{front}.{node.attr}"
    return None


def _active(values: Values, name: str) -> Any:
    value = values[name]
    if value is INACTIVE:
        raise _Open
    return value


def _value(operand: Any) -> Any:
    return operand.value if isinstance(operand, _Level) else operand


def _number(operand: Any) -> Any:
    value = _value(operand)
    if not is_number(value):
        raise TypeError(f"{value!r} is no number")
    return value


def _bounded(value: Any) -> Any:
    if isinstance(value, complex):
        raise ValueError("the result is no real number")
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise ValueError("a number is too large")
    return value


def _ordered(symbol: str, compare: Callable[[Any, Any], bool], a: Any, b: Any) -> bool:
    a, b = _value(a), _value(b)
    if not (is_number(a) and is_number(b)) and not (isinstance(a, str) and isinstance(b, str)):
        raise TypeError(f"{symbol!r} compares two numbers or two strings, found {a!r} and {b!r}")
    return compare(a, b)


def _equal(a: Any, b: Any) -> bool:
    return any(_same(face, other_face) for face in _faces(a) for other_face in _faces(b))


def _faces(operand: Any) -> tuple[Any, ...]:
    return (operand.value, operand.label) if isinstance(operand, _Level) else (operand,)


def _same(a: Any, b: Any) -> bool:
    # True and 1 are different values of a document.
    return isinstance(a, bool) is isinstance(b, bool) and bool(a == b)


def _contains(container: Any, item: Any) -> bool:
    container = _value(container)
    if isinstance(container, str):
        if not any(isinstance(face, str) for face in _faces(item)):
            raise TypeError(f"only a string can be in the string {container!r}")
        return any(isinstance(face, str) and face in container for face in _faces(item))
    if not isinstance(container, (list, dict)):
        raise TypeError(f"nothing can be in {container!r}")
    return any(_equal(item, element) for element in container)
