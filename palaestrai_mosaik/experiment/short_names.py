"""Short names of this package's classes: ``grid``, ``ppo``, ``environment`` (a condition).

A short name is the name of the class in snake case, without the word for its role (``DroopController`` is
``droop_controller``, ``CrossEntropyBrain`` the brain ``cross_entropy``). Learners of Stable-Baselines3 are called
by their algorithm, which is a parameter that the short name sets.

Documents are read with full names, so identity, store and resumption do not depend on how a class was written.
Other packages register short names as entry points (:mod:`.classes`); they cannot take one of these.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .model import ClassSpec

_LIBRARY = "palaestrai_mosaik.agent.library"
_SB3 = f"{_LIBRARY}.sb3"
_FILTERS = "palaestrai_mosaik.agent.filters"
_CONDITIONS = "palaestrai_mosaik.simulation.conditions"
_ENVIRONMENT = "palaestrai_mosaik.environment"
#: algorithms of Stable-Baselines3
ALGORITHMS = ("A2C", "DDPG", "DQN", "PPO", "SAC", "TD3")


def _specs(**names: str) -> dict[str, ClassSpec]:
    return {short: ClassSpec(name) for short, name in names.items()}


#: topic (:data:`~.classes.TOPICS`) -> short name -> the class, and the parameters that the name sets
SHORT_NAMES: Mapping[str, Mapping[str, ClassSpec]] = {
    "environment": _specs(
        batch_grid=f"{_ENVIRONMENT}.grid:BatchGridEnvironment",
        boolean_reasoning=f"{_ENVIRONMENT}.reasoning:BooleanReasoning",
        building=f"{_ENVIRONMENT}.building:Building",
        cartpole=f"{_ENVIRONMENT}.cartpole:BatchCartPole",
        copies=f"{_ENVIRONMENT}.copies:Copies",
        cosimulation=f"{_ENVIRONMENT}.described:DescribedCoSimulation",
        dummy=f"{_ENVIRONMENT}.dummy:DummyEnvironment",
        function=f"{_ENVIRONMENT}.functions:FunctionEnvironment",
        grid=f"{_ENVIRONMENT}.grid.environment:GridEnvironment",
        gymnasium=f"{_ENVIRONMENT}.gymnasium:GymnasiumEnvironment",
        matrix_game=f"{_ENVIRONMENT}.matrix_game:MatrixGame",
        mosaik=f"{_ENVIRONMENT}.mosaik_environment:MosaikEnvironment",
        pendulum=f"{_ENVIRONMENT}.pendulum:BatchPendulum",
        pettingzoo=f"{_ENVIRONMENT}.pettingzoo:PettingZooEnvironment",
        session_batch=f"{_ENVIRONMENT}.replay:SessionBatchEnvironment",
        session_pool=f"{_ENVIRONMENT}.replay:SessionPoolEnvironment",
        slippery_grid=f"{_ENVIRONMENT}.tabular:SlipperyGrid",
        tabular_mdp=f"{_ENVIRONMENT}.tabular:TabularMDP",
    ),
    "reward": _specs(grid=f"{_ENVIRONMENT}.grid.rewards:GridReward"),
    "state_transformer": {},
    "brain": {
        **_specs(
            cross_entropy=f"{_LIBRARY}.cross_entropy:CrossEntropyBrain",
            dummy=f"{_LIBRARY}.dummy:DummyBrain",
            evolution_strategy=f"{_LIBRARY}.evolution_strategy:EvolutionStrategyBrain",
            sb3=f"{_SB3}:SB3Brain",
        ),
        **{name.lower(): ClassSpec(f"{_SB3}:SB3Brain", {"algorithm": name}) for name in ALGORITHMS},
    },
    "muscle": {
        **_specs(
            constant=f"{_LIBRARY}.constant:ConstantMuscle",
            cross_entropy=f"{_LIBRARY}.cross_entropy:CrossEntropyMuscle",
            droop_controller=f"{_LIBRARY}.voltage_control:DroopController",
            dummy=f"{_LIBRARY}.dummy:DummyMuscle",
            greedy_voltage_attacker=f"{_LIBRARY}.voltage_attack:GreedyVoltageAttacker",
            idle=f"{_LIBRARY}.idle:IdleMuscle",
            integrating_voltage_controller=f"{_LIBRARY}.voltage_control:IntegratingVoltageController",
            oscillating_voltage_attacker=f"{_LIBRARY}.voltage_attack:OscillatingVoltageAttacker",
            random=f"{_LIBRARY}.random_agent:RandomMuscle",
            scripted=f"{_LIBRARY}.scripted:ScriptedMuscle",
            search=f"{_LIBRARY}.search:SearchMuscle",
            sb3=f"{_SB3}:SB3Muscle",
            thermostat=f"{_LIBRARY}.thermostat:ThermostatMuscle",
        ),
        **{name.lower(): ClassSpec(f"{_SB3}:SB3Muscle") for name in ALGORITHMS},
    },
    "objective": _specs(
        aggregate_rewards=f"{_LIBRARY}.aggregate:AggregateRewardsObjective",
        dummy=f"{_LIBRARY}.dummy:DummyObjective",
    ),
    "filter": _specs(
        absolute_deviation=f"{_FILTERS}:AbsoluteDeviationFilter",
        action_change_penalty=f"{_FILTERS}:ActionChangePenaltyFilter",
        action_time_shift=f"{_FILTERS}:ActionTimeShiftFilter",
        delay=f"{_FILTERS}:DelayFilter",
        delta_action=f"{_FILTERS}:DeltaActionFilter",
        delta_obs=f"{_FILTERS}:DeltaObsFilter",
        delta_step=f"{_FILTERS}:DeltaStepFilter",
        merge_steps=f"{_FILTERS}:MergeStepsFilter",
        norm=f"{_FILTERS}:NormFilter",
        quadratic_penalty=f"{_FILTERS}:QuadraticPenaltyFilter",
        scale=f"{_FILTERS}:ScaleFilter",
    ),
    "condition": _specs(
        agent_evaluation_objective="palaestrai_mosaik.simulation.evaluation:AgentEvaluationObjectiveTerminationCondition",
        agent_objective=f"{_CONDITIONS}:AgentObjectiveTerminationCondition",
        environment=f"{_CONDITIONS}:EnvironmentTerminationCondition",
        max_episodes=f"{_CONDITIONS}:MaxEpisodesTerminationCondition",
        vanilla_run_governor=f"{_CONDITIONS}:VanillaRunGovernorTerminationCondition",
        vanilla_sim_controller=f"{_CONDITIONS}:VanillaSimControllerTerminationCondition",
    ),
}

#: defaults of documents that do not define how episodes and phases end
EPISODE_CONDITION = SHORT_NAMES["condition"]["environment"]
RUN_CONDITION = SHORT_NAMES["condition"]["vanilla_run_governor"]

_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def full_name(name: str, topic: str) -> str:
    """Return the full name of the class with the short name ``name``; ``name`` itself if it is not one of ours."""
    spec = SHORT_NAMES[topic].get(name)
    return name if spec is None else spec.name


def preset(name: str, topic: str) -> Mapping[str, object]:
    """Return the parameters that a short name sets."""
    spec = SHORT_NAMES[topic].get(name)
    return {} if spec is None else spec.params


def default_uid(name: str) -> str:
    """Derive the uid of an environment without one: its short name, or its class in snake case (``bandit``)."""
    last = name.rpartition(":")[2]
    return _WORD.sub("_", last.removesuffix("Environment") or last).lower()


def uid_of(environment: object) -> str | None:
    """Return the uid of an environment as written (a name or a mapping); ``None`` if it has none."""
    if isinstance(environment, str):
        return default_uid(environment)
    if not isinstance(environment, dict):
        return None
    uid, name = environment.get("uid"), environment.get("name")
    if uid is not None:
        return str(uid)
    return default_uid(name) if isinstance(name, str) else None


#: keys with classes, of entries of ``environments``, agents, bodies, ``simulation`` and ``run_config``
_ONE_CLASS = ("environment", "reward", "state_transformer", "brain", "muscle", "objective", "condition")
_CLASSES = ("filters", "conditions")


def with_mappings(document: Mapping[str, Any]) -> dict[str, Any]:
    """Expand every class of a run document to a mapping with name and params, so that paths can enter it.

    The first phase gets its ``simulation`` written out. Faulty parts stay unchanged.
    """
    whole = dict(document)
    defined = document.get("definitions")
    if isinstance(defined, dict):
        whole["definitions"] = {topic: _each(part, _entry) for topic, part in defined.items()}
    names = {topic: set(part) for topic, part in (defined or {}).items() if isinstance(part, dict)}
    schedule = document.get("schedule")
    if isinstance(schedule, list):
        whole["schedule"] = [_each(phase, lambda item: _phase(item, names)) for phase in schedule]
    elif isinstance(schedule, dict):
        whole["schedule"] = _each(schedule, lambda item: _phase(item, names))
    first = next(_bodies(whole.get("schedule")), None)
    if first is not None and "simulation" not in names:
        simulation = first.get("simulation")
        if simulation is None:
            first["simulation"] = {"name": "vanilla", "conditions": [_class("environment")]}
        elif isinstance(simulation, dict):
            first["simulation"] = {"name": "vanilla", **simulation}
    if "run_config" in document:
        whole["run_config"] = _entry(document["run_config"])
    return whole


def _bodies(schedule: Any) -> Iterator[dict[str, Any]]:
    """Yield the phases of a schedule that are mappings."""
    for phases in schedule if isinstance(schedule, list) else [schedule]:
        for phase in phases.values() if isinstance(phases, dict) else ():
            if isinstance(phase, dict):
                yield phase


def _each(value: Any, change: Callable[[Any], Any]) -> Any:
    return {key: change(item) for key, item in value.items()} if isinstance(value, dict) else value


def _phase(phase: Any, names: Mapping[str, set[Any]]) -> Any:
    if not isinstance(phase, dict):
        return phase
    whole = dict(phase)
    for topic in ("environments", "agents"):
        if isinstance(phase.get(topic), list):
            whole[topic] = [_entry(entry) for entry in phase[topic]]
    if isinstance(phase.get("environments"), list):
        defined = names.get("environments", set())
        whole["environments"] = [
            {"environment": _class(entry)} if isinstance(entry, str) and entry not in defined else entry
            for entry in whole["environments"]
        ]
    simulation = phase.get("simulation")
    if isinstance(simulation, str) and simulation not in names.get("simulation", set()):
        whole["simulation"] = {"name": simulation}
    elif simulation is not None:
        whole["simulation"] = _entry(simulation)
    return whole


def _entry(entry: Any) -> Any:
    if not isinstance(entry, dict):
        return entry
    whole = dict(entry)
    for key in _ONE_CLASS:
        if isinstance(entry.get(key), str):
            whole[key] = _class(entry[key])
    for key in _CLASSES:
        if isinstance(entry.get(key), list):
            whole[key] = [_class(item) if isinstance(item, str) else item for item in entry[key]]
    if isinstance(entry.get("bodies"), list):
        # the environment of a body is a uid
        bodies = [(item, _entry(item)) for item in entry["bodies"]]
        whole["bodies"] = [
            {**new, "environment": old["environment"]}
            if isinstance(old, dict) and "environment" in old
            else new
            for old, new in bodies
        ]
    return whole


def _class(name: str) -> dict[str, Any]:
    return {"name": name, "params": {}}
