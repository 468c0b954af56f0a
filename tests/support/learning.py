"""Parts that learn, count, note and fail, for tests of workers, evaluations and checkpoints."""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import yaml

from palaestrai_mosaik.agent import Brain, BrainDumper, Muscle, Objective
from palaestrai_mosaik.agent.dumper import dump_arrays, load_arrays
from palaestrai_mosaik.agent.filter import Filter
from palaestrai_mosaik.environment import Environment, EnvironmentBaseline, EnvironmentState
from palaestrai_mosaik.experiment import RunDocument
from palaestrai_mosaik.simulation.conditions import TerminationCondition
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.types import (
    ActuatorInformation,
    Box,
    Discrete,
    RewardInformation,
    SensorInformation,
    SimulationFlowControl,
)

from .documents import environment, named

ANY = Box(-np.inf, np.inf, shape=())
HERE = "support.learning"


def track(uid: str = "t", name: str = "Track", **params: Any) -> dict[str, Any]:
    """Return the entry of a :class:`Track`."""
    return environment(uid, f"{HERE}:{name}", **params)


def learner(name: str = "a", uid: str = "t", **keys: Any) -> dict[str, Any]:
    """Return the entry of an agent on a track; without keys it is a rule that acts at random."""
    entry = {
        "name": name,
        "muscle": named(f"{HERE}:Gauss"),
        "sensors": [f"{uid}.x", f"{uid}.noise"],
        "actuators": [f"{uid}.u", f"{uid}.halt"],
        **keys,
    }
    return {key: value for key, value in entry.items() if value is not None}


def follower(log: Path | None = None, *, muscle: Any = (), brain: Any = (), **keys: Any) -> dict[str, Any]:
    """Return the entry of an agent of :class:`Follower` and :class:`Teacher`, who note in ``log``."""
    text = None if log is None else str(log)
    return learner(
        muscle=named(f"{HERE}:Follower", log=text, **dict(muscle)),
        brain=named(f"{HERE}:Teacher", log=text, **dict(brain)),
        **keys,
    )


def write(path: Path, document: RunDocument) -> Path:
    """Write a document as a file."""
    path.write_text(yaml.safe_dump(document.canonical), encoding="utf-8")
    return path


def digests(store: Store, run: str = "latest") -> dict[str, str]:
    """Return the digest of every stream that has rows, by its folder."""
    streams = store.streams(run)
    streams = streams[streams["digest"].notna() & (streams["rows"] > 0)]
    found = streams[["folder", "digest"]].to_numpy().tolist()
    return {folder.removeprefix("trajectories/"): digest for folder, digest in found}


def note(log: str | None, *words: Any) -> None:
    """Append a line to the file ``log``, whatever process this is."""
    if log is not None:
        with open(log, "a", encoding="utf-8") as file:
            file.write(" ".join(map(str, words)) + "\n")


def noted(log: Path) -> list[str]:
    """Return the lines of a log."""
    return log.read_text(encoding="utf-8").splitlines() if log.exists() else []


class Track(Environment):
    """Counts its steps to ``steps``; its reward is the set-point ``u`` that it got.

    ``x`` is the count, ``noise`` comes from its generator. It ends early when ``halt`` is 1.
    ``jitter``: a step takes up to so many seconds, never the same; ``seconds``: it takes these;
    ``stuck_at``: the step that never ends.
    """

    def __init__(
        self,
        steps: int = 4,
        jitter: float = 0.0,
        seconds: float = 0.0,
        log: str | None = None,
        stuck_at: int | None = None,
    ):
        self.steps, self.jitter, self.seconds, self.log = steps, jitter, seconds, log
        self.stuck_at = stuck_at
        self.count = 0

    def setup(self) -> EnvironmentBaseline:
        return EnvironmentBaseline(
            [SensorInformation(0.0, ANY, "x"), SensorInformation(0.0, ANY, "noise")],
            [ActuatorInformation(0.0, ANY, "u"), ActuatorInformation(0, Discrete(2), "halt")],
            [RewardInformation(0.0, ANY, "r")],
        )

    def reset(self) -> EnvironmentState:
        note(self.log, self.uid, "reset")
        self.count = 0
        return EnvironmentState(np.array([0.0, self.rng.normal()]), (0.0,))

    def step(self, setpoints: Any) -> EnvironmentState:
        time.sleep(self.seconds + self.jitter * os.urandom(1)[0] / 255)
        self.count += 1
        if self.count == self.stuck_at:
            note(self.log, self.uid, "stuck")
            while True:
                pass
        return EnvironmentState(
            np.array([float(self.count), self.rng.normal()]),
            (float(setpoints[0]),),
            terminated=bool(setpoints[1] == 1),
            truncated=self.count >= self.steps and setpoints[1] != 1,
        )

    def shutdown(self) -> None:
        note(self.log, self.uid, "shutdown")


class NarrowTrack(Track):
    """A track with noise that is often outside of its space."""

    def setup(self) -> EnvironmentBaseline:
        baseline = super().setup()
        noise = SensorInformation(0.0, Box(-1.0, 1.0, shape=()), "noise")
        return replace(baseline, sensors=[baseline.sensors[0], noise])


class Follower(Muscle):
    """Sets ``u`` to the newest update (0 before there is one); notes every call.

    ``short`` gives for a worker's index after how many steps it halts the track.
    """

    def __init__(self, log: str | None = None, short: dict[int, int] | None = None):
        self.log, self.short = log, short or {}
        self.value, self.acted = 0.0, 0

    def setup(self) -> None:
        note(self.log, self.uid, "setup", self.mode.value)

    def prepare_model(self) -> None:
        note(self.log, self.uid, "prepare_model")

    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        note(self.log, self.uid, "propose", self.mode.value, f"{sensors[0].value:g}")
        last = self.short.get(int(self.uid.rpartition(".")[2]))
        halt = last is not None and sensors[0].value >= last - 1
        actuators_available[0].value = self.value
        actuators_available[1].value = int(halt)
        self.acted += 1
        return actuators_available, self.acted - 1

    def update(self, update: Any) -> None:
        note(self.log, self.uid, "update", update)
        self.value = float(update)

    def reset(self) -> None:
        note(self.log, self.uid, "reset")

    def teardown(self) -> None:
        note(self.log, self.uid, "teardown")


class Teacher(Brain):
    """Returns the number of rows that it has thought about; notes every call.

    ``shared`` is :attr:`Brain.shared_updates`; ``pretrained`` is what ``pretrain`` returns;
    after ``until`` rows there are no more updates.
    """

    def __init__(
        self,
        log: str | None = None,
        shared: bool = True,
        pretrained: float | None = None,
        until: int | None = None,
    ):
        self.log, self.shared_updates, self.pretrained = log, shared, pretrained
        self.until = until
        self.thought = 0

    def setup(self) -> None:
        note(self.log, self.name, "setup", self.mode.value)

    def load(self) -> None:
        self.thought = int(BrainDumper.load_brain_dump(self._dumpers).read())
        note(self.log, self.name, "load", self.thought)

    def pretrain(self) -> Any:
        note(self.log, self.name, "pretrain", len(self.memory))
        return self.pretrained

    def thinking(self, muscle_id: str, data_from_muscle: Any) -> Any:
        self.thought += 1
        row = self.memory.tail(1)
        end = "terminated" if row.terminated[-1] else "truncated" if row.truncated[-1] else "goes-on"
        note(self.log, self.name, "thinking", muscle_id, data_from_muscle, f"{row.objective[-1]:g}", end)
        return self.thought if self.until is None or self.thought <= self.until else None

    def evaluated(self, metrics: Any) -> Any:
        note(self.log, self.name, "evaluated", *(f"{k}={metrics[k]:g}" for k in sorted(metrics)))
        return {"thought": float(self.thought)}

    def store(self) -> None:
        note(self.log, self.name, "store", self.thought)
        BrainDumper.store_brain_dump(BytesIO(str(self.thought).encode()), self._dumpers)


class Noting(Objective):
    """The newest reward, or how far it is from ``target`` (times -1); notes every row."""

    def __init__(self, log: str | None = None, target: float | None = None):
        self.log, self.target = log, target

    def setup(self, reward_names: Any) -> None:
        note(self.log, "objective", "setup", *reward_names)

    def internal_reward(self, memory: Any, **kwargs: Any) -> float:
        value = float(memory.tail(1).rewards[-1, 0])
        if self.target is not None:
            value = -abs(value - self.target)
        note(self.log, "objective", "record", f"{value:g}")
        return value


class Noise(Muscle):
    """Sets ``u`` to a sample of its space, never halts, and sends ``what`` to its brain."""

    def __init__(self, what: str = "None"):
        self.what = what
        self.number = 0

    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        actuators_available[0].value = actuators_available[0].space.sample()
        actuators_available[1].value = 0
        self.number += 1
        return actuators_available, data(self.what, self.number)


class Gauss(Muscle):
    """Sets ``u`` to noise of its own generator, and never halts."""

    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        actuators_available.vector = np.array([self.rng.normal(), 0.0])
        return actuators_available, None


def data(what: str, number: int) -> Any:
    """Return the ``number``-th thing of a kind that a muscle might send."""
    return {
        "None": None,
        "array": np.full(2, float(number)),
        "ragged": np.arange(number % 3),
        "dict": {"number": number, "nested": [{"array": np.arange(3)}]},
        "text": f"number {number}",
        "mixed": number if number % 2 else float(number),
        "huge": 2**63 + number if number % 2 else number,
        "masked": np.ma.masked_equal(np.arange(3) + number, number),
        "big-endian": np.array([number], dtype=">i8"),
        "closure": lambda: number,
    }[what]


def told(thing: Any) -> str:
    """Return all that can be seen of ``thing``, in one line."""
    kind = f"{type(thing).__name__} {getattr(thing, 'dtype', '')}"
    return " ".join(f"{kind} {thing!r}".split())


class Hearing(Brain):
    """Notes what data it gets."""

    def __init__(self, log: str):
        self.log = log

    def thinking(self, muscle_id: str, data_from_muscle: Any) -> None:
        note(self.log, muscle_id, told(data_from_muscle))


class Faulty(Noise):
    """Fails in ``where`` of the worker ``worker``, at the ``at``-th call of it; ``how`` says in which way."""

    def __init__(self, where: str, how: str = "raise", worker: int = 1, at: int = 1):
        super().__init__()
        self.where, self.how, self.worker, self.left = where, how, worker, at

    def _maybe(self, where: str) -> None:
        if where != self.where or self.uid != f"a.{self.worker}":
            return
        self.left -= 1
        if self.left == 0:
            fail(self.how, where)

    def setup(self) -> None:
        self._maybe("setup")

    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        self._maybe("propose")
        return super().propose_actions(sensors, actuators_available)

    def reset(self) -> None:
        self._maybe("reset")

    def teardown(self) -> None:
        self._maybe("teardown")


def _is_alike(mine: psutil.Process, other: psutil.Process) -> bool:
    """Whether ``other`` is another worker of the same run, and alive; tests share a browser, which is a child, too."""
    try:
        alive = other != mine and other.status() != psutil.STATUS_ZOMBIE
        return alive and other.cmdline() == mine.cmdline()
    except psutil.Error:
        return False


class Outliving(Faulty):
    """Raises in worker 1; in worker 0, it goes on when the process of worker 1 is gone."""

    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        if self.uid == "a.0":
            mine = psutil.Process()
            while any(_is_alike(mine, other) for other in psutil.Process(mine.ppid()).children()):
                time.sleep(0.05)
        return super().propose_actions(sensors, actuators_available)


class NotPicklableError(RuntimeError):
    """Takes two arguments and keeps one, so that it cannot be made again from a pickle."""

    def __init__(self, one: str, two: str):
        super().__init__(one + two)


class Own(ValueError):
    """An exception of a user's own."""


def fail(how: str, where: str) -> None:
    """Fail: ``raise``, ``unpicklable``, ``exit``, ``kill``, ``print``, ``random``, ``fork``, ``fork kill``."""
    if how.startswith("fork"):
        # holds the streams of the worker, until it is ended by the test
        child = os.fork()
        while child == 0:
            time.sleep(1)
        note(os.environ["TEST_LOG"], child)
        if how == "fork":
            return
        how = "kill"
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "exit":
        sys.exit(0)
    if how == "unpicklable":
        raise NotPicklableError("cannot be pickled in ", where)
    if how == "print":
        print(f"printed in {where}")
        os.write(1, b"written\n")
        return
    if how == "random":
        np.random.random()  # noqa: NPY002 (this is the fault)
        return
    raise Own(f"broken in {where}")


class FaultyObjective(Noting):
    """Raises at the ``at``-th row of a worker."""

    def __init__(self, at: int = 2):
        super().__init__()
        self.left = at

    def internal_reward(self, memory: Any, **kwargs: Any) -> float:
        self.left -= 1
        if self.left == 0:
            raise Own("broken in objective")
        return super().internal_reward(memory)


class FaultyTrack(Track):
    """Raises in ``where``, in worker processes only (``step``: the second one)."""

    def __init__(self, where: str, steps: int = 4):
        super().__init__(steps)
        self.where = where
        self.main = os.environ.get("TEST_MAIN") == str(os.getpid())

    def _maybe(self, where: str) -> None:
        if where == self.where and not self.main:
            raise Own(f"broken in {where}")

    def setup(self) -> EnvironmentBaseline:
        self._maybe("setup")
        return super().setup()

    def reset(self) -> EnvironmentState:
        self._maybe("reset")
        return super().reset()

    def step(self, setpoints: Any) -> EnvironmentState:
        if self.count:
            self._maybe("step")
        return super().step(setpoints)

    def shutdown(self) -> None:
        self._maybe("shutdown")


class FaultyCondition(TerminationCondition):
    """Raises at the third step of an episode."""

    def episode_flow_control(self, view: Any) -> SimulationFlowControl:
        if view.time == 3:
            raise Own("broken in condition")
        return SimulationFlowControl.CONTINUE


class RestartOnce(TerminationCondition):
    """Restarts a worker after its first episode; that it lives on shows in ``asked``."""

    def __init__(self, log: str | None = None):
        self.log = log
        self.asked = 0

    def episode_flow_control(self, view: Any) -> SimulationFlowControl:
        self.asked += 1
        note(self.log, view.worker, view.episode, view.time, self.asked)
        ended = any(any(flags) for flags in view.ended.values())
        if ended and view.episode == 0:
            return SimulationFlowControl.RESTART
        return SimulationFlowControl.RESET if ended else SimulationFlowControl.CONTINUE


class StopsWorker(TerminationCondition):
    """Ends the phase for one worker after its first episode, and episodes with their environment."""

    def __init__(self, worker: int):
        self.worker = worker

    def episode_flow_control(self, view: Any) -> SimulationFlowControl:
        if not any(any(flags) for flags in view.ended.values()):
            return SimulationFlowControl.CONTINUE
        stops = view.worker == self.worker
        return SimulationFlowControl.STOP_SIMULATION if stops else SimulationFlowControl.RESET


class Evaluations(TerminationCondition):
    """Notes what it is told about evaluations; ends the phase at number ``last``."""

    def __init__(self, last: int, log: str | None = None):
        self.last, self.log = last, log

    def evaluation_flow_control(self, view: Any) -> SimulationFlowControl:
        for agent in view.agents:
            metrics = view.metrics[agent]
            told = (f"{k}={metrics[k]:g}" for k in sorted(metrics))
            note(self.log, "condition", view.number, agent, len(view.outcomes), *told)
        return (
            SimulationFlowControl.STOP_PHASE if view.number >= self.last else SimulationFlowControl.CONTINUE
        )


class Watching(Filter):
    """Counts the readings that it has seen in train mode, and notes its mode; changes nothing."""

    def __init__(self, log: str | None = None):
        self.log = log
        self.known = self.seen = 0

    def muscle_pre_process(self, readings: Any) -> Any:
        note(self.log, "filter", self.mode.value, f"{readings[0]:g}", self.known)
        if self.mode.value == "train":
            self.seen += 1
        return readings

    def news(self) -> Any:
        seen, self.seen = self.seen, 0
        return seen or None

    def learn(self, news: Any) -> None:
        self.known += news

    def state(self) -> dict[str, Any]:
        return {"known": self.known}

    def set_state(self, state: Any) -> None:
        self.known = int(state["known"])


class Wanderer(Brain):
    """Learns by its own noise and samples of its memory: all of its state counts for what comes next."""

    def setup(self) -> None:
        self.memory.size_limit = 20
        self.weights = np.zeros(2)
        self.evaluations = 0

    def thinking(self, muscle_id: str, data_from_muscle: Any) -> Any:
        drawn = self.memory.sample(3)
        gain = float(drawn.objective.sum()) + float(drawn.observations.sum()) + data_from_muscle
        self.weights = 0.9 * self.weights + 0.1 * np.tanh(gain) + 0.05 * self.rng.normal(size=2)
        self.add_statistics("weight", float(self.weights[0]))
        return self.weights.copy()

    def evaluated(self, metrics: Any) -> Any:
        self.evaluations += 1
        self.weights = self.weights + 0.01 * metrics["objective"]
        return {"evaluations": float(self.evaluations)}

    def load(self) -> None:
        self.weights = load_arrays(self._dumpers)["weights"]

    def store(self) -> None:
        dump_arrays({"weights": self.weights}, self._dumpers)


class WandererMuscle(Muscle):
    """Acts by weights, its generator, a sample of its memory and a state of its own that lasts.

    A reset leaves a trace.
    """

    def __init__(self) -> None:
        self.weights = np.zeros(2)
        self.mood = 0.0
        self.own = np.random.default_rng(7)

    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        self.mood = 0.5 * self.mood + self.own.normal()
        if len(self.memory):
            self.mood += 0.01 * float(self.memory.sample(2).rewards.sum())
        value = float(self.weights @ sensors.vector[:2]) + self.rng.normal() + self.mood
        actuators_available.vector = np.array([value, 0.0])
        return actuators_available, self.mood

    def update(self, update: Any) -> None:
        self.weights = update

    def reset(self) -> None:
        self.mood += 1.0

    def prepare_model(self) -> None:
        self.weights = load_arrays(self._dumpers)["weights"]


class Drift(Objective):
    """The reward against its running mean over all episodes."""

    def __init__(self) -> None:
        self.mean = 0.0

    def internal_reward(self, memory: Any, **kwargs: Any) -> float:
        reward = float(memory.tail(1).rewards[-1, 0])
        self.mean = 0.95 * self.mean + 0.05 * reward
        return reward - self.mean


class Tiring(TerminationCondition):
    """Ends every fourth episode of a worker two steps early, and episodes with their environment."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.episodes = 0

    def episode_flow_control(self, view: Any) -> SimulationFlowControl:
        if view.time == 0:
            self.episodes += 1
        ended = any(any(flags) for flags in view.ended.values())
        tired = self.episodes % 4 == 0 and view.time >= self.steps - 2
        return SimulationFlowControl.RESET if ended or tired else SimulationFlowControl.CONTINUE


class NotPicklableMuscle(Gauss):
    """Holds what no pickle can hold."""

    def setup(self) -> None:
        self.held = lambda: None


class FailsWhile(TerminationCondition):
    """Raises in an episode, at a time, while there is a file ``path``: a fault that can be mended."""

    def __init__(self, path: str, episode: int, time: int):
        self.path, self.episode, self.time = path, episode, time

    def episode_flow_control(self, view: Any) -> SimulationFlowControl:
        if (view.episode, view.time) == (self.episode, self.time) and Path(self.path).exists():
            raise Own("not mended yet")
        return SimulationFlowControl.CONTINUE


class Halving(Filter):
    """Doubles set-points, and lets the brain learn from half the objective."""

    def muscle_post_process(self, setpoints: Any) -> Any:
        return setpoints * np.array([2.0, 1.0])

    def brain_pre_process(self, experience: Any) -> Any:
        return replace(experience, objective=0.5 * experience.objective)


class Keeping(Brain):
    """Notes the newest row of its memory, both sides of the filters."""

    def __init__(self, log: str):
        self.log = log
        self.rows: dict[str, tuple[int, int]] = {}

    def thinking(self, muscle_id: str, data_from_muscle: Any) -> None:
        row = self.memory.tail(1)
        episode, number = self.rows.get(muscle_id, (0, 0))
        seen, done = row.observations[-1], row.actions[-1]
        note(
            self.log,
            *(muscle_id.rpartition(".")[2], episode, number),
            *map(float, (row.sensor_readings[-1, 0], seen[0], seen[2], row.actuator_setpoints[-1, 0])),
            *map(float, (done[0], row.objective[-1])),
        )
        self.rows[muscle_id] = (episode + 1, 0) if row.dones[-1] else (episode, number + 1)


class Leaving(Track):
    """Notes ``shutdown`` with the process that it happens in."""

    def shutdown(self) -> None:
        super().shutdown()
        note(os.environ["TEST_LOG"], "shutdown", os.getpid())


class Zeroing(Brain):
    """Hands out arrays of one number: 2, 1, 0, -1, ...; tells the statistic ``same``, if it shall."""

    def __init__(self, same: bool = False, evaluated: Any = None, pickles: bool = True):
        self.next, self.same, self.answer, self.pickles = 2.0, same, evaluated, pickles

    def thinking(self, muscle_id: str, data_from_muscle: Any) -> Any:
        if self.same:
            self.add_statistics("same", 1.0)
        update = np.array([self.next]) if self.pickles else (lambda: None)
        self.next -= 1.0
        return update

    def evaluated(self, metrics: Any) -> Any:
        return self.answer


class Zeroed(Gauss):
    """Notes its updates; tells the statistic ``same``, if it shall."""

    def __init__(self, same: bool = False):
        super().__init__()
        self.same = same

    def update(self, update: Any) -> None:
        note(os.environ["TEST_LOG"], float(update[0]))

    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        if self.same:
            self.add_statistics("same", 2.0)
        return super().propose_actions(sensors, actuators_available)
