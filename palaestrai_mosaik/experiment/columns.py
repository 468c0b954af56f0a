"""The columns of problems in a document. They are computed afterwards, so that reading a document stays fast."""

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
    """Find the column of each problem in its file.

    It is the column of the key or the entry at the problem's path, or of its innermost parent on that line.

    Args:
        problems: problems of documents.
        texts: the texts of documents that are not in files, by their names in problems.

    Returns:
        The columns, from 1; ``None`` for a problem without a line, or in a file that cannot be read.
    """
    named_texts = texts or {}
    lines: dict[str, set[int]] = defaultdict(set)
    for problem in problems:
        if problem.file and problem.line is not None:
            lines[problem.file].add(problem.line)
    starts = {file: _starts(file, named_texts.get(file), numbers) for file, numbers in lines.items()}
    return [
        None
        if problem.line is None
        else _nearest(problem.path, starts.get(problem.file, {}).get(problem.line, ()))
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
            starts[number].append(("", len(written) - len(written.lstrip()) + 1))
    try:
        for place, mark in _places(text):
            if mark.line + 1 in lines:
                starts[mark.line + 1].append((join(place), mark.column + 1))
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
