"""``check`` names methods that nothing calls, and conditions that never act."""

from __future__ import annotations

import importlib
import pkgutil
import sys

import pytest

import palaestrai_mosaik
from palaestrai_mosaik.cli.main import main
from palaestrai_mosaik.experiment.classes import misspelt_hooks
from palaestrai_mosaik.runner.factory import BASES

PARTS = """
import mosaik_api_v3
import numpy as np

from palaestrai_mosaik.agent import Brain, Filter, Muscle, Objective
from palaestrai_mosaik.environment import Environment, EnvironmentBaseline, EnvironmentState, Reward
from palaestrai_mosaik.environment import EnvironmentStateTransformer
from palaestrai_mosaik.simulation.conditions import EnvironmentTerminationCondition, TerminationCondition
from palaestrai_mosaik.types import ActuatorInformation, Box, SensorInformation, SimulationFlowControl

SPACE = Box(0, 1, shape=())
GO = SimulationFlowControl.CONTINUE


class World(Environment):
    def setup(self):
        return EnvironmentBaseline([SensorInformation(0.0, SPACE, "x")], [ActuatorInformation(0.0, SPACE, "y")])

    def {reset}(self):
        return EnvironmentState(np.zeros(1))

    def step(self, setpoints):
        return EnvironmentState(np.zeros(1), terminated=True)


class Halves(Reward):
    def {reward_setup}(self, baseline):
        return super().setup(baseline)

    def __call__(self, state):
        return 0.5


class Shown(EnvironmentStateTransformer):
    def {transformer_setup}(self, baseline):
        self.baseline = baseline

    def __call__(self, environment_state):
        return environment_state


class Acts(Muscle):
    def propose_actions(self, sensors, actuators_available):
        for actuator in actuators_available:
            actuator.value = 0.0
        return actuators_available, None

    def {muscle_reset}(self):
        self.helped()

    def helped(self):
        pass


class Learns(Brain):
    def thinking(self, muscle_id, data_from_muscle):
        return None

    def {store}(self):
        pass


class Aims(Objective):
    def internal_reward(self, memory, **kwargs):
        return 0.0

    def {objective_setup}(self, rewards):
        pass


class Looks(Filter):
    def {learn}(self, *args):
        pass


class Ends(TerminationCondition):
    def phase_flow_control(self, view):
        return GO

    def {episode}(self, view):
        return GO
"""
#: for each place, how the method is called, and how it should be
NAMES = {
    "reset": ("resett", "reset", "world_parts:World"),
    "reward_setup": ("setUp", "setup", "world_parts:Halves"),
    "transformer_setup": ("set_up", "setup", "world_parts:Shown"),
    "muscle_reset": ("rest", "reset", "world_parts:Acts"),
    "store": ("stor", "store", "world_parts:Learns"),
    "objective_setup": ("setups", "setup", "world_parts:Aims"),
    "learn": ("lern", "learn", "world_parts:Looks"),
    "episode": ("step_flow_control", "episode_flow_control", "world_parts:Ends"),
}
DOCUMENT = """
uid: parts
seed: 1
schedule:
  only:
    environments:
      - environment: {uid: w, name: "world_parts:World"}
        reward: "world_parts:Halves"
        state_transformer: "world_parts:Shown"
    agents:
      - {name: a, muscle: "world_parts:Acts", brain: "world_parts:Learns", objective: "world_parts:Aims",
         filters: ["world_parts:Looks"]}
    phase_config: {episodes: 1}
run_config: {conditions: [vanilla_run_governor, "world_parts:Ends"]}
"""


@pytest.fixture
def checked(tmp_path, monkeypatch, capsys):
    """Return a function that writes modules, checks a document, and returns exit code and lines of errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    # a module that is written again within a second, in the same length, would be read from its bytecode
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def check(document, *options, **modules):
        for name, text in modules.items():
            (tmp_path / f"{name}.py").write_text(text)
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        (tmp_path / "run.yml").write_text(document)
        code = main(["check", "run.yml", *options])
        return code, capsys.readouterr().err.splitlines()

    yield check
    for name in ("world_parts", "limits", "sims"):
        sys.modules.pop(name, None)


def parts(**changes):
    return PARTS.format(**{key: right for key, (_, right, _) in NAMES.items()} | changes)


@pytest.mark.parametrize("options", [(), ("--no-environments",)])
@pytest.mark.parametrize("place", list(NAMES))
def test_a_misspelt_method_is_warned_of(checked, place, options):
    wrong, right, name = NAMES[place]
    code, lines = checked(DOCUMENT, *options, world_parts=parts(**{place: wrong}))
    (line,) = lines
    assert code == 0
    assert line.endswith(f"{name!r} has a method {wrong!r} that nothing calls (did you mean {right!r}?)")
    assert "run.yml:" in line


def test_right_names_and_helpers_are_not_warned_of(checked):
    assert checked(DOCUMENT, world_parts=parts()) == (0, [])
    # a helper that the class itself calls
    text = parts().replace("def helped", "def resets").replace("self.helped", "self.resets")
    text = text.replace("def reset(self):\n        self.resets", "def _begin(self):\n        self.resets")
    assert checked(DOCUMENT, world_parts=text) == (0, [])


def test_a_misspelt_mandatory_method_is_named_in_the_error(checked):
    text = parts().replace("def thinking", "def thinkng")
    code, lines = checked(DOCUMENT, world_parts=text)
    assert code == 2
    assert "'world_parts:Learns' is abstract: it does not implement thinking, but has 'thinkng'" in lines[0]
    assert not any("nothing calls" in line for line in lines)


LIMITS = """
from palaestrai_mosaik.simulation.conditions import EnvironmentTerminationCondition, TerminationCondition
from palaestrai_mosaik.types import SimulationFlowControl


class Deadline(TerminationCondition):
    def __init__(self, ticks=3):
        self.ticks = ticks

    def {name}(self, view):
        return SimulationFlowControl.RESET


class Plain(TerminationCondition):
    pass


class Separate(TerminationCondition):
    environments_reset = True


class Own(EnvironmentTerminationCondition):
    pass
"""
LIMITED = """
uid: limited
seed: 1
schedule:
  only:
    environments: [{{environment: {{uid: w, name: dummy, params: {{max_iter: 5}}}}}}]
    agents: [{{name: a, muscle: random}}]
    simulation: {{name: vanilla, conditions: [environment, {phase}]}}
    phase_config: {{episodes: 1}}
run_config: {{conditions: [vanilla_run_governor, {run}]}}
"""
HOOKS = "episode_flow_control, phase_flow_control, evaluation_flow_control"


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("step_flow_control", ", but has 'step_flow_control' (did you mean 'episode_flow_control'?)"),
        ("episode_flowcontrol", ", but has 'episode_flowcontrol' (did you mean 'episode_flow_control'?)"),
        ("check_termination", ""),
    ],
)
@pytest.mark.parametrize("where", ["phase", "run"])
def test_a_condition_that_answers_no_question_is_an_error(checked, name, near, where):
    places = {"phase": "environment", "run": "vanilla_run_governor"} | {where: '"limits:Deadline"'}
    code, lines = checked(LIMITED.format(**places), limits=LIMITS.format(name=name))
    assert code == 2
    message = f"'limits:Deadline' never ends anything: it overrides none of {HOOKS}{near}"
    assert sum(line.endswith(message) for line in lines) == 1
    assert main(["start", "run.yml"]) == 2


def test_a_condition_that_overrides_nothing_is_an_error(checked):
    document = LIMITED.format(phase='"limits:Plain"', run="vanilla_run_governor")
    code, lines = checked(document, limits=LIMITS.format(name="episode_flow_control"))
    assert code == 2
    assert "'limits:Plain' never ends anything: it overrides none of" in lines[0]


@pytest.mark.parametrize("name", ["Separate", "Own", "Deadline"])
def test_a_condition_that_acts_is_sound(checked, name):
    document = LIMITED.format(phase=f'"limits:{name}"', run=f'"limits:{name}"')
    assert checked(document, limits=LIMITS.format(name="episode_flow_control")) == (0, [])


def test_a_condition_of_phases_below_simulation_is_warned_of(checked):
    document = LIMITED.format(phase='"limits:Deadline"', run='"limits:Deadline"')
    code, lines = checked(document, limits=LIMITS.format(name="phase_flow_control"))
    assert code == 0
    (line,) = lines
    assert line.endswith(
        "'limits:Deadline' never ends anything here: below 'simulation', phase_flow_control of a condition is not "
        "called; move it to run_config"
    )
    assert "simulation.conditions.1" in line


SIMULATOR = """
import mosaik_api_v3


class Sim(mosaik_api_v3.Simulator):
    def __init__(self):
        super().__init__({{"api_version": "3.0", "type": "time-based",
                          "models": {{"M": {{"public": True, "params": [], "attrs": ["x"]}}}}}})

    def create(self, num, model):
        return [{{"eid": "m", "type": model}}]

    def step(self, time, inputs, max_advance):
        return time + 1

    def get_data(self, outputs):
        return {{"m": {{"x": 0.0}}}}

    def {name}(self):
        pass
"""
COSIMULATION = """
uid: co
seed: 1
schedule:
  only:
    environments:
      - environment:
          uid: co
          name: cosimulation
          params:
            end: 2
            simulators: {s: {python: "sims:Sim"}}
            entities: [{uid: m, simulator: s, model: M}]
            sensors: [{entity: m, attribute: x, space: "Box(0, 1, ())"}]
      - environment: {uid: w, name: dummy}
    agents: [{name: a, muscle: random, sensors: [co.m.x], actuators: [w.0]}]
    phase_config: {episodes: 1}
"""


def test_a_misspelt_method_of_a_simulator_is_warned_of(checked):
    code, (line,) = checked(COSIMULATION, sims=SIMULATOR.format(name="finalise"))
    assert code == 0
    assert line.endswith("'sims:Sim' has a method 'finalise' that nothing calls (did you mean 'finalize'?)")
    assert "environment.params.simulators.s.python" in line
    assert checked(COSIMULATION, sims=SIMULATOR.format(name="finalize")) == (0, [])


def test_no_class_of_this_package_and_of_its_tests_is_suspected():
    for module in ("pandapower", "stable_baselines3", "pettingzoo", "parsl"):
        pytest.importorskip(module, reason="the extras 'grid', 'rl' and 'parsl' are not installed")
    for module in pkgutil.walk_packages(palaestrai_mosaik.__path__, "palaestrai_mosaik."):
        if ".palaestrai" not in module.name and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in ("parts", "learning", "bodies", "batches", "remote_parts"):
        importlib.import_module(f"support.{name}")
    classes: set[type] = set()
    waiting = list(BASES.values())
    while waiting:
        new = [cls for cls in waiting.pop().__subclasses__() if cls not in classes]
        classes.update(new)
        waiting += new
    classes = {cls for cls in classes if cls.__module__.partition(".")[0] in ("palaestrai_mosaik", "support")}
    assert len(classes) > 100
    assert {cls.__name__: found for cls in classes if (found := misspelt_hooks(cls))} == {}
