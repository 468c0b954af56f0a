"""The keys and words of a design document, and their values: one table for checks and JSON Schema."""

from __future__ import annotations

import ipaddress
import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, get_args

from palaestrai_mosaik.core.errors import NameResolutionError
from palaestrai_mosaik.core.importing import COMMANDS, CONNECTIONS, check_modules
from palaestrai_mosaik.experiment import json_schema
from palaestrai_mosaik.experiment import vocabulary as run
from palaestrai_mosaik.experiment.fields import (
    FLAG,
    MAYBE_TEXT,
    TEXT,
    Fault,
    Field,
    Findings,
    Located,
    Schema,
    Section,
    integer,
    maybe,
    ref,
    show,
    word,
)

from .model import Distribution, Failures, Fold, Pruner, SearchSampler, SeedPolicy, Topic

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


#: keys that identify a run, and are set for each
IDENTITY = ("uid", "seed", "experiment_uid")
#: keys of a factor for continuous values, and for levels
CONTINUOUS = ("low", "high", "dist", "type", "mean", "std", "mode")
DISCRETE = ("levels", "labels", "weights", "ordered")

TOPICS: tuple[Topic, ...] = get_args(Topic)
DISTRIBUTIONS: tuple[Distribution, ...] = get_args(Distribution)
FOLDS: tuple[Fold, ...] = get_args(Fold)
POLICIES: tuple[SeedPolicy, ...] = get_args(SeedPolicy)
SEARCH_SAMPLERS: tuple[SearchSampler, ...] = get_args(SearchSampler)
PRUNERS: tuple[Pruner, ...] = get_args(Pruner)
FAILURES: tuple[Failures, ...] = get_args(Failures)
TYPES = ("float", "int")
BETTER = ("higher", "lower")
#: parameters of each distribution beside ``low`` and ``high``
PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "uniform": (),
    "loguniform": (),
    "triangular": ("mode",),
    "normal": ("mean", "std"),
    "lognormal": ("mean", "std"),
}
#: distributions that do not need ``low`` and ``high``, which truncate them
UNBOUNDED = ("normal", "lognormal")
#: values of an outcome's ``of``: words, and prefixes of ``PREFIX.NAME``
OF_WORDS = ("objective", "steps")
OF_BEGINNINGS = ("reward", "reading", "setpoint", "statistic")
#: names that are columns of the design's table
RESERVED = ("row", "repetition", "uid", "run", "file", "seed", "hash", "status", "instance")
DEFAULT_SAMPLER = "factorial"


def _word(words: tuple[str, ...], default: str | None = None, title: str = "") -> Field:
    return replace(word(words, default), schema={"enum": [*words, None]}, title=title)


_NUMBER = Field({"type": ["number", "null"]})
_NAMES: Schema = {"type": "array", "items": TEXT.schema, "minItems": 1}
_POSITIVE: Schema = {"type": "number", "exclusiveMinimum": 0}
_SEVERAL = Field({"anyOf": [TEXT.schema, {"type": "array", "items": TEXT.schema}, {"type": "null"}]})

FACTOR = Section(
    "a factor",
    {
        "name": MAYBE_TEXT,
        "path": TEXT.called("a factor's path"),
        "type": _word(TYPES, "float"),
        "low": _NUMBER,
        "high": _NUMBER,
        "dist": _word(DISTRIBUTIONS, "uniform"),
        "mean": _NUMBER,
        "std": Field(maybe(_POSITIVE)),
        "mode": _NUMBER,
        "levels": Field(
            {
                "anyOf": [
                    {"type": "array", "minItems": 2},
                    {"type": "object", "minProperties": 2},
                    {"type": "null"},
                ]
            }
        ),
        "labels": Field(maybe({"type": "array", "items": {"type": ["string", "number"]}, "minItems": 2})),
        "weights": Field(maybe({"type": "array", "items": _POSITIVE, "minItems": 2})),
        "ordered": FLAG,
        "create": FLAG,
        "uncertain": FLAG,
        "when": MAYBE_TEXT.called("when (an expression over factors)"),
    },
    required=("path",),
)
SEEDS = Section("seeds", {"policy": _word(POLICIES, "common", "policy of seeds")})
#: values of an outcome's ``of``
OF: Schema = {"type": "string", "pattern": f"^({'|'.join(OF_WORDS)}|({'|'.join(OF_BEGINNINGS)})\\..+)$"}
OUTCOME = Section(
    "an outcome",
    {
        "of": Field(OF),
        "phase": Field({"type": ["string", "integer", "null"], "minimum": 0, "minLength": 1}),
        "agent": MAYBE_TEXT,
        "step": _word(FOLDS, "sum", "step (how the steps of an episode are taken together)"),
        "episode": _word(FOLDS, "mean", "episode (how episodes are taken together)"),
        "outside": Field(maybe({"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2})),
        "evaluation": FLAG,
        "better": _word(BETTER),
    },
    required=("of",),
)
ROBUSTNESS = Section("robustness of the analysis", {"by": _SEVERAL, "over": _SEVERAL, "satisfice": _SEVERAL})
ANALYSIS = Section(
    "analysis",
    {
        "methods": _SEVERAL,
        "compare": _SEVERAL,
        "baseline": Field({"type": ["string", "number", "null"], "minLength": 1}),
        "confidence": Field({"type": ["number", "null"], "exclusiveMinimum": 0, "exclusiveMaximum": 1}),
        "resamples": integer(1, default=1000),
        "discover": _SEVERAL,
        "robustness": Field(maybe(ROBUSTNESS.schema())),
    },
)


def _hours_faults(value: Any) -> Iterator[Fault]:
    sound = isinstance(value, int | float) and not isinstance(value, bool)
    if not sound or not 0 < value < float("inf"):
        yield (), f"must be a number of hours above 0, found {show(value)}"


BUDGET = Section(
    "budget",
    {
        "runs": integer(1).called("budget.runs"),
        "steps": integer(1).called("budget.steps"),
        "hours": Field(maybe(_POSITIVE), _hours_faults, title="budget.hours"),
    },
)
SEARCH = Section(
    "search",
    {
        "sampler": _word(SEARCH_SAMPLERS, "tpe", "sampler of the search"),
        "budget": Field(BUDGET.schema() | {"minProperties": 1}),
        "seeds_per_setting": integer(1, default=1),
        "prune": _word(PRUNERS, "none"),
        "objectives": _SEVERAL,
        "confirm": integer(0, default=0),
        "confirm_pruned": integer(0, default=0),
        "failures": _word(FAILURES, "worst"),
    },
    required=("budget",),
    spellings={"pruner": "prune"},
)

# --- arsenAI's form -----------------------------------------------------------------------

_NAMELESS: Schema = {"type": "object", "properties": {"name": {"const": ""}}, "required": ["name"]}
_IDS: Schema = {
    "type": "object",
    "additionalProperties": {"type": "array", "items": {"type": ["string", "integer"]}},
}


def _named(schema: Schema) -> Field:
    return Field({"type": "object", "additionalProperties": schema})


def _environment_schema() -> Schema:
    entry = run.ENVIRONMENT_ENTRY.schema(run.ENVIRONMENT_ENTRY.required)
    properties = {
        key: {"anyOf": [schema, _NAMELESS]} if key != "environment" else schema
        for key, schema in entry["properties"].items()
    }
    return {**entry, "properties": properties}


def _agent_schema() -> Schema:
    agent = run.AGENT.schema(("name",))
    load = agent["properties"]["load"]
    by_phase = {"type": "object", "additionalProperties": load}
    return {**agent, "properties": {**agent["properties"], "load": {"anyOf": [load, by_phase]}}}


DEFINITIONS = Section(
    "definitions",
    {
        "environments": _named(_environment_schema()),
        "agents": _named(_agent_schema()),
        "sensors": _named(_IDS),
        "actuators": _named(_IDS),
        "simulation": _named(ref("simulation")),
        "phase_config": _named(ref("phase_config")),
        "run_config": Field(ref("run_config")),
    },
    required=("environments", "agents", "simulation", "run_config"),
)
#: one name, or alternatives: names, or lists of names that go together
_ALTERNATIVES = Field(
    {
        "anyOf": [
            TEXT.schema,
            {"type": "array", "items": {"anyOf": [TEXT.schema, _NAMES]}, "minItems": 1},
        ]
    }
)
_SETS: Schema = {
    "anyOf": [
        TEXT.schema,
        {
            "type": "array",
            "items": {"anyOf": [TEXT.schema, {"type": "array", "items": TEXT.schema}]},
            "minItems": 1,
        },
    ]
}
PHASE = Section(
    "a phase of the design",
    {
        "environments": _ALTERNATIVES,
        "agents": _ALTERNATIVES,
        "sensors": _named(_SETS),
        "actuators": _named(_SETS),
        "simulation": _ALTERNATIVES,
        "phase_config": _ALTERNATIVES,
    },
)
#: an agent's definition; its sensors and actuators may come from the schedule
AGENT = replace(run.AGENT, title="an agent's definition", required=("name", "muscle"))
AGENT_WITH_BODIES = replace(AGENT, required=run.AGENT_WITH_BODIES.required)

# --- the design ---------------------------------------------------------------------------

_ENTRY = maybe(ref("factor"))
_PHASES: Schema = {
    "type": "object",
    "minProperties": 1,
    "additionalProperties": maybe(ref("design_phase")),
}
DESIGN = Section(
    "the design",
    {
        "uid": TEXT,
        "seed": integer(nullable=False),
        "version": MAYBE_TEXT,
        "repetitions": integer(1, default=1),
        "max_runs": Field(
            {"anyOf": [integer(1).schema, {"const": -1}]},
            integer(1).faults,
            title="max_runs (rows of the design; null: no limit)",
        ),
        "output": MAYBE_TEXT.called("output (a folder)"),
        "extends": MAYBE_TEXT,
        "base": Field({"anyOf": [TEXT.schema, ref("base"), {"type": "null"}]}),
        "definitions": Field(maybe(ref("definitions"))),
        "schedule": Field(
            maybe(
                {
                    "anyOf": [
                        {"type": "array", "minItems": 1, "items": _PHASES | {"maxProperties": 1}},
                        _PHASES,
                    ]
                }
            )
        ),
        "factors": Field(
            maybe(
                {
                    "anyOf": [
                        {"type": "array", "items": _ENTRY},
                        {"type": "object", "additionalProperties": _ENTRY},
                    ]
                }
            )
        ),
        "groups": Field(maybe({"type": "object", "additionalProperties": _NAMES})),
        "zip": Field(
            {
                "anyOf": [
                    {"type": "array", "items": _NAMES},
                    {"type": "object", "additionalProperties": _NAMES},
                    {"type": "null"},
                ]
            }
        ),
        "constraints": _SEVERAL,
        "sampler": Field(
            {
                "anyOf": [
                    TEXT.schema,
                    {"type": "object", "properties": {"name": TEXT.schema, "n": integer(1).schema}},
                    {"type": "null"},
                ]
            }
        ),
        "search": Field(maybe(SEARCH.schema())),
        "seeds": Field(maybe(SEEDS.schema())),
        "outcomes": Field(maybe({"type": "object", "additionalProperties": ref("outcome")})),
        "analysis": Field(maybe(ANALYSIS.schema())),
        "execution": Field(maybe(EXECUTION.schema())),
    },
    required=("uid", "seed"),
    spellings={"id": "uid"},
)


# --- JSON Schema --------------------------------------------------------------------------


def design_schema() -> Schema:
    """Return the JSON Schema (draft 2020-12) of design documents as plain data.

    It checks keys, words and which keys may be combined. It cannot read other files or resolve names, so
    loading checks more.

    Returns:
        The schema of one document.
    """
    run = json_schema()
    # A design that extends another need not repeat any part of it.
    top = DESIGN.schema() | {"anyOf": [{"required": ["extends"]}, {"required": ["seed"]}]}
    return {
        "$schema": run["$schema"],
        "title": "palaestrai_mosaik design document",
        **top,
        "$defs": {
            **run["$defs"],
            # a run document, without the keys that are set for each run
            "base": {"type": "object", "properties": run["properties"], "additionalProperties": False},
            "definitions": DEFINITIONS.schema(),
            "design_phase": PHASE.schema(),
            "factor": _factor_schema(),
            "outcome": {"anyOf": [OF, OUTCOME.schema(OUTCOME.required)]},
        },
    }


def _factor_schema() -> Schema:
    has_levels = {"properties": {"levels": {"type": ["array", "object"]}}, "required": ["levels"]}
    return FACTOR.schema() | {
        "if": has_levels,
        "then": {"properties": {word: {"type": "null"} for word in CONTINUOUS}},
        "else": {"properties": {word: {"type": "null"} for word in DISCRETE}},
    }
