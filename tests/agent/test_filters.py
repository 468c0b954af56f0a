"""Filters: what each does, by hand; chains in order both ways; what is learned travels and is saved."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestrai_mosaik.agent.filter import Filter, FilterChain
from palaestrai_mosaik.agent.filters import (
    AbsoluteDeviationFilter,
    ActionChangePenaltyFilter,
    ActionTimeShiftFilter,
    DelayFilter,
    DeltaActionFilter,
    DeltaObsFilter,
    DeltaStepFilter,
    MergeStepsFilter,
    NormFilter,
    QuadraticPenaltyFilter,
    ScaleFilter,
)
from palaestrai_mosaik.agent.filters.norm import Moments
from palaestrai_mosaik.agent.memory import Experience
from palaestrai_mosaik.core.errors import ActionError, ContractError
from palaestrai_mosaik.types import Box, Discrete, Mode, MultiBinary, MultiDiscrete, Tuple
from palaestrai_mosaik.types.vectors import Layout

NAN = math.nan
SENSORS = Layout(["a", "b"], [Box(0.0, 2.0, shape=()), Box([-1.0, 0.0], [3.0, 4.0])])
ACTUATORS = Layout(["p", "q"], [Box(-1.0, 3.0, shape=()), Box(2.0, 6.0, shape=())])


def chain(*filters: Filter, sensors: Layout = SENSORS, actuators: Layout = ACTUATORS) -> FilterChain:
    made = FilterChain(filters, sensors, actuators)
    made.reset()
    return made


def vector(*values: float) -> Any:
    return np.array(values, dtype=float)


def row(
    objective: float = 0.0, setpoints: Any = (0.0, 2.0), muscle: str = "m.0", step: int = 1, **more: Any
) -> Experience:
    """Return a row, one that is not the first of its episode unless ``step`` is 0."""
    readings, points = vector(1, 2, 3), vector(*setpoints)
    rewards = vector(objective)
    return Experience(muscle, readings, points, rewards, objective, None, readings, points, step=step, **more)


def seen(made: FilterChain, *readings: Any) -> list[Any]:
    return [made.pre(vector(*one)).tolist() for one in readings]


def done(made: FilterChain, *actions: Any) -> list[Any]:
    return [made.post(vector(*one)).tolist() for one in actions]


# --- normalisation ----------------------------------------------------------------------------


def heard(made: FilterChain, *readings: Any) -> list[Any]:
    """What the muscle sees if it hears from the brain, the chain ``made`` being both, at each step."""
    answers = []
    for one in readings:
        answers.append(made.pre(vector(*one)).tolist())
        made.learn(made.news())
        made.set_state(made.state())
    return answers


def test_readings_are_normalised_by_what_was_heard_before() -> None:
    one = Layout(["a"], [Box(-100.0, 100.0, shape=())])
    made = chain(NormFilter(epsilon=1e-300), sensors=one)
    # nothing known: mean 0, variance 1; after 4: mean 4, variance 1; after 4, 8: mean 6, variance 4;
    # after 4, 8, 8: 60 is more than 10 deviations away; after 4, 8, 8, 60: mean 20, variance 536
    assert heard(made, [4], [8], [8], [60], [-99]) == [
        [4.0],
        [4.0],
        [1.0],
        [10.0],
        [pytest.approx(-119 / math.sqrt(536), rel=1e-12)],
    ]
    assert made.sensors.spaces[0] == Box(-10.0, 10.0, shape=())
    assert made.sensors.uids == ("a",)


def test_variance_is_that_of_numpy_whatever_the_batches() -> None:
    rows = np.random.default_rng(1).normal([1e3, -5.0, 0.0], [2.0, 1e-3, 7.0], (700, 3))
    made = chain(NormFilter())
    worker = chain(NormFilter())
    for index, one in enumerate(rows):
        worker.pre(one)
        # also batches that are longer than the 256 readings that are kept
        if index in (0, 1, 40, 41, 699):
            made.learn(pickle.loads(pickle.dumps(worker.news())))
            assert worker.news() is None
    (state,) = made.state()
    assert state["n"].tolist() == [700.0] * 3
    np.testing.assert_allclose(state["mean"], rows.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(state["m2"] / state["n"], rows.var(axis=0), rtol=1e-9)
    worker.set_state(made.state())
    worker.mode = Mode.TEST
    expected = (rows[5] - rows.mean(axis=0)) / np.sqrt(rows.var(axis=0) + 1e-8)
    np.testing.assert_allclose(worker.pre(rows[5]), expected, rtol=1e-9)


@settings(max_examples=50)
@given(
    rows=st.lists(
        st.lists(st.floats(-1e6, 1e6) | st.just(NAN) | st.just(math.inf), min_size=2, max_size=2),
        min_size=1,
        max_size=30,
    ),
    cut=st.integers(0, 30),
)
def test_merged_moments_are_those_of_all(rows: Any, cut: int) -> None:
    rows = np.array(rows)
    merged = Moments.none(2)
    for part in (rows[:cut], rows[cut:]):
        if len(part):
            merged = merged.merged(Moments.of(list(part)))
    for place in range(2):
        values = rows[:, place][np.isfinite(rows[:, place])]
        assert merged.n[place] == len(values)
        if len(values):
            scale = max(1.0, float(np.abs(values).max()))
            assert merged.mean[place] == pytest.approx(values.mean(), abs=1e-9 * scale)
            assert merged.m2[place] / len(values) == pytest.approx(values.var(), abs=1e-9 * scale**2)
        expected = merged.m2[place] / len(values) if len(values) > 1 else 1.0
        assert merged.variance()[place] == expected


def test_a_muscle_uses_what_it_was_told_and_nothing_since() -> None:
    muscle, brain = chain(NormFilter()), chain(NormFilter())
    before = muscle.pre(vector(1, 2, 3)).tolist()
    muscle.pre(vector(2, 2, 2))
    assert muscle.pre(vector(1, 2, 3)).tolist() == before
    brain.learn(muscle.news())
    assert muscle.pre(vector(1, 2, 3)).tolist() == before
    muscle.set_state(brain.state())
    assert muscle.pre(vector(1, 2, 3)).tolist() != before


def test_readings_that_are_not_finite_are_left_out() -> None:
    made = chain(NormFilter(epsilon=1e-300))
    heard(made, [1, NAN, 5], [3, math.inf, 7], [2, 4, 6])
    (state,) = made.state()
    assert (state["n"].tolist(), state["mean"].tolist()) == ([3.0, 1.0, 3.0], [2.0, 4.0, 6.0])
    answer = made.pre(vector(2, NAN, 6))
    assert answer[[0, 2]].tolist() == [0.0, 0.0] and math.isnan(answer[1])


def test_the_objective_is_divided_by_the_deviation_of_the_discounted_return() -> None:
    made = chain(NormFilter(gamma=0.5, epsilon=1e-300))
    rewards, returns, value = [1.0, 3.0, -2.0, 4.0], [], 0.0
    for index, reward in enumerate(rewards):
        value = 0.5 * value + reward
        returns.append(value)
        given = row(reward)
        learned = made.brain_pre(given)
        deviation = np.std(returns) if index else 1.0
        assert learned.objective == pytest.approx(reward / deviation, rel=1e-12)
        assert given.objective == reward and learned.setpoints is given.setpoints
    assert returns == [1.0, 3.5, -0.25, 3.875]


def test_returns_are_those_of_one_muscle_and_one_episode() -> None:
    made = chain(NormFilter(gamma=1.0))
    made.brain_pre(row(1.0, muscle="m.0", step=0))
    made.brain_pre(row(10.0, muscle="m.1", step=0))
    made.brain_pre(row(2.0, muscle="m.0"))  # its return is 1 + 2
    made.brain_pre(row(4.0, muscle="m.0", step=0))
    made.brain_pre(row(NAN, muscle="m.1", step=0))  # no objective, but an episode begins
    made.brain_pre(row(20.0, muscle="m.1"))
    (state,) = made.state()
    returns = [1.0, 10.0, 3.0, 4.0, 20.0]
    assert state["return_n"] == 5.0
    assert state["return_mean"] == pytest.approx(np.mean(returns))
    assert state["return_m2"] / 5 == pytest.approx(np.var(returns))


def test_objectives_are_limited_left_alone_or_missing() -> None:
    made = chain(NormFilter(clip_reward=2.0, gamma=0.0))
    # one return only: deviation 1; returns 5 and -7: deviation 6
    assert [made.brain_pre(row(value)).objective for value in (5.0, -7.0)] == [2.0, pytest.approx(-7 / 6)]
    assert math.isnan(made.brain_pre(row(NAN)).objective)
    given = row(5.0)
    assert chain(NormFilter(normalise_objective=False)).brain_pre(given) is given


def test_the_first_objectives_may_stay_as_they_are() -> None:
    made = chain(NormFilter(gamma=0.0, norm_objective_after=2))
    # the returns are the objectives; of 5, -7 and 4 the deviation is
    deviation = np.std([5.0, -7.0, 4.0])
    given = [made.brain_pre(row(value)).objective for value in (5.0, -7.0, 4.0)]
    assert given == [5.0, -7.0, pytest.approx(4.0 / deviation)]


def test_nothing_is_learned_in_test_mode() -> None:
    made = chain(NormFilter())
    heard(made, [1, 2, 3], [2, 3, 5])
    made.brain_pre(row(1.0))
    made.brain_pre(row(3.0))
    before, answer = made.state(), made.pre(vector(1, 1, 1)).tolist()
    made.learn(made.news())
    made.set_state(before)
    made.mode = Mode.TEST
    assert made.filters[0].mode is Mode.TEST and made.mode is Mode.TEST
    assert seen(made, [9, 9, 9], [1, 1, 1])[1] == answer
    scaled = [made.brain_pre(row(1.0)).objective for _ in range(2)]
    assert scaled[0] == scaled[1]
    assert made.news() is None
    assert str(made.state()) == str(before)


# --- scaling ----------------------------------------------------------------------------------


def test_bounds_become_minus_one_and_one_and_back() -> None:
    made = chain(ScaleFilter())
    assert seen(made, [0, -1, 0], [2, 3, 4], [1, 0, 1], [3, 1, 2]) == [
        [-1, -1, -1],
        [1, 1, 1],
        [0, -0.5, -0.5],
        [2, 0, 0],
    ]
    assert done(made, [-1, -1], [1, 1], [0, 0.5]) == [[-1, 2], [3, 6], [1, 5]]
    assert np.isnan(made.post(vector(NAN, 0))).tolist() == [True, False]
    assert made.sensors.spaces == (Box(-1.0, 1.0, shape=()), Box([-1.0, -1.0], [1.0, 1.0]))
    assert made.actuators.spaces == (Box(-1.0, 1.0, shape=()),) * 2


def test_what_cannot_be_scaled_stays() -> None:
    sensors = Layout(
        ["open", "constant", "choice", "mixed"],
        [
            Box(0.0, np.inf, shape=()),
            Box(4.0, 4.0, shape=()),
            Discrete(5),
            Box([0.0, 0.0], [10.0, np.inf]),
        ],
    )
    actuators = Layout(["choice", "p"], [Discrete(3), Box(0.0, 10.0, shape=())])
    made = chain(ScaleFilter(), sensors=sensors, actuators=actuators)
    assert seen(made, [7, 4, 3, 10, 8]) == [[7, 4, 3, 1, 8]]
    assert made.sensors.spaces[2:] == (Discrete(5), Box([-1.0, 0.0], [1.0, np.inf]))
    assert done(made, [2, 0.0]) == [[2, 5]]
    assert made.actuators.spaces[0] == Discrete(3)
    half = chain(ScaleFilter(sensors=False), sensors=SENSORS)
    assert half.sensors is SENSORS and half.actuators.spaces[0] == Box(-1.0, 1.0, shape=())


def test_whole_numbers_get_equal_shares() -> None:
    actuators = Layout(["n"], [Box(0, 2, shape=(), dtype=np.int64)])
    made = chain(ScaleFilter(), actuators=actuators)
    assert done(made, [-1], [-0.34], [-0.32], [0], [0.32], [0.34], [1]) == [[0], [0], [1], [1], [1], [2], [2]]
    choices = Layout(["c", "m"], [Discrete(4, start=-1), MultiBinary(2)])
    made = chain(ScaleFilter(discrete=True), actuators=choices)
    assert done(made, [-1, -0.1, 0.1], [0.4, 1, -1]) == [[-1, 0, 1], [1, 1, 0]]
    assert made.actuators.spaces == (Box(-1.0, 1.0, shape=()), Box(-1.0, 1.0, shape=(2,)))


@settings(max_examples=100)
@given(
    low=st.floats(-1e9, 1e9, allow_subnormal=False), width=st.floats(1e-6, 1e9), action=st.floats(-1.0, 1.0)
)
def test_scaled_set_points_are_always_in_their_spaces(low: float, width: float, action: float) -> None:
    space = Box(low, low + width, shape=())
    made = chain(ScaleFilter(), sensors=Layout(["a"], [space]), actuators=Layout(["a"], [space]))
    (back,) = made.pre(made.post(vector(action)))
    # a set-point is a double near low: that is how exactly the way back can be known
    assert back == pytest.approx(action, abs=1e-12 + 8 * np.spacing(abs(low) + width) / width)
    assert made.post(vector(-1.0))[0] == low and made.post(vector(1.0))[0] == space.flat_high[0]


def test_unbounded_actuators_are_refused() -> None:
    open_end = Layout(["p", "grid.q"], [Box(0.0, 1.0, shape=()), Box(0.0, np.inf, shape=())])
    for one in (ScaleFilter(), DeltaStepFilter(), ActionChangePenaltyFilter()):
        with pytest.raises(ContractError) as error:
            chain(one, actuators=open_end)
        assert str(error.value) == (
            f"filter {type(one).__name__}: the space of actuator 'grid.q' must be bounded, "
            "not Box(low=0.0, high=inf, shape=(), dtype=float64)"
        )


# --- steps and differences --------------------------------------------------------------------


def test_readings_come_late() -> None:
    made = chain(DelayFilter(steps=2))
    assert (made.sensors.uids, made.actuators.uids) == (SENSORS.uids, ACTUATORS.uids)
    readings = [[n, n, n] for n in range(5)]
    assert seen(made, *readings) == [[n, n, n] for n in (0, 0, 0, 1, 2)]
    made.reset()
    assert seen(made, [4, 5, 6]) == [[4, 5, 6]]
    assert seen(chain(DelayFilter(steps=0)), *readings) == readings
    with pytest.raises(ContractError, match="steps must be a whole number of at least 0, not -1"):
        DelayFilter(steps=-1)


def test_steps_are_merged_newest_first() -> None:
    made = chain(MergeStepsFilter(steps=3))
    assert made.sensors.uids == ("a", "LAST-1-a", "LAST-2-a", "b", "LAST-1-b", "LAST-2-b")
    assert made.sensors.spaces == (SENSORS.spaces[0],) * 3 + (SENSORS.spaces[1],) * 3
    assert seen(made, [1, 2, 3], [4, 5, 6], [7, 8, 9], [0, 0, 0]) == [
        [1, 1, 1, 2, 3, 2, 3, 2, 3],
        [4, 1, 1, 5, 6, 2, 3, 2, 3],
        [7, 4, 1, 8, 9, 5, 6, 2, 3],
        [0, 7, 4, 0, 0, 8, 9, 5, 6],
    ]
    made.reset()
    assert seen(made, [4, 5, 6]) == [[4, 4, 4, 5, 6, 5, 6, 5, 6]]


def test_differences_of_readings() -> None:
    made = chain(DeltaObsFilter())
    assert made.sensors.uids == ("DELTA-a", "DELTA-b")
    assert made.sensors.spaces == (Box(-2.0, 2.0, shape=()), Box([-4.0, -4.0], [4.0, 4.0]))
    assert seen(made, [1, 2, 3], [2, 1, 3], [0, 1, 0]) == [[0, 0, 0], [1, -1, 0], [-2, 0, -3]]
    made.reset()
    assert seen(made, [5, 5, 5]) == [[0, 0, 0]]
    beside = chain(DeltaObsFilter(delta_sensor_uids=["b"], replace=False))
    assert beside.sensors.uids == ("a", "b", "DELTA-b")
    assert seen(beside, [1, 2, 3], [2, 1, 3]) == [[1, 2, 3, 0, 0], [2, 1, 3, -1, 0]]
    only = chain(DeltaObsFilter(delta_sensor_uids=["a"]))
    assert only.sensors.uids == ("DELTA-a",)
    assert seen(only, [1, 2, 3], [3, 1, 3]) == [[0], [2]]


def test_changes_of_set_points_add_up() -> None:
    made = chain(DeltaActionFilter())
    # p starts at 0, q, from 2 to 6, at 2
    assert made.actuators.spaces == (Box(-4.0, 4.0, shape=()),) * 2
    assert done(made, [1, 1], [1.5, -3], [4, 4], [-0.5, 0]) == [[1, 3], [2.5, 2], [3, 6], [2.5, 6]]
    silent = made.post(vector(NAN, -1))
    assert math.isnan(silent[0]) and silent[1] == 5
    assert done(made, [0.25, NAN])[0][0] == 2.75
    made.reset()
    assert done(made, [0, 0]) == [[0, 2]]


def test_steps_towards_the_bounds() -> None:
    made = chain(DeltaStepFilter(step_size=0.25))
    assert made.actuators.spaces == (Box(-1.0, 1.0, shape=()),) * 2
    # a quarter of the width of 4 is 1
    assert done(made, [1, 1], [0.5, -1], [1, 0.5], [1, 1]) == [[1, 3], [1.5, 2], [2.5, 2.5], [3, 3.5]]


def test_small_steps_of_whole_numbers_add_up() -> None:
    counts = Layout(["n", "x"], [Box(0, 4, shape=(), dtype=np.int64), Box(0.0, 4.0, shape=())])
    made = chain(DeltaStepFilter(step_size=0.1), actuators=counts)
    points = done(made, *([[1, 1]] * 4))
    assert [n for n, _ in points] == [0, 1, 1, 2]
    assert [x for _, x in points] == pytest.approx([0.4, 0.8, 1.2, 1.6])


def test_deltas_need_boxes() -> None:
    for one in (DeltaActionFilter(), DeltaStepFilter()):
        with pytest.raises(
            ContractError, match=r"the space of actuator 'c' must be a Box, not Discrete\(3\)"
        ):
            chain(one, actuators=Layout(["c"], [Discrete(3)]))


def test_last_actions_become_sensors() -> None:
    made = chain(ActionTimeShiftFilter(steps=2))
    assert made.sensors.uids == ("a", "b", "LAST-1-p", "LAST-1-q", "LAST-2-p", "LAST-2-q")
    assert made.sensors.spaces[2:] == ACTUATORS.spaces * 2
    given = vector(1, 2, 3)
    answers = []
    for action in ([1, 3], [2, NAN], [NAN, 4], [0, 5]):
        answers.append(made.pre(given)[3:].tolist())
        assert np.array_equal(made.post(vector(*action)), vector(*action), equal_nan=True)
    # 2 is the bound of q that is nearest to 0; what is not given stays in force
    assert answers == [[0, 2, 0, 2], [1, 3, 0, 2], [2, 3, 1, 3], [2, 4, 2, 3]]
    made.reset()
    assert made.pre(given)[3:].tolist() == [0, 2, 0, 2]


def test_deviations_from_a_target() -> None:
    made = chain(AbsoluteDeviationFilter())
    assert seen(made, [0.5, -1, 4]) == [[0.5, 2, 3]]
    assert made.sensors.uids == SENSORS.uids
    assert made.sensors.spaces == (Box(0.0, 1.0, shape=()), Box([0.0, 0.0], [2.0, 3.0]))
    squared = chain(QuadraticPenaltyFilter(target=5.0, sensor_uids=["b"]))
    assert seen(squared, [0.5, -1, 4]) == [[0.5, 36, 1]]
    assert squared.sensors.spaces == (SENSORS.spaces[0], Box([4.0, 1.0], [36.0, 25.0]))


# --- penalty ----------------------------------------------------------------------------------


def test_changes_of_action_are_penalised() -> None:
    made = chain(ActionChangePenaltyFilter(weight=2.0))
    # both actuators are 4 wide: changes of 1 and 3 are a quarter and three quarters of it
    objectives = [
        made.brain_pre(one).objective
        for one in (
            row(5.0, (0, 2)),
            row(5.0, (1, 5)),
            row(5.0, (1, 5)),
            row(5.0, (NAN, 3)),
            row(5.0, (3, NAN)),
            row(5.0, (-1, 6), step=0),
        )
    ]
    assert objectives == [5.0, 4.0, 5.0, 4.5, 4.5, 5.0]
    squared = chain(ActionChangePenaltyFilter(weight=2.0, power=2.0))
    squared.brain_pre(row(0.0, (0, 2)))
    assert squared.brain_pre(row(0.0, (1, 5))).objective == -2.0 * (0.25**2 + 0.75**2) / 2


def test_penalties_know_their_muscle_and_missing_set_points() -> None:
    made = chain(ActionChangePenaltyFilter())
    made.brain_pre(row(0.0, (0, NAN), muscle="m.0"))
    assert made.brain_pre(row(0.0, (3, 6), muscle="m.1")).objective == 0.0
    # q had none before: only p has changed, by half its width
    assert made.brain_pre(row(0.0, (2, 4), muscle="m.0")).objective == -0.25
    assert made.brain_pre(row(0.0, (2, 6), muscle="m.0")).objective == -0.25
    assert math.isnan(made.brain_pre(row(NAN, (3, 6), muscle="m.0")).objective)


def test_penalties_are_of_what_the_environment_gets() -> None:
    """Wherever in the chain it stands, though the muscle acts in other spaces."""
    for filters in (
        [ScaleFilter(), ActionChangePenaltyFilter()],
        [ActionChangePenaltyFilter(), ScaleFilter()],
    ):
        made = chain(*filters)
        made.brain_pre(replace(row(0.0, (-1, 2)), actions=vector(-1, -1)))
        assert made.brain_pre(replace(row(0.0, (3, 6)), actions=vector(1, 1))).objective == -1.0


# --- chains -----------------------------------------------------------------------------------


class Noted(Filter):
    """Writes its letter behind what it gets."""

    def __init__(self, letter: str, log: list[str]):
        self.letter, self.log = letter, log

    def reset(self) -> None:
        self.log.append(f"reset {self.letter}")

    def muscle_pre_process(self, readings: Any) -> Any:
        return readings * 2 + ord(self.letter) - ord("A")

    def muscle_post_process(self, setpoints: Any) -> Any:
        return setpoints * 0.5 + 0.25 * (ord(self.letter) - ord("A"))

    def brain_pre_process(self, experience: Any) -> Any:
        return replace(experience, data=f"{experience.data}{self.letter}")

    def brain_post_process(self, update: Any) -> Any:
        return f"{update}{self.letter}"

    def news(self) -> Any:
        return None if self.letter == "B" else f"news {self.letter}"

    def learn(self, news: Any) -> None:
        self.log.append(f"{self.letter} learns {news}")


def test_order_is_from_the_environment_to_the_muscle_and_back() -> None:
    log: list[str] = []
    made = chain(
        *(Noted(letter, log) for letter in "ABC"), actuators=Layout(["p"], [Box(0.0, 9.0, shape=())])
    )
    assert log == ["reset A", "reset B", "reset C"]
    # ((x * 2 + 0) * 2 + 1) * 2 + 2
    assert seen(made, [1, 2, 3]) == [[12, 20, 28]]
    # ((x / 2 + 0.5) / 2 + 0.25) / 2 + 0
    assert done(made, [8]) == [[1.25]]
    assert made.brain_pre(replace(row(), data="")).data == "ABC"
    assert made.brain_post("") == "CBA"
    log.clear()
    news = made.news()
    assert news == ["news A", None, "news C"]
    made.learn(news)
    assert log == ["A learns news A", "C learns news C"]


def test_each_filter_sees_the_channels_of_the_one_before() -> None:
    made = chain(
        ActionTimeShiftFilter(), ScaleFilter(), DeltaObsFilter(["LAST-1-p"], False), MergeStepsFilter(2)
    )
    assert made.sensors.uids == tuple(
        uid for one in ("a", "b", "LAST-1-p", "LAST-1-q", "DELTA-LAST-1-p") for uid in (one, f"LAST-1-{one}")
    )
    assert made.sensors.spaces[-1] == Box(-2.0, 2.0, shape=())
    assert made.actuators.spaces == (Box(-1.0, 1.0, shape=()),) * 2
    made.pre(vector(1, 1, 2))
    assert made.post(vector(1, 0)).tolist() == [3, 4]
    # a and before; b and before; p went from 0 to its upper bound, q from its lower one to the middle
    assert made.pre(vector(2, 3, 4)).tolist() == [1, 0, 1, 1, 0, 0, 1, -0.5, 0, -1, 1.5, 0]


def test_actions_pass_from_the_muscle_outwards() -> None:
    made = chain(ActionTimeShiftFilter(), DeltaStepFilter(step_size=0.25), ScaleFilter())
    assert done(made, [1, 1], [-0.5, 0]) == [[1, 3], [0.5, 3]]
    # the filter next to the environment has seen what the environment gets
    assert made.pre(vector(1, 1, 2)).tolist() == [0, 0, 0, -0.25, -0.5]
    # next to the muscle it sees what the muscle does
    inner = chain(DeltaStepFilter(step_size=0.25), ActionTimeShiftFilter())
    inner.post(vector(1, -1))
    assert inner.pre(vector(1, 1, 2)).tolist() == [1, 1, 2, 1, -1]
    assert inner.sensors.spaces[-1] == Box(-1.0, 1.0, shape=())


def test_penalised_before_or_after_normalising() -> None:
    rows = [row(4.0, (-1, 2)), row(4.0, (3, 6))]
    norm, penalty = NormFilter(gamma=0.0, clip_reward=3.0), ActionChangePenaltyFilter(weight=6.0)
    assert [chain_.objective for chain_ in map(chain(norm, penalty).brain_pre, rows)] == [3.0, 3.0 - 6.0]
    norm, penalty = NormFilter(gamma=0.0, clip_reward=3.0), ActionChangePenaltyFilter(weight=6.0)
    # returns 4 and -2: deviation 3
    after = [chain_.objective for chain_ in map(chain(penalty, norm).brain_pre, rows)]
    assert after == [3.0, pytest.approx(-2 / 3)]


def all_kinds() -> FilterChain:
    return chain(
        AbsoluteDeviationFilter(sensor_uids=["a"]),
        ActionChangePenaltyFilter(),
        ActionTimeShiftFilter(2),
        MergeStepsFilter(2),
        NormFilter(),
        QuadraticPenaltyFilter(0.0, ["a"]),
        DeltaActionFilter(),
        DeltaObsFilter(replace=False),
        DeltaStepFilter(),
        ScaleFilter(),
    )


def live(muscle: FilterChain, brain: FilterChain, seed: int, steps: int = 12) -> list[Any]:
    """Live through an episode; return all that came out."""
    rng = np.random.default_rng(seed)
    muscle.reset()
    out = []
    for step in range(steps):
        readings, actions = rng.uniform(0, 2, 3), rng.uniform(-1, 1, 2)
        observations, setpoints = muscle.pre(readings), muscle.post(actions)
        given = row(rng.normal(), setpoints, step=step)
        out += [observations, setpoints, brain.brain_pre(given).objective]
        if step % 4 == 3:
            brain.learn(muscle.news())
            muscle.set_state(brain.state())
    return out


def test_what_was_learned_is_saved_and_restored_exactly() -> None:
    muscle, brain = all_kinds(), all_kinds()
    for seed in range(3):
        live(muscle, brain, seed)
    file = BytesIO()
    arrays = {f"{i}.{name}": v for i, state in enumerate(brain.state()) for name, v in state.items()}
    np.savez(file, **arrays)
    file.seek(0)
    with np.load(file, allow_pickle=False) as saved:
        states: list[dict[str, Any]] = [{} for _ in brain.filters]
        for key in saved:
            index, name = key.split(".")
            states[int(index)][name] = saved[key]
    restored = all_kinds(), all_kinds()
    for made in restored:
        made.set_state(states)
    copies = pickle.loads(pickle.dumps((muscle, brain)))
    expected = live(muscle, brain, 9)
    assert str(live(*restored, 9)) == str(expected)
    assert str(live(*copies, 9)) == str(expected)
    fresh = live(all_kinds(), all_kinds(), 9)
    assert str(fresh) != str(expected)


def test_a_chain_without_filters_passes_all_things_on() -> None:
    made = chain()
    readings, actions, given, update = vector(1, 2, 3), vector(0, NAN), row(), {"w": 1}
    assert made.pre(readings) is readings and made.post(actions) is actions
    assert made.brain_pre(given) is given and made.brain_post(update) is update
    assert (made.sensors, made.actuators) == (SENSORS, ACTUATORS)
    assert made.news() is None and made.state() == []
    made.learn(None)
    made.set_state([])


def test_what_the_muscle_sees_is_read_only() -> None:
    with pytest.raises(ValueError, match="read-only"):
        chain(ScaleFilter()).pre(vector(1, 2, 3))[0] = 5.0


# --- errors -----------------------------------------------------------------------------------


class Doubling(Filter):
    def muscle_post_process(self, setpoints: Any) -> Any:
        return setpoints * 2


def test_filters_do_not_lead_out_of_an_actuators_space() -> None:
    with pytest.raises(ActionError) as error:
        chain(Doubling()).post(vector(2, 3))
    assert str(error.value).startswith(
        "after the filters Doubling: set-point [4.0] of actuator 'p' is not in Box(low=-1.0, high=3.0"
    )


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: MergeStepsFilter(0),
            "filter MergeStepsFilter: steps must be a whole number of at least 1, not 0",
        ),
        (lambda: ActionTimeShiftFilter(1.5), "steps must be a whole number of at least 1, not 1.5"),  # type: ignore[arg-type]
        (lambda: NormFilter(gamma=1.1), "filter NormFilter: gamma must be from 0 to 1, not 1.1"),
        (lambda: NormFilter(epsilon=0.0), "epsilon must be a finite number of more than 0, not 0.0"),
        (lambda: NormFilter(clip_obs="10"), "clip_obs must be a number of more than 0, not '10'"),  # type: ignore[arg-type]
        (lambda: DeltaStepFilter(step_size=-1), "step_size must be a finite number of more than 0, not -1"),
        (
            lambda: ActionChangePenaltyFilter(weight=NAN),
            "weight must be a finite number of at least 0, not nan",
        ),
        (
            lambda: AbsoluteDeviationFilter(math.inf),
            "filter AbsoluteDeviationFilter: target must be a finite number",
        ),
        (
            lambda: chain(DeltaObsFilter(["bb"])),
            "filter DeltaObsFilter: 'bb' is not one of the agent's sensors (did you mean 'b'?)",
        ),
        (lambda: chain(DeltaObsFilter(["b", "b"])), "a sensor is named twice in ['b', 'b']"),
        (lambda: chain(ScaleFilter, ScaleFilter()), "is no Filter"),  # type: ignore[arg-type]
        (
            lambda: chain(MergeStepsFilter(2), sensors=Layout(["a", "LAST-1-a"], [Discrete(2)] * 2)),
            "filter MergeStepsFilter makes two sensors with the uid 'LAST-1-a'",
        ),
        (
            lambda: chain(NormFilter()).set_state([]),
            "found what 0 filters have learned, but the agent has 1: NormFilter",
        ),
        (
            lambda: chain(NormFilter()).set_state([{"mean": 1.0}]),
            "filter NormFilter has a state of m2, mean, n, return_m2, return_mean, return_n, not of mean",
        ),
        (
            lambda: chain(NormFilter()).set_state(
                chain(NormFilter(), sensors=Layout(["a"], [Discrete(2)])).state()
            ),
            "filter NormFilter: n of the state has shape (1,), but the agent's readings have shape (3,)",
        ),
    ],
)
def test_faults_are_named(make: Any, text: str) -> None:
    with pytest.raises(ContractError) as error:
        make()
    assert text in str(error.value)


def test_spaces_without_a_shape_are_flat() -> None:
    sensors = Layout(["t", "m"], [Tuple(Discrete(3), Box(0.0, 1.0, shape=())), MultiDiscrete([2, 5])])
    made = chain(DeltaObsFilter(), sensors=sensors)
    assert made.sensors.spaces == (Box([-2.0, -1.0], [2.0, 1.0]), Box([-1.0, -4.0], [1.0, 4.0]))
    assert seen(made, [0, 0.5, 1, 4], [2, 0.25, 1, 0]) == [[0, 0, 0, 0], [2, -0.25, 0, -4]]
