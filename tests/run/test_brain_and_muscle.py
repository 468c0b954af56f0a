"""The contract between a brain and its muscles, in runs: updates, memories, what a muscle returns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.documents import DUMMY, agent, document, environment, named, phase

from palaestrai_mosaik.agent import Brain, Muscle
from palaestrai_mosaik.errors import ContractError, DocumentError
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.runner.preflight import Inspection
from palaestrai_mosaik.store import Store

HERE = __name__
WORLD = [environment(max_iter=3)]
UPDATES: dict[str, Any] = {
    "float": 0.0,
    "int": 0,
    "list": [],
    "mapping": {},
    "text": "",
    "flag": False,
    "array": np.zeros(2),
}


class Giving(Brain):
    """Returns one of the updates, or none."""

    def __init__(self, update: str | None):
        self.update = update

    def thinking(self, muscle_id: str, data_from_muscle: Any) -> Any:
        return None if self.update is None else UPDATES[self.update]


class Getting(Muscle):
    """Notes its updates, and who its memory says that it is; returns what it is told to."""

    got: list[Any] = []
    known_as: list[list[str]] = []

    def __init__(self, answer: str = "good"):
        self.answer = answer

    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        Getting.known_as.append(self.memory.tail(1).muscles)
        actuators = list(actuators_available)
        for actuator in actuators:
            actuator.value = actuator.space.sample()
        return {
            "good": (actuators, None),
            "actuators only": actuators_available,
            "list only": actuators,
            "both apart": tuple(actuators),
            "nothing": None,
            "three": (actuators, None, None),
            "no actuators": (None, None),
            "one actuator": (actuators[0], None),
            "number": (7, None),
            "array": (np.zeros(2), None),
            "text": ("ab", None),
        }[self.answer]

    def update(self, update: Any) -> None:
        Getting.got.append(update)


def one(update: str | None = None, answer: str = "good", **keys: Any) -> dict[str, Any]:
    brain, muscle = named(f"{HERE}:Giving", update=update), named(f"{HERE}:Getting", answer=answer)
    return agent("a", count=2, brain=brain, muscle=muscle, **keys)


@pytest.mark.parametrize("update", UPDATES)
def test_every_update_but_none_reaches_the_muscles(update: str) -> None:
    Getting.got = []
    result = execute(document(phase(WORLD, [one(update)])))
    assert len(Getting.got) == 3
    assert all(np.array_equal(got, UPDATES[update]) for got in Getting.got)
    assert result.warnings == []


def test_a_brain_without_any_update_is_warned_of() -> None:
    Getting.got = []
    result = execute(document(phase(WORLD, [one()])))
    assert Getting.got == []
    (warning,) = result.warnings
    assert warning.startswith("phase 'phase_0': the brain of agent 'a' never returned an update")
    # nobody waits for one: in a test, or where the muscle takes none
    assert execute(document(phase(WORLD, [one()], mode="test"))).warnings == []
    fixed = agent(
        "a",
        brain=named(f"{HERE}:Giving", update=None),
        muscle=named("support.parts:Returning", what="good list"),
    )
    assert execute(document(phase(WORLD, [fixed]))).warnings == []


def test_the_memory_of_a_muscle_knows_whose_rows_it_has() -> None:
    Getting.known_as = []
    execute(document(phase(WORLD, [one("int")])))
    assert Getting.known_as == [[], ["a.0"], ["a.0"]]


WRONG = ["actuators only", "list only", "both apart", "nothing", "three", "one actuator"]


@pytest.mark.parametrize("answer", WRONG)
def test_an_answer_that_is_no_pair_is_told_by_the_contract(answer: str) -> None:
    with pytest.raises(ContractError, match=r"Getting.propose_actions must return \(actuators, data\), not "):
        execute(document(phase(WORLD, [one("int", answer)])))


@pytest.mark.parametrize("answer", ["no actuators", "number", "array", "text"])
def test_a_pair_without_actuators_is_told_by_the_contract(answer: str) -> None:
    with pytest.raises(ContractError, match=r"propose_actions must return actuators, not "):
        execute(document(phase(WORLD, [one("int", answer)])))


# --- load ------------------------------------------------------------------------------------


def later(mode: str, **keys: Any) -> dict[str, Any]:
    return {"agents": [{"name": "a", "load": {}, **keys}], "phase_config": {"mode": mode}}


def told(doc: Any) -> tuple[list[str], list[str]]:
    """Return problems and warnings of the document, before anything runs."""
    inspection = Inspection(doc)
    inspection.close()
    return [p.message for p in inspection.problems], [p.message for p in inspection.warnings]


def test_a_test_with_a_model_that_does_not_reach_the_muscle_is_warned_of() -> None:
    deaf = agent("a", muscle=named(f"{HERE}:Getting"))
    problems, warnings = told(document(phase(WORLD, [deaf]), later("test")))
    assert problems == []
    (warning,) = warnings
    assert "Getting has no prepare_model to take it: it acts with initial values" in warning
    assert told(document(phase(WORLD, [deaf]), later("train"))) == ([], [])
    assert told(document(phase(WORLD, [agent("a")]), later("test"))) == ([], [])


def test_a_model_that_nobody_can_load_is_told_before_the_first_phase() -> None:
    Getting.known_as = []
    doc = document(phase(WORLD, [one("int")]), later("test"))
    with pytest.raises(
        DocumentError, match=r"neither Giving\.load nor Getting\.prepare_model is implemented"
    ):
        execute(doc)
    assert Getting.known_as == []


def test_the_dummy_muscle_counts_on_in_a_test(tmp_path: Any) -> None:
    counting = named(f"{DUMMY}:DummyMuscle", count_upwards=True)
    with Store(tmp_path, create=True) as store:
        execute(document(phase(WORLD, [agent("a", count=1, muscle=counting)]), later("test")), store=store)
        assert store.steps("latest", phase=1)["setpoint.myenv.0"].tolist() == [3, 3, 3]


def test_a_base_is_looked_into_before_the_store(tmp_path: Any) -> None:
    """Also where the store does not know the run."""
    keeping = agent("a", brain=named(f"{DUMMY}:DummyBrain", store_path=str(tmp_path / "custom")))
    with Store(tmp_path / "school", create=True) as store:
        execute(document(phase(WORLD, [keeping]), uid="school"), store=store)
    load = {"base": str(tmp_path / "custom"), "experiment_run": "school", "phase_name": "phase_0"}
    with Store(tmp_path / "work", create=True) as store:
        pupil = agent("a", load=load)
        result = execute(document(phase(WORLD, [pupil], mode="test"), uid="work"), store=store)
        assert result.phases[0].episodes == 1
        for wrong in ({"phase_name": "phase_1"}, {"agent": "b"}, {"snapshot": "best"}):
            pupil = agent("a", load={**load, **wrong})
            doc = document(phase(WORLD, [pupil], mode="test"), uid="work")
            with pytest.raises(DocumentError, match=r"no experiment run 'school'.*'base' has no such model"):
                execute(doc, store=store)
