"""The thermostat, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from palaestrai_mosaik.agent.library.thermostat import ThermostatMuscle
from palaestrai_mosaik.core.errors import ContractError
from palaestrai_mosaik.testing import check_muscle
from palaestrai_mosaik.types import ActuatorInformation, Box, SensorInformation


def actions(thermostat: ThermostatMuscle, *readings: float) -> list[float]:
    heating = ActuatorInformation(1.0, Box(1.0, 3.0, shape=()), "heating")
    found = []
    for reading in readings:
        sensor = SensorInformation(reading, Box(-50.0, 50.0, shape=()), "inside")
        (set_,), _ = thermostat.propose_actions([sensor], [heating])
        found.append(float(np.asarray(set_.value)))
    return found


def test_it_keeps_the_contract_of_muscles():
    sensors = [SensorInformation(0.0, Box(-50.0, 50.0, shape=()), "inside")]
    check_muscle(ThermostatMuscle, sensors, [ActuatorInformation(0.0, Box(0.0, 3.0, shape=()), "heating")])


def test_between_the_thresholds_it_stays_as_it_is():
    thermostat = ThermostatMuscle(on_below=20.0, off_above=21.0)
    assert actions(thermostat, 20.5, 19.9, 20.5, 21.1, 20.5) == [1.0, 3.0, 3.0, 1.0, 1.0]
    actions(thermostat, 19.0)
    thermostat.reset()
    assert actions(thermostat, 20.5) == [1.0]


def test_thresholds_in_the_wrong_order_are_refused():
    with pytest.raises(ContractError, match="on_below must be at most off_above, found 21"):
        ThermostatMuscle(21.0, 20.0)
