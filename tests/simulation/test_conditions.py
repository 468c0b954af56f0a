"""Flow control: the numbers of the specification, and faults that must not come back."""

from __future__ import annotations

import re

import pytest
from support.documents import (
    AGENT_OBJECTIVE,
    DUMMY,
    ENVIRONMENT_ENDS,
    MAX_EPISODES,
    VANILLA_RUN,
    VANILLA_SIMULATION,
    agent,
    document,
    environment,
    named,
    phase,
)

from palaestrai_mosaik.core.errors import ContractError, DocumentError
from palaestrai_mosaik.experiment import from_mapping
from palaestrai_mosaik.runner import Interrupt, execute, inspect
from palaestrai_mosaik.simulation.conditions import AgentObjectiveTerminationCondition, TerminationCondition
from palaestrai_mosaik.simulation.coordinator import ask
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.types import SimulationFlowControl

RAMP = "support.parts:Ramp"


def ramp_agent(name="My Agent", uid="myenv", **keys):
    return agent(name, **{"sensors": [f"{uid}.x"], "actuators": [f"{uid}.u"],
                          "muscle": named("support.parts:Returning", what="good list"), "brain": None, **keys})  # fmt: skip


def ramp(uid="myenv", **params):
    return environment(uid, RAMP, **params)


def episodes(doc, tmp_path):
    """Run the document; return (worker, episode, steps, ended_by) in order, and the reason."""
    with Store(tmp_path, create=True) as store:
        result = execute(doc, store=store)
        frame = store.episodes(result.instance).drop_duplicates(["phase", "worker", "episode"])
        rows = [tuple(row) for row in frame[["worker", "episode", "steps", "ended_by"]].to_numpy()]
        return rows, [p.reason for p in result.phases]


def objective(**thresholds):
    return named(AGENT_OBJECTIVE, **{"My Agent": thresholds})


#: the usual end of a phase, and a phase_avgN, so that brain_avgN ends episodes only
GOES_ON = [named(VANILLA_RUN), objective(phase_avg99=0)]


def test_brain_avg_ends_the_rising_episode_after_105_steps_with_a_mean_of_53(tmp_path):
    # objective 1, 2, 3, ...: (96 + ... + 105) / 10 = 100.5 is the first mean >= 100, and
    # (1 + ... + 105) / 105 = 53, so phase_avg10: 100 never holds; 12 episodes are the end
    doc = document(
        phase([ramp()], [ramp_agent()], [objective(brain_avg10=100)], episodes=12),
        run=[objective(phase_avg10=100), named(MAX_EPISODES)],
    )
    rows, reasons = episodes(doc, tmp_path)
    assert rows == [(0, e, 105, "AgentObjectiveTerminationCondition") for e in range(12)]
    assert reasons == ["MaxEpisodesTerminationCondition"]
    with Store(tmp_path, create=True) as store:
        assert set(store.episodes("latest")["objective_mean"]) == {53.0}


def test_phase_avg_ends_the_phase_once_there_are_enough_episodes(tmp_path):
    doc = document(
        phase([ramp()], [ramp_agent()], [objective(brain_avg10=100)], episodes=None),
        run=[objective(brain_avg10=100, phase_avg10=53)],
    )
    rows, reasons = episodes(doc, tmp_path)
    assert len(rows) == 10
    assert reasons == ["AgentObjectiveTerminationCondition"]


def test_nothing_is_computed_before_there_are_n_values(tmp_path):
    # 20 steps an episode never fill a window of 21
    doc = document(
        phase(
            [ramp(max_steps=20)],
            [ramp_agent()],
            [named(ENVIRONMENT_ENDS), objective(brain_avg21=0)],
            episodes=2,
        )
    )
    rows, _ = episodes(doc, tmp_path)
    assert rows == [(0, e, 20, "EnvironmentTerminationCondition") for e in range(2)]
    doc = document(
        phase(
            [ramp(max_steps=20)],
            [ramp_agent()],
            [named(ENVIRONMENT_ENDS), objective(brain_avg19=0)],
            episodes=2,
        ),
        run=GOES_ON,
    )
    rows, _ = episodes(doc, tmp_path)
    assert rows == [(0, e, 19, "AgentObjectiveTerminationCondition") for e in range(2)]


def test_the_seeds_ten_episodes_have_a_mean_of_12_1():
    means = [10, 11, 6, 12, 15, 20, 17, 11, 9, 10]
    history = [[{"My Agent": float(m)} for m in means]]

    class View:
        pass

    view = View()
    view.history = history
    for threshold, expected in ((8.9, 4), (12.1, 4), (12.2, 0)):
        condition = AgentObjectiveTerminationCondition(
            **{"My Agent": {"brain_avg100": 8.9, "phase_avg10": threshold}}
        )
        assert condition.phase_flow_control(view) == expected
    view.history = [history[0][:9]]
    condition = AgentObjectiveTerminationCondition(**{"My Agent": {"phase_avg10": 0}})
    assert condition.phase_flow_control(view) == SimulationFlowControl.CONTINUE


def test_phase_avg_must_hold_for_every_worker():
    condition = AgentObjectiveTerminationCondition(a={"phase_avg2": 1.0})

    class View:
        pass

    view = View()
    good, bad = [{"a": 1.0}, {"a": 1.0}], [{"a": 3.0}, {"a": -2.0}]
    for history, expected in (
        ([good, bad], 0),
        ([good, good[:1]], 0),
        ([good, good], 4),
        ([good, bad + good], 4),
    ):
        view.history = history
        assert condition.phase_flow_control(view) == expected


def test_phase_avg_with_two_workers_runs_both(tmp_path):
    doc = document(
        phase([ramp()], [ramp_agent()], [objective(brain_avg1=4)], episodes=None, workers=2),
        run=[objective(phase_avg3=2.5)],
    )
    rows, reasons = episodes(doc, tmp_path)
    assert [row[:3] for row in rows] == [(0, 0, 4), (1, 0, 4), (0, 1, 4), (1, 1, 4), (0, 2, 4), (1, 2, 4)]
    assert reasons == ["AgentObjectiveTerminationCondition"]


def test_brain_avg_without_phase_avg_ends_the_phase_with_the_first_agent(tmp_path):
    doc = document(
        phase([ramp()], [ramp_agent()], [objective(brain_avg10=100)], episodes=None, workers=2),
        run=[objective(brain_avg10=100)],
    )
    rows, reasons = episodes(doc, tmp_path)
    assert [row[:3] for row in rows] == [(0, 0, 105), (1, 0, 105)]
    assert reasons == ["AgentObjectiveTerminationCondition"]


def test_brain_avg_below_simulation_ends_the_phase_where_there_is_no_phase_avg(tmp_path):
    doc = document(phase([ramp()], [ramp_agent()], [objective(brain_avg10=100)], episodes=5))
    rows, reasons = episodes(doc, tmp_path)
    assert rows == [(0, 0, 105, "AgentObjectiveTerminationCondition")]
    assert reasons == ["AgentObjectiveTerminationCondition"]
    # nothing else has to end such a phase
    doc = document(phase([ramp()], [ramp_agent()], [objective(brain_avg10=100)], episodes=None))
    assert inspect(doc) == []


def test_the_phase_avg_of_another_agent_changes_nothing(tmp_path):
    thresholds = named(AGENT_OBJECTIVE, one={"brain_avg1": 5}, two={"brain_avg1": 4, "phase_avg9": 1e9})
    doc = document(
        phase([ramp(max_steps=9)], [ramp_agent("one"), ramp_agent("two")], episodes=3),
        run=[thresholds, named(MAX_EPISODES)],
    )
    # two ends every episode at 4, before one could end the phase at 5
    rows, _ = episodes(doc, tmp_path / "first")
    assert [row[:3] for row in rows] == [(0, e, 4) for e in range(3)]
    thresholds["params"]["one"] = {"brain_avg1": 3}
    doc = document(
        phase([ramp(max_steps=9)], [ramp_agent("one"), ramp_agent("two")], episodes=3),
        run=[thresholds, named(MAX_EPISODES)],
    )
    rows, reasons = episodes(doc, tmp_path / "second")
    assert [row[:3] for row in rows] == [(0, 0, 3)]
    assert reasons == ["AgentObjectiveTerminationCondition"]


def test_phase_avg_needs_no_brain_avg(tmp_path):
    doc = document(
        phase([ramp(max_steps=4)], [ramp_agent()], episodes=None),
        run=[objective(phase_avg3=2.5), named(ENVIRONMENT_ENDS)],
    )
    rows, reasons = episodes(doc, tmp_path)
    assert [row[:3] for row in rows] == [(0, e, 4) for e in range(3)]
    assert reasons == ["AgentObjectiveTerminationCondition"]


def test_several_episodes_end_when_environment_termination_is_the_only_condition(tmp_path):
    doc = document(phase([ramp(max_steps=4)], [ramp_agent()], episodes=3), run=[named(ENVIRONMENT_ENDS)])
    rows, reasons = episodes(doc, tmp_path)
    assert rows == [(0, e, 4, "EnvironmentTerminationCondition") for e in range(3)]
    assert reasons == ["episodes"]


@pytest.mark.parametrize("workers", [1, 2])
def test_max_episodes_alone_ends_a_phase(tmp_path, workers):
    doc = document(
        phase([ramp(max_steps=4)], [ramp_agent()], [named(MAX_EPISODES)], episodes=3, workers=workers),
        run=[named(MAX_EPISODES)],
    )
    rows, reasons = episodes(doc, tmp_path)
    assert [row[:3] for row in rows] == [(w, e, 4) for e in range(3) for w in range(workers)]
    assert reasons == ["MaxEpisodesTerminationCondition"]


def test_a_brain_avg_condition_together_with_the_vanilla_one_ends(tmp_path):
    doc = document(
        phase(
            [ramp(max_steps=50)],
            [ramp_agent()],
            [named(VANILLA_SIMULATION), objective(brain_avg10=20)],
            episodes=2,
        ),
        run=GOES_ON,
    )
    rows, reasons = episodes(doc, tmp_path)
    # (16 + ... + 25) / 10 = 20.5
    assert rows == [(0, e, 25, "AgentObjectiveTerminationCondition") for e in range(2)]
    assert reasons == ["VanillaRunGovernorTerminationCondition"]


@pytest.mark.parametrize(("first", "second", "steps"), [(9.0, 5.0, 5), (5.0, 9.0, 5)])
def test_two_agents_with_thresholds_each_count(tmp_path, first, second, steps):
    thresholds = named(AGENT_OBJECTIVE, one={"brain_avg1": first}, two={"brain_avg1": second})
    doc = document(
        phase(
            [ramp(max_steps=50)],
            [ramp_agent("one"), ramp_agent("two")],
            [named(ENVIRONMENT_ENDS), thresholds],
        )
    )
    rows, _ = episodes(doc, tmp_path)
    assert rows == [(0, 0, steps, "AgentObjectiveTerminationCondition")]


def test_averages_are_per_episode_and_worker(tmp_path):
    # (7 + 8 + 9) / 3 = 8, (8 + 9 + 10) / 3 = 9; a window reaching into the episode before
    # (9 + 10 + 1) / 3 or over both workers (8 + 9 + 9) / 3 would end it elsewhere
    doc = document(
        phase([ramp(max_steps=10)], [ramp_agent()], [named(ENVIRONMENT_ENDS), objective(brain_avg3=8.5)],
              episodes=3, workers=2),
        run=GOES_ON,
    )  # fmt: skip
    rows, _ = episodes(doc, tmp_path)
    assert [row[2] for row in rows] == [10] * 6


def test_phase_config_of_a_later_phase_keeps_workers_and_episodes(tmp_path):
    later = {"phase_config": {"mode": "test"}}
    doc = document(phase([ramp(max_steps=2)], [ramp_agent()], episodes=3, workers=2), later)
    rows, _ = episodes(doc, tmp_path)
    assert len(rows) == 12
    assert doc.phases[1].mode.value == "test"


def test_the_first_of_the_strongest_wins_and_is_named(tmp_path):
    wishes = [named("support.parts:Wishes", flow=flow) for flow in ("RESET", "STOP_PHASE", "RESET")]
    doc = document(phase([ramp(max_steps=9)], [ramp_agent()], wishes, episodes=5))
    rows, reasons = episodes(doc, tmp_path)
    assert [row[:3] for row in rows] == [(0, 0, 2)]
    assert reasons == ["Wishes"]


@pytest.mark.parametrize(
    ("flow", "expected"),
    [
        ("CONTINUE", [(0, 0, 3), (1, 0, 3), (0, 1, 3), (1, 1, 3)]),
        ("RESET", [(0, 0, 2), (1, 0, 2), (0, 1, 2), (1, 1, 2)]),
        ("RESTART", [(0, 0, 2), (1, 0, 2), (0, 1, 2), (1, 1, 2)]),
        ("STOP_SIMULATION", [(0, 0, 2), (1, 0, 2)]),
        # the workers run side by side: what one of them wishes ends the phase after this round
        ("STOP_PHASE", [(0, 0, 2), (1, 0, 2)]),
        ("SHUTDOWN", [(0, 0, 2), (1, 0, 2)]),
    ],
)
def test_flow_control_values(tmp_path, flow, expected):
    one = phase(
        [ramp(max_steps=3)],
        [ramp_agent()],
        [named(ENVIRONMENT_ENDS), named("support.parts:Wishes", flow=flow)],
        episodes=2,
        workers=2,
    )
    doc = document(
        one, {"simulation": {"conditions": [named(ENVIRONMENT_ENDS)]}, "phase_config": {"episodes": 1}}
    )
    with Store(tmp_path, create=True) as store:
        result = execute(doc, store=store)
        frame = store.episodes(result.instance, phase=0).drop_duplicates(["worker", "episode"])
        assert [tuple(r) for r in frame[["worker", "episode", "steps"]].to_numpy()] == expected
        assert len(result.phases) == (1 if flow == "SHUTDOWN" else 2)


def test_restart_builds_environment_and_muscle_anew_and_reset_does_not(tmp_path):
    for flow, built in (("RESET", 1), ("RESTART", 3)):
        doc = document(
            phase(
                [ramp(max_steps=9)],
                [ramp_agent(muscle=named(f"{DUMMY}:DummyMuscle", count_upwards=False),
                            brain=named(f"{DUMMY}:DummyBrain"))],
                [named("support.parts:Wishes", flow=flow)],
                episodes=3,
            )
        )  # fmt: skip
        from support import parts

        parts.Ramp.built = 0
        original = parts.Ramp.__init__

        def counting(self, *args, original=original, **kwargs):
            parts.Ramp.built += 1
            original(self, *args, **kwargs)

        parts.Ramp.__init__ = counting
        try:
            execute(doc)
        finally:
            parts.Ramp.__init__ = original
        assert parts.Ramp.built == built


@pytest.mark.parametrize(
    ("thresholds", "words"),
    [
        ({"brain_agv10": 1}, "brain_agv10"),
        ({"brain_avg0": 1}, "brain_avg0"),
        ({"phase_avg10": "high"}, "must be a number"),
        ({}, "no thresholds"),
    ],
)
def test_wrong_thresholds_are_refused_before_anything_runs(thresholds, words):
    with pytest.raises((DocumentError, ContractError), match=words):
        AgentObjectiveTerminationCondition(**({"My Agent": thresholds} if thresholds else {}))
    with pytest.raises(DocumentError, match=words):
        execute(document(phase([ramp(max_steps=2)], [ramp_agent()], [objective(**thresholds)])))


def refusal(doc):
    """Execute a document that must be refused; return why it was.

    The interrupt is requested already: what is not refused ends at its first step, and not never.
    """
    interrupt = Interrupt()
    interrupt.request()
    with pytest.raises(DocumentError) as refused:
        execute(doc, interrupt=interrupt)
    return str(refused.value)


def test_a_phase_that_nothing_can_end_is_refused():
    endless = document(
        phase([ramp(max_steps=2)], [ramp_agent()], episodes=None), run=[named(ENVIRONMENT_ENDS)]
    )
    assert "phase 'phase_0' can never end" in refusal(endless)
    only_brain = document(
        phase([ramp(max_steps=2)], [ramp_agent()], episodes=None), run=[named(MAX_EPISODES)]
    )
    assert "can never end" in refusal(only_brain)
    endless_episode = document(
        phase([ramp()], [ramp_agent()], [named(ENVIRONMENT_ENDS)]), run=[named(VANILLA_RUN)]
    )
    assert re.search(r"no episode of phase 'phase_0' can ever end: .*'myenv'", refusal(endless_episode))


def test_a_mistake_in_a_phase_that_is_named_as_a_section_hides_no_endless_phase():
    mistaken = phase(agents=[agent(muscle=named(f"{DUMMY}:DummyMuscle", wrong=1))])
    endless = phase([ramp()], [ramp_agent()], [named(ENVIRONMENT_ENDS)])
    end = {"conditions": [named(VANILLA_RUN)]}
    schedule = [{"simulation_1": mistaken}, {"endless": endless}]
    message = refusal(from_mapping({"uid": "test", "seed": 1, "schedule": schedule, "run_config": end}))
    assert "wrong" in message and "no episode of phase 'endless' can ever end" in message


def test_ask_names_the_first_with_the_strongest_wish():
    class Says(TerminationCondition):
        def __init__(self, flow):
            self.flow = flow

        def hook(self, view):
            return self.flow

    class Other(Says):
        pass

    reset, stop = SimulationFlowControl.RESET, SimulationFlowControl.STOP_PHASE
    assert ask([Says(reset), Other(stop), Says(stop)], "hook", None) == (stop, "Other")
    assert ask([], "hook", None) == (SimulationFlowControl.CONTINUE, "")


def test_thresholds_must_be_a_mapping():
    with pytest.raises(ContractError, match="must be a mapping"):
        AgentObjectiveTerminationCondition(a=5)
