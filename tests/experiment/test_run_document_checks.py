"""Every problem at once, each with its line, path, what was found, what is allowed."""

from __future__ import annotations

import pytest

from palaestrai_mosaik.core.errors import DocumentError
from palaestrai_mosaik.experiment import from_mapping, loads


@pytest.mark.parametrize(
    ("old", "new", "line", "path", "said"),
    [
        ("uid: minimal", "uid: 5", 1, "uid", 'put it in quotes: "5"'),
        ("uid: minimal", "uid: ''", 1, "uid", "non-empty"),
        ("seed: 1", "seed: one", 2, "seed", "must be an integer, found the string 'one'"),
        ("seed: 1", "seed: true", 2, "seed", "found the boolean true"),
        ("seed: 1", "seed:", 2, "seed", "found nothing (null)"),
        ("seed: 1", "sead: 1", 2, "sead", "did you mean 'seed'"),
        ('version: "3.5"', "version: 3.5", 3, "version", 'put it in quotes: "3.5"'),
        ("- first:", "- 1:", 5, "schedule.0.1", "put it in quotes"),
        ("environments:", "enviroments:", 6, "schedule.0.first.enviroments", "did you mean 'environments'"),
        ("uid: world,", "uid: 7,", 7, "schedule.0.first.environments.0.environment.uid", "quotes"),
        ("{uid: world, ", "{uid: world, step_size: 0, ", 7, "*.step_size", "at least 1 or null, found the number 0"),
        ("worlds:World", "worlds.World", 7, "*.environment.name", "did you mean 'worlds:World'"),
        ("worlds:World", "a b:c", 7, "*.environment.name", "package.module:Class"),
        ("- environment: {uid: world, name: \"worlds:World\"}", "- {uid: world, name: \"a:B\"}", 7,
         "schedule.0.first.environments.0", "is written '- environment:'"),
        ("muscle: {", "muscel: {", 10, "*.agents.0.muscel", "did you mean 'muscle'"),
        ('"muscles:Muscle"', '"muscles:Muscle", params: 3', 10, "*.muscle.params", "params must be a mapping"),
        ('"muscles:Muscle"', '"m:M", params: {}, parameters: {}', 10, "*.muscle.parameters", "the same key"),
        ('"muscles:Muscle"', '"m:M", params: {1: 2}', 10, "*.muscle.params.1", "name must be a string"),
        ("muscle: {name: \"muscles:Muscle\"}", "muscle: [muscles, Muscle]", 10, "*.muscle", "name and params"),
        ("muscle: {name: \"muscles:Muscle\"}", "muscle: null", 10, "*.muscle", "may not be left out"),
        ("[world.a]", "[world.a, 1.5]", 11, "*.sensors.1", 'quotes: "1.5"'),
        ("[world.a]", "[world.a, world.a]", 11, "*.sensors.1", "stands twice"),
        ("[world.a]", "[wolrd.a]", 11, "*.sensors.0", "did you mean 'world.a'"),
        ("[world.a]", "[world]", 11, "*.sensors.0", "is an environment"),
        ("[world.a]", "world.a", 11, "*.sensors", "must be a list"),
        ("[world.b]", "[world.b]\n          load: {phase_name: frist}", 13, "*.load.phase_name", "did you mean 'first'"),
        ("[world.b]", "[world.b]\n          load: {phase: 4}", 13, "*.load.phase", "there is no phase 4"),
        ("[world.b]", "[world.b]\n          load: {phase: frist}", 13, "*.load.phase", "did you mean 'first'"),
        ("[world.b]", "[world.b]\n          load: {agent_name: defendr}", 13, "*.agent_name", "did you mean 'defender'"),
        ("[world.b]", "[world.b]\n          load: {pahse: 0}", 13, "*.load.pahse", "did you mean 'phase'"),
        ("{name: vanilla}", "{name: vanila}", 13, "*.simulation.name", "did you mean 'vanilla'"),
        ("{name: vanilla}", "{name: vanilla, bridge: agent}", 13, "*.bridge", "did you mean 'agents'"),
        ("{name: vanilla}", "{name: vanilla, conditions: {name: 'a:B'}}", 13, "*.conditions", "must be a list"),
        ("{name: vanilla}", "{name: vanilla, condition: []}", 13, "*.condition", "did you mean 'conditions'"),
        ("{name: vanilla}", "{name: vanilla}\n      phase_config: {mode: evaluate}", 14, "*.mode", "allowed: train"),
        ("{name: vanilla}", "{name: vanilla}\n      phase_config: {workers: 0}", 14, "*.workers", "at least 1"),
        ("{name: vanilla}", "{name: vanilla}\n      phase_config: {episodes: 1.5}", 14, "*.episodes", "an integer"),
        ("{name: vanilla}", "{name: vanilla}\n      phase_config: {worker: 1, workers: 1}", 14, "*", "same key"),
        ("  condition: {", "  conditon: {", 15, "run_config.conditon", "did you mean 'condition'"),
    ],
)  # fmt: skip
def test_one_fault(old: str, new: str, line: int, path: str, said: str, text: str, problems) -> None:
    assert old in text
    found = problems(text.replace(old, new))
    hits = [p for p in found if said in p.message]
    assert hits, found
    assert hits[0].line == line
    assert hits[0].path.endswith(path.lstrip("*"))
    assert hits[0].file == "run.yml"


def test_the_text_itself_is_sound(text: str, problems) -> None:
    assert problems(text) == []


def test_all_problems_at_once_in_order(text: str, problems) -> None:
    broken = (
        text.replace("seed: 1", "seed: x")
        .replace("vanilla", "vanlla")
        .replace("world.b", "word.b")
        .replace("ends:RunEnd", "ends.RunEnd")
        .replace("worlds:World", "worlds:World, extra: 1")
    )
    found = problems(broken + "sed: 3\n")
    assert [p.line for p in found] == [2, 7, 12, 13, 15, 16]


@pytest.mark.parametrize("key", ["uid", "seed", "schedule"])
def test_mandatory_keys(key: str, minimal) -> None:
    del minimal[key]
    with pytest.raises(DocumentError, match=f"needs the key '{key}'"):
        from_mapping(minimal)


@pytest.mark.parametrize("key", ["muscle", "name"])
def test_mandatory_keys_of_an_agent(key: str, minimal) -> None:
    del minimal["schedule"][0]["first"]["agents"][0][key]
    minimal["schedule"].append({"second": None})
    with pytest.raises(DocumentError) as error:
        from_mapping(minimal)
    told = [p for p in error.value.problems if f"needs the key '{key}'" in p.message]
    assert [p.path for p in told] == ["schedule.0.first.agents.0"]  # once, not again for the second phase


@pytest.mark.parametrize("key", ["environments", "agents"])
def test_mandatory_parts_of_the_first_phase(key: str, minimal) -> None:
    del minimal["schedule"][0]["first"][key]
    with pytest.raises(DocumentError, match="the phase 'first' needs"):
        from_mapping(minimal)


def test_duplicates_in_a_phase(minimal) -> None:
    first = minimal["schedule"][0]["first"]
    first["agents"] *= 2
    first["environments"] *= 2
    minimal["schedule"] *= 2
    with pytest.raises(DocumentError) as error:
        from_mapping(minimal)
    text = str(error.value)
    assert "the agent name 'defender' is given twice" in text
    assert "the environment uid 'world' is given twice" in text
    assert "the phase name 'first' is given twice" in text


def test_a_phase_whose_contents_are_not_indented(text: str, problems) -> None:
    flat = text.replace("      environments", "    environments").replace("      agents", "    agents")
    flat = flat.replace("      simulation", "    simulation")
    found = problems(flat)
    assert any("Indent a phase's contents below its name" in p.message and p.line == 5 for p in found), found


@pytest.mark.parametrize("uid", ["my-env", "a.b", "a b", "ä", "world.a"])
def test_uids_with_dashes_and_dots(uid: str, minimal) -> None:
    first = minimal["schedule"][0]["first"]
    first["environments"][0]["environment"]["uid"] = uid
    first["agents"][0] |= {"sensors": [f"{uid}.0.x"], "actuators": [f"{uid}.1"]}
    assert from_mapping(minimal).phases[0].agents[0].sensors == (f"{uid}.0.x",)


OBJECTIVE = "palaestrai.experiment:AgentObjectiveTerminationCondition"


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"defendr": {"brain_avg5": 1}}, "there is no agent 'defendr' (did you mean 'defender'?)"),
        ({"defender": {"brain_avg": 1}}, "unknown threshold 'brain_avg'"),
        ({"defender": {"brain_avg5": "x"}}, "brain_avg5 must be a number"),
        ({"defender": 3}, "must be a mapping"),
        ({"defender": {"brain_avg5": 1}}, None),
    ],
)
@pytest.mark.parametrize("where", ["simulation", "run_config"])
def test_agents_of_objective_conditions(params: dict, said: str | None, where: str, minimal) -> None:
    condition = {"name": OBJECTIVE, "params": params}
    if where == "run_config":
        minimal["run_config"]["condition"] = condition
    else:
        minimal["schedule"][0]["first"]["simulation"]["conditions"] = [condition]
    if said is None:
        assert from_mapping(minimal)
        return
    with pytest.raises(DocumentError) as error:
        from_mapping(minimal)
    (problem,) = error.value.problems
    assert said in problem.message
    assert where in problem.path


def test_phase_averages_are_asked_in_run_config_only(minimal) -> None:
    both = {"name": OBJECTIVE, "params": {"defender": {"brain_avg5": 1, "phase_avg3": 1.5}}}
    simulation = minimal["schedule"][0]["first"]["simulation"]
    simulation["conditions"] = [both]
    with pytest.raises(
        DocumentError, match=r"phase_avg3 of agent 'defender' is never asked; give it in .* run_config"
    ):
        from_mapping(minimal)
    minimal["run_config"]["condition"] = both
    assert from_mapping(minimal)


def test_a_simulation_controller_takes_empty_params(minimal) -> None:
    plain = from_mapping(minimal)
    simulation = minimal["schedule"][0]["first"]["simulation"]
    for params in ({}, None):
        simulation["params"] = params
        assert from_mapping(minimal).hash == plain.hash
    simulation["params"] = {"speed": 2}
    with pytest.raises(DocumentError, match="unknown parameter 'speed': a simulation controller takes none"):
        from_mapping(minimal)


def test_run_condition_may_name_an_agent_of_a_later_phase(minimal) -> None:
    late = {"name": "late", "muscle": {"name": "m:M"}, "sensors": [], "actuators": ["world.x"]}
    minimal["schedule"].append({"second": {"agents": [late]}})
    minimal["run_config"]["condition"] = {"name": OBJECTIVE, "params": {"late": {"phase_avg2": 1}}}
    assert from_mapping(minimal).conditions[0].params == {"late": {"phase_avg2": 1}}
    minimal["schedule"][0]["first"]["simulation"]["conditions"] = [minimal["run_config"]["condition"]]
    with pytest.raises(DocumentError, match="there is no agent 'late'"):
        from_mapping(minimal)


def test_load_keys_in_one_spelling(text: str) -> None:
    load = "[world.b]\n          load: {agent_name: a, experiment_id: other, phase_name: p, base: ./x}"
    agent = loads(text.replace("[world.b]", load)).phases[0].agents[0]
    assert agent.load == {"agent": "a", "experiment_run": "other", "phase_name": "p", "base": "./x"}


def test_thousands_of_problems_are_counted_and_not_all_listed() -> None:
    """A document with 300,000 unknown keys printed for a minute."""
    keys = "".join(f"key{number}: 1\n" for number in range(3_000))
    with pytest.raises(DocumentError) as refused:
        loads(f"uid: many\nseed: 1\nschedule: []\n{keys}")
    *listed, more = refused.value.problems
    assert len(listed) == 1_000
    assert "unknown key 'key0'" in listed[0].message
    assert more.message == "2,001 more problems: the first 1,000 are listed here"
    assert more.file == "<string>"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("muscle", {"building": "Controller"}),
        ("muscle", {"building:Controller": None}),
        ("muscle", {"name": {"building": "Controller"}}),
        ("environment", {"building": "Controller"}),
        ("environment", {"name": {"building": "Controller"}}),
    ],
)
def test_a_name_without_quotes_that_is_a_mapping(path: str, value: dict, minimal) -> None:
    phase = next(iter(minimal["schedule"][0].values()))
    (phase["agents"] if path == "muscle" else phase["environments"])[0][path] = value
    with pytest.raises(DocumentError) as raised:
        from_mapping(minimal)
    told = [problem.message for problem in raised.value.problems if "quotes" in problem.message]
    assert told and told[0].endswith('if it is one text, put it in quotes: "building:Controller"')
