"""Games of PettingZoo as environments: traces by hand, the games played directly, mistakes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pettingzoo", reason="the extra 'rl' (pettingzoo) is not installed")
pytest.importorskip("pygame", reason="the games of pettingzoo.classic need pygame")

import pettingzoo
from environment.pettingzoo_parts import HERE, document, legal, script

from palaestrai_mosaik.core.errors import ActionError, ContractError, NameResolutionError
from palaestrai_mosaik.core.importing import only_modules
from palaestrai_mosaik.environment.pettingzoo import PettingZooEnvironment
from palaestrai_mosaik.experiment import from_mapping
from palaestrai_mosaik.experiment.classes import modules_of
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.testing import check_environment

NAN = np.nan
TICTACTOE = "pettingzoo.classic.tictactoe.tictactoe:env"
RPS = "pettingzoo.classic.rps.rps:env"


@pytest.fixture
def opened() -> Iterator[Any]:
    """Return a function that sets a game up."""
    made = []

    def opens(id: str, **params: Any) -> PettingZooEnvironment:
        game = PettingZooEnvironment(id, **params)
        made.append(game)
        game.uid, game.rng = "game", np.random.default_rng(3)
        game.baseline = game.setup()
        return game

    yield opens
    for game in made:
        game.shutdown()


def sensors(game: PettingZooEnvironment) -> dict[str, str]:
    return {sensor.uid: str(sensor.space) for sensor in game.baseline.sensors}


def read(game: PettingZooEnvironment, state: Any, uid: str) -> list[float]:
    end = 0
    for sensor in game.baseline.sensors:
        end += sensor.space.size
        if sensor.uid == uid:
            return state.readings[end - sensor.space.size : end].tolist()
    raise KeyError(uid)


def test_a_parallel_game_by_hand(opened):
    """a_0 dies with step 2, a_2 comes with step 1, time runs out with step 4."""
    game = opened(f"{HERE}:Fading")
    observation = "Box(low=-inf, high=inf, shape=(2,), dtype=float64)"
    assert sensors(game) == {
        f"a_{i}.{name}": space
        for i in range(3)
        for name, space in (("observation", observation), ("alive", "Discrete(2)"))
    }
    assert [(a.uid, str(a.space)) for a in game.baseline.actuators] == [
        (f"a_{i}.action", "Discrete(5)") for i in range(3)
    ]
    assert [r.uid for r in game.baseline.rewards] == ["a_0.reward", "a_1.reward", "a_2.reward"]
    state = game.reset()
    assert state.readings.tolist() == [0, 0, 1, 0, 0, 1, 0, 0, 0]
    assert state.rewards == (0, 0, 0)
    state = game.step(np.array([1.0, 2.0, 3.0]))
    assert state.readings.tolist() == [1, 3, 1, 1, 3, 1, 1, 3, 1]
    assert state.rewards == (1, 20, 0)
    # what is no number is left out
    assert state.world_state == {"infos": {f"a_{i}": {"steps": 1} for i in range(3)}}
    # a_1 sets nothing: 2 holds
    state = game.step(np.array([4.0, NAN, 3.0]))
    assert state.readings.tolist() == [2, 9, 0, 2, 9, 1, 2, 9, 1]
    # ... and is told its reward of 20 when it acts again
    assert state.rewards == (4, 0, 300)
    state = game.step(np.array([4.0, 1.0, 0.0]))
    # a_0 sees no more; the 4 that it set was not given to the game
    assert state.readings.tolist() == [2, 9, 0, 3, 1, 1, 3, 1, 1]
    assert state.rewards == (0, 30, 0)
    assert not (state.terminated or state.truncated)
    state = game.step(np.array([4.0, 1.0, 1.0]))
    assert state.readings.tolist() == [2, 9, 0, 4, 2, 0, 4, 2, 0]
    assert (state.rewards, state.terminated, state.truncated) == ((0, 10, 100), False, True)
    made = game._game.made
    assert made.given[1:] == [{"a_0": 4, "a_1": 2, "a_2": 3}, {"a_1": 1, "a_2": 0}, {"a_1": 1, "a_2": 1}]
    game.rng = np.random.default_rng(3)
    game.reset()
    # the first was that of setup
    assert made.seeds == [0, *[np.random.default_rng(3).integers(2**31)] * 2]
    game.shutdown()
    assert made.closed


def test_a_game_that_agents_leave_by_death_and_by_time_is_both(opened):
    game = opened(f"{HERE}:Fading", kwargs={"killing": 4})
    game.reset()
    states = [game.step(np.zeros(3)) for _ in range(4)]
    # a_0 terminates with the step with which the time of the others runs out
    assert [(s.terminated, s.truncated) for s in states] == [(False, False)] * 3 + [(True, True)]


def test_a_game_in_turns_by_hand(opened):
    """Order p_0 p_1 p_1: the game waits where another one acts."""
    game = opened(f"{HERE}:Ladder")
    assert sensors(game) == {
        "p_0.observation": "Discrete(8)",
        "p_0.action_mask": "MultiBinary(4)",
        "p_0.alive": "Discrete(2)",
        "p_1.observation": "Discrete(8)",
        "p_1.action_mask": "MultiBinary(4)",
        "p_1.alive": "Discrete(2)",
        "turn": "Discrete(3)",
    }
    state = game.reset()
    assert read(game, state, "p_0.action_mask") == [1, 0, 0, 0]
    assert read(game, state, "turn") == [0]
    # it is not the turn of p_1
    state = game.step(np.array([NAN, 3.0]))
    assert read(game, state, "turn") == [0] and state.rewards == (0, 0)
    state = game.step(np.array([0.0, NAN]))
    assert read(game, state, "turn") == [1] and read(game, state, "p_1.action_mask") == [1, 1, 0, 0]
    state = game.step(np.array([NAN, 1.0]))
    assert read(game, state, "turn") == [1] and read(game, state, "p_0.observation") == [1]
    # p_0 is due 1, and told so with what follows on its next set-point, though it is not its turn
    assert state.rewards == (0, 0)
    state = game.step(np.array([0.0, 2.0]))
    assert state.rewards == (1 + 2, 0) and read(game, state, "turn") == [0]
    state = game.step(np.array([3.0, NAN]))
    # p_0 has left the game; p_1 is due 3
    assert read(game, state, "p_0.alive") == [0] and read(game, state, "turn") == [1]
    assert (read(game, state, "p_0.observation"), read(game, state, "p_1.observation")) == ([7], [7])
    state = game.step(np.array([NAN, 3.0]))
    assert (state.rewards, read(game, state, "turn")) == ((0, 3), [2])
    assert (state.terminated, state.truncated) == (True, False)


def test_who_was_not_told_a_last_reward_acts_once_more(opened):
    """What every other program knows of tic-tac-toe: the first row wins, and the other one loses."""
    game = opened(TICTACTOE)
    game.reset()
    for i, field in enumerate((0, 3, 1, 4, 2)):
        state = game.step(np.array([field, NAN] if i % 2 == 0 else [NAN, field]))
    assert (state.rewards, state.terminated) == ((1, 0), False)
    assert read(game, state, "turn") == [2]
    assert read(game, state, "player_2.alive") == [0]
    # squares of player 2, and of player 1
    board = np.reshape(read(game, state, "player_2.observation"), (9, 2))
    assert board.tolist() == [[0, 1]] * 3 + [[1, 0]] * 2 + [[0, 0]] * 4
    state = game.step(np.array([NAN, 8.0]))
    assert (state.rewards, state.terminated) == ((0, -1), True)


def test_who_has_died_is_not_alive_before_the_game_asks_it(opened):
    game = opened(f"{HERE}:Queue", kwargs={"order": [0, 1, 2]})
    game.reset()
    for alive, turn in ((1, 1), (0, 3)):
        state = game.step(np.zeros(3))
        assert [read(game, state, f"p_{i}.alive") for i in range(3)] == [[alive], [alive], [0]]
        assert read(game, state, "turn") == [turn]
    # how it ended is how it did for the others
    assert (state.terminated, state.truncated) == (False, True)


def test_a_mask_in_observations_and_infos_is_one_sensor(opened):
    game = opened(f"{HERE}:Told")
    names = [sensor.uid for sensor in game.baseline.sensors]
    assert names == [
        *(f"p_{i}.{name}" for i in (0, 1) for name in ("action_mask", "observation", "alive")),
        "turn",
    ]
    state = game.reset()
    assert read(game, state, "p_0.action_mask") == [1, 0, 0, 0]
    with pytest.raises(ActionError, match=r"set-point 1 of actuator 'p_0.action' is not allowed now"):
        game.step(np.array([1.0, NAN]))


def test_moves_that_are_not_allowed(opened):
    game = opened(TICTACTOE)
    game.reset()
    game.step(np.array([4.0, NAN]))
    with pytest.raises(
        ActionError,
        match=r"'game': set-point 4 of actuator 'player_2.action' is not allowed now: action_mask is "
        r"\[1, 1, 1, 1, 0, 1, 1, 1, 1\]",
    ):
        game.step(np.array([NAN, 4.0]))
    # left to the game, it is lost
    game = opened(TICTACTOE, illegal_moves="play")
    game.reset()
    game.step(np.array([4.0, 0.0]))
    state = game.step(np.array([0.0, 4.0]))
    assert (state.rewards, state.terminated) == ((0, -1), True)


def test_a_game_does_not_wait_for_ever(opened):
    game = opened(TICTACTOE, patience=2)
    game.reset()
    for _ in range(2):
        game.step(np.array([NAN, 0.0]))
    with pytest.raises(
        ActionError, match=r"turn of 'player_1', but nobody has set 'player_1.action' for 2 steps"
    ):
        game.step(np.array([NAN, 0.0]))


@pytest.mark.parametrize(
    ("id", "params", "error", "message"),
    [
        ("", {}, ContractError, "id must be a name such as classic/rps_v2"),
        ("classic/rps_v2", {"api": "aek"}, ContractError, r"api must be parallel or aec.*did you mean 'aec'"),
        ("classic/rps_v2", {"illegal_moves": "allow"}, ContractError, "illegal_moves must be refuse or play"),
        ("classic/rps_v2", {"patience": 0}, ContractError, "patience must be a whole number of at least 1"),
        (f"{HERE}:Fadin", {}, NameResolutionError, "no game 'Fadin' .did you mean 'Fading'"),
        (
            "environment.pettingzoo_part:x",
            {},
            NameResolutionError,
            "did you mean 'environment.pettingzoo_parts'",
        ),
        (f"{HERE}:HERE", {}, NameResolutionError, "has no 'parallel_env' or 'env'"),
        (f"{HERE}:Fading", {"api": "aec"}, ContractError, "a game of the API 'parallel', not 'aec'"),
        (f"{HERE}:Fading", {"kwargs": {"colour": 1}}, ContractError, "does not take these kwargs.*colour"),
        (RPS, {"kwargs": {"num_actions": 2}}, ContractError, "cannot be made with .*num_actions"),
        (f"{HERE}:nameless", {}, ContractError, "does not say who may take part"),
        (f"{HERE}:script", {}, ContractError, "makes a dict, which is no game of PettingZoo"),
    ],
)
def test_games_that_cannot_be_made(opened, id, params, error, message):
    with pytest.raises(error, match=message):
        opened(id, **params)


@pytest.mark.skipif(not hasattr(pettingzoo, "aec_registry"), reason="PettingZoo has no registry before 1.27")
def test_registered_games(opened):
    game = opened("classic/rps_v2")
    assert "turn" not in sensors(game)
    assert "turn" in sensors(opened("classic/rps-v2", api="aec"))
    with pytest.raises(NameResolutionError, match=r"no game 'classic/rps_v1' .did you mean 'classic/rps-v2'"):
        opened("classic/rps_v1")
    pettingzoo.register("parallel", "Evil-v0", entry_point="evil:make")
    try:
        with only_modules(()):
            opened("classic/rps_v2")
            with pytest.raises(
                NameResolutionError, match="'Evil-v0' is made by evil:make: the module 'evil'"
            ):
                opened("Evil-v0")
    finally:
        del pettingzoo.parallel_registry["Evil-v0"]


def test_names_are_held_to_allowed_modules(opened):
    with only_modules(("environment",)):
        opened(f"{HERE}:Fading")
    with only_modules(()):
        for id in (f"{HERE}:Fading", "palaestrai_mosaik.interop.rl:parallel_env"):
            with pytest.raises(NameResolutionError, match="is not allowed for this document"):
                opened(id)
    # what a document names can be told without making anything
    for id, modules in ((f"{HERE}:Fading", {HERE}), ("classic/rps_v2", set())):
        assert modules_of(from_mapping(document({"a_0": legal()}, turns=False, id=id))) == {HERE, *modules}


@pytest.mark.parametrize(
    ("id", "params"),
    [(RPS, {}), (f"{HERE}:Fading", {}), (f"{HERE}:Ladder", {"illegal_moves": "play"})],
    ids=["rps", "fading", "ladder"],
)
def test_they_keep_the_contract_of_environments(id, params):
    check_environment(lambda: PettingZooEnvironment(id, **params), steps=20)


def recorded(steps: Any, kind: str) -> Any:
    return steps[[column for column in steps if column.startswith(f"{kind}.")]].to_numpy()


@pytest.mark.parametrize("turns", [True, False], ids=["taking_turns", "vanilla"])
def test_tic_tac_toe_in_a_run_is_the_game_itself(turns, tmp_path):
    """The recorded moves are played with PettingZoo alone: same observations, same rewards."""
    players = ("player_1", "player_2")
    run = from_mapping(document(dict.fromkeys(players, legal()), turns=turns, episodes=6, id=TICTACTOE))
    with Store(tmp_path, create=True) as store:
        result = execute(run, store=store)
        rows = {name: store.steps("latest", phase="play", agent=name) for name in players}
    assert not result.warnings
    lengths = []
    for episode in range(6):
        mine = {name: steps[steps["episode"] == episode] for name, steps in rows.items()}
        game = pettingzoo.classic.tictactoe.tictactoe.env()
        game.reset()
        told = dict.fromkeys(players, 0.0)
        place = dict.fromkeys(players, 0)
        time = 0
        for name in game.agent_iter():
            observation, reward, terminated, truncated, _ = game.last()
            told[name] += reward
            steps = mine[name]
            if not (terminated or truncated):
                at = place[name] if turns else time
                seen = recorded(steps, "reading")[at]
                expected = np.concatenate(
                    [observation["action_mask"], observation["observation"].reshape(-1), [1]]
                )
                assert seen.tolist() == expected.tolist()
                game.step(int(recorded(steps, "setpoint")[at, 0]))
                time += 1
                place[name] += 1
            else:
                game.step(None)
        for name in players:
            assert mine[name]["objective"].sum() == told[name]
        assert sorted(told.values()) in ([-1, 1], [0, 0])
        lengths.append(time)
    assert len(set(lengths)) > 1


def test_rock_paper_scissors_in_a_run(tmp_path):
    """Rock beats scissors, paper beats rock: worked out by hand."""
    players = {"player_0": script(0, 1, 2, 0), "player_1": script(2, 1, 1, 1)}
    run = from_mapping(document(players, turns=False, id=RPS, api="aec", kwargs={"max_cycles": 4}))
    parallel = from_mapping(
        document(players, turns=False, id="pettingzoo.classic.rps.rps:parallel_env", kwargs={"max_cycles": 4})
    )
    with Store(tmp_path, create=True) as store:
        execute(parallel, store=store)
        rows = [store.steps("latest", phase="play", agent=name) for name in players]
        assert [r["objective"].tolist() for r in rows] == [[1, 0, 1, -1], [-1, 0, -1, 1]]
        # what the other one has chosen last; 3 is nothing
        assert [r["reading.game.player_0.observation"].tolist() for r in rows[:1]] == [[3, 2, 1, 1]]
        # as AEC, both are asked at every half of a round, and one of the two answers has no effect
        execute(run, store=store)
        rows = [store.steps("latest", phase="play", agent=name) for name in players]
        assert [len(r) for r in rows] == [8, 8]
        assert rows[0]["objective"].sum() == -rows[1]["objective"].sum()
