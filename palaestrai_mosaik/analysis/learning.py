"""Learning curves: objectives and statistics over training episodes, evaluations beside them.

Runs of one document that differ in its ``uid`` and ``seed`` only are repetitions: they
become one curve, their mean, with a band from the lowest to the highest. Any other
runs are drawn side by side. Of a single run, workers take the place of the repetitions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from palaestrai_mosaik.errors import StoreError, did_you_mean

from .series import Curve, Panel

if TYPE_CHECKING:
    import pandas as pd

    from palaestrai_mosaik.store import Store

#: how an episode's objective values become one number
Fold = Literal["sum", "mean"]

# The moving average spans a twentieth of the longest phase, at most so many episodes.
_PART, _LONGEST = 20, 100


@dataclass(frozen=True)
class LearningChoice:
    """What to draw: of all phases and agents, or of one; which statistics, by patterns of their keys."""

    phase: int | str | None = None
    agent: str | None = None
    fold: Fold = "sum"
    statistics: Sequence[str] = ()


@dataclass(frozen=True)
class _Group:
    """Runs that repeat each other, by their uids."""

    label: str
    runs: tuple[str, ...]


@dataclass(frozen=True)
class _Span:
    """Where a phase lies on the axis of episodes: behind ``start`` others."""

    start: int
    length: int
    name: str
    mode: str


@dataclass(frozen=True)
class _Axis:
    spans: dict[int, _Span]
    window: int
    #: whether there are several workers
    several: bool

    @property
    def label(self) -> str:
        training = all(span.mode == "train" for span in self.spans.values())
        kind = "training episodes" if training else "episodes"
        kind += " of each worker" if self.several else ""
        kind += ", counted over all phases" if len(self.spans) > 1 else ""
        return kind if training else f"{kind} (grey: test mode)"

    @property
    def marks(self) -> tuple[tuple[float, str], ...]:
        return tuple((span.start + 0.5, span.name) for span in self.spans.values())

    @property
    def shades(self) -> tuple[tuple[float, float], ...]:
        tests = [span for span in self.spans.values() if span.mode != "train"]
        return tuple((span.start + 0.5, span.start + span.length + 0.5) for span in tests)


def learning_panels(store: Store, runs: Sequence[str], choice: LearningChoice) -> list[Panel]:
    """Return one panel for the objective of each agent, and one for each pattern of statistics.

    ``runs`` are uids of instances. Raises :class:`StoreError` for unknown names, and if
    no objective was recorded.
    """
    outcomes = {run: _objectives(store, run, choice) for run in runs}
    axis = _axis(store, runs, outcomes)
    groups = _groups(store, runs)
    agents = list(dict.fromkeys(name for frame in outcomes.values() for name in frame["agent"]))
    if not agents:
        raise StoreError(f"no objective of an agent was recorded in {', '.join(runs)}")
    panels = []
    for agent in agents:
        own = {run: frame[frame["agent"] == agent] for run, frame in outcomes.items()}
        curves = _objective_curves(groups, own, axis)
        title = f"{choice.fold.capitalize()} of {agent}'s objective in each episode"
        panels.append(_panel(title, "objective", curves, axis, _note(axis, groups)))
    return panels + [_statistics_panel(store, groups, axis, choice, key) for key in choice.statistics]


def _objective_curves(
    groups: Sequence[_Group], frames: Mapping[str, pd.DataFrame], axis: _Axis
) -> Iterator[Curve]:
    for colour, group in enumerate(groups):
        own = {run: frames[run] for run in group.runs}
        prefix = f"{group.label}: " if len(groups) > 1 else ""
        trained = {run: frame[~frame["evaluation"]] for run, frame in own.items()}
        tested = {run: frame[frame["evaluation"]] for run, frame in own.items()}
        yield from _smooth_curve(_series(trained, axis), axis, f"{prefix}training", colour)
        yield from _points(_series(tested, axis), f"{prefix}evaluation", colour)


def _series(frames: Mapping[str, pd.DataFrame], axis: _Axis) -> list[pd.Series[float]]:
    """Return the values by place on the axis: of every run, or of every worker of a single one."""
    result = []
    for frame in frames.values():
        place = frame["after"] + frame["phase"].map({n: span.start for n, span in axis.spans.items()})
        placed = frame.assign(place=place)
        parts = [placed] if len(frames) > 1 else [part for _, part in placed.groupby("worker")]
        result += [part.groupby("place")["value"].mean() for part in parts if len(part)]
    return result


def _smooth_curve(
    series: Sequence[pd.Series[float]], axis: _Axis, label: str, colour: int
) -> Iterator[Curve]:
    """Yield the mean of the series, each averaged over the last episodes of its phase."""
    import pandas as pd

    if not series:
        return
    smooth = [
        pd.concat(
            [
                one[(one.index > span.start) & (one.index <= span.start + span.length)]
                .rolling(axis.window, min_periods=1)
                .mean()
                for span in axis.spans.values()
            ]
        )
        for one in series
    ]
    # a point without a value between two phases interrupts the lines there
    gaps = [span.start + 0.5 for span in axis.spans.values()]
    table = pd.concat(smooth, axis=1)
    table = table.reindex(sorted({*table.index, *gaps}))
    raw = series[0].reindex(table.index) if len(series) == 1 and axis.window > 1 else None
    yield _curve(table, label, colour, None if raw is None else raw.to_numpy(float))


def _points(series: Sequence[pd.Series[float]], label: str, colour: int) -> Iterator[Curve]:
    import pandas as pd

    if series:
        table = pd.concat(series, axis=1).sort_index()
        yield replace(_curve(table, label, colour, None), points=True)


def _curve(table: pd.DataFrame, label: str, colour: int, raw: Any) -> Curve:
    several = table.shape[1] > 1
    low, high = (table.min(axis=1).to_numpy(float), table.max(axis=1).to_numpy(float))
    return Curve(
        label,
        table.index.to_numpy(float),
        table.mean(axis=1).to_numpy(float),
        low if several else None,
        high if several else None,
        raw=raw,
        colour=colour,
    )


def _statistics_panel(
    store: Store, groups: Sequence[_Group], axis: _Axis, choice: LearningChoice, pattern: str
) -> Panel:
    """Return the statistics whose keys match ``pattern``, as the mean of each episode."""
    import pandas as pd

    frames: dict[str, pd.DataFrame] = {}
    for run in (run for group in groups for run in group.runs):
        frame = store.statistics(run, agent=choice.agent)
        if choice.phase is not None:
            numbers = store.phases(run).query("phase == @choice.phase or name == @choice.phase")["phase"]
            frame = frame[frame["phase"].isin(numbers)]
        frames[run] = frame.assign(after=frame["episode"] + 1)
    keys = sorted({str(key) for frame in frames.values() for key in frame["key"]})
    chosen = [key for key in keys if fnmatchcase(key, pattern)]
    if not chosen:
        raise StoreError(
            f"no statistic matches {pattern!r}{did_you_mean(pattern, keys)}; "
            f"there are: {', '.join(keys[:20]) or 'none'}"
        )
    everything = pd.concat(frames.values())
    pairs = everything.loc[everything["key"].isin(chosen), ["agent", "key"]].drop_duplicates()
    curves: list[Curve] = []
    for agent, key in pairs.itertuples(index=False):
        name = key if pairs["agent"].nunique() == 1 else f"{agent}: {key}"
        for group in groups:
            own = {run: frames[run] for run in group.runs}
            own = {run: f[(f["agent"] == agent) & (f["key"] == key)] for run, f in own.items()}
            label = f"{group.label}: {name}" if len(groups) > 1 else name
            curves += _smooth_curve(_series(own, axis), axis, label, len(curves))
    title = f"{pattern}, mean of each episode"
    return _panel(title, chosen[0] if len(chosen) == 1 else "value", curves, axis, _note(axis, groups))


def _panel(title: str, y_label: str, curves: Iterable[Curve], axis: _Axis, note: str) -> Panel:
    return Panel(title, axis.label, y_label, tuple(curves), axis.marks, note, axis.shades)


def _note(axis: _Axis, groups: Sequence[_Group]) -> str:
    """Say what the lines and bands are."""
    notes = [f"line: mean of the last {axis.window} episodes"] if axis.window > 1 else []
    runs = max(len(group.runs) for group in groups)
    if runs > 1:
        notes.append(f"mean over {runs} runs; band: lowest to highest")
    elif axis.several:
        notes.append("mean over the workers; band: lowest to highest")
    elif notes:
        notes.append("pale: each episode")
    return "; ".join(notes)


def _objectives(store: Store, run: str, choice: LearningChoice) -> pd.DataFrame:
    """Return ``agent``, ``phase``, ``worker``, ``episode``, ``evaluation``, ``after`` and ``value``.

    ``after`` is the number of training episodes that the worker had run then.
    """
    frame = store.outcomes(run, choice.phase, choice.agent, evaluation=None)
    frame = frame[(frame["kind"] == "objective") & frame[choice.fold].notna()]
    frame = frame.rename(columns={choice.fold: "value"})
    every = _evaluate_every(store, run)
    steps = [
        every.get(phase) if evaluation else 1
        for phase, evaluation in zip(frame["phase"], frame["evaluation"], strict=True)
    ]
    if None in steps:
        raise StoreError(f"the document of the run {run} does not say after how many episodes it evaluates")
    after = (frame["episode"] + 1) * np.array(steps, dtype=int)
    return frame.assign(after=after)[["agent", "phase", "worker", "episode", "evaluation", "after", "value"]]


def _evaluate_every(store: Store, run: str) -> dict[int, int]:
    """Return after how many training episodes each phase evaluates, where it does."""
    found = {}
    for number, entry in enumerate(store.document(run).get("schedule", [])):
        for phase in entry.values():
            every = phase["phase_config"].get("evaluate_every")
            if every:
                found[number] = int(every)
    return found


def _axis(store: Store, runs: Sequence[str], outcomes: Mapping[str, pd.DataFrame]) -> _Axis:
    """Lay the phases of all runs one behind the other; phases of one number share their place."""
    lengths: dict[int, int] = {}
    names: dict[int, tuple[str, str]] = {}
    for run in runs:
        frame = outcomes[run]
        for number, last in frame.groupby("phase")["after"].max().items():
            lengths[int(str(number))] = max(lengths.get(int(str(number)), 0), int(last))
        for number, name, mode in store.phases(run)[["phase", "name", "mode"]].itertuples(index=False):
            names.setdefault(number, (name, mode))
    spans, start = {}, 0
    for number in sorted(lengths):
        spans[number] = _Span(start, lengths[number], *names[number])
        start += lengths[number]
    longest = max(lengths.values(), default=0)
    several = any(frame["worker"].max() > 0 for frame in outcomes.values())
    return _Axis(spans, max(1, min(longest // _PART, _LONGEST)), several)


def learning_title(store: Store, runs: Sequence[str]) -> str:
    """Return what the runs are, and how many of each: ``6 runs: ppo (3), cem (3)``."""
    groups = [(group.label, len(group.runs)) for group in _groups(store, runs)]
    if len(groups) == 1:
        return f"{groups[0][1]} runs of {groups[0][0]}"
    return f"{len(runs)} runs: " + ", ".join(f"{label} ({count})" for label, count in groups)


def _groups(store: Store, runs: Sequence[str]) -> list[_Group]:
    """Return the runs, those that repeat each other together, in the order in which they are named."""
    known = store.runs().set_index("run")["document"]
    found: list[tuple[Any, list[str]]] = []
    for run in runs:
        document = {key: value for key, value in store.document(run).items() if key not in ("uid", "seed")}
        same = next((members for other, members in found if other == document), None)
        if same is None:
            found.append((document, [run]))
        else:
            same.append(run)
    return [_Group(_common([str(known[run]) for run in members]), tuple(members)) for _, members in found]


def _common(names: Sequence[str]) -> str:
    """Return what the names of repetitions share, without a number at the end."""
    if len(set(names)) == 1:
        return names[0]
    letters = takewhile(lambda column: len(set(column)) == 1, zip(*names, strict=False))
    return re.sub(r"[\W_]*(seed|run)?[\W_\d]*$", "", "".join(one for one, *_ in letters)) or names[0]
