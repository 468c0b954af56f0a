"""Documents that say only what differs: defaults, short names of classes, and names in the place of mappings."""

from __future__ import annotations

import importlib
import inspect
import json
import pathlib
import pkgutil
import re
from typing import Any

import pytest
import yaml

import palaestrai_mosaik
import palaestrai_mosaik as pm
from palaestrai_mosaik.arsenai.design.design import Design
from palaestrai_mosaik.core.errors import DocumentError
from palaestrai_mosaik.experiment import RunDocument, from_mapping, json_schema, loads, only_modules
from palaestrai_mosaik.experiment.class_names import SHORT_NAMES, default_uid
from palaestrai_mosaik.experiment.classes import modules_of, resolve
from palaestrai_mosaik.experiment.paths import Path
from palaestrai_mosaik.runner.factory import BASES
from palaestrai_mosaik.runner.preflight import inspect as problems_of_run

LONG = """
uid: study
seed: 4
version: "3.5"
schedule:
  - train:
      environments:
        - environment:
            uid: slippery_grid
            name: palaestrai_mosaik.environment.tabular:SlipperyGrid
            params: {}
      agents:
        - name: walker
          muscle: {name: "palaestrai_mosaik.agent.library.random_agent:RandomMuscle", params: {}}
          objective: {name: "palaestrai_mosaik.agent.library.dummy:DummyObjective", params: {}}
          filters: [{name: "palaestrai_mosaik.agent.filters:NormFilter", params: {}}]
          sensors: ["slippery_grid.*"]
          actuators: ["slippery_grid.*"]
      simulation:
        name: palaestrai_mosaik.simulation:Vanilla
        conditions:
          - {name: "palaestrai_mosaik.simulation.conditions:EnvironmentTerminationCondition", params: {}}
      phase_config: {mode: train, workers: 1, episodes: 3}
  - test:
      simulation: {name: "palaestrai_mosaik.simulation:TakingTurns"}
      phase_config: {mode: test, workers: 1, episodes: 1}
run_config:
  condition:
    name: palaestrai_mosaik.simulation.conditions:VanillaRunGovernorTerminationCondition
    params: {}
"""
SHORT = """
uid: study
seed: 4
schedule:
  train:
    environments: [slippery_grid]
    agents: [{name: walker, muscle: random, objective: dummy, filters: [norm]}]
    phase_config: {episodes: 3}
  test:
    simulation: taking_turns
    phase_config: {mode: test, episodes: 1}
"""

#: bases of users' classes, and what is no part of a document by itself
NO_SHORT_NAME = {
    "Filter", "TerminationCondition", "InverterMuscle", "ExternalMuscle", "ExternalBatchMuscle", "Scenario",
    "RemoteEnvironment",  # the key `interpreter` of an environment
}  # fmt: skip
#: classes with a short name that the rule does not give
OTHERWISE = {
    "BatchCartPole": "cartpole", "BatchPendulum": "pendulum", "DescribedCoSimulation": "cosimulation",
    "PettingZooEnvironment": "pettingzoo", "SB3Brain": "sb3", "SB3Muscle": "sb3",
}  # fmt: skip
_SUFFIXES = ("Environment", "Reward", "Brain", "Muscle", "Objective", "Filter", "TerminationCondition")


def minimal(**phase: Any) -> dict[str, Any]:
    base = {
        "environments": ["dummy"],
        "agents": [{"name": "a", "muscle": "dummy"}],
        "phase_config": {"episodes": 1},
    }
    return {"uid": "m", "seed": 1, "schedule": {"only": {**base, **phase}}}


def messages(data: dict[str, Any]) -> list[str]:
    with pytest.raises(DocumentError) as error:
        from_mapping(data)
    return [problem.message for problem in error.value.problems]


def test_the_short_form_is_the_same_document() -> None:
    long, short = loads(LONG), loads(SHORT)
    assert short.canonical == long.canonical
    assert short.hash == long.hash
    # identity is that of the full names: what is read back is the same again
    assert from_mapping(short.canonical).hash == long.hash


def test_the_short_form_computes_the_same(tmp_path: pathlib.Path) -> None:
    runs = [pm.run(loads(text), store=tmp_path / name) for name, text in (("long", LONG), ("short", SHORT))]
    digests = [run.store.streams(run.instance)["digest"].tolist() for run in runs]
    assert digests[0] and digests[0] == digests[1]


def shipped() -> dict[str, set[type]]:
    """Return the classes of this package that documents may name, by topic."""
    found: dict[str, set[type]] = {topic: set() for topic in BASES}
    for module in pkgutil.walk_packages(palaestrai_mosaik.__path__, "palaestrai_mosaik."):
        if "__main__" in module.name or ".simulators" in module.name:
            continue
        try:
            members = vars(importlib.import_module(module.name))
        except ImportError:
            continue  # of an extra, or of palaestrAI
        for name, one in members.items():
            own = inspect.isclass(one) and one.__module__ == module.name and not name.startswith("_")
            for topic in [t for t, base in BASES.items() if own and issubclass(one, base)]:
                if not inspect.isabstract(one) and name not in NO_SHORT_NAME:
                    found[topic].add(one)
    return found


def test_everything_that_ships_has_a_short_name() -> None:
    for topic, classes in shipped().items():
        known = {spec.name.rpartition(":")[2] for spec in SHORT_NAMES[topic].values()}
        assert {one.__name__ for one in classes} <= known, topic


@pytest.mark.parametrize(("topic", "short"), [(t, s) for t, names in SHORT_NAMES.items() for s in names])
def test_a_short_name_says_which_class_it_is(topic: str, short: str) -> None:
    name = SHORT_NAMES[topic][short].name.rpartition(":")[2]
    if not SHORT_NAMES[topic][short].params and not name.startswith("SB3"):
        stem = next((name.removesuffix(end) for end in _SUFFIXES if name.endswith(end)), name)
        snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", stem.replace("MDP", "Mdp")).lower()
        assert short == OTHERWISE.get(name, snake)
    try:
        found = resolve(short, topic)
    except Exception as error:
        if "needs" in str(error) or "pip install" in str(error):
            pytest.skip(f"an extra is missing: {error}")
        raise
    assert issubclass(found, BASES[topic])


def test_paths_of_a_design_lead_into_classes_that_are_names() -> None:
    base = minimal(agents=[{"name": "a", "muscle": "dummy", "filters": ["norm"], "actuators": ["dummy.*"]}])
    del base["uid"], base["seed"]
    base["run_config"] = {"condition": "vanilla_run_governor"}
    paths = {
        "muscle": ("schedule.only.agents.a.muscle.name", ["dummy", "random"]),
        "length": ("schedule.only.environments.dummy.environment.params.max_iter", [2, 3]),
        "epsilon": ("schedule.only.agents.a.filters.norm.params.epsilon", [0.1, 0.2]),
    }
    factors = {
        name: {"path": path, "levels": levels, "create": True} for name, (path, levels) in paths.items()
    }
    design = Design.from_mapping(
        {"uid": "d", "seed": 1, "base": base, "factors": factors, "sampler": "factorial"}
    )
    assert design.plan().documents == 8


def test_an_algorithm_is_a_parameter_that_its_name_brings_along() -> None:
    agent = {"name": "a", "brain": {"name": "ppo", "params": {"n_steps": 8}}, "muscle": "ppo"}
    spec = from_mapping(minimal(agents=[agent])).phases[0].agents[0]
    assert spec.brain is not None
    assert spec.brain.name == "palaestrai_mosaik.agent.library.sb3:SB3Brain"
    assert spec.brain.params == {"algorithm": "PPO", "n_steps": 8}
    agent["brain"]["params"]["algorithm"] = "SAC"
    assert messages(minimal(agents=[agent])) == ["'algorithm' is given by the name 'ppo'; leave it out here"]


@pytest.mark.parametrize(
    ("phase", "said"),
    [
        (
            {"environments": ["slipery_grid"]},
            "and is no short name of an environment (did you mean 'slippery_grid'?)",
        ),
        ({"simulation": "taking_turn"}, "and is no simulation controller (did you mean 'taking_turns'?)"),
        (
            {"agents": [{"name": "a", "muscle": 3}]},
            "muscle must be a name, or a mapping with name and params",
        ),
        (
            {"environments": [{"environment": {"name": 3}}]},
            "name must be a non-empty string, found the number 3",
        ),
    ],
)
def test_what_is_no_name_is_refused(phase: dict[str, Any], said: str) -> None:
    assert any(said in message for message in messages(minimal(**phase)))


def test_a_misspelt_short_name_is_reported_with_the_nearest_one() -> None:
    document = from_mapping(minimal(agents=[{"name": "a", "muscle": "randm"}]))
    (problem,) = problems_of_run(document)
    assert "'randm' is no short name of a class for 'muscle' (did you mean 'random'?)" in problem.message


def test_names_of_environments_and_controllers_are_looked_up_in_the_definitions_first() -> None:
    data = minimal(environments=["grid"], simulation="vanilla")
    data["definitions"] = {
        "environments": {"grid": {"environment": {"uid": "mine", "name": "dummy"}}},
        "simulation": {"vanilla": {"name": "taking_turns"}},
    }
    (phase,) = from_mapping(data).phases
    assert phase.environments[0].uid == "mine"
    assert phase.simulation.controller == "taking_turns"


@pytest.mark.parametrize(
    ("name", "uid"),
    [
        ("bandit:Bandit", "bandit"),
        ("my.grids:RuralGridEnvironment", "rural_grid"),
        ("my.grids:MVGrid", "mv_grid"),
        ("a:Environment", "environment"),
        ("grid", "grid"),
    ],
)
def test_an_environment_is_called_by_its_class(name: str, uid: str) -> None:
    assert default_uid(name) == uid
    (phase,) = from_mapping(minimal(environments=[{"environment": name}])).phases
    assert phase.environments[0].uid == uid
    assert Path.parse(f"environments.{uid}").find({"environments": [{"environment": name}]}).fault is None


def two_phases(**second: Any) -> RunDocument:
    data = minimal()
    data["schedule"]["second"] = second
    return from_mapping(data)


def test_an_agent_that_names_no_channels_has_those_of_every_environment_of_the_phase() -> None:
    document = two_phases(environments=[{"environment": {"uid": "other", "name": "dummy"}}])
    assert [phase.agents[0].sensors for phase in document.phases] == [("dummy.*",), ("dummy.*", "other.*")]
    # an empty list is none of them
    document = from_mapping(minimal(agents=[{"name": "a", "muscle": "dummy", "sensors": []}]))
    agent = document.phases[0].agents[0]
    assert (agent.sensors, agent.actuators) == ((), ("dummy.*",))
    assert problems_of_run(document) == []


def test_only_one_agent_can_have_all_actuators_without_saying_so() -> None:
    agents: list[dict[str, Any]] = [{"name": name, "muscle": "dummy"} for name in ("a", "b")]
    (message,) = messages(minimal(agents=agents))
    assert (
        message
        == "the agents 'a', 'b' name no actuators, and each would have all: say which ones each of them has"
    )
    agents[1]["actuators"] = ["dummy.*"]
    assert problems_of_run(from_mapping(minimal(agents=agents))) == []


def test_conditions_are_those_that_end_with_the_environment_and_the_episodes_unless_others_are_given() -> (
    None
):
    document = from_mapping(minimal(simulation={"scheduler": "mosaik"}))
    assert [one.name.rpartition(":")[2] for one in document.phases[0].simulation.conditions] == [
        "EnvironmentTerminationCondition"
    ]
    assert document.phases[0].simulation.scheduler == "mosaik"
    assert [one.name.rpartition(":")[2] for one in document.conditions] == [
        "VanillaRunGovernorTerminationCondition"
    ]
    assert from_mapping(minimal(simulation={"conditions": []})).phases[0].simulation.conditions == ()


def test_short_names_are_of_this_package_where_modules_are_limited() -> None:
    with only_modules(()):
        document = loads(SHORT)
    assert modules_of(document) == set()
    with only_modules(()), pytest.raises(DocumentError, match="the module 'mine' is not allowed"):
        from_mapping(minimal(environments=["mine:World"]))


def test_editors_know_both_forms() -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed (extra 'test')")
    validator = jsonschema.Draft202012Validator(json_schema())
    for text in (LONG, SHORT):
        validator.validate(json.loads(json.dumps(yaml.safe_load(text))))
    with pytest.raises(jsonschema.ValidationError):
        validator.validate(minimal(agents=[{"name": "a", "muscle": ""}]))


def test_the_page_lists_all_short_names() -> None:
    page = pathlib.Path(__file__).parents[2] / "docs" / "run-document.md"
    table = page.read_text(encoding="utf-8").partition("| for | short names |")[2].partition("\n\n")[0]
    listed = {
        topic: set(re.findall(r"`(\w+)`", names))
        for topic, names in re.findall(r"^\| (\w+) \| (.*) \|$", table, re.M)
    }
    assert listed == {topic: set(names) for topic, names in SHORT_NAMES.items()}
