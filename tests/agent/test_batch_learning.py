"""Rows that come as batches teach what they teach one by one."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from palaestrai_mosaik.agent import BodyInformation, Brain, Experience, FileBrainDumper, Memory
from palaestrai_mosaik.agent.library.cross_entropy import Candidate, CrossEntropyBrain, SearchDistribution
from palaestrai_mosaik.agent.library.evolution_strategy import EvolutionStrategyBrain
from palaestrai_mosaik.agent.library.search import SearchBrain
from palaestrai_mosaik.core.errors import ContractError
from palaestrai_mosaik.simulation.learner import Learner
from palaestrai_mosaik.types import ActuatorInformation, Box, Discrete, Mode, SensorInformation

ANY = Box(-np.inf, np.inf, shape=())


def body(number: int = 0, sensors: int = 4, space: Any = None, **known: Any) -> BodyInformation:
    """Return a body of agent ``a`` with two workers' muscles."""
    own = Discrete(2) if space is None else space
    return BodyInformation(
        "a",
        known.pop("environments", ("e",)),
        number,
        known.pop("group", 0),
        tuple(f"a.{worker}.{number}" for worker in range(2)),
        [SensorInformation(None, ANY, f"e.0.s{i}") for i in range(sensors)],
        [ActuatorInformation(None, own, "e.0.u")],
        **known,
    )


def ready(brain: Any, bodies: Sequence[BodyInformation] = (), seed: int = 0) -> Any:
    """Set ``brain`` up as the framework does."""
    brain.name, brain.seed, brain.rng = "a", seed, np.random.default_rng(seed)
    brain._memory = Memory()
    brain.bodies = list(bodies) or [body(n) for n in range(3)]
    brain.sensors, brain.actuators = brain.bodies[0].sensors, brain.bodies[0].actuators
    brain.setup()
    return brain


def rows(ticks: int, data: Any, *, ahead: bool, bodies: int = 3) -> Iterator[list[Experience]]:
    """Yield the rows of each tick; bodies end unevenly, and then have no row for one tick.

    ``data(rng, body, step)`` is what the muscle sent; ``ahead``: it is known what follows each row.
    """
    rng = np.random.default_rng(5)
    seen = rng.standard_normal((bodies, 4))
    steps = np.zeros(bodies, dtype=int)
    out = np.zeros(bodies, dtype=bool)
    for _ in range(ticks):
        tick, after = [], rng.standard_normal((bodies, 4))
        for b in range(bodies):
            if out[b]:
                out[b], steps[b] = False, 0
                continue
            end = rng.random()
            flags = end < 0.06, 0.06 <= end < 0.12
            final = after[b].copy() if ahead or any(flags) else None
            action = np.array([float(rng.integers(2))])
            sent = data(rng, b, int(steps[b]))
            tick.append(
                Experience(
                    f"a.0.{b}", seen[b], action, np.ones(1), float(rng.standard_normal()), sent, seen[b], action,
                    *flags, final, int(steps[b]),
                )
            )  # fmt: skip
            steps[b] += 1
            out[b] = any(flags)
        seen = after
        # those that end come before the others
        yield from ([e for e in tick if e.done], [e for e in tick if not e.done])


class Plain(Brain):
    """Notes what it is shown."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def thinking(self, muscle_id: str, data_from_muscle: Any) -> Any:
        row = self.memory.tail(1)
        self.seen.append(
            (muscle_id, data_from_muscle, row.objective[0], len(self.memory), self.next_observations)
        )
        self.add_statistics("rows", len(self.memory))
        return len(self.memory)


def test_a_brain_without_batches_is_shown_row_by_row() -> None:
    learner = Learner(ready(Plain()))
    ticks = [tick for tick in rows(8, lambda rng, b, step: (b, step), ahead=False) if tick]
    sizes = iter(range(1, 100))
    for tick in ticks:
        before = len(learner.brain.memory)
        assert learner.learn_batch(tick) == before + len(tick)
        assert learner.statistics_by_muscle == {e.muscle: {"rows": float(next(sizes))} for e in tick}
    shown = [(e.muscle, e.data, e.objective) for tick in ticks for e in tick]
    assert [one[:3] for one in learner.brain.seen] == shown
    assert [one[3] for one in learner.brain.seen] == list(range(1, len(shown) + 1))
    finals = [e.final_observations for tick in ticks for e in tick]
    assert all(one[4] is final for one, final in zip(learner.brain.seen, finals, strict=True))


def test_experiences_at_once_are_experiences_one_by_one() -> None:
    one, other = Memory(40), Memory(40)
    for i, tick in enumerate(rows(60, lambda rng, b, step: (b, step), ahead=False)):
        if i > 20:
            # from here on, the muscle sees and does something else than the environment
            tick = [replace(e, observations=e.readings * 2, actions=e.setpoints + 1) for e in tick]
        one.append_experiences(tick)
        for experience in tick:
            other.append_experience(experience)
        for muscles in (None, ["a.0.1"], ["a.0.0", "a.0.2"]):
            found, wanted = one.tail(30, muscles), other.tail(30, muscles)
            for name in (
                "sensor_readings", "actuator_setpoints", "observations", "actions", "next_observations",
                "rewards", "objective", "terminated", "truncated", "additional_data", "muscles",
            ):  # fmt: skip
                mine, theirs = getattr(found, name), getattr(wanted, name)
                assert (
                    pickle.dumps(mine) == pickle.dumps(theirs)
                    if isinstance(mine, list)
                    else (mine.tobytes() == theirs.tobytes())
                ), name
    assert len(one) == 40
    one.rng, other.rng = np.random.default_rng(1), np.random.default_rng(1)
    assert one.sample(9).observations.tobytes() == other.sample(9).observations.tobytes()


def test_a_tick_may_have_more_rows_than_a_memory_keeps() -> None:
    memory = Memory(size_limit=2)
    tick = next(t for t in rows(1, lambda *_: None, ahead=True, bodies=100) if len(t) > 70)
    memory.append_experiences(tick)
    assert memory.tail(9).muscles == [e.muscle for e in tick[-2:]]


# --- learners that search ---------------------------------------------------------------------


def candidates(rng: np.random.Generator, b: int, step: int) -> Candidate:
    # one candidate for each episode of a body
    if step == 0:
        _CANDIDATES[b] = Candidate(
            rng.standard_normal(3), SearchDistribution(0, np.zeros(3), np.ones(3), f"p{b % 2}")
        )
    return _CANDIDATES[b]


_CANDIDATES: dict[int, Candidate] = {}


@pytest.mark.parametrize("make", [lambda: CrossEntropyBrain(4, 2), lambda: EvolutionStrategyBrain(4)])
def test_searches_move_as_they_do_row_by_row(make: Any) -> None:
    """With two kinds of policies: bodies 0 and 2 are of one, body 1 of the other."""
    one, other = Learner(ready(make())), Learner(ready(make()))
    told_by: list[Any] = []
    told: list[Any] = []
    updates = 0
    for tick in rows(120, candidates, ahead=False):
        update = one.learn_batch(tick)
        told_by += one.statistics_by_muscle.items()
        last = None
        for experience in tick:
            last = other.learn(experience) or last
            if other.statistics:
                told.append((experience.muscle, other.statistics))
        assert (update is None) == (last is None)
        if update is not None and last is not None:
            updates += 1
            for mine, theirs in zip(as_tuple(update), as_tuple(last), strict=True):
                assert (
                    mine.mean.tobytes() == theirs.mean.tobytes()
                    and mine.std.tobytes() == theirs.std.tobytes()
                )
    assert told_by == told and updates > 4
    assert {search.policy for search in as_tuple(one.shared[1])} == {"p0", "p1"}


def as_tuple(update: Any) -> tuple[SearchDistribution, ...]:
    return update if isinstance(update, tuple) else (update,)


def test_what_was_learned_for_several_policies_comes_back(tmp_path: Any) -> None:
    brain = ready(CrossEntropyBrain(2, 2))
    learner = Learner(brain)
    for tick in rows(60, candidates, ahead=False):
        learner.learn_batch(tick)
    brain._dumpers = [FileBrainDumper(tmp_path, "run", "phase", "a")]
    brain.store()
    again = CrossEntropyBrain(2, 2)
    again._dumpers = brain._dumpers
    again.load()
    assert list(again._searches) == list(brain._searches) and len(again._searches) == 2
    for found, kept in zip(again._searches.values(), brain._searches.values(), strict=True):
        assert (found.generation, found.mean.tolist()) == (kept.generation, kept.mean.tolist())


@pytest.mark.parametrize("make", [CrossEntropyBrain, EvolutionStrategyBrain])
def test_a_search_refuses_what_is_replayed(make: Any) -> None:
    brain: SearchBrain = make()
    with pytest.raises(ContractError, match="body 1 is in lived, which replays what others did"):
        ready(brain, [body(0), body(1, environments=("lived",), replayed=True)])
    brain = make()
    brain.mode = Mode.TEST
    ready(brain, [body(1, replayed=True)])


# --- where rows are ---------------------------------------------------------------------------


def two_kinds() -> Brain:
    """A brain with bodies of two sizes: 0 and 1 in ``e``, 2 and 3 in ``f``."""
    kinds = [body(0), body(1), *(body(n, 2, group=1, environments=("f",)) for n in (2, 3))]
    brain = ready(Plain(), kinds)
    other = Memory()
    brain._memories = {muscle: other for one in kinds[2:] for muscle in one.muscles}
    return brain


def experience(muscle: str, value: float, width: int) -> Experience:
    readings, action = np.full(width, value), np.zeros(1)
    return Experience(muscle, readings, action, np.zeros(1), value, None, readings, action)


def test_rows_are_found_by_environment_and_body() -> None:
    brain = two_kinds()
    learner = Learner(brain)
    for i in range(3):
        for n in range(4):
            for worker in range(2):
                learner.learn(experience(f"a.{worker}.{n}", 100 * worker + 10 * n + i, 4 if n < 2 else 2))
    assert [len(memory) for memory in brain.memories] == [12, 12]
    assert brain.memory is brain.memories[0]
    assert brain.tail(2, body=1).objective.tolist() == [12.0, 112.0]
    assert brain.tail(4, environment="f").objective.tolist() == [22.0, 122.0, 32.0, 132.0]
    assert brain.tail(1, body=3, environment="f").sensor_readings.tolist() == [[132.0, 132.0]]
    assert brain.muscles("f", 2) == ["a.0.2", "a.1.2"]
    assert brain.memory_of("a.0.3").sample is not None
    learner.mark_end("a.0.2", True, False, np.zeros(2))
    assert brain.tail(6, body=2).terminated.tolist() == [False] * 4 + [True, False]
    with pytest.raises(ContractError, match=r"agent 'a' has no body in 'g'"):
        brain.tail(environment="g")
    with pytest.raises(ContractError, match=r"has no body 3 in 'e'; it has 4 bodies"):
        brain.tail(environment="e", body=3)
    with pytest.raises(ContractError, match="different sizes; ask for one body"):
        brain.tail()
