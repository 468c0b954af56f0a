"""Masked resets and ends of a batched environment, and what is said about faulty ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.batches import begun, set_up

from palaestrai_mosaik.core.errors import ActionError, ContractError
from palaestrai_mosaik.environment.batch import BatchEnvironment, BatchStepper
from palaestrai_mosaik.types import Box, Discrete, MultiBinary


class Counters(BatchEnvironment):
    """Incarnation k begins at 10 k and adds its action; it terminates 3 above its beginning.

    States: the number, and how often the incarnation has begun. The reward is what was added.
    """

    state_shapes = ((), ())
    state_dtypes = (np.float64, np.int32)
    observation_shapes = ((2,), ())
    observation_dtypes = (np.float64, np.int32)

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self.begun = np.zeros(self.batch, dtype=np.int32)
        self.asked: list[list[int]] = []
        self.actives: list[list[bool]] = []

    def get_first_states(self, incarnations: Any) -> Any:
        self.asked.append(incarnations.tolist())
        self.begun[incarnations] += 1
        return self._with([10.0 * incarnations, self.begun[incarnations]])

    def get_action_results(self, last_states: Any, actions: Any) -> Any:
        self.actives.append(self.active.tolist())
        return self._with([last_states[0] + actions[0], last_states[1]])

    def get_rewards(self, last_states: Any, actions: Any, new_states: Any) -> Any:
        return actions[0]

    def get_ends(self, new_states: Any) -> Any:
        return new_states[0] >= 10.0 * np.arange(self.batch) + 3, np.zeros(self.batch, dtype=bool)

    def _with(self, states: Any) -> Any:
        return states, [np.stack([states[0], -states[0]], axis=1), states[1]]


class Declared(BatchEnvironment):
    """Says its shapes and dtypes to the constructor, by position."""

    def __init__(self, *declared: Any, **keys: Any):
        super().__init__(
            *(declared or ([()], [(2,), ()], [()], ["int64"], [np.float64, "int8"], [float])), **keys
        )

    def get_first_states(self, incarnations: Any) -> Any:
        return self._with(np.zeros(len(incarnations), dtype=np.int64))

    def get_action_results(self, last_states: Any, actions: Any) -> Any:
        return self._with(last_states[0] + (actions[0] > 0.5))

    def _with(self, states: Any) -> Any:
        return [states], [np.stack([states, states / 2], axis=1), states.astype(np.int8)]


def test_shapes_and_dtypes_are_arguments_of_the_constructor() -> None:
    environment = Declared(batch=2)
    stepper = begun(environment)
    actuators = environment.setup().actuators
    assert [one.space for one in actuators] == [Box(-np.inf, np.inf, shape=())]
    assert stepper.step(np.array([[0.4], [0.6]])).readings.tolist() == [[0, 0, 0], [1, 0.5, 1]]
    # the class keeps what it says, and says what the constructor does not
    assert BatchEnvironment.observation_shapes == ((),)
    assert Counters(batch=1).observation_shapes == ((2,), ())
    assert Counters(batch=1, action_shapes=[(3,)]).action_shapes == ((3,),)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((4,), r"state_shapes must be a list of shapes, such as \[\(2,\), \(\)\], not 4"),
        (((2,),), r"state_shapes must be a list of shapes, .* not \(2,\)"),
        (([()], "2"), "observation_shapes must be a list of shapes, .* not '2'"),
        (([()], [(0,)]), "observation_shapes must be a list of shapes"),
        (([()], [()], [()], "int8"), "state_dtypes must be a list of dtypes, one for each shape, not 'int8'"),
    ],
)
def test_what_is_no_list_of_shapes_is_named(given: Any, said: str) -> None:
    with pytest.raises(ContractError, match=said):
        Declared(*given)


def rows(stepper: BatchStepper, actions: list[int], **kwargs: Any) -> list[Any]:
    state = stepper.step(np.array(actions, dtype=float)[:, None], **kwargs)
    ends = np.char.add(np.where(state.terminated, "T", ""), np.where(state.truncated, "t", ""))
    return [
        [*r, *w, e] for r, w, e in zip(state.readings.tolist(), state.rewards.tolist(), ends, strict=True)
    ]


def test_those_that_have_ended_begin_again_while_others_go_on():
    environment = Counters(batch=3, max_steps=4)
    stepper = begun(environment)
    assert rows(stepper, [2, 1, 0], resets=True) == [
        [2, -2, 1, 2, ""],
        [11, -11, 1, 1, ""],
        [20, -20, 1, 0, ""],
    ]
    assert rows(stepper, [1, 1, 0], resets=True) == [
        [3, -3, 1, 1, "T"],
        [12, -12, 1, 1, ""],
        [20, -20, 1, 0, ""],
    ]
    # the first state of 0's next episode: the action 9 is not looked at
    assert rows(stepper, [9, 1, 0], resets=True) == [
        [0, 0, 2, 0, ""],
        [13, -13, 1, 1, "T"],
        [20, -20, 1, 0, ""],
    ]
    # 2 has made 4 steps; 0 has made 1
    assert rows(stepper, [1, 9, 0], resets=True) == [
        [1, -1, 2, 1, ""],
        [10, -10, 2, 0, ""],
        [20, -20, 1, 0, "t"],
    ]
    assert rows(stepper, [0, 0, 0], resets=True) == [
        [1, -1, 2, 0, ""],
        [10, -10, 2, 0, ""],
        [20, -20, 2, 0, ""],
    ]
    stepper.end(np.array([1, 2]))
    assert rows(stepper, [0, 9, 9], resets=True) == [
        [1, -1, 2, 0, ""],
        [10, -10, 3, 0, ""],
        [20, -20, 3, 0, ""],
    ]
    assert environment.asked == [[0, 1, 2], [0], [1], [2], [1, 2]]
    assert environment.actives[2:5] == [[False, True, True], [True, False, True], [True, True, False]]
    # terminated and truncated, or out of time, at once: both hold
    both = broken(get_ends=lambda *a: (np.array([True, False]), np.array([True, True])))
    both.reset()
    assert [e for *_, e in rows(both, [0, 0])] == ["Tt", "t"]
    assert rows(begun(Counters(batch=1, max_steps=1)), [3]) == [[3, -3, 1, 3, "Tt"]]


def test_without_resets_those_that_have_ended_stay_as_they_are():
    stepper = begun(Counters(batch=2, max_steps=2))
    assert rows(stepper, [3, 0]) == [[3, -3, 1, 3, "T"], [10, -10, 1, 0, ""]]
    assert rows(stepper, [3, 0]) == [[3, -3, 1, 0, "T"], [10, -10, 1, 0, "t"]]
    assert rows(stepper, [3, 3]) == [[3, -3, 1, 0, "T"], [10, -10, 1, 0, "t"]]
    assert stepper.states[0].tolist() == [3, 10]
    stepper.reset()
    assert rows(stepper, [1, 1]) == [[1, -1, 2, 1, ""], [11, -11, 2, 1, ""]]


def test_a_state_that_was_given_is_not_written_to_later():
    stepper = begun(Counters(batch=2))
    first = stepper.step(np.array([[3.0], [1.0]]), resets=True)
    kept = [getattr(first, name).copy() for name in ("readings", "rewards", "terminated", "truncated")]
    for _ in range(3):
        stepper.step(np.ones((2, 1)), resets=True)
    for name, then in zip(("readings", "rewards", "terminated", "truncated"), kept, strict=True):
        assert (getattr(first, name) == then).all()


def test_states_that_an_environment_keeps_are_not_written_to():
    kept = np.array([[7.0, 8.0]] * 2), np.array([1, 2], dtype=np.int32)
    stepper = broken(
        state_shapes=((2,), ()),
        get_action_results=lambda *a: (kept, SEEN),
        get_first_states=lambda self, which: (
            [np.zeros((len(which), 2)), kept[1][which]],
            [s[which] for s in SEEN],
        ),
        get_rewards=lambda *a: np.zeros(2),
        get_ends=lambda *a: (np.array([True, False]), NEVER[0]),
    )
    stepper.reset()
    for _ in range(2):
        stepper.step(np.zeros((2, 1)), resets=True)
    assert stepper.states[0].tolist() == [[0, 0], [7, 8]]
    assert kept[0].tolist() == [[7, 8], [7, 8]]


def test_what_an_incarnation_offers():
    class Various(Counters):
        observation_shapes = ((2,), (), (2, 2))
        observation_dtypes = (np.float64, np.int32, np.bool_)
        observation_names = ("place", "count", "bits")
        action_shapes = ((), (2,))
        action_dtypes = (np.int32, np.float64)

        def get_action_spaces(self) -> Any:
            return [Discrete(4, start=2), Box(-1.0, 1.0, shape=(2,))]

    environment = set_up(Various(batch=2))
    assert [(s.uid, s.space.size) for s in environment.baseline.sensors] == [
        ("place", 2),
        ("count", 1),
        ("bits", 4),
    ]
    assert environment.baseline.sensors[2].space == Box(0, 1, shape=(2, 2), dtype=np.int8)
    assert [a.uid for a in environment.baseline.actuators] == ["action", "action_1"]
    # what is nearest to 0 holds until an agent acts
    assert environment.baseline.actuators[0].value == 2
    assert np.array_equal(environment.baseline.actuators[1].value, [0.0, 0.0])
    assert [r.uid for r in environment.baseline.rewards] == ["reward"]


def test_get_action_results_may_take_keywords_and_is_given_none():
    """As AgentNet's environments are written."""
    given = []

    class Written(Counters):
        def get_action_results(self, last_states: Any, actions: Any, **kwargs: Any) -> Any:
            given.append(kwargs)
            return super().get_action_results(last_states, actions)

    stepper = begun(Written(batch=1))
    assert rows(stepper, [2]) == [[2, -2, 1, 2, ""]]
    assert given == [{}]


def test_dtypes_that_are_not_declared():
    """float64 for states and observations, int32 for actions: any other is refused, or was never given."""
    given = []

    class Plain(Counters):
        state_dtypes = observation_dtypes = None

        def get_action_results(self, last_states: Any, actions: Any) -> Any:
            given.append(([one.dtype for one in last_states], [one.dtype for one in actions]))
            return self._with([last_states[0] + actions[0], last_states[1] + 0.5])

        def _with(self, states: Any) -> Any:
            return super()._with([one.astype(np.float64) for one in states])

    stepper = BatchStepper(set_up(Plain(batch=2)))
    stepper.reset()
    assert stepper.step(np.array([[1.0], [2.0]])).readings[:, 2].tolist() == [1.5, 1.5]
    assert given == [([np.dtype(np.float64)] * 2, [np.dtype(np.int32)])]
    with pytest.raises(ContractError, match="state 1 has dtype int32, declared is float64"):
        broken(state_dtypes=None).reset()
    with pytest.raises(ContractError, match="observation 1 has dtype int32, declared is float64"):
        broken(observation_dtypes=None).reset()


def broken(**functions: Any) -> BatchStepper:
    """Return the stepper of an environment with these functions or declarations instead."""
    return BatchStepper(set_up(type("Broken", (Counters,), functions)(batch=2)))


NEVER = (np.zeros(2, bool), np.zeros(2, bool))
SEEN = [np.zeros((2, 2)), np.zeros(2, np.int32)]
WRONG = [
    (
        {"get_action_results": lambda *a: None},
        r"get_action_results must return \(states, observations\), not None",
    ),
    (
        {"get_action_results": lambda *a: ([np.zeros(2)], SEEN)},
        "get_action_results: states must be a list of 2 arrays, found 1",
    ),
    (
        {"get_action_results": lambda *a: (np.zeros((2, 2)), SEEN)},
        "states must be a list of 2 arrays, found ndarray",
    ),
    (
        {"get_first_states": lambda *a: ([np.zeros(2), np.zeros(2)], SEEN)},
        "get_first_states: state 1 has dtype float64, declared is int32",
    ),
    (
        {
            "get_action_results": lambda *a: (
                [np.zeros(2), np.zeros(2, np.int32)],
                [np.zeros((3, 2)), SEEN[1]],
            )
        },
        r"observation 0 has shape \(3, 2\), declared is \(2, 2\): a batch of 2, each \(2,\)",
    ),
    (
        {"get_rewards": lambda *a: np.zeros((2, 2))},
        r"get_rewards returned float64 of shape \(2, 2\).*\(2, 1\) for reward",
    ),
    ({"get_rewards": lambda *a: np.array(["a", "b"])}, "get_rewards returned <U1"),
    ({"get_ends": lambda *a: NEVER[0]}, "terminated is bool of shape"),
    ({"get_ends": lambda *a: 1}, r"get_ends must return \(terminated, truncated\), not 1"),
    ({"get_ends": lambda *a: (NEVER[0], np.zeros(2))}, "truncated is float64 of shape"),
    ({"action_dtypes": (np.int32, np.int32)}, "Broken declares 1 action_shapes, but 2 action_dtypes"),
    ({"observation_names": ("a",)}, "Broken declares 2 observation_shapes, but 1 observation_names"),
    (
        {"get_observation_spaces": lambda self: [Box(0, 1, shape=(3,)), MultiBinary(1)]},
        r"get_observation_spaces: spaces of \[3, 1\] numbers do not go with observation_shapes",
    ),
]


@pytest.mark.parametrize(("functions", "message"), WRONG, ids=range(len(WRONG)))
def test_what_is_not_as_declared_is_named(functions, message):
    with pytest.raises(ContractError, match=message):
        stepper = broken(**functions)
        stepper.reset()
        stepper.step(np.zeros((2, 1)))


def test_a_missing_set_point_of_whole_numbers_is_named():
    stepper = begun(Counters(batch=2))
    with pytest.raises(
        ActionError, match=r"Counters \(environment 'world'\): action 0 of incarnation 1 has no"
    ):
        stepper.step(np.array([[1.0], [np.nan]]))


@pytest.mark.parametrize(
    "params", [{"batch": 0}, {"batch": 2.0}, {"first": -1}, {"max_steps": 0}, {"batch": True}]
)
def test_sizes_that_make_no_sense_are_refused(params):
    ((name, value),) = params.items()
    with pytest.raises(ContractError, match=f"{name} must be a whole number of at least [01], not {value}"):
        Counters(**params)
