"""Shell completion: the scripts of ``completion``, and the hidden command ``__complete`` that they call.

The scripts ask the program itself for each completion, so they are never outdated. Commands, options and choices come
from the parsers, runs from the store. Nothing heavy is imported here.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from palaestrai_mosaik.errors import FINISHED
from palaestrai_mosaik.locations import default_store

from .output import say

#: the hidden command, which scripts call with the words on the command line
COMPLETE = "__complete"

_BASH = """\
# eval "$(palaestrai-mosaik completion bash)"
_mosaik_agents() {
    local word what current="${COMP_WORDS[COMP_CWORD]}"
    COMPREPLY=()
    while IFS=$'\\t' read -r word what; do
        COMPREPLY+=("$word")
        case $what in file|folder) compopt -o filenames 2>/dev/null ;; esac
        case $word in */|*=) compopt -o nospace 2>/dev/null ;; esac
    done < <("${1/#\\~/$HOME}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _mosaik_agents palaestrai-mosaik arsenai
"""
_ZSH = """\
#compdef palaestrai-mosaik arsenai
# eval "$(palaestrai-mosaik completion zsh)", after compinit
_mosaik_agents() {
    local line word
    local -a found shown folders
    for line in "${(@f)$("${words[1]/#\\~/$HOME}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        [[ -n $line ]] || continue
        word="${line%%$'\\t'*}"
        if [[ $word == */ ]]; then
            folders+=("$word")
        else
            found+=("$word")
            shown+=("${line/$'\\t'/  -- }")
        fi
    done
    (( $#folders )) && compadd -S '' -a folders
    (( $#found )) && compadd -l -d shown -a found
}
compdef _mosaik_agents palaestrai-mosaik arsenai
"""
_FISH = """\
# palaestrai-mosaik completion fish | source
function __mosaik_agents
    set -l typed (commandline -opc)
    set -l program $typed[1]
    set -e typed[1]
    $program __complete $typed (commandline -ct) 2>/dev/null
end
complete -c palaestrai-mosaik -f -a '(__mosaik_agents)'
complete -c arsenai -f -a '(__mosaik_agents)'
"""
SHELLS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}

#: by metavar in usage, the suffixes of completed files; folders are always completed, too
_FILES = {"RUN.yml": (".yml", ".yaml"), "DESIGN.yml": (".yml", ".yaml"), "FILE": ("",), "DATABASE": ("",)}
#: metavars of arguments that are folders
_FOLDERS = ("FOLDER", "DIRECTORY", "LOCATION")
#: metavar of arguments that are runs
_RUN = "RUN"

#: a word and its description
Candidate = tuple[str, str]


def completion(shell: str) -> int:
    """Print the completion script of both programs for ``shell``."""
    say(SHELLS[shell], end="")
    return FINISHED


def complete(parser: argparse.ArgumentParser, words: Sequence[str]) -> int:
    """Print the candidates for the last of ``words``, one per line; the program's name is not in ``words``."""
    for word, what in candidates(parser, words):
        say(f"{word}\t{what}" if what else word)
    return FINISHED


def candidates(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[Candidate]:
    """Return the candidates for the last of ``words``, with descriptions."""
    # bash splits --option=value into three words
    if not words:
        words = [""]
    *before, current = [word for word in words if word != "="] if words[-1:] != ["="] else [*words[:-1], ""]
    position = _Place(parser)
    for word in before:
        position.take(word)
    option, equals, value = current.partition("=")
    action = position.option(option) if equals and option.startswith("--") else None
    if action is not None:
        return [(f"{option}={word}", what) for word, what in position.values(action, value)]
    if position.waits is not None and not position.optional:
        return list(position.values(position.waits, current))
    if current.startswith("-"):
        return [candidate for candidate in position.options() if candidate[0].startswith(current)]
    return [candidate for action in position.next() for candidate in position.values(action, current)]


class _Place:
    """The position in a command line after the words taken so far."""

    def __init__(self, parser: argparse.ArgumentParser):
        self._use(parser)
        self._store: str | None = None

    def _use(self, parser: argparse.ArgumentParser) -> None:
        self._parser = parser
        self._options = {text: action for action in parser._actions for text in action.option_strings}
        self._positionals = [action for action in parser._actions if not action.option_strings]
        #: the option that takes the next word, and whether further values are optional
        self.waits: argparse.Action | None = None
        self.optional = False

    def option(self, text: str) -> argparse.Action | None:
        """Return the option with this name, or ``None``."""
        return self._options.get(text)

    def take(self, word: str) -> None:
        """Advance by one word."""
        name, equals, value = word.partition("=")
        if name.startswith("-") and name in self._options:
            action = self._options[name]
            takes = action.nargs != 0 and not equals
            self.waits, self.optional = (action if takes else None), action.nargs in ("?", "*")
            if equals:
                self._note(action, value)
        elif self.waits is not None:
            self._note(self.waits, word)
            self.optional = self.waits.nargs in ("+", "*")
            self.waits = self.waits if self.optional else None
        elif self._positionals:
            action = self._positionals[0]
            if isinstance(action, argparse._SubParsersAction):
                subparser = action.choices.get(word)
                if subparser is not None:
                    self._use(subparser)
            elif action.nargs not in ("+", "*"):
                self._positionals.pop(0)

    def _note(self, action: argparse.Action, value: str) -> None:
        if action.dest == "store":
            self._store = value

    def next(self) -> Iterator[argparse.Action]:
        """Yield the arguments that the next word may belong to."""
        if self.waits is not None:
            yield self.waits
        yield from self._positionals[:1]

    def options(self) -> Iterator[Candidate]:
        """Yield the options of the current command."""
        for text, action in self._options.items():
            if action.help != argparse.SUPPRESS:
                yield text, _first_words(action.help)

    def values(self, action: argparse.Action, current: str) -> Iterator[Candidate]:
        """Yield the values of an argument that begin with ``current``."""
        if isinstance(action, argparse._SubParsersAction):
            helps = {candidate.dest.split(" ")[0]: candidate.help for candidate in action._choices_actions}
            values = [(str(name), _first_words(helps.get(str(name)))) for name in action.choices or ()]
        elif action.choices is not None:
            values = [(str(choice), "") for choice in action.choices]
        elif action.metavar == _RUN:
            values = [(run, "") for run in _runs(self._store or default_store())]
        elif action.metavar in _FOLDERS or action.metavar in _FILES:
            values = list(_paths(current, _FILES.get(str(action.metavar), ())))
        else:
            values = []
        yield from (candidate for candidate in values if candidate[0].startswith(current))


def _first_words(text: str | None) -> str:
    return "" if text is None else " ".join(text.replace("%%", "%").split(";")[0].split())


def _runs(store: str) -> list[str]:
    """Return ``latest`` and the ids of the runs in a store folder, newest first."""
    # databases are not queried, because completion must be fast
    folder = Path(store) / "instances"
    names = sorted(os.listdir(folder), reverse=True) if folder.is_dir() else []
    return ["latest", *names]


def _paths(current: str, endings: Sequence[str]) -> Iterator[Candidate]:
    """Yield folders, and files with one of these endings, that begin with ``current``."""
    typed, begin = os.path.split(current)
    folder = Path(os.path.expanduser(typed) or ".")
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        # hidden files only if requested
        if not entry.name.startswith(begin) or (entry.name.startswith(".") and not begin.startswith(".")):
            continue
        path = os.path.join(typed, entry.name)
        if entry.is_dir():
            yield f"{path}/", "folder"
        elif endings and entry.name.endswith(tuple(endings)):
            yield path, "file"
