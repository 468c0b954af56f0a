"""A house with a heat pump and solar panels, for controllers that trade comfort for cost."""

from __future__ import annotations

import math

import numpy as np

from palaestrai_mosaik.core.errors import ContractError
from palaestrai_mosaik.types import ActuatorInformation, Box, RewardInformation, SensorInformation
from palaestrai_mosaik.types.arrays import FloatVector

from .environment import Environment, EnvironmentBaseline, EnvironmentState

#: hours of sunrise, of sunset and of the highest temperature
_SUNRISE, _SUNSET, _WARMEST = 8.0, 16.0, 15.0
#: difference between the highest and the lowest temperature of a day, in kelvin, without noise
_SWING = 6.0
#: temperature of the water in the radiators in degrees Celsius
_FLOW = 35.0


def coefficient_of_performance(outside: float) -> float:
    """Return the heat that an air-source heat pump gives per unit of electricity, at ``outside`` degrees Celsius.

    ``6.81 - 0.121 d + 0.000630 d**2`` for a lift of d kelvin, here from the air to water of 35 degrees; lifts are limited to
    15 to 60 kelvin, for which the curve was fitted. Source: Staffell, Brett, Brandon and Hawkes 2012, "A review of domestic
    heat pumps", Energy & Environmental Science 5.
    """
    lift = min(max(_FLOW - outside, 15.0), 60.0)
    return 6.81 - 0.121 * lift + 0.000630 * lift**2


class Building(Environment):
    """A house in winter: one zone, a heat pump, solar panels on the roof, and a tariff.

    A tick is a minute, a step a quarter of an hour (``step_size`` 15). The zone has one temperature T with
    ``C dT/dt = H (T_outside - T) + P COP + gain``, solved exactly over a step in which all else is constant.

    Sensors: ``inside`` and ``outside`` (degrees Celsius), ``pv`` (kW that the panels give) and ``hour`` (0 to 24). Actuator:
    ``heat_pump`` (kW of electricity, 0 to 3). Rewards, of the step that has passed: ``comfort``, minus the kelvin hours by
    which ``inside`` is out of 20 to 22 degrees, and ``cost``, minus the price of the heat pump's electricity in euros: solar
    power that it uses is not sold. The weather of an episode is drawn at its start and no set-point changes it:
    the mean temperature of each day, noise with a memory of hours, and clouds.

    Args:
        days: length of an episode in days, at least 1.
        outside: mean temperature outside in degrees Celsius, over all episodes.
        loss: H, heat that the zone loses per kelvin, in kW/K, above 0.
        capacity: C, heat that warms the zone by a kelvin, in kWh/K, above 0.
        gain: heat of people, lamps and windows in kW.
        pv: rated power of the panels in kW, 0 or more; a clear noon of this winter gives half of it.
        buy: price of electricity from the grid in euros per kWh.
        sell: price of electricity to the grid in euros per kWh, at most ``buy``.
    """

    step_size = 15

    def __init__(  # noqa: PLR0913  (independent properties of the house, all optional)
        self,
        days: int = 1,
        outside: float = 2.0,
        loss: float = 0.15,
        capacity: float = 6.0,
        gain: float = 0.3,
        pv: float = 5.0,
        buy: float = 0.30,
        sell: float = 0.08,
    ):
        if days < 1 or loss <= 0 or capacity <= 0 or pv < 0 or sell > buy:
            raise ContractError(
                "a building has days of 1 or more, loss and capacity above 0, pv of 0 or more, and sell of at most buy; "
                f"found {days!r}, {loss!r}, {capacity!r}, {pv!r} and {sell!r} with {buy!r}"
            )
        self.days, self.outside, self.loss, self.capacity = days, outside, loss, capacity
        self.gain, self.pv, self.buy, self.sell = gain, pv, buy, sell

    def setup(self) -> EnvironmentBaseline:
        temperature = Box(-60.0, 60.0, shape=())
        return EnvironmentBaseline(
            sensors=[
                SensorInformation(20.0, temperature, "inside", unit="°C"),
                SensorInformation(0.0, temperature, "outside", unit="°C"),
                SensorInformation(0.0, Box(0.0, max(self.pv, 1.0), shape=()), "pv", unit="kW"),
                SensorInformation(0.0, Box(0.0, 24.0, shape=()), "hour", unit="h"),
            ],
            actuators=[ActuatorInformation(0.0, Box(0.0, 3.0, shape=()), "heat_pump")],
            rewards=[
                RewardInformation(0.0, Box(-80.0, 0.0, shape=()), "comfort"),
                RewardInformation(0.0, Box(-3.0, 3.0, shape=()), "cost"),
            ],
        )

    def reset(self) -> EnvironmentState:
        self._now, self._inside, self._comfort, self._cost = 0, 20.0, 0.0, 0.0
        self._draw_weather(math.ceil(self.days * 24 * 60 / self.step_size) + 1)
        return self._state()

    def step(self, setpoints: FloatVector) -> EnvironmentState:
        outside, sun = self._weather()
        power, hours = float(setpoints[0]), self.step_size / 60
        heat = power * coefficient_of_performance(outside) + self.gain
        settled = outside + heat / self.loss
        self._inside = settled + (self._inside - settled) * math.exp(-hours * self.loss / self.capacity)
        bought = max(power - sun, 0.0)
        self._cost = (self.buy * bought + self.sell * (power - bought)) * hours
        self._comfort = max(20.0 - self._inside, self._inside - 22.0, 0.0) * hours
        self._now += self.step_size
        return self._state()

    def _draw_weather(self, states: int) -> None:
        """Draw the temperature outside and the power of the panels for each state of the episode."""
        hours = np.arange(states) * self.step_size / 60
        hour = hours % 24
        day = (hours // 24).astype(int)
        daily = self.rng.normal(0.0, 3.0, day[-1] + 1)[day]
        noise = np.zeros(states)
        drawn = self.rng.normal(0.0, 0.2, states)
        for k in range(1, states):
            noise[k] = 0.97 * noise[k - 1] + drawn[k]
        swing = _SWING / 2 * np.cos((hour - _WARMEST) / 24 * 2 * np.pi)
        self._outside = np.clip(self.outside + daily + swing + noise, -30.0, 50.0)
        height = np.sin((hour - _SUNRISE) / (_SUNSET - _SUNRISE) * np.pi)
        clear = self.rng.uniform(0.1, 1.0, day[-1] + 1)[day]
        self._sun = 0.5 * self.pv * clear * np.where((hour > _SUNRISE) & (hour < _SUNSET), height, 0.0)

    def _weather(self) -> tuple[float, float]:
        state = self._now // self.step_size
        return float(self._outside[state]), float(self._sun[state])

    def _state(self) -> EnvironmentState:
        outside, sun = self._weather()
        return EnvironmentState(
            readings=np.array([self._inside, outside, sun, self._now / 60 % 24]),
            rewards=[-self._comfort, -self._cost],
            truncated=self._now >= self.days * 24 * 60,
        )
