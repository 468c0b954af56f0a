"""Lines that a picture draws at limits: of voltages and loadings, of the spaces of sensors, or those that you name."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from palaestrai_mosaik.errors import PalaestraiMosaikError, SpaceError
from palaestrai_mosaik.types.arrays import FloatVector
from palaestrai_mosaik.types.spaces import Space

if TYPE_CHECKING:
    import pandas as pd

    from palaestrai_mosaik.store import Store

#: a lower and an upper limit; ``None``: there is none
Pair = tuple[float | None, float | None]
#: ``True``: the usual ones; ``False``: none; one pair for all patterns of sensors, or one for each
Limits = bool | Sequence[Pair]

#: the band in which voltages (p.u.) should be, and the loading (%) that is the limit of a line
VOLTAGE_BAND, FULL_LOADING = (0.95, 1.05), 100.0
_READING = "reading."
# ``grid.bus-3.vm_pu``, ``grid.vm_pu[3]``, ``grid.line-0.loading``
_QUANTITY = re.compile(r"(?:^|[._-])(vm_pu|loading(?:_percent)?)(?:\[[\d, ]*\]|-\d+)?$")
# A limit is drawn if it is so many times the height of the curves away from them, or less.
_FAR, _NEAR = 3.0, 0.5


@dataclass(frozen=True)
class Limit:
    """A horizontal line at ``value``; ``name`` is ``limit`` or ``bound`` (of a space).

    ``reach`` says how far from the curves it is drawn, in multiples of the height of the curves: a
    limit that is far away would make them flat.
    """

    value: float
    name: str = "limit"
    reach: float = math.inf


def pairs_of(limits: Limits, patterns: int) -> list[bool | Pair]:
    """Return for each of so many patterns its limits: a pair, or whether the usual ones are drawn.

    Raises :class:`PalaestraiMosaikError` if there is neither one pair nor one for each pattern, and for what is no pair.
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
    known: list[float] = []
    if isinstance(pair, tuple | list) and len(pair) == 2:
        known = [one for one in pair if isinstance(one, int | float) and math.isfinite(one)]
        if len(known) == sum(one is not None for one in pair) > 0 and known == sorted(known):
            return
    raise PalaestraiMosaikError(
        f"limits are pairs such as (0.9, 1.1) or (None, 80), the lower one first: found {pair!r}"
    )


def bounds_of(store: Store, run: str, phase: int, kind: str = "sensor") -> dict[str, Pair]:
    """Return the bounds of the spaces of sensors, or of channels of another ``kind`` (``actuator``), by name."""
    return bounds_in(store.channels(run, phase), kind)


def bounds_in(channels: pd.DataFrame, kind: str) -> dict[str, Pair]:
    """Return the bounds of ``channels``, as :meth:`Store.channels` returns them, by name; those of one ``kind``."""
    found: dict[str, Pair] = {}
    known: dict[str, Pair] = {}
    for uid, text in channels.loc[channels["kind"] == kind, ["uid", "space"]].itertuples(index=False):
        if text not in known:
            known[text] = _bounds(text)
        found[str(uid)] = known[text]
    return found


def _bounds(text: str) -> Pair:
    try:
        space = Space.from_string(text)
    except SpaceError:
        # of results from elsewhere
        return None, None
    low, high = np.unique(space.flat_low), np.unique(space.flat_high)
    if len(low) != 1 or len(high) != 1:
        return None, None
    return tuple(float(one) if math.isfinite(one) else None for one in (low[0], high[0]))  # type: ignore[return-value]


def limits_of(
    columns: Iterable[str], bounds: Mapping[str, Pair], wanted: bool | Pair, *, several: bool
) -> tuple[Limit, ...]:
    """Return the limits of a panel with these columns; ``several``: of panels that share them."""
    names = list(dict.fromkeys(columns))
    if wanted is False:
        return ()
    if wanted is not True:
        found = [Limit(value) for value in wanted if value is not None]
        return tuple(replace(one, reach=_FAR) for one in found) if several else tuple(found)
    readings = [name.removeprefix(_READING) for name in names if name.startswith(_READING)]
    quantities = {match[1][:7] for name in readings if (match := _QUANTITY.search(name))}
    limits = [Limit(value) for value in VOLTAGE_BAND] if "vm_pu" in quantities else []
    limits += [Limit(FULL_LOADING, reach=_FAR)] if "loading" in quantities else []
    if limits or len(readings) < len(names):
        return tuple(limits)
    shared = {bounds.get(re.sub(r"\[[\d, ]*\]$", "", name), (None, None)) for name in readings}
    values = shared.pop() if len(shared) == 1 else ()
    return tuple(Limit(value, "bound", _NEAR) for value in values if value is not None)


def in_sight(limits: Sequence[Limit], curves: Iterable[FloatVector]) -> list[Limit]:
    """Return the limits that are near enough to the values of the curves to be drawn."""
    values = np.concatenate([np.empty(0), *curves])
    values = values[np.isfinite(values)]
    if not len(values):
        return []
    low, high = float(values.min()), float(values.max())
    return [
        one
        for one in limits
        if math.isinf(one.reach)
        or (high > low and max(one.value - high, low - one.value) <= one.reach * (high - low))
    ]
