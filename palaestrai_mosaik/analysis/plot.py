"""Pictures of a run: objective and rewards, and chosen columns over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import fill, wrap
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestrai_mosaik import files
from palaestrai_mosaik.errors import PalaestraiMosaikError, StoreError, did_you_mean
from palaestrai_mosaik.store import BodyChoice
from palaestrai_mosaik.text import escape_control_characters

from .curves import means, means_of, span_of, thinned
from .groups import find_groups, learning_title
from .learning import MOST_LINES, Fold, LearningChoice, learning_panels
from .series import TIME, Curve, Panel, episode_panels, find_moment, objective_panels, time_panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from palaestrai_mosaik.store import Store

FORMATS = (".png", ".svg", ".pdf")

# The palette of Okabe and Ito (2008), which colour-blind people can tell apart; its yellow
# is left out because it is too pale for lines.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
# Lines of few points also differ in their dashes, so that those that coincide are all seen.
_DASHES = ("solid", (0, (5, 1.5)), (0, (1.5, 1)), (0, (5, 1, 1, 1)))
_WIDTH, _PANEL = 7.6, 2.35
# Inches that a legend takes: a line of an entry, one of its title, and what is around it.
_ENTRY, _NOTE, _AROUND = 0.185, 0.125, 0.35
_MARKED_POINTS = 40
_DENSE = 150
_LONGEST_LABEL = 34
_NOTE_WIDTH = 30
_TITLE_WIDTH = 85
_GREY = "#5A6570"

_ALL_BODIES = BodyChoice()
_EVERYTHING = LearningChoice()

_RC: Any = {
    # what users have named is no formula
    "text.parse_math": False,
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
    # long enough to see dashes behind a mark
    "legend.handlelength": 3.4,
    "svg.hashsalt": "palaestrai-mosaik",
}


def run_figure(
    store: Store,
    run: str,
    *,
    phase: int | str | None = None,
    choice: BodyChoice = _ALL_BODIES,
    sensors: Sequence[str] = (),
    episode: int | None = None,
    fold: Fold | None = None,
) -> Figure:
    """Draw objective and rewards of a run.

    They are drawn per episode, or per step if there is only one episode and no ``fold`` is given. Of several
    bodies it is their mean, with a band from the lowest to the highest.

    Args:
        store: the open store.
        run: which run, as :meth:`Store.find_run` takes it.
        phase: number or name of a phase; ``None``: all, and the last one for ``sensors``.
        choice: which bodies; the default: all.
        sensors: patterns (``*``, ``?``) of columns. Each gets a panel of its own that shows the matching
            columns over an episode.
        episode: the episode for ``sensors``; ``None``: the last one.
        fold: how the values of an episode become one, ``"sum"`` or ``"mean"``; ``None``: the mean.

    Raises:
        StoreError: what is named does not exist, or there is nothing to plot.
    """
    uid = store.find_run(run)
    panels = episode_panels(store, uid, phase, choice, fold or "mean")
    single = all(len(curve.x) < 2 for panel in panels for curve in panel.curves)
    if not panels or (single and fold is None):
        moment = find_moment(store, uid, phase, episode)
        panels = objective_panels(store, uid, moment, choice) or panels
    if sensors:
        moment = find_moment(store, uid, phase, episode)
        panels += time_panels(store, uid, moment, choice, sensors)
    if not panels:
        raise StoreError(f"the run {uid} has recorded nothing that could be plotted")
    return draw_panels(panels, _title(store, uid))


def plot_run(store: Store, run: str, path: str | Path, **options: Any) -> Path:
    """Draw objective and rewards of a run into a file.

    Args:
        store: the open store.
        run: which run, as :meth:`Store.find_run` takes it.
        path: the file; its suffix says the format.
        options: those of :func:`run_figure`.

    Returns:
        The path.

    Raises:
        StoreError: what is named does not exist, or there is nothing to plot.
        PalaestraiMosaikError: the format is unknown, or the file cannot be written.
    """
    path = _checked(path)
    return _save(run_figure(store, run, **options), path)


def learning_figure(store: Store, runs: Sequence[str], choice: LearningChoice = _EVERYTHING) -> Figure:
    """Draw the learning curves of runs.

    The objective of each agent over training episodes is a line, evaluations are points. Runs of one document
    that differ in ``uid`` and ``seed`` only become one curve with a band; others are drawn side by side.

    Args:
        store: the open store.
        runs: uids of instances.
        choice: which phases, bodies and statistics; the default: all phases and bodies, no statistics.

    Raises:
        StoreError: what is named does not exist, or no objective or statistic was recorded.
    """
    uids = list(dict.fromkeys(store.find_run(run) for run in runs))
    panels = learning_panels(store, uids, choice)
    groups = find_groups(store, uids)
    drawn = [run for group in groups for run in group.runs]
    title = _title(store, drawn[0]) if len(drawn) == 1 else learning_title(groups)
    return draw_panels(panels, _wrapped(title, _TITLE_WIDTH, 2))


def plot_learning(
    store: Store, runs: Sequence[str], path: str | Path, choice: LearningChoice = _EVERYTHING
) -> Path:
    """Draw the learning curves of runs (:func:`learning_figure`) into a file.

    Args:
        store: the open store.
        runs: uids of instances.
        path: the file; its suffix says the format.
        choice: which phases, bodies and statistics; the default: all phases and bodies, no statistics.

    Returns:
        The path.

    Raises:
        StoreError: what is named does not exist, or no objective or statistic was recorded.
        PalaestraiMosaikError: the format is unknown, or the file cannot be written.
    """
    path = _checked(path)
    return _save(learning_figure(store, runs, choice), path)


def _checked(path: str | Path) -> Path:
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        hint = did_you_mean(path.suffix, FORMATS)
        raise PalaestraiMosaikError(f"cannot draw {path}{hint}: the name must end with {', '.join(FORMATS)}")
    return path


def _save(figure: Figure, path: Path) -> Path:
    import matplotlib as mpl

    with mpl.rc_context(_RC):
        try:
            with files.writing(path) as stream:
                figure.savefig(stream, format=path.suffix[1:].lower(), dpi=200, metadata=_metadata(path))
        except OSError as error:
            raise PalaestraiMosaikError(f"cannot write {path}: {error.strerror}") from error
    return path


def draw_panels(panels: Sequence[Panel], title: str) -> Figure:
    """Return a figure with the panels one below the other, legends beside them. A notebook shows it."""
    import matplotlib as mpl
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    from .figure import NotebookFigure

    with mpl.rc_context(_RC):
        layout = ConstrainedLayoutEngine(h_pad=0.09)
        heights = [_height(panel) for panel in panels]
        size = (_WIDTH, 0.3 + 0.2 * (1 + title.count("\n")) + sum(heights))
        figure = NotebookFigure(figsize=size, layout=layout)
        figure.suptitle(escape_control_characters(title), x=0.01, ha="left", fontsize=10.5)
        rows = figure.subplots(len(panels), squeeze=False, gridspec_kw={"height_ratios": heights})
        for axes, panel in zip(rows[:, 0], panels, strict=True):
            _draw(axes, _escaped_panel(panel))
    return figure


def _escaped_panel(panel: Panel) -> Panel:
    """Return ``panel`` with texts that a picture can hold."""
    # matplotlib shows no label that begins with an underscore
    curves = (
        replace(
            curve,
            label=("\N{THIN SPACE}" if curve.label.startswith("_") else "")
            + escape_control_characters(curve.label),
        )
        for curve in panel.curves
    )
    return replace(
        panel,
        title=escape_control_characters(panel.title),
        x_label=escape_control_characters(panel.x_label),
        y_label=escape_control_characters(panel.y_label),
        curves=tuple(curves),
        marks=tuple((x, escape_control_characters(name)) for x, name in panel.marks),
        note=escape_control_characters(panel.note),
    )


def _height(panel: Panel) -> float:
    """Return the height of a panel in inches: as much as its legend needs."""
    lines = 3 if _are_many(panel) else sum(1 + _label(c).count("\n") for c in panel.curves if not c.faint)
    # drawing may add two more lines of notes
    notes = 2 + len(wrap(panel.note, _NOTE_WIDTH))
    return max(_PANEL, _AROUND + _ENTRY * lines + _NOTE * notes)


def _are_many(panel: Panel) -> bool:
    """Whether percentiles are drawn in place of lines; learning curves are not that many."""
    return len(panel.curves) > MOST_LINES and panel.curves[0].colour is None


def _draw(axes: Axes, panel: Panel) -> None:
    axes.set(xlabel=panel.x_label, ylabel=panel.y_label)
    axes.set_title(panel.title, pad=16 if len(panel.marks) > 1 else 6)
    notes = [panel.note] if panel.note else []
    if _are_many(panel):
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
        number = i if curve.colour is None else curve.colour
        colour = _COLOURS[number % len(_COLOURS)]
        if curve.faint:
            _draw_faint(axes, curve, colour)
            continue
        if curve.points:
            _draw_points(axes, curve, colour)
            continue
        if curve.raw is not None:
            _draw_raw(axes, curve.x, curve.raw, colour)
        shown, span = thinned(curve)
        dense = len(shown.x) > _DENSE
        # dashes tell the colours' second round, too
        style = _DASHES[(number // len(_COLOURS) if dense else number) % len(_DASHES)]
        marker = "o" if len(shown.x) <= _MARKED_POINTS and not shown.steps else None
        axes.plot(
            shown.x,
            shown.y,
            label=_label(curve),
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
            notes = [means_of(curve.x, span) + band]
    return notes


def _draw_raw(axes: Axes, x: np.ndarray[Any, Any], y: np.ndarray[Any, Any], colour: str) -> None:
    """Draw, behind a moving average, what it is the average of."""
    span = span_of(x)
    if span:
        low, high = (means(y, span, fold) for fold in (np.fmin, np.fmax))
        axes.fill_between(x[::span][: len(low)], low, high, color=colour, alpha=0.15, lw=0)
    else:
        axes.plot(x, y, color=colour, alpha=0.3, linewidth=0.6)


def _draw_faint(axes: Axes, curve: Curve, colour: str) -> None:
    """Draw what a single repetition has where there is no mean."""
    if curve.points:
        axes.plot(curve.x, curve.y, color=colour, linestyle="none", marker="D", markersize=2, alpha=0.5)
    else:
        shown, _ = thinned(curve)
        axes.plot(shown.x, shown.y, color=colour, linewidth=0.7, alpha=0.6)


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
    times, span = x, span_of(x)
    if span:
        parts = [means(part, span) for part in (low, quarter, median, three, high)]
        low, quarter, median, three, high = parts
        x = x[::span][: len(median)]
    blue = _COLOURS[0]
    axes.fill_between(x, low, high, color=blue, alpha=0.15, lw=0, label="5 to 95 %")
    axes.fill_between(x, quarter, three, color=blue, alpha=0.3, lw=0, label="25 to 75 %")
    axes.plot(x, median, color=blue, label="median")
    thinner = f"; {means_of(times, span)}" if span else ""
    return f"{len(curves):,} curves: percentiles over them{thinner}"


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
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        first, last = axes.get_xlim()
        if last - first < 1:
            # around a single episode
            axes.set_xlim(first - 0.5, last + 0.5)
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


def _label(curve: Curve) -> str:
    """Return the curve's label as the legend shows it; names of runs need more than one line."""
    return _cut(curve.label) if curve.colour is None else _wrapped(curve.label, _LONGEST_LABEL, 3)


def _wrapped(text: str, width: int, most: int) -> str:
    lines = [_cut(line, width) for line in wrap(text, width, break_long_words=False, break_on_hyphens=False)]
    if len(lines) > most:
        lines[most - 1 :] = [f"{lines[most - 1][: width - 4]} ..."]
    return "\n".join(lines)


def _cut(text: str, width: int = _LONGEST_LABEL) -> str:
    return text if len(text) <= width else f"{text[: width // 2 - 1]}...{text[-(width // 2 - 2) :]}"
