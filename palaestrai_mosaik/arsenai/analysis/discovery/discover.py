"""Find boxes of factors in which a condition on the outcomes holds, with their quality and stability."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestrai_mosaik.arsenai.design.model import DesignSpec
from palaestrai_mosaik.arsenai.design.remark import NO_BOX, Remark
from palaestrai_mosaik.arsenai.design.samplers.adaptive import ADAPTIVE, condition_of
from palaestrai_mosaik.core import seeding
from palaestrai_mosaik.core.errors import PalaestraiMosaikError
from palaestrai_mosaik.core.printing import count
from palaestrai_mosaik.core.progress import PartsProgress, ProgressCallback
from palaestrai_mosaik.types.arrays import FloatVector

from ..results import Results, or_reason
from .algorithms import METHODS, MOST_BOXES, FoundLimits, Points, check_installed, quasi_p
from .boxes import Box, Column, code_rows, limit_text, rule
from .conditions import LabelledRuns, label_runs, parse_condition, refusal
from .surrogate import Relabelling, Surrogate, accuracy, chance_of
from .validation import (
    FOLDS,
    MOST_RESAMPLES,
    PARTS,
    HeldOut,
    Stability,
    beyond_chance,
    folds,
    held_out,
    mean,
    resamples,
    stability,
)

if TYPE_CHECKING:
    import pandas as pd

#: trees are useless if the probability of their accuracy by chance is higher than this, and so are their boxes
_KNOWS_NOTHING = 0.01
#: boxes with a smaller overlap with those of the resamples are reported as unstable
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
    """A box in which a condition holds.

    Attributes:
        method: ``PRIM`` or ``CART``.
        number: counted from 1 for each method.
        box: its limits on the coded axes.
        rule: the limits as text.
        figures: coverage (the share of the runs with the condition that are in the box) and density (the share of
            the runs in the box with the condition) in settings that did not choose the box, each with ``_low`` and
            ``_high`` (its interval); mass (the share of all runs in the box); numbers of runs, executed runs, runs in
            which the condition holds, settings, settings in which it holds in all runs and in some, lost runs; overlap
            (mean share of rows in common with the boxes of resamples).
        limits: one row per restriction: factor, limit (``lower``, ``upper``, ``levels``), value (as text), quasi_p,
            present (share of the resamples that have it), low and high (of the limit in those).
        trajectory: PRIM's steps from all runs to the box: step, coverage, density, mass, restricted (axes),
            chosen, measured on the runs that chose it; ``None`` for CART.
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
    """The boxes in which a condition holds.

    Attributes:
        condition: the condition as written.
        runs: the runs, labelled by the condition.
        columns: the axes of the design, coded.
        boxes: the boxes, in the order in which each method found them.
        refused: the reason for not searching; empty after a search.
        notes: cautions for the reader.
    """

    condition: str
    runs: LabelledRuns
    columns: tuple[Column, ...] = field(repr=False)
    boxes: tuple[FoundBox, ...] = ()
    refused: str = ""
    notes: tuple[str, ...] = ()

    @property
    def holds(self) -> int:
        """The number of runs in which the condition holds."""
        return int(self.runs.holds.sum())

    @property
    def title(self) -> str:
        """A title such as ``violations > 0.01 holds in 30 of 200 runs (15 %)``."""
        total = len(self.runs.holds)
        share = f" ({100 * self.holds / total:.3g} %)" if total else ""
        return f"{self.condition} holds in {self.holds:,} of {count(total, 'run')}{share}"

    @property
    def nothing_found(self) -> str:
        """The message for a search without a box, else empty."""
        if self.boxes or self.refused:
            return ""
        return f"nothing found: no box in which {self.condition} holds more often than chance explains"

    def settings(self) -> pd.DataFrame:
        """Return one row per row of the design.

        Returns:
            The columns condition, row, runs (with a value), share (of these, in which the condition holds), lost, and
            for each box ``METHOD NUMBER`` whether the row lies in it.
        """
        import pandas as pd

        rows = len(self.columns[0].codes)
        n = np.bincount(self.runs.row, minlength=rows)
        columns: dict[str, Any] = {
            "condition": self.condition,
            "row": np.arange(rows),
            "runs": n,
            "share": shares(self.runs, rows),
            "lost": np.bincount(self.runs.lost, minlength=rows),
        }
        for box in self.boxes:
            columns[f"{box.method} {box.number}"] = box.box.contains(self.columns)
        return pd.DataFrame(columns)


def conditions_of(spec: DesignSpec) -> tuple[str, ...]:
    """Return the conditions in the design's analysis, or else that of its adaptive sampler."""
    adaptive = spec.sampler.name == ADAPTIVE.name and not spec.analysis.discover
    return (condition_of(spec),) if adaptive else spec.analysis.discover


def shares(runs: LabelledRuns, rows: int) -> FloatVector:
    """Return the share of each row's runs in which the condition holds, NaN for a row without runs."""
    n = np.bincount(runs.row, minlength=rows)
    holds = np.bincount(runs.row, weights=runs.holds, minlength=rows)
    return np.where(n > 0, holds / np.maximum(n, 1), np.nan)


def discover_design(
    results: Results, conditions: Sequence[str] = (), progress: ProgressCallback | None = None
) -> tuple[Discovery, ...]:
    """Find boxes of factors in which conditions on the outcomes hold.

    Equal results give equal boxes, in whatever order the runs finished.

    Args:
        results: the results of the design.
        conditions: expressions over outcomes, such as ``violations > 0.01``; empty: those of the design's
            ``analysis.discover``, or else that of its adaptive sampler. The name ``status`` is that of a run's
            status, ``finished`` or ``failed``.
        progress: called with the number of resamples drawn and the total; ``None``: no reports.

    Returns:
        One discovery per condition.

    Raises:
        PalaestraiMosaikError: a condition is invalid, names an unknown outcome, or cannot be computed; or
            the extra ``discovery`` is not installed.
    """
    spec = results.spec
    parsed = [parse_condition(results, text) for text in dict.fromkeys(conditions or conditions_of(spec))]
    searches = min(spec.analysis.resamples, MOST_RESAMPLES) + PARTS
    counted = PartsProgress(progress, len(parsed) * searches)
    if parsed:
        check_installed()
    if parsed and not results.spec.axes:
        raise PalaestraiMosaikError("the design has no factors that a box could limit")
    frame = results.outcomes() if parsed else None
    discoveries = []
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
            counted.end(searches)
            discoveries.append(Discovery(condition.text, runs, columns, (), refused, tuple(_lost(runs))))
            continue
        boxes, notes = _searched(results, runs, points_of(columns, runs), relabelling, counted)
        counted.end(searches)
        discoveries.append(Discovery(condition.text, runs, columns, tuple(boxes), "", (*_lost(runs), *notes)))
    return tuple(discoveries)


def discoveries_asked_for(
    results: Results, progress: ProgressCallback | None = None
) -> tuple[list[Discovery], str]:
    """Return the discoveries that the design requests, and the reason if they cannot be computed.

    Both are empty if the design requests none.
    """
    return or_reason(lambda: discover_design(results, (), progress))


def _lost(runs: LabelledRuns) -> Iterator[str]:
    if len(runs.lost):
        total = len(runs.lost) + len(runs.row)
        yield (
            f"{len(runs.lost):,} of {count(total, 'run')} without a value, in {count(len(np.unique(runs.lost)), 'row')}: "
            "the condition is taken neither to hold there nor not to; where runs fail for a reason, boxes look better "
            "than they are"
        )


def points_of(columns: tuple[Column, ...], runs: LabelledRuns) -> Points:
    """Turn the runs into points; ``columns``: the axes of the rows."""
    return Points(columns, runs.row, runs.holds, runs.setting[runs.row])


def _searched(
    results: Results,
    runs: LabelledRuns,
    points: Points,
    relabelling: Relabelling | None,
    counted: PartsProgress,
) -> tuple[list[FoundBox], list[str]]:
    """Return the boxes of all methods, and notes on them."""
    spec = results.spec
    generator = seeding.generator(spec.seed, "discovery", runs.condition)
    relabel: Callable[[Points], Points] = _unchanged if relabelling is None else relabelling.points
    notes: list[str] = []
    if relabelling is not None:
        useful, note = _known_by_trees(points, len(relabelling.columns[0].codes))
        notes.append(note)
        if not useful:
            return [], notes
    measured = relabel(points)
    candidates = {method: find(measured, MOST_BOXES) for method, find in METHODS.items()}
    by_method = candidates if relabelling is not None else _beyond_chance(points, candidates, generator)
    for method, limits in candidates.items():
        notes += _not_found(method, len(limits), len(by_method[method]))
    if not any(by_method.values()):
        return [], notes

    def search(some: Points) -> Mapping[str, list[Box]]:
        """Find boxes in a subset of the runs, with the methods that found any in all of them."""
        drawn = relabel(some)
        counted.add(1)
        if drawn.holds.all() or not drawn.holds.any():
            return {method: [] for method in METHODS}
        return {
            method: [candidate.box for candidate in find(drawn, MOST_BOXES)] if by_method[method] else []
            for method, find in METHODS.items()
        }

    # Each row of an adaptive sample matters, so few are held out at a time.
    divided = folds(points, generator, FOLDS if relabelling is None else PARTS)
    parts = [(left, search(points.only(~left))) for left in divided]
    weight = np.ones(len(points.holds))
    if relabelling is not None:
        weight = relabelling.weight[points.row] / np.bincount(points.row)[points.row]
    number = min(spec.analysis.resamples, MOST_RESAMPLES)
    resampled = [search(drawn) for drawn in resamples(points, number, generator)]
    boxes = []
    for method, limits in by_method.items():
        for i, candidate in enumerate(limits, start=1):
            held_out_boxes = [(left, part[method]) for left, part in parts]
            figures = held_out(
                points, candidate.box, held_out_boxes, measured, weight, spec.analysis.confidence
            )
            again = stability(candidate.box, [part[method] for part in resampled], measured.columns)
            boxes.append(
                _box(
                    (method, i),
                    candidate,
                    (points, measured),
                    runs,
                    (figures, again, spec.analysis.confidence),
                )
            )
            notes += _unstable(boxes[-1])
    return boxes, notes


def _beyond_chance(
    points: Points, candidates: Mapping[str, Sequence[FoundLimits]], generator: np.random.Generator
) -> dict[str, list[FoundLimits]]:
    """Return the boxes of each method that chance does not explain."""
    return {
        method: list(
            compress(limits, beyond_chance(points, [item.box for item in limits], METHODS[method], generator))
        )
        for method, limits in candidates.items()
    }


def _known_by_trees(points: Points, number: int) -> tuple[bool, str]:
    """Return whether trees can predict the condition, with a note; ``number``: of points."""
    probability = Surrogate(points).held_out()
    right = f"right in {100 * accuracy(points, probability):.0f} % of settings that they have not seen"
    if chance_of(points, probability) > _KNOWS_NOTHING:
        return (
            False,
            f"trees that have learnt from the runs are {right}, which chance explains: no box is looked for",
        )
    return True, (
        "the rows lie where it is uncertain whether the condition holds, so shares of them stand for nothing: boxes are "
        f"found at {number:,} points of the design's distribution, labelled by trees that are {right}; for coverage "
        "and density, a row counts as much as the part of the distribution that is nearest to it"
    )


def _not_found(method: str, total: int, kept: int) -> Iterator[str]:
    """Yield a note on dropped boxes; ``total``: the number of boxes, ``kept``: those that chance does not explain."""
    if not total:
        yield Remark(NO_BOX, f"{method} finds no box")
    elif not kept:
        yield Remark(
            NO_BOX,
            f"{method} finds no box that is better than those in outcomes that are dealt to the settings at random",
        )
    elif kept < total:
        yield (
            f"{count(total - kept, 'more box', 'more boxes')} of {method} left out, no better than in outcomes that are dealt "
            "to the settings at random"
        )


def _unstable(box: FoundBox) -> Iterator[str]:
    if box.figures["overlap"] < _STABLE:
        yield (
            f"{box.method} box {box.number} is not stable: the boxes of resamples have on average "
            f"{100 * box.figures['overlap']:.0f} % of the rows in common with it"
        )


def _unchanged(points: Points) -> Points:
    return points


def _box(
    name: tuple[str, int],
    candidate: FoundLimits,
    both_points: tuple[Points, Points],
    runs: LabelledRuns,
    tested: tuple[HeldOut, Stability, float],
) -> FoundBox:
    """Build a box with its figures from the runs and from the points that it was found in."""
    import pandas as pd

    held_out, again, confidence = tested
    (points, measured), box = both_points, candidate.box
    columns = measured.columns
    rows = box.contains(points.columns)
    inside = rows[points.row]
    # For each setting in the box, the share of its runs in which the condition holds.
    settings, setting_of = np.unique(points.setting[inside], return_inverse=True)
    share = np.bincount(setting_of, weights=points.holds[inside]) / np.maximum(1, np.bincount(setting_of))
    figures: dict[str, float] = {
        **_figure("coverage", held_out.coverage),
        **_figure("density", held_out.density),
        "mass": float(measured.inside(box).mean()),
        "runs": int(inside.sum()),
        "executed": len(np.unique(runs.executed[inside])),
        "holds": int(points.holds[inside].sum()),
        "settings": len(settings),
        "settings_all": int((share == 1).sum()),
        "settings_some": int(((share > 0) & (share < 1)).sum()),
        "lost": int(rows[runs.lost].sum()),
        "overlap": mean(again.overlap),
    }
    quasi_p_values = quasi_p(measured, box)
    limits = [
        (
            *(columns[i].name, side, limit_text(columns[i], side, box.limit(i, side))),
            *(quasi_p_values[i, side], again.present(i, side)),
            *_interval(columns[i], again.interval_of(i, side, confidence)),
        )
        for i, side in box.sides()
    ]
    return FoundBox(
        *name,
        box,
        rule(box, columns),
        figures,
        pd.DataFrame(limits, columns=list(LIMIT_COLUMNS[3:])),
        None if candidate.trajectory is None else pd.DataFrame(candidate.trajectory),
    )


def _figure(name: str, estimate: tuple[float, tuple[float, float]]) -> dict[str, float]:
    value, (low, high) = estimate
    return {name: value, f"{name}_low": low, f"{name}_high": high}


def _interval(column: Column, interval: tuple[float, float]) -> tuple[float, float]:
    """Return the interval of a column with plain numbers, else NaN: codes of levels and zips mean nothing."""
    plain = not column.labels and len(column.axis.factors) == 1
    return interval if plain else (np.nan, np.nan)


# --- as tables ----------------------------------------------------------------------------


def box_table(discoveries: Sequence[Discovery]) -> pd.DataFrame:
    """Return one row per box of all discoveries."""
    import pandas as pd

    rows = [
        {
            "condition": discovery.condition,
            "method": box.method,
            "box": box.number,
            "rule": box.rule,
            **box.figures,
        }
        for discovery in discoveries
        for box in discovery.boxes
    ]
    return pd.DataFrame(rows, columns=list(BOX_COLUMNS))


def limit_table(discoveries: Sequence[Discovery]) -> pd.DataFrame:
    """Return one row per restriction of all boxes."""
    return _together(discoveries, "limits", LIMIT_COLUMNS)


def trajectory_table(discoveries: Sequence[Discovery]) -> pd.DataFrame:
    """Return one row per step of all peeling trajectories."""
    return _together(discoveries, "trajectory", TRAJECTORY_COLUMNS)


def setting_table(discoveries: Sequence[Discovery]) -> pd.DataFrame:
    """Return one row per condition and row of the design."""
    import pandas as pd

    frames = [discovery.settings() for discovery in discoveries]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=list(SETTING_COLUMNS))


def _together(discoveries: Sequence[Discovery], name: str, columns: Sequence[str]) -> pd.DataFrame:
    import pandas as pd

    parts = []
    for discovery in discoveries:
        for box in discovery.boxes:
            frame = getattr(box, name)
            if frame is not None and len(frame):
                parts.append(frame.assign(condition=discovery.condition, method=box.method, box=box.number))
    whole = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=list(columns))
    return whole[list(columns)]
