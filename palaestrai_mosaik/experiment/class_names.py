"""Names of classes in documents: short names (``grid``, ``ppo``), palaestrAI's names, and the modules they stand for.

A short name is the name of the class in snake case, without the word for its role (``DroopController`` is
``droop_controller``, ``CrossEntropyBrain`` the brain ``cross_entropy``). Learners of Stable-Baselines3 are called
by their algorithm, which is a parameter that the short name sets.

Documents are read with full names, so identity, store and resumption do not depend on how a class was written.
Other packages register short names as entry points; they cannot take one of these. Nothing is imported here
(:mod:`.classes` does).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from palaestrai_mosaik.core.importing import COMMANDS, CONNECTIONS, OURS, refusal

from .model import ClassSpec, Place

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


_MOSAIK = "palaestrai_mosaik.environment.mosaik_environment:MosaikEnvironment"
#: classes that have moved: the name in documents (and their hashes) -> the current name
MOVED: Mapping[str, str] = {
    _MOSAIK: "palaestrai_mosaik.interop.palaestrai.mosaik_environment:MosaikEnvironment",
}


#: packages with contracts of their own -> the function that returns the adapter of a class and its topic
ADAPTERS: Mapping[str, str] = {"palaestrai": "palaestrai_mosaik.interop.palaestrai:adapted"}


#: palaestrAI's modules with a class that this package brings, too
_COUNTERPARTS = {
    "palaestrai.environment.dummy_environment": f"{_ENVIRONMENT}.dummy:DummyEnvironment",
    "palaestrai.agent.dummy_brain": f"{_LIBRARY}.dummy:DummyBrain",
    "palaestrai.agent.dummy_muscle": f"{_LIBRARY}.dummy:DummyMuscle",
    "palaestrai.agent.dummy_objective": f"{_LIBRARY}.dummy:DummyObjective",
    "palaestrai.agent.aggregate_rewards_objective": f"{_LIBRARY}.aggregate:AggregateRewardsObjective",
    "palaestrai.agent.filters.absolute_deviation_filter": f"{_FILTERS}:AbsoluteDeviationFilter",
    "palaestrai.agent.filters.action_time_shift_filter": f"{_FILTERS}:ActionTimeShiftFilter",
    "palaestrai.agent.filters.delta_action_filter": f"{_FILTERS}:DeltaActionFilter",
    "palaestrai.agent.filters.delta_obs_filter": f"{_FILTERS}:DeltaObsFilter",
    "palaestrai.agent.filters.delta_step_filter": f"{_FILTERS}:DeltaStepFilter",
    "palaestrai.agent.filters.merge_steps_filter": f"{_FILTERS}:MergeStepsFilter",
    "palaestrai.agent.filters.normalization_filter": f"{_FILTERS}:NormFilter",
    "palaestrai.agent.filters.quadratic_penalty_filter": f"{_FILTERS}:QuadraticPenaltyFilter",
    "palaestrai.experiment.agent_evaluation_objective_termination_condition": SHORT_NAMES["condition"][
        "agent_evaluation_objective"
    ].name,
    # palaestrAI's documents name these conditions below both packages
    **{
        f"palaestrai.{package}.{module}_termination_condition": SHORT_NAMES["condition"][short].name
        for package in ("experiment", "simulation")
        for module, short in (
            ("agent_objective", "agent_objective"),
            ("environment", "environment"),
            ("max_episodes", "max_episodes"),
            ("vanilla_rungovernor", "vanilla_run_governor"),
            ("vanilla_simcontroller", "vanilla_sim_controller"),
        )
    },
}


def _palaestrai_names() -> dict[str, str]:
    table: dict[str, str] = {}
    for module, target in _COUNTERPARTS.items():
        name = target.rpartition(":")[2]
        parent = module.rpartition(".")[0]
        table[f"{module}:{name}"] = table[f"{parent}:{name}"] = target
        if parent == "palaestrai.agent.filters":
            table[f"palaestrai.agent:{name}"] = target
    # classes of the other package of this name, which connects mosaik to palaestrAI
    for module in ("mosaik_environment", "mp", "mp.mosaik_environment"):
        table[f"palaestrai_mosaik.{module}:MosaikEnvironment"] = _MOSAIK
    table["palaestrai_mosaik:MosaikEnvironment"] = table[MOVED[_MOSAIK]] = _MOSAIK
    for short in ("Norm", "DeltaStep", "MergeSteps", "DeltaObs"):
        table[f"palaestrai.agent.filters:{short}"] = f"{_FILTERS}:{short}Filter"
    return table


#: palaestrAI's names and our classes for them
PALAESTRAI_NAMES: Mapping[str, str] = _palaestrai_names()
#: The roles of classes; each has the entry-point group ``palaestrai_mosaik.<topic>``.
TOPICS = (
    "environment",
    "reward",
    "state_transformer",
    "brain",
    "muscle",
    "objective",
    "filter",
    "condition",
)
_IDENTIFIER = r"[^\W\d]\w*"
_FULL_NAME = re.compile(rf"{_IDENTIFIER}(\.{_IDENTIFIER})*:{_IDENTIFIER}")
_SHORT_NAME = re.compile(r"[\w-]+")


def name_fault(name: str) -> str | None:
    """Explain what is wrong with the form of a class name; ``None`` if it is correct."""
    if _FULL_NAME.fullmatch(name) or _SHORT_NAME.fullmatch(name):
        return None
    module, _, last = name.rpartition(".")
    corrected = f"{module}:{last}"
    hint = f" (did you mean {corrected!r}?)" if _FULL_NAME.fullmatch(corrected) else ""
    return f"{name!r} is not a class name of the form 'package.module:Class'{hint}"


def canonical_name(name: str) -> str:
    """Return the canonical name of a class: palaestrAI's names become ours."""
    return PALAESTRAI_NAMES.get(name, name)


def entry_points_of(topic: str) -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=f"palaestrai_mosaik.{topic}")}


def named_modules(name: str) -> list[str]:
    """List the modules that the class name ``name`` may refer to, without importing any.

    There are several if a short name is registered for several topics, and none if it is not registered.
    """
    if name_fault(name) is not None:
        return []
    if ":" in name:
        return [canonical_name(name).partition(":")[0]]
    shipped = [full_name(name, topic).partition(":")[0] for topic in TOPICS if name in SHORT_NAMES[topic]]
    entries = (entry_points_of(topic).get(name) for topic in TOPICS)
    return list(dict.fromkeys([*shipped, *(entry.module for entry in entries if entry is not None)]))


#: a module, or ``cmd:`` or ``connect:``; the place below the class that names it; whether ours are always allowed
Naming = tuple[str, Place, bool]


def naming(name: str, params: Mapping[str, Any]) -> Iterator[Naming]:
    """Yield the modules that a class and its ``params`` name, with places relative to the class's.

    Params of a wrong form are skipped: the class reports them.
    """
    for module in named_modules(name):
        yield module, ("name",), True
        inside = _INSIDE.get(name.rpartition(":")[2]) if module.partition(".")[0] == OURS else None
        if inside is not None:
            for module_name, path, ours in inside(params):
                yield module_name, ("params", *path), ours


def _in_copies(params: Mapping[str, Any]) -> Iterator[Naming]:
    inner_params = params.get("params")
    if isinstance(params.get("name"), str):
        yield from naming(params["name"], inner_params if isinstance(inner_params, Mapping) else {})


def _in_gymnasium(params: Mapping[str, Any]) -> Iterator[Naming]:
    module, colon, name = str(params.get("id")).rpartition(":")
    if colon:
        # a function is called with keywords of the document, so this package's are not exempt
        yield module, ("id",), not name.isidentifier()


def _in_described(params: Mapping[str, Any]) -> Iterator[Naming]:
    yield from _module_of(params.get("build"), ("build",))
    simulators = params.get("simulators")
    for uid, simulator in simulators.items() if isinstance(simulators, Mapping) else ():
        if isinstance(simulator, Mapping):
            path = ("simulators", uid)
            yield from _module_of(simulator.get("python"), (*path, "python"))
            for key, word in (("cmd", COMMANDS), ("connect", CONNECTIONS)):
                if simulator.get(key):
                    yield word, (*path, key), False


def _in_mosaik(params: Mapping[str, Any]) -> Iterator[Naming]:
    module = params.get("module")
    if isinstance(module, str):
        yield module.partition(":")[0], ("module",), False
    yield from _module_of(params.get("terminal_condition"), ("terminal_condition",))


def _module_of(name: Any, path: Place) -> Iterator[Naming]:
    if isinstance(name, str) and ":" in name:
        yield name.partition(":")[0], path, False


#: classes of this package with further modules in their ``params``
_INSIDE: Mapping[str, Callable[[Mapping[str, Any]], Iterator[Naming]]] = {
    "Copies": _in_copies,
    "DescribedCoSimulation": _in_described,
    "GymnasiumEnvironment": _in_gymnasium,
    "MosaikEnvironment": _in_mosaik,
    "PettingZooEnvironment": lambda params: _module_of(params.get("id"), ("id",)),
}


def refusals(name: str, params: Mapping[str, Any]) -> Iterator[tuple[str, Place]]:
    """Yield the forbidden modules that a class and its ``params`` name, with places relative to the class's.

    Nothing is imported. See :func:`~palaestrai_mosaik.core.importing.only_modules`.
    """
    for module, path, ours in naming(name, params):
        fault = refusal(module, ours=ours)
        if fault is not None:
            yield fault, path


def interpreter_refusal(fault: str) -> str:
    """Build the message for a forbidden interpreter, because of ``fault``."""
    return f"an interpreter is a program that is executed, and {fault}"
