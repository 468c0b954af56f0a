"""A batched environment, and parts of an agent that serve bodies one by one or all at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from palaestrai_mosaik.agent import BatchMuscle, BatchObjective, Brain, Muscle, Objective
from palaestrai_mosaik.agent.dumper import dump_arrays
from palaestrai_mosaik.core.errors import SimulationError
from palaestrai_mosaik.environment.batch import BatchEnvironment
from palaestrai_mosaik.types import Box

from .documents import ENVIRONMENT_ENDS, MAX_EPISODES, document, environment, named, phase

HERE = "support.bodies"

#: what the parts below were asked for in this process: (call, number of bodies)
calls: list[tuple[str, int]] = []


class Drift(BatchEnvironment):
    """A place that drifts, by chance and by what is set; ends after as many steps as its number says.

    ``drawn``: it begins at a place that is drawn, and is pushed by what is drawn; without, all of it
    follows from its number. ``broken``: a file; as long as it is there, the step ``at`` of the phase's
    episode ``episode`` raises.
    """

    state_shapes = ((), ())
    state_dtypes = (np.float64, np.int64)
    observation_shapes = ((2,),)
    observation_names = ("place",)
    action_shapes = ((),)
    action_dtypes = (np.float64,)
    action_names = ("push",)
    reward_names = ("near", "cheap", "alive")

    def __init__(
        self,
        batch: int = 1,
        first: int = 0,
        drawn: bool = True,
        broken: str | None = None,
        at: int = 2,
        episode: int = 2,
    ):
        super().__init__(batch=batch, first=first)
        self.numbers = np.arange(first, first + batch)
        self.drawn, self.broken, self.at = drawn, broken, at
        self.fails_in = episode

    def get_action_spaces(self) -> Any:
        return [Box(-2.0, 2.0, shape=())]

    def get_first_states(self, incarnations: Any) -> Any:
        if self.drawn:
            place = np.array([self.rngs[k].uniform(-1, 1) for k in incarnations.tolist()])
        else:
            place = np.sin(1.0 + self.numbers[incarnations])
        steps = np.zeros(len(incarnations), dtype=np.int64)
        return [place, steps], [self._seen(place, steps)]

    def get_action_results(self, last_states: Any, actions: Any) -> Any:
        place, steps = last_states
        due = self.episode == self.fails_in and steps.max() == self.at
        if due and self.broken and Path(self.broken).exists():
            raise SimulationError("not mended yet")
        push = np.zeros(self.batch)
        if self.drawn:
            for k in np.flatnonzero(self.active).tolist():
                push[k] = self.rngs[k].normal()
        place, steps = 0.9 * place + 0.1 * push + np.sin(actions[0]), steps + 1
        return [place, steps], [self._seen(place, steps)]

    def get_rewards(self, last_states: Any, actions: Any, new_states: Any) -> Any:
        place, steps = new_states
        return np.stack([-np.abs(place), -0.1 * actions[0] ** 2, np.exp(-0.3 * steps)], axis=1)

    def get_ends(self, new_states: Any) -> Any:
        place, steps = new_states
        return place > 2.0, steps >= 3 + self.numbers % 4

    def _seen(self, place: Any, steps: Any) -> Any:
        return np.stack([place, steps.astype(np.float64)], axis=1)


class Steer(Muscle):
    """Against the place, by a weight that the brain says; explores, and tires within an episode."""

    def __init__(self) -> None:
        self.weight, self.done = 0.5, 0

    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        place = sensors.vector[0]
        value = -self.weight * place * 0.9**self.done + 0.1 * self.rng.normal()
        self.done += 1
        actuators_available.vector = np.array([min(max(value, -2.0), 2.0)])
        return actuators_available, float(place)

    def update(self, update: Any) -> None:
        self.weight = float(update)

    def reset(self) -> None:
        self.done = 0


class SteerAll(BatchMuscle, Steer):
    """The same for all bodies at once."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = np.zeros(0, dtype=np.int64)

    def propose_batch(self, batch: Any) -> Any:
        calls.append(("propose_batch", len(batch.bodies)))
        if len(self.counts) != len(self.rngs):
            self.counts = np.zeros(len(self.rngs), dtype=np.int64)
        places = batch.observations[:, 0]
        drawn = np.array([self.rngs[k].normal() for k in batch.bodies.tolist()])
        # powers by the same arithmetic as alone
        tired = np.array([0.9**done for done in self.counts[batch.bodies].tolist()])
        values = -self.weight * places * tired + 0.1 * drawn
        self.counts[batch.bodies] += 1
        return np.minimum(np.maximum(values, -2.0), 2.0)[:, None], places.tolist()

    def reset(self) -> None:
        super().reset()
        self.counts[:] = 0

    def reset_bodies(self, bodies: Any) -> None:
        self.counts[bodies] = 0


class Worth(Objective):
    """The mean of all rewards but where the place is far away: there it has no value."""

    def internal_reward(self, memory: Any, **kwargs: Any) -> float | None:
        row = memory.tail(1).rewards[-1]
        return None if row[0] < -1.5 else float((row[0] + row[1] + row[2]) / 3)


class WorthOfAll(BatchObjective, Worth):
    """The same for all bodies at once."""

    def internal_rewards(self, rows: Any) -> Any:
        near, cheap, alive = rows.rewards.T
        return np.where(near < -1.5, np.nan, (near + cheap + alive) / 3)


class Judge(Brain):
    """Moves the weight a little with every row; what it says depends on the order of the rows."""

    def __init__(self) -> None:
        self.weight = 0.5

    def thinking(self, muscle_id: str, data_from_muscle: Any) -> Any:
        row = self.memory.tail(1)
        value = float(row.objective[0])
        if np.isnan(value):
            return None
        self.weight = 0.95 * self.weight + 0.05 * value * data_from_muscle
        return self.weight

    def store(self) -> None:
        """Keep all that the brain remembers, so that it can be compared."""
        rows = self.memory.tail(len(self.memory))
        columns = "observations actions rewards objective terminated truncated muscles next_observations"
        dump_arrays({name: np.array(getattr(rows, name)) for name in columns.split()}, self._dumpers)


class JudgeOfAll(Judge):
    """The same, told of the rows of a tick at once."""

    def thinking_batch(self, muscle_ids: Any, data_from_muscles: Any) -> Any:
        calls.append(("thinking_batch", len(muscle_ids)))
        rows = self.memory.tail(len(muscle_ids))
        update = None
        for value, data in zip(rows.objective.tolist(), data_from_muscles, strict=True):
            if not np.isnan(value):
                self.weight = 0.95 * self.weight + 0.05 * value * data
                update = self.weight
        return update


class Seer(Judge):
    """Moves the weight by what is seen next, which its muscles look up, and tells about every row."""

    def thinking(self, muscle_id: str, data_from_muscle: Any) -> Any:
        return self._see(muscle_id, self.next_observations, data_from_muscle)

    def _see(self, muscle_id: str, following: Any, data: float) -> float:
        if following is not None and not np.isnan(following).any():
            self.weight = 0.95 * self.weight + 0.01 * float(following[0]) + 0.001 * data
        self.add_statistics("weight", self.weight, muscle_id=muscle_id if self.at_once else None)
        return self.weight

    at_once = False


class SeerOfAll(Seer):
    """The same, told of the rows of a tick at once."""

    at_once = True

    def thinking_batch(self, muscle_ids: Any, data_from_muscles: Any) -> Any:
        seen = self.next_observations
        following = [None] * len(muscle_ids) if seen is None else seen
        rows = zip(muscle_ids, following, data_from_muscles, strict=True)
        return [self._see(*row) for row in rows][-1]


class Ahead(Steer):
    """Its brain is told what it sees next."""

    looks_ahead = True


class AheadAll(SteerAll):
    """The same for all bodies at once."""

    looks_ahead = True


class Tutor(Judge):
    """Has a weight of its own for each muscle."""

    shared_updates = False

    def __init__(self) -> None:
        self.weights: dict[str, float] = {}

    def thinking(self, muscle_id: str, data_from_muscle: Any) -> Any:
        self.weights[muscle_id] = 0.9 * self.weights.get(muscle_id, 0.5) + 0.01 * data_from_muscle
        return self.weights[muscle_id]


class SteerEach(SteerAll):
    """Acts for all bodies at once, each with a weight of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.weight: Any = None

    def propose_batch(self, batch: Any) -> Any:
        weights = self.weights(len(self.rngs))
        self.weight = weights[batch.bodies]
        answer = super().propose_batch(batch)
        self.weight = weights
        return answer

    def update_body(self, body: int, update: Any) -> None:
        self.weights(len(self.rngs))[body] = update

    def weights(self, count: int) -> Any:
        """Return the weights of all bodies."""
        if self.weight is None:
            self.weight = np.full(count, 0.5)
        return self.weight


#: parts that serve bodies one by one, and all at once
ALONE = {"muscle": "Steer", "objective": "Worth", "brain": "Judge"}
AT_ONCE = {"muscle": "SteerAll", "objective": "WorthOfAll", "brain": "JudgeOfAll"}


def steerer(parts: dict[str, str] | None = None, *bodies: dict[str, Any], name: str = "a") -> dict[str, Any]:
    """Return the entry of an agent; ``parts`` (none: those for all at once) name its classes."""
    named_parts = {what: named(f"{HERE}:{part}") for what, part in (parts or AT_ONCE).items()}
    return {"name": name, **named_parts, "bodies": list(bodies)}


def drift(uid: str = "e", batch: int = 1, **params: Any) -> dict[str, Any]:
    """Return the entry of a :class:`Drift`."""
    return environment(uid, f"{HERE}:Drift", batch=batch, **params)


def drifting(
    environments: list[Any], agents: list[Any], *, ends: dict[str, Any] | None = None, **keys: Any
) -> Any:
    """Return a document of one phase, whose environments begin again on their own unless ``ends`` says else."""
    wanted = {"when": "all", "episodes": 2} if ends is None else ends
    conditions = [named(ENVIRONMENT_ENDS, **wanted)]
    return document(phase(environments, agents, conditions, **keys), run=[named(MAX_EPISODES)])
