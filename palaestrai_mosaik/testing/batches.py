"""The conformance check of batched environments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from inspect import Parameter, signature
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik import seeding
from palaestrai_mosaik.environment.batch import BatchEnvironment, BatchState, BatchStepper
from palaestrai_mosaik.environment.environment import EnvironmentBaseline
from palaestrai_mosaik.errors import ContractError

from .environments import KINDS, check_baseline, described
from .findings import Findings, build, check_flat_values, same, sample_flat, twin

FloatMatrix = npt.NDArray[np.float64]
IntVector = npt.NDArray[np.intp]

#: the functions that must leave their arguments as they are
_PURE = ("get_action_results", "get_first_states", "get_rewards", "get_ends", "get_recorded_actions")


#: steps of each episode in which some incarnations have their idle actions
_IDLE_STEPS = 2


class BatchFactory(Protocol):
    """Makes a batched environment: its class, or a ``functools.partial`` with its parameters."""

    def __call__(self, *, batch: int) -> BatchEnvironment:
        """Return a new environment of so many incarnations."""


def check_batch_environment(
    factory: BatchFactory, *, batch: int = 5, steps: int = 50, episodes: int = 2, seed: int = 0
) -> None:
    """Check that a batched environment keeps its contract.

    ``factory`` returns a new environment of ``batch`` incarnations: the class itself, or
    ``functools.partial(MyEnvironment, size=3)``. Two of them run side by side, and beside each
    incarnation a batch of 1 with the same generator, the same number (``first``, where the
    factory takes it) and the same random set-points, for ``episodes`` episodes of the phase, of
    ``steps`` steps. In the first two steps every second one has its idle actions, as where no agent
    acts yet. In the midst of each episode, some incarnations begin anew while the others go on.

    Checked: the baseline is sound; states, observations, rewards and ends have the declared
    shapes and dtypes; readings and rewards lie in their spaces; arguments are not written
    to; each incarnation gives, byte for byte, what a batch of 1 gives, also while others
    begin anew; a reset of some draws from their generators alone; equal generators and
    set-points give equal trajectories, and an equal first state after a reset; no global
    randomness is used.

    Raises
    ------
    ConformanceError
        Lists everything that was found.
    """
    first, findings = build(partial(factory, batch=batch), BatchEnvironment)
    everyone = [first, twin(partial(factory, batch=batch), findings)]
    everyone += [twin(_single(factory, first.first + k), findings) for k in range(batch)]
    try:
        baselines = []
        for environment, size in zip(everyone, [batch, batch, *[1] * batch], strict=True):
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
        company = _Company(findings, everyone, baselines[0], seed)
        openings = [company.run(episode, steps) for episode in range(episodes)]
        if openings and _bytes(company.begin(0)) != _bytes(openings[0]):
            findings.add(
                "a reset does not lead back to the same first state",
                "with the generators of the first episode it gave another one",
            )
    finally:
        for environment in everyone:
            with findings.calling("shutdown"):
                environment.shutdown()
    findings.raise_found()


class _Company:
    """Two batches and one batch of 1 for each of their incarnations, which do the same."""

    def __init__(
        self,
        findings: Findings,
        everyone: Sequence[BatchEnvironment],
        baseline: EnvironmentBaseline,
        seed: int,
    ):
        self.findings, self.baseline, self.seed = findings, baseline, seed
        self.batch = everyone[0].batch
        with findings.calling("the declared shapes and dtypes"):
            self.steppers = [BatchStepper(environment) for environment in everyone]
        #: the incarnations that each of them has
        self.members = [np.arange(self.batch)] * 2 + [np.array([k]) for k in range(self.batch)]
        #: the actions of an incarnation in which no agent has acted
        self.idle = np.concatenate(
            [np.empty(0)]
            + [
                np.full(a.space.size, np.nan) if a.value is None else a.space.flatten(a.value)
                for a in baseline.actuators
            ]
        )
        for environment in everyone:
            _watch(environment, findings)

    def begin(self, episode: int) -> BatchState:
        """Let all begin an episode of the phase; return the first one's state."""
        when = f"episode {episode}, reset"
        states = []
        for stepper, members in zip(self.steppers, self.members, strict=True):
            environment = stepper.environment
            environment.episode = episode
            environment.rng = seeding.generator(self.seed, "environment", episode)
            environment.rngs = [
                seeding.generator(self.seed, "environment", episode, k) for k in members.tolist()
            ]
            states.append(self._answer(stepper.reset, when))
        self._check(states, when)
        return states[0]

    def run(self, episode: int, steps: int) -> BatchState:
        """Let all run an episode of the phase; return the first state."""
        opening = self.begin(episode)
        rngs = [seeding.generator(self.seed, "set-points", episode, k) for k in range(self.batch)]
        for step in range(1, steps + 1):
            when = f"episode {episode}, step {step}"
            setpoints = np.array([sample_flat(self.baseline.actuators, rng) for rng in rngs])
            if step <= _IDLE_STEPS:
                setpoints[::2] = self.idle
            # every second one is cut short, then those that were not
            cut = {steps // 3: slice(0, None, 2), steps // 2: slice(1, None, 2)}.get(step)
            states = []
            for stepper, members in zip(self.steppers, self.members, strict=True):
                given = setpoints[members]
                if cut is not None:
                    stepper.end(np.flatnonzero(np.isin(members, np.arange(self.batch)[cut])))
                states.append(self._answer(partial(stepper.step, given, resets=True), when))
                if not same(given, setpoints[members]):
                    self.findings.add("changes the actions that it is given", when)
            self._check(states, when)
        return opening

    def _answer(self, call: Callable[[], BatchState], when: str) -> BatchState:
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
        if (first.terminated | first.truncated).any() and not self.steppers[0].environment.ends:
            findings.add("ends an episode although its attribute 'ends' is false", when)


def _single(factory: BatchFactory, number: int) -> Callable[[], BatchEnvironment]:
    """Return a factory of a batch of 1 whose incarnation has this number, as far as it can be told."""
    known = signature(factory).parameters
    if "first" in known or any(one.kind is Parameter.VAR_KEYWORD for one in known.values()):
        return partial(factory, batch=1, first=number)  # type: ignore[call-arg]
    return partial(factory, batch=1)


def _watch(environment: BatchEnvironment, findings: Findings) -> None:
    """Let calls of the environment's functions look after their arguments and generators."""

    def watched(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            before = deepcopy(given)
            others = _others(environment, given[0]) if name == "get_first_states" else []
            drawn = [rng.bit_generator.state for rng in others]
            answer = function(*given)
            if not same(given, before):
                findings.add("changes the arguments that it is given", name)
            if drawn != [rng.bit_generator.state for rng in others]:
                findings.add(
                    "the reset of some draws from generators of others", f"{name}({before[0].tolist()})"
                )
            return answer

        return call

    for name in _PURE:
        setattr(environment, name, watched(name, getattr(environment, name)))


def _others(environment: BatchEnvironment, places: IntVector) -> list[np.random.Generator]:
    chosen = set(places.tolist())
    return [rng for k, rng in enumerate(environment.rngs) if k not in chosen]


def _row(state: BatchState, k: int) -> tuple[Any, ...]:
    return (
        state.readings[k].tolist(),
        state.rewards[k].tolist(),
        bool(state.terminated[k]),
        bool(state.truncated[k]),
    )


def _bytes(state: BatchState, k: int | None = None) -> bytes:
    """Return all of a state, or of one incarnation, for an exact comparison."""
    rows = slice(None) if k is None else slice(k, k + 1)
    parts = [state.readings, state.rewards, state.terminated, state.truncated]
    parts += [] if state.recorded is None else [state.recorded]
    return b"".join(part[rows].tobytes() for part in parts)
