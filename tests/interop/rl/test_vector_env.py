"""Many copies of a run document's world: in one mosaik world, and in worlds of their own."""

from __future__ import annotations

import copy as copying
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.documents import agent, document, environment, named, phase

from palaestrai_mosaik.core.errors import ActionError, ContractError

gymnasium = pytest.importorskip("gymnasium")

from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv  # noqa: E402
from gymnasium.wrappers.vector import DictInfoToList  # noqa: E402

import palaestrai_mosaik  # noqa: E402
from palaestrai_mosaik.interop.rl.driver import Options, Session  # noqa: E402
from palaestrai_mosaik.interop.rl.vector_env import RunVectorEnv  # noqa: E402

SCENARIOS = Path(__file__).parents[3] / "scenarios"
OBJECTIVE = named(
    "palaestrai_mosaik.agent.library.aggregate:AggregateRewardsObjective", rewards="Dummy Reward"
)
LIMIT = "palaestrai_mosaik.simulation.conditions:AgentObjectiveTerminationCondition"


def dummies(**keys: Any) -> Any:
    """Two agents in the dummy environment, which reads 0 or 1 at random and pays the number of the step."""
    found = environment("myenv", discrete=False, max_iter=3)
    constant = named("palaestrai_mosaik.agent.library.constant:ConstantMuscle", values=0.5)
    other = agent("b", 5, brain=None, muscle=constant, objective=OBJECTIVE)
    return document(phase([found], [agent("a", objective=OBJECTIVE), other], **keys))


def rolled(env: Any, steps: int, copy: int, seed: int = 4) -> Any:
    """Return what a copy lives through with actions that are the same in all batches."""
    observation, _ = env.reset(seed=seed)
    seen = [observation[copy].tobytes()]
    shape, dtype = env.single_action_space.shape, env.single_action_space.dtype
    for step in range(steps):
        actions = np.full((env.num_envs, *shape), 0.25 * (step % 4), dtype)
        observation, reward, terminated, truncated, _ = env.step(actions)
        seen.append((observation[copy].tobytes(), reward[copy], terminated[copy], truncated[copy]))
    return seen


@pytest.mark.parametrize("scenario", ["dummy", "pendulum"])
def test_a_copy_lives_through_the_same_in_any_batch(scenario):
    found = dummies() if scenario == "dummy" else SCENARIOS / "pendulum_sac.yml"
    options = {"agent": "a"} if scenario == "dummy" else {}
    many = palaestrai_mosaik.make_vec(found, 3, **options)
    assert isinstance(many, RunVectorEnv)
    second = rolled(many, 10, 1)
    assert rolled(many, 10, 1) == second != rolled(many, 10, 0)
    assert rolled(many, 10, 1, seed=5) != second
    many.close()
    if scenario == "pendulum":
        many = gymnasium.make_vec(
            "palaestrai_mosaik.interop.rl:palaestrai_mosaik/Run-v0",
            2,
            vectorization_mode="vector_entry_point",
            document=str(found),
        )
        assert rolled(many, 10, 1) == second
        many.close()
    alone = palaestrai_mosaik.make_vec(found, 1, first=1, **options)
    assert rolled(alone, 10, 0) == second
    alone.close()


def test_a_copy_that_has_ended_begins_again_with_the_next_step():
    env = palaestrai_mosaik.make_vec(dummies(), 2, agent="a", reward="objective")
    _, info = env.reset(seed=1)
    assert info["time"].tolist() == [0, 0]
    told, times, paid, names = [], [], [], set()
    for _ in range(6):
        _, reward, terminated, truncated, info = env.step(np.zeros((2, 5)))
        told.append((reward[0], bool(terminated[0]), bool(truncated[0]), bool(info["_objective"][0])))
        names.add((*info, *info["rewards"]))
        times.append(info["time"].tolist())
        paid.append(info["rewards"]["myenv.Dummy Reward"].tolist())
    assert told == [
        (1.0, False, False, True),
        (2.0, False, False, True),
        (0.0, True, False, True),
        (0.0, False, False, False),
        (1.0, False, False, True),
        (2.0, False, False, True),
    ]
    # the step with which all begin again says the same as others
    assert names == {
        (
            *("time", "_time", "rewards", "_rewards", "objective", "_objective"),
            *("myenv.Dummy Reward", "_myenv.Dummy Reward"),
        )
    }
    assert times == [[time] * 2 for time in (1, 2, 3, 0, 1, 2)]
    assert str(paid) == str([[value] * 2 for value in (1.0, 2.0, 0.0, np.nan, 1.0, 2.0)])
    listed = DictInfoToList(env).step(np.zeros((2, 5)))[-1]
    assert listed[1] == {"time": 3, "rewards": {"myenv.Dummy Reward": 0.0}, "objective": 0.0}
    env.close()
    twin = copying.deepcopy(env)
    assert twin.reset(seed=1)[1]["time"].tolist() == [0, 0]
    twin.close()


def test_copies_end_on_their_own():
    """A walk of three cells to the goal, to the right: from cell k it takes 3 - k steps."""
    env = palaestrai_mosaik.make_vec(SCENARIOS / "aeb_batch.yml", 4)
    cells, _ = env.reset(seed=2)
    for _ in range(12):
        before = cells
        cells, reward, terminated, _, _ = env.step(np.full(4, 2))
        moved = np.where(before == 3, cells, before + 1)
        assert cells.tolist() == moved.tolist() and (cells[before == 3] < 3).all()
        assert terminated.tolist() == ((cells == 3) & (before != 3)).tolist() == (reward == 1.0).tolist()
    env.close()


def test_a_wrong_action_says_in_which_copy():
    env = palaestrai_mosaik.make_vec(dummies(), 3, agent="a")
    env.reset(seed=1)
    actions = np.zeros((3, 5))
    actions[2, 1] = 11.0
    with pytest.raises(ActionError, match=r"\[11\.0\] of actuator 'myenv\.0\.1' is not in") as found:
        env.step(actions)
    assert found.value.__notes__ == ["in copy 2"]
    with pytest.raises(ActionError, match=r"shape \(3, 4\), but .* \(3, 5\)"):
        env.step(actions[:, :4])
    actions[2, 1] = 10.0
    env.step(actions)
    env.close()


def test_copies_that_cannot_share_a_world_have_one_each():
    limited = dummies(conditions=[named(LIMIT, a={"brain_avg1": 100.0})])
    reasons = {
        "agents take turns": dummies(controller="taking_turns"),
        "may end the episode of all at once": limited,
        "the objective of agent 'a' is no BatchObjective": document(
            phase(agents=[agent("a", objective=named("support.parts:Constant", value=1.0))])
        ),
    }
    for reason, found in reasons.items():
        with pytest.raises(ContractError, match=f"cannot share a world: .*{reason}"):
            palaestrai_mosaik.make_vec(found, 2, agent="a", backend="world")
    with pytest.raises(
        ContractError, match=r"backend must be one of world, sync, async, not 'synch'.*'sync'"
    ):
        palaestrai_mosaik.make_vec(dummies(), 2, agent="a", backend="synch")
    env = palaestrai_mosaik.make_vec(reasons["agents take turns"], 2, agent="a")
    assert isinstance(env, SyncVectorEnv)
    env.close()


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_worlds_of_their_own_are_single_environments(backend):
    env = palaestrai_mosaik.make_vec(dummies(), 2, agent="a", backend=backend)
    assert isinstance(env, SyncVectorEnv if backend == "sync" else AsyncVectorEnv)
    both = [rolled(env, 3, copy) for copy in range(2)]
    env.close()
    for copy in range(2):
        single = palaestrai_mosaik.make(dummies(), agent="a")
        seen = [single.reset(seed=4 + copy)[0].tobytes()]
        for step in range(3):
            observation, *told = single.step(np.full(5, 0.25 * step))
            seen.append((observation.tobytes(), *told[:3]))
        single.close()
        assert both[copy] == seen


def test_worlds_of_their_own_differ_without_a_seed():
    def firsts(num_envs: int, **options: Any) -> Any:
        env = palaestrai_mosaik.make_vec(dummies(), num_envs, agent="a", backend="sync", **options)
        seen = np.array([env.reset()[0] for _ in range(4)])
        env.close()
        return seen

    three = firsts(3)
    assert len({three[:, copy].tobytes() for copy in range(3)}) == 3
    assert (firsts(1, first=2)[:, 0] == three[:, 2]).all()
    assert not np.array_equal(firsts(3, seed=5), three)


@pytest.mark.parametrize("controller", ["vanilla", "taking_turns"])
def test_gymnasium_limits_the_steps_of_a_copy(controller):
    """Alone, an episode has three steps, or (in turns) two of a's."""
    options = {"document": dummies(controller=controller), "agent": "a"}
    kind = RunVectorEnv if controller == "vanilla" else SyncVectorEnv
    for most, ends in (
        (1, [True, False, True]),
        (9, [False, controller != "vanilla", controller == "vanilla"]),
    ):
        env = gymnasium.make_vec(
            "palaestrai_mosaik.interop.rl:palaestrai_mosaik/Run-v0", 2, max_episode_steps=most, **options
        )
        assert isinstance(env, kind)
        env.reset(seed=1)
        told = [env.step(np.zeros((2, 5)))[2:4] for _ in range(3)]
        env.close()
        assert [bool((terminated | truncated).all()) for terminated, truncated in told] == ends
        assert bool(told[0][1].all()) == (most == 1)


def test_options_that_there_are_not():
    for make in (palaestrai_mosaik.make, palaestrai_mosaik.make_vec, palaestrai_mosaik.parallel_env):
        wrong, right = ("dtyp", "dtype") if make is palaestrai_mosaik.parallel_env else ("agnt", "agent")
        with pytest.raises(ContractError, match=rf"no option '{wrong}' \(did you mean '{right}'\?\)"):
            make(dummies(), **{wrong: "a"})
    with pytest.raises(ContractError, match="max_episode_steps must be a whole number of at least 1, not 0"):
        palaestrai_mosaik.make_vec(dummies(), 2, agent="a", max_episode_steps=0)


@pytest.mark.parametrize("seed", [1.5, True, "3", -5])
def test_seeds_are_whole_numbers(seed):
    found = dummies()
    for make in (
        lambda document, seed: Session(document, options=Options(seed=seed)),
        lambda document, **keys: palaestrai_mosaik.make_vec(document, 2, agent="a", **keys),
    ):
        with pytest.raises(ContractError, match="seed must be a whole number of at least 0, not "):
            make(found, seed=seed)
        made = make(found, seed=np.int64(3))
        with pytest.raises(ContractError, match="seed must be a whole number of at least 0, not "):
            made.reset(seed=seed)
        made.reset(seed=np.int64(3))
        made.close()
