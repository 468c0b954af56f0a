"""Many copies of a run document's world as one Gymnasium vector environment."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from gymnasium import Env, error
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space
from gymnasium.wrappers import TimeLimit

from palaestrai_mosaik.agent.muscle import BatchMuscle, BatchObjective, BatchReadings
from palaestrai_mosaik.core import seeding
from palaestrai_mosaik.core.checks import check_whole
from palaestrai_mosaik.core.errors import ActionError, ContractError, did_you_mean
from palaestrai_mosaik.environment.batch import BatchEnvironment
from palaestrai_mosaik.environment.copies import Copies
from palaestrai_mosaik.environment.environment import Environment
from palaestrai_mosaik.experiment import (
    BODY_NUMBER,
    AgentSpec,
    AnyDocument,
    BodySpec,
    ClassSpec,
    EnvironmentSpec,
    PhaseSpec,
    RunDocument,
    as_document,
    resolve,
)
from palaestrai_mosaik.runner.runner import open_store
from palaestrai_mosaik.simulation.batch_body import BatchBody
from palaestrai_mosaik.simulation.conditions import EnvironmentTerminationCondition, TerminationCondition
from palaestrai_mosaik.types.arrays import FloatMatrix

from .driver import (
    OBJECTIVE,
    Driver,
    ExternalMuscle,
    Options,
    check_copy,
    check_options,
    checked_seed,
    find_phase,
    refuse_options,
    reward_column,
)
from .gymnasium_env import RunEnv, only_agent
from .spaces import ChannelSpace

if TYPE_CHECKING:
    from palaestrai_mosaik.store import Store


#: every copy restarts separately, and the phase's episode never ends
_NEVER_ENDS = ClassSpec(
    f"{EnvironmentTerminationCondition.__module__}:{EnvironmentTerminationCondition.__name__}",
    {"when": "all", "episodes": 2**31},
)


class NotBatchable(ContractError):
    """The copies cannot form a batch; the message has the reason."""


@dataclass(frozen=True)
class Sizes:
    """The number of ``copies`` and the number of the ``first``: copy ``k`` draws the streams of ``first + k``.

    A copy is truncated after ``max_steps``; ``None``: only by its environment.
    """

    copies: int
    first: int = 0
    max_steps: int | None = None


def batched(
    document: RunDocument, phase: PhaseSpec, controlled: str, sizes: Sizes
) -> tuple[RunDocument, PhaseSpec]:
    """Return the document and ``phase`` with copies of its environment and of every agent's body.

    ``controlled`` is the agent that the caller controls. Raises :class:`NotBatchable` if a copy would not
    behave as it does alone.
    """
    if len(phase.environments) > 1:
        raise NotBatchable(f"there are {len(phase.environments)} environments, which end together")
    if phase.simulation.controller == "taking_turns" and len(phase.agents) > 1:
        raise NotBatchable("agents take turns, and those of a batch have them at the same time")
    phase_conditions, run_conditions = map(_kept, (phase.simulation.conditions, document.conditions))
    environment = _batched_environment(phase.environments[0], sizes)
    # an environment that was a batch before has its number in the channel names already
    native = environment.name == phase.environments[0].name
    for spec in phase.agents:
        _check_agent(spec, native, controlled=spec.name == controlled)
    agents = tuple(_batched_agent(spec, native, sizes.copies) for spec in phase.agents)
    simulation = replace(phase.simulation, conditions=(*phase_conditions, _NEVER_ENDS))
    batch_phase = replace(phase, environments=(environment,), agents=agents, simulation=simulation)
    return replace(document, conditions=run_conditions), batch_phase


def _kept(conditions: Sequence[ClassSpec]) -> tuple[ClassSpec, ...]:
    """Return the conditions other than those that end an episode with its environments."""
    kept = []
    for spec in conditions:
        condition: Any = resolve(spec.name, "condition")
        hook = condition.episode_flow_control
        if hook is EnvironmentTerminationCondition.episode_flow_control:
            continue
        if hook is not TerminationCondition.episode_flow_control:
            raise NotBatchable(f"the condition {spec.name} may end the episode of all at once")
        kept.append(spec)
    return tuple(kept)


def _batched_environment(spec: EnvironmentSpec, sizes: Sizes) -> EnvironmentSpec:
    if spec.interpreter is not None:
        raise NotBatchable(f"environment {spec.uid!r} has an interpreter of its own")
    environment_class = resolve(spec.name, "environment")
    params_of_batch: dict[str, Any] = {"batch": sizes.copies, "first": sizes.first}
    # nothing is stored
    spec = replace(spec, state_transformer=None)
    if issubclass(environment_class, Copies) or issubclass(environment_class, BatchEnvironment):
        if sizes.max_steps is not None:
            params_of_batch["max_steps"] = _step_limit(environment_class, spec, sizes.max_steps)
        return replace(spec, params={**spec.params, **params_of_batch})
    if issubclass(environment_class, Environment) and environment_class.hold_setpoints:
        params = {
            "name": f"{environment_class.__module__}:{environment_class.__qualname__}",
            "params": spec.params,
            **params_of_batch,
        }
        if sizes.max_steps is not None:
            params["max_steps"] = sizes.max_steps
        return replace(spec, name=f"{Copies.__module__}:{Copies.__name__}", params=params)
    raise NotBatchable(
        f"environment {spec.uid!r} is a {environment_class.__name__}, which cannot be stepped in a batch"
    )


def _step_limit(environment_class: type, spec: EnvironmentSpec, most: int) -> int:
    """Return the step limit of a batched environment: ``most``, or its own if smaller."""
    parameter = inspect.signature(environment_class).parameters.get("max_steps")
    if parameter is None:
        raise NotBatchable(
            f"environment {spec.uid!r} is a {environment_class.__name__}, which has no max_steps"
        )
    limit = spec.params.get("max_steps", parameter.default)
    return min(limit, most) if isinstance(limit, int) else most


def _bodies(agent: AgentSpec) -> Sequence[BodySpec]:
    return agent.bodies or (
        BodySpec(agent.muscle, agent.objective, agent.sensors, agent.actuators, agent.filters),
    )


def _check_agent(agent: AgentSpec, native: bool, *, controlled: bool) -> None:
    """Raise :class:`NotBatchable` unless the agent can have equal bodies that act as one batch.

    Args:
        agent: the agent of the document.
        native: whether its environment is a batch in the document.
        controlled: whether the caller acts for the agent, and not its muscle.
    """
    body, *others = _bodies(agent)
    if others or body.first or (native and not agent.bodies) or (body.count > 1 and not native):
        raise NotBatchable(f"the bodies of agent {agent.name!r} are not one for each copy")
    if body.filters:
        raise NotBatchable(f"agent {agent.name!r} has filters")
    objective = body.objective
    if objective is not None and not issubclass(resolve(objective.name, "objective"), BatchObjective):
        raise NotBatchable(f"the objective of agent {agent.name!r} is no BatchObjective")
    if not controlled and not issubclass(resolve(body.muscle.name, "muscle"), BatchMuscle):
        raise NotBatchable(f"the muscle of agent {agent.name!r} is no BatchMuscle")


def _batched_agent(agent: AgentSpec, native: bool, copies: int) -> AgentSpec:
    """Return the agent with a body in every copy."""
    body = replace(_bodies(agent)[0], count=copies)
    if not native:
        body = replace(body, sensors=_numbered(body.sensors), actuators=_numbered(body.actuators))
    return replace(agent, bodies=(body,), sensors=(), actuators=())


def _numbered(names: Sequence[str]) -> tuple[str, ...]:
    """Convert names of one environment's channels to those of a batch."""
    numbered = []
    for name in names:
        uid, _, local = name.partition(".")
        if set(uid) & set("*?[") or BODY_NUMBER in name:
            raise NotBatchable(f"{name!r} does not begin with the uid of the environment, or names a body")
        numbered.append(f"{uid}.{BODY_NUMBER}.{local}")
    return tuple(numbered)


try:
    from gymnasium.vector import AutoresetMode
except ImportError:
    # Gymnasium 1.0 has only this mode
    _METADATA: dict[str, Any] = {"render_modes": []}
else:
    _METADATA = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}


#: how copies are executed: in one world, in several worlds of this process, or in other processes
BACKENDS = ("world", "sync", "async")


class ExternalBatchMuscle(ExternalMuscle, BatchMuscle):
    """Represents the caller in all copies: sets the caller's decision, (copies, set-points)."""

    def propose_batch(self, batch: BatchReadings) -> tuple[npt.ArrayLike, Sequence[Any] | None]:
        return self.decision[batch.bodies], None


def vector_env(
    document: AnyDocument, num_envs: int = 1, *, backend: str | None = None, **options: Any
) -> VectorEnv[Any, Any, Any]:
    """Make a vector environment from copies of a run document's world.

    All backends restart a copy that has ended with the next step. Copies in separate worlds have separate
    seeds: copy ``k`` that of the name path (copy, ``first + k``) below ``seed`` (or the document's).

    Args:
        document: the path of a file, plain data, or a loaded document.
        num_envs: the number of copies, at least 1.
        backend: ``"world"``: all of them in one mosaik world, as a batched environment
            (:class:`RunVectorEnv`); ``"sync"``: a world each, one after the other; ``"async"``: a process
            each (both are Gymnasium's own). ``None``: one world if possible, otherwise ``"sync"``.
        options: those of :class:`RunVectorEnv`.

    Returns:
        Observations are a batch, (num_envs, numbers) or (num_envs,) for a ``Discrete``; rewards, ``terminated``
        and ``truncated`` are (num_envs,).

    Raises:
        DocumentError: the document cannot be run.
        ContractError: ``"world"`` is impossible (the message has the reason), or an option does not
            exist.
    """
    check_options(RunVectorEnv.__init__, options)
    if backend not in (None, *BACKENDS):
        raise ContractError(
            f"backend must be one of {', '.join(BACKENDS)}, not {backend!r}{did_you_mean(str(backend), BACKENDS)}"
        )
    for name, value in (("num_envs", num_envs), ("max_episode_steps", options.get("max_episode_steps", 1))):
        if value is not None:
            check_whole(name, value, 1)
    run_document = as_document(document)
    if backend in (None, "world"):
        try:
            return RunVectorEnv(run_document, num_envs, **options)
        except NotBatchable as reason:
            if backend == "world":
                raise ContractError(f"the copies cannot share a world: {reason}") from reason
    factories = _copies(run_document, num_envs, **options)
    return AsyncVectorEnv(factories) if backend == "async" else SyncVectorEnv(factories)


def _copies(
    document: RunDocument,
    num_envs: int,
    *,
    first: int = 0,
    seed: int | None = None,
    max_episode_steps: int | None = None,
    **options: Any,
) -> list[Callable[[], Env[Any, Any]]]:
    """Return a function for each copy that makes its environment, in a world of its own."""
    seed = document.seed if seed is None else checked_seed(seed)
    seeds = [seeding.integer_seed(seed, "copy", first + k) for k in range(num_envs)]
    return [partial(_limited, document, max_episode_steps, seed=seed, **options) for seed in seeds]


def _limited(document: RunDocument, steps: int | None, **options: Any) -> Env[Any, Any]:
    env = RunEnv(document, **options)
    return env if steps is None else TimeLimit(env, steps)


class RunVectorEnv(VectorEnv[Any, Any, Any]):
    """Copies of a phase's world, stepped as arrays in one mosaik world.

    Copy ``k`` draws the streams of number ``first + k``, and behaves the same in any batch. A copy that
    has ended restarts with the next step, in which its action has no effect (``AutoresetMode.NEXT_STEP``). It
    continues with its streams, so that only the first episodes after ``reset(seed=s)`` are determined by
    the seed alone.

    ``info`` has ``time`` (ticks since the start of the copy's episode), and after a step ``objective``
    and ``rewards`` by name, each (num_envs,), with Gymnasium's masks (``_objective``): NaN and false in the
    step with which a copy restarts.

    A copied or unpickled vector environment is a new one, before its first episode.
    Making one during an episode raises :class:`ContractError`.

    Args:
        document: the path of a file, plain data, or a loaded document.
        num_envs: the number of copies, at least 1.
        agent: see :class:`~palaestrai_mosaik.interop.rl.gymnasium_env.RunEnv`, also for the options from here to
            ``store``.
        phase: name or number of the phase; ``None``: the first one.
        seed: replaces the document's; ``None``: the document's.
        reward: ``"objective"``, or the name of a reward, without the number of a copy.
        flatten: must be true: copies in one world have flat observations.
        dtype: the type of the numbers in a flat ``Box``; ``None``: that of the channels.
        others_learn: whether, in train mode, the other agents learn, too.
        store: the store from which the other agents load the models of earlier phases; ``None`` for no store.
        first: the number of the first copy.
        max_episode_steps: number of steps after which a copy is truncated; ``None``: no limit.
        render_mode: must be ``None``: copies in one world cannot be rendered.

    Raises:
        NotBatchable: a copy would not behave as it does alone, or an option is only for separate
            worlds.
    """

    metadata = _METADATA

    def __init__(  # noqa: PLR0913 (independent options)
        self,
        document: AnyDocument,
        num_envs: int = 1,
        *,
        agent: str | None = None,
        phase: str | int | None = None,
        seed: int | None = None,
        reward: str = OBJECTIVE,
        flatten: bool = True,
        dtype: npt.DTypeLike | None = None,
        others_learn: bool = False,
        store: Store | str | os.PathLike[str] | None = None,
        first: int = 0,
        max_episode_steps: int | None = None,
        render_mode: str | None = None,
    ):
        self._arguments = {
            name: value for name, value in locals().items() if name not in ("self", "__class__")
        }
        if not flatten or render_mode is not None:
            raise NotBatchable("observations are not flat, or are to be shown")
        run_document = as_document(document)
        phase_spec = find_phase(run_document, phase)
        agent = only_agent(phase_spec.agents, agent).name
        sizes = Sizes(num_envs, first, max_episode_steps)
        run_document, phase_spec = batched(run_document, phase_spec, agent, sizes)
        muscle = ClassSpec(f"{__name__}:{ExternalBatchMuscle.__name__}")
        with open_store(store) as opened:
            options = Options(others_learn, opened, seed)
            self._driver = Driver(run_document, phase_spec, {agent: muscle}, options)
        self._driver.close_with(self)
        try:
            self._bodies = [body for body in self._driver.worker.bodies if isinstance(body, BatchBody)]
            (self._body,) = (body for body in self._bodies if body.agent == agent)
            body = self._body
            self._column = reward_column(reward, body.reward_names, agent)
            start = f"{body.handle.uid}."
            #: the reward names without the number of a copy
            self._names = [start + name[len(start) :].split(".", 1)[1] for name in body.reward_names]
            self._seen = ChannelSpace(body.sensors, "sensor", dtype=dtype)
            self._set = ChannelSpace(body.actuators, "actuator", dtype=dtype)
        except BaseException:
            self._driver.close()
            raise
        self.num_envs = num_envs
        self.single_observation_space = self._seen.space
        self.single_action_space = self._set.space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._shape = self.action_space.shape or ()
        #: the start time of each copy's episode
        self._began = np.zeros(num_envs, dtype=np.int64)

    def __reduce__(self) -> tuple[Any, ...]:
        check_copy(not self._driver.over)
        # like Gymnasium's EzPickle, with the arguments of the constructor
        return partial(type(self), **self._arguments), ()

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode in all copies.

        Args:
            seed: restarts all copies at the first episode of a run with this seed; ``None``: the next episode.
            options: must be empty.

        Returns:
            The observations, and the ``info`` with ``time``.

        Raises:
            ContractError: ``seed`` is no whole number of at least 0, or there are ``options``.
        """
        if isinstance(seed, Sequence) and not isinstance(seed, str):
            raise ContractError("the copies of one world have one seed: a whole number, or None")
        seed = None if seed is None else checked_seed(seed)
        super().reset(seed=seed)
        refuse_options(options)
        self._driver.reset(seed)
        self._began[:] = 0
        return self._observed(), self._timed()

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Act in all copies; those that have ended restart.

        Args:
            actions: one for each copy, a value of ``action_space``.

        Returns:
            The observations, rewards (num_envs,), ``terminated`` (num_envs,), ``truncated`` (num_envs,), and the
            ``info``.

        Raises:
            ActionError: an action is outside its space; nothing has been done then.
        """
        driver, body = self._driver, self._body
        if driver.over:
            raise error.ResetNeeded("there is no episode: call reset")
        acting = ~body.outs
        everyone = np.count_nonzero(acting) == self.num_envs
        body.muscle.decision = self._decision(actions, acting)  # type: ignore[attr-defined]
        driver.advance()
        rewards, objective, named = self._gained(acting, everyone)
        if not everyone:
            self._began[~(acting | body.outs)] = driver.coordinator.time
        infos = self._timed()
        by_name: dict[str, Any] = {}
        for i, name in enumerate(self._names):
            by_name[name], by_name[f"_{name}"] = named[:, i], acting
        infos |= {"rewards": by_name, "_rewards": acting, OBJECTIVE: objective, f"_{OBJECTIVE}": acting}
        ended = body.outs & acting
        flags = body.handle.vector[: self.num_envs, -2:] != 0
        terminated = ended & flags[:, 0]
        truncated = ended & (flags[:, 1] | ~terminated)
        # only conditions would need the rows, and no condition is left
        for other in self._bodies:
            other.forget()
        return self._observed(), rewards, terminated, truncated, infos

    def close_extras(self, **kwargs: Any) -> None:
        """Release everything."""
        self._driver.close()

    def _gained(
        self, acting: npt.NDArray[np.bool_], everyone: bool
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], FloatMatrix]:
        """Return reward (copies,), objective (copies,) and rewards (copies, rewards) of the last step."""
        count, body = self.num_envs, self._body
        rows = body.closed
        if rows is None or not (everyone or acting.any()):
            return np.zeros(count), np.full(count, np.nan), np.full((count, len(body.reward_names)), np.nan)
        chosen = rows.objective if self._column is None else rows.rewards[:, self._column]
        if self._column is None and body.objective is not None:
            missing = np.isnan(chosen)
            if np.count_nonzero(missing):
                # no value for a row becomes 0; a NaN reward is passed on
                chosen = np.where(missing & ~np.isnan(rows.rewards).any(axis=1), 0.0, chosen)
        if everyone and len(rows.places) == count:
            return chosen.copy(), rows.objective.copy(), rows.rewards.copy()
        rewards, objective = np.zeros(count), np.full(count, np.nan)
        named = np.full((count, len(body.reward_names)), np.nan)
        rewards[rows.places] = chosen
        objective[rows.places] = rows.objective
        named[rows.places] = rows.rewards
        return rewards, objective, named

    def _timed(self) -> dict[str, Any]:
        times = self._driver.coordinator.time - self._began
        return {"time": times, "_time": np.ones(self.num_envs, dtype=bool)}

    def _observed(self) -> Any:
        return self._seen.values(self._body.readings_now())

    def _decision(self, actions: Any, acting: npt.NDArray[np.bool_]) -> FloatMatrix:
        matrix = self._set.vectors(actions, self._shape)
        layout = self._body.actuators
        wrong = layout.outside(matrix) | np.isnan(matrix)
        if np.count_nonzero(wrong):
            failing = wrong.any(axis=1) & acting
            if failing.any():
                copy = int(np.argmax(failing))
                try:
                    self._set.check(matrix[copy])
                except ActionError as error:
                    error.add_note(f"in copy {copy}")
                    raise
        return matrix
