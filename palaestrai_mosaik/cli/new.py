"""``palaestrai-mosaik new``: creates small working examples."""

from __future__ import annotations

import json
import keyword
import re
from pathlib import Path

from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import FINISHED, PalaestraiMosaikError

from .output import say_unless_quiet

#: placeholders: NAME for the document and the module, CLASS for the class
_HEAD = """\
# yaml-language-server: $schema={schema}
# The line above lets editors complete keys and names (docs/editors.md).
"""
_RUN = (
    _HEAD
    + """\
uid: NAME
seed: 1                  # the root of all randomness: same document, same seed, same results

schedule:
  train:                 # the name of a phase; each phase inherits what it does not say
    environments:
      - environment: {name: dummy, params: {discrete: true, max_iter: 10}}
    agents:
      - name: agent      # add a brain, and it learns; a muscle alone follows a rule
        muscle: random
        sensors: ["dummy.[0-4]"]      # leave both out for all
        actuators: ["dummy.[0-4]"]
    phase_config: {episodes: 3}
  test:
    phase_config: {mode: test, episodes: 1}
"""
)
_AGENT = '''\
"""An agent that learns one number: where the reward is highest."""

from typing import Any

import numpy as np

from palaestrai_mosaik.agent import Brain, Muscle, dump_arrays, load_arrays
from palaestrai_mosaik.types import ActuatorSetpoints, Box, Mode, SensorReadings


class CLASSMuscle(Muscle):
    """Acts: near the best guess while it trains, and at the best guess in tests."""

    def __init__(self, spread: float = 0.1):  # params of the document
        self.spread = spread
        self.guess = 0.5

    def propose_actions(
        self, sensors: SensorReadings, actuators_available: ActuatorSetpoints
    ) -> tuple[ActuatorSetpoints, float]:
        action = self.guess
        if self.mode is Mode.TRAIN:
            action = float(np.clip(action + self.rng.normal(0.0, self.spread), 0.0, 1.0))
        for actuator in actuators_available:
            assert isinstance(actuator.space, Box)
            low, high = actuator.space.low, actuator.space.high
            actuator.value = low + action * (high - low)
        return actuators_available, action  # the second value goes to the brain

    def update(self, update: Any) -> None:  # what the brain returned
        self.guess = update["best"]

    def prepare_model(self) -> None:  # a later phase says load: {}
        self.guess = float(load_arrays(self._dumpers)["best"])


class CLASSBrain(Brain):
    """Learns: keeps the action with the highest objective so far."""

    def __init__(self) -> None:
        self.best, self.value = 0.5, -np.inf

    def thinking(self, muscle_id: str, data_from_muscle: Any) -> Any:
        value = self.memory.tail(1).objective[-1]
        if value > self.value:
            self.best, self.value = data_from_muscle, value
        return {"best": self.best}  # a number alone would be no update where it is 0

    def store(self) -> None:
        dump_arrays({"best": self.best}, self._dumpers)

    def load(self) -> None:
        self.best = float(load_arrays(self._dumpers)["best"])
'''
_AGENT_RUN = (
    _HEAD
    + """\
uid: NAME
seed: 1

schedule:
  train:
    environments: [pendulum]
    agents:
      - name: NAME
        brain: "NAME:CLASSBrain"
        muscle: {name: "NAME:CLASSMuscle", params: {spread: 0.2}}
    phase_config: {episodes: 3}
  test:
    agents: [{name: NAME, load: {}}]
    phase_config: {mode: test, episodes: 1}
"""
)
_ENVIRONMENT = '''\
"""A room that an agent heats."""

import numpy as np

from palaestrai_mosaik.environment import Environment, EnvironmentBaseline, EnvironmentState
from palaestrai_mosaik.types import ActuatorInformation, Box, RewardInformation, SensorInformation


class CLASS(Environment):
    """One tick is a minute; the episode ends after ``minutes``."""

    def __init__(self, minutes: int = 60):  # params of the document
        self.minutes = minutes

    def setup(self):
        return EnvironmentBaseline(
            sensors=[SensorInformation(15.0, Box(-50.0, 50.0, shape=()), "temperature")],
            actuators=[ActuatorInformation(0.0, Box(0.0, 1.0, shape=()), "heating")],
            rewards=[RewardInformation(0.0, Box(-100.0, 0.0, shape=()), "comfort")],
        )

    def reset(self):
        self.temperature, self.now = 15.0, 0
        return self._state()

    def step(self, setpoints):
        self.now += self.step_size
        draught = 0.1 * self.rng.standard_normal()  # the only source of randomness
        self.temperature += 0.5 * setpoints[0] - 0.02 * (self.temperature - 10.0) + draught
        return self._state()

    def _state(self):
        return EnvironmentState(
            readings=np.array([self.temperature]),
            rewards=[-abs(self.temperature - 20.0)],
            truncated=self.now >= self.minutes,
        )
'''
_ENVIRONMENT_RUN = (
    _HEAD
    + """\
uid: NAME
seed: 1

schedule:
  first:
    environments:
      - environment: {uid: NAME, name: "NAME:CLASS", params: {minutes: 60}}
    agents:
      - {name: agent, muscle: random}
    phase_config: {mode: test, episodes: 2}
"""
)
_DESIGN = (
    _HEAD
    + """\
# arsenai plan NAME.yml && arsenai generate NAME.yml && arsenai run && arsenai analyse
uid: NAME
seed: 1
repetitions: 2           # runs of each row, with other seeds

base:                    # the run document that is varied; or the path of one
  schedule:
    only:
      environments:
        - environment: {name: slippery_grid, params: {slip: 0.1}}
      agents:
        - {name: walker, muscle: random}
      phase_config: {mode: test, episodes: 5}

factors:
  slip: {path: schedule.only.environments.slippery_grid.environment.params.slip, low: 0.0, high: 0.5}
  muscle: {path: schedule.only.agents.walker.muscle.name, levels: [random, idle]}

sampler: {name: lhs, n: 4}

outcomes:
  steps: {of: steps, episode: mean}
"""
)
#: by kind, the document, the module, and the schema
_KINDS = {
    "run": (_RUN, None, "run"),
    "agent": (_AGENT_RUN, _AGENT, "run"),
    "environment": (_ENVIRONMENT_RUN, _ENVIRONMENT, "run"),
    "design": (_DESIGN, None, "design"),
}


def new(kind: str, name: str) -> int:
    """Write the files of an example to the working directory, without replacing files.

    Raises :class:`PalaestraiMosaikError` if ``name`` is not a valid module name, or a file exists.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise PalaestraiMosaikError(
            f"{name!r} cannot be the name of a module; write it in lower case with underscores, such as my_{kind}"
        )
    document, module, schema = _KINDS[kind]
    texts = {f"{name}.yml": document} | ({} if module is None else {f"{name}.py": module})
    existing = [file for file in texts if Path(file).exists()]
    if existing:
        raise PalaestraiMosaikError(f"{existing[0]} exists; nothing was written")
    schema_file = f"{schema}.schema.json"
    for file, text in texts.items():
        class_name = "".join(part.title() for part in name.split("_"))
        written = text.replace("{schema}", schema_file).replace("NAME", name).replace("CLASS", class_name)
        files.write_text(file, written)
        say_unless_quiet(file)
    if not Path(schema_file).exists():
        files.write_text(schema_file, json.dumps(_schema(schema)))
        say_unless_quiet(schema_file)
    say_unless_quiet(f"next: {'arsenai plan' if kind == 'design' else 'palaestrai-mosaik start'} {name}.yml")
    return FINISHED


def _schema(kind: str) -> object:
    if kind == "design":
        from palaestrai_mosaik.arsenai.design.vocabulary import design_schema

        return design_schema()
    from palaestrai_mosaik.experiment import json_schema

    return json_schema()
