"""Learning curves: objectives and statistics over training episodes, with evaluations beside them.

Runs that repeat each other, which differ in ``uid`` and ``seed`` only, become one curve: their mean, with a band from the lowest to the highest.
Other runs are drawn side by side. For a single run, workers replace the repetitions. The statistics of an agent are one series per
run, whatever worker they were recorded with.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from palaestrai_mosaik.core.errors import StoreError, did_you_mean
from palaestrai_mosaik.store import BodyChoice
from palaestrai_mosaik.store.query.runs import short_ids

from .curves import Axis, Span, line_curves, point_curves
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


# Documents that differ in more keys than this are labelled by the ids of their runs.
_MOST_DIFFERENCES = 2
_LONGEST_VALUE = 24

_Path = tuple[str, ...]


@dataclass(frozen=True)
class Group:
    """Repetitions by their uids; ``left_out`` are older executions of one document and seed."""

    label: str
    runs: tuple[str, ...]
    left_out: tuple[str, ...] = ()


def find_groups(store: Store, runs: Sequence[str]) -> list[Group]:
    """Group the runs by repetition, in the order of their first members."""
    repetitions: list[tuple[Any, list[str]]] = []
    for run in runs:
        document = _comparable(store.document(run))
        same = next((members for other, members in repetitions if other == document), None)
        if same is None:
            repetitions.append((document, [run]))
        else:
            same.append(run)
    table = store.runs()
    names: dict[str, str] = dict(zip(table["run"], table["document"], strict=True))
    seeds: dict[str, int] = dict(zip(table["run"], table["seed"], strict=True))
    labels = _labels(repetitions, names)
    groups = []
    for label, (document, members) in zip(labels, repetitions, strict=True):
        # The uid of an instance begins with its date.
        newest = set(members) if _is_asynchronous(document) else _newest(members, seeds)
        left_out = tuple(run for run in members if run not in newest)
        groups.append(Group(label, tuple(run for run in members if run in newest), left_out))
    return groups


def learning_title(groups: Sequence[Group]) -> str:
    """Return a title with the sizes of groups: ``6 runs: ppo (3), cem (3)``."""
    sizes = [(group.label, len(group.runs)) for group in groups]
    if len(sizes) == 1:
        return f"{sizes[0][1]} runs of {sizes[0][0]}"
    return f"{sum(n for _, n in sizes)} runs: " + ", ".join(f"{label} ({n})" for label, n in sizes)


def _newest(runs: Sequence[str], seeds: Mapping[str, int]) -> set[str]:
    return set({seeds[run]: run for run in sorted(runs)}.values())


def _comparable(document: Mapping[str, Any]) -> Any:
    """Return the document without the parts that differ between repetitions.

    A document that loads its own brains by its uid is equivalent to one that names no run.
    """
    uid = document.get("uid")

    def without(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                key: without(item)
                for key, item in value.items()
                if key != "experiment_run" or item not in (None, uid)
            }
        return [without(item) for item in value] if isinstance(value, list) else value

    return without({key: value for key, value in document.items() if key not in ("uid", "seed")})


def _is_asynchronous(document: Mapping[str, Any]) -> bool:
    phases = [phase for entry in document.get("schedule", []) for phase in entry.values()]
    return any(phase["phase_config"].get("asynchronous") for phase in phases)


def _labels(groups: Sequence[tuple[Any, Sequence[str]]], names: Mapping[str, str]) -> list[str]:
    """Return a label for each group: the common name of its documents, with the differences to groups of that name.

    ``names`` are those of the documents of all runs in the store.
    """
    labels = [_common([names[run] for run in members]) for _, members in groups]
    for label in {label for label in labels if labels.count(label) > 1}:
        indices = [i for i, other in enumerate(labels) if other == label]
        endings = _differences([groups[i][0] for i in indices])
        if len(set(endings)) < len(indices):
            short = short_ids(list(names))
            endings = [short[groups[i][1][0]] for i in indices]
        for i, ending in zip(indices, endings, strict=True):
            labels[i] = f"{label} [{ending}]"
    return labels


def _common(names: Sequence[str]) -> str:
    """Return the common prefix of the names of repetitions, without a number at the end."""
    if len(set(names)) == 1:
        return names[0]
    letters = takewhile(lambda column: len(set(column)) == 1, zip(*names, strict=False))
    return re.sub(r"[\W_]*(seed|run)?[\W_\d]*$", "", "".join(letter for letter, *_ in letters)) or names[0]


def _differences(documents: Sequence[Any]) -> list[str]:
    """Return the differences as ``key=value`` for each document; nothing if there are too many."""
    flats = [{path: str(value) for path, value in leaves(document) if value != {}} for document in documents]
    differing: dict[tuple[_Path, tuple[str, ...]], None] = {}
    for path in dict.fromkeys(path for flat in flats for path in flat):
        values = tuple(flat.get(path, "none") for flat in flats)
        if len(set(values)) > 1:
            # Later phases inherit a difference, which is shown once.
            differing[path[3:] if path[0] == "schedule" else path, values] = None
    if len(differing) > _MOST_DIFFERENCES:
        return []
    names = _short_names([path for path, _ in differing])
    texts = [
        [f"{name}={_end(value)}" for value in values]
        for name, (_, values) in zip(names, differing, strict=True)
    ]
    return [", ".join(parts) for parts in zip(*texts, strict=True)]


def leaves(value: Any, path: _Path = ()) -> Iterator[tuple[_Path, Any]]:
    """Yield the path and value of each leaf of a document.

    An empty mapping is a leaf, and so is a list without mappings and lists.
    """
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from leaves(item, (*path, str(key)))
    elif isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        for i, item in enumerate(value):
            yield from leaves(item, (*path, str(i)))
    else:
        yield path, value


def _short_names(paths: Sequence[_Path]) -> list[str]:
    """Return the last two parts of each key, or full keys if the short ones are ambiguous."""
    full = [tuple(part for part in path if part != "params") or path for path in paths]
    short = [".".join(path[-2:]) for path in full]
    return short if len(set(short)) == len(short) else [".".join(path) for path in full]


def _end(value: str) -> str:
    # The end of a class's name is more distinctive than its beginning.
    return value if len(value) <= _LONGEST_VALUE else f"...{value[-_LONGEST_VALUE:]}"


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
