"""Agents as users of palaestrAI write them, and a world of ours for them."""

# ruff: noqa: NPY002 (such agents draw from global generators)

from __future__ import annotations

import json
import random
from io import BytesIO
from pathlib import Path

import numpy as np
import palaestrai.agent as their
from palaestrai.types import Box as TheirBox
from palaestrai.types import Mode

from palaestrai_mosaik.agent import Brain
from palaestrai_mosaik.environment import Environment, EnvironmentBaseline, EnvironmentState
from palaestrai_mosaik.types import ActuatorInformation, Box, RewardInformation, SensorInformation

#: what the parts below note
LOG: list[str] = []


class Ladder(Environment):
    """Shows its step number n and rewards 10 n; ends at ``steps``. Ours, not palaestrAI's."""

    def __init__(self, steps: int = 2, terminates: bool = True):
        self.steps = steps
        self.terminates = terminates

    def setup(self) -> EnvironmentBaseline:
        return EnvironmentBaseline(
            [SensorInformation(0.0, Box(0, 1000, shape=()), "n")],
            [ActuatorInformation(None, Box(0, 1000, (1,), np.float32), "u")],
            [RewardInformation(0.0, Box(0, np.inf, shape=()), "ten")],
        )

    def reset(self) -> EnvironmentState:
        self.n = 0
        return EnvironmentState(np.zeros(1), [0.0])

    def step(self, setpoints) -> EnvironmentState:
        self.n += 1
        over = self.n >= self.steps
        end = {"terminated" if self.terminates else "truncated": over}
        return EnvironmentState(np.array([float(self.n)]), [10.0 * self.n], **end)


def _told(info) -> str:
    value = info.value
    return f"{info.uid}={value if value is None else f'{float(np.ravel(value)[0]):g}'}"


class Reader(Brain):
    """Ours: notes what it is told."""

    def thinking(self, muscle_id, data_from_muscle):
        LOG.append(f"our brain reads {data_from_muscle} {self.memory.tail(1).objective[-1]:g}")


class Teller(their.Muscle):
    """Sets 100 plus what it reads, and notes all that happens to it."""

    def setup(self):
        LOG.append(f"muscle {self.uid} {self.name} setup in {self.mode.value}")

    def prepare_model(self):
        LOG.append(f"muscle prepares with {self.load('model').read().decode()}")

    def propose_actions(self, sensors, actuators_available):
        assert [type(s) for s in sensors] == [their.SensorInformation]
        assert isinstance(actuators_available[0].space, TheirBox)
        LOG.append(f"muscle sees {_told(sensors[0])} {_told(actuators_available[0])}")
        actuators_available[0](np.array([100.0 + sensors[0].value], dtype=np.float32))
        self.add_statistics("seen", sensors[0].value)
        return actuators_available, {"n": float(sensors[0].value)}

    def update(self, update):
        LOG.append(f"muscle hears {update}")

    def reset(self):
        LOG.append("muscle reset")

    def teardown(self):
        LOG.append("muscle teardown")


class Listener(their.Brain):
    """Notes all that happens to it, and what its memory has."""

    def setup(self):
        spaces = [self.sensors[0].space.to_string(), self.actuators[0].space.to_string()]
        LOG.append(f"brain {self.name} setup in {self.mode.value}, {len(self.sensors)} {len(self.actuators)}")
        assert spaces == [
            "Box(low=0.0, high=1000.0, shape=(), dtype=np.float64)",
            "Box(low=[0.0], high=[1000.0], shape=(1,), dtype=np.float32)",
        ]
        assert 0 <= self.seed < 2**31

    def thinking(self, muscle_id, data_from_muscle):
        if data_from_muscle is None:
            LOG.append(f"brain is asked for {muscle_id}, knows {len(self.memory)} rows")
            return "first"
        shard = self.memory.tail(1)
        row = [
            *(shard.sensor_readings["l.n"].iloc[0], shard.actuator_setpoints["l.u"].iloc[0]),
            *(shard.rewards["ten"].iloc[0], shard.objective.item()),
        ]
        flags = [shard.dones.item(), shard.terminated.item(), shard.truncated.item()]
        marks = "".join("-T"[flag] for flag in flags)
        place = f"{shard.decision_indices.item()} of {len(self.memory)}"
        LOG.append(
            f"brain thinks of {muscle_id} {data_from_muscle} {[float(x) for x in row]} {marks} {place}"
        )
        self.add_statistics("losses", {1: 1.0, 2: 2.0})
        self.add_statistics("weights", [[0.0], [1.0]])
        return None if data_from_muscle["n"] else f"update {len(self.memory)}"

    def evaluate_rollouts(self, *args, **kwargs):
        return their.EvaluationResult({"rows": float(len(self.memory))})

    def store(self):
        their.BrainDumper.store_brain_dump(BytesIO(b"what was learned"), self._dumpers, "model")

    def load(self):
        LOG.append(f"brain loads {their.BrainDumper.load_brain_dump(self._dumpers, 'model').read().decode()}")


class Negative(their.Objective):
    """Minus the reward; in what form, ``form`` says."""

    def __init__(self, form: str = "float"):
        super().__init__({})
        self.form = form

    def internal_reward(self, memory, **kwargs):
        shard = memory.tail(1)
        value = -float(shard.rewards["ten"].iloc[0])
        LOG.append(f"objective sees {value:g}, ends {shard.dones.item()}")
        forms = {"float": value, "array": np.array([value]), "none": None, "empty": np.array([])}
        return forms[self.form]


class Gambler(their.Muscle):
    """Draws from every generator that there is: all global ones, and those of its actuators."""

    def __init__(self):
        super().__init__()
        self.bias = 0.0

    def propose_actions(self, sensors, actuators_available):
        drawn = [
            random.random(),
            np.random.rand(),
            np.random.normal(),
            float(np.sum(actuators_available[0].space.sample())),
        ]
        value = np.clip(abs(sum(drawn)) + self.bias, 0, 1000)
        actuators_available[0](np.array([value], dtype=np.float32))
        return actuators_available, drawn

    def update(self, update):
        self.bias = update["bias"]

    def prepare_model(self):
        self.bias = json.load(their.BrainDumper.load_brain_dump(self._model_loaders))["bias"]


class Waiting(Gambler):
    """Gets its model from its brain alone."""

    prepare_model = their.Muscle.prepare_model

    def update(self, update):
        super().update(update)
        LOG.append(f"{self.mode.value} {update['bias']!r}")


class House(their.Brain):
    """A sum that depends on all that it ever saw and drew."""

    def __init__(self):
        super().__init__()
        self.bias = np.random.rand()

    def thinking(self, muscle_id, data_from_muscle):
        if data_from_muscle is not None and self.mode == Mode.TRAIN:
            known = self.memory.tail(3)
            drawn = random.random() + np.random.normal() + float(known.objective.sum()) / 100
            self.bias = (self.bias + abs(drawn) + sum(data_from_muscle)) % 1
            self.add_statistics("bias", self.bias)
        return {"bias": self.bias}

    def store(self):
        dump = BytesIO(json.dumps({"bias": self.bias}).encode())
        their.BrainDumper.store_brain_dump(dump, self._dumpers)

    def load(self):
        self.bias = json.load(their.BrainDumper.load_brain_dump(self._dumpers))["bias"]


class Forgetful(House):
    """Looks for a dump that is not there, and never notices."""

    def load(self):
        assert their.BrainDumper.load_brain_dump(self._dumpers, "elsewhere") is None


class OldFashioned(House):
    """Keeps its model in files of its own."""

    store, load = their.Brain.store, their.Brain.load

    def store_model(self, path):
        (Path(path) / "deep").mkdir()
        (Path(path) / "deep" / "bias.txt").write_text(repr(self.bias))

    def load_model(self, path):
        self.bias = float((Path(path) / "deep" / "bias.txt").read_text())


class Doubling(their.Filter):
    """Shows twice the reading, takes ten times the set-point, and marks what passes."""

    def setup_muscle(self):
        LOG.append("filter has a muscle")

    def setup_brain(self):
        LOG.append("filter has a brain")

    def muscle_pre_process(self, sensors, actuators_available):
        shown = [
            their.SensorInformation(np.array(2 * s.value), TheirBox(0, 2000, shape=()), f"twice.{s.uid}")
            for s in sensors
        ]
        taken = [
            their.ActuatorInformation(None, TheirBox(0, 1e4, shape=()), a.uid) for a in actuators_available
        ]
        return shown, taken

    def muscle_post_process(self, setpoints, data_for_brain):
        space = TheirBox(0, 1000, (1,), np.float32)
        given = [
            their.ActuatorInformation(np.array([a.value / 10], np.float32), space, a.uid) for a in setpoints
        ]
        return given, ("marked", data_for_brain)

    def brain_pre_process(self, muscle_id, data_from_muscle):
        mark, data = data_from_muscle
        shard = self.brain.memory.tail(1)
        LOG.append(f"filter passes {mark} {data} {shard.sensor_readings['twice.l.n'].iloc[0]:g}")
        return muscle_id, data

    def brain_post_process(self, potential_update):
        return f"filtered {potential_update}"


class Tenfold(their.Muscle):
    """Sets a thousand plus ten times half of what it reads."""

    def propose_actions(self, sensors, actuators_available):
        actuators_available[0](np.array(1000 + 5 * sensors[0].value))
        LOG.append(f"muscle sees {_told(sensors[0])}")
        return actuators_available, "data"

    def update(self, update):
        LOG.append(f"muscle hears {update}")


class Talker(their.Brain):
    def thinking(self, muscle_id, data_from_muscle):
        if data_from_muscle is None:
            return "model"
        row = self.memory.tail(1).actuator_setpoints["l.u"].iloc[0]
        return f"{data_from_muscle} {float(np.ravel(row)[0]):g}"


class Student(their.Brain):
    """Learns from what is replayed."""

    def pretrain(self):
        for tag, rows in self.memory._data.items():
            values = [float(infos[0].value) for infos in rows.sensor_readings]
            LOG.append(
                f"{tag.partition(':')[0]} {values} {list(rows.dones)} {[o.item() for o in rows.objective]}"
            )
        return 7

    def thinking(self, muscle_id, data_from_muscle):
        LOG.append(f"thinks, {len(self.memory)} rows")


class Half(Environment):
    """Shows a number at random, and rewards an answer that is half of it. Ours, not palaestrAI's."""

    def setup(self) -> EnvironmentBaseline:
        space = Box(-1, 1, (1,), np.float32)
        return EnvironmentBaseline(
            [SensorInformation(np.zeros(1), space, "shown")],
            [ActuatorInformation(None, space, "answer")],
            [RewardInformation(0.0, Box(-4, 0, shape=()), "match")],
        )

    def reset(self) -> EnvironmentState:
        self.n = 0
        return EnvironmentState(self._next(), [0.0])

    def step(self, setpoints) -> EnvironmentState:
        self.n += 1
        reward = -((setpoints[0] - self.shown[0] / 2) ** 2)
        return EnvironmentState(self._next(), [reward], truncated=self.n >= 20)

    def _next(self):
        self.shown = self.rng.uniform(-1, 1, 1)
        return self.shown
