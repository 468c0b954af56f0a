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
from itertools import product, takewhile
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestrai_mosaik.core.errors import StoreError, did_you_mean
from palaestrai_mosaik.store import BodyChoice
from palaestrai_mosaik.store.query.lookup import Fold
from palaestrai_mosaik.store.query.runs import short_ids

from .colours import numbers_of
from .curves import Axis, Span, line_curves, point_curves
from .series import (
    Curve,
    Panel,
    member_outcomes,
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
        for other, members in repetitions:
            if other == document:
                members.append(run)
                break
        else:
            repetitions.append((document, [run]))
    table = store.runs().set_index("run")
    labels = _labels(repetitions, table["document"])
    return [
        _group(label, document, members, table["seed"])
        for label, (document, members) in zip(labels, repetitions, strict=True)
    ]


def _group(label: str, document: Mapping[str, Any], runs: Sequence[str], seeds: pd.Series[int]) -> Group:
    """Build a group of the repetitions of a document: of runs with one seed, the newest."""
    phases = [phase for entry in document.get("schedule", []) for phase in entry.values()]
    if any(phase["phase_config"].get("asynchronous") for phase in phases):
        # Such runs differ although they have one seed.
        return Group(label, tuple(runs))
    # The uid of an instance begins with its date.
    newest = {seeds[run]: run for run in sorted(runs)}.values()
    chosen = tuple(run for run in runs if run in newest)
    return Group(label, chosen, tuple(run for run in runs if run not in newest))


def _in_order(store: Store, groups: Sequence[Group]) -> list[Group]:
    """Sort groups by the first run in the store of each, so that their colours do not depend on the order of ``runs``."""
    positions = {run: i for i, run in enumerate(store.runs()["run"])}
    return sorted(groups, key=lambda group: min(positions[run] for run in group.runs))


def learning_title(groups: Sequence[Group]) -> str:
    """Return a title with the sizes of groups: ``6 runs: ppo (3), cem (3)``."""
    sizes = [(group.label, len(group.runs)) for group in groups]
    if len(sizes) == 1:
        return f"{sizes[0][1]} runs of {sizes[0][0]}"
    return f"{sum(n for _, n in sizes)} runs: " + ", ".join(f"{label} ({n})" for label, n in sizes)


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


def _labels(groups: Sequence[tuple[Any, Sequence[str]]], names: pd.Series[str]) -> list[str]:
    """Return a label for each group: the common name of its documents, with the differences to groups of that name.

    ``names`` are those of the documents of all runs in the store.
    """
    labels = [_common([names[run] for run in members]) for _, members in groups]
    for label in {label for label in labels if labels.count(label) > 1}:
        indices = [i for i, other in enumerate(labels) if other == label]
        endings = _differences([groups[i][0] for i in indices])
        if len(set(endings)) < len(indices):
            short = short_ids(list(names.index))
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
        fold: how to reduce an episode's objective values to one number, ``"sum"`` or ``"mean"``; ``None``: the sum if
            the rewards of all environments accumulate (:meth:`Store.fold`), else the mean.
        statistics: patterns (``*``, ``?``) of the keys of statistics to draw.
    """

    phase: int | str | None = None
    bodies: BodyChoice = field(default_factory=BodyChoice)
    fold: Fold | None = None
    statistics: Sequence[str] = ()


@dataclass(frozen=True)
class _Recorded:
    """The records of each run, as frames; their column ``after`` counts the episodes before."""

    groups: Sequence[Group]
    axis: Axis
    objectives: Mapping[str, pd.DataFrame]
    statistics: Mapping[str, pd.DataFrame]
    #: numbers of the colours of agents
    agents: Mapping[str, int]

    def colour(self, group: int, agent: str) -> int:
        """Return the number of a curve's colour: the agent's for a single group, else the group's."""
        return group if len(self.groups) > 1 else self.agents[agent]

    def label(self, group: Group, name: str) -> str:
        return f"{group.label}: {name}" if len(self.groups) > 1 else name


def learning_panels(store: Store, runs: Sequence[str], choice: LearningChoice) -> list[Panel]:
    """Return one panel for the objective of each agent, and one for each pattern of statistics.

    Args:
        store: the open store.
        runs: uids of instances.
        choice: the data to draw.

    Raises:
        StoreError: a name is unknown, there are too many lines, or neither an objective nor a statistic was recorded.
    """
    groups = _in_order(store, find_groups(store, runs))
    if len(groups) > MOST_LINES:
        raise StoreError(
            f"{len(groups)} different runs are more lines than can be told apart (at most {MOST_LINES}): "
            f"{', '.join(group.label for group in groups)}"
        )
    drawn = [run for group in groups for run in group.runs]
    fold = choice.fold or store.fold(*drawn)
    objectives = {run: _objectives(store, run, choice, fold) for run in drawn}
    statistics = {run: _statistics(store, run, choice) for run in drawn} if choice.statistics else {}
    colours = numbers_of(name for run in drawn for name in store.agent_names(run))
    recorded = _Recorded(groups, _axis(store, objectives, statistics), objectives, statistics, colours)
    agents = dict.fromkeys(name for frame in objectives.values() for name in frame["agent"])
    if not agents and not choice.statistics:
        raise StoreError(
            f"no objective of an agent was recorded in {', '.join(runs)}, in an episode that finished"
        )
    panels = [_objective_panel(recorded, agent, fold) for agent in agents]
    for pattern in choice.statistics:
        panels += _statistics_panels(recorded, pattern)
    return panels


def _objective_panel(recorded: _Recorded, agent: str, fold: Fold) -> Panel:
    groups, axis = recorded.groups, recorded.axis
    curves: list[Curve] = []
    for number, group in enumerate(groups):
        colour = recorded.colour(number, agent)
        trained, tested = (
            _series(_rows(recorded.objectives, group, agent=agent, evaluation=flag), axis)
            for flag in (False, True)
        )
        curves += line_curves(trained, axis, recorded.label(group, axis.modes), colour)
        curves += point_curves(tested, recorded.label(group, "evaluation"), colour)
    episode = ["agent", "phase", "worker", "evaluation", "after"]
    note = _note(
        recorded,
        curves,
        workers=any(len(group.runs) == 1 and group.runs[0] in axis.parallel for group in groups),
        bodies=any(
            frame[frame["agent"] == agent].duplicated(episode).any() for frame in recorded.objectives.values()
        ),
    )
    title = f"{fold.capitalize()} of {agent}'s objective in each episode"
    return _panel(title, f"{fold} of the objective", curves, axis, note)


def _statistics_panels(recorded: _Recorded, pattern: str) -> list[Panel]:
    """Return panels of the statistics whose keys match ``pattern``, as the mean of each episode.

    For a single group of runs there are several panels if some curves would look flat beside others.
    """
    groups, axis = recorded.groups, recorded.axis
    statistics = _matching_statistics(recorded, pattern)
    agents, keys = ({names[i] for names in statistics} for i in (0, 1))
    curves: list[Curve] = []
    for number, ((agent, key), group) in enumerate(product(statistics, groups)):
        # A curve of each group, or of each agent, has the colour of its group or agent in other panels.
        alone = len(statistics) == 1 or (len(groups) == 1 and len(keys) == 1)
        colour = recorded.colour(groups.index(group), agent) if alone else number
        series = _series(_rows(recorded.statistics, group, agent=agent, key=key), axis, split=False)
        label = recorded.label(group, key if len(agents) == 1 else f"{agent}: {key}")
        curves += line_curves(series, axis, label, colour)
    y_label = f"mean of {keys.pop() if len(keys) == 1 else 'the values'}"
    panel = _panel(f"{pattern}, mean of each episode", y_label, curves, axis, _note(recorded, curves))
    return split_by_scale(panel) if len(groups) == 1 else [panel]


def _matching_statistics(recorded: _Recorded, pattern: str) -> list[tuple[str, str]]:
    """Return agent and key of each statistic that matches ``pattern``. Raises :class:`StoreError`."""
    import pandas as pd

    pairs = pd.concat(recorded.statistics.values())[["agent", "key"]].drop_duplicates()
    keys = sorted(map(str, pairs["key"].unique()))
    chosen = [key for key in keys if fnmatchcase(key, pattern)]
    if not chosen:
        raise StoreError(
            f"no statistic matches {pattern!r}{did_you_mean(pattern, keys)}; "
            f"there are: {', '.join(keys[:20]) or 'none'}"
        )
    pairs = pairs[pairs["key"].isin(chosen)]
    lines = len(pairs) * len(recorded.groups)
    if lines > MOST_LINES:
        kinds = f" in {len(recorded.groups)} different runs" if len(recorded.groups) > 1 else ""
        raise StoreError(
            f"{pattern!r} means {lines} lines{kinds}, more than can be told apart (at most {MOST_LINES}): "
            f"{', '.join(chosen)}"
        )
    return list(pairs.itertuples(index=False, name=None))


def _rows(frames: Mapping[str, pd.DataFrame], group: Group, **values: Any) -> list[pd.DataFrame]:
    """Return the rows of each run of ``group`` with these ``values`` in the columns of these names."""
    chosen = [frames[run] for run in group.runs]
    for column, value in values.items():
        chosen = [frame[frame[column] == value] for frame in chosen]
    return chosen


def _series(frames: Sequence[pd.DataFrame], axis: Axis, *, split: bool = True) -> list[pd.Series[float]]:
    """Return the values by position on the axis, of every run or (``split``) of every worker of a single run."""
    result = []
    starts = {number: span.start for number, span in axis.spans.items()}
    for frame in frames:
        # After the last of these episodes, or before the first one if none had ended.
        within = np.maximum(frame["after"] - 1.0, -0.5)
        placed = frame.assign(position=within + frame["phase"].map(starts))
        parts = [part for _, part in placed.groupby("worker")] if split and len(frames) == 1 else [placed]
        result += [part.groupby("position")["value"].mean() for part in parts if len(part)]
    return result


def _panel(title: str, y_label: str, curves: Sequence[Curve], axis: Axis, note: str) -> Panel:
    return Panel(title, axis.label, y_label, tuple(curves), axis.marks, note, axis.shades)


def _note(
    recorded: _Recorded, curves: Sequence[Curve], *, workers: bool = False, bodies: bool = False
) -> str:
    """Describe the lines and bands; ``workers``, ``bodies``: some lines are means over these."""
    window = recorded.axis.window
    sizes = sorted({len(group.runs) for group in recorded.groups} - {1})
    over = []
    if sizes:
        over.append(f"{sizes[0]} runs" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]} runs")
    if workers:
        over.append("the workers of a single run" if sizes else "the workers")
    single = "runs" if sizes else "workers"
    notes = {
        f"line: mean of the last {window} episodes": window > 1,
        f"mean over {' or '.join(over)}; band: lowest to highest": over,
        "pale: each episode": any(curve.raw is not None for curve in curves),
        f"faint: single {single}, where not all have values": any(curve.faint for curve in curves),
        "of runs with one seed the newest": any(group.left_out for group in recorded.groups),
        "mean over the bodies": bodies,
    }
    return "; ".join(note for note, applies in notes.items() if applies)


def _objectives(store: Store, run: str, choice: LearningChoice, fold: Fold) -> pd.DataFrame:
    """Return ``agent``, ``phase``, ``worker``, ``episode``, ``evaluation``, ``after`` and ``value``.

    ``after`` is the number of training episodes that the worker had finished. If environments
    restart on their own, episodes are those of the bodies' environments. An agent with several
    bodies has a row for each of them.
    """
    import pandas as pd

    bodies, every = choice.bodies, store.evaluate_every(run)
    frame = member_outcomes(store, run, choice.phase, bodies, evaluation=None)
    frame = frame[frame["kind"] == "objective"]
    again = phases_that_restart(store, run) & set(frame["phase"])
    frame = frame[~frame["phase"].isin(again)]
    steps = frame["phase"].map(every).where(frame["evaluation"].astype(bool), 1)
    if steps.isna().any():
        raise StoreError(f"the document of the run {run} does not say after how many episodes it evaluates")
    frame = frame.assign(after=(frame["episode"] + 1) * steps.astype(int))
    restarting = [own_episodes(store, run, number, bodies, every.get(number)) for number in sorted(again)]
    columns = ["agent", "phase", "worker", "episode", "evaluation", "after", fold]
    frame = pd.concat([part[columns] for part in (frame, *restarting) if len(part)] or [frame[columns]])
    return frame[frame[fold].notna()].rename(columns={fold: "value"}).reset_index(drop=True)


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


def _axis(store: Store, *recorded: Mapping[str, pd.DataFrame]) -> Axis:
    """Arrange the phases of all runs one after the other; phases with the same number share their position.

    ``recorded`` are frames by run.
    """
    lengths: dict[int, int] = {}
    names: dict[int, tuple[str, str]] = {}
    parallel = set()
    for run, frame in (item for frames in recorded for item in frames.items()):
        for number, last in frame.groupby("phase")["after"].max().items():
            lengths[int(str(number))] = max(lengths.get(int(str(number)), 0), int(last))
        if frame["worker"].max() > 0:
            parallel.add(run)
    for run in recorded[0]:
        for number, name, mode in store.phases(run)[["phase", "name", "mode"]].itertuples(index=False):
            names.setdefault(number, (name, mode))
    spans, start = {}, 0
    for number in sorted(lengths):
        spans[number] = Span(start, lengths[number], *names[number])
        start += lengths[number]
    longest = max(lengths.values(), default=0)
    restarting = any(phases_that_restart(store, run) for run in recorded[0])
    return Axis(spans, max(1, min(longest // _PART, _LONGEST)), frozenset(parallel), restarting)
