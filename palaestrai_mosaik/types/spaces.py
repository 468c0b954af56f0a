"""Spaces: which values a reading, a set-point or a reward may take.

The classes have the names and the meaning of Gymnasium's, and are value objects: they
never change, compare by what they are, and hold no random state of their own.

What counts as a member (:meth:`Space.contains`):

- Whatever *means the same value*: Python numbers, numpy scalars, 0-d and n-d arrays and
  nested lists are alike. Where a space holds a single number, axes of length one do not
  matter: ``3.0``, ``[3.0]`` and ``np.array(3.0)`` are one value.
- Integers may be written as floats (``3.0`` is in ``Discrete(5)``, ``3.5`` is not), for
  set-points travel in float64 vectors.
- ``True`` and ``False`` are 1 and 0 in the integer spaces ``Discrete``,
  ``MultiDiscrete`` and ``MultiBinary``; no ``Box`` holds them.
- NaN is in no space. Infinity is in a ``Box`` that is unbounded on that side.

Every space also has a *flat* form, a float64 vector with one place per number (a
``Discrete`` takes one place, it is not one-hot), and the bounds of these places, so that
the set-points of many actuators can be checked in one go.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, SupportsInt

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.errors import SpaceError

from .space import ArraySpace, FloatVector, Space

__all__ = ["Box", "Discrete", "MultiBinary", "MultiDiscrete", "Space", "Tuple"]

#: Beyond this, float64 does not tell neighbouring integers apart.
LARGEST_INTEGER = 2**53
#: Fewer values than this are drawn from a float64 (:meth:`Discrete.sample`).
_FEW = 2**32


class Box(ArraySpace):
    """Arrays (or, with shape ``()``, single numbers) within bounds, each inclusive.

    Parameters
    ----------
    low, high : float or array-like
        Bounds: one number for all places, or an array of the box's shape. Floating-point
        boxes may be unbounded (``-inf``, ``inf``). Integer types know no infinity: there
        it stands for the type's limit, or for 2**53 where that is nearer to zero, beyond
        which float64 vectors do not carry every integer.
    shape : sequence of int, optional
        When left out, that of ``low`` or ``high``, ``(1,)`` if both are numbers.
    dtype : numpy dtype
        Any floating-point (up to 64 bits) or integer type.

    Raises
    ------
    SpaceError
        If the bounds do not fit the shape or the type, cross, or are NaN.
    """

    low: npt.NDArray[Any]
    high: npt.NDArray[Any]
    _takes_bool: ClassVar[bool] = False
    _has_low: npt.NDArray[np.bool_]
    _has_high: npt.NDArray[np.bool_]
    _half_low: FloatVector
    _half_span: FloatVector
    _bounded: bool
    _single_half_low: float
    _single_half_span: float

    def __init__(
        self,
        low: npt.ArrayLike,
        high: npt.ArrayLike,
        shape: Sequence[int] | None = None,
        dtype: npt.DTypeLike = np.float64,
    ):
        kind = _number_type(dtype)
        lower, upper = _numbers("low", low), _numbers("high", high)
        extent = _box_shape(lower, upper, shape)
        lower, upper = np.broadcast_to(lower, extent), np.broadcast_to(upper, extent)
        if np.any(lower == np.inf) or np.any(upper == -np.inf):
            raise SpaceError("a Box needs low < inf and high > -inf")
        if not np.all(lower <= upper):
            raise SpaceError(f"a Box needs low <= high, found low={lower.tolist()}, high={upper.tolist()}")
        if kind.kind == "f":
            # Narrow types round the bounds; the flat bounds take in both the bound as
            # given and as rounded, so that either is a member.
            with np.errstate(over="ignore"):
                lows, highs = lower.astype(kind), upper.astype(kind)
            self._define(extent, kind, np.minimum(lower, lows), np.maximum(upper, highs))
        else:
            lower, upper = _integer_bounds(lower, upper, kind)
            lows, highs = lower.astype(kind), upper.astype(kind)
            self._define(extent, kind, lower, upper)
        half_low, half_high = self.flat_low / 2, self.flat_high / 2
        self._set(
            low=lows,
            high=highs,
            _has_low=np.isfinite(self.flat_low),
            _has_high=np.isfinite(self.flat_high),
            # half the width, for the width itself may overflow
            _half_low=half_low,
            _half_span=np.where(np.isfinite(half_high - half_low), half_high - half_low, 0.0),
        )
        self._set(
            _bounded=bool((self._has_low & self._has_high).all()),
            # of a space of size 1, as Python numbers, which are quicker
            _single_half_low=self._low / 2,
            _single_half_span=float(self._half_span[0]),
        )

    def sample(self, rng: np.random.Generator | None = None) -> Any:
        """Return a random member, each place independent of the others.

        As in Gymnasium: uniform between two bounds, exponential (scale 1) away from a
        single bound, standard normal without bounds; integers are uniform.
        """
        rng = rng or self.rng or self._generator(rng)
        if self._integral:
            places: Any = rng.integers(
                self.flat_low.astype(np.int64), self.flat_high.astype(np.int64), endpoint=True
            )
        elif self._bounded:
            if self.shape == ():
                number = (self._single_half_low + self._single_half_span * rng.random()) * 2
                number = min(max(number, self._low), self._high)
                return number if self._plain else float(self.dtype.type(number))
            places = (self._half_low + self._half_span * rng.random(self.size)) * 2
        else:
            places = self._sample_unbounded(rng)
        with np.errstate(over="ignore"):
            array = np.clip(places, self.flat_low, self.flat_high).astype(self.dtype)
        return array.item() if self.shape == () else array.reshape(self.shape)

    def _sample_unbounded(self, rng: np.random.Generator) -> FloatVector:
        """Draw flat places of which some lack a bound."""
        places = np.empty(self.size)
        has_low, has_high = self._has_low, self._has_high
        both, neither = has_low & has_high, ~has_low & ~has_high
        below, above = has_low & ~has_high, ~has_low & has_high
        places[neither] = rng.standard_normal(int(neither.sum()))
        places[below] = self.flat_low[below] + rng.standard_exponential(int(below.sum()))
        places[above] = self.flat_high[above] - rng.standard_exponential(int(above.sum()))
        places[both] = (self._half_low[both] + self._half_span[both] * rng.random(int(both.sum()))) * 2
        return places

    def to_string(self) -> str:
        low, high = (self._bounds_text(flat) for flat in (self.flat_low, self.flat_high))
        return f"Box(low={low}, high={high}, shape={self.shape}, dtype={self.dtype})"

    def _bounds_text(self, flat: FloatVector) -> str:
        """Print one number where all places share it, else the nested list."""
        array = flat.astype(np.int64) if self._integral else flat
        if (flat == flat[0]).all():
            return repr(array[0].item())
        return repr(array.reshape(self.shape).tolist())


class Discrete(ArraySpace):
    """The integers ``start``, ``start + 1``, ..., ``start + n - 1``."""

    n: int
    start: int

    def __init__(self, n: SupportsInt, start: SupportsInt = 0):
        count, first = _integer("n", n), _integer("start", start)
        if count < 1:
            raise SpaceError(f"a Discrete needs n >= 1, found {count}")
        if max(abs(first), abs(first + count - 1)) > LARGEST_INTEGER:
            raise SpaceError(f"a Discrete must stay within +/-2**53, found n={count}, start={first}")
        self._set(n=count, start=first)
        self._define((), np.dtype(np.int64), first, first + count - 1)

    def sample(self, rng: np.random.Generator | None = None) -> int:
        """Return a random member; all are equally likely."""
        rng = rng or self.rng or self._generator(rng)
        if self.n < _FEW:
            # a fifth of the time of rng.integers; the bias is below n * 2**-53
            return self.start + int(rng.random() * self.n)
        return self.start + int(rng.integers(self.n))

    def unflatten(self, vector: npt.ArrayLike) -> int:
        return self.from_number(float(self._flat_vector(vector)[0]))

    def from_number(self, number: float) -> int:
        if not number.is_integer():
            raise SpaceError(f"{number} is not a whole number, for {self}")
        return int(number)

    def to_string(self) -> str:
        return f"Discrete({self.n}, start={self.start})" if self.start else f"Discrete({self.n})"


class MultiDiscrete(ArraySpace):
    """Arrays of integers; the one at place ``i`` is 0, 1, ..., or ``nvec[i] - 1``."""

    nvec: npt.NDArray[np.int64]

    def __init__(self, nvec: npt.ArrayLike):
        counts = _numbers("nvec", nvec)
        if counts.ndim == 0 or counts.size == 0:
            raise SpaceError("a MultiDiscrete needs a list with at least one number of values")
        if not np.all((counts >= 1) & (counts <= LARGEST_INTEGER) & (counts == np.rint(counts))):
            raise SpaceError(f"a MultiDiscrete needs whole numbers >= 1, found {counts.tolist()}")
        self._set(nvec=counts.astype(np.int64))
        self._define(counts.shape, np.dtype(np.int64), np.zeros(counts.shape), counts - 1)

    def sample(self, rng: np.random.Generator | None = None) -> npt.NDArray[np.int64]:
        """Return a random member, an int64 array; all are equally likely."""
        return self._generator(rng).integers(self.nvec)

    def to_string(self) -> str:
        return f"MultiDiscrete({self.nvec.tolist()})"


class MultiBinary(ArraySpace):
    """Arrays of zeros and ones, of length ``n`` or, where ``n`` is a sequence, of that shape."""

    def __init__(self, n: SupportsInt | Sequence[int]):
        shape = _shape([n] if np.ndim(n) == 0 else n)  # type: ignore[arg-type, list-item]
        if not shape:
            raise SpaceError("a MultiBinary needs at least one axis")
        self._define(shape, np.dtype(np.int8), np.zeros(shape), np.ones(shape))

    @property
    def n(self) -> int | tuple[int, ...]:
        """The length, or the shape where there are several axes."""
        return self.shape[0] if len(self.shape) == 1 else self.shape

    def sample(self, rng: np.random.Generator | None = None) -> npt.NDArray[np.int8]:
        """Return a random member, an int8 array; all are equally likely."""
        return self._generator(rng).integers(0, 2, self.shape, dtype=np.int8)

    def to_string(self) -> str:
        return f"MultiBinary({self.n})"


class Tuple(Space):
    """Tuples with one value of each of ``spaces``: ``Tuple(a, b)`` or ``Tuple([a, b])``."""

    spaces: tuple[Space, ...]

    def __init__(self, *spaces: Space | Sequence[Space]):
        members = spaces[0] if len(spaces) == 1 and isinstance(spaces[0], (list, tuple)) else spaces
        if not members or not all(isinstance(s, Space) for s in members):
            raise SpaceError(f"a Tuple needs one or more spaces, found {members!r}")
        parts: tuple[Space, ...] = tuple(members)  # type: ignore[arg-type]
        self._set(
            spaces=parts,
            shape=None,
            dtype=None,
            size=sum(s.size for s in parts),
            flat_low=np.concatenate([s.flat_low for s in parts]),
            flat_high=np.concatenate([s.flat_high for s in parts]),
            flat_integral=np.concatenate([s.flat_integral for s in parts]),
            rng=None,
            _key=parts,
        )

    def __len__(self) -> int:
        return len(self.spaces)

    def __getitem__(self, index: int) -> Space:
        return self.spaces[index]

    def contains(self, value: Any) -> bool:
        return self._fits(value) and all(s.contains(v) for s, v in zip(self.spaces, value, strict=True))

    def _fits(self, value: Any) -> bool:
        if isinstance(value, np.ndarray):
            return value.ndim > 0 and len(value) == len(self.spaces)
        return isinstance(value, (tuple, list)) and len(value) == len(self.spaces)

    def sample(self, rng: np.random.Generator | None = None) -> tuple[Any, ...]:
        """Return a random member: a sample of each space, drawn in order."""
        rng = self._generator(rng)
        return tuple(s.sample(rng) for s in self.spaces)

    def flatten(self, value: Any) -> FloatVector:
        if not self._fits(value):
            raise SpaceError(f"cannot flatten {value!r} as a value of {self}")
        return np.concatenate([s.flatten(v) for s, v in zip(self.spaces, value, strict=True)])

    def unflatten(self, vector: npt.ArrayLike) -> tuple[Any, ...]:
        flat = self._flat_vector(vector)
        values, start = [], 0
        for space in self.spaces:
            values.append(space.unflatten(flat[start : start + space.size]))
            start += space.size
        return tuple(values)

    def to_string(self) -> str:
        return f"Tuple({', '.join(s.to_string() for s in self.spaces)})"


def _number_type(dtype: npt.DTypeLike) -> np.dtype[Any]:
    try:
        kind = np.dtype(dtype)
    except TypeError as error:
        raise SpaceError(f"{dtype!r} is not a numpy dtype") from error
    if kind.kind not in "iuf" or kind.itemsize > 8:
        raise SpaceError(f"a Box is of integers or of floats of up to 64 bits, not of {kind}")
    return kind.newbyteorder("=")


def _numbers(name: str, value: npt.ArrayLike) -> npt.NDArray[Any]:
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise SpaceError(f"{name} is not a regular array: {value!r}") from error
    if array.dtype.kind not in "iuf":
        raise SpaceError(f"{name} must be a number or numbers, found {value!r}")
    array = array.astype(np.float64)
    if np.isnan(array).any():
        raise SpaceError(f"{name} must not be NaN, found {value!r}")
    return array


def _integer(name: str, value: Any) -> int:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise SpaceError(f"{name} must be an integer, found {value!r}")
    return int(value)


def _shape(shape: Sequence[int]) -> tuple[int, ...]:
    if np.ndim(shape) != 1:
        raise SpaceError(f"a shape is a sequence of integers, found {shape!r}")
    lengths = tuple(_integer("an axis of the shape", n) for n in shape)
    if any(n < 1 for n in lengths):
        raise SpaceError(f"every axis of a shape needs a length >= 1, found {lengths}")
    return lengths


def _box_shape(low: npt.NDArray[Any], high: npt.NDArray[Any], shape: Sequence[int] | None) -> tuple[int, ...]:
    arrays = [bound.shape for bound in (low, high) if bound.ndim]
    given = arrays[0] if arrays else (1,)
    extent = _shape(given if shape is None else shape)
    for bound in arrays:
        if bound != extent:
            raise SpaceError(f"the bounds of a Box must have its shape {extent} or be numbers, found {bound}")
    return extent


def _integer_bounds(
    low: npt.NDArray[Any], high: npt.NDArray[Any], dtype: np.dtype[Any]
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Replace infinities by the type's limits; refuse bounds that the type cannot hold."""
    limits = np.iinfo(dtype)
    least, most = max(limits.min, -LARGEST_INTEGER), min(limits.max, LARGEST_INTEGER)
    low = np.where(low == -np.inf, least, low)
    high = np.where(high == np.inf, most, high)
    for name, bound in (("low", low), ("high", high)):
        if not np.all((bound >= least) & (bound <= most) & (bound == np.rint(bound))):
            raise SpaceError(
                f"{name} of a Box of {dtype} needs whole numbers from {least} to {most}, "
                f"found {bound.tolist()}"
            )
    return low, high
