"""Values on their way from entities to agents, and whole numbers that a script gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from palaestrai_mosaik.errors import ContractError, SpaceError
from palaestrai_mosaik.types import Space


def whole(what: str, given: Any, least: int | None = None) -> int:
    """Return ``given`` as a whole number; ``what`` it is, for the message. Raises :class:`ContractError`."""
    integer = isinstance(given, int | np.integer) and not isinstance(given, bool)
    if not integer or (least is not None and given < least):
        bound = "" if least is None else f", at least {least}"
        raise ContractError(f"{what} must be a whole number{bound}, found {given!r}")
    return int(given)


def missing_in(space: Space) -> Any:
    """Return the reading of what is not there yet: NaN; ``None`` where ``space`` is of whole numbers."""
    return None if space.flat_integral.any() else space.unflatten(np.full(space.size, np.nan))


def reading_of(space: Space, sensor: str) -> Callable[[Any], Any]:
    """Return what makes a reading of the values that an entity gives; ``sensor``: for the message.

    What is not there yet (``None``) is NaN, a truth value a number. Raises :class:`ContractError` for
    what is no value of ``space`` (its bounds are not asked).
    """
    missing = missing_in(space)
    plain = space.size == 1 and missing is not None

    def reading(value: Any) -> Any:
        if plain and type(value) is float:
            return value
        if value is None:
            if missing is None:
                raise ContractError(
                    f"sensor {sensor!r} has no value yet, which whole numbers cannot say: give it a Box in place of {space}"
                )
            return missing
        known = np.asarray(value, dtype=object)
        if all(isinstance(one, bool | np.bool_) for one in known.flat):
            value = known.astype(np.float64)
        try:
            # whole numbers, where there must be
            space.unflatten(space.flatten(value))
        except SpaceError as error:
            raise ContractError(f"what sensor {sensor!r} gave is no reading: {value!r} ({error})") from None
        return value

    return reading
