"""The section ``execution`` of designs and of users' configuration files: its keys, and their values.

One table serves the checks of both documents, of settings made in Python, and the schema.
"""

from __future__ import annotations

import ipaddress
import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from palaestrai_mosaik.core.errors import NameResolutionError
from palaestrai_mosaik.core.importing import COMMANDS, CONNECTIONS, check_modules
from palaestrai_mosaik.experiment.fields import (
    FLAG,
    Fault,
    Field,
    Findings,
    Located,
    Schema,
    Section,
    integer,
    maybe,
    show,
    word,
)

#: executors of runs, and Parsl's providers of pilots
EXECUTORS = ("local", "inline", "slurm", "parsl")
PROVIDERS = ("local", "slurm", "pbspro", "torque", "lsf", "grid_engine", "condor", "kubernetes")


def read_execution(findings: Findings, at: Located, section: Section | None = None) -> dict[str, Any] | None:
    """Read the section at ``at``, without nulls; None if it is no mapping.

    Values are returned as written; invalid ones are reported and returned, too.

    Args:
        findings: collects the problems.
        at: the section.
        section: keys of the section; None for ``execution`` itself.
    """
    section = section or EXECUTION
    parts = findings.section(at, section)
    if parts is None:
        return None
    written: dict[str, Any] = {}
    for name, part in parts.items():
        if part.value is None:
            continue
        if name in NESTED:
            written[name] = read_execution(findings, part, NESTED[name])
        else:
            section.keys[name].read(findings, part, name)  # reports problems
            written[name] = part.value
    return written


def _wrong(must: str, value: Any) -> Iterator[Fault]:
    yield (), f"must be {must}, found {show(value)}"


def _name_of(words: tuple[str, ...]) -> Field:
    return replace(word(words), schema={"enum": [*words, None]})


def _whole(minimum: int, maximum: int | None = None) -> Field:
    field = integer(minimum, maximum, nullable=False)
    return replace(field, schema=field.schema | {"type": ["integer", "null"]})


def _seconds_faults(value: Any) -> Iterator[Fault]:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value < math.inf:
        yield from _wrong("0 or a number of seconds", value)


def _mapping_faults(value: Any) -> Iterator[Fault]:
    if not isinstance(value, Mapping):
        yield from _wrong("a mapping", value)
        return
    for key in value:
        if not isinstance(key, str):
            yield (key,), f"has keys that are strings, found {show(key)}"


def _text(must: str, sound: Callable[[str], object] = bool, *, numbers: bool = False) -> Field:
    """Build the field of a valid text on one line; with ``numbers``, an integer stands for its digits."""

    def faults(value: Any) -> Iterator[Fault]:
        text = str(value) if numbers and isinstance(value, int) and not isinstance(value, bool) else value
        if not (isinstance(text, str) and text.strip() and text.isprintable() and sound(text)):
            yield from _wrong(must, value)

    schema: Schema = {"type": ["string", "integer", "null"] if numbers else ["string", "null"]}
    return Field(schema, faults, str)


def _form(pattern: str) -> Callable[[str], object]:
    return re.compile(pattern, re.ASCII).fullmatch


def _is_address(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    # an IPv6 zone may be any text, and addresses become a part of shell commands
    return getattr(address, "scope_id", None) is None


def _list(
    must: str, fault: Callable[[str], str | None], split: Callable[[str], list[str]] = str.splitlines
) -> Field:
    """Build the field of a list of texts; a single text stands for the list that ``split`` returns.

    Args:
        must: description of valid lists.
        fault: returns the problem of an item, or None.
        split: splits a single text.
    """

    def faults(value: Any) -> Iterator[Fault]:
        if isinstance(value, str):
            value = split(value)
        if not isinstance(value, list | tuple):
            yield from _wrong(must, value)
            return
        for index, item in enumerate(value):
            if not isinstance(item, str):
                yield (index,), f"must be {must}, found {show(item)} in it"
            elif (wrong := fault(item)) is not None:
                yield (index,), f"{wrong}, found {show(item)}"

    def keep(value: Any) -> tuple[str, ...]:
        return tuple(split(value) if isinstance(value, str) else value)

    text: Schema = {"type": "string"}
    return Field({"anyOf": [text, {"type": "array", "items": text}, {"type": "null"}]}, faults, keep)


def _refused_options() -> dict[str, str]:
    """Return the options of sbatch that a directive must not contain, each with the reason."""
    keys = {
        "partition": "partition",
        "time": "time",
        "mem": "memory",
        "cpus-per-task": "cpus",
        "account": "account",
        "qos": "qos",
        "requeue": "requeue",
        "no-requeue": "requeue",
        "signal": "warning",
    }
    ours = ("array", "job-name", "output", "error", "open-mode", "parsable", "quiet")
    nothing = "nothing would be submitted"
    return {
        **{option: f"give it as {key!r}" for option, key in keys.items()},
        **dict.fromkeys(ours, "arsenai writes it itself"),
        **dict.fromkeys(("help", "usage", "version"), nothing),
        "test-only": f"{nothing}; arsenai submit --dry-run writes the script and does not submit it",
        "wait": "arsenai submit does not wait; arsenai status tells how far the runs are",
        "wrap": "the script is what is submitted",
        "clusters": "nobody could ask what became of jobs on another cluster",
    }


_REFUSED_OPTIONS = _refused_options()


def _directive_fault(text: str) -> str | None:
    try:
        words = shlex.split(text)
    except ValueError as error:
        return f"must hold options that sbatch can read ({str(error).lower()})"
    option = re.match(r"--([a-z][a-z0-9-]*)(?:=|$)", words[0]) if words else None
    if option is None or not text.isprintable():
        return "must hold one option of sbatch in each line, such as --constraint=fast"
    if len(words) > 2 or (len(words) == 2 and (words[1].startswith("-") or "=" in words[0])):
        return "must hold one option of sbatch in each line, with its value in quotes where it has spaces"
    # sbatch also accepts abbreviated options
    refused = next((name for name in _REFUSED_OPTIONS if name.startswith(option[1])), None)
    return None if refused is None else f"cannot hold --{refused}: {_REFUSED_OPTIONS[refused]}"


def _shell_fault(text: str) -> str | None:
    if "\n" in text or "\r" in text or not text.replace("\t", "").isprintable():
        return "must hold lines of a shell script"
    return None


def _module_fault(text: str) -> str | None:
    try:
        check_modules([text])
    except NameResolutionError:
        return f"must hold names of modules such as mypackage.agents, {COMMANDS!r} or {CONNECTIONS!r}"
    return None


def _commas(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


_NAME = "a name on one line"
#: Parsl inserts these names into shell commands without quotes
_PLAIN_NAME = _text(
    "a name of letters, digits and _ . @ , : + / - that begins with a letter, a digit or _",
    _form(r"\w[\w.@,:+/-]*"),
)
_PYTHON = _text("the path of a Python interpreter")
_LINES = _list("lines of a shell script", _shell_fault)
_DIRECTIVES = _list("options of sbatch, one in each line", _directive_fault)
#: minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes, ...
_TIME = r"\d{1,7}(:\d{1,4}){0,2}|\d{1,5}-\d{1,4}(:\d{1,4}){0,2}"

SLURM = Section(
    "slurm",
    {
        "partition": _text(_NAME),
        "time": _text(
            "a time as Slurm takes it: minutes, hours:minutes:seconds or days-hours:minutes:seconds",
            _form(rf"(?=.*[1-9])({_TIME})"),
            numbers=True,
        ),
        "memory": _text("a number with K, M, G or T, such as 4G", _form(r"\d+[KMGTkmgt]?"), numbers=True),
        "cpus": _whole(1),
        "account": _text(_NAME),
        "qos": _text(_NAME),
        "throttle": _whole(1),
        "processes": _whole(1),
        "runs_per_task": _whole(1),
        "requeue": _whole(0),
        "warning": _whole(0, 65_535),
        "directives": _DIRECTIVES,
        "prologue": _LINES,
        "python": _PYTHON,
    },
)

PARSL = Section(
    "parsl",
    {
        "provider": _name_of(PROVIDERS),
        "options": Field({"type": ["object", "null"]}, _mapping_faults),
        "workers": _whole(1),
        "nodes": _whole(1),
        "min_blocks": _whole(0),
        "max_blocks": _whole(1),
        "walltime": _text(
            "a time of at least a minute, such as 02:30:00", _form(r"(?!0+:00:)\d{1,4}:[0-5]\d:[0-5]\d")
        ),
        "runs_per_task": _whole(1),
        "retries": _whole(0),
        "partition": _PLAIN_NAME,
        "account": _PLAIN_NAME,
        "directives": _list("lines for the scheduler", _shell_fault),
        "prologue": _LINES,
        "python": _PYTHON,
        "address": _text("an IP address", _is_address),
    },
)

_SECONDS = Field({"type": ["number", "null"], "minimum": 0}, _seconds_faults)

EXECUTION = Section(
    "execution",
    {
        "executor": _name_of(EXECUTORS),
        "jobs": _whole(1),
        "timeout": _SECONDS,
        "runs_per_process": _whole(1),
        "fail_fast": FLAG,
        "checkpoint_every": _SECONDS,
        "allow_modules": _list("a list of names of modules", _module_fault, _commas),
        "slurm": Field(maybe(SLURM.schema())),
        "parsl": Field(maybe(PARSL.schema())),
    },
)
#: the nested sections
NESTED = {"slurm": SLURM, "parsl": PARSL}
