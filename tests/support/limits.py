"""Finds limits of time that are written as numbers in tests.

A test must not fail because a machine is slow. What ends a hang is ``HANG`` of :mod:`support.waiting`. A number is
right where the limit itself is tested; a comment with the words of :data:`REASON` says why. It is in the statement
or ends in the line above it.
"""

from __future__ import annotations

import ast

#: what the comment of a limit that is right says, before the reason
REASON = "no matter of speed:"

#: calls that take a limit as a positional argument
_WAITS = {
    *("Barrier", "WebDriverWait", "communicate", "gone", "join", "result", "settimeout"),
    *("until", "urlopen", "wait", "wait_for", "wait_procs"),
}
_CLOCKS = {"monotonic", "perf_counter", "time"}
#: what is shorter is a pause between two looks
_PAUSE = 0.1


class _Limits(ast.NodeVisitor):
    def __init__(self, source: str):
        self.lines = source.splitlines()
        tree = ast.parse(source)
        #: names of the module that stand for a number
        self.numbers: set[str] = set()
        for node in tree.body:
            if isinstance(node, ast.Assign) and self.number(node.value):
                self.numbers |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        self.found: list[int] = []
        self.visit(tree)

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.stmt):
            self._statement = node
        if self._is_limit(node):
            here = node if isinstance(node, ast.expr) else self._statement
            last = here.end_lineno or here.lineno
            if not any(REASON in line for line in self.lines[max(0, self._statement.lineno - 2) : last]):
                self.found.append(here.lineno)
        self.generic_visit(node)

    def number(self, node: ast.expr | None) -> bool:
        """Return whether an expression is a number that is more than a pause, alone or calculated from others."""
        if isinstance(node, ast.BinOp):
            return self.number(node.left) and self.number(node.right)
        if isinstance(node, ast.Name):
            return node.id in self.numbers and node.id != "HANG"
        value = node.value if isinstance(node, ast.Constant) else None
        return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= _PAUSE

    def _is_limit(self, node: ast.AST) -> bool:
        match node:
            case ast.Call():
                positional = _name(node.func) in _WAITS and any(map(self.number, node.args))
                return positional or any(
                    self.number(word.value)
                    and (word.arg == "timeout" or (word.arg == "seconds" and _name(node.func) in _WAITS))
                    for word in node.keywords
                )
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                names = {"timeout", "seconds"} if node.name in _WAITS else {"timeout"}
                ordered = [*node.args.posonlyargs, *node.args.args]
                pairs = [*zip(reversed(ordered), reversed(node.args.defaults), strict=False)]
                pairs += [
                    (a, d) for a, d in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if d
                ]
                return any(word.arg in names and self.number(default) for word, default in pairs)
            case ast.BinOp(op=ast.Add()):  # a deadline
                return _reads_clock(node) and (self.number(node.left) or self.number(node.right))
            case ast.Compare():
                sides = [node.left, *node.comparators]
                return any(map(_reads_clock, sides)) and any(map(self.number, sides))
        return False


def _name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _reads_clock(node: ast.AST) -> bool:
    return any(
        isinstance(part, ast.Call) and not part.args and _name(part.func) in _CLOCKS
        for part in ast.walk(node)
    )


def limits(source: str) -> list[int]:
    """Return the lines of the limits of time in a test that are numbers, and of which no comment gives the reason."""
    return sorted(set(_Limits(source).found))
