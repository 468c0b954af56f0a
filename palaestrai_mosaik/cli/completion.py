"""Completion in shells: the scripts of ``completion``, and the answers that these ask for with ``__complete``.

A script asks the program that is being typed for each completion, so it never grows old: commands, options and choices are
those of the parsers, runs those of the store. Nothing heavy is imported here.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from palaestrai_mosaik.errors import FINISHED
from palaestrai_mosaik.locations import default_store

from .output import say

#: what scripts call a program with, before the words that stand on the command line
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

#: what stands for an argument in usage -> the endings of the files that it may be; folders are offered, too
_FILES = {"RUN.yml": (".yml", ".yaml"), "DESIGN.yml": (".yml", ".yaml"), "FILE": ("",), "DATABASE": ("",)}
#: likewise -> nothing but folders
_FOLDERS = ("FOLDER", "DIRECTORY", "LOCATION")
#: arguments that are a run
_RUN = "RUN"

#: a word, and what it is
Candidate = tuple[str, str]


def completion(shell: str) -> int:
    """Print the script that completes both programs in ``shell``."""
    say(SHELLS[shell], end="")
    return FINISHED


def complete(parser: argparse.ArgumentParser, words: Sequence[str]) -> int:
    """Print the candidates for the last of ``words``, which follow the name of the program; one a line."""
    for word, what in candidates(parser, words):
        say(f"{word}\t{what}" if what else word)
    return FINISHED


def candidates(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[Candidate]:
    """Return what the last of ``words`` may become, each with what it is."""
    # bash takes --option=value for three words
    if not words:
        words = [""]
    *before, current = [word for word in words if word != "="] if words[-1:] != ["="] else [*words[:-1], ""]
    place = _Place(parser)
    for word in before:
        place.take(word)
    option, equals, value = current.partition("=")
    action = place.option(option) if equals and option.startswith("--") else None
    if action is not None:
        return [(f"{option}={word}", what) for word, what in place.values(action, value)]
    if place.waits is not None and not place.optional:
        return list(place.values(place.waits, current))
    if current.startswith("-"):
        return [one for one in place.options() if one[0].startswith(current)]
    return [one for action in place.next() for one in place.values(action, current)]


class _Place:
    """Where in a command line the words end that were taken so far."""

    def __init__(self, parser: argparse.ArgumentParser):
        self._use(parser)
        self._store: str | None = None

    def _use(self, parser: argparse.ArgumentParser) -> None:
        self._parser = parser
        self._options = {text: action for action in parser._actions for text in action.option_strings}
        self._positionals = [action for action in parser._actions if not action.option_strings]
        #: the option whose value comes next, and whether it may as well have no more
        self.waits: argparse.Action | None = None
        self.optional = False

    def option(self, text: str) -> argparse.Action | None:
        """Return the option that is called so."""
        return self._options.get(text)

    def take(self, word: str) -> None:
        """Go on behind ``word``."""
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
                found = action.choices.get(word)
                if found is not None:
                    self._use(found)
            elif action.nargs not in ("+", "*"):
                self._positionals.pop(0)

    def _note(self, action: argparse.Action, value: str) -> None:
        if action.dest == "store":
            self._store = value

    def next(self) -> Iterator[argparse.Action]:
        """Yield what the next word may be a value of."""
        if self.waits is not None:
            yield self.waits
        yield from self._positionals[:1]

    def options(self) -> Iterator[Candidate]:
        """Yield the options of the command."""
        for text, action in self._options.items():
            if action.help != argparse.SUPPRESS:
                yield text, _first_words(action.help)

    def values(self, action: argparse.Action, current: str) -> Iterator[Candidate]:
        """Yield the values of an argument that begin with ``current``."""
        if isinstance(action, argparse._SubParsersAction):
            helps = {one.dest.split(" ")[0]: one.help for one in action._choices_actions}
            found = [(str(name), _first_words(helps.get(str(name)))) for name in action.choices or ()]
        elif action.choices is not None:
            found = [(str(choice), "") for choice in action.choices]
        elif action.metavar == _RUN:
            found = [(run, "") for run in _runs(self._store or default_store())]
        elif action.metavar in _FOLDERS or action.metavar in _FILES:
            found = list(_paths(current, _FILES.get(str(action.metavar), ())))
        else:
            found = []
        yield from (one for one in found if one[0].startswith(current))


def _first_words(text: str | None) -> str:
    return "" if text is None else " ".join(text.replace("%%", "%").split(";")[0].split())


def _runs(store: str) -> list[str]:
    """Return ``latest`` and the ids of the runs in a store that is a folder, the newest first."""
    # (not those of a database: a key must be answered at once)
    folder = Path(store) / "instances"
    names = sorted(os.listdir(folder), reverse=True) if folder.is_dir() else []
    return ["latest", *names]


def _paths(current: str, endings: Sequence[str]) -> Iterator[Candidate]:
    """Yield folders, and files with one of these endings, that begin with ``current``."""
    typed, begin = os.path.split(current)
    folder = Path(os.path.expanduser(typed) or ".")
    try:
        found = sorted(os.scandir(folder), key=lambda one: one.name)
    except OSError:
        return
    for one in found:
        # (hidden ones if they are asked for)
        if not one.name.startswith(begin) or (one.name.startswith(".") and not begin.startswith(".")):
            continue
        path = os.path.join(typed, one.name)
        if one.is_dir():
            yield f"{path}/", "folder"
        elif endings and one.name.endswith(tuple(endings)):
            yield path, "file"
