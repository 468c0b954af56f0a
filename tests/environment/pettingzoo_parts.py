"""Small games of PettingZoo whose traces can be worked out by hand, and muscles that play."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv

from palaestrai_mosaik.agent import Muscle
from palaestrai_mosaik.environment import Environment, EnvironmentBaseline, EnvironmentState
from palaestrai_mosaik.types import ActuatorInformation, Box, RewardInformation, SensorInformation

CONDITION = "palaestrai_mosaik.simulation.conditions"
HERE = "environment.pettingzoo_parts"


class Fading(ParallelEnv):
    """Three agents give numbers; ``a_0`` dies with step 2, the time of the others runs out with step 4.

    All observe the number of steps and the sum of what was given; agent i is paid 10**i times its number.
    ``a_2`` only comes with step 1.
    """

    metadata = {"name": "fading_v0"}
    render_mode = None

    def __init__(self, killing: int = 2):
        self.possible_agents = ["a_0", "a_1", "a_2"]
        self.killing = killing
        self.given: list[dict[str, int]] = []
        self.seeds: list[int | None] = []
        self.closed = False
        self._observed = spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self._acted = spaces.Discrete(5)

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return self._observed

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return self._acted

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.seeds.append(seed)
        self.agents = ["a_0", "a_1"]
        self.steps = 0
        return self._all({}, self.agents), {agent: {} for agent in self.agents}

    def step(self, actions: Mapping[str, int]) -> Any:
        assert set(actions) == set(self.agents), (actions, self.agents)
        self.given.append(dict(actions))
        self.steps += 1
        here = [*self.agents, "a_2"] if self.steps == 1 else list(self.agents)
        terminated = {agent: agent == "a_0" and self.steps == self.killing for agent in here}
        truncated = {agent: self.steps == 4 and not terminated[agent] for agent in here}
        rewards = {agent: actions.get(agent, 0) * 10 ** int(agent[-1]) for agent in here}
        infos = {agent: {"steps": np.int64(self.steps), "odd": object()} for agent in here}
        self.agents = [agent for agent in here if not (terminated[agent] or truncated[agent])]
        return self._all(actions, here), rewards, terminated, truncated, infos

    def close(self) -> None:
        self.closed = True

    def _all(self, actions: Mapping[str, int], agents: Sequence[str]) -> dict[str, Any]:
        return {agent: np.array([self.steps, sum(actions.values())], dtype=np.float64) for agent in agents}


class Ladder(AECEnv):
    """Agents move in the order of ``order``, again and again; what one gives is paid to all others.

    A number may be given that is at most the number of moves so far (masks are in the infos). Who has
    given 3 leaves the game; it is over when all have. All observe what was given last, plus 4 if it is their turn.
    """

    metadata = {"name": "ladder_v0"}
    render_mode = None

    def __init__(self, order: Sequence[int] = (0, 1, 1)):
        self.possible_agents = [f"p_{i}" for i in sorted(set(order))]
        self.order = [f"p_{i}" for i in order]
        self._observed, self._acted = spaces.Discrete(8), spaces.Discrete(4)

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return self._observed

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return self._acted

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.agents = list(self.possible_agents)
        self.moves = self.last_given = 0
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self._select()

    def step(self, action: int | None) -> None:
        mover = self.agent_selection
        if self.terminations[mover]:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[mover] = 0.0
        self.rewards = {agent: float(action) if agent != mover else 0.0 for agent in self.agents}
        self.terminations[mover] = action == 3
        self.moves += 1
        self.last_given = int(action)
        self._accumulate_rewards()
        self._select()
        self._deads_step_first()

    def observe(self, agent: str) -> int:
        return self.last_given + 4 * (agent == self.agent_selection)

    def _select(self) -> None:
        mask = (np.arange(4) <= self.moves).astype(np.int8)
        self.infos = {agent: {"action_mask": mask} for agent in self.agents}
        living = [a for a in self.agents if not self.terminations[a]]
        turns = [self.order[(self.moves + i) % len(self.order)] for i in range(len(self.order))]
        self.agent_selection = next((a for a in turns if a in living), self.agents[0])


class Queue(Ladder):
    """A ladder in which the last one has left with the first move, but only steps out when it is asked.

    The time of the others runs out with the second move.
    """

    def step(self, action: int | None) -> None:
        if action is None:
            self._was_dead_step(None)
            if self.agents:
                self._select()
            return
        super().step(action)
        if self.moves == 1:
            self.terminations[self.possible_agents[-1]] = True
            self.rewards[self.possible_agents[-1]] = -5.0
        if self.moves == 2:
            self.truncations = dict.fromkeys(self.agents, True)

    def _deads_step_first(self) -> str:
        return self.agent_selection

    def _select(self) -> None:
        super()._select()
        here = [agent for agent in self.order if agent in self.agents]
        self.agent_selection = here[self.moves % len(here)]


class Told(Ladder):
    """A ladder with masks in its observations and its infos, as ``hanabi_v5`` has them."""

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Dict({"observation": spaces.Discrete(8), "action_mask": spaces.MultiBinary(4)})

    def observe(self, agent: str) -> Any:
        return {"observation": super().observe(agent), "action_mask": self.infos[agent]["action_mask"]}


class Nameless(ParallelEnv):
    """Does not say who may take part."""


def nameless() -> Nameless:
    return Nameless()


class Script(Muscle):
    """Gives ``moves`` one after the other (the last again and again), to every actuator."""

    def __init__(self, moves: Sequence[float]):
        self.moves = list(moves)

    def setup(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.count = 0

    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        move = self.moves[min(self.count, len(self.moves) - 1)]
        self.count += 1
        actuators_available.vector = np.full(len(actuators_available), float(move))
        return actuators_available, None


class Legal(Muscle):
    """Draws one of the allowed actions; 0 where none is."""

    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        (mask,) = (s.value for s in sensors if s.uid.endswith(".action_mask"))
        allowed = np.flatnonzero(mask)
        actuators_available[0].value = int(self.rng.choice(allowed)) if len(allowed) else 0
        return actuators_available, None


class Clock(Environment):
    """Reads the number of its steps and what was set last; is paid ten times the steps; ends after ``steps``."""

    def __init__(self, steps: int):
        self.steps = steps

    def setup(self) -> EnvironmentBaseline:
        number = Box(-100.0, 100.0, shape=())
        return EnvironmentBaseline(
            sensors=[SensorInformation(0.0, number, "count"), SensorInformation(0.0, number, "last")],
            actuators=[ActuatorInformation(0.0, number, "number")],
            rewards=[RewardInformation(0.0, number, "pay")],
        )

    def reset(self) -> EnvironmentState:
        self.count = 0
        return EnvironmentState(np.zeros(2), (0.0,))

    def step(self, setpoints: Any) -> EnvironmentState:
        self.count += 1
        readings = np.array([self.count, setpoints[0]])
        return EnvironmentState(readings, (10.0 * self.count,), terminated=self.count == self.steps)


def clocks(worlds: Mapping[str, tuple[int, int]], **condition: Any) -> dict[str, Any]:
    """Return a run document with one agent for each world; ``worlds``: (steps, step size) of each."""
    made = document({}, turns=False, uid="clocks", id="")
    (phase,) = made["schedule"][0].values()
    phase["environments"] = [
        {
            "environment": {
                "uid": f"world_{name}",
                "name": f"{HERE}:Clock",
                "params": {"steps": steps},
                "step_size": size,
            }
        }
        for name, (steps, size) in worlds.items()
    ]
    phase["agents"] = [
        {
            "name": name,
            "muscle": script(0),
            "sensors": [f"world_{name}.*"],
            "actuators": [f"world_{name}.*"],
        }
        for name in worlds
    ]
    phase["simulation"]["conditions"][0]["params"] = condition
    return made


def document(
    players: Mapping[str, Mapping[str, Any]],
    *,
    turns: bool,
    episodes: int = 1,
    seed: int = 1,
    uid: str = "game",
    sensors: Sequence[str] = ("*",),
    **params: Any,
) -> dict[str, Any]:
    """Return a run document in which agent ``<x>`` sits at the place ``<x>`` of a game."""
    agents = [
        {
            "name": name,
            "muscle": dict(muscle),
            "objective": {
                "name": "palaestrai_mosaik.agent.library.aggregate:AggregateRewardsObjective",
                "params": {"rewards": f"{name}.reward"},
            },
            "sensors": [f"game.{name}.{sensor}" for sensor in sensors],
            "actuators": [f"game.{name}.*"],
        }
        for name, muscle in players.items()
    ]
    world = {
        "uid": "game",
        "name": "palaestrai_mosaik.environment.pettingzoo:PettingZooEnvironment",
        "params": params,
    }
    controller = "TakingTurns" if turns else "Vanilla"
    return {
        "uid": uid,
        "seed": seed,
        "version": "3.5",
        "schedule": [
            {
                "play": {
                    "environments": [{"environment": world}],
                    "agents": agents,
                    "simulation": {
                        "name": f"palaestrai_mosaik.simulation:{controller}",
                        "conditions": [{"name": f"{CONDITION}:EnvironmentTerminationCondition"}],
                    },
                    "phase_config": {"mode": "test", "workers": 1, "episodes": episodes},
                }
            }
        ],
        "run_config": {"condition": {"name": f"{CONDITION}:VanillaRunGovernorTerminationCondition"}},
    }


def script(*moves: float) -> dict[str, Any]:
    return {"name": f"{HERE}:Script", "params": {"moves": list(moves)}}


def legal() -> dict[str, Any]:
    return {"name": f"{HERE}:Legal"}
