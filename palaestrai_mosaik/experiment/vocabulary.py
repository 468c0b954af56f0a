"""The keys of a run document, their spellings and allowed values: one table for checks, hash and JSON Schema.

The schema sees one phase at a time and no cascade, so it is more lenient than loading: it
requires the keys that every entry needs, and knows every key, spelling and allowed word.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from .class_names import TOPICS
from .fields import (
    CLASS_NAME,
    FLAG,
    IDS,
    MAYBE_TEXT,
    PARAMS,
    SECONDS,
    SPELLINGS,
    TEXT,
    Fault,
    Field,
    Findings,
    Located,
    Schema,
    Section,
    class_items,
    class_name_schema,
    class_schema,
    integer,
    maybe,
    maybe_class,
    one_class,
    ref,
    show,
    word,
)
from .model import DEFAULT_SYNC_EVERY, MAX_BODIES, Bridge, Controller, FrameSpec, Scheduler, Values

MODES: Mapping[str, str] = {"train": "train", "training": "train", "test": "test", "testing": "test"}
BRIDGES: tuple[Bridge, ...] = ("agents", "per_agent")
SCHEDULERS: tuple[Scheduler, ...] = ("direct", "mosaik")
VALUES: tuple[Values, ...] = ("count", "strict")


def _controllers() -> dict[str, Controller]:
    table: dict[str, Controller] = {"vanilla": "vanilla", "taking_turns": "taking_turns"}
    kinds: tuple[tuple[Controller, str, str], ...] = (
        ("vanilla", "Vanilla", "vanilla_sim_controller"),
        ("taking_turns", "TakingTurns", "taking_turns_simulation_controller"),
    )
    for controller, prefix, module in kinds:
        for name in (prefix, f"{prefix}SimController", f"{prefix}SimulationController"):
            table[f"palaestrai.simulation:{name}"] = controller
            table[f"palaestrai.simulation.{module}:{name}"] = controller
            table[f"palaestrai_mosaik.simulation:{name}"] = controller
    return table


#: Every accepted name of a simulation controller.
CONTROLLERS: Mapping[str, Controller] = _controllers()
#: Conditions with agents in their params (by canonical name, see ``class_names.canonical_name``): one
#: with thresholds by agent, and one with rules by agent below ``agents``.
AGENT_KEYED_CONDITION = "palaestrai_mosaik.simulation.conditions:AgentObjectiveTerminationCondition"
EVALUATION_CONDITION = "palaestrai_mosaik.simulation.evaluation:AgentEvaluationObjectiveTerminationCondition"


def _or_name(name: str) -> Field:
    """Build the field of a part of a phase, or of a string that refers to an entry of definitions."""
    return Field({"anyOf": [ref(name), TEXT.schema]})


def _listed(item: Field) -> Field:
    return Field({"type": "array", "items": item.schema})


def _phase_faults(value: Any) -> Iterator[Fault]:
    yield from (TEXT if isinstance(value, str) else integer(0, nullable=False)).faults(value)


_COUNT = integer(1)
_MODE = word(MODES, case=False)
#: the index of a phase, or its name
_PHASE = Field({"anyOf": [integer(0, nullable=False).schema, TEXT.schema, {"type": "null"}]}, _phase_faults)
_SOURCE = {"agent_name": "agent", "experiment_id": "experiment_run"}
ENVIRONMENT = Section(
    "an environment",
    {
        "uid": TEXT,
        "name": CLASS_NAME,
        "params": PARAMS,
        "step_size": _COUNT.called("step_size (mosaik ticks)"),
        "interpreter": MAYBE_TEXT.called("interpreter (the path of another Python)"),
        "timeout": SECONDS.called("timeout (seconds that an answer of the interpreter may take)"),
    },
    required=("name",),
    spellings=SPELLINGS,
)


def _environment_schema() -> dict[str, Any]:
    whole = ENVIRONMENT.schema(ENVIRONMENT.required)
    return whole | {"properties": whole["properties"] | {"name": class_name_schema("environment")}}


def _number_list_faults(value: Any) -> Iterator[Fault]:
    if not isinstance(value, list) or not value:
        yield (), f"must be a list of at least one number, found {show(value)}"
        return
    for index, item in enumerate(value):
        for _, message in _NUMBER.faults(item):
            yield (index,), message


_NUMBER = integer(0, nullable=False)
FRAMES = Section(
    "frames",
    {
        "every": replace(_COUNT, default=1).called("every (a number of episodes)"),
        "episodes": Field(
            maybe({"type": "array", "items": _NUMBER.schema, "minItems": 1}), _number_list_faults, tuple
        ).called("episodes (their numbers)"),
        "step_every": replace(_COUNT, default=1).called("step_every (a number of steps)"),
    },
)


def _frames(findings: Findings, at: Located | None, what: str) -> FrameSpec | None:
    """Read which frames are stored: true, or a mapping; absent, null or false means none."""
    if at is None or at.value is None or at.value is False:
        return None
    if at.value is True:
        return FrameSpec()
    if not isinstance(at.value, dict):
        findings.error(at.place, f"{what} must be true, false or a mapping, found {show(at.value)}")
        return None
    parts = findings.section(at, FRAMES) or {}
    if "every" in parts and "episodes" in parts:
        findings.error(parts["episodes"].place, "frames takes 'every' or 'episodes', not both")
    return FrameSpec(**FRAMES.values(findings, parts, "frames' "))


ENVIRONMENT_ENTRY = Section(
    "an entry of environments",
    {
        "environment": Field({"anyOf": [class_name_schema("environment"), _environment_schema()]}),
        "reward": maybe_class("reward"),
        "state_transformer": maybe_class("state_transformer"),
        "frames": Field({"anyOf": [{"type": ["boolean", "null"]}, FRAMES.schema()]}, reader=_frames),
    },
    required=("environment",),
)
LOAD = Section(
    "load",
    {
        "agent": MAYBE_TEXT,
        "experiment_run": MAYBE_TEXT,
        "instance": MAYBE_TEXT,
        "phase": _PHASE.called("phase (an index, or a name)"),
        "phase_name": MAYBE_TEXT,
        "base": MAYBE_TEXT,
        "snapshot": MAYBE_TEXT,
    },
    spellings=_SOURCE,
    ignored=dict.fromkeys(
        ("mode", "strict", "repeat", "sensors", "actuators"),
        "it belongs to an entry of replay; palaestrAI passes over it here, too",
    ),
)
_CHANNELS = Field(maybe(IDS.schema["anyOf"][0] | {"minItems": 1}), reader=IDS.reader)
REPLAY = Section(
    "an entry of replay",
    {
        "agent": MAYBE_TEXT,
        "experiment_run": MAYBE_TEXT,
        "instance": MAYBE_TEXT,
        "phase": LOAD.keys["phase"],
        "phase_name": MAYBE_TEXT,
        "mode": replace(_MODE, schema=maybe(_MODE.schema)),
        "repeat": replace(_COUNT, default=1),
        "sensors": _CHANNELS,
        "actuators": _CHANNELS,
        "strict": FLAG,
    },
    spellings=_SOURCE,
)
SNAPSHOTS = Section("snapshots", {"every": _COUNT.called("every (a number of episodes)"), "best": FLAG})
AGENT = Section(
    "an agent",
    {
        "name": TEXT,
        "brain": maybe_class("brain"),
        "muscle": maybe_class("muscle"),
        "objective": maybe_class("objective"),
        "sensors": IDS,
        "actuators": IDS,
        "load": Field(maybe(LOAD.schema())),
        "filters": class_items("filter"),
        "replay": Field(maybe({"type": "array", "items": REPLAY.schema()})),
        "snapshots": Field(maybe(SNAPSHOTS.schema() | {"minProperties": 1})),
        "bodies": Field(maybe({"type": "array", "items": ref("body"), "minItems": 1})),
    },
    required=("name", "muscle"),
)
#: an agent with ``bodies``, which may have the other required keys
AGENT_WITH_BODIES = replace(AGENT, required=("name",))
#: ids that may contain ``{body}``, but no other braces
_BODY_IDS = Field(
    maybe(IDS.schema["anyOf"][0] | {"items": TEXT.schema | {"pattern": r"^(\{body\}|[^{}])*$"}})
)
BODY = Section(
    "an entry of bodies",
    {
        "name": MAYBE_TEXT.called("a body's name", pattern=r"^(?![+-]?\d+$)"),
        "count": replace(_COUNT, default=1).called("count (of alike bodies)", maximum=MAX_BODIES),
        "first": integer(0, default=0).called(
            "first (the number that '{body}' begins with)", maximum=MAX_BODIES
        ),
        "environment": MAYBE_TEXT.called("a body's environment"),
        "muscle": one_class("muscle"),
        "objective": maybe_class("objective"),
        "filters": class_items("filter"),
        "sensors": _BODY_IDS,
        "actuators": _BODY_IDS,
    },
)
SIMULATION = Section(
    "simulation",
    {
        "name": word(CONTROLLERS, "vanilla", shown=("vanilla", "taking_turns")).called(
            "the simulation controller"
        ),
        "conditions": replace(
            class_items("condition"), schema={"type": ["array", "null"], "items": ref("condition")}
        ),
        "bridge": word(BRIDGES, "agents").called("bridge", description="no effect any more", deprecated=True),
        "scheduler": word(SCHEDULERS, "direct"),
        "values": word(VALUES, "count"),
        "params": replace(PARAMS, schema=PARAMS.schema | {"maxProperties": 0}),
    },
    spellings=SPELLINGS,
)
PHASE_CONFIG = Section(
    "phase_config",
    {
        "mode": replace(_MODE, default="train"),
        "workers": replace(_COUNT, default=1),
        "episodes": _COUNT,
        "evaluate_every": integer(0).called("evaluate_every (episodes; 0: never)"),
        "sync_every": replace(_COUNT, default=DEFAULT_SYNC_EVERY).called("sync_every (steps)"),
        "asynchronous": FLAG,
        "random_streams": MAYBE_TEXT.called("random_streams (the name of another phase)"),
    },
    spellings={"worker": "workers"},
    ignored={
        "store_raw_actuators": "palaestrAI 3.5 reads it and does nothing with it, either; the set-points that "
        "reach the environment are recorded, those that filters have not changed yet are not"
    },
)
RUN_CONFIG = Section(
    "run_config",
    {
        "condition": one_class("condition"),
        "conditions": replace(class_items("condition"), schema={"type": "array", "items": ref("condition")}),
    },
)
PHASE = Section(
    "a phase",
    {
        "environments": _listed(_or_name("environment_entry")),
        "agents": _listed(_or_name("agent")),
        "simulation": _or_name("simulation"),
        "phase_config": _or_name("phase_config"),
        "inherit": FLAG,
    },
)
_PHASES = {
    "type": "object",
    "minProperties": 1,
    "additionalProperties": {"anyOf": [ref("phase"), {"type": "null"}]},
}
TOP = Section(
    "the document",
    {
        "uid": TEXT,
        "experiment_uid": MAYBE_TEXT,
        "seed": integer(nullable=False),
        "version": TEXT,
        "schedule": Field(
            {"anyOf": [{"type": "array", "minItems": 1, "items": _PHASES | {"maxProperties": 1}}, _PHASES]}
        ),
        "run_config": _or_name("run_config"),
        # a place for anchors: anything is allowed
        "definitions": Field({"type": ["object", "null"]}),
    },
    required=("uid", "seed", "schedule"),
)
#: keys that an entry takes from the agent if it leaves them out
COMMON = ("muscle", "objective", "sensors", "actuators", "filters")


def json_schema() -> Schema:
    """Build the JSON Schema (draft 2020-12) of run documents as plain data."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "palaestrai_mosaik experiment-run document",
        **TOP.schema(TOP.required),
        "$defs": {
            **{topic: class_schema(topic) for topic in TOPICS if topic != "environment"},
            "environment_entry": ENVIRONMENT_ENTRY.schema(ENVIRONMENT_ENTRY.required),
            "agent": AGENT.schema(("name",)),
            "body": BODY.schema(),
            "simulation": SIMULATION.schema(),
            "phase_config": PHASE_CONFIG.schema(),
            "run_config": RUN_CONFIG.schema()
            | {"oneOf": [{"required": ["condition"]}, {"required": ["conditions"]}]},
            "phase": PHASE.schema(),
        },
    }
