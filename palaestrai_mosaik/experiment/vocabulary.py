"""The keys of a run document and their spellings: one table for checks, schema and hash."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from .model import Bridge, Controller, Scheduler


@dataclass(frozen=True)
class Section:
    """A mapping of the document.

    ``keys``: what it may hold; ``required``: what must be there (after the cascade);
    ``spellings``: other words for a key; ``ignored``: keys of palaestrAI that load, but
    have no effect here, with what there is to say about them.
    """

    title: str
    keys: tuple[str, ...]
    required: tuple[str, ...] = ()
    spellings: Mapping[str, str] = field(default_factory=dict)
    ignored: Mapping[str, str] = field(default_factory=dict)

    @property
    def words(self) -> tuple[str, ...]:
        """Every word that may stand in the document."""
        return (*self.keys, *self.spellings, *self.ignored)


_PARAMS = {"parameters": "params"}

TOP = Section(
    "the document",
    ("uid", "experiment_uid", "seed", "version", "schedule", "run_config", "definitions"),
    required=("uid", "seed", "version", "schedule"),
)
PHASE = Section("a phase", ("environments", "agents", "simulation", "phase_config", "inherit"))
ENVIRONMENT_ENTRY = Section(
    "an entry of environments", ("environment", "reward", "state_transformer"), required=("environment",)
)
ENVIRONMENT = Section(
    "an environment", ("uid", "name", "params", "step_size"), required=("uid", "name"), spellings=_PARAMS
)
AGENT = Section(
    "an agent",
    (
        "name",
        "brain",
        "muscle",
        "objective",
        "sensors",
        "actuators",
        "load",
        "filters",
        "replay",
        "snapshots",
        "bodies",
    ),
    required=("name", "muscle", "sensors", "actuators"),
)
#: an agent with ``bodies``, each of which may give the rest
AGENT_WITH_BODIES = replace(AGENT, required=("name",))
BODY = Section(
    "an entry of bodies",
    (
        "name",
        "count",
        "first",
        "environment",
        "muscle",
        "objective",
        "filters",
        "sensors",
        "actuators",
    ),
)
SIMULATION = Section(
    "simulation",
    ("name", "conditions", "bridge", "scheduler", "params"),
    required=("name",),
    spellings=_PARAMS,
)
PHASE_CONFIG = Section(
    "phase_config",
    ("mode", "workers", "episodes", "evaluate_every", "sync_every", "asynchronous"),
    spellings={"worker": "workers"},
    ignored={
        "store_raw_actuators": "palaestrAI 3.5 reads it and does nothing with it, either; the set-points that "
        "reach the environment are recorded, those that filters have not changed yet are not"
    },
)
RUN_CONFIG = Section("run_config", ("condition", "conditions"))
CLASS = Section(
    "a class",
    ("name", "params"),
    required=("name",),
    spellings=_PARAMS,
    ignored={"uid": "palaestrAI passes over it, too; an environment's stands beside its name"},
)
_SOURCE = {"agent_name": "agent", "experiment_id": "experiment_run"}
LOAD = Section(
    "load",
    ("agent", "experiment_run", "instance", "phase", "phase_name", "base", "snapshot"),
    spellings=_SOURCE,
    ignored=dict.fromkeys(
        ("mode", "strict", "repeat", "sensors", "actuators"),
        "it belongs to an entry of replay; palaestrAI passes over it here, too",
    ),
)
REPLAY = Section(
    "an entry of replay",
    (
        "agent",
        "experiment_run",
        "instance",
        "phase",
        "phase_name",
        "mode",
        "repeat",
        "sensors",
        "actuators",
        "strict",
    ),
    spellings=_SOURCE,
)
SNAPSHOTS = Section("snapshots", ("every", "best"))

MODES: Mapping[str, str] = {"train": "train", "training": "train", "test": "test", "testing": "test"}
BRIDGES: tuple[Bridge, ...] = ("agents", "per_agent")
SCHEDULERS: tuple[Scheduler, ...] = ("direct", "mosaik")

_VANILLA = ("Vanilla", "VanillaSimController", "VanillaSimulationController")
_TAKING_TURNS = ("TakingTurns", "TakingTurnsSimController", "TakingTurnsSimulationController")


def _controllers() -> dict[str, Controller]:
    table: dict[str, Controller] = {"vanilla": "vanilla", "taking_turns": "taking_turns"}
    kinds: tuple[tuple[Controller, tuple[str, ...], str], ...] = (
        ("vanilla", _VANILLA, "vanilla_sim_controller"),
        ("taking_turns", _TAKING_TURNS, "taking_turns_simulation_controller"),
    )
    for controller, classes, module in kinds:
        for name in classes:
            table[f"palaestrai.simulation:{name}"] = controller
            table[f"palaestrai.simulation.{module}:{name}"] = controller
            table[f"palaestrai_mosaik.simulation:{name}"] = controller
    return table


#: Every accepted name of a simulation controller.
CONTROLLERS: Mapping[str, Controller] = _controllers()

#: Conditions whose params name agents (their one name, see ``names.canonical_name``): the one
#: with thresholds by agent, and the one with rules by agent below ``agents``.
AGENT_KEYED_CONDITION = "palaestrai_mosaik.simulation.conditions:AgentObjectiveTerminationCondition"
EVALUATION_CONDITION = "palaestrai_mosaik.simulation.evaluation:AgentEvaluationObjectiveTerminationCondition"
