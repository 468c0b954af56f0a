"""The parts of the page that show numbers: figures, and the tables that belong to them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestrai_mosaik.design.methods import MethodDisplay
from palaestrai_mosaik.design.model import INACTIVE, Factor
from palaestrai_mosaik.text import count

from ..missing_runs import count_missing_runs, executed_text
from .bars import Mark, bars
from .data import LearningData, ReportData, Table
from .indices import marks, method_of, pair_marks, pairs, players, ranked, singles
from .lines import MOST_PLACES, histogram, line_panel
from .markup import Safe, slug, tag
from .plane import MOST_CELLS, heat_map, morris_plane
from .scatter import MOST_LEVELS, MOST_POINTS, HorizontalAxis, scatter
from .svg import COLOURS, FloatArray, legend

if TYPE_CHECKING:
    import pandas as pd

#: what a band of a line says, and what not
POINTWISE = "The band is pointwise: it holds at each {} on its own, not for the line as a whole."

#: what a section consists of: markup, and tables that stand between it
Part = Safe | Table

#: of more factors, the most important ones are drawn; tables have all
MOST_BARS = 30
MOST_SCATTERS = 12
_MOST_PAIRS = 20
_NOISE = " Shares below 0 are sampling noise: there is no negative share."


def figure(caption: object, *panels: Safe, key: Safe | None = None) -> Safe:
    """Return panels side by side with a caption below."""
    return tag("figure", tag("div", *panels, class_="panels"), key or "", tag("figcaption", caption))


def sensitivity(data: ReportData, outcome: str) -> Iterator[Part]:
    """Yield what each method says about ``outcome``."""
    rows = data.sensitivity[data.sensitivity["outcome"] == outcome]
    for name in dict.fromkeys(rows["method"]):
        own = rows[rows["method"] == name]
        method = method_of(name, own)
        yield tag("h4", method.title)
        why = data.refused.get((outcome, name))
        if why:
            yield tag("p", f"Not computed: {why}.", class_="quiet")
            continue
        yield from _method(data, outcome, name, method, own)


def _method(
    data: ReportData, outcome: str, name: str, method: MethodDisplay, rows: pd.DataFrame
) -> Iterator[Part]:
    identity = f"{slug(outcome)}-{slug(name.replace('_', '-'))}"
    found = {index: marks(rows, index) for index in method.bars}
    real = players(data.spec)
    # what is no factor comes last
    order = sorted(ranked(found[method.leading]), key=lambda factor: factor not in real)
    panels = [_bars(identity, method, found, order[:MOST_BARS])]
    sigma = marks(rows, "sigma") if name == "morris" else {}
    if sigma:
        points = [(f, found["mu_star"][f], sigma[f].value) for f in order if f in sigma]
        panels.append(morris_plane(f"{identity}-plane", "Size and spread of effects", points))
    of_pairs = pair_marks(rows, method.pairs) if method.pairs else {}
    if of_pairs:
        names = [f for f in order if any(f in pair for pair in of_pairs)][:MOST_CELLS]
        title = f"Interactions of pairs ({method.pairs})"
        panels.append(heat_map(f"{identity}-pairs", title, names, of_pairs, str(method.pairs)))
    negative = method.share and any(mark.value < 0 for index in found.values() for mark in index.values())
    caption = _caption(data, method, len(order), bool(of_pairs)) + _NOISE * negative
    yield figure(caption, *panels, key=_key(method))
    yield from remarks(data.remarks.get((outcome, name), ()))
    used = f"{method.title} of {outcome} ({_used(rows)}, {data.seeds_of(outcome)})"
    yield Table(f"sensitivity-{identity}", used, _wide(singles(rows), order))
    if of_pairs:
        title = f"{method.title} of pairs, {outcome}"
        yield Table(f"sensitivity-{identity}-pairs", title, _wide(pairs(rows)), most=_MOST_PAIRS)


def _used(rows: pd.DataFrame) -> str:
    used, lost, executed = (int(rows[name].iloc[0]) for name in ("used", "lost", "executed"))
    caption = (f"{count(used, 'run')} used", executed_text(used, executed), f"{lost:,} lost" if lost else "")
    return ", ".join(filter(None, caption))


def _bars(
    identity: str, method: MethodDisplay, found: Mapping[str, Mapping[str, Mark]], order: Sequence[str]
) -> Safe:
    unknown = Mark(math.nan)
    rows = [(f, [found[i].get(f, unknown) for i in method.bars]) for f in order]
    return bars(f"{identity}-bars", " and ".join(method.bars), rows, method.bars, _axis(method))


def _axis(method: MethodDisplay) -> str:
    if method.share:
        return "share of the variance"
    return "mu* (mean size of the effects)" if method.leading == "mu_star" else method.leading


def _key(method: MethodDisplay) -> Safe | None:
    return legend(method.bars) if len(method.bars) > 1 else None


def _caption(data: ReportData, method: MethodDisplay, factors: int, pairs: bool) -> str:
    caption = [method.says] if method.says else []
    caption.append(f"Whiskers: intervals of {100 * data.spec.analysis.confidence:g} %, where there are any.")
    if pairs:
        caption.append("Cells: the darker, the larger; framed where the interval lies above zero.")
    if factors > MOST_BARS:
        caption.append(f"Shown are the first {MOST_BARS} of {factors} factors; the table has all.")
    return " ".join(caption)


def _wide(rows: pd.DataFrame, order: Sequence[str] = ()) -> pd.DataFrame:
    """Return a row per factor or pair, with the indices and their intervals side by side.

    Factors come in this ``order``, pairs by their first index, the largest first.
    """
    import pandas as pd

    keys = ["factor"] if order else ["factor", "factor2"]
    table: dict[tuple[str, ...], dict[str, Any]] = {}
    with_intervals = set(rows.loc[rows["low"].notna(), "index"])
    for row in rows.to_dict("records"):
        where = tuple(row[key] for key in keys)
        cells = table.setdefault(where, dict(zip(keys, where, strict=True)))
        index = row["index"]
        cells[index] = row["value"]
        if index in with_intervals:
            cells |= {f"{index} low": row["low"], f"{index} high": row["high"]}
    shown = pd.DataFrame(list(table.values()))
    if order:
        places = {factor: place for place, factor in enumerate(order)}
        return shown.sort_values("factor", key=lambda c: c.map(places), kind="stable", ignore_index=True)
    return shown.sort_values(rows["index"].iloc[0], ascending=False, kind="stable", ignore_index=True)


def distribution(data: ReportData, outcome: str) -> Iterator[Part]:
    """Yield how the outcome is distributed, and how it goes with each factor."""
    values = data.runs[outcome].to_numpy(float)
    if not np.isfinite(values).any():
        return
    by_row = data.runs.groupby("row")[outcome].mean()
    y = by_row.reindex(range(len(data.values))).to_numpy(float)
    factors = _important(data, outcome)
    identity = slug(outcome)
    panels = [histogram(f"{identity}-spread", outcome, values)]
    panels += [
        scatter(f"{identity}-at-{i}", against(factor, data.values), outcome, y)
        for i, factor in enumerate(factors[:MOST_SCATTERS])
    ]
    caption = "Orange: the mean of neighbouring rows, or of a level. "
    known = int(np.isfinite(y).sum())
    if known > MOST_POINTS:
        caption += f"All {known:,} rows are shown, as cells: the darker, the more rows lie there."
    else:
        caption += f"Points: all {known:,} rows" + (
            ", each the mean of its repetitions." if data.spec.repetitions > 1 else "."
        )
    caption += f" These are {data.runs_of(outcome)}."
    if len(factors) > MOST_SCATTERS:
        caption += f" Shown are {MOST_SCATTERS} of {len(factors)} factors, the most important ones."
    yield figure(caption, *panels)


def against(factor: Factor, values: Sequence[Mapping[str, Any]]) -> HorizontalAxis:
    """Return what lies on the x axis for ``factor``: NaN where a row leaves it inactive."""
    found = [row.get(factor.name, INACTIVE) for row in values]
    if factor.kind == "levels" and len(factor.levels) <= MOST_LEVELS:
        places = [_level(factor, value) for value in found]
        return HorizontalAxis(factor.name, np.array(places, dtype=float), factor.labels)
    numbers: FloatArray = np.array(
        [float(v) if isinstance(v, int | float) and not isinstance(v, bool) else math.nan for v in found],
        dtype=float,
    )
    if factor.kind == "levels" and not np.isfinite(numbers).any():
        numbers = np.array([_level(factor, value) for value in found], dtype=float)
    log = factor.dist in ("loguniform", "lognormal") and bool(np.all(numbers[np.isfinite(numbers)] > 0))
    return HorizontalAxis(factor.name, numbers, log=log)


def _level(factor: Factor, value: Any) -> float:
    """Return the index of a level, given as such or by its label."""
    for i, (level, label) in enumerate(zip(factor.levels, factor.labels, strict=True)):
        if (type(value) is type(level) and value == level) or (isinstance(value, str) and value == label):
            return float(i)
    return math.nan


def _important(data: ReportData, outcome: str) -> list[Factor]:
    """Return the factors, those first that matter most; without an analysis as they are written."""
    rows = data.sensitivity[data.sensitivity["outcome"] == outcome]
    factors = list(data.spec.factors)
    for name in dict.fromkeys(rows["method"]):
        own = rows[rows["method"] == name]
        order = ranked(marks(own, method_of(name, own).leading))
        places = {axis: order.index(axis) for axis in order}
        axes = {f.name: (a.group, a.name) for a in data.spec.axes for f in a.factors}
        return sorted(
            factors,
            key=lambda f: min(places.get(n or "", len(order)) for n in (f.name, *axes[f.name])),
        )
    return factors


def learning(data: LearningData, place: int) -> Iterator[Part]:
    """Yield learning curves as a figure with its table."""
    identity = f"learning-{place}"
    levels = list(dict.fromkeys(map(str, data.lines["level"])))
    caption = data.note
    if data.lines["low"].notna().any() and len(levels) <= COLOURS:
        caption += f" {POINTWISE.format('episode')}"
    longest = int(data.lines.groupby("level")["episode"].count().max())
    if longest > MOST_PLACES:
        caption += f" Of {longest:,} episodes, each place is the mean of {-(-longest // MOST_PLACES)}."
    if len(levels) > COLOURS:
        caption += " Bands are left out, because there are many lines."
    drawn = line_panel(identity, data.title, data.lines, ("episode", "value"), ("episode", data.value))
    yield figure(caption, drawn, key=legend(levels) if len(levels) > 1 else None)
    yield Table(identity, data.title, data.lines, most=0)


def remarks(caption: Sequence[str]) -> Iterator[Safe]:
    """Yield what has to be known about a figure, where there is something."""
    if caption:
        yield tag("ul", *(tag("li", text) for text in caption), class_="quiet remarks")


def notices(warnings: Sequence[str]) -> Iterator[Safe]:
    """Yield a box of warnings, where there are any."""
    if warnings:
        yield tag("div", tag("ul", *(tag("li", text) for text in dict.fromkeys(warnings))), class_="notice")


def lost(data: ReportData) -> str | None:
    """Return how many runs have no outcome, in words; nothing if all have."""
    counts = count_missing_runs(data.runs, data.outcomes)
    parts = [f"{counts[status]:,} {status}" for status in ("failed", "missing") if counts[status]]
    gone = counts["failed"] + counts["missing"]
    parts += [f"{counts[name]:,} without a finite {name}" for name in data.outcomes if counts[name]]
    if not parts:
        return None
    share = f" ({100 * gone / counts['runs']:.1f} %)" if gone else ""
    caption = f"{gone:,} of {count(counts['runs'], 'run')}{share} have not finished: {', '.join(parts)}"
    return f"{caption}. What they would have given is left out, never made up."
