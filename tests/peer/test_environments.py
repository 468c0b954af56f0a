"""Environments, rewards, transformers and conditions that derive from palaestrAI's classes run here."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

pytest.importorskip("palaestrai")

from support import palaestrai_environments as parts
from support.documents import agent, document, environment, named, phase

from palaestrai_mosaik.core.errors import ContractError, DocumentError
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.runner.factory import make_handle
from palaestrai_mosaik.runner.preflight import inspect
from palaestrai_mosaik.store import Store

PARTS = "support.palaestrai_environments"
CONSTANT = "palaestrai_mosaik.agent.library.constant:ConstantMuscle"
AGGREGATE = "palaestrai_mosaik.agent.library.aggregate:AggregateRewardsObjective"


@pytest.fixture(autouse=True)
def log(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    parts.LOG.clear()
    return parts.LOG


def tank(**keys):
    return {**environment("tank", f"{PARTS}:Tank", **keys.pop("params", {})), **keys}


def filler(name="filler", inflow="tank.inflow.1", value=2.0):
    return agent(
        name,
        muscle=named(CONSTANT, values=value),
        objective=named(AGGREGATE, rewards="near three"),
        sensors=["tank.level", "tank.noise"],
        actuators=[inflow],
    )


def test_an_environment_of_palaestrai_goes_as_there(log):
    with Store(create=True) as store:
        execute(document(phase([tank()], [filler()], episodes=2)), store=store)
        states = store.environment_states("latest")
        steps = store.steps("latest")
    # one object is looked at, one lives on; a reset shuts down and starts again
    once = ["starts for the 1. time", "inflow.0=", "shuts down"]
    assert [line[:9] for line in log[:3]] == [line[:9] for line in once]
    assert log[3:] == [
        "starts for the 1. time",
        *3 * ["inflow.1=2"],
        "shuts down",
        "starts for the 2. time",
        *3 * ["inflow.1=2"],
        "shuts down",
    ]
    # 2 + 2 - 1 = 3, 4, 5; the last state leaves its sensors out, so that they stay as they were
    assert states["reading.tank.level"].tolist() == 2 * [2, 3, 4, 4]
    np.testing.assert_array_equal(states["reward.tank.near three"], 2 * [np.nan, 0, -1, -2])
    assert states["terminated"].tolist() == 2 * [False, False, False, True]
    assert not states["truncated"].any()
    assert np.isnan(states["reading.tank.noise[0]"][0])
    assert states["state"].tolist()[1] == {
        "level": 3.0,
        "sensors": [{"uid": "level", "value": [3.0]}],
        "time": {"ticks": 1, "date": None},
    }
    assert steps["objective"].tolist() == 2 * [0, -1, -2]


def test_taking_turns_only_what_is_set_at_a_turn_is_handed_on_and_late_is_truncated(log):
    agents = [filler("a", "tank.inflow.0", 1.0), filler("b", "tank.inflow.1", 0.5)]
    with Store(create=True) as store:
        execute(document(phase([tank()], agents, controller="taking_turns")), store=store)
        states = store.environment_states("latest")
    assert log[4:-1] == 3 * ["inflow.0=1", "inflow.1=0.5"]
    assert states["truncated"].tolist() == 6 * [False] + [True]
    assert not states["terminated"].any()
    assert states["reading.tank.level"].tolist() == [2, 2, 1.5, 1.5, 1, 1, 0.5]


@pytest.mark.filterwarnings(
    "ignore:id .*deprecated:DeprecationWarning"
)  # palaestrAI's own, for numbers as ids
def test_what_an_environment_draws_comes_from_the_tree_of_seeds():
    def drawn(seed, number=1, workers=1):
        agents = [agent(f"a{i}", sensors=[f"e{i}.0"], actuators=[f"e{i}.0"]) for i in range(number)]
        environments = [environment(f"e{i}", f"{PARTS}:AsynchronousTank") for i in range(number)]
        with Store(create=True) as store:
            execute(
                document(phase(environments, agents, episodes=2, workers=workers), seed=seed), store=store
            )
            assert not store.warnings("latest")["text"].str.contains("global").any()
            rows = store.environment_states("latest", environment="e0")
            return rows["reward.e0.drawn"].dropna().tolist()

    first = drawn(1)
    assert len(set(first)) == 6
    assert drawn(1, number=2) == first != drawn(2)
    again = drawn(1, workers=2)
    assert again == drawn(1, workers=2)
    assert len(set(again)) == 12


def test_what_rewards_transformers_and_conditions_draw_comes_from_the_tree_of_seeds():
    odd = "support.palaestrai_odd"
    drawing = {"reward": named(f"{odd}:DrawnReward"), "state_transformer": named(f"{odd}:DrawnState")}
    one = agent(objective=named(AGGREGATE, rewards="drawn"))

    def drawn(seed):
        schedule = phase([environment() | drawing], [one], [named(f"{odd}:Capricious")], episodes=3)
        with Store(create=True) as store:
            result = execute(document(schedule, seed=seed), store=store)
            assert result.warnings == []
            states = store.environment_states("latest")
            found = [*states["reward.myenv.drawn"], *states["state"]]
            assert len(set(found)) == len(found) >= 6
            return found, store.episodes("latest")["steps"].tolist()

    assert drawn(1) == drawn(1) != drawn(2)
    # each draws its own, and each episode is another one
    assert len({tuple(drawn(seed)[1]) for seed in range(4)}) > 1


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("none", r"update, for rewards, gave None; allowed is a list of palaestrAI's RewardInformation"),
        ("one", r"update, for rewards, gave RewardInformation\(.*; allowed is a list"),
        (
            "sensors",
            r"update, for sensors, gave \[0\.5\]; allowed is a list of palaestrAI's SensorInformation",
        ),
    ],
)
def test_an_environment_that_gives_something_else_than_information(form, text):
    odd = environment("myenv", "support.palaestrai_odd:Answerless", form=form)
    with pytest.raises(ContractError, match=f"environment 'myenv': {text}"):
        execute(document(phase([odd], [agent()])))


def test_an_own_reset_is_asked():
    with Store(create=True) as store:
        own = environment("myenv", f"{PARTS}:OwnReset", discrete=True, max_iter=9)
        execute(document(phase([own], [agent()], episodes=2)), store=store)
        assert store.environment_states("latest")["reading.myenv.0"].tolist() == [*range(9), 0, 7, 8, 0]


def test_a_reward_is_asked_by_its_environment():
    with Store(create=True) as store:
        document_ = document(phase([tank(reward=named(f"{PARTS}:Sum", factor=10))], [filler()], episodes=2))
        execute(document_, store=store)
        states = store.environment_states("latest")
    # ten times the level and the inflow, and one more with every call of the one object
    expected = [np.nan, 51, 62, 73, np.nan, 54, 65, 76]
    np.testing.assert_array_equal(states["reward.tank.sum"], expected)


def test_a_reward_of_palaestrai_beside_an_environment_of_ours():
    with Store(create=True) as store:
        ours = {**environment(), "reward": named(f"{PARTS}:OfState")}
        execute(
            document(phase([ours], [agent(objective=named(AGGREGATE, rewards=["highest", "mean"]))])),
            store=store,
        )
        states = store.environment_states("latest")
        assert states["reward.myenv.highest"].tolist() == [*range(10), 0]
        assert states["reward.myenv.mean"].tolist() == states["reward.myenv.highest"].tolist()
        assert store.steps("latest")["objective"].tolist() == [2.0 * i for i in [*range(1, 10), 0]]


@pytest.mark.parametrize("kind", ["theirs", "ours"])
def test_a_state_transformer_changes_what_is_stored(kind):
    transformer = named(f"{PARTS}:Reversed", key="was")
    if kind == "theirs":
        environments, agents, sensor = [tank(state_transformer=transformer)], [filler()], "tank.level"
    else:
        environments, agents, sensor = (
            [{**environment(), "state_transformer": transformer}],
            [agent()],
            "myenv.0",
        )
    with Store(create=True) as store:
        execute(document(phase(environments, agents)), store=store)
        states, steps = store.environment_states("latest"), store.steps("latest")
        state = states["state"].tolist()[-1]
        assert states[f"reading.{sensor}"][1] == -steps[f"reading.{sensor}"][1] != 0
    assert state["done"] is True
    assert state["was"] is None if kind == "ours" else state["was"]["level"] == 5.0


def test_a_condition_asks_brains_and_about_the_phase(log):
    conditions = [named(f"{PARTS}:Patient", rows=3)]
    with Store(create=True) as store:
        one = phase([environment()], [agent()], conditions, episodes=3)
        result = execute(document(one, run=conditions), store=store)
        episodes = store.episodes("latest")
    # it is asked about the rows that are closed; the third one ends the episode. As in palaestrAI, a
    # brain's memory has the rows of the episode before, so that the next one ends at once
    asked = [line for line in log if line.startswith("a TRAIN")]
    assert asked == [
        f"a TRAIN a.0 {[1.0, 2.0, 3.0][:n]} of {n}"
        for n in (0, 1, 2, 3, 3)
        for _ in ("simulation", "run_config")
    ]
    assert [line for line in log if line.startswith("worker")] == [
        "worker-0 RESET {'worker-0': 0} {'a': {'sum': 6.0}}",
        "worker-0 RESET {'worker-0': 1} {'a': {'sum': 6.0}}",
    ]
    assert [phase.episodes for phase in result.phases] == [2]
    assert episodes["steps"].tolist() == [3, 0]
    assert "environment_flow_control was asked" not in log


@pytest.mark.parametrize(("told", "episodes", "asked"), [(True, 2, [0, 1]), (False, 4, [])])
def test_a_condition_is_asked_about_evaluations_if_it_says_so(log, told, episodes, asked):
    ends = [
        named(f"{PARTS}:Examined", told=told),
        named("palaestrai.experiment:VanillaRunGovernorTerminationCondition"),
    ]
    one = phase([environment(max_iter=3)], [agent()], episodes=4, evaluate_every=1)
    result = execute(document(one, run=ends))
    assert log == [f"a evaluated {number}" for number in asked]
    assert result.phases[0].episodes == episodes


def test_a_condition_asks_environments():
    with Store(create=True) as store:
        conditions = [named(f"{PARTS}:Sensitive", reward=4)]
        execute(document(phase([environment()], [agent()], conditions, episodes=2)), store=store)
        assert store.episodes("latest")["steps"].tolist() == [4, 4]


def test_palaestrais_own_conditions_under_another_name_end_what_they_end_there():
    rules = named(f"{PARTS}:OwnObjective", a={"brain_avg2": 4.5})
    with Store(create=True) as store:
        one = phase([environment()], [agent()], [rules], episodes=9)
        result = execute(
            document(one, run=[named(f"{PARTS}:OwnObjective", a={"brain_avg2": 1, "phase_avg2": 2.9})]),
            store=store,
        )
        # (4 + 5)/2 ends the episode after five steps; each has the mean (1 + ... + 5)/5 = 3
        assert store.episodes("latest")["steps"].tolist() == [5, 0]
        result = execute(document(phase(episodes=3), run=[named(f"{PARTS}:OwnVanilla")]), store=store)
        assert [phase.episodes for phase in result.phases] == [3]


def test_what_goes_wrong_is_told():
    with Store(create=True) as store:
        late = document(phase([environment("myenv", f"{PARTS}:Unpredicted")], [agent()]))
        with pytest.raises(
            ContractError, match=r"gave the reward 'late', which was not among .* first step: early"
        ):
            execute(late, store=store)
        wordy = document(phase([environment()], [agent()]), run=[named(f"{PARTS}:Wordy")])
        with pytest.raises(
            ContractError, match=r"Wordy\.phase_flow_control returned 'stop'; allowed are pairs"
        ):
            execute(wordy, store=store)
    (problem,) = inspect(document(phase([tank(params={"strt": 1})], [filler()])))
    assert "takes no parameter 'strt' (did you mean 'start'?); allowed: start" in problem.message
    with pytest.raises(DocumentError, match=r"tank\.levl.*did you mean 'tank.level'"):
        execute(document(phase([tank()], [{**filler(), "sensors": ["tank.levl"]}])))


def test_an_environment_goes_on_from_a_checkpoint():
    (spec,) = document(phase([tank()], [filler()])).phases[0].environments

    def opened(seed):
        domain = make_handle(spec).domain
        domain.rng = np.random.default_rng(seed)
        return domain

    def episode(domain):
        states = [domain.reset(), *(domain.step(np.array([0.5, np.nan])) for _ in range(3))]
        return [state.readings.tolist() for state in states[1:]]

    one = opened(1)
    episode(one)
    kept = pickle.dumps(one.state())
    other = opened(2)
    other.restore(pickle.loads(kept))
    one.rng, other.rng = np.random.default_rng(3), np.random.default_rng(3)
    assert episode(other) == episode(one) != episode(one)
    one.part.socket = (number for number in [1])
    assert one.state() is None
