"""PettingZoo's games, unchanged, with simultaneous moves (parallel) or moves in turn (AEC).

Needs the extra ``rl`` (or PettingZoo alone).
"""

from __future__ import annotations

import inspect
import pkgutil
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.core.checks import check_whole
from palaestrai_mosaik.core.errors import ActionError, ContractError, NameResolutionError, did_you_mean
from palaestrai_mosaik.core.importing import (
    check_origin,
    class_name,
    import_module,
    misfit,
    needed,
)
from palaestrai_mosaik.core.installation import install_extra
from palaestrai_mosaik.types import Discrete, MultiBinary, SensorInformation
from palaestrai_mosaik.types.arrays import FloatVector

from .batch import slices_of
from .environment import Environment, EnvironmentBaseline, EnvironmentState
from .farama import (
    Action,
    Part,
    actuators_of,
    check_maker,
    failed_make,
    gained,
    nearest_to_zero,
    parts_of,
    plain_info,
    rewards_of,
    sensors_of,
    try_to_render,
    with_render_mode,
)

try:
    import pettingzoo
    from pettingzoo import AECEnv, ParallelEnv
except ImportError as error:
    raise ImportError(f"this environment needs {needed(error)}: {install_extra('rl')}") from error

PARALLEL, AEC = "parallel", "aec"

#: names of the factory functions in PettingZoo's modules
_MAKERS = {PARALLEL: "parallel_env", AEC: "env"}

Agent = Hashable


class Game(ABC):
    """A running game and the results of its newest step.

    ``agents`` are all possible agents, in order; ``seen`` their new observations; ``gains`` the rewards;
    ``ends`` (terminated, truncated); ``infos`` those of the agents in the step. ``playing`` are the agents
    still in the game. ``turn`` is the agent to move, or ``None`` if all move at once or the game is over.
    """

    turn: Agent | None = None
    seen: dict[Agent, Any]
    gains: dict[Agent, Any]
    ends: dict[Agent, tuple[bool, bool]]
    infos: Mapping[Agent, Mapping[str, Any]]

    def __init__(self, made: Any):
        self.made = made
        self.agents: tuple[Agent, ...] = tuple(made.possible_agents)
        self.playing: list[Agent] = []

    @abstractmethod
    def reset(self, seed: int) -> None:
        """Start a new game."""

    @abstractmethod
    def move(self, actions: Mapping[Agent, Any]) -> None:
        """Perform the actions of all playing agents, or of the agent to move."""

    def _note(
        self, seen: Mapping[Agent, Any], gains: Mapping[Agent, Any], ends: Mapping[Agent, tuple[bool, bool]]
    ) -> None:
        unexpected = [agent for agent in (*seen, *gains) if agent not in self.agents]
        if unexpected:
            raise ContractError(
                f"agent {unexpected[0]!r} came into the game {self.made}, which has only said that there may be "
                f"{', '.join(map(str, self.agents))} (possible_agents)"
            )
        self.seen = {agent: value for agent, value in seen.items() if value is not None}
        self.gains = dict(gains)
        self.ends = dict(ends)


class ParallelGame(Game):
    """A game in which all agents act at once."""

    def reset(self, seed: int) -> None:
        seen, infos = self.made.reset(seed=seed)
        self._note(seen, {}, {})
        self.infos = infos
        self.playing = list(self.made.agents)

    def move(self, actions: Mapping[Agent, Any]) -> None:
        seen, gains, terminated, truncated, self.infos = self.made.step(dict(actions))
        ends = {agent: (bool(terminated[agent]), bool(truncated[agent])) for agent in terminated}
        self._note(seen, gains, ends)
        self.playing = [agent for agent in self.made.agents if not any(ends.get(agent, ()))]


class TurnGame(Game):
    """A game in which agents act in turn (AEC)."""

    def reset(self, seed: int) -> None:
        self.made.reset(seed=seed)
        #: agents that have ended but have not yet stepped out of the game
        self._leaving: set[Agent] = set()
        self._look()

    def move(self, actions: Mapping[Agent, Any]) -> None:
        self.made.step(actions[self.turn])
        self._look()

    def _look(self) -> None:
        """Record the game's state, and step those agents out of it that have ended."""
        made = self.made
        # PettingZoo clears rewards and ends once the first agent has stepped out
        gains = dict(made.rewards)
        ends = {a: self._end(a) for a in made.agents if a not in self._leaving}
        self.infos = dict(made.infos)
        seen = {agent: made.observe(agent) for agent in made.agents}
        removed = False
        while made.agents and any(self._end(made.agent_selection)):
            made.step(None)
            removed = True
        if removed:
            # observations may depend on the agent to move
            seen |= {agent: made.observe(agent) for agent in made.agents}
        self._note(seen, gains, ends)
        self._leaving = {agent for agent in made.agents if any(self._end(agent))}
        self.playing = [agent for agent in made.agents if agent not in self._leaving]
        self.turn = made.agent_selection if made.agents else None

    def _end(self, agent: Agent) -> tuple[bool, bool]:
        return bool(self.made.terminations[agent]), bool(self.made.truncations[agent])


def make_game(id: str, kwargs: Mapping[str, Any], api: str | None) -> Game:
    """Make the game called ``id`` (see ``PettingZooEnvironment``) with ``kwargs``.

    Raises :class:`NameResolutionError` if it does not exist, :class:`ContractError` if it cannot be made, has
    another API than ``api``, or does not declare its agents.
    """
    maker = _named(id, api) if ":" in id else _registered(id, api)
    try:
        made = maker(**kwargs)
    except ImportError as error:
        raise ContractError(f"game {id!r} needs what is not there: {error}") from error
    except Exception as error:
        raise failed_make(
            error, f"game {id!r}", partial(misfit, maker, kwargs), f" with {dict(kwargs)}"
        ) from error
    for kind, theirs, ours in ((PARALLEL, ParallelEnv, ParallelGame), (AEC, AECEnv, TurnGame)):
        if isinstance(made, theirs):
            if api not in (None, kind):
                raise ContractError(f"{id!r} makes a game of the API {kind!r}, not {api!r}")
            if not getattr(made, "possible_agents", None):
                raise ContractError(f"game {id!r} does not say who may take part: it has no possible_agents")
            return ours(made)
    raise ContractError(
        f"{id!r} makes a {type(made).__name__}, which is no game of PettingZoo (AECEnv, ParallelEnv)"
    )


def _named(id: str, api: str | None) -> Callable[..., Any]:
    """Import ``module:name``: a factory, or a module with a factory."""
    # its keywords come from the document, so functions of this package are refused as well
    module_name, _, name = id.partition(":")
    module = import_module(module_name, ours=False)
    target: Callable[..., Any] | None = getattr(module, name, None)
    if target is None:
        raise NameResolutionError(
            f"the module {module_name!r} has no game {name!r}{did_you_mean(name, _games_of(module))}"
        )
    check_origin(target, id, ours=False)
    if callable(target):
        return target
    for kind in (PARALLEL, AEC) if api is None else (api,):
        maker: Callable[..., Any] | None = getattr(target, _MAKERS.get(kind, ""), None)
        if callable(maker):
            return maker
    factories = " or ".join(f"{_MAKERS[kind]!r}" for kind in ((PARALLEL, AEC) if api is None else (api,)))
    raise NameResolutionError(f"{id!r} is no function that makes a game, and has no {factories}")


def _games_of(module: ModuleType) -> list[str]:
    functions = [
        key for key, value in vars(module).items() if inspect.isroutine(value) or inspect.isclass(value)
    ]
    return [
        *functions,
        *(module_info.name for module_info in pkgutil.iter_modules(getattr(module, "__path__", []))),
    ]


def _registered(id: str, api: str | None) -> Callable[..., Any]:
    """Return the factory of a game in PettingZoo's registry."""
    registries: dict[str, Any] = {
        kind: getattr(pettingzoo, f"{kind}_registry", None) for kind in (PARALLEL, AEC)
    }
    if None in registries.values():
        raise NameResolutionError(
            f"{id!r} is no name such as 'module:function'; PettingZoo {pettingzoo.__version__} has no registry of "
            "games yet (1.27 has)"
        )
    # PettingZoo accepts both "_v2" and "-v2"
    key = re.sub(r"_v(?=\d+$)", "-v", id)
    for kind, registry in registries.items():
        if api in (None, kind) and key in registry:
            check_maker(id, registry[key].entry_point, "pettingzoo")
            make: Callable[..., Any] = registry[key].make
            return make
    names = {name for kind, registry in registries.items() if api in (None, kind) for name in registry}
    which = "" if api is None else f" of the API {api!r}"
    raise NameResolutionError(
        f"PettingZoo has no game {id!r}{which}{did_you_mean(key, names)}; write 'module:function' for one of your own"
    )


try:
    from gymnasium import spaces
except ImportError as error:
    raise ImportError(f"this environment needs {needed(error)}: {install_extra('rl')}") from error

#: the key of the legal actions in an observation or info
MASK = "action_mask"

#: how to treat a move that the mask does not allow
REFUSE, PLAY = "refuse", "play"


class GameAgent:
    """An agent's part in a game: its channels, readings, set-points, and rewards not yet paid out."""

    def __init__(self, agent: Agent, game: Game, masked: bool):
        self.agent, self.uid = agent, str(agent)
        self.parts = list(_observed(self.uid, game.made.observation_space(agent)))
        self.action = Action(f"{self.uid}.action", game.made.action_space(agent))
        #: slice of its set-points among those of the environment
        self.where = slice(0)
        discrete = self.action.parts[0].ours if isinstance(self.action.space, spaces.Discrete) else None
        #: the first of its numbered actions and their count, (0, 0) if they are not numbered
        self.first, self.count = (discrete.start, discrete.n) if isinstance(discrete, Discrete) else (0, 0)
        #: whether the mask is part of the observation
        self._has_mask = self.count > 0 and any(part.way == (MASK,) for part in self.parts)
        # if observation and infos both have a mask, as in hanabi_v5, the observation's counts
        self.masked = masked and self.count > 0 and not self._has_mask
        alive = SensorInformation(0, Discrete(2), f"{self.uid}.alive")
        self.sensors = sensors_of(self.parts)
        if self.masked:
            allowed = MultiBinary(self.count)
            self.sensors.append(SensorInformation(np.ones(allowed.shape), allowed, f"{self.uid}.{MASK}"))
        self.sensors.append(alive)
        space_of = getattr(game.made, "reward_space", None)
        self.rewards = rewards_of(f"{self.uid}.reward", space_of(agent) if callable(space_of) else None)
        self._idle = np.concatenate(
            [np.empty(0), *(p.ours.flatten(nearest_to_zero(p.ours)) for p in self.action.parts)]
        )
        self.begin()

    def begin(self) -> None:
        """Reset to the start of a game."""
        firsts = [part.ours.flatten(nearest_to_zero(part.ours)) for part in self.parts]
        self.readings = np.concatenate([np.empty(0), *firsts])
        self.mask: npt.NDArray[Any] | None = None
        #: the set-points in force; whether the step brought new ones; whether any came in this game
        self.setpoints = self._idle
        self.acts = self.has_acted = False
        #: rewards not yet paid out
        self.due = np.zeros(len(self.rewards))

    def take(self, setpoints: FloatVector) -> None:
        """Apply this step's set-points; NaN keeps the old value."""
        is_set = ~np.isnan(setpoints)
        self.acts = bool(is_set.any())
        if self.acts:
            self.has_acted = True
            self.setpoints = np.where(is_set, setpoints, self.setpoints)

    def observe(self, seen: Any, info: Mapping[str, Any]) -> None:
        """Store the agent's observation and the mask of its info."""
        self.readings = np.concatenate([np.empty(0), *(part.read(seen) for part in self.parts)])
        mask = seen[MASK] if self._has_mask else info.get(MASK) if self.masked else None
        self.mask = None if mask is None else np.asarray(mask)

    def pay(self) -> FloatVector:
        """Pay out the rewards due if the agent acts in this step; otherwise return zeros."""
        paid = self.due if self.acts else np.zeros(len(self.rewards))
        self.due = self.due - paid
        return paid

    def vector(self, alive: bool) -> Iterator[npt.ArrayLike]:
        """Yield the readings of its sensors."""
        yield self.readings
        if self.masked:
            yield np.ones(self.count) if self.mask is None else self.mask
        yield (float(alive),)


class PettingZooEnvironment(Environment):
    """A game of PettingZoo.

    An agent's sensors are ``<agent>.observation``, ``<agent>.action_mask`` (if the game has masks, in its
    observations or infos) and ``<agent>.alive`` (1 while it takes part). Its actuator is ``<agent>.action``,
    its reward ``<agent>.reward`` (``<agent>.reward.0`` and so on if the game has a ``reward_space`` of several
    numbers for it). Each entry of a ``Dict`` or ``Tuple`` has its own sensor or actuator
    (``<agent>.observation.<key>``). One tick is one step. Every episode starts with a reset that is seeded
    from :attr:`rng`. An agent that has left the game keeps its last readings, and its set-points have no
    effect; the episode ends when all have left.

    In a parallel game, an agent's last set-point holds (at first 0, or the allowed value nearest to it). An
    AEC game also has the sensor ``turn``: the index in ``possible_agents`` of the agent that is to move, or
    the number of agents once the game is over. Set-points of other agents have no effect, and the game waits,
    step by step, until the agent that is to move sets something.

    A reward is paid with the step that follows a set-point of its agent; until then it accumulates, as in
    PettingZoo's ``last()``. A finished game therefore continues until all agents that took part have received
    their rewards.

    Args:
        id: ``module:name`` of a function or class that makes the game, or of a module that has
            ``parallel_env`` or ``env`` (``pettingzoo.classic:rps_v2``); or the name of a game in
            PettingZoo's registry (``classic/rps_v2``; from PettingZoo 1.27).
        kwargs: keywords of the game; ``None``: none.
        api: ``parallel`` or ``aec``, if the game has both; ``None``: parallel.
        illegal_moves: a move that the mask does not allow is an error (``refuse``), or left to the game
            (``play``).
        patience: number of steps that an AEC game waits for an agent that is to move, before it fails.
    """

    rewards_accumulate = True
    hold_setpoints = False
    missing_remedy = ""
    #: whether frames are requested
    _frames = False
    #: the game from its setup to its shutdown
    _game: Game

    def __init__(
        self,
        id: str,
        kwargs: Mapping[str, Any] | None = None,
        api: str | None = None,
        illegal_moves: str = REFUSE,
        patience: int = 100,
    ):
        if not isinstance(id, str) or not id:
            raise ContractError(f"id must be a name such as classic/rps_v2 or module:function, not {id!r}")
        for name, value, allowed in (
            ("api", api, (None, PARALLEL, AEC)),
            ("illegal_moves", illegal_moves, (REFUSE, PLAY)),
        ):
            if value not in allowed:
                words = [word for word in allowed if word is not None]
                raise ContractError(
                    f"{name} must be {' or '.join(words)}, not {value!r}{did_you_mean(str(value), words)}"
                )
        check_whole("patience", patience, 1)
        self.id = id
        self.kwargs = dict(kwargs or {})
        self.api = api
        self.illegal_moves = illegal_moves
        self.patience = patience

    def enable_frames(self) -> None:
        """Request the render mode ``rgb_array``. Raises :class:`RenderError` if ``kwargs`` request another."""
        self.kwargs = with_render_mode(self.kwargs, self.uid)
        self._frames = True

    def setup(self) -> EnvironmentBaseline:
        """Make the game.

        Raises :class:`ContractError` or :class:`NameResolutionError` if it cannot be made, :class:`RenderError`
        if frames are requested and cannot be rendered.
        """
        if self._frames:
            who = f"environment {self.uid!r} ({self.id})"
            try_to_render(lambda kwargs: make_game(self.id, kwargs, self.api).made, self.kwargs, who)
        game = self._game = make_game(self.id, self.kwargs, self.api)
        self._turns = isinstance(game, TurnGame)
        # only a game that has started shows whether its infos have masks
        game.reset(0)
        masked = any(MASK in info for info in game.infos.values())
        self._seats = {agent: GameAgent(agent, game, masked) for agent in game.agents}
        seats = list(self._seats.values())
        for seat, part in zip(seats, slices_of([(seat.action.size,) for seat in seats]), strict=True):
            seat.where = part
        sensors = [sensor for seat in seats for sensor in seat.sensors]
        if self._turns:
            sensors.append(SensorInformation(0, Discrete(len(seats) + 1), "turn"))
        actuators = actuators_of([part for seat in seats for part in seat.action.parts])
        return EnvironmentBaseline(sensors, actuators, [reward for seat in seats for reward in seat.rewards])

    def source_of(self, sensor: str | None) -> str:
        return f"PettingZoo's {self.id}"

    def reset(self) -> EnvironmentState:
        for seat in self._seats.values():
            seat.begin()
        self._waited = 0
        self._ends: tuple[bool, bool] = (False, False)
        self._game.reset(int(self.rng.integers(2**31)))
        return self._state(self._look())

    def step(self, setpoints: FloatVector) -> EnvironmentState:
        game = self._game
        for seat in self._seats.values():
            seat.take(setpoints[seat.where])
        movers = game.playing if game.turn is None else [game.turn]
        if game.turn is not None and not self._seats[game.turn].acts:
            movers = []
            self._wait(self._seats[game.turn])
        infos: Mapping[str, Any] = {}
        if movers:
            self._waited = 0
            game.move({agent: self._move(self._seats[agent], setpoints) for agent in movers})
            infos = self._look()
            if not game.playing:
                terminated = any(end[0] for end in game.ends.values())
                self._ends = (terminated, not terminated or any(end[1] for end in game.ends.values()))
        elif not game.playing:
            self._waited += 1
        return self._state(infos)

    def render(self) -> Any:
        """Render the state with the ``render_mode`` of ``kwargs``."""
        return self._game.made.render()

    def shutdown(self) -> None:
        game = vars(self).pop("_game", None)
        if game is not None:
            game.made.close()

    def _move(self, seat: GameAgent, setpoints: FloatVector) -> Any:
        """Return an agent's action for the game. Raises :class:`ActionError` for an illegal move."""
        # in an AEC game the set-points must be complete: those of an earlier move do not hold
        chosen = setpoints[seat.where] if self._turns else seat.setpoints
        action = seat.action.compose(chosen, self.uid)
        if seat.mask is not None and self.illegal_moves == REFUSE:
            index = int(action) - seat.first
            if not (0 <= index < len(seat.mask) and seat.mask[index]):
                raise ActionError(
                    f"environment {self.uid!r}: set-point {int(action)} of actuator {seat.action.parts[0].uid!r} is "
                    f"not allowed now: {MASK} is {seat.mask.astype(int).tolist()} (illegal_moves: play leaves it to "
                    "the game)"
                )
        return action

    def _wait(self, seat: GameAgent) -> None:
        self._waited += 1
        if self._waited > self.patience:
            raise ActionError(
                f"environment {self.uid!r}: it is the turn of {seat.uid!r}, but nobody has set "
                f"{seat.action.parts[0].uid!r} for {self.patience} steps (patience); which agent acts there?"
            )

    def _look(self) -> dict[str, Any]:
        """Store the game's observations and rewards in the seats, and return the infos."""
        game = self._game
        for agent, seen in game.seen.items():
            self._seats[agent].observe(seen, game.infos.get(agent, {}))
        for agent, gain in game.gains.items():
            seat = self._seats[agent]
            seat.due = seat.due + gained(gain, seat.rewards, partial(self._describe_step, seat))
        infos = {str(agent): plain_info(info, without=MASK) for agent, info in game.infos.items()}
        return {agent: info for agent, info in infos.items() if info}

    def _describe_step(self, seat: GameAgent) -> str:
        """Describe the step for error messages."""
        game = class_name(type(self._game.made.unwrapped))
        return f"environment {self.uid!r} ({game}), step, agent {seat.uid!r}"

    def _state(self, infos: Mapping[str, Any]) -> EnvironmentState:
        game = self._game
        seats = self._seats.values()
        parts = [part for seat in seats for part in seat.vector(seat.agent in game.playing)]
        if self._turns:
            turn = len(seats) if game.turn is None else game.agents.index(game.turn)
            parts.append((float(turn),))
        rewards = tuple(value for seat in seats for value in seat.pay().tolist())
        paid = self._waited > self.patience or not any(seat.due.any() for seat in seats if seat.has_acted)
        terminated, truncated = self._ends if paid else (False, False)
        readings = np.concatenate(parts, dtype=np.float64)
        return EnvironmentState(readings, rewards, terminated, truncated, {"infos": infos} if infos else None)


def _observed(agent: str, space: spaces.Space[Any]) -> Iterator[Part]:
    """Yield the parts of an agent's observation."""
    if not (isinstance(space, spaces.Dict) and MASK in space.spaces):
        yield from parts_of(f"{agent}.observation", space)
        return
    for key, entry in space.spaces.items():
        name = key if key in ("observation", MASK) else f"observation.{key}"
        yield from parts_of(f"{agent}.{name}", entry, (key,))
