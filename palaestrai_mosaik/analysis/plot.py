"""Pictures of a run: objective and rewards, and chosen columns over time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestrai_mosaik.errors import PalaestraiMosaikError, StoreError, did_you_mean

from .learning import LearningChoice, learning_panels, learning_title
from .series import TIME, Curve, Panel, episode_panels, find_moment, objective_panels, time_panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from palaestrai_mosaik.store import Store

FORMATS = (".png", ".svg", ".pdf")
#: of more curves, percentiles are drawn
MOST_LINES = 12

# The palette of Okabe and Ito (2008), which colour-blind people can tell apart; its yellow
# is left out because it is too pale for lines.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
# Lines of few points also differ in their dashes, so that those that coincide are all seen.
_DASHES = ("solid", (0, (5, 1.5)), (0, (1.5, 1)), (0, (5, 1, 1, 1)))
_WIDTH, _PANEL = 7.6, 2.35
# Of more points than this, means of equal spans are drawn: a page has no room for more.
_MOST_POINTS = 2000
_SPANS = 300
_FEWEST_DAYS = 60
_MARKED_POINTS = 40
_DENSE = 150
_LONGEST_LABEL = 34
_NOTE_WIDTH = 30
_GREY = "#5A6570"

_EVERYTHING = LearningChoice()

_RC: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": _GREY,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E3E6E9",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "svg.hashsalt": "palaestrai-mosaik",
}


def plot_run(
    store: Store,
    run: str,
    path: str | Path,
    *,
    phase: int | str | None = None,
    agent: str | None = None,
    sensors: Sequence[str] = (),
    episode: int | None = None,
) -> Path:
    """Draw objective and rewards of ``run`` into the file ``path``; return it.

    They are drawn per episode, or per step if there is only one episode. ``sensors``
    are patterns (``*``, ``?``) of columns; each gets a panel of its own that shows them
    over ``episode`` (default: the last one of ``phase``, or of the last phase).

    Raises :class:`StoreError` for unknown names and if there is nothing to plot, and
    :class:`PalaestraiMosaikError` for an unknown format and an unwritable file.
    """
    path = _checked(path)
    uid = store.find_run(run)
    panels = episode_panels(store, uid, phase, agent)
    if not panels or all(len(curve.x) < 2 for panel in panels for curve in panel.curves):
        moment = find_moment(store, uid, phase, episode)
        panels = objective_panels(store, uid, moment, agent) or panels
    if sensors:
        moment = find_moment(store, uid, phase, episode)
        panels += time_panels(store, uid, moment, agent, sensors)
    if not panels:
        raise StoreError(f"the run {uid} has recorded nothing that could be plotted")
    return _save(panels, _title(store, uid), path)


def plot_learning(
    store: Store, runs: Sequence[str], path: str | Path, choice: LearningChoice = _EVERYTHING
) -> Path:
    """Draw the learning curves of ``runs`` into the file ``path``; return it.

    The objective of each agent over training episodes is a line, evaluations are points.
    Runs of one document that differ in ``uid`` and ``seed`` only become one curve with a
    band; others are drawn side by side.

    Raises :class:`StoreError` for unknown names, and if no objective or statistic was
    recorded, and :class:`PalaestraiMosaikError` for an unknown format and an unwritable file.
    """
    path = _checked(path)
    uids = list(dict.fromkeys(store.find_run(run) for run in runs))
    panels = learning_panels(store, uids, choice)
    title = _title(store, uids[0]) if len(uids) == 1 else _cut(learning_title(store, uids), 110)
    return _save(panels, title, path)


def _checked(path: str | Path) -> Path:
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        hint = did_you_mean(path.suffix, FORMATS)
        raise PalaestraiMosaikError(f"cannot draw {path}{hint}: the name must end with {', '.join(FORMATS)}")
    return path


def _save(panels: Sequence[Panel], title: str, path: Path) -> Path:
    import matplotlib as mpl

    with mpl.rc_context(_RC):
        figure = draw_panels(panels, title)
        try:
            figure.savefig(path, dpi=200, metadata=_metadata(path))
        except OSError as error:
            raise PalaestraiMosaikError(f"cannot write {path}: {error.strerror}") from error
    return path


def draw_panels(panels: Sequence[Panel], title: str) -> Figure:
    """Return a figure with the panels one below the other, legends beside them."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(h_pad=0.09)
    figure = Figure(figsize=(_WIDTH, 0.5 + _PANEL * len(panels)), layout=layout)
    figure.suptitle(title, x=0.01, ha="left", fontsize=10.5)
    for axes, panel in zip(figure.subplots(len(panels), squeeze=False)[:, 0], panels, strict=True):
        _draw(axes, panel)
    return figure


def _draw(axes: Axes, panel: Panel) -> None:
    axes.set(xlabel=panel.x_label, ylabel=panel.y_label)
    axes.set_title(panel.title, pad=16 if len(panel.marks) > 1 else 6)
    notes = [panel.note] if panel.note else []
    if len(panel.curves) > MOST_LINES and panel.curves[0].colour is None:
        notes.append(_draw_percentiles(axes, panel.curves))
    else:
        notes += _draw_lines(axes, panel.curves)
    _mark_phases(axes, panel)
    _tidy(axes, panel)
    legend = axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), borderaxespad=0.2, alignment="left")
    legend.set_title(fill("; ".join(notes), _NOTE_WIDTH))
    legend.get_title().set(color=_GREY, fontsize=7)


def _draw_lines(axes: Axes, curves: Sequence[Curve]) -> list[str]:
    notes = []
    for i, curve in enumerate(curves):
        if curve.points:
            _draw_points(axes, curve)
            continue
        number = i if curve.colour is None else curve.colour
        colour = _COLOURS[number % len(_COLOURS)]
        if curve.raw is not None:
            _draw_raw(axes, curve.x, curve.raw, colour)
        shown, span = _thinned(curve)
        dense = len(shown.x) > _DENSE
        # dashes tell the colours' second round, too
        style = _DASHES[(number // len(_COLOURS) if dense else number) % len(_DASHES)]
        marker = "o" if len(shown.x) <= _MARKED_POINTS and not shown.steps else None
        axes.plot(
            shown.x,
            shown.y,
            label=_cut(curve.label),
            color=colour,
            linestyle=style,
            linewidth=0.9 if dense else 1.4,
            drawstyle="steps-post" if shown.steps else "default",
            marker=marker,
            markersize=3,
        )
        if shown.low is not None and shown.high is not None and (len(curves) <= 3 or not span):
            axes.fill_between(shown.x, shown.low, shown.high, color=colour, alpha=0.18, lw=0)
        if span:
            band = "; band: lowest to highest" if len(curves) <= 3 else ""
            notes = [_means_of(curve.x, span) + band]
    return notes


def _draw_raw(axes: Axes, x: np.ndarray[Any, Any], y: np.ndarray[Any, Any], colour: str) -> None:
    """Draw, behind a moving average, what it is the average of."""
    span = _span(x)
    if span:
        low, high = (_means(y, span, fold) for fold in (np.fmin, np.fmax))
        axes.fill_between(x[::span][: len(low)], low, high, color=colour, alpha=0.15, lw=0)
    else:
        axes.plot(x, y, color=colour, alpha=0.3, linewidth=0.6)


def _draw_points(axes: Axes, curve: Curve) -> None:
    colour = _COLOURS[(curve.colour or 0) % len(_COLOURS)]
    bars = None
    if curve.low is not None and curve.high is not None:
        bars = (curve.y - curve.low, curve.high - curve.y)
    axes.errorbar(
        curve.x,
        curve.y,
        yerr=bars,
        label=_cut(curve.label),
        color=colour,
        linestyle=(0, (1, 2)) if len(curve.x) <= _MARKED_POINTS else "none",
        linewidth=0.8,
        marker="D",
        markersize=3.5 if len(curve.x) <= _MARKED_POINTS else 2,
        markerfacecolor="white",
        elinewidth=0.8,
        zorder=3,
    )


def _draw_percentiles(axes: Axes, curves: Sequence[Curve]) -> str:
    """Draw how many curves spread, where they are too many to be told apart."""
    # agents that act at different times have different x; what there is at one x counts
    x = np.unique(np.concatenate([np.asarray(curve.x) for curve in curves]))
    values = np.full((len(curves), len(x)), np.nan)
    for row, curve in zip(values, curves, strict=True):
        row[np.searchsorted(x, np.asarray(curve.x))] = curve.y
    known = np.isfinite(values).any(axis=0)
    x, values = x[known], values[:, known]
    low, quarter, median, three, high = np.nanpercentile(values, (5, 25, 50, 75, 95), axis=0)
    times, span = x, _span(x)
    if span:
        parts = [_means(part, span) for part in (low, quarter, median, three, high)]
        low, quarter, median, three, high = parts
        x = x[::span][: len(median)]
    blue = _COLOURS[0]
    axes.fill_between(x, low, high, color=blue, alpha=0.15, lw=0, label="5 to 95 %")
    axes.fill_between(x, quarter, three, color=blue, alpha=0.3, lw=0, label="25 to 75 %")
    axes.plot(x, median, color=blue, label="median")
    means = f"; {_means_of(times, span)}" if span else ""
    return f"{len(curves):,} curves: percentiles over them{means}"


def _thinned(curve: Curve) -> tuple[Curve, int]:
    """Return a curve of means where there are too many points, and of how many (0: of none)."""
    span = _span(curve.x)
    if not span:
        return curve, 0
    if curve.colour is not None:
        # of a moving average, single points tell as much; those without a value are gaps
        kept = (np.arange(len(curve.x)) % span == 0) | ~np.isfinite(curve.y)
        low = None if curve.low is None else curve.low[kept]
        high = None if curve.high is None else curve.high[kept]
        return Curve(curve.label, curve.x[kept], curve.y[kept], low, high), 0
    y = _means(curve.y, span)
    low, high = _means(curve.y, span, np.fmin), _means(curve.y, span, np.fmax)
    return Curve(curve.label, curve.x[::span][: len(y)], y, low, high), span


def _span(x: np.ndarray[Any, Any]) -> int:
    """Return of how many points one is made; 0 if all are drawn.

    Where dates are known and there are enough of them, points are days: shorter spans
    would show the course of a day as a saw.
    """
    if len(x) <= _MOST_POINTS:
        return 0
    day = _points_of_a_day(x)
    return day if day and len(x) / day >= _FEWEST_DAYS else -(-len(x) // _SPANS)


def _points_of_a_day(x: np.ndarray[Any, Any]) -> int:
    if not np.issubdtype(x.dtype, np.datetime64):
        return 0
    whole, rest = divmod(np.timedelta64(1, "D"), x[1] - x[0])
    return 0 if rest else int(whole)


def _means_of(x: np.ndarray[Any, Any], span: int) -> str:
    return "daily means" if span == _points_of_a_day(x) else f"each point is the mean of {span} steps"


def _means(values: np.ndarray[Any, Any], span: int, fold: np.ufunc | None = None) -> np.ndarray[Any, Any]:
    """Return the mean of every ``span`` values (or ``fold`` of them), NaN left out.

    There are more than ``span`` values.
    """
    starts = np.arange(0, len(values), span)
    if len(values) - starts[-1] < span / 2:
        # a last span of a few values would be no mean like the others
        starts, values = starts[:-1], values[: starts[-1]]
    if fold is not None:
        result: np.ndarray[Any, Any] = fold.reduceat(values, starts)
        return result
    known = np.isfinite(values)
    counts = np.add.reduceat(known.astype(float), starts)
    sums = np.add.reduceat(np.where(known, values, 0.0), starts)
    return np.divide(sums, counts, out=np.full(len(starts), np.nan), where=counts > 0)


def _mark_phases(axes: Axes, panel: Panel) -> None:
    for start, end in panel.shades:
        axes.axvspan(start, end, color="#EEF0F2", lw=0, zorder=0)
    if len(panel.marks) < 2:
        return
    for place, name in panel.marks:
        axes.axvline(place, color="#8A949E", lw=0.8, zorder=1)
        axes.annotate(
            _cut(name, 14),
            (place, 1),
            (2, 3),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            fontsize=7,
            color=_GREY,
        )


def _tidy(axes: Axes, panel: Panel) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.ticker import MaxNLocator

    axes.margins(x=0.02)
    if panel.x_label == TIME:
        locator = AutoDateLocator(maxticks=9)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    # 1.001 to 1.080 shall be read as that, not as offsets from 1
    axes.ticklabel_format(axis="y", useOffset=False)


def _title(store: Store, uid: str) -> str:
    runs = store.runs()
    run = runs[runs["run"] == uid].iloc[0]
    started = run["started"].to_pydatetime().astimezone()
    return f"{_cut(str(run['document']), 50)}, run of {started:%Y-%m-%d %H:%M:%S}, {run['status']}"


def _metadata(path: Path) -> dict[str, Any]:
    # without a date the same results give the same file
    return {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix.lower(), {})


def _cut(text: str, width: int = _LONGEST_LABEL) -> str:
    return text if len(text) <= width else f"{text[: width // 2 - 1]}...{text[-(width // 2 - 2) :]}"
