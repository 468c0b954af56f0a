"""Conformance checks of environments (single and batched), rewards and state transformers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from inspect import Parameter, signature
from typing import Any, Protocol

import numpy as np

from palaestrai_mosaik.core import seeding
from palaestrai_mosaik.core.errors import ContractError
from palaestrai_mosaik.environment.batch import BatchEnvironment, BatchState, BatchStepper
from palaestrai_mosaik.environment.environment import (
    Environment,
    EnvironmentBaseline,
    EnvironmentState,
    EnvironmentStateTransformer,
    Reward,
    World,
)
from palaestrai_mosaik.environment.faults import (
    KINDS,
    baseline_faults,
    reward_faults,
    state_faults,
    step_size_faults,
)
from palaestrai_mosaik.simulation.frames import checked_frame
from palaestrai_mosaik.types.arrays import Array, FloatVector, IndexVector
from palaestrai_mosaik.types.vectors import Layout, initial_values

from .findings import Findings, build, build_another, check_channels, check_flat_values, same, sample_flat


def check_environment(
    factory: Callable[[], Environment], *, steps: int = 50, episodes: int = 2, seed: int = 0
) -> None:
    """Check that an environment keeps its contract.

    Two environments run side by side with the same generators and the same random set-points.

    The check requires that the baseline is valid (uids, spaces, initial values, step size), that every state has the
    declared shapes and types, that readings and rewards lie in their spaces, that set-points and earlier states are not
    modified, that equal generators and set-points give equal trajectories, that a reset gives an equal first state,
    and that no global randomness is used. If the class has ``render``, the second environment is rendered in every
    state. Its frames must be uint8 arrays (height, width, 3) or ``None``, and its trajectories equal to those of the
    first one.

    Args:
        factory: creates an environment.
        steps: the maximum number of steps of an episode.
        episodes: the number of episodes.
        seed: the seed of the set-points and generators.

    Raises:
        ConformanceError: if any rule is broken; lists all of them.
    """
    first, findings = build(factory, Environment)
    second = build_another(factory, findings)
    pair = (first, second)
    try:
        baselines = []
        for environment in pair:
            environment.uid = "environment"
            if environment is second and _renders(second):
                with findings.calling("enable_frames"):
                    second.enable_frames()
            environment.rng = _generator(seed, 0)
            with findings.calling("setup"):
                baselines.append(environment.setup())
        check_baseline(findings, first, baselines[0])
        if not all(same(described(baselines[0], k), described(baselines[1], k)) for k in KINDS):
            findings.add("two instances differ", "their baselines are not the same")
        first_state = None
        for episode in range(episodes):
            its_first = _check_episode(findings, pair, baselines[0], (seed, episode, steps))
            first_state = first_state or its_first
        if first_state is not None:
            again = _begin(findings, first, seed, 0)
            if not _equal(again, first_state):
                findings.add(
                    "a reset does not lead back to the same first state",
                    "with the generator of the first episode it gave another one",
                )
    finally:
        for environment in pair:
            with findings.calling("shutdown"):
                environment.shutdown()
    findings.raise_found()


def check_reward(
    factory: Callable[[], Reward], baseline: EnvironmentBaseline, *, states: int = 50, seed: int = 0
) -> None:
    """Check that a reward keeps its contract, for an environment with this baseline.

    The check requires that the reward declares rewards with unique names, that it returns as many finite numbers, each
    in its space, that it modifies neither the state nor earlier results, that a second reward returns the same, and
    that no global randomness is used.

    Args:
        factory: creates a reward.
        baseline: the baseline of the environment; readings are sampled from the spaces of its sensors.
        states: the number of states.
        seed: the seed of the readings.

    Raises:
        ConformanceError: if any rule is broken; lists all of them.
    """
    first, findings = build(factory, Reward)
    pair = (first, build_another(factory, findings))
    declared = []
    for reward in pair:
        with findings.calling("setup"):
            declared.append(reward.setup(baseline))
    check_channels(findings, "reward", declared[0])
    if not declared[0]:
        findings.add("declares no reward", "setup returned nothing")
    rng = seeding.generator(seed, "states")
    kept: list[tuple[Any, Any]] = []
    for number in range(states):
        state = _sampled_state(baseline, rng)
        before = deepcopy(state)
        values = []
        for reward in pair:
            with findings.calling(f"state {number}"):
                values.append(reward(state))
        if not _equal(state, before):
            findings.add("changes the state that it is given", f"state {number}")
        _check_rewards(findings, declared[0], values[0], f"state {number}")
        if not same(*values):
            findings.add("two instances differ", f"state {number}: {values[0]!r} and {values[1]!r}")
        kept.append((values[0], deepcopy(values[0])))
    if not all(same(handed, copy) for handed, copy in kept):
        findings.add("changes what it has handed on", "rewards returned earlier were written to")
    findings.raise_found()


def check_state_transformer(
    factory: Callable[[], EnvironmentStateTransformer], states: Sequence[EnvironmentState]
) -> None:
    """Check that a state transformer keeps its contract, with these states.

    The check requires that it returns a state with as many readings, that it does not modify its argument, that a
    second transformer returns the same, and that no global randomness is used.

    Args:
        factory: creates a state transformer.
        states: states of the environment for which it is intended.

    Raises:
        ConformanceError: if any rule is broken; lists all of them.
    """
    first, findings = build(factory, EnvironmentStateTransformer)
    pair = (first, build_another(factory, findings))
    for number, state in enumerate(states):
        before = deepcopy(state)
        returned = []
        for transformer in pair:
            with findings.calling(f"state {number}"):
                returned.append(transformer(state))
        if not _equal(state, before):
            findings.add("changes the state that it is given", f"state {number}")
        if not isinstance(returned[0], EnvironmentState):
            raise findings.stop(
                "returns no EnvironmentState", f"state {number}: a {type(returned[0]).__name__}"
            )
        if np.shape(returned[0].readings) != np.shape(before.readings):
            findings.add(
                "changes the number of readings",
                f"state {number}: {np.shape(before.readings)} became {np.shape(returned[0].readings)}",
            )
        if not _equal(*returned):
            findings.add("two instances differ", f"state {number}")
    findings.raise_found()


def _generator(seed: int, episode: int) -> np.random.Generator:
    return seeding.generator(seed, "environment", episode)


def described(baseline: EnvironmentBaseline, kind: str) -> list[tuple[Any, ...]]:
    """Return uid, space and value of the baseline's channels of one of :data:`KINDS`."""
    return [(c.uid, c.space, c.value) for c in getattr(baseline, kind)]


def check_baseline(findings: Findings, environment: World, baseline: Any) -> None:
    """Check the uids, spaces and values of all channels, and the step size."""
    for rule, detail in baseline_faults(baseline):
        findings.add(rule, f"setup: {detail}")
    findings.raise_found()
    for kind in KINDS:
        check_channels(findings, kind[:-1], getattr(baseline, kind))
    for rule, detail in step_size_faults(environment.step_size):
        findings.add(rule, detail)


def _check_episode(
    findings: Findings,
    pair: tuple[Environment, Environment],
    baseline: EnvironmentBaseline,
    which: tuple[int, int, int],
) -> EnvironmentState:
    """Run the episode ``which`` (seed, episode, steps) and return its first state."""
    seed, episode, steps = which
    rng = seeding.generator(seed, "set-points", episode)
    setpoints, actuators = initial_values(baseline.actuators), Layout.of(baseline.actuators)
    handed_on: list[tuple[EnvironmentState, EnvironmentState]] = []
    handed_in: list[tuple[Array, Array]] = []
    for step in range(steps + 1):
        when = f"episode {episode}, step {step}" if step else f"episode {episode}, reset"
        states = []
        for environment in pair:
            if step == 0:
                state = _begin(findings, environment, seed, episode)
            else:
                passed = actuators.as_integers(setpoints.copy())
                handed_in.append((passed, passed.copy()))
                with findings.calling(when):
                    state = environment.step(passed)
            states.append(state)
            _check_state(findings, environment, baseline, state, when)
        if not _equal(*states):
            rendered = ", of which the second one is rendered," if _renders(pair[1]) else ""
            findings.add(f"two instances{rendered} differ, given the same generators and set-points", when)
        _check_frame(findings, pair[1], when)
        _check_new(findings, states[0], [state for state, _ in handed_on[-1:]], when)
        handed_on.append((states[0], deepcopy(states[0])))
        if states[0].terminated or states[0].truncated:
            break
        setpoints = _next_setpoints(baseline, setpoints, rng, pair[0].hold_setpoints)
    if not all(same(passed, copy) for passed, copy in handed_in):
        findings.add("changes the set-points that it is given", f"episode {episode}")
    if not all(_equal(state, copy) for state, copy in handed_on):
        findings.add(
            "changes a state that it has handed on", f"episode {episode}: make new arrays for every state"
        )
    return handed_on[0][1]


def _renders(environment: World) -> bool:
    """Return whether the class renders; false for adapters, which only know it after their setup."""
    cls = type(environment)
    if issubclass(cls, BatchEnvironment):
        has = cls.get_frame is not BatchEnvironment.get_frame
        return has and cls.enable_frames is BatchEnvironment.enable_frames
    return cls.render is not World.render and cls.enable_frames is World.enable_frames


def _check_frame(findings: Findings, environment: World, when: str) -> None:
    if not _renders(environment):
        return
    with findings.calling(f"{when}, render"):
        try:
            checked_frame(environment)
        except ContractError as error:
            findings.add("renders something else than a frame", f"{when}: {error}")


def _begin(findings: Findings, environment: Environment, seed: int, episode: int) -> EnvironmentState:
    environment.episode = episode
    environment.rng = _generator(seed, episode)
    with findings.calling(f"episode {episode}, reset"):
        return environment.reset()


def _next_setpoints(
    baseline: EnvironmentBaseline, setpoints: FloatVector, rng: np.random.Generator, hold: bool
) -> FloatVector:
    """Sample the next set-points; a few actuators are not set, as by agents that skip steps."""
    parts, start = [], 0
    for actuator in baseline.actuators:
        size = actuator.space.size
        sampled = actuator.space.flatten(actuator.space.sample(rng))
        if rng.random() < 0.2:
            sampled = setpoints[start : start + size] if hold else np.full(size, np.nan)
        parts.append(sampled)
        start += size
    return np.concatenate(parts) if parts else np.empty(0)


def _check_state(
    findings: Findings, environment: Environment, baseline: EnvironmentBaseline, state: Any, when: str
) -> None:
    faults = list(state_faults(state, baseline.sensors))
    for rule, detail in faults:
        findings.add(rule, f"{when}: {detail}")
    if not isinstance(state, EnvironmentState):
        findings.raise_found()
    if not any(rule.startswith("readings") for rule, _ in faults):
        # converted as by the framework, which accepts lists and integers
        readings = np.asarray(state.readings, dtype=np.float64)
        check_flat_values(findings, "reading", baseline.sensors, readings, when)
    _check_rewards(findings, baseline.rewards, state.rewards, when)
    if (state.terminated or state.truncated) and not environment.ends:
        findings.add("ends an episode although its attribute 'ends' is false", when)


def _check_rewards(findings: Findings, declared: Sequence[Any], rewards: Any, when: str) -> None:
    faults = list(reward_faults(rewards, declared))
    for rule, detail in faults:
        findings.add(rule, f"{when}: {detail}")
    if faults:
        return
    values = _flat(rewards)
    if all(information.space.size == 1 for information in declared):
        check_flat_values(findings, "reward", declared, values, when)
    else:
        findings.add("the space of a reward holds more than one number", when)


def _flat(rewards: Any) -> FloatVector:
    return np.atleast_1d(np.asarray(rewards, dtype=np.float64))


def _check_new(
    findings: Findings, state: EnvironmentState, before: Sequence[EnvironmentState], when: str
) -> None:
    for old in before:
        shared = [
            name
            for name in ("readings", "rewards")
            if isinstance(getattr(state, name), np.ndarray)
            and isinstance(getattr(old, name), np.ndarray)
            and np.shares_memory(getattr(state, name), getattr(old, name))
        ]
        if state is old or shared:
            what = "the same EnvironmentState" if state is old else f"the memory of its {shared[0]}"
            findings.add("a state is not new, but shares something with the last one", f"{when}: {what}")


def _sampled_state(baseline: EnvironmentBaseline, rng: np.random.Generator) -> EnvironmentState:
    return EnvironmentState(
        sample_flat(baseline.sensors, rng),
        sample_flat(baseline.rewards, rng),
        terminated=bool(rng.random() < 0.1),
    )


def _equal(a: EnvironmentState, b: EnvironmentState) -> bool:
    return all(
        same(getattr(a, name), getattr(b, name))
        for name in ("readings", "rewards", "terminated", "truncated", "world_state")
    )


#: functions that must not modify their arguments
_PURE = ("get_action_results", "get_first_states", "get_rewards", "get_ends", "get_recorded_actions")
#: number of steps at the start of each episode in which some incarnations have idle actions
_IDLE_STEPS = 2


class BatchFactory(Protocol):
    """Creates a batched environment: its class, or a ``functools.partial`` with its parameters."""

    def __call__(self, *, batch: int) -> BatchEnvironment:
        """Create an environment with ``batch`` incarnations."""


def check_batch_environment(
    factory: BatchFactory, *, batch: int = 5, steps: int = 50, episodes: int = 2, seed: int = 0
) -> None:
    """Check that a batched environment keeps its contract.

    Two environments run side by side. A batch of 1 runs beside each incarnation, with the same generator, the same
    number (``first``, if the factory accepts it) and the same random set-points. In the first two steps, every second
    incarnation has its idle actions, as if no agent had acted yet. During each episode, some incarnations restart
    while the others continue.

    The check requires that the baseline is valid, that states, observations, rewards and ends have the declared shapes
    and dtypes, that readings and rewards lie in their spaces, and that arguments are not modified. Each incarnation
    must give exactly the results of a batch of 1, even if others restart. A reset of some incarnations must only use their
    generators. Equal generators and set-points must give equal trajectories, a reset an equal first state, and no
    global randomness may be used. If the class has ``get_frame``, the second environment is rendered in every state;
    its frames must be uint8 arrays (height, width, 3) or ``None``.

    Args:
        factory: creates an environment with ``batch`` incarnations: the class itself, or
            ``functools.partial(MyEnvironment, size=3)``.
        batch: the number of incarnations.
        steps: the number of steps of an episode of the phase.
        episodes: the number of episodes of the phase.
        seed: the seed of the set-points and generators.

    Raises:
        ConformanceError: if any rule is broken; lists all of them.
    """
    first, findings = build(partial(factory, batch=batch), BatchEnvironment)
    environments = [first, build_another(partial(factory, batch=batch), findings)]
    environments += [build_another(_single(factory, first.first + k), findings) for k in range(batch)]
    try:
        baselines = []
        for environment, size in zip(environments, [batch, batch, *[1] * batch], strict=True):
            if environment.batch != size:
                raise findings.stop(
                    "is not of the size it was made with", f"batch={size} gave {environment.batch}"
                )
            environment.uid = "environment"
            with findings.calling("setup"):
                baselines.append(environment.setup())
            environment.baseline = baselines[-1]
        check_baseline(findings, first, baselines[0])
        for other in baselines[1:]:
            if not all(same(described(baselines[0], kind), described(other, kind)) for kind in KINDS):
                findings.add("two instances differ", "their baselines are not the same")
        comparison = _BatchComparison(findings, environments, baselines[0], seed)
        first_states = [comparison.run(episode, steps) for episode in range(episodes)]
        if first_states and _bytes(comparison.begin(0)) != _bytes(first_states[0]):
            findings.add(
                "a reset does not lead back to the same first state",
                "with the generators of the first episode it gave another one",
            )
    finally:
        for environment in environments:
            with findings.calling("shutdown"):
                environment.shutdown()
    findings.raise_found()


class _BatchComparison:
    """Compares two equal batches with each other, and with a batch of 1 for each of their incarnations."""

    def __init__(
        self,
        findings: Findings,
        environments: Sequence[BatchEnvironment],
        baseline: EnvironmentBaseline,
        seed: int,
    ):
        self.findings, self.baseline, self.seed = findings, baseline, seed
        self.batch = environments[0].batch
        with findings.calling("the declared shapes and dtypes"):
            self.steppers = [BatchStepper(environment) for environment in environments]
        #: the incarnations of each stepper
        self.members = [np.arange(self.batch)] * 2 + [np.array([k]) for k in range(self.batch)]
        #: the actions of an incarnation without any action of an agent
        self.idle = initial_values(baseline.actuators)
        for environment in environments:
            _check_calls_of(environment, findings)

    def begin(self, episode: int) -> BatchState:
        """Begin an episode of the phase in all environments; return the first one's state."""
        when = f"episode {episode}, reset"
        states = []
        for stepper, members in zip(self.steppers, self.members, strict=True):
            environment = stepper.environment
            environment.episode = episode
            environment.rng = seeding.generator(self.seed, "environment", episode)
            environment.rngs = [
                seeding.generator(self.seed, "environment", episode, k) for k in members.tolist()
            ]
            states.append(self._call(stepper.reset, when))
        self._check(states, when)
        return states[0]

    def run(self, episode: int, steps: int) -> BatchState:
        """Run an episode of the phase in all environments; return the first one's first state."""
        first_state = self.begin(episode)
        rngs = [seeding.generator(self.seed, "set-points", episode, k) for k in range(self.batch)]
        for step in range(1, steps + 1):
            when = f"episode {episode}, step {step}"
            setpoints = np.array([sample_flat(self.baseline.actuators, rng) for rng in rngs])
            if step <= _IDLE_STEPS:
                setpoints[::2] = self.idle
            # end every second incarnation early, and the remaining ones some steps later
            cut = {steps // 3: slice(0, None, 2), steps // 2: slice(1, None, 2)}.get(step)
            states = []
            for stepper, members in zip(self.steppers, self.members, strict=True):
                actions = setpoints[members]
                if cut is not None:
                    stepper.end(np.flatnonzero(np.isin(members, np.arange(self.batch)[cut])))
                states.append(self._call(partial(stepper.step, actions, resets=True), when))
                if not same(actions, setpoints[members]):
                    self.findings.add("changes the actions that it is given", when)
            self._check(states, when)
        return first_state

    def _call(self, call: Callable[[], BatchState], when: str) -> BatchState:
        with self.findings.calling(when):
            try:
                return call()
            except ContractError as error:
                raise self.findings.stop("does not give what it declares", f"{when}: {error}") from error

    def _check(self, states: Sequence[BatchState], when: str) -> None:
        findings, (first, second, *singles) = self.findings, states
        if _bytes(first) != _bytes(second):
            findings.add("two instances differ, given the same generators and set-points", when)
        for k, single in enumerate(singles):
            if _bytes(first, k) != _bytes(single):
                findings.add(
                    "an incarnation differs from a batch of 1",
                    f"{when}, incarnation {k}: {_row(first, k)} and {_row(single, 0)}",
                )
            at = f"{when}, incarnation {k}"
            check_flat_values(findings, "reading", self.baseline.sensors, first.readings[k], at)
            check_flat_values(findings, "reward", self.baseline.rewards, first.rewards[k], at)
        _check_frame(findings, self.steppers[1].environment, when)
        if (first.terminated | first.truncated).any() and not self.steppers[0].environment.ends:
            findings.add("ends an episode although its attribute 'ends' is false", when)


def _single(factory: BatchFactory, number: int) -> Callable[[], BatchEnvironment]:
    """Return a factory of batches of 1; ``number`` is passed as ``first`` if ``factory`` takes it."""
    parameters = signature(factory).parameters
    if "first" in parameters or any(
        parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values()
    ):
        return partial(factory, batch=1, first=number)  # type: ignore[call-arg]
    return partial(factory, batch=1)


def _check_calls_of(environment: BatchEnvironment, findings: Findings) -> None:
    """Wrap the environment's functions to report modified arguments and the use of other generators."""

    def watched(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            before = deepcopy(arguments)
            generators = _others(environment, arguments[0]) if name == "get_first_states" else []
            drawn = [rng.bit_generator.state for rng in generators]
            answer = function(*arguments)
            if not same(arguments, before):
                findings.add("changes the arguments that it is given", name)
            if drawn != [rng.bit_generator.state for rng in generators]:
                findings.add(
                    "the reset of some draws from generators of others", f"{name}({before[0].tolist()})"
                )
            return answer

        return call

    for name in _PURE:
        setattr(environment, name, watched(name, getattr(environment, name)))


def _others(environment: BatchEnvironment, indices: IndexVector) -> list[np.random.Generator]:
    chosen = set(indices.tolist())
    return [rng for k, rng in enumerate(environment.rngs) if k not in chosen]


def _row(state: BatchState, k: int) -> tuple[Any, ...]:
    return (
        state.readings[k].tolist(),
        state.rewards[k].tolist(),
        bool(state.terminated[k]),
        bool(state.truncated[k]),
    )


def _bytes(state: BatchState, k: int | None = None) -> bytes:
    """Return a state, or one of its incarnations, as bytes for an exact comparison."""
    rows = slice(None) if k is None else slice(k, k + 1)
    parts = [state.readings, state.rewards, state.terminated, state.truncated]
    parts += [] if state.recorded is None else [state.recorded]
    return b"".join(part[rows].tobytes() for part in parts)
