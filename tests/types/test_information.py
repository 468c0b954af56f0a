"""Readings, set-points and rewards: names old and new, checks, equality."""

import copy
import pickle

import numpy as np
import pytest

from palaestrai_mosaik.core.errors import ActionError, ContractError
from palaestrai_mosaik.types import (
    ActuatorInformation,
    Box,
    Discrete,
    RewardInformation,
    SensorInformation,
    Tuple,
)


def test_a_reading_has_its_older_names_too():
    sensor = SensorInformation(0.5, Box(0, 1, ()), "env.a")
    assert (sensor.sensor_value, sensor.observation_space, sensor.sensor_id, sensor.id) == (
        0.5,
        Box(0, 1, ()),
        "env.a",
        "env.a",
    )
    assert sensor() == 0.5
    sensor.sensor_value = 0.75
    sensor.sensor_id = "env.b"
    assert (sensor.value, sensor.uid) == (0.75, "env.b")


def test_length_is_the_number_of_places():
    space = Tuple(Discrete(7), Box(0, 1, (2, 2)))
    assert len(SensorInformation((1, np.zeros((2, 2))), space, "s")) == 5
    assert len(ActuatorInformation(3, Discrete(7), "a")) == 1


def test_a_setpoint_has_its_older_names_too():
    actuator = ActuatorInformation(None, Discrete(5), "env.a")
    actuator.setpoint = 3
    assert (actuator.value, actuator.setpoint) == (3, 3)
    actuator(4)
    assert actuator.value == 4
    assert (actuator.action_space, actuator.actuator_id, actuator.id) == (Discrete(5), "env.a", "env.a")
    actuator.value = None
    assert actuator.value is None


@pytest.mark.parametrize("value", [5, -1, 2.5, np.nan, "1", [1, 2]])
def test_a_setpoint_outside_its_space_is_an_error_and_changes_nothing(value):
    actuator = ActuatorInformation(1, Discrete(5), "env.a")
    for assign in (
        lambda: setattr(actuator, "value", value),
        lambda: setattr(actuator, "setpoint", value),
        lambda: actuator(value),
        lambda: ActuatorInformation(value, Discrete(5), "env.a"),
    ):
        with pytest.raises(ActionError) as caught:
            assign()
        for part in (repr(value), "'env.a'", "Discrete(5)"):
            assert part in str(caught.value)
    assert actuator.value == 1


def test_an_actuator_needs_a_space():
    with pytest.raises(ContractError, match="has no space"):
        ActuatorInformation(uid="env.a")


def test_equality_compares_arrays():
    box = Box(0, 1, (2,))
    assert SensorInformation(np.array([0, 1]), box, "s") == SensorInformation([0.0, 1.0], box, "s")
    assert SensorInformation(np.array([0, 1]), box, "s") != SensorInformation([0.0, 0.0], box, "s")
    assert SensorInformation(0, Discrete(2), "s") != SensorInformation(0, Discrete(3), "s")
    assert SensorInformation(0, Discrete(2), "s") != SensorInformation(0, Discrete(2), "t")
    assert ActuatorInformation([0, 1], box, "s") == ActuatorInformation(np.array([0, 1]), box, "s")
    assert ActuatorInformation(None, box, "s") != ActuatorInformation([0, 1], box, "s")
    assert ActuatorInformation(0, Discrete(2), "s") != SensorInformation(0, Discrete(2), "s")


@pytest.mark.parametrize("pass_on", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_informations_are_copied_and_pickled(pass_on):
    for original in (
        SensorInformation(np.array([0.5]), Box(0, 1, (1,)), "s"),
        ActuatorInformation(3, Discrete(5), "a"),
    ):
        twin = pass_on(original)
        assert twin == original
        assert twin is not original
    reward = pass_on(RewardInformation(1.0, Box(-np.inf, np.inf, ()), "r"))
    assert (reward.value, reward.uid, reward.space) == (1.0, "r", Box(-np.inf, np.inf, ()))


def test_a_deep_copied_actuator_still_samples():
    actuator = ActuatorInformation(None, Discrete(5).bound(np.random.default_rng(1)), "a")
    twin = copy.deepcopy(actuator)
    twin(twin.space.sample())
    assert twin.value in Discrete(5)


def test_a_reward_has_its_older_names_too():
    reward = RewardInformation(2.0, Box(0, 10, ()), "steps")
    assert (reward.reward_value, reward.reward_id, reward.observation_space, reward()) == (
        2.0,
        "steps",
        Box(0, 10, ()),
        2.0,
    )


def test_they_print_what_they_are():
    assert (
        repr(SensorInformation(1, Discrete(2), "s"))
        == "SensorInformation(value=1, space=Discrete(2), uid='s')"
    )
    assert repr(ActuatorInformation(None, Discrete(2), "a")) == (
        "ActuatorInformation(value=None, space=Discrete(2), uid='a')"
    )
    assert (
        repr(RewardInformation(1, Discrete(2), "r"))
        == "RewardInformation(value=1, space=Discrete(2), uid='r')"
    )
