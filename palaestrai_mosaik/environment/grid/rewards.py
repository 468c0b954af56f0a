"""Rewards of a grid, computed from its readings.

Every term is a separate quantity, in the units below; weights combine them. A
de-energised bus has voltage 0 and so counts as far outside any band.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.core.errors import ContractError, DocumentError, Problem, did_you_mean
from palaestrai_mosaik.environment.environment import EnvironmentBaseline, EnvironmentState, Reward
from palaestrai_mosaik.types import Box, RewardInformation
from palaestrai_mosaik.types.arrays import FloatMatrix, FloatVector

#: a value of one state, or of many: (states,)
Value = float | FloatVector

#: standard deviation of the bell curve G in the ARL reward, in p.u.
SIGMA = 0.032
_TWICE_VARIANCE = 2.0 * SIGMA**2


def gauss(voltage: npt.ArrayLike) -> FloatVector:
    """Compute G(V) = exp(-(V - 1)^2 / (2 * 0.032^2)): 1 at nominal voltage, 0.295 at 5 % off it."""
    bell: FloatVector = np.asarray(voltage, dtype=np.float64) - 1.0
    bell *= bell
    bell *= -1.0 / _TWICE_VARIANCE
    return np.exp(bell)


class _View:
    """Readings by group, such as ``bus.vm_pu``, with indices that are computed once.

    Readings are those of one state, ``(n,)``, or of many, ``(states, n)``.
    """

    def __init__(self, baseline: EnvironmentBaseline):
        groups: dict[str, list[tuple[int, str, int]]] = {}
        position = 0
        for sensor in baseline.sensors:
            element, _, quantity = sensor.uid.partition(".")
            # ordered by element (bus-2 before bus-10), so that rows of groups correspond
            key = (len(element), element, position)
            groups.setdefault(f"{element.partition('-')[0]}.{quantity}", []).append(key)
            position += sensor.space.size
        self._places = {name: _slice_or_places([k[2] for k in sorted(keys)]) for name, keys in groups.items()}
        self.show(np.empty(0))

    def show(self, readings: FloatVector) -> None:
        """Switch to other readings."""
        self.readings = readings
        self.defender: Value | None = None

    def require(self, term: str, groups: Sequence[str]) -> None:
        """Raise :class:`ContractError` if ``term`` needs groups that the environment lacks."""
        missing = [g for g in groups if g not in self._places and g not in _OPTIONAL]
        if missing:
            raise ContractError(
                f"reward {term!r} needs the sensors {', '.join(missing)}, which the environment lacks"
            )

    def __getitem__(self, group: str) -> FloatVector:
        places = self._places.get(group)
        if places is None:
            return np.empty((*self.readings.shape[:-1], 0))
        if self.readings.ndim == 1:
            return self.readings[places]
        # a contiguous copy of each row, so that sums always run in the same order
        if isinstance(places, slice):
            return self.readings[:, places]
        return self.readings.take(places, axis=1)


def _slice_or_places(places: list[int]) -> slice | npt.NDArray[np.intp]:
    if places == list(range(places[0], places[0] + len(places))):
        return slice(places[0], places[-1] + 1)
    return np.array(places, dtype=np.intp)


#: groups that a grid may lack
_OPTIONAL = {"line.loading", "trafo.loading"}


class GridReward(Reward):
    """Named rewards of a grid and their weighted sum.

    ============================ ===================================================================
    ``voltage_band``             share of buses outside ``[band_low, band_high]`` (0 to 1)
    ``voltage_band_count``       number of buses outside
    ``voltage_excess``           sum over buses of their distance to the band (p.u.)
    ``voltage_deviation``        mean of (V - 1)^2 over buses (p.u.^2)
    ``line_loading``             largest line loading (1 is rated)
    ``line_overload``            sum over lines of max(0, loading - 1)
    ``trafo_loading``            largest transformer loading (1 is rated)
    ``trafo_overload``           sum over transformers of max(0, loading - 1)
    ``ext_grid_exchange``        sum over external grids of sqrt(P^2 + Q^2) (MVA)
    ``defender``                 (G(mean V) + mean G(V) + share in service) / 3 (0 to 1)
    ``attacker``                 1 - ``defender``
    ============================ ===================================================================

    Sources: 0.95 to 1.05 is half of the band of EN 50160, the usual planning limit of a
    medium-voltage grid. Defender and attacker are the zero-sum pair of Adversarial
    Resilience Learning (L. Fischer, J.-M. Memmen, E. Veith, M. Troeschel, "Adversarial
    Resilience Learning -- Towards Systemic Vulnerability Analysis for Large and Complex
    Systems", ENERGY 2019), with G as in :func:`gauss`; *in service* are energised buses,
    and lines and transformers that are not loaded above their rating.

    Args:
        terms: names of terms, or names with weights. Rewards are the bare terms, in this order.
        total: name of one more reward, the weighted sum of the terms; ``None`` for none.
        band_low, band_high: voltage band in p.u.
    """

    def __init__(
        self,
        terms: Mapping[str, float] | Sequence[str] = ("defender", "attacker"),
        total: str | None = None,
        band_low: float = 0.95,
        band_high: float = 1.05,
    ):
        self.weights = dict(terms) if isinstance(terms, Mapping) else dict.fromkeys(terms, 1.0)
        problems = [
            Problem(
                f"unknown term {name!r}{did_you_mean(name, _TERMS)}; allowed are {', '.join(_TERMS)}", "terms"
            )
            for name in self.weights
            if name not in _TERMS
        ]
        if not self.weights:
            problems.append(Problem(f"there must be at least one of {', '.join(_TERMS)}", "terms"))
        if total is not None and total in self.weights:
            problems.append(Problem(f"{total!r} is a term; the sum needs a name of its own", "total"))
        if not band_low < band_high:
            problems.append(Problem(f"{band_low} is not below band_high = {band_high}", "band_low"))
        if problems:
            raise DocumentError(problems)
        self.total = total
        self.band = (float(band_low), float(band_high))
        self._vector = np.array(list(self.weights.values()), dtype=np.float64)

    def setup(self, baseline: EnvironmentBaseline) -> Sequence[RewardInformation]:
        self._view = _View(baseline)
        for name in self.weights:
            self._view.require(name, _TERMS[name][1])
        spaces = {name: _TERMS[name][2] for name in self.weights}
        if self.total is not None:
            spaces[self.total] = Box(-np.inf, np.inf, shape=())
        return [RewardInformation(0.0, space, name) for name, space in spaces.items()]

    def __call__(self, state: EnvironmentState) -> FloatVector:
        view = self._view
        view.show(state.readings)
        values = np.empty(len(self.weights) + (self.total is not None))
        for i, name in enumerate(self.weights):
            values[i] = _TERMS[name][0](view, self.band)
        if self.total is not None:
            values[-1] = self._vector @ values[:-1]
        return values

    def of_many(self, readings: FloatMatrix) -> FloatMatrix:
        """Return the rewards (states, rewards) of many ``readings`` (states, n), independent of each other."""
        view = self._view
        view.show(readings)
        values = np.zeros((len(readings), len(self.weights) + (self.total is not None)))
        for i, (name, weight) in enumerate(self.weights.items()):
            values[:, i] = _TERMS[name][0](view, self.band)
            if self.total is not None:
                values[:, -1] += weight * values[:, i]
        return values


Band = tuple[float, float]
_VOLTAGES = ("bus.vm_pu",)


def _mean(values: FloatVector) -> Value:
    # equals ndarray.mean, in a third of the time for short vectors
    total = np.add.reduce(values, axis=-1)
    mean: Value = (float(total) if values.ndim == 1 else total) / values.shape[-1]
    return mean


def _count(mask: npt.NDArray[np.bool_]) -> Value:
    if mask.ndim == 1:
        return int(np.count_nonzero(mask))
    # int8 sums faster than bool; the sum is exact either way
    counts: Value = np.add.reduce(mask.view(np.int8), axis=-1, dtype=np.int32)
    return counts


def _outside(view: _View, band: Band) -> Value:
    voltage = view["bus.vm_pu"]
    return _count((voltage < band[0]) | (voltage > band[1]))


def _outside_share(view: _View, band: Band) -> Value:
    share: Value = _outside(view, band) / view["bus.vm_pu"].shape[-1]
    return share


def _excess(view: _View, band: Band) -> Value:
    voltage = view["bus.vm_pu"]
    excess: Value = (np.maximum(band[0] - voltage, 0.0) + np.maximum(voltage - band[1], 0.0)).sum(axis=-1)
    return excess


def _largest(loading: FloatVector) -> Value:
    largest: Value = loading.max(axis=-1, initial=0.0) / 100.0
    return largest


def _overload(loading: FloatVector) -> Value:
    overload: Value = np.maximum(loading / 100.0 - 1.0, 0.0).sum(axis=-1)
    return overload


def _exchange(view: _View, band: Band) -> Value:
    exchange: Value = np.hypot(view["ext_grid.p_mw"], view["ext_grid.q_mvar"]).sum(axis=-1)
    return exchange


def _defender(view: _View, band: Band) -> Value:
    if view.defender is None:  # otherwise computed before, for the attacker
        voltage, lines, trafos = view["bus.vm_pu"], view["line.loading"], view["trafo.loading"]
        in_service = _count(voltage > 0.0) + _count(lines <= 100.0) + _count(trafos <= 100.0)
        share = in_service / (voltage.shape[-1] + lines.shape[-1] + trafos.shape[-1])
        mean = _mean(voltage)
        # math.exp is faster for one number
        of_mean = math.exp(-((mean - 1.0) ** 2) / _TWICE_VARIANCE) if isinstance(mean, float) else gauss(mean)
        view.defender = (of_mean + _mean(gauss(voltage)) + share) / 3.0
    return view.defender


_ANY, _POSITIVE, _SHARE = (
    Box(low, high, shape=()) for low, high in ((-np.inf, np.inf), (0.0, np.inf), (0.0, 1.0))
)

#: term -> (formula, required sensor groups, space)
_TERMS: dict[str, tuple[Callable[[_View, Band], Value], Sequence[str], Box]] = {
    "voltage_band": (_outside_share, _VOLTAGES, _SHARE),
    "voltage_band_count": (_outside, _VOLTAGES, _POSITIVE),
    "voltage_excess": (_excess, _VOLTAGES, _POSITIVE),
    "voltage_deviation": (
        lambda view, _: _mean((view["bus.vm_pu"] - 1.0) ** 2),
        _VOLTAGES,
        _POSITIVE,
    ),
    "line_loading": (lambda view, _: _largest(view["line.loading"]), ("line.loading",), _POSITIVE),
    "line_overload": (lambda view, _: _overload(view["line.loading"]), ("line.loading",), _POSITIVE),
    "trafo_loading": (lambda view, _: _largest(view["trafo.loading"]), ("trafo.loading",), _POSITIVE),
    "trafo_overload": (lambda view, _: _overload(view["trafo.loading"]), ("trafo.loading",), _POSITIVE),
    "ext_grid_exchange": (_exchange, ("ext_grid.p_mw", "ext_grid.q_mvar"), _POSITIVE),
    "defender": (_defender, ("bus.vm_pu", "line.loading", "trafo.loading"), _SHARE),
    "attacker": (
        lambda view, band: 1.0 - _defender(view, band),
        ("bus.vm_pu", "line.loading", "trafo.loading"),
        _SHARE,
    ),
}
