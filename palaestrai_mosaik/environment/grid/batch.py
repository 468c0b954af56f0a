"""Many copies of a grid, each with its own start date, as one batched environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import groupby
from operator import attrgetter
from typing import Any, ClassVar, get_args

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.core.errors import DocumentError, PowerFlowError, Problem
from palaestrai_mosaik.environment.batch import Arrays, BatchEnvironment
from palaestrai_mosaik.environment.devices import Inverters, Storages
from palaestrai_mosaik.environment.environment import EnvironmentBaseline
from palaestrai_mosaik.types import Space
from palaestrai_mosaik.types.arrays import BoolVector, FloatMatrix, IndexVector

from .channels import ACTUATOR_GROUPS, SENSOR_GROUPS, Channels, chosen_groups
from .environment import EpisodeStarts
from .episode_starts import Start, parameter_problems, require_room, start_rows, stride_of
from .network import Grid, load_grid
from .power_flow import OnDivergence
from .power_flow_factory import PandapowerPowerFlow, make_power_flow, uncovered_features
from .rewards import GridReward
from .topology import grid_topology

_DAY = 96

#: the groups of sensors that are results of the power flow, in the order of a result row
_RESULTS = ("bus.vm_pu", "line.loading", "trafo.loading", "ext_grid.p_mw", "ext_grid.q_mvar")


class BatchGridEnvironment(BatchEnvironment):
    """``batch`` copies of a grid, each on its own day, solved in one call.

    An incarnation equals a :class:`~.environment.GridEnvironment` with the same parameters:
    it has the same sensors and actuators (``<uid>.<k>.bus-3.vm_pu``), devices and ends, and the same
    numbers (to 1e-9 p.u., because the solver starts from the same voltages). An incarnation whose power
    flow has no solution terminates; the others continue. The parameter ``rewards`` adds those of
    :class:`~.rewards.GridReward`.

    The state of an incarnation: its row of the profiles; energy of the storages (MWh); complex
    voltages (p.u.), the start of the next solution; results of the last solved power flow.

    Args:
        batch, first: number of incarnations, and the number of the first one.
        grid, steps, step, sensors, actuators, on_divergence, initial_soc: those of
            :class:`~.environment.GridEnvironment`; there are at least two ``steps``.
        start, spread: the start of episodes: a date or a row, for incarnation k ``k * spread`` days later; or
            a list of starts and periods (see :func:`.episode_starts.start_rows`); incarnation k takes
            number k, modulo its length.
        episode_starts: ``fixed``: all episodes of an incarnation start where its first did; ``sequential``
            (with a list): each episode of the phase advances by one in the list; ``random``: each draws one
            from the list, or, without one, any row that leaves room for a whole episode.
        rewards: the parameters of :class:`~.rewards.GridReward` (``terms``, ``total``, ``band_low``,
            ``band_high``); ``None`` for no rewards.

    Raises:
        DocumentError: lists all problems of the parameters.
    """

    shares_setup = True
    flat_observations: ClassVar[bool] = True
    flat_actions: ClassVar[bool] = True

    def __init__(  # noqa: PLR0913 (the params of a document)
        self,
        grid: str = "cigre_mv",
        *,
        batch: int = 1,
        first: int = 0,
        start: Start | Sequence[Start | Mapping[str, Any]] = 0,
        spread: int = 0,
        steps: int = _DAY,
        step: int = 900,
        sensors: str | Sequence[str] = "all",
        actuators: str | Sequence[str] = "all",
        episode_starts: EpisodeStarts = "fixed",
        on_divergence: OnDivergence = "terminate",
        initial_soc: float = 0.5,
        rewards: Mapping[str, Any] | None = None,
    ):
        problems: list[Problem] = []
        self.sensor_groups = chosen_groups(sensors, SENSOR_GROUPS, "sensors", problems)
        self.actuator_groups = chosen_groups(actuators, ACTUATOR_GROUPS, "actuators", problems)
        choices = {
            "episode_starts": (episode_starts, get_args(EpisodeStarts)),
            "on_divergence": (on_divergence, get_args(OnDivergence)),
        }
        counts = {"steps": (steps, 2), "step": (step, 1), "spread": (spread, 0)}
        problems += parameter_problems(choices, counts, initial_soc)
        self._listed = isinstance(start, Sequence) and not isinstance(start, str)
        if episode_starts == "sequential" and not self._listed:
            problems.append(Problem("'sequential' needs a list of starts", "episode_starts"))
        if spread and (self._listed or episode_starts == "random"):
            problems.append(
                Problem("'spread' goes with one fixed start, not with a list or 'random'", "spread")
            )
        if problems:
            raise DocumentError(problems)
        super().__init__(batch=batch, first=first, max_steps=steps - 1)
        self.grid_name, self.start, self.spread, self.steps, self.step = grid, start, spread, steps, step
        self.episode_starts, self.on_divergence, self.initial_soc = episode_starts, on_divergence, initial_soc
        self._reward = None if rewards is None else GridReward(**rewards)

    def setup(self) -> EnvironmentBaseline:
        self.grid: Grid = load_grid(self.grid_name)
        self._stride = stride_of(self.step, self.grid.profiles)
        self._rows = self._find_rows()
        self._flow = self._power_flow()
        net = self.grid.net
        self._inverters = Inverters.of(net)
        self._storages = Storages.of(net, self.initial_soc, self.step / 3600.0)
        self._taps, self._lines = self._flow.power_flow.tap_pos, self._flow.power_flow.line_in_service
        self._sgen_columns = 1 + net.bus.index.get_indexer(net.sgen.bus)
        self._declare_channels()
        baseline = super().setup()
        baseline.world_model = {"grid": self.grid_name, "power_flow": type(self._flow).__name__}
        baseline.topology = grid_topology(
            net, set(self.observation_names or ()), set(self.action_names or ())
        )
        return baseline

    def _find_rows(self) -> npt.NDArray[np.int64]:
        """Return the rows that episodes may start from; without a list, one for each incarnation."""
        profiles = self.grid.profiles
        rows = np.array(start_rows(self.start, profiles), dtype=np.int64)
        if not self._listed:
            day = timedelta(days=self.spread).total_seconds() / profiles.resolution
            rows = rows + int(day) * (self.first + np.arange(self.batch))
        anywhere = self.episode_starts == "random" and not self._listed
        require_room(self.grid, 0 if anywhere else int(rows.max()), self.steps, self.step)
        return rows

    def _power_flow(self) -> Any:
        net = self.grid.net
        why = ", ".join(uncovered_features(net))
        flow = None if why else make_power_flow(net)
        if flow is None or isinstance(flow, PandapowerPowerFlow):
            message = (
                f"{self.grid_name!r} cannot be solved many at a time ({why or 'see the warning'}); "
                "GridEnvironment solves it, one state after the other"
            )
            raise DocumentError([Problem(message, "grid")])
        # imported here, because they need numba, and GridEnvironment works without it
        from .batch_power_flow import BatchPowerFlow
        from .fast_power_flow import FastPowerFlow

        assert isinstance(flow, FastPowerFlow)
        return BatchPowerFlow(flow)

    def _declare_channels(self) -> None:
        """Declare sensors, actuators, states and rewards, and locate the set-points in the flat arrays."""
        net, channels = self.grid.net, self._channels()
        channels.add_sensors(self.sensor_groups)
        channels.add_actuators(self.actuator_groups)
        sensors = [port.information for port in channels.sensors]
        actuators = [port.information for port in channels.actuators]
        self.observation_names, self.action_names = [s.uid for s in sensors], [a.uid for a in actuators]
        self._spaces = [s.space for s in sensors], [a.space for a in actuators]
        self.observation_shapes, self.action_shapes = [()] * len(sensors), [()] * len(actuators)
        self._idle = np.array([np.nan if a.value is None else float(a.value) for a in actuators])
        #: attribute -> (columns of the actions, indices of the elements)
        self._set: dict[str, tuple[slice, npt.NDArray[np.int64]]] = {}
        end = 0
        for attribute, ports in groupby(channels.actuators, attrgetter("attribute")):
            elements = np.array([port.index for port in ports], dtype=np.int64)
            self._set[attribute] = slice(end, end + len(elements)), elements
            end += len(elements)
        self._switches = bool({"tap_pos", "line_in_service"} & set(self._set))
        self.reward_names = []
        if self._reward is not None:
            results = self._channels()
            results.add_sensors(_RESULTS)
            readings = [port.information for port in results.sensors]
            self.reward_names = [
                reward.uid for reward in self._reward.setup(EnvironmentBaseline(readings, []))
            ]
        self.state_shapes = ((), (len(net.storage),), self._flow.cold.shape, (self._flow.width,))
        self.state_dtypes = (np.int64, np.float64, np.complex128, np.float64)

    def _channels(self) -> Channels:
        net = self.grid.net
        zeros = {
            attribute: np.zeros(len(net[group.split(".")[0]])) for group, attribute in SENSOR_GROUPS.items()
        }
        zeros["PowerGrid", "vm_pu"] = np.zeros(len(net.bus))
        limits = {"q_set": self._inverters.rating, "p_set": self._storages.rating}
        return Channels(net, zeros, limits)

    def get_observation_spaces(self) -> Sequence[Space]:
        return self._spaces[0]

    def get_action_spaces(self) -> Sequence[Space]:
        return self._spaces[1]

    def get_idle_actions(self) -> Arrays:
        return [self._idle.copy()]

    def get_first_states(self, incarnations: IndexVector) -> tuple[Arrays, Arrays]:
        count, flow = len(incarnations), self._flow
        rows = self._first_rows(incarnations)
        states = [
            rows,
            np.repeat(self._storages.energy[None], count, axis=0),
            np.repeat(flow.cold[None], count, axis=0),
            np.zeros((count, flow.width)),
        ]
        idle = np.repeat(self._idle[None], count, axis=0)
        new, observations, reasons = self._advance(states, rows, idle, np.ones(count, dtype=bool))
        for index, reason in reasons.items():
            # an episode cannot start without a solved state
            raise PowerFlowError(f"{self._who(int(incarnations[index]))}, row {rows[index]}: {reason}")
        return new, observations

    def _first_rows(self, incarnations: IndexVector) -> npt.NDArray[np.int64]:
        rows, numbers = self._rows, self.first + incarnations
        if self._listed and self.episode_starts == "random":
            return rows[[int(self.rngs[k].integers(len(rows))) for k in incarnations]]
        if self._listed:
            further = self.episode if self.episode_starts == "sequential" else 0
            return rows[(numbers + further) % len(rows)]
        available = self.grid.profiles.steps
        if self.episode_starts == "fixed" or available is None:
            return rows[incarnations]
        last = available - ((self.steps - 1) * self._stride + 1)
        return np.array([self.rngs[k].integers(0, last + 1) for k in incarnations], dtype=np.int64)

    def get_action_results(self, last_states: Arrays, actions: Arrays) -> tuple[Arrays, Arrays]:
        rows = np.where(self.active, last_states[0] + self._stride, last_states[0])
        new, observations, reasons = self._advance(last_states, rows, actions[0], self.active)
        if self.on_divergence == "fail":
            for index, reason in reasons.items():
                raise PowerFlowError(f"{self._who(index)}, row {rows[index]}: {reason}")
        return new, observations

    def get_rewards(self, last_states: Arrays, actions: Arrays, new_states: Arrays) -> FloatMatrix:
        if self._reward is None:
            return np.empty((self.batch, 0))
        return self._reward.of_many(new_states[3])

    def get_ends(self, new_states: Arrays) -> tuple[BoolVector, BoolVector]:
        """Return terminated, if the power flow has no solution, and no truncation but by ``max_steps``."""
        return new_states[3][:, 0] < 0.5, np.zeros(self.batch, dtype=bool)

    def _who(self, incarnation: int) -> str:
        return f"{self.uid or type(self).__name__}.{incarnation}"

    def _advance(
        self, last: Arrays, rows: npt.NDArray[np.int64], actions: FloatMatrix, active: BoolVector
    ) -> tuple[list[Any], list[FloatMatrix], dict[int, str]]:
        """Compute the states and observations at ``rows``, and the reasons of power flows without a solution.

        Only ``active`` incarnations are solved; the results of the others do not change.
        """
        _, energy, voltage, results = last
        flow = self._flow
        p, q = flow.follow(self.grid.profiles, rows)
        load_p, sgen_p, storage_p = p[:, flow.loads], p[:, flow.sgens], p[:, flow.storages]
        if "load_scaling" in self._set:
            scaling = self._in_force("load_scaling", actions, np.ones(load_p.shape[1]))
            load_p *= scaling
            q[:, flow.loads] *= scaling
        sgen_q = q[:, flow.sgens]
        if "q_set" in self._set:
            wish = actions[:, self._set["q_set"][0]]
            sgen_q[:] = self._inverters.reactive_power(sgen_p, wish, ~np.isnan(wish))
        else:
            sgen_q[:] = self._inverters.own_q
        after = energy
        if "p_set" in self._set:
            wish = actions[:, self._set["p_set"][0]]
            storage_p[:], after = self._storages.exchange(energy, storage_p, wish, ~np.isnan(wish))
        switched = None
        if self._switches:
            switched = (
                self._in_force("line_in_service", actions, self._lines.astype(float)) > 0.5,
                self._in_force("tap_pos", actions, self._taps),
            )
        voltage, results = voltage.copy(), results.copy()
        reasons = flow.solve((p, q), voltage, results, np.flatnonzero(active).astype(np.int64), switched)
        if after is not energy:
            # a storage without voltage exchanges nothing
            after = np.where(results[:, flow.columns["storage_p_mw"]] == storage_p, after, energy)
        return [rows, after, voltage, results], [self._observe(results, energy)], reasons

    def _in_force(self, attribute: str, actions: FloatMatrix, idle: npt.NDArray[np.float64]) -> FloatMatrix:
        """Return the set-points of all elements (n, elements), with ``idle`` for unset ones."""
        values = np.repeat(idle[None], len(actions), axis=0)
        if attribute in self._set:
            columns, elements = self._set[attribute]
            wish = actions[:, columns]
            values[:, elements] = np.where(np.isnan(wish), idle[elements], wish)
        return values

    def _observe(self, results: FloatMatrix, energy: FloatMatrix) -> FloatMatrix:
        parts = [results[:, :1]]
        for group in self.sensor_groups:
            if group == "sgen.vm_pu":
                parts.append(results.take(self._sgen_columns, axis=1))
            elif group == "storage.soc":
                parts.append(energy / self._storages.capacity)
            else:
                parts.append(results[:, self._flow.columns[SENSOR_GROUPS[group][1]]])
        return np.concatenate(parts, axis=1)
