"""Games of PettingZoo: how they are found, made and moved on, in both of its APIs.

Needs PettingZoo: ``pip install palaestrai-mosaik[rl]``.
"""

from __future__ import annotations

import inspect
import pkgutil
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from types import ModuleType
from typing import Any

from palaestrai_mosaik.errors import ContractError, NameResolutionError, did_you_mean
from palaestrai_mosaik.importing import check_origin, import_module, limit, misfit, needed, raised_at, refusal

try:
    import pettingzoo
    from pettingzoo import AECEnv, ParallelEnv
except ImportError as error:
    raise ImportError(f"this environment needs {needed(error)}: pip install palaestrai-mosaik[rl]") from error

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
        """Let agents act: all who play, or the one whose turn it is."""

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

    Raises :class:`NameResolutionError` if there is none, :class:`ContractError` if it cannot be made, is of
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
    found = getattr(module, name, None)
    if found is None:
        raise NameResolutionError(
            f"the module {module_name!r} has no game {name!r}{did_you_mean(name, _games_of(module))}"
        )
    check_origin(found, id, ours=False)
    if callable(found):
        return found
    for kind in (PARALLEL, AEC) if api is None else (api,):
        maker = getattr(found, _MAKERS.get(kind, ""), None)
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
            fault = None if limit() is None or home.partition(".")[0] == "pettingzoo" else refusal(home)
            if fault is not None:
                raise NameResolutionError(f"{id!r} is made by {origin}: {fault}")
            return spec.make
    known = {name for kind, registry in registries.items() if api in (None, kind) for name in registry}
    which = "" if api is None else f" of the API {api!r}"
    raise NameResolutionError(
        f"PettingZoo has no game {id!r}{which}{did_you_mean(key, known)}; write 'module:function' for one of your own"
    )
