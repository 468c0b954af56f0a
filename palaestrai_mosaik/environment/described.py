"""A co-simulation that is described in a run document, or by a Python function.

The document's ``params`` name the simulators, what is created in them, how data flows,
and what agents may see and set::

    params:
      step_size: 900              # ticks between two observations
      end: 86400                  # the episode is truncated at the first state at or after it
      start: 2016-01-01
      simulators:
        storage: {cmd: "%(python)s battery_sim.py %(addr)s", params: {step_size: 900}}
        weather: {python: "mosaik_csv:CSV", params: {...}}
      entities:
        - {uid: battery, simulator: storage, model: Battery, params: {capacity: 2.0}, count: 3}
        - {uid: sun, simulator: weather, model: Sun}
      connections:
        - {from: sun, to: battery-0, attributes: [[G, P_surplus]]}
      sensors:
        - {entity: battery-0, attribute: soc, space: "Box(0, 1, ())"}
      actuators:
        - {entity: battery-0, attribute: P_set, space: "Box(-1, 1, ())", value: 0.0}

or name a function that returns a :class:`CoSimulationPlan`::

    params: {build: "mypackage.grid:plan", params: {size: 3}, step_size: 900}

Simulators join as they are; they need not know of agents.
"""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

from palaestrai_mosaik.errors import ContractError, DocumentError, Problem

from .cosimulation import CoSimulation, CoSimulationPlan
from .described_params import PlanReader
from .environment import EnvironmentBaseline, EnvironmentState, FloatVector
from .plan_check import plan_problems

_CLOCK = ("step_size", "end", "start")
_PARTS = ("simulators", "entities", "connections", "sensors", "actuators")


class DescribedCoSimulation(CoSimulation):
    """A co-simulation made of the simulators that the document's ``params`` describe.

    Parameters
    ----------
    **params
        See the module's text. With ``build``, the description comes from that function,
        which is called once with ``params`` as keywords; without it, from ``simulators``,
        ``entities``, ``connections``, ``sensors`` and ``actuators``.

    Raises
    ------
    DocumentError
        Carries everything that is wrong with ``params``, paths relative to them.
    """

    def __init__(self, **params: Any):
        reader = PlanReader()
        self._plan: CoSimulationPlan | None = None
        if "build" in params:
            reader.mapping(params, "", "a co-simulation with build", (*_CLOCK, "build", "params"))
            self._build = reader.function(params["build"], "build")
            self._build_params = reader.keywords(params.get("params"), "params")
        else:
            reader.mapping(params, "", "a co-simulation", (*_CLOCK, *_PARTS, "build"))
            self._plan = reader.plan(params)
        self.step_size = reader.whole(params.get("step_size", 1), "step_size", least=1)
        end = params.get("end")
        self.end = None if end is None else reader.whole(end, "end", least=1)
        # without an end, only a condition can end an episode: most simulators go on for ever
        self.ends = self.end is not None
        self.start = _date(reader, params.get("start"))
        if reader.problems:
            raise DocumentError(reader.problems)

    def setup(self) -> EnvironmentBaseline:
        """Return the sensors and actuators of the plan; there are no rewards of its own."""
        plan = self.plan()
        return EnvironmentBaseline(
            sensors=[port.information for port in plan.sensors],
            actuators=[port.information for port in plan.actuators],
            start=self.start,
        )

    def plan(self) -> CoSimulationPlan:
        """Return the plan, the same for every episode; simulators start afresh in each."""
        if self._plan is None:
            plan = self._build(**self._build_params)
            if not isinstance(plan, CoSimulationPlan):
                name = getattr(self._build, "__qualname__", self._build)
                raise ContractError(f"build: {name} must return a CoSimulationPlan, found {plan!r}")
            problems = plan_problems(plan)
            if problems:
                raise DocumentError(Problem(p.message, f"build: {p.path}") for p in problems)
            self._plan = plan
        return self._plan

    def judge(self, time: int, readings: FloatVector) -> EnvironmentState:
        """Truncate the episode at the first state whose time is ``end`` or later."""
        return EnvironmentState(readings, truncated=self.end is not None and time >= self.end)


def _date(reader: PlanReader, value: Any) -> datetime | None:
    if value is None or isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    try:
        return datetime.fromisoformat(value)
    except (ValueError, TypeError):
        reader.error(f"must be an ISO date such as 2016-01-31T12:00, found {value!r}", "start")
        return None
