"""Faults of bodies, batches and timelines that a review has found, each held by a test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.bodies import ALONE, AT_ONCE, Steer, SteerAll, drift, drifting, steerer
from support.documents import agent, document, environment, named, phase

from palaestrai_mosaik.agent.dumper import FileBrainDumper, load_arrays
from palaestrai_mosaik.agent.filters.norm import NormFilter
from palaestrai_mosaik.core.errors import ContractError, DocumentError
from palaestrai_mosaik.environment.copies import Copies
from palaestrai_mosaik.environment.dummy import DummyEnvironment
from palaestrai_mosaik.experiment.model import AgentSpec, BodySpec, ClassSpec
from palaestrai_mosaik.runner import execute, inspect
from palaestrai_mosaik.runner.preflight import Inspection
from palaestrai_mosaik.runner.worker import Worker
from palaestrai_mosaik.simulation.body_placement import place_bodies
from palaestrai_mosaik.simulation.environment_handle import open_handle
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.types import SensorInformation

HERE = "tests.simulation.test_bodies_reviewed"


@pytest.mark.parametrize("parts", [ALONE, AT_ONCE], ids=["one by one", "at once"])
def test_brains_are_told_of_ends_in_their_order(parts: Any, tmp_path: Path) -> None:
    """In turns, a row is told before its episode ends; with workers, both are on their way together."""
    agents = [
        steerer(parts, {"environment": "e", "count": 2}),
        steerer(AT_ONCE, {"environment": "o"}, name="b"),
    ]
    around = [drift(batch=2, drawn=False), drift("o", drawn=False)]
    doc = drifting(
        around,
        agents,
        ends={"when": "all", "episodes": 3},
        controller="taking_turns",
        workers=2,
        sync_every=100,
    )
    with Store(tmp_path, create=True) as store:
        result = execute(doc, store=store)
        steps = store.steps(result.instance, phase=0, agent="a")
    assert result.directory is not None
    memory = load_arrays([FileBrainDumper(result.directory / "brains", doc.uid, "phase_0", "a")])
    ended = memory["terminated"] | memory["truncated"]
    for body in (0, 1):
        rows = steps[(steps["body"] == body) & (steps["worker"] == 0)].sort_values("step")
        wanted = np.flatnonzero(rows["terminated"] | rows["truncated"]).tolist()
        found = np.flatnonzero(ended[memory["muscles"] == f"a.0.{body}"]).tolist()
        assert found == wanted
        assert len(wanted) > 2


def test_workers_tell_brains_of_a_tick_at_once(tmp_path: Path) -> None:
    """What is learned from rows at once is the same in this process and from others."""
    doc = {
        workers: drifting(
            [drift(batch=3)],
            [
                steerer(
                    {**AT_ONCE, "brain": "SeerOfAll", "muscle": "AheadAll"}, {"environment": "e", "count": 3}
                )
            ],
            workers=workers,
        )
        for workers in (1, 2)
    }
    told = []
    for workers in (1, 2):
        with Store(tmp_path / str(workers), create=True) as store:
            result = execute(doc[workers], store=store)
            frame = store.statistics(result.instance)
            told.append(frame[frame["worker"] == 0].groupby("step").size().to_dict())
    assert told[0] == told[1]


def test_filters_of_all_bodies_know_the_same_when_they_are_tested(monkeypatch: Any) -> None:
    known = []
    run_episode = Worker.run_episode

    def looked(self: Worker, task: Any, loop: Any) -> Any:
        if task.evaluation:
            known.append([repr(body.filters and body.filters.state()) for body in self.bodies])
        return run_episode(self, task, loop)

    monkeypatch.setattr(Worker, "run_episode", looked)
    one = steerer(ALONE, {"environment": "e", "count": 3})
    one["filters"] = [named(f"{NormFilter.__module__}:NormFilter")]
    execute(drifting([drift(batch=3, drawn=False)], [one], episodes=1, evaluate_every=1))
    ((first, *others),) = known
    assert "None" not in first
    assert [state == first for state in others] == [True, True]


class Ended(DummyEnvironment):
    """Ends as it begins."""

    def reset(self) -> Any:
        state = super().reset()
        state.terminated = True
        return state


def test_copies_refuse_to_end_as_they_begin() -> None:
    around = environment("e", f"{Copies.__module__}:Copies", batch=2)
    around["environment"]["params"]["name"] = f"{HERE}:Ended"
    doc = drifting([around], [agent(sensors=["e.0.0"], actuators=["e.0.0"])])
    with pytest.raises(
        ContractError, match=r"copy 0 of environment 'e' .*:Ended\) ended with the first state"
    ):
        execute(doc)


@pytest.mark.parametrize("other", ["e.0", "e.1"])
def test_no_environment_is_called_as_an_incarnation(other: str) -> None:
    doc = drifting([drift(batch=2), environment(other)], [steerer(None, {"environment": "e", "count": 2})])
    assert any(f"two environments are called {other!r}" in str(problem) for problem in inspect(doc))


def test_a_uid_may_begin_like_another() -> None:
    doc = drifting(
        [drift(batch=2), drift("e.0.place")],
        [steerer(None, {"environment": "e", "count": 2}, {"environment": "e.0.place"})],
        episodes=1,
    )
    execute(doc)


def test_no_uid_holds_the_placeholder() -> None:
    with pytest.raises(DocumentError, match=r"may not hold '\{body\}'"):
        drifting([drift("a{body}")], [steerer(None, {"environment": "a{body}"})])


def test_bodies_on_the_same_incarnations_are_warned_of() -> None:
    doc = drifting(
        [drift(batch=3)], [steerer(None, {"environment": "e", "count": 2}, {"environment": "e", "count": 1})]
    )
    inspection = Inspection(doc)
    inspection.environments.close()
    assert not inspection.problems
    (warning,) = inspection.warnings
    assert "'e.0.push' is set by body 0 of agent 'a' and body 2 of agent 'a'" in str(warning)
    assert warning.path.endswith("agents.0.bodies.1")


class Telling(SteerAll):
    """Reports what its brain reports, too."""

    def propose_batch(self, batch: Any) -> Any:
        self.add_statistics("weight", 1.0)
        return super().propose_batch(batch)


class TellingAlone(Steer):
    """The same for one body."""

    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        self.add_statistics("weight", 1.0)
        return super().propose_actions(sensors, actuators_available)


@pytest.mark.parametrize(("muscle", "brain"), [("Telling", "SeerOfAll"), ("TellingAlone", "Seer")])
def test_muscle_and_brain_do_not_report_the_same(muscle: str, brain: str) -> None:
    one = steerer({**AT_ONCE, "brain": brain}, {"environment": "e", "count": 3})
    one["muscle"] = named(f"{HERE}:{muscle}")
    with pytest.raises(ContractError, match="agent 'a' both report the statistic 'weight'"):
        execute(drifting([drift(batch=3)], [one]))


class Texts(SteerAll):
    def propose_batch(self, batch: Any) -> Any:
        return [["x"]] * len(batch.bodies), None


class Lazy(SteerAll):
    def propose_batch(self, batch: Any) -> Any:
        answer, data = super().propose_batch(batch)
        return answer, iter(data)


@pytest.mark.parametrize(
    ("muscle", "said"),
    [
        ("Texts", ":Texts.: propose_batch must return set-points as numbers"),
        ("Lazy", "returned data that is"),
    ],
)
def test_wrong_answers_name_the_muscle(muscle: str, said: str) -> None:
    one = steerer(None, {"environment": "e", "count": 2})
    one["muscle"] = named(f"{HERE}:{muscle}")
    with pytest.raises(ContractError, match=said):
        execute(drifting([drift(batch=2)], [one]))


def test_bodies_share_no_actuator_of_a_co_simulation() -> None:
    around = environment("net", "support.vectors:VectorWorld")
    doc = document(phase([around], [steerer(None, {"environment": "net", "count": 2})]))
    problems = [str(problem) for problem in inspect(doc)]
    assert any("belongs to body 0 of agent 'a' and to body 1 of agent 'a'" in problem for problem in problems)


@pytest.mark.parametrize(
    ("pattern", "common"),
    [
        ("w.lane-{body}.x", ["w.lane-{body}.x"]),
        ("w.lane-{body}.*", ["w.lane-{body}.x", "w.lane-{body}.1"]),
        ("w.*-{body}.?", ["w.lane-{body}.x", "w.lane-{body}.1"]),
        ("w.lane-[!{body}].x", ["w.lane-0.x"]),
    ],
)
def test_names_of_alike_bodies_have_the_placeholder_where_the_pattern_has_it(
    pattern: str, common: list[str]
) -> None:
    class Lanes(DummyEnvironment):
        def setup(self) -> Any:
            baseline = super().setup()
            sensor = baseline.sensors[0]
            names = [f"lane-{lane}.{what}" for lane in (0, 1) for what in ("x", "1")]
            baseline.sensors = [SensorInformation(sensor.value, sensor.space, name) for name in names]
            return baseline

    domain = Lanes()
    domain.uid = "w"
    body = BodySpec(
        ClassSpec("a:B"), sensors=(pattern,), actuators=("w.0",), count=1, first=1, environment="w"
    )
    (group,), faults = place_bodies(AgentSpec("a", body.muscle, bodies=(body,)), [open_handle(domain)])
    assert not faults
    assert group.common(group.names()[0], body.sensors) == common
