"""Spaces: the sets of values of readings, set-points and rewards, and their text form.

The classes have the names and the meaning of Gymnasium's, and are value objects: immutable, compared by
value, and without a random state.

Membership (:meth:`Space.contains`):

- Different forms of the same value are equivalent: Python numbers, numpy scalars, 0-d and n-d arrays
  and nested lists. In a space of a single number, axes of length one do not
  matter: ``3.0``, ``[3.0]`` and ``np.array(3.0)`` are one value.
- Integers may be written as floats (``3.0`` is in ``Discrete(5)``, ``3.5`` is not), because
  set-points travel in float64 vectors.
- ``True`` and ``False`` are 1 and 0 in the integer spaces ``Discrete``,
  ``MultiDiscrete`` and ``MultiBinary``; no ``Box`` contains them.
- NaN is in no space. Infinity is in a ``Box`` that is unbounded on that side.

Every space also has a *flat* form, a float64 vector with one element per number (a
``Discrete`` has one element; it is not one-hot), and the bounds of these elements, so that
the set-points of many actuators can be checked together.

The text looks like a Python call, so Python's parser makes the syntax tree. The tree
is then read node by node, with only the allowed elements of a space. Nothing is evaluated.
"""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self, SupportsInt

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.core.errors import SpaceError, did_you_mean
from palaestrai_mosaik.core.printing import shorten

from .arrays import FloatVector

__all__ = ["Box", "Discrete", "MultiBinary", "MultiDiscrete", "Space", "Tuple"]

#: beyond this, float64 does not distinguish neighbouring integers
LARGEST_INTEGER = 2**53
#: with fewer values than this, :meth:`Discrete.sample` draws from a float64
_FEW = 2**32


class Space(ABC):
    """A set of values; the base of all spaces.

    Attributes:
        shape (tuple of int, or None): shape of a value as an array; ``()`` for a single number, ``None`` for
            a ``Tuple``.
        dtype (numpy.dtype or None): type of a value's numbers; ``None`` for a ``Tuple``.
        size (int): numbers in the flat form of a value.
        flat_low (float64 vector of shape ``(size,)``): lower bounds of the flat form, inclusive; ``-inf``
            without a bound.
        flat_high (float64 vector of shape ``(size,)``): upper bounds of the flat form, inclusive; ``inf``
            without a bound.
        flat_integral (bool vector of shape ``(size,)``): mask of the elements that must be integers.
        rng (numpy.random.Generator or None): the default generator of :meth:`sample`; see
            :meth:`bound`.
    """

    shape: tuple[int, ...] | None
    dtype: np.dtype[Any] | None
    size: int
    flat_low: FloatVector
    flat_high: FloatVector
    flat_integral: npt.NDArray[np.bool_]
    rng: np.random.Generator | None
    _key: tuple[Any, ...]

    def _set(self, **attributes: Any) -> None:
        """Set attributes during construction; arrays become read-only."""
        for name, value in attributes.items():
            if isinstance(value, np.ndarray):
                value.flags.writeable = False
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a space cannot be changed: {name} of {self}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a space cannot be changed: {name} of {self}")

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return type(self) is type(other) and self._key == other._key

    def __hash__(self) -> int:
        return hash((type(self).__name__, self._key))

    # Immutable values need no copies; a copied set-point samples from the same generator as the original.
    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # only the value is pickled: a generator must not be duplicated implicitly
        return Space.from_string, (self.to_string(),)

    def bound(self, rng: np.random.Generator) -> Self:
        """Return an equal space that samples from another generator by default.

        Args:
            rng: the generator.
        """
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin.__dict__["rng"] = rng
        return twin

    def _generator(self, rng: np.random.Generator | None) -> np.random.Generator:
        rng = rng or self.rng
        if rng is None:
            raise SpaceError(
                f"no generator to sample {self} from: pass one, sample(rng), or bind one, bound(rng)"
            )
        return rng

    @abstractmethod
    def contains(self, value: Any) -> bool:
        """Return whether ``value`` is a member, by the rules of :mod:`.spaces`.

        Args:
            value: any object. One that no space can contain is not a member, and raises no error.
        """

    def __contains__(self, value: Any) -> bool:
        return self.contains(value)

    @abstractmethod
    def sample(self, rng: np.random.Generator | None = None) -> Any:
        """Return a random member.

        Args:
            rng: the generator to draw from; ``None``: the bound one, :attr:`rng`.

        Raises:
            SpaceError: there is no generator; a global one is never used.
        """

    @abstractmethod
    def flatten(self, value: Any) -> FloatVector:
        """Return a value as a new float64 vector of shape ``(size,)``.

        Bounds are not checked, since a reading may lie outside its space.

        Args:
            value: a number, an array or nested lists of the space's shape; of a ``Tuple``, one value for each of
                its spaces.

        Raises:
            SpaceError: ``value`` does not consist of numbers or has another shape.
        """

    @abstractmethod
    def unflatten(self, vector: npt.ArrayLike) -> Any:
        """Convert a flat vector to a value, the inverse of :meth:`flatten`. Bounds are not checked.

        Args:
            vector: ``(size,)``, numbers.

        Returns:
            A single number as ``int`` or ``float``, otherwise an array of the space's shape and dtype, or a tuple
            for a ``Tuple``.

        Raises:
            SpaceError: ``vector`` has another shape, or a fraction for an integer.
        """

    def to_number(self, value: Any) -> float:
        """Return the only number of a value, like ``flatten(value)[0]`` but faster.

        Args:
            value: a value of a space of size 1.

        Raises:
            SpaceError: ``value`` is not a single number.
        """
        return float(self.flatten(value)[0])

    def from_number(self, number: float) -> Any:
        """Return the value with this only number, like ``unflatten([number])`` but faster.

        Args:
            number: the number, in a space of size 1.

        Raises:
            SpaceError: it is a fraction, in a space of integers.
        """
        return self.unflatten((number,))

    @abstractmethod
    def to_string(self) -> str:
        """Return the text form, which :meth:`from_string` parses to an equal space."""

    def __repr__(self) -> str:
        return self.to_string()

    @classmethod
    def from_string(cls, text: str) -> Self:
        """Parse a space such as ``Box(low=0, high=1, shape=(2,))``.

        The spellings of palaestrAI and of this package are accepted: positional or named arguments,
        ``inf`` or ``np.inf``, ``float32`` or ``np.float32``, nested lists and tuples.
        Nothing is evaluated. On a subclass, only that kind of space is accepted.

        Args:
            text: the text form, such as :meth:`to_string` returns.

        Raises:
            SpaceError: the text cannot be parsed; the message has the position, the text found there and
                the allowed ones.
        """
        if not isinstance(text, str):
            raise SpaceError(f"the text of a space must be a string, found {text!r}")
        try:
            space = _Reader(text).read()
        except MemoryError as error:
            raise SpaceError(f"the space {text!r} is too large for the memory: {error}") from error
        if not isinstance(space, cls):
            raise SpaceError(f"expected a {cls.__name__}, found {space}")
        return space

    def _flat_vector(self, vector: npt.ArrayLike) -> FloatVector:
        flat = np.asarray(vector, dtype=np.float64)
        if flat.shape != (self.size,):
            raise SpaceError(f"the flat form of {self} has shape ({self.size},), not {flat.shape}")
        return flat


class ArraySpace(Space):
    """A space of arrays of one dtype; a single number is a 0-d array."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    _integral: bool
    #: whether it is a single float64 number
    _plain: bool
    _takes_bool: ClassVar[bool] = True
    #: bounds of the only number in a space of size 1, else NaN, which excludes every number
    _low: float
    _high: float

    def _define(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], low: npt.ArrayLike, high: npt.ArrayLike
    ) -> None:
        flat_low = np.array(low, dtype=np.float64).reshape(-1) + 0.0  # + 0.0 turns -0.0 into 0.0
        flat_high = np.array(high, dtype=np.float64).reshape(-1) + 0.0
        integral = dtype.kind in "iu"
        single = flat_low.size == 1
        self._set(
            shape=shape,
            dtype=dtype,
            size=flat_low.size,
            flat_low=flat_low,
            flat_high=flat_high,
            flat_integral=np.full(flat_low.size, integral),
            rng=None,
            _key=(shape, dtype.str, flat_low.tobytes(), flat_high.tobytes()),
            _integral=integral,
            _plain=shape == () and dtype == np.float64,
            _low=float(flat_low[0]) if single else np.nan,
            _high=float(flat_high[0]) if single else np.nan,
        )

    def _array(self, value: Any) -> npt.NDArray[Any] | None:
        """Return ``value`` as an array of this space's shape, or ``None`` if that is impossible."""
        try:
            array = np.asarray(value)
        except (ValueError, TypeError, OverflowError):  # ragged lists, objects without an array form
            return None
        kind = array.dtype.kind
        if kind not in "iuf" and not (kind == "b" and self._takes_bool):
            return None
        if array.shape == self.shape:
            return array
        return array.reshape(self.shape) if self.size == 1 and array.size == 1 else None

    def contains(self, value: Any) -> bool:
        kind = type(value)
        if kind is int:
            inside: bool = self._low <= value <= self._high
            return inside
        if kind is float or kind is np.float64:
            return self._low <= value <= self._high and (not self._integral or value == int(value))
        array = self._array(value)
        if array is None:
            return False
        flat = array.reshape(-1)
        inside = bool(((self.flat_low <= flat) & (flat <= self.flat_high)).all())
        return inside and (not self._integral or bool((flat == np.rint(flat)).all()))

    def flatten(self, value: Any) -> FloatVector:
        array = self._array(value)
        if array is None:
            raise SpaceError(f"cannot flatten {value!r} as a value of {self}")
        flat = np.empty(self.size)
        flat[:] = array.reshape(-1)
        return flat

    def to_number(self, value: Any) -> float:
        kind = type(value)
        if kind is float or kind is np.float64 or kind is np.float32:
            return float(value)
        return super().to_number(value)

    def from_number(self, number: float) -> Any:
        if self._plain:
            return number
        if self.shape == () and not self._integral:
            return float(self.dtype.type(number))
        return super().from_number(number)

    def unflatten(self, vector: npt.ArrayLike) -> Any:
        flat = self._flat_vector(vector)
        with np.errstate(invalid="ignore"):
            array = flat.astype(self.dtype)
        if self._integral and not np.array_equal(array, flat):
            raise SpaceError(f"{flat.tolist()} holds other than whole numbers of {self.dtype}, for {self}")
        return array.item() if self.shape == () else array.reshape(self.shape)


class Box(ArraySpace):
    """Arrays (or, with shape ``()``, single numbers) within inclusive bounds.

    Args:
        low, high: inclusive bounds, either one number for all elements or an array of the box's shape.
            Floating-point boxes may be unbounded, ``-inf`` and ``inf``. For integer types, infinity stands for the
            type's limit, or for 2**53 if that is nearer to zero, because float64 vectors do not represent every
            integer beyond it.
        shape: by default, that of ``low`` or ``high``, or ``(1,)`` if both are numbers.
        dtype: any floating-point (up to 64 bits) or integer type.

    Raises:
        SpaceError: the bounds do not fit the shape or the type, cross, or are NaN.
    """

    low: npt.NDArray[Any]
    high: npt.NDArray[Any]
    _takes_bool: ClassVar[bool] = False
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
            # Narrow types round the bounds; the flat bounds include both the original and the
            # rounded bound, so that either is a member.
            with np.errstate(over="ignore"):
                lows, highs = lower.astype(kind), upper.astype(kind)
            self._define(extent, kind, np.minimum(lower, lows), np.maximum(upper, highs))
        else:
            lower, upper = _integer_bounds(lower, upper, kind)
            lows, highs = lower.astype(kind), upper.astype(kind)
            self._define(extent, kind, lower, upper)
        # half the width, because the full width may overflow
        half_low = self.flat_low / 2
        half_span = self.flat_high / 2 - half_low
        half_span[~np.isfinite(half_span)] = 0.0
        self._set(
            low=lows,
            high=highs,
            _half_low=half_low,
            _half_span=half_span,
            _bounded=bool(np.isfinite([self.flat_low, self.flat_high]).all()),
            # Python numbers for spaces of size 1, because they are faster
            _single_half_low=self._low / 2,
            _single_half_span=float(half_span[0]),
        )

    def sample(self, rng: np.random.Generator | None = None) -> Any:
        """Return a random member, with independent elements.

        As in Gymnasium, the distribution of an element is uniform between two bounds, exponential with scale 1
        away from a single bound, and standard normal without bounds; integers are uniform.
        """
        rng = rng or self.rng or self._generator(rng)
        if self._integral:
            elements: Any = rng.integers(
                self.flat_low.astype(np.int64), self.flat_high.astype(np.int64), endpoint=True
            )
        elif self._bounded:
            if self.shape == ():
                number = (self._single_half_low + self._single_half_span * rng.random()) * 2
                number = min(max(number, self._low), self._high)
                return number if self._plain else float(self.dtype.type(number))
            elements = (self._half_low + self._half_span * rng.random(self.size)) * 2
        else:
            elements = self._sample_unbounded(rng)
        with np.errstate(over="ignore"):
            array = np.clip(elements, self.flat_low, self.flat_high).astype(self.dtype)
        return array.item() if self.shape == () else array.reshape(self.shape)

    def _sample_unbounded(self, rng: np.random.Generator) -> FloatVector:
        """Draw flat elements, some of them without a bound."""
        elements = np.empty(self.size)
        has_low, has_high = np.isfinite(self.flat_low), np.isfinite(self.flat_high)
        both, neither = has_low & has_high, ~has_low & ~has_high
        below, above = has_low & ~has_high, ~has_low & has_high
        elements[neither] = rng.standard_normal(int(neither.sum()))
        elements[below] = self.flat_low[below] + rng.standard_exponential(int(below.sum()))
        elements[above] = self.flat_high[above] - rng.standard_exponential(int(above.sum()))
        elements[both] = (self._half_low[both] + self._half_span[both] * rng.random(int(both.sum()))) * 2
        return elements

    def to_string(self) -> str:
        low, high = (self._bounds_text(flat) for flat in (self.flat_low, self.flat_high))
        return f"Box(low={low}, high={high}, shape={self.shape}, dtype={self.dtype})"

    def _bounds_text(self, flat: FloatVector) -> str:
        """Return one number if all elements share it, otherwise the nested list."""
        array = flat.astype(np.int64) if self._integral else flat
        if (flat == flat[0]).all():
            return repr(array[0].item())
        return repr(array.reshape(self.shape).tolist())


class Discrete(ArraySpace):
    """The integers ``start``, ``start + 1``, ..., ``start + n - 1``.

    Args:
        n: number of values, at least 1.
        start: the first value. All must stay within plus and minus 2**53.

    Raises:
        SpaceError: ``n`` or ``start`` is not an integer or out of range.
    """

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
        """Return a random member, uniformly distributed."""
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
    """Arrays of integers; the element at index ``i`` is 0, 1, ..., or ``nvec[i] - 1``.

    Args:
        nvec: the number of values of each element, at least 1: an array or nested lists, of the shape of a value.

    Raises:
        SpaceError: ``nvec`` is empty or a single number, or has other than whole numbers from 1 to 2**53.
    """

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
        """Return a random member, an int64 array, uniformly distributed."""
        return self._generator(rng).integers(self.nvec)

    def to_string(self) -> str:
        return f"MultiDiscrete({self.nvec.tolist()})"


class MultiBinary(ArraySpace):
    """Arrays of zeros and ones.

    Args:
        n: the length of the arrays, or their shape.

    Raises:
        SpaceError: ``n`` is not made of whole numbers of at least 1.
    """

    def __init__(self, n: SupportsInt | Sequence[int]):
        shape = _shape([n] if np.ndim(n) == 0 else n)  # type: ignore[arg-type, list-item]
        if not shape:
            raise SpaceError("a MultiBinary needs at least one axis")
        self._define(shape, np.dtype(np.int8), np.zeros(shape), np.ones(shape))

    @property
    def n(self) -> int | tuple[int, ...]:
        """The length, or the shape if there are several axes."""
        return self.shape[0] if len(self.shape) == 1 else self.shape

    def sample(self, rng: np.random.Generator | None = None) -> npt.NDArray[np.int8]:
        """Return a random member, an int8 array, uniformly distributed."""
        return self._generator(rng).integers(0, 2, self.shape, dtype=np.int8)

    def to_string(self) -> str:
        return f"MultiBinary({self.n})"


class Tuple(Space):
    """Tuples with one value from each of several spaces.

    Args:
        spaces: the spaces, as arguments or as one list: ``Tuple(a, b)`` or ``Tuple([a, b])``.

    Raises:
        SpaceError: there is none, or one of them is no :class:`Space`.
    """

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
    default = arrays[0] if arrays else (1,)
    extent = _shape(default if shape is None else shape)
    for bound in arrays:
        if bound != extent:
            raise SpaceError(f"the bounds of a Box must have its shape {extent} or be numbers, found {bound}")
    return extent


def _integer_bounds(
    low: npt.NDArray[Any], high: npt.NDArray[Any], dtype: np.dtype[Any]
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Replace infinities by the type's limits, and refuse bounds that the type cannot hold."""
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


_KINDS: dict[str, type[Space]] = {
    kind.__name__: kind for kind in (Box, Discrete, MultiDiscrete, MultiBinary, Tuple)
}
#: arguments in positional order, then the number of mandatory ones
_ARGUMENTS: dict[str, tuple[tuple[str, ...], int]] = {
    "Box": (("low", "high", "shape", "dtype"), 2),
    "Discrete": (("n", "start"), 1),
    "MultiDiscrete": (("nvec",), 1),
    "MultiBinary": (("n",), 1),
}
_DTYPES: dict[str, type[np.generic]] = {
    **{t.__name__: t for t in (np.float16, np.float32, np.float64, np.int8, np.int16, np.int32, np.int64)},
    **{t.__name__: t for t in (np.uint8, np.uint16, np.uint32, np.uint64)},
    **{"half": np.float16, "single": np.float32, "double": np.float64, "float": np.float64, "int": np.int64},
}
_EXPECTED = f"one of {', '.join(_KINDS)} with its arguments in parentheses"


class _Reader:
    """Parses one text, and quotes it in errors."""

    def __init__(self, text: str):
        self.text = text

    def error(self, message: str, node: ast.AST | None = None) -> SpaceError:
        position = ""
        if isinstance(node, ast.expr | ast.keyword):
            line = f"line {node.lineno}, " if node.lineno > 1 else ""
            position = f"{line}column {node.col_offset + 1}: "
        return SpaceError(f"cannot read the space {shorten(self.text, 100)!r}: {position}{message}")

    def read(self) -> Space:
        try:
            tree = ast.parse(self.text.strip(), mode="eval")
        except SyntaxError as error:
            position = f" at column {error.offset}" if error.offset else ""
            raise self.error(f"{error.msg}{position}; expected {_EXPECTED}") from error
        except (ValueError, RecursionError, MemoryError) as error:
            raise self.error(f"{str(error) or type(error).__name__}; expected {_EXPECTED}") from error
        try:
            return self.space(tree.body)
        except RecursionError as error:
            raise self.error("nested too deeply") from error

    def space(self, node: ast.expr) -> Space:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            raise self.error(f"found {ast.unparse(node)!r}, expected {_EXPECTED}", node)
        name = node.func.id
        if name not in _KINDS:
            raise self.error(
                f"unknown space {name!r}{did_you_mean(name, _KINDS)}; allowed: {', '.join(_KINDS)}", node
            )
        try:
            if name == "Tuple":
                return Tuple(*self.members(node))
            return _KINDS[name](**self.arguments(name, node))
        except SpaceError as error:
            if str(error).startswith("cannot read the space"):
                raise
            raise self.error(str(error), node) from error

    def members(self, node: ast.Call) -> list[Space]:
        """Read the spaces of a Tuple, listed one by one or in one list or tuple."""
        if node.keywords:
            raise self.error(f"a Tuple takes spaces only, not {node.keywords[0].arg}=", node.keywords[0])
        nodes = node.args
        if len(nodes) == 1 and isinstance(nodes[0], ast.List | ast.Tuple):
            nodes = nodes[0].elts
        return [self.space(member) for member in nodes]

    def arguments(self, name: str, node: ast.Call) -> dict[str, Any]:
        names, mandatory = _ARGUMENTS[name]
        allowed = f"allowed: {', '.join(names)}"
        if len(node.args) > len(names):
            raise self.error(f"too many arguments for {name}; {allowed}", node.args[len(names)])
        nodes: dict[str, ast.expr] = dict(zip(names, node.args, strict=False))
        for keyword in node.keywords:
            key = keyword.arg
            if key not in names:
                hint = did_you_mean(str(key), names)
                raise self.error(f"unknown argument {key!r} of {name}{hint}; {allowed}", keyword)
            if key in nodes:
                raise self.error(f"argument {key!r} is given twice", keyword)
            nodes[key] = keyword.value
        for key in names[:mandatory]:
            if key not in nodes:
                raise self.error(f"{name} lacks {key!r}; {allowed}", node)
        return {
            key: self.dtype(value) if key == "dtype" else self.numbers(value) for key, value in nodes.items()
        }

    def numbers(self, node: ast.expr) -> Any:
        """Read a number, or lists and tuples of numbers to any depth."""
        if isinstance(node, ast.List | ast.Tuple):
            return [self.numbers(element) for element in node.elts]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            value = self.number(node.operand)
            return -value if isinstance(node.op, ast.USub) else value
        return self.number(node)

    def number(self, node: ast.expr) -> float | int:
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            return node.value  # type: ignore[return-value]
        if _plain_name(node) in ("inf", "Infinity"):
            return np.inf
        raise self.error(f"found {ast.unparse(node)!r}, expected a number, inf, or a list of these", node)

    def dtype(self, node: ast.expr) -> type[np.generic]:
        name = node.value if isinstance(node, ast.Constant) else _plain_name(node)
        if name not in _DTYPES:
            hint = did_you_mean(str(name), _DTYPES)
            allowed = ", ".join(_DTYPES)
            raise self.error(f"unknown dtype {ast.unparse(node)!r}{hint}; allowed: {allowed}", node)
        return _DTYPES[name]


def _plain_name(node: ast.expr) -> str | None:
    """Return ``x`` for ``x`` and ``np.x``, else None."""
    if isinstance(node, ast.Name):
        return node.id
    if (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in ("np", "numpy")
    ):
        return node.attr
    return None
