"""Run documents as PettingZoo environments: the caller controls several agents, the others act by themselves."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box
from gymnasium.utils import EzPickle

from palaestrai_mosaik.core.errors import ContractError
from palaestrai_mosaik.core.importing import needed
from palaestrai_mosaik.core.installation import install_extra
from palaestrai_mosaik.experiment import AnyDocument, as_document
from palaestrai_mosaik.runner.runner import open_store
from palaestrai_mosaik.types import Discrete
from palaestrai_mosaik.types.arrays import FloatVector

from .driver import OBJECTIVE, Options, Player, Session, Turn, add_info, check_copy, check_options, choose
from .spaces import ChannelSpace

try:
    from pettingzoo import AECEnv, ParallelEnv
    from pettingzoo.utils.wrappers import OrderEnforcingWrapper
except ImportError as error:
    raise ImportError(f"this form needs {needed(error)}: {install_extra('rl')}") from error

if TYPE_CHECKING:
    from gymnasium.spaces import Space

    from palaestrai_mosaik.store import Store


class ControlledAgent:
    """One of the caller's agents: a body of the run, its spaces, and its last readings."""

    def __init__(self, player: Player, flatten: bool, dtype: npt.DTypeLike | None):
        self.player = player
        self.seen = ChannelSpace(player.sensors, "sensor", flatten=flatten, dtype=dtype)
        self.set = ChannelSpace(player.actuators, "actuator", flatten=flatten, dtype=dtype)
        self._mask = _mask_of(player)
        self.readings = np.zeros(player.sensors.size)

    @property
    def observation(self) -> Any:
        """The last readings, as a value of its observation space."""
        return self.seen.value(self.readings)

    def info(self, results: Mapping[str, Any]) -> dict[str, Any]:
        """Return the info of a turn: its ``results``, and the action mask, if the agent has one."""
        if self._mask is None:
            return dict(results)
        return {**results, "action_mask": self.readings[self._mask].astype(np.int8)}


def _mask_of(player: Player) -> slice | None:
    """Return the slice of the action mask, the sensor ``<actuator>_mask``, in a player's readings."""
    actuators, sensors = player.actuators, player.sensors
    if len(actuators.uids) != 1 or not isinstance(actuators.spaces[0], Discrete):
        return None
    index = sensors.index.get(f"{actuators.uids[0]}_mask")
    if index is None or sensors.spaces[index].size != actuators.spaces[0].n:
        return None
    return sensors.slices[index]


class RunGame:
    """The common part of both APIs: the agents, their spaces, and the running episode.

    Every body of the caller's agents is an agent here, with the name of its agent in the document, followed by
    ``@<number>`` if that has ``bodies``.

    An episode is one of the run: ``reset()`` starts the next one, with the same random streams as
    in the run; ``reset(seed=s)`` starts at the first episode of the run with that seed. An agent's info has
    ``time`` (mosaik's ticks), and after an action the ``objective`` and all ``rewards`` by name; with
    a sensor ``<actuator>_mask`` for its only actuator, also the ``action_mask``. An agent leaves the game
    when its environments have ended; if they restart within the episode, it sets nothing there.

    :attr:`state_space` is that of :meth:`state`, all sensors of all environments. A copy or unpickled object
    is a new environment, before its first episode. It cannot be made during an
    episode.

    Args:
        document: the path of a file, plain data, or a loaded document.
        agents: the agents of the document that the caller controls; ``None``: all.
        phase: name or number of the phase; ``None``: the first one.
        seed: replaces the document's; ``None``: the document's.
        reward: ``"objective"``: the value of each agent's objective; or the name of a reward.
        flatten: whether observations and actions are flat vectors, or dictionaries by sensor and
            actuator (:class:`~palaestrai_mosaik.interop.rl.spaces.ChannelSpace`).
        dtype: the type of the numbers in a flat ``Box``; ``None``: that of the channels.
        others_learn: whether, in train mode, agents other than the caller's learn, too
            (:class:`~palaestrai_mosaik.interop.rl.driver.Options`).
        store: an open store, or the folder or URL of one, with an execution of the document from which these
            load the models of earlier phases; ``None`` for no store.

    Raises:
        DocumentError: the document cannot be run.
        ContractError: a name does not exist.
        ActionError: (from ``step``) an action is outside its space; it then has no effect.
    """

    render_mode = None

    def __init__(  # noqa: PLR0913 (independent options)
        self,
        document: AnyDocument,
        *,
        agents: Sequence[str] | None = None,
        phase: str | int | None = None,
        seed: int | None = None,
        reward: str = OBJECTIVE,
        flatten: bool = True,
        dtype: npt.DTypeLike | None = None,
        others_learn: bool = False,
        store: Store | str | os.PathLike[str] | None = None,
    ):
        loaded = as_document(document)
        with open_store(store) as opened:
            options = Options(others_learn, opened, seed)
            self.session = Session(loaded, phase=phase, learners=agents, reward=reward, options=options)
        try:
            self._controlled = {
                name: ControlledAgent(player, flatten, dtype) for name, player in self.session.players.items()
            }
            if not self._controlled:
                raise ContractError(
                    f"none of the agents of phase {self.session.phase.name!r} of run {loaded.uid!r} is yours: agents is "
                    "empty"
                )
            self.state_space = Box(*self.session.state_bounds(), dtype=np.float64)
        except BaseException:
            self.session.close()
            raise
        self.possible_agents: list[str] = list(self._controlled)
        self.agents: list[str] = []
        self.metadata = {
            "name": loaded.uid,
            "render_modes": [],
            "is_parallelizable": not self.session.taking_turns,
        }

    def __getstate__(self) -> dict[str, Any]:
        check_copy(bool(self.agents) and not self.session.over)
        state: dict[str, Any] = super().__getstate__()  # type: ignore[assignment]
        return state

    def observation_space(self, agent: str) -> Space[Any]:
        """Return the space of an agent's observations, always the same object."""
        return self._find(agent).seen.space

    def action_space(self, agent: str) -> Space[Any]:
        """Return the space of an agent's actions, always the same object."""
        return self._find(agent).set.space

    def state(self) -> FloatVector:
        """Return the newest readings of all sensors of all environments: (readings,)."""
        return self.session.state()

    def close(self) -> None:
        """End the running episode and release everything."""
        self.session.close()

    def _find(self, agent: str) -> ControlledAgent:
        return self._controlled[choose(self.possible_agents, agent, "agent")]

    def _begin(self, seed: int | None) -> Turn:
        turn = self.session.reset(seed)
        self.agents = list(self.possible_agents)
        for name in self.agents:
            add_info(turn.infos.setdefault(name, {"time": turn.time}), self._controlled[name].player.body)
        self._see(turn)
        return turn

    def _go(self, turn: Turn, setpoints: Mapping[str, FloatVector]) -> Turn:
        """Apply ``setpoints`` of the agents that act in ``turn``.

        Return the next turn in which one of the agents acts, with all results until then.
        """
        now = self._step(turn, setpoints)
        while not (now.over or self._asked(now) or now.terminated.keys() >= set(self.agents)):
            now = _joined(now, self._step(now, {}))
        self._see(now)
        return now

    def _step(self, turn: Turn, setpoints: Mapping[str, FloatVector]) -> Turn:
        nothing = {
            name: np.full(self._controlled[name].player.actuators.size, np.nan) for name in turn.acting
        }
        return self.session.step({**nothing, **setpoints})

    def _asked(self, turn: Turn) -> list[str]:
        """Return the remaining agents that act in ``turn``."""
        # turn.terminated also has agents that were truncated
        return [name for name in turn.acting if name in self.agents and name not in turn.terminated]

    def _see(self, turn: Turn) -> None:
        """Store the agents' readings, also of agents that do not act, if they are known."""
        for name in self.agents:
            controlled = self._controlled[name]
            body = controlled.player.body
            if name in turn.readings:
                controlled.readings = turn.readings[name]
            elif body.filters is None:
                # filtered readings are only known when the agent acts
                controlled.readings = body.channels.readings()


def _joined(before: Turn, after: Turn) -> Turn:
    """Return the turn ``after`` with the results of ``before``, in which none of the agents acted."""
    # after an agent's end, the world may run another episode, which the agent does not take part in
    rewards = {name: value for name, value in after.rewards.items() if name not in before.terminated}
    for name, value in before.rewards.items():
        rewards[name] = rewards.get(name, 0.0) + value
    ended = {name: before.readings[name] for name in before.terminated}
    earlier = {name: info for name, info in before.infos.items() if name in ended or name not in after.infos}
    return replace(
        after,
        readings=after.readings | ended,
        rewards=rewards,
        terminated=after.terminated | before.terminated,
        truncated=after.truncated | before.truncated,
        infos=after.infos | earlier,
    )


class RunParallelEnv(RunGame, ParallelEnv[str, Any, Any], EzPickle):
    """The caller's agents act simultaneously.

    All remaining agents give an action in each step. If environments have different step sizes, an
    agent without new readings does not act: its next action has no effect, and ``acts`` in its info is false.
    """

    def __init__(self, document: AnyDocument, **options: Any):
        check_options(RunGame.__init__, options)
        EzPickle.__init__(self, document, **options)
        super().__init__(document, **options)
        if self.session.taking_turns:
            self.close()
            raise ContractError(
                f"the agents of phase {self.session.phase.name!r} take turns: use palaestrai_mosaik.aec_env"
            )

    def reset(
        self, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """Start an episode; ``options`` have no effect."""
        turn = self._turn = self._begin(seed)
        return self._observations(self.agents), self._infos(turn, self.agents)

    def step(
        self, actions: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]:
        """Perform the actions of all remaining agents."""
        remaining = self.agents
        if not remaining:
            raise ContractError("the episode is over, or was never begun: reset first")
        for name in actions:
            self._find(name)
        missing = [name for name in remaining if name not in actions]
        if missing:
            raise ContractError(f"there is no action for {', '.join(missing)}")
        # check all of them before any has an effect
        vectors = {name: self._controlled[name].set.vector(actions[name]) for name in remaining}
        acting = {name: vectors[name] for name in self._asked(self._turn)}
        turn = self._turn = self._go(self._turn, acting)
        ends = {name: turn.terminated.get(name, False) for name in remaining}
        cuts = {name: turn.truncated.get(name, False) for name in remaining}
        rewards = {name: turn.rewards.get(name, 0.0) for name in remaining}
        self.agents = [name for name in remaining if not (ends[name] or cuts[name])]
        return self._observations(remaining), rewards, ends, cuts, self._infos(turn, remaining)

    def _observations(self, names: Sequence[str]) -> dict[str, Any]:
        return {name: self._controlled[name].observation for name in names}

    def _infos(self, turn: Turn, names: Sequence[str]) -> dict[str, dict[str, Any]]:
        return {
            name: self._controlled[name].info(
                {"acts": name in turn.acting, **turn.infos.get(name, {"time": turn.time})}
            )
            for name in names
        }


class RunAECEnv(RunGame, AECEnv[str, Any, Any], EzPickle):
    """The caller's agents act one after the other, in the document's order.

    If they take turns, the world steps after each of them; if all act at once, after the last one, and all
    see the same state. An agent receives its reward with the next step of the world.
    """

    agent_selection: str

    def __init__(self, document: AnyDocument, **options: Any):
        check_options(RunGame.__init__, options)
        EzPickle.__init__(self, document, **options)
        super().__init__(document, **options)

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        """Start an episode; ``options`` have no effect."""
        turn = self._begin(seed)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {name: {"time": turn.time} for name in self.agents}
        self._chosen: dict[str, FloatVector] = {}
        self._skip_agent_selection = None
        self._take(turn)

    def step(self, action: Any) -> None:
        """Perform the selected agent's action; ``None`` for an agent that has ended."""
        if not self.agents:
            raise ContractError("the episode is over, or was never begun: reset first")
        name = self.agent_selection
        if self.terminations[name] or self.truncations[name]:
            self._was_dead_step(action)
            return
        if self.session.over:
            raise ContractError("the episode is over, for something in it has failed: reset first")
        controlled = self._controlled[name]
        vector = controlled.set.vector(action)
        # if all act at once, it only takes effect with the last agent's action
        controlled.set.check(vector)
        self._chosen[name] = vector
        self._waiting.remove(name)
        self._cumulative_rewards[name] = 0.0
        self._clear_rewards()
        if self._waiting:
            self.agent_selection = self._waiting[0]
        else:
            chosen, self._chosen = self._chosen, {}
            self._take(self._go(self._turn, chosen))
        self._accumulate_rewards()

    def observe(self, agent: str) -> Any:
        """Return an agent's observation, or its last one after its end."""
        return self._find(agent).observation

    def _take(self, turn: Turn) -> None:
        """Store the results of a turn, and select the next agent."""
        self._turn = turn
        self._waiting = self._asked(turn)
        for name in self.agents:
            if self.terminations[name] or self.truncations[name]:
                continue
            self.rewards[name] = turn.rewards.get(name, 0.0)
            self.terminations[name] = turn.terminated.get(name, False)
            self.truncations[name] = turn.truncated.get(name, False)
            # keep the last info; the mask belongs to the agent's newest readings
            self.infos[name] = self._controlled[name].info(turn.infos.get(name, self.infos[name]))
        self.agent_selection = self._waiting[0] if self._waiting else self.agents[0]
        self._deads_step_first()


def ordered(document: AnyDocument, **options: Any) -> AECEnv[str, Any, Any]:
    """Make a :class:`RunAECEnv` that raises an error for calls in the wrong order, like PettingZoo's own."""
    return OrderEnforcingWrapper(RunAECEnv(document, **options))
