"""Frames of environments of others: Gymnasium's, PettingZoo's, and batches."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from support.documents import (
    AGENT_OBJECTIVE,
    ENVIRONMENT_ENDS,
    agent,
    document,
    environment,
    named,
    phase,
)
from support.painted import decoded

from palaestrai_mosaik.environment.cartpole import BatchCartPole
from palaestrai_mosaik.environment.pendulum import BatchPendulum
from palaestrai_mosaik.experiment import RunDocument, from_mapping
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.runner.preflight import inspect
from palaestrai_mosaik.store import Store

gymnasium: Any = pytest.importorskip("gymnasium")
pettingzoo: Any = pytest.importorskip("pettingzoo")
pytest.importorskip("pygame")

GYMNASIUM = "palaestrai_mosaik.environment.gymnasium:GymnasiumEnvironment"
PETTINGZOO = "palaestrai_mosaik.environment.pettingzoo:PettingZooEnvironment"
HERE = "environment.test_frames"


class Blind(gymnasium.Env):
    """An environment that has no pictures: ``modes`` are its render modes."""

    observation_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, render_mode: str | None = None, modes: tuple[str, ...] = (), fails: bool = False):
        self.render_mode, self.fails = render_mode, fails
        self.metadata = {"render_modes": list(modes)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        return 1, 0.0, True, False, {}

    def render(self) -> Any:
        if self.fails:
            raise RuntimeError("there is no screen")
        return "text"


def without_keyword() -> Blind:
    """Return one that cannot be asked for a render mode."""
    return Blind(modes=("rgb_array",))


class Chess(pettingzoo.ParallelEnv):
    """A game of three moves; its frames show how many were made."""

    possible_agents = ("white",)

    def __init__(self, render_mode: str | None = None, modes: tuple[str, ...] = ("rgb_array",)):
        self.render_mode = render_mode
        self.metadata = {"render_modes": list(modes), "name": "chess"}

    def observation_space(self, agent: str) -> Any:
        return gymnasium.spaces.Discrete(9)

    def action_space(self, agent: str) -> Any:
        return gymnasium.spaces.Discrete(9)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents, self.moves = list(self.possible_agents), 0
        return {"white": 0}, {"white": {}}

    def step(self, actions: Any) -> Any:
        self.moves += 1
        over = self.moves == 3
        self.agents = [] if over else self.agents
        return {"white": self.moves}, {"white": 1.0}, {"white": over}, {"white": False}, {"white": {}}

    def render(self) -> Any:
        return np.full((4, 4, 3), self.moves, np.uint8)


class Plain(BatchCartPole):
    """One without pictures."""

    get_frame = BatchCartPole.__mro__[1].get_frame


def of(kind: str, frames: Any = True, **params: Any) -> RunDocument:
    uid = "world"
    entry = environment(uid, kind)
    entry["environment"]["params"] = params
    if frames is not None:
        entry["frames"] = frames
    one: dict[str, Any] = agent("a", uid=uid, sensors=[f"{uid}.*"], actuators=[f"{uid}.*"])
    one["muscle"] = "random"
    del one["brain"], one["objective"]
    return document(phase([entry], [one], mode="test", episodes=2))


def problem_of(doc: RunDocument) -> str:
    (problem,) = inspect(doc)
    assert problem.path == "schedule.0.phase_0.environments.0.frames"
    return problem.message


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "store", create=True) as opened:
        yield opened


def test_frames_of_cartpole_are_those_that_gymnasium_renders(store: Store) -> None:
    doc = of(GYMNASIUM, {"episodes": [1]}, id="CartPole-v1")
    assert inspect(doc) == []
    plain = execute(of(GYMNASIUM, None, id="CartPole-v1"), store=store).instance
    run = execute(doc, store=store).instance
    digests = [
        json.loads((store.instance_directory(one) / "complete.json").read_text())["digests"]
        for one in (plain, run)
    ]
    assert digests[0] == digests[1] != {}
    frames = store.frames(run)
    states = store.environment_states(run, episode=1)
    assert frames["step"].tolist() == states["step"].tolist()
    # (an environment that is put into each recorded state, and rendered)
    with gymnasium.make("CartPole-v1", render_mode="rgb_array") as oracle:
        oracle.reset()
        names = [name for name in states if name.startswith("reading.")]
        for png, state in zip(frames["png"], states[names].to_numpy(), strict=True):
            oracle.unwrapped.state = state
            found, wanted = decoded(png).astype(int), oracle.render().astype(int)
            assert found.shape == wanted.shape == (400, 600, 3)
            # (readings have single precision, which may move an edge by a pixel)
            assert (np.abs(found - wanted).max(axis=2) > 0).mean() < 0.002


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"id": f"{HERE}:Blind"}, "does not have the render mode 'rgb_array', only: none"),
        (
            {"id": f"{HERE}:Blind", "kwargs": {"modes": ["ansi", "human"]}},
            "does not have the render mode 'rgb_array', only: ansi, human. Remove 'frames' from its entry",
        ),
        (
            {"id": f"{HERE}:Blind", "kwargs": {"modes": ["rgb_array"]}},
            "its render() returned str, and no array",
        ),
        (
            {"id": f"{HERE}:Blind", "kwargs": {"modes": ["rgb_array"], "fails": True}},
            "RuntimeError: there is no screen",
        ),
        ({"id": f"{HERE}:without_keyword"}, "render_mode"),
        (
            {"id": "CartPole-v1", "kwargs": {"render_mode": "human"}},
            "with render_mode 'human': leave render_mode out of its kwargs, or make it 'rgb_array'",
        ),
    ],
)
def test_who_cannot_render_is_refused_before_the_run(params: dict[str, Any], said: str) -> None:
    message = problem_of(of(GYMNASIUM, **params))
    assert message.startswith("environment 'world'") and "cannot render frames" in message
    assert said in message
    if "kwargs" not in params:
        assert inspect(of(GYMNASIUM, None, **params)) == []


def test_what_is_wrong_without_frames_is_said_first() -> None:
    (problem,) = inspect(of(GYMNASIUM, id="CartPole-v9"))
    assert "Gymnasium has no environment 'CartPole-v9'" in problem.message
    assert problem.path == "schedule.0.phase_0.environments.0"


def test_copies_have_the_frames_of_the_first_one(store: Store) -> None:
    copies = "palaestrai_mosaik.environment.copies:Copies"
    execute(of(copies, name=GYMNASIUM, params={"id": "CartPole-v1"}, batch=3), store=store)
    frames = store.frames("latest", episode=0)
    assert len(frames) > 5 and decoded(frames["png"].iloc[0]).shape == (400, 600, 3)
    states = store.environment_states("latest", episode=0, incarnation=0)
    over = states.loc[states["terminated"] | states["truncated"], "step"]
    # what has ended is not rendered again while the others go on
    last = int(over.iloc[0]) if len(over) else int(states["step"].max())
    assert frames["step"].tolist() == list(range(last + 1))
    plain = of(copies, name="support.painted:Unseen", batch=3)
    assert "its class Unseen has no method 'render'" in problem_of(plain)


def test_an_incarnation_is_rendered_until_it_ends_and_when_it_begins_again(store: Store) -> None:
    doc = of("palaestrai_mosaik.environment.cartpole:BatchCartPole", batch=3).canonical
    simulation = doc["schedule"][0]["phase_0"]["simulation"]

    def rows(*conditions: Any) -> tuple[list[Any], Any]:
        simulation["conditions"] = doc["run_config"]["conditions"] = list(conditions)
        execute(from_mapping(doc), store=store)
        keys = ["episode", "environment_episode", "step"]
        frames = store.frames("latest")
        found = frames.reindex(columns=keys, fill_value=0).to_numpy().tolist()
        states = store.environment_states("latest", incarnation=0).reset_index()
        states["over"] = states["terminated"] | states["truncated"]
        return found, states.reindex(columns=[*keys, "over"], fill_value=0)

    # with this one, it begins again while the others go on
    found, states = rows(named(ENVIRONMENT_ENDS, when="all", episodes=2))
    assert found == states[["episode", "environment_episode", "step"]].to_numpy().tolist()
    assert states["environment_episode"].max() >= 1
    # with this one, it does not, and stays as it is until all have ended
    found, states = rows(named(AGENT_OBJECTIVE, a={"brain_avg100": 1e9}))
    first_over = states[states["over"]].groupby("episode")["step"].min()
    kept = states[states["step"] <= states["episode"].map(first_over)]
    assert found == kept[["episode", "environment_episode", "step"]].to_numpy().tolist()
    assert len(kept) < len(states)


@pytest.mark.parametrize("kind", ["cartpole:BatchCartPole", "pendulum:BatchPendulum"])
def test_shipped_batches_draw_themselves(store: Store, kind: str) -> None:
    execute(of(f"palaestrai_mosaik.environment.{kind}", batch=2, max_steps=8), store=store)
    frames = store.frames("latest", episode=1)
    images = [decoded(png) for png in frames["png"]]
    assert len(images) > 3
    assert all(image.shape == images[0].shape for image in images)
    assert any(not np.array_equal(image, images[0]) for image in images)


def test_cart_and_pole_are_where_the_state_says() -> None:
    cart = BatchCartPole()
    middle, right = (
        cart.get_frame([np.array(value) for value in (x, 0.0, angle, 0.0)])
        for x, angle in ((0, 0), (1.2, 0.2))
    )

    def columns(image: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.flatnonzero((image[140] == 0).all(axis=1))

    # 300 pixels show 4.8 m
    assert abs(columns(middle).mean() - 150) <= 1
    assert abs(columns(right).mean() - 225) <= 1
    pole = np.argwhere((right == (202, 152, 101)).all(axis=2))
    assert pole[pole[:, 0].argmin()][1] > 225
    pendulum = BatchPendulum()
    up, left = (pendulum.get_frame([np.array(angle), np.array(0.0)]) for angle in (0.0, np.pi / 2))
    arm = [np.argwhere((image == (204, 77, 77)).all(axis=2)).mean(axis=0) for image in (up, left)]
    # a positive angle turns to the left
    assert arm[0][0] < 80 and abs(arm[0][1] - 100) < 2
    assert arm[1][1] < 80 and abs(arm[1][0] - 100) < 2


def test_a_batch_without_pictures_is_refused() -> None:
    message = problem_of(of(f"{HERE}:Plain", batch=2))
    assert "its class Plain is batched and has no method 'get_frame'" in message


def test_games_of_pettingzoo_are_rendered_or_refused(store: Store) -> None:
    doc = of(PETTINGZOO, id=f"{HERE}:Chess", api="parallel")
    execute(doc, store=store)
    frames = store.frames("latest", episode=0)
    assert frames["step"].tolist() == [0, 1, 2, 3]
    assert [decoded(png)[0, 0].tolist() for png in frames["png"]] == [[n, n, n] for n in range(4)]
    message = problem_of(of(PETTINGZOO, id=f"{HERE}:Chess", kwargs={"modes": ["human"]}))
    assert "does not have the render mode 'rgb_array', only: human" in message
    message = problem_of(of(PETTINGZOO, id=f"{HERE}:Chess", kwargs={"render_mode": "human"}))
    assert "with render_mode 'human'" in message
