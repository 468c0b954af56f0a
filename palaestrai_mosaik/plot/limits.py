"""Horizontal lines at limits: of voltages and loadings, of the spaces of sensors, or given by the user."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestrai_mosaik.core.errors import PalaestraiMosaikError, SpaceError
from palaestrai_mosaik.types.arrays import FloatVector
from palaestrai_mosaik.types.spaces import Space

if TYPE_CHECKING:
    import pandas as pd

    from palaestrai_mosaik.store import Store

#: a lower and an upper limit, each optional
Pair = tuple[float | None, float | None]
#: ``True``: the usual limits; ``False``: none; one pair for all patterns of sensors, or one for each
Limits = bool | Sequence[Pair]

#: allowed voltages (p.u.), and the loading (%) at which a line is at its limit
VOLTAGE_BAND, FULL_LOADING = (0.95, 1.05), 100.0
_READING = "reading."
# ``grid.bus-3.vm_pu``, ``grid.vm_pu[3]``, ``grid.line-0.loading``
_QUANTITY = re.compile(r"(?:^|[._-])(vm_pu|loading(?:_percent)?)(?:\[[\d, ]*\]|-\d+)?$")
# Limits are drawn up to these multiples of the curves' height away from the curves.
_FAR, _NEAR = 3.0, 0.5


@dataclass(frozen=True)
class Limit:
    """A horizontal line at ``value``; ``name`` is ``limit`` or ``bound`` (of a space).

    ``reach`` is the largest distance from the curves at which it is drawn, in multiples of their
    height, because a distant limit would flatten the curves.
    """

    value: float
    name: str = "limit"
    reach: float = math.inf


def pairs_of(limits: Limits, patterns: int) -> list[bool | Pair]:
    """Return the limits of each pattern: a pair, or whether to draw the usual ones.

    Raises :class:`PalaestraiMosaikError` for invalid pairs, and unless there is one pair, or one for each pattern.
    """
    if isinstance(limits, bool):
        return [limits] * patterns
    pairs = list(limits)
    for pair in pairs:
        _check(pair)
    if len(pairs) not in (1, patterns):
        allowed = (
            f"one pair for all {patterns} patterns of sensors, or one for each"
            if patterns > 1
            else "one pair"
        )
        raise PalaestraiMosaikError(f"limits must be {allowed}, found {len(pairs)} pairs")
    return list(pairs * patterns if len(pairs) == 1 else pairs)


def _check(pair: object) -> None:
    numbers: list[float] = []
    if isinstance(pair, tuple | list) and len(pair) == 2:
        numbers = [limit for limit in pair if isinstance(limit, int | float) and math.isfinite(limit)]
        if len(numbers) == sum(limit is not None for limit in pair) > 0 and numbers == sorted(numbers):
            return
    raise PalaestraiMosaikError(
        f"limits are pairs such as (0.9, 1.1) or (None, 80), the lower one first: found {pair!r}"
    )


def bounds_of(store: Store, run: str, phase: int, kind: str = "sensor") -> dict[str, Pair]:
    """Return the bounds of the spaces of sensors, or of channels of another ``kind`` (``actuator``), by name."""
    return bounds_in(store.channels(run, phase), kind)


def bounds_in(channels: pd.DataFrame, kind: str) -> dict[str, Pair]:
    """Return the bounds of ``channels`` of one ``kind`` by name, from the table of :meth:`Store.channels`."""
    bounds: dict[str, Pair] = {}
    parsed: dict[str, Pair] = {}
    for uid, text in channels.loc[channels["kind"] == kind, ["uid", "space"]].itertuples(index=False):
        if text not in parsed:
            parsed[text] = _bounds(text)
        bounds[str(uid)] = parsed[text]
    return bounds


def _bounds(text: str) -> Pair:
    try:
        space = Space.from_string(text)
    except SpaceError:
        # Results from other versions may have unknown spaces.
        return None, None
    low, high = np.unique(space.flat_low), np.unique(space.flat_high)
    if len(low) != 1 or len(high) != 1:
        return None, None
    return tuple(float(bound) if math.isfinite(bound) else None for bound in (low[0], high[0]))  # type: ignore[return-value]


def limits_of(
    columns: Iterable[str], bounds: Mapping[str, Pair], wanted: bool | Pair, *, several: bool
) -> tuple[Limit, ...]:
    """Return the limits of a panel with these columns; ``several``: whether other panels share them."""
    if wanted is True:
        return _usual_limits(list(dict.fromkeys(columns)), bounds)
    reach = _FAR if several else math.inf
    return _limits_at(wanted or (), reach=reach)


def _usual_limits(columns: Sequence[str], bounds: Mapping[str, Pair]) -> tuple[Limit, ...]:
    """Return the limits of voltages and loadings, or else the bounds that all sensors share."""
    readings = [name.removeprefix(_READING) for name in columns if name.startswith(_READING)]
    quantities = {match[1][:7] for name in readings if (match := _QUANTITY.search(name))}
    limits = [Limit(value) for value in VOLTAGE_BAND] if "vm_pu" in quantities else []
    limits += [Limit(FULL_LOADING, reach=_FAR)] if "loading" in quantities else []
    if limits or len(readings) < len(columns):
        return tuple(limits)
    shared = {bounds.get(re.sub(r"\[[\d, ]*\]$", "", name), (None, None)) for name in readings}
    return _limits_at(shared.pop() if len(shared) == 1 else (), name="bound", reach=_NEAR)


def _limits_at(values: Iterable[float | None], **options: Any) -> tuple[Limit, ...]:
    return tuple(Limit(value, **options) for value in values if value is not None)


def in_sight(limits: Sequence[Limit], curves: Iterable[FloatVector]) -> list[Limit]:
    """Return the limits that are near enough to the curves to be drawn."""
    values = np.concatenate([np.empty(0), *curves])
    values = values[np.isfinite(values)]
    if not len(values):
        return []
    low, high = float(values.min()), float(values.max())
    return [
        limit
        for limit in limits
        if math.isinf(limit.reach)
        or (high > low and max(limit.value - high, low - limit.value) <= limit.reach * (high - low))
    ]
