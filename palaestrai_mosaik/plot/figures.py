"""Pictures of a run: objective and rewards, and chosen columns over time."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import fill, wrap
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import PalaestraiMosaikError, StoreError, did_you_mean
from palaestrai_mosaik.core.printing import escape_control_characters
from palaestrai_mosaik.store import BodyChoice
from palaestrai_mosaik.store.query.lookup import Fold

from .beside import MOST_BESIDE, Beside, moments_beside, rows_beside
from .colours import COLOURS, GREY, SHARED, colour_of
from .curves import means, means_of, percentiles, span_of, thinned
from .learning import MOST_LINES, LearningChoice, find_groups, learning_panels, learning_title
from .limits import Limit, Limits, in_sight
from .series import (
    TIME,
    Curve,
    Panel,
    episode_panels,
    find_moment,
    objective_panels,
    time_panels,
)
from .wrapping import wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.gridspec import SubplotSpec
    from matplotlib.legend import Legend

    from palaestrai_mosaik.store import Store

FORMATS = (".png", ".svg", ".pdf")

# Lines of few points also differ in their dashes, so that coinciding lines all remain visible.
_DASHES = ("solid", (0, (5, 1.5)), (0, (1.5, 1)), (0, (5, 1, 1, 1)))
_LIMIT_COLOURS = {"limit": "#B00020", "bound": "#5A6570"}
WIDTH, _PANEL = 7.6, 2.35
# Inches of a row of phases beside each other.
_WIDE, _BESIDE, _LEGENDS = 11.0, 2.1, 2.5
# Inches of a legend: a line of an entry, a line of its title, and the space around it.
_ENTRY, _NOTE, _AROUND = 0.185, 0.125, 0.35
# Inches beside an entry's text, for the y axis with its labels, and for a character in texts of 7 to 8 points.
_HANDLE, _Y_AXIS, _CHARACTER = 0.6, 0.75, 0.067
# Points from one row of names of phases to the next, and the maximum number of rows.
_ROW, _MOST_ROWS = 9.0, 6
_MOST_TICKS = 9
_MARKED_POINTS = 40
# More curves of owners than this are drawn in the owners' colours alone.
_MOST_OF_OWNERS = 4
_IDENTICAL = re.compile(r" \(\d+ identical\)$")
_MOST_BAR_LABELS = 24
_DENSE = 150
_LABEL_WIDTH = 34
# Labels are drawn in full, up to this many lines.
_LABEL_LINES = 8
_NOTE_WIDTH = 30
_Y_LABEL_WIDTH = 32
_PANEL_TITLE_WIDTH = 72
_TITLE_WIDTH = 85

_ALL_BODIES = BodyChoice()
_EVERYTHING = LearningChoice()

STYLE: Any = {
    # Names given by users may contain dollar signs.
    "text.parse_math": False,
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E3E6E9",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8,
    # Long enough to see dashes behind a marker.
    "legend.handlelength": 3.4,
    "svg.hashsalt": "palaestrai-mosaik",
}


def run_figure(  # noqa: PLR0913  (independent choices)
    store: Store,
    run: str,
    *,
    phase: int | str | None = None,
    choice: BodyChoice = _ALL_BODIES,
    sensors: Sequence[str] = (),
    episode: int | None = None,
    fold: Fold | None = None,
    limits: Limits = True,
) -> Figure:
    """Draw objective and rewards of a run.

    The values are per episode, or per step if there is only one episode and ``fold`` is not set. Several bodies are
    drawn as their mean, with a band from the lowest to the highest. Of a run with several phases of one episode each,
    episodes are bars, and the ``sensors`` of all phases are drawn beside each other. Episodes that did not finish are
    left out, or drawn open if their phase has no other.

    Args:
        store: the open store.
        run: the run, as :meth:`Store.find_run` takes it.
        phase: number or name of a phase; ``None``: all, and for ``sensors`` the last one unless each has one episode.
        choice: the bodies to draw; the default: all.
        sensors: patterns (``*``, ``?``) of columns. Each gets a panel that shows the matching columns over an
            episode; columns of other units or of another order of magnitude have further panels.
        episode: the episode for ``sensors``; ``None``: the last one.
        fold: how to reduce an episode to one value, ``"sum"`` or ``"mean"``; ``None``: the sum if the rewards of all
            environments accumulate (:meth:`Store.fold`), else the mean.
        limits: lines in the panels of ``sensors``: ``[(0.9, 1.1)]`` in all, or a pair for each pattern;
            ``True``: 0.95 and 1.05 for voltages (``vm_pu``), 100 % for loadings, and for other sensors the bounds
            of their space, if they are in sight; ``False``: none.

    Returns:
        The figure.

    Raises:
        StoreError: the run, phase, episode or a column does not exist, or there is nothing to plot.
        PalaestraiMosaikError: the limits are invalid.
    """
    uid = store.find_run(run)
    panels: list[Panel | Beside] = []
    panels += episode_panels(store, uid, phase, choice, fold or store.fold(uid))
    single = all(len(curve.x) < 2 for panel in panels for curve in _curves_of(panel))
    single &= len({float(curve.x[0]) for panel in panels for curve in _curves_of(panel)}) < 2
    if not panels or (single and fold is None):
        moment = find_moment(store, uid, phase, episode)
        panels = [*objective_panels(store, uid, moment, choice)] or panels
    beside = moments_beside(store, uid) if sensors and phase is None and episode is None else []
    if beside:
        panels = [*rows_beside(store, uid, beside, choice, sensors, limits), *panels]
    elif sensors:
        moment = find_moment(store, uid, phase, episode)
        panels += time_panels(store, uid, moment, choice, sensors, limits)
    if not panels:
        raise StoreError(f"the run {uid} has recorded nothing that could be plotted")
    return draw_panels(panels, _title(store, uid))


def plot_run(store: Store, run: str, path: str | Path, **options: Any) -> Path:
    """Draw objective and rewards of a run into a file.

    Args:
        store: the open store.
        run: the run, as :meth:`Store.find_run` takes it.
        path: the file; its suffix selects the format.
        options: those of :func:`run_figure`.

    Returns:
        The path.

    Raises:
        StoreError: the run, phase, episode or a column does not exist, or there is nothing to plot.
        PalaestraiMosaikError: the format is unknown, or the file cannot be written.
    """
    path = _checked(path)
    return save_figure(run_figure(store, run, **options), path)


def learning_figure(store: Store, runs: Sequence[str], choice: LearningChoice = _EVERYTHING) -> Figure:
    """Draw the learning curves of runs.

    The objective of each agent over training episodes is a line; evaluations are points. Runs of one document
    that differ only in ``uid`` and ``seed`` become one curve with a band; others are drawn side by side.

    Args:
        store: the open store.
        runs: uids of instances.
        choice: phases, bodies and statistics to draw; the default: all phases and bodies, no statistics.

    Returns:
        The figure.

    Raises:
        StoreError: a run, phase or body does not exist, or no objective or statistic was recorded.
    """
    uids = list(dict.fromkeys(store.find_run(run) for run in runs))
    panels = learning_panels(store, uids, choice)
    groups = find_groups(store, uids)
    drawn = [run for group in groups for run in group.runs]
    title = _title(store, drawn[0]) if len(drawn) == 1 else learning_title(groups)
    return draw_panels(panels, title)


def plot_learning(
    store: Store, runs: Sequence[str], path: str | Path, choice: LearningChoice = _EVERYTHING
) -> Path:
    """Draw the learning curves of runs (:func:`learning_figure`) into a file.

    Args:
        store: the open store.
        runs: uids of instances.
        path: the file; its suffix selects the format.
        choice: phases, bodies and statistics to draw; the default: all phases and bodies, no statistics.

    Returns:
        The path.

    Raises:
        StoreError: a run, phase or body does not exist, or no objective or statistic was recorded.
        PalaestraiMosaikError: the format is unknown, or the file cannot be written.
    """
    path = _checked(path)
    return save_figure(learning_figure(store, runs, choice), path)


def _checked(path: str | Path) -> Path:
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        hint = did_you_mean(path.suffix, FORMATS)
        raise PalaestraiMosaikError(f"cannot draw {path}{hint}: the name must end with {', '.join(FORMATS)}")
    return path


def save_figure(figure: Figure, path: Path) -> Path:
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        try:
            with files.writing(path) as stream:
                figure.savefig(stream, format=path.suffix[1:].lower(), dpi=200, metadata=_metadata(path))
        except OSError as error:
            raise PalaestraiMosaikError(f"cannot write {path}: {error.strerror}") from error
    return path


def draw_panels(panels: Sequence[Panel | Beside], title: str) -> Figure:
    """Draw the panels one below the other, with legends beside them, into a figure that notebooks can show."""
    import matplotlib as mpl
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    from .notebook import NotebookFigure

    with mpl.rc_context(STYLE):
        title = wrapped(title, _TITLE_WIDTH, 3)
        heights = [_height_beside(p) if isinstance(p, Beside) else _height(p) for p in panels]
        wide = any(isinstance(panel, Beside) for panel in panels)
        width = _WIDE if wide else WIDTH
        # Legends of rows with several axes have a column of their own, so that rows end at the same place.
        layout = ConstrainedLayoutEngine(h_pad=0.09, rect=(0, 0, 1 - _LEGENDS / _WIDE if wide else 1, 1))
        size = (width, 0.3 + 0.2 * (1 + title.count("\n")) + sum(heights))
        figure = NotebookFigure(figsize=size, layout=layout)
        figure.suptitle(escape_control_characters(title), x=0.01, ha="left", fontsize=10.5)
        grid = figure.add_gridspec(len(panels), height_ratios=heights)
        for i, panel in enumerate(panels):
            if isinstance(panel, Beside):
                _draw_beside(figure, grid[i], panel)
            else:
                axes = figure.add_subplot(grid[i])
                _draw(axes, _merged(_escaped_panel(panel))).set_in_layout(not wide)
    return figure


def _curves_of(panel: Panel | Beside) -> tuple[Curve, ...]:
    panels = panel.panels if isinstance(panel, Beside) else (panel,)
    return tuple(curve for each in panels for curve in each.curves)


def _merged(panel: Panel) -> Panel:
    """Replace identical curves by one that counts them, unless there are too many curves for lines anyway."""
    alike: dict[tuple[Any, ...], list[Curve]] = {}
    for curve in panel.curves:
        values = (curve.x, curve.y, curve.low, curve.high, curve.raw)
        key = tuple(None if value is None else np.asarray(value).tobytes() for value in values)
        alike.setdefault((*key, curve.points, curve.faint, curve.hollow), []).append(curve)
    merged = [curves[0] if len(curves) == 1 else _counted(curves) for curves in alike.values()]
    if panel.groups or (len(merged) > MOST_LINES and merged[0].colour is None):
        return panel
    return replace(panel, curves=tuple(merged))


def _counted(curves: Sequence[Curve]) -> Curve:
    """Return one of several identical curves, with their number in its label."""
    identities = {curve.identity for curve in curves}
    labels = list(dict.fromkeys(curve.label for curve in curves))
    if len(labels) == 1:
        label = f"{labels[0]} ({len(curves)} identical)"
    else:
        label = f"{len(curves)} identical: {labels[0]}{f' and {labels[1]}' if len(labels) == 2 else ', ...'}"
    return replace(curves[0], label=label, identity=identities.pop() if len(identities) == 1 else SHARED)


def _escaped_panel(panel: Panel) -> Panel:
    """Escape the control characters in the texts of ``panel``."""
    escape = escape_control_characters
    texts: dict[str, Any] = {
        name: escape(getattr(panel, name)) for name in ("title", "x_label", "y_label", "note")
    }
    return replace(
        panel,
        # matplotlib shows no label that begins with an underscore
        curves=tuple(
            replace(curve, label=re.sub("^_", "\N{THIN SPACE}_", escape(curve.label)))
            for curve in panel.curves
        ),
        marks=tuple((x, escape(name)) for x, name in panel.marks),
        groups=tuple(map(escape, panel.groups)),
        **texts,
    )


def _height(panel: Panel) -> float:
    """Return the height of a panel in inches, with enough space for its legend."""
    lines = 3 if _are_many(panel) else sum(1 + _label(c).count("\n") for c in panel.curves if not c.faint)
    lines += len({limit.name for limit in _limits_of(panel)})
    # Drawing may add two more lines of notes.
    notes = 2 + len(wrap(panel.note, _NOTE_WIDTH))
    above = _ROW / 72 * max(0, len(set(_rows_of_names(panel).values())) - 1)
    above += 0.15 * _panel_title(panel).count("\n")
    return max(_PANEL, _AROUND + _ENTRY * lines + _NOTE * notes) + above


def _limits_of(panel: Panel) -> list[Limit]:
    return in_sight(panel.limits, [curve.y for curve in panel.curves])


def _are_many(panel: Panel) -> bool:
    """Whether to draw percentiles instead of lines. Learning curves always stay lines."""
    return len(panel.curves) > MOST_LINES and panel.curves[0].colour is None


def _draw(axes: Axes, panel: Panel) -> Legend:
    """Draw a panel; return its legend."""
    axes.set(xlabel=_x_label(panel), ylabel=wrapped(panel.y_label, _Y_LABEL_WIDTH, 3))
    rows = _rows_of_names(panel)
    above = 10 + _ROW * max(rows.values()) if rows else 0
    axes.set_title(_panel_title(panel), pad=6 + above)
    notes = [panel.note] if panel.note else []
    if panel.groups:
        _draw_bars(axes, panel)
    else:
        notes += _draw_curves(axes, panel)
    _draw_limits(axes, panel)
    _mark_phases(axes, panel, rows)
    _tidy(axes, panel)
    legend = axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), borderaxespad=0.2, alignment="left")
    legend.set_title(fill("; ".join(notes), _NOTE_WIDTH))
    legend.get_title().set(color=GREY, fontsize=7)
    return legend


def _height_beside(row: Beside) -> float:
    """Return the height of a row of phases in inches."""
    labels = {curve.label for curve in _curves_of(row)}
    entries = _AROUND + _ENTRY * (len(labels) + 1) if len(labels) <= MOST_LINES else 0.0
    return max(0.25 + _BESIDE * -(-len(row.panels) // MOST_BESIDE), entries)


def _draw_beside(figure: Figure, place: SubplotSpec, row: Beside) -> None:
    """Draw panels beside each other, with one y axis and one legend."""
    panels, by_owner = _row_panels(row)
    many = any(map(_are_many, panels))
    columns = min(len(panels), MOST_BESIDE)
    grid = place.subgridspec(-(-len(panels) // columns), columns)
    entries: dict[str, Any] = {}
    notes: dict[str, None] = {}
    drawn: dict[Any, Axes] = {}
    last: Axes
    for i, panel in enumerate(panels):
        # Phases that begin at the same time have one x axis.
        begin = panel.curves[0].x[0] if panel.curves else None
        same = None if begin is None else drawn.get(begin)
        first = next(iter(drawn.values()), None)
        axes = figure.add_subplot(grid[i // columns, i % columns], sharey=first, sharex=same)
        notes |= dict.fromkeys(_draw_part(axes, panel, many=many, by_owner=by_owner))
        axes.set_title(("\n" if i < columns else "") + wrapped(panel.title, 26, 2), fontsize=8.5)
        axes.set_ylabel("" if i % columns else wrapped(panel.y_label, _Y_LABEL_WIDTH, 3))
        axes.tick_params(labelleft=i % columns == 0)
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
        drawn.setdefault(begin, axes)
        if i == columns - 1:
            last = axes
        if first is None:
            _head_row(axes, row.title)
    legend = last.legend(
        list(entries.values()),
        list(entries),
        loc="center left",
        bbox_to_anchor=(1.02, 0.5),
        borderaxespad=0.2,
        alignment="left",
    )
    legend.set_in_layout(False)
    legend.set_title(fill("; ".join(notes), _NOTE_WIDTH))
    legend.get_title().set(color=GREY, fontsize=7)


def _row_panels(row: Beside) -> tuple[list[Panel], bool]:
    """Return the panels of a row as they are drawn, and whether their curves have the colours of their owners.

    The curves are those of owners if they are many, and all have one.
    """
    curves = _curves_of(row)
    labels = {curve.label for curve in curves}
    by_owner = len(labels) > _MOST_OF_OWNERS and all(curve.identity is not None for curve in curves)
    limits = in_sight(row.panels[0].limits, [curve.y for curve in curves])
    panels = [
        replace(
            _escaped_panel(panel),
            curves=tuple(map(_of_owner, panel.curves)) if by_owner else panel.curves,
            limits=tuple(replace(limit, reach=math.inf) for limit in limits),
        )
        for panel in row.panels
    ]
    merged = [_merged(panel) for panel in panels]
    return (panels if any(map(_are_many, merged)) else merged), by_owner


def _of_owner(curve: Curve) -> Curve:
    """Label a curve by its owner alone."""
    return replace(curve, label=escape_control_characters(curve.label.partition(": ")[0]))


def _draw_part(axes: Axes, panel: Panel, *, many: bool, by_owner: bool) -> list[str]:
    """Draw a panel of a row; return notes for the legend."""
    notes: list[str] = []
    if not panel.curves:
        axes.set_xticks([])
        axes.text(0.5, 0.5, "no values", transform=axes.transAxes, ha="center", va="center", color=GREY)
        return notes
    if by_owner and many:
        notes = [_draw_owners(axes, panel.curves)]
    elif by_owner:
        identical = [curve.label for curve in panel.curves if _IDENTICAL.search(curve.label)]
        axes.text(
            0.5,
            0.5,
            "\n".join(identical),
            transform=axes.transAxes,
            ha="center",
            va="center",
            color=GREY,
            fontsize=7,
        )
        curves = [replace(curve, label=_IDENTICAL.sub("", curve.label)) for curve in panel.curves]
        notes = _draw_lines(axes, curves, by_owner=True)
    elif many:
        notes = [_draw_percentiles(axes, panel.curves)]
    else:
        notes = _draw_lines(axes, panel.curves)
    _draw_limits(axes, panel)
    _tidy(axes, panel, most_dates=4)
    axes.set_xlabel(_x_label(panel))
    return notes


def _head_row(axes: Axes, title: str) -> None:
    """Write the title of a row above its first panel; it may be wider than that."""
    heading = axes.annotate(
        escape_control_characters(title),
        (0, 1),
        (0, 18),
        xycoords="axes fraction",
        textcoords="offset points",
        fontsize=9.5,
        fontweight="bold",
    )
    heading.set_in_layout(False)


def _draw_owners(axes: Axes, curves: Sequence[Curve]) -> str:
    """Draw the median and the extremes of the curves of each owner."""
    for number in dict.fromkeys(curve.identity for curve in curves):
        own = [curve for curve in curves if curve.identity == number]
        times, levels = percentiles(own, (0, 50, 100))
        span = span_of(times)
        least, median, most = (
            means(level, span, fold) if span else level
            for level, fold in zip(levels, (np.fmin, None, np.fmax), strict=True)
        )
        x, colour = times[:: span or 1][: len(median)], colour_of(number or 0)
        axes.fill_between(x, least, most, color=colour, alpha=0.18, lw=0)
        axes.plot(x, median, color=colour, lw=1.2, label=own[0].label)
    return "median; band: lowest to highest"


def _draw_curves(axes: Axes, panel: Panel) -> list[str]:
    """Draw lines, or percentiles of many; return notes for the legend."""
    if _are_many(panel):
        return [_draw_percentiles(axes, panel.curves)]
    return _draw_lines(axes, panel.curves)


def _panel_title(panel: Panel) -> str:
    return wrapped(panel.title, _PANEL_TITLE_WIDTH, 3)


def _x_label(panel: Panel) -> str:
    """Return the label of the x axis; for a time axis, with the days that it shows."""
    if panel.x_label != TIME or not panel.curves:
        return panel.x_label
    dates = [np.datetime64(end(curve.x), "D") for curve in panel.curves for end in (np.min, np.max)]
    first, last = min(dates), max(dates)
    return f"{TIME}, {first}" if first == last else f"{TIME}, {first} to {last}"


def _draw_limits(axes: Axes, panel: Panel) -> None:
    limits = _limits_of(panel)
    for name, colour in _LIMIT_COLOURS.items():
        values = sorted({limit.value for limit in limits if limit.name == name})
        label = f"{name}{'s' if len(values) > 1 else ''} {' and '.join(f'{value:g}' for value in values)}"
        for value in values:
            axes.axhline(value, color=colour, lw=0.9, linestyle=(0, (8, 4)), zorder=1.5, label=label)
            label = "_nolegend_"


def _draw_lines(axes: Axes, curves: Sequence[Curve], *, by_owner: bool = False) -> list[str]:
    notes = []
    alpha = 0.18 if len(curves) <= 3 else 0.09
    for curve, (number, tint) in _looks(curves, by_owner=by_owner):
        colour = colour_of(number, tint)
        if curve.hollow:
            axes.plot(
                curve.x,
                curve.y,
                label=_label(curve),
                color=colour,
                linestyle="none",
                marker="o",
                markersize=6,
                markerfacecolor="white",
            )
        elif curve.faint:
            _draw_faint(axes, curve, colour)
        elif curve.points:
            _draw_points(axes, curve, colour)
        elif span := _draw_line(axes, curve, (number, tint), alpha):
            notes = [f"{means_of(curve.x, span)}; band: lowest to highest"]
    return notes


def _looks(curves: Sequence[Curve], *, by_owner: bool = False) -> Iterator[tuple[Curve, tuple[int, int]]]:
    """Yield each curve with the number of its colour, and its tint among the curves of its owner.

    With ``by_owner``, all curves of an owner have one tint.
    """
    tints = Counter[int]()
    for i, curve in enumerate(curves):
        if curve.identity is None:
            yield curve, (i if curve.colour is None else curve.colour, 0)
        else:
            yield (
                curve,
                (curve.identity, 0 if by_owner or curve.colour is not None else tints[curve.identity]),
            )
            tints[curve.identity] += 1


def _draw_line(axes: Axes, curve: Curve, look: tuple[int, int], alpha: float) -> int:
    """Draw a curve with its band; return the number of values that a point is the mean of, 0 for single ones.

    Args:
        axes: the axes of the panel.
        curve: the curve.
        look: number and tint of the curve's colour.
        alpha: opacity of the band.
    """
    colour, (number, tint) = colour_of(*look), look
    if curve.raw is not None:
        _draw_raw(axes, curve.x, curve.raw, colour)
    line, span = thinned(curve)
    dense = len(line.x) > _DENSE
    # Dashes also distinguish the second round of colours.
    style = _DASHES[(number // len(COLOURS) + (0 if dense else number) + tint) % len(_DASHES)]
    few = len(line.x) <= _MARKED_POINTS and not line.steps
    # A line of one point would be invisible.
    alone = _alone(line.y)
    axes.plot(
        line.x,
        line.y,
        label=_label(curve),
        color=colour,
        linestyle=style,
        linewidth=0.9 if dense else 1.4,
        drawstyle="steps-post" if line.steps else "default",
        marker="o" if few or len(alone) else None,
        markevery=None if few else alone.tolist(),
        markersize=3,
    )
    if line.low is not None and line.high is not None:
        axes.fill_between(line.x, line.low, line.high, color=colour, alpha=alpha, lw=0)
        if len(alone):
            ends = (line.x[alone], line.low[alone], line.high[alone])
            axes.vlines(*ends, color=colour, alpha=0.3, lw=2.5)
    return span


def _alone(y: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the indices of isolated values, without neighbours to draw a line to."""
    finite = np.concatenate([[False], np.isfinite(y), [False]])
    return np.flatnonzero(finite[1:-1] & ~finite[:-2] & ~finite[2:])


def _draw_raw(axes: Axes, x: np.ndarray[Any, Any], y: np.ndarray[Any, Any], colour: str) -> None:
    """Draw the raw values behind their moving average."""
    span = span_of(x)
    if span:
        low, high = (means(y, span, fold) for fold in (np.fmin, np.fmax))
        axes.fill_between(x[::span][: len(low)], low, high, color=colour, alpha=0.15, lw=0)
    else:
        axes.plot(x, y, color=colour, alpha=0.3, linewidth=0.6)


def _draw_faint(axes: Axes, curve: Curve, colour: str) -> None:
    """Draw a single repetition over the episodes without a mean."""
    if curve.points:
        axes.plot(curve.x, curve.y, color=colour, linestyle="none", marker="D", markersize=2, alpha=0.5)
    else:
        line, _ = thinned(curve)
        axes.plot(line.x, line.y, color=colour, linewidth=0.7, alpha=0.6)


def _draw_points(axes: Axes, curve: Curve, colour: str) -> None:
    bars = None
    if curve.low is not None and curve.high is not None:
        bars = (curve.y - curve.low, curve.high - curve.y)
    axes.errorbar(
        curve.x,
        curve.y,
        yerr=bars,
        label=_label(curve),
        color=colour,
        linestyle=(0, (1, 2)) if len(curve.x) <= _MARKED_POINTS else "none",
        linewidth=0.8,
        marker="D",
        markersize=3.5 if len(curve.x) <= _MARKED_POINTS else 2,
        markerfacecolor="white",
        elinewidth=0.8,
        zorder=3,
    )


def _draw_bars(axes: Axes, panel: Panel) -> None:
    """Draw a group of bars with their values for each phase; those of unfinished episodes are open."""
    looks = [(number, 0 if curve.hollow else tint) for curve, (number, tint) in _looks(panel.curves)]
    owners = list(dict.fromkeys(looks))
    width = 0.8 / len(owners)
    for curve, look in zip(panel.curves, looks, strict=True):
        x = curve.x + (owners.index(look) - (len(owners) - 1) / 2) * width
        colour = colour_of(*look)
        bars = None
        if curve.low is not None and curve.high is not None:
            bars = (curve.y - curve.low, curve.high - curve.y)
        drawn = axes.bar(
            x,
            curve.y,
            0.92 * width,
            label=_label(curve),
            color="none" if curve.hollow else colour,
            edgecolor=colour,
            linestyle="--" if curve.hollow else "-",
            yerr=bars,
            ecolor=GREY,
        )
        if len(panel.groups) * len(owners) <= _MOST_BAR_LABELS:
            axes.bar_label(drawn, fmt="{:.3g}", fontsize=7, padding=1, color=GREY)
    axes.axhline(0, color=GREY, lw=0.8)
    axes.margins(y=0.15)


def _draw_percentiles(axes: Axes, curves: Sequence[Curve]) -> str:
    """Draw percentiles of curves that are too many to be distinguished."""
    times, levels = percentiles(curves, (0, 5, 25, 50, 75, 95, 100))
    span = span_of(times)
    folds = (np.fmin, *[None] * 5, np.fmax)
    least, low, quarter, median, three, high, most = (
        means(level, span, fold) if span else level for level, fold in zip(levels, folds, strict=True)
    )
    x = times[:: span or 1][: len(median)]
    blue = COLOURS[0]
    axes.fill_between(x, least, most, fc=(blue, 0.1), ec=(blue, 0.6), lw=0.6, label="lowest to highest")
    axes.fill_between(x, low, high, color=blue, alpha=0.15, lw=0, label="5 to 95 %")
    axes.fill_between(x, quarter, three, color=blue, alpha=0.3, lw=0, label="25 to 75 %")
    if len(x) == 1:
        axes.vlines(x, least, most, color=blue, alpha=0.3, lw=1)
        axes.vlines(x, low, high, color=blue, alpha=0.15, lw=6)
        axes.vlines(x, quarter, three, color=blue, alpha=0.3, lw=6)
    axes.plot(x, median, color=blue, label="median", marker="o" if len(x) == 1 else None, markersize=3)
    thinner = f"; {means_of(times, span)}" if span else ""
    return f"{len(curves):,} curves: percentiles over them{thinner}"


def _span_of(panel: Panel) -> tuple[float, float]:
    """Return both ends of the axis of episodes, with half an episode of padding."""
    ends = [float(np.max(curve.x)) for curve in panel.curves if len(curve.x)]
    return panel.marks[0][0], max([*ends, panel.marks[-1][0] + 0.5]) + 0.5


def _axes_width(panel: Panel) -> float:
    """Estimate the width in inches that the legend leaves for the axes."""
    texts = [line for curve in panel.curves for line in _label(curve).split("\n") if not curve.faint]
    longest = max([len(text) for text in texts] + [_NOTE_WIDTH if panel.note else 0])
    return max(1.0, WIDTH - _Y_AXIS - _HANDLE - _CHARACTER * longest)


def _rows_of_names(panel: Panel) -> dict[int, int]:
    """Return the row above the axes for the name of each phase, by its index; empty for a single phase.

    The last name is in the lowest row, so that the lines below names cross few others. Names that do not fit into
    the rows are left out.
    """
    if len(panel.marks) < 2:
        return {}
    first, last = _span_of(panel)
    inch = (last - first) / _axes_width(panel)
    free = [math.inf] * _MOST_ROWS
    rows = {}
    for i in reversed(range(len(panel.marks))):
        position, name = panel.marks[i]
        end = position + (len(name) + 1) * _CHARACTER * inch
        row = next((k for k, start in enumerate(free) if end <= start), None)
        if row is not None:
            rows[i] = row
            free[row] = position
    return rows


def _mark_phases(axes: Axes, panel: Panel, rows: dict[int, int]) -> None:
    for start, end in panel.shades:
        axes.axvspan(start, end, color="#EEF0F2", lw=0, zorder=0)
    if len(panel.marks) < 2:
        return
    for i, (position, name) in enumerate(panel.marks):
        axes.axvline(position, color="#8A949E", lw=0.8, zorder=1)
        if i not in rows:
            continue
        axes.annotate(
            name,
            (position, 1),
            (2, 3 + _ROW * rows[i]),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            fontsize=7,
            color=GREY,
            # Lines to names above it end at this one, and continue below.
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
            zorder=3,
        )
        if rows[i]:
            # A line from the axes up to the name.
            axes.annotate(
                "",
                (position, 1),
                (0, 3 + _ROW * (rows[i] + 0.7)),
                xycoords=("data", "axes fraction"),
                textcoords="offset points",
                zorder=2,
                arrowprops={"arrowstyle": "-", "color": "#8A949E", "lw": 0.8, "shrinkA": 0, "shrinkB": 0},
            )


def _tidy(axes: Axes, panel: Panel, most_dates: int = 9) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.ticker import MaxNLocator

    axes.margins(x=0.02)
    if panel.groups:
        axes.set_xticks(range(len(panel.groups)), [wrapped(name, 16, 2) for name in panel.groups])
        axes.set_xlim(-0.5, len(panel.groups) - 0.5)
        axes.grid(visible=False, axis="x")
    elif panel.x_label == TIME:
        locator = AutoDateLocator(minticks=3 if most_dates < 5 else 5, maxticks=most_dates)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, show_offset=False))
    elif len(panel.marks) > 1:
        axes.set_xlim(_span_of(panel))
        ticks = _ticks_of_phases(panel)
        axes.set_xticks([position for position, _ in ticks], [text for _, text in ticks])
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        first, last = axes.get_xlim()
        if last - first < 1:
            # Padding around a single episode.
            axes.set_xlim(first - 0.5, last + 0.5)
    # Show 1.001 to 1.080 as such, not as offsets from 1.
    axes.ticklabel_format(axis="y", useOffset=False)


def _ticks_of_phases(panel: Panel) -> list[tuple[int, str]]:
    """Return ticks for an axis of several phases: positions, and the numbers of the episodes within their phase."""
    first, last = _span_of(panel)
    inch = (last - first) / _axes_width(panel)
    least = (last - first) / _MOST_TICKS
    step = next(n * 10**k for k in range(20) for n in (1, 2, 5) if n * 10**k >= least)
    starts = [math.ceil(position) for position, _ in panel.marks]
    ticks: list[tuple[int, str]] = []
    free = -math.inf
    for start, end in zip(starts, [*starts[1:], math.ceil(last)], strict=True):
        for position in range(start, end, step):
            half = _CHARACTER * (len(str(position - start)) + 1) / 2 * inch
            if position - half >= free:
                ticks.append((position, str(position - start)))
                free = position + half
    return ticks


def _title(store: Store, uid: str) -> str:
    run = store.runs(uid).iloc[0]
    started = run["started"].to_pydatetime().astimezone()
    return f"{run['document']}, run of {started:%Y-%m-%d %H:%M:%S}, {run['status']}"


def _metadata(path: Path) -> dict[str, Any]:
    # Without a date, the same results give the same file.
    return {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix.lower(), {})


def _label(curve: Curve) -> str:
    """Return the curve's label for the legend, wrapped but not shortened."""
    return wrapped(curve.label, _LABEL_WIDTH, _LABEL_LINES) or " "
