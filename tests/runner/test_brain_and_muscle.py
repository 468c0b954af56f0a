"""The contract between a brain and its muscles, in runs: updates, memories, what a muscle returns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from support.bodies import SteerAll, drift, drifting
from support.documents import DUMMY, agent, document, environment, named, phase

from palaestrai_mosaik.agent import Brain, Filter, Muscle
from palaestrai_mosaik.core.errors import ContractError, DocumentError
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.runner.preflight import Inspection
from palaestrai_mosaik.store import Store

HERE = __name__
WORLD = [environment(max_iter=3)]
#: what bool() finds true, and arrays
UPDATES: dict[str, Any] = {
    "int": 1,
    "number": np.float64(0.5),
    "list": [0],
    "mapping": {"weight": 0},
    "text": "0",
    "array": np.zeros(2),
    "array of one": np.zeros(1),
    "array of none": np.zeros(0),
    "number as array": np.array(0),
    "frame": pd.DataFrame(),
    "sparse": scipy.sparse.csr_array((2, 2)),
}
#: what bool() finds false
FALSE: dict[str, Any] = {
    "float": 0.0,
    "zero": 0,
    "zero of numpy": np.float64(0.0),
    "no list": [],
    "no mapping": {},
    "no text": "",
    "flag": False,
}


class Giving(Brain):
    """Returns one of the updates, a false value, or ``None``."""

    def __init__(self, update: str | None):
        self.update = update

    def thinking(self, muscle_id: str, data_from_muscle: Any) -> Any:
        return None if self.update is None else (UPDATES | FALSE)[self.update]


class Apart(Giving):
    """The same, for each muscle by itself."""

    shared_updates = False


class AtOnce(Giving):
    """The same, for all rows of a tick."""

    def thinking_batch(self, muscle_ids: Any, data_from_muscles: Any) -> Any:
        return self.thinking(muscle_ids[-1], data_from_muscles[-1])


class Early(Giving):
    """The same, before the first row only."""

    asked = 0

    def initial_update(self) -> Any:
        Early.asked += 1
        return super().thinking("", None)

    def thinking(self, muscle_id: str, data_from_muscle: Any) -> Any:
        return None


class Rarely(Giving):
    """Returns an update with the first row, and a false value with all others."""

    def thinking(self, muscle_id: str, data_from_muscle: Any) -> Any:
        return "first" if len(self.memory) == 1 else super().thinking(muscle_id, data_from_muscle)


class Passing(Filter):
    """Hands updates on."""

    def brain_post_process(self, update: Any) -> Any:
        return update


class GettingAll(SteerAll):
    """Notes the updates for all bodies of a batch."""

    def update(self, update: Any) -> None:
        Getting.got.append(update)


class Noting(Muscle):
    """Writes its updates into a file, because it may be in another process."""

    def __init__(self, log: str):
        self.log = log

    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        return actuators_available, None

    def update(self, update: Any) -> None:
        with open(self.log, "a") as file:
            print(update, file=file)


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
def test_what_is_true_and_every_array_is_an_update(update: str) -> None:
    Getting.got = []
    result = execute(document(phase(WORLD, [one(update)])))
    assert len(Getting.got) == 3
    assert all(got is UPDATES[update] for got in Getting.got)
    assert result.warnings == []


@pytest.mark.parametrize("brain", ["Giving", "Apart", "Early", "AtOnce"])
@pytest.mark.parametrize("update", FALSE)
def test_what_is_false_is_no_update(update: str, brain: str) -> None:
    def told(brain: str, update: str, **keys: Any) -> list[str]:
        Getting.got = []
        giving = named(f"{HERE}:{brain}", update=update)
        if brain != "AtOnce":
            return execute(document(phase(WORLD, [{**one(), "brain": giving, **keys}]))).warnings
        parts = {"name": "a", "brain": giving, "muscle": named(f"{HERE}:GettingAll"), **keys}
        batch = {**parts, "bodies": [{"environment": "e", "count": 3}]}
        return execute(drifting([drift(batch=3)], [batch])).warnings

    for keys in ({}, {"filters": [named(f"{HERE}:Passing")]}):
        assert told(brain, "int", **keys) == []
        assert Getting.got and set(Getting.got) == {1}
        (warning,) = told(brain, update, **keys)
        assert Getting.got == []
        assert warning.startswith(
            f"phase 'phase_0': brain {brain} of agent 'a' returned a false value of type "
            f"{type(FALSE[update]).__name__}, and it never returned another update: a false value"
        )


@pytest.mark.parametrize(("mode", "times"), [("train", 1), ("test", 0)])
def test_a_brain_is_asked_for_a_first_update_in_train_mode_only(mode: str, times: int) -> None:
    Getting.got, Early.asked = [], 0
    brain = named(f"{HERE}:Early", update="int")
    execute(document(phase(WORLD, [{**one(), "brain": brain}], mode=mode)))
    assert (Early.asked, Getting.got) == (times, [1] * times)


class Prepared(Early):
    """Learns from what is replayed, too."""

    def __init__(self, update: str | None, pretrained: str | None):
        super().__init__(update)
        self.pretrained = pretrained

    def pretrain(self) -> Any:
        return None if self.pretrained is None else (UPDATES | FALSE)[self.pretrained]


@pytest.mark.parametrize(
    ("pretrained", "asked", "got"), [("text", 0, ["0"]), ("no list", 1, [1]), (None, 1, [1])]
)
def test_a_first_update_is_asked_for_if_pretrain_gave_none(
    tmp_path: Path, pretrained: str | None, asked: int, got: list[Any]
) -> None:
    Getting.got, Early.asked = [], 0
    brain = named(f"{HERE}:Prepared", update="int", pretrained=pretrained)
    with Store(tmp_path, create=True) as store:
        execute(document(phase(WORLD, [one()])), store=store)
        execute(document(phase(WORLD, [{**one(), "brain": brain, "replay": [{}]}])), store=store)
    assert (Early.asked, Getting.got) == (asked, got)


@pytest.mark.parametrize("workers", [1, 2])
def test_false_values_are_warned_of_once_a_run(workers: int, tmp_path: Path) -> None:
    log = tmp_path / "log"
    parts = {"brain": named(f"{HERE}:Rarely", update="zero"), "muscle": named(f"{HERE}:Noting", log=str(log))}
    several = {"workers": 2, "sync_every": 2} if workers == 2 else {}
    first = phase(WORLD, [agent("a", count=2, **parts)], **several)
    doc = document(first, {"agents": [{"name": "a", "load": None}]})
    with Store(tmp_path / "s", create=True) as store:
        result = execute(doc, store=store)
        assert result.warnings == store.warnings("latest")["text"].tolist()
    # a muscle in each worker of each phase
    assert log.read_text().splitlines() == ["first"] * 2 * workers
    (warning,) = result.warnings
    assert warning.startswith(
        "phase 'phase_0': brain Rarely of agent 'a' returned a false value of type int: "
    )


def test_false_values_for_a_muscle_without_update_are_not_warned_of() -> None:
    fixed = named("support.parts:Returning", what="good list")
    assert execute(document(phase(WORLD, [{**one("zero"), "muscle": fixed}]))).warnings == []


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
    with pytest.raises(
        ContractError, match=r"agent .*:Getting.: propose_actions must return \(actuators, data\), not "
    ):
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
    inspection.environments.close()
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
