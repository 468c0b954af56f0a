"""The keys and words of a design document, and their values: one table for checks and JSON Schema."""

from __future__ import annotations

import ipaddress
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, get_args

from palaestrai_mosaik.core.errors import NameResolutionError, did_you_mean
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
    items_of,
    maybe,
    number,
    ref,
    show,
    word,
)

from .model import (
    Budget,
    Distribution,
    Failures,
    Fold,
    Pruner,
    SearchSampler,
    SeedPolicy,
    Topic,
    is_number,
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


def read_key(findings: Findings, section: Section, parts: Mapping[str, Located], key: str) -> Any:
    """Read the value of one key of a section; its default if it is missing or invalid."""
    field = section.keys[key]
    return field.read(findings, parts.get(key), field.title or key)


def read_parts(findings: Findings, at: Located, section: Section) -> dict[str, Located] | None:
    """Split a mapping into its parts by key, without nulls; None if it is no mapping.

    Missing required keys are reported.
    """
    parts = findings.section(at, section)
    if parts is None:
        return None
    parts = {key: part for key, part in parts.items() if part.value is not None}
    findings.missing(at.place, parts, section)
    return parts


def read_texts(
    findings: Findings, at: Located | None, what: str, must: str = "a list", entry: str = ""
) -> list[Located]:
    """Return the texts of a list at ``at``; a single text counts as a list.

    Args:
        findings: collects the problems.
        at: the list, if there is one.
        what: name of the list in messages.
        must: description of valid lists.
        entry: name of an entry in messages.
    """
    if at is None or at.value is None:
        return []
    if not isinstance(at.value, str | list):
        findings.error(at.place, f"{what} must be {must}, found {show(at.value)}")
        return []
    if isinstance(at.value, str) and not entry:
        # names are looked up later, and an empty one is reported there
        return [at]
    items = [at] if isinstance(at.value, str) else items_of(at)
    entry = entry or f"an entry of {what}"
    return [item for item in items if TEXT.read(findings, item, entry) is not None]


_NULL: Schema = {"type": "null"}


def _any(*schemas: Schema) -> Schema:
    return {"anyOf": [*schemas]}


def _array(items: Schema, least: int = 0) -> Schema:
    return {"type": "array", "items": items} | ({"minItems": least} if least else {})


def _names_to(values: Schema) -> Schema:
    return {"type": "object", "additionalProperties": values}


def _wrong(must: str, value: Any) -> Iterator[Fault]:
    yield (), f"must be {must}, found {show(value)}"


def _valid(
    schema: Schema, must: str, sound: Callable[[Any], object], default: Any = None, title: str = ""
) -> Field:
    """Build the field of a value for which ``sound`` holds, and which ``must`` describes in messages."""

    def faults(value: Any) -> Iterator[Fault]:
        if not sound(value):
            yield from _wrong(must, value)

    return Field(schema, faults, default=default, title=title)


def _word(words: tuple[str, ...], default: str | None = None, title: str = "") -> Field:
    return replace(word(words, default), schema={"enum": [*words, None]}, title=title)


def _whole(minimum: int, maximum: int | None = None) -> Field:
    field = integer(minimum, maximum, nullable=False)
    return replace(field, schema=field.schema | {"type": ["integer", "null"]})


def _mapping_faults(value: Any) -> Iterator[Fault]:
    if not isinstance(value, Mapping):
        yield from _wrong("a mapping", value)
        return
    for key in value:
        if not isinstance(key, str):
            yield (key,), f"has keys that are strings, found {show(key)}"


def _text(must: str, sound: Callable[[str], object] = bool, *, numbers: bool = False) -> Field:
    """Build the field of a valid text on one line; with ``numbers``, an integer stands for its digits."""

    def valid(value: Any) -> object:
        text = str(value) if numbers and isinstance(value, int) and not isinstance(value, bool) else value
        return isinstance(text, str) and text.strip() and text.isprintable() and sound(text)

    schema: Schema = {"type": ["string", "integer", "null"] if numbers else ["string", "null"]}
    return replace(_valid(schema, must, valid), convert=str)


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
    return Field(_any(text, _array(text), _NULL), faults, keep)


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
        "provider": _word(PROVIDERS),
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

_SECONDS = _valid(
    {"type": ["number", "null"], "minimum": 0},
    "0 or a number of seconds",
    lambda value: is_number(value) and 0 <= value < float("inf"),
)

EXECUTION = Section(
    "execution",
    {
        "executor": _word(EXECUTORS),
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


_NUMBER = replace(number(), schema={"type": ["number", "null"]}, convert=float, nullable=True)
_NAMES = _array(TEXT.schema, 1)
_POSITIVE: Schema = {"type": "number", "exclusiveMinimum": 0}


def _texts(title: str = "", must: str = "a list", entry: str = "") -> Field:
    """Build the field of a list of texts, without duplicates: see :func:`read_texts`."""

    def read(findings: Findings, at: Located | None, what: str) -> tuple[str, ...]:
        texts = read_texts(findings, at, what, must, entry)
        return tuple(dict.fromkeys(item.value for item in texts))

    return Field(_any(TEXT.schema, _array(TEXT.schema), _NULL), title=title, reader=read)


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
        "std": replace(_NUMBER, schema=maybe(_POSITIVE)),
        "mode": _NUMBER,
        "levels": Field(
            _any({"type": "array", "minItems": 2}, {"type": "object", "minProperties": 2}, _NULL)
        ),
        "labels": Field(maybe(_array({"type": ["string", "number"]}, 2))),
        "weights": Field(maybe(_array(_POSITIVE, 2))),
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


def _read_of(findings: Findings, at: Located | None, what: str) -> str | None:
    text: str | None = None if at is None else TEXT.read(findings, at, what)
    if at is None or text is None:
        return None
    beginning, dot, name = text.partition(".")
    if text in OF_WORDS or (beginning in OF_BEGINNINGS and dot and name):
        return text
    allowed = [*OF_WORDS, *(f"{word}.NAME" for word in OF_BEGINNINGS)]
    near = did_you_mean(beginning, [*OF_WORDS, *OF_BEGINNINGS])
    findings.error(at.place, f"an outcome cannot be of {text!r}{near}; allowed: {', '.join(allowed)}")
    return None


def _band_faults(value: Any) -> Iterator[Fault]:
    ends = value if isinstance(value, list) else []
    # a comparison with NaN is false
    if len(ends) != 2 or not all(map(is_number, ends)) or not ends[0] < ends[1]:
        shown = str(value) if isinstance(value, list) else show(value)
        yield (), f"must be a band [low, high], low below high, found {shown}"


OUTCOME = Section(
    "an outcome",
    {
        "of": Field(OF, title="of (what an outcome is taken of)", reader=_read_of),
        "phase": Field({"type": ["string", "integer", "null"], "minimum": 0, "minLength": 1}),
        "agent": MAYBE_TEXT,
        "step": _word(FOLDS, "sum", "step (how the steps of an episode are taken together)"),
        "episode": _word(FOLDS, "mean", "episode (how episodes are taken together)"),
        "outside": Field(
            maybe({"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}),
            _band_faults,
            lambda ends: (float(ends[0]), float(ends[1])),
        ),
        "evaluation": FLAG,
        "better": _word(BETTER),
    },
    required=("of",),
)
ROBUSTNESS = Section(
    "robustness of the analysis",
    {
        "by": _texts("by (factors of the decision)"),
        "over": _texts("over (factors that make scenarios)"),
        "satisfice": _texts("satisfice (conditions over outcomes)"),
    },
)
ANALYSIS = Section(
    "analysis",
    {
        "methods": _texts(),
        "compare": _texts(),
        "baseline": Field({"type": ["string", "number", "null"], "minLength": 1}),
        "confidence": _valid(
            {"type": ["number", "null"], "exclusiveMinimum": 0, "exclusiveMaximum": 1},
            "a number between 0 and 1",
            lambda value: is_number(value) and 0 < value < 1,
            default=0.95,
        ),
        "resamples": integer(1, default=1000),
        "discover": _texts("discover (conditions over outcomes)"),
        "robustness": Field(maybe(ROBUSTNESS.schema())),
    },
)
BUDGET = Section(
    "budget",
    {
        "runs": integer(1).called("budget.runs"),
        "steps": integer(1).called("budget.steps"),
        "hours": _valid(
            maybe(_POSITIVE),
            "a number of hours above 0",
            lambda value: is_number(value) and 0 < value < float("inf"),
            title="budget.hours",
        ),
    },
)


def _read_budget(findings: Findings, at: Located | None, what: str) -> Budget | None:
    errors = findings.count
    parts = None if at is None or at.value is None else findings.section(at, BUDGET)
    if at is None or parts is None:
        return None
    budget = Budget(**BUDGET.values(findings, parts))
    if findings.count == errors and budget == Budget():
        findings.error(
            at.place, f"{what} needs at least one of runs, steps and hours: else a search never ends"
        )
    return budget


SEARCH = Section(
    "search",
    {
        "sampler": _word(SEARCH_SAMPLERS, "tpe", "sampler of the search"),
        "budget": Field(BUDGET.schema() | {"minProperties": 1}, reader=_read_budget),
        "seeds_per_setting": integer(1, default=1),
        "prune": _word(PRUNERS, "none"),
        "objectives": _texts(must="a list of outcomes' names", entry="an objective (the name of an outcome)"),
        "confirm": integer(0, default=0),
        "confirm_pruned": integer(0, default=0),
        "failures": _word(FAILURES, "worst"),
    },
    required=("budget",),
    spellings={"pruner": "prune"},
)

# --- arsenAI's form -----------------------------------------------------------------------

_NAMELESS: Schema = {"type": "object", "properties": {"name": {"const": ""}}, "required": ["name"]}
_IDS = _names_to(_array({"type": ["string", "integer"]}))


def _named(schema: Schema) -> Field:
    return Field(_names_to(schema))


def _environment_schema() -> Schema:
    entry = run.ENVIRONMENT_ENTRY.schema(run.ENVIRONMENT_ENTRY.required)
    properties = {
        key: _any(schema, _NAMELESS) if key != "environment" else schema
        for key, schema in entry["properties"].items()
    }
    return {**entry, "properties": properties}


def _agent_schema() -> Schema:
    agent = run.AGENT.schema(("name",))
    load = agent["properties"]["load"]
    return {**agent, "properties": {**agent["properties"], "load": _any(load, _names_to(load))}}


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
_ALTERNATIVES = Field(_any(TEXT.schema, _array(_any(TEXT.schema, _NAMES), 1)))
_SETS = _any(TEXT.schema, _array(_any(TEXT.schema, _array(TEXT.schema)), 1))
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
            _any(integer(1).schema, {"const": -1}),
            integer(1).faults,
            title="max_runs (rows of the design; null: no limit)",
        ),
        "output": MAYBE_TEXT.called("output (a folder)"),
        "extends": MAYBE_TEXT,
        "base": Field(_any(TEXT.schema, ref("base"), _NULL)),
        "definitions": Field(maybe(ref("definitions"))),
        "schedule": Field(
            maybe(_any({"type": "array", "minItems": 1, "items": _PHASES | {"maxProperties": 1}}, _PHASES))
        ),
        "factors": Field(maybe(_any(_array(_ENTRY), _names_to(_ENTRY)))),
        "groups": Field(maybe(_names_to(_NAMES))),
        "zip": Field(_any(_array(_NAMES), _names_to(_NAMES), _NULL)),
        "constraints": _texts(),
        "sampler": Field(
            _any(
                TEXT.schema,
                {"type": "object", "properties": {"name": TEXT.schema, "n": integer(1).schema}},
                _NULL,
            )
        ),
        "search": Field(maybe(SEARCH.schema())),
        "seeds": Field(maybe(SEEDS.schema())),
        "outcomes": Field(maybe(_names_to(ref("outcome")))),
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
            "outcome": _any(OF, OUTCOME.schema(OUTCOME.required)),
        },
    }


def _factor_schema() -> Schema:
    has_levels = {"properties": {"levels": {"type": ["array", "object"]}}, "required": ["levels"]}
    return FACTOR.schema() | {
        "if": has_levels,
        "then": {"properties": {word: {"type": "null"} for word in CONTINUOUS}},
        "else": {"properties": {word: {"type": "null"} for word in DISCRETE}},
    }
