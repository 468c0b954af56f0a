"""Arrays of batched environments: are they what was declared?"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.errors import ActionError, ContractError

Array = npt.NDArray[Any]
FloatMatrix = npt.NDArray[np.float64]
BoolVector = npt.NDArray[np.bool_]
#: shape (without the batch's axis) and dtype of each declared array
Kinds = Sequence[tuple[tuple[int, ...], np.dtype[Any]]]


def kinds_of(shapes: Sequence[tuple[int, ...]], dtypes: Sequence[np.dtype[Any]], flat: bool = False) -> Kinds:
    """Return the declared kinds; ``flat``: of one float64 array with all of them side by side."""
    if flat:
        return [((sum(int(np.prod(shape)) for shape in shapes),), np.dtype(np.float64))]
    return [(tuple(shape), dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]


def slices_of(shapes: Sequence[tuple[int, ...]]) -> list[slice]:
    """Return where each array lies in a row of all of them."""
    ends = np.cumsum([0, *(int(np.prod(shape)) for shape in shapes)]).tolist()
    return [slice(start, end) for start, end in pairwise(ends)]


def flat(arrays: Sequence[Array], count: int) -> FloatMatrix:
    """Return the arrays side by side, each row flattened: a (count, n) float64 matrix.

    One array that is such a matrix already is returned as it is.
    """
    if not arrays:
        return np.empty((count, 0))
    if len(arrays) == 1 and arrays[0].ndim == 2 and arrays[0].dtype == np.float64:
        return arrays[0]
    return np.concatenate([array.reshape(count, -1) for array in arrays], axis=1, dtype=np.float64)


def checked_arrays(given: Any, kinds: Kinds, count: int, what: str) -> list[Array]:
    """Return ``given``, one array (count, \\*shape) for each of ``kinds``.

    Raises :class:`ContractError` where they are not what was declared; ``what`` says whose they are.
    """
    # a list is found at once, and other sequences by what they are registered as
    if not isinstance(given, (list, Sequence)) or len(given) != len(kinds):
        found = f"{len(given)}" if isinstance(given, Sequence) else type(given).__name__
        raise ContractError(f"{what}s must be a list of {len(kinds)} arrays, found {found}")
    arrays = []
    for i, (value, (shape, dtype)) in enumerate(zip(given, kinds, strict=True)):
        array = np.asarray(value)
        if array.shape != (count, *shape):
            raise ContractError(
                f"{what} {i} has shape {array.shape}, declared is {(count, *shape)}: a batch of {count}, each {shape}"
            )
        if array.dtype != dtype:
            raise ContractError(f"{what} {i} has dtype {array.dtype}, declared is {dtype}")
        arrays.append(array)
    return arrays


def checked_rewards(given: npt.ArrayLike, count: int, names: Sequence[str], who: str) -> FloatMatrix:
    """Return new rewards (count, names); where there is one, (count,) will do.

    Raises :class:`ContractError` for another shape, and for what is no number.
    """
    rewards = np.asarray(given)
    if rewards.shape == (count,) and len(names) == 1:
        rewards = rewards[:, None]
    if rewards.shape != (count, len(names)) or rewards.dtype.kind not in "fiub":
        raise ContractError(
            f"{who}: get_rewards returned {rewards.dtype} of shape {rewards.shape}, expected are numbers "
            f"of shape {(count, len(names))} for {', '.join(names)}"
        )
    return rewards.astype(np.float64)


def checked_ends(answer: Any, count: int, who: str) -> tuple[BoolVector, BoolVector]:
    """Return new vectors (terminated, truncated), both (count,).

    Raises :class:`ContractError` for another shape, and for what is no boolean.
    """
    try:
        terminated, truncated = (np.array(one) for one in answer)
    except (TypeError, ValueError):
        raise ContractError(f"{who}: get_ends must return (terminated, truncated), not {answer!r}") from None
    for what, flags in (("terminated", terminated), ("truncated", truncated)):
        if flags.shape != (count,) or flags.dtype != np.bool_:
            raise ContractError(
                f"{who}: {what} is {flags.dtype} of shape {flags.shape}, expected are booleans of shape {(count,)}"
            )
    return terminated, truncated


def actions_of(
    setpoints: FloatMatrix, kinds: Kinds, parts: Sequence[slice], active: BoolVector, who: str
) -> list[Array]:
    """Return new actions (count, \\*shape) of set-points (count, n); ``parts``: :func:`slices_of`.

    ``active`` (count,): those whose action matters. Raises :class:`ActionError` where one of them
    wants a whole number and has no set-point (NaN).
    """
    actions = []
    for i, (part, (shape, dtype)) in enumerate(zip(parts, kinds, strict=True)):
        given = setpoints[:, part]
        if dtype.kind != "f":
            missing: BoolVector = np.asarray(np.isnan(given).any(axis=1))
            if missing.any() and not active.all():
                given = np.where(missing[:, None] & ~active[:, None], 0.0, given)
                missing &= active
            if missing.any():
                raise ActionError(f"{who}: action {i} of incarnation {missing.argmax()} has no set-point")
        actions.append(given.reshape(len(setpoints), *shape).astype(dtype))
    return actions
