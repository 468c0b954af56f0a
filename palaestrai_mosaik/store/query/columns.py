"""Values of many runs to put beside each other: parameters that differ between their documents, and metrics.

A column is named by its text:

- a parameter by its path in the document, with the names of phases, agents and environments:
  ``agents.defender.muscle.params.gain``, as ``--set`` takes it, if no phase of a document has another value, else
  ``schedule.train.agents.defender.muscle.params.gain``;
- a metric by ``SOURCE:FOLD``, such as ``objective.defender:best``. A source is ``objective.AGENT``,
  ``reward.AGENT.NAME`` or ``statistic.AGENT.NAME``. The folds are ``best`` (of objectives: the maximum), ``last``,
  ``mean``, ``min`` and ``max`` of its episodes in the last phase that the run began. The value of an episode is the mean
  of its steps; ``SOURCE:sum:FOLD`` takes their sum, of an agent with several bodies that of a body in the mean.

Evaluations do not count, nor do objectives and rewards of episodes that were cut short. Values of runs that have ended
are kept in memory, because they do not change before such a run is resumed.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import and_, func, select
from sqlalchemy.orm import Session

from palaestrai_mosaik.core.errors import StoreError, did_you_mean
from palaestrai_mosaik.core.printing import listed

from ..database import Database, reads
from ..models import CUT_SHORT, Agent, Body, Episode, Instance, Outcome, Phase, RunDocument, Stream
from ..parts import parts_so_far, read_parts
from .lookup import Lookup, in_chunks, inside, restricted

if TYPE_CHECKING:
    import pandas as pd

#: the number of the newest runs with statistics from which the names of statistics are taken
_SAMPLE = 20
#: folds by source, the default first, and folds of the steps of an episode
FOLDS = {
    "objective": ("last", "best", "mean", "min"),
    "reward": ("last", "mean", "min", "max"),
    "statistic": ("last", "mean", "min", "max"),
}
STEPS = ("mean", "sum")
#: maximum number of names in a message
_MOST_NAMES = 20

#: the values of an episode's folds, by fold
_Folds = dict[str, float]


class Parameter(NamedTuple):
    """A path at which documents of the store differ.

    Attributes:
        name: the name of the column.
        paths: the paths in the documents, by phase.
        runs: the number of runs whose documents have it.
        values: the number of different values.
    """

    name: str
    paths: tuple[str, ...]
    runs: int
    values: int


class Metric(NamedTuple):
    """An objective, reward or statistic of an agent; ``name`` is empty for an objective."""

    kind: str
    agent: str
    name: str

    @property
    def source(self) -> str:
        """The first part of the column's name."""
        return ".".join(filter(None, self))

    @property
    def folds(self) -> tuple[str, ...]:
        """The folds that the metric has, the default first."""
        return FOLDS[self.kind]


class Columns(NamedTuple):
    """The columns that runs of a store can have."""

    parameters: tuple[Parameter, ...]
    metrics: tuple[Metric, ...]


class _Document(NamedTuple):
    """A document's values by path: those of the first document with the same paths, and what differs from it."""

    base: Mapping[str, Any]
    other: Mapping[str, Any]

    def get(self, path: str) -> Any:
        """Return the value at a path; :data:`_MISSING` if the document does not have it."""
        return self.other[path] if path in self.other else self.base.get(path, _MISSING)


_MISSING = object()


class _RunPhase(NamedTuple):
    """The last phase that a run began; ``ended`` is the time of the run's end, after which no value changes."""

    run: int
    uid: str
    phase: int
    ended: datetime | None


#: the values of a phase by metric and fold of steps
_Values = dict[tuple[Metric, str], _Folds]


class _Chosen(NamedTuple):
    """A column of metrics: its source, and the folds of steps and of episodes."""

    metric: Metric
    steps: str
    fold: str


class ColumnQueries(Lookup):
    """Queries of parameters and metrics of many runs."""

    def __init__(self, database: Database, directory: Path):
        super().__init__(database, directory)
        #: documents by hash, and those with all their values, by their paths
        self._documents: dict[str, _Document] = {}
        self._bases: dict[tuple[str, ...], dict[str, Any]] = {}
        #: the last answer about parameters, with the documents that it is about
        self._parameters: tuple[frozenset[str], tuple[Parameter, ...]] = frozenset(), ()
        #: by phase of ended runs
        self._outcomes: dict[_RunPhase, _Values] = {}
        self._statistics: dict[_RunPhase, _Values] = {}

    @reads
    def columns(self) -> Columns:
        """Return the columns that the runs can have: parameters that differ, and metrics.

        The names of statistics are those of the newest 20 runs that have any.
        """
        with self.database.reading() as session:
            hashes = frozenset(self._run_documents(session, None).values())
            if hashes != self._parameters[0]:
                parameters = _parameters([self._documents[hashed] for hashed in sorted(hashes)])
                self._parameters = hashes, tuple(parameters)
            metrics = [*_outcome_metrics(session), *self._statistic_metrics(session)]
        return Columns(self._parameters[1], tuple(dict.fromkeys(metrics)))

    def run_values(
        self,
        columns: Sequence[str],
        ids: Collection[int] | None = None,
        *,
        seconds: float = math.inf,
    ) -> pd.DataFrame:
        """Return the values of runs in some columns, one row per run, oldest first.

        The index has the ids of the runs (:meth:`run_rows`). A value is missing (``None`` or NaN) if a document does not
        have the parameter, or a run no finished episode with the metric. The attribute ``pending`` of the frame's
        ``attrs`` lists the ids of runs whose statistics have not been read within ``seconds``; another call continues.

        Args:
            columns: names of columns, as in the description of this module.
            ids: ids of runs; ``None``: all.
            seconds: the time for reading statistics from files.

        Raises:
            StoreError: there is no such column, or a part file is damaged.
        """
        import pandas as pd

        available = self.columns()
        parameters = {parameter.name: parameter for parameter in available.parameters}
        metrics = {
            name: _chosen(name, available) for name in dict.fromkeys(columns) if name not in parameters
        }
        documents, values, pending = self._read(metrics, ids, time.monotonic() + seconds)
        frame = pd.DataFrame(index=pd.Index(list(documents), dtype="int64"))
        for name in dict.fromkeys(columns):
            if name in metrics:
                steps = [values.get(number, {}) for number in documents]
                key, fold = metrics[name][:2], metrics[name].fold
                numbers = [each.get(key, {}).get(fold, math.nan) for each in steps]
                frame[name] = pd.Series(numbers, frame.index, dtype=float)
            else:
                read = [_value(self._documents[hashed], parameters[name]) for hashed in documents.values()]
                shown = [None if value is _MISSING else value for value in read]
                frame[name] = pd.Series(shown, frame.index, dtype=object)
        frame.attrs["pending"] = pending
        return frame

    @reads
    def _read(
        self, metrics: Mapping[str, _Chosen], ids: Collection[int] | None, deadline: float
    ) -> tuple[dict[int, str], dict[int, _Values], list[int]]:
        """Read the documents' hashes and the metrics of runs, both by run; list the runs that are not read yet."""
        kinds = {chosen.metric.kind for chosen in metrics.values()}
        values: dict[int, _Values] = {}
        pending: list[int] = []
        with self.database.reading() as session:
            documents = self._run_documents(session, ids)
            phases = _last_phases(session, ids) if kinds else []
            if kinds - {"statistic"}:
                outcomes = self._phase_outcomes(session, phases)
                values = {phase.run: dict(outcomes.get(phase, {})) for phase in phases}
            folders = self._statistic_folders(session, phases) if "statistic" in kinds else {}
        for phase in phases:
            if phase in folders:
                statistics = self._phase_statistics(phase, folders[phase], deadline)
                if statistics is None:
                    pending.append(phase.run)
                else:
                    values.setdefault(phase.run, {}).update(statistics)
        return documents, values, pending

    def _run_documents(self, session: Session, ids: Collection[int] | None) -> dict[int, str]:
        """Select the hashes of the runs' documents, and read those that are new."""
        statement = select(Instance.id, RunDocument.hash).join(RunDocument).order_by(Instance.id)
        documents = {row[0]: row[1] for row in restricted(session, statement, Instance.id, ids)}
        missing = sorted({*documents.values()} - self._documents.keys())
        for chunk in in_chunks(missing):
            question = select(RunDocument.hash, RunDocument.document).where(RunDocument.hash.in_(chunk))
            for hashed, document in session.execute(question):
                values = dict(_leaves(document))
                base = self._bases.setdefault(tuple(values), values)
                other = {path: value for path, value in values.items() if not _same(value, base[path])}
                self._documents[hashed] = _Document(base, other)
        return documents

    def _phase_outcomes(self, session: Session, phases: Sequence[_RunPhase]) -> dict[_RunPhase, _Values]:
        """Select the objectives and rewards of phases."""
        result = {phase: self._outcomes[phase] for phase in phases if phase in self._outcomes}
        for chunk in in_chunks([phase for phase in phases if phase not in result]):
            values = _outcomes(session, [phase.phase for phase in chunk])
            read = {phase: values.get(phase.phase, {}) for phase in chunk}
            result |= read
            self._outcomes |= {phase: read[phase] for phase in chunk if phase.ended is not None}
        return result

    def _phase_statistics(
        self, phase: _RunPhase, folder: tuple[Path, int | None], deadline: float = math.inf
    ) -> _Values | None:
        """Read the statistics of a phase; return ``None`` if they are not in memory, and it is too late."""
        values = self._statistics.get(phase)
        if values is None and time.monotonic() <= deadline:
            values = _statistics(*folder)
            if phase.ended is not None:
                self._statistics[phase] = values
        return values

    def _statistic_folders(
        self, session: Session, phases: Sequence[_RunPhase]
    ) -> dict[_RunPhase, tuple[Path, int | None]]:
        """Select the folders of statistics of phases, and their numbers of parts."""
        by_id = {phase.phase: phase for phase in phases}
        folders: dict[_RunPhase, tuple[Path, int | None]] = {}
        for chunk in in_chunks(list(by_id)):
            statement = select(Stream.phase_id, Stream.folder, Stream.parts).where(
                Stream.phase_id.in_(chunk), Stream.kind == "statistics", ~Stream.evaluation
            )
            for number, folder, parts in session.execute(statement):
                if parts != 0:
                    phase = by_id[number]
                    folders[phase] = inside(self.instance_directory(phase.uid), folder), parts
        return folders

    def _statistic_metrics(self, session: Session) -> Iterator[Metric]:
        """Yield the statistics of the newest runs that have any."""
        statement = (
            select(Phase.instance_id)
            .join(Stream, Stream.phase_id == Phase.id)
            .where(Stream.kind == "statistics", ~Stream.evaluation, func.coalesce(Stream.rows, 1) > 0)
            .group_by(Phase.instance_id)
            .order_by(Phase.instance_id.desc())
            .limit(_SAMPLE)
        )
        runs = [row[0] for row in session.execute(statement)]
        for phase, folder in self._statistic_folders(session, _last_phases(session, runs)).items():
            yield from (metric for metric, _ in self._phase_statistics(phase, folder) or ())


def _leaves(document: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield the paths and values of a document; items of lists are named, if they have a name or a uid."""
    if isinstance(document, dict) and document:
        for key, item in document.items():
            yield from _leaves(item, (*path, str(key)))
    elif isinstance(document, list) and any(isinstance(item, dict | list) for item in document):
        names = [_name(item) for item in document]
        times = Counter(names)
        for number, item in enumerate(document):
            name = names[number]
            if path == ("schedule",) and isinstance(item, dict) and len(item) == 1:
                # an entry of the schedule maps the phase's name to the phase
                yield from _leaves(item, path)
            else:
                is_named = name is not None and times[name] == 1
                yield from _leaves(item, (*path, str(name) if is_named else str(number)))
    else:
        yield ".".join(path), document


def _name(item: Any) -> str | None:
    """Return the name of an agent or the uid of an environment in a list; classes have no name of their own."""
    if not isinstance(item, dict):
        return None
    environment = item.get("environment")
    name = environment.get("uid") if isinstance(environment, dict) else item.get("name")
    return name if isinstance(name, str) and ":" not in name else None


def _same(first: Any, second: Any) -> bool:
    return type(first) is type(second) and (first == second or first is second)


def _parameters(documents: Sequence[_Document]) -> list[Parameter]:
    """Return the paths at which the documents differ, those of several phases together if these agree."""
    bases = {id(document.base): document.base for document in documents}
    paths = dict.fromkeys(path for base in bases.values() for path in base)
    changed = {path for document in documents for path in document.other}
    if len(bases) > 1:
        first, *others = bases.values()
        for path in paths:
            values = [base.get(path, _MISSING) for base in (first, *others)]
            if any(not _same(value, values[0]) for value in values):
                changed.add(path)
    groups: dict[str, list[str]] = {}
    # uid, seed and version are columns of each list of runs
    short_paths = {_without_phase(path) for path in changed if "." in path}
    for path in paths:
        if (short := _without_phase(path)) in short_paths:
            groups.setdefault(short, []).append(path)
    parameters = []
    for short, members in groups.items():
        together = Parameter(short, tuple(members), 0, 0)
        agree = all(_value(document, together) is not _DISAGREE for document in documents)
        apart = [Parameter(path, (path,), 0, 0) for path in members if path in changed]
        for parameter in [together] if agree else apart:
            values = [_value(document, parameter) for document in documents]
            present = [repr(value) for value in values if value is not _MISSING]
            parameters.append(parameter._replace(runs=len(present), values=len({*present})))
    return parameters


_DISAGREE = object()


def _value(document: _Document, parameter: Parameter) -> Any:
    """Return the value of a parameter; :data:`_DISAGREE` if phases have different values."""
    result: Any = _MISSING
    for path in parameter.paths:
        value = document.get(path)
        if value is _MISSING:
            continue
        if result is not _MISSING and not _same(value, result):
            return _DISAGREE
        result = value
    return result


def _without_phase(path: str) -> str:
    """Return the path below a phase: ``agents.a.muscle`` of ``schedule.train.agents.a.muscle``."""
    parts = path.split(".", 2)
    return parts[2] if parts[0] == "schedule" and len(parts) == 3 else path


def _last_phases(session: Session, ids: Collection[int] | None) -> list[_RunPhase]:
    """Select the last phase that each run began."""
    statement = (
        select(Instance.id, Instance.uid, Phase.id, Instance.ended)
        .join(Phase, Phase.instance_id == Instance.id)
        .order_by(Instance.id, Phase.number)
    )
    phases = map(_RunPhase._make, restricted(session, statement, Instance.id, ids))
    return list({phase.run: phase for phase in phases}.values())


def _outcome_metrics(session: Session) -> list[Metric]:
    """Select the objectives and rewards, from the first episode of each phase."""
    statement = (
        select(Outcome.kind, Agent.name, Outcome.name)
        .select_from(Phase)
        .join(
            Outcome,
            and_(
                Outcome.phase_id == Phase.id,
                Outcome.worker == 0,
                Outcome.episode == 0,
                Outcome.evaluation.is_(False),
            ),
        )
        .join(Agent, Agent.id == Outcome.agent_id)
        .distinct()
    )
    return sorted(Metric(*row) for row in session.execute(statement))


def _outcomes(session: Session, phases: Sequence[int]) -> dict[int, _Values]:
    """Select the folds of objectives and rewards of phases, by phase."""
    episode = and_(
        Episode.phase_id == Outcome.phase_id,
        Episode.worker == Outcome.worker,
        Episode.episode == Outcome.episode,
        Episode.evaluation == Outcome.evaluation,
    )
    finished = (Outcome.phase_id.in_(phases), ~Outcome.evaluation, Episode.ended_by.not_in(CUT_SHORT))
    keys = (Outcome.phase_id, Agent.name, Outcome.kind, Outcome.name)
    by_phase: dict[int, _Values] = {}
    counted = select(Body.phase_id, Agent.name, func.sum(Body.count)).join(Agent, Agent.id == Body.agent_id)
    counted = counted.where(Body.phase_id.in_(phases)).group_by(Body.phase_id, Agent.name)
    bodies = {(phase, agent): number for phase, agent, number in session.execute(counted)}

    def add(statement: Any, *folds: str) -> None:
        joined = statement.select_from(Outcome).join(Agent, Agent.id == Outcome.agent_id)
        for phase, agent, kind, name, *values in session.execute(joined.group_by(*keys)):
            of_phase = by_phase.setdefault(phase, {})
            for number, steps in enumerate(STEPS):
                share = bodies.get((phase, agent), 1) if steps == "sum" else 1
                folded = of_phase.setdefault((Metric(kind, agent, name), steps), {})
                for index, fold in enumerate(folds):
                    value = values[number * len(folds) + index]
                    folded[fold] = math.nan if value is None else float(value) / share
                if "max" in folds:
                    folded["best"] = folded["max"]

    columns = [
        fold(column) for column in (Outcome.mean, Outcome.sum) for fold in (func.avg, func.min, func.max)
    ]
    add(select(*keys, *columns).join(Episode, episode).where(*finished), "mean", "min", "max")
    last = (
        select(Episode.phase_id, func.max(Episode.episode).label("episode"))
        .where(Episode.phase_id.in_(phases), ~Episode.evaluation, Episode.ended_by.not_in(CUT_SHORT))
        .group_by(Episode.phase_id)
        .subquery("last")
    )
    newest = and_(last.c.phase_id == Outcome.phase_id, last.c.episode == Outcome.episode)
    means = [func.avg(column) for column in (Outcome.mean, Outcome.sum)]
    add(select(*keys, *means).join(Episode, episode).join(last, newest).where(*finished), "last")
    return by_phase


def _statistics(folder: Path, parts: int | None) -> _Values:
    """Read the folds of the statistics in a folder."""
    paths = parts_so_far(folder, parts)
    if not paths:
        return {}
    table = read_parts(paths, columns=["agent", "key", "worker", "episode", "value"]).to_pandas()
    episodes = table.groupby(["agent", "key", "episode", "worker"], sort=True)["value"].agg(["mean", "sum"])
    result: _Values = {}
    for key, rows in episodes.groupby(level=["agent", "key"], sort=True):
        last = rows[rows.index.get_level_values("episode") == rows.index.get_level_values("episode").max()]
        for steps in STEPS:
            values = rows[steps]
            folds = {
                "mean": values.mean(),
                "min": values.min(),
                "max": values.max(),
                "last": last[steps].mean(),
            }
            result[Metric("statistic", *key), steps] = {fold: float(value) for fold, value in folds.items()}
    return result


def _chosen(name: str, available: Columns) -> _Chosen:
    """Parse the name of a metric's column. Raises :class:`StoreError` if there is no such column."""
    for metric in available.metrics:
        for fold in metric.folds:
            for steps in STEPS:
                if name in _names(metric, steps, fold):
                    return _Chosen(metric, steps, fold)
    names = [parameter.name for parameter in available.parameters]
    names += [f"{metric.source}:{fold}" for metric in available.metrics for fold in metric.folds]
    ends = [name.rpartition(".")[2] for name in names]
    raise StoreError(
        f"the runs have no column {name!r}{did_you_mean(name, [*names, *ends])}; there are: "
        f"{listed(names, _MOST_NAMES) or 'none'}"
    )


def _names(metric: Metric, steps: str, fold: str) -> Iterator[str]:
    """Yield the names of a metric's column, with and without its defaults."""
    yield f"{metric.source}:{steps}:{fold}"
    if steps == STEPS[0]:
        yield f"{metric.source}:{fold}"
        if fold == metric.folds[0]:
            yield metric.source


def matching_columns(patterns: Sequence[str], available: Columns) -> list[str]:
    """Return the names of the columns that match patterns (``*``, ``?``).

    Args:
        patterns: each is the name of a column, or its end after a dot: ``gain``, ``objective.*:best``.
        available: the columns of a store.

    Raises:
        StoreError: nothing matches a pattern.
    """
    chosen: dict[str, None] = {}
    for pattern in patterns:
        source, colon, folds = pattern.partition(":")
        names = [parameter.name for parameter in available.parameters if not colon]
        matching = [name for name in names if _matches(name, pattern)]
        for metric in available.metrics:
            if _matches(metric.source, source):
                matching.append(f"{metric.source}{colon}{folds}")
        for name in matching or [pattern]:
            if name not in names:
                # refuses unknown names and folds
                _chosen(name, available)
            chosen[name] = None
    return list(chosen)


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"*.{pattern}")
