"""Shell completion by argcomplete: the command ``completion``, and the answers to the scripts that it prints.

Commands, options and choices come from the parsers, runs from the store. Nothing heavy is imported here.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from palaestrai_mosaik.core.errors import FINISHED
from palaestrai_mosaik.core.installation import default_store

from .output import say

#: set by the scripts while they complete a command line
COMPLETING = "_ARGCOMPLETE"

#: by metavar in usage, the suffixes of completed files; folders are always completed, too
_PATHS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("RUN.yml", "DESIGN.yml"), (".yml", ".yaml")),
    **dict.fromkeys(("FILE", "DATABASE"), ("",)),
    **dict.fromkeys(("FOLDER", "DIRECTORY", "LOCATION"), ()),
}


def completion(shell: str) -> int:
    """Print the completion script of both programs for ``shell``."""
    from argcomplete.shell_integration import shellcode

    say(shellcode(["palaestrai-mosaik", "arsenai"], use_defaults=False, shell=shell), end="")
    return FINISHED


def complete(parser: argparse.ArgumentParser, arsenai: Callable[[], argparse.ArgumentParser]) -> None:
    """Print the words that complete the command line, and exit.

    After ``palaestrai-mosaik arsenai``, they are those of the parser that ``arsenai`` creates.
    """
    import argcomplete

    if re.match(r"\S*palaestrai-mosaik\s+arsenai\s", os.environ.get("COMP_LINE", "")):
        # the number of the word at which the command begins
        os.environ[COMPLETING] = "2"
        parser = arsenai()
    _add_completers(parser)
    argcomplete.autocomplete(parser, always_complete_options=False, exit_method=sys.exit)


def _add_completers(parser: argparse.ArgumentParser) -> None:
    action: Any
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                _add_completers(command)
        elif action.choices is None:
            action.completer = _completer(action.metavar)


def _completer(metavar: object) -> Any:
    """Return the completer of arguments that usage calls ``metavar``."""
    if metavar in ("RUN", "TAG"):
        return _runs if metavar == "RUN" else _tags
    endings = _PATHS.get(str(metavar))
    return lambda prefix, **_: [] if endings is None else list(_paths(prefix, endings))


def _runs(parsed_args: argparse.Namespace, **_: object) -> list[str]:
    """Return ``latest``, the names of the runs in a store folder, and their ids, newest first."""
    folder = _folder(parsed_args)
    ids = sorted(os.listdir(folder / "instances"), reverse=True) if (folder / "instances").is_dir() else []
    return ["latest", *_names(folder), *ids]


def _tags(parsed_args: argparse.Namespace, **_: object) -> list[str]:
    """Return the tags of the runs in a store folder."""
    texts = _labels(_folder(parsed_args), "tags")
    return sorted({tag for text in texts for tag in json.loads(text) if str(tag).isprintable()})


def _folder(parsed_args: argparse.Namespace) -> Path:
    return Path(getattr(parsed_args, "store", None) or default_store())


def _names(folder: Path) -> list[str]:
    return sorted({name for name in _labels(folder, "name") if name.isprintable()})


def _labels(folder: Path, column: str) -> list[str]:
    """Read a column of the labels in a store folder; databases on servers are too slow for completion."""
    import sqlite3

    file = folder / "store.db"
    if not file.is_file() or file.is_symlink():
        return []
    try:
        with closing(
            sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=0.1)
        ) as database:
            rows = database.execute(f"SELECT DISTINCT {column} FROM labels WHERE {column} IS NOT NULL")
            return [str(row[0]) for row in rows]
    except sqlite3.Error:
        # such as a store of an earlier release, which has no labels
        return []


def _paths(prefix: str, endings: tuple[str, ...]) -> Iterator[str]:
    """Yield folders, and files with one of these endings, that begin with ``prefix``."""
    typed, begin = os.path.split(prefix)
    try:
        entries = sorted(os.scandir(os.path.expanduser(typed) or "."), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        # hidden files only if requested
        if not entry.name.startswith(begin) or (entry.name.startswith(".") and not begin.startswith(".")):
            continue
        path = os.path.join(typed, entry.name)
        if entry.is_dir():
            yield f"{path}/"
        elif entry.name.endswith(endings):
            yield path
