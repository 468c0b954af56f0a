"""What a run tells the store about bodies, and trajectories of many bodies that fill a memory."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from palaestrai_mosaik.agent import Memory
from palaestrai_mosaik.environment.dummy import DummyEnvironment
from palaestrai_mosaik.environment.pendulum import BatchPendulum
from palaestrai_mosaik.experiment import RunDocument
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.runner.descriptions import agent_record, environment_record
from palaestrai_mosaik.runner.recorded_sessions import ReplayContext, read_sessions, replay
from palaestrai_mosaik.simulation.body_placement import place_bodies
from palaestrai_mosaik.simulation.environment_handle import open_handle
from palaestrai_mosaik.store import Store
from tests.support.documents import DUMMY, ENVIRONMENT_ENDS, document, environment, named, phase

PENDULUM = "palaestrai_mosaik.environment.pendulum:BatchPendulum"


def batch_document(uid: str, count: int = 3, **agent: object) -> RunDocument:
    learner = {
        "name": "learner",
        "brain": named(f"{DUMMY}:DummyBrain"),
        "muscle": named(f"{DUMMY}:DummyMuscle"),
        "objective": named(f"{DUMMY}:DummyObjective"),
        "bodies": [{"environment": "pendulum", "count": count}],
        **agent,
    }
    pendulum = environment("pendulum", PENDULUM, batch=count, max_steps=4)
    ends = named(ENVIRONMENT_ENDS, when="all", episodes=2)
    return document(phase([pendulum], [learner], [ends]), uid=uid)


def groups_of(doc: RunDocument, handles: list) -> list:
    (spec,) = doc.phases[0].agents
    return place_bodies(spec, handles)[0]


def pendulum_handle(batch: int = 3):
    domain = BatchPendulum(batch)
    domain.uid = "pendulum"
    return open_handle(domain)


def test_channels_of_alike_bodies_have_the_place_of_the_number():
    handle = pendulum_handle()
    doc = batch_document("x", bodies=[{"environment": "pendulum", "count": 2, "first": 1, "name": "swarm"}])
    record = agent_record(doc.phases[0].agents[0], groups_of(doc, [handle]))
    (body,) = record.bodies
    assert (body.group, body.name, body.first, body.count, body.environment) == (0, "swarm", 0, 2, "pendulum")
    assert body.number == 1, "the first of them sits in incarnation 1"
    assert [c.uid for c in body.sensors] == ["pendulum.{body}.observation"]
    assert [c.uid for c in body.actuators] == ["pendulum.{body}.action"]
    assert body.rewards == ["pendulum.{body}.reward"]
    around = environment_record(SimpleNamespace(name="P", params={}, frames=None), handle)
    assert around.incarnations == 3
    assert [c.uid for c in (*around.sensors, *around.rewards)] == [
        *("pendulum.{body}.observation", "pendulum.{body}.reward")
    ]


def test_only_channels_that_have_a_number_are_renamed():
    """Of ten plain sensors, the bodies 4 and 5 have one of their own, and share one called 4 of another kind."""
    domain = DummyEnvironment()
    domain.uid = "myenv"
    bodies = [{"count": 2, "first": 4, "sensors": ["myenv.{body}", "myenv.7"], "actuators": ["myenv.{body}"]}]
    doc = document(phase(agents=[{"name": "a", "muscle": named(f"{DUMMY}:DummyMuscle"), "bodies": bodies}]))
    (body,) = agent_record(doc.phases[0].agents[0], groups_of(doc, [open_handle(domain)])).bodies
    assert [c.uid for c in body.sensors] == ["myenv.{body}", "myenv.7"]
    assert (body.environment, body.number) == ("myenv", 4)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    with Store(folder, create=True) as store:
        execute(batch_document("recorded"), store=store)
    return folder


def test_trajectories_of_bodies_fill_the_memory_body_by_body(recorded):
    doc = batch_document("replaying", replay=[{"experiment_run": "recorded"}])
    spec, memory = doc.phases[0].agents[0], Memory()
    with Store(recorded, create=True) as store:
        steps = store.steps("recorded", agent="learner")
        count = replay(
            memory, spec, groups_of(doc, [pendulum_handle()]), ReplayContext(doc, doc.phases[0], None), store
        )
        assert count == len(steps) == 3 * 2 * 4, "three bodies, two episodes of four steps each"
        names = [f"reading.pendulum.{{body}}.observation[{i}]" for i in range(3)]
        rows = memory.tail(count)
        for body in range(3):
            own = [place for place, muscle in enumerate(rows.muscles) if muscle == f"replay-0.0.{body}"]
            wanted = steps[steps["body"] == body]
            assert rows.sensor_readings[own].tolist() == wanted[names].to_numpy().tolist()
            assert np.flatnonzero(rows.truncated[own]).tolist() == [3, 7], "its environment has two episodes"
        assert not rows.terminated.any()


def muscle_in(name: str, *patterns: str, **more: object) -> dict[str, object]:
    """An agent that reads and sets the same; with ``more``, that is one entry of its bodies."""
    channels = {"sensors": list(patterns), "actuators": list(patterns)}
    agent = {"name": name, "muscle": named(f"{DUMMY}:DummyMuscle")}
    return agent | ({"bodies": [channels | more]} if more else channels)


def test_bodies_are_found_in_the_incarnations_in_which_they_sit(tmp_path):
    """Not only where they sit one behind the other: they may share one, go backwards, or one body be in several."""
    agents = [
        muscle_in("pair", "pendulum.1.*", count=2),
        muscle_in("others", "pendulum.[!{body}].*", count=2, first=0),
        muscle_in("far", "pendulum.{body}.*", count=1, first=1),
        muscle_in("spread", "pendulum.*", "myenv.*"),
        muscle_in("alone", "pendulum.*"),
    ]
    around = [environment("pendulum", PENDULUM, batch=2, max_steps=3), environment("myenv")]
    with Store(tmp_path, create=True) as store:
        execute(document(phase(around, agents), uid="seats"), store=store)
        seats = store.bodies("seats").set_index("agent")["incarnations"].to_dict()
        assert seats == {"pair": [1, 1], "others": [1, 0], "far": [1], "spread": [], "alone": [0, 1]}

        def incarnations(**who: object) -> list[int]:
            states = store.environment_states("seats", environment="pendulum", **who)
            return sorted(states["incarnation"].unique())

        assert incarnations(agent="pair") == incarnations(agent="pair", body=1) == [1]
        assert [incarnations(agent="others", body=b) for b in range(2)] == [[1], [0]]
        assert incarnations(agent="far") == [1]
        assert incarnations(agent="spread") == incarnations(agent="alone") == [0, 1]
        assert store.body_episodes("seats")["complete"].all()
        states = store.environment_states("seats", environment="pendulum", incarnation=1)
        wanted = states[[f"reading.pendulum.{{body}}.observation[{i}]" for i in range(3)]].to_numpy()[-1]
        finals = read_sessions(store, "seats", agent="pair").sessions.by_session["final.0"]
        assert finals.tolist() == [wanted.tolist()] * 2
