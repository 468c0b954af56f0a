"""Learning curves: objectives and statistics over training episodes, with evaluations beside them.

Runs that repeat each other become one curve, their mean, with a band from the lowest to the highest; other runs are
drawn side by side. For a single run, workers replace the repetitions. The statistics of an agent are one series per
run, whatever worker they were recorded with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal

import numpy as np

from palaestrai_mosaik.core.errors import StoreError, did_you_mean
from palaestrai_mosaik.store import BodyChoice

from .curves import Axis, Span, line_curves, point_curves
from .groups import Group, find_groups
from .series import (
    Curve,
    Panel,
    body_outcomes,
    has_many_bodies,
    own_episodes,
    phases_that_restart,
    split_by_scale,
)

if TYPE_CHECKING:
    import pandas as pd

    from palaestrai_mosaik.store import Store

#: reductions of an episode's objective values to one number
Fold = Literal["sum", "mean"]
#: upper limit on lines that can be distinguished
MOST_LINES = 12

# The moving average spans a twentieth of the longest phase, up to this number of episodes.
_PART, _LONGEST = 20, 100


@dataclass(frozen=True)
class LearningChoice:
    """A selection of the data to draw.

    Args:
        phase: number or name of a phase; ``None``: all.
        bodies: bodies and agents; the default: all.
        fold: how to reduce an episode's objective values to one number, ``"sum"`` or ``"mean"``.
        statistics: patterns (``*``, ``?``) of the keys of statistics to draw.
    """

    phase: int | str | None = None
    bodies: BodyChoice = field(default_factory=BodyChoice)
    fold: Fold = "mean"
    statistics: Sequence[str] = ()


@dataclass(frozen=True)
class _Recorded:
    """The records of each run, as frames; their column ``after`` counts the episodes before."""

    groups: Sequence[Group]
    axis: Axis
    objectives: Mapping[str, pd.DataFrame]
    statistics: Mapping[str, pd.DataFrame]


def learning_panels(store: Store, runs: Sequence[str], choice: LearningChoice) -> list[Panel]:
    """Return one panel for the objective of each agent, and one for each pattern of statistics.

    Args:
        store: the open store.
        runs: uids of instances.
        choice: the data to draw.

    Raises:
        StoreError: a name is unknown, there are too many lines, or neither an objective nor a statistic was recorded.
    """
    groups = find_groups(store, runs)
    if len(groups) > MOST_LINES:
        raise StoreError(
            f"{len(groups)} different runs are more lines than can be told apart (at most {MOST_LINES}): "
            f"{', '.join(group.label for group in groups)}"
        )
    drawn = [run for group in groups for run in group.runs]
    objectives = {run: _objectives(store, run, choice) for run in drawn}
    statistics = {run: _statistics(store, run, choice) for run in drawn} if choice.statistics else {}
    axis = _axis(
        store, {run: [recorded[run] for recorded in (objectives, statistics) if recorded] for run in drawn}
    )
    recorded = _Recorded(groups, axis, objectives, statistics)
    agents = list(dict.fromkeys(name for frame in objectives.values() for name in frame["agent"]))
    if not agents and not choice.statistics:
        raise StoreError(f"no objective of an agent was recorded in {', '.join(runs)}")
    panels = [_objective_panel(recorded, agent, choice.fold) for agent in agents]
    return panels + [
        panel for pattern in choice.statistics for panel in _statistics_panels(recorded, pattern)
    ]


def _objective_panel(recorded: _Recorded, agent: str, fold: Fold) -> Panel:
    curves: list[Curve] = []
    for colour, group in enumerate(recorded.groups):
        frames = {run: recorded.objectives[run] for run in group.runs}
        frames = {run: frame[frame["agent"] == agent] for run, frame in frames.items()}
        prefix = f"{group.label}: " if len(recorded.groups) > 1 else ""
        trained = {run: frame[~frame["evaluation"]] for run, frame in frames.items()}
        tested = {run: frame[frame["evaluation"]] for run, frame in frames.items()}
        curves += line_curves(
            _series(trained, recorded.axis), recorded.axis, f"{prefix}{recorded.axis.modes}", colour
        )
        curves += point_curves(_series(tested, recorded.axis), f"{prefix}evaluation", colour)
    parallel = any(
        len(group.runs) == 1 and group.runs[0] in recorded.axis.parallel for group in recorded.groups
    )
    note = _note(recorded, curves, "the workers" if parallel else "")
    whole = ["phase", "worker", "evaluation", "after"]
    if any(frame[frame["agent"] == agent].duplicated(whole).any() for frame in recorded.objectives.values()):
        note = "; ".join(part for part in (note, "mean over the bodies") if part)
    title = f"{fold.capitalize()} of {agent}'s objective in each episode"
    return _panel(title, f"{fold} of the objective", curves, recorded, note)


def _statistics_panels(recorded: _Recorded, pattern: str) -> list[Panel]:
    """Return panels of the statistics whose keys match ``pattern``, as the mean of each episode.

    For a single group of runs there are several panels if some curves would look flat beside others.
    """
    import pandas as pd

    everything = pd.concat(recorded.statistics.values())
    keys = sorted(map(str, everything["key"].unique()))
    chosen = [key for key in keys if fnmatchcase(key, pattern)]
    if not chosen:
        raise StoreError(
            f"no statistic matches {pattern!r}{did_you_mean(pattern, keys)}; "
            f"there are: {', '.join(keys[:20]) or 'none'}"
        )
    pairs = everything.loc[everything["key"].isin(chosen), ["agent", "key"]].drop_duplicates()
    lines = len(pairs) * len(recorded.groups)
    if lines > MOST_LINES:
        kinds = f" in {len(recorded.groups)} different runs" if len(recorded.groups) > 1 else ""
        raise StoreError(
            f"{pattern!r} means {lines} lines{kinds}, more than can be told apart (at most {MOST_LINES}): "
            f"{', '.join(chosen)}"
        )
    curves: list[Curve] = []
    colour = 0
    for agent, key in pairs.itertuples(index=False):
        name = key if pairs["agent"].nunique() == 1 else f"{agent}: {key}"
        for group in recorded.groups:
            frames = {run: recorded.statistics[run] for run in group.runs}
            chosen_rows = {run: f[(f["agent"] == agent) & (f["key"] == key)] for run, f in frames.items()}
            label = f"{group.label}: {name}" if len(recorded.groups) > 1 else name
            curves += line_curves(
                _series(chosen_rows, recorded.axis, split=False), recorded.axis, label, colour
            )
            colour += 1
    title = f"{pattern}, mean of each episode"
    y_label = f"mean of {chosen[0] if len(chosen) == 1 else 'the values'}"
    panel = _panel(title, y_label, curves, recorded, _note(recorded, curves, ""))
    return split_by_scale(panel) if len(recorded.groups) == 1 else [panel]


def _series(frames: Mapping[str, pd.DataFrame], axis: Axis, *, split: bool = True) -> list[pd.Series[float]]:
    """Return the values by position on the axis, of every run or (``split``) of every worker of a single run."""
    result = []
    for frame in frames.values():
        # After the last of these episodes, or before the first one if none had ended.
        within = np.maximum(frame["after"] - 1.0, -0.5)
        position = within + frame["phase"].map({n: span.start for n, span in axis.spans.items()})
        placed = frame.assign(place=position)
        parts = [part for _, part in placed.groupby("worker")] if split and len(frames) == 1 else [placed]
        result += [part.groupby("place")["value"].mean() for part in parts if len(part)]
    return result


def _panel(title: str, y_label: str, curves: Sequence[Curve], recorded: _Recorded, note: str) -> Panel:
    axis = recorded.axis
    return Panel(title, axis.label, y_label, tuple(curves), axis.marks, note, axis.shades)


def _note(recorded: _Recorded, curves: Sequence[Curve], of_single_runs: str) -> str:
    """Describe the lines and bands."""
    window = recorded.axis.window
    notes = [f"line: mean of the last {window} episodes"] if window > 1 else []
    sizes = sorted({len(group.runs) for group in recorded.groups} - {1})
    means = []
    if sizes:
        means.append(f"{sizes[0]} runs" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]} runs")
    if of_single_runs:
        means.append(f"{of_single_runs} of a single run" if sizes else of_single_runs)
    if means:
        notes.append(f"mean over {' or '.join(means)}; band: lowest to highest")
    if any(curve.raw is not None for curve in curves):
        notes.append("pale: each episode")
    if any(curve.faint for curve in curves):
        notes.append(f"faint: single {'runs' if sizes else 'workers'}, where not all have values")
    if any(group.left_out for group in recorded.groups):
        notes.append("of runs with one seed the newest")
    return "; ".join(notes)


def _objectives(store: Store, run: str, choice: LearningChoice) -> pd.DataFrame:
    """Return ``agent``, ``phase``, ``worker``, ``episode``, ``evaluation``, ``after`` and ``value``.

    ``after`` is the number of training episodes that the worker had finished. If environments
    restart on their own, episodes are those of the bodies' environments. An agent with several
    bodies has a row for each of them.
    """
    import pandas as pd

    bodies, every = choice.bodies, store.evaluate_every(run)
    frame = store.outcomes(run, choice.phase, bodies.agent, evaluation=None)
    by_body = has_many_bodies(store, run, choice.phase, bodies)
    if by_body:
        of_bodies = body_outcomes(store, run, choice.phase, bodies, evaluation=None)
        frame = pd.concat([frame[~frame["agent"].isin(by_body)], of_bodies[of_bodies["agent"].isin(by_body)]])
    frame = frame[frame["kind"] == "objective"]
    again = phases_that_restart(store, run) & set(frame["phase"])
    frame = frame[~frame["phase"].isin(again)]
    steps = [
        every.get(phase) if evaluation else 1
        for phase, evaluation in zip(frame["phase"], frame["evaluation"], strict=True)
    ]
    if None in steps:
        raise StoreError(f"the document of the run {run} does not say after how many episodes it evaluates")
    frame = frame.assign(after=(frame["episode"] + 1) * np.array(steps, dtype=int))
    restarting = [own_episodes(store, run, number, bodies, every.get(number)) for number in sorted(again)]
    columns = ["agent", "phase", "worker", "episode", "evaluation", "after", choice.fold]
    frame = pd.concat([part[columns] for part in (frame, *restarting) if len(part)] or [frame[columns]])
    return frame[frame[choice.fold].notna()].rename(columns={choice.fold: "value"}).reset_index(drop=True)


def _statistics(store: Store, run: str, choice: LearningChoice) -> pd.DataFrame:
    """Return ``agent``, ``phase``, ``worker``, ``key``, ``after`` and ``value``, in recorded order.

    Workers may be at different episodes when the brain learns from their rows. As all share one
    brain, ``after`` never decreases: it is the highest number of episodes so far.
    """
    frame = store.statistics(run, agent=choice.bodies.agent)
    if choice.phase is not None:
        numbers = store.phases(run).query("phase == @choice.phase or name == @choice.phase")["phase"]
        frame = frame[frame["phase"].isin(numbers)]
    after = (frame["episode"].astype(int) + 1).groupby(frame["phase"].astype(int)).cummax()
    return frame.assign(after=after)[["agent", "phase", "worker", "key", "after", "value"]]


def _axis(store: Store, frames: Mapping[str, Sequence[pd.DataFrame]]) -> Axis:
    """Arrange the phases of all runs one after the other; phases with the same number share their position."""
    restarting = any(phases_that_restart(store, run) for run in frames)
    lengths: dict[int, int] = {}
    names: dict[int, tuple[str, str]] = {}
    parallel = set()
    for run, recorded in frames.items():
        for frame in recorded:
            for number, last in frame.groupby("phase")["after"].max().items():
                lengths[int(str(number))] = max(lengths.get(int(str(number)), 0), int(last))
            if frame["worker"].max() > 0:
                parallel.add(run)
        for number, name, mode in store.phases(run)[["phase", "name", "mode"]].itertuples(index=False):
            names.setdefault(number, (name, mode))
    spans, start = {}, 0
    for number in sorted(lengths):
        spans[number] = Span(start, lengths[number], *names[number])
        start += lengths[number]
    longest = max(lengths.values(), default=0)
    return Axis(spans, max(1, min(longest // _PART, _LONGEST)), frozenset(parallel), restarting)
