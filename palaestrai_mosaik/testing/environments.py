"""Conformance checks of environments, rewards and state transformers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik import seeding
from palaestrai_mosaik.environment.environment import (
    Environment,
    EnvironmentBaseline,
    EnvironmentState,
    EnvironmentStateTransformer,
    Reward,
    World,
)

from .findings import Findings, build, check_channels, check_flat_values, same, sample_flat, twin

FloatVector = npt.NDArray[np.float64]


def check_environment(
    factory: Callable[[], Environment], *, steps: int = 50, episodes: int = 2, seed: int = 0
) -> None:
    """Check that an environment keeps its contract.

    ``factory`` returns a new environment. Two of them run side by side with the same
    generators and the same random set-points, for ``episodes`` episodes of at most
    ``steps`` steps.

    Checked: the baseline is sound (uids, spaces, initial values, step size); every state
    has the declared shape and type, its readings and rewards lie in their spaces, and it
    is not both terminated and truncated; set-points that were handed in and states that
    were handed on are not written to again; equal generators and set-points give equal
    trajectories, and an equal first state after a reset; no global randomness is used.

    Raises
    ------
    ConformanceError
        Lists everything that was found.
    """
    first, findings = build(factory, Environment)
    second = twin(factory, findings)
    pair = (first, second)
    try:
        baselines = []
        for environment in pair:
            environment.uid = "environment"
            environment.rng = _generator(seed, 0)
            with findings.calling("setup"):
                baselines.append(environment.setup())
        check_baseline(findings, first, baselines[0])
        if not all(same(described(baselines[0], k), described(baselines[1], k)) for k in KINDS):
            findings.add("two instances differ", "their baselines are not the same")
        opening = None
        for episode in range(episodes):
            opened = _check_episode(findings, pair, baselines[0], (seed, episode, steps))
            opening = opening or opened
        if opening is not None:
            again = _begin(findings, first, seed, 0)
            if not _equal(again, opening):
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
    """Check that a reward keeps its contract, for an environment with this ``baseline``.

    ``factory`` returns a new reward. It is given ``states`` states whose readings are
    sampled from the sensors' spaces. Checked: it declares rewards with unique names; gives
    as many finite numbers, each in its space; leaves the state as it is; does not write to
    what it has returned; a second reward gives the same; no global randomness is used.

    Raises
    ------
    ConformanceError
        Lists everything that was found.
    """
    first, findings = build(factory, Reward)
    pair = (first, twin(factory, findings))
    declared = []
    for reward in pair:
        with findings.calling("setup"):
            declared.append(list(reward.setup(baseline)))
    check_channels(findings, "reward", declared[0])
    if not declared[0]:
        findings.add("declares no reward", "setup returned nothing")
    rng = seeding.generator(seed, "states")
    kept: list[tuple[Any, Any]] = []
    for number in range(states):
        state = _sampled_state(baseline, rng)
        before = deepcopy(state)
        given = []
        for reward in pair:
            with findings.calling(f"state {number}"):
                given.append(reward(state))
        if not _equal(state, before):
            findings.add("changes the state that it is given", f"state {number}")
        _check_rewards(findings, declared[0], given[0], f"state {number}")
        if not same(_flat(given[0]), _flat(given[1])):
            findings.add("two instances differ", f"state {number}: {given[0]!r} and {given[1]!r}")
        kept.append((given[0], deepcopy(given[0])))
    if not all(same(handed, copy) for handed, copy in kept):
        findings.add("changes what it has handed on", "rewards returned earlier were written to")
    findings.raise_found()


def check_state_transformer(
    factory: Callable[[], EnvironmentStateTransformer], states: Sequence[EnvironmentState]
) -> None:
    """Check that a state transformer keeps its contract, with these ``states``.

    ``factory`` returns a new transformer; ``states`` are some of the environment that it is
    meant for. Checked: it returns a state with as many readings; leaves the state that it
    is given as it is; a second transformer returns the same; no global randomness is used.

    Raises
    ------
    ConformanceError
        Lists everything that was found.
    """
    first, findings = build(factory, EnvironmentStateTransformer)
    pair = (first, twin(factory, findings))
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


#: what a baseline offers
KINDS = ("sensors", "actuators", "rewards")


def described(baseline: EnvironmentBaseline, kind: str) -> list[tuple[Any, ...]]:
    """Return what the baseline says about its channels of one of :data:`KINDS`."""
    return [(c.uid, c.space, c.value) for c in getattr(baseline, kind)]


def check_baseline(findings: Findings, environment: World, baseline: Any) -> None:
    """Check the uids, spaces and values of all channels, and the step size."""
    if not isinstance(baseline, EnvironmentBaseline):
        raise findings.stop("setup returns no EnvironmentBaseline", f"a {type(baseline).__name__}")
    for kind in KINDS:
        check_channels(findings, kind[:-1], getattr(baseline, kind))
    size = environment.step_size
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        findings.add("step_size is not a whole number of at least 1", repr(size))


def _check_episode(
    findings: Findings,
    pair: tuple[Environment, Environment],
    baseline: EnvironmentBaseline,
    which: tuple[int, int, int],
) -> EnvironmentState:
    """Run one episode, of ``which`` (seed, episode, steps), and return its first state."""
    seed, episode, steps = which
    rng = seeding.generator(seed, "set-points", episode)
    setpoints = _initial(baseline)
    handed_on: list[tuple[EnvironmentState, EnvironmentState]] = []
    handed_in: list[tuple[FloatVector, FloatVector]] = []
    for step in range(steps + 1):
        when = f"episode {episode}, step {step}" if step else f"episode {episode}, reset"
        states = []
        for environment in pair:
            if step == 0:
                state = _begin(findings, environment, seed, episode)
            else:
                given = setpoints.copy()
                handed_in.append((given, given.copy()))
                with findings.calling(when):
                    state = environment.step(given)
            states.append(state)
            _check_state(findings, environment, baseline, state, when)
        if not _equal(*states):
            findings.add("two instances differ, given the same generators and set-points", when)
        _check_new(findings, states[0], [state for state, _ in handed_on[-1:]], when)
        handed_on.append((states[0], deepcopy(states[0])))
        if states[0].terminated or states[0].truncated:
            break
        setpoints = _following(baseline, setpoints, rng, pair[0].hold_setpoints)
    if not all(same(given, copy) for given, copy in handed_in):
        findings.add("changes the set-points that it is given", f"episode {episode}")
    if not all(_equal(state, copy) for state, copy in handed_on):
        findings.add(
            "changes a state that it has handed on", f"episode {episode}: make new arrays for every state"
        )
    return handed_on[0][1]


def _begin(findings: Findings, environment: Environment, seed: int, episode: int) -> EnvironmentState:
    environment.episode = episode
    environment.rng = _generator(seed, episode)
    with findings.calling(f"episode {episode}, reset"):
        return environment.reset()


def _initial(baseline: EnvironmentBaseline) -> FloatVector:
    parts = [
        np.full(a.space.size, np.nan) if a.value is None else a.space.flatten(a.value)
        for a in baseline.actuators
    ]
    return np.concatenate(parts) if parts else np.empty(0)


def _following(
    baseline: EnvironmentBaseline, setpoints: FloatVector, rng: np.random.Generator, hold: bool
) -> FloatVector:
    """Return the next set-points: most actuators get a new one, as from agents that skip some."""
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
    if not isinstance(state, EnvironmentState):
        raise findings.stop("returns no EnvironmentState", f"{when}: a {type(state).__name__}")
    size = sum(s.space.size for s in baseline.sensors)
    readings = state.readings
    if not isinstance(readings, np.ndarray) or readings.dtype != np.float64 or readings.shape != (size,):
        found = f"a {getattr(readings, 'dtype', type(readings).__name__)} of shape {np.shape(readings)}"
        findings.add(f"readings are not a float64 vector of shape ({size},)", f"{when}: {found}")
    else:
        check_flat_values(findings, "reading", baseline.sensors, readings, when)
    _check_rewards(findings, baseline.rewards, state.rewards, when)
    ends = []
    for name in ("terminated", "truncated"):
        value = getattr(state, name)
        ends.append(bool(value))
        if not isinstance(value, bool | np.bool_):
            findings.add(f"{name} is neither True nor False", f"{when}: {value!r}")
    if all(ends):
        findings.add("a state is both terminated and truncated", when)
    if any(ends) and not environment.ends:
        findings.add("ends an episode although its attribute 'ends' is false", when)


def _check_rewards(findings: Findings, declared: Sequence[Any], given: Any, when: str) -> None:
    try:
        values = _flat(given)
    except (TypeError, ValueError):
        findings.add("rewards are not numbers", f"{when}: {given!r}")
        return
    if values.shape != (len(declared),):
        findings.add(f"{len(declared)} rewards are declared, others are given", f"{when}: {given!r}")
    elif not np.isfinite(values).all():
        findings.add("a reward is not finite", f"{when}: {given!r}")
    elif all(information.space.size == 1 for information in declared):
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
