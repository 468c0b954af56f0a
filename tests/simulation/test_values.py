"""Readings and rewards that are not finite, are missing, or lie outside of their spaces."""

from __future__ import annotations

import math
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import spoiled
from support.documents import named

import palaestrai_mosaik as pm
from palaestrai_mosaik.agent import Muscle
from palaestrai_mosaik.cli.main import main
from palaestrai_mosaik.core.errors import ContractError
from palaestrai_mosaik.environment import Environment, EnvironmentBaseline, EnvironmentState
from palaestrai_mosaik.experiment import RunDocument, from_mapping
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.types import ActuatorInformation, Box, RewardInformation, SensorInformation

PARTS = "support.spoiled"
FIXED = "support.spoiled_gymnasium:Fixed"
REMEDY = "if it may be missing, declare its sensor with may_be_missing=True"

needs_gymnasium = pytest.mark.skipif(
    find_spec("gymnasium") is None, reason="the extra 'rl' (gymnasium) is not installed"
)


class Nothing(Muscle):
    """Notes its readings and sets nothing."""

    seen: list[Any]

    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        Nothing.seen.append([one.value for one in sensors])
        return actuators_available, None


@pytest.fixture(autouse=True)
def _fresh(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # there is the default store
    Nothing.seen = []


def run_of(entry: dict[str, Any], uid: str = "w", **keys: Any) -> RunDocument:
    """Return a document in which an agent acts in the environment of ``entry``."""
    beside = {name: keys.pop(name) for name in ("reward",) if name in keys}
    simulation = {name: keys.pop(name) for name in ("values", "conditions") if name in keys}
    of_run = {name: keys.pop(name) for name in ("run_config",) if name in keys}
    first = {
        "environments": [{"environment": {"uid": uid, **entry}, **beside}],
        "agents": [{"name": "a", "muscle": keys.pop("muscle", "random"), **keys.pop("agent", {})}],
        "simulation": simulation,
        "phase_config": {"mode": "test", "episodes": 1, **keys},
    }
    return from_mapping({"uid": "test", "seed": 1, "schedule": [{"p": first}], **of_run})


def warnings_of(document: RunDocument) -> Any:
    """Return the warnings of a run in the default store."""
    with pm.run(document, quiet=True) as result:
        return result.warnings


def here(**params: Any) -> dict[str, Any]:
    return named(f"{PARTS}:Spoiled", **params)


def copies(**params: Any) -> dict[str, Any]:
    return {"name": "copies", "params": {"name": f"{PARTS}:Spoiled", "params": params, "batch": 3}}


def elsewhere(**params: Any) -> dict[str, Any]:
    return here(**params) | {"interpreter": sys.executable}


def batch(**params: Any) -> dict[str, Any]:
    return named(f"{PARTS}:SpoiledBatch", batch=3, max_steps=spoiled.STEPS, **params)


def gym(bad: Any = "nan", what: str = "reading") -> dict[str, Any]:
    given = {"observation" if what == "reading" else "reward": float(bad)}
    return named("gymnasium", id=FIXED, kwargs=given)


def simulators(start: dict[str, Any], bad: Any = "nan", **sensor: Any) -> dict[str, Any]:
    """Return a co-simulation of one simulator."""
    return named(
        "cosimulation",
        end=spoiled.STEPS,
        simulators={"s": start | {"params": {"bad": bad}}},
        entities=[{"uid": "e", "simulator": "s", "model": "M"}],
        sensors=[{"entity": "e", "attribute": "x", "space": "Box(-10, 10, ())", **sensor}],
        actuators=[{"entity": "e", "attribute": "u", "space": "Box(-1, 1, ())", "value": 0.0}],
    )


PYTHON = {"python": f"{PARTS}:SpoiledSimulator"}
COMMAND = {"cmd": f'"{sys.executable}" "{Path(spoiled.__file__)}" %(addr)s'}


@pytest.mark.parametrize(("bad", "said"), [("nan", "NaN"), ("inf", "infinity"), ("-inf", "-infinity")])
@pytest.mark.parametrize("scheduler", ["direct", "mosaik"])
def test_a_reading_that_is_not_finite_is_an_error(bad, said, scheduler):
    document = run_of(here(bad=bad))
    document = from_mapping(document.canonical | {"schedule": _with(document, scheduler)})
    with pytest.raises(ContractError) as error:
        execute(document)
    text = (
        f"environment 'w': {PARTS}:Spoiled gave {said} as the reading of sensor 'w.x' at step 3 (t = 3) of episode 0; "
        "a reading must be a finite number"
    )
    assert str(error.value) == (f"{text}; {REMEDY}" if bad == "nan" else text)


def _with(document: RunDocument, scheduler: str) -> Any:
    schedule = document.canonical["schedule"]
    for item in schedule:
        for given in item.values():
            given["simulation"]["scheduler"] = scheduler
    return schedule


@pytest.mark.parametrize(
    ("entry", "source", "sensor"),
    [
        (copies(), f"{PARTS}:Spoiled", "w.0.x"),
        (batch(), f"{PARTS}:SpoiledBatch", "w.1.x"),
        (elsewhere(), f"{PARTS}:Spoiled in the interpreter {sys.executable}", "w.x"),
        pytest.param(gym(), f"Gymnasium's {FIXED}", "w.observation", marks=needs_gymnasium),
        (simulators(PYTHON), f"entity 'e' of simulator 's' ({PYTHON['python']})", "w.e.x"),
        (simulators(PYTHON, None), f"entity 'e' of simulator 's' ({PYTHON['python']})", "w.e.x"),
        (simulators(COMMAND), f"entity 'e' of simulator 's' ({COMMAND['cmd']})", "w.e.x"),
        (simulators(COMMAND, None), f"entity 'e' of simulator 's' ({COMMAND['cmd']})", "w.e.x"),
    ],
    ids=["copies", "batch", "interpreter", "gymnasium", "python", "python None", "cmd", "cmd None"],
)
def test_every_kind_of_environment_is_named_with_what_gave_the_value(entry, source, sensor):
    with pytest.raises(ContractError) as error:
        execute(run_of(entry))
    assert f"environment 'w': {source} gave NaN as the reading of sensor {sensor!r} at step 3 (t = 3)" in str(
        error.value
    )


@pytest.mark.parametrize("entry", [here, copies, elsewhere, batch, pytest.param(gym, marks=needs_gymnasium)])
def test_a_reward_that_is_not_finite_is_an_error(entry):
    for bad, said in (("nan", "NaN"), ("-inf", "-infinity")):
        with pytest.raises(ContractError, match=rf"gave {said} as the reward 'w\.\S+' at step 3") as error:
            execute(run_of(entry(what="reward", bad=bad)))
        assert str(error.value).endswith("a reward must be a finite number")


def test_the_class_of_a_reward_is_named_instead_of_its_environment():
    reward = named(f"{PARTS}:SpoiledReward")
    with pytest.raises(
        ContractError, match=f"{PARTS}:SpoiledReward gave NaN as the reward 'w.SpoiledReward'"
    ):
        execute(run_of(here(at=99), reward=reward))


def test_the_first_state_of_an_episode_needs_no_reward(tmp_path):
    with Store(tmp_path, create=True) as store:
        execute(run_of(here(what="reward", at=0)), store=store)
        assert np.isnan(store.environment_states("latest")["reward.w.r"][0])
    with pytest.raises(ContractError, match="gave infinity as the reward"):
        execute(run_of(here(what="reward", at=0, bad="inf")))


@pytest.mark.parametrize(
    "entry",
    [
        here(may_be_missing=True),
        elsewhere(may_be_missing=True),
        simulators(PYTHON, None, may_be_missing=True),
        simulators(COMMAND, None, may_be_missing=True),
        simulators(COMMAND, "nan", may_be_missing=True),
    ],
    ids=["here", "interpreter", "python", "cmd", "cmd nan"],
)
def test_a_reading_that_may_be_missing_is_nan(entry):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = warnings_of(run_of(entry, muscle=f"{__name__}:Nothing"))
    assert not [text for text in found if "outside of" in text]
    places = [i for i, seen in enumerate(Nothing.seen) if any(np.isnan(np.hstack(seen)))]
    assert places == [3]


def test_infinity_is_an_error_where_a_reading_may_be_missing():
    with pytest.raises(
        ContractError, match=r"gave infinity as the reading of sensor 'w\.x'.* finite number$"
    ):
        execute(run_of(here(may_be_missing=True, bad="inf")))


def test_a_whole_number_that_is_missing_is_none():
    document = run_of(
        simulators(PYTHON, None, may_be_missing=True, space="Discrete(3)"), muscle=f"{__name__}:Nothing"
    )
    execute(document)
    assert [seen[0] for seen in Nothing.seen] == [1, 1, 1, None, *[1] * 4]


def outside(document: RunDocument, folder: Path) -> list[str]:
    """Execute a document; return its warnings of values, which the store has, too."""
    with Store(folder, create=True) as store:
        result = execute(document, store=store)
        assert store.warnings("latest")["text"].tolist() == result.warnings
    return [text for text in result.warnings if "outside of" in text]


BOX = "Box(low=-10.0, high=10.0, shape=(), dtype=float64)"


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"bad": 1e9}, f"1 of 9 readings of sensor 'w.x' is outside of {BOX}; the worst is 1000000000.0"),
        (
            {"bad": -11, "times": 2},
            f"2 of 9 readings of sensor 'w.x' are outside of {BOX}; the worst is -11.0",
        ),
        (
            {"what": "reward", "bad": 12},
            f"1 of 8 values of reward 'w.r' is outside of {BOX}; the worst is 12.0",
        ),
        (
            {"what": "pair", "bad": 2},
            "1 of 9 readings of sensor 'w.pair' is outside of Box(low=-1.0, high=1.0, shape=(2,), dtype=float64); "
            "the worst is 2.0 in w.pair[1]",
        ),
        ({"what": "level", "bad": 3}, "1 of 9 readings of sensor 'w.level' is outside of Discrete(3)"),
        ({"what": "level", "bad": 0.5}, "the worst is 0.5"),
    ],
)
def test_values_outside_of_their_space_are_counted(tmp_path, params, said):
    (warning,) = outside(run_of(here(**params)), tmp_path)
    assert said in warning
    assert warning.startswith("phase 'p': ") and warning.endswith("(episode 0, t = 3)")


def test_counts_are_those_of_all_episodes_and_workers(tmp_path):
    for workers in (1, 2):
        (warning,) = outside(
            run_of(here(bad=11, times=4), episodes=3, workers=workers), tmp_path / str(workers)
        )
        assert f"{12 * workers} of {27 * workers} readings of sensor 'w.x' are outside" in warning
        assert warning.endswith("(episode 0, t = 3)")


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        # incarnation 1 ends at t = 3: with the episode, to begin again, or to stay in its last state
        ([named("environment", when="any")], "1 of 12 readings"),
        ([named("environment", when="all")], "2 of 24 readings"),
        ([], "1 of 20 readings"),
    ],
    ids=["ends", "begins again", "stays"],
)
def test_the_state_in_which_an_incarnation_stays_is_counted_once(tmp_path, conditions, expected):
    entry = named(f"{PARTS}:SpoiledBatch", batch=3, bad=11, at=3, ends_at=3, max_steps=7)
    document = run_of(entry, conditions=conditions, run_config={"condition": "max_episodes"})
    (found,) = outside(document, tmp_path)
    assert found.startswith(f"phase 'p': {expected} of sensor 'w.*.x'")


@pytest.mark.parametrize("entry", [here, copies])
def test_the_first_state_of_an_episode_has_no_reward(tmp_path, entry):
    # two episodes of the environment in one of the phase
    again = named("environment", when="all", episodes=2)
    document = run_of(entry(what="reward", bad=11, at=0, times=2), conditions=[again])
    (warning,) = outside(document, tmp_path)
    number = 1 if entry is here else 3
    assert f"{2 * number} of {16 * number} values of reward" in warning


def test_a_batch_counts_a_sensor_of_all_its_incarnations(tmp_path):
    (warning,) = outside(run_of(batch(bad=11)), tmp_path)
    assert "1 of 27 readings of sensor 'w.*.x' is outside" in warning
    assert warning.endswith("(episode 0, t = 3, incarnation 1)")


@needs_gymnasium
@pytest.mark.parametrize("entry", [gym(0.1), gym(np.float32(0.1)), gym(-0.1)])
def test_what_float32_rounds_is_inside(entry):
    assert warnings_of(run_of(entry)) == []


def test_simulators_in_other_processes_are_counted_too(tmp_path):
    (warning,) = outside(run_of(simulators(COMMAND, 1e12)), tmp_path)
    assert f"1 of 9 readings of sensor 'w.e.x' is outside of {BOX}; the worst is 1000000000000.0" in warning


def test_values_strict_makes_it_an_error():
    assert warnings_of(run_of(here(at=99), values="strict")) == []
    for entry, what in ((here, "w.x"), (batch, "w.1.x")):
        with pytest.raises(ContractError) as error:
            execute(run_of(entry(bad=11), values="strict"))
        assert f"gave 11.0 as the reading of sensor {what!r} at step 3 (t = 3) of episode 0; " in str(
            error.value
        )
        assert "it is outside of Box(low=-10.0" in str(error.value)
        assert "'values: strict'" in str(error.value)


def test_a_run_that_fails_has_the_counts_so_far(tmp_path):
    document = run_of(here(bad=11), reward=named(f"{PARTS}:SpoiledReward", at=5))
    with Store(tmp_path, create=True) as store:
        with pytest.raises(ContractError, match="gave NaN as the reward"):
            execute(document, store=store)
        (warning,) = store.warnings("latest")["text"]
    # without the state of the bad reward
    assert warning.startswith("phase 'p': 1 of 5 readings of sensor 'w.x' is outside")


def test_start_and_show_say_it(tmp_path, capsys):
    file = tmp_path / "run.yml"
    file.write_text(
        "uid: r\nseed: 1\nschedule:\n  - p:\n      environments:\n"
        f"        - environment: {{uid: w, name: '{PARTS}:Spoiled', params: {{bad: 11}}}}\n"
        "      agents: [{name: a, muscle: random}]\n      phase_config: {mode: test, episodes: 1}\n"
    )
    store = ["--store", str(tmp_path / "store")]
    assert main(["start", str(file), *store, "--quiet"]) == 0
    assert "warning: phase 'p': 1 of 9 readings of sensor 'w.x'" in capsys.readouterr().err
    assert main(["show", "latest", *store]) == 0
    assert "warning: phase 'p': 1 of 9 readings of sensor 'w.x'" in capsys.readouterr().out
    assert main(["check", str(file), "--set", "simulation.values=strikt"]) == 2
    assert "did you mean 'strict'?); allowed: count, strict" in capsys.readouterr().err
    assert main(["start", str(file), *store, "--quiet", "--set", "simulation.values=strict"]) == 1


def test_the_key_is_part_of_the_document_and_cascades():
    plain = run_of(here())
    strict = run_of(here(), values="strict")
    assert run_of(here(), values="count").hash == plain.hash != strict.hash
    later = from_mapping({**strict.canonical, "schedule": [*strict.canonical["schedule"], {"q": None}]})
    assert [phase.simulation.values for phase in later.phases] == ["strict", "strict"]


@needs_gymnasium
def test_an_environment_made_for_gymnasium_warns_when_it_is_closed():
    env = pm.make(run_of(here(bad=11)))
    env.reset()
    over = False
    while not over:
        *_, terminated, truncated, _ = env.step(env.action_space.sample())
        over = terminated or truncated
    with pytest.warns(UserWarning, match=r"1 of 9 readings of sensor 'w\.x' is outside"):
        env.close()


class Unbounded(Environment):
    """Declares no limits; its reward at step ``at`` is NaN."""

    def __init__(self, at: int):
        self.at = at

    def setup(self) -> EnvironmentBaseline:
        space = Box(-math.inf, math.inf, shape=())
        return EnvironmentBaseline(
            [SensorInformation(0.0, space, "x")],
            [ActuatorInformation(0.0, space, "u")],
            [RewardInformation(0.0, space, "r")],
        )

    def reset(self) -> EnvironmentState:
        self.count = 0
        return EnvironmentState(np.zeros(1), np.zeros(1))

    def step(self, setpoints: Any) -> EnvironmentState:
        self.count += 1
        reward = math.nan if self.count == self.at else 0.0
        return EnvironmentState(np.zeros(1), np.array([reward]), truncated=self.count == 600)


@pytest.mark.parametrize("at", [255, 256, 257, 512])
def test_without_any_limits_later_states_are_checked_like_the_first(at):
    # states are compared with their spaces in blocks of 256
    with pytest.raises(ContractError, match=rf"the reward 'w\.r' at step {at} \(t = {at}\) of episode 0"):
        execute(run_of(named(f"{__name__}:Unbounded", at=at), muscle="idle"))


@pytest.mark.filterwarnings("error")
def test_large_values_are_finite():
    # their squares are not
    (warning,) = warnings_of(run_of(here(bad=1e200)))
    assert "the worst is 1e+200" in warning
