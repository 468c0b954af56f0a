"""The power grid as an environment: a co-simulation of profiles, inverters, storages and power flow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np

from palaestrai_mosaik.core.errors import DocumentError, Problem
from palaestrai_mosaik.environment.cosimulation import (
    ConnectionSpec,
    CoSimulation,
    CoSimulationPlan,
    EntitySpec,
    SimulatorSpec,
)
from palaestrai_mosaik.environment.devices import Inverters, Storages
from palaestrai_mosaik.environment.environment import EnvironmentBaseline, EnvironmentState
from palaestrai_mosaik.types.arrays import FloatVector

from .channels import ACTUATOR_GROUPS, CONVERGED, SENSOR_GROUPS, Channels, chosen_groups
from .episode_starts import Start, parameter_problems, require_room, start_rows, stride_of
from .network import Grid, load_grid
from .power_flow import OnDivergence, PowerFlow, PowerFlowResult, PowerGrid
from .power_flow_factory import make_power_flow
from .simulators import (
    GridSimulator,
    InverterSimulator,
    PowerGridSimulator,
    ProfileSimulator,
    StorageSimulator,
)
from .topology import grid_topology

EpisodeStarts = Literal["fixed", "random", "sequential"]

_DAY = 96

#: the profiles have no other input to wait for, and they feed all other simulators
CLOCKS = [("Profiles", "clock")]


class GridEnvironment(CoSimulation):
    """A medium-voltage (or any other) grid with profiles, inverters and storages.

    At tick t, all powers and the power flow of t are computed together, with the set-points that
    agents sent before t. One tick is one step of ``step`` seconds. The episode is truncated with state
    number ``steps``, and terminated if the power flow has no solution. The environment has no rewards
    itself: name one, such as :class:`~palaestrai_mosaik.environment.grid.rewards.GridReward`, in the
    document.

    Sensors and actuators are numbered by the index of the net's tables and ordered group
    by group (see :mod:`.channels`):

    - sensors ``grid.converged`` (always), ``bus-<i>.vm_pu`` (p.u.), ``line-<i>.loading``,
      ``trafo-<i>.loading`` (%), ``ext_grid-<i>.p_mw``, ``ext_grid-<i>.q_mvar`` (fed into
      the grid), ``load-<i>.p_mw``, ``sgen-<i>.vm_pu`` (at its bus), ``sgen-<i>.p_mw``, ``sgen-<i>.q_mvar``,
      ``storage-<i>.p_mw`` (positive charges), ``storage-<i>.soc`` (0 to 1);
    - actuators ``sgen-<i>.q_mvar``, ``storage-<i>.p_mw``, ``trafo-<i>.tap_pos``,
      ``load-<i>.scaling``, ``line-<i>.in_service``.

    Args:
        grid: name of the grid, see :func:`~palaestrai_mosaik.environment.grid.network.load_grid`.
        start: the start of the episode: a date (``2016-06-01``, ISO) or a row of the profiles; or a list of
            starts and periods to choose from (see :func:`.episode_starts.start_rows`).
        steps: states of an episode (96 are a day); also the largest number of an agent's actions + 1.
        step: seconds between two states, a multiple of the profiles' resolution (900).
        sensors, actuators: ``all``, or a list of elements (``bus``) and groups (``sgen.q_mvar``).
        episode_starts: ``fixed``: all episodes start at ``start``; ``sequential``: each starts at the end of
            the one before, from ``start`` again after the end of the profiles; ``random``: at any row that
            leaves room for a whole episode. With a list of starts, ``sequential`` cycles through it, one
            per episode, and ``random`` draws one.
        on_divergence: ``terminate`` the episode, with the readings of the last solved state, or ``fail``
            with :class:`~palaestrai_mosaik.core.errors.PowerFlowError`.
        initial_soc: state of charge of all storages at the start of an episode.
        enforce_q_lims: keep generators within their reactive limits (solved by ``pandapower.runpp``, slow).

    Raises:
        DocumentError: lists all problems of the parameters.
    """

    shares_setup = True

    def __init__(  # noqa: PLR0913 (the params of a document)
        self,
        grid: str = "cigre_mv",
        *,
        start: Start | Sequence[Start | Mapping[str, Any]] = 0,
        steps: int = _DAY,
        step: int = 900,
        sensors: str | Sequence[str] = "all",
        actuators: str | Sequence[str] = "all",
        episode_starts: EpisodeStarts = "fixed",
        on_divergence: OnDivergence = "terminate",
        initial_soc: float = 0.5,
        enforce_q_lims: bool = False,
    ):
        problems: list[Problem] = []
        self.sensor_groups = chosen_groups(sensors, SENSOR_GROUPS, "sensors", problems)
        self.actuator_groups = chosen_groups(actuators, ACTUATOR_GROUPS, "actuators", problems)
        choices: dict[str, tuple[Any, Sequence[str]]] = {
            "episode_starts": (episode_starts, get_args(EpisodeStarts)),
            "on_divergence": (on_divergence, get_args(OnDivergence)),
        }
        problems += parameter_problems(choices, {"steps": (steps, 1), "step": (step, 1)}, initial_soc)
        self._listed = isinstance(start, Sequence) and not isinstance(start, str)
        if self._listed and episode_starts == "fixed":
            message = "a list of starts to choose from needs 'sequential' or 'random', not 'fixed'"
            problems.append(Problem(message, "episode_starts"))
        if problems:
            raise DocumentError(problems)
        self.grid_name, self.start, self.steps, self.step = grid, start, steps, step
        self.episode_starts, self.on_divergence = episode_starts, on_divergence
        self.initial_soc, self.enforce_q_lims = initial_soc, enforce_q_lims
        self.grid: Grid
        self.power_flow: PowerFlow
        self._first_row = self._row = 0

    def setup(self) -> EnvironmentBaseline:
        self.grid = load_grid(self.grid_name)
        self._stride = stride_of(self.step, self.grid.profiles)
        self._starts = self._find_starts()
        self._first_row = self._row = self._starts[0]
        net = self.grid.net
        self.power_flow = make_power_flow(net, self.enforce_q_lims)
        inverters, storages = self._inverters(), self._storages()
        self._at_start = result = self._solve_start(inverters, storages)
        readings = {
            ("PowerGrid", output): getattr(result, name)
            for output, name in PowerGridSimulator.RESULTS.items()
        }
        readings["Storages", "soc"] = storages.soc
        self._channels = Channels(net, readings, {"q_set": inverters.rating, "p_set": storages.rating})
        self._channels.add_sensors(self.sensor_groups)
        self._channels.add_actuators(self.actuator_groups)
        sensors = [port.information for port in self._channels.sensors]
        actuators = [port.information for port in self._channels.actuators]
        uids = [sensor.uid for sensor in sensors]
        self._converged = uids.index(CONVERGED)
        model: dict[str, Any] = {"grid": self.grid_name, "power_flow": type(self.power_flow).__name__}
        if self.episode_starts == "fixed":
            # together with the start, it dates every tick; other episodes have other starts
            model["seconds_per_tick"] = self.step / self.step_size
        return EnvironmentBaseline(
            sensors,
            actuators,
            start=self.grid.profiles.date_of(self._first_row),
            world_model=model,
            topology=grid_topology(net, set(uids), {actuator.uid for actuator in actuators}),
        )

    def reset(self) -> None:
        """Choose the row of the profiles in which the episode starts."""
        available, starts = self.grid.profiles.steps, self._starts
        if self._listed:
            drawn = self.episode_starts == "random"
            self._row = starts[int(self.rng.integers(len(starts))) if drawn else self.episode % len(starts)]
        elif available is None or self.episode_starts == "fixed":
            self._row = self._first_row
        elif self.episode_starts == "sequential":
            span = self.steps * self._stride
            whole = max((available - self._first_row) // span, 1)
            self._row = self._first_row + self.episode % whole * span
        else:
            last = available - ((self.steps - 1) * self._stride + 1)
            self._row = int(self.rng.integers(0, last + 1))

    def plan(self) -> CoSimulationPlan:
        net = self.grid.net
        # in the order of data flow
        factories: dict[str, Callable[[], GridSimulator]] = {
            "Profiles": lambda: ProfileSimulator(self.grid.profiles, self._row, self._stride, **self._clock)
        }
        fixed = [("load_p", "load_p"), ("load_q", "load_q")]
        if len(net.gen):
            fixed.append(("gen_p", "gen_p"))
        connections = [ConnectionSpec("Profiles", "PowerGrid", fixed)]
        if len(net.sgen):
            factories["Inverters"] = lambda: InverterSimulator(self._inverters(), **self._clock)
            connections.append(ConnectionSpec("Profiles", "Inverters", [("sgen_p", "p_available")]))
            connections.append(ConnectionSpec("Inverters", "PowerGrid", [("p", "sgen_p"), ("q", "sgen_q")]))
        if len(net.storage):
            factories["Storages"] = lambda: StorageSimulator(self._storages(), **self._clock)
            connections.append(ConnectionSpec("Profiles", "Storages", [("storage_p", "p_profile")]))
            connections.append(ConnectionSpec("Storages", "PowerGrid", [("p", "storage_p")]))
            if "storage.p_mw" in self.actuator_groups:
                taken = [("storage_p_mw", "p_taken")]
                first = {"storage_p_mw": np.zeros(len(net.storage))}
                connections.append(
                    ConnectionSpec("PowerGrid", "Storages", taken, time_shifted=1, initial=first)
                )
        factories["PowerGrid"] = lambda: PowerGridSimulator(
            PowerGrid(self.power_flow, self._at_start, self.on_divergence), **self._clock
        )
        channels = self._channels
        simulators = [SimulatorSpec(name.lower(), factory=make) for name, make in factories.items()]
        entities = [EntitySpec(name, name.lower(), name) for name in factories]
        return CoSimulationPlan(
            simulators, entities, connections, channels.sensors, channels.actuators, CLOCKS
        )

    def judge(self, time: int, readings: FloatVector) -> EnvironmentState:
        """Terminate if the power flow has no solution; truncate at the last step."""
        return EnvironmentState(
            readings,
            terminated=bool(readings[self._converged] < 0.5),
            truncated=time // self.step_size + 1 >= self.steps,
        )

    @property
    def _clock(self) -> dict[str, int]:
        return {"step_size": self.step_size, "steps": self.steps}

    def _inverters(self) -> Inverters:
        return Inverters.of(self.grid.net)

    def _storages(self) -> Storages:
        return Storages.of(self.grid.net, self.initial_soc, self.step / 3600.0)

    def _solve_start(self, inverters: Inverters, storages: Storages) -> PowerFlowResult:
        load_p, load_q, sgen_p, storage_p, gen_p = self.grid.profiles.at(self._row)
        self.power_flow.reset()
        p, _ = storages.step(storage_p)
        return self.power_flow.solve(load_p, load_q, *inverters.step(sgen_p), p, gen_p)

    def _find_starts(self) -> list[int]:
        rows = start_rows(self.start, self.grid.profiles)
        anywhere = self.episode_starts == "random" and not self._listed
        require_room(self.grid, 0 if anywhere else max(rows), self.steps, self.step)
        return rows
