"""Games of PettingZoo, unchanged: all act at once (parallel), or one after the other (AEC).

Needs the extra ``rl`` (or PettingZoo alone).
"""

from __future__ import annotations

import inspect
import pkgutil
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.errors import ActionError, ContractError, NameResolutionError, did_you_mean
from palaestrai_mosaik.importing import check_origin, import_module, misfit, needed, raised_at, refusal
from palaestrai_mosaik.installation import install_extra
from palaestrai_mosaik.types import Discrete, MultiBinary, SensorInformation
from palaestrai_mosaik.types.arrays import FloatVector

from .environment import Environment, EnvironmentBaseline, EnvironmentState
from .farama_frames import try_to_render, with_render_mode
from .farama_spaces import (
    Action,
    Part,
    actuators_of,
    nearest_to_zero,
    parts_of,
    plain_info,
    reward,
    sensors_of,
)

try:
    import pettingzoo
    from pettingzoo import AECEnv, ParallelEnv
except ImportError as error:
    raise ImportError(f"this environment needs {needed(error)}: {install_extra('rl')}") from error

PARALLEL, AEC = "parallel", "aec"

#: what the functions that make a game are called in PettingZoo's modules
_MAKERS = {PARALLEL: "parallel_env", AEC: "env"}

Agent = Hashable


class Game(ABC):
    """A game that goes on, and what it said last.

    ``agents``: all that may take part, in order. ``seen``, ``gains``, ``ends`` and ``infos`` are of the newest
    step: what those agents observe of whom there is a new observation, the rewards, (terminated,
    truncated), and the infos of those who took part in it. ``playing`` are those who still do, ``turn``
    is the one whose move it is (``None``: that of all who play, or nobody plays).
    """

    turn: Agent | None = None
    seen: dict[Agent, Any]
    gains: dict[Agent, float]
    ends: dict[Agent, tuple[bool, bool]]
    infos: Mapping[Agent, Mapping[str, Any]]

    def __init__(self, made: Any):
        self.made = made
        self.agents: tuple[Agent, ...] = tuple(made.possible_agents)
        self.playing: list[Agent] = []

    @abstractmethod
    def reset(self, seed: int) -> None:
        """Begin a new game."""

    @abstractmethod
    def move(self, actions: Mapping[Agent, Any]) -> None:
        """Let agents act: all who play, or only the agent that has its turn."""

    def _note(
        self, seen: Mapping[Agent, Any], gains: Mapping[Agent, Any], ends: Mapping[Agent, tuple[bool, bool]]
    ) -> None:
        strange = [agent for agent in (*seen, *gains) if agent not in self.agents]
        if strange:
            raise ContractError(
                f"agent {strange[0]!r} came into the game {self.made}, which has only said that there may be "
                f"{', '.join(map(str, self.agents))} (possible_agents)"
            )
        self.seen = {agent: value for agent, value in seen.items() if value is not None}
        self.gains = {agent: float(value) for agent, value in gains.items()}
        self.ends = dict(ends)


class ParallelGame(Game):
    """One in which all act at once."""

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
    """One in which they act one after the other (AEC)."""

    def reset(self, seed: int) -> None:
        self.made.reset(seed=seed)
        #: who has ended, but is still to step out of the game
        self._leaving: set[Agent] = set()
        self._look()

    def move(self, actions: Mapping[Agent, Any]) -> None:
        self.made.step(actions[self.turn])
        self._look()

    def _look(self) -> None:
        """Take note of what the game says, and let those step out of it who have ended."""
        made = self.made
        # rewards and ends are gone once the first of them has stepped out
        gains = dict(made.rewards)
        ends = {a: self._end(a) for a in made.agents if a not in self._leaving}
        self.infos = dict(made.infos)
        seen = {agent: made.observe(agent) for agent in made.agents}
        turned = False
        while made.agents and any(self._end(made.agent_selection)):
            made.step(None)
            turned = True
        if turned:
            # whose turn it is may be a part of what agents see
            seen |= {agent: made.observe(agent) for agent in made.agents}
        self._note(seen, gains, ends)
        self._leaving = {agent for agent in made.agents if any(self._end(agent))}
        self.playing = [agent for agent in made.agents if agent not in self._leaving]
        self.turn = made.agent_selection if made.agents else None

    def _end(self, agent: Agent) -> tuple[bool, bool]:
        return bool(self.made.terminations[agent]), bool(self.made.truncations[agent])


def make_game(id: str, kwargs: Mapping[str, Any], api: str | None) -> Game:
    """Return the game that ``id`` stands for (see ``PettingZooEnvironment``), made with ``kwargs``.

    Raises :class:`NameResolutionError` if it does not exist, :class:`ContractError` if it cannot be made, is of
    the other API than ``api``, or does not say who may take part.
    """
    maker = _named(id, api) if ":" in id else _registered(id, api)
    try:
        made = maker(**kwargs)
    except ImportError as error:
        raise ContractError(f"game {id!r} needs what is not there: {error}") from error
    except Exception as error:
        misfits = misfit(maker, kwargs) if isinstance(error, TypeError) else None
        if misfits is not None:
            raise ContractError(f"game {id!r} does not take these kwargs: {misfits}") from error
        raise ContractError(f"game {id!r} cannot be made with {dict(kwargs)}: {raised_at(error)}") from error
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
    """Return the function ``module:name``, or that of the module of this name."""
    # a function is called with keywords of the document, so those of this package are no exception
    module_name, _, name = id.partition(":")
    module = import_module(module_name, ours=False)
    found: Callable[..., Any] | None = getattr(module, name, None)
    if found is None:
        raise NameResolutionError(
            f"the module {module_name!r} has no game {name!r}{did_you_mean(name, _games_of(module))}"
        )
    check_origin(found, id, ours=False)
    if callable(found):
        return found
    for kind in (PARALLEL, AEC) if api is None else (api,):
        maker: Callable[..., Any] | None = getattr(found, _MAKERS.get(kind, ""), None)
        if callable(maker):
            return maker
    wanted = " or ".join(f"{_MAKERS[kind]!r}" for kind in ((PARALLEL, AEC) if api is None else (api,)))
    raise NameResolutionError(f"{id!r} is no function that makes a game, and has no {wanted}")


def _games_of(module: ModuleType) -> list[str]:
    functions = [
        key for key, value in vars(module).items() if inspect.isroutine(value) or inspect.isclass(value)
    ]
    return [*functions, *(one.name for one in pkgutil.iter_modules(getattr(module, "__path__", [])))]


def _registered(id: str, api: str | None) -> Callable[..., Any]:
    """Return the maker of a game that is registered with PettingZoo."""
    registries: dict[str, Any] = {
        kind: getattr(pettingzoo, f"{kind}_registry", None) for kind in (PARALLEL, AEC)
    }
    if None in registries.values():
        raise NameResolutionError(
            f"{id!r} is no name such as 'module:function'; PettingZoo {pettingzoo.__version__} has no registry of "
            "games yet (1.27 has)"
        )
    # PettingZoo takes both forms of the version
    key = re.sub(r"_v(?=\d+$)", "-v", id)
    for kind, registry in registries.items():
        if api in (None, kind) and key in registry:
            spec = registry[key]
            origin = spec.entry_point
            home = origin.partition(":")[0] if isinstance(origin, str) else getattr(origin, "__module__", "")
            fault = None if home.partition(".")[0] == "pettingzoo" else refusal(home)
            if fault is not None:
                raise NameResolutionError(f"{id!r} is made by {origin}: {fault}")
            found: Callable[..., Any] = spec.make
            return found
    known = {name for kind, registry in registries.items() if api in (None, kind) for name in registry}
    which = "" if api is None else f" of the API {api!r}"
    raise NameResolutionError(
        f"PettingZoo has no game {id!r}{which}{did_you_mean(key, known)}; write 'module:function' for one of your own"
    )


try:
    from gymnasium import spaces
except ImportError as error:
    raise ImportError(f"this environment needs {needed(error)}: {install_extra('rl')}") from error

#: the entry of an observation, or of an info, that says which actions are allowed
MASK = "action_mask"

#: what happens to a move that the mask does not allow
REFUSE, PLAY = "refuse", "play"


class GameAgent:
    """An agent's place in the game: its channels, its readings and set-points, and rewards that it has not received yet."""

    def __init__(self, agent: Agent, game: Game, masked: bool):
        self.agent, self.uid = agent, str(agent)
        self.parts = list(_observed(self.uid, game.made.observation_space(agent)))
        self.action = Action(f"{self.uid}.action", game.made.action_space(agent))
        #: where its set-points are in those of the environment
        self.where = slice(0)
        numbered = self.action.parts[0].ours if isinstance(self.action.space, spaces.Discrete) else None
        #: its actions, if they are numbered: the first one, and how many
        self.first, self.count = (numbered.start, numbered.n) if isinstance(numbered, Discrete) else (0, 0)
        #: the mask comes with the infos
        self._has_mask = self.count > 0 and any(part.way == (MASK,) for part in self.parts)
        # (where it is in both, as hanabi_v5 has it, it is that of the observation)
        self.masked = masked and self.count > 0 and not self._has_mask
        alive = SensorInformation(0, Discrete(2), f"{self.uid}.alive")
        self.sensors = sensors_of(self.parts)
        if self.masked:
            allowed = MultiBinary(self.count)
            self.sensors.append(SensorInformation(np.ones(allowed.shape), allowed, f"{self.uid}.{MASK}"))
        self.sensors.append(alive)
        self._idle = np.concatenate(
            [np.empty(0), *(p.ours.flatten(nearest_to_zero(p.ours)) for p in self.action.parts)]
        )
        self.begin()

    def begin(self) -> None:
        """Forget the last game."""
        firsts = [part.ours.flatten(nearest_to_zero(part.ours)) for part in self.parts]
        self.readings = np.concatenate([np.empty(0), *firsts])
        self.mask: npt.NDArray[Any] | None = None
        #: its set-points, held; whether some are new; whether it has ever given one in this game
        self.setpoints = self._idle
        self.acts = self.has_acted = False
        #: rewards that it has not received
        self.due = 0.0

    def take(self, setpoints: FloatVector) -> None:
        """Take its set-points of this step (NaN: none) over."""
        given = ~np.isnan(setpoints)
        self.acts = bool(given.any())
        if self.acts:
            self.has_acted = True
            self.setpoints = np.where(given, setpoints, self.setpoints)

    def observe(self, seen: Any, info: Mapping[str, Any]) -> None:
        """Take over what the agent observes, and its info."""
        self.readings = np.concatenate([np.empty(0), *(part.read(seen) for part in self.parts)])
        mask = seen[MASK] if self._has_mask else info.get(MASK) if self.masked else None
        self.mask = None if mask is None else np.asarray(mask)

    def pay(self) -> float:
        """Return the rewards that an agent who acts is due, and 0 for one who does not."""
        paid = self.due if self.acts else 0.0
        self.due -= paid
        return paid

    def vector(self, alive: bool) -> Iterator[npt.ArrayLike]:
        """Yield what its sensors read."""
        yield self.readings
        if self.masked:
            yield np.ones(self.count) if self.mask is None else self.mask
        yield (float(alive),)


class PettingZooEnvironment(Environment):
    """A game of PettingZoo.

    An agent's sensors are ``<agent>.observation``, ``<agent>.action_mask`` (if the game has masks, in its
    observations or infos) and ``<agent>.alive`` (1 while it takes part), its actuator is ``<agent>.action``,
    its reward ``<agent>.reward``; an entry of a ``Dict`` or ``Tuple`` is one of its own
    (``<agent>.observation.<key>``). One tick is one step. Every episode begins with a reset that is seeded
    from :attr:`rng`. An agent that has left the game keeps its last readings, and what it sets has no effect;
    the episode ends when all have left.

    In a parallel game, what an agent set before holds (at first 0, or what is nearest to it). An AEC game
    also has the sensor ``turn``: the place of the agent that is to move in ``possible_agents``, or their
    number once it is over. What others set has no effect, and the game waits, step by step, until that agent
    sets something.

    A reward is given with the step that follows on something that its agent set; until then it adds up, as in
    PettingZoo's ``last()``. So a game that is over goes on until all who have taken part have received
    theirs.

    Args:
        id: ``module:name``, where the name is that of a function or class that makes the game, or of a module
            that has ``parallel_env`` or ``env`` (``pettingzoo.classic:rps_v2``); or the name of a game in
            PettingZoo's registry (``classic/rps_v2``; from PettingZoo 1.27).
        kwargs: keywords of the game; ``None``: none.
        api: ``parallel`` or ``aec``, where there are both; ``None``: parallel.
        illegal_moves: a move that the mask does not allow is an error (``refuse``), or left to the game
            (``play``).
        patience: how many steps an AEC game waits for an agent that is to move; then it is an error.
    """

    hold_setpoints = False
    #: whether frames are requested
    _frames = False

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
                words = [one for one in allowed if one is not None]
                raise ContractError(
                    f"{name} must be {' or '.join(words)}, not {value!r}{did_you_mean(str(value), words)}"
                )
        if isinstance(patience, bool) or not isinstance(patience, int) or patience < 1:
            raise ContractError(f"patience must be a whole number of at least 1, not {patience!r}")
        self.id = id
        self.kwargs = dict(kwargs or {})
        self.api = api
        self.illegal_moves = illegal_moves
        self.patience = patience
        self._game: Game | None = None

    def enable_frames(self) -> None:
        """Ask for the render mode ``rgb_array``. Raises :class:`RenderError` where the ``kwargs`` ask for another."""
        self.kwargs = with_render_mode(self.kwargs, self.uid)
        self._frames = True

    def setup(self) -> EnvironmentBaseline:
        """Make the game.

        Raises :class:`ContractError` and :class:`NameResolutionError` for what cannot be made, :class:`RenderError` where
        frames are requested and cannot be rendered.
        """
        if self._frames:
            who = f"environment {self.uid!r} ({self.id})"
            try_to_render(lambda kwargs: make_game(self.id, kwargs, self.api).made, self.kwargs, who)
        game = self._game = make_game(self.id, self.kwargs, self.api)
        self._turns = isinstance(game, TurnGame)
        # only a game that has begun says whether its infos have masks
        game.reset(0)
        masked = any(MASK in info for info in game.infos.values())
        self._seats = {agent: GameAgent(agent, game, masked) for agent in game.agents}
        seats = list(self._seats.values())
        end = 0
        for seat in seats:
            seat.where = slice(end, end + seat.action.size)
            end += seat.action.size
        sensors = [sensor for seat in seats for sensor in seat.sensors]
        if self._turns:
            sensors.append(SensorInformation(0, Discrete(len(seats) + 1), "turn"))
        actuators = actuators_of([part for seat in seats for part in seat.action.parts])
        return EnvironmentBaseline(sensors, actuators, [reward(f"{seat.uid}.reward") for seat in seats])

    def reset(self) -> EnvironmentState:
        assert self._game is not None
        for seat in self._seats.values():
            seat.begin()
        self._waited = 0
        self._ends: tuple[bool, bool] = (False, False)
        self._game.reset(int(self.rng.integers(2**31)))
        return self._state(self._look())

    def step(self, setpoints: FloatVector) -> EnvironmentState:
        game = self._game
        assert game is not None
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
                self._ends = (terminated, not terminated)
        elif not game.playing:
            self._waited += 1
        return self._state(infos)

    def render(self) -> Any:
        """Show the state, in the way that ``render_mode`` among the ``kwargs`` says."""
        assert self._game is not None
        return self._game.made.render()

    def shutdown(self) -> None:
        if self._game is not None:
            self._game.made.close()
            self._game = None

    def _move(self, seat: GameAgent, setpoints: FloatVector) -> Any:
        """Return the action of an agent whose move it is."""
        # whose move it is must say all of it: what it set for an earlier one does not hold
        chosen = setpoints[seat.where] if self._turns else seat.setpoints
        action = seat.action.compose(chosen, self.uid)
        if seat.mask is not None and self.illegal_moves == REFUSE:
            place = int(action) - seat.first
            if not (0 <= place < len(seat.mask) and seat.mask[place]):
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
        """Take over what the game says; return the infos."""
        game = self._game
        assert game is not None
        for agent, seen in game.seen.items():
            self._seats[agent].observe(seen, game.infos.get(agent, {}))
        for agent, gain in game.gains.items():
            self._seats[agent].due += gain
        infos = {str(agent): plain_info(info, without=MASK) for agent, info in game.infos.items()}
        return {agent: info for agent, info in infos.items() if info}

    def _state(self, infos: Mapping[str, Any]) -> EnvironmentState:
        game = self._game
        assert game is not None
        seats = self._seats.values()
        parts = [part for seat in seats for part in seat.vector(seat.agent in game.playing)]
        if self._turns:
            turn = len(seats) if game.turn is None else game.agents.index(game.turn)
            parts.append((float(turn),))
        rewards = tuple(seat.pay() for seat in seats)
        paid = self._waited > self.patience or not any(seat.due for seat in seats if seat.has_acted)
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
