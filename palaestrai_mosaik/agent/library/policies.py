"""Policies with few weights, for learners that search among weights.

A policy is a function of the readings with one flat vector of weights: a linear map, or a
perceptron with ``hidden`` layers of tanh units. Readings are scaled, see :class:`Scaling`.
Outputs are clipped to -1 ... 1 and stretched over the space of each actuator; a discrete
space is divided into parts of equal width.
"""

from __future__ import annotations

import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.core.errors import ContractError
from palaestrai_mosaik.types.arrays import FloatMatrix, FloatVector, IndexVector
from palaestrai_mosaik.types.vectors import Layout

from .channel_names import incarnation_prefix, match_channels, without_number

_ALL = slice(None)


@dataclass(frozen=True)
class Scaling:
    """The scaling of readings to about -1 to 1: ``(reading - center) / width``.

    ``by_pattern``: uid pattern (``grid.*.vm_pu``) -> ``[center, width]``; the last one that fits
    takes precedence. Without one, a reading is scaled by the bounds of its space, if any.
    The number of an incarnation is ignored, see :mod:`.channel_names`.
    """

    by_pattern: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def of(self, sensors: Layout) -> tuple[FloatVector, FloatVector]:
        """Return centers and widths of the flat readings."""
        fits = match_channels(self.by_pattern, sensors.uids, "scales", "sensor of the agent")
        for pattern, pair in self.by_pattern.items():
            if not _is_scale(pair):
                raise ContractError(
                    f"scales: {pattern!r} needs [center, width], the width positive, not {pair}"
                )
        low, high = sensors.low, sensors.high
        bounded = np.isfinite(low) & np.isfinite(high) & (high > low)
        low, high = np.where(bounded, low, -1.0), np.where(bounded, high, 1.0)
        center, width = (low + high) / 2.0, (high - low) / 2.0
        for pattern, pair in self.by_pattern.items():
            for uid in fits[pattern]:
                part = sensors.slices[sensors.index[uid]]
                center[part], width[part] = pair
        return center, width


@dataclass(frozen=True)
class PolicyOptions:
    """The structure of a policy.

    ``hidden``: units of each hidden layer. ``feedback``: whether the last set-points (as -1 ... 1) are
    inputs, too. ``increments``: whether the network's outputs are added to the last set-points.
    ``context``: for :class:`SharedPolicy` only.
    """

    hidden: Sequence[int] = ()
    feedback: bool = False
    increments: bool = False
    scaling: Scaling = field(default_factory=Scaling)
    context: Sequence[str] = ()


class Perceptron:
    """``inputs`` -> ``hidden`` layers (tanh) -> ``outputs`` (linear); every layer has a bias."""

    def __init__(self, inputs: int, hidden: Sequence[int], outputs: int):
        self._layers = list(pairwise([inputs, *hidden, outputs]))
        #: number of weights
        self.size = sum((n + 1) * m for n, m in self._layers)

    def __call__(self, weights: FloatMatrix, x: FloatMatrix) -> FloatMatrix:
        """Return the outputs, shape (bodies, rows, outputs), for ``x`` of shape (bodies, rows, inputs).

        ``weights``: (bodies, weights). Each body is multiplied separately, so its result is bit-identical whatever the
        number of bodies.
        """
        bodies = len(weights)
        start = 0
        for i, (fan_in, fan_out) in enumerate(self._layers):
            if i:
                x = np.tanh(x)
            end = start + fan_in * fan_out
            layer = weights[:, start:end].reshape(bodies, fan_in, fan_out)
            x = x @ layer + weights[:, np.newaxis, end : end + fan_out]
            start = end + fan_out
        return x


class Policy(ABC):
    """Maps readings to set-points; ``size`` is the number of its weights.

    It acts for identical ``bodies``, each with its own weights. ``signature`` describes the meaning of the
    weights: two policies of the same signature may exchange them.
    """

    size: int
    signature: str

    def __init__(self, sensors: Layout, actuators: Layout, options: PolicyOptions, bodies: int = 1):
        if any(not isinstance(n, int) or n < 1 for n in options.hidden):
            raise ContractError(f"hidden: {list(options.hidden)} are not sizes of layers, at least 1 each")
        self._options = options
        self._center, self._width = options.scaling.of(sensors)
        unbounded = ~(np.isfinite(actuators.low) & np.isfinite(actuators.high))
        if unbounded.any():
            channel = actuators.channel_of(int(np.argmax(unbounded)))
            uid, space = actuators.uids[channel], actuators.spaces[channel]
            raise ContractError(f"a policy needs actuators with bounds, but {uid!r} has {space}")
        self._sensors, self._actuators = sensors, actuators
        #: the last set-points of each body, as -1 ... 1
        self._last = np.zeros((bodies, actuators.size))

    def reset(self, bodies: IndexVector | slice = _ALL) -> None:
        """Forget the last set-points of ``bodies`` at the start of an episode."""
        self._last[bodies] = 0.0

    def setpoints(self, weights: FloatMatrix, readings: FloatMatrix, bodies: IndexVector) -> FloatMatrix:
        """Return the flat set-points of ``bodies`` (n,), each inside its space: (n, set-points).

        ``weights``: (n, weights); ``readings``: (n, readings), flat. Raises :class:`ContractError`
        for a NaN among the readings.
        """
        missing = np.isnan(readings)
        if missing.any():
            sensor = self._sensors.uids[self._sensors.channel_of(int(missing.any(axis=0).argmax()))]
            raise ContractError(f"a policy needs all readings, but {sensor!r} gave NaN")
        last = self._last[bodies]
        outputs = self.outputs(weights, (readings - self._center) / self._width, last)
        if self._options.increments:
            outputs = last + outputs
        last = np.clip(outputs, -1.0, 1.0)
        self._last[bodies] = last
        share = (last + 1.0) / 2.0
        layout, low, high = self._actuators, self._actuators.low, self._actuators.high
        values = low + share * (high - low)
        if layout.any_integral:
            values = np.where(layout.integral, np.floor(low + share * (high - low + 1.0)), values)
        # rounding must not exceed a bound, nor put a share of 1 into a part after the last one
        clipped: FloatMatrix = np.clip(values, low, high)
        return clipped

    @abstractmethod
    def outputs(self, weights: FloatMatrix, inputs: FloatMatrix, last: FloatMatrix) -> FloatMatrix:
        """Return the set-points, to be clipped to -1 ... 1: (n, set-points).

        ``inputs``: (n, readings), scaled; ``last``: (n, set-points), the last ones as -1 ... 1.
        """


class DensePolicy(Policy):
    """One perceptron from all readings to all set-points."""

    def __init__(self, sensors: Layout, actuators: Layout, options: PolicyOptions, bodies: int = 1):
        super().__init__(sensors, actuators, options, bodies)
        if options.context:
            raise ContractError("context: a dense policy has none, because it sees all readings as they are")
        n, m = sensors.size, actuators.size
        self._network = Perceptron(n + m * options.feedback, options.hidden, m)
        self.size = self._network.size
        self.signature = _signature("dense", options, inputs=n, outputs=m)

    def outputs(self, weights: FloatMatrix, inputs: FloatMatrix, last: FloatMatrix) -> FloatMatrix:
        x = np.concatenate([inputs, last], axis=1) if self._options.feedback else inputs
        return self._network(weights, x[:, np.newaxis])[:, 0]


class SharedPolicy(Policy):
    """One small perceptron for all devices of a kind, whatever their number.

    The device of a channel is the part of its uid before the last dot, and its kind is that without
    digits: ``grid.sgen-7.vm_pu`` and ``grid.sgen-12.vm_pu`` belong to two devices of the kind
    ``grid.sgen-#``. The same holds for ``grid.3.sgen-7.vm_pu`` if all channels are of incarnation 3.
    Inputs for a device are its own readings, its own last set-points (with ``feedback``), and the
    ``context``: for each uid pattern there, the mean of the scaled readings that fit. A policy learned with
    some devices can therefore act for others, even on another grid.
    """

    def __init__(self, sensors: Layout, actuators: Layout, options: PolicyOptions, bodies: int = 1):
        super().__init__(sensors, actuators, options, bodies)
        fits = match_channels(options.context, sensors.uids, "context", "sensor of the agent")
        self._context = [_indices(sensors, fits[pattern]) for pattern in options.context]
        read_by, set_by = _by_device(sensors), _by_device(actuators)
        incarnation = incarnation_prefix([*sensors.uids, *actuators.uids])
        used = {uid for matching in fits.values() for uid in matching}
        for device, uids_by_quantity in read_by.items():
            for uid in uids_by_quantity.values():
                if device not in set_by and uid not in used:
                    raise ContractError(
                        f"sensor {uid!r} belongs to no device that the agent sets, and to no pattern of the context"
                    )
        kinds: dict[str, list[str]] = {}
        for device in set_by:
            name = without_number(f"{device}.x")[:-2] if incarnation else device
            kinds.setdefault(re.sub(r"\d+", "#", name), []).append(device)
        #: for each kind: indices of its readings and set-points, each (devices, numbers); its network
        self._kinds: list[tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], Perceptron]] = []
        meaning = {}
        for kind, devices in kinds.items():
            readings = _table(kind, devices, read_by, sensors, "sensors")
            setpoints = _table(kind, devices, set_by, actuators, "actuators")
            m = setpoints.shape[1]
            inputs = readings.shape[1] + m * options.feedback + len(self._context)
            self._kinds.append((readings, setpoints, Perceptron(inputs, options.hidden, m)))
            meaning[kind] = [sorted(read_by.get(devices[0], {})), sorted(set_by[devices[0]])]
        self.size = sum(network.size for _, _, network in self._kinds)
        self.signature = _signature("shared", options, kinds=meaning)

    def outputs(self, weights: FloatMatrix, inputs: FloatMatrix, last: FloatMatrix) -> FloatMatrix:
        count = len(inputs)
        context = np.empty((count, 1, len(self._context)))
        for i, places in enumerate(self._context):
            # np.take makes a body's numbers contiguous, so that they are summed in the same order as alone
            context[:, 0, i] = np.take(inputs, places, axis=1).mean(axis=1)
        outputs = np.empty_like(last)
        start = 0
        for readings, setpoints, network in self._kinds:
            parts = [inputs[:, readings]]
            if self._options.feedback:
                parts.append(last[:, setpoints])
            if self._context:
                parts.append(np.broadcast_to(context, (count, len(readings), len(self._context))))
            network_weights = weights[:, start : start + network.size]
            outputs[:, setpoints] = network(
                network_weights, np.ascontiguousarray(np.concatenate(parts, axis=2))
            )
            start += network.size
        return outputs


POLICIES: dict[str, type[Policy]] = {"dense": DensePolicy, "shared": SharedPolicy}


def _signature(policy: str, options: PolicyOptions, **meaning: Any) -> str:
    # convert to float, because 1 and 1.0 are the same center
    scaling = {key: [float(number) for number in pair] for key, pair in options.scaling.by_pattern.items()}
    shape = {**asdict(options), "scaling": scaling}
    return json.dumps({"policy": policy, **meaning, **shape})


def _is_scale(pair: Any) -> bool:
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        return False
    return all(isinstance(n, int | float) and math.isfinite(n) for n in pair) and pair[1] > 0


def _indices(layout: Layout, uids: Sequence[str]) -> IndexVector:
    """Return the indices of the numbers of some channels in the flat vector."""
    parts = [layout.slices[layout.index[uid]] for uid in uids]
    return np.array([i for part in parts for i in range(part.start, part.stop)], dtype=np.intp)


def _by_device(layout: Layout) -> dict[str, dict[str, str]]:
    """Group uids as device -> quantity -> uid."""
    devices: dict[str, dict[str, str]] = {}
    for uid in layout.uids:
        device, _, quantity = uid.rpartition(".")
        devices.setdefault(device, {})[quantity] = uid
    return devices


def _table(
    kind: str,
    devices: Sequence[str],
    by_device: Mapping[str, Mapping[str, str]],
    layout: Layout,
    what: str,
) -> npt.NDArray[np.intp]:
    """Return the indices of all numbers of each device, shape (devices, numbers)."""
    quantities = sorted(by_device.get(devices[0], {}))
    rows = []
    for device in devices:
        uids = by_device.get(device, {})
        if sorted(uids) != quantities:
            raise ContractError(
                f"a shared policy needs the same {what} for all devices {kind!r}, but {devices[0]!r} has "
                f"{', '.join(quantities) or 'none'} and {device!r} has {', '.join(sorted(uids)) or 'none'}"
            )
        rows.append(_indices(layout, [uids[quantity] for quantity in quantities]))
    return np.array(rows)
