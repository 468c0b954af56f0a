"""Loading: the model, spellings, definitions, the cascade."""

from __future__ import annotations

import pytest

from palaestrai_mosaik.core.errors import DocumentError
from palaestrai_mosaik.experiment import AgentSpec, ClassSpec, EnvironmentSpec, describe, from_mapping, loads
from palaestrai_mosaik.types import Mode


def test_the_model_of_a_document(minimal) -> None:
    document = from_mapping(minimal)
    (phase,) = document.phases
    assert (document.uid, document.seed, document.version) == ("minimal", 1, "3.5")
    assert phase.environments == (EnvironmentSpec("world", "worlds:World", {"size": 3}),)
    assert phase.agents == (
        AgentSpec(
            "defender",
            ClassSpec("muscles:Muscle"),
            ClassSpec("brains:Brain", {"rate": 0.5}),
            ClassSpec("objectives:Objective"),
            ("world.a",),
            ("world.b",),
        ),
    )
    assert (phase.index, phase.name, phase.mode, phase.workers, phase.episodes) == (
        0,
        "first",
        Mode.TRAIN,
        2,
        5,
    )
    assert phase.simulation.controller == "vanilla"
    assert phase.simulation.name == "palaestrai.simulation:Vanilla"
    assert phase.simulation.bridge == "agents"
    assert phase.simulation.conditions == (ClassSpec("ends:End"),)
    assert document.conditions == (ClassSpec("ends:RunEnd"),)
    assert document.warnings == ()


def test_defaults_and_optional_parts(text: str) -> None:
    (phase,) = loads(text).phases
    assert (phase.mode, phase.workers, phase.episodes) == (Mode.TRAIN, 1, None)
    (agent,) = phase.agents
    assert (agent.brain, agent.objective, agent.load) == (None, None, None)


def test_cascade_environment_whole_agent_by_key(minimal) -> None:
    first = minimal["schedule"][0]["first"]
    first["environments"][0]["reward"] = {"name": "rewards:R"}
    minimal["schedule"] += [
        {
            "second": {
                "environments": [
                    {"environment": {"uid": "world", "name": "worlds:Other"}},
                    {"environment": {"uid": "new", "name": "worlds:New"}},
                ],
                "agents": [
                    {"name": "attacker", "muscle": {"name": "m:A"}, "sensors": ["new.x"], "actuators": []},
                    {"name": "defender", "brain": {"name": "brains:B2"}, "sensors": ["new.s"], "load": {}},
                ],
                "simulation": {"conditions": []},
                "phase_config": {"mode": "TEST"},
            }
        },
        {"third": None},
    ]
    one, two, three = from_mapping(minimal).phases
    assert [e.uid for e in one.environments] == ["world"]
    assert one.environments[0].reward == ClassSpec("rewards:R")
    # replaced whole: neither params nor reward are left; the new one comes behind
    assert two.environments == (
        EnvironmentSpec("world", "worlds:Other"),
        EnvironmentSpec("new", "worlds:New"),
    )
    # keys replaced, others kept, and the order of first mention
    assert [a.name for a in two.agents] == ["defender", "attacker"]
    defender = two.agents[0]
    assert defender.brain == ClassSpec("brains:B2")  # whole: the old rate is gone
    assert defender.muscle == ClassSpec("muscles:Muscle")
    assert defender.sensors == ("new.s",)
    assert defender.actuators == ("world.b",)
    assert defender.load == {}
    assert two.simulation.name == "palaestrai.simulation:Vanilla"
    assert two.simulation.conditions == ()
    # a mode given alone keeps workers and episodes
    assert (two.mode, two.workers, two.episodes) == (Mode.TEST, 2, 5)
    assert three.environments == two.environments
    assert three.agents == two.agents
    assert three.mode is Mode.TEST


def test_null_takes_an_optional_part_away(minimal) -> None:
    minimal["schedule"].append(
        {"second": {"agents": [{"name": "defender", "brain": None, "objective": None}]}}
    )
    agent = from_mapping(minimal).phases[1].agents[0]
    assert agent.brain is None
    assert agent.objective is None


@pytest.mark.parametrize(
    ("name", "controller"),
    [
        ("vanilla", "vanilla"),
        ("taking_turns", "taking_turns"),
        *((f"{p}.simulation:Vanilla{s}", "vanilla") for p in ("palaestrai", "palaestrai_mosaik")
          for s in ("", "SimController", "SimulationController")),
        *((f"{p}.simulation:TakingTurns{s}", "taking_turns") for p in ("palaestrai", "palaestrai_mosaik")
          for s in ("", "SimController", "SimulationController")),
        ("palaestrai.simulation.vanilla_sim_controller:VanillaSimController", "vanilla"),
    ],
)  # fmt: skip
def test_controller_names(name: str, controller: str, minimal) -> None:
    minimal["schedule"][0]["first"]["simulation"]["name"] = name
    assert from_mapping(minimal).phases[0].simulation.controller == controller


@pytest.mark.parametrize(
    ("word", "mode"),
    [("train", Mode.TRAIN), ("Training", Mode.TRAIN), ("test", Mode.TEST), ("TESTING", Mode.TEST)],
)
def test_modes(word: str, mode: Mode, minimal) -> None:
    minimal["schedule"][0]["first"]["phase_config"]["mode"] = word
    assert from_mapping(minimal).phases[0].mode is mode


def test_schedule_as_mapping_and_several_run_conditions(minimal) -> None:
    minimal["schedule"] = minimal["schedule"][0]
    minimal["run_config"] = {"conditions": [{"name": "a:B"}, {"name": "c:D", "parameters": {"x": 1}}]}
    document = from_mapping(minimal)
    assert [phase.name for phase in document.phases] == ["first"]
    assert document.conditions == (ClassSpec("a:B"), ClassSpec("c:D", {"x": 1}))


DEFINED = """\
uid: defined
seed: 1
version: "3.5"
definitions:
  environments:
    e1: {environment: {uid: world, name: "w:W"}}
  agents:
    a1: &a1 {name: One, muscle: {name: "m:M"}, sensors: [world.s], actuators: []}
    a2:
      <<: *a1
      name: Two
  simulation:
    turns: {name: taking_turns}
    both: {name: vanilla}
  phase_config:
    testing: {mode: test, worker: 3}
  run_config:
    end: {condition: {name: "c:C"}}
schedule:
  - p0:
      environments: [e1]
      agents: [a1, a2]
      simulation: turns
      phase_config: testing
run_config: end
"""


def test_strings_refer_to_definitions() -> None:
    document = loads(DEFINED)
    (phase,) = document.phases
    assert [agent.name for agent in phase.agents] == ["One", "Two"]
    assert phase.simulation.controller == "taking_turns"
    assert (phase.mode, phase.workers) == (Mode.TEST, 3)
    assert document.conditions == (ClassSpec("c:C"),)


def test_definitions_that_are_a_part_themselves_are_defaults() -> None:
    text = DEFINED.replace(
        "phase_config:\n    testing: {mode: test, worker: 3}", "phase_config: {mode: test, worker: 3}"
    )
    text = text.replace("      phase_config: testing\n", "  - p1: {phase_config: {worker: 1}}\n")
    text = text.replace("  run_config:\n    end: {", "  run_config:\n    {").replace("run_config: end\n", "")
    document = loads(text)
    assert [(phase.mode, phase.workers) for phase in document.phases] == [(Mode.TEST, 3), (Mode.TEST, 1)]
    assert document.conditions == (ClassSpec("c:C"),)


def test_unknown_definition_names_the_nearest(problems) -> None:
    (problem,) = problems(DEFINED.replace("simulation: turns", "simulation: trns"))
    assert problem.path == "schedule.0.p0.simulation"
    assert problem.line == 23
    assert "did you mean 'turns'" in problem.message


def test_a_problem_in_a_definition_is_told_once_where_it_stands(problems) -> None:
    (problem,) = problems(DEFINED.replace("sensors: [world.s]", "sensors: [wrld.s]"))[:1]
    assert problem.path == "definitions.agents.a1.sensors.0"
    assert problem.line == 8


def test_problem_of_the_model_knows_the_place_in_the_text() -> None:
    document = loads(DEFINED.replace("run_config: end", "  - p1:\nrun_config: end"), "run.yml")
    problem = document.problem("no such sensor", "phases", 1, "agents", 0, "sensors", 0)
    assert (problem.path, problem.line) == ("definitions.agents.a1.sensors.0", 8)
    assert str(problem) == "run.yml:8: definitions.agents.a1.sensors.0: no such sensor"
    assert document.problem("x", "phases", 1, "environments", 0, "params").line == 6
    assert document.problem("x", "conditions", 0).path == "definitions.run_config.end.condition"


def test_keys_of_palaestrai_without_effect_warn(minimal) -> None:
    plain = from_mapping(minimal)
    minimal["schedule"][0]["first"]["phase_config"] |= {"store_raw_actuators": True}
    document = from_mapping(minimal)
    assert len(document.warnings) == 1
    assert "no effect" in document.warnings[0].message
    assert document.hash == plain.hash


def test_an_experiment_is_no_part_of_a_documents_identity(minimal) -> None:
    plain = from_mapping(minimal)
    assert plain.experiment_uid is None
    document = from_mapping({**minimal, "experiment_uid": "sensitivity"})
    assert document.experiment_uid == "sensitivity"
    assert document.hash == plain.hash
    with pytest.raises(DocumentError, match=r"experiment_uid must be a non-empty string, found the number 3"):
        from_mapping({**minimal, "experiment_uid": 3})


@pytest.mark.parametrize(
    ("version", "warned"), [("3.5", False), ("3.5.9", False), ("3.4", True), ("four", True)]
)
def test_another_version_warns(version: str, warned: bool, minimal) -> None:
    minimal["version"] = version
    warnings = from_mapping(minimal).warnings
    assert [w.path for w in warnings] == (["version"] if warned else [])


def test_params_are_own_copies(text: str) -> None:
    text = text.replace('"worlds:World"', '"worlds:World", params: &p {x: [1]}')
    text = text.replace('"muscles:Muscle"', '"muscles:Muscle", params: *p')
    phase = loads(text).phases[0]
    phase.environments[0].params["x"].append(2)
    assert phase.agents[0].muscle.params == {"x": [1]}


def test_plain_data_only(minimal) -> None:
    minimal["schedule"][0]["first"]["environments"][0]["environment"]["params"] = {
        "when": object(),
        "many": {1, 2},
    }
    with pytest.raises(DocumentError) as error:
        from_mapping(minimal)
    assert [p.path.rsplit(".", 1)[1] for p in error.value.problems] == ["when", "many"]


def test_describe_shows_what_the_cascade_made(minimal) -> None:
    minimal["schedule"].append({"second": {"phase_config": {"mode": "test"}}})
    minimal["schedule"][0]["first"]["agents"][0]["sensors"] = [f"world.{i}" for i in range(20)]
    text = describe(from_mapping(minimal))
    second = text.split("phase 1 'second'")[1]
    assert second.startswith(": test, 2 workers, 5 episodes\n")
    assert "environment 'world': worlds:World(size=3)" in second
    assert "brain brains:Brain(rate=0.5)" in second
    assert "    sensors: world.*: 20\n" in second
    assert "    sensors (20): world.0, world.1," in describe(from_mapping(minimal), whole=True)
    assert "ends:RunEnd()" in second


def test_a_phase_that_inherits_nothing(minimal) -> None:
    first = minimal["schedule"][0]["first"]
    first["phase_config"]["evaluate_every"] = 2
    second = {key: first[key] for key in ("environments", "simulation")}
    second |= {"agents": [{"name": "other", "muscle": {"name": "m:A"}, "sensors": [], "actuators": []}]}
    minimal["schedule"] += [
        {"second": {"inherit": False, **second}},
        {"third": {"inherit": True}},
        {"fourth": None},
    ]
    document = from_mapping(minimal)
    assert [[one.name for one in phase.agents] for phase in document.phases] == [
        ["defender"],
        ["other"],
        ["other"],
        ["other"],
    ]
    assert [phase.evaluate_every for phase in document.phases] == [2, None, None, None]
    assert [next(iter(body.values())).get("inherit") for body in document.canonical["schedule"]] == [
        None,
        False,
        None,
        None,
    ]
    again = from_mapping(document.canonical)
    assert again.hash == document.hash
    assert again.canonical == document.canonical


def test_inherit_is_no_difference_where_nothing_is_left_out(minimal) -> None:
    whole = minimal["schedule"][0]["first"]
    minimal["schedule"] += [{"second": {"inherit": False, **whole}}]
    isolated = from_mapping(minimal)
    del minimal["schedule"][1]["second"]["inherit"]
    assert from_mapping(minimal).hash == isolated.hash


def test_a_phase_that_inherits_nothing_needs_everything(minimal) -> None:
    minimal["schedule"] += [{"second": {"inherit": False, "phase_config": {"mode": "test"}}}]
    with pytest.raises(DocumentError) as error:
        from_mapping(minimal)
    for part in ("'environments'", "'agents'"):
        assert part in str(error.value)
    minimal["schedule"][1]["second"]["inherit"] = "no"
    with pytest.raises(DocumentError, match=r"inherit must be true or false, found the string 'no'"):
        from_mapping(minimal)
