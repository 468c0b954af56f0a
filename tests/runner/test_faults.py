"""Errors of users' code stop the run, are recorded, and leave nothing behind."""

from __future__ import annotations

import json

import pytest
from support.documents import DUMMY, agent, document, environment, named, phase

from palaestrai_mosaik.core.errors import ActionError, BrainDumpError, ContractError, DocumentError
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.store import Store

PARTS = "support.parts"


def run(tmp_path, *phases, **keys):
    with Store(tmp_path, create=True) as store:
        return execute(document(*phases, **keys), store=store)


def recorded(tmp_path):
    """Return the status, the error rows and the number of recorded steps."""
    with Store(tmp_path, create=True) as store:
        return store.runs().iloc[-1]["status"], store.errors("latest"), len(store.steps("latest"))


def muscle(name, **params):
    return agent("a", muscle=named(f"{PARTS}:{name}", **params))


@pytest.mark.parametrize("scheduler", ["direct", "mosaik"])
def test_a_muscle_that_raises_fails_the_run_and_keeps_what_was_recorded(tmp_path, scheduler):
    with pytest.raises(ValueError, match="had enough"):
        run(tmp_path, phase(agents=[muscle("Raising", after=4), agent("b", 5)], scheduler=scheduler))
    status, errors, steps = recorded(tmp_path)
    assert status == "failed"
    assert "this muscle has had enough" in errors.iloc[0]["traceback"]
    assert "propose_actions" in errors.iloc[0]["traceback"]
    # both acted at t = 0 to 3, and all of these rows have got their reward
    assert steps == 8
    with Store(tmp_path, create=True) as store:
        assert store.episodes("latest")["ended_by"].tolist() == ["failed", "failed"]


@pytest.mark.parametrize("where", ["step", "reset"])
def test_an_environment_that_raises_fails_the_run(tmp_path, where):
    broken = environment("myenv", f"{PARTS}:Broken", where=where)
    one = agent("a", sensors=["myenv.x"], actuators=["myenv.u"],
                muscle=named(f"{PARTS}:Returning", what="good list"))  # fmt: skip
    with pytest.raises(RuntimeError, match=f"broken in {where}"):
        run(tmp_path, phase([broken], [one]))
    assert recorded(tmp_path)[0] == "failed"


def test_an_environment_that_raises_in_setup_is_a_problem_of_the_document(tmp_path):
    broken = environment("myenv", f"{PARTS}:Broken", where="setup")
    with pytest.raises(
        DocumentError,
        match=r"environment 'myenv' \(support.parts:Broken\) cannot be set up: RuntimeError: broken in setup",
    ):
        run(tmp_path, phase([broken], [agent("a", sensors=["myenv.x"], actuators=[])]))


def test_an_environment_that_raises_in_shutdown_fails_the_run(tmp_path):
    broken = environment("myenv", f"{PARTS}:Broken", where="shutdown")
    one = agent("a", sensors=["myenv.x"], actuators=[], muscle=named(f"{PARTS}:Returning", what="good list"))
    one["actuators"] = ["myenv.u"]
    with pytest.raises(RuntimeError, match="broken in shutdown"):
        run(tmp_path, phase([broken], [one]))
    assert recorded(tmp_path)[0] == "failed"


@pytest.mark.parametrize("where", ["setup", "thinking", "store"])
def test_a_brain_that_raises_fails_the_run(tmp_path, where):
    with pytest.raises(RuntimeError, match=f"brain broken in {where}"):
        run(tmp_path, phase(agents=[agent("a", brain=named(f"{PARTS}:RaisingBrain", where=where))]))
    status, errors, _ = recorded(tmp_path)
    assert status == "failed"
    assert f"brain broken in {where}" in errors.iloc[0]["traceback"]


@pytest.mark.parametrize(
    ("what", "error", "words"),
    [
        ("nothing", ContractError, "must return"),
        ("foreign", ContractError, "'foreign.1' is not one of the agent's"),
        ("numbers", ContractError, "must return actuators, not 1"),
        ("list only", ContractError, "must return"),
        ("wild vector", ActionError, "'myenv.0' is not in Discrete"),
        ("wild value", ActionError, r"-5 of actuator 'myenv.1' is not in Discrete\(100\)"),
    ],
)
def test_what_a_muscle_returns_is_checked(tmp_path, what, error, words):
    with pytest.raises(error, match=words):
        run(tmp_path, phase(agents=[muscle("Returning", what=what)]))


def test_names_of_sensors_are_checked_before_anything_runs(tmp_path):
    wrong = agent("a", sensors=["myenv.0", "myenv.11"], actuators=["myenv.x"])
    with pytest.raises(DocumentError) as caught:
        run(tmp_path, phase(), {"agents": [wrong]})
    problems = [str(p) for p in caught.value.problems]
    assert len(problems) == 2
    assert (
        "schedule.1.phase_1.agents.0.sensors.1: no sensor 'myenv.11' (did you mean 'myenv.1'?)" in problems[0]
    )
    assert "environment 'myenv' offers myenv.0, myenv.1" in problems[1]
    with Store(tmp_path, create=True) as store:
        assert len(store.runs()) == 0


def test_an_agent_without_sensors_and_actuators_is_refused(tmp_path):
    with pytest.raises(DocumentError, match="would never act"):
        run(tmp_path, phase(agents=[agent("a", sensors=[], actuators=[])]))


def test_a_class_of_the_wrong_kind_is_refused(tmp_path):
    with pytest.raises(DocumentError, match="DummyBrain"):
        run(tmp_path, phase(agents=[agent("a", muscle=named(f"{DUMMY}:DummyBrain"))]))


def test_a_brain_is_loaded_from_the_previous_phase(tmp_path):
    result = run(
        tmp_path,
        phase(agents=[agent("a")], episodes=2),
        {"agents": [{"name": "a", "load": {}}], "phase_config": {"mode": "test"}},
        {"agents": [{"name": "a", "load": {"phase": 0}}], "phase_config": {"mode": "train", "episodes": 1}},
    )
    counts = [
        json.loads(path.read_bytes().partition(b"\n")[2])["count"]
        for path in sorted((result.directory / "brains").rglob("brain.bin"))
    ]
    # 20 steps in training; the test phase does not learn; the third starts from phase 0
    assert counts == [20, 20, 10]


@pytest.mark.parametrize(
    ("load", "words"),
    [
        ({"agent": "nobody"}, "nobody"),
        ({"base": "nowhere", "phase_name": "phase_0", "agent": "a", "experiment_run": "test2"}, "test2"),
        ({"phase": 7}, "phase"),
        ({"phase_name": "phase_9"}, "phase_9"),
        ({"experiment_run": "elsewhere", "phase": 0}, "elsewhere"),
    ],
)
def test_a_brain_that_cannot_be_loaded_is_an_error(tmp_path, load, words):
    with pytest.raises((BrainDumpError, DocumentError), match=words):
        run(tmp_path, phase(agents=[agent("a")]), {"agents": [{"name": "a", "load": load}]})


def test_a_damaged_dump_is_an_error(tmp_path):
    base = tmp_path / "brains"
    target = base / "test" / "phase_0" / "a"
    target.mkdir(parents=True)
    (target / "brain.bin").write_bytes(b"\xff\x00 not a dump")
    with pytest.raises(BrainDumpError, match="'a' is damaged"):
        run(tmp_path, phase(agents=[agent("a", load={"base": str(base), "phase_name": "phase_0"})]))


def test_a_brain_is_loaded_from_another_run_and_agent(tmp_path):
    run(tmp_path, phase(agents=[agent("a")]), uid="teacher")
    load = {"experiment_run": "teacher", "agent": "a", "phase": 0}
    result = run(tmp_path, phase(agents=[agent("pupil", load=load)], mode="test"), uid="pupil")
    (path,) = (result.directory / "brains").rglob("brain.bin")
    assert json.loads(path.read_bytes().partition(b"\n")[2])["count"] == 10


def test_the_store_path_of_a_brain_keeps_a_copy_that_base_loads(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    keeping = agent("a", brain=named(f"{DUMMY}:DummyBrain", store_path="./custom"))
    run(
        tmp_path,
        phase(agents=[keeping]),
        {"agents": [{"name": "a", "load": {"base": "./custom", "phase_name": "phase_0"}}]},
    )
    assert (tmp_path / "custom" / "test" / "phase_0" / "a" / "brain.bin").is_file()


def test_an_objective_without_a_value_is_left_out_of_averages(tmp_path):
    one = agent("a", objective=named(f"{PARTS}:Absent"))
    run(tmp_path, phase(agents=[one]))
    with Store(tmp_path, create=True) as store:
        (row,) = store.episodes("latest").to_dict("records")
        # readings 0, 1, ..., 9: the even ones are 0, 2, 4, 6, 8
        assert row["objective_mean"] == 4.0
        assert row["objective_sum"] == 20.0
        assert store.steps("latest")["objective"].isna().sum() == 5


def test_patterns_name_sensors_and_actuators(tmp_path):
    several = agent("a", sensors=["myenv.7", "myenv.[0-2]"], actuators=["myenv.?"])
    run(tmp_path, phase(agents=[several]))
    with Store(tmp_path, create=True) as store:
        columns = list(store.steps("latest").columns)
    assert [c for c in columns if c.startswith("reading")] == [f"reading.myenv.{i}" for i in (7, 0, 1, 2)]
    assert [c for c in columns if c.startswith("setpoint")] == [f"setpoint.myenv.{i}" for i in range(10)]
    with pytest.raises(DocumentError, match=r"no sensor matches the pattern 'myenv.x\*'"):
        run(tmp_path, phase(agents=[agent("a", sensors=["myenv.x*"])]))


@pytest.mark.parametrize("stored", [True, False])
def test_statistics_are_recorded_or_dropped(tmp_path, stored):
    """Those of a muscle, and those of a brain, which come with the row that it thinks about."""
    telling = agent("a", muscle=named(f"{PARTS}:Telling"), brain=named(f"{PARTS}:TellingBrain"))
    doc = document(phase(agents=[telling]))
    if not stored:
        execute(doc)
        return
    with Store(tmp_path, create=True) as store:
        execute(doc, store=store)
        found = {key: store.statistics("latest", key=key) for key in ("reading", "objective")}
    for rows in found.values():
        assert rows["step"].tolist() == list(range(10))
    assert found["reading"]["value"].tolist() == list(range(10))
    # the objective of the dummy environment's steps: the number of the step
    assert found["objective"]["value"].tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 0.0]
