"""The documents that palaestrAI's documentation shows load as they stand."""

from __future__ import annotations

from pathlib import Path

import pytest

from palaestrai_mosaik.experiment import (
    ClassSpec,
    ReplaySpec,
    RunDocument,
    check_classes,
    describe,
    from_mapping,
    json_schema,
    load,
)
from palaestrai_mosaik.experiment.yaml_text import read
from palaestrai_mosaik.types import Mode

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed (extra 'test')")

DOCUMENTS = Path(__file__).parents[1] / "data" / "documents"
NAMES = (
    "agent_evaluation",
    "agent_objective",
    "dummy",
    "environment_termination",
    "max_episodes",
    "multiple_conditions",
    "vanilla_termination",
)


def document(name: str) -> RunDocument:
    return load(DOCUMENTS / f"{name}.yml")


@pytest.mark.parametrize("name", NAMES)
def test_they_load_validate_and_load_again_from_their_canonical_form(name: str) -> None:
    loaded = document(name)
    assert from_mapping(loaded.canonical).hash == loaded.hash
    validator = jsonschema.Draft202012Validator(json_schema())
    validator.validate(read(loaded.text, name).value)
    validator.validate(loaded.canonical)
    for phase in loaded.phases:
        assert f"phase {phase.index} {phase.name!r}" in describe(loaded)


def test_the_dummy_document() -> None:
    dummy = document("dummy")
    assert dummy.uid == "Yo-ho, a dummy experiment run for me!"
    assert dummy.seed == 42
    assert [w.line for w in dummy.warnings] == [10]  # written for 3.4
    assert [phase.name for phase in dummy.phases] == ["phase_0", "phase_1"]
    first, second = dummy.phases
    assert first.environments[0].state_transformer == ClassSpec(
        "tests.fixtures:CountingWorldStateTransformer"
    )
    assert second.environments[0].state_transformer is None  # replaced whole
    assert [agent.name for agent in first.agents] == ["mighty_defender", "evil_attacker"]
    assert second.agents[0].load == {"base": "./custom", "phase_name": "phase_0"}
    assert second.agents[1].load == {"phase_name": "phase_0"}
    for phase in dummy.phases:
        assert phase.simulation.controller == "vanilla"
        assert (phase.mode, phase.workers, phase.episodes) == (Mode.TRAIN, 1, 1)
        assert phase.agents[0].sensors == tuple(f"myenv.{i}" for i in range(5))
        assert phase.agents[1].actuators == tuple(f"myenv.{i}" for i in range(5, 10))
    assert dummy.conditions == (ClassSpec("palaestrai.experiment:VanillaRunGovernorTerminationCondition"),)


def test_several_conditions_with_an_alias_as_key_and_a_default_phase_config() -> None:
    several = document("multiple_conditions")
    (phase,) = several.phases
    assert (phase.mode, phase.workers, phase.episodes) == (Mode.TRAIN, 2, None)
    assert phase.simulation.controller == "vanilla"  # named taking_turns, but it says Vanilla
    assert [c.name.split(":")[1] for c in phase.simulation.conditions] == [
        "EnvironmentTerminationCondition",
        "AgentObjectiveTerminationCondition",
    ]
    assert phase.simulation.conditions[1].params == {"My Agent": {"brain_avg200": 10.0}}
    assert several.conditions[0].params == {"My Agent": {"phase_avg5": 1.0}}


def test_run_config_of_the_definitions() -> None:
    objective = document("agent_objective")
    assert objective.phases[0].simulation.controller == "taking_turns"
    assert objective.conditions[0].params == {"My Agent": {"phase_avg100": 8.9}}


def test_the_keys_of_learning() -> None:
    evaluated = document("agent_evaluation")
    training, testing = evaluated.phases
    assert (training.episodes, training.evaluate_every) == (None, 5)
    (agent,) = training.agents
    assert [item.name.split(":")[1] for item in agent.filters] == ["NormFilter", "MergeStepsFilter"]
    assert agent.replay[0] == ReplaySpec(
        "TD3", "yesterday", None, 0, "train", 2, ("myenv.2", "myenv.3"), ("myenv.2", "myenv.3")
    )
    assert testing.agents[0].load == {"snapshot": "best"}
    assert testing.agents[0].filters == agent.filters
    assert testing.agents[0].replay == ()
    assert evaluated.warnings == ()


def test_schedule_by_name() -> None:
    (phase,) = document("max_episodes").phases
    assert (phase.name, phase.workers, phase.episodes) == ("Training", 2, 100)


@pytest.mark.parametrize("name", NAMES)
def test_their_classes_exist_here(name: str, monkeypatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])  # tests.fixtures is found from the root
    assert check_classes(document(name)) == []
