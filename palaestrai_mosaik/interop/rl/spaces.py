"""An agent's channels as Gymnasium spaces, and the conversion of their values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from palaestrai_mosaik.core.errors import ActionError, ContractError, did_you_mean
from palaestrai_mosaik.types import Box, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from palaestrai_mosaik.types.arrays import FloatArray, FloatMatrix, FloatVector
from palaestrai_mosaik.types.vectors import Layout


def gymnasium_space(space: Space) -> spaces.Space[Any]:
    """Return the Gymnasium space with the same values."""
    if isinstance(space, Box):
        return spaces.Box(space.low, space.high, space.shape, space.dtype.type)
    if isinstance(space, Discrete):
        return spaces.Discrete(space.n, start=space.start)
    if isinstance(space, MultiDiscrete):
        return spaces.MultiDiscrete(space.nvec)
    if isinstance(space, MultiBinary):
        return spaces.MultiBinary(space.n)
    if isinstance(space, Tuple):
        return spaces.Tuple([gymnasium_space(part) for part in space.spaces])
    raise ContractError(f"Gymnasium has no space for {space}")


class ChannelSpace:
    """Converts between the flat vector of some channels and values of one Gymnasium space.

    If flat, :attr:`space` is a ``Discrete`` for a single ``Discrete`` channel, a ``MultiBinary`` if all channels
    are ``MultiBinary``, a ``MultiDiscrete`` if all have finitely many values, and otherwise a ``Box`` of shape
    (numbers,), in the document's order. If not flat, it is a ``Dict`` of the channels by their full ids.

    Args:
        layout: the channels, in order.
        kind: ``"sensor"`` or ``"actuator"``.
        flatten: whether there is one vector for all channels, or a ``Dict``.
        dtype: the type of a flat ``Box`` with real numbers; ``None``: the channels' own. In a narrower type,
            the bounds of sensors are rounded outwards, those of actuators inwards.

    Raises:
        ContractError: actuators are partly integers and partly real, which have no flat form.
    """

    def __init__(
        self, layout: Layout, kind: str, *, flatten: bool = True, dtype: npt.DTypeLike | None = None
    ):
        self.layout = layout
        self.kind = kind
        self.flatten = flatten
        #: offset from a flat integer vector to the document's values
        self._start: FloatVector | float = 0.0
        entries = zip(layout.uids, layout.spaces, strict=True)
        self.space: spaces.Space[Any] = (
            self._flat_space(dtype)
            if flatten
            else spaces.Dict({uid: gymnasium_space(space) for uid, space in entries})
        )
        self._shape = self.space.shape
        self._dtype = self.space.dtype
        self._single = isinstance(self.space, spaces.Discrete)
        slack = self._slack()
        with np.errstate(over="ignore"):
            self._lowest, self._highest = layout.low - slack, layout.high + slack

    def value(self, vector: FloatVector) -> Any:
        """Convert the flat ``vector`` (numbers,) to a new value, which the caller may modify."""
        if self.flatten:
            return np.int64(vector[0]) if self._single else self.values(vector)
        layout = self.layout
        return {
            uid: _shaped(space, vector[part])
            for uid, space, part in zip(layout.uids, layout.spaces, layout.slices, strict=True)
        }

    def vector(self, value: Any) -> FloatVector:
        """Convert ``value`` to a flat vector; the caller must check bounds. Raises :class:`ActionError`.

        A value outside its space by no more than the rounding of learners' arithmetic in the type of the
        space (such as ``low + 0.5 * (a + 1) * (high - low)``) is clipped to the bound.
        """
        layout = self.layout
        if self.flatten:
            try:
                vector = np.array(value, dtype=np.float64).reshape(-1)
            except (TypeError, ValueError) as error:
                raise ActionError(f"the action {value!r} is not in {self.space}: {error}") from error
            if np.shape(value) != self._shape:
                raise ActionError(
                    f"the action has the shape {np.shape(value)}, but {self.space} has {self._shape}: one number for each "
                    f"of {', '.join(layout.uids)}"
                )
            if not self._single:
                vector += self._start
        else:
            vector = self._joined(value)
        if math.isnan(vector.sum()):
            self.check(vector)
        return self._rounded_back(vector)

    def values(self, vectors: FloatArray) -> Any:
        """Convert flat vectors (n, numbers) to a new batch of flat values, which the caller may modify."""
        if self._single:
            return vectors[..., 0].astype(np.int64)
        return vectors.copy() if self._dtype == vectors.dtype else (vectors - self._start).astype(self._dtype)

    def vectors(self, values: Any, shape: tuple[int, ...]) -> FloatMatrix:
        """Convert a batch of flat values with this ``shape`` to flat vectors (n, numbers), without checks."""
        try:
            matrix = np.array(values, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ActionError(
                f"the actions {values!r} are not in a batch of {self.space}: {error}"
            ) from error
        if matrix.shape != shape:
            raise ActionError(
                f"the actions have the shape {matrix.shape}, but a batch of {self.space} has {shape}"
            )
        matrix = matrix.reshape(shape[0], -1)
        if not self._single:
            # also if it is 0, which turns -0 into 0
            matrix += self._start
        return self._rounded_back(matrix)

    def check(self, vector: FloatVector) -> None:
        """Raise :class:`ActionError` for the first channel with NaN or a value outside its space."""
        layout = self.layout
        for uid, part in zip(layout.uids, layout.slices, strict=True):
            if np.isnan(vector[part]).any():
                raise ActionError(f"the set-point of {self.kind} {uid!r} is NaN, which is in no space")
        layout.check(vector)

    def _slack(self) -> FloatVector:
        """Return the tolerance of each number: a few units in the last place of its type."""
        layout = self.layout
        slack = np.zeros(layout.size)
        for space, part in zip(layout.spaces, layout.slices, strict=True):
            kind = self._dtype if self.flatten else space.dtype
            if isinstance(space, Box) and space.dtype.kind == "f" and kind is not None and kind.kind == "f":
                reach = np.maximum(np.abs(layout.low[part]), np.abs(layout.high[part]))
                slack[part] = np.where(np.isfinite(reach), 4 * np.finfo(kind).eps * reach, 0.0)
        return slack

    def _rounded_back(self, vectors: FloatVector) -> FloatVector:
        layout = self.layout
        over, under = vectors > layout.high, vectors < layout.low
        if not (np.count_nonzero(over) or np.count_nonzero(under)):
            return vectors
        vectors = np.where(over & (vectors <= self._highest), layout.high, vectors)
        return np.where(under & (vectors >= self._lowest), layout.low, vectors)

    def _joined(self, value: Any) -> FloatVector:
        layout = self.layout
        if not isinstance(value, dict):
            raise ActionError(f"the action must be a dict with {', '.join(layout.uids)}, not {value!r}")
        for uid in value:
            if uid not in layout.index:
                raise ActionError(f"there is no {self.kind} {uid!r}{did_you_mean(uid, layout.uids)}")
        vector = np.full(layout.size, np.nan)
        for uid, space, part in zip(layout.uids, layout.spaces, layout.slices, strict=True):
            if uid not in value:
                raise ActionError(f"the action has no value for {self.kind} {uid!r}")
            try:
                vector[part] = space.flatten(value[uid])
            except ValueError as error:
                raise ActionError(f"{self.kind} {uid!r}: {error}") from error
        return vector

    def _flat_space(self, dtype: npt.DTypeLike | None) -> spaces.Space[Any]:
        layout = self.layout
        low, high = layout.low, layout.high
        if layout.uids and all(
            isinstance(space, Discrete | MultiDiscrete | MultiBinary) for space in layout.spaces
        ):
            return self._countable_space()
        if self.kind == "actuator" and layout.any_integral and not layout.all_integral:
            raise ContractError(
                "these actuators are partly whole numbers and partly real ones, which no flat space has: make the "
                f"environment with flatten=False ({', '.join(layout.uids)})"
            )
        if layout.all_integral:
            return spaces.Box(low.astype(np.int64), high.astype(np.int64), dtype=np.int64)
        kind = _common_type(layout) if dtype is None else np.dtype(dtype)
        if kind.kind != "f":
            raise ContractError(f"dtype must be a floating-point type, not {kind}")
        inwards = self.kind == "actuator"
        return spaces.Box(*_rounded(low, high, kind, inwards=inwards), dtype=kind.type)

    def _countable_space(self) -> spaces.Space[Any]:
        """Return the flat space of channels with finitely many values."""
        layout = self.layout
        if len(layout.spaces) == 1 and isinstance(layout.spaces[0], Discrete):
            return gymnasium_space(layout.spaces[0])
        if all(isinstance(space, MultiBinary) for space in layout.spaces):
            return spaces.MultiBinary(layout.size)
        self._start = layout.low
        return spaces.MultiDiscrete((layout.high - layout.low + 1).astype(np.int64))


def _common_type(layout: Layout) -> np.dtype[Any]:
    kinds = [space.dtype for space in layout.spaces]
    if not kinds or any(kind is None or kind.kind != "f" for kind in kinds):
        return np.dtype(np.float64)
    return np.result_type(*(kind for kind in kinds if kind is not None))


def _rounded(
    low: FloatVector, high: FloatVector, kind: np.dtype[Any], *, inwards: bool
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Convert the bounds to ``kind``; the interval shrinks if ``inwards``, else it may grow."""
    up, down = np.array(np.inf, kind), np.array(-np.inf, kind)
    with np.errstate(over="ignore"):
        lower, upper = low.astype(kind), high.astype(kind)
    if inwards:
        lower = np.where(lower < low, np.nextafter(lower, up), lower)
        upper = np.where(upper > high, np.nextafter(upper, down), upper)
    else:
        lower = np.where(lower > low, np.nextafter(lower, down), lower)
        upper = np.where(upper < high, np.nextafter(upper, up), upper)
    return lower, upper


def _shaped(space: Space, vector: FloatVector) -> Any:
    """Return the value of one channel in Gymnasium's form: an array, or a scalar for a ``Discrete``."""
    if isinstance(space, Discrete):
        return np.int64(vector[0])
    if isinstance(space, Tuple):
        return space.unflatten(vector)
    assert space.shape is not None and space.dtype is not None
    return vector.astype(space.dtype).reshape(space.shape)
