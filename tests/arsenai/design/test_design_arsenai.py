"""Designs in arsenAI's form: from alternatives to run documents."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
from support.documents import DUMMY, ENVIRONMENT_ENDS, VANILLA_RUN
from support.factors import refused

from palaestrai_mosaik.arsenai.design.expansion import DocumentBuilder
from palaestrai_mosaik.arsenai.design.load import from_mapping, load, loads
from palaestrai_mosaik.core.errors import DocumentError
from palaestrai_mosaik.experiment import dumps
from palaestrai_mosaik.experiment import from_mapping as run_from_mapping
from palaestrai_mosaik.experiment.yaml_text import read

DATA = Path(__file__).parents[2] / "data" / "designs"
FILE = DATA / "two_grids.yml"
ROW = {
    "train.environments": "large+weather",
    "train.agents": "ppo",
    "train.phase_config": "short",
    "train.sensors.ppo": "wide+local",
    "harden.sensors.attacker": "wide",
}


def run(document: dict[str, Any]) -> dict[str, Any]:
    """Return the canonical form of a built run document."""
    return run_from_mapping({"uid": "r", "seed": 1, **document}).canonical


def test_lists_with_several_alternatives_are_factors() -> None:
    spec = load(FILE)
    assert {factor.name: factor.labels for factor in spec.factors} == {
        "train.environments": ("small+weather", "large+weather"),
        "train.agents": ("ppo", "rule"),
        "train.phase_config": ("long", "short"),
        "train.sensors.ppo": ("local", "wide+local"),
        "harden.sensors.attacker": ("nothing", "wide"),
    }
    assert all(factor.nominal and factor.weights == (0.5, 0.5) for factor in spec.factors)
    assert [axis.name for axis in spec.axes] == list(ROW)
    assert (spec.sampler.name, spec.max_runs, spec.repetitions, spec.output) == (
        "factorial",
        None,
        2,
        "_outputs",
    )


def test_a_row_written_by_hand() -> None:
    built = DocumentBuilder(load(FILE)).build(ROW)
    assert built == read((DATA / "two_grids_expected.yml").read_text(), "").value


def test_every_row_is_a_sound_run_document_with_complete_phases() -> None:
    """Also where the cascade would keep something: the rule has no brain, load or objective."""
    spec = load(FILE)
    builder = DocumentBuilder(spec)
    hashes = set()
    for labels in product(*(factor.labels for factor in spec.factors)):
        values = dict(zip(ROW, labels, strict=True))
        canonical = run(builder.build(values))
        hashes.add(str(canonical))
        for phase in canonical["schedule"]:
            (body,) = phase.values()
            defender = body["agents"][0]
            learns = values["train.agents"] == "ppo"
            assert (defender["brain"] is not None) is learns
            assert (defender["objective"] is not None) is learns
            assert (defender["load"] is not None) is (learns and "exam" in phase)
    # the set of ppo's sensors changes nothing where the rule acts
    assert len(hashes) == 2 * 2 * (2 * 2) * 2 - 2 * 2 * 2


def test_sensors_are_inherited_agent_by_agent() -> None:
    """The exam gives actuators to the rule only; all others keep what they had."""
    built = DocumentBuilder(load(FILE)).build({**ROW, "train.agents": "rule"})
    defender, attacker = built["schedule"][2]["exam"]["agents"]
    assert defender["actuators"] == ["grid.q0", "grid.q1", "grid.q2"]
    assert defender["sensors"] == ["grid.v0", "grid.v1", "grid.2"]
    assert attacker["actuators"] == ["grid.q1", "grid.q2"]


def test_a_flat_list_has_one_alternative_for_each_name() -> None:
    text = FILE.read_text().replace("agents: [[ppo], [rule]]", "agents: [ppo, rule]")
    assert loads(text).factor("train.agents").labels == ("ppo", "rule")
    assert DocumentBuilder(loads(text)).build(ROW) == DocumentBuilder(load(FILE)).build(ROW)


def test_a_whole_level_can_be_requested_by_the_phases_name() -> None:
    text = FILE.read_text().replace('["$req(phase=0, index=0"]', '"$req(phase=train)"')
    built = DocumentBuilder(loads(text)).build(ROW)
    uids = [one["environment"]["uid"] for one in built["schedule"][1]["harden"]["environments"]]
    assert uids == ["grid", "sky"]


def test_a_schedule_may_be_a_mapping() -> None:
    data = read(FILE.read_text(), "").value
    data["schedule"] = {name: body for phase in data["schedule"] for name, body in phase.items()}
    assert from_mapping(data).hash == load(FILE).hash


def test_the_resolved_design_reads_back() -> None:
    spec = load(FILE)
    again = loads(dumps(dict(spec.resolved)))
    assert again.hash == spec.hash
    assert again.resolved == spec.resolved
    assert (again.axes, again.sampler) == (spec.axes, spec.sampler)


def test_order_of_alternatives_and_agents_is_identity_comments_and_output_are_not() -> None:
    text = FILE.read_text()
    hash_ = loads(text).hash
    assert loads("# a comment\n" + text.replace("_outputs", "elsewhere")).hash == hash_
    assert loads(text.replace("[[ppo], [rule]]", "[[rule], [ppo]]")).hash != hash_
    assert loads(text.replace("size: 3", "size: 4")).hash != hash_


def test_a_phase_has_what_it_lists_and_nothing_of_the_phases_before() -> None:
    built = run(DocumentBuilder(load(FILE)).build(ROW))
    phases = {name: body for phase in built["schedule"] for name, body in phase.items()}
    uids = {
        name: [one["environment"]["uid"] for one in body["environments"]] for name, body in phases.items()
    }
    assert uids == {"train": ["grid", "sky"], "harden": ["grid"], "exam": ["grid"]}
    assert [body.get("inherit") for body in phases.values()] == [None, False, None]


def test_agents_that_a_later_phase_does_not_list_are_gone_from_it() -> None:
    text = FILE.read_text().replace('[["$req(phase=0, index=0)", attacker]]', "[[attacker]]")
    built = DocumentBuilder(loads(text)).build(ROW)
    canonical = run(built)
    agents = [
        [one["name"] for one in body["agents"]] for phase in canonical["schedule"] for body in phase.values()
    ]
    assert agents == [["defender"], ["attacker"], ["attacker"]]
    again = run_from_mapping(canonical)
    assert again.canonical == canonical


def test_a_phase_without_agents_has_all_those_of_the_alternative_that_was_chosen() -> None:
    text = FILE.read_text().replace("agents: [[ppo], [rule]]", "agents: [[ppo, attacker], [rule, attacker]]")
    text = text.replace('      agents: [["$req(phase=0, index=0)", attacker]]\n', "")
    text = text.replace("rule: [local]\n", "rule: [local]\n        attacker: [local]\n")
    text = text.replace("rule: [left]\n", "rule: [left]\n        attacker: [right]\n")
    for learner in ("ppo", "rule"):
        built = DocumentBuilder(loads(text)).build({**ROW, "train.agents": f"{learner}+attacker"})
        for phase in built["schedule"]:
            (body,) = phase.values()
            assert [one["name"] for one in body["agents"]] == ["defender", "attacker"]
            assert ("brain" in body["agents"][0]) == (learner == "ppo")


def test_the_order_of_agents_is_that_of_the_phase() -> None:
    """Agents that take turns act in the document's order."""
    text = FILE.read_text().replace("agents: [[ppo], [rule]]", "agents: [[ppo, attacker], [rule, attacker]]")
    text = text.replace('[["$req(phase=0, index=0)", attacker]]', '[[attacker, "$req(phase=0, index=0)"]]')
    text = text.replace("rule: [local]\n", "rule: [local]\n        attacker: [local]\n")
    text = text.replace("rule: [left]\n", "rule: [left]\n        attacker: [right]\n")
    built = run(DocumentBuilder(loads(text)).build({**ROW, "train.agents": "ppo+attacker"}))
    order = [
        [one["name"] for one in body["agents"]] for phase in built["schedule"] for body in phase.values()
    ]
    assert order == [["defender", "attacker"], ["attacker", "defender"], ["attacker", "defender"]]
    assert run_from_mapping(built).canonical == built


def test_an_entry_of_an_earlier_phase_can_be_requested() -> None:
    text = FILE.read_text().replace(
        "      phase_config: [test]",
        '      agents: [["$req(phase=harden, index=1)"]]\n      phase_config: [test]',
    )
    exam = DocumentBuilder(loads(text)).build(ROW)["schedule"][2]["exam"]
    assert [agent["name"] for agent in exam["agents"]] == ["attacker"]


@pytest.mark.parametrize(
    ("load_", "expected"),
    [
        ("{}", [None, {}, {}]),
        ("{base: there, phase: 0}", [{"base": "there", "phase": 0}] * 3),
        ("{train: {base: b}, exam: null}", [{"base": "b"}, None, None]),
    ],
)
def test_load_for_all_phases_and_by_phase(load_: str, expected: list[Any]) -> None:
    text = FILE.read_text().replace(
        "      load:\n        train: {}\n        exam: {phase_name: train}\n", f"      load: {load_}\n"
    )
    schedule = DocumentBuilder(loads(text)).build(ROW)["schedule"]
    loaded = [body["agents"][0].get("load") for phase in schedule for body in phase.values()]
    assert loaded == expected


def test_the_order_of_factors_is_identity_though_a_mapping_has_none() -> None:
    """Samples follow the order of the axes, here that of the agents below sensors."""
    rule, ppo = "        rule: [local]\n", "        ppo: [local, [wide, local]]\n"
    text = FILE.read_text().replace(rule, "        rule: [local, wide]\n")
    swapped = text.replace(ppo, "").replace(
        "        rule: [local, wide]\n", "        rule: [local, wide]\n" + ppo
    )
    assert [axis.name for axis in loads(text).axes] != [axis.name for axis in loads(swapped).axes]
    assert loads(text).hash != loads(swapped).hash


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "[[ppo], [rule]]",
            "[[pp], [rule]]",
            "'pp' is not defined in definitions.agents (did you mean 'ppo'?)",
        ),
        (
            "[long, short]",
            "[long, shrt]",
            "definitions.phase_config (did you mean 'short'?); defined: long, short",
        ),
        ("ppo: [local, [wide, local]]", "ppo: [locl]", "'locl' is not defined in definitions.sensors"),
        (
            "rule: [local]\n",
            "rul: [local]\n",
            "'rul' is not defined in definitions.agents (did you mean 'rule'?)",
        ),
        ("        rule: [local]\n", "", "the phase 'train' needs sensors for agent 'rule'"),
        (
            "wide: {grid: [v1,",
            "wide: {gird: [v1,",
            "no environment with the uid 'gird' is defined (did you mean 'grid'?)",
        ),
        (
            "[v0, grid.v1, 2]",
            "[v0, true]",
            "an id must be a string or a whole number, found the boolean true",
        ),
        ("[v0, grid.v1, 2]", "v0", "the ids in environment 'grid' must be a list, found the string 'v0'"),
        (
            "exam: {phase_name",
            "exams: {phase_name",
            "'exams', which is no phase of the schedule (did you mean 'exam'?)",
        ),
        ('(phase=0, index=0"', '(phase=1, index=0)"', "must name an earlier phase; earlier ones: 0 (train)"),
        (
            '(phase=0, index=0"',
            '(phase=0, index=2)"',
            "index is 2; phase 0 always has environments 0 to 1 only",
        ),
        ('(phase=0, index=0"', '(phse=0)"', "is not understood; written: $req(phase=0, index=0)"),
        ("[[turns]]", "[[turns, together]]", "an alternative of simulation is one name, found 2"),
        ("[long, short]", "[long, long]", "the alternative 'long' of phase_config is given twice"),
        ("[long, short]", "[]", "phase_config needs at least one alternative"),
        ("[[ppo], [rule]]", "[{name: x}]", "which is put below definitions and named here"),
        ("      name: attacker\n", "", "an agent's definition needs the key 'name', which is missing"),
        ("mode: test,", "mdoe: test,", "unknown key 'mdoe' in phase_config (did you mean 'mode'?)"),
        (
            '      environment: {uid: grid, name: "grids:Large"}',
            '      {uid: grid, name: "grids:Large"}',
            "here 'environment:' is missing",
        ),
        ("run_config:", "run_confg:", "unknown key 'run_confg' in definitions (did you mean 'run_config'?)"),
        ('"ppo:Muscle"', '"ppo:"', "package.module:Class"),
        ("  - exam:\n", "  - train:\n", "the phase name 'train' is given twice"),
    ],
)
def test_mistakes_are_errors_with_place_and_nearest_name(old: str, new: str, message: str) -> None:
    text = FILE.read_text()
    assert text.count(old) >= 1
    changed = text.replace(old, new, 1)
    error = refused(loads, changed, "two.yml")
    found = [problem for problem in error.problems if message in problem.message]
    assert found, error
    line = text[: text.index(old)].count("\n") + 1
    assert found[0].line is not None
    if "needs" not in message and "phase name" not in message:
        assert abs(found[0].line - line) <= 1, found[0]


def test_all_mistakes_are_told_at_once() -> None:
    text = FILE.read_text().replace("[[ppo], [rule]]", "[[pp], [rul]]").replace("seed: 7", "seed: x")
    text = text.replace("repetitions: 2", "repetitions: 0").replace(
        "rule: [[left, right]]", "rule: [[lft, right]]"
    )
    problems = refused(loads, text).problems
    messages = "\n".join(problem.message for problem in problems)
    for part in ("'pp'", "'rul'", "seed must be an integer", "repetitions must be", "'lft'"):
        assert part in messages
    assert len(problems) == 5


def test_factors_by_path_work_on_the_documents_that_the_schedule_makes() -> None:
    factors = """
factors:
  rate: {path: schedule.train.agents.defender.brain.params.rate, low: 0, high: 1, when: train.agents == "ppo"}
  power: {path: schedule.harden.agents.attacker.muscle.params.power, levels: [1, 2]}
sampler: {name: lhs, n: 4}
"""
    spec = loads(FILE.read_text() + factors)
    builder = DocumentBuilder(spec)
    built = builder.build({**ROW, "rate": 0.25, "power": 1})
    phases = {name: body for phase in built["schedule"] for name, body in phase.items()}
    assert phases["train"]["agents"][0]["brain"]["params"] == {"rate": 0.25}
    # a document as generated is addressed phase by phase
    assert phases["harden"]["agents"][0]["brain"]["params"] == {"rate": 0.1}
    assert phases["harden"]["agents"][1]["muscle"]["params"] == {"power": 1}
    assert phases["exam"]["agents"][1]["muscle"]["params"] == {"power": 2}
    assert builder.build({**ROW, "rate": 0.25, "power": 2}) != built
    assert (
        DocumentBuilder(load(FILE)).build(ROW)
        == read((DATA / "two_grids_expected.yml").read_text(), "").value
    )


def test_a_row_in_which_a_path_leads_nowhere_needs_a_when() -> None:
    spec = loads(
        FILE.read_text()
        + "factors:\n  - {path: schedule.train.agents.defender.brain.params.rate, low: 0, high: 1}\n"
        + "sampler: {name: lhs, n: 4}\n"
    )
    values = {**ROW, "train.agents": "rule", "rate": 0.5}
    with pytest.raises(DocumentError, match=r"'rate' .*leads nowhere.*train.agents=rule.*exclude such rows"):
        DocumentBuilder(spec).build(values)


def test_a_path_that_only_a_combination_of_alternatives_has_is_found() -> None:
    """Entry 3 of the sensors is there only if ppo has the wide set and the attacker's is not empty."""
    path = "schedule.harden.agents.attacker.sensors[2]"
    text = FILE.read_text().replace(
        'agents: [["$req(phase=0, index=0)", attacker]]', "agents: [[rule], [attacker]]"
    )
    text = text.replace("attacker: [right]", "attacker: [right]\n        rule: [left]")
    assert loads(text + f"factors:\n  - {{path: '{path}', name: third, levels: [grid.a, grid.b]}}\n").factor(
        "third"
    )
    with pytest.raises(DocumentError, match=r"leads nowhere: .*sensors has no \[3\]: it has 0 items"):
        loads(text + f"factors:\n  - {{path: '{path[:-3]}[3]', name: third, levels: [grid.a, grid.b]}}\n")


def test_documents_of_a_runnable_design_run_here() -> None:
    """Names of palaestrAI in arsenAI's form: the documents are sound and know their classes."""
    spec = from_mapping(
        {
            "uid": "dummies",
            "seed": 1,
            "definitions": {
                "environments": {
                    "e": {"environment": {"uid": "myenv", "name": "palaestrai.environment:DummyEnvironment"}}
                },
                "agents": {
                    name: {
                        "name": name,
                        "brain": {"name": f"{DUMMY}:DummyBrain"},
                        "muscle": {"name": "palaestrai.agent.dummy_muscle:DummyMuscle"},
                    }
                    for name in ("a", "b")
                },
                "sensors": {"all": {"myenv": [0, 1]}},
                "actuators": {"all": {"myenv": [0, 1]}},
                "simulation": {"v": {"name": "vanilla", "conditions": [{"name": ENVIRONMENT_ENDS}]}},
                "run_config": {"condition": {"name": VANILLA_RUN}},
            },
            "schedule": [
                {
                    "only": {
                        "environments": ["e"],
                        "agents": [["a"], ["a", "b"]],
                        "simulation": "v",
                        "sensors": {"a": "all", "b": "all"},
                        "actuators": {"a": "all", "b": "all"},
                    }
                }
            ],
        }
    )
    assert spec.version == "3.5"
    agents = [
        [
            agent["name"]
            for agent in run(DocumentBuilder(spec).build({"only.agents": label}))["schedule"][0]["only"][
                "agents"
            ]
        ]
        for label in spec.factor("only.agents").labels
    ]
    assert agents == [["a"], ["a", "b"]]
