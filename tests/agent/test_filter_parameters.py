"""Parameters of filters that are not what they should be; objectives and states that are not finite."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from palaestrai_mosaik.agent import Experience, Filter, FilterChain
from palaestrai_mosaik.agent.filters import (
    AbsoluteDeviationFilter,
    ActionChangePenaltyFilter,
    ActionTimeShiftFilter,
    DeltaActionFilter,
    DeltaObsFilter,
    DeltaStepFilter,
    MergeStepsFilter,
    NormFilter,
    QuadraticPenaltyFilter,
    ScaleFilter,
)
from palaestrai_mosaik.core.errors import ContractError
from palaestrai_mosaik.types import Box, Discrete
from palaestrai_mosaik.types.vectors import Layout

SENSORS = Layout(["a", "b"], [Box(-5.0, 5.0, shape=())] * 2)
ACTUATORS = Layout(["x", "n"], [Box(-1.0, 3.0, shape=()), Discrete(4)])


def chain(*filters: Filter, actuators: Layout = ACTUATORS) -> FilterChain:
    return FilterChain(filters, SENSORS, actuators)


def row(objective: float, step: int) -> Experience:
    readings, setpoints = np.zeros(2), np.zeros(2)
    return Experience(
        "m.0", readings, setpoints, np.array([objective]), objective, None, readings, setpoints, step=step
    )


def objectives(made: FilterChain, *values: float) -> list[float]:
    return [made.brain_pre(row(value, step)).objective for step, value in enumerate(values)]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: ActionChangePenaltyFilter(weight=math.inf), "weight must be a finite number of at least 0"),
        (lambda: ActionChangePenaltyFilter(power=math.inf), "power must be a finite number of more than 0"),
        (lambda: ActionChangePenaltyFilter(weight=10**400), "weight must be a finite number"),
        (lambda: DeltaStepFilter(step_size=math.inf), "step_size must be a finite number of more than 0"),
        (lambda: NormFilter(epsilon=math.inf), "epsilon must be a finite number of more than 0, not inf"),
        (lambda: NormFilter(gamma=math.nan), "gamma must be a finite number of at least 0, not nan"),
        (lambda: NormFilter(clip_obs=10**400), "clip_obs must be a number of more than 0"),
        (lambda: AbsoluteDeviationFilter(target="1"), "target must be a finite number, not '1'"),
        (lambda: QuadraticPenaltyFilter(target=-math.inf), "target must be a finite number, not -inf"),
        (lambda: NormFilter(normalise_objective="no"), "normalise_objective must be true or false, not 'no'"),
        (lambda: ScaleFilter(sensors="no"), "sensors must be true or false, not 'no'"),
        (lambda: ScaleFilter(actuators=0), "actuators must be true or false, not 0"),
        (lambda: ScaleFilter(discrete=None), "discrete must be true or false, not None"),
        (lambda: DeltaObsFilter(replace="false"), "replace must be true or false, not 'false'"),
        (lambda: chain(DeltaObsFilter(5)), "must be a list of one or more uids, not 5"),
        (lambda: chain(DeltaObsFilter("a")), "must be a list of one or more uids, not 'a'"),
        (lambda: chain(DeltaObsFilter([])), "must be a list of one or more uids, not []"),
        (lambda: chain(DeltaObsFilter([1, 2])), "must be a list of one or more uids, not [1, 2]"),
        (lambda: chain(AbsoluteDeviationFilter(sensor_uids=[["a"]])), "must be a list of one or more uids"),
    ],
)
def test_parameters_of_another_kind_are_refused(make: Any, said: str) -> None:
    with pytest.raises(ContractError) as error:
        make()
    assert said in str(error.value)


def test_limits_may_be_infinite() -> None:
    made = chain(NormFilter(clip_obs=math.inf, clip_reward=math.inf))
    assert objectives(made, 1e9) == pytest.approx([1e9])


def test_an_infinite_objective_is_limited_and_teaches_nothing() -> None:
    values = [1.0, 2.0, 3.0, -5.0]
    learned, other = chain(NormFilter()), chain(NormFilter())
    before = objectives(learned, *values[:2])
    assert before == objectives(other, *values[:2])
    assert learned.brain_pre(row(math.inf, 2)).objective == 10.0
    assert learned.brain_pre(row(-math.inf, 3)).objective == -10.0
    for step in (4, 5):
        rows = [made.brain_pre(row(values[step - 2], step)) for made in (learned, other)]
        assert rows[0].objective == rows[1].objective
    assert learned.state()[0]["return_n"] == 4.0
    assert learned.state()[0]["return_m2"] == other.state()[0]["return_m2"] > 0.0


def test_an_objective_too_large_to_be_squared_does_not_end_learning() -> None:
    made = chain(NormFilter())
    objectives(made, 1.0, 2.0, 1e200, 3.0)
    state = made.state()[0]
    assert state["return_n"] == 3.0
    assert math.isfinite(state["return_m2"])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", [-1.0, 1.0]),
        ("m2", [1.0, -1e-9]),
        ("m2", [math.nan, 1.0]),
        ("mean", [math.nan, 1.0]),
        ("return_n", -1.0),
        ("return_m2", -1.0),
        ("return_m2", math.nan),
        ("return_mean", math.nan),
    ],
)
def test_a_state_that_cannot_have_been_learned_is_refused(name: str, value: Any) -> None:
    made = chain(NormFilter())
    made.pre(np.ones(2))
    made.learn(made.news())
    state = made.state()
    made.set_state(state)
    with pytest.raises(ContractError, match="the state has NaN, or a negative number of values"):
        made.set_state([{**state[0], name: np.array(value)}])
    assert made.state()[0]["n"].tolist() == [1.0, 1.0]


def test_means_may_be_negative() -> None:
    made = chain(NormFilter())
    made.pre(np.array([-3.0, 1.0]))
    made.learn(made.news())
    objectives(made, -4.0)
    other = chain(NormFilter())
    other.set_state(made.state())
    assert other.state()[0]["mean"].tolist() == [-3.0, 1.0]


def test_actions_are_restored_from_set_points() -> None:
    """-1 .. 3 is -1 .. 1; four numbers are quarters of [-1, 1], whose middles are -0.75, -0.25, ..."""
    made = chain(ScaleFilter(discrete=True))
    assert made.irreversible == []
    assert made.undo(np.array([-1.0, 0.0])).tolist() == [-1.0, -0.75]
    assert made.undo(np.array([2.0, 3.0])).tolist() == [0.5, 0.75]
    assert made.undo(np.array([3.0, math.nan]))[0] == 1.0
    assert math.isnan(made.undo(np.array([3.0, math.nan]))[1])
    # one possible value is reached by any action
    one = chain(ScaleFilter(), actuators=Layout(["x"], [Box(2.0, 2.0, shape=())]))
    assert one.undo(np.array([2.0])).tolist() == [0.0]
    assert one.post(one.undo(np.array([2.0]))).tolist() == [2.0]


def test_filters_live_through_the_actions_that_are_restored() -> None:
    """The last action that is shown is that of the muscle's side of the scale, or of the environment's."""
    setpoints = np.array([2.0, 1.0])
    for filters, last in (
        ([ScaleFilter(), ActionTimeShiftFilter()], [0.5, 1.0]),
        ([ActionTimeShiftFilter(), ScaleFilter(sensors=False)], [2.0, 1.0]),
    ):
        lived, restored = chain(*filters), chain(*filters)
        for made in (lived, restored):
            made.reset()
            made.pre(np.zeros(2))
        assert lived.post(np.array([0.5, 1.0])).tolist() == setpoints.tolist()
        assert restored.undo(setpoints).tolist() == [0.5, 1.0]
        assert restored.pre(np.zeros(2))[2:].tolist() == lived.pre(np.zeros(2))[2:].tolist() == last


def test_what_cannot_be_undone_is_named() -> None:
    boxes = Layout(["x"], [Box(-1.0, 3.0, shape=())])
    made = FilterChain([MergeStepsFilter(), DeltaActionFilter(), ScaleFilter()], SENSORS, boxes)
    assert made.irreversible == ["DeltaActionFilter"]
