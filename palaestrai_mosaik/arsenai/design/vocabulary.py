"""The keys and words of a design document, and their values: one table for checks and JSON Schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, get_args

from palaestrai_mosaik.experiment import json_schema
from palaestrai_mosaik.experiment import vocabulary as run
from palaestrai_mosaik.experiment.fields import (
    FLAG,
    MAYBE_TEXT,
    TEXT,
    Fault,
    Field,
    Schema,
    Section,
    integer,
    maybe,
    ref,
    show,
    word,
)

from .execution import EXECUTION
from .model import Distribution, Failures, Fold, Pruner, SearchSampler, SeedPolicy, Topic

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
