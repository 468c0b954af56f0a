"""What all spaces have in common: the base class, and the base of spaces of arrays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.errors import SpaceError

FloatVector = npt.NDArray[np.float64]


class Space(ABC):
    """A set of values; the base of all spaces.

    Attributes
    ----------
    shape : tuple of int, or None
        Shape of a value as an array; ``()`` for a single number, ``None`` for a ``Tuple``.
    dtype : numpy.dtype or None
        Type of a value's numbers; ``None`` for a ``Tuple``.
    size : int
        Numbers in the flat form of a value.
    flat_low, flat_high : float64 vectors of shape ``(size,)``
        Bounds of the flat form, both inclusive; infinite where there is none.
    flat_integral : bool vector of shape ``(size,)``
        Where the flat form must be a whole number.
    rng : numpy.random.Generator or None
        What :meth:`sample` draws from if it is given nothing; see :meth:`bound`.
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
        """Set attributes while the object is being made; arrays become read-only."""
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

    # Values that never change need no copies; a copied set-point samples as the original does.
    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # A pickled space is its meaning; a generator must not be duplicated in secret.
        return Space.from_string, (self.to_string(),)

    def bound(self, rng: np.random.Generator) -> Self:
        """Return a copy, equal to this space, whose :meth:`sample` draws from ``rng``."""
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
        """Return whether ``value`` is a member (:mod:`.spaces` says what counts). Never raises."""

    def __contains__(self, value: Any) -> bool:
        return self.contains(value)

    @abstractmethod
    def sample(self, rng: np.random.Generator | None = None) -> Any:
        """Return a random member, drawn from ``rng`` or else from the bound generator.

        Raises
        ------
        SpaceError
            If there is no generator; a global one is never used.
        """

    @abstractmethod
    def flatten(self, value: Any) -> FloatVector:
        """Return ``value`` as a new float64 vector of shape ``(size,)``.

        Bounds are not checked (a reading may lie outside its space).

        Raises
        ------
        SpaceError
            If ``value`` is not made of numbers or has another shape.
        """

    @abstractmethod
    def unflatten(self, vector: npt.ArrayLike) -> Any:
        """Return the value whose flat form is ``vector``, the inverse of :meth:`flatten`.

        A single number comes back as ``int`` or ``float``, others as arrays of the
        space's shape and dtype, a ``Tuple``'s as a tuple. Bounds are not checked.

        Raises
        ------
        SpaceError
            If ``vector`` has another shape than ``(size,)``, or holds something other
            than a whole number where one must be.
        """

    def to_number(self, value: Any) -> float:
        """Return the only number of ``value``, for a space of size 1: ``flatten(value)[0]``, but faster."""
        return float(self.flatten(value)[0])

    def from_number(self, number: float) -> Any:
        """Return the value with this only number: ``unflatten([number])``, but faster."""
        return self.unflatten((number,))

    @abstractmethod
    def to_string(self) -> str:
        """Return the text from which :meth:`from_string` makes an equal space."""

    def __repr__(self) -> str:
        return self.to_string()

    @classmethod
    def from_string(cls, text: str) -> Self:
        """Return the space that ``text`` describes, such as ``Box(low=0, high=1, shape=(2,))``.

        palaestrAI's and our own spellings are read: positional or named arguments,
        ``inf`` or ``np.inf``, ``float32`` or ``np.float32``, nested lists and tuples.
        Nothing is evaluated. On a subclass, only that kind of space is accepted.

        Raises
        ------
        SpaceError
            If the text cannot be read; says where, what was found and what is allowed.
        """
        from .space_text import parse_space

        try:
            space = parse_space(text)
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
    """A space whose values are arrays of one dtype (a single number being a 0-d array)."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    _integral: bool
    #: a single number of float64
    _plain: bool
    _takes_bool: ClassVar[bool] = True
    #: bounds of the one number of a space of size 1, else NaN (which contains nothing)
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
        """Return ``value`` as an array of this space's shape, ``None`` if it is none."""
        try:
            array = np.asarray(value)
        except (ValueError, TypeError, OverflowError):  # ragged lists, objects that refuse
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
            return self._low <= value <= self._high
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
