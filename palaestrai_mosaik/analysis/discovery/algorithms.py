"""PRIM and CART: from coded points, in which a condition holds or not, to boxes.

The peeling is EMA Workbench's, the tree scikit-learn's. Ours is the choice of a box on the peeling trajectory, which
EMA Workbench leaves to a person, and what follows from limits alone: rounding, significance.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestrai_mosaik.errors import PalaestraiMosaikError
from palaestrai_mosaik.installation import install_extra
from palaestrai_mosaik.types.arrays import BoolVector, FloatVector, IntArray

from .boxes import Box, Column, Side, tidy

if TYPE_CHECKING:
    import pandas as pd

Limits = Mapping[int, tuple[float, float] | frozenset[int]]

#: what is peeled off at a time, as a share of the runs of a box (EMA Workbench's default)
PEEL = 0.05
#: the smallest box, as a share of all runs; of rare conditions, half of their share
SMALLEST = 0.05
#: a box has so many runs at least
_FEWEST_RUNS = 10
#: restrictions with a higher quasi-p value are dropped (Bryant and Lempert 2010)
SIGNIFICANT = 0.05
#: a box after the first covers such a share of the cases at least
_LEAST_COVERAGE = 0.1
#: of two splits of a tree, those are left out that make it purer by less than that share of its impurity
_LEAST_GAIN = 0.01


@dataclass(frozen=True)
class Points:
    """The runs of which boxes are made, one point each.

    Attributes:
        columns: the axes, coded by row.
        row: (points,) the row of each point; one that is drawn twice is there twice.
        holds: (points,) whether the condition holds.
        setting: (points,) the setting of each point.
    """

    columns: tuple[Column, ...]
    row: IntArray
    holds: BoolVector
    setting: IntArray

    def inside(self, box: Box) -> BoolVector:
        """Return which points lie in the box."""
        found: BoolVector = box.contains(self.columns)[self.row]
        return found

    def only(self, kept: BoolVector | IntArray) -> Points:
        """Return some of the points."""
        return Points(self.columns, self.row[kept], self.holds[kept], self.setting[kept])


@dataclass(frozen=True)
class FoundLimits:
    """A box that a method has found; ``trajectory``: the boxes on the way to it, of PRIM only."""

    box: Box
    trajectory: pd.DataFrame | None = None


def smallest_mass(points: Points) -> float:
    """Return how small a box may be, as a share of the points."""
    return min(SMALLEST, max(float(points.holds.mean()) / 2, _FEWEST_RUNS / len(points.holds)))


def quasi_p(points: Points, box: Box, place: int, side: Side) -> float:
    """Return the quasi-p value of one restriction (Bryant and Lempert 2010, section 4.2).

    That is how probable so many cases in the box are, or more, if the restriction did nothing: one-sided binomial
    test with the density of the box without it. It counts settings: repetitions are not independent of each other.
    """
    from scipy.stats import binom

    inside = points.inside(box)
    wider = points.holds[points.inside(box.without(place, side))]
    trials = len(np.unique(points.setting[inside]))
    if not trials or not len(wider):
        return 1.0
    cases = round(trials * float(points.holds[inside].mean()))
    return float(binom.sf(cases - 1, trials, float(wider.mean())))


def significant(points: Points, box: Box) -> Box:
    """Return the box without restrictions that do not matter, the least significant first."""
    while box.limits:
        values = [(quasi_p(points, box, place, side), place, side) for place, side in box.sides()]
        worst = max(values, key=lambda one: one[0])
        if worst[0] <= SIGNIFICANT:
            break
        box = box.without(worst[1], worst[2])
    return box


# --- PRIM ---------------------------------------------------------------------------------


def find_by_prim(points: Points, most: int) -> list[FoundLimits]:
    """Return at most ``most`` boxes by PRIM, each of what those before it leave.

    Of each peeling trajectory, the box is chosen that correlates most with the condition. That weighs coverage and
    density against each other whether the condition is rare or common; their harmonic mean would take all runs where
    the condition holds in most.
    """
    found: list[FoundLimits] = []
    mass = smallest_mass(points) * len(points.holds)
    cases, share = int(points.holds.sum()), float(points.holds.mean())
    left = np.ones(len(points.holds), dtype=bool)
    densest = 0.0
    while len(found) < most:
        rest = points.only(left)
        if len(rest.holds) <= mass or rest.holds.all() or not rest.holds.any():
            break
        one = _peeled(rest, mass / len(rest.holds), cases)
        inside = points.inside(one.box) & left
        if not one.box.limits or not inside.any():
            break
        density, coverage = float(points.holds[inside].mean()), points.holds[inside].sum() / cases
        if density <= share or (found and (coverage < _LEAST_COVERAGE or density < densest / 2)):
            break
        found.append(one)
        densest = max(densest, density)
        left &= ~inside
    return found


def _peeled(points: Points, mass: float, cases: int) -> FoundLimits:
    """Return one box; ``cases``: how many there are in all, of which coverage is a share."""
    import pandas as pd

    steps = list(_trajectory(points, mass))
    boxes = [tidy(limits, points.columns) for limits in steps]
    n, k = np.zeros(len(boxes)), np.zeros(len(boxes))
    for i, box in enumerate(boxes):
        inside = points.inside(box)
        n[i], k[i] = inside.sum(), points.holds[inside].sum()
    density = np.where(n > 0, k / np.maximum(n, 1), 0.0)
    best = int(np.argmax(_correlations(n, k, points.holds)))
    box = significant(points, boxes[best])
    frame = pd.DataFrame(
        {
            "step": np.arange(len(boxes)),
            "coverage": k / cases,
            "density": density,
            "mass": n / len(points.holds),
            "restricted": [len(one.limits) for one in boxes],
            "chosen": np.arange(len(boxes)) == best,
        }
    )
    return FoundLimits(box, frame)


def _correlations(n: FloatVector, k: FloatVector, holds: BoolVector) -> FloatVector:
    """Return how being in a box and the condition correlate: the phi coefficient of the two, 0 where all runs are in it.

    ``n``: (boxes,) the runs in each box, ``k``: (boxes,) those in which the condition holds.
    """
    total, cases = len(holds), int(holds.sum())
    spread = n * (total - n) * cases * (total - cases)
    return np.where(spread > 0, (k * total - n * cases) / np.sqrt(np.maximum(spread, 1)), 0.0)


def _trajectory(points: Points, mass: float) -> Iterator[Limits]:
    """Yield the limits of each box that EMA Workbench peels and pastes, from all points to the last one."""
    names = [str(place) for place in range(len(points.columns))]
    x = _frame(points, names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        prim = _prim()(x, points.holds.astype(int), threshold=1e-9, peel_alpha=PEEL, mass_min=mass)
        found = prim.find_box()
    for limits in found.box_lims:
        yield {place: _pair(limits[name]) for place, name in enumerate(names) if name in limits}


def _frame(points: Points, names: Sequence[str]) -> pd.DataFrame:
    """Return the points as EMA Workbench takes them: whole numbers as such make its limits miss rows, so all are floats."""
    import pandas as pd

    columns = {}
    for name, column in zip(names, points.columns, strict=True):
        codes = column.codes[points.row]
        # whole numbers for levels: the order of a set of strings differs from process to process
        columns[name] = pd.Categorical(codes.astype(int)) if column.kind == "nominal" else codes
    return pd.DataFrame(columns)


def _pair(limits: Any) -> tuple[float, float] | frozenset[int]:
    first, last = limits.tolist()
    return frozenset(map(int, first)) if isinstance(first, set) else (float(first), float(last))


@cache
def _prim() -> Any:
    with warnings.catch_warnings():
        # of packages that it does without
        warnings.simplefilter("ignore")
        try:
            from ema_workbench.analysis.prim import Prim
        except ImportError as error:
            raise not_installed("PRIM", "EMA Workbench", error) from error
    return Prim


def check_installed() -> None:
    """Raise :class:`PalaestraiMosaikError` where a package of the extra ``discovery`` is missing."""
    _prim()
    _tree()


def not_installed(method: str, package: str, error: ImportError) -> PalaestraiMosaikError:
    """Return the error of what needs a package of the extra ``discovery``."""
    return PalaestraiMosaikError(
        f"{method} needs {package} ({error}); install it with: {install_extra('discovery')}"
    )


# --- CART ---------------------------------------------------------------------------------


def find_by_cart(points: Points, most: int) -> list[FoundLimits]:
    """Return at most ``most`` boxes by CART: the leaves in which the condition mostly holds, by their coverage.

    Where all leaves have less, those count in which it holds twice as often as in all runs.
    """
    leaves = []
    share = float(points.holds.mean())
    for limits in _leaves(points):
        box = tidy(limits, points.columns)
        inside = points.inside(box)
        if box.limits and inside.any():
            leaves.append((float(points.holds[inside].mean()), int(points.holds[inside].sum()), box))
    least = 0.5 if any(density > 0.5 for density, _, _ in leaves) else 2 * share
    kept = [one for one in leaves if one[0] > max(least, share)]
    kept.sort(key=lambda one: -one[1])
    return [FoundLimits(box) for _, _, box in kept[:most]]


def _leaves(points: Points) -> Iterator[Limits]:
    """Yield the limits of each leaf of a tree that tells where the condition holds."""
    share = float(points.holds.mean())
    # each level without order is a column that is 1 where the row has it
    places: list[tuple[int, int | None]] = []
    for place, column in enumerate(points.columns):
        if column.kind == "nominal":
            places += [(place, int(code)) for code in np.unique(column.codes)]
        else:
            places.append((place, None))
    x = np.column_stack([_feature(points, place, code) for place, code in places])
    tree = _tree()(
        min_samples_leaf=max(1, math.ceil(smallest_mass(points) * len(points.holds))),
        min_impurity_decrease=_LEAST_GAIN * 2 * share * (1 - share),
        random_state=0,
    ).fit(x, points.holds)
    yield from _limits_below(tree.tree_, 0, places, _everything(points.columns))


def _tree() -> Any:
    try:
        from sklearn.tree import DecisionTreeClassifier
    except ImportError as error:
        raise not_installed("CART", "scikit-learn", error) from error
    return DecisionTreeClassifier


def _feature(points: Points, place: int, code: int | None) -> FloatVector:
    codes = points.columns[place].codes[points.row]
    return codes if code is None else (codes == code).astype(float)


def _everything(columns: Sequence[Column]) -> dict[int, tuple[float, float] | frozenset[int]]:
    return {
        place: frozenset(map(int, np.unique(column.codes)))
        if column.kind == "nominal"
        else (-math.inf, math.inf)
        for place, column in enumerate(columns)
    }


def _limits_below(
    tree: Any, node: int, places: Sequence[tuple[int, int | None]], limits: Any
) -> Iterator[Limits]:
    """Yield the limits of the leaves below ``node``, itself within ``limits``."""
    if tree.children_left[node] < 0:
        yield limits
        return
    place, code = places[tree.feature[node]]
    threshold = float(tree.threshold[node])
    limit = limits[place]
    if code is None:
        left = (limit[0], min(limit[1], threshold))
        right = (max(limit[0], math.nextafter(threshold, math.inf)), limit[1])
    else:
        left, right = limit - {code}, limit & {code}
    yield from _limits_below(tree, tree.children_left[node], places, {**limits, place: left})
    yield from _limits_below(tree, tree.children_right[node], places, {**limits, place: right})


#: name of a method -> what finds its boxes
METHODS: Mapping[str, Callable[[Points, int], list[FoundLimits]]] = {
    "PRIM": find_by_prim,
    "CART": find_by_cart,
}
