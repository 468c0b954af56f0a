"""Safe YAML: text to plain data with line numbers, and plain data to text.

Documents are untrusted text, so the reader works on the parser's events and builds
plain data itself: nothing is imported or called, deep nesting cannot exhaust the stack,
and an alias shares its value, so a "billion laughs" is counted, not expanded. Scalars
follow the core schema of YAML 1.2 (``1e-5`` is a number, ``on`` and dates are strings), plus
further numbers of palaestrAI's documents (``1_000``, ``0b11``).
Columns of problems are computed afterwards, so that reading a document stays fast.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import DocumentError, Problem, did_you_mean

from .model import Place, join

# The line tree: a leaf is its line; a collection is (line, children), with the children in a
# dict or a list of such nodes. Aliases share their children, so the tree is as small as
# the text, even if it would expand to much more.
Tree = Any


class Lines(Mapping[str, int]):
    """The lines of all paths of a text, ``schedule.0.phase_0`` -> 12.

    A view of the tree: an entry is found by walking, so nothing is expanded in advance.
    Keys that contain dots are found, too.
    """

    def __init__(self, tree: Tree = None):
        self._tree = tree

    def nearest(self, path: Place) -> int | None:
        """Return the line of ``path``, or of its innermost parent with a line."""
        node = self._tree
        for part in path:
            try:
                node = node[1][part]
            except (TypeError, KeyError, IndexError):
                break
        return _line(node)

    def __getitem__(self, path: str) -> int:
        node = self._find(self._tree, path) if self._tree is not None else None
        if node is None:
            raise KeyError(path)
        return _line(node) or 0

    def _find(self, node: Tree, path: str) -> Tree:
        if not path:
            return node
        if not isinstance(node, tuple):
            return None
        pieces = path.split(".")
        for taken in range(1, len(pieces) + 1):
            child = _child(node[1], ".".join(pieces[:taken]))
            if child is not None:
                result = self._find(child, ".".join(pieces[taken:]))
                if result is not None:
                    return result
        return None

    def __iter__(self) -> Iterator[str]:
        return self._walk(self._tree, ())

    def _walk(self, node: Tree, path: Place) -> Iterator[str]:
        if isinstance(node, tuple):
            entries = node[1].items() if isinstance(node[1], dict) else enumerate(node[1])
            for key, child in entries:
                yield join((*path, key))
                yield from self._walk(child, (*path, key))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _line(node: Tree) -> int | None:
    line: int | None = node[0] if isinstance(node, tuple) else node
    return line


def _child(children: Any, name: str) -> Tree:
    if isinstance(children, list):
        return children[int(name)] if name.isdecimal() and int(name) < len(children) else None
    if name in children:
        return children[name]
    return next((child for key, child in children.items() if str(key) == name), None)


#: plain scalar types; checked first, because most nodes of a document have them
SCALARS = frozenset((str, int, float, bool, type(None)))


def copy(value: Any) -> Any:
    """Copy plain data deeply, so that nothing is shared."""
    if isinstance(value, dict):
        return {key: item if type(item) in SCALARS else copy(item) for key, item in value.items()}
    if isinstance(value, list):
        return [item if type(item) in SCALARS else copy(item) for item in value]
    return value


def size_of(value: Any, sizes: dict[int, int]) -> int:
    """Count the nodes of plain data, with aliases expanded; each object is visited once.

    ``sizes`` caches the sizes of collections, by ``id``.
    """
    if not isinstance(value, (dict, list)):
        return 1
    size = sizes.get(id(value), 0)
    if not size:
        items = value.values() if isinstance(value, dict) else value
        size = sizes[id(value)] = 1 + sum(size_of(item, sizes) for item in items)
    return size


#: the parser of libyaml, if it is available
Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_BaseDumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
#: The maximum depth of nested collections; run documents need about ten.
MAX_DEPTH = 100
#: The maximum number of nodes that aliases and the cascade may add to the written ones.
MAX_EXTRA_NODES = 1_000_000
#: Larger files are refused before they are read.
MAX_BYTES = 64 * 2**20
_TAG = "tag:yaml.org,2002:"
#: Includes numbers that are text in YAML 1.2, but numbers for palaestrAI's reader (and YAML 1.1): digits with "_"
#: among them, "0b11", and a sign before a prefix.
_INTEGER = re.compile(
    r"[-+]?(0b_*[01][01_]*|0o_*[0-7][0-7_]*|0x_*[0-9a-fA-F][0-9a-fA-F_]*|[0-9][0-9_]*)", re.ASCII
)
_FLOAT = re.compile(r"[-+]?(\.[0-9][0-9_]*|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_BASES = {"0b": 2, "0o": 8, "0x": 16}
_WORDS: dict[str, Any] = {"": None, "~": None, "null": None, "Null": None, "NULL": None}
_WORDS |= {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_WORDS |= {sign + inf: float(sign + "inf") for sign in ("", "+", "-") for inf in (".inf", ".Inf", ".INF")}
_WORDS |= dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan)
_NUMBER_START = frozenset("0123456789+-.")
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_OPEN: Any = object()
_MERGE: Any = object()
_TOO_DEEP = f"more than {MAX_DEPTH} collections inside one another; refused"


@dataclass
class Reading:
    """The content of a text: plain ``value`` (aliases shared) and its ``lines``.

    ``problems`` are (path, message, line) of problems on the level of YAML.
    """

    value: Any
    lines: Lines
    problems: list[tuple[Place, str, int]]


#: the maximum number of digits that Python reads without changing a setting of the interpreter
_MOST_DIGITS = 4300


def plain_scalar(text: str) -> Any:
    """Parse an unquoted scalar (YAML 1.2 core schema, plus ``1_000`` and ``0b11``).

    Raises ``ValueError`` for a number that is too large.
    """
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMBER_START:
        return text
    if _INTEGER.fullmatch(text):
        digits = text.replace("_", "")
        if len(digits) > _MOST_DIGITS:
            raise ValueError(f"the number has {len(digits):,} digits; at most {_MOST_DIGITS:,} are read")
        return int(digits, _BASES.get(digits.lstrip("+-")[:2], 10))
    if _FLOAT.fullmatch(text):
        value = float(text.replace("_", ""))
        if math.isinf(value):
            raise ValueError(f"{text} is too large for a number; write .inf if infinity is meant")
        return value
    return text


def decode(data: bytes, source: str) -> str:
    """Decode ``data`` as UTF-8. Raises :class:`DocumentError`, which names another encoding."""

    def refuse(message: str, line: int | None = None) -> DocumentError:
        return DocumentError([Problem(message, file=source, line=line)])

    for bom, name in ((b"\xff\xfe\0\0", "UTF-32"), (b"\xff\xfe", "UTF-16"), (b"\xfe\xff", "UTF-16")):
        if data.startswith(bom):
            raise refuse(f"the file is encoded in {name}; save it as UTF-8")
    if b"\0" in data:
        raise refuse("the file holds zero bytes: it is binary, or encoded in UTF-16; save it as UTF-8 text")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        byte = data[error.start]
        raise refuse(
            f"the file is not UTF-8: byte 0x{byte:02x} ({bytes([byte]).decode('latin-1')!r} in Latin-1) "
            "stands here; save it as UTF-8",
            line,
        ) from None


def read(text: str, source: str) -> Reading:
    """Read one YAML document.

    Raises :class:`DocumentError` if the text cannot be parsed: broken syntax, more
    than one document, no document, too deep, too large once aliases are expanded.
    """
    text = text.removeprefix("\ufeff")
    bad = _UNPRINTABLE.search(text)
    if bad:
        message = f"the character U+{ord(bad.group()):04X} is not allowed in YAML; is the file text?"
        raise DocumentError([Problem(message, "", source, text.count("\n", 0, bad.start()) + 1)])
    builder = _Builder()
    try:
        builder.run(Loader(text).get_event)
    except yaml.MarkedYAMLError as error:
        raise DocumentError([_syntax_problem(error, text, source)]) from None
    except yaml.YAMLError as error:
        raise DocumentError([Problem(f"not valid YAML: {error}", "", source)]) from None
    except _Refused as refusal:
        problem = Problem(str(refusal), join(builder.place()[:10]), source, refusal.line)
        raise DocumentError([problem]) from None
    if not builder.documents:
        raise DocumentError([Problem("the document is empty", "", source)])
    return Reading(builder.root, Lines(builder.tree), builder.problems)


def _syntax_problem(error: yaml.MarkedYAMLError, text: str, source: str) -> Problem:
    mark = error.problem_mark or error.context_mark
    index, column = (0, None) if mark is None else (mark.line, mark.column)
    lines = text.splitlines()
    written = lines[index] if index < len(lines) else ""
    problem, context = error.problem or "", error.context or ""
    if "\t" in written[: _indentation(written)]:
        message = "a tab stands in the indentation; YAML allows spaces only"
    elif "nesting depth" in problem:
        # newer releases of libyaml refuse it themselves, while they read ahead
        message = _TOO_DEEP
    elif (
        problem.startswith("did not find expected") and "block" in context and column == _indentation(written)
    ):
        before = next((line for line in reversed(lines[:index]) if line.strip()), "")
        message = (
            f"the indentation does not fit: the line begins in column {column + 1}, the one before it in column "
            f"{_indentation(before) + 1}; lines that belong together begin in the same column"
        )
    else:
        message = "not valid YAML: " + " ".join(filter(None, (problem, context)))
        if column is not None and written[column : column + 1] in ("@", "`", "%"):
            message += "; put the text in quotes"
    return Problem(message, "", source, index + 1)


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


class _Refused(Exception):
    def __init__(self, message: str, line: int):
        self.line = line
        super().__init__(message)


@dataclass(slots=True)
class _Frame:
    """An open collection. ``children`` are the line nodes parallel to ``value``."""

    value: Any
    children: Any
    is_list: bool
    line: int
    anchor: str | None
    start: int
    height: int = 0
    key: Any = _OPEN
    key_line: int = 0
    merges: list[tuple[Any, Any, int]] = field(default_factory=list)


class _Builder:
    """Builds data and line tree from parser events; the module's docstring says why."""

    def __init__(self) -> None:
        self.root: Any = None
        self.tree: Any = None
        self.documents = 0
        self.problems: list[tuple[Place, str, int]] = []
        self._events = 0  # written nodes
        self._extra = 0  # further nodes from aliases
        self._stack: list[_Frame] = []
        # anchor -> (value, line node, expanded nodes, height)
        self._anchors: dict[str, tuple[Any, Any, int, int]] = {}

    def place(self) -> Place:
        """Return the current place."""
        keys = (len(f.value) if f.is_list else f.key for f in self._stack)
        return tuple("<<" if key is _MERGE else key for key in keys if key is not _OPEN)

    def run(self, next_event: Callable[[], Any]) -> None:
        """Process all events of a text."""
        stack = self._stack
        while True:
            event = next_event()
            kind = type(event)
            if kind is yaml.ScalarEvent:
                value = self._scalar(event)
                line = event.start_mark.line + 1
                # The common cases of _add, inlined: large documents spend most of their time in this loop.
                frame = stack[-1] if stack else None
                if frame is None or (frame.key is _OPEN and not frame.is_list) or frame.key is _MERGE:
                    self._add(value, line, line, 0)
                elif frame.is_list:
                    frame.value.append(value)
                    frame.children.append(line)
                else:
                    frame.value[frame.key] = value
                    frame.children[frame.key] = frame.key_line
                    frame.key = _OPEN
            elif kind is yaml.MappingStartEvent:
                self._start(event, {}, {}, "map")
            elif kind is yaml.SequenceStartEvent:
                self._start(event, [], [], "seq")
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                self._end()
            elif kind is yaml.AliasEvent:
                self._alias(event)
            elif kind is yaml.DocumentStartEvent:
                self.documents += 1
                if self.documents > 1:
                    line = event.start_mark.line + 1
                    raise _Refused("a second document starts here ('---'); write one per file", line)
            elif kind is yaml.StreamEndEvent:
                return

    def _scalar(self, event: Any) -> Any:
        self._events += 1
        text = event.value
        plain, quoted = event.implicit
        try:
            if plain:
                value = _MERGE if text == "<<" and self._wants_key() else plain_scalar(text)
            elif quoted:
                value = text
            else:
                value = _tagged(event.tag, text)
        except ValueError as error:
            self.problems.append((self.place(), str(error), event.start_mark.line + 1))
            value = 0  # a number, so that its absence is not reported as well
        if event.anchor:
            line = event.start_mark.line + 1
            self._anchors[event.anchor] = (text if value is _MERGE else value, line, 1, 0)
        return value

    def _wants_key(self) -> bool:
        frame = self._stack[-1] if self._stack else None
        return frame is not None and not frame.is_list and frame.key is _OPEN

    def _start(self, event: Any, value: Any, children: Any, tag: str) -> None:
        line = event.start_mark.line + 1
        if len(self._stack) >= MAX_DEPTH:
            raise _Refused(_TOO_DEEP, line)
        if event.tag not in (None, "!", _TAG + tag):
            self.problems.append((self.place(), _tag_refusal(event.tag), line))
        if event.anchor:
            self._anchors[event.anchor] = (_OPEN, None, 0, 0)
        start = self._events + self._extra
        self._stack.append(_Frame(value, children, tag == "seq", line, event.anchor, start))
        self._events += 1

    def _end(self) -> None:
        frame = self._stack[-1]
        if frame.merges:
            self._merge(frame)
        self._stack.pop()
        node = (frame.line, frame.children)
        height = frame.height + 1
        if frame.anchor:
            nodes = self._events + self._extra - frame.start
            self._anchors[frame.anchor] = (frame.value, node, nodes, height)
        self._add(frame.value, node, frame.line, height)

    def _alias(self, event: Any) -> None:
        line = event.start_mark.line + 1
        value, node, nodes, height = self._anchors.get(event.anchor, (None, line, 1, 0))
        if event.anchor not in self._anchors:
            near = did_you_mean(event.anchor, self._anchors)
            self.problems.append(
                (self.place(), f"no anchor '&{event.anchor}' stands before this alias{near}", line)
            )
        elif value is _OPEN:
            raise _Refused(f"the alias '*{event.anchor}' stands inside its own anchor", line)
        if len(self._stack) + height > MAX_DEPTH:
            raise _Refused(_TOO_DEEP, line)
        self._extra += nodes
        if self._extra > MAX_EXTRA_NODES:
            raise _Refused(
                f"the aliases expand to more than {MAX_EXTRA_NODES:,} further nodes; refused", line
            )
        self._add(value, node, line, height)

    def _add(self, value: Any, node: Any, line: int, height: int) -> None:
        if not self._stack:
            self.root, self.tree = value, node
            return
        frame = self._stack[-1]
        frame.height = max(frame.height, height)
        if frame.is_list:
            frame.value.append(value)
            frame.children.append((line, node[1]) if isinstance(node, tuple) else line)
        elif frame.key is _OPEN:
            self._key(frame, value, line)
        else:
            key, frame.key = frame.key, _OPEN
            if key is _MERGE:
                frame.merges.append((value, node, frame.key_line))
            else:
                frame.value[key] = value
                frame.children[key] = (frame.key_line, node[1]) if isinstance(node, tuple) else frame.key_line

    def _key(self, frame: _Frame, key: Any, line: int) -> None:
        frame.key_line = line
        if isinstance(key, (dict, list)):
            self.problems.append((self.place(), "a mapping or a list cannot be a key", line))
            key = str(key)[:40]
        if key is _MERGE:
            if frame.merges:
                self.problems.append(
                    (self.place(), "the merge key '<<' is given twice; write '<<: [*a, *b]'", line)
                )
        elif key in frame.value:
            first = frame.children[key]
            first = first[0] if isinstance(first, tuple) else first
            message = f"the key {key!r} is given twice: first in line {first}"
            self.problems.append(((*self.place(), key), message, line))
        frame.key = key

    def _merge(self, frame: _Frame) -> None:
        for value, node, line in frame.merges:
            sources = list(zip(value, node[1], strict=True)) if isinstance(value, list) else [(value, node)]
            for source, source_node in sources:
                if not isinstance(source, dict):
                    self.problems.append((self.place(), "'<<' takes a mapping, or a list of mappings", line))
                    continue
                for key, merged in source.items():
                    if key not in frame.value:
                        frame.value[key] = merged
                        frame.children[key] = source_node[1][key]


def _tagged(tag: str, text: str) -> Any:
    """Parse a scalar with an explicit tag of the core schema."""
    name = tag.removeprefix(_TAG) if tag else "!"
    if name in ("!", "str"):
        return text
    if name not in ("int", "float", "bool", "null"):
        raise ValueError(_tag_refusal(tag))
    value = plain_scalar(text)
    if name == "float" and type(value) is int:
        value = float(value)
    if type(value).__name__ != {"null": "NoneType"}.get(name, name):
        raise ValueError(f"{text!r} is not a value of the type '!!{name}' that its tag says")
    return value


def _tag_refusal(tag: str) -> str:
    return f"the tag {tag.replace(_TAG, '!!')!r} is not allowed: a document is plain data"


class _Dumper(_BaseDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: Any, text: str) -> Any:
    # PyYAML quotes texts that YAML 1.1 would misread; this adds those that YAML 1.2 would.
    try:
        plain = isinstance(plain_scalar(text), str)
    except ValueError:
        plain = False
    return dumper.represent_scalar(_TAG + "str", text, style=None if plain else "'")


_Dumper.add_representer(str, _represent_text)


def dumps(data: Any) -> str:
    """Serialise plain ``data`` as YAML text which reads back as the same data.

    Raises :class:`DocumentError` for a text with half of a surrogate pair, which no file can hold.
    """
    try:
        return str(yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100))
    except UnicodeEncodeError as error:
        message = f"{error.object!r} cannot be written to a file: it has half of a character, {error.object[error.start]!r}"
        raise DocumentError([Problem(message)]) from None


def columns_of(problems: Sequence[Problem], texts: Mapping[str, str] | None = None) -> list[int | None]:
    """Find the column of each problem in its file.

    It is the column of the key or the entry at the problem's path, or of its innermost parent on that line.

    Args:
        problems: problems of documents.
        texts: the texts of documents that are not in files, by their names in problems.

    Returns:
        The columns, from 1; ``None`` for a problem without a line, or in a file that cannot be read.
    """
    lines: dict[str, set[int]] = defaultdict(set)
    for problem in problems:
        if problem.file and problem.line is not None:
            lines[problem.file].add(problem.line)
    starts = {file: _starts(file, (texts or {}).get(file), numbers) for file, numbers in lines.items()}
    # nothing begins on the line None
    return [
        _nearest(problem.path, starts.get(problem.file, {}).get(problem.line or 0, ()))
        for problem in problems
    ]


def _nearest(path: str, starts: Iterable[tuple[str, int]]) -> int | None:
    """Return the column of ``path``, or of its innermost parent, among the ``starts`` on its line."""
    columns = dict(starts)
    around = [start for start in columns if start == path or path.startswith(f"{start}.") or not start]
    return columns[max(around, key=len)] if around else min(columns.values(), default=None)


def _starts(file: str, text: str | None, lines: set[int]) -> dict[int, list[tuple[str, int]]]:
    """Find the paths that begin on these lines of a file, with their columns."""
    starts: dict[int, list[tuple[str, int]]] = defaultdict(list)
    try:
        if text is None:
            text = decode(files.read_given(Path(file), follow=True), file)
    except (OSError, DocumentError):
        return starts
    for number, written in enumerate(text.split("\n"), 1):
        if number in lines:
            # the fallback: the start of the line itself
            starts[number].append(("", _indentation(written) + 1))
    try:
        for path, mark in _places(text):
            if mark.line + 1 in lines:
                starts[mark.line + 1].append((join(path), mark.column + 1))
    except yaml.MarkedYAMLError as error:
        wrong = error.problem_mark or error.context_mark
        if wrong is not None and wrong.line + 1 in lines:
            starts[wrong.line + 1].append(("", wrong.column + 1))
    except yaml.YAMLError:
        # a forbidden character: its line is known
        pass
    return starts


def _places(text: str) -> Iterable[tuple[Place, Any]]:
    """Yield the places and starts of all keys and entries. Aliases are not followed."""
    # each open collection's next index or key; None in a mapping that waits for a key
    stack: list[int | str | None] = []
    loader = Loader(text)
    while loader.check_event():
        event = loader.get_event()
        if isinstance(event, yaml.CollectionEndEvent):
            stack.pop()
            _advance(stack)
        elif isinstance(event, yaml.NodeEvent):
            if stack and stack[-1] is None:
                # a key that is not a text is reported separately
                stack[-1] = event.value if isinstance(event, yaml.ScalarEvent) else ""
                yield tuple(stack), event.start_mark
                if isinstance(event, yaml.CollectionStartEvent):
                    return
                continue
            if stack and isinstance(stack[-1], int):
                yield tuple(stack), event.start_mark
            if isinstance(event, yaml.CollectionStartEvent):
                if len(stack) > MAX_DEPTH:
                    return
                stack.append(0 if isinstance(event, yaml.SequenceStartEvent) else None)
            else:
                _advance(stack)


def _advance(stack: list[int | str | None]) -> None:
    """Move to the next index, or to the next key, after the end of a value."""
    if stack:
        stack[-1] = stack[-1] + 1 if isinstance(stack[-1], int) else None
