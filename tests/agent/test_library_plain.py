"""Muscles that need no learning: random, constant, scripted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from palaestrai_mosaik.agent import Muscle
from palaestrai_mosaik.agent.library.constant import ConstantMuscle
from palaestrai_mosaik.agent.library.random_agent import RandomMuscle
from palaestrai_mosaik.agent.library.scripted import ScriptedMuscle
from palaestrai_mosaik.core.errors import ActionError, ContractError
from palaestrai_mosaik.testing import check_muscle
from palaestrai_mosaik.types import ActuatorInformation, Box, Discrete, SensorInformation, Space
from palaestrai_mosaik.types.vectors import Layout
from tests.support.acting import ask

SPACES = {
    "e.q": Box(-2.0, 2.0, shape=()),
    "e.tap": Discrete(3, start=-1),
    "e.pair": Box(0.0, 1.0, shape=(2,)),
}
SENSORS = [SensorInformation(0.5, Box(0.0, 1.0, shape=()), "e.x")]


class Stage:
    """Asks a muscle for set-points, again and again."""

    def __init__(self, muscle: Any, spaces: dict[str, Space], seed: int = 0):
        self.muscle, self.layout = muscle, Layout(list(spaces), list(spaces.values()))
        muscle.uid = "agent.0"
        muscle.rng = np.random.default_rng(seed)
        self.sensors = Layout(["e.x"], [SENSORS[0].space])
        muscle.setup()

    def __call__(self) -> list[float]:
        return ask(self.muscle, self.sensors, self.layout.bound(self.muscle.rng), [0.5])[0].tolist()


def actuators() -> list[ActuatorInformation]:
    return [ActuatorInformation(None, space, uid) for uid, space in SPACES.items()]


def script(tmp_path: Path, text: str) -> str:
    path = tmp_path / "script.csv"
    path.write_text(text)
    return str(path)


# --- random --------------------------------------------------------------------------------


def test_random_set_points_fill_their_spaces() -> None:
    stage = Stage(RandomMuscle(), SPACES)
    seen = np.array([stage() for _ in range(300)])
    assert seen[:, 0].min() < -1.8 and seen[:, 0].max() > 1.8
    assert set(seen[:, 1]) == {-1.0, 0.0, 1.0}
    twin = Stage(RandomMuscle(), SPACES)
    assert [twin() for _ in range(300)] == seen.tolist()


def test_random_set_points_are_held() -> None:
    stage = Stage(RandomMuscle(hold=3), SPACES)
    seen = [stage() for _ in range(7)]
    assert seen[0] == seen[1] == seen[2] != seen[3] == seen[4] == seen[5] != seen[6]
    stage.muscle.reset()
    assert stage() != seen[6]


# --- constant ------------------------------------------------------------------------------


def test_constant_by_pattern() -> None:
    stage = Stage(ConstantMuscle({"*": 1, "e.q": -0.5, "e.p*": [0.0, 1.0]}), SPACES)
    assert stage() == stage() == [-0.5, 1.0, 0.0, 1.0]
    assert Stage(ConstantMuscle(1), {"e.q": SPACES["e.q"], "e.tap": SPACES["e.tap"]})() == [1.0, 1.0]


def test_a_muscle_inside_another_needs_no_generator_unless_it_draws() -> None:
    class Delegating(Muscle):
        def __init__(self) -> None:
            self.inner = ConstantMuscle(1)

        def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
            return self.inner.propose_actions(sensors, actuators_available)

    assert Stage(Delegating(), {"e.q": SPACES["e.q"]})() == [1.0]


def test_what_no_pattern_fits_is_left_alone() -> None:
    values = Stage(ConstantMuscle({"e.tap": -1}), SPACES)()
    assert np.isnan(values[0]) and values[1] == -1.0 and np.isnan(values[2:]).all()


@pytest.mark.parametrize(
    ("values", "error", "text"),
    [
        ({"e.qq": 1.0}, ContractError, "'e.qq' fits no actuator of 'agent.0' .did you mean 'e.q'"),
        ({"e.q": 3.0}, ActionError, r"values: 3.0 for 'e.q' is not in Box\(low=-2"),
        (0.5, ActionError, "values: 0.5 for 'e.tap' is not in Discrete"),
    ],
)
def test_constants_that_cannot_be(values: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        Stage(ConstantMuscle(values), SPACES)()


# --- scripted ------------------------------------------------------------------------------

TWO = {"e.q": SPACES["e.q"], "e.tap": SPACES["e.tap"]}


def flat(rows: list[list[float]]) -> list[Any]:
    return [[None if np.isnan(x) else x for x in row] for row in rows]


def test_a_script_holds_each_row(tmp_path: Path) -> None:
    # columns in another order than the agent's, an empty cell, nothing before step 1
    path = script(tmp_path, "step,e.tap,e.q\n1,0,0.5\n3,,-1.5\n")
    stage = Stage(ScriptedMuscle(path), TWO)
    rows = [[None, None], [0.5, 0.0], [0.5, 0.0], [-1.5, None], [-1.5, None]]
    assert flat([stage() for _ in range(5)]) == rows
    stage.muscle.reset()
    assert flat([stage() for _ in range(5)]) == rows


def test_a_script_by_time(tmp_path: Path) -> None:
    # 0.3 is three intervals of 0.1, although 3 * 0.1 > 0.3 in floats
    path = script(tmp_path, "time, e.q\n0, 1\n0.3, 2\n0.45, -1\n")
    stage = Stage(ScriptedMuscle(path, interval=0.1), {"e.q": SPACES["e.q"]})
    assert [stage()[0] for _ in range(7)] == [1, 1, 1, 2, 2, -1, -1]


def test_the_end_of_a_script(tmp_path: Path) -> None:
    path = script(tmp_path, "step,e.q\n0,1\n2,2\n")
    one = {"e.q": SPACES["e.q"]}
    stage = Stage(ScriptedMuscle(path, at_end="repeat"), one)
    assert [stage()[0] for _ in range(7)] == [1, 1, 2, 1, 1, 2, 1]
    stage = Stage(ScriptedMuscle(path, at_end="error"), one)
    assert [stage()[0] for _ in range(3)] == [1, 1, 2]
    with pytest.raises(ContractError, match="ends with action 2 of an episode, but there is an action 3"):
        stage()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "first column must be called step or time"),
        ("zeit,e.q\n0,1\n", "script.csv:1: the first column must be called step or time"),
        ("step,e.q,e.tap,e.q\n0,1,1,1\n", "script.csv:1: columns 2 and 4 have the same name"),
        ("step,e.q,e.tap\n", "no rows"),
        ("step,e.q,e.tap\n0,1\n", "script.csv:2: 2 cells, but 3 columns"),
        ("step,e.q,e.tap\n0,1,1\n\n1,x,1\n", "script.csv:4: column 2 holds no number"),
        ("step,e.q,e.tap\n1,1,1\n1,1,1\n", "script.csv:3: step 1 is not above 1"),
        ("step,e.q,e.tap\n0.5,1,1\n", "script.csv:2: step 0.5 is not a whole number"),
        ("time,e.q,e.tap\nnan,1,1\n", "script.csv:2: time nan"),
        ("time,e.q,e.tap\n-1,1,1\n", "script.csv:2: time -1 is none of an episode"),
        ("time,e.q,e.tap\n0,1,1\n1e300,1,1\n", r"script.csv:3: time 1e\+300 is none of an episode"),
        ("step,e.q,e.tap\n0," + "1" * 200_000 + ",1\n", "script.csv' cannot be read: field larger"),
        ("step,e.q\n0,1\n", "actuator 'e.tap' of 'agent.0' has no column"),
        (
            "step,e.q,e.tip,e.tap\n0,1,1,1\n",
            "column 3 is no actuator of 'agent.0' .did you mean 'e.tap'",
        ),
        ("step,e.q,e.tap\n0,1,1\n1,5,1\n", r"script.csv:3: 5 for 'e.q' is not in Box\("),
        ("step,e.q,e.tap\n0,1,0.5\n", "script.csv:2: 0.5 for 'e.tap' is not in Discrete"),
    ],
)
def test_scripts_that_cannot_be(text: str, error: str, tmp_path: Path) -> None:
    with pytest.raises(ContractError, match=error):
        Stage(ScriptedMuscle(script(tmp_path, text)), TWO)()


def test_a_script_for_one_incarnation_is_for_all(tmp_path: Path) -> None:
    """Bodies share it: what one of them takes, each takes, with or without a muscle of its own."""
    file = tmp_path / "s.csv"
    for body in range(2):
        layout = Layout([f"e.{body}.u"], [Box(-2.0, 2.0, shape=())])
        for name in ("e.0.u", "e.{body}.u"):
            file.write_text(f"step,{name}\n0,1.5\n")
            muscle = ScriptedMuscle(str(file))
            muscle.uid = f"a.0.{body}"
            muscle.setup()
            assert muscle._arranged(layout)[1].tolist() == [1.5]
        file.write_text("step,e.0.u,e.1.u\n0,1,2\n")
        muscle = ScriptedMuscle(str(file))
        muscle.uid = f"a.0.{body}"
        muscle.setup()
        with pytest.raises(ContractError, match=f"column {3 - body} is no actuator of 'a.0.{body}'"):
            muscle._arranged(layout)


def test_a_script_in_another_encoding_is_named(tmp_path: Path) -> None:
    path = tmp_path / "script.csv"
    path.write_bytes("step,größe\n0,1\n".encode("latin-1"))
    with pytest.raises(ContractError, match=r"script.csv' cannot be read: 'utf-8' codec"):
        Stage(ScriptedMuscle(str(path)), TWO)


def test_a_script_is_found_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(tmp_path, "step,e.q\n0,1\n")
    monkeypatch.chdir(tmp_path)
    assert Stage(ScriptedMuscle("script.csv"), {"e.q": SPACES["e.q"]})() == [1.0]
    with pytest.raises(ContractError, match=r"the script 'scirpt.csv' cannot be read"):
        Stage(ScriptedMuscle("scirpt.csv"), TWO)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: RandomMuscle(hold=0), "hold must be at least 1"),
        (lambda: ScriptedMuscle("x.csv", interval=0.0), "interval must be positive"),
        (lambda: ScriptedMuscle("x.csv", at_end="repaet"), "did you mean 'repeat'"),  # type: ignore[arg-type]
    ],
)
def test_parameters_are_checked(make: Any, text: str) -> None:
    with pytest.raises(ContractError, match=text):
        make()


def test_they_keep_the_contract(tmp_path: Path) -> None:
    check_muscle(lambda: RandomMuscle(hold=2), SENSORS, actuators())
    check_muscle(lambda: ConstantMuscle({"e.q": 1.0}), SENSORS, actuators())
    path = script(tmp_path, "step,e.q,e.tap\n0,1,1\n")
    check_muscle(lambda: ScriptedMuscle(path), SENSORS, actuators()[:2])
