"""From the results of a design and a condition to boxes, how good and how stable they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestrai_mosaik import seeding
from palaestrai_mosaik.design.model import DesignSpec
from palaestrai_mosaik.design.samplers.adaptive import ADAPTIVE, condition_of
from palaestrai_mosaik.errors import PalaestraiMosaikError
from palaestrai_mosaik.progress import PartsProgress, ProgressCallback
from palaestrai_mosaik.text import count
from palaestrai_mosaik.types.arrays import FloatVector

from ..results import Results
from .algorithms import METHODS, FoundLimits, Points, quasi_p
from .boxes import Box, Column, code_rows, limit_text, rule
from .conditions import LabelledRuns, label_runs, parse_condition, refusal
from .stability import MOST_RESAMPLES, Stability, mean, percentiles, resample
from .surrogate import Relabelling, Surrogate

if TYPE_CHECKING:
    import pandas as pd

#: boxes of a method
MOST_BOXES = 4
#: a box that overlaps less with those of the resamples is reported as unstable
_STABLE = 0.5

BOX_COLUMNS = (
    *("condition", "method", "box", "rule", "coverage", "coverage_low", "coverage_high", "density"),
    *("density_low", "density_high", "mass", "runs", "executed", "holds", "settings", "settings_all"),
    *("settings_some", "lost", "overlap"),
)
LIMIT_COLUMNS = (
    *("condition", "method", "box", "factor", "limit", "value", "quasi_p", "present", "low", "high"),
)
TRAJECTORY_COLUMNS = (
    *("condition", "method", "box", "step", "coverage", "density", "mass", "restricted", "chosen"),
)
SETTING_COLUMNS = ("condition", "row", "runs", "share", "lost")


@dataclass(frozen=True)
class FoundBox:
    """One box in which a condition holds.

    Attributes:
        method: ``PRIM`` or ``CART``.
        number: counted from 1 for each method.
        box: its limits on the coded axes.
        rule: the same as text.
        figures: coverage (of the runs in which the condition holds, the share in the box), density (of the runs in
            the box, the share in which it holds), each with ``_low`` and ``_high`` (interval of the boxes of the
            resamples, measured on settings that were not drawn), mass (of all runs, the share in the box); numbers
            of runs, executed runs, runs in which it holds, settings, settings in which it holds in all runs and in
            some, lost runs; overlap (mean share of the rows that a resample's box has in common with it).
        limits: one row per restriction: factor, limit (``lower``, ``upper``, ``levels``), value (as text), quasi_p,
            present (share of the resamples that have it), low and high (of the limit in those).
        trajectory: the way from all runs to the box, of PRIM: step, coverage, density, mass, restricted (axes),
            chosen; ``None`` for CART.
    """

    method: str
    number: int
    box: Box
    rule: str
    figures: dict[str, float]
    limits: pd.DataFrame = field(repr=False)
    trajectory: pd.DataFrame | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Discovery:
    """Where a condition holds.

    Attributes:
        condition: the condition as written.
        runs: in which runs it holds.
        columns: the axes of the design, coded.
        boxes: the boxes of each method, the first one first.
        refused: why none were looked for; empty where they were.
        notes: what a reader must know.
    """

    condition: str
    runs: LabelledRuns
    columns: tuple[Column, ...] = field(repr=False)
    boxes: tuple[FoundBox, ...] = ()
    refused: str = ""
    notes: tuple[str, ...] = ()

    @property
    def holds(self) -> int:
        """In how many runs the condition holds."""
        return int(self.runs.holds.sum())

    @property
    def title(self) -> str:
        """What holds where: ``violations > 0.01 holds in 30 of 200 runs (15 %)``."""
        total = len(self.runs.holds)
        share = f" ({100 * self.holds / total:.3g} %)" if total else ""
        return f"{self.condition} holds in {self.holds:,} of {count(total, 'run')}{share}"

    def settings(self) -> pd.DataFrame:
        """Return one row per row of the design: row, runs (with a value), share (in which the condition holds), lost,
        and for each box ``METHOD NUMBER`` whether it lies in it.
        """
        import pandas as pd

        rows = len(self.columns[0].codes)
        n = np.bincount(self.runs.row, minlength=rows)
        told: dict[str, Any] = {
            "condition": self.condition,
            "row": np.arange(rows),
            "runs": n,
            "share": shares(self.runs, rows),
            "lost": np.bincount(self.runs.lost, minlength=rows),
        }
        for one in self.boxes:
            told[f"{one.method} {one.number}"] = one.box.contains(self.columns)
        return pd.DataFrame(told)


def conditions_of(spec: DesignSpec) -> tuple[str, ...]:
    """Return the conditions that a design asks for: those of its analysis, or else that of its adaptive sampler."""
    adaptive = spec.sampler.name == ADAPTIVE.name and not spec.analysis.discover
    return (condition_of(spec),) if adaptive else spec.analysis.discover


def shares(runs: LabelledRuns, rows: int) -> FloatVector:
    """Return in which share of the runs of each row the condition holds, NaN for a row without any."""
    n = np.bincount(runs.row, minlength=rows)
    holds = np.bincount(runs.row, weights=runs.holds, minlength=rows)
    return np.where(n > 0, holds / np.maximum(n, 1), np.nan)


def discover_design(
    results: Results, conditions: Sequence[str] = (), progress: ProgressCallback | None = None
) -> tuple[Discovery, ...]:
    """Return the boxes of factors in which conditions on the outcomes hold.

    Same results, same boxes, in whatever order the runs finished.

    Args:
        results: the results of the design.
        conditions: expressions over outcomes, such as ``violations > 0.01``; empty: those of the design's
            ``analysis.discover``, or else that of its adaptive sampler. The name ``status`` is that of a run's
            status, ``finished`` or ``failed``.
        progress: is called with the number of resamples drawn and of all; ``None``: nothing is.

    Returns:
        One discovery per condition.

    Raises:
        PalaestraiMosaikError: a condition is not understood, names what is no outcome, or cannot be computed; or
            the extra ``discovery`` is not installed.
    """
    spec = results.spec
    parsed = [parse_condition(results, text) for text in dict.fromkeys(conditions or conditions_of(spec))]
    resamples = min(spec.analysis.resamples, MOST_RESAMPLES)
    counted = PartsProgress(progress, len(parsed) * len(METHODS) * resamples)
    if parsed and not results.spec.axes:
        raise PalaestraiMosaikError("the design has no factors that a box could limit")
    frame = results.outcomes() if parsed else None
    found = []
    for condition in parsed:
        runs = label_runs(results, condition)
        share = shares(runs, len(results.folder.sample.unit))
        relabelling = Relabelling(results, runs, share) if spec.sampler.name == ADAPTIVE.name else None
        if relabelling is not None:
            columns = relabelling.rows
        else:
            columns = code_rows(spec, results.folder.sample.unit, results.folder.values(), share)
        refused = refusal(runs, frame, condition.names) if frame is not None else ""
        if refused:
            counted.end(len(METHODS) * resamples)
            found.append(Discovery(condition.text, runs, columns, (), refused, tuple(_lost(runs))))
            continue
        boxes: list[FoundBox] = []
        points = points_of(columns, runs)
        relabel = _as_they_are if relabelling is None else relabelling.points
        notes = [*_lost(runs), *_on_points(points, relabelling)]
        for method in METHODS:
            own = _boxes(results, runs, points, relabel, method, (resamples, counted))
            counted.end(resamples)
            boxes += own
            notes += _remarks(method, own)
        found.append(Discovery(condition.text, runs, columns, tuple(boxes), "", tuple(notes)))
    return tuple(found)


def discoveries_asked_for(
    results: Results, progress: ProgressCallback | None = None
) -> tuple[tuple[Discovery, ...], str]:
    """Return the discoveries that the design asks for, and the reason where they cannot be computed.

    Both are empty where the design asks for none.
    """
    try:
        return discover_design(results, (), progress), ""
    except PalaestraiMosaikError as error:
        # (what has a type of its own is wrong elsewhere)
        if type(error) is not PalaestraiMosaikError:
            raise
        return (), str(error)


def _lost(runs: LabelledRuns) -> Iterator[str]:
    if len(runs.lost):
        total = len(runs.lost) + len(runs.row)
        yield (
            f"{len(runs.lost):,} of {count(total, 'run')} without a value, in {count(len(np.unique(runs.lost)), 'row')}: "
            "the condition is taken neither to hold there nor not to; where runs fail for a reason, boxes look better "
            "than they are"
        )


def _remarks(method: str, boxes: Sequence[FoundBox]) -> Iterator[str]:
    if not boxes:
        yield f"{method} finds no box: no limits of the factors tell where the condition holds"
    for one in boxes:
        if one.figures["overlap"] < _STABLE:
            yield (
                f"{method} box {one.number} is not stable: the boxes of resamples have on average "
                f"{100 * one.figures['overlap']:.0f} % of the rows in common with it"
            )


def points_of(columns: tuple[Column, ...], runs: LabelledRuns) -> Points:
    """Return the runs as points; ``columns``: the axes of the rows."""
    return Points(columns, runs.row, runs.holds, runs.setting[runs.row])


def _on_points(points: Points, relabelling: Relabelling | None) -> Iterator[str]:
    if relabelling is not None:
        accuracy = Surrogate(points).accuracy()
        yield (
            "the rows lie where it is uncertain whether the condition holds, so shares of them stand for nothing: boxes are "
            f"found, and coverage, density and mass measured, at {len(relabelling.columns[0].codes):,} points of the design's "
            f"distribution, labelled by trees that are right in {100 * accuracy:.0f} % of settings that they have not seen"
        )


def _as_they_are(points: Points) -> Points:
    return points


def _boxes(
    results: Results,
    runs: LabelledRuns,
    points: Points,
    relabel: Callable[[Points], Points],
    method: str,
    counted: tuple[int, PartsProgress],
) -> list[FoundBox]:
    """Return the boxes of a method; ``relabel`` returns the points that stand for runs."""

    def find(drawn: Points, most: int) -> list[FoundLimits]:
        return METHODS[method](relabel(drawn), most)

    measured = relabel(points)
    limits = METHODS[method](measured, MOST_BOXES)
    generator = seeding.generator(results.spec.seed, "discovery", runs.condition, method)
    boxes = [one.box for one in limits]
    stable = resample((points, measured), boxes, find, generator, counted) if limits else []
    confidence = results.spec.analysis.confidence
    return [
        _box((method, i), one, (points, measured), runs, (tested, confidence))
        for i, (one, tested) in enumerate(zip(limits, stable, strict=True), start=1)
    ]


def _box(
    name: tuple[str, int],
    found: FoundLimits,
    given: tuple[Points, Points],
    runs: LabelledRuns,
    tested: tuple[Stability, float],
) -> FoundBox:
    """Return a box with its figures; ``given``: the runs, and the points at which shares are measured."""
    import pandas as pd

    stability, confidence = tested
    (points, measured), box = given, found.box
    columns = measured.columns
    rows = box.contains(points.columns)
    inside = rows[points.row]
    within = measured.holds[measured.inside(box)]
    # of each setting in the box, in which share of its runs the condition holds
    settings, place = np.unique(points.setting[inside], return_inverse=True)
    share = np.bincount(place, weights=points.holds[inside]) / np.maximum(1, np.bincount(place))
    coverage = percentiles(stability.coverage, confidence)
    density = percentiles(stability.density, confidence)
    figures: dict[str, float] = {
        "coverage": int(within.sum()) / int(measured.holds.sum()),
        "coverage_low": coverage[0],
        "coverage_high": coverage[1],
        "density": float(within.mean()),
        "density_low": density[0],
        "density_high": density[1],
        "mass": len(within) / len(measured.holds),
        "runs": int(inside.sum()),
        "executed": len(np.unique(runs.executed[inside])),
        "holds": int(points.holds[inside].sum()),
        "settings": len(settings),
        "settings_all": int((share == 1).sum()),
        "settings_some": int(((share > 0) & (share < 1)).sum()),
        "lost": int(rows[runs.lost].sum()),
        "overlap": mean(stability.overlap),
    }
    limits = [
        (
            *(columns[i].name, side, limit_text(columns[i], side, box.limit(i, side))),
            *(quasi_p(measured, box, i, side), stability.present(i, side)),
            *_interval(columns[i], stability.interval_of(i, side, confidence)),
        )
        for i, side in box.sides()
    ]
    return FoundBox(
        *name,
        box,
        rule(box, columns),
        figures,
        pd.DataFrame(limits, columns=list(LIMIT_COLUMNS[3:])),
        found.trajectory,
    )


def _interval(column: Column, interval: tuple[float, float]) -> tuple[float, float]:
    """Return an interval in the units of the table: codes of levels and zipped numbers mean nothing there."""
    plain = not column.labels and len(column.axis.factors) == 1
    return interval if plain else (np.nan, np.nan)


# --- as tables ----------------------------------------------------------------------------


def box_table(found: Sequence[Discovery]) -> pd.DataFrame:
    """Return one row per box of all discoveries."""
    import pandas as pd

    rows = [
        {"condition": one.condition, "method": box.method, "box": box.number, "rule": box.rule, **box.figures}
        for one in found
        for box in one.boxes
    ]
    return pd.DataFrame(rows, columns=list(BOX_COLUMNS))


def limit_table(found: Sequence[Discovery]) -> pd.DataFrame:
    """Return one row per restriction of all boxes."""
    return _together(found, "limits", LIMIT_COLUMNS)


def trajectory_table(found: Sequence[Discovery]) -> pd.DataFrame:
    """Return one row per step of all peeling trajectories."""
    return _together(found, "trajectory", TRAJECTORY_COLUMNS)


def setting_table(found: Sequence[Discovery]) -> pd.DataFrame:
    """Return one row per condition and row of the design."""
    import pandas as pd

    frames = [one.settings() for one in found]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=list(SETTING_COLUMNS))


def _together(found: Sequence[Discovery], name: str, columns: Sequence[str]) -> pd.DataFrame:
    import pandas as pd

    parts = []
    for one in found:
        for box in one.boxes:
            frame = getattr(box, name)
            if frame is not None and len(frame):
                parts.append(frame.assign(condition=one.condition, method=box.method, box=box.number))
    whole = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=list(columns))
    return whole[list(columns)]
