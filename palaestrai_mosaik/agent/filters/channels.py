"""Checks of filters' channels and parameters, and the channels that filters make."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.agent.filter import Filter
from palaestrai_mosaik.core.checks import check_whole
from palaestrai_mosaik.core.errors import ContractError, did_you_mean
from palaestrai_mosaik.types import Box, Space
from palaestrai_mosaik.types.arrays import FloatVector
from palaestrai_mosaik.types.vectors import Layout


def real_box(space: Space, low: npt.ArrayLike, high: npt.ArrayLike) -> Box:
    """Return a float64 box with the shape of ``space`` (flat for a ``Tuple``) and other bounds.

    ``low``, ``high``: one number for all elements, or flat vectors of shape ``(space.size,)``.
    """
    shape = (space.size,) if space.shape is None else space.shape
    bounds = [np.broadcast_to(np.asarray(b, dtype=np.float64), space.size) for b in (low, high)]
    return Box(bounds[0].reshape(shape), bounds[1].reshape(shape), shape=shape)


def require_boxes(owner: Filter, layout: Layout, *, bounded: bool = False) -> None:
    """Raise :class:`ContractError` for the first actuator that is not a (``bounded``) ``Box``."""
    for uid, space in zip(layout.uids, layout.spaces, strict=True):
        if not isinstance(space, Box):
            raise space_error(owner, uid, space, "a Box")
        if bounded:
            require_bounds(owner, uid, space)


def require_bounds(owner: Filter, uid: str, space: Space) -> None:
    """Raise :class:`ContractError` if any bound of an actuator's space is infinite."""
    with np.errstate(over="ignore"):
        if not np.isfinite(space.flat_high - space.flat_low).all():
            raise space_error(owner, uid, space, "bounded")


def space_error(owner: Filter, uid: str, space: Space, wanted: str) -> ContractError:
    """Build the error for an actuator that the filter does not support."""
    return ContractError(
        f"filter {type(owner).__name__}: the space of actuator {uid!r} must be {wanted}, not {space}"
    )


def nearest_to_zero(layout: Layout) -> FloatVector:
    """Return the flat set-points nearest to 0 within the spaces."""
    return np.clip(np.zeros(layout.size), layout.low, layout.high)


def chosen_sensors(owner: Filter, uids: Sequence[str] | None, layout: Layout) -> list[int]:
    """Return the indices of the sensors ``uids`` in the layout's order; ``None`` means all.

    Raises :class:`ContractError` if ``uids`` is not a list of names, is empty, or has an unknown or
    repeated sensor.
    """
    if uids is None:
        return list(range(len(layout.uids)))
    name = type(owner).__name__
    if not isinstance(uids, list | tuple) or not uids or not all(isinstance(uid, str) for uid in uids):
        raise ContractError(
            f"filter {name}: the sensors must be a list of one or more uids, not {uids!r}; leave the parameter "
            "out for all sensors"
        )
    for uid in uids:
        if uid not in layout.index:
            raise ContractError(
                f"filter {name}: {uid!r} is not one of the agent's sensors" + did_you_mean(uid, layout.uids)
            )
    if len(set(uids)) != len(uids):
        raise ContractError(f"filter {name}: a sensor is named twice in {list(uids)}")
    return sorted(layout.index[uid] for uid in uids)


def flat_indices(layout: Layout, channels: Sequence[int]) -> npt.NDArray[np.intp]:
    """Return the indices of the values of ``channels`` in the layout's vector."""
    return np.array([i for c in channels for i in range(layout.slices[c].start, layout.slices[c].stop)], int)


def whole_number(owner: Filter, name: str, value: int, *, least: int = 1) -> int:
    """Check that the parameter ``value`` is an integer of at least ``least``, and return it."""
    check_whole(f"filter {type(owner).__name__}: {name}", value, least)
    return value


def number(
    owner: Filter,
    name: str,
    value: float,
    *,
    least: float = 0.0,
    above: bool = False,
    infinite: bool = False,
) -> float:
    """Check that the parameter ``value`` is at least (``above``: more than) ``least``; return it as a float.

    It must be finite, unless ``infinite``.
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not (value > least if above else value >= least) or not _held(value, infinite):
        kind = "number" if infinite else "finite number"
        limit = "" if least == -math.inf else f" {'of more than' if above else 'of at least'} {least:g}"
        raise ContractError(f"filter {type(owner).__name__}: {name} must be a {kind}{limit}, not {value!r}")
    return float(value)


def _held(value: float, infinite: bool) -> bool:
    """Return whether a float can hold ``value``, which must be finite unless ``infinite``."""
    try:
        return math.isfinite(float(value)) or infinite
    except OverflowError:
        return False


def flag(owner: Filter, name: str, value: bool) -> bool:
    """Check that the parameter ``value`` is a boolean, and return it."""
    if not isinstance(value, bool):
        raise ContractError(f"filter {type(owner).__name__}: {name} must be true or false, not {value!r}")
    return value
