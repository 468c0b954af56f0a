"""A run document as a Gymnasium environment: the caller controls one agent, the others act by themselves."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
from gymnasium import Env, error
from gymnasium.utils import EzPickle

from palaestrai_mosaik.core.errors import ContractError
from palaestrai_mosaik.environment.gymnasium import GymnasiumEnvironment
from palaestrai_mosaik.experiment import AgentSpec, AnyDocument, EnvironmentSpec, RunDocument, as_document
from palaestrai_mosaik.runner.runner import open_store
from palaestrai_mosaik.types.vectors import SensorReadings

from .driver import (
    OBJECTIVE,
    Options,
    Player,
    Session,
    Turn,
    add_info,
    check_copy,
    checked_seed,
    choose,
    find_phase,
    refuse_options,
)
from .spaces import ChannelSpace

if TYPE_CHECKING:
    from palaestrai_mosaik.store import Store


#: the render mode of frames: arrays (height, width, 3)
FRAMES = "rgb_array"
#: class name of Gymnasium environments in a document
_WORLD = f"{GymnasiumEnvironment.__module__}:{GymnasiumEnvironment.__name__}"


def only_agent(agents: Sequence[AgentSpec], wanted: str | None) -> AgentSpec:
    """Return the caller's agent: ``wanted``, or the only one, or the only one with a brain.

    Raises :class:`ContractError` if it does not exist, or if several are possible.
    """
    names = [spec.name for spec in agents]
    if wanted is not None:
        return agents[names.index(choose(names, wanted, "agent"))]
    learning = [spec for spec in agents if spec.brain is not None]
    for candidates in (agents, learning):
        if len(candidates) == 1:
            return candidates[0]
    raise ContractError(
        f"say with 'agent' for which of them you decide: {', '.join(names)}; who decides for several takes "
        "palaestrai_mosaik.parallel_env or aec_env"
    )


def _with_frames(document: RunDocument) -> RunDocument:
    """Return ``document`` with frames enabled in its Gymnasium environments."""

    def changed(spec: EnvironmentSpec) -> EnvironmentSpec:
        if spec.name != _WORLD:
            return spec
        kwargs = {**(spec.params.get("kwargs") or {}), "render_mode": FRAMES}
        return replace(spec, params={**spec.params, "kwargs": kwargs})

    phases = tuple(
        replace(phase, environments=tuple(map(changed, phase.environments))) for phase in document.phases
    )
    return replace(document, phases=phases)


def _showing(player: Player) -> GymnasiumEnvironment | None:
    """Return the first of the player's Gymnasium environments that renders frames, if any."""
    for handle in player.body.handles:
        world = handle.domain
        if isinstance(world, GymnasiumEnvironment) and FRAMES in (world.metadata.get("render_modes") or ()):
            return world
    return None


class RunEnv(Env[Any, Any], EzPickle):
    """A phase of a run document with one agent controlled by the caller, in a mosaik world.

    An episode is one of the run: ``reset()`` starts the next one, with the same random streams as
    in the run; ``reset(seed=s)`` starts at the first episode of the run with that seed. ``info`` has ``time``
    (mosaik's ticks), and after a step the ``objective`` and all ``rewards`` by name; after a reset, the names
    of ``sensors`` and ``actuators``. It also has the entries of a Gymnasium environment's info in the
    document (``cost``, ``is_success``); ``infos`` has them by environment.

    A copy or unpickled object is a new environment, before its first episode. Making one
    during an episode raises :class:`ContractError`.

    Args:
        document: the path of a file, plain data, or a loaded document.
        agent: the agent that the caller acts for; ``None``: the only one, or the only one that has a brain.
        phase: name or number of the phase; ``None``: the first one.
        seed: replaces the document's; ``None``: the document's.
        reward: ``"objective"``: the value of the agent's objective; or the name of a reward of its
            environments.
        flatten: whether observations and actions are flat vectors, or dictionaries by sensor and
            actuator (:class:`~palaestrai_mosaik.interop.rl.spaces.ChannelSpace`).
        dtype: the type of the numbers in a flat ``Box``; ``None``: that of the channels.
        others_learn: whether, in train mode, the other agents learn, too
            (:class:`~palaestrai_mosaik.interop.rl.driver.Options`).
        store: an open store, or the folder or URL of one, with an execution of the document from which the
            other agents load the models of earlier phases; ``None`` for no store.
        render_mode: ``"ansi"`` renders the newest readings as text, ``"rgb_array"`` a frame of the agent's
            first Gymnasium environment with frames; ``None``: ``render()`` returns nothing.

    Raises:
        DocumentError: the document cannot be run.
        ContractError: a name does not exist, or the agent has several bodies.
        ActionError: (from ``step``) the action is outside its space; it then has no effect.
    """

    #: an instance has only the modes that its document supports
    metadata: dict[str, Any] = {"render_modes": ["ansi", FRAMES], "render_fps": 4}

    def __init__(  # noqa: PLR0913 (independent options)
        self,
        document: AnyDocument,
        *,
        agent: str | None = None,
        phase: str | int | None = None,
        seed: int | None = None,
        reward: str = OBJECTIVE,
        flatten: bool = True,
        dtype: npt.DTypeLike | None = None,
        others_learn: bool = False,
        store: Store | str | os.PathLike[str] | None = None,
        render_mode: str | None = None,
    ):
        arguments = {
            name: value for name, value in locals().items() if name not in ("self", "document", "__class__")
        }
        EzPickle.__init__(self, document, **arguments)
        self.render_mode = render_mode
        run_document = as_document(document)
        if render_mode == FRAMES:
            run_document = _with_frames(run_document)
        spec = only_agent(find_phase(run_document, phase).agents, agent)
        with open_store(store) as opened:
            options = Options(others_learn, opened, seed)
            self.session = Session(
                run_document, phase=phase, learners=[spec.name], reward=reward, options=options
            )
        players = list(self.session.players.values())
        try:
            if len(players) != 1:
                raise ContractError(
                    f"agent {spec.name!r} has {len(players)} bodies, and an environment of Gymnasium is for one: take "
                    "palaestrai_mosaik.parallel_env, where every body is an agent"
                )
            self.player = players[0]
            self._shown = _showing(self.player)
            if self._shown is None:
                self.metadata = {**self.metadata, "render_modes": ["ansi"]}
            else:
                self.metadata = {
                    **self.metadata,
                    "render_fps": self._shown.metadata.get("render_fps", self.metadata["render_fps"]),
                }
            modes = self.metadata["render_modes"]
            if render_mode not in (None, *modes):
                raise ContractError(
                    f"render_mode must be None or {' or '.join(map(repr, modes))}, not {render_mode!r}"
                    + (": no environment of the agent gives frames" if render_mode == FRAMES else "")
                )
            self._seen = ChannelSpace(self.player.sensors, "sensor", flatten=flatten, dtype=dtype)
            self._set = ChannelSpace(self.player.actuators, "actuator", flatten=flatten, dtype=dtype)
        except BaseException:
            self.session.close()
            raise
        self.observation_space = self._seen.space
        self.action_space = self._set.space
        self._turn: Turn | None = None

    def __getstate__(self) -> dict[str, Any]:
        turn = self._turn
        check_copy(turn is not None and self.player.name in turn.acting and not self.session.over)
        state: dict[str, Any] = super().__getstate__()
        return state

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode.

        Args:
            seed: restarts at the first episode of a run with this seed; ``None``: the next episode.
            options: must be empty.

        Returns:
            The first observation, and the ``info``.

        Raises:
            ContractError: ``seed`` is no whole number of at least 0, or there are ``options``.
        """
        refuse_options(options)
        seed = None if seed is None else checked_seed(seed)
        super().reset(seed=seed)
        self._turn = None
        turn = self._turn = self.session.reset(seed)
        player = self.player
        info = {"time": turn.time, "sensors": player.sensors.uids, "actuators": player.actuators.uids}
        add_info(info, player.body)
        return self._seen.value(turn.readings[player.name]), info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Act, and run the world until the agent must act again or the episode is over.

        Args:
            action: a value of :attr:`action_space`.

        Returns:
            The observation, the reward, ``terminated``, ``truncated``, and the ``info``.

        Raises:
            ActionError: the action is outside its space; nothing has been done then.
        """
        name, turn = self.player.name, self._turn
        if turn is None or name not in turn.acting:
            raise error.ResetNeeded("the episode is over, or was never begun: call reset")
        turn = self._turn = self.session.step({name: self._set.vector(action)})
        return (
            self._seen.value(turn.readings[name]),
            turn.rewards.get(name, 0.0),
            turn.terminated.get(name, False),
            turn.truncated.get(name, False),
            turn.infos.get(name, {"time": turn.time}),
        )

    def render(self) -> Any:
        """Return the newest readings as text, one sensor per line, or a frame (height, width, 3)."""
        turn, player = self._turn, self.player
        if self.render_mode is None or turn is None:
            return None
        if self.render_mode == FRAMES:
            assert self._shown is not None
            return self._shown.render()
        readings = SensorReadings(player.sensors, turn.readings[player.name])
        return "\n".join([f"t={turn.time}", *(f"{sensor.uid} = {sensor.value}" for sensor in readings)])

    def close(self) -> None:
        """End the running episode and release everything."""
        self.session.close()
