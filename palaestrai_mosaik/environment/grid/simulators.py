"""The grid's parts as mosaik simulators.

Each has one entity, which represents all elements of its kind by vectors (numpy arrays
or lists of floats, in the order of the net's tables), so the number of simulators and
connections does not grow with the grid. All are time-based with steps of ``step_size`` ticks;
within one time, values flow profiles -> inverters, storages -> grid:

============== =========================================== ==========================================
model          inputs                                      outputs
============== =========================================== ==========================================
``Profiles``   ``clock``                                   ``load_p load_q sgen_p storage_p gen_p``
``Inverters``  ``p_available``, ``q_set``                  ``p q``
``Storages``   ``p_profile``, ``p_set``, ``p_taken``       ``p soc``
``PowerGrid``  ``load_p load_q sgen_p sgen_q storage_p     ``vm_pu line_loading trafo_loading
               gen_p``, ``load_scaling tap_pos             ext_grid_p ext_grid_q losses_mw load_p_mw
               line_in_service``                           sgen_p_mw sgen_q_mvar storage_p_mw converged``
============== =========================================== ==========================================

Units: MW, Mvar, p.u., percent; ``soc`` from 0 to 1. ``q_set``, ``p_set``,
``load_scaling``, ``tap_pos`` and ``line_in_service`` are set-points: NaN means that this sender
does not set the element. The powers of loads, inverters and storages that ``PowerGrid`` outputs are
the actual ones: 0 if they are out of service or without voltage. ``p_taken``, the ``storage_p_mw`` of
the step before (connected time-shifted), informs the storages; without it, they assume that their
requested power flows. Without ``gen_p``, generators keep the powers of the net's table.

In your own scenario, start them by class and grid name (see :func:`.load_grid`)::

    SIMULATORS = "palaestrai_mosaik.environment.grid.simulators"
    world = mosaik.World({"Grid": {"python": SIMULATORS + ":PowerGridSimulator"}, ...})
    grid = world.start("Grid", grid="cigre_mv").PowerGrid()
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import lru_cache
from typing import Any, ClassVar

import mosaik_api_v3
import numpy as np

from palaestrai_mosaik.core.errors import PowerFlowError, SimulationError, did_you_mean
from palaestrai_mosaik.environment.devices import Inverters, Storages
from palaestrai_mosaik.types.arrays import FloatVector

from .network import Grid, load_grid
from .power_flow import ELEMENT_POWERS, PowerGrid
from .power_flow_factory import make_power_flow
from .profiles import QUANTITIES, Profiles

Inputs = Mapping[str, Mapping[str, Mapping[str, Any]]]


@lru_cache(maxsize=2)
def _shared_grid(name: str) -> Grid:
    """Load the grid of simulators that are started by name, once per process."""
    return load_grid(name)


class GridSimulator(mosaik_api_v3.Simulator):
    """A simulator with one entity that steps itself; subclasses compute :attr:`outputs`.

    ``step_size``: ticks of a step. ``steps``: number of steps, ``None`` for no end.
    """

    MODEL: ClassVar[str]
    INPUTS: ClassVar[Sequence[str]] = ()
    OUTPUTS: ClassVar[Sequence[str]]
    #: parameters of ``init`` besides ``grid`` and ``step_size``
    INIT: ClassVar[Sequence[str]] = ()

    def __init__(self, step_size: int = 1, steps: int | None = None) -> None:
        attributes = list(dict.fromkeys([*self.INPUTS, *self.OUTPUTS]))
        model = {"public": True, "params": [], "attrs": attributes}
        super().__init__({"api_version": "3.0", "type": "hybrid", "models": {self.MODEL: model}})
        self.step_size = step_size
        #: number of steps; without this limit, mosaik starts the step after an episode's last one, too
        self.steps = steps
        self.eid: str | None = None
        self.outputs: dict[str, Any] = {}

    def init(self, sid: str, time_resolution: float = 1.0, **params: Any) -> Any:
        allowed = ["grid", "step_size", *self.INIT]
        unknown = sorted(params.keys() - allowed)
        if unknown:
            raise SimulationError(
                f"{sid}: unknown parameter {unknown[0]!r}{did_you_mean(unknown[0], allowed)}"
            )
        self.step_size = int(params.pop("step_size", self.step_size))
        self.load(params)
        return self.meta

    def load(self, params: dict[str, Any]) -> None:
        """Create the domain object from ``params["grid"]``, unless the constructor received one."""
        raise NotImplementedError

    def create(self, num: int, model: str, **params: Any) -> Any:
        if num != 1 or self.eid is not None:
            raise SimulationError(
                f"there is exactly one {self.MODEL} in this simulator: it speaks for all elements"
            )
        self.eid = self.MODEL
        return [{"eid": self.eid, "type": model}]

    def step(self, time: int, inputs: Inputs, max_advance: int) -> int | None:
        self.compute(time, inputs.get(self.MODEL, {}))
        following = time + self.step_size
        return following if self.steps is None or following < self.steps * self.step_size else None

    def compute(self, time: int, inputs: Mapping[str, Mapping[str, Any]]) -> None:
        """Compute the outputs of ``time``."""
        raise NotImplementedError

    def get_data(self, outputs: Mapping[str, Sequence[str]]) -> dict[str, dict[str, Any]]:
        return {eid: {name: self.outputs[name] for name in names} for eid, names in outputs.items()}


def _only(inputs: Mapping[str, Mapping[str, Any]], name: str, size: int) -> FloatVector:
    """Return the vector of the only sender of ``name``, or zeros without a sender."""
    senders = inputs.get(name)
    if not senders:
        return np.zeros(size)
    if len(senders) > 1:
        raise SimulationError(f"{name} comes from {', '.join(sorted(senders))}; it must have one source")
    (vector,) = senders.values()
    vector = np.asarray(vector, dtype=np.float64)
    if vector.shape != (size,):
        raise SimulationError(f"{name} has shape {vector.shape}, expected ({size},)")
    return vector


class ProfileSimulator(GridSimulator):
    """Outputs the powers of the current step. ``init``: ``grid``, ``start`` (row), ``stride`` (rows per step)."""

    MODEL = "Profiles"
    INIT = ("start", "stride")
    #: not read: as an input, it makes the simulator wait for its senders
    INPUTS = ("clock",)
    OUTPUTS = QUANTITIES

    def __init__(self, profiles: Profiles | None = None, start: int = 0, stride: int = 1, **clock: Any):
        super().__init__(**clock)
        self.profiles, self.start, self.stride = profiles, start, stride

    def load(self, params: dict[str, Any]) -> None:
        self.profiles = self.profiles or _shared_grid(params["grid"]).profiles
        self.start = params.get("start", self.start)
        self.stride = params.get("stride", self.stride)

    def compute(self, time: int, inputs: Mapping[str, Mapping[str, Any]]) -> None:
        assert self.profiles is not None
        row = self.start + time // self.step_size * self.stride
        self.outputs = dict(zip(QUANTITIES, self.profiles.at(row), strict=True))


class InverterSimulator(GridSimulator):
    """All inverters. ``init``: ``grid``."""

    MODEL = "Inverters"
    INPUTS = ("p_available", "q_set")
    OUTPUTS = ("p", "q")

    def __init__(self, inverters: Inverters | None = None, **clock: Any):
        super().__init__(**clock)
        self.inverters = inverters

    def load(self, params: dict[str, Any]) -> None:
        self.inverters = self.inverters or Inverters.of(_shared_grid(params["grid"]).net)

    def compute(self, time: int, inputs: Mapping[str, Mapping[str, Any]]) -> None:
        inverters = self.inverters
        assert inverters is not None
        if "q_set" in inputs:
            inverters.q_set.accept(inputs["q_set"])
        p, q = inverters.step(_only(inputs, "p_available", len(inverters.rating)))
        self.outputs = {"p": p, "q": q}


class StorageSimulator(GridSimulator):
    """All storages. ``init``: ``grid``, ``initial_soc`` (0 to 1), ``hours`` (length of a step)."""

    MODEL = "Storages"
    INIT = ("initial_soc", "hours")
    INPUTS = ("p_profile", "p_set", "p_taken")
    OUTPUTS = ("p", "soc")

    def __init__(self, storages: Storages | None = None, **clock: Any):
        super().__init__(**clock)
        self.storages = storages

    def load(self, params: dict[str, Any]) -> None:
        battery = {name: params[name] for name in self.INIT if name in params}
        self.storages = self.storages or Storages.of(_shared_grid(params["grid"]).net, **battery)

    def compute(self, time: int, inputs: Mapping[str, Mapping[str, Any]]) -> None:
        storages = self.storages
        assert storages is not None
        if "p_set" in inputs:
            storages.p_set.accept(inputs["p_set"])
        size = len(storages.rating)
        taken = _only(inputs, "p_taken", size) if "p_taken" in inputs else None
        p, soc = storages.step(_only(inputs, "p_profile", size), taken)
        self.outputs = {"p": p, "soc": soc}


class PowerGridSimulator(GridSimulator):
    """The power flow. ``init``: ``grid``, ``on_divergence`` (``terminate`` or ``fail``)."""

    MODEL = "PowerGrid"
    INIT = ("on_divergence",)
    _SETPOINTS = ("load_scaling", "tap_pos", "line_in_service")
    INPUTS = (*ELEMENT_POWERS, *_SETPOINTS)
    #: output -> attribute of the result
    RESULTS: ClassVar[dict[str, str]] = {
        "vm_pu": "vm_pu",
        "line_loading": "line_loading",
        "trafo_loading": "trafo_loading",
        "ext_grid_p": "ext_grid_p",
        "ext_grid_q": "ext_grid_q",
        "losses_mw": "losses_mw",
        "load_p_mw": "load_p",
        "sgen_p_mw": "sgen_p",
        "sgen_q_mvar": "sgen_q",
        "storage_p_mw": "storage_p",
    }
    OUTPUTS = (*RESULTS, "converged")

    def __init__(self, power_grid: PowerGrid | None = None, **clock: Any):
        super().__init__(**clock)
        self.power_grid = power_grid
        self._sizes: tuple[int, ...] = ()

    def load(self, params: dict[str, Any]) -> None:
        if self.power_grid is None:
            # a copy, because solving writes into the net
            power_flow = make_power_flow(deepcopy(_shared_grid(params["grid"]).net))
            on_divergence = params.get("on_divergence", "terminate")
            self.power_grid = PowerGrid(power_flow, power_flow.solve_own(), on_divergence)
        net = self.power_grid.power_flow.net
        loads, sgens, storages = len(net.load), len(net.sgen), len(net.storage)
        self._sizes = (loads, loads, sgens, sgens, storages)
        self._gen_p = (net.gen.p_mw * net.gen.scaling).to_numpy(dtype=float)

    def compute(self, time: int, inputs: Mapping[str, Mapping[str, Any]]) -> None:
        power_grid = self.power_grid
        assert power_grid is not None
        power_grid.accept({name: dict(inputs[name]) for name in self._SETPOINTS if name in inputs})
        powers = [_only(inputs, name, size) for name, size in zip(self.INPUTS[:5], self._sizes, strict=True)]
        powers.append(_only(inputs, "gen_p", len(self._gen_p)) if "gen_p" in inputs else self._gen_p)
        try:
            power_grid.step(*powers)
        except PowerFlowError as error:
            raise PowerFlowError(f"tick {time}: {error}") from error
        result = power_grid.result
        self.outputs = {output: getattr(result, name) for output, name in self.RESULTS.items()}
        self.outputs["converged"] = power_grid.converged
