"""Run documents as environments of PettingZoo: its own tests, traces by hand, games there and back."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pettingzoo", reason="the extra 'rl' (pettingzoo) is not installed")
pytest.importorskip("pygame", reason="the games of pettingzoo.classic need pygame")

from environment.pettingzoo_parts import HERE, clocks, document, legal, script
from pettingzoo.classic.rps import rps
from pettingzoo.classic.tictactoe import tictactoe
from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test, seed_test
from pettingzoo.test.state_test import state_test

from palaestrai_mosaik import aec_env, parallel_env
from palaestrai_mosaik.core.errors import ActionError, ContractError
from palaestrai_mosaik.experiment import from_mapping
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.store import Store

SCENARIOS = Path(__file__).parents[3] / "scenarios"
TICTACTOE = "pettingzoo.classic.tictactoe.tictactoe:env"
RPS = "pettingzoo.classic.rps.rps:parallel_env"
PLAYERS = ("player_1", "player_2")


@pytest.fixture
def made() -> Iterator[Callable[..., Any]]:
    """Return a function that keeps what is to be closed."""
    kept: list[Any] = []

    def keeps(one: Any) -> Any:
        kept.append(one)
        return one

    yield keeps
    for one in kept:
        one.close()


def noughts(**params: Any) -> dict[str, Any]:
    return document(dict.fromkeys(PLAYERS, legal()), turns=True, id=TICTACTOE, **params)


SUBJECTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "dummy": (SCENARIOS / "dummy.yml", {}),
    "several_bodies": (SCENARIOS / "aeb_self_play.yml", {}),
    "several_bodies_in_turns": (SCENARIOS / "aeb_self_play.yml", {"phase": "in_turns"}),
    "not_flat": (SCENARIOS / "dummy.yml", {"flatten": False}),
    "several_clocks": (clocks({"a": (7, 1), "b": (2, 3)}), {}),
    "own_timelines": (clocks({"a": (2, 1), "b": (7, 1)}, when="all"), {}),
    "tic_tac_toe": (noughts(illegal_moves="play"), {}),
}


@pytest.mark.parametrize("name", SUBJECTS)
def test_it_passes_the_tests_of_pettingzoo(name, made, capsys):
    given, options = SUBJECTS[name]
    with warnings.catch_warnings():
        # on style: that a MultiDiscrete is no Box, and what names agents should have
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", message=".*was (not given|given .* but was dead)")
        warnings.filterwarnings("error", message=".*(agents present|NaN)")
        turns = made(aec_env(given, **options))
        api_test(turns, num_cycles=30)
        seed_test(lambda: aec_env(given, **options), num_cycles=10)
        said = ["Starting API test", "Passed API test"]
        if turns.metadata["is_parallelizable"]:
            at_once = made(parallel_env(given, **options))
            parallel_api_test(at_once, num_cycles=30)
            parallel_seed_test(lambda: parallel_env(given, **options), num_cycles=10)
            state_test(turns, at_once)
            said.append("Passed Parallel API test")
    assert capsys.readouterr().out.split("\n")[:-1] == said


def test_agents_with_clocks_of_their_own_by_hand(made):
    """World a steps at every tick and ends with its 4th, b steps at every second one."""
    game = made(parallel_env(clocks({"a": (4, 1), "b": (9, 2)})))
    seen, infos = game.reset()
    assert {name: (one.tolist(), infos[name]) for name, one in seen.items()} == {
        "a": ([0, 0], {"acts": True, "time": 0}),
        "b": ([0, 0], {"acts": True, "time": 0}),
    }
    trace = []
    for step in range(1, 5):
        seen, rewards, ends, cuts, infos = game.step({"a": [step], "b": [step + 10]})
        trace.append(
            [
                (seen[n].tolist(), rewards[n], ends[n], cuts[n], infos[n]["acts"], infos[n]["time"])
                for n in "ab"
            ]
        )
        assert game.state().tolist() == [*seen["a"], *seen["b"]]
    # what b was given at 1 and 3 has no effect; its reward is told at every second tick
    assert trace == [
        [([1, 1], 10, False, False, True, 1), ([0, 0], 0, False, False, False, 1)],
        [([2, 2], 20, False, False, True, 2), ([1, 11], 10, False, False, True, 2)],
        [([3, 3], 30, False, False, True, 3), ([1, 11], 0, False, False, False, 3)],
        [([4, 4], 40, True, False, False, 4), ([2, 13], 20, False, True, False, 4)],
    ]
    assert game.agents == []
    assert infos["a"]["rewards"] == {"world_a.pay": 40.0} and infos["a"]["objective"] == 40.0


@pytest.mark.parametrize("form", [parallel_env, aec_env])
def test_who_has_ended_is_gone_though_its_world_begins_again(form, made):
    """World a ends at 2, begins again at 3, ends at 5, ...; b ends at 4, and so does the episode."""
    game = made(form(clocks({"a": (2, 1), "b": (4, 1)}, when="all")))
    game.reset()
    trace = []
    if form is parallel_env:
        while game.agents:
            seen, rewards, ends, cuts, _ = game.step({name: [5] for name in game.agents})
            trace.append({n: (seen[n].tolist(), rewards[n], ends[n], cuts[n]) for n in seen})
        assert trace == [
            {"a": ([1, 5], 10, False, False), "b": ([1, 5], 10, False, False)},
            {"a": ([2, 5], 20, True, False), "b": ([2, 5], 20, False, False)},
            {"b": ([3, 5], 30, False, False)},
            {"b": ([4, 5], 40, True, False)},
        ]
        return
    for name in game.agent_iter():
        seen, reward, ended, cut, _ = game.last()
        trace.append((name, seen.tolist(), reward, ended, cut))
        game.step(None if ended or cut else [5])
    assert trace == [
        ("a", [0, 0], 0, False, False),
        ("b", [0, 0], 0, False, False),
        ("a", [1, 5], 10, False, False),
        ("b", [1, 5], 10, False, False),
        ("a", [2, 5], 20, True, False),
        ("b", [2, 5], 20, False, False),
        ("b", [3, 5], 30, False, False),
        ("b", [4, 5], 40, True, False),
    ]


def test_what_happens_when_it_is_nobodys_turn_is_told_with_the_next_one(made):
    """World a ends at 2 and begins again at 3, where b, whose world steps at 3 and 6, acts next."""
    given = clocks({"a": (2, 1), "b": (2, 3)}, when="all")
    game = made(parallel_env(given))
    game.reset()
    trace = []
    while game.agents:
        seen, rewards, ends, _, infos = game.step({name: [5] for name in game.agents})
        trace.append({n: (seen[n].tolist(), rewards[n], ends[n], infos[n]["time"]) for n in seen})
    assert trace == [
        {"a": ([1, 5], 10, False, 1), "b": ([0, 0], 0, False, 1)},
        {"a": ([2, 5], 20, True, 2), "b": ([1, 5], 10, False, 3)},
        {"b": ([2, 5], 20, True, 6)},
    ]
    game = made(aec_env(given))
    game.reset()
    asked = []
    for name in game.agent_iter():
        seen, reward, ended, *_ = game.last()
        asked.append((name, seen.tolist(), reward, ended))
        game.step(None if ended else [5])
    assert asked == [
        ("a", [0, 0], 0, False),
        ("b", [0, 0], 0, False),
        ("a", [1, 5], 10, False),
        ("a", [2, 5], 20, True),
        ("b", [1, 5], 10, False),
        ("b", [2, 5], 20, True),
    ]
    # alone, it does not wait for the end of b's world
    game = made(parallel_env(given, agents=["a"]))
    game.reset()
    game.step({"a": [5]})
    seen, rewards, ends, _, infos = game.step({"a": [5]})
    assert (seen["a"].tolist(), rewards["a"], ends["a"], infos["a"]["time"]) == ([2, 5], 20, True, 2)
    assert game.agents == []
    assert game.state().tolist() == [2, 5, 0, 0]


def test_rock_paper_scissors_there_and_back_is_the_game_itself(made):
    """The same actions, given to PettingZoo's own game and to one inside of a run document."""
    players = {"player_0": script(0), "player_1": script(0)}
    inside = made(
        parallel_env(
            document(players, turns=False, sensors=["observation"], id=RPS, kwargs={"max_cycles": 12})
        )
    )
    game = rps.parallel_env(max_cycles=12)
    for name in players:
        assert inside.observation_space(name) == game.observation_space(name)
        assert inside.action_space(name) == game.action_space(name)
    rng = np.random.default_rng(5)
    for _ in range(2):
        assert inside.reset(seed=3)[0] == game.reset(seed=3)[0]
        while game.agents:
            actions = {name: int(rng.integers(3)) for name in players}
            expected = game.step(actions)
            # what the infos tell is ours
            assert inside.step(actions)[:4] == expected[:4]
            assert inside.agents == game.agents


def test_tic_tac_toe_there_and_back_is_the_game_itself(made):
    """Same moves, same observations and masks, same returns; who has lost is asked once more for nothing."""
    inside = made(aec_env(noughts()))
    game = tictactoe.env()
    rng = np.random.default_rng(2)
    results = set()
    for _ in range(6):
        inside.reset(seed=1)
        game.reset()
        ours, theirs = (dict.fromkeys(PLAYERS, 0.0) for _ in range(2))
        for name in game.agent_iter():
            expected, reward, terminated, *_ = game.last()
            theirs[name] += reward
            if terminated:
                game.step(None)
                continue
            seen, reward, terminated, truncated, info = inside.last()
            assert inside.agent_selection == name and not (terminated or truncated)
            flat = [*expected["action_mask"], *expected["observation"].reshape(-1), 1]
            assert seen.tolist() == flat
            assert info["action_mask"].tolist() == expected["action_mask"].tolist()
            ours[name] += reward
            move = inside.action_space(name).sample(info["action_mask"])
            move = int(rng.choice(np.flatnonzero(expected["action_mask"])))
            game.step(move)
            inside.step(move)
        left = []
        for name in inside.agent_iter():
            seen, reward, terminated, *_ = inside.last()
            ours[name] += reward
            # nobody is alive
            assert seen[-1] == 0
            left.append((name, terminated))
            inside.step(None if terminated else 0)
        assert ours == theirs
        results.add(tuple(ours.values()))
        ended = [(name, True) for name in PLAYERS]
        lost = [name for name in PLAYERS if ours[name] < 0]
        assert left == [*((name, False) for name in lost), *ended]
    assert {(1.0, -1.0), (-1.0, 1.0)} & results


def test_the_others_act(made, tmp_path):
    """With the moves of a run's own player_1 given from outside, all goes as in the run."""
    given = noughts(episodes=2)
    with Store(tmp_path, create=True) as store:
        execute(from_mapping(given), store=store)
        rows = store.steps("latest", phase="play", agent="player_1")
    game = made(aec_env(given, agents=["player_1"]))
    for episode in range(2):
        game.reset()
        mine = rows[rows["episode"] == episode]
        seen = mine[[column for column in mine if column.startswith("reading.")]].to_numpy()
        moves = mine["setpoint.game.player_1.action"]
        assert game.possible_agents == ["player_1"]
        for i, move in enumerate(moves):
            assert game.last()[0].tolist() == seen[i].tolist()
            game.step(int(move))
        assert game.terminations == {"player_1": True}
        assert game.last()[1] == mine["objective"].iloc[-1]
    # the seed of the document, said in words, begins anew
    game.reset(seed=given["seed"])
    game.step(int(rows["setpoint.game.player_1.action"][0]))
    assert game.last()[0].tolist() == rows.filter(like="reading.").to_numpy()[1].tolist()


def test_what_comes_out_of_a_pickle_is_made_anew(made):
    game = made(parallel_env(clocks({"a": (4, 1)}), reward="pay"))
    twin = made(pickle.loads(pickle.dumps(game)))
    assert twin.agents == []
    assert twin.reset(seed=1)[0]["a"].tolist() == [0, 0]
    assert twin.step({"a": [3]})[0]["a"].tolist() == [1, 3]


def test_mistakes(made):
    two = clocks({"a": (4, 1), "b": (4, 1)})
    with pytest.raises(ContractError, match=r"no agent 'A' \(did you mean 'a'\?\); there is a, b"):
        parallel_env(two, agents=["A"])
    with pytest.raises(ContractError, match=r"take turns: use palaestrai_mosaik\.aec_env"):
        parallel_env(noughts())
    with pytest.raises(ContractError, match=r"no reward 'world_a\.pya' .did you mean"):
        parallel_env(two, reward="world_a.pya")
    with pytest.raises(ContractError, match="none of the agents of phase 'play' of run 'clocks' is yours"):
        aec_env(two, agents=[])
    game = made(parallel_env(two))
    with pytest.raises(ContractError, match="reset first"):
        game.step({"a": [1], "b": [1]})
    game.reset()
    with pytest.raises(ContractError, match="there is no action for b"):
        game.step({"a": [1]})
    with pytest.raises(ContractError, match=r"there is no agent 'c'; there is a, b$"):
        game.step({"a": [1], "b": [1], "c": [1]})
    with pytest.raises(ActionError, match=r"'world_b\.number'"):
        game.step({"a": [1], "b": [1000]})
    # nothing of it has been made
    assert game.step({"a": [2], "b": [3]})[0]["a"].tolist() == [1, 2]
    turns = made(aec_env(noughts()))
    turns.reset()
    turns.step(4)
    with pytest.raises(
        ActionError, match=r"player_2.action' is not allowed now: action_mask is \[1, 1, 1, 1, 0"
    ):
        turns.step(4)
    # it was the world that refused it
    with pytest.raises(ContractError, match="something in it has failed: reset first"):
        turns.step(5)
    turns.reset()
    turns.step(5)
    at_once = made(aec_env(two))
    at_once.reset()
    # told at once, not with the action of the last one; nothing of it has been made
    with pytest.raises(ActionError, match=r"'world_a\.number'"):
        at_once.step([1000])
    at_once.step([2])
    at_once.step([3])
    assert at_once.last()[0].tolist() == [1, 2]


def test_a_game_inside_of_a_game(made):
    """A run document is a game of PettingZoo, so it can be the environment of another one."""
    inner = clocks({"a": (3, 1), "b": (3, 1)})
    outer = document(
        {"a": script(1), "b": script(2)},
        turns=False,
        id="palaestrai_mosaik.interop.rl:parallel_env",
        kwargs={"document": inner},
    )
    game = made(parallel_env(outer))
    game.reset(seed=1)
    seen, rewards, *_ = game.step({"a": [4], "b": [6]})
    assert [seen["a"].tolist(), seen["b"].tolist()] == [[1, 4, 1], [1, 6, 1]]
    assert rewards == {"a": 10.0, "b": 10.0}
    assert HERE in str(inner)
