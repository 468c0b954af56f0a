"""The columns of problems in a document. They are looked for afterwards, so that reading a document stays fast."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from palaestrai_mosaik import files
from palaestrai_mosaik.errors import DocumentError, Problem

from .model import Place, join
from .yaml_text import MAX_DEPTH, Loader, decode


def columns_of(problems: Sequence[Problem], texts: Mapping[str, str] | None = None) -> list[int | None]:
    """Return the column (from 1) of each problem in its file; ``None`` where it has no line, or cannot be read.

    It is that of the key or the entry at the problem's path, or of what stands around it on that line. ``texts`` are those
    of documents that are not in files, by the names that problems have for them.
    """
    given = texts or {}
    lines: dict[str, set[int]] = defaultdict(set)
    for problem in problems:
        if problem.file and problem.line is not None:
            lines[problem.file].add(problem.line)
    found = {file: _starts(file, given.get(file), wanted) for file, wanted in lines.items()}
    return [
        None
        if problem.line is None
        else _nearest(problem.path, found.get(problem.file, {}).get(problem.line, ()))
        for problem in problems
    ]


def _nearest(path: str, starts: Iterable[tuple[str, int]]) -> int | None:
    """Return the column of ``path`` among what begins on its line, or of the innermost thing around it."""
    known = dict(starts)
    around = [start for start in known if start == path or path.startswith(f"{start}.") or not start]
    return known[max(around, key=len)] if around else min(known.values(), default=None)


def _starts(file: str, text: str | None, lines: set[int]) -> dict[int, list[tuple[str, int]]]:
    """Return the paths that begin on these lines of a file, with their columns."""
    found: dict[int, list[tuple[str, int]]] = defaultdict(list)
    try:
        if text is None:
            text = decode(files.read_given(Path(file)), file)
    except (OSError, DocumentError):
        return found
    for number, written in enumerate(text.split("\n"), 1):
        if number in lines:
            # what is there in any case: the line itself
            found[number].append(("", len(written) - len(written.lstrip()) + 1))
    try:
        for place, mark in _places(text):
            if mark.line + 1 in lines:
                found[mark.line + 1].append((join(place), mark.column + 1))
    except yaml.MarkedYAMLError as error:
        wrong = error.problem_mark or error.context_mark
        if wrong is not None and wrong.line + 1 in lines:
            found[wrong.line + 1].append(("", wrong.column + 1))
    except yaml.YAMLError:
        # a character that is not allowed: there is its line
        pass
    return found


def _places(text: str) -> Iterable[tuple[Place, Any]]:
    """Yield the places of all keys and entries, and where they begin. Aliases are not followed."""
    # of each open collection its next index or its key; a mapping that waits for a key has none
    stack: list[int | str | None] = []
    loader = Loader(text)
    while loader.check_event():
        event = loader.get_event()
        if isinstance(event, yaml.CollectionEndEvent):
            stack.pop()
            _advance(stack)
        elif isinstance(event, yaml.NodeEvent):
            if stack and stack[-1] is None:
                # (a key that is no text is an error of its own)
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
    """A value is over: the next is that of the next index, or of another key."""
    if stack:
        stack[-1] = stack[-1] + 1 if isinstance(stack[-1], int) else None
